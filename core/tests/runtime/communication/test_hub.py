"""The meeting point: who is let through, who is told what, and that nobody waits for ever."""

from __future__ import annotations

import time

import pytest

from oarlock.errors import CommunicationError, MismatchError, RankLostError, RankTimeoutError
from oarlock.runtime.communication.calls import Call, difference
from oarlock.runtime.communication.hub import Hub

from .conftest import together

BOTH = frozenset({0, 1})
CALL = Call("all_reduce", 1, "float32", 5, "sum")


def calls(hub, *made, members=BOTH):
    return together([lambda r=r, c=c: hub.meet(r, members, c, {}) for r, c in enumerate(made)])


def test_meet_hands_each_rank_its_parcels():
    hub = Hub("g", 2, 5)
    found = together(
        [
            lambda: hub.meet(0, BOTH, CALL, {0: b"00", 1: b"01"}),
            lambda: hub.meet(1, BOTH, CALL, {0: b"10", 1: b"11"}),
        ]
    )
    assert found == [{0: b"00", 1: b"10"}, {0: b"01", 1: b"11"}]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("operation", "broadcast", "operation"),
        ("number", 2, "order"),
        ("dtype", "bfloat16", "dtype"),
        ("count", 6, "count"),
        ("kind", "max", "reduce kind"),
        ("root", 1, "root"),
    ],
)
def test_difference_is_told_on_every_rank(field, value, words):
    other = Call.from_json({**CALL.to_json(), field: value})
    assert difference(CALL, other) == words
    hub = Hub("g", 2, 5)
    for error in calls(hub, CALL, other):
        assert type(error) is MismatchError
        assert f"differ in {words}" in str(error) and str(CALL) in str(error) and str(other) in str(error)
    assert calls(hub, CALL, CALL) == [{}, {}], "the group goes on after a mismatch"


def test_absent_rank_is_named_and_breaks_the_group():
    hub = Hub("g", 3, 0.2)
    everyone = frozenset(range(3))
    start = time.monotonic()
    first, second = calls(hub, CALL, CALL, members=everyone)
    assert time.monotonic() - start < 5
    for error in (first, second):
        assert type(error) is RankTimeoutError and "rank 2 has made no call" in str(error)
    with pytest.raises(RankTimeoutError):
        hub.meet(2, everyone, CALL, {})


def test_late_rank_is_told_where_the_other_waits():
    hub = Hub("g", 3, 60)

    def late():
        while 1 not in hub._waiting:
            time.sleep(0.01)
        hub.timeout_s = 0.2
        hub.meet(0, range(3), CALL, {})

    found = together([late, lambda: hub.meet(1, (1, 2), Call("send/recv", 7), {})])
    assert all("rank 1 waits in send/recv number 7" in str(error) for error in found)


def test_circle_is_told_at_once():
    hub = Hub("g", 3, 60)
    start = time.monotonic()
    found = together([lambda r=r: hub.meet(r, (r, (r + 1) % 3), Call("send/recv", 1, root=r), {}) for r in range(3)])
    assert time.monotonic() - start < 10
    assert all(type(error) is MismatchError and "wait for each other" in str(error) for error in found)


def test_pair_meets_beside_the_others():
    hub = Hub("g", 3, 10)
    pair = frozenset({1, 2})

    def with_pair(rank):
        got = hub.meet(rank, pair, Call("send/recv", 1), {3 - rank: bytes([rank])})
        hub.meet(rank, range(3), CALL, {})
        return got

    found = together([lambda: hub.meet(0, range(3), CALL, {}), lambda: with_pair(1), lambda: with_pair(2)])
    assert found == [{}, {2: b"\2"}, {1: b"\1"}]


def test_refusal_is_told_and_group_goes_on():
    hub = Hub("g", 2, 5)
    hub.refuse(0, BOTH, Call("all_reduce", 1, refusal="DTypeError: no"))
    with pytest.raises(CommunicationError, match="rank 0 cannot take part in all_reduce number 1: DTypeError: no"):
        hub.meet(1, BOTH, CALL, {})
    assert calls(hub, CALL, CALL) == [{}, {}]


def test_leaving_with_failure_ends_pending_calls():
    hub = Hub("g", 2, 60)
    told = []
    hub.watch(lambda: told.append(1))

    def die():
        time.sleep(0.05)
        hub.leave(1, "failed: boom")

    error, _ = together([lambda: hub.meet(0, BOTH, CALL, {}), die])
    assert type(error) is RankLostError and "rank 1 failed: boom" in str(error)
    assert told == [1] and type(hub.failure) is RankLostError and hub.failure is not hub.failure
    late = []
    hub.watch(lambda: late.append(1))
    assert late == [1], "who watches a broken group is told at once"


def test_orderly_leave_concerns_only_calls_that_need_the_rank():
    hub = Hub("g", 3, 60)
    hub.leave(0)
    pair = (1, 2)
    assert together([lambda r=r: hub.meet(r, pair, Call("send/recv", 1), {}) for r in pair]) == [{}, {}]
    with pytest.raises(RankLostError, match="rank 0 has closed the group"):
        hub.meet(1, range(3), CALL, {})
