"""The shared printer of C-like languages: kernel.function to source text, by a dialect's table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from oarlock import dtypes
from oarlock.codegen.kernel.analysis import index_arithmetic
from oarlock.codegen.render.cdialect import CDialect
from oarlock.codegen.render.cexpr import FUNCTIONS, bare, expression, literal, type_name
from oarlock.codegen.render.common import Parameters, parameters
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError
from oarlock.ir import Block, BufferType, Operation, ScalarType, Value, traits
from oarlock.target import Target

__all__ = ["CDialect", "CFunction", "CRenderer", "memory_dtype", "scalar_type"]

_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool".split()
)
_OWN = re.compile(r"[virm]\d+")
_LONGEST_INLINED = 64


class CRenderer:
    """Renders kernels in the language that ``dialect`` describes; ``printer`` prints one of them."""

    def __init__(self, dialect: CDialect, printer: type[CFunction] | None = None) -> None:
        self.dialect = dialect
        self.printer = printer or CFunction

    def render(self, functions: Sequence[Operation], target: Target) -> str:
        """See Renderer."""
        unit = Unit(self.dialect)
        bodies = [self.printer(unit, function).render() for function in functions]
        enabled = [line for name, line in self.dialect.enable.items() if name in unit.used]
        head = "\n".join(filter(None, (self.dialect.preamble.strip("\n"), *enabled)))
        return "\n\n".join(filter(None, (head, "\n".join(unit.vectors.values()), *bodies))) + "\n"

    def has_vectors(self, lanes: int) -> bool:
        """See Renderer."""
        return lanes in self.dialect.lanes


class Unit:
    """What the functions of a translation unit share: the dtypes and vector types that they use."""

    def __init__(self, dialect: CDialect) -> None:
        self.dialect = dialect
        self.used: set[str] = set()
        self.vectors: dict[str, str] = {}

    def type(self, type: ScalarType) -> str:
        """The name of a scalar's or vector's type."""
        self.used.add(type.dtype.name)
        if type.lanes == 1:
            return type_name(self.dialect, type.dtype)
        if type.lanes not in self.dialect.lanes:
            able = ", ".join(map(str, self.dialect.lanes)) or "none"
            raise UnsupportedError(f"{self.dialect.language} has no vectors of {type.lanes} lanes; it has {able}")
        held = dtypes.by_name(self.dialect.bool_lanes) if type.dtype == dtypes.bool_ else type.dtype
        element = type_name(self.dialect, held)
        name = self.dialect.vector.format(type=element, dtype=held.name, lanes=type.lanes)
        self.vectors[name] = self.dialect.vector_declaration.format(
            vector=name, type=element, bytes=held.itemsize * type.lanes, itemsize=held.itemsize
        )
        return name


class CFunction:
    """Prints one kernel.function; a language that C's syntax does not fit overrides what differs."""

    def __init__(self, unit: Unit, op: Operation) -> None:
        self.unit, self.dialect, self.op = unit, unit.dialect, op
        self.unwrapped = index_arithmetic(op)
        self.names: dict[Value, str] = {}
        self.lines: list[str] = []
        self.top: list[str] = []
        self.depth = 1
        self.count = 0
        self.streams = False
        raw = parameters(op)
        if raw.threads != (1, 1, 1) and not self.dialect.threads:
            raise UnsupportedError(
                f"kernel {raw.name}: {self.dialect.language} functions have one thread a block, not {raw.threads}; "
                "schedule it with block=(1, 1, 1)"
            )
        taken: set[str] = set()
        buffers = tuple((value, self.parameter_name(name, taken)) for value, name in raw.buffers)
        scalars = tuple((value, self.parameter_name(name, taken)) for value, name in raw.scalars)
        self.params = Parameters(raw.name, raw.threads, buffers, scalars)
        self.names.update((*buffers, *scalars))

    def parameter_name(self, name: str, taken: set[str]) -> str:
        name = re.sub(r"\W", "_", name)
        reserved = {
            *_KEYWORDS,
            *self.dialect.reserved,
            *self.dialect.types.values(),
            *taken,
            self.op.attributes["name"],
        }
        while name in reserved or _OWN.fullmatch(name) or name[0].isdigit():
            name = f"{name}_" if not name[0].isdigit() else f"_{name}"
        taken.add(name)
        return name

    def render(self) -> str:
        declared = [
            self.dialect.buffer.format(
                type=self.unit.type(ScalarType(memory_dtype(b))),
                name=name,
                const="const " if isinstance(b.type, BufferType) and b.type.access == "read" else "",
            )
            for b, name in self.params.buffers
        ]
        declared += [
            self.dialect.scalar.format(type=self.unit.type(scalar_type(s)), name=name)
            for s, name in self.params.scalars
        ]
        self.body(self.op.regions[0].block)
        if self.streams and self.dialect.fence:
            self.put(self.dialect.fence)
        x, y, z = self.params.threads
        head = self.dialect.function.format(
            name=self.params.name, parameters=", ".join((*declared, *self.dialect.extra_parameters)), x=x, y=y, z=z
        )
        text = "\n".join([head + " {", *self.top, *self.lines, "}"])
        return text if self.dialect.entry is None else f"{text}\n\n{self.dialect.entry(self.params).strip()}"

    # --- names and lines

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def put(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def define(self, result: Value, text: str, movable: bool = True) -> None:
        """Give ``result`` the expression ``text``: in its place where it is used once, else as a constant."""
        if movable and _inlined(result) and len(text) <= _LONGEST_INLINED:
            self.names[result] = text
            return
        self.names[result] = self.keep(scalar_type(result), bare(text))

    def keep(self, type: ScalarType, text: str) -> str:
        """Name ``text`` for good; returns the name."""
        name = self.fresh("v")
        self.put(self.dialect.constant.format(type=self.unit.type(type), name=name, value=text))
        return name

    def variable(self, value: Value, name: str) -> str:
        """The declaration of a variable like ``value``."""
        return self.dialect.variable.format(type=self.unit.type(scalar_type(value)), name=name)

    def value(self, value: Value) -> str:
        op = value.defining_op
        if op is not None and op.name == "kernel.constant" and value not in self.names:
            number = op.attributes["value"]
            assert isinstance(number, (bool, int, float))
            type = scalar_type(value)
            text = literal(self.dialect, number, type.dtype)
            self.unit.type(type)
            if type.lanes == 1:
                self.names[value] = text
            else:
                return self.pack(type, [text] * type.lanes)
        return self.names[value]

    def pack(self, type: ScalarType, items: Sequence[str]) -> str:
        if self.dialect.splat and len(set(items)) == 1:
            return self.dialect.splat.format(vector=self.unit.type(type), value=bare(items[0]))
        return self.dialect.pack.format(vector=self.unit.type(type), items=", ".join(map(bare, items)))

    def lane(self, name: str, lane: int) -> str:
        return name + self.dialect.lane.format(lane=lane, xyzw="xyzw"[lane % 4])

    # --- operations

    def body(self, block: Block) -> Sequence[Value]:
        """Print a block; returns what its yield gives."""
        for op in block.ops:
            kind = op.name.removeprefix("kernel.")
            if kind == "yield":
                return op.operands
            if kind in _PRINTERS:
                _PRINTERS[kind](self, op)
            elif kind != "constant":
                self.arithmetic(op)
        return ()

    def arithmetic(self, op: Operation) -> None:
        kind = op.name.removeprefix("kernel.")
        source, result = scalar_type(op.operands[0]), scalar_type(op.result)
        self.unit.type(result)
        if result.lanes == 1:
            operands = [self.value(v) for v in op.operands]
            text = expression(self.dialect, kind, operands, source.dtype, result.dtype, op in self.unwrapped)
        else:
            text = self._vector(kind, op, source, result)
        self.define(op.result, text)

    def _vector(self, kind: str, op: Operation, source: ScalarType, result: ScalarType) -> str:
        whole = source.dtype.is_float and (
            (kind in ("add", "sub", "mul", "div", "neg") and self.dialect.vector_operators)
            or (kind in FUNCTIONS and self.dialect.vector_math)
        )
        names = [self.value(v) for v in op.operands]
        if whole:
            return expression(self.dialect, kind, names, source.dtype, result.dtype)
        if self.dialect.whole is not None:
            text = self.dialect.whole(kind, names, source.dtype, result.dtype, result.lanes)
            if text is not None:
                return text
        lanes: list[str] = []
        for lane in range(result.lanes):
            x = [self._operand_lane(v, name, lane) for v, name in zip(op.operands, names, strict=True)]
            lanes.append(expression(self.dialect, kind, x, source.dtype, result.dtype))
        return self.pack(result, lanes)

    def _operand_lane(self, value: Value, name: str, lane: int) -> str:
        op = value.defining_op
        if op is not None and op.name == "kernel.constant":
            return literal(self.dialect, op.attributes["value"], scalar_type(value).dtype)  # type: ignore[arg-type]
        return self.lane(name, lane)

    def splat(self, op: Operation) -> None:
        type = scalar_type(op.result)
        self.define(op.result, self.pack(type, [self.value(op.operands[0])] * type.lanes))

    def ramp(self, op: Operation) -> None:
        type, first = scalar_type(op.result), self.value(op.operands[0])
        numbers = [literal(self.dialect, k, type.dtype) for k in range(type.lanes)]
        scalar = ScalarType(type.dtype)
        lanes = [expression(self.dialect, "add", [first, number], scalar.dtype, scalar.dtype) for number in numbers]
        self.define(op.result, self.pack(type, lanes))

    def extract(self, op: Operation) -> None:
        index = op.attributes["index"]
        assert isinstance(index, int)
        self.define(op.result, self._operand_lane(op.operands[0], self.value(op.operands[0]), index))

    def load(self, op: Operation) -> None:
        buffer, index = op.operands
        type, name, place = scalar_type(op.result), self.names[buffer], self.value(index)
        vector = self.unit.type(type)
        memory_dtype(buffer)
        if type.lanes == 1:
            text = f"{name}[{bare(place)}]"
        elif self.dialect.load:
            text = self.dialect.load.format(
                space=_space(buffer), vector=vector, lanes=type.lanes, place=f"{name} + {place}"
            )
        else:
            text = self.pack(type, [f"{name}[{place} + {lane}]" for lane in range(type.lanes)])
        self.define(op.result, text, movable=False)

    def store(self, op: Operation) -> None:
        buffer, index, value = op.operands
        type, name, place = scalar_type(value), self.names[buffer], self.value(index)
        if type.lanes == 1:
            self.put(f"{name}[{bare(place)}] = {bare(self.value(value))};")
        elif self.dialect.store:
            text = self.dialect.store
            if self.dialect.stream and op.attributes.get("stream"):
                text, self.streams = self.dialect.stream, True
            where = {"space": _space(buffer), "place": f"{name} + {place}"}
            self.put(text.format(vector=self.unit.type(type), lanes=type.lanes, value=self.value(value), **where))
        else:
            for lane in range(type.lanes):
                self.put(f"{name}[{place} + {lane}] = {self._operand_lane(value, self.value(value), lane)};")

    def prefetch(self, op: Operation) -> None:
        if self.dialect.prefetch:
            buffer, index = op.operands
            self.put(self.dialect.prefetch.format(place=f"{self.names[buffer]} + {self.value(index)}"))

    def memory(self, op: Operation) -> None:
        name = self.names[op.result] = self.fresh("m")
        local = op.name == "kernel.local"
        template = self.dialect.local if local else self.dialect.private
        text = template.format(
            type=self.unit.type(ScalarType(memory_dtype(op.result))), name=name, size=op.attributes["size"]
        )
        if local:
            self.top.append("    " + text)
        else:
            self.put(text)

    def position(self, op: Operation) -> None:
        kind, axis = op.name.removeprefix("kernel."), op.attributes["axis"]
        assert isinstance(axis, int)
        spelled = {"block_id": self.dialect.block_id, "thread_id": self.dialect.thread_id}.get(
            kind, self.dialect.block_count
        )
        if not spelled:
            raise UnsupportedError(
                f"kernel {self.params.name}: {kind} is unknown in {self.dialect.language}; pass it as a scalar"
            )
        self.define(op.result, spelled.format(axis=axis, xyz="xyz"[axis]))

    def barrier(self, op: Operation) -> None:
        if self.dialect.barrier:
            self.put(self.dialect.barrier)

    def shuffle(self, op: Operation) -> None:
        width = op.attributes["width"]
        if not self.dialect.shuffle or width != self.dialect.subgroup:
            raise UnsupportedError(
                f"kernel {self.params.name}: a shuffle among {width} threads; in {self.dialect.language} "
                f"{self.dialect.subgroup or 'no'} threads exchange values: correct its ability subgroup_{width}"
            )
        text = self.dialect.shuffle.format(value=bare(self.value(op.operands[0])), mask=op.attributes["mask"])
        self.define(op.result, text, movable=False)

    def matrix_fma(self, op: Operation) -> None:
        kind, stride = f"matrix_{op.attributes['kind']}", op.attributes["stride"]
        if kind not in self.dialect.matrix or op.attributes["width"] != self.dialect.subgroup:
            raise UnsupportedError(
                f"kernel {self.params.name}: {self.dialect.language} has no {kind} for {op.attributes['width']} "
                f"threads a subgroup; it has {', '.join(sorted(self.dialect.matrix)) or 'none'}: change its abilities"
            )
        self.unit.used.add(kind)
        a, at, b, bt, total = op.operands
        left, right = (f"{self.names[m]} + {self.value(i)}" for m, i in ((a, at), (b, bt)))
        self.define(op.result, f"{kind}<{stride}>({left}, {right}, {self.value(total)})", movable=False)

    def matrix_store(self, op: Operation) -> None:
        buffer, index, total = op.operands
        at = f"{self.names[buffer]} + {self.value(index)}"
        self.unit.used.add("matrix_store")
        self.put(f"matrix_store<{op.attributes['stride']}>({at}, {self.value(total)});")

    # --- control flow

    def for_(self, op: Operation) -> None:
        block = op.regions[0].block
        low, high, step = (self.value(v) for v in op.operands[:3])
        for result, argument, initial in zip(op.results, block.args[1:], op.operands[3:], strict=True):
            self.names[result] = self.names[argument] = self.fresh("r")
            self.put(f"{self.variable(result, self.names[result])} = {bare(self.value(initial))};")
        counter = self.names[block.args[0]] = self.fresh("i")
        head = f"{self.variable(block.args[0], counter)} = {bare(low)}; {counter} < {high}"
        count = _trip_count(op)
        if op.attributes.get("unroll") and self.dialect.unroll and count is not None:
            self.put(self.dialect.unroll.format(count=count))
        self.put(f"for ({head}; {self.advance(op, counter, high, step)}) {{")
        self.depth += 1
        self._assign(op.results, self.body(block), set(block.args[1:]))
        self.depth -= 1
        self.put("}")

    def advance(self, op: Operation, counter: str, high: str, step: str) -> str:
        """The counter's step; where it might pass the dtype's range it is compared with what is left."""
        dtype = scalar_type(op.operands[0]).dtype
        last, stride = _constant(op.operands[1]), _constant(op.operands[2])
        if stride == 1:
            return f"++{counter}"
        greatest = (1 << (dtype.bits - (dtype.kind == "int"))) - 1
        if last is not None and stride is not None and last - 1 + stride <= greatest:
            return f"{counter} += {bare(step)}"
        unsigned = self.unit.type(ScalarType(dtypes.by_name(f"uint{max(dtype.bits, 32)}")))
        left = f"({unsigned}){high} - ({unsigned}){counter} > ({unsigned}){step}"
        return f"{counter} = {left} ? {counter} + {step} : {high}"

    def if_(self, op: Operation) -> None:
        for result in op.results:
            self.names[result] = self.fresh("r")
            self.put(f"{self.variable(result, self.names[result])};")
        condition = bare(self.value(op.operands[0]))
        yes, no = (region.block for region in op.regions)
        self.put(f"if ({condition}) {{")
        self._side(op, yes)
        if no.first_op is not no.last_op or op.results:
            self.put("} else {")
            self._side(op, no)
        self.put("}")

    def _side(self, op: Operation, block: Block) -> None:
        self.depth += 1
        self._assign(op.results, self.body(block), set())
        self.depth -= 1

    def _assign(self, targets: Sequence[Value], values: Sequence[Value], changing: set[Value]) -> None:
        """Assign all at once: a value that an earlier assignment changes is kept aside first."""
        texts = [self.value(v) for v in values]
        for position, value in enumerate(values):
            if value in changing and self.names[targets[position]] != texts[position]:
                texts[position] = self.keep(scalar_type(value), texts[position])
        for target, text in zip(targets, texts, strict=True):
            if self.names[target] != text:
                self.put(f"{self.names[target]} = {bare(text)};")


_PRINTERS: dict[str, Callable[[CFunction, Operation], None]] = {
    "splat": CFunction.splat, "ramp": CFunction.ramp, "extract": CFunction.extract, "load": CFunction.load,
    "store": CFunction.store, "prefetch": CFunction.prefetch,
    "local": CFunction.memory, "private": CFunction.memory, "barrier": CFunction.barrier,
    "shuffle": CFunction.shuffle,
    "matrix_fma": CFunction.matrix_fma, "matrix_store": CFunction.matrix_store, "for": CFunction.for_,
    "if": CFunction.if_, "block_id": CFunction.position, "thread_id": CFunction.position,
    "block_count": CFunction.position,
}  # fmt: skip


def _inlined(value: Value) -> bool:
    """Whether a value may stand where it is used: once, in its own block, by what does not repeat its operand."""
    op = value.defining_op
    if op is None or len(value.uses) != 1 or scalar_type(value).lanes != 1 or not op.definition.has(traits.PURE):
        return False
    ((user, position),) = value.uses
    if user.parent is not op.parent or user.name in ("kernel.min", "kernel.max", "kernel.splat"):
        return False
    if user.name == "kernel.for":
        return position == 0
    if user.name == "kernel.yield":
        return len(user.operands) == 1
    lanes = [scalar_type(v).lanes for v in (*user.operands, *user.results) if isinstance(v.type, ScalarType)]
    return max(lanes, default=1) == 1


def _constant(value: Value) -> int | None:
    op = value.defining_op
    number = op.attributes["value"] if op is not None and op.name == "kernel.constant" else None
    return number if isinstance(number, int) else None


def _trip_count(op: Operation) -> int | None:
    """How often a loop runs, where its bounds are constants; at least 1."""
    low, high, step = (_constant(value) for value in op.operands[:3])
    return None if low is None or high is None or not step else max(-((low - high) // step), 1)


def scalar_type(value: Value) -> ScalarType:
    """The type of a scalar or vector value."""
    assert isinstance(value.type, ScalarType)
    return value.type


def _space(buffer: Value) -> str:
    """Where a buffer lies: ``global``, ``local``, ``private``."""
    return "global" if buffer.defining_op is None else buffer.defining_op.name.removeprefix("kernel.")


def memory_dtype(buffer: Value) -> DType:
    """What memory holds; raises UnsupportedError for bool, which has no place there."""
    assert isinstance(buffer.type, BufferType)
    if buffer.type.dtype == dtypes.bool_:
        raise UnsupportedError("bool has no place in memory: legalise the kernel first")
    return buffer.type.dtype
