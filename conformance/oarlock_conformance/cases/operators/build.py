"""Programs out of calls: several calls side by side, or many element-wise ones mixed into one kernel.

A mix evaluates K calls in one kernel: the operands of call k fill block k of the program's inputs, every operator is
evaluated everywhere, and its values are selected in its own block. So K operators cost one compilation, and each value
still comes from the operator's own arithmetic. Operands may lie in memory in other ways: see ``views``.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import Block, Operation, Region, TensorType, Type, Value
from oarlock.ops import ArrayBuilder, Sample, array_context
from oarlock_conformance.cases.operators.calls import Call
from oarlock_conformance.cases.operators.views import View, read, store

__all__ = ["Built", "build_function", "mix", "mixes", "side_by_side"]

Array = npt.NDArray[Any]
Item = TypeVar("Item")
_CONTEXT = array_context()
_MIXED = 14
"""Operators of one mixed kernel."""
_MIXED_SLOW = 4
"""The same for elementary functions, which are long."""


_FREE: tuple[View, ...] = ("plain", "reversed", "strided", "offset")
"""Views that a mix chooses from where its calls leave the choice."""


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A program with its operands, and how to take each call's results out of the program's, a list per sample."""

    calls: tuple[Call, ...]
    function: Operation
    operands: tuple[Array, ...]
    scalar: frozenset[int]
    """Positions of run-time scalars among the operands."""
    split: Callable[[Sequence[Array]], list[list[list[Array]]]]
    view: View


def build_function(types: Sequence[Type], body: Callable[..., Sequence[Value]], name: str = "f") -> Operation:
    """A function whose results are what ``body(builder, *arguments)`` gives."""
    block = Block(types)
    builder = ArrayBuilder(_CONTEXT, block)
    builder.create("builtin.return", list(body(builder, *block.args)))
    return Operation(_CONTEXT.definition("builtin.function"), (), {"name": name}, (), [Region([block])])


def side_by_side(calls: Sequence[Call]) -> Built:
    """A program that makes every call, each on operands of its own."""
    each = [(call, sample, call.view or "plain") for call in calls for sample in call.samples]
    stored = [store(x, view) if not call.record.scalars else x for call, sample, view in each for x in sample.operands]
    types: list[Type] = []
    for (call, sample, _), group in zip(each, _grouped(stored, [len(s.operands) for _, s, _ in each]), strict=True):
        types += call.types(Sample(tuple(group), sample.attributes))
    counts: list[int] = []

    def body(b: ArrayBuilder, *arguments: Value) -> list[Value]:
        results: list[Value] = []
        for (call, sample, view), given in zip(
            each, _grouped(arguments, [len(s.operands) for _, s, _ in each]), strict=True
        ):
            operands = [
                value if call.record.scalars else read(b, value, x, view)
                for value, x in zip(given, sample.operands, strict=True)
            ]
            found = b.many(call.record.name, *operands, **sample.attributes)
            counts.append(len(found))
            results.extend(found)
        return results

    function = build_function(types, body, calls[0].record.name)

    def split(results: Sequence[Array]) -> list[list[list[Array]]]:
        return _grouped(_grouped(results, counts), [len(call.samples) for call in calls])

    flags = [call.record.scalars for call, sample, _ in each for _ in sample.operands]
    scalar = frozenset(position for position, flag in enumerate(flags) if flag)
    return Built(tuple(calls), function, tuple(stored), scalar, split, each[0][2])


def _grouped(items: Iterable[Item], counts: Sequence[int]) -> list[list[Item]]:
    """``items`` in lists of these lengths."""
    rest = iter(items)
    return [list(itertools.islice(rest, count)) for count in counts]


def mixes(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Calls that may share a kernel: the same result dtype and view, few enough."""
    by_result: dict[tuple[str, bool, View | None], list[Call]] = {}
    for call in calls:
        (result,) = call.record.infer_types(call.types(call.sample), call.sample.attributes)
        slow = call.record.tolerance in ("elementary", "power")
        by_result.setdefault((result.dtype.name, slow, call.view), []).append(call)
    for (_, slow, _), members in by_result.items():
        most = _MIXED_SLOW if slow else _MIXED
        for start in range(0, len(members), most):
            yield members[start : start + most]


def mix(calls: Sequence[Call]) -> Built:
    """A program that makes every call (element-wise, flat, one result of the same dtype) in one kernel."""
    view = calls[0].view or _FREE[zlib.crc32(calls[0].id.encode()) % len(_FREE)]
    first = max((call.sample.operands[0] for call in calls), key=lambda x: x.size)
    rows, shape = first.shape[0], (len(calls) * first.shape[0], *first.shape[1:])
    inputs: dict[tuple[int, DType], Array] = {}
    for k, call in enumerate(calls):
        for slot, x in enumerate(call.sample.operands):
            key = (slot, dtypes.from_numpy(x.dtype))
            inputs.setdefault(key, np.zeros(shape, x.dtype))[k * rows : (k + 1) * rows] = np.resize(x, first.shape)
    which = np.repeat(np.arange(len(calls), dtype=np.int32), rows).reshape(-1, *(1,) * (first.ndim - 1))
    stored = [store(x, view) for x in inputs.values()]

    def body(b: ArrayBuilder, block: Value, *arguments: Value) -> list[Value]:
        whole = {key: read(b, v, x, view) for v, (key, x) in zip(arguments, inputs.items(), strict=True)}

        def value(call: Call) -> Value:
            given = [whole[slot, dtypes.from_numpy(x.dtype)] for slot, x in enumerate(call.sample.operands)]
            return b(call.record.name, *given, **call.sample.attributes)

        result = value(calls[0])
        for k, call in enumerate(calls[1:], 1):
            result = b("select", b("equal", block, b.full(k, block)), value(call), result)
        return [result]

    types: list[Type] = [TensorType(dtypes.int32, which.shape)]
    types += [TensorType(dtype, x.shape) for (_, dtype), x in zip(inputs, stored, strict=True)]

    def split(results: Sequence[Array]) -> list[list[list[Array]]]:
        (whole,) = results
        return [[[whole[k * rows : k * rows + call.sample.operands[0].shape[0]]]] for k, call in enumerate(calls)]

    function = build_function(types, body, "mix")
    return Built(tuple(calls), function, (which, *stored), frozenset(), split, view)
