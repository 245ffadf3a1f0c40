"""The works of the table: what is computed, on what, and what is asked of Oarlock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from ci.bench.peers import Array
from ci.bench.vocabulary import Value, Vocabulary

__all__ = ["Ask", "Kind", "Work", "ahead", "at_limit", "faster", "kernel_works", "rate", "takes", "within"]

Unit = Literal["ms", "us", "s", "GFLOP/s", "x"]
Kind = Literal["rounds", "cold", "warm", "import", "plan"]


@dataclass(frozen=True, slots=True)
class Ask:
    """``subject`` takes at most ``factor`` times what ``against`` takes: a column, or ``"best peer"``.

    With ``against`` None, ``factor`` is a time in the work's unit. Of ``either``, one is enough.
    """

    text: str
    factor: float = 1.0
    against: str | None = None
    subject: str = "oarlock"
    either: tuple[Ask, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """A row. ``function`` takes a vocabulary and the inputs in order; ``model`` names an ONNX model instead."""

    name: str
    title: str
    inputs: Callable[[np.random.Generator], Mapping[str, Array]]
    function: Callable[..., Any] = lambda words, *values: None
    constants: tuple[str, ...] = ()
    """Inputs that do not change from call to call: a graph may hold them as weights."""
    asks: tuple[Ask, ...] = ()
    unit: Unit = "ms"
    operations: float = 0.0
    """Floating point operations of a call, where the unit is a rate."""
    limit: str = ""
    plain: str = ""
    model: str = ""
    tolerance: float = 2e-5
    """Allowed difference, relative to each value and to the root mean square of all."""
    calls: int = 1
    """Calls in one sample, where one is too short to time."""
    compiled: bool = True
    """Whether the function as a whole is handed to compilers; else operators are called one by one."""
    peers: tuple[str, ...] = ()
    """The columns that take part; empty: all."""
    group: str = "kernels"
    kind: Kind = "rounds"
    """How it is measured: calls in rounds; the first call in a fresh process, its caches on disk ``cold`` or ``warm``;
    the ``import`` of the library; the memory of Oarlock's ``plan``."""
    series: str = ""
    """The plot of growth that it is a point of, at ``extent``."""
    extent: float = 0.0


def within(factor: float, against: str = "limit", subject: str = "oarlock") -> Ask:
    return Ask(f"{subject} <= {factor:g} x {against}", factor, against, subject)


def ahead() -> Ask:
    return Ask("ahead of every peer", 1.0, "best peer")


def at_limit() -> Ask:
    return Ask("at the limit (within 5 %)", 1.05, "limit")


def takes(limit: float, unit: Unit) -> Ask:
    return Ask(f"<= {limit:g} {unit}", limit)


def rate(factor: float, what: str = "") -> Ask:
    return Ask(f"{what}>= {factor:g} x best peer", 1 / factor, "best peer")


def faster(times: float, than: str) -> Ask:
    return Ask(f">= {times:g} x as fast as {than}", 1 / times, than)


# --- rows of a matrix ---------------------------------------------------------------------------------------------


def _matrix(rows: int, columns: int, *vectors: str) -> Callable[[np.random.Generator], dict[str, Array]]:
    def inputs(generator: np.random.Generator) -> dict[str, Array]:
        made = {"x": generator.standard_normal((rows, columns), np.float32)}
        return made | {name: generator.standard_normal(columns, np.float32) for name in vectors}

    return inputs


def _composed_rms_norm(v: Vocabulary, x: Value, weight: Value) -> Value:
    return Vocabulary.rms_norm(v, x, weight)


def _eight(v: Vocabulary, x: Value) -> Value:
    y = v.abs(x * 1.5 + 0.25)
    y = v.clip(y * x - 0.125, -2.0, 2.0)
    return (y + x) * 0.5


def _rows(rows: int, columns: int) -> list[Work]:
    matrix = _matrix(rows, columns)
    shape = f"{rows}x{columns}"
    unfused = (faster(4, "oarlock-unfused"), within(1.2, "torch", "oarlock-unfused"))
    plain = Ask("", either=(faster(1.14, "plain-c"), at_limit()))
    opencl = within(2, "oarlock", "oarlock-opencl")
    return [
        Work(
            "rmsnorm", f"RMSNorm {shape}, composed from operators", _matrix(rows, columns, "weight"),
            _composed_rms_norm, ("weight",), (within(1.3), ahead(), *unfused, plain, opencl),
            limit="copy", plain="rms_norm",
        ),
        Work(
            "rmsnorm-library", f"RMSNorm {shape}, each library's own", _matrix(rows, columns, "weight"),
            lambda v, x, weight: v.rms_norm(x, weight), ("weight",), (within(1.3), ahead(), opencl),
            limit="copy", plain="rms_norm",
        ),
        Work(
            "layernorm", f"LayerNorm {shape}", _matrix(rows, columns, "weight", "bias"),
            lambda v, x, weight, bias: v.layer_norm(x, weight, bias), ("weight", "bias"),
            (within(1.4), ahead(), opencl), limit="copy",
        ),
        Work(
            "softmax", f"softmax {shape}", matrix, lambda v, x: v.softmax(x), (), (within(1.5), ahead(), opencl),
            limit="copy",
        ),
        Work(
            "gelu", f"GELU (tanh) {shape}", matrix, lambda v, x: v.gelu(x), (), (within(1.5), ahead(), opencl),
            limit="copy", tolerance=1e-4,
        ),
        Work(
            "eight", f"eight element-wise operators, {shape}", matrix, _eight, (), (at_limit(), ahead(), opencl),
            limit="copy",
        ),
    ]  # fmt: skip


# --- products -----------------------------------------------------------------------------------------------------


def _products(size: int) -> Work:
    def inputs(generator: np.random.Generator) -> dict[str, Array]:
        return {name: generator.standard_normal((size, size), np.float32) for name in "ab"}

    return Work(
        f"matmul-{size}", f"matmul {size}", inputs, lambda v, a, b: v.matmul(a, b), (),
        (rate(1.0), rate(0.95, "generated code ")),
        "GFLOP/s", 2.0 * size**3, "multiply_add", tolerance=1e-4,
    )  # fmt: skip


def _vector(size: int, transposed: bool) -> Work:
    def inputs(generator: np.random.Generator) -> dict[str, Array]:
        return {
            "x": generator.standard_normal((1, size), np.float32),
            "weight": generator.standard_normal((size, size), np.float32),
        }

    return Work(
        "vector-out-in" if transposed else "vector-in-out",
        f"1x{size} @ {size}x{size}, weights as ({'out, in' if transposed else 'in, out'})",
        inputs,
        (lambda v, x, weight: v.linear(x, weight)) if transposed else (lambda v, x, weight: v.matmul(x, weight)),
        ("weight",), (rate(1.0),), limit="read", tolerance=1e-4,
    )  # fmt: skip


def kernel_works(size: int = 4096) -> list[Work]:
    """Rows of one kernel or a few; ``size`` is the extent of the square ones (tests take a small one)."""
    products = [_products(n) for n in ((512, 1024, 2048) if size >= 4096 else (size,))]
    return [*_rows(size, size), *products, _vector(size, False), _vector(size, True)]
