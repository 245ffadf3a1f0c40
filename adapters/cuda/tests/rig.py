"""Hand-written CUDA kernels on an open device, for code that runs in a process with the simulated driver."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.abi import BufferArgument, KernelSignature, scalar_layout
from oarlock_cuda import CudaAdapter

__all__ = ["Rig", "np"]

_HEAD = 'extern "C" __global__ void {name}({buffers}{scalars}) {{ {body} }}\n'


class Rig:
    """Device ``index``, opened through the adapter, and a kernel of float buffers and int scalars made on request."""

    def __init__(self, index: int = 0) -> None:
        self.adapter = CudaAdapter()
        self.info = self.adapter.devices()[index]
        self.driver: Any = self.adapter.open(index)
        self.closed = False
        atexit.register(self.close)

    def close(self) -> None:
        """Close the device; the core does it at exit, and so does this."""
        if not self.closed:
            self.closed = True
            self.driver.close()

    def kernel(self, body: str, buffers: int = 1, scalars: int = 0, name: str = "kernel") -> Any:
        """A program of one kernel over buffers x0, x1 ... and ints n0, n1 ..."""
        source = _HEAD.format(
            name=name,
            buffers=", ".join(f"float *x{k}" for k in range(buffers)),
            scalars="".join(f", int n{k}" for k in range(scalars)),
            body=body,
        )
        arguments = tuple(
            BufferArgument(f"x{k}", dtypes.float32, dtypes.float32, "both", overlap=0) for k in range(buffers)
        )
        fields, nbytes = scalar_layout([(f"n{k}", dtypes.int32) for k in range(scalars)])
        signature = KernelSignature(name, arguments, fields, nbytes)
        executable = self.adapter.compile(self.info.target, source, [name])
        return self.driver.load(executable, [signature]), signature

    def launch(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        buffers: Sequence[Any],
        scalars: Sequence[int] = (),
        stream: Any = None,
    ) -> None:
        """Launch ``kernel`` on whole allocations."""
        program, signature = kernel
        bound = [(buffer, 0, 4) for buffer in buffers]
        self.driver.launch(stream, program, signature.name, grid, block, bound, signature.pack(list(scalars)))

    def put(self, values: Any) -> Any:
        """A new allocation with ``values`` as float32."""
        data = np.ascontiguousarray(values, np.float32)
        handle = self.driver.allocate(data.nbytes)
        self.driver.copy_in(None, handle, 0, memoryview(data).cast("B"))
        return handle

    def get(self, handle: Any, count: int, stream: Any = None) -> Any:
        """The first ``count`` floats of an allocation, when all work of ``stream`` is done."""
        out = np.zeros(count, np.float32)
        self.driver.copy_out(stream, memoryview(out).cast("B"), handle, 0)
        self.driver.synchronize(stream, 30.0)
        return out
