"""Programs of several operators: the fusions that matter, against the interpreter in float64."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import TensorType, Type, Value, interpret
from oarlock.ops import ArrayBuilder, tensor
from oarlock.ops.bounds import unit_roundoff
from oarlock.runtime import Device
from oarlock_conformance.case import Case, Failure, Options, Outcome
from oarlock_conformance.cases.operators.build import build_function
from oarlock_conformance.cases.operators.device_run import run_twice

__all__ = ["mine", "plan", "run"]

Array = npt.NDArray[Any]
Body = Callable[..., Sequence[Value]]


def _softmax(b: ArrayBuilder, x: Value) -> list[Value]:
    return [b("softmax", x, axis=1)]


def _layer_norm(b: ArrayBuilder, x: Value, scale: Value, bias: Value) -> list[Value]:
    return [b("layer_norm", x, scale, bias, axis=1, epsilon=1e-5)]


def _gelu_chain(b: ArrayBuilder, x: Value, y: Value) -> list[Value]:
    gated = b("multiply", b("gelu", b("add", x, y)), b("sigmoid", x))
    return [gated, b("tanh", b("subtract", gated, y))]


def _dense(b: ArrayBuilder, x: Value, weight: Value, bias: Value) -> list[Value]:
    return [b("relu", b("add", b("matmul", x, weight), bias))]


def _convolution(b: ArrayBuilder, x: Value, weight: Value, scale: Value, shift: Value) -> list[Value]:
    y = b("convolution", x, weight, strides=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=1)
    wide = {"shape": (2, 5, 9, 7), "dims": (1,)}
    return [b("relu", b("add", b("multiply", y, b("broadcast", scale, **wide)), b("broadcast", shift, **wide)))]


def _attention(b: ArrayBuilder, q: Value, k: Value, v: Value) -> list[Value]:
    scores = b("matmul", q, b("transpose", k, permutation=(0, 2, 1)))
    scaled = b("multiply", scores, b.full(0.25, scores))
    return [b("matmul", b("softmax", scaled, axis=2), v)]


def _two_heads(b: ArrayBuilder, x: Value) -> list[Value]:
    total = b("reduce_sum", x, axes=(1,), keepdims=True)
    high = b("reduce_max", x, axes=(1,), keepdims=True)
    return [b("divide", x, b("add", b("abs", total), b.full(1, total))), b("subtract", x, high), total]


def _shuffle(b: ArrayBuilder, x: Value) -> list[Value]:
    turned = b("transpose", b("reshape", x, shape=(6, 37, 43)), permutation=(1, 0, 2))
    part = b("slice", turned, starts=(3, 0, 1), limits=(33, 6, 42), steps=(2, 1, 3))
    padded = b("pad", part, b.constant(0.5, tensor(x).dtype), low=(1, 0, 2), high=(0, 1, 0), interior=(0, 0, 1))
    return [b("reverse", padded, axes=(0, 2)), b("reduce_sum", padded, axes=(0, 1), keepdims=False)]


@dataclass(frozen=True, slots=True)
class _Program:
    """A fused program: shapes of its operands, its body, and its largest error in units of roundoff of the result's
    scale (the number of roundings on the way to a result)."""

    shapes: tuple[tuple[int, ...], ...]
    body: Body
    roundings: float
    contract: str


_FUSED: dict[str, _Program] = {
    "softmax": _Program(((17, 257),), _softmax, 30, "a softmax in one kernel is a softmax"),
    "layer_norm": _Program(((9, 384), (384,), (384,)), _layer_norm, 400, "a layer norm in one kernel is a layer norm"),
    "gelu_chain": _Program(((33, 65), (33, 65)), _gelu_chain, 60, "a chain of element-wise operators is their chain"),
    "dense": _Program(((33, 70), (70, 47), (47,)), _dense, 80, "a product with bias and relu in one kernel"),
    "convolution": _Program(
        ((2, 3, 9, 7), (5, 3, 3, 3), (5,), (5,)), _convolution, 60, "a convolution with its batch norm"
    ),
    "attention": _Program(
        ((3, 19, 16), (3, 23, 16), (3, 23, 8)), _attention, 80, "attention: two products and a softmax"
    ),
    "two_heads": _Program(((21, 130),), _two_heads, 140, "two reductions of one operand, and what follows from them"),
    "shuffle": _Program(((37 * 6, 43),), _shuffle, 200, "moves of elements that are read by others"),
}
_DTYPES = (dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64)
_ALSO_NARROW = ("softmax", "dense")
"""Programs that run in float16 too in the quick setting."""


def mine(identity: str) -> bool:
    """Whether a case is one of this module."""
    return identity.startswith("fused.")


def plan(device: Device, options: Options) -> list[Case]:
    """Cases ``fused.softmax/float32`` ..."""
    cases = []
    for name, program in _FUSED.items():
        for dtype in _dtypes(name, options):
            absent = "" if device.target.stores(dtype) else f"{dtype} is not stored"
            cases.append(Case(f"fused.{name}/{dtype}", "operators", "fused", program.contract, absent))
    return cases


def _dtypes(name: str, options: Options) -> Sequence[DType]:
    if name == "shuffle" or (options.quick and name not in _ALSO_NARROW):
        return _DTYPES[:1]
    return _DTYPES[: 2 if options.quick else 4]


def run(device: Device, identity: str, options: Options) -> Outcome:
    """Run one of them."""
    start = time.perf_counter()
    name, dtype = identity.removeprefix("fused.").split("/")
    try:
        _run_fused(device, name, dtype, options)
    except Failure as failure:
        return Outcome(identity, "failed", time.perf_counter() - start, "value", str(failure))
    except Exception as error:
        return Outcome(identity, "failed", time.perf_counter() - start, "exception", f"{type(error).__name__}: {error}")
    return Outcome(identity, "passed", time.perf_counter() - start)


def _run_fused(device: Device, name: str, dtype_name: str, options: Options) -> None:
    program, dtype = _FUSED[name], dtypes.by_name(dtype_name)
    random = np.random.default_rng([options.seed, zlib.crc32(name.encode())])
    operands = [random.standard_normal(shape).astype(dtype.numpy) for shape in program.shapes]
    types: list[Type] = [TensorType(dtype, x.shape) for x in operands]
    function = build_function(types, program.body, name)
    wide = [x.astype(np.float64) for x in operands]
    double: list[Type] = [TensorType(dtypes.float64, x.shape) for x in operands]
    expected = interpret(build_function(double, program.body, name), wide)
    found = run_twice(device, function, operands, frozenset())
    for number, (got, want) in enumerate(zip(found, expected, strict=True)):
        _close(f"{name}, result {number}", got, want, program.roundings * unit_roundoff(dtype))


def _close(what: str, got: Array, want: Array, relative: float) -> None:
    """Fail unless every element is within ``relative`` times the largest magnitude of what is expected."""
    if got.shape != want.shape:
        raise Failure(f"{what} has shape {got.shape}, expected {want.shape}")
    limit = relative * max(1.0, float(np.abs(want).max(initial=0.0)))
    error = np.abs(got.astype(np.float64) - want)
    wrong = ~(error <= limit)
    if wrong.any():
        at = np.unravel_index(int(np.argmax(np.where(wrong, np.nan_to_num(error, nan=np.inf), -1.0))), got.shape)
        place = tuple(int(i) for i in at)
        text = f"{what} at {place} is {got[at]}, expected {want[at]} within {limit:.3g}"
        raise Failure(f"{text}; {int(wrong.sum())} of {got.size} elements are wrong")
