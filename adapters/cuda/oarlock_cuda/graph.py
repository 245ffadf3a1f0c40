"""Whole plans as CUDA graphs: captured when arguments are new, and launched by one call.

pycuda does not bind stream capture; these are the driver's own calls, on pycuda's stream handles.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oarlock.errors import LaunchError
from oarlock.hal import CopyStep, Handle, LaunchStep
from oarlock_cuda import bare
from oarlock_cuda.memory import Memory
from oarlock_cuda.program import Programs

__all__ = ["Graphs"]

_RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED: whatever else happens to be called meanwhile, in any thread, stays allowed."""
_KEPT = 4
"""Executable graphs of one plan: programs that alternate between a few sets of buffers do not capture again."""

Scalars = Sequence[tuple[int, int, bytes]]


@dataclass(eq=False, slots=True)
class _Plan:
    """Steps, and the executable graph for each set of arguments that ran of late, the oldest first."""

    steps: tuple[LaunchStep | CopyStep, ...]
    executables: dict[Any, ctypes.c_void_p] = field(default_factory=dict)

    def destroy(self) -> None:
        """Give the executable graphs back."""
        for executable in self.executables.values():
            bare.call("cuGraphExecDestroy", executable)
        self.executables.clear()


class Graphs(Memory, Programs):
    """The plan part of the driver (capability ``plans``)."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.side = self.create_stream()  # to capture on: what is in flight on another is not part of a plan

    def prepare(self, steps: Sequence[LaunchStep | CopyStep]) -> Handle:
        return self.keep(_Plan(tuple(steps)))

    def replay(self, stream: Handle | None, plan: Handle, bindings: Sequence[Handle], scalars: Scalars) -> None:
        lane, kept = ctypes.c_void_p(self.get(stream).handle), self.get(plan)
        arguments = (tuple(int(self.get(each)) for each in bindings), tuple(scalars))
        executable = kept.executables.pop(arguments, None)
        if executable is None:
            executable = self.call("replay", self._capture, kept, bindings, scalars, failing=LaunchError)
        kept.executables[arguments] = executable
        self.latest.extend(step.entry for step in kept.steps if isinstance(step, LaunchStep))
        self.call("replay", bare.call, "cuGraphLaunch", executable, lane, failing=LaunchError)

    def free(self, handle: Handle) -> None:
        if isinstance(self.get(handle), _Plan):
            self.call("free", self.live[handle].destroy)
        super().free(handle)

    def _capture(self, plan: _Plan, bindings: Sequence[Handle], scalars: Scalars) -> ctypes.c_void_p:
        """Record the steps into a graph, and make it executable or the new arguments of the oldest that is."""
        side, graph = ctypes.c_void_p(self.live[self.side].handle), ctypes.c_void_p()
        bare.call("cuStreamBeginCapture_v2", side, _RELAXED)
        try:
            try:
                self._steps(plan, bindings, scalars)
            finally:
                bare.call("cuStreamEndCapture", side, ctypes.byref(graph))
            return self._executable(plan, graph)
        finally:
            if graph:
                bare.call("cuGraphDestroy", graph)

    def _steps(self, plan: _Plan, bindings: Sequence[Handle], scalars: Scalars) -> None:
        blocks = {number: bytearray(s.scalars) for number, s in enumerate(plan.steps) if isinstance(s, LaunchStep)}
        for number, offset, data in scalars:
            blocks[number][offset : offset + len(data)] = data
        for number, step in enumerate(plan.steps):
            if isinstance(step, CopyStep):
                to, begin = bindings[step.dst], bindings[step.src]
                self.copy(self.side, to, step.dst_offset, begin, step.src_offset, step.nbytes)
            else:
                buffers = [(bindings[slot], base, extent) for slot, base, extent in step.buffers]
                block = bytes(blocks[number])
                self.launch(self.side, step.program, step.entry, step.grid, step.block, buffers, block)

    def _executable(self, plan: _Plan, graph: ctypes.c_void_p) -> ctypes.c_void_p:
        if len(plan.executables) >= _KEPT:
            oldest = plan.executables.pop(next(iter(plan.executables)))
            result = (ctypes.c_uint64 * 4)()  # which node could not be updated, should one not be
            if bare.refused("cuGraphExecUpdate_v2", oldest, graph, result) == 0:
                return oldest
            bare.call("cuGraphExecDestroy", oldest)
        made = ctypes.c_void_p()
        bare.call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_uint64(0))
        return made
