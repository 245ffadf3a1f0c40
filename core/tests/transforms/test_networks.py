"""Random networks of products and convolutions, before and after the passes that are about these alone.

The suite's random programs seldom hold what these passes look for: each test says that its pass found something.
"""

from __future__ import annotations

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.ir import Block, Builder, Operation, Region, TensorType, Value, interpret, verify
from oarlock.ir.passes import Pass, PassManager
from oarlock.ops import ArrayBuilder, array_context, tensor
from oarlock.transforms import Decompose, Horizontal, MixedPrecision, channels_last

CONTEXT = array_context()
F32 = dtypes.float32
UNARY = ("abs", "negative", "tanh")
NONE = ((), ())


def made(types: list[TensorType], results: list[Value], block: Block) -> Operation:
    Builder(CONTEXT, block).create("builtin.return", results)
    function = Operation(CONTEXT.definition("builtin.function"), (), {"name": "f"}, (), [Region([block])])
    verify(function)
    return function


def products(random: np.random.Generator) -> Operation:
    """Values times constants, several of them often times one value, with element-wise work in between."""
    rows = int(random.integers(1, 5))
    types = [TensorType(F32, (rows, int(random.integers(1, 7)))) for _ in range(2)]
    block = Block(types)
    b = ArrayBuilder(CONTEXT, block)
    values: list[Value] = list(block.args)
    for _ in range(int(random.integers(3, 9))):
        x = values[int(random.integers(max(0, len(values) - 3), len(values)))]
        if random.random() < 0.3:
            values.append(b(str(random.choice(UNARY)), x))
            continue
        for _ in range(int(random.integers(1, 4))):
            size = (tensor(x).static_shape[1], int(random.integers(1, 7)))
            weight = b.constant((random.standard_normal(size) / 2).astype(np.float32))
            values.append(b("dot_general", x, weight, batch=NONE, contract=((1,), (0,)), dtype=F32))
    return made(types, values[-4:], block)


def convolutions(random: np.random.Generator) -> Operation:
    """Convolutions one after the other, with biases, element-wise work, pooling and sums of two branches."""
    channels, size = int(random.integers(2, 20)), int(random.integers(5, 10))
    types = [TensorType(F32, (int(random.integers(1, 3)), channels, size, size))]
    block = Block(types)
    b = ArrayBuilder(CONTEXT, block)
    x: Value = block.args[0]
    seen: list[Value] = []
    for _ in range(int(random.integers(2, 6))):
        channels = tensor(x).static_shape[1]
        outputs, width = (
            (channels if random.random() < 0.5 else int(random.integers(2, 20))),
            int(random.integers(1, 4)),
        )
        grouped = random.random() < 0.2
        outputs = channels if grouped else outputs
        shape = (outputs, 1 if grouped else channels, width, width)
        weight = b.constant((random.standard_normal(shape) / (width * channels**0.5)).astype(np.float32))
        pad = ((width // 2, (width - 1) // 2),) * 2
        x = b("convolution", x, weight, strides=(1, 1), padding=pad, dilation=(1, 1),
              groups=channels if grouped else 1)  # fmt: skip
        bias = b.constant(random.standard_normal((outputs, 1, 1)).astype(np.float32))
        x = b(str(random.choice(UNARY)), b("add", x, bias))
        same = [v for v in seen if v.type == x.type]
        if same and random.random() < 0.6:
            x = b("add", x, same[-1])
        seen.append(x)
    return made(types, [x, b("reduce_sum", x, axes=(2, 3), keepdims=False)], block)


PASSES: dict[str, tuple[Pass, float]] = {
    "horizontal": (Horizontal(), 1e-5),
    "channels_last": (channels_last.ChannelsLast(), 1e-4),
    "mixed_float16": (MixedPrecision(dtypes.float16), 0.05),
    "mixed_bfloat16": (MixedPrecision(dtypes.bfloat16), 0.3),
}
"""Each with how far it may change a result, relative to the largest value: another order of sums, rounded operands."""


CASES = [("horizontal", products), ("channels_last", convolutions)]
CASES += [(f"mixed_{dtype}", network) for dtype in ("float16", "bfloat16") for network in (products, convolutions)]


@pytest.mark.parametrize(("name", "network"), CASES)
def test_random_networks_mean_the_same(name: str, network, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(channels_last, "REPAID", 0)  # small images are turned too
    changed, (item, allowed) = 0, PASSES[name]
    for seed in range(25):
        random = np.random.default_rng(seed)
        function = network(random)
        given = [
            random.standard_normal(tensor(v).static_shape).astype(np.float32) for v in function.regions[0].block.args
        ]
        expected = interpret(function, given)
        manager = PassManager(CONTEXT, [Decompose(), item], level=3)
        after = manager.run_on_copy(function)
        changed += any(manager.results[-1].statistics.values())
        for found, wanted in zip(interpret(after, given), expected, strict=True):
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=0, atol=allowed * (1 + np.abs(wanted).max()))
    assert changed > 5, changed
