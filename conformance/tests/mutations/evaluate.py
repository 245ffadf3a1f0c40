"""Runs a program of the set: its kernels in the interpreter of the kernel dialect, or rendered and on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from programs import Program

from oarlock import dtypes
from oarlock.codegen.free import memory_of
from oarlock.codegen.kernel.interpret import run_kernel
from oarlock.codegen.legalise import legalise
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.pipeline import Lowered, lower, prepare, render
from oarlock.codegen.values import numel, shape_of
from oarlock.dtypes import DType
from oarlock.ir import Value
from oarlock.ir.text import print_op
from oarlock.ops import tensor
from oarlock.runtime import Device, from_numpy, open_device, to_numpy
from oarlock.runtime.array import from_storage, to_storage
from oarlock.runtime.execute import plan_for
from oarlock.target import Target

__all__ = ["device", "interpreted", "kernel_names", "legalised", "on_device", "rendered"]

Array = npt.NDArray[Any]


def kernel_names(program: Program, target: Target) -> tuple[str, int]:
    """The kernels of a program by name, which names their text, with grids and scalars; and their number."""
    calls = _kernels(lower(prepare(program.function), target))
    parts = [f"{call.function.attributes['name']} {_rest(call)}" for call in calls]
    return "\n".join(parts), len(calls)


def legalised(program: Program, target: Target) -> tuple[str, int]:
    """The kernels of a program as they are legalised, with grids and scalars; and their number."""
    calls = _kernels(lower(prepare(program.function), target))
    parts = [f"{print_op(legalise(call.function, target))} {_rest(call)}" for call in calls]
    return "\n".join(parts), len(calls)


def _rest(call: KernelCall) -> str:
    return f"{call.grid} {[scalar for scalar in call.scalars if not isinstance(scalar, Value)]}"


def rendered(program: Program, target: Target) -> tuple[str, int]:
    """The source text of a program's kernels, and their number."""
    calls = _kernels(lower(prepare(program.function), target))
    return (render([call.function for call in calls], target) if calls else ""), len(calls)


def _kernels(lowered: Lowered) -> list[KernelCall]:
    return [call for call in lowered.calls if isinstance(call, KernelCall)]


def interpreted(program: Program, target: Target) -> list[Array]:
    """The results, by interpreting the legalised kernels."""
    lowered = lower(prepare(program.function), target)
    block = lowered.function.regions[0].block
    memory: dict[Value, Any] = {}
    for argument, operand in zip(block.args, program.operands, strict=True):
        memory[argument] = operand.item() if program.scalar else _held(operand, argument, target)
    for op in block.ops:
        if op.name == "array.constant":
            memory[op.result] = _held(op.attributes["value"].array, op.result, target)  # type: ignore[union-attr]
    for call in _kernels(lowered):
        for value in call.buffers:
            if value not in memory:
                storage = _storage(value, target)
                memory[value] = np.full(numel(value), 77).astype(storage.numpy)
        scalars = [0] * len(call.buffers) + [memory[s] if isinstance(s, Value) else s for s in call.scalars]
        run_kernel(legalise(call.function, target), call.grid, [memory[v] for v in call.buffers], scalars)
    return [_taken(value, memory, target) for value in block.terminator.operands]


def _storage(value: Value, target: Target) -> DType:
    stored = target.storage_of(tensor(value).dtype)
    return dtypes.uint8 if stored == dtypes.bool_ else stored


def _held(array: Array, value: Value, target: Target) -> Array:
    return np.array(to_storage(array, tensor(value).dtype, _storage(value, target)))


def _taken(value: Value, memory: dict[Value, Any], target: Target) -> Array:
    place = memory_of(value)
    dtype = tensor(place).dtype
    if place not in memory:
        return np.zeros(shape_of(value), dtype.numpy)
    return from_storage(memory[place], dtype, _storage(place, target)).reshape(shape_of(value))


def device(name: str) -> Device:
    """An open device."""
    return open_device(name)


def on_device(program: Program, device: Device) -> Sequence[Array]:
    """The results, by compiling what is rendered and running it."""
    plan = plan_for(program.function, device)
    return [
        to_numpy(x) for x in plan.run([x.item() if program.scalar else from_numpy(x, device) for x in program.operands])
    ]
