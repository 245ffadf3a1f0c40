"""Programs and prepared plans on a device, alive as long as work uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock.abi import Executable, KernelSignature
from oarlock.errors import BoundsError, UnsupportedError
from oarlock.hal import CopyStep, Handle, LaunchStep
from oarlock.runtime.checks import check_handle
from oarlock.runtime.lane import Lane
from oarlock.runtime.memory import Buffer
from oarlock.runtime.retired import Retired
from oarlock.runtime.stream import Stream, check_stream

if TYPE_CHECKING:
    from oarlock.runtime.device import Device

__all__ = ["PreparedPlan", "Program", "prepare"]


class _Loaded:
    """A driver's handle with the last use per stream; retired when the last reference goes."""

    __slots__ = ("__weakref__", "device", "handle", "uses")

    def __init__(self, device: Device, handle: Handle) -> None:
        self.device = device
        self.handle = handle
        self.uses: dict[Lane, int] = {}

    def use(self, lane: Lane, ticket: int) -> None:
        """Note that ``ticket`` of ``lane`` uses it. The driver is held."""
        uses = self.uses
        if lane not in uses:
            for other in [other for other, last in uses.items() if last <= other.completed or other.closed]:
                del uses[other]
        uses[lane] = ticket


class Program(_Loaded):
    """Kernels of one Executable on one device, by name in ``signatures``. Made by ``Device.load``."""

    __slots__ = ("executable", "signatures")

    def __init__(self, device: Device, handle: Handle, executable: Executable) -> None:
        super().__init__(device, handle)
        self.executable = executable
        self.signatures: dict[str, KernelSignature] = {item.name: item for item in executable.signatures}

    def __del__(self) -> None:
        if self.device.gate.refusal is None:  # else it died with its device; at exit Retired may be gone already
            self.device.dropped.items.append(Retired("program", self.handle, self.uses))

    def __repr__(self) -> str:
        return f"<Program {self.device.name} {', '.join(self.signatures)}>"


class PreparedPlan(_Loaded):
    """A whole plan that the driver keeps and replays by one call. Made by ``Device.prepare``."""

    __slots__ = ("programs", "slots")

    def __init__(self, device: Device, handle: Handle, programs: Sequence[Program], slots: int) -> None:
        super().__init__(device, handle)
        self.programs = tuple(programs)
        self.slots = slots

    def replay(
        self,
        buffers: Sequence[Buffer],
        scalars: Sequence[tuple[int, int, bytes]] = (),
        stream: Stream | None = None,
    ) -> None:
        """Run the plan on ``buffers``, one a slot; each (step, offset, bytes) replaces bytes of a scalar block."""
        device = self.device
        lane = check_stream(device, stream)
        if len(buffers) != self.slots:
            raise BoundsError(f"{device.name}: a plan of {self.slots} slots is replayed on {len(buffers)} buffers")
        for buffer in buffers:
            device.check_owner(buffer)
        self.submit(lane, buffers, scalars)

    def submit(self, lane: Lane, buffers: Sequence[Buffer], scalars: Sequence[tuple[int, int, bytes]]) -> None:
        """``replay`` for a caller that has made sure of the lane, and of whose buffers these are and how many.

        This runs for every call of a compiled program: the usual case is kept short.
        """
        device = self.device
        plans = device.can.plans
        assert plans is not None  # or this object would not exist
        gate = device.gate
        gate.enter("replay")
        try:
            used = [buffer._allocation or buffer.allocation for buffer in buffers]
            handles = []
            lane.ticket = ticket = lane.ticket + 1
            for allocation in used:
                if allocation.lane is not lane:
                    allocation.change(lane)
                allocation.ticket = ticket
                handles.append(allocation.handle)
            self.use(lane, ticket)
            for program in self.programs:
                program.use(lane, ticket)
            plans.replay(lane.handle, self.handle, handles, scalars)
        except Exception as error:
            explained = gate.explain("replay", error)
            raise explained from (error if explained is not error else error.__cause__)
        finally:
            gate.leave()
        if gate.refusal is not None:
            raise gate.refusal()

    def __del__(self) -> None:
        if self.device.gate.refusal is None:
            self.device.dropped.items.append(Retired("plan", self.handle, self.uses))


def prepare(device: Device, steps: Sequence[LaunchStep | CopyStep]) -> PreparedPlan:
    """See ``Device.prepare``."""
    plans = device.can.plans
    if plans is None:
        raise UnsupportedError(f"{device.name} takes no whole plans; submit its steps one by one")
    programs: list[Program] = []
    given: list[LaunchStep | CopyStep] = []
    slots = 0
    for step in steps:
        if isinstance(step, LaunchStep):
            program: Program = step.program
            programs.append(program)
            slots = max([slots, *(slot + 1 for slot, _, _ in step.buffers)])
            given.append(replace(step, program=program.handle))
        else:
            slots = max(slots, step.dst + 1, step.src + 1)
            given.append(step)
    with device.using("prepare"):
        handle = check_handle("prepare", plans.prepare(given))
        device.counts.plans += 1
    return PreparedPlan(device, handle, list(dict.fromkeys(programs)), slots)
