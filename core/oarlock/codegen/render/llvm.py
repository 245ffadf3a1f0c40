"""LLVM IR: prints kernels as text with the C ABI of oarlock.abi, for the CPU and every other LLVM target.

Opaque pointers, no data layout and no triple: who compiles sets both. Flags of the Target written ``key=value`` become
function attributes (``prefer-vector-width=512``). Made to be optimised: buffers and scalars are read once, before the
loops over blocks; what distinct buffers hold is told apart by alias scopes; loop counters are 64 bits wide and do not
wrap; index arithmetic is ``nsw`` (see kernel.analysis).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from oarlock import dtypes
from oarlock.abi import scalar_layout
from oarlock.codegen.kernel.analysis import INDEX_OPERANDS, index_arithmetic
from oarlock.codegen.render.common import parameters
from oarlock.codegen.render.llvm_values import (
    INTRINSIC,
    binary_opcode,
    compare_opcode,
    convert_opcode,
    literal,
    suffix,
    type_of,
)
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError
from oarlock.ir import Block, BufferType, Operation, ScalarType, Type, Value
from oarlock.target import Target

__all__ = ["RENDERER", "LLVMRenderer"]

_SIGNATURE = ", ".join(f"ptr noalias readonly %{name}" for name in ("buffers", "scalars", "begin", "end"))


class LLVMRenderer:
    """Renders kernels as one LLVM module."""

    def render(self, functions: Sequence[Operation], target: Target) -> str:
        """See Renderer."""
        module = _Module()
        bodies = ["\n".join(_Function(module, function).render()) for function in functions]
        attributes = ["nounwind", *(f'"{k}"="{v}"' for k, v in (f.split("=", 1) for f in target.flags if "=" in f))]
        declarations = sorted(module.declarations)
        metadata = [f"!{number} = {text}" for number, text in enumerate(module.metadata)]
        tail = [f"attributes #0 = {{ {' '.join(attributes)} }}"]
        return "\n\n".join(filter(None, (*bodies, "\n".join(declarations), *tail, "\n".join(metadata)))) + "\n"

    def has_vectors(self, lanes: int) -> bool:
        """See Renderer: LLVM cuts them into those of the processor."""
        return True


MEMORY_ALIGNMENT = 64
"""Bytes that allocations begin at a multiple of, as ``hal.host`` makes them: what a streamed store may rely on."""

RENDERER = LLVMRenderer()
"""The renderer of language ``llvm``."""


class _Module:
    """What the functions of a module share: declarations of intrinsics, and metadata."""

    def __init__(self) -> None:
        self.declarations: set[str] = set()
        self.metadata: list[str] = []

    def add(self, text: str) -> int:
        """Add a metadata node; ``{self}`` in ``text`` is its own number."""
        self.metadata.append(text.replace("{self}", f"!{len(self.metadata)}"))
        return len(self.metadata) - 1

    def once(self, text: str) -> int:
        """The number of a metadata node that many share."""
        return self.metadata.index(text) if text in self.metadata else self.add(text)

    def intrinsic(self, name: str, type: ScalarType, operands: int) -> str:
        full = f"@llvm.{name}.{suffix(type)}"
        text = type_of(type)
        self.declarations.add(f"declare {text} {full}({', '.join([text] * operands)})")
        return full


class _Function:
    """Prints one kernel.function."""

    def __init__(self, module: _Module, op: Operation) -> None:
        self.module = module
        self.op = op
        self.params = parameters(op)
        if self.params.threads != (1, 1, 1):
            raise UnsupportedError(
                f"kernel {self.params.name}: LLVM functions have one thread a block, not {self.params.threads}; "
                "schedule it with block=(1, 1, 1)"
            )
        self.lines: list[str] = []
        self.stack: list[str] = []
        self.names: dict[Value, str] = {}
        self.wide: dict[Value, str] = {}  # what feeds an index, in 64 bits: it does not wrap in 32, so it is the same
        self.scopes: dict[Value, str] = {}
        self.unwrapped = index_arithmetic(op)
        self.count = 0
        self.label = "entry"
        self.block_ids: dict[int, str] = {}
        self.streams = False

    def render(self) -> list[str]:
        self._parameters()
        self._box(2, [self._bounds(axis) for axis in range(3)])
        head = [f"define void @{_identifier(self.params.name)}({_SIGNATURE}) #0 {{", "entry:"]
        fence = ["  fence seq_cst"] if self.streams else []  # such stores wait for nothing else
        return [*head, *self.stack, *self.lines, *fence, "  ret void", "}"]

    # --- names and lines

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def put(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, expression: str) -> str:
        """Emit an instruction; returns the name of its result."""
        name = self.fresh()
        self.put(f"{name} = {expression}")
        return name

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def labels(self, *kinds: str) -> list[str]:
        self.count += 1
        return [f"{kind}{self.count}" for kind in kinds]

    def value(self, value: Value) -> str:
        """A value's name, or its literal."""
        op = value.defining_op
        if op is not None and op.name == "kernel.constant" and value not in self.names:
            number = op.attributes["value"]
            assert isinstance(number, (bool, int, float))
            self.names[value] = literal(number, _scalar(value))
        return self.names[value]

    def typed(self, value: Value) -> str:
        return f"{type_of(_scalar(value))} {self.value(value)}"

    def index(self, value: Value) -> str:
        """An index as 64 bits."""
        if value in self.wide:
            return self.wide[value]
        dtype = _scalar(value).dtype
        op = value.defining_op
        if dtype.bits == 64 or (op is not None and op.name == "kernel.constant"):
            return self.value(value)
        return self.let(f"{'sext' if dtype.kind == 'int' else 'zext'} {self.typed(value)} to i64")

    # --- the frame: parameters and the loops over blocks

    def _parameters(self) -> None:
        domain = self.module.add("distinct !{{self}}")
        scopes = {b: self.module.add(f"distinct !{{{{self}}, !{domain}}}") for b, _ in self.params.buffers}
        for number, (buffer, name) in enumerate(self.params.buffers):
            slot = self.let(f"getelementptr inbounds ptr, ptr %buffers, i64 {number}")
            self.names[buffer] = f"%{_identifier(name)}.data"
            self.put(f"{self.names[buffer]} = load ptr, ptr {slot}, align 8")
            own = self.module.add(f"!{{!{scopes[buffer]}}}")
            others = ", ".join(f"!{scope}" for other, scope in scopes.items() if other is not buffer)
            self.scopes[buffer] = f", !alias.scope !{own}"
            if others:
                self.scopes[buffer] += f", !noalias !{self.module.add(f'!{{{others}}}')}"
        fields, _ = scalar_layout([(name, _scalar(scalar).dtype) for scalar, name in self.params.scalars])
        for (scalar, name), field in zip(self.params.scalars, fields, strict=True):
            place = self.let(f"getelementptr inbounds i8, ptr %scalars, i64 {field.offset}")
            self.names[scalar] = f"%{_identifier(name)}.value"
            self.put(f"{self.names[scalar]} = load {type_of(field.dtype)}, ptr {place}, align {field.dtype.itemsize}")
            if field.dtype.is_integer and field.dtype.bits < 64:
                self.wide[scalar] = self.index(scalar)

    def _bounds(self, axis: int) -> tuple[str, str]:
        places = [self.let(f"getelementptr inbounds i32, ptr %{side}, i64 {axis}") for side in ("begin", "end")]
        begin, end = (self.let(f"zext i32 {self.let(f'load i32, ptr {place}, align 4')} to i64") for place in places)
        return begin, end

    def _box(self, axis: int, bounds: list[tuple[str, str]]) -> None:
        """Loop over the blocks of the box along ``axis``, and inside along the lower ones."""
        if axis < 0:
            self.body(self.op.regions[0].block)
            return

        def inner(counter: str, carried: list[str]) -> list[str]:
            self.block_ids[axis] = counter
            self._box(axis - 1, bounds)
            return []

        self.loop(*bounds[axis], "1", (), inner)

    def loop(
        self,
        low: str,
        high: str,
        step: str,
        carried: Sequence[tuple[str, str]],
        body: Callable[[str, list[str]], list[str]],
        signed: bool = True,
        wraps: bool = False,
        advice: Sequence[str] = (),
    ) -> list[str]:
        """A loop that counts in 64 bits. ``carried`` is (type, initial value), ``body`` gives the next ones.

        Returns the names of the last ones. ``wraps``: counter + step may pass what 64 bits hold.
        """
        head, inside, done = self.labels("head", "body", "done")
        before = self.label
        self.put(f"br label %{head}")
        self.start(head)
        counter, following = self.fresh(), self.fresh()
        names = [self.fresh() for _ in carried]
        place = len(self.lines)
        going = self.fresh()
        self.put(f"{going} = icmp {'slt' if signed else 'ult'} i64 {counter}, {high}")
        self.put(f"br i1 {going}, label %{inside}, label %{done}")
        self.start(inside)
        nexts = body(counter, names)
        if wraps:  # what is left is compared with the step
            more = self.let(f"icmp ugt i64 {self.let(f'sub i64 {high}, {counter}')}, {step}")
            advanced = self.let(f"add i64 {counter}, {step}")
            self.put(f"{following} = select i1 {more}, i64 {advanced}, i64 {high}")
        else:
            self.put(f"{following} = add {'nsw' if signed else 'nuw'} i64 {counter}, {step}")
        metadata = ""
        if advice:
            hints = ", ".join(f"!{self.module.once(f'!{{{each}}}')}" for each in advice)
            metadata = f", !llvm.loop !{self.module.add(f'distinct !{{{{self}}, {hints}}}')}"
        self.put(f"br label %{head}{metadata}")
        phis = [f"  {counter} = phi i64 [ {low}, %{before} ], [ {following}, %{self.label} ]"]
        for name, (kind, initial), latest in zip(names, carried, nexts, strict=True):
            phis.append(f"  {name} = phi {kind} [ {initial}, %{before} ], [ {latest}, %{self.label} ]")
        self.lines[place:place] = phis
        self.start(done)
        return names

    # --- operations

    def body(self, block: Block) -> list[str]:
        """Print a block; returns the values that its yield gives."""
        for op in block.ops:
            kind = op.name.removeprefix("kernel.")
            if kind == "yield":
                return [self.value(v) for v in op.operands]
            if op in self.unwrapped:
                self.index_arithmetic(op)
            elif kind != "constant":
                _PRINTERS.get(kind, _Function.arithmetic)(self, op)
        return []

    def arithmetic(self, op: Operation) -> None:
        kind = op.name.removeprefix("kernel.")
        type = _scalar(op.operands[0])
        values = [self.value(v) for v in op.operands]
        text = type_of(type)
        if kind in INTRINSIC:
            sign = {"int": "s", "uint": "u"}[type.dtype.kind] if kind in ("min", "max") else ""
            called = self.module.intrinsic(sign + INTRINSIC[kind], type, len(values))
            expression = f"call {text} {called}({', '.join(f'{text} {v}' for v in values)})"
        elif kind in ("eq", "ne", "lt", "le"):
            expression = f"{compare_opcode(kind, type.dtype)} {text} {values[0]}, {values[1]}"
        elif kind == "neg" and type.dtype.is_float:
            expression = f"fneg {text} {values[0]}"
        elif kind == "neg":
            expression = f"sub {text} {literal(0, type)}, {values[0]}"
        elif kind == "not":
            ones = literal(True if type.dtype.kind == "bool" else -1, type)
            expression = f"xor {text} {values[0]}, {ones}"
        else:
            expression = f"{binary_opcode(kind, type.dtype)} {text} {values[0]}, {values[1]}"
        self.names[op.result] = self.let(expression)

    def index_arithmetic(self, op: Operation) -> None:
        """Arithmetic that does not wrap, in 64 bits."""
        kind = op.name.removeprefix("kernel.")
        values = [self.index(v) for v in op.operands]
        operands = f"0, {values[0]}" if kind == "neg" else ", ".join(values)
        self._keep(op.result, self.let(f"{'sub' if kind == 'neg' else kind} nsw i64 {operands}"))

    def _keep(self, value: Value, wide: str) -> None:
        """``value`` is ``wide``, which fits its dtype; it is narrowed where anything but index arithmetic uses it."""
        dtype = _scalar(value).dtype
        if dtype.bits == 64:
            self.names[value] = wide
            return
        self.wide[value] = wide
        if any(
            user not in self.unwrapped and position not in INDEX_OPERANDS.get(user.name, ())
            for user, position in value.uses
        ):
            flag = "nsw" if dtype.kind == "int" else "nuw"
            self.names[value] = self.let(f"trunc {flag} i64 {wide} to {type_of(dtype)}")

    def select(self, op: Operation) -> None:
        self.names[op.result] = self.let(f"select {', '.join(self.typed(v) for v in op.operands)}")

    def convert(self, op: Operation) -> None:
        source, target = _scalar(op.operands[0]), _scalar(op.result)
        opcode = convert_opcode(source.dtype, target.dtype)
        if opcode is None:
            self.names[op.result] = self.value(op.operands[0])
            return
        self.names[op.result] = self.let(f"{opcode} {self.typed(op.operands[0])} to {type_of(target)}")

    def bitcast(self, op: Operation) -> None:
        source, target = type_of(_scalar(op.operands[0])), type_of(_scalar(op.result))
        same = source == target
        value = self.value(op.operands[0])
        self.names[op.result] = value if same else self.let(f"bitcast {source} {value} to {target}")

    def splat(self, op: Operation) -> None:
        vector = type_of(_scalar(op.result))
        lanes = _scalar(op.result).lanes
        first = self.let(f"insertelement {vector} poison, {self.typed(op.operands[0])}, i32 0")
        mask = f"<{lanes} x i32> zeroinitializer"
        self.names[op.result] = self.let(f"shufflevector {vector} {first}, {vector} poison, {mask}")

    def ramp(self, op: Operation) -> None:
        type = _scalar(op.result)
        self.splat(op)
        steps = ", ".join(f"{type_of(ScalarType(type.dtype))} {k}" for k in range(type.lanes))
        self.names[op.result] = self.let(f"add {type_of(type)} {self.names[op.result]}, <{steps}>")

    def extract(self, op: Operation) -> None:
        self.names[op.result] = self.let(f"extractelement {self.typed(op.operands[0])}, i32 {op.attributes['index']}")

    def _place(self, buffer: Value, index: Value) -> str:
        element = _memory(buffer)
        return self.let(f"getelementptr inbounds {type_of(element)}, ptr {self.names[buffer]}, i64 {self.index(index)}")

    def load(self, op: Operation) -> None:
        buffer, index = op.operands
        place = self._place(buffer, index)
        tail = f"align {_memory(buffer).itemsize}{self.scopes.get(buffer, '')}"
        self.names[op.result] = self.let(f"load {type_of(_scalar(op.result))}, ptr {place}, {tail}")

    def store(self, op: Operation) -> None:
        buffer, index, value = op.operands
        place = self._place(buffer, index)
        align, tail = _memory(buffer).itemsize, self.scopes.get(buffer, "")
        if op.attributes.get("stream"):
            align = min(align * _scalar(value).lanes, MEMORY_ALIGNMENT)
            tail += f", !nontemporal !{self.module.once('!{i32 1}')}"
            self.streams = True
        self.put(f"store {self.typed(value)}, ptr {place}, align {align}{tail}")

    def prefetch(self, op: Operation) -> None:
        self.module.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        buffer, index = op.operands
        type = type_of(_memory(buffer))
        place = self.let(f"getelementptr {type}, ptr {self.names[buffer]}, i64 {self.index(index)}")
        self.put(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")  # to read, into the second cache

    def memory(self, op: Operation) -> None:
        """Local memory of a block with one thread is private; all of it stands in the entry block."""
        dtype = _memory(op.result)
        self.names[op.result] = self.fresh()
        self.stack.append(f"  {self.names[op.result]} = alloca [{op.attributes['size']} x {type_of(dtype)}], align 64")

    def position(self, op: Operation) -> None:
        axis = op.attributes["axis"]
        assert isinstance(axis, int)
        if op.name == "kernel.block_count":
            raise UnsupportedError(f"kernel {self.params.name}: block_count is unknown here; pass it as a scalar")
        self._keep(op.result, self.block_ids[axis] if op.name == "kernel.block_id" else "0")

    def barrier(self, op: Operation) -> None:
        """One thread waits for nobody."""

    def for_(self, op: Operation) -> None:
        block = op.regions[0].block
        dtype = _scalar(block.args[0]).dtype
        signed, narrow = dtype.kind == "int", dtype.bits < 64
        low, high, step = (self.index(v) for v in op.operands[:3])
        carried = [(type_of(_scalar(v)), self.value(v)) for v in op.operands[3:]]
        known = all(v.defining_op is not None and v.defining_op.name == "kernel.constant" for v in op.operands[:3])
        advice: list[str] = []
        if op.attributes.get("unroll"):
            advice = [f'!"llvm.loop.unroll.{"full" if known else "enable"}"']
        if op.attributes.get("few"):
            advice = ['!"llvm.loop.vectorize.enable", i1 false', '!"llvm.loop.unroll.disable"']

        def inner(counter: str, values: list[str]) -> list[str]:
            self._keep(block.args[0], counter)
            self.names.update(zip(block.args[1:], values, strict=True))
            return self.body(block)

        wraps = not narrow and step != "1"
        # a narrow counter is held in 64 bits, where it is below 2^32 and signed
        results = self.loop(low, high, step, carried, inner, signed or narrow, wraps, advice)
        self.names.update(zip(op.results, results, strict=True))

    def if_(self, op: Operation) -> None:
        yes, no, join = self.labels("then", "else", "join")
        self.put(f"br {self.typed(op.operands[0])}, label %{yes}, label %{no}")
        sides: list[tuple[list[str], str]] = []
        for label, region in zip((yes, no), op.regions, strict=True):
            self.start(label)
            values = self.body(region.block)
            sides.append((values, self.label))
            self.put(f"br label %{join}")
        self.start(join)
        for result, *incoming in zip(op.results, sides[0][0], sides[1][0], strict=True):
            pairs = ", ".join(f"[ {v}, %{side[1]} ]" for v, side in zip(incoming, sides, strict=True))
            self.names[result] = self.let(f"phi {type_of(_scalar(result))} {pairs}")


_PRINTERS: dict[str, Callable[[_Function, Operation], None]] = {
    "select": _Function.select, "convert": _Function.convert, "bitcast": _Function.bitcast,
    "splat": _Function.splat, "ramp": _Function.ramp, "extract": _Function.extract, "load": _Function.load,
    "store": _Function.store, "prefetch": _Function.prefetch,
    "local": _Function.memory, "private": _Function.memory, "barrier": _Function.barrier,
    "for": _Function.for_, "if": _Function.if_, "block_id": _Function.position, "thread_id": _Function.position,
    "block_count": _Function.position,
}  # fmt: skip


def _scalar(value: Value) -> ScalarType:
    type: Type = value.type
    assert isinstance(type, ScalarType)
    return type


def _memory(buffer: Value) -> DType:
    assert isinstance(buffer.type, BufferType)
    if buffer.type.dtype == dtypes.bool_:
        raise UnsupportedError("bool has no place in memory: legalise the kernel first")
    return buffer.type.dtype


def _identifier(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name) else '"' + re.sub(r'[\\"]', "_", name) + '"'
