"""Cases of a vendor's own engine (capability ``communication``), called through the contract itself."""

from __future__ import annotations

import threading
import time
from typing import get_args

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import OarlockError
from oarlock.hal import Collective, Communication, Handle, ReduceKind
from oarlock.runtime import Device, DeviceArray, from_numpy
from oarlock.runtime.communication import ProcessGroup
from oarlock_conformance.bench import expect, expect_equal
from oarlock_conformance.cases.collectives.party import Party
from oarlock_conformance.cases.collectives.register import absent, collective_case

_TWO = ("communication", "two_devices")


def _driver(device: Device) -> Communication:
    driver = device.can.communication
    assert driver is not None  # the case needs the capability
    return driver


def _has(device: Device, operation: Collective, dtype: DType, kind: ReduceKind | None) -> bool:
    driver = _driver(device)
    return callable(getattr(driver, operation, None)) and driver.supports(operation, dtype, kind)


def _reduced(device: Device) -> DType | None:
    """A dtype whose sum the engine does."""
    found = (dtype for dtype in dtypes.ALL if device.target.stores(dtype) and _has(device, "all_reduce", dtype, "sum"))
    return next(found, None)


def _pair(party: Party) -> tuple[Device, Device]:
    one, two = party.devices(2)
    return one, two


def _needs_sum(device: Device) -> str:
    missing = absent(*_TWO)(device)
    if missing:
        return missing
    return "" if _reduced(device) else "the engine sums no dtype itself"


def _joined(one: Device, two: Device) -> tuple[Handle, Handle]:
    """Both devices' ends of a new group."""
    unique = one.gate.call("unique_id", _driver(one).unique_id)
    first, second = (
        device.gate.call("init_group", _driver(device).init_group, unique, rank, 2)
        for rank, device in ((0, one), (1, two))
    )
    return first, second


def _give(device: Device, group: Handle, array: DeviceArray) -> None:
    """This rank's part of an all_reduce in place, on the default stream."""
    with device.using("all_reduce"):
        place = (array.buffer.allocation.handle, array.offset_bytes)
        _driver(device).all_reduce(None, group, place, place, array.size, array.dtype, "sum")


def _leave(device: Device, group: Handle) -> None:
    device.gate.call("destroy_group", _driver(device).destroy_group, group)


@collective_case(
    "engine.claims/consistent",
    "an engine has a name and a reach, and says the same of a collective twice",
    "communication",
)
def claims(party: Party) -> None:
    driver = _driver(party.device)
    expect(bool(driver.engine), "the engine has no name")
    expect(driver.reach in ("process", "system"), f"the reach is {driver.reach!r}, not process or system")
    for operation in get_args(Collective):
        kinds: tuple[ReduceKind | None, ...] = get_args(ReduceKind) if "reduce" in operation else (None,)
        for kind in kinds:
            for dtype in dtypes.ALL:
                first, second = (_has(party.device, operation, dtype, kind) for _ in range(2))
                expect(first == second, f"supports({operation}, {dtype}, {kind}) says {first}, then {second}")
    names = {party.device.gate.call("unique_id", driver.unique_id) for _ in range(20)}
    expect(len(names) == 20, f"20 groups have {len(names)} different names")


@collective_case("engine.used/two_devices", "a group on two devices of the adapter uses their engine", *_TWO)
def used(party: Party) -> None:
    one, two = _pair(party)
    same = (_driver(one).engine, _driver(one).reach) == (_driver(two).engine, _driver(two).reach)

    def native(group: ProcessGroup) -> bool:
        group.barrier()
        return group.native

    found = party.ranks(2, native)
    expect(
        found == [same] * 2, f"the devices {'have' if same else 'do not have'} one engine, and the groups say {found}"
    )
    again = party.ranks(2, native, devices=[one, one])
    expect(again == [False] * 2, "a group with one device twice uses an engine")


@collective_case(
    "engine.all_reduce/asynchronous", "a collective returns without waiting for the other rank", unsupported=_needs_sum
)
def asynchronous(party: Party) -> None:
    one, two = _pair(party)
    dtype = _reduced(one)
    assert dtype is not None  # _needs_sum has looked
    first, second = _joined(one, two)
    a, b = (from_numpy(np.full(100, value, dtype.numpy), device) for value, device in ((1, one), (2, two)))
    start = time.perf_counter()
    _give(one, first, a)
    taken = time.perf_counter() - start
    expect(taken < 5.0, f"all_reduce took {taken:.1f} s while the other rank had not come")
    _give(two, second, b)
    for device, array in ((one, a), (two, b)):
        expect_equal(array.numpy(), np.full(100, 3, dtype.numpy), f"all_reduce on {device.name}")
    _leave(one, first)
    _leave(two, second)


@collective_case(
    "engine.abort/pending", "abort_group ends what is pending as a failure of its stream; the device works",
    unsupported=_needs_sum,
)  # fmt: skip
def abort(party: Party) -> None:
    one, two = _pair(party)
    dtype = _reduced(one)
    assert dtype is not None  # _needs_sum has looked
    first, second = _joined(one, two)
    array = from_numpy(np.ones(100, dtype.numpy), one)
    one.synchronize()
    _give(one, first, array)
    ended: list[OarlockError | None] = []

    def wait() -> None:
        try:
            one.synchronize()
        except OarlockError as error:
            ended.append(error)
        else:
            ended.append(None)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    time.sleep(0.05)
    expect(waiter.is_alive(), "an all_reduce has ended although the other rank has not come")
    one.gate.call("abort_group", _driver(one).abort_group, first)
    waiter.join(10.0)
    expect(not waiter.is_alive(), "synchronize still waits 10 s after abort_group")
    expect(ended[0] is not None, "an all_reduce that was aborted is no failure of its stream")
    _leave(one, first)
    _leave(two, second)
    party.works(one, two)
