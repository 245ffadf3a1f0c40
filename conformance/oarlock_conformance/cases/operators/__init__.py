"""The operators level: every record with every dtype it claims, fused programs, and random programs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import OarlockError, UnsupportedError
from oarlock.ops import Sample, tensor
from oarlock.ops.tolerance import check
from oarlock.runtime import Device, from_numpy, open_device
from oarlock.runtime.execute import plan_for
from oarlock_conformance.case import Case, Failure, Options, Outcome, State
from oarlock_conformance.cases import Report
from oarlock_conformance.cases.operators import fused, fuzzing, named, named_numerics, named_repeats, named_views
from oarlock_conformance.cases.operators.build import Built, mix, mixes, side_by_side
from oarlock_conformance.cases.operators.calls import Call, Unit, all_units, units
from oarlock_conformance.cases.operators.device_run import run_twice
from oarlock_conformance.cases.operators.numerics import ulp_error, worse
from oarlock_conformance.cases.operators.views import View

__all__ = ["plan", "run"]

Array = npt.NDArray[Any]

del named_numerics, named_repeats, named_views  # they register named cases

_SHARE = 70
"""Units of one group: a process's worth of work."""
_TOGETHER = 12
"""Calls of one program."""
_SAMPLES = 48
"""Samples of one program, at most where its calls have several: one wait must not take minutes."""


def plan(device: Device, options: Options) -> list[Case]:
    """Every case of the level. Those of dtypes that the device does not store are unsupported, and one asks that
    they are refused."""
    cases: list[Case] = []
    stores_all = all(device.target.stores(dtype) for dtype in dtypes.ALL)
    for unit, group in _grouped(options):
        absent = None if device.target.stores(unit.dtype) else unit.dtype
        for call in unit.calls(options):
            reason = "" if stores_all else _reason(device, call)
            cases.append(Case(call.id, "operators", group, unit.record.summary, reason))
        if absent is not None:
            text = f"a device that does not store {absent} refuses it with UnsupportedError, and computes nothing else"
            cases.append(Case(f"{unit.id}/refused", "operators", "refused", text))
    return [*cases, *named.plan(device, options), *fused.plan(device, options), *fuzzing.plan(device, options)]


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
    plain = [case for case in cases if not _other(case)]
    refused = [case for case in plain if case.endswith("/refused")]
    calls = [call for unit in units(plain).values() for call in unit.calls(options) if call.id in wanted]
    calls = [_without_payloads(opened, call) if call.record.name == "bitcast" else call for call in calls]
    for batch in _batches(calls, isolate):
        report.start(*(call.id for call in batch))
        for outcome in _run_batch(opened, batch):
            report.end(outcome)
    for unit in units(refused).values():
        identity = f"{unit.id}/refused"
        report.start(identity)
        report.end(_refused(opened, unit, identity, options))
    for case in filter(_other, cases):
        report.start(case)
        if fuzzing.mine(case):
            report.end(fuzzing.run(opened, case, options, report.beat))
        else:
            report.end((fused if fused.mine(case) else named).run(opened, case, options))


def _without_payloads(device: Device, call: Call) -> Call:
    """``call``, a bitcast, with one NaN in place of all, where floats are stored as another type: a NaN's other bits
    do not survive the conversion."""
    kinds = [kind for kind in call.dtypes() if kind.is_float]
    if all(device.target.storage_of(kind).bits == kind.bits for kind in kinds if device.target.stores(kind)):
        return call
    samples = []
    for sample in call.samples:
        (x,) = sample.operands
        for kind in kinds:
            floats = x.view(kind.numpy).copy()
            with np.errstate(invalid="ignore"):  # signalling ones
                floats[np.isnan(floats)] = np.nan
            x = floats.view(x.dtype)
        samples.append(replace(sample, operands=(x,)))
    return replace(call, samples=tuple(samples))


def _other(case: str) -> bool:
    """Whether a case is no plain call of a record."""
    return fused.mine(case) or fuzzing.mine(case) or case in named.NAMED


def _batches(calls: Sequence[Call], isolate: bool) -> Iterator[list[Call]]:
    """Calls that are compiled together."""
    if isolate:
        yield from ([call] for call in calls)
        return
    yield from mixes([call for call in calls if call.mixed])
    batch: list[Call] = []
    for call in (call for call in calls if not call.mixed):
        batch.append(call)
        if len(batch) == _TOGETHER or sum(len(each.samples) for each in batch) >= _SAMPLES:
            yield batch
            batch = []
    if batch:
        yield batch


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
    return [_judged(device, call, built.view, found, share) for call, found in zip(batch, results, strict=True)]


def _broken(call: Call, error: Exception, seconds: float) -> Outcome:
    what = _described(call, call.sample)
    if isinstance(error, Failure):
        return Outcome(call.id, "failed", seconds, "value", f"{what}: {error}")
    return Outcome(call.id, "failed", seconds, "exception", f"{what}: {type(error).__name__}: {error}")


def _judged(device: Device, call: Call, view: View, results: Sequence[Sequence[Array]], seconds: float) -> Outcome:
    """The outcome of a call, whose ``results`` are a list per sample."""
    flush = any(dtype.name in device.target.flush_to_zero for dtype in call.dtypes())
    figures = None
    wrong = ""
    with np.errstate(all="ignore"):  # NaN and overflow are among the values on purpose
        for sample, found in zip(call.samples, results, strict=True):
            said = check(call.record, sample.operands, sample.attributes, found, flush=flush)
            if said and not wrong:
                wrong = f"{_described(call, sample)}{'' if view == 'plain' else f', operands {view}'}: {said}"
            else:
                figures = worse(figures, ulp_error(call.record, sample.operands, sample.attributes, found))
    details: dict[str, Any] = {}
    if figures is not None:
        details = {"worst_at": figures.pop("at"), "ulp": figures}
    if len(call.samples) > 1:
        details["calls"] = len(call.samples)
    if wrong:
        return Outcome(call.id, "failed", seconds, "value", wrong, details)
    return Outcome(call.id, "passed", seconds, details=details)


def _described(call: Call, sample: Sample) -> str:
    """A call as a person writes it, in brief."""
    operands = ", ".join(str(kind) for kind in call.types(sample))
    attributes = ", ".join(f"{key}={value!r}"[:60] for key, value in sample.attributes.items())
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
    what = _described(call, call.sample)
    try:
        plan = plan_for(side_by_side([call]).function, device)
        if not call.sample.operands:
            plan.run([])
        elif all(device.target.stores(tensor(value).dtype) for step in plan.steps for value in step.buffers):
            return ""
    except UnsupportedError as error:
        named = any(dtype.name in str(error) for dtype in call.dtypes() if not device.target.stores(dtype))
        return "" if named else f"{what}: the UnsupportedError names no dtype that is not stored: {error}"
    except OarlockError as error:
        return f"{what}: expected UnsupportedError, got {type(error).__name__}: {error}"
    return f"{what} was accepted, although the device does not store {unit.dtype}"
