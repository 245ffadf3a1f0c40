"""Channels last: what is turned, what stays, and that values stay the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.ir import Block, Operation, Region, TensorType
from oarlock.ir.interpret import interpret
from oarlock.ir.passes import PassManager
from oarlock.ops import ArrayBuilder, array_context
from oarlock.target import Limits, Target
from oarlock.transforms import standard_passes
from oarlock.transforms.channels_last import ChannelsLast

X, Y, W = (1, 64, 6, 5), (1, 16, 6, 5), (64, 64, 3, 3)


def _program(shapes: list[tuple[int, ...]], body: Callable[..., Any]) -> Operation:
    context = array_context()
    block = Block([TensorType(dtypes.float32, shape) for shape in shapes])
    b = ArrayBuilder(context, block)
    results = body(b, *block.args)
    b.create("builtin.return", results if isinstance(results, list) else [results])
    return Operation(context.definition("builtin.function"), attributes={"name": "f"}, regions=[Region([block])])


def _conv(b: Any, x: Any, w: Any, groups: int = 1, pad: int = 1) -> Any:
    rank = len(x.type.shape) - 2
    return b(
        "convolution", x, w, strides=(1,) * rank, padding=((pad, pad),) * rank, dilation=(1,) * rank, groups=groups
    )


def _group_norm(b: Any, x: Any, groups: int, keepdims: bool) -> Any:
    shape = x.type.shape
    folded = b("reshape", x, shape=(shape[0], groups, int(np.prod(shape[1:])) // groups))
    whole = folded.type.shape

    def mean(v: Any) -> Any:
        total = b("reduce_sum", v, axes=(2,), keepdims=keepdims)
        value = b("divide", total, b.full(whole[2], total))
        return value if keepdims else b("broadcast", value, shape=whole, dims=(0, 1))

    centred = b("subtract", folded, mean(folded))
    spread = b("sqrt", b("add", mean(b("multiply", centred, centred)), b.constant(1e-5, dtypes.float32)))
    return b("reshape", b("divide", centred, spread), shape=shape)


def _norm_between(groups: int, keepdims: bool) -> Callable[..., Any]:
    return lambda b, x, w: _conv(b, _group_norm(b, _conv(b, x, w), groups, keepdims), w)


def _two_ways_out(b: Any, x: Any, w: Any) -> Any:
    """A folded image that is read as such, and one that comes in folded."""
    y = _conv(b, x, w)
    folded = b("reshape", y, shape=(1, 8, 240))
    scaled = b("multiply", folded, b("reshape", x, shape=(1, 8, 240)))
    return [_conv(b, b("reshape", scaled, shape=X), w), b("exp", b("reshape", scaled, shape=(8, 240)))]


def _scaled_by(dims: tuple[int, ...]) -> Callable[..., Any]:
    """A folded image times what is repeated along some of its dimensions."""

    def body(b: Any, x: Any, w: Any, scale: Any) -> Any:
        folded = b("reshape", _conv(b, x, w), shape=(1, 8, 240))
        scaled = b("multiply", folded, b("broadcast", scale, shape=(1, 8, 240), dims=dims))
        return _conv(b, b("reshape", scaled, shape=X), w)

    return body


PROGRAMS: dict[str, tuple[list[tuple[int, ...]], Callable[..., Any], int, int]] = {
    "lone_convolution": ([X, W], lambda b, x, w: _conv(b, x, w), 1, 2),
    "residual": ([X, W], lambda b, x, w: b("add", x, _conv(b, b("tanh", _conv(b, x, w)), w)), 2, 2),
    "norm_of_each_channel": ([X, W], _norm_between(64, False), 2, 2),
    "norm_of_groups": ([X, W], _norm_between(8, False), 2, 2),
    "norm_of_groups_with_kept_dimensions": ([X, W], _norm_between(8, True), 2, 2),
    "norm_of_all": ([X, W], _norm_between(1, True), 2, 2),
    "folded_ways_out": ([X, W], _two_ways_out, 2, 3),
    "scale_of_each_group": ([X, W, (1, 8)], _scaled_by((0, 1)), 2, 2),
    "scale_of_groups": ([X, W, (8,)], _scaled_by((1,)), 2, 3),
    "scale_of_places": ([X, W, (240,)], _scaled_by((2,)), 2, 3),
    "scale_of_all": ([X, W, ()], _scaled_by(()), 2, 2),
    "line": ([(1, 64, 9), (64, 64, 7)], lambda b, x, w: _conv(b, x, w, pad=3), 1, 2),
    "volume": ([(1, 32, 3, 4, 5), (32, 32, 3, 3, 3)], lambda b, x, w: _conv(b, x, w), 1, 2),
    "broadcast_image": (
        [X, W, (1, 64, 1, 1), (6, 5)], lambda b, x, w, c, s: b("add", b("multiply", _conv(b, x, w), c), s), 1, 2,
    ),
    "weights_from_an_image": ([X, (64, 64, 1, 1)], lambda b, x, w: _conv(b, x, b("exp", w), pad=0), 0, 0),
    "few_channels": ([Y, (16, 16, 3, 3)], lambda b, x, w: _conv(b, x, w), 0, 0),
    "in_groups": ([X, (64, 1, 3, 3)], lambda b, x, w: _conv(b, x, w, 64), 0, 0),
    "one_of_two_in_groups": (
        [X, W, (64, 1, 3, 3)], lambda b, x, w, d: _conv(b, b("exp", _conv(b, x, w)), d, 64), 0, 0,
    ),
}  # fmt: skip
"""Shapes, a program, how many convolutions are turned, and how many transposes are left."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_stay(name: str) -> None:
    shapes, body, convolutions, transposes = PROGRAMS[name]
    function = _program(shapes, body)
    rng = np.random.default_rng(3)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    expected = interpret(function, given)
    manager = PassManager(array_context(), standard_passes())
    manager.run(function)
    counts = Counter(op.name for op in function.regions[0].block.ops)
    turned = next(result.statistics for result in manager.results if result.name == "channels_last")
    assert turned.get("convolutions", 0) == convolutions
    assert counts["array.transpose"] == transposes
    for got, want in zip(interpret(function, given), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_it_is_for_processors_with_vectors() -> None:
    wide = Target("llvm", limits=Limits(vector_width=8))
    assert ChannelsLast().applies(wide)
    assert not ChannelsLast().applies(wide.with_limits(vector_width=1))
    assert not ChannelsLast().applies(wide.with_limits(max_threads=64, max_block=(64, 1, 1)))
