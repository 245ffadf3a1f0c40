"""The operators level: every record with every dtype it claims, fused programs, and random programs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from oarlock.dtypes import DType
from oarlock.errors import OarlockError, UnsupportedError
from oarlock.ops import tensor
from oarlock.ops.tolerance import check
from oarlock.runtime import Device, from_numpy, open_device
from oarlock.runtime.execute import plan_for
from oarlock_conformance.case import Case, Failure, Options, Outcome, State
from oarlock_conformance.cases import Report
from oarlock_conformance.cases.operators import programs
from oarlock_conformance.cases.operators.build import Built, mix, mixes, side_by_side
from oarlock_conformance.cases.operators.calls import Call, Unit, all_units, units
from oarlock_conformance.cases.operators.device_run import run_twice
from oarlock_conformance.cases.operators.numerics import ulp_error

__all__ = ["plan", "run"]

_SHARE = 70
"""Units of one group: a process's worth of work."""
_TOGETHER = 12
"""Calls of one program."""


def plan(device: Device, options: Options) -> list[Case]:
    """Every case of the level. Those of dtypes that the device does not store are unsupported, and one asks that
    they are refused."""
    cases: list[Case] = []
    for unit, group in _grouped(options):
        absent = None if device.target.stores(unit.dtype) else unit.dtype
        for call in unit.calls(options):
            cases.append(Case(call.id, "operators", group, unit.record.summary, _reason(device, call)))
        if absent is not None:
            text = f"a device that does not store {absent} refuses it with UnsupportedError, and computes nothing else"
            cases.append(Case(f"{unit.id}/refused", "operators", "refused", text))
    return [*cases, *programs.plan(device, options)]


def _grouped(options: Options) -> Iterator[tuple[Unit, str]]:
    """Units with their groups: families, large ones in parts. Element-wise ones of a dtype stay together, for mixes."""
    families: dict[str, list[Unit]] = {}
    for unit in all_units():
        families.setdefault("elementwise" if unit.is_flat else unit.record.family, []).append(unit)
    for family, members in families.items():
        if family == "elementwise":
            members = sorted(
                members, key=lambda unit: (unit.record.tolerance in ("elementary", "power"), unit.dtype.name)
            )
        share = (240 if options.quick else 40) if family == "elementwise" else _SHARE
        parts = -(-len(members) // share)
        for number, unit in enumerate(members):
            part = number * parts // len(members)
            yield unit, family if parts == 1 else f"{family}-{part + 1}"


def _reason(device: Device, call: Call) -> str:
    """Why a call does not apply to the device; empty when it does."""
    absent = sorted(dtype.name for dtype in call.dtypes() if not device.target.stores(dtype))
    return f"{', '.join(absent)} is not stored" if absent else ""


def run(device: str, cases: Sequence[str], options: Options, isolate: bool, report: Report) -> None:
    """Run cases of this level by id."""
    opened = open_device(device)
    wanted = set(cases)
    plain = [case for case in cases if not programs.mine(case)]
    refused = [case for case in plain if case.endswith("/refused")]
    calls = [call for unit in units(plain).values() for call in unit.calls(options) if call.id in wanted]
    for batch in _batches(calls, isolate):
        report.start(*(call.id for call in batch))
        for outcome in _run_batch(opened, batch):
            report.end(outcome)
    for unit in units(refused).values():
        identity = f"{unit.id}/refused"
        report.start(identity)
        report.end(_refused(opened, unit, identity, options))
    for case in cases:
        if programs.mine(case):
            report.start(case)
            report.end(programs.run(opened, case, options))


def _batches(calls: Sequence[Call], isolate: bool) -> Iterator[list[Call]]:
    """Calls that are compiled together."""
    if isolate:
        yield from ([call] for call in calls)
        return
    yield from mixes([call for call in calls if call.mixed])
    rest = [call for call in calls if not call.mixed]
    for start in range(0, len(rest), _TOGETHER):
        yield rest[start : start + _TOGETHER]


def _built(batch: Sequence[Call]) -> Built:
    return mix(batch) if batch[0].mixed and len(batch) > 1 else side_by_side(batch)


def _run_batch(device: Device, batch: Sequence[Call]) -> list[Outcome]:
    """Outcomes of calls that share a program; one by one when something is wrong with the program as a whole."""
    start = time.perf_counter()
    try:
        built = _built(batch)
        results = built.split(run_twice(device, built.function, built.operands, built.scalar))
    except Exception as error:
        if len(batch) > 1:
            return [outcome for call in batch for outcome in _run_batch(device, [call])]
        return [_broken(batch[0], error, time.perf_counter() - start)]
    share = (time.perf_counter() - start) / len(batch)
    return [_judged(device, call, found, share) for call, found in zip(batch, results, strict=True)]


def _broken(call: Call, error: Exception, seconds: float) -> Outcome:
    if isinstance(error, Failure):
        return Outcome(call.id, "failed", seconds, "value", f"{_described(call)}: {error}")
    return Outcome(call.id, "failed", seconds, "exception", f"{_described(call)}: {type(error).__name__}: {error}")


def _judged(device: Device, call: Call, found: Sequence[np.ndarray], seconds: float) -> Outcome:
    sample = call.sample
    flush = any(dtype.name in device.target.flush_to_zero for dtype in call.dtypes())
    with np.errstate(all="ignore"):  # NaN and overflow are among the values on purpose
        wrong = check(call.record, sample.operands, sample.attributes, found, flush=flush)
        figures = ulp_error(call.record, sample.operands, sample.attributes, found)
    details = {} if figures is None else {"ulp": figures}
    if wrong:
        return Outcome(call.id, "failed", seconds, "value", f"{_described(call)}: {wrong}", details)
    return Outcome(call.id, "passed", seconds, details=details)


def _described(call: Call) -> str:
    """The call as a person writes it, in brief."""
    operands = ", ".join(str(kind) for kind in call.types)
    attributes = ", ".join(f"{key}={value!r}"[:60] for key, value in call.sample.attributes.items())
    return f"{call.record.name}({', '.join(part for part in (operands, attributes) if part)})"


def _refused(device: Device, unit: Unit, identity: str, options: Options) -> Outcome:
    """That a dtype which the device does not store is refused, in arrays and in programs."""
    start = time.perf_counter()
    reason = _accepted_array(device, unit.dtype) or _accepted_program(device, unit, options)
    state: State = "failed" if reason else "passed"
    return Outcome(identity, state, time.perf_counter() - start, "value" if reason else "", reason)


def _accepted_array(device: Device, dtype: DType) -> str:
    try:
        from_numpy(np.zeros(3, dtype.numpy), device)
    except UnsupportedError:
        return ""
    return f"an array of {dtype} was accepted, although the device does not store it"


def _accepted_program(device: Device, unit: Unit, options: Options) -> str:
    """What is wrong with how a program of this dtype is refused. One whose kernels touch nothing of the dtype may be
    made: it cannot be run, for its operands cannot exist."""
    calls = unit.calls(options) or unit.calls(replace(options, quick=False))
    call = max(calls, key=lambda call: sum(x.size for x in call.sample.operands))
    try:
        plan = plan_for(side_by_side([call]).function, device)
        if not call.sample.operands:
            plan.run([])
        elif all(device.target.stores(tensor(value).dtype) for step in plan.steps for value in step.buffers):
            return ""
    except UnsupportedError as error:
        named = any(dtype.name in str(error) for dtype in call.dtypes() if not device.target.stores(dtype))
        return "" if named else f"{_described(call)}: the UnsupportedError names no dtype that is not stored: {error}"
    except OarlockError as error:
        return f"{_described(call)}: expected UnsupportedError, got {type(error).__name__}: {error}"
    return f"{_described(call)} was accepted, although the device does not store {unit.dtype}"
