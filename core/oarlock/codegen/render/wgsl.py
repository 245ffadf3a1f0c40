"""WGSL, the language of WebGPU: the shared C printer with WGSL's declarations and its own expressions.

What WGSL makes different: buffers, local memory and the scalar block (a uniform struct, bound after the buffers) are
declared outside the function; what constants alone give is evaluated when the text is compiled, where an overflow is an
error, so one operand is named first; infinities and NaN have no literals; ``!=`` is false for NaN on some stacks.

Compilers of WGSL may reassociate, contract and simplify floating point arithmetic (specification, "Floating Point
Evaluation"), and do: ``(x + c) - c`` becomes ``x``. So a rounded result that other arithmetic uses goes through
``exact``, which changes no bit in a way that no compiler can see.
"""

from __future__ import annotations

from collections.abc import Sequence

from oarlock import dtypes
from oarlock.codegen.render.cdialect import CDialect
from oarlock.codegen.render.cexpr import OPERATORS, bare, expression
from oarlock.codegen.render.cstyle import CFunction, CRenderer, memory_dtype, scalar_type
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError
from oarlock.ir import BufferType, Operation, ScalarType, Value

__all__ = ["RENDERER", "WGSL"]

_TYPES = {"bool": "bool", "int32": "i32", "uint32": "u32", "float32": "f32"}
_ROUNDED = ("add", "sub", "mul", "div", "sqrt")
_FUNCTIONS = {
    "min": "min", "max": "max", "fabs": "abs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
    "rint": "round",
}  # fmt: skip

_RESERVED = frozenset(
    "alias break case const const_assert continue continuing default diagnostic discard else enable false fn for if "
    "let loop override requires return struct switch true var while NULL Self abstract active alignas alignof as asm "
    "asm_fragment async attribute auto await become cast catch class co_await co_return co_yield coherent "
    "column_major common compile compile_fragment concept const_cast consteval constexpr constinit crate debugger "
    "decltype delete demote demote_to_helper do dynamic_cast enum explicit export extends extern external fallthrough "
    "filter final finally friend from fxgroup get goto groupshared highp impl implements import inline instanceof "
    "interface layout lowp macro macro_rules match mediump meta mod module move mut mutable namespace new nil "
    "noexcept noinline nointerpolation non_coherent noncoherent noperspective null nullptr of operator package "
    "packoffset partition pass patch pixelfragment precise precision premerge priv protected pub public readonly ref "
    "regardless register reinterpret_cast require resource restrict self set shared sizeof smooth snorm static "
    "static_assert static_cast std subroutine super target template this thread_local throw trait try type typedef "
    "typeid typename typeof union unless unorm unsafe unsized use using varying virtual volatile wgsl where with "
    "writeonly yield".split()
)
"""The specification's keywords and reserved words, which a field of the scalar block cannot be called."""

_LANES = (2, 3, 4)
_OPAQUE = "    opaque_zero = u32(block_id.x >= block_count.x);"
"""Zero, which no compiler knows."""


def _expression(kind: str, x: Sequence[str], source: DType, result: DType) -> str:
    """One operation on scalars; see CDialect.expression."""
    if kind in _FUNCTIONS:
        return f"{_FUNCTIONS[kind]}({', '.join(map(bare, x))})"
    if kind == "select":
        return f"select({bare(x[2])}, {bare(x[1])}, {bare(x[0])})"
    if kind in ("convert", "bitcast"):
        name = _TYPES[result.name]
        return f"{name}({bare(x[0])})" if kind == "convert" else f"bitcast<{name}>({bare(x[0])})"
    if kind == "not":
        return f"({'!' if source == dtypes.bool_ else '~'}{x[0]})"
    if kind == "neg":
        return f"(0u - {x[0]})" if source.kind == "uint" else f"(-{x[0]})"
    if kind == "fma":
        raise UnsupportedError("wgsl: fma may round twice; multiply and add, which says so")
    if kind in ("shl", "shr"):
        return f"({x[0]} {OPERATORS[kind]} u32({bare(x[1])}))"
    if kind == "ne" and source.is_float:
        return f"(!({x[0]} == {x[1]}))"
    if source == dtypes.bool_ and kind in ("lt", "le"):
        return f"(u32({x[0]}) {OPERATORS[kind]} u32({x[1]}))"
    operator = "!=" if kind == "xor" and source == dtypes.bool_ else OPERATORS[kind]
    return f"({x[0]} {operator} {x[1]})"


def _exact_vector(lanes: int) -> str:
    floats, integers = f"vec{lanes}<f32>", f"vec{lanes}<u32>"
    body = f"return bitcast<{floats}>(bitcast<{integers}>(x) ^ {integers}(opaque_zero));"
    return f"fn exact{lanes}(x: {floats}) -> {floats} {{ {body} }}"


class _Function(CFunction):
    """Prints one kernel.function with what it declares around it."""

    def render(self) -> str:
        kernel, fields = self.params.name, []
        self.names.update({buffer: f"{kernel}_{name}" for buffer, name in self.params.buffers})
        for scalar, name in self.params.scalars:
            fields.append(f"{name}: {self.unit.type(scalar_type(scalar))}")
            self.names[scalar] = f"{kernel}_block.{name}"
        self.body(self.op.regions[0].block)
        declared = [self._buffer(n, buffer) for n, (buffer, _) in enumerate(self.params.buffers)]
        if fields:
            declared.append(f"struct {kernel}_Block {{ {', '.join(fields)} }}")
            place = f"@group(0) @binding({len(self.params.buffers)})"
            declared.append(f"{place} var<uniform> {kernel}_block: {kernel}_Block;")
        x, y, z = self.params.threads
        head = self.dialect.function.format(
            name=kernel, parameters=", ".join(self.dialect.extra_parameters), x=x, y=y, z=z
        )
        return "\n".join([*declared, *self.top, head + " {", _OPAQUE, *self.lines, "}"])

    def _buffer(self, position: int, buffer: Value) -> str:
        assert isinstance(buffer.type, BufferType)
        return f"@group(0) @binding({position}) " + self.dialect.buffer.format(
            access="read" if buffer.type.access == "read" else "read_write",
            name=self.names[buffer],
            type=self.unit.type(ScalarType(memory_dtype(buffer))),
        )

    def fresh(self, kind: str) -> str:
        name = super().fresh("n" if kind == "i" else kind)  # i32 is a type
        return f"{self.op.attributes['name']}_{name}" if kind == "m" else name

    def arithmetic(self, op: Operation) -> None:
        kind, source = op.name.removeprefix("kernel."), scalar_type(op.operands[0])
        if all(_constant(v) is not None for v in op.operands):
            first = op.operands[0]
            known, text = self.names.get(first), self.value(first)
            self.names[first] = self.keep(source, text)
            super().arithmetic(op)
            self.names[first] = known or text
        elif kind in _ROUNDED and source.dtype.is_float:
            operands = [self.value(v) for v in op.operands]
            zeros = [position for position, v in enumerate(op.operands) if _constant(v) == 0]
            summed = op.operands[0].defining_op
            if kind == "div" and (1 in zeros or (summed is not None and summed.name == "kernel.for")):
                zeros = sorted({0, *zeros})  # a sum of nothing is 0 to a compiler that unrolls no turns, and 0 / x is 0
            for position in zeros or ([0] if len(set(op.operands)) < len(op.operands) else []):
                operands[position] = self.exact(operands[position], source)  # else x - x is 0, and x + 0 is x
            self.define(op.result, expression(self.dialect, kind, operands, source.dtype, source.dtype))
        else:
            super().arithmetic(op)

    def exact(self, text: str, type: ScalarType) -> str:
        """The same bits, of which a compiler knows nothing."""
        return f"exact{type.lanes if type.lanes > 1 else ''}({bare(text)})"

    def define(self, result: Value, text: str, movable: bool = True) -> None:
        super().define(result, self.exact(text, scalar_type(result)) if _is_combined(result) else text, movable)

    def advance(self, op: Operation, counter: str, high: str, step: str) -> str:
        text = super().advance(op, counter, high, step)
        if text.startswith("++"):
            return f"{counter}++"
        if "?" not in text:
            return text
        left = f"u32({high}) - u32({counter}) > u32({step})"
        return f"{counter} = select({high}, {counter} + {step}, {left})"


def _constant(value: Value) -> bool | int | float | None:
    op = value.defining_op
    number = op.attributes["value"] if op is not None and op.name == "kernel.constant" else None
    assert number is None or isinstance(number, (bool, int, float))
    return number


def _is_combined(value: Value) -> bool:
    """Whether a compiler may see a rounded result together with what uses it."""
    op = value.defining_op
    if op is None or op.name.removeprefix("kernel.") not in _ROUNDED or op.attributes.get("loose"):
        return False
    if not scalar_type(value).dtype.is_float:
        return False
    return any(user.name not in ("kernel.store", "kernel.bitcast") for user, _ in value.uses)


WGSL = CDialect(
    language="wgsl",
    types=_TYPES,
    function="@compute @workgroup_size({x}, {y}, {z})\nfn {name}({parameters})",
    buffer="var<storage, {access}> {name}: array<{type}>;",
    extra_parameters=(
        "@builtin(workgroup_id) block_id: vec3<u32>",
        "@builtin(local_invocation_id) thread_id: vec3<u32>",
        "@builtin(num_workgroups) block_count: vec3<u32>",
    ),
    local="var<workgroup> {name}: array<{type}, {size}>;",
    private="var {name}: array<{type}, {size}>;",
    barrier="workgroupBarrier();",
    block_id="i32(block_id.{xyz})",
    thread_id="i32(thread_id.{xyz})",
    block_count="i32(block_count.{xyz})",
    suffixes={"int32": "i", "uint32": "u", "float32": "f"},
    booleans=("false", "true"),
    constant="let {name}: {type} = {value};",
    variable="var {name}: {type}",
    expression=_expression,
    vector="vec{lanes}<{type}>",
    bool_lanes="bool",
    lanes=_LANES,
    pack="{vector}({items})",
    lane=".{xyzw}",
    infinity="bitcast<f32>(infinity_bits)",
    nan="bitcast<f32>(nan_bits)",
    reserved=_RESERVED,
    preamble=(
        "var<private> infinity_bits: u32 = 0x7f800000u;\nvar<private> nan_bits: u32 = 0x7fc00000u;\n"
        "var<private> opaque_zero: u32;\n"
        "fn exact(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ opaque_zero); }\n"
        + "\n".join(_exact_vector(lanes) for lanes in _LANES)
    ),
)
"""The table."""

RENDERER = CRenderer(WGSL, _Function)
"""The renderer of language ``wgsl``."""
