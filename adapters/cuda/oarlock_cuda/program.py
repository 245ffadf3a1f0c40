"""Programs: modules of machine code or PTX, and kernel launches."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pycuda.driver as cuda

from oarlock.errors import CompileError, DeviceError
from oarlock.hal import Binding, Handle, KernelSignature
from oarlock_cuda.stream import Streams

__all__ = ["Program", "Programs"]


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """A loaded module, and a function for each entry."""

    module: Any
    functions: dict[str, Any]


class Programs(Streams):
    """The program part of the driver."""

    def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
        try:
            module = self.call("load", cuda.module_from_buffer, executable)
            return Program(
                module, {each.name: self.call("load", module.get_function, each.name) for each in signatures}
            )
        except DeviceError as error:
            names = ", ".join(signature.name for signature in signatures)
            raise CompileError(f"the driver refuses the module with {names}: {error}", str(error)) from error

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
        # Pointers, then the scalar block: that is the layout of a kernel's parameters, for 8 divides all before it.
        arguments = struct.pack(f"{len(buffers)}P", *(int(handle) + base for handle, base, _ in buffers)) + scalars
        function, lane = program.functions[entry], self.stream(stream)
        self.call(f"kernel {entry}", function._launch_kernel, grid, block, arguments, 0, lane)
