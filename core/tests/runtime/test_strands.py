"""Groups of launches that may run at the same time: what depends never does, whatever the memory, and results stay."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oarlock import dtypes
from oarlock.abi import Access, BufferArgument, KernelSignature
from oarlock.hal import host
from oarlock.hal.host import HostLaunch, HostPlan
from oarlock.ir import Value
from oarlock.ir.types import TensorType
from oarlock.runtime.layout import LITTLE, Life, lay_out, lay_out_apart
from oarlock.runtime.plan import Launch
from oarlock.runtime.strands import MOST, groups, spans

ONE, MANY = (1, 1, 1), (8, 1, 1)
SIZE = 64


class Computed(Value):
    """A value that a launch computes: no argument of the program."""

    @property
    def defining_op(self) -> Any:
        return self


def launch(uses: Sequence[tuple[Value, Access]], grid: tuple[int, int, int] = ONE) -> Launch:
    buffers = tuple(BufferArgument(f"b{i}", dtypes.uint8, dtypes.uint8, access) for i, (_, access) in enumerate(uses))
    signature = KernelSignature("kernel", buffers, (), 0)
    return Launch(cast(Any, None), signature, grid, tuple(value for value, _ in uses), 1, (), "", "")


def grouped(launches: Sequence[Launch | None], offsets: Mapping[Value, int] | None = None) -> list[list[list[int]]]:
    return groups(launches, lambda value: SIZE, offsets or {})


def computed(count: int) -> list[Value]:
    return [Computed(TensorType(dtypes.uint8, (SIZE,))) for _ in range(count)]


A, B, C, D = computed(4)
GIVEN, OTHER = Value(TensorType(dtypes.uint8, (SIZE,))), Value(TensorType(dtypes.uint8, (SIZE,)))
APART, INTO = {A: 0, B: SIZE}, {A: 0, B: SIZE - 1}


@pytest.mark.parametrize(
    ("first", "second", "offsets", "together"),
    [
        pytest.param([(A, "write")], [(B, "write")], {}, True, id="nothing shared"),
        pytest.param([(A, "read")], [(A, "read")], {}, True, id="both read"),
        pytest.param([(A, "write")], [(A, "read")], {}, False, id="read after write"),
        pytest.param([(A, "read")], [(A, "write")], {}, False, id="write after read"),
        pytest.param([(A, "write")], [(A, "both")], {}, False, id="write after write that reads"),
        pytest.param([(A, "both")], [(A, "both")], {}, False, id="both read and write"),
        pytest.param([(A, "write")], [(A, "write")], {}, True, id="two parts of one value"),
        pytest.param([(A, "write")], [(B, "write")], APART, True, id="side by side in the arena"),
        pytest.param([(A, "write")], [(B, "write")], INTO, False, id="one byte of the arena written twice"),
        pytest.param([(A, "write")], [(B, "read")], INTO, False, id="one byte of the arena read after it is written"),
        pytest.param([(B, "read")], [(A, "write")], INTO, False, id="one byte of the arena written after it is read"),
        pytest.param([(A, "read")], [(B, "read")], INTO, True, id="one byte of the arena read twice"),
        pytest.param([(GIVEN, "read")], [(OTHER, "read")], {}, True, id="arguments read"),
        pytest.param([(GIVEN, "write")], [(OTHER, "read")], {}, False, id="an argument written, another read"),
        pytest.param([(GIVEN, "read")], [(OTHER, "both")], {}, False, id="an argument read, another written"),
        pytest.param([(GIVEN, "both")], [(A, "write")], {}, True, id="an argument and what is computed"),
    ],
)
@pytest.mark.parametrize("grid", [ONE, MANY])
def test_two_launches(
    first: list[tuple[Value, Access]],
    second: list[tuple[Value, Access]],
    offsets: Mapping[Value, int],
    together: bool,
    grid: tuple[int, int, int],
) -> None:
    found = grouped([launch(first, grid), launch(second, grid)], offsets)
    apart = [[[0, 1]]] if grid == ONE else [[[0]], [[1]]]
    assert found == ([[[0], [1]]] if together else apart)


def test_chains_of_one_block_are_strands() -> None:
    chains = [
        launch([(A, "write")]),
        launch([(A, "read"), (B, "write")]),
        launch([(C, "write")]),
        launch([(C, "both")]),
    ]
    assert grouped(chains) == [[[0, 1], [2, 3]]]
    assert grouped([chains[i] for i in (0, 2, 1, 3)]) == [[[0, 2], [1, 3]]]


def test_what_needs_two_strands_starts_a_group() -> None:
    both = launch([(A, "read"), (C, "read"), (D, "write")])
    assert grouped([launch([(A, "write")]), launch([(C, "write")]), both]) == [[[0], [1]], [[2]]]


def test_a_cut_grid_neither_joins_a_strand_nor_is_joined() -> None:
    one, cut = launch([(A, "both")]), launch([(A, "both")], MANY)
    assert grouped([one, cut, one]) == [[[0]], [[1]], [[2]]]


def test_what_is_no_launch_is_alone() -> None:
    one, two = launch([(A, "write")]), launch([(B, "write")])
    assert grouped([one, None, two, None, None]) == [[[0]], [[1]], [[2]], [[3]], [[4]]]


def test_a_group_has_an_end() -> None:
    found = grouped([launch([(value, "write")]) for value in computed(3 * MOST + 1)])
    assert [len(group) for group in found] == [MOST, MOST, MOST, 1]


def test_spans_cover_their_group() -> None:
    assert spans([[[0]], [[1, 3], [2]], [[4, 5]]]) == [(0, 0), (1, 3), (1, 3), (1, 3), (4, 4), (5, 5)]


# --- what a group computes is what its launches compute in order ------------------------------------------------------

KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int32), ctypes.c_void_p, ctypes.c_void_p
)
ARENA = 40


@KERNEL
def mix(buffers, scalars, begin, end):  # type: ignore[no-untyped-def]
    """Writes to each region that is not only read a digest of all that are read; says (bytes, is read, is written)."""
    count, seed = scalars[0], scalars[1]
    regions = [(buffers[i], *scalars[2 + 3 * i : 5 + 3 * i]) for i in range(count)]
    digest = seed
    for address, nbytes, is_read, _ in regions:
        if is_read:
            digest = (digest * 31 + sum(k * byte for k, byte in enumerate(ctypes.string_at(address, nbytes), 1))) % 251
    time.sleep(0.0002)  # other threads run
    for address, nbytes, _, is_written in regions:
        if is_written:
            ctypes.memset(address, digest, nbytes // 2)
            time.sleep(0)
            ctypes.memset(address + nbytes // 2, digest + 1, nbytes - nbytes // 2)


MIX = ctypes.cast(mix, ctypes.c_void_p).value or 0
VALUES = st.lists(st.tuples(st.integers(0, ARENA - 1), st.integers(1, 12)), min_size=2, max_size=10)
USES = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["read", "write", "both"])), min_size=1, max_size=3)


@given(VALUES, st.lists(USES, min_size=2, max_size=8))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_plans_give_what_they_give_in_order(
    monkeypatch: pytest.MonkeyPatch, places: list[tuple[int, int]], plan: list[list[tuple[int, Access]]]
) -> None:
    monkeypatch.setattr(host.config, "threads", 3)
    values = computed(len(places))
    regions = {v: (at, min(size, ARENA - at)) for v, (at, size) in zip(values, places, strict=True)}
    written: set[Value] = set()
    launches: list[Launch] = []
    for uses in plan:
        own = {values[i % len(values)]: access for i, access in uses}
        own = {v: "both" if access == "write" and v in written else access for v, access in own.items()}  # made once
        written |= {v for v, access in own.items() if access != "read"}
        launches.append(launch(list(own.items())))

    def step(position: int, strand: int) -> HostLaunch:
        buffers, block = [], [0, 3 + position]
        for value, argument in zip(launches[position].buffers, launches[position].signature.buffers, strict=True):
            at, nbytes = regions[value]
            buffers.append((0, at))
            block += [nbytes, argument.access != "write", argument.access != "read"]
        block[0] = len(buffers)
        return HostLaunch(MIX, ONE, tuple(buffers), np.array(block, np.int32).tobytes(), strand)

    found = groups(launches, lambda v: regions[v][1], {v: at for v, (at, _) in regions.items()})
    steps = [
        step(position, number if len(group) > 1 else 0)
        for group in found
        for number, strand in enumerate(group, 1)
        for position in strand
    ]
    expected, got = (np.arange(ARENA, dtype=np.uint8) for _ in range(2))
    in_order, together = HostPlan([step(position, 0) for position in range(len(launches))]), HostPlan(steps)
    for _ in range(5):  # the first ones tell whether strands save time
        in_order.replay([expected.ctypes.data])
        together.replay([got.ctypes.data])
        assert got.tolist() == expected.tolist()


# --- the layout leaves room -------------------------------------------------------------------------------------------


def test_a_little_arena_keeps_strands_apart() -> None:
    """Two chains of two steps: in order the second would take the memory of the first."""
    lives = [Life(1000, 0, 1), Life(1000, 2, 3)]
    together = [(0, 3)] * 4
    assert lay_out(lives).offsets == (0, 0)
    apart = lay_out_apart(lives, together)
    assert (apart.offsets, apart.lower_bound) == ((0, 1024), lay_out(lives).lower_bound)
    assert lay_out_apart(lives, [(i, i) for i in range(4)]) == lay_out(lives)


def test_a_large_arena_is_no_larger_for_strands() -> None:
    lives = [Life(LITTLE, 0, 1), Life(LITTLE, 2, 3)]
    assert lay_out_apart(lives, [(0, 3)] * 4) == lay_out(lives)
    room = [*lives, Life(2 * LITTLE, 4, 5)]
    layout = lay_out_apart(room, [(0, 3)] * 4 + [(4, 4), (5, 5)])
    assert layout.nbytes == lay_out(room).nbytes == 2 * LITTLE and layout.offsets[0] != layout.offsets[1]
