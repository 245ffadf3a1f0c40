"""Classes of values and shapes: what every record is called with besides its own samples, made from those samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import OarlockError
from oarlock.ir import Attribute, TensorType
from oarlock.ops import Record, Sample
from oarlock_conformance.case import Options
from oarlock_conformance.cases.operators.views import View

__all__ = [
    "LENGTHS",
    "SHAPES",
    "defaults",
    "flat_sample",
    "for_view",
    "lines",
    "medium_sample",
    "sizes",
    "value_classes",
]

Array = npt.NDArray[Any]

SHAPES: tuple[tuple[int, ...], ...] = (
    (), (0,), (3, 0, 2), (2, 3, 5), *((2**k + e,) for k in range(1, 14) for e in (-1, 0, 1)), (4099,), (65537,),
)  # fmt: skip
"""0-d, empty, one, odd, prime, several dimensions, and lengths around every vector, block and bucket size."""
_FEW_SHAPES: tuple[tuple[int, ...], ...] = (
    (), (0,), (1,), (3, 0, 2), (2, 3, 5), (15,), (17,), (63,), (64,), (65,), (257,), (1025,), (8193,),
)  # fmt: skip
"""Shapes for composites and elementary functions, which are long and consist of what meets every shape."""
LENGTHS = (
    0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 4099,
    100_000,
)  # fmt: skip
"""Lengths of reductions."""
_PRODUCTS = (0, 1, 2, 3, 7, 16, 33, 64, 255, 256, 257, 1023, 1024, 1025, 100_000)
"""Lengths of contractions."""
_COMPOSITES = (0, 1, 2, 33, 64, 257, 1025, 100_000)
"""Lengths of composites, which consist of what meets every length."""
_FEW = (1, 255, 256, 257, 1025)
"""Lengths where each costs several kernels, as a sort does."""
_QUICK = (1, 257, 1025, 100_000)
_DENSE = {True: 512, False: 1 << 16}
_ALL_OF = 16
"""Operands with so many bits together are called with every value they have."""
_MEDIUM = 6000
"""Elements of a sample that is called through views, at most."""


def value_classes(
    record: Record, dtype: DType, samples: Sequence[Sample], options: Options
) -> Iterator[tuple[str, Sample]]:
    """(suffix, one long call) per choice of attributes: ``values`` are those of all samples, with all pairs of special
    values among them; ``dense`` are random bit patterns, ``exhaustive`` all that there are.

    In the quick setting the two are one call, with every so-manyth pattern.
    """
    by_attributes: dict[str, list[Sample]] = {}
    for each in samples:
        by_attributes.setdefault(repr(sorted(each.attributes.items(), key=lambda item: item[0])), []).append(each)
    for number, members in enumerate(by_attributes.values()):
        more = "" if len(by_attributes) == 1 else f".{number}"
        attributes = members[0].attributes
        columns = [np.concatenate(column) for column in _pools(members)]
        kinds = [dtypes.from_numpy(column.dtype) for column in columns]
        patterns = _patterns(kinds, options, number)
        if options.quick:
            both = [np.concatenate(pair) for pair in zip(columns, patterns, strict=True)]
            yield f"values{more}", Sample(tuple(both), attributes)
            continue
        yield f"values{more}", Sample(tuple(columns), attributes)
        every = sum(1 if kind.kind == "bool" else kind.bits for kind in kinds) <= _ALL_OF
        yield f"{'exhaustive' if every else 'dense'}{more}", Sample(tuple(patterns), attributes)


def _pools(samples: Sequence[Sample]) -> list[list[Array]]:
    """The operands of element-wise samples, broadcast against each other and flattened: one list per operand."""
    rows = [[x.reshape(-1) for x in np.broadcast_arrays(*each.operands)] for each in samples]
    return [list(column) for column in zip(*rows, strict=True)]


def _patterns(kinds: Sequence[DType], options: Options, turn: int) -> list[Array]:
    """Operands of ``kinds``: every combination of bit patterns where there are few, else some spread over all."""
    bits = [1 if kind.kind == "bool" else kind.bits for kind in kinds]
    total, count = sum(bits), _DENSE[options.quick]
    random = np.random.default_rng([options.seed, turn, *bits])
    if total <= _ALL_OF:
        whole = np.arange(0, 1 << total, max(1, (1 << total) // count), dtype=np.uint64)
        if options.quick:
            whole = whole + np.uint64(turn % max(1, (1 << total) // count))
        ends = np.cumsum([0, *bits[:-1]])
        parts = [(whole >> np.uint64(end)) & np.uint64((1 << width) - 1) for end, width in zip(ends, bits, strict=True)]
    elif len(kinds) == 1:  # evenly over all patterns, at random inside each stretch
        step = 1 << (total - count.bit_length() + 1)
        parts = [np.arange(count, dtype=np.uint64) * np.uint64(step) + random.integers(0, step, count, dtype=np.uint64)]
    else:
        parts = [random.integers(0, 1 << width, count, dtype=np.uint64, endpoint=False) if width < 64 else
                 random.integers(0, 2**64 - 1, count, dtype=np.uint64, endpoint=True) for width in bits]  # fmt: skip
    return [_as(part, kind) for part, kind in zip(parts, kinds, strict=True)]


def _as(patterns: Array, kind: DType) -> Array:
    if kind.kind == "bool":
        return patterns.astype(np.bool_)
    return patterns.astype(np.dtype(f"uint{kind.bits}")).view(kind.numpy)


def sizes(record: Record, samples: Sequence[Sample]) -> list[Sample]:
    """An element-wise call of each shape, with values of the record's own samples."""
    shapes = SHAPES if record.is_primitive and record.tolerance not in ("elementary", "power") else _FEW_SHAPES
    attributes = samples[0].attributes
    columns = [np.concatenate(c) for c in _pools([each for each in samples if each.attributes == attributes])]
    return [Sample(tuple(np.resize(column, shape) for column in columns), attributes) for shape in shapes]


def flat_sample(samples: Sequence[Sample]) -> Sample:
    """One element-wise call of two odd dimensions, with values of the record's own samples."""
    attributes = samples[0].attributes
    columns = [np.concatenate(c) for c in _pools([each for each in samples if each.attributes == attributes])]
    return Sample(tuple(np.resize(np.roll(column, 7), (13, 37)) for column in columns), attributes)


def medium_sample(samples: Sequence[Sample]) -> Sample | None:
    """The largest sample that is not too large and has an operand with dimensions."""
    fitting = [
        each
        for each in samples
        if any(x.ndim and x.size for x in each.operands) and sum(x.size for x in each.operands) <= _MEDIUM
    ]
    return max(fitting, key=lambda each: sum(x.size for x in each.operands), default=None)


def for_view(sample: Sample, view: View) -> Sample:
    """``sample`` with operands that can be read through ``view``: for broadcasts every other one has constant rows."""
    if view != "broadcast":
        return sample
    operands = [
        np.ascontiguousarray(np.broadcast_to(x[..., :1], x.shape)) if place % 2 == 0 else x
        for place, x in enumerate(sample.operands)
    ]
    return Sample(tuple(operands), sample.attributes)


def defaults(record: Record, samples: Sequence[Sample]) -> Sample | None:
    """A call without any attribute that may be absent; None where there is no such attribute or no such call."""
    for each in sorted(samples, key=lambda each: -sum(x.size for x in each.operands if x.size <= _MEDIUM)):
        given = {key: value for key, value in each.attributes.items() if key not in record.optional}
        bare = Sample(each.operands, given)
        if record.optional and _valid(record, bare):
            return bare
    return None


def lines(
    record: Record, dtype: DType, samples: Sequence[Sample], options: Options, main: bool
) -> dict[str, list[Sample]]:
    """Calls by length, for records that go along an axis or contract one: of rows, of columns, of a whole."""
    if options.quick and not (main and record.is_primitive):
        return {}
    if record.name in ("dot_general", "matmul"):
        lengths = _QUICK if options.quick else _PRODUCTS if record.is_primitive else _COMPOSITES
        return {"lengths": _products(record, samples, lengths)}
    along = [key for key in ("axes", "axis") if key in record.attributes]
    if len(record.operands) != 1 or not along or record.family not in ("reduce", "sort", "window"):
        return {}
    if options.quick and record.family != "reduce":
        return {}
    lengths = _QUICK if options.quick else LENGTHS if record.is_primitive else _COMPOSITES
    if record.family != "reduce":
        lengths = _FEW
    values = max((each.operands[0].reshape(-1) for each in samples), key=len)
    if dtype.is_float and "prod" in record.name:
        values = _moderate(dtype)
    found: dict[str, list[Sample]] = {"whole": [], "rows": [], "columns": []}
    if options.quick and record.tolerance == "exact":
        found = {"rows": []}  # the named cases of NaN go through the others
    for (name, calls), length in itertools.product(found.items(), lengths):
        shape, axis = {"whole": ((length,), 0), "rows": ((3, length), 1), "columns": ((length, 5), 0)}[name]
        attributes: dict[str, Attribute] = {**samples[0].attributes, along[0]: (axis,) if along[0] == "axes" else axis}
        x = np.resize(values, length)[:, None].repeat(5, 1) if name == "columns" else np.resize(values, shape)
        each = Sample((x,), attributes)
        if _valid(record, each):
            calls.append(each)
    return found


def _moderate(dtype: DType) -> Array:
    """1.1 and 1 / 1.1 (2 and 0.5 where those are coarse) in the order of Thue and Morse: products stay near 1, and so
    do those of every 2^k-th one."""
    count = np.arange(4096)
    odd = np.zeros(4096, np.bool_)
    for bit in range(12):
        odd ^= (count >> bit & 1).astype(np.bool_)
    factor = 1.1 if dtype.bits > 16 else 2.0
    return np.where(odd, factor, 1 / factor).astype(dtype.numpy)


def _products(record: Record, samples: Sequence[Sample], lengths: Sequence[int]) -> list[Sample]:
    """[3, length] times [length, 5] for each length."""
    values = max((each.operands[0].reshape(-1) for each in samples), key=len)
    pattern: dict[str, Attribute] = {"batch": ((), ()), "contract": ((1,), (0,)), "dtype": None}
    found = []
    for length in lengths:
        x, y = np.resize(values, (3, length)), np.resize(np.roll(values, 3), (length, 5))
        kind = dtypes.from_numpy(x.dtype)
        attributes = {**pattern, "dtype": kind} if "contract" in record.attributes else {}
        found.append(Sample((x, y), attributes))
    return found


def _valid(record: Record, sample: Sample) -> bool:
    """Whether a record takes a call: the position of an extreme needs one element, the best three need three."""
    try:
        record.infer_types(
            [TensorType(dtypes.from_numpy(x.dtype), x.shape) for x in sample.operands], sample.attributes
        )
    except OarlockError:
        return False
    return True
