"""What each renderer prints, kept in golden files: a change of the text is seen in review."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oarlock import dtypes as dt
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.legalise import legalise
from oarlock.codegen.render import languages, register, renderer
from oarlock.errors import DuplicatePluginError, UnsupportedError
from oarlock.ir import BufferType, Operation, Value
from oarlock.target import Limits, Target

GOLDEN = Path(__file__).parent.parent / "golden"
SUFFIX = {"c99": "c", "cuda": "cu", "opencl": "cl", "llvm": "ll", "wgsl": "wgsl"}
ALL = frozenset(d.name for d in dt.ALL) - {"float16", "bfloat16"}


def target(language: str) -> Target:
    threads = Limits(max_block=(64, 1, 1), max_threads=64) if language in ("cuda", "opencl", "wgsl") else Limits()
    if language == "wgsl":
        return Target(language, storage=(("bool", "uint32"), ("float16", "float32")), limits=threads)
    flags = ("prefer-vector-width=256",) if language == "llvm" else ()
    return Target(language, flags=flags, compute=ALL, storage=(("float16", "uint16"),), limits=threads)


def axpy() -> Operation:
    """y[i] += a * x[i + offset], over a block's share of n."""
    buffers = [("x", BufferType(dt.float32, "global", "read")), ("y", BufferType(dt.float32))]
    b = KernelBuilder("axpy", buffers, [("offset_x", dt.int32), ("n", dt.int32), ("a", dt.float32)])
    x, y, offset, n, a = b.arguments.values()
    start = b.mul(b.position("block_id", 0), b.i(256))

    def step(i: Value, _: list[Value]) -> list[Value]:
        b.store(y, i, b.fma(a, b.load(x, b.add(i, offset)), b.load(y, i)))
        return []

    b.loop(start, b.min(b.add(start, b.i(256)), n), step)
    return b.function


def dot_rows() -> Operation:
    """Row sums of products, in vectors of four; an if, a bool buffer, an unrolled loop."""
    buffers = [(name, BufferType(dt.float32, "global", "read")) for name in ("x", "y")]
    buffers += [("o", BufferType(dt.float32, "global", "write")), ("big", BufferType(dt.bool_, "global", "write"))]
    b = KernelBuilder("dot_rows", buffers, [("k", dt.int32)])
    x, y, o, big, k = b.arguments.values()
    row = b.position("block_id", 0)

    def step(j: Value, carried: list[Value]) -> list[Value]:
        at = b.add(b.mul(row, k), j)
        return [b.add(carried[0], b.mul(b.load(x, at, 4), b.load(y, at, 4)))]

    (lanes,) = b.loop(b.i(0), k, step, [b.const(0.0, dt.float32, 4)], b.i(4))
    table = b.private(dt.float32, 4)
    for lane in range(4):
        b.store(table, b.i(lane), b.emit("extract", (lanes,), {"index": lane}))
    (total,) = b.loop(
        b.i(0), b.i(4), lambda i, c: [b.add(c[0], b.load(table, i))], [b.const(0.1, dt.float32)], unroll=True
    )
    large = b.lt(b.const(float("inf"), dt.float32), total)
    (value,) = b.branch(large, lambda: [b.const(float("nan"), dt.float32)], lambda: [total])
    b.store(o, row, value)
    b.store(big, row, large)
    return b.function


def half_add() -> Operation:
    """float16 by bit arithmetic."""
    names = {"x": "read", "y": "read", "o": "write"}
    b = KernelBuilder("half_add", [(n, BufferType(dt.float16, "global", a)) for n, a in names.items()], [])  # type: ignore[arg-type]
    x, y, o = b.arguments.values()
    i = b.position("block_id", 0)
    b.store(o, i, b.add(b.load(x, i), b.load(y, i)))
    return b.function


def copy_four() -> Operation:
    """Four neighbouring numbers at once, at an index of 64 bits, in blocks of 32 x 2."""
    buffers = [("x", BufferType(dt.float32, "global", "read")), ("y", BufferType(dt.float32, "global", "write"))]
    b = KernelBuilder("copy_four", buffers, [("n", dt.int64)], (32, 2, 1), dt.int64)
    x, y, n = b.arguments.values()
    at = b.mul(b.raw_convert(b.position("thread_id", 1), dt.int64), n)
    b.store(y, at, b.load(x, at, 4))
    return b.function


def sum_row() -> Operation:
    """A row's sum by shuffles."""
    buffers = [("x", BufferType(dt.float32, "global", "read")), ("y", BufferType(dt.float32, "global", "write"))]
    b = KernelBuilder("sum_row", buffers, [], (32, 1, 1))
    total = b.load(b.arguments["x"], b.position("thread_id", 0))
    for mask in (16, 8, 4, 2, 1):
        total = b.add(total, b.shuffle(total, mask, 32))
    b.store(b.arguments["y"], b.position("thread_id", 0), total)
    return b.function


def multiply() -> Operation:
    """A step of a tensor core, from shared memory to shared memory."""
    b = KernelBuilder("multiply", [("y", BufferType(dt.float32, "global", "write"))], [], (32, 1, 1))
    left, right, result = b.local(dt.float16, 384), b.local(dt.float16, 384), b.local(dt.float32, 256)
    b.barrier()
    total = b.matrix_fma(left, b.i(0), right, b.i(0), b.const(0, dt.float32, 8), 24, "float16", 32)
    b.matrix_store(result, b.i(0), total, 16, 32)
    b.barrier()
    b.store(b.arguments["y"], b.position("thread_id", 0), b.load(result, b.position("thread_id", 0)))
    return b.function


def kernels(language: str) -> tuple[Callable[[], Operation], ...]:
    """Those that the language can say: WGSL has no fma that rounds once, CUDA has warps and tensor cores."""
    together = (copy_four, sum_row, multiply) if language == "cuda" else ()
    return (dot_rows, half_add) if language == "wgsl" else (axpy, dot_rows, half_add, *together)


@pytest.mark.parametrize(
    ("language", "make"), [(language, make) for language in SUFFIX for make in kernels(language)],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)  # fmt: skip
def test_rendered_text_is_the_golden_text(language: str, make: Callable[[], Operation], update_golden: bool) -> None:
    goal = target(language)
    text = renderer(language).render([legalise(make(), goal)], goal)
    path = GOLDEN / f"{make.__name__}.{SUFFIX[language]}"
    if update_golden:
        path.write_text(text)
    assert text == path.read_text(), f"pytest --update-golden writes {path.name} anew"


def test_rendering_is_deterministic_and_joins_kernels() -> None:
    for language in SUFFIX:
        goal = target(language)
        functions = [[legalise(make(), goal) for make in kernels(language)[:2]] for _ in range(2)]
        assert len({renderer(language).render(pair, goal) for pair in functions}) == 1


def test_every_language_has_a_renderer_and_an_unknown_one_is_refused() -> None:
    assert set(SUFFIX) <= set(languages())
    with pytest.raises(UnsupportedError, match=r"no renderer for language 'metal'; there are c99, "):
        renderer("metal")


def test_a_plugin_adds_a_language_once() -> None:
    register("made_up", lambda: renderer("c99"))
    assert renderer("made_up") is renderer("c99")
    with pytest.raises(DuplicatePluginError, match="'made_up' already"):
        register("made_up", lambda: renderer("c99"))


def test_what_a_language_cannot_say_is_refused() -> None:
    b = KernelBuilder("k", [("x", BufferType(dt.float32))], [])
    b.store(b.arguments["x"], b.i(0), b.load(b.arguments["x"], b.i(0), 3))
    with pytest.raises(UnsupportedError, match="c99 has no vectors of 3 lanes; it has 2, 4"):
        renderer("c99").render([b.function], target("c99"))
    with pytest.raises(UnsupportedError, match="wgsl: fma may round twice"):
        renderer("wgsl").render([axpy()], target("wgsl"))
    raw = KernelBuilder("k", [("x", BufferType(dt.bool_))], [])
    raw.store(raw.arguments["x"], raw.i(0), raw.const(True, dt.bool_))
    for language in SUFFIX:
        with pytest.raises(UnsupportedError, match="legalise the kernel first"):
            renderer(language).render([raw.function], target(language))
