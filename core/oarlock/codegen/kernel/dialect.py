"""The operations of the kernel dialect.

Values are scalars (or short vectors) of a dtype; memory is buffers indexed by element. Each arithmetic operation is
one target expression and means the same on every target, because what targets disagree about (integer division by
zero, shifts past the width, conversions out of range, NaN in min and max) is a *precondition* here: KernelBuilder emits
the guards, the interpreter checks that they hold, renderers print plainly.

| operation | operands | meaning; precondition |
|---|---|---|
| constant | - | ``value`` in the result's dtype (all lanes) |
| add sub mul neg | same dtype, not bool | integers wrap; floats round to nearest even; ``loose``: or fused |
| div | floats | IEEE quotient |
| quot rem | integers | truncated quotient, remainder; divisor is not 0, and not -1 for the least value |
| fma | floats | one rounding |
| min max | integers | |
| and or xor not | integers or bool | bit by bit |
| shl shr | integers | 0 <= count < width; shr keeps the sign of signed types |
| eq ne lt le | same dtype | bool; IEEE on floats (NaN: only ne is true) |
| select | bool, x, y | x where true, else y |
| fabs sqrt floor ceil trunc rint | floats | sqrt correctly rounded; rint to nearest even |
| convert | any | integers wrap; to float rounds to nearest even; float to integer truncates, in range; not to bool |
| bitcast | same width, not bool | the same bits |
| splat | scalar | all lanes |
| ramp | integer | lane k is it + k, which does not wrap |
| extract | vector | lane ``index`` |
| load | buffer, index | index in range; a vector result loads consecutive elements |
| store | buffer, index, value | likewise; ``stream``: soon read by nobody, and index is a multiple of the lanes |
| prefetch | buffer, index | what is there may soon be read; index may be out of range; nothing is computed |
| block_id thread_id block_count | - | position along ``axis``; int32 |
| shuffle | number | its value in the thread whose number is this one's xor ``mask``; see below |
| matrix_fma | buffer, index, buffer, index, total | a step of a matrix unit; see below |
| matrix_store | buffer, index, total | its result in memory |
| for | lo, hi, step, initial... | region (index, carried...) ends in yield; step > 0; results are the last carried |
| if | bool | two regions ending in yield |
| local private | - | ``size`` elements, shared by the block / of this thread; content undefined |
| barrier | - | all threads of the block; not in divergent flow |

The threads that meet in a ``shuffle`` are ``width`` neighbours of a block, which is a multiple of it; ``mask`` is below
it. All threads of the block reach it, as they reach a barrier.

``matrix_fma`` is ``total + A B``, computed by the ``width`` threads of a subgroup together. Row i of A is the 16
elements from ``index + i * stride`` on of the first buffer, and column j of B likewise of the second; both are local
memory of the dtype that ``kind`` names (``tf32``: float32, of which 10 bits of the mantissa count). Products are exact,
sums float32. ``total`` is a float32 vector of 256 / width lanes, in each thread a part of the 16 x 16 numbers, which
part is the target's own: it begins as one number in all lanes, and ``matrix_store`` puts row i at
``index + i * stride`` of local memory of float32. ``stride`` and indices are even. All threads of the block reach it.

A loop counts exactly, also where index + step would pass the dtype's greatest value. Indices are exact too: signed
``add sub mul neg`` that flow into the index of a load or store, or into a loop's bounds, through operations of that
kind alone do not wrap (kernel.analysis finds them; renderers may compute them in wider types). What wraps on purpose
and then becomes an index goes through another operation first: ``and``, ``rem``, ``min``, a shift ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from oarlock import dtypes
from oarlock.abi import BufferArgument, KernelSignature, scalar_layout
from oarlock.errors import DTypeError, IRError, VerifyError
from oarlock.ir import (
    Attribute,
    BufferType,
    Context,
    Dialect,
    InferTypes,
    OpDefinition,
    Operation,
    ScalarType,
    Type,
    traits,
)
from oarlock.target import Target

__all__ = ["ARITHMETIC", "COMPARE", "FLOAT_UNARY", "KERNEL", "MATRIX_KINDS", "kernel_context", "signature_of"]

ARITHMETIC = ("add", "sub", "mul", "div", "quot", "rem", "min", "max", "and", "or", "xor", "shl", "shr")
COMPARE = ("eq", "ne", "lt", "le")
FLOAT_UNARY = ("fabs", "sqrt", "floor", "ceil", "trunc", "rint")

_PURE = frozenset({traits.PURE})


def _allowed(name: str) -> Callable[[dtypes.DType], bool]:
    if name in ("div", "fma", *FLOAT_UNARY):
        return lambda d: d.is_float
    if name in ("quot", "rem", "min", "max", "shl", "shr"):
        return lambda d: d.is_integer
    if name in ("and", "or", "xor", "not"):
        return lambda d: not d.is_float
    if name in ("add", "sub", "mul", "neg"):
        return lambda d: d.kind != "bool"
    return lambda d: True


def _scalars(name: str, types: Sequence[Type]) -> list[ScalarType]:
    scalars: list[ScalarType] = []
    for given in types:
        if not isinstance(given, ScalarType):
            raise DTypeError(f"kernel.{name}: operand is {given}, not a scalar")
        scalars.append(given)
    return scalars


def _same(name: str) -> InferTypes:
    allowed = _allowed(name)

    def infer(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
        scalars = _scalars(name, types)
        if len(set(scalars)) != 1:
            raise DTypeError(f"kernel.{name}: operands differ: {', '.join(map(str, scalars))}")
        if not allowed(scalars[0].dtype):
            raise DTypeError(f"kernel.{name} does not take {scalars[0].dtype}")
        return (scalars[0],)

    return infer


def _compare(name: str) -> InferTypes:
    same = _same(name)

    def infer(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
        (first,) = same(types, attributes)
        assert isinstance(first, ScalarType)
        return (ScalarType(dtypes.bool_, first.lanes),)

    return infer


def _select(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    condition, yes, no = _scalars("select", types)
    if condition.dtype != dtypes.bool_ or yes != no or condition.lanes != yes.lanes:
        raise DTypeError(f"kernel.select: ({condition}, {yes}, {no}) is not (bool, x, x)")
    return (yes,)


def _convert(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    (source,) = _scalars("convert", types)
    dtype = attributes["dtype"]
    if not isinstance(dtype, dtypes.DType) or dtype == dtypes.bool_:
        raise DTypeError("kernel.convert: not to bool; compare with ne")
    return (ScalarType(dtype, source.lanes),)


def _bitcast(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    (source,) = _scalars("bitcast", types)
    dtype = attributes["dtype"]
    if not isinstance(dtype, dtypes.DType) or dtype.bits != source.dtype.bits or dtypes.bool_ in (dtype, source.dtype):
        raise DTypeError(f"kernel.bitcast: {source.dtype} to {dtype}: widths differ, or bool")
    return (ScalarType(dtype, source.lanes),)


def _splat(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    (source,) = _scalars("splat", types)
    lanes = attributes["lanes"]
    if source.lanes != 1 or not isinstance(lanes, int) or lanes < 2:
        raise DTypeError(f"kernel.splat: from one lane to several, not {source} to {lanes}")
    return (ScalarType(source.dtype, lanes),)


def _ramp(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    (result,) = _splat(types, attributes)
    assert isinstance(result, ScalarType)
    if not result.dtype.is_integer:
        raise DTypeError(f"kernel.ramp: begins at an integer, not {result.dtype}")
    return (result,)


def _extract(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    (source,) = _scalars("extract", types)
    index = attributes["index"]
    if not isinstance(index, int) or not 0 <= index < source.lanes:
        raise DTypeError(f"kernel.extract: no lane {index} in {source}")
    return (ScalarType(source.dtype),)


def _load(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    buffer, index = types
    lanes = attributes.get("lanes", 1)
    if not isinstance(buffer, BufferType) or buffer.access == "write":
        raise DTypeError(f"kernel.load: cannot load from {buffer}")
    if not isinstance(index, ScalarType) or not index.dtype.is_integer or not isinstance(lanes, int):
        raise DTypeError(f"kernel.load: index is {index}, not an integer")
    return (ScalarType(buffer.dtype, lanes),)


def _verify_store(op: Operation) -> None:
    buffer, index, value = (operand.type for operand in op.operands)
    if not isinstance(buffer, BufferType) or buffer.access == "read":
        raise VerifyError(f"kernel.store: cannot store to {buffer}")
    if not isinstance(value, ScalarType) or value.dtype != buffer.dtype:
        raise VerifyError(f"kernel.store: {value} does not fit {buffer}")
    if not isinstance(index, ScalarType) or not index.dtype.is_integer:
        raise VerifyError(f"kernel.store: index is {index}, not an integer")


def _verify_prefetch(op: Operation) -> None:
    buffer, index = (operand.type for operand in op.operands)
    if not isinstance(buffer, BufferType) or not isinstance(index, ScalarType) or not index.dtype.is_integer:
        raise VerifyError(f"kernel.prefetch takes a buffer and an index, not {buffer} and {index}")


def _shuffle(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    (source,) = _scalars("shuffle", types)
    mask, width = attributes["mask"], attributes["width"]
    if source.lanes != 1 or source.dtype == dtypes.bool_:
        raise DTypeError(f"kernel.shuffle takes one number, not {source}")
    if not isinstance(mask, int) or not isinstance(width, int) or width & (width - 1) or not 0 < mask < width:
        raise DTypeError(f"kernel.shuffle: 0 < mask < width, a power of two, not mask {mask} and width {width}")
    return (source,)


MATRIX_KINDS = {"float16": dtypes.float16, "bfloat16": dtypes.bfloat16, "tf32": dtypes.float32}
"""What the kinds of matrix units read."""


def _matrix_fma(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    a, _, b, _, total = types
    kind = attributes["kind"]
    if kind not in MATRIX_KINDS:
        raise DTypeError(f"kernel.matrix_fma: kind {kind!r} is none of {', '.join(MATRIX_KINDS)}")
    bits = MATRIX_KINDS[str(kind)].bits
    for buffer in (a, b):
        if not isinstance(buffer, BufferType) or buffer.space != "local" or buffer.dtype.bits != bits:
            raise DTypeError(f"kernel.matrix_fma of {kind} reads local memory of {bits} bits, not {buffer}")
    _check_part(total, attributes["width"])
    return (total,)


def _verify_matrix_store(op: Operation) -> None:
    buffer, _, total = (operand.type for operand in op.operands)
    if not isinstance(buffer, BufferType) or buffer.space != "local" or buffer.dtype != dtypes.float32:
        raise VerifyError(f"kernel.matrix_store: cannot store to {buffer}, which is no local memory of float32")
    _check_part(total, op.attributes["width"])


def _check_part(total: Type, width: Attribute) -> None:
    if not isinstance(width, int) or total != ScalarType(dtypes.float32, 256 // width):
        raise DTypeError(f"kernel.matrix_fma: a thread's part of 256 numbers for {width} threads is not {total}")


def _position(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    return (ScalarType(dtypes.int32),)


def _memory(space: str) -> InferTypes:
    def infer(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
        dtype = attributes["dtype"]
        if not isinstance(dtype, dtypes.DType):
            raise DTypeError(f"kernel.{space}: dtype is {dtype!r}")
        return (BufferType(dtype, "local" if space == "local" else "private", "both"),)

    return infer


def _verify_for(op: Operation) -> None:
    block = op.regions[0].block
    carried = [value.type for value in op.operands[3:]]
    if [a.type for a in block.args[1:]] != carried or [r.type for r in op.results] != carried:
        raise VerifyError("kernel.for: initial values, carried values and results differ in type")
    if len({value.type for value in (*op.operands[:3], block.args[0])}) != 1:
        raise VerifyError("kernel.for: index and bounds differ in type")
    _verify_yield(op, carried)


def _verify_if(op: Operation) -> None:
    if op.operands[0].type != ScalarType(dtypes.bool_):
        raise VerifyError("kernel.if: the condition is no bool")
    _verify_yield(op, [r.type for r in op.results])


def _verify_yield(op: Operation, types: Sequence[Type]) -> None:
    for region in op.regions:
        last = region.block.last_op
        if last is None or last.name != "kernel.yield" or [v.type for v in last.operands] != list(types):
            raise VerifyError(
                f"{op.name}: a region does not end in kernel.yield of {', '.join(map(str, types)) or 'nothing'}"
            )


def _verify_function(op: Operation) -> None:
    scalars = False
    for argument in op.regions[0].block.args:
        if isinstance(argument.type, ScalarType):
            scalars = True
        elif not isinstance(argument.type, BufferType) or argument.type.space != "global" or scalars:
            raise VerifyError("kernel.function: parameters are global buffers, then scalars")


def _define(name: str, operands: int | None, infer: InferTypes | None, **rest: object) -> OpDefinition:
    return OpDefinition("kernel." + name, operands=operands, infer=infer, **{"traits": _PURE, **rest})  # type: ignore[arg-type]


KERNEL = Dialect(
    "kernel",
    1,
    [
        _define("constant", 0, None, attributes={"value": (bool, int, float)}, traits=_PURE | {traits.CONSTANT}),
        *(
            _define(name, 2, _same(name), attributes={"loose": bool}, optional=frozenset({"loose"}))
            for name in ARITHMETIC
        ),
        *(_define(name, 2, _compare(name)) for name in COMPARE),
        *(_define(name, 1, _same(name)) for name in ("neg", "not", *FLOAT_UNARY)),
        _define("fma", 3, _same("fma")),
        _define("select", 3, _select),
        _define("convert", 1, _convert, attributes={"dtype": dtypes.DType}),
        _define("bitcast", 1, _bitcast, attributes={"dtype": dtypes.DType}),
        _define("splat", 1, _splat, attributes={"lanes": int}),
        _define("ramp", 1, _ramp, attributes={"lanes": int}),
        _define("extract", 1, _extract, attributes={"index": int}),
        _define("load", 2, _load, attributes={"lanes": int}, optional=frozenset({"lanes"}), traits=frozenset()),
        _define(
            "store",
            3,
            None,
            results=0,
            attributes={"stream": bool},
            optional=frozenset({"stream"}),
            verify=_verify_store,
            traits=frozenset(),
        ),
        _define("prefetch", 2, None, results=0, verify=_verify_prefetch, traits=frozenset()),
        *(_define(name, 0, _position, attributes={"axis": int}) for name in ("block_id", "thread_id", "block_count")),
        *(
            _define(name, 0, _memory(name), attributes={"dtype": dtypes.DType, "size": int}, traits=frozenset())
            for name in ("local", "private")
        ),
        _define("barrier", 0, None, results=0, traits=frozenset()),
        _define(
            "matrix_fma", 5, _matrix_fma, attributes={"stride": int, "kind": str, "width": int}, traits=frozenset()
        ),
        _define(
            "matrix_store",
            3,
            None,
            results=0,
            attributes={"stride": int, "width": int},
            verify=_verify_matrix_store,
            traits=frozenset(),
        ),
        _define("shuffle", 1, _shuffle, attributes={"mask": int, "width": int}, traits=frozenset()),
        _define(
            "for",
            None,
            None,
            results=None,
            regions=1,
            attributes={"unroll": bool, "few": bool},
            optional=frozenset({"unroll", "few"}),
            verify=_verify_for,
            traits=frozenset(),
        ),
        _define("if", 1, None, results=None, regions=2, verify=_verify_if, traits=frozenset()),
        _define("yield", None, None, results=0, traits=frozenset({traits.TERMINATOR})),
        _define(
            "function",
            0,
            None,
            results=0,
            regions=1,
            attributes={"name": str, "block": tuple, "arguments": tuple},
            verify=_verify_function,
            traits=frozenset({traits.ISOLATED}),
        ),
    ],
)
"""Its operations. A ``kernel.function`` has attributes ``name``, ``block`` (threads per block) and ``arguments`` (the
parameters' names, buffers first)."""


def kernel_context() -> Context:
    """A context with the kernel dialect."""
    return Context([KERNEL])


def signature_of(function: Operation, target: Target) -> KernelSignature:
    """The ABI of a ``kernel.function`` on ``target``; raises UnsupportedError where a dtype cannot be stored."""
    names = function.attributes["arguments"]
    block = function.attributes["block"]
    if not isinstance(names, tuple) or not isinstance(block, tuple):
        raise IRError("kernel.function: arguments and block are tuples")
    buffers: list[BufferArgument] = []
    scalars: list[tuple[str, dtypes.DType]] = []
    for name, argument in zip(names, function.regions[0].block.args, strict=True):
        if isinstance(argument.type, BufferType):
            storage = target.storage_of(argument.type.dtype)
            buffers.append(BufferArgument(str(name), argument.type.dtype, storage, argument.type.access))
        elif isinstance(argument.type, ScalarType):
            scalars.append((str(name), argument.type.dtype))
    fields, nbytes = scalar_layout(scalars)
    x, y, z = (int(b) for b in block)  # type: ignore[arg-type]
    return KernelSignature(str(function.attributes["name"]), tuple(buffers), fields, nbytes, (x, y, z))
