"""Random functions with symbolic sizes give at every size what they give when they are recorded."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import oarlock as ol

SIZES = (1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 100, 127, 128, 129, 255, 256, 257, 300, 513)
Step = Callable[[Any], Any]
STEPS: tuple[Step, ...] = (
    lambda x: ol.exp(x * 0.1),
    lambda x: ol.softmax(x, axis=-1),
    lambda x: ol.softmax(x, axis=0),
    lambda x: x - ol.mean(x, axis=0, keepdims=True),
    lambda x: x / (1.0 + ol.std(x)),
    lambda x: x + ol.var(x, axis=0),
    lambda x: ol.layer_norm(x),
    lambda x: ol.cumulative_sum(x, axis=0) * 0.1,
    lambda x: ol.sort(x, axis=0),
    lambda x: ol.sort(x, axis=1),
    lambda x: ol.take(x, ol.argsort(x[:, 0]), axis=0),
    lambda x: x + ol.argmax(x, axis=0).astype(ol.float32) * 0.001,
    lambda x: ol.flip(x, axis=0),
    lambda x: ol.roll(x, 2, axis=0),
    lambda x: ol.concat([x, x], axis=0)[x.shape[0] :],
    lambda x: ol.diff(ol.concat([x[:1], x], axis=0), axis=0),
    lambda x: ol.repeat(x, 2, axis=0)[::2],
    lambda x: ol.tile(x, (2, 1))[: x.shape[0]],
    lambda x: ol.stack([x, x * 2.0], axis=0)[1],
    lambda x: ol.reshape(ol.reshape(x, (-1,)), x.shape),
    lambda x: ol.broadcast_to(x[:, :1], x.shape) + x,
    lambda x: ol.tril(x),
    lambda x: x + ol.arange(x.shape[0], dtype=ol.float32, device=x.device)[:, None] * 0.01,
    lambda x: x + ol.ones((x.shape[0], 1), device=x.device),
    lambda x: x / x.shape[0],
    lambda x: (x @ x.mT) @ x * 0.01,
    lambda x: x + x[:1],
)


@pytest.mark.parametrize(
    ("device", "seed"),
    [("cpu", 0), *[pytest.param(name, seed, marks=pytest.mark.proof) for name in ("cpu", "sim:1") for seed in (1, 2)]],
)
def test_random_functions_are_the_same_at_every_size(device: str, seed: int) -> None:
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    for _ in range(6 if seed == 0 else 25):
        chosen = [chance.choice(STEPS) for _ in range(chance.randrange(1, 5))]

        def f(x: Any, chosen: list[Step] = chosen) -> Any:
            for step in chosen:
                x = step(x)
            return x, ol.sum(x, axis=0)

        dims: dict[int, Any] = chance.choice([{0: "n"}, {1: "n"}, {0: "n", 1: "m"}, {0: "n", 1: "n"}])
        compiled = ol.jit(f, symbolic={"x": dims})
        fixed = chance.choice((1, 3, 16, 33))
        for n in chance.sample(SIZES, 6):
            sizes = {"n": n, "m": chance.choice((1, 5, 16, 40, 130))}
            shape = tuple(sizes[dims[axis]] if axis in dims else fixed for axis in (0, 1))
            x = ol.asarray(rng.standard_normal(shape, dtype=np.float32), device=device)
            for found, expected in zip(compiled(x), f(x), strict=True):
                np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-3, atol=1e-3)
