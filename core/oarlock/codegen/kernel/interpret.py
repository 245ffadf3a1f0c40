"""Runs kernels over NumPy, thread by thread, checking every precondition: the oracle of lowering and of renderers."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock.codegen.kernel.analysis import index_arithmetic
from oarlock.codegen.kernel.values import COMPARE, COMPUTE, PreconditionError, convert, from_number
from oarlock.dtypes import DType
from oarlock.errors import BoundsError, DTypeError, IRError
from oarlock.ir import Block, BufferType, Operation, ScalarType, Value

__all__ = ["run_kernel"]

Array = npt.NDArray[Any]
_Steps = Generator[Operation, None, list[Array]]
"""A thread: it yields at each barrier, and ends with what its block's yield gives."""


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
        shared: dict[Value, _Memory] = {}
        places = [(x, y, z) for z, y, x in product(*(range(n) for n in reversed(self.threads)))]
        running = [_Thread(self, block, place, shared).steps(self.function.regions[0].block) for place in places]
        while running:
            stops = [_advance(thread) for thread in running]
            if len(set(stops)) > 1:
                raise IRError(f"kernel {self.name}: only some threads of block {block} reach a barrier")
            if stops[0] is None:
                return


def _advance(thread: _Steps) -> Operation | None:
    try:
        return next(thread)
    except StopIteration:
        return None


class _Thread:
    """One thread: its values and its private memory."""

    def __init__(
        self, run: _Run, block: tuple[int, int, int], thread: tuple[int, int, int], shared: dict[Value, _Memory]
    ) -> None:
        self.run_ = run
        self.shared = shared
        self.values = dict(run.values)
        self.memory = dict(run.memory)
        self.positions = {"block_id": block, "thread_id": thread, "block_count": run.grid}

    def fail(self, op: Operation, message: str) -> IRError:
        place = f"block {self.positions['block_id']}, thread {self.positions['thread_id']}"
        return IRError(f"kernel {self.run_.name}, {place}: {op.name}: {message}")

    def steps(self, block: Block) -> _Steps:
        for op in block.ops:
            kind = op.name.removeprefix("kernel.")
            if kind == "yield":
                return [self.values[v] for v in op.operands]
            if kind == "barrier":
                yield op
            elif kind == "for":
                yield from self._for(op)
            elif kind == "if":
                taken = op.regions[0 if self.values[op.operands[0]][0] else 1]
                results = yield from self.steps(taken.block)
                self.values.update(zip(op.results, results, strict=True))
            else:
                self._simple(op, kind)
        return []

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
        index = int(self.values[op.operands[1]][0])
        if index < 0 or index + lanes > len(memory.array):
            message = f"index {index} (lanes: {lanes}) is outside {memory.label} of {len(memory.array)} elements"
            raise BoundsError(str(self.fail(op, message)))
        return memory, slice(index, index + lanes)

    def _load(self, op: Operation) -> Array:
        memory, place = self._place(op, _scalar(op.result).lanes)
        if memory.written is not None and not memory.written[place].all():
            raise self.fail(op, f"element {place.start} of {memory.label} is read before it is written")
        return memory.array[place].copy()

    def _store(self, op: Operation) -> None:
        memory, place = self._place(op, _scalar(op.operands[2]).lanes)
        memory.array[place] = self.values[op.operands[2]]
        if memory.written is not None:
            memory.written[place] = True

    def _allocate(self, op: Operation, kind: str) -> _Memory:
        if kind == "local" and op.result in self.shared:
            return self.shared[op.result]
        size = op.attributes["size"]
        assert isinstance(size, int) and isinstance(op.result.type, BufferType)
        memory = _Memory(np.zeros(size, op.result.type.dtype.numpy), f"{kind} memory", np.zeros(size, np.bool_))
        if kind == "local":
            self.shared[op.result] = memory
        return memory


def _scalar(value: Value) -> ScalarType:
    assert isinstance(value.type, ScalarType)
    return value.type
