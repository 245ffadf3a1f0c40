"""Programs: modules of machine code or PTX, and kernel launches."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pycuda.driver as cuda

from oarlock.errors import CompileError, DeviceError, LaunchError
from oarlock.hal import Binding, Handle, KernelSignature
from oarlock_cuda.stream import Streams

__all__ = ["Programs"]


@dataclass(frozen=True, slots=True)
class _Program:
    """A loaded module; for each entry its function and the bytes of its scalars without the block's padding."""

    module: Any
    entries: dict[str, tuple[Any, int]]


class Programs(Streams):
    """The program part of the driver."""

    def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
        try:
            module = self.call("load", cuda.module_from_buffer, executable)
            return self.keep(_Program(module, {s.name: self._entry(module, s) for s in signatures}))
        except DeviceError as error:
            names = ", ".join(signature.name for signature in signatures)
            raise CompileError(f"the driver refuses the module with {names}: {error}", str(error)) from error

    def _entry(self, module: Any, signature: KernelSignature) -> tuple[Any, int]:
        used = max((field.offset + field.dtype.itemsize for field in signature.scalars), default=0)
        return self.call("load", module.get_function, signature.name), used

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
        addresses = (int(self.get(handle)) + base for handle, base, _ in buffers)
        function, used = self.get(program).entries[entry]
        arguments = struct.pack(f"{len(buffers)}P", *addresses) + scalars[:used]
        lane = self.get(stream)
        self.call(f"kernel {entry}", function._launch_kernel, grid, block, arguments, 0, lane, failing=LaunchError)
        self.latest.append(entry)
