"""The operator record: everything that Oarlock knows about one operator, in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, ShapeError, VerifyError
from oarlock.ir import (
    Attribute,
    Builder,
    Dense,
    Evaluate,
    Interpreter,
    OpDefinition,
    Operation,
    ScalarType,
    TensorType,
    Trait,
    Type,
    Value,
    traits,
)
from oarlock.ir.extents import known

__all__ = ["Array", "ArrayBuilder", "Attributes", "Infer", "Record", "Sample", "Tolerance", "tensor"]

Array: TypeAlias = npt.NDArray[Any]
Attributes: TypeAlias = Mapping[str, Attribute]
Infer = Callable[[Sequence[TensorType], Attributes], Sequence[TensorType]]
Reference = Callable[[Sequence[Array], Attributes], Sequence[Array]]
Tolerance = Literal["exact", "arithmetic", "elementary", "power", "reduction", "contraction", "random"]
"""Which row of the tolerance table applies: exact results; correctly rounded arithmetic; elementary functions; pow;
sums and products by length; matrix products and convolutions; distributions."""


class ArrayBuilder(Builder):
    """A Builder whose calls are operators: ``b("add", x, y)`` is the value of ``array.add``.

    Decompositions, gradients and importers are functions over it.
    """

    def __call__(self, operator: str, *operands: Value, **attributes: Attribute) -> Value:
        """Emit an operator with one result."""
        return self.create("array." + operator, operands, attributes).result

    def many(self, operator: str, *operands: Value, **attributes: Attribute) -> tuple[Value, ...]:
        """Emit an operator with any number of results."""
        return self.create("array." + operator, operands, attributes).results

    def constant(self, value: npt.ArrayLike, dtype: DType | None = None) -> Value:
        """A constant tensor; ``dtype`` converts it first."""
        array = np.asarray(known(value)) if dtype is None else np.asarray(known(value)).astype(dtype.numpy)
        return self("constant", value=Dense(array))

    def full(self, value: float | int | bool, like: Value) -> Value:
        """``value`` in the dtype and shape of ``like``."""
        kind = tensor(like)
        return self("broadcast", self.constant(np.asarray(known(value)), kind.dtype), shape=kind.shape, dims=())

    def convert(self, value: Value, dtype: DType) -> Value:
        """``value`` as ``dtype``; itself when it is that already."""
        return value if tensor(value).dtype == dtype else self("convert", value, dtype=dtype)


def tensor(value: Value) -> TensorType:
    """The tensor type of ``value``; raises DTypeError when it is something else."""
    if not isinstance(value.type, TensorType):
        raise DTypeError(f"expected a tensor, got {value.type}")
    return value.type


def _named(kinds: type | tuple[type, ...]) -> str:
    return " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))


@dataclass(frozen=True, slots=True)
class Sample:
    """One call for the conformance suite: operands and attributes."""

    operands: tuple[Array, ...]
    attributes: dict[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One operator. Its IR operation is ``array.<name>``, or that of a plugin's dialect.

    ``operands`` names the operands; ``"*xs"`` last stands for any number. ``attributes`` maps names to Python types;
    those in ``optional`` may be absent. ``dtypes`` are what the data operands (or, without any, the result) may be.
    ``decompose`` is None for a primitive, which then has a lowering to kernels. ``samples`` gives calls for one dtype
    (by family where None). ``host`` marks an operator that runs on the host by declaration.
    """

    name: str
    family: str
    summary: str
    operands: tuple[str, ...]
    infer: Infer
    reference: Reference
    attributes: Mapping[str, type | tuple[type, ...]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    results: int = 1
    dtypes: tuple[DType, ...] = dtypes.ALL
    decompose: Callable[[ArrayBuilder, Sequence[Value], Attributes], Sequence[Value]] | None = None
    gradient: Callable[..., Sequence[Value | None]] | None = None
    batching: Callable[..., Any] | None = None
    sharding: str | None = None
    tolerance: Tolerance = "exact"
    traits: frozenset[Trait] = frozenset({traits.PURE})
    samples: Callable[[DType, np.random.Generator], Sequence[Sample]] | None = None
    host: bool = False
    scalars: bool = False

    @property
    def is_primitive(self) -> bool:
        return self.decompose is None

    @property
    def is_elementwise(self) -> bool:
        return traits.ELEMENTWISE in self.traits

    def check_arity(self, count: int) -> None:
        """Raise ShapeError when ``count`` operands do not fit."""
        variadic = bool(self.operands) and self.operands[-1].startswith("*")
        least = len(self.operands) - variadic
        if count < least or (count > least and not variadic):
            raise ShapeError(f"{self.name} takes {', '.join(self.operands) or 'no operands'}; got {count} operands")

    def check_attributes(self, attributes: Attributes) -> None:
        """Raise VerifyError for an attribute that is missing, unknown or of a wrong type."""
        for key, kinds in self.attributes.items():
            if key not in attributes:
                if key not in self.optional:
                    raise VerifyError(
                        f"{self.name} needs the attribute {key}; it has {', '.join(attributes) or 'none'}"
                    )
            elif not isinstance(attributes[key], kinds) or (isinstance(attributes[key], bool) and kinds is not bool):
                raise VerifyError(f"{self.name}: attribute {key} is {attributes[key]!r}, not {_named(kinds)}")
        for key in attributes:
            if key not in self.attributes:
                raise VerifyError(f"{self.name} has no attribute {key}; it has {', '.join(self.attributes) or 'none'}")

    def infer_types(self, types: Sequence[Type], attributes: Attributes) -> Sequence[TensorType]:
        """Result types of a call, with every check; a run-time scalar counts as a 0-d tensor where one is allowed."""
        self.check_arity(len(types))
        self.check_attributes(attributes)
        tensors: list[TensorType] = []
        for given in types:
            if isinstance(given, ScalarType) and self.scalars and given.lanes == 1:
                tensors.append(TensorType(given.dtype, ()))
            elif isinstance(given, TensorType) and not self.scalars:
                tensors.append(given)
            else:
                raise DTypeError(
                    f"{self.name}: expected {'run-time scalars' if self.scalars else 'tensors'}, got {given}"
                )
        return self.infer(tensors, attributes)

    def evaluate(self, op: Operation, operands: Sequence[Array], interpreter: Interpreter) -> Sequence[Array]:
        """The results of ``op`` by the reference: how programs are interpreted."""
        return self.reference(operands, interpreter.attributes(op))

    def definition(self, dialect: str = "array") -> OpDefinition:
        """The IR operation of this record, in ``dialect``; ``interface(Record)`` leads back here."""
        variadic = bool(self.operands) and self.operands[-1].startswith("*")
        return OpDefinition(
            name=f"{dialect}.{self.name}",
            summary=self.summary,
            operands=None if variadic else len(self.operands),
            results=self.results,
            attributes=dict(self.attributes),
            optional=self.optional,
            traits=self.traits,
            infer=self.infer_types,
            interfaces={Record: self, Evaluate: Evaluate(self.evaluate)},
        )
