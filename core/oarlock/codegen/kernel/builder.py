"""Builds kernels: folds constants, shares equal expressions, and guards what the dialect's preconditions ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from oarlock import dtypes
from oarlock.codegen.kernel.dialect import kernel_context
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError
from oarlock.ir import (
    Attribute,
    Block,
    BufferType,
    Builder,
    Operation,
    OpResult,
    Region,
    ScalarType,
    Type,
    Value,
    traits,
)

__all__ = ["KernelBuilder", "NotVectorisable", "dtype_of", "lanes_of"]


class NotVectorisable(UnsupportedError):
    """What is being emitted has no form that computes neighbouring elements at once."""


def dtype_of(value: Value) -> DType:
    """The dtype of a scalar (or vector) value or a buffer."""
    assert isinstance(value.type, (ScalarType, BufferType))
    return value.type.dtype


def lanes_of(value: Value) -> int:
    """The number of lanes of a scalar (1) or vector value."""
    assert isinstance(value.type, ScalarType)
    return value.type.lanes


def _least(dtype: DType) -> int:
    return -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0


def _greatest(dtype: DType) -> int:
    return (1 << (dtype.bits - (dtype.kind == "int"))) - 1


def wrap(value: int, dtype: DType) -> int:
    """``value`` as ``dtype`` holds it after wrapping around."""
    value &= (1 << dtype.bits) - 1
    if dtype.kind == "int" and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


class KernelBuilder:
    """Emits kernel operations into a function, structured control flow included.

    Equal pure expressions are emitted once per scope; integer constants are folded; where scalars meet vectors they
    stand for all lanes. ``function`` is the
    ``kernel.function``; ``index`` the dtype of index arithmetic.
    """

    def __init__(
        self,
        name: str,
        buffers: Sequence[tuple[str, BufferType]],
        scalars: Sequence[tuple[str, DType]],
        block: tuple[int, int, int] = (1, 1, 1),
        index: DType = dtypes.int32,
        fused: bool = False,
    ) -> None:
        self.index = index
        self.fused = fused
        """Whether the target multiplies and adds with one rounding as fast as it multiplies."""
        self.straight = False
        """Whether control flow is refused, because conditions and bounds may be vectors."""
        types: list[Type] = [t for _, t in buffers]
        types += [ScalarType(d) for _, d in scalars]
        body = Block(types)
        names = [n for n, _ in buffers] + [n for n, _ in scalars]
        for argument, hint in zip(body.args, names, strict=True):
            argument.name_hint = hint
        self._builder = Builder(kernel_context(), body)
        self.function = Operation(
            self._builder.context.definition("kernel.function"),
            attributes={"name": name, "block": block, "arguments": tuple(names)},
            regions=[Region([body])],
        )
        self.arguments: dict[str, Value] = dict(zip(names, body.args, strict=True))
        self._scopes: list[dict[object, Value]] = [{}]

    # --- parameters that are discovered while lowering -------------------------------------------------------------

    def add_parameter(self, name: str, dtype: DType) -> Value:
        """Append a scalar parameter."""
        argument = self.function.regions[0].block.add_argument(ScalarType(dtype))
        argument.name_hint = name
        names = self.function.attributes["arguments"]
        assert isinstance(names, tuple)
        self.function.attributes["arguments"] = (*names, name)
        self.arguments[name] = argument
        return argument

    # --- emission --------------------------------------------------------------------------------------------------

    def emit(
        self,
        name: str,
        operands: Sequence[Value] = (),
        attributes: Mapping[str, Attribute] | None = None,
        result_types: Sequence[Type] | None = None,
    ) -> Value:
        """Emit ``kernel.<name>`` with one result; a pure one that stands in scope already is reused."""
        attributes = attributes or {}
        definition = self._builder.context.definition("kernel." + name)
        if not definition.has(traits.PURE):
            return self._builder.create("kernel." + name, operands, attributes, result_types).result
        if len(operands) > 1:
            lanes = max(map(lanes_of, operands))
            operands = [self.splat(x, lanes) if lanes_of(x) == 1 else x for x in operands]
        value_key = tuple((k, type(v).__name__, repr(v)) for k, v in sorted(attributes.items()))
        key = (name, tuple(map(id, operands)), value_key, tuple(result_types or ()))
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        result = self._builder.create("kernel." + name, operands, attributes, result_types).result
        self._scopes[-1][key] = result
        return result

    def const(self, value: float | int | bool, dtype: DType, lanes: int = 1) -> Value:
        """A constant."""
        typed: bool | int | float
        if dtype.kind == "bool":
            typed = bool(value)
        elif dtype.is_float:
            typed = float(value)
        else:
            typed = wrap(int(value), dtype)
        return self.emit("constant", (), {"value": typed}, [ScalarType(dtype, lanes)])

    def i(self, value: int) -> Value:
        """A constant of the index dtype."""
        return self.const(value, self.index)

    @staticmethod
    def constant_value(value: Value) -> bool | int | float | None:
        """The number behind a constant, or None."""
        if isinstance(value, OpResult) and value.op.name == "kernel.constant":
            number = value.op.attributes["value"]
            assert isinstance(number, (bool, int, float))
            return number
        return None

    def _known(self, value: Value) -> int | None:
        number = self.constant_value(value)
        scalar = isinstance(value.type, ScalarType) and value.type.lanes == 1
        return number if isinstance(number, int) and dtype_of(value).is_integer and scalar else None

    # --- arithmetic ------------------------------------------------------------------------------------------------

    def add(self, x: Value, y: Value) -> Value:
        a, b = self._known(x), self._known(y)
        if a is not None and b is not None:
            return self.const(a + b, dtype_of(x))
        if a == 0:
            return y
        if b == 0:
            return x
        return self.emit("add", (x, y))

    def sub(self, x: Value, y: Value) -> Value:
        a, b = self._known(x), self._known(y)
        if a is not None and b is not None:
            return self.const(a - b, dtype_of(x))
        return x if b == 0 else self.emit("sub", (x, y))

    def mul(self, x: Value, y: Value) -> Value:
        a, b = self._known(x), self._known(y)
        if a is not None and b is not None:
            return self.const(a * b, dtype_of(x))
        if a == 0 or b == 1:
            return x
        if b == 0 or a == 1:
            return y
        return self.emit("mul", (x, y))

    def quot(self, x: Value, y: Value) -> Value:
        """Truncated quotient; the caller knows that the precondition holds (sizes, constants)."""
        a, b = self._known(x), self._known(y)
        if b == 1:
            return x
        if a is not None and b:
            return self.const(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), dtype_of(x))
        return self.emit("quot", (x, y))

    def rem(self, x: Value, y: Value) -> Value:
        """Truncated remainder; the caller knows that the precondition holds."""
        a, b = self._known(x), self._known(y)
        if b == 1:
            return self.const(0, dtype_of(x))
        if a is not None and b:
            return self.const(abs(a) % abs(b) * (1 if a >= 0 else -1), dtype_of(x))
        return self.emit("rem", (x, y))

    def binary(self, name: str, x: Value, y: Value) -> Value:
        """Any two-operand operation of the dialect, as it stands."""
        folded = {"add": self.add, "sub": self.sub, "mul": self.mul, "quot": self.quot, "rem": self.rem}.get(name)
        return folded(x, y) if folded is not None else self.emit(name, (x, y))

    def unary(self, name: str, x: Value) -> Value:
        """Any one-operand operation of the dialect, as it stands."""
        return self.emit(name, (x,))

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        return self.emit("fma", (x, y, z))

    def multiply_add(self, x: Value, y: Value, total: Value) -> Value:
        """x * y + total, a step of a sum whose bound allows floats to be rounded once or twice, as the target likes."""
        if not dtype_of(x).is_float:
            return self.add(self.mul(x, y), total)
        if self.fused:
            return self.fma(x, y, total)
        return self.emit("add", (self.emit("mul", (x, y), {"loose": True}), total), {"loose": True})

    def eq(self, x: Value, y: Value) -> Value:
        return self.emit("eq", (x, y))

    def ne(self, x: Value, y: Value) -> Value:
        return self.emit("ne", (x, y))

    def lt(self, x: Value, y: Value) -> Value:
        return self.emit("lt", (x, y))

    def le(self, x: Value, y: Value) -> Value:
        return self.emit("le", (x, y))

    def gt(self, x: Value, y: Value) -> Value:
        return self.lt(y, x)

    def ge(self, x: Value, y: Value) -> Value:
        return self.le(y, x)

    def and_(self, x: Value, y: Value) -> Value:
        return self._logic("and", x, y)

    def or_(self, x: Value, y: Value) -> Value:
        return self._logic("or", x, y)

    def _logic(self, name: str, x: Value, y: Value) -> Value:
        if dtype_of(x).kind == "bool":
            absorbing = name == "or"
            for known, other in ((self.constant_value(x), y), (self.constant_value(y), x)):
                if known is not None:
                    return self.const(absorbing, dtypes.bool_, lanes_of(x)) if known == absorbing else other
        return self.emit(name, (x, y))

    def not_(self, x: Value) -> Value:
        known = self.constant_value(x)
        if dtype_of(x).kind == "bool" and known is not None:
            return self.const(not known, dtypes.bool_, lanes_of(x))
        return self.emit("not", (x,))

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        known = self.constant_value(condition)
        if known is not None:
            return yes if known else no
        return yes if yes is no else self.emit("select", (condition, yes, no))

    def min(self, x: Value, y: Value) -> Value:
        """Least of two integers."""
        a, b = self._known(x), self._known(y)
        if a is not None and b is not None:
            return self.const(min(a, b), dtype_of(x))
        return self.emit("min", (x, y))

    def max(self, x: Value, y: Value) -> Value:
        """Greatest of two integers."""
        a, b = self._known(x), self._known(y)
        if a is not None and b is not None:
            return self.const(max(a, b), dtype_of(x))
        return self.emit("max", (x, y))

    def bitcast(self, x: Value, dtype: DType) -> Value:
        return x if dtype_of(x) == dtype else self.emit("bitcast", (x,), {"dtype": dtype})

    def raw_convert(self, x: Value, dtype: DType) -> Value:
        """``kernel.convert`` where the precondition is known to hold."""
        known = self._known(x)
        if known is not None and dtype.is_integer:
            return self.const(known, dtype)
        return x if dtype_of(x) == dtype else self.emit("convert", (x,), {"dtype": dtype})

    # --- total forms -----------------------------------------------------------------------------------------------

    def is_nan(self, x: Value) -> Value:
        """Whether a float is NaN, by its bits: on some targets ``x != x`` is false for NaN."""
        dtype = dtype_of(x)
        bits = dtypes.by_name(f"uint{dtype.bits}")
        mantissa = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[dtype.name]
        infinity = ((1 << (dtype.bits - 1 - mantissa)) - 1) << mantissa
        lanes = lanes_of(x)
        magnitude = self.emit("and", (self.bitcast(x, bits), self.const((1 << (dtype.bits - 1)) - 1, bits, lanes)))
        return self.lt(self.const(infinity, bits, lanes), magnitude)

    def total_quot_rem(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Truncated quotient and remainder of integers: by zero (0, 0); least value by -1 wraps to (least, 0)."""
        dtype, lanes = dtype_of(x), lanes_of(x)
        zero, one = self.const(0, dtype, lanes), self.const(1, dtype, lanes)
        by_zero = self.eq(y, zero)
        bad = by_zero
        if dtype.kind == "int":
            minus_one, least = self.const(-1, dtype, lanes), self.const(_least(dtype), dtype, lanes)
            overflow = self.and_(self.eq(y, minus_one), self.eq(x, least))
            bad = self.or_(by_zero, overflow)
        divisor = self.select(bad, one, y)
        quotient = self.select(by_zero, zero, self.quot(x, divisor))
        remainder = self.select(bad, zero, self.rem(x, divisor))
        return quotient, remainder

    def total_shift(self, name: str, x: Value, count: Value) -> Value:
        """``shl`` or ``shr`` by any count: past the width (or negative) gives 0, or the sign for signed ``shr``."""
        dtype, lanes = dtype_of(x), lanes_of(x)
        width, zero = self.const(dtype.bits, dtype, lanes), self.const(0, dtype, lanes)
        inside = self.lt(count, width)
        if dtype.kind == "int":
            inside = self.and_(inside, self.le(zero, count))
        shifted = self.emit(name, (x, self.select(inside, count, zero)))
        outside = zero
        if name == "shr" and dtype.kind == "int":
            outside = self.emit("shr", (x, self.const(dtype.bits - 1, dtype, lanes)))
        return self.select(inside, shifted, outside)

    def convert(self, x: Value, dtype: DType) -> Value:
        """Any dtype to any other: to bool is ``!= 0`` (NaN is true); float to integer saturates, NaN gives 0."""
        source = dtype_of(x)
        if source == dtype:
            return x
        if dtype.kind == "bool":
            return self.ne(x, self.const(0, source, lanes_of(x)))
        if source.is_float and dtype.is_integer:
            return self._to_integer(x, dtype)
        return self.raw_convert(x, dtype)

    def _to_integer(self, x: Value, dtype: DType) -> Value:
        source, lanes = dtype_of(x), lanes_of(x)
        if source.bits == 16:  # through float32, which holds every value of both
            return self._to_integer(self.raw_convert(x, dtypes.float32), dtype)
        digits = 24 if source == dtypes.float32 else 53
        low, high = _least(dtype), _greatest(dtype)
        # the largest float that does not pass `high`
        top = (
            high
            if high.bit_length() <= digits
            else (high >> (high.bit_length() - digits)) << (high.bit_length() - digits)
        )
        too_high = self.lt(self.const(float(top), source, lanes), x)
        too_low = self.lt(x, self.const(float(low), source, lanes))
        nan = self.is_nan(x)
        bad = self.or_(nan, self.or_(too_high, too_low))
        inside = self.raw_convert(self.select(bad, self.const(0.0, source, lanes), x), dtype)
        # between `top` and `high` lies no float when top < high; when equal, x in (high, high+1) truncates to high
        result = self.select(too_high, self.const(high, dtype, lanes), inside)
        result = self.select(too_low, self.const(low, dtype, lanes), result)
        return self.select(nan, self.const(0, dtype, lanes), result)

    # --- memory and control flow -----------------------------------------------------------------------------------

    def load(self, buffer: Value, index: Value, lanes: int = 1) -> Value:
        return self.emit("load", (buffer, index), {"lanes": lanes} if lanes > 1 else {})

    def store(self, buffer: Value, index: Value, value: Value, stream: bool = False) -> None:
        """Store an element, or neighbouring ones; ``stream``: past the caches, at a multiple of the vector's lanes."""
        self._builder.create("kernel.store", (buffer, index, value), {"stream": True} if stream else {})

    def splat(self, x: Value, lanes: int) -> Value:
        return x if lanes == 1 else self.emit("splat", (x,), {"lanes": lanes})

    def ramp(self, first: Value, lanes: int) -> Value:
        """``first``, ``first + 1`` ... in as many lanes."""
        return self.emit("ramp", (first,), {"lanes": lanes})

    def local(self, dtype: DType, size: int) -> Value:
        """``size`` elements shared by the threads of a block."""
        return self.emit("local", (), {"dtype": dtype, "size": size})

    def private(self, dtype: DType, size: int) -> Value:
        """``size`` elements of this thread's own."""
        return self.emit("private", (), {"dtype": dtype, "size": size})

    def shuffle(self, x: Value, mask: int, width: int) -> Value:
        """``x`` of the thread whose number is this one's xor ``mask``, among ``width`` neighbours."""
        return self.emit("shuffle", (x,), {"mask": mask, "width": width})

    def matrix_fma(
        self, a: Value, at: Value, b: Value, bt: Value, total: Value, stride: int, kind: str, width: int
    ) -> Value:
        """``total`` and the product of 16 x 16 elements of ``a`` from ``at`` on and of ``b`` from ``bt`` on."""
        return self.emit("matrix_fma", (a, at, b, bt, total), {"stride": stride, "kind": kind, "width": width})

    def matrix_store(self, buffer: Value, index: Value, total: Value, stride: int, width: int) -> None:
        """Put what ``matrix_fma`` gave into local memory."""
        self._builder.create("kernel.matrix_store", (buffer, index, total), {"stride": stride, "width": width})

    def prefetch(self, buffer: Value, index: Value) -> None:
        """Say that what stands at ``index``, which may be out of range, is read soon."""
        self._builder.create("kernel.prefetch", (buffer, index))

    def barrier(self) -> None:
        self._builder.create("kernel.barrier")

    def position(self, kind: str, axis: int) -> Value:
        """``block_id``, ``thread_id`` or ``block_count`` along ``axis``, in the index dtype."""
        return self.raw_convert(self.emit(kind, (), {"axis": axis}), self.index)

    def loop(
        self,
        low: Value,
        high: Value,
        body: Callable[[Value, list[Value]], Sequence[Value]],
        initial: Sequence[Value] = (),
        step: Value | None = None,
        unroll: bool = False,
        few: bool = False,
    ) -> list[Value]:
        """``for index in range(low, high, step)``; ``body(index, carried)`` gives the next carried values.

        ``unroll`` and ``few`` (few turns: not worth a vector form) advise the compiler.
        """
        if self.straight:
            raise NotVectorisable("a loop over elements")
        step = step if step is not None else self.const(1, dtype_of(low))
        block = Block([low.type, *(v.type for v in initial)])
        self._nested(block, lambda: body(block.args[0], list(block.args[1:])))
        op = self._builder.create(
            "kernel.for",
            (low, high, step, *initial),
            {**({"unroll": True} if unroll else {}), **({"few": True} if few else {})},
            [v.type for v in initial],
            [Region([block])],
        )
        return list(op.results)

    def branch(
        self,
        condition: Value,
        yes: Callable[[], Sequence[Value]],
        no: Callable[[], Sequence[Value]] = lambda: (),
    ) -> list[Value]:
        """``if``; both sides give values of the same types."""
        if self.straight:
            raise NotVectorisable("a branch on elements")
        then, otherwise = Block(), Block()
        types = self._nested(then, yes)
        self._nested(otherwise, no)
        op = self._builder.create("kernel.if", (condition,), {}, types, [Region([then]), Region([otherwise])])
        return list(op.results)

    def _nested(self, block: Block, body: Callable[[], Sequence[Value]]) -> list[Type]:
        outer, self._builder.block = self._builder.block, block
        self._scopes.append({})
        results = list(body())
        self._builder.create("kernel.yield", results)
        self._scopes.pop()
        self._builder.block = outer
        return [value.type for value in results]
