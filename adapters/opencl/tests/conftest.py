"""Hand-written OpenCL kernels and a small harness to drive the adapter directly through the contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.abi import BufferArgument, KernelSignature, scalar_layout
from oarlock_opencl import OpenCLAdapter

SOURCE = """
__kernel void scale(__global const float *x, __global float *y, int xo, int yo, uint n, float a) {
    uint i = get_global_id(0);
    if (i < n) y[yo + i] = x[xo + i] * a;
}
__kernel void wide(__global double *x, float a, long b, int c, double d, ulong e) {
    x[0] = a; x[1] = b; x[2] = c; x[3] = d; x[4] = e;
}
__kernel void mark(__global int *count) {
    atomic_add(count + get_group_id(0) + 8 * get_group_id(1) + 64 * get_group_id(2), 1);
}
__kernel void turn(__global int *x) {
    __local int shared[64];
    int i = get_local_id(0);
    shared[i] = x[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    x[i] = shared[63 - i];
}
__kernel void arithmetic(__global float *x) {
    x[0] = x[1] / x[2]; x[3] = sqrt(x[4]); x[5] = x[6] * x[7];
}
__kernel void spin(__global float *x) {
    for (int i = 0; i < 3000000; ++i) x[0] = x[0] * 0.5f + 1.0f;
}
"""


def buffers(*described: tuple[str, dtypes.DType, Any]) -> tuple[BufferArgument, ...]:
    return tuple(BufferArgument(name, dtype, dtype, access) for name, dtype, access in described)


def signature(
    name: str,
    arguments: tuple[BufferArgument, ...],
    scalars: tuple[tuple[str, dtypes.DType], ...] = (),
    threads: int = 1,
) -> KernelSignature:
    fields, nbytes = scalar_layout(scalars)
    return KernelSignature(name, arguments, fields, nbytes, (threads, 1, 1))


F32, F64, I32, I64 = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64
SIGNATURES = (
    signature(
        "scale",
        buffers(("x", F32, "read"), ("y", F32, "write")),
        (("xo", I32), ("yo", I32), ("n", dtypes.uint32), ("a", F32)),
        64,
    ),
    signature(
        "wide", buffers(("x", F64, "write")), (("a", F32), ("b", I64), ("c", I32), ("d", F64), ("e", dtypes.uint64))
    ),
    signature("mark", buffers(("count", I32, "both")), (), 4),
    signature("turn", buffers(("x", I32, "both")), (), 64),
    signature("arithmetic", buffers(("x", F32, "both"))),
    signature("spin", buffers(("x", F32, "both"))),
)


class Rig:
    """An open device with the kernels above loaded."""

    def __init__(self) -> None:
        self.adapter = OpenCLAdapter()
        self.source, self.signatures = SOURCE, SIGNATURES
        self.info = self.adapter.devices()[0]
        self.driver: Any = self.adapter.open(0)
        entries = [each.name for each in SIGNATURES]
        self.program = self.driver.load(self.adapter.compile(self.info.target, SOURCE, entries), SIGNATURES)

    def put(self, values: np.ndarray, stream: Any = None) -> Any:
        """A new allocation with a copy of ``values``."""
        handle = self.driver.allocate(values.nbytes)
        self.driver.copy_in(stream, handle, 0, memoryview(values).cast("B"))
        return handle

    def get(self, handle: Any, count: int, dtype: Any = np.float32, stream: Any = None) -> np.ndarray:
        """The first ``count`` elements of an allocation."""
        out = np.zeros(count, dtype)
        self.driver.copy_out(stream, memoryview(out).cast("B"), handle, 0)
        self.driver.synchronize(stream, 20)
        return out

    def scalars(self, *values: float) -> bytes:
        """The scalar block of ``scale``: offset of x, offset of y, n, a."""
        return SIGNATURES[0].pack(list(values))

    def scale(self, x: Any, y: Any, n: int, a: float = 2.0, stream: Any = None, **changes: Any) -> None:
        """Launch y[:n] = a * x[:n]; ``changes`` replaces arguments of the launch."""
        arguments: dict[str, Any] = {
            "entry": "scale",
            "grid": (-(-n // 64), 1, 1),
            "block": (64, 1, 1),
            "buffers": [(x, 0, 4 * n), (y, 0, 4 * n)],
            "scalars": self.scalars(0, 0, n, a),
        } | changes
        self.driver.launch(stream, self.program, *arguments.values())

    def run(self, entry: str, handle: Any, threads: int = 1, scalars: bytes = b"", stream: Any = None) -> None:
        """Launch one block of a kernel with one buffer."""
        block = (threads, 1, 1)
        self.driver.launch(stream, self.program, entry, (1, 1, 1), block, [(handle, 0, 4)], scalars)

    def hold(self, stream: Any = None) -> Any:
        """A user event that ``stream`` waits for."""
        import pyopencl as cl

        event = cl.UserEvent(self.driver.context)
        self.driver.stream(stream).submit("hold", cl.enqueue_barrier, after=[event])
        return event


@pytest.fixture(scope="session")
def shared() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.driver.close()


@pytest.fixture
def device(shared: Rig) -> Iterator[Rig]:
    """The one device of the tests, idle and without a failure before and after."""
    yield shared
    shared.driver.synchronize(None, 20)
