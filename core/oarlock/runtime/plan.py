"""A plan: a program compiled for one device, with its memory laid out, ready to run on any data."""

from __future__ import annotations

import copy
import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from oarlock.abi import KernelSignature
from oarlock.codegen.free import memory_of
from oarlock.codegen.pipeline import Lowered
from oarlock.codegen.schedule import Choice
from oarlock.codegen.values import shape_of
from oarlock.dtypes import DType
from oarlock.errors import DeviceError, DTypeError, ShapeError
from oarlock.hal import OperatorKernel
from oarlock.ir import Dense, Operation, ScalarType, TensorType, Value
from oarlock.ir.extents import Extent, Extents, resolved
from oarlock.ops import tensor
from oarlock.runtime.array import DeviceArray, empty, from_numpy
from oarlock.runtime.device import Device
from oarlock.runtime.fast import Recipe, run_plan
from oarlock.runtime.kernels import Progress
from oarlock.runtime.layout import Life, lay_out_apart
from oarlock.runtime.library import run_operator
from oarlock.runtime.lowering import lowered, ready
from oarlock.runtime.memory import Buffer
from oarlock.runtime.outcome import Part
from oarlock.runtime.profile import active
from oarlock.runtime.program import Program
from oarlock.runtime.segment import Segment
from oarlock.runtime.strands import groups, spans
from oarlock.runtime.stream import check_stream

__all__ = ["Launch", "LibraryStep", "Operand", "Plan", "Step"]

Operand: TypeAlias = "DeviceArray | int | float | bool"
Places: TypeAlias = list[Any]
"""What the values of one run are, by slot: (buffer, byte offset), or the number that a run-time scalar is."""


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
    operators: str


@dataclass(frozen=True, slots=True, eq=False)
class LibraryStep:
    """One run of an adapter's own kernel on operands and results."""

    kernel: OperatorKernel
    buffers: tuple[Value, ...]
    outputs: int
    label: str
    operators: str


Step: TypeAlias = "Launch | LibraryStep"


class Plan:
    """A program on a device: ``run`` gives it data. Made by ``Plan(function, device)``; immutable afterwards.

    ``fixed`` gives some arguments, by position, that are the same in every run: what depends on them and on constants
    alone runs once, when the plan is made. ``steps`` is what runs each time; ``constants`` lie on the device already.
    ``offsets`` places each temporary in an arena of ``arena_bytes`` (``lower_bound_bytes``: the least that any layout
    needs), unless they are ``separate`` allocations. Raises UnsupportedError or CompileError where the device cannot
    do it, and what ``run`` raises for a fixed argument that does not fit. ``choice`` gives schedules (None: those that
    are known of the device).

    With ``extents`` the sizes in ``function`` stand for others too: the plan is not run itself, but ``at`` gives plans.
    """

    def __init__(
        self,
        function: Operation,
        device: Device,
        progress: Progress | None = None,
        fixed: Mapping[int, Operand] | None = None,
        choice: Choice | None = None,
        extents: Extents | None = None,
    ) -> None:
        self.device = device
        self.extents = extents
        self._sizes: Sequence[int] | None = None
        """What the extents are, in a plan that ``at`` gave."""
        positions = tuple(fixed or ())
        made = ready(function, device, progress, positions, choice, extents)
        self._lowered = made.lowered
        self._lower = functools.partial(lowered, function, device, positions, choice, extents)
        self.function = made.function
        """What is run: the function after expansion, which defines the values of ``steps``."""
        block = self.function.regions[0].block
        held: dict[Value, DeviceArray] = {}
        self._numbers: dict[Value, int | float] = {}
        for position, operand in (fixed or {}).items():
            argument = block.args[position]
            if isinstance(argument.type, ScalarType) and not isinstance(operand, DeviceArray):
                self._numbers[argument] = operand
            else:
                held[argument] = _check(position, operand, argument.type, device)
        self.arguments = tuple(a for a in block.args if a not in held and a not in self._numbers)
        self.returned = tuple(block.terminator.operands)
        self._result_places = tuple(dict.fromkeys(memory_of(v) for v in self.returned))
        self.steps: tuple[Step, ...] = tuple(_step(part, made.programs) for part in made.parts)
        self.constants = self._upload() | held
        if extents is None:
            self.steps = tuple(self._resolved(step) for step in self.steps)
            self._run_once()
            self._make_ready()
        else:
            self._run_once()

    @property
    def lowered(self) -> Lowered:
        """Groups and kernels in IR. A plan from the disk has none of it: they are made anew, in values of their own."""
        if self._lowered is None:
            self._lowered = self._lower()
        return self._lowered

    def at(self, sizes: Mapping[str, int], numbers: Mapping[int, int | float]) -> Plan | None:
        """The plan for other ``sizes``, by name; None where it would have become another one.

        ``numbers`` are fixed run-time scalars, by the argument's position, that belong to these sizes. No kernel is
        compiled.
        """
        assert self.extents is not None
        values = self.extents.evaluate(sizes)
        if values is None:
            return None
        arguments = self.function.regions[0].block.args
        plan = copy.copy(self)
        plan._sizes = values
        plan._numbers = {**self._numbers, **{arguments[position]: number for position, number in numbers.items()}}
        plan.steps = tuple(plan._resolved(step) for step in self.steps)
        plan._make_ready()
        return plan

    def _resolved(self, step: Step) -> Step:
        """``step`` with the numbers of this plan in place of extents and of run-time scalars that are known."""
        if isinstance(step, LibraryStep):
            return step
        scalars = tuple(self._number_of(self._numbers.get(s, s) if isinstance(s, Value) else s) for s in step.scalars)
        return replace(step, grid=self._number_of(step.grid), scalars=scalars)

    def _number_of(self, value: Any) -> Any:
        return value if self._sizes is None else resolved(value, self._sizes)

    def shape(self, value: Value) -> tuple[int, ...]:
        """The shape of an array value in this plan."""
        return self._number_of(shape_of(value))  # type: ignore[no-any-return]

    def nbytes(self, value: Value) -> int:
        """The bytes that an array value takes on the device."""
        return math.prod(self.shape(value)) * self.device.target.storage_of(tensor(value).dtype).itemsize

    def _make_ready(self) -> None:
        device = self.device
        self._lay_out()
        self._number()
        whole = device.can.plans is not None and not self.separate and device.target.limits.binding_alignment is None
        self._work = self._prepare() if whole else self.steps  # a prepared step's base is fixed, and slots move
        self._whole = all(isinstance(step, Segment) for step in self._work)
        self._recipe = self._made_native()

    def _made_native(self) -> Recipe | None:
        """What the native function runs; None where the plan is more than one stretch of launches."""
        parts = self.device.parts
        if parts is None or len(self._work) != 1 or not isinstance(self._work[0], Segment):
            return None
        segment = self._work[0]
        parameters = tuple(None if wanted is None else (wanted.dtype, wanted.shape) for wanted in self._parameters)
        return Recipe(
            parts, segment.plan, segment, parameters, tuple(self._template), tuple(self._allocated), segment.slots,
            self._results, segment.moving, segment.has_scalars,
        )  # fmt: skip

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
        self.slots: dict[Value, int] = {value: number for number, value in enumerate(self.constants)}
        places: Places = [(c.buffer, c.offset_bytes) for c in self.constants.values()]
        rest: list[Step] = []
        makers = Counter(v for step in self.steps for v in step.buffers[-step.outputs :])
        for step in self.steps:
            read, made = step.buffers[: -step.outputs], step.buffers[-step.outputs :]
            shared = any(makers[v] > 1 for v in made)  # of which this step makes a part
            if shared or _varies(step) or not read or not all(v in self.constants for v in read):
                rest.append(step)
                continue
            for value in made:
                self.constants[value] = empty(self.device, tensor(value).dtype, shape_of(value), label="folded")
                self.slots[value] = len(places)
                places.append((self.constants[value].buffer, self.constants[value].offset_bytes))
            self._submit(step, places)
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
        lives = [Life(self.nbytes(v), first[v], last[v]) for v in temporaries]
        whole = self.device.can.plans is not None  # else launches are given one by one, in order
        launches = [step if whole and isinstance(step, Launch) else None for step in self.steps]
        layout = lay_out_apart(lives, spans(groups(launches, self.nbytes, {})), max(256, limits.binding_alignment or 1))
        known = {*first, *kept, *self.arguments}
        self._empty = [v for v in last if v not in known]  # nobody computes a value without elements
        self.arena_bytes = layout.nbytes
        self.lower_bound_bytes = layout.lower_bound
        self.separate = limits.exclusive_binding or layout.nbytes > min(limits.max_allocation, limits.max_binding)
        self.offsets = dict(zip(temporaries, layout.offsets, strict=True))
        self._dying: list[list[Value]] = [[] for _ in self.steps]
        for value in temporaries:
            self._dying[last[value]].append(value)

    def _number(self) -> None:
        """Give every value a slot: arguments in order, constants, what each run allocates, temporaries."""
        fresh = [v for v in self._result_places if v not in self.constants and v not in self.arguments]
        given = [*self.arguments, *self.constants, *fresh, *self._empty]
        self._arena = len(given)
        self.slots = {value: number for number, value in enumerate(given)}
        self.slots |= {value: self._arena + 1 + number for number, value in enumerate(self.offsets)}
        self._parameters = tuple(
            None if isinstance(a.type, ScalarType) else TensorType(tensor(a).dtype, self.shape(a))
            for a in self.arguments
        )
        self._template: Places = [(c.buffer, c.offset_bytes) for c in self.constants.values()]
        self._allocated = [(self.nbytes(v), "result") for v in (*fresh, *self._empty)]
        if self.offsets and not self.separate:
            self._allocated.append((self.arena_bytes, "temporaries"))
        self._results = tuple((self.slots[memory_of(v)], tensor(v).dtype, self.shape(v)) for v in self.returned)

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self, operands: Sequence[Operand]) -> list[DeviceArray]:
        """Run on ``operands``, one for each argument that is not fixed; returns at once on asynchronous devices.

        Raises ShapeError, DTypeError or DeviceError for an operand that does not fit.
        """
        if self._recipe is not None:
            found: Any = run_plan(self._recipe, operands)
            if found is not NotImplemented:
                return found  # type: ignore[no-any-return]
        device = self.device
        places = self._bind(operands)
        lane = check_stream(device, None)
        places += [(buffer, 0) for buffer in device.allocate_all(lane, self._allocated)]
        profile = active()
        if not self._whole or profile is not None:
            if self.separate:
                places += [None] * (len(self.offsets) + 1)
            elif self.offsets:
                arena = places[self._arena][0]
                places += [(arena, offset) for offset in self.offsets.values()]
        if profile is not None:
            for position, step in enumerate(self.steps):
                profile.launch(lane, *self.describe(step), lambda: self._submit_at(position, step, places))  # noqa: B023
        else:
            for position, part in enumerate(self._work):
                if isinstance(part, Segment):
                    part.replay(lane, places)
                else:
                    self._submit_at(position, part, places)
        results = []
        for slot, dtype, shape in self._results:
            buffer, offset = places[slot]
            results.append(DeviceArray(device, buffer, offset, dtype, shape))
        return results

    def _bind(self, operands: Sequence[Operand]) -> Places:
        """The places of arguments and constants."""
        if len(operands) != len(self._parameters):
            raise ShapeError(f"the program takes {len(self._parameters)} arguments, got {len(operands)}")
        places: Places = []
        for operand, wanted in zip(operands, self._parameters, strict=True):
            if wanted is None:
                if isinstance(operand, DeviceArray):
                    raise DTypeError(f"argument {len(places)} is a run-time scalar; give a number")
                places.append(operand)
            elif (
                isinstance(operand, DeviceArray)
                and operand.dtype is wanted.dtype
                and operand.shape == wanted.shape
                and operand.device is self.device
            ):
                places.append((operand.buffer, operand.offset_bytes))
            else:
                array = _check(len(places), operand, wanted, self.device)
                places.append((array.buffer, array.offset_bytes))
        return places + self._template

    def describe(self, step: Step) -> tuple[str, str]:
        """What a step computes, for people (``multiply+rsqrt f32[4096,64]``: its largest operand), and its kernel."""
        largest = max(step.buffers, key=self.nbytes)
        sizes = ",".join(map(str, self.shape(largest)))
        kernel = step.signature.name if isinstance(step, Launch) else step.label
        return f"{step.operators or step.label} {_short(tensor(largest).dtype)}[{sizes}]", kernel

    def _submit_at(self, position: int, step: Step, places: Places) -> None:
        if self.separate:
            self._submit_separate(position, step, places)
        else:
            self._submit(step, places)

    def _submit_separate(self, position: int, step: Step, places: Places) -> None:
        """Submit a step whose temporaries are allocations of their own, given back after their last use."""
        for value in step.buffers:
            slot = self.slots[value]
            if places[slot] is None:
                places[slot] = (self.device.allocate(self.nbytes(value), label="temporary"), 0)
        self._submit(step, places)
        for value in self._dying[position]:
            places[self.slots[value]] = None

    def _submit(self, step: Step, places: Places) -> None:
        device = self.device
        buffers = [places[self.slots[v]] for v in step.buffers]
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
        values += [places[self.slots[s]] if isinstance(s, Value) else s for s in step.scalars]
        device.launch(step.program, step.signature.name, step.grid, buffers, step.signature.pack(values))

    def _distinct(self, step: Launch, buffers: Sequence[tuple[Buffer, int]]) -> list[tuple[Buffer, int]]:
        """Copy operands that share an allocation with another one, for devices that bind each only once."""
        seen: set[int] = set()
        result: list[tuple[Buffer, int]] = []
        for value, (buffer, offset) in zip(step.buffers, buffers, strict=True):
            if buffer.nbytes and id(buffer.allocation) in seen:
                nbytes = self.nbytes(value)
                copy = self.device.allocate(nbytes, label="distinct operand")
                self.device.copy(copy, 0, buffer, offset, nbytes)
                buffer, offset = copy, 0
            if buffer.nbytes:
                seen.add(id(buffer.allocation))
            result.append((buffer, offset))
        return result

    def _prepare(self) -> tuple[Segment | LibraryStep, ...]:
        """Stretches of launches that the driver keeps and replays by one call, and the library steps between them."""
        sizes = {value: self.nbytes(value) for step in self.steps for value in step.buffers}
        work: list[Segment | LibraryStep] = []
        stretch: list[Launch] = []
        for step in (*self.steps, None):
            if isinstance(step, Launch):
                stretch.append(step)
                continue
            if stretch:
                work.append(Segment(self.device, stretch, self.slots, self._arena, self.offsets, sizes))
                stretch = []
            if step is not None:
                work.append(step)
        return tuple(work)


def _short(dtype: DType) -> str:
    """``f32`` for float32, ``bf16``, ``i64``, ``u8``, ``bool``."""
    letters = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u"}.get(dtype.name.rstrip("0123456789"))
    return f"{letters}{dtype.bits}" if letters else dtype.name


def _varies(step: Step) -> bool:
    """Whether it may not be the same in each run, apart from what its operands hold."""
    sizes = [d for v in step.buffers for d in shape_of(v)]
    numbers = [*step.grid, *step.scalars] if isinstance(step, Launch) else []
    return any(isinstance(number, (Value, Extent)) for number in (*sizes, *numbers))


def _check(position: int, operand: object, wanted: object, device: Device) -> DeviceArray:
    """``operand`` as an array of the type ``wanted`` on ``device``; raises where it is none."""
    if isinstance(wanted, ScalarType):
        raise DTypeError(f"argument {position} is a run-time scalar; give a number")
    assert isinstance(wanted, TensorType)
    if not isinstance(operand, DeviceArray):
        raise DTypeError(f"argument {position} is {wanted}; give an array")
    if operand.dtype != wanted.dtype or operand.shape != wanted.shape:
        raise ShapeError(f"argument {position} is {wanted}; got {operand.dtype} {operand.shape}")
    if operand.device is not device:
        raise DeviceError(f"argument {position} is on {operand.device.name}, the program on {device.name}")
    return operand


def _step(part: Part, programs: Mapping[str, Program]) -> Step:
    if not isinstance(part.kernel, str):
        return LibraryStep(part.kernel, part.buffers, part.outputs, part.label, part.operators)
    program = programs[part.kernel]
    program.device.origins[part.kernel] = part.label
    signature = program.signatures[part.kernel]
    return Launch(program, signature, part.grid, part.buffers, part.outputs, part.scalars, part.label, part.operators)
