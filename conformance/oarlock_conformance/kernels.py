"""Small kernels for runtime cases, built in the kernel dialect, so that they run in every language."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder
from oarlock.dtypes import DType
from oarlock.ir import BufferType, Operation, Value

__all__ = [
    "arithmetic",
    "broadcast_scalar",
    "copy_scalars",
    "fused",
    "increment",
    "last_block",
    "local_ring",
    "reverse_in_block",
    "scale",
    "scaled",
    "spin",
    "stamp",
    "sum_of",
    "sum_of_scalars",
    "thread_ids",
    "vectors",
    "weighted_sum",
]

Body = Callable[[KernelBuilder, Callable[[str, Value], Value]], None]


def _kernel(
    name: str,
    buffers: Sequence[tuple[str, DType, str]],
    scalars: Sequence[tuple[str, DType]],
    body: Body,
    block: tuple[int, int, int] = (1, 1, 1),
) -> Operation:
    """A kernel whose scalar block begins with an element offset per buffer; ``body`` gets ``at(buffer, index)``."""
    offsets = [(f"{buffer}_offset", dtypes.int32) for buffer, _, _ in buffers]
    types = [(buffer, BufferType(dtype, "global", access)) for buffer, dtype, access in buffers]  # type: ignore[arg-type]
    b = KernelBuilder(name, types, [*offsets, *scalars], block)

    def at(buffer: str, index: Value) -> Value:
        return b.add(b.arguments[f"{buffer}_offset"], index)

    body(b, at)
    return b.function


def stamp() -> Operation:
    """``out[i] += salt + i`` for each block i, counted along x, then y, then z: one left out, or run twice, shows."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        x, y, z = (b.position("block_id", axis) for axis in range(3))
        i = b.add(b.mul(b.add(b.mul(z, b.arguments["high"]), y), b.arguments["wide"]), x)
        place = at("out", i)
        out = b.arguments["out"]
        b.store(out, place, b.add(b.load(out, place), b.add(b.arguments["salt"], i)))

    scalars = [("salt", dtypes.int32), ("wide", dtypes.int32), ("high", dtypes.int32)]
    return _kernel("stamp", [("out", dtypes.int32, "both")], scalars, body)


def increment() -> Operation:
    """``y[i] = x[i] + by`` for each block i of a row of blocks."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        i = b.position("block_id", 0)
        b.store(b.arguments["y"], at("y", i), b.add(b.load(b.arguments["x"], at("x", i)), b.arguments["by"]))

    buffers = [("x", dtypes.int32, "read"), ("y", dtypes.int32, "write")]
    return _kernel("increment", buffers, [("by", dtypes.int32)], body)


def scale(factor: int) -> Operation:
    """``y[i] = factor * x[i]`` for each block i of a row of blocks: for every factor a kernel of the same name."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        i = b.position("block_id", 0)
        b.store(
            b.arguments["y"], at("y", i), b.mul(b.load(b.arguments["x"], at("x", i)), b.const(factor, dtypes.int32))
        )

    return _kernel("scale", [("x", dtypes.int32, "read"), ("y", dtypes.int32, "write")], [], body)


def spin() -> Operation:
    """One block of ``rounds`` steps of a generator, none of which can be left out: ``out[0] = last state``.

    It also stores ``seed`` in ``out[1]`` at its end, so a reader that comes too early sees an old value.
    """

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        kind = dtypes.uint32
        out, seed = b.arguments["out"], b.arguments["seed"]

        def step(index: Value, carried: list[Value]) -> list[Value]:
            (x,) = carried
            for operation, count in (("shl", 13), ("shr", 17), ("shl", 5)):
                x = b.binary("xor", x, b.binary(operation, x, b.const(count, kind)))
            return [x]

        start = b.binary("or", seed, b.const(1, kind))
        (last,) = b.loop(b.const(0, dtypes.int32), b.arguments["rounds"], step, [start])
        b.store(out, at("out", b.i(0)), last)
        b.store(out, at("out", b.i(1)), seed)

    scalars = [("rounds", dtypes.int32), ("seed", dtypes.uint32)]
    return _kernel("spin", [("out", dtypes.uint32, "write")], scalars, body)


def copy_scalars(kinds: Sequence[DType]) -> Operation:
    """Stores a scalar of each of ``kinds`` in the buffer of that dtype."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        for kind in kinds:
            b.store(b.arguments[f"to_{kind}"], at(f"to_{kind}", b.i(0)), b.arguments[f"a_{kind}"])

    buffers = [(f"to_{kind}", kind, "write") for kind in kinds]
    return _kernel("copy_scalars", buffers, [(f"a_{kind}", kind) for kind in kinds], body)


def weighted_sum(inputs: int) -> Operation:
    """``out[i] = sum of (k + 1) * in_k[i]`` over ``inputs`` buffers."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        i = b.position("block_id", 0)
        total = b.const(0, dtypes.int32)
        for k in range(inputs):
            value = b.load(b.arguments[f"in{k}"], at(f"in{k}", i))
            total = b.add(total, b.mul(value, b.const(k + 1, dtypes.int32)))
        b.store(b.arguments["out"], at("out", i), total)

    buffers = [(f"in{k}", dtypes.int32, "read") for k in range(inputs)]
    return _kernel(f"weighted_sum_{inputs}", [*buffers, ("out", dtypes.int32, "write")], [], body)


def sum_of() -> Operation:
    """``y[0] = -1 + sum of the first count elements of x``: x is not read where count is 0."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        def step(index: Value, carried: list[Value]) -> list[Value]:
            return [b.add(carried[0], b.load(b.arguments["x"], at("x", index)))]

        start = b.const(-1, dtypes.int32)
        (total,) = b.loop(b.const(0, dtypes.int32), b.arguments["count"], step, [start])
        b.store(b.arguments["y"], at("y", b.i(0)), total)

    buffers = [("x", dtypes.int32, "read"), ("y", dtypes.int32, "write")]
    return _kernel("sum_of", buffers, [("count", dtypes.int32)], body)


def broadcast_scalar() -> Operation:
    """``out[i] = value`` for each block i of a row of blocks (float32)."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        b.store(b.arguments["out"], at("out", b.position("block_id", 0)), b.arguments["value"])

    return _kernel("broadcast_scalar", [("out", dtypes.float32, "write")], [("value", dtypes.float32)], body)


def reverse_in_block(threads: int) -> Operation:
    """Each block turns its ``threads`` elements round through local memory and a barrier."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        thread, group = b.position("thread_id", 0), b.position("block_id", 0)
        held = b.local(dtypes.int32, threads)
        first = b.mul(group, b.i(threads))
        b.store(held, thread, b.load(b.arguments["x"], at("x", b.add(first, thread))))
        b.barrier()
        back = b.load(held, b.sub(b.i(threads - 1), thread))
        b.store(b.arguments["y"], at("y", b.add(first, thread)), back)

    buffers = [("x", dtypes.int32, "read"), ("y", dtypes.int32, "write")]
    return _kernel("reverse_in_block", buffers, [], body, (threads, 1, 1))


def arithmetic(dtype: DType) -> Operation:
    """``z[i] = x[i] * y[i] + x[i]`` in ``dtype`` for each block i; of bools ``(x and y) or x``."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        i = b.position("block_id", 0)
        x, y = (b.load(b.arguments[name], at(name, i)) for name in "xy")
        whole = b.or_(b.and_(x, y), x) if dtype.kind == "bool" else b.add(b.mul(x, y), x)
        b.store(b.arguments["z"], at("z", i), whole)

    buffers = [("x", dtype, "read"), ("y", dtype, "read"), ("z", dtype, "write")]
    return _kernel(f"arithmetic_{dtype}", buffers, [], body)


def scaled(dtype: DType) -> Operation:
    """``z[i] = x[i] * y[i]`` in ``dtype`` for each block i."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        i = b.position("block_id", 0)
        product = b.mul(*(b.load(b.arguments[name], at(name, i)) for name in "xy"))
        b.store(b.arguments["z"], at("z", i), product)

    return _kernel(f"scaled_{dtype}", [("x", dtype, "read"), ("y", dtype, "read"), ("z", dtype, "write")], [], body)


def fused() -> Operation:
    """``z[i] = fma(x[i], y[i], z[i])`` for each block i: one rounding."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        i = b.position("block_id", 0)
        x, y, z = (b.load(b.arguments[name], at(name, i)) for name in "xyz")
        b.store(b.arguments["z"], at("z", i), b.fma(x, y, z))

    kind = dtypes.float32
    return _kernel("fused", [("x", kind, "read"), ("y", kind, "read"), ("z", kind, "both")], [], body)


def last_block() -> Operation:
    """The block (last_x, last_y, last_z), and no other, adds 1 to ``out[0]``."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        same = [b.eq(b.position("block_id", axis), b.arguments[f"last_{name}"]) for axis, name in enumerate("xyz")]

        def mark() -> list[Value]:
            place, out = at("out", b.i(0)), b.arguments["out"]
            b.store(out, place, b.add(b.load(out, place), b.i(1)))
            return []

        b.branch(b.and_(same[0], b.and_(same[1], same[2])), mark)

    scalars = [(f"last_{name}", dtypes.int32) for name in "xyz"]
    return _kernel("last_block", [("out", dtypes.int32, "both")], scalars, body)


def sum_of_scalars(count: int) -> Operation:
    """``out[0] = sum of k * scalar_k``, k from 1, over ``count`` int32 scalars."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        total = b.const(0, dtypes.int32)
        for k in range(count):
            total = b.add(total, b.mul(b.arguments[f"s{k}"], b.const(k + 1, dtypes.int32)))
        b.store(b.arguments["out"], at("out", b.i(0)), total)

    scalars = [(f"s{k}", dtypes.int32) for k in range(count)]
    return _kernel(f"sum_of_{count}_scalars", [("out", dtypes.int32, "write")], scalars, body)


def thread_ids(block: tuple[int, int, int]) -> Operation:
    """Thread t of a block, counted along x, then y, then z, stores ``1000 + t`` in ``out[t]``."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        x, y, z = (b.position("thread_id", axis) for axis in range(3))
        thread = b.add(b.mul(b.add(b.mul(z, b.i(block[1])), y), b.i(block[0])), x)
        b.store(b.arguments["out"], at("out", thread), b.add(thread, b.i(1000)))

    name = f"thread_ids_{block[0]}_{block[1]}_{block[2]}"
    return _kernel(name, [("out", dtypes.int32, "write")], [], body, block)


def local_ring(size: int, threads: int) -> Operation:
    """Fill ``size`` int32 of local memory from ``x``, then ``y[i] = local[size - 1 - i]``. One block of ``threads``."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        held = b.local(dtypes.int32, size)
        first = b.position("thread_id", 0) if threads > 1 else b.i(0)
        low, high, step = first, b.i(size), b.i(threads)

        def fill(index: Value, carried: list[Value]) -> list[Value]:
            b.store(held, index, b.load(b.arguments["x"], at("x", index)))
            return []

        def read(index: Value, carried: list[Value]) -> list[Value]:
            b.store(b.arguments["y"], at("y", index), b.load(held, b.sub(b.i(size - 1), index)))
            return []

        b.loop(low, high, fill, (), step)
        if threads > 1:
            b.barrier()
        b.loop(low, high, read, (), step)

    buffers = [("x", dtypes.int32, "read"), ("y", dtypes.int32, "write")]
    return _kernel(f"local_ring_{size}", buffers, [], body, (threads, 1, 1))


def vectors(lanes: int) -> Operation:
    """``y[lanes * i ...] = x[lanes * i ...] + 0.5`` for each block i, ``lanes`` float32 at once."""

    def body(b: KernelBuilder, at: Callable[[str, Value], Value]) -> None:
        first = b.mul(b.position("block_id", 0), b.i(lanes))
        value = b.add(b.load(b.arguments["x"], at("x", first), lanes), b.const(0.5, dtypes.float32, lanes))
        b.store(b.arguments["y"], at("y", first), value)

    return _kernel(f"vectors_{lanes}", [("x", dtypes.float32, "read"), ("y", dtypes.float32, "write")], [], body)
