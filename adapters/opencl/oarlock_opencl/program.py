"""Programs: OpenCL C built by the device's own compiler, and kernel launches."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from oarlock.errors import CompileError, LaunchError
from oarlock.hal import Binding, Handle, KernelSignature
from oarlock.target import Target
from oarlock_opencl.stream import Streams

__all__ = ["Program", "Programs", "build"]


def build(context: Any, flags: Sequence[str], source: str) -> Any:
    """Build ``source``; raises CompileError with the log and the lines that it complains about."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            return cl.Program(context, source).build(options=list(flags))
    except cl.Error as error:
        log = str(error)
        lines = source.splitlines()
        numbers = sorted({int(n) for n in re.findall(r":(\d+):\d+:", log)} & set(range(1, len(lines) + 1)))
        shown = "\n".join(f"{n:5} | {lines[n - 1]}" for n in numbers)
        raise CompileError(f"OpenCL refused the source:\n{log}\n{shown}", log, source) from error


class Program:
    """A built program: per entry the kernel object, the number of buffers, the size of the scalar block, and where each
    scalar lies in it (argument, begin, end)."""

    def __init__(self, built: Any, signatures: Sequence[KernelSignature], source: str) -> None:
        self.kernels: dict[str, tuple[Any, int, int, tuple[tuple[int, int, int], ...]]] = {}
        for signature in signatures:
            try:
                kernel = cl.Kernel(built, signature.name)
            except cl.Error as error:
                raise CompileError(f"the source has no kernel {signature.name}: {error}", str(error), source) from error
            first = len(signature.buffers)
            fields = enumerate(signature.scalars, first)
            if kernel.num_args != first + len(signature.scalars):
                text = f"kernel {signature.name} has {kernel.num_args} parameters; its signature has "
                raise CompileError(f"{text}{first} buffers and {len(signature.scalars)} scalars", "", source)
            slices = tuple((at, field.offset, field.offset + field.dtype.itemsize) for at, field in fields)
            self.kernels[signature.name] = (kernel, first, signature.scalar_bytes, slices)


class Programs(Streams):
    """The program part of the driver."""

    target: Target

    def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
        source = executable.decode()
        return Program(build(self.context, self.target.flags, source), signatures, source)

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
        if entry not in program.kernels:
            raise LaunchError(f"kernel {entry} is not in this program, which has {', '.join(program.kernels)}")
        kernel, count, nbytes, slices = program.kernels[entry]
        if len(buffers) != count:
            raise LaunchError(f"kernel {entry} takes {count} buffers, not {len(buffers)}")
        if len(scalars) != nbytes:
            raise LaunchError(f"kernel {entry} takes {nbytes} bytes of scalars, not {len(scalars)}")
        try:
            for argument, (buffer, _, _) in enumerate(buffers):
                kernel.set_arg(argument, buffer)
            for argument, begin, end in slices:
                kernel.set_arg(argument, scalars[begin:end])
        except cl.Error as error:
            raise LaunchError(f"kernel {entry}: {error}") from error
        size = tuple(blocks * threads for blocks, threads in zip(grid, block, strict=True))
        self.stream(stream).submit(f"kernel {entry}", cl.enqueue_nd_range_kernel, kernel, size, block)
