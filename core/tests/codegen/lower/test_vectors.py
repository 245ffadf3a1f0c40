"""Kernels of targets without threads compute neighbouring elements at once where memory allows it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.builder import NotVectorisable
from oarlock.codegen.lower import vectors
from oarlock.codegen.lower.emitter import Emitter
from oarlock.codegen.pipeline import render
from oarlock.ir import BufferType, Operation, TensorType, Value
from oarlock.ops import ArrayBuilder
from oarlock.target import Target

from .conftest import FUNCTIONS, assert_close, program, random_operands, run_lowered

F32 = dtypes.float32


def t(*shape: int, dtype: dtypes.DType = F32) -> TensorType:
    return TensorType(dtype, shape)


def softmax(b: ArrayBuilder, x: Value) -> Value:
    shifted = b("subtract", x, b("reduce_max", x, axes=(1,), keepdims=True))
    power = b("exp", shifted)
    return b("divide", power, b("reduce_sum", power, axes=(1,), keepdims=True))


def causal(b: ArrayBuilder) -> Value:
    row, column = (b("iota", shape=(40, 40), axis=axis, dtype=dtypes.int64) for axis in (0, 1))
    return b("less_equal", column, row)


def operations(function: Operation) -> list[Operation]:
    return [op for op in function.walk() if op is not function]


def loads(function: Operation, lanes: int) -> int:
    return sum(op.name == "kernel.load" and op.attributes.get("lanes", 1) == lanes for op in operations(function))


def pool(*window: int, kind: str = "max", strides: tuple[int, ...] = (1, 2, 2, 1)) -> Callable[..., Value]:
    """Windows with a border of one around the two middle dimensions."""
    attributes = {
        "window": window,
        "strides": strides,
        "dilation": (1,) * 4,
        "padding": ((0, 0), (1, 1), (1, 1), (0, 0)),
    }
    return lambda b, x: b("window_reduce", x, kind=kind, **attributes)


VECTORS: dict[str, tuple[list[TensorType], Callable[..., Value], bool]] = {
    "contiguous": ([t(3, 70), t(3, 70)], lambda b, x, y: b("add", x, y), True),
    "broadcast_rows": ([t(3, 70), t(3, 1)], lambda b, x, y: b("multiply", x, y), True),
    "broadcast_columns": ([t(3, 70), t(70)], lambda b, x, y: b("multiply", x, y), True),
    "bool_and_bytes": ([t(70, dtype=dtypes.int8)], lambda b, x: b("less", x, b.constant(np.int8(3))), True),
    "narrow": ([t(70, dtype=dtypes.float16)], lambda b, x: b("multiply", x, x), True),
    "offset": ([t(3, 70)], lambda b, x: b("exp", b("slice", x, starts=(0, 3), limits=(3, 66), steps=(1, 1))), True),
    "reversed": ([t(3, 70)], lambda b, x: b("negative", b("reverse", x, axes=(1,))), False),
    "strided": ([t(3, 70)], lambda b, x: b("exp", b("slice", x, starts=(0, 0), limits=(3, 70), steps=(1, 2))), False),
    "transposed": ([t(70, 30)], lambda b, x: b("exp", b("transpose", x, permutation=(1, 0))), True),
    "transposed_into_short_rows": ([t(3, 70)], lambda b, x: b("exp", b("transpose", x, permutation=(1, 0))), True),
    "transposed_in_short_rows": ([t(70, 3)], lambda b, x: b("exp", b("transpose", x, permutation=(1, 0))), False),
    "position": ([t(3, 70)], lambda b, x: b("add", x, b("iota", shape=(3, 70), axis=1, dtype=F32)), True),
    "position_of_row": ([t(3, 70)], lambda b, x: b("add", x, b("iota", shape=(3, 70), axis=0, dtype=F32)), True),
    "causal": ([t(40, 40)], lambda b, x: b("select", causal(b), x, b.constant(np.float32(0))), True),
    "gathered": ([t(70), t(70, dtype=dtypes.int32)], lambda b, x, i: b("exp", b("gather", x, i, axis=0)), False),
    "looping": ([t(70), t(70)], lambda b, x, y: b("remainder", x, y), False),
    "rows": ([t(3, 150)], softmax, True),
    "windows_of_channels": ([t(2, 7, 9, 19)], pool(1, 3, 3, 1), True),
    "sums_of_channels": ([t(1, 9, 9, 35, dtype=dtypes.float16)], pool(1, 8, 8, 1, kind="sum"), True),
    "large_windows_of_channels": ([t(1, 9, 15, 19)], pool(1, 5, 13, 1), False),
    "windows_across_lanes": ([t(1, 7, 19, 19)], pool(1, 3, 3, 1, strides=(1, 1, 1, 2)), False),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_where_neighbours_are_neighbours(name: str) -> None:
    types, body, expected = VECTORS[name]
    function = program(types, body)
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    from oarlock.ir.interpret import interpret

    assert_close(got, interpret(function, given), 1e-3 if types[0].dtype.bits == 16 else 1e-5, 1e-5)
    assert any(loads(calls[-1].function, lanes) for lanes in (8, 16, 32)) == expected
    ramps = [op for op in operations(calls[0].function) if op.name == "kernel.ramp"]
    assert bool(ramps) == (name in ("position", "causal"))


@pytest.mark.parametrize(
    ("columns", "brief", "lanes"), [(70, 32, 16), (63, 8, 8), (64, 32, 16), (127, 8, 8), (143, 16, 16), (287, 32, 16)]
)
def test_elementary_functions_take_several_vectors_at_once(columns: int, brief: int, lanes: int) -> None:
    """But for short rows of which more would be left over."""
    types = [t(3, columns), t(3, 1)]
    for body, expected in (
        (lambda b, x, y: b("exp", b("add", x, y)), brief),
        (lambda b, x, y: b("sin", b("add", x, y)), lanes),
        (lambda b, x, y: b("sin", b("exp", b("add", x, y))), lanes),
        (lambda b, x, y: b("add", x, y), 8),
    ):
        (call,) = run_lowered(program(types, body), random_operands(types), FUNCTIONS)[1]
        assert [n for n in (8, 16, 32) if loads(call.function, n)] == [expected]


def test_elementary_functions_of_a_row_are_computed_once() -> None:
    """What the sum needs and the result needs again is kept: one call of exp per element, and one for the tail."""
    function = program([t(3, 150)], softmax)
    _, (call,) = run_lowered(function, random_operands([t(3, 150)]), FUNCTIONS)
    private = [op.attributes["size"] for op in operations(call.function) if op.name == "kernel.private"]
    assert private == [256]
    # e^r = 1 + (r + r^2 p(r)): a division by the sum, and nothing else, stands in the last pass
    assert sum(op.name == "kernel.div" for op in operations(call.function)) == 2


def test_long_rows_are_not_kept() -> None:
    function = program([t(1, 8200)], softmax)
    _, (call,) = run_lowered(function, random_operands([t(1, 8200)]), FUNCTIONS)
    assert not [op for op in operations(call.function) if op.name == "kernel.private"]


@pytest.mark.parametrize("columns", [64, 67])
@pytest.mark.parametrize("kind", ["elements", "rows"])
def test_large_results_are_streamed_where_they_are_aligned(
    kind: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "STREAM_BYTES", 1024)
    types = [t(5, columns)]
    function = program(types, softmax if kind == "rows" and columns > 64 else lambda b, x: b("negative", x))
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    from oarlock.ir.interpret import interpret

    assert_close(got, interpret(function, given), 1e-5, 1e-6)
    stores = [op for op in operations(calls[-1].function) if op.name == "kernel.store" and op.attributes.get("stream")]
    assert stores
    assert all(op.operands[2].type.lanes == (32 if kind == "rows" and columns > 64 else 8) for op in stores)
    ahead = any(op.name == "kernel.prefetch" for op in operations(calls[-1].function))
    assert ahead == (kind == "elements" or columns == 64)  # of rows as short as these none


def test_small_results_are_not_streamed() -> None:
    types = [t(5, 72)]
    _, (call,) = run_lowered(program(types, lambda b, x: b("negative", x)), random_operands(types), FUNCTIONS)
    assert not any(op.attributes.get("stream") for op in operations(call.function))


@pytest.mark.parametrize(("columns", "ahead"), [(255, False), (300, True)])
def test_second_pass_brings_the_next_row_closer(columns: int, ahead: bool) -> None:
    """Also from the last row, behind which there is none; the third pass reads nothing from far."""
    function = program([t(3, columns)], softmax)
    given = random_operands([t(3, columns)])
    got, (call,) = run_lowered(function, given, FUNCTIONS)
    power = np.exp(given[0] - given[0].max(1, keepdims=True))
    assert_close(got, [power / power.sum(1, keepdims=True)], 1e-5, 1e-6)
    asked = sum(op.name == "kernel.prefetch" for op in operations(call.function))
    assert asked == (2 if ahead else 0)  # lines of a vector of 32


def test_vector_loops_refuse_what_looks_at_the_position() -> None:
    value = program([t(8)], lambda b, x: x).regions[0].block.args[0]
    e = Emitter("k", [value], [], {})

    def body(position: Value, _: list[Value]) -> list[Value]:
        e.b.convert(position, F32)
        return []

    with pytest.raises(NotVectorisable, match="position"):
        e.vector_loop(e.b.i(0), e.b.i(8), 8, body)


def test_scalars_meet_vectors_as_all_lanes() -> None:
    b = KernelBuilder("k", [("x", BufferType(F32, "global", "both"))], [("s", F32)])
    loaded = b.load(b.arguments["x"], b.i(0), 4)
    total = b.add(loaded, b.arguments["s"])
    assert total.type.lanes == 4
    assert [op.name for op in operations(b.function)][-2:] == ["kernel.splat", "kernel.add"]


def test_streamed_stores_rely_on_no_more_than_allocations_give() -> None:
    """16 lanes of float64 are 128 bytes; memory begins at multiples of 64."""
    b = KernelBuilder("k", [("x", BufferType(dtypes.float64, "global", "write"))], [])
    b.store(b.arguments["x"], b.i(0), b.const(1.0, dtypes.float64, 16), stream=True)
    b.store(b.arguments["x"], b.i(16), b.const(1.0, dtypes.float64, 4), stream=True)
    text = render([b.function], FUNCTIONS)
    stores = [line for line in text.splitlines() if "!nontemporal" in line]
    assert ["align 64" in stores[0], "align 32" in stores[1]] == [True, True]
    assert "fence seq_cst" in text


def turned(*permutation: int) -> Callable[..., Value]:
    return lambda b, x: b("negative", b("transpose", x, permutation=permutation))


SQUARES: dict[str, tuple[list[TensorType], Callable[..., object]]] = {
    "whole": ([t(32, 48)], turned(1, 0)),
    "edges": ([t(33, 17)], turned(1, 0)),
    "middle": ([t(2, 20, 35)], turned(0, 2, 1)),
    "outer": ([t(19, 3, 21)], turned(2, 1, 0)),
    "rolled": ([t(18, 2, 17)], turned(1, 2, 0)),
    "beside_straight": (
        [t(20, 33), t(33, 20)], lambda b, x, y: b("add", b("transpose", x, permutation=(1, 0)), y),
    ),
    "two_results": (
        [t(20, 33)],
        lambda b, x: [b("exp", b("transpose", x, permutation=(1, 0))), b("abs", b("transpose", x, permutation=(1, 0)))],
    ),
    "slice": (
        [t(40, 33)],
        lambda b, x: b("exp", b("transpose", b("slice", x, starts=(3, 1), limits=(40, 30), steps=(1, 1)),
                                permutation=(1, 0))),
    ),
    "bytes": ([t(20, 33, dtype=dtypes.int8)], turned(1, 0)),
    "doubles": ([t(20, 33, dtype=dtypes.float64)], turned(1, 0)),
    "halves": ([t(20, 33, dtype=dtypes.float16)], turned(1, 0)),
    "truth": ([t(20, 33)], lambda b, x: b("isnan", b("transpose", x, permutation=(1, 0)))),
}  # fmt: skip


@pytest.mark.parametrize("target", [FUNCTIONS, FUNCTIONS.with_limits(vector_width=1)], ids=["vectors", "single"])
@pytest.mark.parametrize("name", SQUARES)
def test_what_lies_the_other_way_is_turned_in_squares(name: str, target: Target) -> None:
    types, body = SQUARES[name]
    function = program(types, body)
    given = random_operands(types)
    got, _ = run_lowered(function, given, target)
    from oarlock.ir.interpret import interpret

    assert_close(got, interpret(function, given), 1e-5, 1e-5)


def test_factors_of_groups_of_channels_are_vectors() -> None:
    """Each stands for several neighbours; a copy has them side by side."""

    def body(b: ArrayBuilder, x: Value, factors: Value) -> Value:
        repeated = b("reshape", b("broadcast", factors, shape=(32, 2), dims=(0,)), shape=(64,))
        return b("multiply", x, b("broadcast", repeated, shape=(100, 64), dims=(1,)))

    types = [t(100, 64), t(32)]
    function = program(types, body)
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    np.testing.assert_allclose(got[0], given[0] * np.repeat(given[1], 2), rtol=1e-6)
    assert len(calls) == 2 and loads(calls[-1].function, 8) == 2


def test_reductions_read_joined_channels_as_vectors() -> None:
    """The parts are stored side by side first: computed in place, neighbours would come from several operands."""

    def body(b: ArrayBuilder, x: Value, y: Value) -> tuple[Value, Value]:
        joined = b("concat", x, y, axis=1)
        return joined, b("reduce_sum", joined, axes=(0,), keepdims=False)

    types = [t(100, 32), t(100, 32)]
    function = program(types, body)
    given = random_operands(types)
    got, calls = run_lowered(function, given, FUNCTIONS)
    joined = np.concatenate(given, 1)
    np.testing.assert_array_equal(got[0], joined)
    assert_close(got[1:], [joined.sum(0)], 1e-5, 1e-5)
    (summing,) = [call for call in calls if "reduce_sum" in call.label]
    assert summing.label == "reduce_sum" and loads(summing.function, 8)
