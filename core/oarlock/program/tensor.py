"""The tensor: an array of values on a device, there or still to be computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from oarlock.dtypes import DType
from oarlock.errors import DTypeError, ShapeError, UnsupportedError
from oarlock.program import assignment, dlpack, dtype_functions, elementwise, indexing, linear, manipulation
from oarlock.program.backend import DeviceLike, place
from oarlock.program.elementwise import Operand
from oarlock.program.host import host_array, host_view, moved
from oarlock.program.repr import tensor_repr
from oarlock.program.tape import Recorded

__all__ = ["Tensor"]

_OPERANDS = (Recorded, bool, int, float, np.ndarray, np.generic)


class Tensor(Recorded):
    """An n-d array on a device. Make one with ``ol.asarray`` and the other creation functions.

    Tensors are values: functions give new ones, which never share storage that can change, and ``x[i] = v`` makes x
    name a new version. Operators are recorded and run when a value is looked at: by ``print``, NumPy, ``bool``,
    ``item``, DLPack, from another thread, or by ``ol.synchronize()``.
    """

    __slots__ = ()
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        raise UnsupportedError("make tensors with ol.asarray, ol.zeros and the like")

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self._kind.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._kind.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._kind.size

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes, as the host stores them."""
        return self._kind.nbytes

    @property
    def dtype(self) -> DType:
        """The data type of the elements."""
        return self._kind.dtype

    @property
    def device(self) -> DeviceLike:
        """The device that it lives on."""
        return self._place.device

    @property
    def mT(self) -> Tensor:
        """The last two dimensions exchanged."""
        return manipulation.matrix_transpose(self)

    @property
    def T(self) -> Tensor:
        """The transposed matrix; only for two dimensions."""
        if self.ndim != 2:
            raise ShapeError(f"T is for two dimensions, not shape {self.shape}; use mT or permute_dims")
        return manipulation.matrix_transpose(self)

    def astype(self, dtype: Any, /) -> Tensor:
        """The values as another dtype; see ``ol.astype``."""
        return dtype_functions.astype(self, dtype)

    def to(self, device: Any, /) -> Tensor:
        """The values on another device, given by name or object; itself when it is there already."""
        where = place(device)
        return self if where is self._place else moved(self, where)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """``to``, by the name that the array API standard has for it; ``stream`` must be None."""
        if stream is not None:
            raise UnsupportedError("to_device: streams of other libraries cannot be used; leave out stream")
        return self.to(device)

    def reshape(self, *shape: Any) -> Tensor:
        """See ``ol.reshape``; sizes may be given one by one."""
        return manipulation.reshape(self, shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape)

    def item(self) -> bool | int | float:
        """The only element, as a Python number; raises ShapeError when there are none or several."""
        if self.size != 1:
            raise ShapeError(f"item() is for one element; shape {self.shape} has {self.size}")
        return cast("bool | int | float", self.numpy().item())

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self.numpy().tolist()

    def numpy(self) -> npt.NDArray[Any]:
        """A NumPy copy of the values."""
        return host_array(self)

    def __repr__(self) -> str:
        return tensor_repr(self)

    def __len__(self) -> int:
        if not self.shape:
            raise RankError("a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise RankError("a 0-d tensor cannot be iterated over")
        return iter(manipulation.unstack(self))

    def __getitem__(self, key: Any) -> Tensor:
        return indexing.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._become(assignment.with_item(self, key, value))

    # --- conversion ---

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            array = host_view(self)
            if array is None or (dtype is not None and array.dtype != dtype):
                raise ValueError("the values must be copied from the device or converted; leave out copy=False")
            return array
        array = host_array(self)
        return array if dtype is None else array.astype(dtype)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"array API version {api_version!r} is not there; the newest is '2024.12'")
        return import_module("oarlock")

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return dlpack.export(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.HOST

    def __bool__(self) -> bool:
        return bool(self._one("bool"))

    def __int__(self) -> int:
        return int(self._one("int"))

    def __float__(self) -> float:
        return float(self._one("float"))

    def __complex__(self) -> complex:
        return complex(self._one("complex"))

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise DTypeError(f"only integers can be an index; this tensor is {self.dtype}")
        return int(self._one("index"))

    def _one(self, what: str) -> bool | int | float:
        if self.size != 1 or (self.shape and what != "bool"):
            raise RankError(f"{what}() is for a 0-d tensor, not shape {self.shape}: use any(), all() or item()")
        return self.item()

    # --- operators ---

    def __add__(self, other: Operand) -> Tensor:
        return elementwise.add(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __radd__(self, other: Operand) -> Tensor:
        return elementwise.add(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def __iadd__(self, other: Operand) -> Tensor:
        return self._updated("add", elementwise.add(self, other)) if isinstance(other, _OPERANDS) else NotImplemented

    def __sub__(self, other: Operand) -> Tensor:
        return elementwise.subtract(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __rsub__(self, other: Operand) -> Tensor:
        return elementwise.subtract(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def __isub__(self, other: Operand) -> Tensor:
        return (
            self._updated("subtract", elementwise.subtract(self, other))
            if isinstance(other, _OPERANDS)
            else NotImplemented
        )

    def __mul__(self, other: Operand) -> Tensor:
        return elementwise.multiply(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __rmul__(self, other: Operand) -> Tensor:
        return elementwise.multiply(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def __imul__(self, other: Operand) -> Tensor:
        return (
            self._updated("multiply", elementwise.multiply(self, other))
            if isinstance(other, _OPERANDS)
            else NotImplemented
        )

    def __truediv__(self, other: Operand) -> Tensor:
        return elementwise.divide(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __rtruediv__(self, other: Operand) -> Tensor:
        return elementwise.divide(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def __itruediv__(self, other: Operand) -> Tensor:
        return (
            self._updated("divide", elementwise.divide(self, other)) if isinstance(other, _OPERANDS) else NotImplemented
        )

    def __floordiv__(self, other: Operand) -> Tensor:
        return elementwise.floor_divide(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __rfloordiv__(self, other: Operand) -> Tensor:
        return elementwise.floor_divide(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def __ifloordiv__(self, other: Operand) -> Tensor:
        return (
            self._updated("floor_divide", elementwise.floor_divide(self, other))
            if isinstance(other, _OPERANDS)
            else NotImplemented
        )

    def __mod__(self, other: Operand) -> Tensor:
        return elementwise.remainder(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __rmod__(self, other: Operand) -> Tensor:
        return elementwise.remainder(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def __imod__(self, other: Operand) -> Tensor:
        return (
            self._updated("remainder", elementwise.remainder(self, other))
            if isinstance(other, _OPERANDS)
            else NotImplemented
        )

    def __pow__(self, other: Operand) -> Tensor:
        return elementwise.pow(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __rpow__(self, other: Operand) -> Tensor:
        return elementwise.pow(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def __ipow__(self, other: Operand) -> Tensor:
        return self._updated("pow", elementwise.pow(self, other)) if isinstance(other, _OPERANDS) else NotImplemented

    def __and__(self, other: Operand) -> Tensor:
        return elementwise.bitwise_and(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __rand__(self, other: Operand) -> Tensor:
        return elementwise.bitwise_and(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def __iand__(self, other: Operand) -> Tensor:
        return (
            self._updated("bitwise_and", elementwise.bitwise_and(self, other))
            if isinstance(other, _OPERANDS)
            else NotImplemented
        )

    def __or__(self, other: Operand) -> Tensor:
        return elementwise.bitwise_or(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __ror__(self, other: Operand) -> Tensor:
        return elementwise.bitwise_or(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def __ior__(self, other: Operand) -> Tensor:
        return (
            self._updated("bitwise_or", elementwise.bitwise_or(self, other))
            if isinstance(other, _OPERANDS)
            else NotImplemented
        )

    def __xor__(self, other: Operand) -> Tensor:
        return elementwise.bitwise_xor(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __rxor__(self, other: Operand) -> Tensor:
        return elementwise.bitwise_xor(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def __ixor__(self, other: Operand) -> Tensor:
        return (
            self._updated("bitwise_xor", elementwise.bitwise_xor(self, other))
            if isinstance(other, _OPERANDS)
            else NotImplemented
        )

    def __lshift__(self, other: Operand) -> Tensor:
        return elementwise.bitwise_left_shift(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __rlshift__(self, other: Operand) -> Tensor:
        return elementwise.bitwise_left_shift(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def __ilshift__(self, other: Operand) -> Tensor:
        return (
            self._updated("bitwise_left_shift", elementwise.bitwise_left_shift(self, other))
            if isinstance(other, _OPERANDS)
            else NotImplemented
        )

    def __rshift__(self, other: Operand) -> Tensor:
        return elementwise.bitwise_right_shift(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __rrshift__(self, other: Operand) -> Tensor:
        return elementwise.bitwise_right_shift(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def __irshift__(self, other: Operand) -> Tensor:
        return (
            self._updated("bitwise_right_shift", elementwise.bitwise_right_shift(self, other))
            if isinstance(other, _OPERANDS)
            else NotImplemented
        )

    def __matmul__(self, other: Operand) -> Tensor:
        return linear.matmul(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __rmatmul__(self, other: Operand) -> Tensor:
        return linear.matmul(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    def __imatmul__(self, other: Operand) -> Tensor:
        return self._updated("matmul", linear.matmul(self, other)) if isinstance(other, _OPERANDS) else NotImplemented

    def __eq__(self, other: Operand) -> Tensor:  # type: ignore[override]
        return elementwise.equal(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __ne__(self, other: Operand) -> Tensor:  # type: ignore[override]
        return elementwise.not_equal(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __lt__(self, other: Operand) -> Tensor:
        return elementwise.less(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __le__(self, other: Operand) -> Tensor:
        return elementwise.less_equal(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __gt__(self, other: Operand) -> Tensor:
        return elementwise.greater(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __ge__(self, other: Operand) -> Tensor:
        return elementwise.greater_equal(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def __neg__(self) -> Tensor:
        return elementwise.negative(self)

    def __pos__(self) -> Tensor:
        return elementwise.positive(self)

    def __abs__(self) -> Tensor:
        return elementwise.abs(self)

    def __invert__(self) -> Tensor:
        return elementwise.bitwise_invert(self)

    def _updated(self, name: str, result: Tensor) -> Tensor:
        """An in-place operator: this tensor takes the new value, which must keep its dtype and shape."""
        if result._kind is not self._kind:
            raise DTypeError(
                f"{name} in place: the result is {result._kind}, which does not fit {self._kind}; write x = x ... y"
            )
        self._become(result)
        return self


class RankError(ShapeError, TypeError):
    """A tensor has too many or too few dimensions for what Python wants of it, such as one number, or a length."""
