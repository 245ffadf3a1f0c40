"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, ShapeError
from oarlock.program.elementwise import Operand, tensors
from oarlock.program.manipulation import broadcast_shape, broadcast_to, moveaxis, one_axis
from oarlock.program.tape import apply

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = ["matmul", "outer", "tensordot", "vecdot"]

Pairs = tuple[Sequence[int], Sequence[int]]


def _dot(x: Tensor, y: Tensor, batch: Pairs, contract: Pairs) -> Tensor:
    """Products summed over ``contract``, one for each position of ``batch``; result: batch, rest of x, rest of y."""
    dtype: DType = x._kind.dtype
    pairs = ((tuple(batch[0]), tuple(batch[1])), (tuple(contract[0]), tuple(contract[1])))
    return apply("dot_general", x, y, batch=pairs[0], contract=pairs[1], dtype=dtype)


def _numbers(name: str, x1: Operand, x2: Operand) -> tuple[Tensor, Tensor]:
    x, y = tensors(name, x1, x2)
    if x._kind.dtype == dtypes.bool_:
        raise DTypeError(f"{name}: operands are bool; convert them to numbers first")
    return x, y


def matmul(x1: Operand, x2: Operand, /) -> Tensor:
    """The matrix product of the last two dimensions; leading ones broadcast. A 1-d operand is a row, or a column.

    Raises ShapeError when an operand has no dimension or the inner sizes differ.
    """
    return apply("matmul", *_numbers("matmul", x1, x2))


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Products summed over the last ``axes`` dimensions of x1 and the first of x2, or over the named pairs."""
    x, y = _numbers("tensordot", x1, x2)
    ranks = len(x._kind.shape), len(y._kind.shape)
    if isinstance(axes, int):
        if axes < 0 or axes > min(ranks):
            raise ShapeError(f"tensordot: axes is {axes} for shapes {x._kind.shape} and {y._kind.shape}")
        pairs: Pairs = (range(ranks[0] - axes, ranks[0]), range(axes))
    else:
        pairs = ([one_axis("tensordot", a, x) for a in axes[0]], [one_axis("tensordot", a, y) for a in axes[1]])
    sizes = [x._kind.shape[a] for a in pairs[0]], [y._kind.shape[a] for a in pairs[1]]
    if sizes[0] != sizes[1]:
        raise ShapeError(f"tensordot: contracted sizes {sizes[0]} and {sizes[1]} differ")
    return _dot(x, y, ((), ()), pairs)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Products summed over ``axis``, counted from the end (-1 is the last); the other dimensions broadcast."""
    x, y = _numbers("vecdot", x1, x2)
    if axis >= 0:
        raise ShapeError(f"vecdot: axis is {axis}; count it from the end: -1 is the last")
    x, y = moveaxis(x, one_axis("vecdot", axis, x), -1), moveaxis(y, one_axis("vecdot", axis, y), -1)
    if x._kind.shape[-1] != y._kind.shape[-1]:
        raise ShapeError(f"vecdot: sizes {x._kind.shape[-1]} and {y._kind.shape[-1]} along axis {axis} differ")
    shape = broadcast_shape("vecdot", x._kind.shape, y._kind.shape)
    rank = len(shape) - 1
    return _dot(broadcast_to(x, shape), broadcast_to(y, shape), (range(rank), range(rank)), ((rank,), (rank,)))


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Every product of an element of the 1-d x1 with one of the 1-d x2."""
    x, y = _numbers("outer", x1, x2)
    if len(x._kind.shape) != 1 or len(y._kind.shape) != 1:
        raise ShapeError(f"outer: shapes {x._kind.shape} and {y._kind.shape}; both must have one dimension")
    return x[:, None] * y[None, :]
