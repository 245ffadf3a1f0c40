"""Data movement that keeps every value: broadcast, reshape, transpose, slice, reverse, pad, concat."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import Dim, Size, TensorType, traits
from oarlock.ops.inference import axes_of, axis_of, ints_of, same_dtypes
from oarlock.ops.numerics import quiet
from oarlock.ops.record import Array, Attributes, Infer, Record
from oarlock.ops.sampling import Samples, sample, values

__all__ = ["SHAPE", "VIEWS"]


def shape_of(name: str, attributes: Attributes, key: str = "shape") -> tuple[Dim, ...]:
    """The attribute ``key`` as a shape: sizes >= 0 or symbolic; raises ShapeError otherwise."""
    shape = attributes[key]
    ok = isinstance(shape, tuple) and all(isinstance(d, Size) or (isinstance(d, int) and d >= 0) for d in shape)
    if not ok:
        raise ShapeError(f"{name}: {key} is {shape!r}, not a tuple of sizes >= 0")
    return cast("tuple[Dim, ...]", shape)


def _infer_broadcast(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    shape, dims = shape_of("broadcast", attributes), ints_of("broadcast", attributes, "dims", x.rank)
    if list(dims) != sorted(set(dims)) or any(not 0 <= d < len(shape) for d in dims):
        raise ShapeError(f"broadcast: dims is {dims}, but must rise within [0, {len(shape)})")
    for i, d in enumerate(dims):
        if x.shape[i] not in (1, shape[d]):
            raise ShapeError(f"broadcast: dimension {i} of {x} cannot become {shape[d]} (dimension {d} of the result)")
    return (TensorType(x.dtype, shape),)


@quiet
def _broadcast(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    (x,) = operands
    shape, dims = cast("tuple[int, ...]", attributes["shape"]), cast("tuple[int, ...]", attributes["dims"])
    aligned = [1] * len(shape)
    for i, d in enumerate(dims):
        aligned[d] = x.shape[i]
    return (np.broadcast_to(x.reshape(aligned), shape),)


def _factors(shape: Sequence[Dim]) -> tuple[int, Counter[Size]]:
    """The number of elements as an integer and symbolic factors."""
    known, symbolic, todo = 1, Counter[Size](), list(shape)
    while todo:
        dim = todo.pop()
        if isinstance(dim, int):
            known *= dim
        elif dim.operator == "*":
            todo += [dim.left, dim.right]
        else:
            symbolic[dim] += 1
    return known, symbolic


def _infer_reshape(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    shape = shape_of("reshape", attributes)
    if _factors(x.shape) != _factors(shape):
        result = TensorType(x.dtype, shape)
        if x.is_static and result.is_static:
            counts = math.prod(x.static_shape), math.prod(result.static_shape)
            raise ShapeError(f"reshape: {x} has {counts[0]} elements, but shape {shape} has {counts[1]}")
        raise ShapeError(f"reshape: cannot tell whether {x} has as many elements as {result}")
    return (TensorType(x.dtype, shape),)


def _infer_transpose(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    permutation = axes_of("transpose", attributes, x.rank, "permutation")
    if len(permutation) != x.rank:
        raise ShapeError(f"transpose: permutation {permutation} does not name each of the {x.rank} axes of {x} once")
    return (TensorType(x.dtype, tuple(x.shape[axis] for axis in permutation)),)


def _infer_slice(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    starts = ints_of("slice", attributes, "starts", x.rank, least=0)
    steps = ints_of("slice", attributes, "steps", x.rank, least=1)
    limits = shape_of("slice", attributes, "limits")
    if len(limits) != x.rank:
        raise ShapeError(f"slice: limits is {limits}, but {x.rank} numbers are needed for {x}")
    result: list[Dim] = []
    for axis, (dim, start, limit, step) in enumerate(zip(x.shape, starts, limits, steps, strict=True)):
        if dim == limit and start == 0 and step == 1:
            result.append(dim)
        elif not isinstance(dim, int) or not isinstance(limit, int):
            raise ShapeError(f"slice: axis {axis} of {x} is symbolic and can only be taken whole: specialise it")
        elif not start <= limit <= dim:
            raise ShapeError(f"slice: [{start}:{limit}] does not lie within axis {axis} of {x}")
        else:
            result.append(-((start - limit) // step))
    return (TensorType(x.dtype, tuple(result)),)


@quiet
def _slice(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    bounds = zip(*(cast("tuple[int, ...]", attributes[key]) for key in ("starts", "limits", "steps")), strict=True)
    return (operands[0][tuple(slice(*bound) for bound in bounds)],)


def _infer_reverse(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    axes_of("reverse", attributes, types[0].rank)
    return (types[0],)


def _infer_pad(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, value = types
    same_dtypes("pad", types)
    if value.rank != 0:
        raise ShapeError(f"pad: the value is {value}, not 0-d")
    low, high, interior = (ints_of("pad", attributes, key, x.rank, least=0) for key in ("low", "high", "interior"))
    shape = tuple(
        dim if (lo, hi, gap) == (0, 0, 0) else _padded(dim, lo + hi, gap)
        for dim, lo, hi, gap in zip(x.shape, low, high, interior, strict=True)
    )
    return (TensorType(x.dtype, shape),)


def _padded(dim: Dim, outside: int, gap: int) -> Dim:
    if gap == 0:
        return dim + outside
    if not isinstance(dim, int):
        raise ShapeError(f"pad: a dimension of symbolic size {dim} takes no interior padding: specialise it")
    return dim + outside + max(dim - 1, 0) * gap


@quiet
def _pad(operands: Sequence[Array], attributes: Attributes) -> Sequence[Any]:
    x, value = operands
    low, high, interior = (cast("tuple[int, ...]", attributes[key]) for key in ("low", "high", "interior"))
    dims = list(zip(x.shape, low, high, interior, strict=True))
    result = np.full([d + lo + hi + max(d - 1, 0) * gap for d, lo, hi, gap in dims], value, x.dtype)
    result[tuple(slice(lo, lo + d + max(d - 1, 0) * gap, gap + 1) for d, lo, _, gap in dims)] = x
    return (result,)


def _infer_concat(types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    if not types:
        raise ShapeError("concat: needs at least one operand")
    first = types[0]
    same_dtypes("concat", types)
    axis = axis_of("concat", attributes, first.rank)
    total: Dim = 0
    for i, t in enumerate(types):
        if (
            t.shape[:axis] != first.shape[:axis]
            or t.shape[axis + 1 :] != first.shape[axis + 1 :]
            or t.rank != first.rank
        ):
            raise ShapeError(f"concat: operand {i} is {t}, which differs from {first} beyond axis {axis}")
        total = t.shape[axis] + total
    return (TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def _moves(*cases: tuple[tuple[int, ...], dict[str, Any]], fill: bool = False) -> Samples:
    def make(dtype: DType, rng: np.random.Generator) -> list[Any]:
        return [
            sample(values(dtype, rng, shape), *([values(dtype, rng, ())] if fill else []), **attributes)
            for shape, attributes in cases
        ]

    return make


def _concat_samples(dtype: DType, rng: np.random.Generator) -> list[Any]:
    cases: list[tuple[int, list[tuple[int, ...]]]] = [
        (0, [(3,), (5,)]), (0, [(4,)]), (0, [(0,), (2,), (0,)]), (1, [(2, 3), (2, 1), (2, 255)]),
        (1, [(3, 2, 4), (3, 5, 4)]), (0, [(1,)] * 11),
    ]  # fmt: skip
    return [sample(*(values(dtype, rng, shape) for shape in shapes), axis=axis) for axis, shapes in cases]


VIEWS = ("broadcast", "reshape", "transpose", "slice", "reverse")
"""The operators with the trait VIEW."""


def _define(
    name: str,
    summary: str,
    operands: tuple[str, ...],
    infer: Infer,
    reference: Callable[..., Sequence[Any]],
    attributes: dict[str, type],
    samples: Samples,
) -> Record:
    marks = frozenset({traits.PURE, traits.VIEW} if name in VIEWS else {traits.PURE})
    return Record(
        name, "shape", summary, operands, infer, reference, attributes=attributes, samples=samples, traits=marks
    )


SHAPE: tuple[Record, ...] = (
    _define(
        "broadcast",
        "Repeats values: dimension i of the operand becomes dimension dims[i] of the result.",
        ("x",),
        _infer_broadcast,
        _broadcast,
        {"shape": tuple, "dims": tuple},
        _moves(
            ((), {"shape": (), "dims": ()}),
            ((), {"shape": (3, 5), "dims": ()}),
            ((5,), {"shape": (3, 5), "dims": (1,)}),
            ((3,), {"shape": (3, 5), "dims": (0,)}),
            ((3, 1), {"shape": (2, 3, 257), "dims": (1, 2)}),
            ((1,), {"shape": (0, 4), "dims": (1,)}),
            ((2, 3), {"shape": (2, 7, 3), "dims": (0, 2)}),
        ),
    ),
    _define(
        "reshape",
        "The same values, row-major, in another shape.",
        ("x",),
        _infer_reshape,
        quiet(lambda operands, attributes: (operands[0].reshape(cast("tuple[int, ...]", attributes["shape"])),)),
        {"shape": tuple},
        _moves(
            ((), {"shape": (1, 1)}),
            ((6,), {"shape": (2, 3)}),
            ((2, 3, 5), {"shape": (30,)}),
            ((1,), {"shape": ()}),
            ((0, 3), {"shape": (5, 0)}),
            ((4, 6), {"shape": (3, 8)}),
            ((7, 1, 3), {"shape": (7, 3)}),
        ),
    ),
    _define(
        "transpose",
        "Axes permuted: axis i of the result is axis permutation[i] of the operand.",
        ("x",),
        _infer_transpose,
        quiet(
            lambda operands, attributes: (operands[0].transpose(cast("tuple[int, ...]", attributes["permutation"])),)
        ),
        {"permutation": tuple},
        _moves(
            ((), {"permutation": ()}),
            ((7,), {"permutation": (0,)}),
            ((17, 33), {"permutation": (1, 0)}),
            ((2, 3, 5), {"permutation": (2, 0, 1)}),
            ((2, 3, 5), {"permutation": (0, 2, 1)}),
            ((0, 4), {"permutation": (1, 0)}),
            ((2, 3, 1, 5), {"permutation": (3, 1, 2, 0)}),
        ),
    ),
    _define(
        "slice",
        "Every steps-th value from starts (included) to limits (excluded), in each dimension.",
        ("x",),
        _infer_slice,
        _slice,
        {"starts": tuple, "limits": tuple, "steps": tuple},
        _moves(
            ((), {"starts": (), "limits": (), "steps": ()}),
            ((9,), {"starts": (2,), "limits": (7,), "steps": (1,)}),
            ((9,), {"starts": (1,), "limits": (9,), "steps": (3,)}),
            ((9,), {"starts": (4,), "limits": (4,), "steps": (1,)}),
            ((5, 7), {"starts": (1, 0), "limits": (4, 7), "steps": (2, 5)}),
            ((300,), {"starts": (0,), "limits": (257,), "steps": (1,)}),
            ((0, 2), {"starts": (0, 1), "limits": (0, 2), "steps": (1, 1)}),
        ),
    ),
    _define(
        "reverse",
        "The order of values turned round along axes.",
        ("x",),
        _infer_reverse,
        quiet(lambda operands, attributes: (np.flip(operands[0], cast("tuple[int, ...]", attributes["axes"])),)),
        {"axes": tuple},
        _moves(
            ((), {"axes": ()}),
            ((7,), {"axes": (0,)}),
            ((3, 5), {"axes": (1,)}),
            ((3, 5, 2), {"axes": (0, 2)}),
            ((0,), {"axes": (0,)}),
        ),
    ),
    _define(
        "pad",
        "x surrounded by low and high copies of value, and interior copies between neighbours, in each dimension.",
        ("x", "value"),
        _infer_pad,
        _pad,
        {"low": tuple, "high": tuple, "interior": tuple},
        _moves(
            ((), {"low": (), "high": (), "interior": ()}),
            ((5,), {"low": (2,), "high": (1,), "interior": (0,)}),
            ((5,), {"low": (0,), "high": (0,), "interior": (2,)}),
            ((0,), {"low": (1,), "high": (2,), "interior": (3,)}),
            ((3, 4), {"low": (1, 0), "high": (0, 2), "interior": (1, 2)}),
            ((255,), {"low": (0,), "high": (2,), "interior": (0,)}),
            fill=True,
        ),
    ),
    _define(
        "concat",
        "Operands joined along an axis.",
        ("*xs",),
        _infer_concat,
        quiet(lambda operands, attributes: (np.concatenate(operands, cast(int, attributes["axis"])),)),
        {"axis": int},
        _concat_samples,
    ),
)
"""Their records."""
