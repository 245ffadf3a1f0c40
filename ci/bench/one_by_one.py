"""A program of Oarlock run operator by operator, each a program of its own: nothing is fused."""

from __future__ import annotations

from collections.abc import Sequence

from ci.bench.peers import Array, CannotError

from oarlock.ir import Block, Builder, Operation, Region, TensorType, Value
from oarlock.ops import array_context
from oarlock.runtime import DeviceArray, from_numpy, open_device
from oarlock.runtime.plan import Plan

__all__ = ["OneByOne"]


class OneByOne:
    """``run`` runs the operators of ``function`` in order, and waits for the last; ``count`` is their number."""

    def __init__(self, function: Operation, device: str, arguments: Sequence[Array]) -> None:
        self._device = open_device(device)
        self._context = array_context()
        block = function.regions[0].block
        placed = [from_numpy(array, self._device) for array in arguments]
        self._given: dict[Value, DeviceArray] = dict(zip(block.args, placed, strict=True))
        operators = [op for op in block.ops if op is not block.terminator]
        self._returned = list(block.terminator.operands)
        constants = [op for op in operators if not op.operands]
        for op in constants:  # what depends on nothing is computed once
            self._given.update(zip(op.results, self._plan(op).run([]), strict=True))
        self._steps = [(self._plan(op), op) for op in operators if op.operands]
        self._last_uses = self._dying()
        self.count = len(self._steps)
        self._results: list[DeviceArray] = []

    def _plan(self, op: Operation) -> Plan:
        """What runs this one operator; held here, since there may be more than a device keeps."""
        return Plan(self._alone(op), self._device)

    def _alone(self, op: Operation) -> Operation:
        """A function of this one operator."""
        if op.regions:
            raise CannotError(f"{op.name} holds operators of its own")
        block = Block()
        builder = Builder(self._context, block)
        values: dict[Value, Value] = {}
        for operand in dict.fromkeys(op.operands):
            if not isinstance(operand.type, TensorType):
                raise CannotError(f"{op.name} takes {operand.type}")
            values[operand] = block.add_argument(operand.type)
        types = [result.type for result in op.results]
        copy = Operation(op.definition, [values[o] for o in op.operands], op.attributes, types, (), op.location)
        builder.insert(copy)
        builder.create("builtin.return", list(copy.results))
        definition = self._context.definition("builtin.function")
        return Operation(definition, (), {"name": "alone"}, (), [Region([block])])

    def _dying(self) -> list[list[Value]]:
        """The values that each step is the last to use."""
        last = {operand: number for number, (_, op) in enumerate(self._steps) for operand in op.operands}
        kept = {*self._given, *self._returned}
        dying: list[list[Value]] = [[] for _ in self._steps]
        for value, number in last.items():
            if value not in kept:
                dying[number].append(value)
        return dying

    def run(self) -> None:
        values = dict(self._given)
        for (plan, op), dying in zip(self._steps, self._last_uses, strict=True):
            operands = [values[operand] for operand in dict.fromkeys(op.operands)]
            values.update(zip(op.results, plan.run(operands), strict=True))
            for value in dying:
                del values[value]
        self._results = [values[value] for value in self._returned]
        self._device.synchronize()

    def results(self) -> list[Array]:
        return [result.numpy() for result in self._results]
