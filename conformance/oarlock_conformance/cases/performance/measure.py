"""Taking time on a device: samples of several submissions each, waited for once, until there are enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.ir import TensorType
from oarlock.runtime import Device, DeviceArray, from_numpy
from oarlock.runtime.plan import Plan
from oarlock_conformance.case import Failure, Options
from oarlock_conformance.cases.operators.build import build_function
from oarlock_conformance.figures import Figure, figure_of

__all__ = ["Lab", "Running", "rate_of", "samples_of"]

Array = npt.NDArray[Any]

_MOST_INNER = 256
_FEWEST = 3
"""Samples that are taken however long each takes."""


@dataclass(frozen=True, slots=True)
class Lab:
    """A device to measure, and how thoroughly."""

    device: Device
    options: Options

    @property
    def samples(self) -> int:
        return 11 if self.options.quick else 25

    @property
    def budget_s(self) -> float:
        """Seconds after which a case takes no more samples than it must."""
        return 1.5 if self.options.quick else 6.0

    @property
    def block_bytes(self) -> int:
        """A block to copy: past every cache in the full setting, and within what the device allocates and binds."""
        limits, wanted = self.device.target.limits, 1 << (24 if self.options.quick else 26)
        most = min(limits.max_allocation, limits.max_binding, self.device.info.memory // 8)
        return min(wanted, 1 << (most.bit_length() - 1))

    def seconds(self, submit: Callable[[], None]) -> list[float]:
        """Seconds of one ``submit``, waiting included, by sample."""
        return samples_of(submit, self.device.synchronize, self.samples, self.budget_s)


@dataclass(frozen=True, slots=True)
class Running:
    """A program with its operands in place."""

    device: Device
    plan: Plan
    operands: tuple[DeviceArray, ...]

    @classmethod
    def of(cls, device: Device, operator: str, operands: Sequence[Array], **attributes: Any) -> Running:
        """One operator on these operands."""
        types = [TensorType(dtypes.from_numpy(x.dtype), x.shape) for x in operands]
        function = build_function(types, lambda b, *values: [b(operator, *values, **attributes)])
        held = tuple(from_numpy(x, device) for x in operands)
        return cls(device, Plan(function, device), held)

    def submit(self) -> None:
        self.plan.run(self.operands)

    def result(self) -> Array:
        (found,) = self.plan.run(self.operands)
        return found.numpy()


def samples_of(
    submit: Callable[[], None],
    wait: Callable[[], None],
    samples: int,
    budget_s: float,
    least_s: float = 0.002,
) -> list[float]:
    """Seconds of one ``submit`` by sample. One goes before, unmeasured.

    A sample submits as often as fills ``least_s``, so that clock and waiting do not count, and waits once. Past
    ``budget_s`` seconds no more samples are taken than the fewest.
    """
    submit()
    wait()
    start = time.perf_counter()
    submit()
    wait()
    once = time.perf_counter() - start
    inner = max(1, min(_MOST_INNER, math.ceil(least_s / max(once, 1e-9))))
    found: list[float] = []
    began = time.perf_counter()
    while len(found) < samples and (len(found) < _FEWEST or time.perf_counter() - began < budget_s):
        start = time.perf_counter()
        for _ in range(inner):
            submit()
        wait()
        found.append((time.perf_counter() - start) / inner)
    return found


def rate_of(amount: float, seconds: Sequence[float], unit: str) -> Figure:
    """``amount`` (bytes, operations) a run as a rate in 10^9 a second; raises Failure for one that cannot be."""
    if not all(math.isfinite(each) and each > 0 for each in seconds):
        raise Failure(f"measured {min(seconds):g} s for {amount:,.0f} units of work: such a rate cannot be")
    return figure_of([amount / each / 1e9 for each in seconds], unit, "higher")


def normal(*shape: int, dtype: npt.DTypeLike = np.float32) -> Array:
    """Standard normal values, the same each time."""
    return np.random.default_rng(0).standard_normal(shape, np.float32).astype(dtype)
