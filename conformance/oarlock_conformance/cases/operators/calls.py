"""The calls that the operator records are checked with: for every record and dtype, its own samples and more."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ShapeError
from oarlock.ir import ScalarType, TensorType
from oarlock.ops import RECORDS, Record, Sample
from oarlock_conformance.case import Options
from oarlock_conformance.cases.operators import classes
from oarlock_conformance.cases.operators.views import VIEWS, View

__all__ = ["Call", "Unit", "all_units", "main_dtype", "units"]

_MAIN = 3
"""Samples of a record for its main dtype in the quick setting; other dtypes get one, a different one each."""
_ONE_IN = 4
"""In the quick setting one element-wise record in so many is also called with broadcast operands, as one kernel."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One case: calls of a record, one for each of ``samples``, whose operands are read through ``view``.

    ``mixed``: it may share a kernel with calls of other records (see ``mix``), which chooses the view where it is None.
    """

    id: str
    record: Record
    samples: tuple[Sample, ...]
    view: View | None = "plain"
    mixed: bool = False

    @property
    def sample(self) -> Sample:
        """The first of its calls."""
        return self.samples[0]

    def types(self, sample: Sample) -> list[TensorType | ScalarType]:
        """The types of the operands of one of its calls."""
        kinds = [(dtypes.from_numpy(x.dtype), x.shape) for x in sample.operands]
        return [ScalarType(dtype) if self.record.scalars else TensorType(dtype, shape) for dtype, shape in kinds]

    def dtypes(self) -> set[DType]:
        """The dtypes of operands and results."""
        results = self.record.infer_types(self.types(self.sample), self.sample.attributes)
        return {dtypes.from_numpy(x.dtype) for x in self.sample.operands} | {result.dtype for result in results}


@dataclass(frozen=True, slots=True)
class Unit:
    """A record with one of its dtypes."""

    record: Record
    dtype: DType

    @property
    def id(self) -> str:
        return f"{self.record.name}/{self.dtype}"

    def samples(self, options: Options) -> list[Sample]:
        """The record's own samples."""
        random = np.random.default_rng([options.seed, zlib.crc32(self.id.encode())])
        assert self.record.samples is not None
        return list(self.record.samples(self.dtype, random))

    def calls(self, options: Options) -> list[Call]:
        """Its calls, with ids such as ``add/float32/7`` or ``add/float32/strided``."""
        samples = self.samples(options)
        flat = self._takes_flat(samples[0])
        calls = self._values(samples, options) if flat else []
        calls += [
            Call(f"{self.id}/{number}", self.record, (samples[number],))
            for number in self._chosen(len(samples), options, flat)
        ]
        if not options.quick:
            calls += self._views(samples, flat)
        return calls + self._shapes(samples, flat, options)

    @property
    def is_flat(self) -> bool:
        """Whether it is element-wise on operands of any equal shapes, so that calls of it can be joined."""
        return self._takes_flat(self.samples(Options())[0])

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

    def _values(self, samples: Sequence[Sample], options: Options) -> list[Call]:
        """Long calls per choice of attributes: special values, then many or all bit patterns."""
        found = []
        for suffix, each in classes.value_classes(self.record, self.dtype, samples, options):
            view: View | None = None if options.quick else "plain"
            found.append(Call(f"{self.id}/{suffix}", self.record, (each,), view, mixed=options.quick))
        return found

    def _views(self, samples: Sequence[Sample], flat: bool) -> list[Call]:
        """A call on operands that lie in memory in other ways. Those of element-wise records share kernels."""
        sample = classes.flat_sample(samples) if flat else classes.medium_sample(samples)
        if sample is None or self.record.scalars:
            return []
        views = [view for view in VIEWS if view != "plain" and (flat or view != "broadcast")]
        return [
            Call(f"{self.id}/{view}", self.record, (classes.for_view(sample, view),), view, mixed=flat)
            for view in views
        ]

    def _shapes(self, samples: Sequence[Sample], flat: bool, options: Options) -> list[Call]:
        """Calls of many sizes, as one case each: the sizes share kernels."""
        if flat:
            found = {} if options.quick else {"sizes": classes.sizes(self.record, samples)}
        else:
            found = classes.lines(self.record, self.dtype, samples, options, self.dtype == main_dtype(self.record))
        calls = [Call(f"{self.id}/{name}", self.record, tuple(each)) for name, each in found.items() if each]
        bare = classes.defaults(self.record, samples)
        if bare is not None and (not options.quick or self.dtype == main_dtype(self.record)):
            calls.append(Call(f"{self.id}/defaults", self.record, (bare,)))
        return calls

    def _chosen(self, count: int, options: Options, flat: bool) -> Sequence[int]:
        """Numbers of the samples to call: all; in the quick setting a few that differ from dtype to dtype.

        There, primitives are called with their main dtype and every other one of the rest, so that each dtype meets
        half of them; composites, which consist of primitives, with the main one and one more.
        """
        if not options.quick:
            return range(count)
        turn = zlib.crc32(self.record.name.encode())
        main = main_dtype(self.record)
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


def main_dtype(record: Record) -> DType:
    """The dtype that a record meets most often in the quick setting."""
    return dtypes.float32 if dtypes.float32 in record.dtypes else record.dtypes[0]


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
