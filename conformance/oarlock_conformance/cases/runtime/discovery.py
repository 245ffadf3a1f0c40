"""Cases on finding and describing a device: what it declares about itself is stable, complete and possible."""

from __future__ import annotations

import json

from oarlock import dtypes
from oarlock.errors import DeviceNotFoundError
from oarlock.hal import CONTRACT, DeviceInfo
from oarlock.runtime import open_device
from oarlock.runtime.abilities import abilities_of
from oarlock.target import Target
from oarlock_conformance.bench import Bench, expect, raises
from oarlock_conformance.registry import runtime_case


def _infos(bench: Bench) -> list[DeviceInfo]:
    return bench.device.adapter.devices()


@runtime_case(
    "discovery.info/identity", "DeviceInfo has a name, a vendor, the driver's name and version, and memory in bytes"
)
def identity(bench: Bench) -> None:
    info = bench.device.info
    for field in ("name", "vendor", "driver"):
        value = getattr(info, field)
        expect(isinstance(value, str) and bool(value.strip()), f"DeviceInfo.{field} is {value!r}, not a text")
    expect(
        isinstance(info.memory, int) and info.memory > 0, f"DeviceInfo.memory is {info.memory!r}, not a size in bytes"
    )
    expect(info.failure_scope in ("stream", "device"), f"failure_scope is {info.failure_scope!r}")


@runtime_case("discovery.info/capabilities", "capabilities names the optional interfaces that the device has")
def capabilities(bench: Bench) -> None:
    device = bench.device
    abilities_of(device.driver, device.info.capabilities)


@runtime_case("discovery.devices/stable", "devices() is in a stable order: the position is the index")
def stable(bench: Bench) -> None:
    first, second = _infos(bench), _infos(bench)
    expect(first == second, "two calls of devices() give different lists")
    expect(first[bench.device.index] == bench.device.info, "devices() no longer describes the open device")


@runtime_case("discovery.target/storage", "storage maps a dtype to the physical dtype that holds it without loss")
def storage(bench: Bench) -> None:
    target = bench.device.target
    for name, physical in target.storage:
        logical, held = dtypes.by_name(name), dtypes.by_name(physical)
        expect(held.bits >= logical.bits, f"{name} is stored as {physical}, which is narrower")
        same = held == logical or (held.is_integer and held.bits == logical.bits)
        wider = held.kind == logical.kind or (logical.kind == "bool" and held.is_integer)
        wider = wider or (logical.is_float and held.is_float)
        expect(same or wider, f"{name} is stored as {physical}, which does not hold its values")
        expect(
            held.is_integer or target.computes(held), f"{name} is stored as {physical}, which the target cannot load"
        )
    for name in target.compute:
        dtypes.by_name(name)


@runtime_case("discovery.target/least", "every target computes int32, uint32, float32 and stores bool")
def least(bench: Bench) -> None:
    target = bench.device.target
    for name in ("int32", "uint32", "float32"):
        expect(name in target.compute, f"the target does not compute {name}")
    expect(target.stores(dtypes.bool_), "the target does not store bool")
    expect(target.index_dtype in target.compute, f"index dtype {target.index_dtype} is not among the compute dtypes")


@runtime_case("discovery.target/limits", "limits are numbers that a launch, a binding or an allocation can meet")
def limits(bench: Bench) -> None:
    limits = bench.device.target.limits
    for name in ("max_block", "max_grid"):
        sizes = getattr(limits, name)
        expect(len(sizes) == 3 and all(isinstance(s, int) and s >= 1 for s in sizes), f"{name} is {sizes}")
    for name in ("max_threads", "vector_width", "max_buffers", "max_scalar_bytes", "max_allocation", "max_binding"):
        expect(getattr(limits, name) >= 1, f"{name} is {getattr(limits, name)}")
    expect(limits.max_buffers >= 4, f"max_buffers is {limits.max_buffers}; operators of three operands need 4")
    expect(limits.max_scalar_bytes >= 64, f"max_scalar_bytes is {limits.max_scalar_bytes}; offsets and sizes need 64")
    for name in ("copy_alignment", "binding_alignment"):
        size = getattr(limits, name) or 1
        expect(size >= 1 and size & (size - 1) == 0, f"{name} is {size}, no power of two")
    blocks = limits.max_block[0] * limits.max_block[1] * limits.max_block[2]
    expect(limits.max_threads <= blocks, f"max_threads {limits.max_threads} passes a block of {limits.max_block}")


@runtime_case("discovery.target/fingerprint", "equal targets have equal fingerprints, in every process")
def fingerprint(bench: Bench) -> None:
    target = bench.device.target
    expect(isinstance(target, Target), f"target is a {type(target).__name__}")
    json.dumps(target.to_json())
    code = """
        from oarlock.registry import get_adapter
        name, _, index = DEVICE.partition(":")
        print(get_adapter(name).devices()[int(index or 0)].target.fingerprint())
    """
    bench.clean_child(code, target.fingerprint())


@runtime_case("discovery.adapter/contract", "contract is the version (major, minor) that the adapter was written for")
def contract(bench: Bench) -> None:
    adapter = bench.device.adapter
    declared = adapter.contract
    expect(declared[0] == CONTRACT[0] and declared <= CONTRACT, f"contract {declared}; the core speaks {CONTRACT}")
    expect(isinstance(adapter.version, str) and bool(adapter.version), f"version is {adapter.version!r}")


@runtime_case("discovery.adapter/cache_key", "cache_key names the versions of compiler and driver; the same every time")
def cache_key(bench: Bench) -> None:
    adapter, target = bench.device.adapter, bench.device.target
    first, second = adapter.cache_key(target), adapter.cache_key(target)
    expect(isinstance(first, str) and bool(first), f"cache_key is {first!r}")
    expect(first == second, f"cache_key changes from call to call: {first!r}, {second!r}")


@runtime_case("discovery.open/same", "a device that is open is given again as the same object")
def same(bench: Bench) -> None:
    expect(open_device(bench.name) is bench.device, "open_device gave a second object for an open device")


@runtime_case("discovery.open/absent", "an index that does not exist raises DeviceNotFoundError saying what does")
def absent(bench: Bench) -> None:
    adapter = bench.device.adapter_name
    count = len(_infos(bench))
    with raises(DeviceNotFoundError, f"open_device({adapter}:{count})", f"{adapter}:{count}", str(count)):
        open_device(f"{adapter}:{count}")
    with raises(DeviceNotFoundError, "open_device of a bad index"):
        open_device(f"{adapter}:one")
    bench.works()


@runtime_case("discovery.open/misspelt", "a misspelt name raises DeviceNotFoundError that lists what there is")
def misspelt(bench: Bench) -> None:
    code = """
        from oarlock.errors import DeviceNotFoundError
        from oarlock.registry import report
        from oarlock.runtime import open_device
        adapter = DEVICE.partition(":")[0]
        report.names = lambda: (adapter,)  # as if it were alone: looking at all that is installed takes long
        try:
            open_device("no_such_adapter:0")
        except DeviceNotFoundError as error:
            print("no_such_adapter" in str(error) and f"{adapter}:0" in str(error))
    """
    bench.clean_child(code, "True")
