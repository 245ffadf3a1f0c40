"""The generated set: programs out of the operator records and out of fusion groups, with what judges their results."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import Block, Operation, Region, ScalarType, TensorType, Type, Value
from oarlock.ir.interpret import interpret
from oarlock.ops import RECORDS, ArrayBuilder, Record, Sample, array_context
from oarlock.ops.tolerance import check
from oarlock.target import Target

__all__ = ["TARGETS", "Program", "programs"]

Array = npt.NDArray[Any]
Judge = Callable[[Sequence[Array]], str]
_LARGEST = 240
"""Elements of all operands of a record's sample together: the interpreter goes thread by thread."""
_DENSE = 96
_CONTEXT = array_context()

_FUNCTIONS = Target(
    "llvm",
    compute=frozenset(d.name for d in dtypes.ALL if not (d.is_float and d.bits == 16)),
    storage=(("float16", "uint16"), ("bfloat16", "uint16"), ("bool", "uint8")),
)
_FUNCTIONS = _FUNCTIONS.with_limits(vector_width=8)
_NARROW = Target(
    "llvm",
    compute=frozenset(("bool", "int32", "uint32", "float32")),
    storage=(
        ("bool", "int32"), ("int8", "int32"), ("int16", "int32"), ("uint8", "uint32"), ("uint16", "uint32"),
        ("float16", "uint16"), ("bfloat16", "uint16"),
    ),
)  # fmt: skip
TARGETS: dict[str, Target] = {
    "functions": _FUNCTIONS,
    "threads": _FUNCTIONS.with_limits(max_block=(32, 1, 1), max_threads=32, local_memory=1 << 15, max_grid=(7, 7, 7)),
    "tight": _FUNCTIONS.with_limits(max_buffers=4, max_grid=(11, 11, 11), vector_width=1),
    "narrow": _NARROW,
}
"""Blocks as functions, blocks with threads, tight limits without vectors, and 32-bit numbers alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A function with operands; ``targets`` are those to lower it for, ``judge`` says what is wrong with results."""

    name: str
    function: Operation
    operands: tuple[Array, ...]
    scalar: bool
    targets: tuple[str, ...]
    judge: Judge
    rendered: bool = True
    """Whether it is also rendered and run on a device: what its operators consist of is, in any case."""


def programs() -> Iterator[Program]:
    """Every program of the set, the same each time. Of records the primitives: what others consist of."""
    yield from _fused()
    for record in RECORDS.values():
        if not record.host and record.is_primitive:
            yield from _of_record(record)


def _function(types: Sequence[Type], body: Callable[..., Sequence[Value]]) -> Operation:
    block = Block(types)
    builder = ArrayBuilder(_CONTEXT, block)
    builder.create("builtin.return", list(body(builder, *block.args)))
    return Operation(_CONTEXT.definition("builtin.function"), (), {"name": "f"}, (), [Region([block])])


# --- records ----------------------------------------------------------------------------------------------------------


def _of_record(record: Record) -> Iterator[Program]:
    """A record with its main dtype; a primitive also with an integer and with another dtype, by turns."""
    assert record.samples is not None
    turn = zlib.crc32(record.name.encode())
    main = dtypes.float32 if dtypes.float32 in record.dtypes else record.dtypes[0]
    others = [dtype for dtype in record.dtypes if dtype not in (main, dtypes.float64)]
    integers = [dtype for dtype in others if dtype.kind == "int"]
    shorter = [dtype for dtype in others if dtype.kind != "int"]
    chosen = [main]
    if record.is_primitive and integers:
        chosen.append(integers[turn % len(integers)])
    if record.is_primitive and shorter and (turn % 3 == 0 or not integers):
        chosen.append(shorter[turn % len(shorter)])
    for number, dtype in enumerate(dict.fromkeys(chosen)):
        random = np.random.default_rng([turn, dtype.bits])
        yield _program(record, dtype, _sample(record, dtype, random, turn), _targets(record, dtype, number, turn))


def _targets(record: Record, dtype: DType, number: int, turn: int) -> tuple[str, ...]:
    if number and dtype.bits <= 32 and dtype != dtypes.bool_ and turn % 2 and record.is_elementwise:
        return ("narrow",)
    if number == 0 and record.family in ("reduce", "contract", "sort", "index") and record.is_primitive:
        return ("functions", "threads" if turn % 3 else "tight")
    return ("functions",)


def _sample(record: Record, dtype: DType, random: np.random.Generator, turn: int) -> Sample:
    """One call: the values of all samples together where the record takes them flat, else one of the larger."""
    assert record.samples is not None
    samples = [each for each in record.samples(dtype, random) if sum(x.size for x in each.operands) <= _LARGEST]
    if record.is_elementwise and not record.scalars and samples[0].operands:
        same = [each for each in samples if each.attributes == samples[0].attributes]
        rows = [[x.reshape(-1) for x in np.broadcast_arrays(*each.operands)] for each in same]
        if all(len(row) == len(rows[0]) for row in rows):
            columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
            picked = random.permutation(len(columns[0]))[: 2 * _DENSE]
            operands = [column[picked] for column in columns]
            if len({x.dtype for x in operands}) == 1 and len(operands) == 2:
                operands[1] = np.where(np.arange(len(operands[1])) % 5 == 0, operands[0], operands[1])
                operands[1] = np.where(np.arange(len(operands[1])) % 7 == 3, 0, operands[1]).astype(dtype.numpy)
            if len(operands) == 1 and dtype.is_float and record.name not in ("convert", "bitcast"):
                dense = np.linspace(-9, 9, _DENSE, dtype=np.float64).astype(dtype.numpy)
                operands = [np.concatenate([operands[0], dense])]
            flat = Sample(tuple(operands), samples[0].attributes)
            if _accepts(record, flat):
                return flat
    ranked = sorted(samples, key=lambda each: sum(x.size for x in each.operands))
    return ranked[-1 - turn % 2] if len(ranked) > 1 else ranked[0]


def _accepts(record: Record, sample: Sample) -> bool:
    try:
        record.infer_types(_types(record, sample), sample.attributes)
    except Exception:  # whatever it says against flat operands
        return False
    return True


def _types(record: Record, sample: Sample) -> list[Type]:
    kinds = [(dtypes.from_numpy(x.dtype), x.shape) for x in sample.operands]
    return [ScalarType(dtype) if record.scalars else TensorType(dtype, shape) for dtype, shape in kinds]


def _program(record: Record, dtype: DType, sample: Sample, targets: tuple[str, ...]) -> Program:
    function = _function(_types(record, sample), lambda b, *x: b.many(record.name, *x, **sample.attributes))

    def judge(found: Sequence[Array]) -> str:
        with np.errstate(all="ignore"):
            return str(check(record, sample.operands, sample.attributes, found) or "")

    return Program(
        f"{record.name}/{dtype}", function, tuple(sample.operands), record.scalars, targets, judge, record.is_primitive
    )


# --- fusion groups ----------------------------------------------------------------------------------------------------

_ALL = ("functions", "threads", "tight")
_ONCE = (
    "moves",
    "repeated",
    "converted",
    "not numbers",
    "running back",
    "scattered sums",
    "rows of negatives",
    "equal keys",
)
"""Programs that a schedule does not change."""


def _fused() -> Iterator[Program]:
    """Programs whose operators share kernels, and shapes that the samples do not have."""
    for name, shapes, body in _BODIES:
        random = np.random.default_rng(zlib.crc32(name.encode()))
        operands = tuple(random.standard_normal(shape).astype(np.float32) for shape in shapes)
        function = _function([TensorType(dtypes.float32, shape) for shape in shapes], body)
        targets = (*_ALL, "narrow") if name == "short numbers" else _ALL[:1] if name in _ONCE else _ALL
        yield Program(f"fused {name}", function, operands, False, targets, _against(function, operands))


def _against(function: Operation, operands: Sequence[Array]) -> Judge:
    """The judge that compares with the interpreter of array programs."""

    def judge(found: Sequence[Array]) -> str:
        for got, want in zip(found, interpret(function, list(operands)), strict=True):
            if got.dtype != want.dtype or got.shape != want.shape:
                return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
            near = got == want
            if np.issubdtype(want.dtype, np.floating):
                near = np.isclose(got, want, 2e-5, 2e-5, equal_nan=True)
            if not near.all():
                at = np.unravel_index(int(np.argmin(near)), near.shape) if near.shape else ()
                return f"{got[at]} instead of {want[at]} at {tuple(int(i) for i in at)}"
        return ""

    return judge


def _softmax(b: ArrayBuilder, x: Value) -> list[Value]:
    return [b("softmax", x, axis=1)]


def _chain(b: ArrayBuilder, x: Value, y: Value) -> list[Value]:
    gated = b("multiply", b("maximum", b("add", x, y), b.full(0, x)), b("negative", y))
    return [gated, b("subtract", gated, y)]


def _sums(b: ArrayBuilder, x: Value) -> list[Value]:
    total = b("reduce_sum", x, axes=(1,), keepdims=True)
    high = b("reduce_max", x, axes=(1,), keepdims=True)
    return [b("subtract", x, high), total, b("multiply", x, total)]


def _negative_rows(b: ArrayBuilder, x: Value) -> list[Value]:
    below = b("negative", b("abs", x))
    return [b("reduce_max", below, axes=(1,), keepdims=False), b("reduce_min", b("abs", x), axes=(1,), keepdims=False)]


def _columns(b: ArrayBuilder, x: Value) -> list[Value]:
    return [b("reduce_sum", x, axes=(0,), keepdims=False), b("reduce_min", x, axes=(0,), keepdims=False)]


def _product(b: ArrayBuilder, x: Value, y: Value, bias: Value) -> list[Value]:
    return [b("add", b("matmul", x, y), bias)]


def _product_along(b: ArrayBuilder, x: Value, y: Value) -> list[Value]:
    return [b("matmul", x, b("transpose", y, permutation=(1, 0)))]


def _strided_convolution(b: ArrayBuilder, x: Value, w: Value) -> list[Value]:
    return [b("convolution", x, w, strides=(1, 2), padding=((1, 1), (2, 1)), dilation=(1, 1), groups=1)]


def _grouped_convolution(b: ArrayBuilder, x: Value, w: Value) -> list[Value]:
    return [b("convolution", x, w, strides=(1, 1), padding=((0, 0), (0, 1)), dilation=(1, 2), groups=2)]


def _moves(b: ArrayBuilder, x: Value) -> list[Value]:
    turned = b("transpose", b("reshape", x, shape=(4, 3, 5)), permutation=(1, 2, 0))
    part = b("slice", turned, starts=(0, 1, 1), limits=(3, 5, 4), steps=(1, 2, 1))
    return [b("reverse", b("multiply", part, part), axes=(1, 2))]


def _joined(b: ArrayBuilder, *x: Value) -> list[Value]:
    return [b("multiply", b("concat", *x, axis=1), b("concat", *x[::-1], axis=1))]


def _repeated(b: ArrayBuilder, x: Value, y: Value) -> list[Value]:
    return [b("add", x, y), b("multiply", b("broadcast", b("reshape", y, shape=(7,)), shape=(5, 7), dims=(1,)), x)]


def _spread(b: ArrayBuilder, x: Value, y: Value) -> list[Value]:
    return [b("multiply", b("broadcast", x, shape=(3, 4, 5), dims=(0, 2)), y)]


def _running(b: ArrayBuilder, x: Value) -> list[Value]:
    return [b("scan", x, kind="sum", axis=1, reverse=False, exclusive=False)]


def _scattered(b: ArrayBuilder, x: Value, updates: Value) -> list[Value]:
    places = b.constant(np.array([0, 2, 2, 5, 0], np.int32), dtypes.int32)
    return [b("scatter", x, places, updates, axis=0, kind="add")]


def _running_back(b: ArrayBuilder, x: Value) -> list[Value]:
    return [
        b("scan", x, kind="sum", axis=1, reverse=True, exclusive=False),
        b("scan", x, kind="sum", axis=0, reverse=False, exclusive=True),
    ]


def _converted(b: ArrayBuilder, x: Value) -> list[Value]:
    zero = b("subtract", x, x)
    far, nothing = b("multiply", x, b.full(1e12, x)), b("divide", zero, zero)
    return [b.convert(far, dtypes.int32), b.convert(nothing, dtypes.int32)]


def _not_numbers(b: ArrayBuilder, x: Value) -> list[Value]:
    root = b("sqrt", x)
    return [b("maximum", root, x), *b.many("sort", root, axis=0, descending=False)]


def _equal_keys(b: ArrayBuilder, x: Value) -> list[Value]:
    return [*b.many("sort", b.convert(x, dtypes.int32), axis=1, descending=False)]


def _short(b: ArrayBuilder, x: Value, y: Value) -> list[Value]:
    found = []
    for dtype in (dtypes.float16, dtypes.bfloat16):
        left, right = b.convert(x, dtype), b.convert(y, dtype)
        found.append(b.convert(b("add", b("multiply", left, right), left), dtypes.float32))
    small = b.convert(b("multiply", x, b.full(50, x)), dtypes.int8)
    twice = b("add", small, small)
    return [*found, twice, b("less", twice, small)]


_Body = Callable[..., list[Value]]
_BODIES: tuple[tuple[str, tuple[tuple[int, ...], ...], _Body], ...] = (
    ("softmax", ((3, 150),), _softmax),
    ("chain", ((9, 33), (9, 33)), _chain),
    ("chain of a long row", ((4500,), (4500,)), _chain),
    ("rows", ((5, 70),), _sums),
    ("long rows", ((2, 201),), _sums),
    ("many rows", ((40, 66),), _sums),
    ("rows of negatives", ((3, 130),), _negative_rows),
    ("columns", ((13, 70),), _columns),
    ("product", ((7, 19), (19, 21), (21,)), _product),
    ("product along", ((5, 21), (6, 21)), _product_along),
    ("strided convolution", ((1, 2, 5, 13), (3, 2, 3, 3)), _strided_convolution),
    ("grouped convolution", ((1, 4, 3, 12), (6, 2, 1, 3)), _grouped_convolution),
    ("moves", ((12, 5),), _moves),
    ("joined", ((2, 3), (2, 4), (2, 1), (2, 2)), _joined),
    ("repeated", ((5, 7), (1, 7)), _repeated),
    ("spread", ((3, 5), (3, 4, 5)), _spread),
    ("converted", ((24,),), _converted),
    ("not numbers", ((13,),), _not_numbers),
    ("short numbers", ((40,), (40,)), _short),
    ("running sum", ((1, 1100),), _running),
    ("running back", ((3, 9),), _running_back),
    ("scattered sums", ((6, 3), (5, 3)), _scattered),
    ("equal keys", ((9, 13),), _equal_keys),
)
