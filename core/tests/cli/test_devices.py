"""``oarlock devices``."""

from __future__ import annotations

from oarlock.cli import devices


def test_memory_below_a_gibibyte_is_told_in_mebibytes() -> None:
    assert [devices._memory(n) for n in (512 << 20, 1 << 30, 24 << 30)] == ["512 MiB", "1 GiB", "24 GiB"]
