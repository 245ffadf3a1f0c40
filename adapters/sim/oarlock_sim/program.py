"""Programs: launches that are checked against every limit when they are given, and run in their stream's thread."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace

from oarlock.errors import CompileError, LaunchError, UnsupportedError
from oarlock.hal import Binding, CopyStep, Handle, KernelSignature, LaunchStep
from oarlock.hal.host import pieces
from oarlock_sim import faults
from oarlock_sim.compiler import Library, open_library
from oarlock_sim.memory import Allocation, Memory
from oarlock_sim.stream import entry

__all__ = ["Program", "Programs", "Recorded"]

_BOXES = 4
_Corner = ctypes.c_uint32 * 3


@dataclass(frozen=True, slots=True)
class Program:
    """Loaded kernels with their signatures."""

    library: Library
    signatures: dict[str, KernelSignature]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A prepared plan; its steps' buffers are slots."""

    steps: tuple[LaunchStep | CopyStep, ...]


class Programs(Memory):
    """The program part of the driver."""

    @entry()
    def load(self, executable: bytes, signatures: Sequence[KernelSignature]) -> Handle:
        for signature in signatures:
            self._check_signature(signature)
        names = [signature.name for signature in signatures]
        library = open_library(self.info.target.language, executable, names)
        return self.keep(Program(library, dict(zip(names, signatures, strict=True))))

    def _check_signature(self, signature: KernelSignature) -> None:
        """Raise CompileError for a kernel that this device could not run with any operands."""
        target, limits = self.info.target, self.limits
        if len(signature.buffers) > limits.max_buffers:
            raise CompileError(
                f"{signature.name}: {len(signature.buffers)} buffers; max_buffers is {limits.max_buffers}"
            )
        if signature.scalar_bytes > limits.max_scalar_bytes:
            text = f"{signature.scalar_bytes} scalar bytes; max_scalar_bytes is {limits.max_scalar_bytes}"
            raise CompileError(f"{signature.name}: {text}")
        for field in signature.scalars:
            if not target.computes(field.dtype):
                raise CompileError(
                    f"{signature.name}: scalar {field.name} is {field.dtype}, which is not computed here"
                )
        for buffer in signature.buffers:
            try:
                storage = target.storage_of(buffer.dtype)
            except UnsupportedError as error:
                raise CompileError(f"{signature.name}: buffer {buffer.name}: {error}") from error
            if storage != buffer.storage:
                text = f"{buffer.dtype} is stored as {storage}, not {buffer.storage}"
                raise CompileError(f"{signature.name}: buffer {buffer.name}: {text}")

    @entry()
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
        step = LaunchStep(program, entry, grid, block, tuple(buffers), bytes(scalars))
        self._check_launch(step)
        self.submit(stream, f"kernel {entry}", lambda: self._run(step), faults.gates([entry], self.plan))

    def _check_launch(self, step: LaunchStep) -> None:
        """Raise LaunchError naming the rule that a launch breaks; its buffers are (handle, base, extent)."""
        limits, what = self.limits, f"kernel {step.entry}"
        signature = self.find(step.program, Program, what, LaunchError).signatures.get(step.entry)
        if signature is None:
            raise LaunchError(f"{what} is not in this program")
        if step.block != (1, 1, 1):
            raise LaunchError(f"{what}: block {step.block}; max_block is (1, 1, 1)")
        if not all(1 <= blocks <= most for blocks, most in zip(step.grid, limits.max_grid, strict=True)):
            raise LaunchError(f"{what}: grid {step.grid}; max_grid is {limits.max_grid}, and none is empty")
        if len(step.buffers) != len(signature.buffers) or len(step.scalars) != signature.scalar_bytes:
            given = f"{len(step.buffers)} buffers and {len(step.scalars)} scalar bytes"
            raise LaunchError(f"{what}: {given}; it takes {len(signature.buffers)} and {signature.scalar_bytes}")
        for position, binding in enumerate(step.buffers):
            self._check_binding(f"{what}, buffer {position}", binding)
        if limits.exclusive_binding and len({handle for handle, _, _ in step.buffers}) < len(step.buffers):
            raise LaunchError(f"{what}: an allocation is bound twice; exclusive_binding allows it once in a launch")

    def _check_binding(self, what: str, binding: Binding) -> None:
        handle, base, extent = binding
        limits = self.limits
        nbytes = self.find(handle, Allocation, what, LaunchError).nbytes
        if base % limits.binding_alignment if limits.binding_alignment else base:
            rule = f"is no multiple of binding_alignment {limits.binding_alignment}" if base else ""
            raise LaunchError(f"{what}: base {base} {rule if limits.binding_alignment else 'must be 0 on this device'}")
        if base < 0 or extent <= 0 or base + extent > nbytes:
            raise LaunchError(f"{what}: bytes {base}..{base + extent} leave an allocation of {nbytes}")
        if extent > limits.max_binding:
            raise LaunchError(f"{what}: extent {extent}; max_binding is {limits.max_binding}")

    def _run(self, step: LaunchStep) -> None:
        """Run a launch at once: the last blocks first, for no kernel may rely on the order of its blocks."""
        what = f"kernel {step.entry}, when it ran"
        library: Library = self.find(step.program, Program, what, LaunchError).library  # loaded while it is held here
        allocations: list[Allocation] = [self.find(each, Allocation, what, LaunchError) for each, _, _ in step.buffers]
        addresses = [memory.address + base for memory, (_, base, _) in zip(allocations, step.buffers, strict=True)]
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        for begin, end in reversed(list(pieces(step.grid, _BOXES))):
            library.kernels[step.entry](
                pointers, step.scalars, (ctypes.c_uint32 * 3)(*begin), (ctypes.c_uint32 * 3)(*end)
            )
        for memory in allocations:
            memory.check_guards(step.entry)

    @entry("plans")
    def prepare(self, steps: Sequence[LaunchStep | CopyStep]) -> Handle:
        return self.keep(Recorded(tuple(steps)))

    @entry("plans")
    def replay(
        self, stream: Handle | None, plan: Handle, bindings: Sequence[Handle], scalars: Sequence[tuple[int, int, bytes]]
    ) -> None:
        steps = [_bound(step, bindings) for step in self.find(plan, Recorded, "replay").steps]
        for index, offset, data in scalars:
            step = steps[index] if 0 <= index < len(steps) else None
            if not isinstance(step, LaunchStep) or offset < 0 or offset + len(data) > len(step.scalars):
                raise LaunchError(f"replay: scalars {offset}..{offset + len(data)} of step {index} do not exist")
            block = step.scalars[:offset] + data + step.scalars[offset + len(data) :]
            steps[index] = replace(step, scalars=block)
        for step in steps:
            if isinstance(step, LaunchStep):
                self._check_launch(step)
            else:
                self.check_copy(step.dst, step.dst_offset, step.src, step.src_offset, step.nbytes)

        def run() -> None:
            for step in steps:
                if isinstance(step, LaunchStep):
                    self._run(step)
                else:
                    self.copy_now(step.dst, step.dst_offset, step.src, step.src_offset, step.nbytes)

        kernels = [step.entry for step in steps if isinstance(step, LaunchStep)]
        self.submit(stream, f"plan of {', '.join(kernels)}", run, faults.gates(kernels, self.plan))


def _bound(step: LaunchStep | CopyStep, bindings: Sequence[Handle]) -> LaunchStep | CopyStep:
    """``step`` with handles in place of its slots."""
    slots = [slot for slot, _, _ in step.buffers] if isinstance(step, LaunchStep) else [step.dst, step.src]
    if not all(0 <= slot < len(bindings) for slot in slots):
        raise LaunchError(f"replay: the plan uses slots {slots}; {len(bindings)} bindings were given")
    if isinstance(step, CopyStep):
        return replace(step, dst=bindings[step.dst], src=bindings[step.src])
    return replace(step, buffers=tuple((bindings[slot], base, extent) for slot, base, extent in step.buffers))
