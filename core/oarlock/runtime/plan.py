"""A plan: a program compiled for one device, with its memory laid out, ready to run on any data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from oarlock.abi import KernelSignature
from oarlock.codegen.free import memory_of
from oarlock.codegen.lower.call import KernelCall, LibraryCall
from oarlock.codegen.pipeline import lower, prepare
from oarlock.codegen.values import shape_of
from oarlock.errors import DeviceError, DTypeError, ShapeError
from oarlock.hal import LaunchStep, OperatorKernel
from oarlock.ir import Dense, Operation, ScalarType, TensorType, Value
from oarlock.ops import tensor
from oarlock.registry.compiler import all_passes, context
from oarlock.runtime.array import DeviceArray, empty, from_numpy
from oarlock.runtime.device import NULL_BYTES, Device
from oarlock.runtime.kernels import Progress, kernels_of
from oarlock.runtime.layout import Life, lay_out
from oarlock.runtime.library import claims_of, run_operator
from oarlock.runtime.memory import Buffer
from oarlock.runtime.program import PreparedPlan, Program

__all__ = ["Launch", "LibraryStep", "Operand", "Plan", "Step"]

Operand: TypeAlias = "DeviceArray | int | float | bool"
Places: TypeAlias = dict[Value, tuple[Buffer, int]]
Scalars: TypeAlias = dict[Value, "int | float"]


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One launch of a plan, all that is known of it beforehand. ``buffers`` are the values that it binds."""

    program: Program
    signature: KernelSignature
    grid: tuple[int, int, int]
    buffers: tuple[Value, ...]
    outputs: int
    scalars: tuple[int | float | Value, ...]
    label: str


@dataclass(frozen=True, slots=True, eq=False)
class LibraryStep:
    """One run of an adapter's own kernel on operands and results."""

    kernel: OperatorKernel
    buffers: tuple[Value, ...]
    outputs: int
    label: str


Step: TypeAlias = "Launch | LibraryStep"


class Plan:
    """A program on a device: ``run`` gives it data. Made by ``Plan(function, device)``; immutable afterwards.

    ``fixed`` gives some arguments, by position, that are the same in every run: what depends on them and on constants
    alone runs once, when the plan is made. ``steps`` is what runs each time; ``constants`` lie on the device already.
    ``offsets`` places each temporary in an arena of ``arena_bytes`` (``lower_bound_bytes``: the least that any layout
    needs), unless they are ``separate`` allocations. Raises UnsupportedError or CompileError where the device cannot
    do it, and what ``run`` raises for a fixed argument that does not fit.
    """

    def __init__(
        self,
        function: Operation,
        device: Device,
        progress: Progress | None = None,
        fixed: Mapping[int, DeviceArray] | None = None,
    ) -> None:
        self.device = device
        prepared = prepare(function, device.target, all_passes(), context())
        self.lowered = lower(prepared, device.target, claims_of(device))
        block = self.lowered.function.regions[0].block
        held = {block.args[i]: array for i, array in (fixed or {}).items()}
        self._bind(tuple(held), tuple(held.values()), {}, {})
        self.arguments = tuple(a for a in block.args if a not in held)
        self.returned = tuple(block.terminator.operands)
        self._result_places = tuple(dict.fromkeys(memory_of(v) for v in self.returned))
        programs = kernels_of(device).get([c for c in self.lowered.calls if isinstance(c, KernelCall)], progress)
        self.steps: tuple[Step, ...] = tuple(_step(call, programs) for call in self.lowered.calls)
        self.constants = self._upload() | held
        self._run_once()
        self._lay_out()
        whole = device.can.plans is not None and not self.separate and device.target.limits.binding_alignment is None
        self._segments = self._prepare() if whole else None  # a prepared step's base is fixed, and slots move

    def _upload(self) -> dict[Value, DeviceArray]:
        """The constants that steps read or the program returns, on the device."""
        constants: dict[Value, DeviceArray] = {}
        for value in (*(v for step in self.steps for v in step.buffers), *self._result_places):
            op = value.defining_op
            if op is not None and op.name == "array.constant" and value not in constants:
                dense = op.attributes["value"]
                assert isinstance(dense, Dense)
                constants[value] = from_numpy(dense.array, self.device)
        return constants

    def _run_once(self) -> None:
        """Run the steps that give the same in every run; what the others read of it becomes constants."""
        where: Places = {v: (c.buffer, c.offset_bytes) for v, c in self.constants.items()}
        rest: list[Step] = []
        for step in self.steps:
            read, made = step.buffers[: -step.outputs], step.buffers[-step.outputs :]
            moves = isinstance(step, Launch) and any(isinstance(s, Value) for s in step.scalars)
            if moves or not read or not all(v in where for v in read):
                rest.append(step)
                continue
            for value in made:
                self.constants[value] = empty(self.device, tensor(value).dtype, shape_of(value), label="folded")
                where[value] = (self.constants[value].buffer, self.constants[value].offset_bytes)
            self._submit(step, where, {})
        self.steps = tuple(rest)
        used = {*(v for step in rest for v in step.buffers), *self._result_places}
        self.constants = {v: c for v, c in self.constants.items() if v in used}

    def _lay_out(self) -> None:
        """Place the temporaries, and note when each may go where every one is an allocation of its own."""
        kept = {*self._result_places, *self.constants}
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        for position, step in enumerate(self.steps):
            for value in step.buffers[len(step.buffers) - step.outputs :]:
                first.setdefault(value, position)
            last.update(dict.fromkeys(step.buffers, position))
        temporaries = [v for v in first if v not in kept]
        limits = self.device.target.limits
        lives = [Life(_nbytes(v, self.device), first[v], last[v]) for v in temporaries]
        layout = lay_out(lives, max(256, limits.binding_alignment or 1))
        known = {*first, *kept, *self.arguments}
        self._empty = [v for v in last if v not in known]  # nobody computes a value without elements
        self.arena_bytes = layout.nbytes
        self.lower_bound_bytes = layout.lower_bound
        self.separate = limits.exclusive_binding or layout.nbytes > min(limits.max_allocation, limits.max_binding)
        self.offsets = dict(zip(temporaries, layout.offsets, strict=True))
        self._dying: list[list[Value]] = [[] for _ in self.steps]
        for value in temporaries:
            self._dying[last[value]].append(value)

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self, operands: Sequence[Operand]) -> list[DeviceArray]:
        """Run on ``operands``, one for each argument that is not fixed; returns at once on asynchronous devices.

        Raises ShapeError, DTypeError or DeviceError for an operand that does not fit.
        """
        where: Places = {v: (c.buffer, c.offset_bytes) for v, c in self.constants.items()}
        scalars: Scalars = {}
        self._bind(self.arguments, operands, where, scalars)
        for value in self._result_places:
            if value not in where:
                made = empty(self.device, tensor(value).dtype, shape_of(value), label="result")
                where[value] = (made.buffer, made.offset_bytes)
        for value in self._empty:
            where[value] = (self.device.allocate(0), 0)
        if self.separate:
            self._run_separate(where, scalars)
        else:
            self._run_in_arena(where, scalars)
        return [
            DeviceArray(self.device, *where[memory_of(value)], tensor(value).dtype, shape_of(value))
            for value in self.returned
        ]

    def _run_separate(self, where: Places, scalars: Scalars) -> None:
        """Each temporary an allocation of its own, given back after its last use."""
        for position, step in enumerate(self.steps):
            for value in step.buffers:
                if value not in where:
                    where[value] = (self.device.allocate(_nbytes(value, self.device), label="temporary"), 0)
            self._submit(step, where, scalars)
            for value in self._dying[position]:
                del where[value]

    def _run_in_arena(self, where: Places, scalars: Scalars) -> None:
        arena = self.device.allocate(self.arena_bytes, label="temporaries")
        where.update({v: (arena, offset) for v, offset in self.offsets.items()})
        if self._segments is None:
            for step in self.steps:
                self._submit(step, where, scalars)
            return
        for segment in self._segments:
            if isinstance(segment, _Segment):
                segment.replay(where, scalars)
            else:
                self._submit(segment, where, scalars)

    def _bind(self, arguments: Sequence[Value], operands: Sequence[Operand], where: Places, scalars: Scalars) -> None:
        if len(operands) != len(arguments):
            raise ShapeError(f"the program takes {len(arguments)} arguments, got {len(operands)}")
        for position, (argument, operand) in enumerate(zip(arguments, operands, strict=True)):
            if isinstance(argument.type, ScalarType):
                if isinstance(operand, DeviceArray):
                    raise DTypeError(f"argument {position} is a run-time scalar; give a number")
                scalars[argument] = operand
                continue
            assert isinstance(argument.type, TensorType)
            if not isinstance(operand, DeviceArray):
                raise DTypeError(f"argument {position} is {argument.type}; give an array")
            if operand.dtype != argument.type.dtype or operand.shape != argument.type.shape:
                raise ShapeError(f"argument {position} is {argument.type}; got {operand.dtype} {operand.shape}")
            if operand.device is not self.device:
                raise DeviceError(f"argument {position} is on {operand.device.name}, the program on {self.device.name}")
            where[argument] = (operand.buffer, operand.offset_bytes)

    def _submit(self, step: Step, where: Places, scalars: Scalars) -> None:
        device = self.device
        buffers = [where[v] for v in step.buffers]
        if isinstance(step, LibraryStep):
            workspace = step.kernel.workspace()
            if workspace:
                buffers.append((device.allocate(workspace, label="workspace"), 0))
            run_operator(device, step.kernel, buffers, step.label)
            return
        if device.target.limits.exclusive_binding:
            buffers = self._distinct(step, buffers)
        values: list[int | float] = [
            device.split_offset(offset, argument.storage.itemsize)[1]
            for (_, offset), argument in zip(buffers, step.signature.buffers, strict=True)
        ]
        values += [scalars[s] if isinstance(s, Value) else s for s in step.scalars]
        device.launch(step.program, step.signature.name, step.grid, buffers, step.signature.pack(values))

    def _distinct(self, step: Launch, buffers: Sequence[tuple[Buffer, int]]) -> list[tuple[Buffer, int]]:
        """Copy operands that share an allocation with another one, for devices that bind each only once."""
        seen: set[int] = set()
        result: list[tuple[Buffer, int]] = []
        for value, (buffer, offset) in zip(step.buffers, buffers, strict=True):
            if buffer.nbytes and id(buffer.allocation) in seen:
                nbytes = _nbytes(value, self.device)
                copy = self.device.allocate(nbytes, label="distinct operand")
                self.device.copy(copy, 0, buffer, offset, nbytes)
                buffer, offset = copy, 0
            if buffer.nbytes:
                seen.add(id(buffer.allocation))
            result.append((buffer, offset))
        return result

    # --- whole plans --------------------------------------------------------------------------------------------------

    def _prepare(self) -> list[_Segment | LibraryStep]:
        """Stretches of launches that the driver keeps and replays by one call, and the library steps between them."""
        segments: list[_Segment | LibraryStep] = []
        stretch: list[Launch] = []
        for step in (*self.steps, None):
            if isinstance(step, Launch):
                stretch.append(step)
                continue
            if stretch:
                segments.append(_Segment(self.device, stretch, self.offsets))
                stretch = []
            if step is not None:
                segments.append(step)
        return segments


class _Segment:
    """Launches given to the driver as one plan. Slot 0 is the arena; the others are values outside it."""

    def __init__(self, device: Device, launches: Sequence[Launch], offsets: Mapping[Value, int]) -> None:
        self.device = device
        outside = dict.fromkeys(v for launch in launches for v in launch.buffers if v not in offsets)
        self.slots = list(outside)
        number = {v: i + 1 for i, v in enumerate(self.slots)}
        self.moving: dict[Value, list[tuple[int, KernelSignature, int]]] = {}
        self.scalars: list[tuple[int, KernelSignature, int, Value]] = []
        self.in_arena: Value | None = None
        steps: list[LaunchStep] = []
        for position, launch in enumerate(launches):
            values: list[int | float] = []
            bindings: list[tuple[int, int, int]] = []
            for i, (value, argument) in enumerate(zip(launch.buffers, launch.signature.buffers, strict=True)):
                offset = offsets.get(value, 0)
                base, element = device.split_offset(offset, argument.storage.itemsize)
                values.append(element)
                bindings.append((number.get(value, 0), base, _nbytes(value, device) or NULL_BYTES))
                if value in offsets:
                    self.in_arena = value
                else:
                    self.moving.setdefault(value, []).append((position, launch.signature, i))
            for i, scalar in enumerate(launch.scalars):
                if isinstance(scalar, Value):
                    self.scalars.append((position, launch.signature, len(bindings) + i, scalar))
                values.append(0 if isinstance(scalar, Value) else scalar)
            block = launch.signature.pack(values)
            steps.append(
                LaunchStep(
                    launch.program, launch.signature.name, launch.grid, launch.signature.block, tuple(bindings), block
                )
            )
        self.plan: PreparedPlan = device.prepare(steps)

    def replay(self, where: Places, scalars: Scalars) -> None:
        patches: list[tuple[int, int, bytes]] = []
        for value in self.slots:
            offset = where[value][1]
            if offset:
                for position, signature, i in self.moving[value]:
                    _, element = self.device.split_offset(offset, signature.buffers[i].storage.itemsize)
                    patches.append((position, *signature.field(i, element)))
        for position, signature, i, scalar in self.scalars:
            patches.append((position, *signature.field(i, scalars[scalar])))
        arena = where[self.in_arena][0] if self.in_arena is not None else where[self.slots[0]][0]
        self.plan.replay([arena, *(where[v][0] for v in self.slots)][: self.plan.slots], patches)


def _step(call: KernelCall | LibraryCall, programs: Mapping[str, Program]) -> Step:
    if isinstance(call, LibraryCall):
        kernel: OperatorKernel = call.kernel  # type: ignore[assignment]
        return LibraryStep(kernel, call.buffers, call.outputs, call.label)
    name = str(call.function.attributes["name"])
    program = programs[name]
    program.device.origins[name] = call.label
    signature = program.signatures[name]
    return Launch(program, signature, call.grid, call.buffers, call.outputs, call.scalars, call.label)


def _nbytes(value: Value, device: Device) -> int:
    return math.prod(shape_of(value)) * device.target.storage_of(tensor(value).dtype).itemsize
