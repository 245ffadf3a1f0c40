"""Random typed programs as data: a recipe is a few lists of small numbers, and every recipe is a program.

Numbers choose operators, operands and attributes among those that fit, so that whatever shortens a recipe or makes its
numbers smaller gives a smaller program. Operators come from the records: element-wise ones as they are, the others by
the makers of ``moves``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import OarlockError
from oarlock.ir import Operation, TensorType, Value
from oarlock.ops import RECORDS, ArrayBuilder, Record, tensor
from oarlock.target import Target
from oarlock_conformance.cases.operators.build import build_function
from oarlock_conformance.cases.operators.moves import MAKERS, Turn

__all__ = ["Flavour", "Program", "Recipe", "Step", "program_of", "stored_dtypes"]

Array = npt.NDArray[Any]
Flavour: TypeAlias = Literal["exact", "any"]
"""exact: integers, and floats that hold small whole numbers, so that sums are exact and bits must agree with the
interpreter's; any: every element-wise operator on any floats, no sums of them."""

Step: TypeAlias = "tuple[int, int, int, int, int, int]"
"""Which operator, its operand, and four numbers that its maker uses."""

_LIMIT = 64
"""Floats are kept in [-64, 64] in exact programs."""
_SHAPES: tuple[tuple[int, ...], ...] = (
    (3,), (2, 3), (1,), (), (4, 5), (8,), (16, 3), (7, 1), (2, 3, 4), (1, 13), (33,), (0, 3), (5, 64), (17, 31),
    (2, 2, 9),
)  # fmt: skip
_SIGNS = frozenset({"signbit", "copysign", "nextafter", "bitcast", "constant", "from_scalar"})
"""They see the sign of zero, which some operators leave open; or have no operand to be drawn."""
_WHOLE = frozenset({"add", "subtract", "multiply", "square", "floor_divide", "remainder"})
"""Operators of rounded arithmetic that are exact on small whole numbers."""
_RESULTS = 4


@dataclass(frozen=True, slots=True)
class Recipe:
    """A program to be. ``inputs``: (dtype, shape, seed of the values) by number."""

    flavour: Flavour
    inputs: tuple[tuple[int, int, int], ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A function with its operands."""

    function: Operation
    operands: tuple[Array, ...]


def stored_dtypes(target: Target) -> tuple[DType, ...]:
    """What programs may hold, the commonest first."""
    order = ("float32", "int32", "bool", "float16", "uint8", "bfloat16", "int64", "int8", "float64", "uint32", "int16")
    more = (dtype.name for dtype in dtypes.ALL if dtype.name not in order)
    return tuple(dtype for dtype in map(dtypes.by_name, (*order, *more)) if target.stores(dtype))


def program_of(recipe: Recipe, kinds: Sequence[DType]) -> Program:
    """The program of a recipe for a device that stores ``kinds``."""
    operands = [
        _values(recipe.flavour, kinds[k % len(kinds)], _SHAPES[s % len(_SHAPES)], seed) for k, s, seed in recipe.inputs
    ]
    types = [TensorType(dtypes.from_numpy(x.dtype), x.shape) for x in operands]

    def body(b: ArrayBuilder, *arguments: Value) -> list[Value]:
        values = list(arguments)
        for step in recipe.steps:
            made = _step(b, values, step, recipe.flavour, kinds)
            if made is not None and made not in values:
                values.append(made)
        ends = [value for value in values[len(arguments) :] if not value.uses]
        return ends[-_RESULTS:] or [values[-1]]

    return Program(build_function(types, body, "random"), tuple(operands))


def _values(flavour: Flavour, kind: DType, shape: tuple[int, ...], seed: int) -> Array:
    if seed == 0:
        return np.resize(np.arange(5), shape).astype(kind.numpy)
    random = np.random.default_rng(seed)
    if kind.is_float and flavour == "any":
        wide = random.standard_normal(shape) * np.exp2(random.integers(-4, 8, shape))
        special = random.choice([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, 1e-40, 3e38], shape)
        with np.errstate(all="ignore"):
            return np.where(random.random(shape) < 0.08, special, wide).astype(kind.numpy)
    if kind.is_integer and seed % 3 == 0:
        limits = np.iinfo(kind.numpy)
        return random.integers(limits.min, limits.max, shape, dtype=kind.numpy, endpoint=True)
    return random.integers(0 if kind.kind in ("uint", "bool") else -8, 2 if kind.kind == "bool" else 9, shape).astype(
        kind.numpy
    )


def _step(b: ArrayBuilder, values: list[Value], step: Step, flavour: Flavour, kinds: Sequence[DType]) -> Value | None:
    """One more value, or None where the operator does not fit the operands."""
    which, place, *numbers = step
    x = values[-1 - place % len(values)]
    turn = Turn(b, x, values, tuple(numbers), kinds, sums=flavour == "exact" or not tensor(x).dtype.is_float)
    if which % 2 == 0:
        made = _elementwise(turn, which // 2, flavour)
    else:
        made = MAKERS[which // 2 % len(MAKERS)](turn)
    if made is None or made is x or flavour == "any" or not tensor(made).dtype.is_float:
        return made
    return b("minimum", b("maximum", made, b.full(-_LIMIT, made)), b.full(_LIMIT, made))


def _elementwise(turn: Turn, which: int, flavour: Flavour) -> Value | None:
    """An element-wise record on ``turn.x`` and other values that fit it."""
    kind = tensor(turn.x).dtype
    records = [record for record in RECORDS.values() if _draws(record, kind, flavour)]
    if not records:
        return None
    record = records[which % len(records)]
    if record.name == "convert":
        return turn.b.convert(turn.x, turn.kinds[turn.number(0) % len(turn.kinds)])
    operands: list[Value] = []
    for position in range(len(record.operands)):
        wanted = dtypes.bool_ if record.name == "select" and position == 0 else kind
        fitting = [y for y in turn.values if tensor(y).dtype == wanted and turn.broadcasts([*operands, turn.x, y])]
        if not fitting:
            return None
        first = position == (1 if record.name == "select" else 0)
        operands.append(turn.x if first else fitting[-1 - turn.number(position) % len(fitting)])
    attributes = {} if not record.attributes else _attributes(record, kind)
    try:
        return turn.b(record.name, *operands, **attributes)
    except OarlockError:
        return None


def _draws(record: Record, kind: DType, flavour: Flavour) -> bool:
    """Whether a record belongs to a flavour's programs and takes ``kind``."""
    if not record.is_elementwise or record.host or kind not in record.dtypes or record.scalars:
        return False
    if flavour == "any":
        return record.name not in ("constant", "bitcast")
    whole = record.tolerance == "exact" or record.name in _WHOLE or not kind.is_float
    return whole and record.name not in _SIGNS


def _attributes(record: Record, kind: DType) -> dict[str, Any]:
    """The attributes of the record's first sample."""
    assert record.samples is not None
    return dict(record.samples(kind, np.random.default_rng(0))[0].attributes)
