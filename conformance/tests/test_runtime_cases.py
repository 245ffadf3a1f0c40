"""The runtime level's own tools: the witness sees broken promises, the sweep fires, and advice names methods."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from oarlock.errors import DeviceError, LaunchError
from oarlock.registry.loading import get_adapter, replaced
from oarlock.runtime import Device, open_device
from oarlock_conformance.advice import advice
from oarlock_conformance.case import Options
from oarlock_conformance.cases import runtime
from oarlock_conformance.registry import RUNTIME
from oarlock_conformance.witness import Fault, Witness, witnessed


@pytest.fixture
def device() -> Iterator[Device]:
    opened = open_device("sim:0")
    opened.trim()
    yield opened
    opened.close()


def test_witness_sees_what_the_core_must_not_do(device: Device) -> None:
    with witnessed(device) as witness:
        handle = witness.allocate(256)
        for name, arguments, word in (
            ("copy_in", (None, handle, 250, memoryview(bytes(8))), "leave an allocation"),
            ("copy_in", (None, handle, 0, memoryview(b"")), "0 bytes"),
            ("copy", (None, handle, 0, handle, 4, 16), "overlap"),
            ("fill", (None, handle, 0, 4, 256), "no byte"),
            ("allocate", (6,), "no multiple"),
        ):
            before = len(witness.breaches)
            with pytest.raises(DeviceError) if name not in ("fill", "allocate") else _nothing():
                getattr(witness, name)(*arguments)
            assert any(word in text for text in witness.breaches[before:]), (name, witness.breaches)
        witness.free(handle)
        with pytest.raises(DeviceError):
            witness.free(handle)
        assert "free was called twice for one handle" in witness.breaches


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> bool:
        return exception[0] is not None


def test_witness_sees_memory_that_is_freed_too_early(device: Device) -> None:
    with witnessed(device) as witness:
        handle = witness.allocate(256)
        witness.copy_in(None, handle, 0, memoryview(bytes(256)))
        witness.free(handle)
    assert any("had not been waited for" in text for text in witness.breaches)
    with contextlib.suppress(DeviceError):  # the copy may have met freed memory: that was the mistake
        device.synchronize()


def test_witness_counts_and_fails_the_call_that_it_is_told(device: Device) -> None:
    fault = Fault("launch", 2, lambda: LaunchError("on purpose"))
    witness = Witness(device.driver, device, fault)
    assert witness.memory_info()[1] == device.info.memory
    assert witness.calls["memory_info"] == 1 and not witness.fired
    assert witness.live == [] and witness.breaches == []


def test_every_group_gives_advice_that_names_a_method() -> None:
    general = [case for case in RUNTIME if "Look at the contract" in advice(case)]
    allowed = ("sweep.", "threads.", "modes.", "memory.trim", "memory.address", "memory.adopt", "memory.pinned",
               "memory.peer", "stream.")  # fmt: skip
    assert [case for case in general if not case.startswith(allowed)] == []
    assert "copy_out(stream, dst, src, src_offset)" in advice("memory.copy_out/offset")


def test_replaced_plugin_stands_in_and_goes_again() -> None:
    own = get_adapter("sim")
    with replaced("oarlock.adapters", "sim", "another"):
        assert get_adapter("sim") == "another"
    assert get_adapter("sim") is own


def test_ids_are_in_the_group_that_they_begin_with() -> None:
    planned = runtime.plan(open_device("sim:1"), Options(quick=True))
    assert len(planned) == len({case.id for case in planned}) == len(RUNTIME)
    assert all(case.id.startswith(case.group + ".") for case in planned)
    assert all(case.contract for case in planned)
