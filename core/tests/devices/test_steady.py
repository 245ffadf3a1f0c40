"""A compiled function that runs again and again takes memory from its device's driver in the first runs alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oarlock as ol
from oarlock.runtime import open_device

RNG = np.random.default_rng(5)
WEIGHTS = [RNG.standard_normal((48, 48), dtype=np.float32) for _ in range(4)]


def network(x: Any) -> Any:
    """Products one after the other, whose results are temporaries, and two results."""
    for weight in WEIGHTS:
        x = ol.softmax(ol.tanh(x @ ol.asarray(weight, device=x.device)), axis=-1)
    return x, ol.sum(x, axis=0)


@pytest.mark.parametrize("name", ["cpu:0", "sim:0", "sim:1", "opencl:0"])
def test_steady_state_allocates_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_device(name)
    driver: Any = device.driver
    taken: list[int] = []
    allocate = driver.allocate

    def counted(nbytes: int, *more: Any, **options: Any) -> Any:
        taken.append(nbytes)
        return allocate(nbytes, *more, **options)

    x = ol.asarray(RNG.standard_normal((64, 48), dtype=np.float32), device=name)
    compiled = ol.jit(network)
    monkeypatch.setattr(driver, "allocate", counted)
    device.trim()
    results = compiled(x)
    ol.synchronize(name)
    assert taken, "the first run takes what the plan needs"
    for _ in range(3):
        results = compiled(x)
        ol.synchronize(name)
    before, in_use = len(taken), device.stats().bytes_in_use
    for _ in range(20):
        results = compiled(x)
        ol.synchronize(name)
        assert device.stats().bytes_in_use == in_use
    assert taken[before:] == []
    assert np.asarray(results[0]).shape == (64, 48)
