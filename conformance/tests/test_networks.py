"""What networks are made of is one kernel each on every kind of target; attention is one, and copies for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import oarlock as ol
from oarlock.codegen.pipeline import lower, prepare
from oarlock.errors import DeviceError
from oarlock.runtime import open_device
from oarlock.target import Target
from oarlock_conformance.cases.programs.networks import ELEMENTS, ROWS, attend

DEVICES = ("cpu:0", "sim:0", "sim:1", "opencl:0", "webgpu:0")


@pytest.fixture(params=[*DEVICES, "cuda"])
def target(request: pytest.FixtureRequest) -> Target:
    """The target of every adapter, also where there is no such device: what is lowered for cuda needs none."""
    if request.param == "cuda":
        return pytest.importorskip("oarlock_cuda.target").target_for((9, 0))  # type: ignore[no-any-return]
    try:
        return open_device(request.param).target
    except DeviceError as error:
        pytest.skip(f"UNAVAILABLE: {error}")


def kernels(target: Target, function: Callable[..., Any], *operands: np.ndarray) -> list[str]:
    """The labels of the kernels of ``function``, compiled whole for ``target``."""
    program = ol.jit(function).program(*(ol.asarray(x, device="cpu") for x in operands))
    return [call.label for call in lower(prepare(program, target), target).calls]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", [*ROWS, *ELEMENTS])
def test_composed_patterns_are_one_kernel(name: str, target: Target) -> None:
    if name in ROWS:
        found = kernels(target, lambda x, w: ROWS[name](x, w, ol), random(64, 700), random(700))
    else:
        found = kernels(target, lambda x, y: ELEMENTS[name](x, y, ol), random(64, 700), random(64, 700))
    assert len(found) == 1, found


def adam(weight: Any, gradient: Any, first: Any, second: Any, rate: Any) -> Any:
    """One step of it: the new weight, and both moments."""
    first = 0.9 * first + 0.1 * gradient
    second = 0.999 * second + 0.001 * gradient * gradient
    return weight - rate * (first / 0.19) / (ol.sqrt(second / 0.002) + 1e-8), first, second


def test_an_update_of_adam_with_its_moments_is_one_kernel(target: Target) -> None:
    found = kernels(target, adam, *(4 * [random(64, 700)]), np.float32(0.01))
    assert len(found) == 1, found


def test_reduction_and_what_follows_on_its_rows_are_one_kernel(target: Target) -> None:
    """Two reductions one after the other, and element-wise work before, between and behind."""

    def residual_norm(x: Any, y: Any, weight: Any, bias: Any) -> Any:
        total = x + ol.maximum(y, ol.zeros_like(y))
        centred = total - ol.mean(total, axis=-1, keepdims=True)
        spread = ol.rsqrt(ol.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)
        return ol.tanh(centred * spread * weight + bias), total

    found = kernels(target, residual_norm, random(64, 700), random(64, 700), random(700), random(700))
    assert len(found) == 1, found


def test_product_with_bias_and_activation_is_one_kernel_and_copies(target: Target) -> None:
    found = kernels(target, lambda x, w, b: ol.gelu(x @ w + b), random(64, 700), random(700, 96), random(96))
    assert [label for label in found if label not in ("copy", "pad")] == [found[-1]], found


def test_attention_is_one_kernel_and_copies(target: Target) -> None:
    operands = (random(2, 33, 16), random(2, 65, 16), random(2, 65, 24), random(33, 65))
    found = kernels(target, lambda *x: attend(x, ol), *operands)
    assert [label for label in found if label not in ("copy", "pad")] == [found[-1]]
    assert found[-1].startswith("scores")
