"""A program of Oarlock run operator by operator, each a program of its own: nothing is fused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ci.bench.peers import Array, CannotError

from oarlock.ir import Block, Builder, Operation, Region, TensorType, Value, traits
from oarlock.ops import array_context
from oarlock.runtime import DeviceArray, from_numpy, open_device
from oarlock.runtime.plan import Plan

__all__ = ["OneByOne"]


class _Step:
    """A program: its plan, the values that it takes and those that it gives."""

    __slots__ = ("dying", "given", "plan", "taken")

    def __init__(self, plan: Plan, taken: Sequence[Value], given: Sequence[Value]) -> None:
        self.plan = plan
        self.taken = taken
        self.given = given
        self.dying: list[Value] = []
        """The values that it is the last to take."""


class OneByOne:
    """``run`` runs the operators of ``function`` in order, and waits for the last; ``count`` is their number.

    The function's arguments are ``weights``, which are the same in every run, and then ``inputs``. An operator is a
    node of the model's file: a convolution and its bias are one. What only looks at a value in another way (a reshape,
    a slice) is read in place by whoever takes it, as a view is, unless it is a result.
    """

    def __init__(self, function: Operation, device: str, weights: Sequence[Array], inputs: Sequence[Array]) -> None:
        self._device = open_device(device)
        self._context = array_context()
        block = function.regions[0].block
        placed = [from_numpy(array, self._device) for array in (*weights, *inputs)]
        self._given: dict[Value, DeviceArray] = dict(zip(block.args, placed, strict=True))
        self._fixed = set(block.args[: len(weights)])
        operators = [op for op in block.ops if op is not block.terminator]
        self._returned = list(block.terminator.operands)
        constants = [op for op in operators if not op.operands]
        for op in constants:  # what depends on nothing is computed once
            step = self._step([op])
            self._given.update(zip(step.given, step.plan.run([]), strict=True))
            self._fixed.update(step.given)
        self._steps = [self._step(node) for node in self._nodes([op for op in operators if op.operands])]
        self._find_dying()
        self.count = len(self._steps)
        self._results: list[DeviceArray] = []

    def _nodes(self, operators: Sequence[Operation]) -> Iterator[list[Operation]]:
        """The operators that came from one place, those that are no views."""
        for _, together in groupby(operators, lambda op: op.location or id(op)):
            node = [op for op in together if not self._is_view(op)]
            if node:
                yield node

    def _is_view(self, op: Operation) -> bool:
        return op.definition.has(traits.VIEW) and op.result not in self._returned

    def _step(self, node: Sequence[Operation]) -> _Step:
        """A function of these operators and the views that they read."""
        block = Block()
        builder = Builder(self._context, block)
        values: dict[Value, Value] = {}

        def inside(value: Value) -> Value:
            if value not in values:
                made = value.defining_op
                if made is not None and made.operands and self._is_view(made):
                    emit(made)
                elif isinstance(value.type, TensorType):
                    values[value] = block.add_argument(value.type)
                    taken.append(value)
                else:
                    raise CannotError(f"an operator takes {value.type}")
            return values[value]

        def emit(op: Operation) -> None:
            if op.regions:
                raise CannotError(f"{op.name} holds operators of its own")
            operands = [inside(value) for value in op.operands]
            types = [result.type for result in op.results]
            copy = builder.insert(Operation(op.definition, operands, op.attributes, types, (), op.location))
            values.update(zip(op.results, copy.results, strict=True))

        taken: list[Value] = []
        for op in node:
            emit(op)
        given = [value for op in node for value in op.results if self._leaves(value, node)]
        builder.create("builtin.return", [values[value] for value in given])
        definition = self._context.definition("builtin.function")
        alone = Operation(definition, (), {"name": "alone"}, (), [Region([block])])
        fixed = {position: self._given[value] for position, value in enumerate(taken) if value in self._fixed}
        plan = Plan(alone, self._device, fixed=fixed)  # held here: there may be more than a device keeps
        return _Step(plan, [value for value in taken if value not in self._fixed], given)

    def _leaves(self, value: Value, node: Sequence[Operation]) -> bool:
        """Whether somebody outside ``node`` wants ``value``."""
        return value in self._returned or any(user not in node for user, _ in value.uses)

    def _find_dying(self) -> None:
        kept = {*self._given, *self._returned}
        last = {value: step for step in self._steps for value in (*step.given, *step.taken)}
        for value, step in last.items():
            if value not in kept:
                step.dying.append(value)

    def run(self) -> None:
        values = dict(self._given)
        for step in self._steps:
            results = step.plan.run([values[value] for value in step.taken])
            values.update(zip(step.given, results, strict=True))
            for value in step.dying:
                del values[value]
        self._results = [values[value] for value in self._returned]
        self._device.synchronize()

    def results(self) -> list[Array]:
        return [result.numpy() for result in self._results]
