"""One program for many sizes, on both sides of the sizes at which kernels change, under the simulated driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CODE = """
    import numpy as np, oarlock as ol
    random = np.random.default_rng(3)
    weight = random.standard_normal((24, 40), dtype=np.float32)
    def norm(x):
        return x * ol.rsqrt(ol.mean(x * x, axis=-1, keepdims=True) + 1e-6)
    functions = {
        "rows": (lambda x: norm(x), {0: "n"}, lambda n: (n, 24)),
        "columns": (lambda x: norm(x), {1: "n"}, lambda n: (2, n)),
        "product": (lambda x: x @ ol.asarray(weight, device=x.device), {0: "n"}, lambda n: (n, 24)),
    }
    for name, (function, sizes, shape) in functions.items():
        compiled = ol.jit(function, symbolic={"x": sizes})
        for n in (255, 256, 257, 1023, 1024, 1025, 2047, 2048, 2049):
            x = random.standard_normal(shape(n), dtype=np.float32)
            found = compiled(ol.asarray(x, device="cuda:0")).numpy()
            wide = x.astype(np.float64)
            exact = wide @ weight if name == "product" else wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)
            np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)
        print(name, compiled.compiles < 9)
"""


def test_values_are_right_on_both_sides_of_every_edge(child: Callable[..., Any]) -> None:
    done = child(CODE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["rows", "True", "columns", "True", "product", "True"]
