"""Rewrites a kernel so that it computes only what its target computes, and holds memory as its target stores it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.values import from_number
from oarlock.codegen.narrow_floats import Narrow
from oarlock.dtypes import DType
from oarlock.errors import IRError, UnsupportedError
from oarlock.ir import Block, BufferType, Operation, ScalarType, Value, traits
from oarlock.target import Target

__all__ = ["legalise"]

_ROUNDED = ("add", "sub", "mul", "div", "sqrt")
_WRAPPED = ("add", "sub", "mul", "neg", "shl", "not")
_NEAREST = {"float64": "float32", "int64": "int32", "uint64": "uint32"}


def legalise(function: Operation, target: Target) -> Operation:
    """A new kernel.function that means the same and is fit to render for ``target``.

    Buffers, local and private memory have the dtypes of ``target.storage`` (bool: uint8 unless it says otherwise);
    arithmetic is on dtypes that the target computes. What it does not compute is computed in others: float16 and
    bfloat16 in float32, rounded after each operation; integers of 8 and 16 bits in 32 bits, wrapped. Dtypes that only
    memory has appear in loads, stores and conversions alone. Vectors keep their lanes.

    Raises UnsupportedError for a dtype that the target neither computes nor can compute in another.
    """
    return _Legaliser(function, target).run()


class _Legaliser:
    """Rebuilds a function operation by operation; ``values`` maps old values to new ones."""

    def __init__(self, function: Operation, target: Target) -> None:
        self.old = function
        self.target = target
        self.name = str(function.attributes["name"])
        names = [str(n) for n in function.attributes["arguments"]]  # type: ignore[union-attr]
        x, y, z = (int(n) for n in function.attributes["block"])  # type: ignore[union-attr, arg-type]
        buffers: list[tuple[str, BufferType]] = []
        scalars: list[tuple[str, DType]] = []
        for name, argument in zip(names, function.regions[0].block.args, strict=True):
            if isinstance(argument.type, BufferType):
                kind = argument.type
                buffers.append((name, BufferType(self.physical(kind.dtype), kind.space, kind.access)))
            else:
                scalars.append((name, self.computed(_scalar(argument).dtype, f"scalar {name}")))
        self.b = KernelBuilder(self.name, buffers, scalars, (x, y, z))
        self.b.function.attributes.update({k: v for k, v in function.attributes.items() if k not in ("name", "block")})
        arguments = zip(function.regions[0].block.args, self.b.function.regions[0].block.args, strict=True)
        self.values: dict[Value, Value] = dict(arguments)
        self.bits: dict[Value, Value] = {}
        """uint32 patterns of old 16-bit floats, where they are at hand."""

    def run(self) -> Operation:
        self.block(self.old.regions[0].block)
        _drop_dead(self.b.function)
        return self.b.function

    # --- which dtypes stand for which

    def physical(self, dtype: DType) -> DType:
        """What memory holds a ``dtype`` as."""
        stored = self.target.storage_of(dtype)
        return dtypes.uint8 if stored == dtypes.bool_ else stored

    def emulated(self, dtype: DType) -> bool:
        return dtype != dtypes.bool_ and not self.target.computes(dtype)

    def carrier(self, dtype: DType, where: str) -> DType:
        """What a ``dtype`` is computed in."""
        if not self.emulated(dtype):
            return dtype
        if dtype.is_float and dtype.bits == 16:
            needed: tuple[DType, ...] = (dtypes.float32, dtypes.uint32)
        elif dtype.is_integer and dtype.bits < 32:
            needed = (dtypes.int32 if dtype.kind == "int" else dtypes.uint32,)
        else:
            needed = ()
        if needed and all(self.target.computes(d) for d in needed):
            return needed[0]
        raise UnsupportedError(
            f"target {self.target.language}/{self.target.arch} does not compute {dtype} (kernel {self.name}, {where}). "
            f"Nearest it does: {self._nearest(dtype)}. Convert to that, or choose a device that computes {dtype}"
        )

    def _nearest(self, dtype: DType) -> str:
        name = _NEAREST.get(dtype.name, "")
        return name if name in self.target.compute else ", ".join(sorted(self.target.compute))

    def computed(self, dtype: DType, where: str) -> DType:
        """``dtype``, which must be computed as such."""
        self.carrier(dtype, where)
        if self.emulated(dtype):
            raise UnsupportedError(
                f"kernel {self.name}, {where}: {dtype} cannot be a parameter; pass it as {dtypes.float32}"
            )
        return dtype

    def narrow(self, dtype: DType) -> Narrow | None:
        """How a 16-bit float that is not computed is handled; None for any other dtype."""
        return Narrow(self.b, dtype) if dtype.is_float and dtype.bits == 16 and self.emulated(dtype) else None

    # --- operations

    def block(self, block: Block) -> list[Value]:
        """Rebuild a block; returns the new values that its yield gives."""
        for op in block.ops:
            if op.name == "kernel.yield":
                return [self.values[v] for v in op.operands]
            for result in op.results:
                if isinstance(result.type, ScalarType):
                    self.carrier(result.type.dtype, op.name)
            kind = op.name.removeprefix("kernel.")
            _REBUILD.get(kind, _Legaliser.arithmetic)(self, op, kind)
        return []

    def arithmetic(self, op: Operation, kind: str) -> None:
        x = [self.values[v] for v in op.operands]
        dtype = _scalar(op.result).dtype
        narrow = self.narrow(dtype)
        if narrow is not None:
            self._narrow_float(op, kind, narrow, x)
        elif kind in _WRAPPED and dtype.is_integer and self.emulated(dtype):
            self.values[op.result] = self._wrap(self.b.emit(kind, x), dtype)
        else:
            self.values[op.result] = self.b.emit(kind, x, op.attributes)

    def _narrow_float(self, op: Operation, kind: str, narrow: Narrow, x: list[Value]) -> None:
        if kind == "fma":
            if narrow.dtype == dtypes.bfloat16:
                self.carrier(dtypes.float64, "kernel.fma of bfloat16, which goes through float64")
                self.carrier(dtypes.uint64, "kernel.fma of bfloat16, which goes through uint64")
            self._set_bits(op.result, narrow.fma(*x))
            return
        value = self.b.emit(kind, x, op.attributes)
        if kind in _ROUNDED:
            self._set_bits(op.result, narrow.bits(value))
            return
        self.values[op.result] = value
        known = [self.bits.get(v) for v in op.operands if v in self.bits or self.narrow(_scalar(v).dtype)]
        if kind in ("neg", "fabs", "select", "splat", "extract") and None not in known:
            self.bits[op.result] = self._move_bits(op, kind, [v for v in known if v is not None], x)

    def _move_bits(self, op: Operation, kind: str, bits: list[Value], x: list[Value]) -> Value:
        """What only moves a value, or touches its sign, on its pattern."""
        lanes = _scalar(op.result).lanes
        if kind == "neg":
            return self.b.emit("xor", (bits[0], self.b.const(0x8000, dtypes.uint32, lanes)))
        if kind == "fabs":
            return self.b.emit("and", (bits[0], self.b.const(0x7FFF, dtypes.uint32, lanes)))
        if kind == "select":
            return self.b.select(x[0], *bits)
        return self.b.emit(kind, bits, dict(op.attributes))

    def _set_bits(self, result: Value, bits: Value) -> None:
        narrow = self.narrow(_scalar(result).dtype)
        assert narrow is not None
        self.bits[result] = bits
        self.values[result] = narrow.value(bits)

    def _bits_of(self, value: Value, narrow: Narrow) -> Value:
        return self.bits[value] if value in self.bits else narrow.bits(self.values[value])

    def _wrap(self, x: Value, dtype: DType) -> Value:
        """A 32-bit integer wrapped to a shorter ``dtype``."""
        lanes = _scalar(x).lanes
        if dtype.kind == "uint":
            return self.b.emit("and", (x, self.b.const((1 << dtype.bits) - 1, dtypes.uint32, lanes)))
        count = self.b.const(32 - dtype.bits, dtypes.int32, lanes)
        return self.b.emit("shr", (self.b.emit("shl", (x, count)), count))

    def constant(self, op: Operation, kind: str) -> None:
        number, type = op.attributes["value"], _scalar(op.result)
        assert isinstance(number, (bool, int, float))
        narrow = self.narrow(type.dtype)
        if narrow is None:
            carrier = self.carrier(type.dtype, op.name)
            self.values[op.result] = self.b.const(number, carrier, type.lanes)
            return
        rounded = _round(float(number), type.dtype)
        self.bits[op.result] = self.b.const(rounded[1], dtypes.uint32, type.lanes)
        self.values[op.result] = self.b.const(rounded[0], dtypes.float32, type.lanes)

    def convert(self, op: Operation, kind: str) -> None:
        source, dtype = _scalar(op.operands[0]).dtype, _scalar(op.result).dtype
        x = self.values[op.operands[0]]
        narrow = self.narrow(dtype)
        if narrow is None:
            value = self.b.raw_convert(x, self.carrier(dtype, op.name))
            wraps = dtype.is_integer and self.emulated(dtype) and not source.is_float
            self.values[op.result] = self._wrap(value, dtype) if wraps else value
        elif source == dtypes.float64:
            self._set_bits(op.result, narrow.from_double(x))
        elif source.is_integer and source.bits >= 32:
            self._set_bits(op.result, narrow.from_integer(x, source))
        else:
            self._set_bits(op.result, narrow.bits(self.b.raw_convert(x, dtypes.float32)))

    def bitcast(self, op: Operation, kind: str) -> None:
        source, dtype = _scalar(op.operands[0]).dtype, _scalar(op.result).dtype
        if not (self.emulated(source) or self.emulated(dtype)):
            self.values[op.result] = self.b.bitcast(self.values[op.operands[0]], dtype)
            return
        bits = self._pattern(op.operands[0], source)
        narrow = self.narrow(dtype)
        if narrow is not None:
            self._set_bits(op.result, bits)
        elif dtype.is_float:
            self.values[op.result] = self.b.bitcast(self.b.raw_convert(bits, dtypes.uint16), dtype)
        elif self.emulated(dtype):
            self.values[op.result] = self._wrap(self.b.raw_convert(bits, self.carrier(dtype, op.name)), dtype)
        else:
            self.values[op.result] = self.b.raw_convert(bits, dtype)

    def _pattern(self, value: Value, dtype: DType) -> Value:
        """The bits of an 8- or 16-bit value in a uint32."""
        narrow = self.narrow(dtype)
        if narrow is not None:
            return self._bits_of(value, narrow)
        x = self.values[value]
        if dtype.is_float:
            return self.b.raw_convert(self.b.bitcast(x, dtypes.uint16), dtypes.uint32)
        mask = self.b.const((1 << dtype.bits) - 1, dtypes.uint32, _scalar(x).lanes)
        return self.b.emit("and", (self.b.raw_convert(x, dtypes.uint32), mask))

    # --- memory and control flow

    def load(self, op: Operation, kind: str) -> None:
        buffer, index = op.operands
        type = _scalar(op.result)
        loaded = self.b.load(self.values[buffer], self.values[index], type.lanes)
        physical = _scalar(loaded).dtype
        narrow = self.narrow(type.dtype)
        if narrow is not None and not physical.is_float:
            self._set_bits(op.result, self.b.raw_convert(loaded, dtypes.uint32))
        elif type.dtype == dtypes.bool_:
            wide = loaded if self.target.computes(physical) else self.b.raw_convert(loaded, dtypes.uint32)
            zero = self.b.const(0, _scalar(wide).dtype, type.lanes)
            self.values[op.result] = self.b.ne(wide, zero)
        else:
            self.values[op.result] = self.b.raw_convert(loaded, self.carrier(type.dtype, op.name))

    def store(self, op: Operation, kind: str) -> None:
        buffer, index, value = op.operands
        physical = _memory(self.values[buffer])
        narrow = self.narrow(_scalar(value).dtype)
        x = self.values[value] if narrow is None or physical.is_float else self._bits_of(value, narrow)
        stream = bool(op.attributes.get("stream", False))
        self.b.store(self.values[buffer], self.values[index], self.b.raw_convert(x, physical), stream)

    def prefetch(self, op: Operation, kind: str) -> None:
        buffer, index = op.operands
        self.b.prefetch(self.values[buffer], self.values[index])

    def memory(self, op: Operation, kind: str) -> None:
        dtype, size = op.attributes["dtype"], op.attributes["size"]
        assert isinstance(dtype, DType) and isinstance(size, int)
        allocate = self.b.local if kind == "local" else self.b.private
        self.values[op.result] = allocate(self.physical(dtype), size)

    def position(self, op: Operation, kind: str) -> None:
        self.values[op.result] = self.b.emit(kind, (), dict(op.attributes))

    def matrix_fma(self, op: Operation, kind: str) -> None:
        self.values[op.result] = self.b.emit(kind, [self.values[v] for v in op.operands], dict(op.attributes))

    def matrix_store(self, op: Operation, kind: str) -> None:
        stride, width = op.attributes["stride"], op.attributes["width"]
        assert isinstance(stride, int) and isinstance(width, int)
        buffer, index, total = (self.values[v] for v in op.operands)
        self.b.matrix_store(buffer, index, total, stride, width)

    def barrier(self, op: Operation, kind: str) -> None:
        self.b.barrier()

    def for_(self, op: Operation, kind: str) -> None:
        block = op.regions[0].block
        self.carrier(_scalar(block.args[0]).dtype, op.name)

        def body(index: Value, carried: list[Value]) -> Sequence[Value]:
            self.values.update(zip(block.args, (index, *carried), strict=True))
            return self.block(block)

        low, high, step, *initial = (self.values[v] for v in op.operands)
        unroll, few = (bool(op.attributes.get(name, False)) for name in ("unroll", "few"))
        results = self.b.loop(low, high, body, initial, step, unroll, few)
        self.values.update(zip(op.results, results, strict=True))

    def if_(self, op: Operation, kind: str) -> None:
        yes, no = (region.block for region in op.regions)
        results = self.b.branch(self.values[op.operands[0]], lambda: self.block(yes), lambda: self.block(no))
        self.values.update(zip(op.results, results, strict=True))


_REBUILD: dict[str, Callable[[_Legaliser, Operation, str], None]] = {
    "constant": _Legaliser.constant, "convert": _Legaliser.convert, "bitcast": _Legaliser.bitcast,
    "load": _Legaliser.load, "store": _Legaliser.store, "prefetch": _Legaliser.prefetch,
    "local": _Legaliser.memory, "private": _Legaliser.memory,
    "block_id": _Legaliser.position, "thread_id": _Legaliser.position, "block_count": _Legaliser.position,
    "barrier": _Legaliser.barrier, "matrix_fma": _Legaliser.matrix_fma, "matrix_store": _Legaliser.matrix_store,
    "for": _Legaliser.for_, "if": _Legaliser.if_,
}  # fmt: skip


def _round(number: float, dtype: DType) -> tuple[float, int]:
    """A constant in a 16-bit float: its value and its pattern."""
    rounded = from_number(number, dtype, 1)
    return float(rounded[0]), int(rounded.view("uint16")[0])


def _drop_dead(function: Operation) -> None:
    """Erase pure operations that nothing uses."""
    for op in reversed(list(function.walk())):
        if op.definition.has(traits.PURE) and not any(result.uses for result in op.results):
            op.erase()


def _scalar(value: Value) -> ScalarType:
    if not isinstance(value.type, ScalarType):
        raise IRError(f"{value.type} is no scalar")
    return value.type


def _memory(buffer: Value) -> DType:
    if not isinstance(buffer.type, BufferType):
        raise IRError(f"{buffer.type} is no buffer")
    return buffer.type.dtype
