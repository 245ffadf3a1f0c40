"""Every arithmetic rule at every dtype and special value: simplified programs keep every bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import OarlockError
from oarlock.ir import Block, Builder, Operation, Region, TensorType, Value, interpret
from oarlock.ir.interpret import Array
from oarlock.ops import RECORDS, ArrayBuilder, array_context
from oarlock.transforms import DeadCode, Fold, Simplify
from oarlock.transforms.rules.arithmetic import is_lossless

CONTEXT = array_context()
BINARY = sorted(n for n, r in RECORDS.items() if r.is_elementwise and r.operands == ("x", "y") and r.is_primitive)
UNARY = ("abs", "bitwise_invert", "ceil", "floor", "isnan", "negative", "round", "sign", "sqrt", "trunc")
ROUNDING = ("floor", "ceil", "trunc", "round")


def specials(dtype: DType) -> Array:
    """Values at which rules go wrong."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        return np.array(
            [v for v in (0, 1, 2, 3, 4, 5, -1, -2, -7, info.min, info.max) if info.min <= v <= info.max], dtype.numpy
        )
    tiny = {16: 6e-8, 32: 1e-45, 64: 5e-324}[dtype.bits]
    values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        0.5,
        4.0,
        3.0,
        1.5,
        7.25,
        np.inf,
        -np.inf,
        np.nan,
        tiny,
        65504.0,
        2.0**-14,
    ]
    with np.errstate(over="ignore"):
        return np.array([*values, 2.0**-126, 2.0**126, 2.0**-127]).astype(dtype.numpy)


def bits(array: Array) -> Array:
    """The bits of ``array``, those of NaN made one."""
    if dtypes.from_numpy(array.dtype).is_float:
        with np.errstate(invalid="ignore"):
            array = np.where(np.isnan(array.astype(np.float64)), array.dtype.type(np.nan), array)
    return array.view(f"u{array.dtype.itemsize}")


def check(
    types: list[DType], build: Callable[[ArrayBuilder, list[Value]], list[Value]], arguments: list[Array]
) -> dict[str, int]:
    """Simplify what ``build`` makes, and compare; how often each rule was applied."""
    block = Block([TensorType(d, a.shape) for d, a in zip(types, arguments, strict=True)])
    results = build(ArrayBuilder(CONTEXT, block), [*block.args])
    Builder(CONTEXT, block).create("builtin.return", results)
    function = Operation(CONTEXT.definition("builtin.function"), (), {"name": "f"}, (), [Region([block])])
    producers = [str(value.defining_op) for value in results]
    expected = interpret(function, arguments)
    counts = Simplify().run(function, CONTEXT)
    for actual, wanted, producer in zip(interpret(function, arguments), expected, producers, strict=True):
        np.testing.assert_array_equal(bits(actual), bits(wanted), err_msg=f"{producer}: {actual} != {wanted}")
    return dict(counts)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_binary_rules_keep_every_bit(dtype: DType) -> None:
    values = specials(dtype)

    def build(b: ArrayBuilder, arguments: list[Value]) -> list[Value]:
        (x,) = arguments
        results = []
        for name in BINARY:
            if dtype not in RECORDS[name].dtypes:
                continue
            results.append(b(name, x, x))
            for value in values:
                constant = b.constant(value)
                results += [b(name, x, constant), b(name, constant, x)]
                if value == 1:
                    wide = b("broadcast", constant, shape=(2, len(values)), dims=())
                    results.append(b(name, x, wide))
        return results

    counts = check([dtype], build, [values])
    if dtype.is_float:
        assert counts["add_neutral"] >= 1 and counts["divide_by_power_of_two"] >= 6 and counts["small_power"] >= 4
    elif dtype.is_integer:
        assert counts["add_neutral"] >= 2 and counts["multiply_absorbing"] >= 1 and counts["remainder_absorbing"] == 2


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_unary_rules_keep_every_bit(dtype: DType) -> None:
    def build(b: ArrayBuilder, arguments: list[Value]) -> list[Value]:
        names = [n for n in UNARY if dtype in RECORDS[n].dtypes]
        results = []
        for first in names:
            inner = b(first, arguments[0])
            for second in names:
                try:
                    results.append(b(second, inner))
                except OarlockError:
                    continue
        return results

    check([dtype], build, [specials(dtype)])


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.is_integer], ids=str)
def test_rounding_of_integers_vanishes(dtype: DType) -> None:
    b = ArrayBuilder(CONTEXT, Block([TensorType(dtype, (4,))]))
    b.create("builtin.return", [b(name, b.block.args[0]) for name in ROUNDING])
    function = Operation(CONTEXT.definition("builtin.function"), (), {"name": "f"}, (), [Region([b.block])])
    Simplify().run(function, CONTEXT)
    assert b.block.terminator.operands == (b.block.args[0],) * 4


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_conversion_rules_keep_every_bit(dtype: DType) -> None:
    def build(b: ArrayBuilder, arguments: list[Value]) -> list[Value]:
        chains = [b("convert", b("convert", arguments[0], dtype=d), dtype=e) for d in dtypes.ALL for e in dtypes.ALL]
        same = [d for d in dtypes.ALL if d.bits == dtype.bits and dtypes.bool_ not in (d, dtype)]
        casts = [b("bitcast", b("bitcast", arguments[0], dtype=d), dtype=e) for d in same for e in same]
        return [*chains, *casts]

    counts = check([dtype], build, [specials(dtype)])
    assert counts.get("convert_twice", 0) + counts["convert_same"] >= 13


@pytest.mark.parametrize("source", dtypes.ALL, ids=str)
def test_lossless_conversions_come_back(source: DType) -> None:
    values = specials(source)
    if source.bits <= 16 and source.kind != "bool":
        values = np.arange(1 << source.bits, dtype=np.uint16).astype(f"u{source.itemsize}").view(source.numpy)
    targets = [target for target in dtypes.ALL if is_lossless(source, target)]
    b = ArrayBuilder(CONTEXT, Block([TensorType(source, values.shape)]))
    there = [b("convert", b.block.args[0], dtype=target) for target in targets]
    b.create("builtin.return", [b("convert", value, dtype=source) for value in there])
    function = Operation(CONTEXT.definition("builtin.function"), (), {"name": "f"}, (), [Region([b.block])])
    for target, back in zip(targets, interpret(function, [values]), strict=True):
        np.testing.assert_array_equal(bits(back), bits(values), err_msg=str(target))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_fold_computes_as_the_interpreter_does(dtype: DType) -> None:
    b = ArrayBuilder(CONTEXT, Block())
    x = b.constant(specials(dtype))
    names = [n for n in UNARY if dtype in RECORDS[n].dtypes]
    results = [b(name, x) for name in names]
    results += [b(name, x, x) for name in BINARY if dtype in RECORDS[name].dtypes]
    b.create("builtin.return", results)
    function = Operation(CONTEXT.definition("builtin.function"), (), {"name": "f"}, (), [Region([b.block])])
    expected = interpret(function, [])
    assert Fold().run(function, CONTEXT)["folded"] == len(results)
    for actual, wanted in zip(interpret(function, []), expected, strict=True):
        np.testing.assert_array_equal(bits(actual), bits(wanted))


# --- what folding keeps ----------------------------------------------------------------------------------------------


def folded(build: Callable[[ArrayBuilder], Value], **limits: int) -> list[str]:
    b = ArrayBuilder(CONTEXT, Block())
    b.create("builtin.return", [build(b)])
    function = Operation(CONTEXT.definition("builtin.function"), (), {"name": "f"}, (), [Region([b.block])])
    Fold(**limits).run(function, CONTEXT)
    DeadCode().run(function, CONTEXT)
    return [op.name.split(".")[1] for op in b.block.ops]


def ramp(count: int) -> Array:
    return np.arange(count, dtype=np.float32)


def test_large_results_stay_unless_they_replace_their_operands() -> None:
    def pair(b: ArrayBuilder) -> Value:
        x = b.constant(ramp(64))
        return b("concat", b("negative", x), x, axis=0)

    assert folded(lambda b: b("negative", b.constant(ramp(64))), limit=64) == ["constant", "return"]
    assert folded(pair, limit=64) == ["constant", "negative", "concat", "return"]
    assert folded(pair) == ["constant", "return"]


def test_much_work_stays() -> None:
    assert folded(lambda b: b("negative", b.constant(ramp(64))), work=128) == ["constant", "negative", "return"]


def test_equal_values_become_broadcasts_of_any_size() -> None:
    zeros = np.zeros((1000, 100), np.float32)
    assert folded(lambda b: b("exp", b.constant(zeros)), limit=0) == ["constant", "broadcast", "return"]
