"""Buffers and the memory pool: bounds, lifetimes, accounts, reuse, out of memory, poison."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.config import config
from oarlock.errors import BoundsError, ClosedError, OutOfMemoryError
from oarlock.runtime.memory import size_text
from oarlock.runtime.pool import size_class
from oarlock.target import Limits


def read(device, buffer, offset=0, nbytes=None, stream=None):
    out = bytearray(buffer.nbytes - offset if nbytes is None else nbytes)
    device.copy_out(out, buffer, offset, stream)
    device.synchronize(stream)
    return bytes(out)


def test_copy_in_and_out_return_the_bytes(make):
    device = make()
    buffer = device.allocate(10)
    device.copy_in(buffer, 0, bytes(range(10)))
    assert read(device, buffer) == bytes(range(10))
    assert read(device, buffer, 3, 4) == bytes([3, 4, 5, 6])


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 11), (10, 1), (-1, 1), (11, 0)])
def test_copy_outside_buffer_raises_bounds_error(make, offset, nbytes):
    device = make()
    buffer = device.allocate(10)
    with pytest.raises(BoundsError, match="fake:0.*10 bytes"):
        device.copy_in(buffer, offset, bytes(nbytes))
    with pytest.raises(IndexError):
        device.copy_out(bytearray(nbytes), buffer, offset)
    with pytest.raises(BoundsError):
        device.fill(buffer, offset, nbytes, 0)


def test_negative_allocation_raises_bounds_error(make):
    with pytest.raises(BoundsError):
        make().allocate(-1)


def test_freed_buffer_raises_closed_error_and_double_free_is_harmless(make):
    device = make()
    buffer = device.allocate(10)
    buffer.free()
    buffer.free()
    with pytest.raises(ClosedError, match="after free"):
        device.copy_in(buffer, 0, b"x")
    assert device.stats().buffers == 0


def test_dropped_buffers_are_counted_out(make, fake):
    device = make()
    buffers = [device.allocate(1000) for _ in range(5)]
    assert device.stats().buffers == 5
    assert device.stats().bytes_in_use == 5 * 1024
    del buffers
    gc.collect()
    stats = device.stats()
    assert (stats.buffers, stats.bytes_in_use, stats.bytes_idle) == (0, 0, 5 * 1024)
    assert device.trim() == 5 * 1024
    assert fake.LIVE[-1].used == 0


def test_same_stream_reuses_memory_at_once(make, fake):
    device = make()
    first = device.allocate(5000)
    handle = first.allocation.handle
    del first
    assert device.allocate(4900).allocation.handle is handle
    assert fake.LIVE[-1].count("allocate") == 1


def test_zero_bytes_never_reach_the_adapter(make, fake):
    device = make()
    buffer = device.allocate(0)
    device.copy_in(buffer, 0, b"")
    device.copy_out(bytearray(), buffer, 0)
    device.copy(buffer, 0, buffer, 0, 0)
    device.fill(buffer, 0, 0, 1)
    device.copy_in(buffer, 0, np.zeros((3, 0), np.float32))
    assert not {"allocate", "copy_in", "copy_out", "copy", "fill"} & set(fake.LIVE[-1].calls)


def test_pool_evicts_idle_memory_for_another_size(make):
    device = make(memory=1 << 20)
    kept = [device.allocate(1 << 16) for _ in range(7)]
    filler = [device.allocate(1 << 16) for _ in range(7)]
    del filler
    assert device.stats().bytes_idle == 7 << 16
    assert device.allocate(1 << 19).nbytes == 1 << 19, "only by giving idle memory back"
    del kept


def test_out_of_memory_says_asked_used_limit_and_largest(make):
    device = make(memory=1 << 20)
    kept = device.allocate(600 << 10, label="weights")
    small = device.allocate(10 << 10, label="state")
    device.allocate(300 << 10).free()
    with pytest.raises(OutOfMemoryError) as caught:
        device.allocate(500 << 10)
    text = str(caught.value)
    assert text.startswith("fake:0: out of memory: asked 500.0 KiB; in use 6")
    assert "(pool held 320.0 KiB idle, released and tried again); limit 1.0 MiB" in text
    assert "Largest live: weights 600.0 KiB, state 10.0 KiB" in text
    assert isinstance(caught.value, MemoryError)
    assert device.allocate(100 << 10).nbytes == 100 << 10, "the device stays usable"
    del kept, small


def test_idle_memory_is_kept_within_half_of_the_limit(make, fake):
    device = make(memory=1 << 20)
    buffers = [device.allocate(1 << 16) for _ in range(14)]
    assert device.stats().bytes_in_use == 14 << 16
    buffers.clear()
    assert 0 < device.stats().bytes_idle <= 1 << 19
    assert fake.LIVE[-1].used == device.stats().bytes_idle


def test_exact_size_is_tried_when_the_size_class_does_not_fit(make):
    device = make(memory=1000)
    assert device.allocate(900).allocation.capacity == 900


def test_memory_budget_limits_allocations(make):
    device = make(memory=1 << 20)
    device.set_memory_budget(4096)
    kept = device.allocate(4096)
    with pytest.raises(OutOfMemoryError, match=r"limit 4\.0 KiB"):
        device.allocate(1)
    del kept
    assert device.allocate(1024).nbytes == 1024


def test_more_than_max_allocation_says_so(make):
    device = make(memory=1 << 20, limits=Limits(max_allocation=1000))
    assert device.allocate(1000).allocation.capacity == 1000
    with pytest.raises(OutOfMemoryError, match="one allocation holds at most 1000 B"):
        device.allocate(1001)


def test_pool_off_goes_straight_to_the_driver(make, fake, monkeypatch):
    monkeypatch.setattr(config, "pool", False)
    device = make()
    for _ in range(3):
        buffer = device.allocate(100)
        device.copy_in(buffer, 0, bytes(100))
        device.synchronize()
        del buffer
        assert device.stats().bytes_idle == 0
    driver = fake.LIVE[-1]
    assert (driver.count("allocate"), driver.count("free"), driver.used) == (3, 3, 0)


def test_pool_off_keeps_memory_until_its_work_has_ended(make, fake, monkeypatch):
    monkeypatch.setattr(config, "pool", False)
    device = make(threads=True)
    driver = fake.LIVE[-1]
    release = driver.hold()
    buffer = device.allocate(100)
    device.copy_in(buffer, 0, bytes(100))
    buffer.free()
    assert driver.count("free") == 0
    release.set()
    device.synchronize()
    assert device.stats().bytes_idle == 0
    assert driver.count("free") == 1


def test_unsynchronised_allocations_with_pool_off_stay_bounded(make, fake, monkeypatch):
    monkeypatch.setattr(config, "pool", False)
    device = make(memory=1 << 20)
    for _ in range(100):
        device.copy_in(device.allocate(100 << 10), 0, bytes(100 << 10))
    assert fake.LIVE[-1].used <= 1 << 20


@pytest.mark.parametrize("capabilities", [frozenset(), frozenset({"fill"})])
@pytest.mark.parametrize("pool", [True, False])
def test_poison_overwrites_freed_memory_with_nan(make, monkeypatch, capabilities, pool):
    monkeypatch.setattr(config, "poison", True)
    monkeypatch.setattr(config, "pool", pool)
    device = make(capabilities=capabilities)
    buffer = device.allocate(64)
    device.copy_in(buffer, 0, bytes(64))
    memory = buffer.allocation.handle
    buffer.free()
    device.synchronize()
    assert np.isnan(memory.bytes[:64].view(np.float32)).all()


def test_no_poison_by_default(make):
    device = make()
    buffer = device.allocate(64)
    device.copy_in(buffer, 0, bytes(64))
    memory = buffer.allocation.handle
    buffer.free()
    assert not memory.bytes[:64].any()


def test_buffer_of_another_device_is_refused(make, fake):
    first, second = make(devices=2), None
    from oarlock.runtime import open_device

    second = open_device("fake:1")
    with pytest.raises(Exception, match="a buffer of fake:0 is used on fake:1"):
        second.copy_in(first.allocate(4), 0, b"abcd")


def test_addresses_and_adoption(make):
    device = make(capabilities=frozenset({"address"}))
    owner = bytearray(range(10))
    view = np.frombuffer(owner, np.uint8)
    adopted = device.adopt(view.ctypes.data, 10, owner)
    assert adopted.address == view.ctypes.data
    assert read(device, adopted) == bytes(range(10))
    assert device.stats().buffers == 1
    adopted.free()
    assert device.stats().buffers == 0


def test_address_without_the_capability_is_unsupported(make):
    with pytest.raises(NotImplementedError, match="no address"):
        _ = make().allocate(4).address


def test_memory_info_counts_idle_memory_as_free(make):
    device = make(memory=1 << 20, capabilities=frozenset({"memory_info"}))
    device.allocate(1 << 19).free()
    assert device.memory_info() == (1 << 20, 1 << 20)
    kept = device.allocate(1 << 19)
    assert device.memory_info() == (1 << 19, 1 << 20)
    del kept


@given(st.integers(1, 2**40))
def test_size_class_wastes_little_and_is_stable(nbytes):
    size = size_class(nbytes)
    assert size >= nbytes
    assert size <= max(256, nbytes * 1.25 + 1)
    assert size_class(size) == size


def test_size_text():
    assert [size_text(n) for n in (5, 2048, 3 << 30, 5 << 40)] == ["5 B", "2.0 KiB", "3.0 GiB", "5.0 TiB"]
