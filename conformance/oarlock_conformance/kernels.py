"""Small kernels for runtime cases, built in the kernel dialect, so that they run in every language."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder
from oarlock.dtypes import DType
from oarlock.ir import BufferType, Operation, Value

__all__ = [
    "broadcast_scalar",
    "copy_scalars",
    "increment",
    "reverse_in_block",
    "scale",
    "spin",
    "stamp",
    "sum_of",
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
