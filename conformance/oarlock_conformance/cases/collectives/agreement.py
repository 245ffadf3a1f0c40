"""Cases of agreement: ranks that make different calls are all told, at once, before data moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import (
    BoundsError,
    CommunicationError,
    DTypeError,
    MismatchError,
    OarlockError,
    ShapeError,
    UnsupportedError,
)
from oarlock.runtime import Device, DeviceArray, empty, from_numpy
from oarlock.runtime.communication import ProcessGroup
from oarlock_conformance.bench import expect, expect_equal
from oarlock_conformance.cases.collectives.party import Party
from oarlock_conformance.cases.collectives.register import collective_case

_AT_ONCE_S = 5.0
"""All ranks have come: they must be told long before the time-out, on a slow machine too."""


def _mismatch(
    party: Party, world: int, work: Callable[[ProcessGroup], object], words: Sequence[str], *stored: DType
) -> None:
    """Every rank must raise MismatchError with ``words`` within a moment; then the group and the devices still work."""

    def checked(group: ProcessGroup) -> None:
        start = time.perf_counter()
        try:
            work(group)
        except MismatchError as error:
            missing = [word for word in words if word not in str(error)]
            expect(not missing, f"the error does not say {missing}: {error}")
        else:
            expect(False, "the ranks made different calls, and this one was not told")
        taken = time.perf_counter() - start
        expect(taken < _AT_ONCE_S, f"the ranks were told after {taken:.1f} s")
        after = group.all_reduce(_numbers(group, 3), kind="max").numpy()
        expect_equal(after, np.full(3, world - 1, np.int32), "all_reduce after a mismatch")

    party.ranks(world, checked, dtypes.int32, *stored)
    party.works(*party.devices(world, dtypes.int32, *stored))


def _numbers(group: ProcessGroup, count: int) -> DeviceArray:
    """``count`` int32 that are all the rank."""
    return from_numpy(np.full(count, group.rank, np.int32), group.device)


@collective_case(
    "agreement.count/twice", "a rank that passes twice the elements: every rank raises, naming both counts"
)
def twice(party: Party) -> None:
    for world in (2, 4):
        _mismatch(
            party, world, lambda group: group.all_reduce(_numbers(group, 512 if group.rank else 1024)), ("1024", "512")
        )


@collective_case("agreement.count/one_more", "5 elements against 6 in every collective: every rank raises")
def one_more(party: Party) -> None:
    calls: list[Callable[[ProcessGroup, DeviceArray], object]] = [
        ProcessGroup.all_reduce, ProcessGroup.all_gather, ProcessGroup.broadcast,
        lambda group, x: group.send(x, 1) if group.rank == 0 else group.recv(x, 0),
    ]  # fmt: skip
    for call in calls:
        _mismatch(party, 2, lambda group, call=call: call(group, _numbers(group, 5 + group.rank)), ("count", "5", "6"))  # type: ignore[misc]
    for call in (ProcessGroup.reduce_scatter, ProcessGroup.all_to_all):
        _mismatch(party, 2, lambda group, call=call: call(group, _numbers(group, 4 + 2 * group.rank)), ("count", "4"))  # type: ignore[misc]


@collective_case("agreement.data/untouched", "after a mismatch the arrays hold what they held")
def untouched(party: Party) -> None:
    def work(group: ProcessGroup) -> None:
        array = _numbers(group, 8 + group.rank)
        try:
            group.all_reduce(array, array)
        except MismatchError:
            expect_equal(array.numpy(), np.full(8 + group.rank, group.rank, np.int32), "an array after a mismatch")
            return
        expect(False, "no MismatchError was raised")

    party.ranks(3, work, dtypes.int32)


def _second_dtype(device: Device) -> DType | None:
    """bfloat16, or else another dtype beside float32 that the device stores."""
    wanted = (dtypes.bfloat16, dtypes.float16, dtypes.float64, dtypes.int32)
    return next((dtype for dtype in wanted if device.target.stores(dtype)), None)


@collective_case("agreement.dtype/float32", "float32 against another dtype: every rank raises, naming both")
def two_dtypes(party: Party) -> None:
    other = _second_dtype(party.device) or dtypes.int32

    def work(group: ProcessGroup) -> None:
        dtype = other if group.rank == 1 else dtypes.float32
        group.all_reduce(from_numpy(np.ones(4, dtype.numpy), group.device))

    _mismatch(party, 2, work, ("float32", other.name), other, dtypes.float32)


@collective_case("agreement.kind/sum_max", "sum against max: every rank raises, naming both")
def sum_max(party: Party) -> None:
    _mismatch(party, 2, lambda g: g.all_reduce(_numbers(g, 4), kind="max" if g.rank else "sum"), ("sum", "max", "kind"))


@collective_case("agreement.root/differs", "two roots of one broadcast: every rank raises, naming both")
def roots(party: Party) -> None:
    _mismatch(party, 3, lambda g: g.broadcast(_numbers(g, 4), 1 if g.rank == 2 else 0), ("root", "rank 0", "rank 1"))


@collective_case("agreement.order/other_operation", "calls in another order: every rank raises, naming both")
def order(party: Party) -> None:
    def work(group: ProcessGroup) -> None:
        x = _numbers(group, 4)
        first, second = (group.all_reduce, group.all_gather) if group.rank else (group.all_gather, group.all_reduce)
        try:
            first(x)
        finally:
            try:
                second(x)
            except MismatchError:
                pass  # the second pair differs too; the first is the one that is judged

    _mismatch(party, 2, work, ("all_reduce", "all_gather"))


@collective_case(
    "agreement.order/pairs", "a send that meets a collective, or another send: every rank is told, none hangs"
)
def pairs(party: Party) -> None:
    _mismatch(
        party,
        2,
        lambda g: g.all_reduce(_numbers(g, 4)) if g.rank else g.send(_numbers(g, 4), 1),
        ("all_reduce", "send"),
    )
    _mismatch(party, 2, lambda g: g.send(_numbers(g, 4), 1 - g.rank), ("send",))


@collective_case(
    "agreement.order/circle", "ranks that wait for each other in a circle are told at once; the devices stay usable"
)
def circle(party: Party) -> None:
    def work(group: ProcessGroup) -> None:
        start = time.perf_counter()
        try:
            group.send(_numbers(group, 4), (group.rank + 1) % 3)
        except CommunicationError as error:
            expect("wait" in str(error), f"the error does not say that the ranks wait for each other: {error}")
            taken = time.perf_counter() - start
            expect(taken < _AT_ONCE_S, f"a circle of sends was told after {taken:.1f} s")
            return
        expect(False, "three ranks that all send have not been told")

    party.ranks(3, work, dtypes.int32)
    party.works()


# --- one rank cannot take part ----------------------------------------------------------------------------------------


def _refused(party: Party, attempt: Callable[[ProcessGroup], object], kind: type[OarlockError], *words: str) -> None:
    """Rank 1 must raise ``kind`` with ``words``, the others CommunicationError that names rank 1; then all go on."""

    def work(group: ProcessGroup) -> None:
        try:
            attempt(group)
        except kind as error:
            expect(group.rank == 1, f"rank {group.rank} raised {type(error).__name__}: {error}")
            missing = [word for word in words if word not in str(error)]
            expect(not missing, f"the error does not say {missing}: {error}")
        except CommunicationError as error:
            expect(group.rank != 1, f"rank 1 raised {type(error).__name__}: {error}")
            expect("rank 1" in str(error), f"the error does not name rank 1: {error}")
        else:
            expect(False, f"rank {group.rank} was not told that rank 1 cannot take part")
        after = group.all_reduce(_numbers(group, 3)).numpy()
        expect_equal(after, np.full(3, 3, np.int32), "all_reduce after a call that was refused")

    party.ranks(3, work, dtypes.int32)


@collective_case(
    "agreement.refused/reported", "a rank that cannot take part raises its own error, and the others are told"
)
def refused(party: Party) -> None:
    def short(group: ProcessGroup) -> object:
        return group.all_reduce(_numbers(group, 4), _numbers(group, 3 if group.rank == 1 else 4))

    def uneven(group: ProcessGroup) -> object:
        return group.reduce_scatter(_numbers(group, 7 if group.rank == 1 else 6))

    def outside(group: ProcessGroup) -> object:
        array = _numbers(group, 4)
        late = DeviceArray(group.device, array.buffer, 8, array.dtype, array.shape) if group.rank == 1 else array
        return group.broadcast(late)

    def unknown(group: ProcessGroup) -> object:
        kind: Any = "median" if group.rank == 1 else "sum"
        return group.all_reduce(_numbers(group, 4), kind=kind)

    _refused(party, short, ShapeError, "(4,)", "(3,)")
    _refused(party, uneven, ShapeError, "(7,)", "3")
    _refused(party, outside, BoundsError, "8")
    _refused(party, unknown, UnsupportedError, "median", "sum")


def _no_bool(device: Device) -> str:
    return "" if device.target.stores(dtypes.bool_) else "the device does not store bool"


@collective_case(
    "agreement.refused/bool",
    "sum and product of bool, and averages of integers, are refused by name",
    unsupported=_no_bool,
)
def refused_kinds(party: Party) -> None:
    def work(group: ProcessGroup) -> None:
        truth = from_numpy(np.ones(4, np.bool_), group.device)
        cases: list[tuple[DeviceArray, Any]] = [(truth, "sum"), (truth, "prod"), (_numbers(group, 4), "avg")]
        for array, kind in cases:
            for call in (group.all_reduce, group.reduce_scatter):
                try:
                    call(array, kind=kind)
                except DTypeError as error:
                    expect(array.dtype.name in str(error), f"the error does not name {array.dtype}: {error}")
                else:
                    expect(False, f"{kind} of {array.dtype} was not refused")
        group.barrier()

    party.ranks(2, work, dtypes.int32, dtypes.bool_)


def _all_stored(device: Device) -> str:
    return "every dtype is stored" if all(device.target.stores(dtype) for dtype in dtypes.ALL) else ""


@collective_case(
    "agreement.refused/not_stored", "an array of a dtype that the device does not store is refused, naming it",
    unsupported=_all_stored,
)  # fmt: skip
def not_stored(party: Party) -> None:
    for dtype in dtypes.ALL:
        if not party.device.target.stores(dtype):
            try:
                empty(party.device, dtype, (4,))
            except UnsupportedError as error:
                expect(dtype.name in str(error), f"the error does not name {dtype}: {error}")
            else:
                expect(False, f"an array of {dtype} was made on a device that does not store it")
