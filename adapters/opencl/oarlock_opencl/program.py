"""Programs: OpenCL C built by the device's own compiler, and kernel launches."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyopencl as cl

from oarlock.errors import CompileError
from oarlock.hal import Binding, Handle, KernelSignature
from oarlock_opencl.stream import Streams


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """A built program: a kernel object and the signature for each entry."""

    kernels: dict[str, tuple[Any, KernelSignature]]


class Programs(Streams):
    """The program part of the driver."""

    def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
        source = executable.decode()
        built = build(self.context, self.target.flags, source)
        try:
            return Program({signature.name: (cl.Kernel(built, signature.name), signature) for signature in signatures})
        except cl.Error as error:
            names = ", ".join(signature.name for signature in signatures)
            raise CompileError(f"the source lacks a kernel among {names}: {error}", str(error), source) from error

    def launch(
        self,
        stream: Handle | None,
        program: Handle,
        entry: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        buffers: Sequence[Binding],
        scalars: bytes,
    ) -> None:
        kernel, signature = program.kernels[entry]
        arguments = [buffer for buffer, _, _ in buffers]
        arguments += [scalars[field.offset : field.offset + field.dtype.itemsize] for field in signature.scalars]
        size = tuple(blocks * threads for blocks, threads in zip(grid, block, strict=True))

        def enqueue(queue: Any, wait_for: Sequence[Any]) -> Any:
            for position, argument in enumerate(arguments):
                kernel.set_arg(position, argument)
            return cl.enqueue_nd_range_kernel(queue, kernel, size, block, wait_for=wait_for)

        self.stream(stream).submit(f"kernel {entry}", enqueue)


def build(context: Any, flags: Sequence[str], source: str) -> Any:
    """Build ``source``; raises CompileError with the log and the lines that it complains about."""
    try:
        with warnings.catch_warnings(action="ignore", category=cl.CompilerWarning):
            return cl.Program(context, source).build(options=[*flags, "-w"])  # some print that there are warnings
    except cl.Error as error:
        raise CompileError.from_log(str(error), source) from error
