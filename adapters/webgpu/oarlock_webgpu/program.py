"""Programs: WGSL compiled by wgpu and the driver, a pipeline for each kernel, and launches that keep bind groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import wgpu

from oarlock.errors import CompileError
from oarlock.hal import Binding, Handle, KernelSignature
from oarlock_webgpu.memory import Memory
from oarlock_webgpu.stream import present

_GROUPS = 4096
"""Bind groups that are kept; making one costs more than a launch."""


class Kernel(NamedTuple):
    """A pipeline, the layout of its bindings, and the size of its scalar block."""

    pipeline: Any
    layout: Any
    scalar_bytes: int


class Programs(Memory):
    """The program part of the driver; a program is a dictionary of kernels."""

    def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
        source = executable.decode()
        try:
            with present():
                module = self.device.create_shader_module(code=source)
                return {signature.name: self._kernel(module, signature) for signature in signatures}
        except wgpu.GPUError as error:
            raise CompileError.from_log(str(error), source) from error

    def _kernel(self, module: Any, signature: KernelSignature) -> Kernel:
        """The kernel ``signature``: its buffers are the first bindings, the scalar block is the last."""
        bindings: list[dict[str, Any]] = [
            {"type": "read-only-storage" if each.access == "read" else "storage"} for each in signature.buffers
        ]
        if signature.scalar_bytes:
            bindings.append({"type": "uniform", "has_dynamic_offset": True, "min_binding_size": signature.scalar_bytes})
        stage = wgpu.ShaderStage.COMPUTE
        entries = [{"binding": n, "visibility": stage, "buffer": each} for n, each in enumerate(bindings)]
        layout = self.device.create_bind_group_layout(entries=entries)
        pipeline = self.device.create_compute_pipeline(
            layout=self.device.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": module, "entry_point": signature.name},
        )
        return Kernel(pipeline, layout, signature.scalar_bytes)

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
        kernel, bindings = program[entry], tuple(buffers)
        group = self.groups.get((kernel, bindings)) or self._group(kernel, bindings)
        self.dispatch(entry, kernel.pipeline, group, grid, scalars)

    @present()
    def _group(self, kernel: Kernel, bindings: tuple[Binding, ...]) -> Any:
        places = [{"buffer": buffer, "offset": base, "size": extent} for buffer, base, extent in bindings]
        if kernel.scalar_bytes:
            places.append({"buffer": self.ring, "offset": 0, "size": kernel.scalar_bytes})
        entries = [{"binding": n, "resource": place} for n, place in enumerate(places)]
        if len(self.groups) >= _GROUPS:
            self.groups.clear()
        group = self.device.create_bind_group(layout=kernel.layout, entries=entries)
        self.groups[kernel, bindings] = group
        return group
