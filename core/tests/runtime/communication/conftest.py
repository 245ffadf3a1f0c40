"""Ranks as threads, for tests of groups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from oarlock.runtime import DeviceArray, from_numpy, open_device
from oarlock.runtime.communication import ProcessGroup, local_groups

DEADLINE_S = 30.0


def together(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Call each in a thread of its own; what it returned, or raised. Fails for one that does not come back."""
    found: list[Any] = [None] * len(works)

    def run(position: int) -> None:
        try:
            found[position] = works[position]()
        except BaseException as error:
            found[position] = error.with_traceback(None)

    threads = [threading.Thread(target=run, args=(position,), daemon=True) for position in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "a rank hangs"
    return found


def run_ranks(devices: Sequence[str], work: Callable[[ProcessGroup], Any], timeout_s: float = 10.0) -> list[Any]:
    """``work`` as each rank of a new group on these devices."""
    groups = local_groups([open_device(name) for name in devices], timeout_s=timeout_s)

    def one(group: ProcessGroup) -> Any:
        with group:
            return work(group)

    return together([lambda group=group: one(group) for group in groups])


def full(group: ProcessGroup, count: int, value: float | None = None, dtype: Any = np.float32) -> DeviceArray:
    """``count`` elements that are ``value``, or the rank + 1."""
    return from_numpy(np.full(count, group.rank + 1 if value is None else value, dtype), group.device)


@pytest.fixture
def ranks() -> Callable[..., list[Any]]:
    return run_ranks
