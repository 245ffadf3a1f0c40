"""The register of program cases, and what they work with: a device, and small programs on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.ir import Operation, TensorType, Type, Value
from oarlock.ops import ArrayBuilder
from oarlock.runtime import Device, DeviceArray, from_numpy, open_device, to_numpy
from oarlock.runtime.plan import Plan
from oarlock_conformance.bench import Bench
from oarlock_conformance.case import Failure, Options
from oarlock_conformance.cases.operators.build import build_function

__all__ = ["CASES", "ProgramCase", "Stage", "expect_array", "program_case"]

Array = npt.NDArray[Any]
Check: TypeAlias = "Callable[[Stage], Mapping[str, Any] | None]"

_NEEDS: dict[str, tuple[Callable[[Device], bool], str]] = {
    "streams": (lambda device: "streams" in device.info.capabilities, "capability streams is not declared"),
    "two_devices": (lambda device: len(device.adapter.devices()) > 1, "the adapter has one device"),
    "lacks_a_dtype": (
        lambda device: not all(device.target.stores(dtype) for dtype in dtypes.ALL),
        "the device stores every dtype",
    ),
}


@dataclass(frozen=True, slots=True)
class ProgramCase:
    """One case; ``needs`` are keys of what a device must have for it to apply."""

    id: str
    contract: str
    needs: tuple[str, ...]
    check: Check

    @property
    def group(self) -> str:
        """The process that it runs in: the first word of its id."""
        return self.id.partition(".")[0]

    def unsupported(self, device: Device) -> str:
        """Why it does not apply to a device; empty when it does."""
        return "; ".join(text for holds, text in map(_NEEDS.__getitem__, self.needs) if not holds(device))


CASES: dict[str, ProgramCase] = {}
"""Every case by id, in the order of definition."""


def program_case(identity: str, contract: str, *needs: str) -> Callable[[Check], Check]:
    """Register a function of a Stage as the case ``identity``; it raises Failure, and may return details."""

    def register(check: Check) -> Check:
        if identity in CASES:
            raise ValueError(f"two program cases are called {identity}")
        CASES[identity] = ProgramCase(identity, contract, needs, check)
        return check

    return register


class Stage:
    """The device by name, opened again where a case closed it, and what many cases do."""

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self.bench = Bench(name, options)

    @property
    def device(self) -> Device:
        return open_device(self.name)

    def random(self, *shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
        """float32 values."""
        return np.random.default_rng([self.options.seed, seed]).standard_normal(shape).astype(np.float32)

    def whole(self, *shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
        """Small whole numbers as float32: sums and products of them are exact."""
        return np.random.default_rng([self.options.seed, seed]).integers(-8, 9, shape).astype(np.float32)

    def plan(
        self, types: Sequence[Type | Array], body: Callable[..., Sequence[Value]], device: Device | None = None
    ) -> Plan:
        """The plan of a program; an array stands for its type."""
        return Plan(self.function(types, body), device or self.device)

    def function(self, types: Sequence[Type | Array], body: Callable[..., Sequence[Value]]) -> Operation:
        """A program; an array stands for its type."""
        kinds = [TensorType(dtypes.from_numpy(t.dtype), t.shape) if isinstance(t, np.ndarray) else t for t in types]
        return build_function(kinds, body, "program")

    def put(self, *arrays: Array, device: Device | None = None) -> list[DeviceArray]:
        return [from_numpy(x, device or self.device) for x in arrays]

    def run(self, plan: Plan, *operands: Array | float) -> list[Array]:
        """Results of a plan on host arrays and run-time scalars."""
        given = [from_numpy(x, plan.device) if isinstance(x, np.ndarray) else x for x in operands]
        return [to_numpy(result) for result in plan.run(given)]

    def works(self) -> None:
        """Fail unless the device runs a program as it should: what every case of a failure ends with."""
        x = self.whole(7, 33)
        (got,) = self.run(self.plan([x], lambda b, x: [b("reduce_sum", b("add", x, x), axes=(1,))]), x)
        expect_array("afterwards, the sum of x + x", got, (x + x).sum(1))

    def tidy(self) -> None:
        """Take back what a case may have set."""
        if self.device.pool.budget is not None:
            self.device.set_memory_budget(None)


def chain(b: ArrayBuilder, x: Value, y: Value) -> list[Value]:
    """A program of several kernels: a product, what follows from it by element, its row sums."""
    product = b("matmul", x, y)
    shifted = b("subtract", product, b("reduce_max", product, axes=(1,), keepdims=True))
    return [shifted, b("reduce_sum", shifted, axes=(1,))]


def chained(x: Array, y: Array) -> list[Array]:
    """What ``chain`` gives for whole numbers."""
    product = x.astype(np.float64) @ y
    shifted = product - product.max(1, keepdims=True)
    return [shifted.astype(np.float32), shifted.sum(1).astype(np.float32)]


def expect_array(what: str, got: Array, want: npt.ArrayLike) -> None:
    """Fail unless shape and values are equal."""
    wanted = np.asarray(want)
    if got.shape != wanted.shape:
        raise Failure(f"{what}: shape {got.shape}, expected {wanted.shape}")
    wrong = got != wanted
    if wrong.any():
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), got.shape))
        raise Failure(f"{what} at {at}: {got[at]}, expected {wanted[at]}; {int(wrong.sum())} of {got.size} are wrong")
