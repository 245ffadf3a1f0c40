"""Operators: library or hand-written kernels that may replace generated ones, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from oarlock.dtypes import DType
from oarlock.hal.memory import Handle
from oarlock.target import Target

__all__ = ["OperatorCall", "OperatorKernel", "Operators"]


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One operator to run: its record's name, the (dtype, shape) of operands and results, and its attributes."""

    name: str
    operands: tuple[tuple[DType, tuple[int, ...]], ...]
    results: tuple[tuple[DType, tuple[int, ...]], ...]
    attributes: Mapping[str, Any]


class OperatorKernel(Protocol):
    """A kernel for one call. Operands and results are row-major and contiguous.

    Kept by the plan that it was asked for, and run any number of times, also before an earlier run has ended.
    """

    def workspace(self) -> int:
        """Bytes of scratch memory that ``run`` is given as its last buffer (0: none); the same every time."""
        ...

    def run(self, stream: Handle | None, buffers: Sequence[tuple[Handle, int]]) -> None:
        """Run on (handle, byte offset) of operands, then results, then workspace, in stream order.

        Returns at once where the device is asynchronous. Fails as ``launch`` does. Equal operands give equal bits.
        """
        ...


class Operators(Protocol):
    """Capability ``operators``."""

    def match(self, call: OperatorCall, target: Target) -> OperatorKernel | None:
        """A kernel for ``call``, or None: then the generated one runs.

        Asked when a plan is made, for each of its ``dot_general`` and ``convolution``. Submits nothing.
        """
        ...
