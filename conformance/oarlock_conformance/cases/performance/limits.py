"""What the device reaches at most: bandwidth of copies, latency and rate of launches, rate of matrix products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock_conformance.case import Failure
from oarlock_conformance.cases.performance.measure import Lab, Running, normal, rate_of
from oarlock_conformance.figures import figure_of

__all__ = ["LIMITS", "Limit", "matrix_rate", "memory_bandwidth"]

Details = dict[str, Any]
SIDE = 1024
"""Rows and columns of the matrices whose product tells the rate; half of it in the quick setting."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Something to measure: ``measure`` gives the details of a case. ``dtype`` must be stored by the device."""

    name: str
    contract: str
    measure: Callable[[Lab], Details]
    dtype: DType | None = None


def _block(lab: Lab) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 256, lab.block_bytes, dtype=np.uint8)


def _copy_in(lab: Lab) -> Details:
    data = _block(lab)
    buffer = lab.device.allocate(data.nbytes)
    seconds = lab.seconds(lambda: lab.device.copy_in(buffer, 0, data))
    return _copied(lab, data, buffer, seconds, 1)


def _copy_out(lab: Lab) -> Details:
    data = _block(lab)
    buffer = lab.device.allocate(data.nbytes)
    lab.device.copy_in(buffer, 0, data)
    host = np.zeros_like(data)
    seconds = lab.seconds(lambda: lab.device.copy_out(host, buffer, 0))
    return _copied(lab, data, buffer, seconds, 1)


def _copy(lab: Lab) -> Details:
    data = _block(lab)
    source, target = lab.device.allocate(data.nbytes), lab.device.allocate(data.nbytes)
    lab.device.copy_in(source, 0, data)
    seconds = lab.seconds(lambda: lab.device.copy(target, 0, source, 0, data.nbytes))
    return _copied(lab, data, target, seconds, 2)


def _copied(lab: Lab, data: np.ndarray[Any, Any], buffer: Any, seconds: list[float], ways: int) -> Details:
    """The rate, once it is seen that the bytes are there. ``ways``: how often each byte crosses the memory."""
    host = np.zeros_like(data)
    lab.device.copy_out(host, buffer, 0)
    lab.device.synchronize()
    if not np.array_equal(host, data):
        raise Failure(f"the bytes that were copied are not those that arrived ({(host != data).sum():,} differ)")
    rate = rate_of(ways * data.nbytes, seconds, "GB/s")
    return {"figures": {"rate": rate.to_json()}, "bytes": data.nbytes}


def memory_bandwidth(lab: Lab) -> Details:
    """Bytes read and written by the simplest kernel, which adds two arrays."""
    size = lab.block_bytes // 4
    x = normal(size)
    running = Running.of(lab.device, "add", [x, x])
    if not np.array_equal(running.result(), x + x):
        raise Failure("the sum of two arrays is wrong")
    rate = rate_of(3 * x.nbytes, lab.seconds(running.submit), "GB/s")
    return {"figures": {"rate": rate.to_json()}, "bytes": 3 * x.nbytes}


def _latency(lab: Lab) -> Details:
    """From giving one small kernel to its end, and how fast kernels can be given one after the other."""
    running = Running.of(lab.device, "add", [normal(1), normal(1)])

    def alone() -> None:
        running.submit()
        lab.device.synchronize()

    waited, given = lab.seconds(alone), lab.seconds(running.submit)
    latency = figure_of([each * 1e6 for each in waited], "µs", "lower")
    each = figure_of([each * 1e6 for each in given], "µs", "lower")
    if latency.median <= 0 or each.median <= 0:
        raise Failure(f"a launch took {latency.median:g} µs: that cannot be")
    return {"figures": {"latency": latency.to_json(), "one_of_many": each.to_json()}}


def matrix_rate(lab: Lab, dtype: DType, side: int = 0) -> Details:
    """Operations of a product of matrices of ``side`` (0: by the setting), two per multiplication with its sum."""
    side = side or (SIDE // 2 if lab.options.quick else SIDE)
    x = normal(side, side, dtype=dtype.numpy)
    running = Running.of(lab.device, "matmul", [x, x])
    exact = x.astype(np.float64) @ x.astype(np.float64)
    off = float(np.abs(running.result().astype(np.float64) - exact).max())
    if not off <= side * 2.0 ** (-7 if dtype == dtypes.float16 else -16):
        raise Failure(f"the product of two {dtype} matrices of {side} x {side} is off by {off:g}")
    rate = rate_of(2 * side**3, lab.seconds(running.submit), "GFLOP/s")
    return {"figures": {"rate": rate.to_json()}, "side": side}


_RATE = "is recorded with its spread, is a rate that can be, and is no worse than the baseline's"

LIMITS: dict[str, Limit] = {
    limit.name: limit
    for limit in (
        Limit("copy_in", f"the bandwidth of copies from host to device {_RATE}", _copy_in),
        Limit("copy_out", f"the bandwidth of copies from device to host {_RATE}", _copy_out),
        Limit("copy", f"the bandwidth of copies on the device, reading and writing, {_RATE}", _copy),
        Limit("memory", f"the bandwidth of a kernel that adds two arrays {_RATE}", memory_bandwidth, dtypes.float32),
        Limit("launch", "the latency of a launch is recorded, and is no worse than the baseline's", _latency),
        *(
            Limit(
                f"matrix-{dtype}",
                f"the rate of {dtype} matrix products {_RATE}",
                partial(matrix_rate, dtype=dtype),
                dtype,
            )
            for dtype in (dtypes.float32, dtypes.float16)
        ),
    )
}
"""Every limit, by name."""
