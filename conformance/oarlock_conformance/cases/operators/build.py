"""Programs out of calls: several calls side by side, or many element-wise ones mixed into one kernel.

A mix evaluates K calls in one kernel: the operands of call k fill block k of the program's inputs, every operator is
evaluated everywhere, and its values are selected in its own block. So K operators cost one compilation, and each value
still comes from the operator's own arithmetic.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import Block, Operation, Region, TensorType, Type, Value
from oarlock.ops import ArrayBuilder, array_context
from oarlock_conformance.cases.operators.calls import Call

__all__ = ["Built", "build_function", "mix", "mixes", "side_by_side"]

Array = npt.NDArray[Any]
_CONTEXT = array_context()
_MIXED = 14
"""Operators of one mixed kernel."""
_MIXED_SLOW = 4
"""The same for elementary functions, which are long."""


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A program with its operands, and how to take each call's results out of the program's."""

    calls: tuple[Call, ...]
    function: Operation
    operands: tuple[Array, ...]
    scalar: frozenset[int]
    """Positions of run-time scalars among the operands."""
    split: Callable[[Sequence[Array]], list[list[Array]]]


def build_function(types: Sequence[Type], body: Callable[..., Sequence[Value]], name: str = "f") -> Operation:
    """A function whose results are what ``body(builder, *arguments)`` gives."""
    block = Block(types)
    builder = ArrayBuilder(_CONTEXT, block)
    builder.create("builtin.return", list(body(builder, *block.args)))
    return Operation(_CONTEXT.definition("builtin.function"), (), {"name": name}, (), [Region([block])])


def side_by_side(calls: Sequence[Call]) -> Built:
    """A program that makes every call, each on operands of its own."""
    types: list[Type] = [kind for call in calls for kind in call.types]
    counts: list[int] = []

    def body(b: ArrayBuilder, *arguments: Value) -> list[Value]:
        results: list[Value] = []
        rest = iter(arguments)
        for call in calls:
            given = list(itertools.islice(rest, len(call.sample.operands)))
            found = b.many(call.record.name, *given, **call.sample.attributes)
            counts.append(len(found))
            results.extend(found)
        return results

    function = build_function(types, body, calls[0].record.name)

    def split(results: Sequence[Array]) -> list[list[Array]]:
        rest = iter(results)
        return [list(itertools.islice(rest, count)) for count in counts]

    operands = tuple(x for call in calls for x in call.sample.operands)
    flags = [call.record.scalars for call in calls for _ in call.sample.operands]
    scalar = frozenset(position for position, flag in enumerate(flags) if flag)
    return Built(tuple(calls), function, operands, scalar, split)


def mixes(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Calls that may share a kernel: the same result dtype, few enough."""
    by_result: dict[tuple[str, bool], list[Call]] = {}
    for call in calls:
        (result,) = call.record.infer_types(call.types, call.sample.attributes)
        slow = call.record.tolerance in ("elementary", "power")
        by_result.setdefault((result.dtype.name, slow), []).append(call)
    for (_, slow), members in by_result.items():
        most = _MIXED_SLOW if slow else _MIXED
        for start in range(0, len(members), most):
            yield members[start : start + most]


def mix(calls: Sequence[Call]) -> Built:
    """A program that makes every call (element-wise, flat, one result of the same dtype) in one kernel."""
    length = max(call.sample.operands[0].size for call in calls)
    inputs: dict[tuple[int, DType], Array] = {}
    for k, call in enumerate(calls):
        for slot, x in enumerate(call.sample.operands):
            dtype = dtypes.from_numpy(x.dtype)
            if (slot, dtype) not in inputs:
                inputs[slot, dtype] = np.zeros(len(calls) * length, dtype.numpy)
            inputs[slot, dtype][k * length : (k + 1) * length] = np.resize(x, length)
    which = np.repeat(np.arange(len(calls), dtype=np.int32), length)
    keys = list(inputs)

    def body(b: ArrayBuilder, block: Value, *arguments: Value) -> list[Value]:
        at = dict(zip(keys, arguments, strict=True))

        def value(call: Call) -> Value:
            given = [at[slot, dtypes.from_numpy(x.dtype)] for slot, x in enumerate(call.sample.operands)]
            return b(call.record.name, *given, **call.sample.attributes)

        result = value(calls[0])
        for k, call in enumerate(calls[1:], 1):
            result = b("select", b("equal", block, b.full(k, block)), value(call), result)
        return [result]

    types: list[Type] = [TensorType(dtypes.int32, which.shape)]
    types += [TensorType(dtype, which.shape) for _, dtype in keys]

    def split(results: Sequence[Array]) -> list[list[Array]]:
        (whole,) = results
        return [[whole[k * length : k * length + call.sample.operands[0].size]] for k, call in enumerate(calls)]

    function = build_function(types, body, "mix")
    return Built(tuple(calls), function, (which, *inputs.values()), frozenset(), split)
