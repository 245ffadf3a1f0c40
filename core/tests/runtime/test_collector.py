"""Collections are rare while a program is compiled, and as before afterwards, whatever happens."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import oarlock as ol
from oarlock.runtime import lowering
from oarlock.runtime.collector import OBJECTS, rare_collections


@pytest.fixture(autouse=True)
def _threshold() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_thresholds_come_back() -> None:
    with rare_collections(), pytest.raises(ValueError, match="stop"), rare_collections():
        assert gc.get_threshold()[0] == OBJECTS
        raise ValueError("stop")
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("usual", [0, 2 * OBJECTS])
def test_who_collects_less_keeps_that(usual: int) -> None:
    gc.set_threshold(usual, 5, 5)
    with rare_collections():
        assert gc.get_threshold() == (usual, 5, 5)
    assert gc.get_threshold() == (usual, 5, 5)


def test_compiling_is_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    prepare = lowering.prepare
    monkeypatch.setattr(lowering, "prepare", lambda *given: seen.append(gc.get_threshold()[0]) or prepare(*given))
    monkeypatch.setattr(lowering, "entry_for", lambda *given: None)
    x = ol.asarray([1.0, 2.0], device="sim:0")
    assert ol.jit(lambda v: ol.exp(v) * 3 - 1)(x).numpy().shape == (2,)
    assert seen and set(seen) == {OBJECTS}
    assert gc.get_threshold() == (700, 10, 10)
