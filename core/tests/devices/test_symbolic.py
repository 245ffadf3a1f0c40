"""Symbolic sizes: one program serves a range, compiles nothing for a new size, and gives what the oracle gives."""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import oarlock as ol
from oarlock import dtypes
from oarlock.errors import DeviceNotFoundError, ShapeError
from oarlock.ir.extents import Extent, Extents
from oarlock.program import calls
from oarlock.program.backend import place
from oarlock.program.symbolic import Variant
from oarlock.program.tracing import trace
from oarlock.runtime.kernels import kernels_of
from oarlock.runtime.plan import Launch

EDGES = (255, 256, 257, 1023, 1024, 1025, 2047, 2048, 2049)
RNG = np.random.default_rng(11)
MATRIX = RNG.standard_normal((64, 48), dtype=np.float32)
WIDE = RNG.standard_normal((64, 96), dtype=np.float32)
BACK = RNG.standard_normal((96, 64), dtype=np.float32)


def rms_norm(x: Any, w: Any) -> Any:
    return x * ol.rsqrt(ol.mean(x * x, axis=-1, keepdims=True) + 1e-6) * w


def mlp(x: Any) -> Any:
    return ol.gelu(x @ ol.asarray(WIDE, device=x.device)) @ ol.asarray(BACK, device=x.device)


def erf(x: np.ndarray) -> np.ndarray:
    from math import erf as one

    return np.vectorize(one)(x)


def np_mlp(x: np.ndarray) -> np.ndarray:
    hidden = x @ WIDE.astype(np.float64)
    return (hidden * 0.5 * (1 + erf(hidden * np.sqrt(0.5)))) @ BACK.astype(np.float64)


def np_softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def np_rms_norm(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w


Case = tuple[Callable[..., Any], dict[str, dict[int, Any]], Callable[[int], list[tuple[int, ...]]], Callable[..., Any]]
CASES: dict[str, Case] = {
    "rms_norm_rows": (rms_norm, {"x": {0: "n"}}, lambda n: [(n, 48), (48,)], np_rms_norm),
    "rms_norm_columns": (rms_norm, {"x": {1: "n"}, "w": {0: "n"}}, lambda n: [(3, n), (n,)], np_rms_norm),
    "softmax_rows": (lambda x: ol.softmax(x), {"x": {0: "n"}}, lambda n: [(n, 31)], np_softmax),
    "softmax_columns": (lambda x: ol.softmax(x), {"x": {1: "n"}}, lambda n: [(3, n)], np_softmax),
    "matmul_rows": (
        lambda x: x @ ol.asarray(MATRIX, device=x.device), {"x": {0: "n"}}, lambda n: [(n, 64)],
        lambda x: x @ MATRIX.astype(np.float64),
    ),
    "matmul_terms": (
        lambda x, y: x @ y, {"x": {1: "n"}, "y": {0: "n"}}, lambda n: [(9, n), (n, 20)], lambda x, y: x @ y,
    ),
    "mlp": (mlp, {"x": {0: "n"}}, lambda n: [(n, 64)], np_mlp),
    "elements": (lambda x: x * 2.0 + 1.0, {"x": {0: "n"}}, lambda n: [(n, 3)], lambda x: x * 2 + 1),
}  # fmt: skip


@pytest.fixture(params=["cpu", "sim:0", "sim:1", "opencl:0", "webgpu:0"])
def device(request: pytest.FixtureRequest) -> Any:
    try:
        return ol.device(request.param)
    except DeviceNotFoundError as error:
        pytest.skip(f"UNAVAILABLE: {error}")


@pytest.mark.parametrize("name", CASES)
def test_values_are_right_on_both_sides_of_every_edge(device: Any, name: str) -> None:
    function, symbolic, shapes, oracle = CASES[name]
    compiled = ol.jit(function, symbolic=symbolic)
    for n in EDGES:
        given = [RNG.standard_normal(shape, dtype=np.float32) for shape in shapes(n)]
        found = compiled(*[ol.asarray(array, device=device) for array in given])
        expected = oracle(*[array.astype(np.float64) for array in given])
        assert found.shape == expected.shape
        np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("name", "served"),
    [
        ("rms_norm_rows", [300, 301, 511, 999, 1025, 4096]),
        ("rms_norm_columns", [300, 301, 511]),
        ("softmax_columns", [300, 301, 511]),
        ("matmul_rows", [1100, 1101, 2047, 2048, 2049]),
        ("mlp", [1100, 1101, 2047, 2048, 2049]),
        ("elements", [1000, 1001, 4099]),
    ],
)
def test_sizes_inside_a_bucket_compile_nothing(name: str, served: list[int]) -> None:
    device = ol.device("cpu")
    function, symbolic, shapes, _ = CASES[name]
    compiled = ol.jit(function, symbolic=symbolic)

    def call(n: int) -> None:
        compiled(*[ol.asarray(RNG.standard_normal(s, dtype=np.float32), device=device) for s in shapes(n)])

    call(served[0])
    programs, kernels = compiled.compiles, kernels_of(device).compiled  # type: ignore[arg-type]
    for n in served[1:]:
        call(n)
    assert (compiled.compiles, kernels_of(device).compiled) == (programs, kernels)  # type: ignore[arg-type]
    assert compiled.traces == len(served) + 1  # and one with extents


def planned(
    device: Any, function: Callable[..., Any], shapes: list[tuple[Any, ...]], n: int, at: int, asked: list[Any]
) -> list[Any]:
    """The launches at size ``at`` of a program compiled for size ``n``; [] where it does not serve that.

    ``asked`` is cleared when the compiler begins.
    """

    def leaves(size: int) -> list[Any]:
        shape = [[size if d == "n" else d for d in shape] for shape in shapes]
        return [calls.kind(dtypes.float32, dims).leaf for dims in shape]

    def traced(given: list[Any]) -> Any:
        return trace("f", where, given, lambda tensors: function(*tensors))

    extents, where = Extents(), place(device)
    example, other, symbolic = traced(leaves(n)), traced(leaves(at)), traced(leaves(extents.symbol("n", n)))
    asked.clear()
    program = Variant(symbolic, example, len(shapes), extents, where).program(other, {"n": at})
    if program is None:
        return []
    plan = program.run.__self__  # type: ignore[attr-defined]
    return [
        (s.signature.name, s.grid, s.scalars, [plan.nbytes(v) for v in s.buffers]) if isinstance(s, Launch) else s
        for s in plan.steps
    ]


PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "rms_norm": (rms_norm, [(7, "n"), ("n",)]),
    "layer_norm": (lambda x: ol.layer_norm(x), [("n", 65)]),
    "variance": (lambda x: ol.var(x, axis=0), [("n", 65)]),
    "attention": (lambda q, k: ol.softmax(q @ k.mT) @ k, [(2, "n", 16), (2, "n", 16)]),
    "matmul": (lambda x, y: x @ y, [("n", 64), (64, "n")]),
    "mlp": (mlp, [("n", 64)]),
    "moves": (lambda x: ol.concat([x, ol.flip(x, axis=0)], axis=0).T, [("n", 6)]),
    "sort": (lambda x: ol.sort(x, axis=0), [("n", 3)]),
    "scan": (lambda x: ol.cumulative_sum(x, axis=0), [("n", 3)]),
    "counts": (lambda x: x + ol.arange(x.shape[0], dtype=ol.float32, device=x.device), [("n",)]),
    "reshaped": (lambda x: ol.sum(ol.reshape(x, (x.shape[0] * 2, 4)), axis=1), [("n", 8)]),
    "slices": (lambda x: x[:, 1:-1] + x[:, :-2] + x[::-1, 2:], [("n", 6)]),
    "strided": (lambda x: x[1::2] * 2.0, [("n", 6)]),
    "differences": (lambda x: ol.diff(x, axis=0), [("n", 6)]),
    "made": (lambda x: x + ol.ones((x.shape[0], 1), device=x.device), [("n", 6)]),
    "turned": (lambda x: ol.roll(x, 3, axis=0), [("n", 6)]),
    "top": (lambda x: ol.argmax(x, axis=0), [("n", 6)]),
    "gather": (lambda x: ol.take(x, ol.asarray([0, 3, 1], device=x.device), axis=0), [("n", 5)]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_served_sizes_get_the_launches_that_they_would_get_alone(name: str) -> None:
    device = ol.device("cpu")
    function, shapes = PROGRAMS[name]
    served = 0
    for example in (5, 300):
        for n in (2, 5, 17, 38, 255, 256, 257, 301, 306, 318):
            found = planned(device, function, shapes, example, n, [])
            if found:
                served += 1
                assert found == planned(device, function, shapes, n, n, [])
    assert served > 1


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """``range`` reads an extent without asking it: the values with which the compiler did so."""
    asked: list[str] = []

    class Watched:
        def __new__(cls, *bounds: int) -> Any:
            if any(isinstance(bound, Extent) for bound in bounds):
                asked.append("".join(traceback.format_stack(limit=3)[:-1]))
            return plain(*bounds)

        def __instancecheck__(self, item: object) -> bool:
            return isinstance(item, plain)

    plain = range
    monkeypatch.setattr(builtins, "range", Watched)
    yield asked
    monkeypatch.undo()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_compiler_never_loops_as_often_as_an_extent_says(name: str, watched: list[str]) -> None:
    function, shapes = PROGRAMS[name]
    for n in (5, 300):
        planned(ol.device("cpu"), function, shapes, n, n, watched)
        assert watched == []


def test_what_a_function_does_with_sizes_is_its_own_business() -> None:
    """Python looks at sizes as it likes: a program serves only those for which it records the same."""

    def f(x: Any) -> Any:
        total = x * (1.0 / x.shape[0])
        for _ in range(x.shape[0] // 100):
            total = total + 1.0
        return total if len(x.shape) == 1 and x.shape[0] % 2 else total * 2.0

    compiled = ol.jit(f, symbolic={"x": {0: "n"}})
    for n in (201, 203, 205, 301, 303, 302, 202, 207):
        x = RNG.standard_normal(n, dtype=np.float32)
        np.testing.assert_array_equal(np.asarray(compiled(ol.asarray(x))), np.asarray(f(ol.asarray(x))))
    assert compiled.compiles == 4


def test_a_name_stands_for_one_size() -> None:
    f = ol.jit(lambda x, y: (x, y), symbolic={"x": {1: "n"}, "y": {0: ("n", 1, 100)}})
    with pytest.raises(ShapeError, match="size n is 3 in dimension 1 of x and 4 in dimension 0 of y"):
        f(ol.ones((2, 3)), ol.ones((4, 2)))
    with pytest.raises(ShapeError, match="y has shape \\(\\), which has no dimension 0"):
        f(ol.ones((2, 3)), ol.asarray(1.0))


def test_sizes_outside_of_the_range_get_their_own_programs() -> None:
    f = ol.jit(lambda x: x + 1.0, symbolic={"x": {0: ("n", 10, 20)}})
    for n in (12, 13, 21, 22):
        np.testing.assert_array_equal(np.asarray(f(ol.zeros((n,)))), np.ones(n))
    assert (f.traces, f.compiles) == (5, 3)


@pytest.mark.parametrize(
    ("symbolic", "text"),
    [
        ({"z": {0: "n"}}, "takes x"),
        ({"x": {0: 5}}, '"name" or'),
        ({"x": {0: ("n", 5, 3)}}, "cannot go from 5 to 3"),
        ({"x": {0: ("n", 1, 3), 1: ("n", 1, 4)}}, "two ranges"),
    ],
)
def test_symbolic_is_checked(symbolic: dict[str, dict[int, Any]], text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        ol.jit(lambda x: x, symbolic=symbolic)


def test_dimensions_hold_for_every_tensor_of_an_argument() -> None:
    f = ol.jit(lambda state: {"a": state["a"] + 1.0, "b": [state["b"][0] * 2.0]}, symbolic={"state": {0: "n"}})
    for n in (5, 6, 7):
        found = f({"a": ol.zeros((n, 2)), "b": [ol.ones((n,))]})
        assert found["a"].shape == (n, 2) and found["b"][0].tolist() == [2.0] * n
    assert f.compiles == 1
