"""Runs kernels over NumPy, thread by thread, checking every precondition: the oracle of lowering and of renderers."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock.codegen.kernel.analysis import index_arithmetic
from oarlock.codegen.kernel.matrix import PIECE, part_of, product_part
from oarlock.codegen.kernel.values import COMPARE, COMPUTE, PreconditionError, convert, from_number
from oarlock.dtypes import DType
from oarlock.errors import BoundsError, DTypeError, IRError
from oarlock.ir import Block, BufferType, Operation, ScalarType, Value

__all__ = ["run_kernel"]

Array = npt.NDArray[Any]
_Steps = Generator[Operation, None, list[Array]]
"""A thread: it yields where it waits for the others of its block, and ends with what its block's yield gives."""


def run_kernel(
    function: Operation,
    grid: tuple[int, int, int],
    buffers: Sequence[Array],
    scalars: Mapping[str, int | float] | Sequence[int | float] = (),
) -> None:
    """Run ``grid`` blocks of a kernel.function, legalised or not, on ``buffers``, in place.

    ``buffers`` are 1-d NumPy arrays of the parameters' dtypes; ``scalars`` by name or in order. Raises BoundsError for
    an index outside its buffer, and IRError for any other broken precondition of the dialect: division by zero, shifts
    past the width, conversions out of range, index arithmetic that wraps, memory read before it is written, barriers
    that not all threads of a block reach.
    """
    _Run(function, grid, buffers, scalars).run()


class _Memory:
    """The elements behind a buffer; ``written`` tells which are defined (None: all)."""

    __slots__ = ("array", "label", "written")

    def __init__(self, array: Array, label: str, written: npt.NDArray[np.bool_] | None = None) -> None:
        self.array, self.label, self.written = array, label, written


class _Shared:
    """What the threads of a block have in common: local memory, and what they gave (``taken``: by the last stop) to
    the others, by thread number."""

    __slots__ = ("given", "memory", "taken")

    def __init__(self) -> None:
        self.memory: dict[Value, _Memory] = {}
        self.given: dict[int, Array] = {}
        self.taken: dict[int, Array] = {}


class _Run:
    """One launch."""

    def __init__(
        self,
        function: Operation,
        grid: tuple[int, int, int],
        buffers: Sequence[Array],
        scalars: Mapping[str, int | float] | Sequence[int | float],
    ) -> None:
        self.function = function
        self.grid = grid
        self.name = str(function.attributes["name"])
        self.threads: tuple[int, int, int] = tuple(int(n) for n in function.attributes["block"])  # type: ignore
        self.unwrapped = index_arithmetic(function)
        self.values: dict[Value, Array] = {}
        self.memory: dict[Value, _Memory] = {}
        names = [str(n) for n in function.attributes["arguments"]]  # type: ignore[union-attr]
        arguments = function.regions[0].block.args
        count = sum(isinstance(a.type, BufferType) for a in arguments)
        if count != len(buffers) or len(names) - count != len(scalars):
            raise IRError(
                f"kernel {self.name} takes {count} buffers and {len(names) - count} scalars ({', '.join(names)}), "
                f"not {len(buffers)} and {len(scalars)}"
            )
        for position, (argument, name) in enumerate(zip(arguments, names, strict=True)):
            if isinstance(argument.type, BufferType):
                self.memory[argument] = self._bind(buffers[position], argument.type.dtype, name)
            else:
                given = scalars[name] if isinstance(scalars, Mapping) else scalars[position - count]
                self.values[argument] = from_number(given, _scalar(argument).dtype, 1)

    def _bind(self, array: Array, dtype: DType, name: str) -> _Memory:
        if array.ndim != 1 or array.dtype != dtype.numpy:
            raise DTypeError(
                f"kernel {self.name}: buffer {name} is 1-d of {dtype}, not {array.ndim}-d of {array.dtype}"
            )
        return _Memory(array, name)

    def run(self) -> None:
        with np.errstate(all="ignore"):
            for z, y, x in product(*(range(n) for n in reversed(self.grid))):
                self._block((x, y, z))

    def _block(self, block: tuple[int, int, int]) -> None:
        """Run the threads of a block from barrier to barrier."""
        shared = _Shared()
        places = [(x, y, z) for z, y, x in product(*(range(n) for n in reversed(self.threads)))]
        running = [_Thread(self, block, place, shared).steps(self.function.regions[0].block) for place in places]
        while running:
            stops = [_advance(thread) for thread in running]
            if len(set(stops)) > 1:
                what = next(op for op in stops if op is not None).name.removeprefix("kernel.")
                raise IRError(f"kernel {self.name}: only some threads of block {block} reach a {what}")
            if stops[0] is None:
                return
            shared.taken, shared.given = shared.given, {}


def _advance(thread: _Steps) -> Operation | None:
    try:
        return next(thread)
    except StopIteration:
        return None


class _Thread:
    """One thread: its values and its private memory."""

    def __init__(self, run: _Run, block: tuple[int, int, int], thread: tuple[int, int, int], shared: _Shared) -> None:
        self.run_ = run
        self.shared = shared
        self.values = dict(run.values)
        self.memory = dict(run.memory)
        x, y, _ = run.threads
        self.number = thread[0] + x * (thread[1] + y * thread[2])
        self.positions = {"block_id": block, "thread_id": thread, "block_count": run.grid}

    def fail(self, op: Operation, message: str) -> IRError:
        place = f"block {self.positions['block_id']}, thread {self.positions['thread_id']}"
        return IRError(f"kernel {self.run_.name}, {place}: {op.name}: {message}")

    def steps(self, block: Block) -> _Steps:
        for op in block.ops:
            kind = op.name.removeprefix("kernel.")
            if kind == "yield":
                return [self.values[v] for v in op.operands]
            if kind == "prefetch":
                continue
            if kind == "barrier":
                yield op
            elif kind == "shuffle":
                self.shared.given[self.number] = self.values[op.operands[0]]
                yield op
                self.values[op.result] = self.shared.taken[self._partner(op)]
            elif kind in ("matrix_fma", "matrix_store"):
                self.shared.given[self.number] = self.values[op.operands[-1]]
                yield op
                (self._matrix_fma if kind == "matrix_fma" else self._matrix_store)(op)
            elif kind == "for":
                yield from self._for(op)
            elif kind == "if":
                taken = op.regions[0 if self.values[op.operands[0]][0] else 1]
                results = yield from self.steps(taken.block)
                self.values.update(zip(op.results, results, strict=True))
            else:
                self._simple(op, kind)
        return []

    def _partner(self, op: Operation) -> int:
        """The number of the thread that a shuffle takes from."""
        mask = op.attributes["mask"]
        assert isinstance(mask, int)
        lane = self._lane(op)
        return self.number - lane + (lane ^ mask)

    def _matrix_fma(self, op: Operation) -> None:
        rows = [self._rows(op, position) for position in (0, 2)]
        total = self.values[op.operands[4]]
        lane = self._lane(op)
        self.values[op.result] = product_part(rows[0], rows[1], str(op.attributes["kind"]), total, lane)

    def _matrix_store(self, op: Operation) -> None:
        memory, total = self.memory[op.operands[0]], self.values[op.operands[2]]
        row, columns = part_of(self._lane(op), PIECE * PIECE // len(total))
        at = int(self.values[op.operands[1]][0]) + row * self._stride(op)
        place = self._within(op, memory, at + columns.start, len(total))
        memory.array[place] = total
        if memory.written is not None:
            memory.written[place] = True

    def _rows(self, op: Operation, position: int) -> Array:
        """The 16 rows of 16 elements that a step of a matrix unit reads."""
        memory, first = self.memory[op.operands[position]], int(self.values[op.operands[position + 1]][0])
        places = [self._within(op, memory, first + row * self._stride(op), PIECE) for row in range(PIECE)]
        return np.stack([self._read(op, memory, place) for place in places])

    def _stride(self, op: Operation) -> int:
        stride = op.attributes["stride"]
        assert isinstance(stride, int)
        if stride % 2:
            raise self.fail(op, f"stride {stride} is odd")
        return stride

    def _lane(self, op: Operation) -> int:
        """This thread's number in its subgroup."""
        width = op.attributes["width"]
        assert isinstance(width, int)
        if len(self.shared.taken) % width:
            raise self.fail(op, f"{len(self.shared.taken)} threads are no multiple of {width}")
        return self.number % width

    def _for(self, op: Operation) -> _Steps:
        low, high, step = (int(self.values[v][0]) for v in op.operands[:3])
        if step <= 0:
            raise self.fail(op, f"step is {step}")
        block = op.regions[0].block
        dtype = _scalar(block.args[0]).dtype
        carried = [self.values[v] for v in op.operands[3:]]
        for index in range(low, high, step):
            self.values[block.args[0]] = np.array([index], dtype.numpy)
            self.values.update(zip(block.args[1:], carried, strict=True))
            carried = yield from self.steps(block)
        self.values.update(zip(op.results, carried, strict=True))
        return carried

    def _simple(self, op: Operation, kind: str) -> None:
        if kind == "load":
            self.values[op.result] = self._load(op)
        elif kind == "store":
            self._store(op)
        elif kind in ("local", "private"):
            self.memory[op.result] = self._allocate(op, kind)
        else:
            try:
                self.values[op.result] = self._compute(op, kind, [self.values[v] for v in op.operands])
            except PreconditionError as error:
                raise self.fail(op, str(error)) from None

    def _compute(self, op: Operation, kind: str, x: list[Array]) -> Array:
        type = _scalar(op.result)
        if kind in COMPUTE:
            if op in self.run_.unwrapped:
                self._check_wrap(op, kind, x)
            return COMPUTE[kind](*x)
        if kind in COMPARE:
            return COMPARE[kind](*x)
        if kind == "constant":
            return from_number(op.attributes["value"], type.dtype, type.lanes)  # type: ignore[arg-type]
        if kind == "convert":
            return convert(x[0], _scalar(op.operands[0]).dtype, type.dtype)
        if kind == "bitcast":
            return x[0].view(type.dtype.numpy)
        if kind == "splat":
            return np.repeat(x[0], type.lanes)
        if kind == "ramp":
            return x[0] + np.arange(type.lanes, dtype=type.dtype.numpy)
        if kind == "extract":
            index = op.attributes["index"]
            assert isinstance(index, int)
            return x[0][index : index + 1]
        axis = op.attributes["axis"]
        assert isinstance(axis, int)
        return np.array([self.positions[kind][axis]], np.int32)

    def _check_wrap(self, op: Operation, kind: str, x: list[Array]) -> None:
        a, b = ([0, int(x[0][0])] if kind == "neg" else [int(v[0]) for v in x]) if len(x[0]) == 1 else (0, 0)
        exact = a * b if kind == "mul" else a + b if kind == "add" else a - b
        info = np.iinfo(x[0].dtype)
        if not info.min <= exact <= info.max:
            raise PreconditionError(f"index arithmetic wraps: {kind} of {a} and {b} in {x[0].dtype}")

    # --- memory ------------------------------------------------------------------------------------------------------

    def _place(self, op: Operation, lanes: int) -> tuple[_Memory, slice]:
        memory = self.memory[op.operands[0]]
        return memory, self._within(op, memory, int(self.values[op.operands[1]][0]), lanes)

    def _within(self, op: Operation, memory: _Memory, index: int, lanes: int) -> slice:
        if index < 0 or index + lanes > len(memory.array):
            message = f"index {index} (lanes: {lanes}) is outside {memory.label} of {len(memory.array)} elements"
            raise BoundsError(str(self.fail(op, message)))
        return slice(index, index + lanes)

    def _load(self, op: Operation) -> Array:
        return self._read(op, *self._place(op, _scalar(op.result).lanes))

    def _read(self, op: Operation, memory: _Memory, place: slice) -> Array:
        if memory.written is not None and not memory.written[place].all():
            raise self.fail(op, f"element {place.start} of {memory.label} is read before it is written")
        return memory.array[place].copy()

    def _store(self, op: Operation) -> None:
        memory, place = self._place(op, _scalar(op.operands[2]).lanes)
        memory.array[place] = self.values[op.operands[2]]
        if memory.written is not None:
            memory.written[place] = True

    def _allocate(self, op: Operation, kind: str) -> _Memory:
        if kind == "local" and op.result in self.shared.memory:
            return self.shared.memory[op.result]
        size = op.attributes["size"]
        assert isinstance(size, int) and isinstance(op.result.type, BufferType)
        memory = _Memory(np.zeros(size, op.result.type.dtype.numpy), f"{kind} memory", np.zeros(size, np.bool_))
        if kind == "local":
            self.shared.memory[op.result] = memory
        return memory


def _scalar(value: Value) -> ScalarType:
    assert isinstance(value.type, ScalarType)
    return value.type
