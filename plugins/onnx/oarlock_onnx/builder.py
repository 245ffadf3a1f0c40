"""The builder of imported programs: operators on known values are folded on the host, large constants held once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import ModelError
from oarlock.ir import Attribute, Block, Context, Dense, Operation, TensorType, Value
from oarlock.ops.record import ArrayBuilder, Record, tensor
from oarlock_onnx.limits import MAX_FOLDED_BYTES, MAX_OPERATORS, check_size

__all__ = ["GraphBuilder", "NeedsValue"]

Array = npt.NDArray[Any]

_INLINE = 64
"""Constants of at most this many elements stand in the program; larger ones become parameters."""
_SMALL = 4096
"""Results of at most this many elements are always worth folding."""
_HOST_ELEMENTS = 2**20
"""Largest tensor that is computed on the host where a shape depends on the value of an input."""
_HOST_OPERATIONS = 4096
_HOST_WORK = 2**26
"""Elements that all operators of one such computation may read and write."""
_HEAVY = frozenset({"dot_general", "sort", "scan"})
"""Operators that are folded and computed on the host for small operands only."""
_NEVER = frozenset({"convolution", "window_reduce"})
"""Operators that are not: what they cost is not told by the sizes of operands and results."""


class NeedsValue(Exception):
    """Building needs the value of ``value``, which only running the program so far can give."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class GraphBuilder(ArrayBuilder):
    """An ArrayBuilder for import.

    ``inputs`` names the block arguments that are inputs of the model, ``values`` what the caller knows of them.
    ``answers`` are the values for which ``NeedsValue`` was raised before, in that order.
    ``parameters`` maps block arguments to their (constant) values; ``specialised`` collects the inputs whose values
    the program depends on.
    """

    def __init__(self, context: Context, block: Block, values: Mapping[str, Array], answers: Sequence[Array]) -> None:
        super().__init__(context, block)
        self.values = values
        self.answers = answers
        self.inputs: dict[Value, str] = {}
        self.parameters: dict[Value, Array] = {}
        self.specialised: dict[str, Array] = {}
        self._known: dict[Value, Array] = {}
        self._computed: dict[Value, Array] = {}
        self._asked = 0
        self._count = 0
        self._folded_bytes = 0

    def __call__(self, operator: str, *operands: Value, **attributes: Attribute) -> Value:
        """Emit or fold an operator with one result."""
        return self.many(operator, *operands, **attributes)[0]

    def many(self, operator: str, *operands: Value, **attributes: Attribute) -> tuple[Value, ...]:
        """Emit or fold an operator with any number of results; raises ModelError for a result of absurd size."""
        definition = self.context.definition("array." + operator)
        if definition.infer is None:
            raise ModelError(f"{operator} cannot infer its result types")
        types = definition.infer([operand.type for operand in operands], attributes)
        for kind in types:
            if isinstance(kind, TensorType):
                check_size(f"result of {operator}", kind.static_shape, kind.dtype)
        self._count += 1
        if self._count > MAX_OPERATORS:
            raise ModelError(f"the program has more than {MAX_OPERATORS} operators")
        if self._folds(operator, operands, types):
            known = [self._known[operand] for operand in operands]
            results = _evaluate(definition.interface(Record), known, attributes)
            self._folded_bytes += sum(result.nbytes for result in results)
            return tuple(self.known(array) for array in results)
        return self.create("array." + operator, operands, attributes, types).results

    def _folds(self, operator: str, operands: Sequence[Value], types: Sequence[Any]) -> bool:
        if not all(operand in self._known for operand in operands) or operator in _NEVER:
            return False
        if self._folded_bytes > MAX_FOLDED_BYTES:
            return False
        result: int = max(math.prod(kind.static_shape) for kind in types)
        largest = max((self._known[operand].size for operand in operands), default=0)
        if operator in _HEAVY:
            return result <= _SMALL and largest <= 16 * _SMALL
        return result <= max(_SMALL, 2 * largest)

    def constant(self, value: npt.ArrayLike, dtype: DType | None = None) -> Value:
        """A constant; ``dtype`` converts it first."""
        array = np.asarray(value)
        return self.known(array if dtype is None else array.astype(dtype.numpy))

    def known(self, array: Array) -> Value:
        """``array`` as a value: in the program when small, otherwise as a parameter."""
        if array.size <= _INLINE:
            value: Value = self.create("array.constant", (), {"value": Dense(array)}).result
        else:
            value = self.block.add_argument(TensorType(dtypes.from_numpy(array.dtype), array.shape))
            self.parameters[value] = array
        self._known[value] = array
        return value

    def is_constant(self, value: Value) -> bool:
        """Whether ``value`` is known without knowing any input."""
        return value in self._known

    def peek(self, value: Value) -> Array | None:
        """The value where it is known without knowing any input, else None."""
        return self._known.get(value)

    def static(self, value: Value, what: str) -> Array:
        """The value on the host, for ``what`` must be known while building.

        Inputs that it depends on are recorded as specialised. Raises NeedsValue when running the program so far is
        the only way to know it, ModelError when an input's value was not given.
        """
        known = self._known.get(value)
        if known is not None:
            return known
        plan = self._host_plan(value)
        if plan is None:
            return self._ask(value)
        order, inputs = plan
        for argument in inputs:
            self._specialise(argument, what)
        for op in order:
            operands = [self._at_hand(operand) for operand in op.operands]
            results = _evaluate(op.definition.interface(Record), operands, op.attributes)
            self._computed.update(zip(op.results, results, strict=True))
        return self._at_hand(value)

    def cheap(self, value: Value) -> bool:
        """Whether ``static`` can tell the value from small inputs that are given."""
        plan = self._host_plan(value)
        return plan is not None and all(
            self.inputs[argument] in self.values and math.prod(tensor(argument).static_shape) <= _INLINE
            for argument in plan[1]
        )

    def ints(self, value: Value, what: str) -> tuple[int, ...]:
        """A list of integers that must be known while building; a scalar counts as one."""
        array = self.static(value, what)
        if array.dtype.kind not in "iu" or array.ndim > 1:
            raise ModelError(f"{what} must be a list of integers, got {array.dtype} {list(array.shape)}")
        return tuple(int(item) for item in array.reshape(-1))

    def _at_hand(self, value: Value) -> Array:
        return self._known[value] if value in self._known else self._computed[value]

    def _host_plan(self, value: Value) -> tuple[list[Operation], list[Value]] | None:
        """The operations that compute ``value`` on the host, in order, and the inputs that they need.

        None when that would be too much work.
        """
        order: dict[Operation, None] = {}
        inputs: dict[Value, None] = {}
        stack: list[tuple[Value, bool]] = [(value, False)]
        work = 0
        while stack:
            current, ready = stack.pop()
            if current in self._known or current in self._computed:
                continue
            op = current.defining_op
            if op is None:
                inputs[current] = None
            elif ready:
                order[op] = None
            elif op not in order:
                work += _work(op)
                if len(order) > _HOST_OPERATIONS or work > _HOST_WORK or not _is_light(op):
                    return None
                stack.append((current, True))
                stack.extend((operand, False) for operand in op.operands)
        return list(order), list(inputs)

    def _specialise(self, value: Value, what: str) -> None:
        name = self.inputs[value]
        array = self.values.get(name)
        if array is None:
            raise ModelError(f"{what} depends on the value of input {name!r}: give its value when building")
        kind = tensor(value)
        if array.shape != kind.shape or array.dtype != kind.dtype.numpy:
            raise ModelError(f"input {name!r}: got {array.dtype} {list(array.shape)}, expected {kind}")
        self.specialised[name] = array.copy()
        self._computed[value] = array

    def _ask(self, value: Value) -> Array:
        index, self._asked = self._asked, self._asked + 1
        if index >= len(self.answers):
            raise NeedsValue(value)
        self._computed[value] = self.answers[index]
        return self.answers[index]


def _sizes(op: Operation) -> list[int]:
    return [math.prod(tensor(value).static_shape) for value in (*op.operands, *op.results)]


def _work(op: Operation) -> int:
    return sum(_sizes(op))


def _is_light(op: Operation) -> bool:
    name = op.name.removeprefix("array.")
    limit = _SMALL if name in _HEAVY else _HOST_ELEMENTS
    return name not in _NEVER and all(size <= limit for size in _sizes(op))


def _evaluate(record: Record | None, operands: Sequence[Array], attributes: Mapping[str, Attribute]) -> list[Array]:
    if record is None:
        raise ModelError("an operator without a reference cannot be computed on the host")
    with np.errstate(all="ignore"):
        return [np.asarray(result) for result in record.reference(operands, attributes)]
