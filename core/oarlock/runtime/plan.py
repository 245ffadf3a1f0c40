"""A plan: a program compiled for one device, with its memory laid out, ready to run on any data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oarlock.abi import KernelSignature
from oarlock.codegen.fuse import is_free
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.pipeline import Lowered, lower, prepare
from oarlock.codegen.values import shape_of
from oarlock.errors import DeviceError, DTypeError, ShapeError
from oarlock.ir import Dense, Operation, ScalarType, TensorType, Value
from oarlock.ops import tensor
from oarlock.runtime.array import DeviceArray, empty, from_numpy
from oarlock.runtime.device import Device
from oarlock.runtime.kernels import Progress, kernels_of
from oarlock.runtime.layout import Life, lay_out
from oarlock.runtime.memory import Buffer
from oarlock.runtime.program import Program

__all__ = ["Launch", "Plan"]


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One launch of a plan, all that is known of it beforehand. ``places`` are the memory values it binds."""

    program: Program
    signature: KernelSignature
    grid: tuple[int, int, int]
    places: tuple[Value, ...]
    scalars: tuple[int | float | Value, ...]
    label: str


class Plan:
    """A program on a device: ``run`` gives it data. Made by ``Plan(function, device)``; immutable afterwards.

    Raises UnsupportedError or CompileError where the device cannot do it.
    """

    def __init__(self, function: Operation, device: Device, progress: Progress | None = None) -> None:
        self.device = device
        lowered: Lowered = lower(prepare(function), device.target)
        block = lowered.function.regions[0].block
        self.arguments = tuple(block.args)
        self.returned = tuple(block.terminator.operands)
        self._returned_places = tuple(memory_of(v) for v in self.returned)
        self._constants: dict[Value, DeviceArray] = {}
        programs = kernels_of(device).get(lowered.calls, progress)
        self.launches = tuple(self._launch(call, programs) for call in lowered.calls)
        self.kernels = len(programs)
        self._place(lowered.calls)

    def _launch(self, call: KernelCall, programs: dict[str, Program]) -> Launch:
        name = str(call.function.attributes["name"])
        program = programs[name]
        for value in call.buffers:
            op = value.defining_op
            if op is not None and op.name == "array.constant" and value not in self._constants:
                self._constant(value, op)
        return Launch(program, program.signatures[name], call.grid, call.buffers, call.scalars, call.label)

    def _constant(self, value: Value, op: Operation) -> None:
        dense = op.attributes["value"]
        assert isinstance(dense, Dense)
        self._constants[value] = from_numpy(dense.array, self.device)

    def _place(self, calls: Sequence[KernelCall]) -> None:
        """Lay the temporaries out, and note when each may go where every slot is an allocation of its own."""
        results = set(self._returned_places)
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        for step, call in enumerate(calls):
            for value in call.buffers[len(call.buffers) - call.outputs :]:
                first[value] = step
            for value in call.buffers:
                last[value] = step
        temporaries = [v for v in first if v not in results]
        sizes = {v: _nbytes(v, self.device) for v in first}
        layout = lay_out([Life(sizes[v], first[v], last[v]) for v in temporaries], self._alignment())
        self.arena_bytes = layout.nbytes
        self.lower_bound_bytes = layout.lower_bound
        limits = self.device.target.limits
        self._separate = limits.exclusive_binding or layout.nbytes > min(limits.max_allocation, limits.max_binding)
        self._offsets = dict(zip(temporaries, layout.offsets, strict=True))
        self._made = [[v for v in c.buffers[len(c.buffers) - c.outputs :]] for c in calls]
        self._dying: list[list[Value]] = [[] for _ in calls]
        for value in temporaries:
            self._dying[last[value]].append(value)
        for value in self._returned_places:
            op = value.defining_op
            if op is not None and op.name == "array.constant" and value not in self._constants:
                self._constant(value, op)

    def _alignment(self) -> int:
        return max(256, self.device.target.limits.binding_alignment or 1)

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self, operands: Sequence[DeviceArray | int | float | bool]) -> list[DeviceArray]:
        """Run on ``operands``, one for each argument; returns at once where the device is asynchronous.

        Raises ShapeError, DTypeError or DeviceError for an operand that does not fit.
        """
        where: dict[Value, tuple[Buffer, int]] = {}
        scalars: dict[Value, int | float] = {}
        self._bind(operands, where, scalars)
        for value in self._returned_places:
            self._result(value, where)
        arena = self.device.allocate(self.arena_bytes, label="temporaries") if self.arena_bytes else None
        if arena is not None and not self._separate:
            where.update({v: (arena, offset) for v, offset in self._offsets.items()})
        for step, launch in enumerate(self.launches):
            if self._separate:
                for value in self._made[step]:
                    if value not in where:
                        where[value] = (self.device.allocate(_nbytes(value, self.device), label="temporary"), 0)
            self._submit(launch, where, scalars)
            if self._separate:
                for value in self._dying[step]:
                    del where[value]
        return [
            DeviceArray(self.device, *where[place], tensor(value).dtype, shape_of(value))
            for value, place in zip(self.returned, self._returned_places, strict=True)
        ]

    def _bind(
        self,
        operands: Sequence[DeviceArray | int | float | bool],
        where: dict[Value, tuple[Buffer, int]],
        scalars: dict[Value, int | float],
    ) -> None:
        if len(operands) != len(self.arguments):
            raise ShapeError(f"the program takes {len(self.arguments)} arguments, got {len(operands)}")
        for position, (argument, operand) in enumerate(zip(self.arguments, operands, strict=True)):
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
        for value, constant in self._constants.items():
            where[value] = (constant.buffer, constant.offset_bytes)

    def _result(self, value: Value, where: dict[Value, tuple[Buffer, int]]) -> None:
        if value not in where:
            made = empty(self.device, tensor(value).dtype, shape_of(value), label="result")
            where[value] = (made.buffer, made.offset_bytes)

    def _submit(
        self, launch: Launch, where: dict[Value, tuple[Buffer, int]], scalars: dict[Value, int | float]
    ) -> None:
        device = self.device
        buffers = [where[v] for v in launch.places]
        if device.target.limits.exclusive_binding:
            buffers = self._distinct(launch, buffers)
        values: list[int | float] = []
        for (_, offset), argument in zip(buffers, launch.signature.buffers, strict=True):
            values.append(device.split_offset(offset, argument.storage.itemsize)[1])
        values += [scalars[s] if isinstance(s, Value) else s for s in launch.scalars]
        device.launch(launch.program, launch.signature.name, launch.grid, buffers, launch.signature.pack(values))

    def _distinct(self, launch: Launch, buffers: Sequence[tuple[Buffer, int]]) -> list[tuple[Buffer, int]]:
        """Copy operands that share an allocation with another one, for devices that bind each only once."""
        seen: set[int] = set()
        result: list[tuple[Buffer, int]] = []
        for value, (buffer, offset) in zip(launch.places, buffers, strict=True):
            if buffer.nbytes and id(buffer.allocation) in seen:
                nbytes = _nbytes(value, self.device)
                copy = self.device.allocate(nbytes, label="distinct operand")
                self.device.copy(copy, 0, buffer, offset, nbytes)
                buffer, offset = copy, 0
            if buffer.nbytes:
                seen.add(id(buffer.allocation))
            result.append((buffer, offset))
        return result


def memory_of(value: Value) -> Value:
    """The value whose memory a returned value shares: itself, or what is behind reshapes."""
    current = value
    while True:
        op = current.defining_op
        if op is None or not is_free(op):
            return current
        if op.name != "array.reshape":
            return value
        current = op.operands[0]


def _nbytes(value: Value, device: Device) -> int:
    kind = tensor(value)
    count = 1
    for dim in kind.static_shape:
        count *= dim
    return count * device.target.storage_of(kind.dtype).itemsize
