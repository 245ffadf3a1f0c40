"""Attention is one kernel besides the copies of its operands, whatever stands between scores and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen import attention
from oarlock.codegen.groups import Group
from oarlock.codegen.lower import attention as lowering
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.pipeline import lower, prepare, render
from oarlock.codegen.values import shape_of
from oarlock.dtypes import DType
from oarlock.ir import TensorType, Value
from oarlock.ops import ArrayBuilder
from oarlock.target import Limits, Target

from .conftest import FUNCTIONS, TARGETS, assert_close, program, random_operands, run_lowered, t

F32 = dtypes.float32
Chain = Callable[..., Value]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sizes take the same way, over several stretches of keys: the interpreter is slow."""
    monkeypatch.setattr(attention, "LEAST", 4)
    monkeypatch.setattr(lowering, "KEYS", 16)
    monkeypatch.setattr(lowering, "KEYS_OF_THREAD", 16)


def attend(b: ArrayBuilder, q: Value, k: Value, v: Value, chain: Chain, *more: Value, dtype: DType = F32) -> Value:
    """Over (batch, rows, depth), (batch, keys, depth) and (batch, keys, columns)."""
    scores = b("dot_general", q, k, batch=((0,), (0,)), contract=((2,), (2,)), dtype=dtype)
    logits = chain(b, scores, *more)
    power = b("exp", b("subtract", logits, b("reduce_max", logits, axes=(2,), keepdims=True)))
    weights = b("divide", power, b("reduce_sum", power, axes=(2,), keepdims=True))
    return b("dot_general", weights, v, batch=((0,), (0,)), contract=((2,), (1,)), dtype=dtype)


def exact(q: Any, k: Any, v: Any, chain: Callable[[Any], Any] = lambda s: s) -> Any:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    with np.errstate(all="ignore"):
        logits = chain(q @ k.swapaxes(-1, -2))
        power = np.exp(logits - logits.max(-1, keepdims=True))
        return power / power.sum(-1, keepdims=True) @ v


def plain(b: ArrayBuilder, s: Value) -> Value:
    return s


def labels(types: list[TensorType], body: Callable[..., Any], target: Target = FUNCTIONS) -> list[str]:
    return [call.label for call in lower(prepare(program(types, body)), target).calls]


SIZES = {"one_stretch": (2, 5, 9, 3, 5), "edges": (1, 7, 33, 2, 16), "many": (1, 4, 48, 2, 17)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_attention_is_one_kernel_on_every_target(sizes: tuple[int, ...], target: str) -> None:
    batch, rows, keys, depth, columns = sizes
    types = [t(batch, rows, depth), t(batch, keys, depth), t(batch, keys, columns)]
    given = random_operands(types)
    got, calls = run_lowered(program(types, lambda b, *x: attend(b, *x, plain)), given, TARGETS[target])
    assert sum("scores" in call.label for call in calls) == 1
    assert all(call.label in ("copy", "pad") or "scores" in call.label for call in calls)
    assert_close(got, [exact(*given).astype(np.float32)], 1e-5, 1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_no_array_of_scores_is_in_memory(target: str) -> None:
    types = [t(2, 6, 8), t(2, 40, 8), t(2, 40, 8)]
    lowered = lower(prepare(program(types, lambda b, *x: attend(b, *x, plain))), TARGETS[target])
    groups: tuple[Group, ...] = lowered.groups
    assert (2, 6, 40) not in [shape_of(v) for group in groups for v in group.outputs]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", ["causal", "first keys", "a whole row", "all of nothing"])
def test_masks_of_minus_infinity(mask: str, target: str) -> None:
    """A stretch without any key leaves a row as it was; a row without any key is NaN, as its softmax is."""
    rows, keys = 5, 20
    hidden = np.zeros((rows, keys), bool)
    if mask == "causal":
        hidden = np.arange(keys)[None, :] > np.arange(rows)[:, None]
    elif mask == "first keys":
        hidden[:, :17] = True
    elif mask == "a whole row":
        hidden[3] = True
    types = [t(1, rows, 2), t(1, keys, 2), t(1, keys, 4), t(rows, keys)]
    given = [*random_operands(types[:3]), np.where(hidden, -np.inf, 0).astype(np.float32)]

    def masked(b: ArrayBuilder, s: Value, m: Value) -> Value:
        return b("add", b("multiply", s, b.constant(np.float32(0.5))), m)

    function = program(types, lambda b, q, k, v, m: attend(b, q, k, v, masked, m))
    got, calls = run_lowered(function, given, TARGETS[target])
    assert any("scores" in call.label for call in calls) == (target != "tight")  # which binds four buffers
    expected = exact(*given[:3], lambda s: s * 0.5 + given[3])
    assert np.isnan(expected).any() == (mask == "a whole row")
    assert_close(got, [expected.astype(np.float32)], 1e-5, 1e-6)


def test_a_mask_from_positions_and_a_consumer() -> None:
    def causal(b: ArrayBuilder, s: Value) -> Value:
        row, key = (b("iota", shape=(5, 20), axis=i, dtype=dtypes.int32) for i in (0, 1))
        return b("select", b("less_equal", key, row), s, b.constant(np.float32(-np.inf)))

    types = [t(1, 5, 2), t(1, 20, 2), t(1, 20, 4), t(1, 5, 4)]
    given = random_operands(types)
    function = program(types, lambda b, q, k, v, x: b("add", attend(b, q, k, v, causal), x))
    got, calls = run_lowered(function, given, FUNCTIONS)
    assert calls[-1].label.startswith("scores")
    hidden = np.arange(20)[None, :] > np.arange(5)[:, None]
    expected = exact(*given[:3], lambda s: np.where(hidden, -np.inf, s)) + given[3]
    assert_close(got, [expected.astype(np.float32)], 1e-5, 1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_stays_none(value: float) -> None:
    types = [t(1, 5, 2), t(1, 20, 2), t(1, 20, 4)]
    given = random_operands(types)
    given[0][0, 2] = value
    got, _ = run_lowered(program(types, lambda b, *x: attend(b, *x, plain)), given, FUNCTIONS)
    assert np.isnan(got[0][0, 2]).all()
    assert_close([got[0][:, 3:]], [exact(*given).astype(np.float32)[:, 3:]], 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.float16, dtypes.bfloat16], ids=str)
def test_other_floats(dtype: DType) -> None:
    types = [t(*shape, dtype=dtype) for shape in ((1, 5, 2), (1, 20, 2), (1, 20, 4))]
    given = random_operands(types)
    got, calls = run_lowered(program(types, lambda b, *x: attend(b, *x, plain, dtype=dtype)), given, FUNCTIONS)
    assert "scores" in calls[-1].label
    close = {"float64": 1e-13, "float16": 5e-3, "bfloat16": 4e-2}[dtype.name]
    assert_close(got, [exact(*given).astype(dtype.numpy)], close, close)


def test_keys_that_several_heads_share_and_transposed_operands() -> None:
    """(groups, heads, rows, depth) of queries against keys that the heads of a group share, laid out depth first."""

    def body(b: ArrayBuilder, q: Value, k: Value, v: Value) -> Value:
        wide = [b("broadcast", x, shape=(2, 3, *shape_of(x)[1:]), dims=(0, 2, 3)) for x in (k, v)]
        scores = b("dot_general", q, wide[0], batch=((0, 1), (0, 1)), contract=((3,), (2,)), dtype=F32)
        weights = b("softmax", scores, axis=3)
        return b("dot_general", weights, wide[1], batch=((0, 1), (0, 1)), contract=((3,), (2,)), dtype=F32)

    types = [t(2, 3, 4, 2), t(2, 2, 20), t(2, 20, 4)]
    given = random_operands(types)
    got, calls = run_lowered(program(types, body), given, FUNCTIONS)
    assert "scores" in calls[-1].label
    q, k, v = given
    assert_close(got, [exact(q, k.swapaxes(1, 2)[:, None], v[:, None]).astype(np.float32)], 1e-5, 1e-6)


def test_weights_that_somebody_else_reads_stay_in_memory() -> None:
    def body(b: ArrayBuilder, q: Value, k: Value, v: Value) -> tuple[Value, Value]:
        result = attend(b, q, k, v, plain)
        return result, result.defining_op.operands[0]  # type: ignore[union-attr]

    types = [t(2, 7, 4), t(2, 40, 4), t(2, 40, 8)]
    assert not any("scores" in label for label in labels(types, body))


def test_a_sum_along_another_dimension_is_no_attention() -> None:
    def body(b: ArrayBuilder, q: Value, k: Value, v: Value) -> Value:
        scores = b("dot_general", q, k, batch=((0,), (0,)), contract=((2,), (2,)), dtype=F32)
        weights = b("softmax", scores, axis=1)
        return b("dot_general", weights, v, batch=((0,), (0,)), contract=((2,), (1,)), dtype=F32)

    types = [t(1, 20, 2), t(1, 20, 2), t(1, 20, 4)]
    given = random_operands(types)
    got, calls = run_lowered(program(types, body), given, FUNCTIONS)
    assert not any("scores" in call.label for call in calls)
    scores = np.exp(given[0].astype(np.float64) @ given[1].swapaxes(1, 2))
    assert_close(got, [(scores / scores.sum(1, keepdims=True) @ given[2]).astype(np.float32)], 1e-5, 1e-5)


def test_scores_that_meet_themselves_moved_are_no_chain() -> None:
    def symmetric(b: ArrayBuilder, s: Value) -> Value:
        return b("add", s, b("transpose", s, permutation=(0, 2, 1)))

    types = [t(1, 20, 2), t(1, 20, 2), t(1, 20, 4)]
    given = random_operands(types)
    got, calls = run_lowered(program(types, lambda b, *x: attend(b, *x, symmetric)), given, FUNCTIONS)
    assert not any("scores" in call.label for call in calls)
    assert_close(got, [exact(*given, lambda s: s + s.swapaxes(1, 2)).astype(np.float32)], 1e-4, 1e-5)


def test_attention_over_attention() -> None:
    """The second's queries come from the first, and it adds the first's result to its own."""

    def body(b: ArrayBuilder, q: Value, k: Value, v: Value) -> Value:
        first = attend(b, q, k, v, plain)
        return b("add", attend(b, b("exp", first), k, v, plain), first)

    types = [t(1, 5, 4), t(1, 20, 4), t(1, 20, 4)]
    given = random_operands(types)
    got, calls = run_lowered(program(types, body), given, FUNCTIONS)
    assert sum("scores" in call.label for call in calls) == 2
    first = exact(*given)
    assert_close(got, [(exact(np.exp(first), *given[1:]) + first).astype(np.float32)], 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("language", "threads"),
    [("c99", 1), ("llvm", 1), ("cuda", 1), ("cuda", 64), ("opencl", 1), ("opencl", 64), ("wgsl", 1), ("wgsl", 64)],
)
def test_attention_is_said_in_every_language(language: str, threads: int) -> None:
    """With vectors of four elements, or several of those at once where the language has such."""
    limits = Limits(vector_width=4, max_block=(threads, 1, 1), max_threads=threads)
    storage = (("bool", "uint32" if language == "wgsl" else "uint8"),)
    target = Target(language, compute=frozenset({"float32", "int32", "uint32", "bool"}), storage=storage, limits=limits)
    types = [t(2, 5, 9), t(2, 33, 9), t(2, 33, 5)]
    calls = lower(prepare(program(types, lambda b, *x: attend(b, *x, plain))), target).calls
    assert "scores" in render([call.function for call in calls if isinstance(call, KernelCall)], target)
