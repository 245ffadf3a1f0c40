"""The emitter: gives the kernel expression of one element of any array value, inlining whatever is not in memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from oarlock import dtypes
from oarlock.codegen.groups import Placement
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.analysis import INDEX_OPERANDS
from oarlock.codegen.kernel.builder import NotVectorisable, lanes_of
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.index import Index, Run
from oarlock.codegen.values import shape_of
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError
from oarlock.ir import BufferType, Operation, ScalarType, Value
from oarlock.ops import tensor

__all__ = ["EmitElement", "Emitter"]

WRITTEN_OUT = 64
"""Turns of a nest of loops that a loop of vectors holds as straight code, at most."""
NOWHERE: Mapping[Value, Placement] = {}

EmitElement = Callable[["Emitter", Operation, Index], Value]
"""Emits the element of an operation's (first) result at an index."""


class Emitter:
    """State of lowering one kernel.

    ``leaves`` are array values that lie in memory when the kernel runs, ``outputs`` those that it stores to: ``placed``
    are stored as parts of them. ``members``
    maps the array values that this kernel computes itself to the function giving the index they are computed at.
    """

    def __init__(
        self,
        name: str,
        leaves: Sequence[Value],
        outputs: Sequence[Value],
        table: dict[str, EmitElement],
        block: tuple[int, int, int] = (1, 1, 1),
        index: DType = dtypes.int32,
        output_access: Literal["write", "both"] = "write",
        fused: bool = False,
        placed: Mapping[Value, Placement] = NOWHERE,
    ) -> None:
        buffers = [(f"in{i}", BufferType(tensor(v).dtype, "global", "read")) for i, v in enumerate(leaves)]
        buffers += [(f"out{i}", BufferType(tensor(v).dtype, "global", output_access)) for i, v in enumerate(outputs)]
        self.b = KernelBuilder(name, buffers, [(f"offset_{n}", index) for n, _ in buffers], block, index, fused)
        self.table = table
        self.leaves = {v: f"in{i}" for i, v in enumerate(leaves)}
        self.outputs = {v: f"out{i}" for i, v in enumerate(outputs)}
        self.outputs |= {v: self.outputs[place.whole] for v, place in placed.items()}
        self.placed = placed
        self._count = len(outputs)
        self.buffers: list[Value] = [*leaves, *outputs]
        self.members: dict[Value, Callable[[], Index]] = {}
        self.scalar_values: list[int | float | Value] = []
        """What the scalars after the buffers' offsets are: numbers, or run-time scalars of the program."""
        self.starts: list[tuple[int, Value, int]] = []
        """Which of these scalars are where a slice starts: (position, result of the slice, dimension)."""
        self._sizes: dict[tuple[object, ...], Value] = {}
        self._scalars: dict[Value, Value] = {}
        self._lanes = 1
        self._wide: tuple[Value, int] | None = None
        self._strides: dict[Value, int | None] = {}
        self._scopes: list[dict[tuple[object, ...], Value]] = [{}]

    # --- parameters ------------------------------------------------------------------------------------------------

    def size(self, count: int, *key: object) -> Value:
        """The kernel value of a static size: 0 and 1 are constants, others parameters, one for each ``key``."""
        if count in (0, 1):
            return self.b.i(count)
        found = self._sizes.get(key) if key else None
        if found is None:
            if len(key) == 3 and key[1] == "start":
                self.starts.append((len(self.scalar_values), key[0].result, key[2]))  # type: ignore[attr-defined, arg-type]
            found = self.parameter(count, self.b.index)
            if key:
                self._sizes[key] = found
        return found

    def parameter(self, value: int | float | Value, dtype: DType) -> Value:
        """A new scalar parameter of the kernel."""
        self.scalar_values.append(value)
        return self.b.add_parameter(f"s{len(self.scalar_values) - 1}", dtype)

    def scalar(self, value: Value) -> Value:
        """The kernel value of a run-time scalar of the program."""
        if value not in self._scalars:
            op = value.defining_op
            given = op.attributes["value"] if op is not None and op.name == "builtin.number" else value
            assert isinstance(value.type, ScalarType)
            dtype = value.type.dtype
            carried = {"bool": dtypes.int32, "float16": dtypes.float32, "bfloat16": dtypes.float32}.get(dtype.name)
            if dtype.is_integer and dtype.bits < 32:
                carried = dtypes.int32
            self._scalars[value] = self.parameter(given, carried or dtype)  # type: ignore[arg-type]
        assert isinstance(value.type, ScalarType)
        return self.b.convert(self._scalars[value], value.type.dtype)

    def sizes_of(self, value: Value) -> list[Value]:
        """The kernel values of the sizes of an array value, shared by all who ask for this value's."""
        return [self.size(d, value, i) for i, d in enumerate(shape_of(value))]

    # --- elements --------------------------------------------------------------------------------------------------

    def value(self, v: Value, index: Index) -> Value:
        """The element of ``v`` at ``index``."""
        if v in self.members:
            found = self._find(("member", v))
            if found is not None:
                return found
            return self.remember(("member", v), self.compute(v, self.members[v]()))
        key = (v, index.key, self._lanes)
        found = self._find(key)
        if found is not None:
            return found
        return self.remember(key, self.load(v, index) if v in self.leaves else self.compute(v, index))

    def compute(self, v: Value, index: Index) -> Value:
        """The element of ``v`` at ``index`` from its operands."""
        op = v.defining_op
        if op is None:
            raise UnsupportedError(f"{v.type} is neither in memory nor computed here")
        emit = self.table.get(op.name)
        if emit is None:
            raise UnsupportedError(f"{op.name} has no element-wise lowering")
        return emit(self, op, index)

    def load(self, v: Value, index: Index) -> Value:
        """Load from memory."""
        name = self.leaves[v]
        linear = self.b.add(index.linear(self.b), self.b.arguments[f"offset_{name}"])
        return self.b.load(self.b.arguments[name], linear, self._lanes if self._wide is None else self._width(linear))

    def vector(self, v: Value, index: Index, lanes: int) -> Value:
        """``lanes`` neighbouring elements of ``v`` from ``index`` on; ``v`` must be contiguous there, and in memory
        but for operators that only move."""
        self._lanes, before = lanes, self._lanes
        try:
            return self.value(v, index)
        finally:
            self._lanes = before

    def reload(self, v: Value, index: Index) -> Value:
        """Load an element of the output ``v`` that this kernel has stored."""
        place = self.place(v, index)
        lanes = 1 if self._wide is None else self._width(place)
        return self.b.load(self.b.arguments[self.outputs[v]], place, lanes)

    def place(self, v: Value, index: Index) -> Value:
        """Which element of its buffer element ``index`` of the output ``v`` is."""
        found = self.placed.get(v)
        if found is not None:
            start = self.size(found.start, "place", v)
            index = _inside(self.b, index, found.axis, self.sizes_of(found.whole)[found.axis], start)
        return self.b.add(index.linear(self.b), self.b.arguments[f"offset_{self.outputs[v]}"])

    def store(self, v: Value, index: Index, element: Value, stream: bool = False) -> None:
        """Store to the output ``v``; ``stream``: see KernelBuilder.store."""
        place = self.place(v, index)
        lanes = 1 if self._wide is None else self._width(place, everywhere=True)
        if lanes_of(element) != lanes:
            element = self.b.splat(element, lanes)
        self.b.store(self.b.arguments[self.outputs[v]], place, element, stream and lanes > 1)

    @property
    def is_wide(self) -> bool:
        """Whether a vector loop is being emitted."""
        return self._wide is not None

    def prefetch(self, v: Value, index: Index) -> None:
        """In a vector loop, say that what stands from ``index`` on, in ``v`` or past its end, is read soon; ``v`` is in
        memory or an output."""
        if self._wide is None:
            return
        name = self.leaves[v] if v in self.leaves else self.outputs[v]
        self.b.prefetch(self.b.arguments[name], self.b.add(index.linear(self.b), self.b.arguments[f"offset_{name}"]))

    def call(self, grid: tuple[int, int, int], label: str) -> KernelCall:
        """The launch of the finished kernel."""
        scalars, starts = tuple(self.scalar_values), tuple(self.starts)
        return KernelCall(self.b.function, tuple(self.buffers), self._count, grid, scalars, label, starts)

    # --- scopes ----------------------------------------------------------------------------------------------------

    def remember(self, key: tuple[object, ...], element: Value) -> Value:
        """Keep an element for reuse in the current scope and those inside it."""
        self._scopes[-1][key] = element
        return element

    def _find(self, key: tuple[object, ...]) -> Value | None:
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        return None

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is remembered inside is forgotten at the end."""
        self._scopes.append({})
        try:
            yield
        finally:
            self._scopes.pop()

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
        """``KernelBuilder.loop`` with a scope of its own."""

        def scoped(position: Value, carried: list[Value]) -> Sequence[Value]:
            with self.scope():
                return body(position, carried)

        return self.b.loop(low, high, scoped, initial, step, unroll, few)

    # --- neighbouring elements at once -----------------------------------------------------------------------------

    def vector_loop(
        self,
        low: Value,
        high: Value,
        lanes: int,
        body: Callable[[Value, list[Value]], Sequence[Value]],
        initial: Sequence[Value] = (),
        vectors: int = 1,
    ) -> list[Value]:
        """A loop of which each turn computes ``lanes`` elements from its counter on, ``vectors`` times.

        In ``body`` elements at a position are vectors of what stands from there on, or scalars where all are the
        same. Raises NotVectorisable where memory is not contiguous along the counter, or an element depends on it in
        another way than by what it loads.
        """

        def wide(position: Value, carried: list[Value]) -> Sequence[Value]:
            self._wide, self._strides, self.b.straight = (position, lanes), {position: 1}, True
            try:
                found = body(position, carried)
            finally:
                self._wide, self.b.straight = None, False
            if not _only_indexes(position):
                raise NotVectorisable("an element depends on its position")
            return found

        return self.loop(low, high, wide, initial, self.b.i(lanes * vectors))

    def kept(self, memory: Value, position: Value) -> Value:
        """What private memory holds at a position along the counter."""
        return self.b.load(memory, position, 1 if self._wide is None else self._wide[1])

    def keep(self, memory: Value, position: Value, element: Value) -> None:
        """Hold an element at a position along the counter in private memory."""
        lanes = 1 if self._wide is None else self._wide[1]
        self.b.store(memory, position, self.b.splat(element, lanes) if lanes_of(element) == 1 else element)

    def spread(self, position: Value) -> Value:
        """A position as a number: a vector of those of all lanes where it moves with the counter."""
        stride = 0 if self._wide is None else self._stride(position)
        if stride == 0:
            return position
        if stride != 1 or self._wide is None:
            raise NotVectorisable("an element depends on its position in a stride")
        return self.b.ramp(position, self._wide[1])

    def _width(self, place: Value, everywhere: bool = False) -> int:
        """The lanes of what stands at ``place``: 1 where that does not move with the counter."""
        assert self._wide is not None
        stride = self._stride(place)
        if stride == 1:
            return self._wide[1]
        if stride == 0 and not everywhere:
            return 1
        raise NotVectorisable("neighbours are not neighbours in memory")

    def _stride(self, value: Value) -> int | None:
        """How far an index moves when the counter moves by 1; None where that differs."""
        if value not in self._strides:
            self._strides[value] = self._stride_of(value)
        return self._strides[value]

    def _stride_of(self, value: Value) -> int | None:
        if lanes_of(value) != 1:
            return None
        op = value.defining_op
        if op is None or not op.operands or isinstance(op.operands[0].type, BufferType) or op.regions:
            return 0
        strides = [self._stride(operand) for operand in op.operands]
        if all(stride == 0 for stride in strides):
            return 0
        if None in strides or op.name not in ("kernel.add", "kernel.sub", "kernel.mul"):
            return None
        left, right = strides
        assert left is not None and right is not None
        if op.name != "kernel.mul":
            return left + right if op.name == "kernel.add" else left - right
        x, y = (self.b.constant_value(operand) for operand in op.operands)
        if isinstance(y, int) and right == 0:
            return left * y
        return right * x if isinstance(x, int) and left == 0 else None

    def loops(
        self,
        bounds: Sequence[Value],
        body: Callable[[list[Value], list[Value]], Sequence[Value]],
        initial: Sequence[Value],
    ) -> list[Value]:
        """A nest of loops from 0 to each bound, carrying values through.

        Inside a loop of vectors, which refuses control flow, a nest of few turns is written out.
        """
        counts = [n for n in map(self.b.constant_value, bounds) if type(n) is int]
        if self._wide is not None and len(counts) == len(bounds) and math.prod(counts) <= WRITTEN_OUT:
            carried = list(initial)
            for turn in itertools.product(*map(range, counts)):
                carried = list(body([self.b.i(i) for i in turn], carried))
            return carried

        def nest(depth: int, at: list[Value], carried: list[Value]) -> Sequence[Value]:
            if depth == len(bounds):
                return body(at, carried)
            if self.b.constant_value(bounds[depth]) == 1:
                return nest(depth + 1, [*at, self.b.i(0)], carried)
            return self.loop(self.b.i(0), bounds[depth], lambda i, c: nest(depth + 1, [*at, i], c), carried)

        return list(nest(0, [], list(initial)))

    def branch(
        self,
        condition: Value,
        yes: Callable[[], Sequence[Value]],
        no: Callable[[], Sequence[Value]] = lambda: (),
    ) -> list[Value]:
        """``KernelBuilder.branch`` with scopes of their own."""

        def scoped(side: Callable[[], Sequence[Value]]) -> Callable[[], Sequence[Value]]:
            def run() -> Sequence[Value]:
                with self.scope():
                    return side()

            return run

        return self.b.branch(condition, scoped(yes), scoped(no))

    # --- indices ---------------------------------------------------------------------------------------------------

    def index_of_dims(self, v: Value, positions: Sequence[Value]) -> Index:
        """The index of ``v`` at a position per dimension."""
        return Index.of_dims(shape_of(v), self.sizes_of(v), positions)

    def replace_dims(self, index: Index, changes: dict[int, Run]) -> Index:
        """``index`` with some dimensions replaced; only runs that hold one of them are split."""
        runs: list[Run] = []
        at = 0
        for run in index.runs:
            width = len(run.dims)
            if any(d in changes for d in range(at, at + width)):
                split = run.split(self.b)
                runs.extend(changes.get(at + j, split[j]) for j in range(width))
            else:
                runs.append(run)
            at += width
        return Index(tuple(runs))


def _inside(b: KernelBuilder, index: Index, axis: int, size: Value, start: Value) -> Index:
    """The position in a larger tensor of what is at ``index`` of a part that begins at ``start`` along ``axis``, where
    that has ``size`` elements."""
    runs: list[Run] = []
    at = 0
    for run in index.runs:
        parts = [run]
        if at < axis < at + len(run.dims):
            parts = run.split(b)
        for part in parts:
            if at == axis:
                inner = b.i(1)
                for i, dim in enumerate(part.dims[1:], 1):
                    inner = b.mul(inner, b.i(1) if dim == 1 else part.size_of(i))
                whole, place = b.mul(size, inner), b.add(part.position, b.mul(start, inner))
                part = Run((2, *part.dims[1:]), whole, place, part.size_of)  # of more than one element, like the whole
            runs.append(part)
            at += len(part.dims)
    return Index(tuple(runs))


def _only_indexes(position: Value) -> bool:
    """Whether a loop's counter goes into indices alone, but where it is spread over lanes."""
    pending, seen = [position], {position}
    while pending:
        for user, operand in pending.pop().uses:
            if user.name in ("kernel.load", "kernel.store", "kernel.prefetch") and operand in INDEX_OPERANDS[user.name]:
                continue
            if user.name == "kernel.ramp":
                continue
            if user.name not in ("kernel.add", "kernel.sub", "kernel.mul"):
                return False
            if user.result not in seen:
                seen.add(user.result)
                pending.append(user.result)
    return True
