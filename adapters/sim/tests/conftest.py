"""Hand-written kernels and a small harness to drive the simulator directly through the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.abi import BufferArgument, KernelSignature, scalar_layout
from oarlock_sim import SimAdapter
from oarlock_sim.device import SimDriver

ENTRY = "(void *const *buffers, const void *scalars, const uint32_t begin[3], const uint32_t end[3])"

SOURCE = f"""
#include <stdint.h>
#include <string.h>
struct block {{ int32_t xo, yo, n; float a; }};

void scale{ENTRY} {{
    struct block s;
    memcpy(&s, scalars, sizeof s);
    const float *x = (const float *)buffers[0] + s.xo;
    float *y = (float *)buffers[1] + s.yo;
    for (int64_t i = 64 * (int64_t)begin[0]; i < 64 * (int64_t)end[0] && i < s.n; ++i) y[i] = x[i] * s.a;
}}

void mark{ENTRY} {{ /* adds 1 to element x + 16 y + 256 z for each block */
    int32_t *count = (int32_t *)buffers[0];
    for (uint32_t z = begin[2]; z < end[2]; ++z)
        for (uint32_t y = begin[1]; y < end[1]; ++y)
            for (uint32_t x = begin[0]; x < end[0]; ++x) ++count[x + 16 * y + 256 * z];
}}

void spin{ENTRY} {{ /* some milliseconds of work that a compiler cannot leave out */
    volatile float *x = (volatile float *)buffers[0];
    for (int32_t i = 0; i < 5000000; ++i) x[0] = x[0] * 0.5f + 1.0f;
}}
"""

FIELDS, BYTES = scalar_layout([("xo", dtypes.int32), ("yo", dtypes.int32), ("n", dtypes.int32), ("a", dtypes.float32)])


def buffer(name: str, dtype: dtypes.DType, access: Any) -> BufferArgument:
    return BufferArgument(name, dtype, dtype, access)


SIGNATURES = (
    KernelSignature(
        "scale", (buffer("x", dtypes.float32, "read"), buffer("y", dtypes.float32, "write")), FIELDS, BYTES
    ),
    KernelSignature("mark", (buffer("count", dtypes.int32, "both"),), (), 0),
    KernelSignature("spin", (buffer("x", dtypes.float32, "both"),), (), 0),
)


class Rig:
    """An open simulated device with the kernels above loaded."""

    def __init__(self, adapter: SimAdapter, index: int) -> None:
        self.adapter = adapter
        self.info = adapter.devices()[index]
        driver = adapter.open(index)
        assert isinstance(driver, SimDriver)
        self.driver = driver
        self.program = driver.load(EXECUTABLES[adapter.language], SIGNATURES)

    def put(self, values: np.ndarray, stream: Any = None) -> Any:
        """A new allocation with a copy of ``values``."""
        handle = self.driver.allocate(values.nbytes)
        self.driver.copy_in(stream, handle, 0, memoryview(values).cast("B"))
        return handle

    def get(self, handle: Any, count: int, dtype: Any = np.float32, stream: Any = None) -> np.ndarray:
        """The first ``count`` elements of an allocation."""
        out = np.zeros(count, dtype)
        self.driver.copy_out(stream, memoryview(out).cast("B"), handle, 0)
        self.driver.synchronize(stream, 10)
        return out

    def scale(self, x: Any, y: Any, n: int, a: float = 2.0, stream: Any = None, **changes: Any) -> None:
        """Launch y[:n] = a * x[:n]; ``changes`` replaces arguments of the launch."""
        arguments: dict[str, Any] = {
            "entry": "scale",
            "grid": (-(-n // 64), 1, 1),
            "block": (1, 1, 1),
            "buffers": [(x, 0, 4 * n), (y, 0, 4 * n)],
            "scalars": self.scalars(0, 0, n, a),
        } | changes
        self.driver.launch(stream, self.program, *arguments.values())

    def scalars(self, *values: float) -> bytes:
        """The scalar block of ``scale``: offset of x, offset of y, n, a."""
        return SIGNATURES[0].pack(list(values))

    def run(self, entry: str, handles: Sequence[Any], nbytes: int = 4, stream: Any = None) -> None:
        """Launch one block of a kernel without scalars."""
        buffers = [(handle, 0, nbytes) for handle in handles]
        self.driver.launch(stream, self.program, entry, (1, 1, 1), (1, 1, 1), buffers, b"")


EXECUTABLES: dict[str, bytes] = {}


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    adapter = SimAdapter()
    EXECUTABLES[adapter.language] = adapter.compile(
        adapter.devices()[0].target, SOURCE, [signature.name for signature in SIGNATURES]
    )


@pytest.fixture
def rig() -> Iterator[Callable[..., Rig]]:
    """Opens devices: ``rig(index=0, plan=None)``; they are closed after the test."""
    made: list[Rig] = []

    def make(index: int = 0, plan: Any = None) -> Rig:
        made.append(Rig(SimAdapter(plan=plan), index))
        return made[-1]

    yield make
    for each in made:
        each.driver.close()


@pytest.fixture
def roomy(rig: Callable[..., Rig]) -> Rig:
    return rig(0)


@pytest.fixture
def tight(rig: Callable[..., Rig]) -> Rig:
    return rig(1)
