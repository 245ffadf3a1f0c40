"""Runs a program operator by operator on a device, each result checked, and then whole: fused, with the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.pipeline import lower, prepare
from oarlock.ir import Block, Builder, Dense, Operation, Region, Value, interpret
from oarlock.ops import Record, array_context
from oarlock.ops.tolerance import check
from oarlock.runtime import Device, DeviceArray, from_numpy, to_numpy
from oarlock.runtime.kernels import kernels_of
from oarlock.runtime.library import claims_of
from oarlock.runtime.plan import Plan
from oarlock_conformance.case import Failure

__all__ = ["compare"]

Array = npt.NDArray[Any]
_CONTEXT = array_context()


def compare(device: Device, function: Operation, operands: Sequence[Array], exact: bool) -> None:
    """Raise Failure where a program is wrong on a device.

    Each operator by itself must meet its record's tolerance on the values that it was given. The whole must give the
    same values as the operators one by one and, if ``exact``, as the interpreter.
    """
    single = _step_by_step(device, function, operands)
    found = [to_numpy(r) for r in Plan(function, device).run([from_numpy(x, device) for x in operands])]
    for number, (got, want) in enumerate(zip(found, single, strict=True)):
        _same(f"result {number}, all operators together", got, want, "one by one")
    if exact:
        for number, (got, want) in enumerate(zip(found, interpret(function, operands), strict=True)):
            _same(f"result {number}", got, want, "interpreted")


def _step_by_step(device: Device, function: Operation, operands: Sequence[Array]) -> list[Array]:
    """The results, each operator a program of its own; every one is checked."""
    block = function.regions[0].block
    ops = [op for op in block.ops if op is not block.terminator]
    alone = {op: _alone(op) for op in ops if op.operands}
    _compile(device, list(alone.values()))
    held: dict[Value, DeviceArray] = {a: from_numpy(x, device) for a, x in zip(block.args, operands, strict=True)}
    for number, (a, x) in enumerate(zip(block.args, operands, strict=True)):
        _same(f"operand {number}, copied in and out", to_numpy(held[a]), x, "as given")
    flush = bool(device.target.flush_to_zero)
    for op in ops:
        if op not in alone:
            held[op.results[0]] = from_numpy(_made(op), device)
            continue
        given = [held[v] for v in op.operands]
        found = Plan(alone[op], device).run(given)
        held.update(zip(op.results, found, strict=True))
        record = op.definition.interface(Record)
        assert record is not None
        host = [to_numpy(x) for x in given]
        with np.errstate(all="ignore"):
            wrong = check(record, host, op.attributes, [to_numpy(x) for x in found], flush=flush)
        if wrong:
            raise Failure(wrong)
    return [to_numpy(held[v]) for v in block.terminator.operands]


def _made(op: Operation) -> Array:
    """What an operator without operands gives."""
    value = op.attributes.get("value")
    if isinstance(value, Dense):
        return np.asarray(value.array)
    record = op.definition.interface(Record)
    assert record is not None
    return np.asarray(record.reference((), op.attributes)[0])


def _alone(op: Operation) -> Operation:
    """``op`` as a function of its operands."""
    block = Block([v.type for v in op.operands])
    builder = Builder(_CONTEXT, block)
    made = builder.create(op.name, list(block.args), dict(op.attributes), [r.type for r in op.results])
    builder.create("builtin.return", list(made.results))
    return Operation(_CONTEXT.definition("builtin.function"), (), {"name": "alone"}, (), [Region([block])])


def _compile(device: Device, functions: Sequence[Operation]) -> None:
    """Compile the kernels of many small programs together: one compilation each costs far more."""
    claims = claims_of(device)
    calls = [call for function in functions for call in lower(prepare(function), device.target, claims).calls]
    kernels_of(device).get([call for call in calls if isinstance(call, KernelCall)])


def _same(what: str, got: Array, want: Array, how: str) -> None:
    """Fail unless two arrays have the same values, NaN being equal to NaN."""
    wide, exact = (x.astype(np.float64) if x.dtype.kind not in "iub" else x for x in (got, want))
    wrong = wide != exact
    if wide.dtype.kind == "f":
        wrong &= ~(np.isnan(wide) & np.isnan(exact))
    if wrong.any():
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), got.shape))
        place = f" at {at}" if at else ""
        raise Failure(
            f"{what}{place}: got {got[at]}, expected {want[at]} ({how}); {int(wrong.sum())} of {got.size} differ"
        )
