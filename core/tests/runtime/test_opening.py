"""Opening by name, one device per name, closing and reopening."""

from __future__ import annotations

import threading

import pytest

from oarlock.errors import ClosedError, DeviceError, DeviceNotFoundError
from oarlock.runtime import device_names, open_device, open_devices


def test_index_defaults_to_zero_and_there_is_one_device_per_name(make):
    device = make()
    assert device.name == "fake:0"
    assert open_device("fake") is device
    assert device in open_devices()


def test_missing_index_lists_what_there_is(make):
    with pytest.raises(DeviceNotFoundError) as caught:
        make("fake:1")
    assert str(caught.value) == 'no device "fake:1": fake has 1 device (fake:0). See: oarlock doctor fake'


def test_adapter_without_devices_says_so(make):
    with pytest.raises(DeviceNotFoundError, match=r'no device "fake:0": fake has 0 devices\. See'):
        make(devices=0)


def test_mistyped_adapter_suggests_the_near_one_and_lists_what_exists(fake):
    with pytest.raises(DeviceNotFoundError, match='no adapter "fakee" is installed; did you mean "fake"') as caught:
        open_device("fakee:1")
    assert "There are: " in str(caught.value)
    assert "fake:0" in str(caught.value)


@pytest.mark.parametrize("name", ["", ":1", "fake:", "fake:x", "fake:-1", "fake:1:2", "fake:²"])
def test_malformed_names_are_refused(fake, name):
    with pytest.raises(DeviceNotFoundError, match="name:index"):
        open_device(name)


def test_missing_stack_shows_the_real_cause(make):
    with pytest.raises(DeviceNotFoundError, match=r'"fake:0": fake is not available: OSError: libx\.so: cannot open'):
        make(devices_error=OSError("libx.so: cannot open shared object file"))


def test_good_retry_after_a_failed_opening(make, fake, monkeypatch):
    def broken(self, index):
        raise RuntimeError("half-way")

    with monkeypatch.context() as patch:
        patch.setattr(fake.FakeAdapter, "open", broken)
        with pytest.raises(DeviceError, match="fake:0: open failed: RuntimeError: half-way"):
            make()
    assert make().usable


def test_undeclared_method_and_unknown_capability_are_refused_at_opening(make, fake):
    with pytest.raises(DeviceError, match="capability pinned, and its driver has no allocate_pinned"):
        make(capabilities=frozenset({"pinned"}))
    with pytest.raises(DeviceError, match="unknown capability stream; did you mean streams"):
        make(capabilities=frozenset({"stream"}))
    assert all(driver.closed for driver in fake.LIVE)


def test_closing_twice_is_harmless_and_uses_raise(make, fake):
    device = make(threads=True)
    buffer, stream = device.allocate(4), device.create_stream()
    event = stream.record()
    program = fake.load(device, fake.signature("nothing"))
    device.close()
    device.close()
    for use in (
        lambda: device.allocate(4),
        lambda: device.allocate(0),
        lambda: device.copy_in(buffer, 0, b"abcd"),
        lambda: device.copy_in(buffer, 0, b""),
        lambda: device.launch(program, "nothing", (1, 1, 1), []),
        lambda: device.synchronize(),
        lambda: event.query(),
        lambda: stream.synchronize(),
        lambda: device.default_stream.synchronize(),
    ):
        with pytest.raises(ClosedError, match="fake:0 is closed; open it again with open_device"):
            use()
    buffer = stream = event = program = None
    assert fake.LIVE[-1].calls[-1] == "close"


def test_closed_device_can_be_opened_again(make, fake):
    first = make()
    with first:
        kept = first.allocate(4)
    second = open_device("fake:0")
    assert second is not first
    kept.free()
    second.copy_in(second.allocate(4), 0, b"abcd")
    assert fake.LIVE[1].count("free") == 0


def test_close_finishes_with_work_in_flight(make, fake):
    device = make(threads=True)
    release = fake.LIVE[-1].hold()
    device.copy_in(device.allocate(4), 0, b"abcd")
    device.close()
    release.set()


def test_threads_opening_one_name_get_one_device(fake):
    fake.configure()
    found = []
    threads = [threading.Thread(target=lambda: found.append(open_device("fake:0"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
    assert len(fake.LIVE) == 1


def test_device_names_come_from_child_processes(fake):
    assert "fake:0" in device_names()
    assert fake.LIVE == []
