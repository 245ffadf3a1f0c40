"""Fixtures: programs of one operator, run by the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.ir import Block, Operation, Region, ScalarType, TensorType, Value, interpret, verify
from oarlock.ops import RECORDS, ArrayBuilder, Record, Sample, array_context


def operand_types(record: Record, sample: Sample) -> list[Any]:
    found = [TensorType(dtypes.from_numpy(x.dtype), x.shape) for x in sample.operands]
    return [ScalarType(t.dtype) for t in found] if record.scalars else list(found)


@pytest.fixture(scope="session")
def types_of() -> Callable[[Record, Sample], list[Any]]:
    """The operand types of a sample."""
    return operand_types


@pytest.fixture(scope="session")
def run() -> Callable[..., list[np.ndarray]]:
    """``run(emit, *arrays)``: what the values that ``emit(builder, *values)`` gives are, through the interpreter."""

    def evaluate(
        emit: Callable[..., Value | Sequence[Value]], *arrays: np.ndarray, types: Any = None
    ) -> list[np.ndarray]:
        context = array_context()
        block = Block(types or [TensorType(dtypes.from_numpy(x.dtype), x.shape) for x in arrays])
        function = Operation(context.definition("builtin.function"), (), {"name": "f"}, (), [Region([block])])
        b = ArrayBuilder(context, block)
        results = emit(b, *block.args)
        b.create("builtin.return", [results] if isinstance(results, Value) else list(results))
        verify(function)
        return interpret(function, arrays)

    return evaluate


@pytest.fixture(scope="session")
def call() -> Callable[..., Any]:
    """``call(name, *arrays, **attributes)``: the first result of an operator's reference."""

    def evaluate(name: str, *arrays: Any, **attributes: Any) -> np.ndarray:
        operands = [np.asarray(x) for x in arrays]
        record = RECORDS[name]
        record.infer_types(operand_types(record, Sample(tuple(operands))), attributes)
        return record.reference(operands, attributes)[0]

    return evaluate
