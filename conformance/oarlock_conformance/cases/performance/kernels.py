"""Standard kernels against what the device reaches: each with the operations and bytes that it cannot do without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oarlock.ops import RECORDS
from oarlock.ops.tolerance import check
from oarlock_conformance.case import Failure
from oarlock_conformance.cases.performance.measure import Lab, Running, normal, rate_of
from oarlock_conformance.figures import figure_of

__all__ = ["KERNELS", "StandardKernel", "measure_kernel"]


@dataclass(frozen=True, slots=True)
class StandardKernel:
    """One operator on float32 operands of these shapes. ``flops``: operations that it cannot do without."""

    name: str
    what: str
    operator: str
    shapes: tuple[tuple[int, ...], ...]
    flops: int
    attributes: Mapping[str, Any] = field(default_factory=dict)


def _matmul(side: int) -> StandardKernel:
    what = f"the product of two matrices of {side} x {side}"
    return StandardKernel(f"matmul-{side}", what, "matmul", ((side, side), (side, side)), 2 * side**3)


_ROWS = (2048, 1024)
_N = _ROWS[0] * _ROWS[1]
_IMAGE, _FILTERS = (1, 64, 56, 56), (64, 64, 3, 3)
_CONVOLUTION = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}

KERNELS: dict[str, StandardKernel] = {
    kernel.name: kernel
    for kernel in (
        StandardKernel("add", f"the sum of two arrays of {_N:,}", "add", ((_N,), (_N,)), _N),
        StandardKernel(
            "sum", f"the sum of {_N:,} values", "reduce_sum", ((_N,),), _N, {"axes": (0,), "keepdims": False}
        ),
        StandardKernel("softmax", "softmax of 2,048 rows of 1,024", "softmax", (_ROWS,), 5 * _N, {"axis": 1}),
        StandardKernel(
            "layer_norm", "layer norm of 2,048 rows of 1,024", "layer_norm", (_ROWS, _ROWS[1:], _ROWS[1:]), 8 * _N,
            {"axis": 1},
        ),
        _matmul(512),
        _matmul(1024),
        StandardKernel(
            "convolution", "a convolution of 64 images of 56 x 56 with 64 x 64 filters of 3 x 3", "convolution",
            (_IMAGE, _FILTERS), 2 * 64 * 64 * 9 * 56 * 56, _CONVOLUTION,
        ),
    )
}  # fmt: skip
"""Every kernel, by name."""


def measure_kernel(lab: Lab, kernel: StandardKernel) -> dict[str, Any]:
    """The details of the case: time, operations, bytes. Raises Failure for a wrong result."""
    operands = [normal(*shape) for shape in kernel.shapes]
    running = Running.of(lab.device, kernel.operator, operands, **kernel.attributes)
    result = running.result()
    flush = "float32" in lab.device.target.flush_to_zero
    with np.errstate(all="ignore"):
        wrong = check(RECORDS[kernel.operator], operands, kernel.attributes, [result], flush=flush)
    if wrong:
        raise Failure(f"{kernel.what}: {wrong}")
    seconds = lab.seconds(running.submit)
    nbytes = sum(x.nbytes for x in operands) + result.nbytes
    rate_of(kernel.flops, seconds, "GFLOP/s")
    figure = figure_of([each * 1e3 for each in seconds], "ms", "lower")
    return {"figures": {"time": figure.to_json()}, "flops": kernel.flops, "bytes": nbytes}
