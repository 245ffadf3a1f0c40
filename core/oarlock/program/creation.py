"""Making tensors: from the host, from other tensors, from rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, ShapeError, UnsupportedError
from oarlock.program.backend import Place, place
from oarlock.program.dtype_functions import DEFAULT_FLOAT, as_dtype, convert
from oarlock.program.elementwise import add, as_scalar, equal, greater_equal, less_equal, multiply, positive
from oarlock.program.host import put
from oarlock.program.manipulation import broadcast_shape, broadcast_to, expand_dims, shape_of
from oarlock.program.searching import where as choose
from oarlock.program.tape import Recorded, apply, apply_at

if TYPE_CHECKING:
    from oarlock.program.tensor import Tensor

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "full", "full_like", "iota", "linspace", "meshgrid", "ones",
    "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """``obj`` as a tensor: a tensor, a NumPy array, nested lists of numbers, a number, or what speaks DLPack.

    Python numbers become bool, the default int or float32; others keep their dtype. Data of the host is copied;
    ``copy=False`` refuses that with ValueError. Raises UnsupportedError for a dtype that the device does not store.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(obj, Recorded):
        return _from_tensor(obj, wanted, device, copy)  # type: ignore[arg-type]
    if copy is False:
        raise ValueError("asarray: data of the host must be copied to become a tensor; leave out copy=False")
    where = place(device)
    if isinstance(obj, (bool, int, float)) and not isinstance(obj, np.generic):
        return _from_number(obj, wanted, where)
    array = _host_values(obj, wanted, where)
    return put(where, array)


def _from_tensor(x: Tensor, dtype: DType | None, device: Any, copy: bool | None) -> Tensor:
    moves = device is not None and place(device) is not x._place
    if copy is False and (moves or (dtype is not None and dtype != x._kind.dtype)):
        raise ValueError(f"asarray: a {x._kind.dtype} tensor on {x._place.name} must be copied; leave out copy=False")
    result = x if dtype is None else convert(x, dtype)
    if moves:
        return result.to(device)
    return positive(x) if copy and result is x else result


def _from_number(value: float, dtype: DType | None, where: Place) -> Tensor:
    if dtype is None:
        dtype = _default_dtype(value, where)
    elif dtype.is_integer and isinstance(value, float):
        value = _whole(value)
    where.check_stores(dtype, "asarray")
    return as_scalar(where, dtype, value)


def _whole(value: float) -> int:
    if not math.isfinite(value):
        raise DTypeError(f"{value} cannot become an integer")
    return int(value)


def _default_dtype(value: bool | int | float, where: Place) -> DType:
    if isinstance(value, bool):
        return dtypes.bool_
    return where.default_int if isinstance(value, int) else DEFAULT_FLOAT


def _host_values(obj: Any, dtype: DType | None, where: Place) -> npt.NDArray[Any]:
    """``obj`` as a NumPy array of the wanted dtype, or of the one that its values ask for."""
    if isinstance(obj, (list, tuple)):
        return _from_lists(obj, dtype, where)
    if not hasattr(obj, "__array__") and hasattr(obj, "__dlpack__"):
        from oarlock.program.dlpack import host_view

        array = host_view(obj)
    else:
        array = np.asarray(obj)
    _check_numpy(array)
    return array if dtype is None else array.astype(dtype.numpy)


def _check_numpy(array: npt.NDArray[Any]) -> None:
    if array.dtype.kind == "c":
        raise UnsupportedError(f"complex numbers are not there yet (got {array.dtype}); use a pair of real tensors")
    if array.dtype.kind == "O":
        raise DTypeError("asarray: the values are not all numbers, or the lists differ in length")


def _from_lists(obj: Sequence[Any], dtype: DType | None, where: Place) -> npt.NDArray[Any]:
    try:
        array = np.asarray(obj)
    except OverflowError as error:
        raise DTypeError(f"asarray: {error}") from None
    except ValueError as error:
        raise ShapeError(f"asarray: the lists differ in length: {error}") from None
    _check_numpy(array)
    if dtype is not None:
        return array.astype(dtype.numpy)
    if _holds_typed(obj):
        return array
    if array.dtype.kind == "f":
        return array.astype(DEFAULT_FLOAT.numpy)
    if array.dtype.kind in "iu" and array.size:
        default = where.default_int
        low, high = int(array.min()), int(array.max())
        if low < -(2 ** (default.bits - 1)) or high >= 2 ** (default.bits - 1):
            raise DTypeError(f"asarray: values from {low} to {high} do not fit {default}; give dtype")
        return array.astype(default.numpy)
    return array.astype(where.default_int.numpy) if array.dtype.kind in "iu" else array


def _holds_typed(obj: Any) -> bool:
    """Whether nested lists hold NumPy values or tensors, whose dtypes count."""
    if isinstance(obj, (list, tuple)):
        return any(_holds_typed(item) for item in obj)
    return isinstance(obj, (np.generic, np.ndarray, Recorded))


def full(shape: int | Sequence[int], fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor filled with one number (or the value of a 0-d tensor)."""
    sizes = shape_of("full", shape)
    if isinstance(fill_value, Recorded):
        one = asarray(fill_value, dtype=dtype, device=device)
    else:
        one = _from_number(fill_value, None if dtype is None else as_dtype(dtype), place(device))
    return apply("broadcast", one, shape=sizes, dims=()) if not one._kind.shape else broadcast_to(one, sizes)


def zeros(shape: int | Sequence[int], *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of zeros; float32 when no dtype is given."""
    return full(shape, 0, dtype=DEFAULT_FLOAT if dtype is None else dtype, device=device)


def ones(shape: int | Sequence[int], *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of ones; float32 when no dtype is given."""
    return full(shape, 1, dtype=DEFAULT_FLOAT if dtype is None else dtype, device=device)


def empty(shape: int | Sequence[int], *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor whose values do not matter: zeros, so that programs are deterministic."""
    return zeros(shape, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """``full`` in the shape, and unless given the dtype and device, of x."""
    return full(
        x._kind.shape,
        fill_value,
        dtype=x._kind.dtype if dtype is None else dtype,
        device=x._place.device if device is None else device,
    )


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros in the shape, and unless given the dtype and device, of x."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones in the shape, and unless given the dtype and device, of x."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """``empty`` in the shape, and unless given the dtype and device, of x."""
    return zeros_like(x, dtype=dtype, device=device)


def iota(where: Place, shape: tuple[int, ...], axis: int, dtype: DType | None = None) -> Tensor:
    """The position of each element along ``axis``, as int32 (int64 where that is too small)."""
    small = shape[axis] <= 2**31
    return apply_at(where, "iota", shape=shape, axis=axis, dtype=dtype or (dtypes.int32 if small else dtypes.int64))


def arange(
    start: int | float,
    /,
    stop: int | float | None = None,
    step: int | float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """start, start + step, ... up to, not including, ``stop``; ``arange(n)`` counts from 0."""
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ShapeError("arange: step is 0")
    where = place(device)
    if dtype is None:
        wanted = where.default_int if all(isinstance(v, int) for v in (start, stop, step)) else DEFAULT_FLOAT
    else:
        wanted = as_dtype(dtype)
    if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
        count = max(0, -((start - stop) // step))
    else:
        count = max(0, math.ceil((stop - start) / step))
    if wanted.kind == "bool":
        raise DTypeError("arange: bool cannot count; give an integer or float dtype")
    wide = _counting_dtype(wanted, start, stop, where)
    if wide.is_integer:
        start, step = _whole(start), _whole(step)
    counted = convert(iota(where, (count,), 0), wide)
    scaled = counted if step == 1 else multiply(counted, as_scalar(where, wide, step))
    return convert(scaled if start == 0 else add(scaled, as_scalar(where, wide, start)), wanted)


def _counting_dtype(wanted: DType, start: float, stop: float, where: Place) -> DType:
    """A dtype in which the elements of a range can be worked out: wide enough for start, stop and the count."""
    if wanted.is_float:
        return wanted if wanted.bits >= 32 else dtypes.float32
    if wanted.bits == 64 or not where.stores(dtypes.int64):
        return wanted if wanted.bits >= 32 else dtypes.int32
    fits = max(abs(start), abs(stop)) < 2**30
    return dtypes.int32 if fits and wanted.bits <= 32 else dtypes.int64


def linspace(
    start: float, stop: float, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """``num`` numbers from ``start`` to ``stop`` at equal distances; without ``endpoint``, ``stop`` is left out."""
    if num < 0:
        raise ShapeError(f"linspace: num is {num}; it must not be negative")
    if isinstance(start, complex) or isinstance(stop, complex):
        raise UnsupportedError("linspace: complex numbers are not there yet")
    where = place(device)
    wanted = DEFAULT_FLOAT if dtype is None else as_dtype(dtype)
    wide = wanted if wanted.is_float and wanted.bits >= 32 else dtypes.float32
    if wanted.is_integer and wanted.bits > 16 and where.stores(dtypes.float64):
        wide = dtypes.float64
    parts = num - 1 if endpoint else num
    counted = iota(where, (num,), 0)
    step = (stop - start) / parts if parts > 0 else 0.0
    values = add(
        multiply(convert(counted, wide), as_scalar(where, wide, float(step))), as_scalar(where, wide, float(start))
    )
    if endpoint and num > 1:
        values = choose(equal(counted, num - 1), as_scalar(where, wide, float(stop)), values)
    return convert(values, wanted)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on the ``k``-th diagonal (above the main one for k > 0), zeros elsewhere."""
    shape = shape_of("eye", (n_rows, n_rows if n_cols is None else n_cols))
    where = place(device)
    row, column = iota(where, (shape[0], 1), 0), iota(where, (1, shape[1]), 1)
    return convert(equal(column, add(row, k)), DEFAULT_FLOAT if dtype is None else as_dtype(dtype))


def _triangle(name: str, x: Tensor, k: int, lower: bool) -> Tensor:
    shape = x._kind.shape
    if len(shape) < 2:
        raise ShapeError(f"{name}: shape {shape} has fewer than two dimensions")
    row, column = iota(x._place, (shape[-2], 1), 0), iota(x._place, (1, shape[-1]), 1)
    inside = less_equal(column, add(row, k)) if lower else greater_equal(column, add(row, k))
    return choose(inside, x, as_scalar(x._place, x._kind.dtype, 0))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """x with zeros above the ``k``-th diagonal of its last two dimensions."""
    return _triangle("tril", x, k, True)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """x with zeros below the ``k``-th diagonal of its last two dimensions."""
    return _triangle("triu", x, k, False)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of a grid from one 1-d tensor per axis. ``"xy"`` exchanges the first two axes, ``"ij"`` does not."""
    if indexing not in ("xy", "ij"):
        raise ShapeError(f"meshgrid: indexing is {indexing!r}; use 'xy' or 'ij'")
    rank = len(arrays)
    order = [1, 0, *range(2, rank)] if indexing == "xy" and rank > 1 else list(range(rank))
    placed = []
    for position, x in zip(order, arrays, strict=True):
        if len(x._kind.shape) != 1:
            raise ShapeError(f"meshgrid: a coordinate has shape {x._kind.shape}; each must have one dimension")
        placed.append(expand_dims(x, axis=[a for a in range(rank) if a != position]) if rank > 1 else x)
    shape = broadcast_shape("meshgrid", *[x._kind.shape for x in placed])
    return [broadcast_to(x, shape) for x in placed]
