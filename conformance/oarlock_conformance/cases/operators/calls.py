"""The calls that the operator records are checked with: for every record and dtype, its own samples and more."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import ScalarType, TensorType
from oarlock.ops import RECORDS, Record, Sample
from oarlock_conformance.case import Options

__all__ = ["Call", "Unit", "all_units", "units"]

SIZES = (0, 1, 2, 3, 7, 63, 64, 65, 127, 129, 255, 256, 257, 1023, 1024, 1025, 4099)
"""Lengths around every vector, block and bucket size."""
_DENSE = {True: 512, False: 1 << 16}
_MAIN = 3
"""Samples of a record for its main dtype in the quick setting; other dtypes get one, a different one each."""
_ONE_IN = 4
"""In the quick setting one element-wise record in so many is also called with broadcast operands, as one kernel."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of a record. ``mixed``: it may share a kernel with calls of other records (see ``mix``)."""

    id: str
    record: Record
    sample: Sample
    mixed: bool = False

    @property
    def types(self) -> list[TensorType | ScalarType]:
        """The types of its operands."""
        kinds = [(dtypes.from_numpy(x.dtype), x.shape) for x in self.sample.operands]
        return [ScalarType(dtype) if self.record.scalars else TensorType(dtype, shape) for dtype, shape in kinds]

    def dtypes(self) -> set[DType]:
        """The dtypes of operands and results."""
        results = self.record.infer_types(self.types, self.sample.attributes)
        return {dtypes.from_numpy(x.dtype) for x in self.sample.operands} | {result.dtype for result in results}


@dataclass(frozen=True, slots=True)
class Unit:
    """A record with one of its dtypes."""

    record: Record
    dtype: DType

    @property
    def id(self) -> str:
        return f"{self.record.name}/{self.dtype}"

    def calls(self, options: Options) -> list[Call]:
        """Its calls, with ids ``add/float32/7``."""
        random = np.random.default_rng([options.seed, zlib.crc32(self.id.encode())])
        assert self.record.samples is not None
        samples = list(self.record.samples(self.dtype, random))
        if self._takes_flat(samples[0]):
            calls = [
                *_values(self, samples, options),
                *_numbered(self, samples, self._chosen(len(samples), options, True)),
            ]
            return calls if options.quick else [*calls, *_sized(self, samples)]
        calls = _numbered(self, samples, self._chosen(len(samples), options, False))
        return calls if options.quick else [*calls, *_reductions(self, samples)]

    @property
    def is_flat(self) -> bool:
        """Whether it is element-wise on operands of any equal shapes, so that calls of it can be joined."""
        random = np.random.default_rng(0)
        assert self.record.samples is not None
        return self._takes_flat(self.record.samples(self.dtype, random)[0])

    def _takes_flat(self, sample: Sample) -> bool:
        if not self.record.is_elementwise or self.record.scalars or not sample.operands:
            return False
        try:
            self.record.infer_types(
                [TensorType(dtypes.from_numpy(x.dtype), (2,)) for x in sample.operands], sample.attributes
            )
        except ShapeError:
            return False
        return True

    def _chosen(self, count: int, options: Options, flat: bool) -> Sequence[int]:
        """Numbers of the samples to call: all; in the quick setting a few that differ from dtype to dtype.

        There, primitives are called with their main dtype and every other one of the rest, so that each dtype meets
        half of them; composites, which consist of primitives, with the main one and one more.
        """
        if not options.quick:
            return range(count)
        turn = zlib.crc32(self.record.name.encode())
        main = dtypes.float32 if dtypes.float32 in self.record.dtypes else self.record.dtypes[0]
        others = [dtype for dtype in self.record.dtypes if dtype != main]
        if flat:
            wanted = int(self.dtype == main and turn % _ONE_IN == 0)
        elif self.dtype == main:
            wanted = min(count, _MAIN)
        else:
            place = others.index(self.dtype)
            wanted = int((place + turn) % 2 == 0 if self.record.is_primitive else place == turn % len(others))
        step = max(1, count // max(1, wanted))
        start = (self.record.dtypes.index(self.dtype) * 3 + turn) % count
        return sorted({(start + k * step) % count for k in range(wanted)})


def all_units() -> list[Unit]:
    """Every record that runs on the device with every dtype that it claims."""
    return [Unit(record, dtype) for record in RECORDS.values() if not record.host for dtype in record.dtypes]


def units(identities: Sequence[str]) -> dict[str, Unit]:
    """Units by id (``add/float32``) of the cases ``identities`` (``add/float32/7``)."""
    found: dict[str, Unit] = {}
    for identity in identities:
        name, dtype, _ = identity.split("/", 2)
        found.setdefault(f"{name}/{dtype}", Unit(RECORDS[name], dtypes.by_name(dtype)))
    return found


def _numbered(unit: Unit, samples: Sequence[Sample], chosen: Sequence[int]) -> list[Call]:
    return [Call(f"{unit.id}/{number}", unit.record, samples[number]) for number in chosen]


def _values(unit: Unit, samples: Sequence[Sample], options: Options) -> Iterator[Call]:
    """One long call per choice of attributes: the values of all samples and, for floats, a dense set of patterns."""
    by_attributes: dict[str, list[Sample]] = {}
    for each in samples:
        by_attributes.setdefault(repr(sorted(each.attributes.items(), key=lambda item: item[0])), []).append(each)
    for number, members in enumerate(by_attributes.values()):
        columns = [np.concatenate(column) for column in _pools(members)]
        if len(columns) == 1 and unit.dtype.is_float and unit.record.name not in ("convert", "bitcast"):
            columns = [np.concatenate([columns[0], _dense(unit.dtype, options)])]
        suffix = "values" if len(by_attributes) == 1 else f"values.{number}"
        yield Call(f"{unit.id}/{suffix}", unit.record, Sample(tuple(columns), members[0].attributes), options.quick)


def _pools(samples: Sequence[Sample]) -> list[list[Array]]:
    """The operands of element-wise samples, broadcast against each other and flattened: one list per operand."""
    rows = [[x.reshape(-1) for x in np.broadcast_arrays(*each.operands)] for each in samples]
    return [list(column) for column in zip(*rows, strict=True)]


def _dense(dtype: DType, options: Options) -> Array:
    """Bit patterns spread evenly over all that the dtype has."""
    count = min(_DENSE[options.quick], 1 << dtype.bits)
    step = (1 << dtype.bits) // count
    kind = np.dtype(f"uint{dtype.bits}")
    return (np.arange(count, dtype=np.uint64) * np.uint64(step) + np.uint64(step // 3)).astype(kind).view(dtype.numpy)


def _sized(unit: Unit, samples: Sequence[Sample]) -> Iterator[Call]:
    """Element-wise calls of each length, with values of the record's own samples."""
    same = [each for each in samples if each.attributes == samples[0].attributes]
    columns = [np.concatenate(column) for column in _pools(same)]
    for size in SIZES:
        operands = tuple(np.resize(column, size) for column in columns)
        yield Call(f"{unit.id}/size-{size}", unit.record, Sample(operands, samples[0].attributes))


def _reductions(unit: Unit, samples: Sequence[Sample]) -> Iterator[Call]:
    """Reductions of each length: alone, of rows, and of columns."""
    if unit.record.family != "reduce" or len(samples[0].operands) != 1:
        return
    values = max((each.operands[0].reshape(-1) for each in samples), key=len)
    for size in SIZES:
        for shape, axis in (((size,), 0), ((3, size), 1), ((size, 5), 0)):
            attributes = {**samples[0].attributes}
            if "axes" in attributes:
                attributes["axes"] = (axis,)
            elif "axis" in attributes:
                attributes["axis"] = axis
            if size == 0 and "dtype" in attributes:
                continue  # the position of an extreme needs at least one element
            x = np.resize(values, shape)
            yield Call(f"{unit.id}/size-{'x'.join(map(str, shape))}", unit.record, Sample((x,), attributes))
