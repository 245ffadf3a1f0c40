"""What networks are made of is one kernel each on every kind of target; attention is one, and copies for it."""

from __future__ import annotations

import numpy as np
import pytest

import oarlock as ol
from oarlock.codegen.pipeline import lower, prepare
from oarlock.runtime import open_device
from oarlock_conformance.cases.programs.networks import ELEMENTS, ROWS, attend

ROTARY = 3
"""Two halves, and what joins them: an element of a concatenation asks each operand whether it lies there."""


def kernels(function, *operands: np.ndarray, device: str) -> list[str]:
    """The labels of the kernels of ``function``, compiled whole for ``device``."""
    target = open_device(device).target
    program = ol.jit(function).program(*(ol.asarray(x, device=device) for x in operands))
    return [call.label for call in lower(prepare(program, target), target).calls]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("device", ["cpu:0", "sim:0", "sim:1"])
@pytest.mark.parametrize("name", [*ROWS, *ELEMENTS])
def test_composed_patterns_are_one_kernel(name: str, device: str) -> None:
    if name in ROWS:
        found = kernels(lambda x, w: ROWS[name](x, w, ol), random(64, 700), random(700), device=device)
    else:
        found = kernels(lambda x, y: ELEMENTS[name](x, y, ol), random(64, 700), random(64, 700), device=device)
    assert len(found) <= (ROTARY if name == "rotary" else 1), found


@pytest.mark.parametrize("device", ["cpu:0", "sim:0", "sim:1"])
def test_attention_is_one_kernel_and_copies(device: str) -> None:
    operands = (random(2, 33, 16), random(2, 65, 16), random(2, 65, 24), random(33, 65))
    found = kernels(lambda *x: attend(x, ol), *operands, device=device)
    assert [label for label in found if label not in ("copy", "pad")] == [found[-1]]
    assert found[-1].startswith("scores")
