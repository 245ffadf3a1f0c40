"""Compiles every generated function for the cpu device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder, signature_of
from oarlock.codegen.math import FUNCTIONS, emit
from oarlock.codegen.pipeline import render
from oarlock.dtypes import DType
from oarlock.ir import BufferType, Operation, Value
from oarlock.runtime import open_device

Array = np.ndarray[Any, Any]
Evaluate = Callable[..., Array]
BINARY = ("power", "atan2", "fmod")
FLOATS = (dtypes.float32, dtypes.float64)


def kernel(name: str, dtype: DType) -> Operation:
    """``y[i] = name(x0[i], ...)`` for i below n, in one block."""
    inputs = [f"x{i}" for i in range(2 if name in BINARY else 1)]
    buffers = [(x, BufferType(dtype, "global", "read")) for x in inputs]
    b = KernelBuilder(f"{name}_{dtype}", [*buffers, ("y", BufferType(dtype, "global", "write"))], [("n", dtypes.int32)])

    def body(i: Value, _: list[Value]) -> list[Value]:
        b.store(b.arguments["y"], i, emit(b, name, *(b.load(b.arguments[x], i) for x in inputs)))
        return []

    b.loop(b.i(0), b.arguments["n"], body)
    return b.function


@pytest.fixture(scope="session")
def kernels() -> dict[tuple[str, DType], Operation]:
    """The kernel of every function and dtype."""
    return {(name, dtype): kernel(name, dtype) for name in FUNCTIONS for dtype in FLOATS}


@pytest.fixture(scope="session")
def evaluate(kernels: dict[tuple[str, DType], Operation]) -> Evaluate:
    """``evaluate(name, *arrays)``: the function on the cpu device, on 1-d float32 or float64 arrays."""
    device = open_device("cpu")
    functions = list(kernels.values())
    signatures = [signature_of(f, device.target) for f in functions]
    program = device.load(device.compile(render(functions, device.target), signatures))

    def run(name: str, *arrays: Array) -> Array:
        buffers = [device.allocate(x.nbytes) for x in (*arrays, arrays[0])]
        for buffer, x in zip(buffers, arrays, strict=False):
            device.copy_in(buffer, 0, memoryview(np.ascontiguousarray(x)))
        entry = f"{name}_{dtypes.from_numpy(arrays[0].dtype)}"
        device.launch(program, entry, (1, 1, 1), [(b, 0) for b in buffers], np.int32(arrays[0].size).tobytes())
        result = np.empty_like(arrays[0])
        device.copy_out(memoryview(result), buffers[-1], 0)
        device.synchronize()
        return result

    return run
