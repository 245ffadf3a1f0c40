"""Whole plans as CUDA graphs: captured once, updated when arguments change, launched by one call.

pycuda does not bind stream capture; these are the driver's own calls, through ctypes, on pycuda's stream handles.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from oarlock.errors import LaunchError
from oarlock.hal import CopyStep, Handle, LaunchStep
from oarlock_cuda.memory import Memory
from oarlock_cuda.program import Programs

__all__ = ["Graphs", "Plan"]

_THREAD_LOCAL = 1
"""CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: calls of other threads stay allowed while this one captures."""


@cache
def _library() -> Any:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_library(), name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        _library().cuGetErrorName(status, ctypes.byref(text))
        raise LaunchError(f"{name}: {(text.value or b'unknown error').decode()}")


@dataclass(eq=False, slots=True)
class Plan:
    """Steps, and the executable graph made of them with the arguments that it holds now."""

    steps: tuple[LaunchStep | CopyStep, ...]
    executable: ctypes.c_void_p = field(default_factory=ctypes.c_void_p)
    arguments: tuple[Any, ...] = ()


class Graphs(Memory, Programs):
    """The plan part of the driver (capability ``plans``)."""

    def prepare(self, steps: Sequence[LaunchStep | CopyStep]) -> Handle:
        return Plan(tuple(steps))

    def replay(
        self, stream: Handle | None, plan: Handle, bindings: Sequence[Handle], scalars: Sequence[tuple[int, int, bytes]]
    ) -> None:
        lane = self.stream(stream)
        arguments = (tuple(int(each) for each in bindings), tuple(scalars))
        with self.current():
            if plan.arguments != arguments:
                self._capture(lane, plan, bindings, scalars)
                plan.arguments = arguments
            self.call("replay", _call, "cuGraphLaunch", plan.executable, ctypes.c_void_p(lane.handle))

    def _capture(
        self, lane: Any, plan: Plan, bindings: Sequence[Handle], scalars: Sequence[tuple[int, int, bytes]]
    ) -> None:
        """Record the steps into a graph; it replaces the arguments of the executable one, if there is one."""
        blocks = {number: bytearray(s.scalars) for number, s in enumerate(plan.steps) if isinstance(s, LaunchStep)}
        for number, offset, data in scalars:
            blocks[number][offset : offset + len(data)] = data
        graph = ctypes.c_void_p()
        side = self.create_stream()  # what is in flight on ``lane`` is not part of it
        try:
            handle = ctypes.c_void_p(side.handle)
            _call("cuStreamBeginCapture_v2", handle, _THREAD_LOCAL)
            try:
                for number, step in enumerate(plan.steps):
                    self._step(side, step, bindings, bytes(blocks.get(number, b"")))
            finally:
                _call("cuStreamEndCapture", handle, ctypes.byref(graph))
            self._instantiate(plan, graph)
        finally:
            self.destroy_stream(side)
            if graph:
                _call("cuGraphDestroy", graph)

    def _step(self, side: Handle, step: LaunchStep | CopyStep, bindings: Sequence[Handle], scalars: bytes) -> None:
        if isinstance(step, CopyStep):
            source, target = bindings[step.src], bindings[step.dst]
            self.copy(side, target, step.dst_offset, source, step.src_offset, step.nbytes)
            return
        buffers = [(bindings[slot], base, extent) for slot, base, extent in step.buffers]
        self.launch(side, step.program, step.entry, step.grid, step.block, buffers, scalars)

    def _instantiate(self, plan: Plan, graph: ctypes.c_void_p) -> None:
        if plan.executable:
            result = (ctypes.c_uint64 * 4)()
            if _library().cuGraphExecUpdate_v2(plan.executable, graph, result) == 0:
                return
            self.free_plan(plan)
        _call("cuGraphInstantiateWithFlags", ctypes.byref(plan.executable), graph, ctypes.c_uint64(0))

    def free_plan(self, plan: Plan) -> None:
        """Drop a plan's executable graph."""
        if plan.executable and self.lost is None:
            self.call("free", _call, "cuGraphExecDestroy", plan.executable)
        plan.executable = ctypes.c_void_p()
