"""What shader compilers are free to regroup stays as it was written."""

from __future__ import annotations

from typing import Any

import numpy as np

import oarlock as ol


def test_the_rounding_inside_exp_is_not_simplified_away(device: Any) -> None:
    """``(x * c + large) - large`` rounds to an integer; regrouped, exp gave powers of two and nothing between."""
    x = np.linspace(-20, 20, 1001, dtype=np.float32)
    got = np.asarray(ol.exp(ol.asarray(x, device="webgpu")))
    np.testing.assert_allclose(got, np.exp(x.astype(np.float64)), rtol=1e-6)


def test_a_mean_of_nothing_is_no_number(device: Any) -> None:
    """A loop of no turns leaves a constant 0, and 0 / x is 0 to a compiler that takes x for a number but 0."""
    assert np.isnan(np.asarray(ol.mean(ol.zeros((3, 0), device="webgpu"), axis=1))).all()
