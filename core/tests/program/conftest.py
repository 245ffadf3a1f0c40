"""Fixtures: a backend that interprets recorded programs over NumPy, so that recording is tested alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from oarlock import dtypes
from oarlock.errors import DeviceNotFoundError
from oarlock.ir import Operation, ScalarType
from oarlock.ir.interpret import interpret
from oarlock.program.backend import NO_DATA, Compiled, use_backend
from oarlock.program.fast import ready
from oarlock.program.tape import flush_thread
from oarlock.target import Target

ALL_NAMES = frozenset(d.name for d in dtypes.ALL)


@dataclass(eq=False)
class HostDevice:
    """A device whose memory is NumPy's."""

    name: str
    target: Target


@dataclass
class Interpreted:
    """A backend of interpreted devices: ``host:0`` and ``host:1`` have every dtype, ``small:0`` no 64-bit ones.

    ``functions`` are the programs run so far; ``fail_with`` is raised by the next one.
    """

    functions: list[Operation] = field(default_factory=list)
    fail_with: BaseException | None = None

    def __post_init__(self) -> None:
        narrow = frozenset(n for n in ALL_NAMES if not n.endswith("64"))
        self._devices = {
            "host:0": HostDevice("host:0", Target("numpy", compute=ALL_NAMES)),
            "host:1": HostDevice("host:1", Target("numpy", compute=ALL_NAMES)),
            "small:0": HostDevice("small:0", Target("numpy", compute=narrow)),
        }

    def open(self, name: str) -> HostDevice:
        name = name if ":" in name else name + ":0"
        if name not in self._devices:
            raise DeviceNotFoundError(f'no device "{name}"; there are {", ".join(self._devices)}')
        return self._devices[name]

    def reopen(self, name: str) -> None:
        self._devices[name] = HostDevice(name, self._devices[name].target)

    def device_names(self) -> Sequence[str]:
        return list(self._devices)

    def open_devices(self) -> Sequence[HostDevice]:
        return list(self._devices.values())

    def put(self, device: HostDevice, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return array.copy()

    def get(self, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return data.copy()

    def host_view(self, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        view = data.view()
        view.setflags(write=False)
        return view

    def move(self, data: np.ndarray[Any, Any], device: HostDevice) -> np.ndarray[Any, Any]:
        return data.copy()

    def compiled(self, function: Operation, device: HostDevice, fixed: Mapping[int, Any] = NO_DATA) -> Compiled:
        def run(arguments: Sequence[Any]) -> list[Any]:
            rest = iter(arguments)
            count = len(function.regions[0].block.args)
            return self._run(function, [fixed[i] if i in fixed else next(rest) for i in range(count)])

        return run

    def _run(self, function: Operation, arguments: Sequence[Any]) -> list[Any]:
        self.functions.append(function)
        if self.fail_with is not None:
            error, self.fail_with = self.fail_with, None
            raise error
        given = [
            np.asarray(argument, a.type.dtype.numpy) if isinstance(a.type, ScalarType) else argument
            for a, argument in zip(function.regions[0].block.args, arguments, strict=True)
        ]
        return interpret(function, given)

    def synchronize(self, device: HostDevice) -> None:
        return None


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Interpreted]:
    """The interpreted devices, ``host:0`` the default."""
    from oarlock.config import config

    monkeypatch.setattr(config, "device", "host:0")
    interpreted = Interpreted()
    with use_backend(interpreted):
        yield interpreted
        flush_thread()


@pytest.fixture(params=["native", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once through the native functions where there are some, once through Python's."""
    if request.param == "python":
        for name in ("flush", "record", "signature"):
            monkeypatch.setattr(ready, name, None)
    elif ready.record is None:
        pytest.skip("the native module is not built")


Same = Callable[..., None]


@pytest.fixture
def same() -> Same:
    """``same(tensor, expected, ulp=0)``: equal dtype, shape and values, within ``ulp`` steps of the dtype."""

    def compare(tensor: Any, expected: Any, ulp: int = 0) -> None:
        actual, wanted = np.asarray(tensor), np.asarray(expected)
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        if ulp == 0 or wanted.dtype.kind not in "fV":
            np.testing.assert_array_equal(actual, wanted)
            return
        unit = float(ml_dtypes.finfo(wanted.dtype).eps)
        np.testing.assert_allclose(
            actual.astype(np.float64), wanted.astype(np.float64), rtol=ulp * unit, atol=unit * unit
        )

    return compare
