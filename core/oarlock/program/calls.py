"""Kinds and calls: interned types of tensors, and operators with the inference already made.

Both are compared by identity, so that keys made of them hash fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError
from oarlock.ir import Attribute, Context, OpDefinition, ScalarType, TensorType, Type, traits

if TYPE_CHECKING:
    from oarlock.program.backend import Place

__all__ = ["Call", "Kind", "Number", "context", "infer", "kind", "scalar_call"]

MEMO_LIMIT = 65_536
"""Inferences kept per device; all are dropped when there are more, so endless new shapes do not pile up."""


class Call:
    """An operator with its attributes on operands of fixed kinds, or a leaf: an input of the program."""

    __slots__ = ("attributes", "count", "definition", "is_view", "nbytes", "results", "role", "type")

    def __init__(
        self,
        role: Literal["operator", "tensor", "scalar"],
        results: tuple[Kind, ...],
        definition: OpDefinition | None = None,
        attributes: dict[str, Attribute] | None = None,
        type: Type | None = None,
    ) -> None:
        self.role = role
        self.results = results
        self.definition = definition
        self.attributes = attributes or {}
        self.type = type
        """The type of the program's parameter, for a leaf."""
        self.nbytes = sum(result.nbytes for result in results)
        self.count = len(results)
        self.is_view = definition is not None and definition.has(traits.VIEW)

    @property
    def name(self) -> str:
        return self.definition.name.split(".", 1)[1] if self.definition is not None else self.role


class Kind:
    """The dtype and shape of a tensor, interned: use ``kind(dtype, shape)``."""

    __slots__ = ("__weakref__", "dtype", "leaf", "nbytes", "shape", "size", "type")

    def __init__(self, dtype: DType, shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.shape = shape
        self.size = math.prod(shape)
        self.nbytes = self.size * dtype.itemsize
        self.type = TensorType(dtype, shape)
        self.leaf = Call("tensor", (self,), type=self.type)

    def __repr__(self) -> str:
        return str(self.type)


_kinds: WeakValueDictionary[tuple[str, tuple[int, ...]], Kind] = WeakValueDictionary()


def kind(dtype: DType, shape: Sequence[int]) -> Kind:
    """The one Kind of ``dtype`` and ``shape``."""
    key = (dtype.name, tuple(shape))
    found = _kinds.get(key)
    if found is None:
        found = _kinds.setdefault(key, Kind(dtype, key[1]))
    return found


class Number:
    """The data of a 0-d tensor that needs no memory: it enters programs as a run-time scalar.

    As an operand it stands for that tensor, which then need not be made.
    """

    __slots__ = ("_kind", "_place", "value")
    _tape = None
    _number = -1

    def __init__(self, kind: Kind, place: Place, value: float | int) -> None:
        self._kind = kind
        self._place = place
        self.value = value

    @property
    def _data(self) -> Number:
        return self

    def _settle(self) -> Number:
        return self


_CARRIERS: dict[str, DType] = {
    "bool": dtypes.int32,
    "int8": dtypes.int32,
    "int16": dtypes.int32,
    "uint8": dtypes.uint32,
    "uint16": dtypes.uint32,
    "float16": dtypes.float32,
    "bfloat16": dtypes.float32,
}
"""dtypes that cannot travel in a kernel's scalar block, and the wider ones that carry them exactly."""

_scalars: dict[str, Call] = {}


def scalar_call(dtype: DType) -> Call:
    """The leaf of a run-time scalar that becomes a 0-d tensor of ``dtype``."""
    found = _scalars.get(dtype.name)
    if found is None:
        carrier = _CARRIERS.get(dtype.name, dtype)
        found = _scalars[dtype.name] = Call("scalar", (kind(dtype, ()),), type=ScalarType(carrier))
    return found


_context: Context | None = None


def context() -> Context:
    """The dialects of recorded programs; the catalogue is loaded on first use."""
    global _context
    if _context is None:
        from oarlock.ops import array_context

        _context = array_context()
    return _context


def infer(place: Place, name: str, kinds: Sequence[Kind], attributes: dict[str, Attribute]) -> Call:
    """The call of operator ``name``; raises ShapeError, DTypeError or UnsupportedError when there is none such."""
    definition = context().definition("array." + name)
    if definition.infer is None:
        raise UnsupportedError(f"{name} cannot be recorded: its result types cannot be inferred")
    results: list[Kind] = []
    for type in definition.infer([k.type for k in kinds], attributes):
        if not isinstance(type, TensorType):
            raise UnsupportedError(f"{name} gives {type}, which is no tensor")
        place.check_stores(type.dtype, f"result of {name}")
        results.append(kind(type.dtype, type.static_shape))
    return Call("operator", tuple(results), definition, attributes)
