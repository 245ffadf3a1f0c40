"""Hand-written WGSL and a small harness that drives the adapter through the contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.abi import BufferArgument, KernelSignature, scalar_layout
from oarlock.errors import DeviceError
from oarlock_webgpu import WebGPUAdapter

SOURCE = """
struct Block { xo: i32, yo: i32, n: i32, a: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> block: Block;
@compute @workgroup_size(64) fn scale(@builtin(global_invocation_id) at: vec3<u32>) {
    let i = i32(at.x);
    if (i < block.n) { y[block.yo + i] = x[block.xo + i] * block.a; }
}
@group(0) @binding(0) var<storage, read_write> counts: array<u32>;
var<workgroup> shared_counts: array<u32, 64>;
@compute @workgroup_size(64) fn turn(@builtin(local_invocation_id) at: vec3<u32>) {
    shared_counts[at.x] = counts[at.x];
    workgroupBarrier();
    counts[at.x] = shared_counts[63u - at.x] + 1u;
}
"""
F32, I32, U32 = dtypes.float32, dtypes.int32, dtypes.uint32
FIELDS, NBYTES = scalar_layout([("xo", I32), ("yo", I32), ("n", I32), ("a", F32)])
SCALE = KernelSignature(
    "scale",
    (BufferArgument("x", F32, F32, "read"), BufferArgument("y", F32, F32, "write")),
    FIELDS,
    NBYTES,
    (64, 1, 1),
)
TURN = KernelSignature("turn", (BufferArgument("counts", U32, U32, "both"),), (), 0, (64, 1, 1))


class Harness:
    """An open driver with both kernels loaded."""

    def __init__(self, adapter: WebGPUAdapter) -> None:
        self.info = adapter.devices()[0]
        self.driver: Any = adapter.open(0)
        self.program = self.driver.load(SOURCE.encode(), [SCALE, TURN])

    def put(self, array: np.ndarray) -> Any:
        handle = self.driver.allocate(array.nbytes)
        self.driver.copy_in(None, handle, 0, array.view(np.uint8).data)
        return handle

    def get(self, handle: Any, count: int, dtype: Any = np.float32) -> np.ndarray:
        found = np.zeros(count, dtype)
        self.driver.copy_out(None, found.view(np.uint8).data, handle, 0)
        self.driver.synchronize(None, 60.0)
        return found

    def scale(self, x: Any, y: Any, count: int, factor: float, xo: int = 0, yo: int = 0) -> None:
        """y[yo + i] = x[xo + i] * factor, on buffers of 1,000 elements."""
        bindings = [(x, 0, 4000), (y, 0, 4000)]
        blocks = (-(-count // 64), 1, 1)
        self.driver.launch(
            None, self.program, "scale", blocks, SCALE.block, bindings, SCALE.pack([xo, yo, count, factor])
        )


@pytest.fixture(scope="session")
def adapter() -> WebGPUAdapter:
    """The adapter where it has a device; else what needs one is skipped, with what `oarlock doctor` says."""
    found = WebGPUAdapter()
    try:
        found.devices()
    except DeviceError as error:
        pytest.skip(f"UNAVAILABLE, no WebGPU device: {error}")
    return found


@pytest.fixture
def device(adapter: WebGPUAdapter) -> Iterator[Harness]:
    harness = Harness(adapter)
    yield harness
    harness.driver.close()
