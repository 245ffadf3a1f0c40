"""Launches: bindings, limits, empty grids and operands, programs and plans."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from oarlock.errors import BoundsError, CompileError, DeviceError, LaunchError, UnsupportedError
from oarlock.hal import CopyStep, LaunchStep
from oarlock.runtime import open_device, split_offset
from oarlock.target import Limits

TIGHT = Limits(
    binding_alignment=256, copy_alignment=4, exclusive_binding=True, max_buffers=3, max_scalar_bytes=8,
    max_grid=(10, 10, 10), max_binding=4096, max_block=(8, 8, 1), max_threads=16,
)  # fmt: skip


def test_launch_runs_the_kernel(make, fake):
    device = make()
    program = fake.load(device, fake.signature("add", 2))
    source, target = device.allocate(5), device.allocate(5)
    device.copy_in(source, 0, bytes(5))
    device.launch(program, "add", (1, 1, 1), [(source, 0), (target, 0)])
    out = bytearray(5)
    device.copy_out(out, target, 0)
    device.synchronize()
    assert out == b"\x01" * 5
    assert device.stats().launches == 1


def test_bindings_have_aligned_base_and_reach_the_end(make, fake):
    device = make(limits=TIGHT)
    program = fake.load(device, fake.signature("nothing", 2))
    first, second = device.allocate(1000), device.allocate(1001)
    device.launch(program, "nothing", (1, 1, 1), [(first, 300), (second, 512)])
    assert [(base, extent) for _, base, extent in fake.LIVE[-1].bindings] == [(256, 744), (512, 492)]


def test_base_is_zero_without_binding_alignment(make, fake):
    device = make()
    program = fake.load(device, fake.signature("nothing", 1))
    device.launch(program, "nothing", (1, 1, 1), [(device.allocate(1000), 300)])
    assert fake.LIVE[-1].bindings[0][1:] == (0, 1000)


@pytest.mark.parametrize(("alignment", "offset", "expected"), [(None, 320, (0, 80)), (256, 320, (256, 16))])
def test_split_offset(alignment, offset, expected):
    assert split_offset(offset, 4, Limits(binding_alignment=alignment)) == expected


def test_split_offset_of_half_an_element_raises():
    with pytest.raises(BoundsError, match="no whole number"):
        split_offset(6, 4, Limits())


def test_empty_grid_never_reaches_the_adapter(make, fake):
    device = make()
    program = fake.load(device, fake.signature("nothing"))
    for grid in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        device.launch(program, "nothing", grid, [])
    assert fake.LIVE[-1].count("launch") == 0


def test_empty_operands_bind_the_null_buffer(make, fake):
    device = make(limits=TIGHT)
    program = fake.load(device, fake.signature("nothing", 3))
    empty, end = device.allocate(0), device.allocate(512)
    device.launch(program, "nothing", (1, 1, 1), [(empty, 0), (empty, 0), (end, 512)])
    bindings = fake.LIVE[-1].bindings
    assert [binding[1:] for binding in bindings] == [(0, 256)] * 3
    assert all(not memory.bytes.any() for memory, _, _ in bindings)
    assert device.stats().buffers == 1, "the null buffers do not count"


@pytest.mark.parametrize(
    ("grid", "buffers", "scalars", "text"),
    [
        ((11, 1, 1), 1, b"", "grid"),
        ((1, -1, 1), 1, b"", "grid"),
        ((1, 1, 1), 2, b"", "2 buffers given, it takes 1"),
        ((1, 1, 1), 1, b"1234", "4 scalar bytes given, it takes 0"),
    ],
)
def test_launch_outside_its_signature_or_limits_raises(make, fake, grid, buffers, scalars, text):
    device = make(limits=TIGHT)
    program = fake.load(device, fake.signature("nothing", 1))
    operands = [(device.allocate(4), 0) for _ in range(buffers)]
    with pytest.raises(BoundsError, match=f"fake:0: kernel nothing: .*{text}"):
        device.launch(program, "nothing", grid, operands, scalars)


@pytest.mark.parametrize("block", [(9, 1, 1), (8, 4, 1), (1, 1, 2)])
def test_block_beyond_the_limits_raises(make, fake, block):
    device = make(limits=TIGHT)
    with pytest.raises(BoundsError, match="fake:0: kernel nothing: block"):
        fake.load(device, fake.signature("nothing", block=block))


def test_too_many_buffers_and_scalars_raise(make, fake):
    device = make(limits=TIGHT)
    with pytest.raises(BoundsError, match="4 buffers, the device allows 3"):
        fake.load(device, fake.signature("nothing", 4))
    with pytest.raises(BoundsError, match="12 scalar bytes, the device allows 8"):
        fake.load(device, fake.signature("add", 0, 3))


def test_binding_beyond_the_limit_raises(make, fake):
    device = make(limits=TIGHT)
    program = fake.load(device, fake.signature("nothing", 1))
    with pytest.raises(BoundsError, match="spans 8192 bytes, the device allows 4096"):
        device.launch(program, "nothing", (1, 1, 1), [(device.allocate(8192), 0)])


def test_one_allocation_bound_twice_is_refused_where_exclusive(make, fake):
    device = make(limits=TIGHT)
    program = fake.load(device, fake.signature("nothing", 2))
    buffer = device.allocate(1024)
    with pytest.raises(UnsupportedError, match="bindings 0 and 1 are one allocation"):
        device.launch(program, "nothing", (1, 1, 1), [(buffer, 0), (buffer, 512)])
    assert device.stats().launches == 0
    device.synchronize()
    buffer.free()
    assert device.trim() > 0, "a refused launch leaves no use behind"


def test_offset_outside_the_buffer_raises(make, fake):
    device = make()
    program = fake.load(device, fake.signature("nothing", 1))
    for offset in (-4, 12):
        with pytest.raises(BoundsError, match="binding 0"):
            device.launch(program, "nothing", (1, 1, 1), [(device.allocate(8), offset)])


def test_unknown_kernel_and_foreign_program_raise(make, fake):
    device = make(devices=2)
    program = fake.load(device, fake.signature("nothing"))
    with pytest.raises(DeviceError, match="no kernel nothin; the program has nothing"):
        device.launch(program, "nothin", (1, 1, 1), [])
    with pytest.raises(DeviceError, match="a program of fake:0 is launched on fake:1"):
        open_device("fake:1").launch(program, "nothing", (1, 1, 1), [])


def test_dropped_program_is_freed_after_its_work(make, fake):
    device = make(threads=True)
    driver = fake.LIVE[-1]
    program = fake.load(device, fake.signature("nothing"))
    release = driver.hold()
    device.launch(program, "nothing", (1, 1, 1), [])
    del program
    gc.collect()
    assert device.stats().programs == 1
    release.set()
    device.synchronize()
    assert device.stats().programs == 0
    assert driver.count("free") == 1


def test_compile_error_keeps_log_and_source_and_names_the_device(make, fake):
    device = make()
    with pytest.raises(CompileError, match="^fake:0: refused") as caught:
        device.compile("an error", [fake.signature("nothing")])
    assert (caught.value.log, caught.value.source) == ("line 1: error", "an error")


def test_exception_of_a_driver_becomes_a_device_error_with_its_cause(make, fake, monkeypatch):
    device = make()
    monkeypatch.setattr(fake.LIVE[-1], "allocate", lambda nbytes: 1 // 0)
    with pytest.raises(DeviceError, match="fake:0: allocate failed: ZeroDivisionError") as caught:
        device.allocate(4)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_launch_error_at_once_is_raised_at_once(make, fake, monkeypatch):
    device = make()
    program = fake.load(device, fake.signature("nothing"))

    def refuse(*arguments):
        raise LaunchError("kernel nothing: too many registers")

    monkeypatch.setattr(fake.LIVE[-1], "launch", refuse)
    with pytest.raises(LaunchError, match="^fake:0: kernel nothing: too many registers"):
        device.launch(program, "nothing", (1, 1, 1), [])


def test_prepared_plan_replays_its_steps(make, fake):
    device = make(capabilities=frozenset({"plans"}))
    program = fake.load(device, fake.signature("add", 2))
    steps = [LaunchStep(program, "add", (1, 1, 1), (1, 1, 1), ((0, 0, 8), (1, 0, 8)), b"")]
    plan = device.prepare(steps)
    first, second = device.allocate(8), device.allocate(8)
    device.copy_in(first, 0, np.arange(8, dtype=np.uint8))
    plan.replay([first, second])
    out = np.zeros(8, np.uint8)
    device.copy_out(out, second, 0)
    device.synchronize()
    assert out.tolist() == list(range(1, 9))
    with pytest.raises(BoundsError, match="2 slots is replayed on 1"):
        plan.replay([first])
    assert device.stats().plans == 1
    del plan
    assert device.stats().plans == 0


def test_plan_without_the_capability_is_unsupported(make):
    with pytest.raises(UnsupportedError, match="fake:0 takes no whole plans"):
        make().prepare([CopyStep(0, 0, 1, 0, 4)])
