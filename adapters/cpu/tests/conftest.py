"""Fixtures: the two ways through a call, native and Python's, and the device with nothing pending."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import oarlock as ol
from oarlock.hal import host
from oarlock.program.fast import ready
from oarlock.runtime import Device, fast
from oarlock.runtime import plan as plans

TakePython = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture
def take_python() -> TakePython:
    """Lets every native function decline for as long as the patch holds."""

    def take(patch: pytest.MonkeyPatch) -> None:
        for name in ("flush", "record", "signature", "synchronize"):
            patch.setattr(ready, name, None)
        patch.setattr(plans, "run_plan", lambda recipe, operands: NotImplemented)
        patch.setattr(fast, "settle", lambda parts: False)

    return take


@pytest.fixture(params=["native", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, take_python: TakePython) -> str:
    """Which way the test takes."""
    if request.param == "python":
        take_python(monkeypatch)
    elif not host.native_available():
        pytest.skip("the native module is not built")
    return str(request.param)


@pytest.fixture
def device() -> Iterator[Device]:
    """The device, with nothing pending before and after."""
    ol.synchronize("cpu")
    yield ol.device("cpu")  # type: ignore[misc]
    ol.synchronize("cpu")
