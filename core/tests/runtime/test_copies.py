"""Copies: every offset and size on devices that want alignment, overlap, strides, between devices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oarlock.errors import BoundsError
from oarlock.runtime import copy_across, open_device
from oarlock.runtime.copies import host_bytes
from oarlock.target import Limits

TIGHT = Limits(copy_alignment=4)


def read(device, buffer):
    out = bytearray(buffer.nbytes)
    device.copy_out(out, buffer, 0)
    device.synchronize()
    return bytes(out)


span = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (min(pair), abs(pair[0] - pair[1])))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(alignment=st.sampled_from([1, 4, 8]), threads=st.booleans(), steps=st.lists(st.tuples(st.integers(0, 3), span)))
def test_copies_match_a_bytearray(make, alignment, threads, steps):
    device = make(limits=Limits(copy_alignment=alignment), threads=threads)
    try:
        model = bytearray(range(30))
        buffer = device.allocate(30)
        device.copy_in(buffer, 0, bytes(model))
        checks = []
        for kind, (offset, nbytes) in steps:
            if kind == 0:
                data = bytes((offset * 7 + i) % 251 for i in range(nbytes))
                model[offset : offset + nbytes] = data
                device.copy_in(buffer, offset, data)
            elif kind == 1:
                out = bytearray(nbytes)
                device.copy_out(out, buffer, offset)
                checks.append((out, bytes(model[offset : offset + nbytes])))
            elif kind == 2:
                source = 30 - nbytes - offset // 2 if 30 - nbytes - offset // 2 >= 0 else 0
                model[offset : offset + nbytes] = bytes(model[source : source + nbytes])
                device.copy(buffer, offset, buffer, source, nbytes)
            else:
                model[offset : offset + nbytes] = bytes([offset]) * nbytes
                device.fill(buffer, offset, nbytes, offset)
        assert read(device, buffer) == bytes(model)
        assert all(bytes(out) == expected for out, expected in checks)
    finally:
        device.close()


def test_strided_sources_are_copied_row_major(make):
    device = make()
    source = np.arange(9, dtype=np.int32).reshape(3, 3)[:, :2]
    buffer = device.allocate(24)
    device.copy_in(buffer, 0, source)
    assert np.frombuffer(read(device, buffer), np.int32).tolist() == [0, 1, 3, 4, 6, 7]
    device.copy_in(buffer, 0, memoryview(np.arange(12, dtype=np.int32))[::2])
    assert np.frombuffer(read(device, buffer), np.int32).tolist() == [0, 2, 4, 6, 8, 10]


def test_host_bytes_of_every_kind():
    assert bytes(host_bytes(np.array(5, np.uint8))) == b"\x05"
    assert bytes(host_bytes(np.array([True, False]))) == b"\x01\x00"
    assert bytes(host_bytes(memoryview(b"abc"))) == b"abc"
    assert len(host_bytes(np.zeros((0, 4)))) == 0


def test_copy_out_wants_writable_contiguous_memory(make):
    device = make()
    buffer = device.allocate(8)
    with pytest.raises(BoundsError, match="writable"):
        device.copy_out(b"12345678", buffer, 0)
    with pytest.raises(BoundsError, match="writable"):
        device.copy_out(np.zeros(8, np.int16)[::2], buffer, 0)


def test_copy_out_is_readable_after_synchronising(make, fake):
    device = make(threads=True)
    buffer = device.allocate(8)
    device.copy_in(buffer, 0, b"abcdefgh")
    device.synchronize()
    release = fake.LIVE[-1].hold()
    out = bytearray(8)
    device.copy_out(out, buffer, 0)
    assert out == bytes(8)
    release.set()
    device.synchronize()
    assert out == b"abcdefgh"


def test_source_may_be_reused_on_return(make, fake):
    device = make(threads=True)
    release = fake.LIVE[-1].hold()
    source = bytearray(b"before")
    buffer = device.allocate(6)
    device.copy_in(buffer, 0, source)
    source[:] = b"after!"
    release.set()
    assert read(device, buffer) == b"before"


def test_unaligned_copy_out_after_event_synchronize(make):
    device = make(threads=True, limits=TIGHT)
    buffer = device.allocate(7)
    device.copy_in(buffer, 0, b"abcdefg")
    out = bytearray(3)
    device.copy_out(out, buffer, 2)
    event = device.current_stream.record()
    event.synchronize()
    assert out == b"cde"


def test_host_memory_is_kept_until_the_copy_ended(make, fake):
    device = make(threads=True)
    release = fake.LIVE[-1].hold()
    buffer = device.allocate(8)
    for _ in range(20):
        device.copy_out(bytearray(8), buffer, 0)
    assert len(device.default_lane.deferred) == 20
    release.set()
    device.synchronize()
    assert device.default_lane.deferred == []


@pytest.mark.parametrize("peer", [True, False])
@pytest.mark.parametrize("offset", [0, 3])
def test_copy_across_devices(make, fake, peer, offset):
    capabilities = frozenset({"peer_copy"}) if peer else frozenset()
    first = make(devices=2, threads=True, limits=TIGHT, capabilities=capabilities)
    second = open_device("fake:1")
    src, dst = first.allocate(16), second.allocate(16)
    first.copy_in(src, 0, bytes(range(16)))
    second.fill(dst, 0, 16, 0)
    copy_across(dst, offset, src, 4, 8)
    assert read(second, dst) == bytes(offset) + bytes(range(4, 12)) + bytes(8 - offset)
    assert (fake.LIVE[-1].count("copy_peer") == 1) == (peer and offset == 0)
