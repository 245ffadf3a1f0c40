"""Subjects on a device: compiled by a schedule, checked against what the rules give, and timed."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.schedule import RULES, Choice, Schedule
from oarlock.dtypes import DType
from oarlock.errors import DeviceLostError, OarlockError
from oarlock.ir import Operation, ScalarType, TensorType, Value
from oarlock.ir.interpret import interpret
from oarlock.ops import RECORDS
from oarlock.ops.bounds import unit_roundoff
from oarlock.ops.tolerance import allowed
from oarlock.runtime.array import DeviceArray, from_numpy, to_numpy
from oarlock.runtime.device import Device
from oarlock.runtime.plan import Plan
from oarlock.runtime.tuning.search import Refused
from oarlock.runtime.tuning.subjects import Work

__all__ = ["Bench", "Running"]

Array = npt.NDArray[Any]

_SAMPLE_S = 0.0005
"""A sample runs so often that it takes about so long, and then waits once."""
_MOST_RUNS = 256


class Running:
    """A plan with its operands: a trial. ``runs`` of it are one sample."""

    def __init__(self, plan: Plan, operands: Sequence[DeviceArray | int | float]) -> None:
        self.plan, self.operands, self.runs = plan, tuple(operands), 1

    @property
    def identity(self) -> Hashable:
        """The launches: equal ones do the same."""
        return tuple(
            (c.function.attributes["name"], c.grid, tuple("v" if isinstance(s, Value) else s for s in c.scalars))
            if isinstance(c, KernelCall)
            else c.label
            for c in self.plan.lowered.calls
        )

    def sample(self) -> float:
        """Seconds of a run, waiting included."""
        start = time.perf_counter()
        for _ in range(self.runs):
            self.plan.run(self.operands)
        self.plan.device.synchronize()
        return (time.perf_counter() - start) / self.runs

    def settle(self) -> None:
        """Run it once, and find out how many runs a sample takes."""
        self.sample()
        self.runs = max(1, min(_MOST_RUNS, math.ceil(_SAMPLE_S / max(self.sample(), 1e-9))))


class Bench:
    """A subject on a device, with random operands: the same each time."""

    def __init__(self, work: Work, device: Device, seed: int = 0) -> None:
        self.work, self.device = work, device
        generator = np.random.default_rng(seed)
        types = [a.type for a in work.function.regions[0].block.args]
        self.host = [_random(generator, kind) for kind in types]
        self._held = {i: from_numpy(self.host[i], device) for i in work.fixed}
        self.operands: list[DeviceArray | int | float] = [
            array.item() if isinstance(kind, ScalarType) else from_numpy(array, device)
            for i, (array, kind) in enumerate(zip(self.host, types, strict=True))
            if i not in self._held
        ]
        self.default = self.running(self._choice(RULES))
        self.expected = self._results(self.default)
        self.default.settle()
        self._bounds: list[Array] | None = None

    def build(self, schedule: Schedule) -> Running:
        """The subject by ``schedule``, compiled; raises Refused where that is not possible, or gives other results."""
        if schedule == RULES:
            return self.default
        try:
            running = self.running(self._choice(schedule))
            if running.identity != self.default.identity:
                self._compare(self._results(running))
        except DeviceLostError:
            raise
        except OarlockError as error:
            raise Refused(str(error).partition("\n")[0]) from error
        running.runs = self.default.runs
        return running

    def running(self, choice: Choice | None) -> Running:
        """The function by the schedules of ``choice`` (None: those that are known of the device)."""
        return Running(Plan(self.work.function, self.device, None, self._held, choice), self.operands)

    def _choice(self, schedule: Schedule) -> Choice:
        return lambda subject: schedule if subject.key == self.work.key else RULES

    def _results(self, running: Running) -> list[Array]:
        return [to_numpy(result) for result in running.plan.run(running.operands)]

    # --- checking -----------------------------------------------------------------------------------------------------

    def _compare(self, found: Sequence[Array]) -> None:
        """Raise Refused unless the results are those of the rules, within twice what each may be off."""
        for number, (got, want) in enumerate(zip(found, self.expected, strict=True)):
            if np.array_equal(got, want, equal_nan=got.dtype.kind == "f"):
                continue
            with np.errstate(all="ignore"):
                error = np.abs(got.astype(np.float64) - want.astype(np.float64))
                fine = (got == want) | (np.isnan(got) & np.isnan(want)) | (error <= 2 * self._bound(number))
            if not fine.all():
                worst = float(np.nanmax(np.where(fine, 0, error)))
                raise Refused(
                    f"result {number} is off by {worst:.3g} in {int((~fine).sum())} of {got.size} elements", True
                )

    def _bound(self, number: int) -> Array:
        if self._bounds is None:
            self._bounds = [self._bound_of(i, want) for i, want in enumerate(self.expected)]
        return self._bounds[number]

    def _bound_of(self, number: int, want: Array) -> Array:
        """What each element of a result may be off: by the table of tolerances for an operator; for a group by the
        roundings on the way, of the largest element."""
        dtype = dtypes.from_numpy(want.dtype)
        op = self.work.operator
        if op is not None:
            record = RECORDS[op.name.removeprefix("array.")]
            operands = self._operands_of(op)
            return allowed(record, dtype, want.astype(np.float64), operands, dict(op.attributes), number)
        if not dtype.is_float:
            return np.zeros(want.shape)
        block = self.work.function.regions[0].block
        longest = max((math.prod(a.type.static_shape) for a in block.args if isinstance(a.type, TensorType)), default=1)
        roundings = 8 * sum(1 for _ in block.ops) + 4 * math.sqrt(longest)
        finite = np.abs(want.astype(np.float64))
        largest = float(np.max(finite, initial=0.0, where=np.isfinite(finite)))
        return np.full(want.shape, roundings * unit_roundoff(dtype) * largest)

    def _operands_of(self, op: Operation) -> list[Array]:
        """The operands of the contraction, on the host: what stands before it only moves elements."""
        before = self.work.function.clone()
        block = before.regions[0].block
        (twin,) = (each for each in block.ops if each.name == op.name)
        block.terminator.set_operands(twin.operands)
        twin.erase()
        return interpret(before, self.host)


def _random(generator: np.random.Generator, kind: object) -> Array:
    """Normal floats, integers from 0 to 4, both truth values."""
    assert isinstance(kind, (TensorType, ScalarType))
    dtype: DType = kind.dtype
    shape = kind.static_shape if isinstance(kind, TensorType) else ()
    if dtype.is_float:
        return generator.standard_normal(shape, np.float32).astype(dtype.numpy)
    return generator.integers(0, 5 if dtype.is_integer else 2, shape).astype(dtype.numpy)
