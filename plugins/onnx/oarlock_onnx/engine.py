"""What runs an imported program: a device, or the interpreter. The one place that meets the runtime."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from oarlock.ir import Operation
from oarlock.ir.interpret import interpret

if TYPE_CHECKING:
    from oarlock.runtime import Device, DeviceArray
    from oarlock.runtime.plan import Plan

__all__ = ["HOST", "DeviceEngine", "Engine", "HostEngine", "Loaded", "engine_for"]

HOST = "interpret"
"""The device name of the interpreter over NumPy."""

Array = npt.NDArray[Any]


class Loaded(Protocol):
    """Inputs put where the program runs, ready to run any number of times."""

    def run(self) -> None:
        """Run once, and wait for the end."""
        ...

    def results(self) -> list[Array]:
        """What the last run gave."""
        ...


class Engine(Protocol):
    """Runs functions of parameters and inputs. ``parameters`` are the same arrays for a function at every call."""

    def compile(self, function: Operation, parameters: Sequence[Array]) -> None:
        """Make ``function`` ready to run."""
        ...

    def load(self, function: Operation, parameters: Sequence[Array], inputs: Sequence[Array]) -> Loaded:
        """Put the inputs of ``function`` in place."""
        ...


class HostEngine:
    """The interpreter over NumPy: the oracle."""

    def compile(self, function: Operation, parameters: Sequence[Array]) -> None:
        """Nothing: programs are interpreted."""

    def load(self, function: Operation, parameters: Sequence[Array], inputs: Sequence[Array]) -> Loaded:
        """The arguments, as they are."""
        return _HostLoaded(function, [*parameters, *inputs])


def engine_for(device: str, progress: Callable[[int, int], None] | None = None) -> Engine:
    """The engine of a device by name; raises DeviceNotFoundError that lists what there is."""
    return HostEngine() if device == HOST else DeviceEngine(device, progress)


class _HostLoaded:
    def __init__(self, function: Operation, arguments: list[Array]) -> None:
        self._function = function
        self._arguments = arguments
        self._results: list[Array] = []

    def run(self) -> None:
        self._results = interpret(self._function, self._arguments)

    def results(self) -> list[Array]:
        return self._results


class DeviceEngine:
    """A device, by name (``"opencl:0"``). ``progress`` is told (kernels compiled, kernels to compile)."""

    def __init__(self, device: str, progress: Callable[[int, int], None] | None = None) -> None:
        from oarlock.runtime import open_device

        self.device: Device = open_device(device)
        self._progress = progress
        self._held: dict[int, tuple[weakref.ref[Array], DeviceArray]] = {}

    def compile(self, function: Operation, parameters: Sequence[Array]) -> None:
        """Plan ``function``, compile its kernels, and compute on the device what depends on parameters alone."""
        self._plan(function, parameters)

    def load(self, function: Operation, parameters: Sequence[Array], inputs: Sequence[Array]) -> Loaded:
        """Copy the inputs to the device."""
        from oarlock.runtime import from_numpy

        return _DeviceLoaded(self._plan(function, parameters), [from_numpy(array, self.device) for array in inputs])

    def _plan(self, function: Operation, parameters: Sequence[Array]) -> Plan:
        from oarlock.runtime.execute import plan_for

        fixed = {position: self._hold(array) for position, array in enumerate(parameters)}
        return plan_for(function, self.device, self._progress, fixed)

    def _hold(self, array: Array) -> DeviceArray:
        from oarlock.runtime import from_numpy

        key = id(array)
        found = self._held.get(key)
        if found is not None and found[0]() is array:
            return found[1]
        held = from_numpy(array, self.device)
        self._held[key] = (weakref.ref(array, lambda _: self._held.pop(key, None)), held)
        return held


class _DeviceLoaded:
    def __init__(self, plan: Plan, inputs: list[DeviceArray]) -> None:
        self._plan = plan
        self._inputs = inputs
        self._results: list[DeviceArray] = []

    def run(self) -> None:
        self._results = self._plan.run(self._inputs)
        self._plan.device.synchronize()

    def results(self) -> list[Array]:
        return [result.numpy() for result in self._results]
