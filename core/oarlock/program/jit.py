"""``ol.jit``: a function of tensors becomes one compiled program for each form of its arguments."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any, TypeAlias, overload

import numpy as np

from oarlock.config import config
from oarlock.errors import OarlockError, TraceError
from oarlock.ir import Operation
from oarlock.ir.extents import Extents
from oarlock.program.backend import Data, Place, place
from oarlock.program.calls import Call, Number, scalar_call
from oarlock.program.fast import ready
from oarlock.program.host import put
from oarlock.program.plans import counters
from oarlock.program.symbolic import Symbolic, Variant, Variants
from oarlock.program.tape import Recorded, apart, thread_state
from oarlock.program.tracing import Trace, trace
from oarlock.program.trees import LEAF, Spec, flatten, rebuild
from oarlock.program.whole import WholeProgram, compiled

__all__ = ["Jitted", "jit"]

CAPACITY = 256
"""Programs kept for one function; the oldest goes first."""

Signature: TypeAlias = "tuple[Any, ...]"


class Jitted:
    """A compiled function; made by ``ol.jit``. ``traces`` and ``compiles`` count what its calls had to do so far."""

    def __init__(
        self, function: Callable[..., Any], device: Any, symbolic: Mapping[str, Mapping[int, Any]] | None
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._device = device
        self._name = getattr(function, "__qualname__", repr(function)).replace("<locals>.", "")
        self._programs: dict[Signature, WholeProgram] = {}
        self._variants = Variants(function, symbolic) if symbolic else None
        self._lock = threading.RLock()
        self.traces = 0
        """How often the Python function ran to be traced."""
        self.compiles = 0
        """How many programs were compiled."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function gives. Raises TraceError where it cannot be traced, else what the function raises."""
        state = thread_state()
        if state.tracing or state.eager or config.eager:
            return self._function(*args, **kwargs)
        if ready.signature is not None and self._device is None and not kwargs:  # tensors alone, all there: usual
            found = ready.signature(args, LEAF)
            if found is not NotImplemented:
                known = self._programs.get(found[0])
                if known is not None and not known.assigned:
                    return known(found[1], args)
        leaves, key, data = self._signature(args, kwargs)
        program = self._programs.get(key)
        if program is None:
            program = self._compiled(args, kwargs, leaves, key, data)
        if program.assigned:
            self._check_assigned(program, leaves)
        return program(data, leaves)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<ol.jit {self._name}: {len(self._programs)} programs>"

    def program(self, *args: Any, **kwargs: Any) -> Operation:
        """The array program for these arguments, compiled where it is not yet; ``print`` shows it as text."""
        leaves, key, data = self._signature(args, kwargs)
        found = self._programs.get(key) or self._compiled(args, kwargs, leaves, key, data)
        return found.function

    def _signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Signature, list[Data]]:
        """The tensors of a call, what finds its program, and the tensors' data, run-time scalars as numbers.

        This runs in every call: the usual case is kept short.
        """
        leaves: list[Any] = []
        spec: list[Spec] = []
        for position, argument in enumerate(args):
            if isinstance(argument, Recorded):
                leaves.append(argument)
                spec.append(LEAF)
            else:
                spec.append(flatten(argument, leaves, f"argument {position} of {self._name}"))
        for name, argument in kwargs.items():
            spec.append((name, flatten(argument, leaves, f"argument {name} of {self._name}")))
        where = self._place(leaves)
        data: list[Data] = []
        for leaf in leaves:
            found = leaf._data
            if found is None:
                found = leaf._settle()
            if leaf._place is not where:
                raise apart(self._name, where, leaf._place)
            if type(found) is Number:
                spec.append(scalar_call(leaf._kind.dtype))
                data.append(found.value)
            else:
                spec.append(leaf._kind)
                data.append(found)
        spec.append(where)
        return leaves, tuple(spec), data

    def _place(self, leaves: list[Any]) -> Place:
        """Where the program runs; NumPy arrays among ``leaves`` become tensors there."""
        where: Place | None = place(self._device) if self._device is not None else None
        arrays = False
        for leaf in leaves:
            if not isinstance(leaf, Recorded):
                arrays = True
            elif where is None:
                where = leaf._place
        where = place() if where is None else where
        if arrays:
            leaves[:] = [leaf if isinstance(leaf, Recorded) else put(where, np.asarray(leaf)) for leaf in leaves]
        return where

    def _compiled(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any], key: Signature, data: Sequence[Data]
    ) -> WholeProgram:
        with self._lock:
            found = self._programs.get(key)
            if found is None:
                found = self._traced(args, kwargs, leaves, key[-1], data)
                while len(self._programs) >= CAPACITY:
                    self._programs.pop(next(iter(self._programs)))
                self._programs[key] = found
            return found

    def _traced(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any], where: Place, data: Sequence[Data]
    ) -> WholeProgram:
        arguments: list[Call] = [
            leaf._kind.leaf if given is leaf._data else scalar_call(leaf._kind.dtype)
            for leaf, given in zip(leaves, data, strict=True)
        ]
        found: list[Any] = []
        spec = flatten((args, kwargs), found, f"the arguments of {self._name}")

        def call(tensors: list[Any]) -> Any:
            own_args, own_kwargs = rebuild(spec, iter(tensors))
            return self._function(*own_args, **own_kwargs)

        traced = self._trace(where, arguments, call)
        if self._variants is not None:
            symbolic = self._variants.sizes(args, kwargs, [leaf._kind for leaf in leaves])
            if symbolic is not None:
                key = (spec, symbolic.key, tuple(argument.role for argument in arguments), where)
                program = self._for_sizes(self._variants, key, symbolic, traced, where, arguments, call)
                if program is not None:
                    return program
        self._count_compile()
        with self._noting(where):
            return compiled(traced, where, len(arguments))

    def _for_sizes(
        self,
        variants: Variants,
        key: Any,
        symbolic: Symbolic,
        traced: Trace,
        where: Place,
        arguments: Sequence[Call],
        call: Callable[[list[Any]], Any],
    ) -> WholeProgram | None:
        """A program that serves the sizes of ``traced`` and others; None where what is traced depends on more."""
        found = variants.program(key, traced, symbolic.sizes)
        if found is None:
            extents = Extents()
            again = self._trace(where, symbolic.calls(extents, arguments), call)
            self._count_compile()
            with self._noting(where):
                variant = Variant(again, traced, len(arguments), extents, where)
            found = variant.program(traced, symbolic.sizes)
            if found is not None:
                variants.add(key, variant)
        return found

    def _trace(self, where: Place, arguments: Sequence[Call], call: Callable[[list[Any]], Any]) -> Trace:
        self.traces += 1
        counters.traces += 1
        return trace(self._name, where, arguments, call)

    def _count_compile(self) -> None:
        self.compiles += 1
        counters.compiles += 1

    @contextmanager
    def _noting(self, where: Place) -> Iterator[None]:
        try:
            yield
        except OarlockError as error:
            error.add_note(f"while ol.jit compiled {self._name} for {where.name}")
            raise

    def _check_assigned(self, program: WholeProgram, leaves: Sequence[Any]) -> None:
        for position, _ in program.assigned:
            if sum(leaf is leaves[position] for leaf in leaves) > 1:
                raise TraceError(
                    f"{self._name} assigns to an argument that it is given twice: which one is meant cannot be traced; "
                    f"give a copy, ol.asarray(x), or return the new value"
                )


@overload
def jit(
    function: Callable[..., Any], /, *, device: Any = None, symbolic: Mapping[str, Mapping[int, Any]] | None = None
) -> Jitted: ...
@overload
def jit(
    *, device: Any = None, symbolic: Mapping[str, Mapping[int, Any]] | None = None
) -> Callable[[Callable[..., Any]], Jitted]: ...
def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    device: Any = None,
    symbolic: Mapping[str, Mapping[int, Any]] | None = None,
) -> Jitted | Callable[[Callable[..., Any]], Jitted]:
    """``function`` compiled as one program: called with tensors, it is traced once, and later calls only run it.

    Arguments and results may be tuples, lists and dicts of tensors. NumPy arrays become tensors. Everything else is
    *static*, must be hashable, and a new value of it makes a new program, as another shape, dtype or device does; a
    number that changes often is given as a tensor, ``ol.asarray(0.1)``. What the function reads besides its arguments
    is read once, while it is traced: tensors become constants, lists are not looked at again. Assignment to an argument
    (``x[i] = v``) changes the caller's tensor, as without ``jit``. ``device`` says where the program runs; None: where
    its tensors are.

    ``symbolic`` names dimensions whose sizes vary, by argument: ``{"x": {0: "n"}, "mask": {1: ("n", 1, 4096)}}``, with
    the least and the most where a range is known. A name stands for one size in a call (ShapeError). A program for
    such sizes serves all for which the compiler would have taken the same decisions (*guards*): the function is traced
    for a new size, but nothing is compiled. Sizes outside of the range get programs of their own.

    A call raises TraceError where the function asks for a value of a tensor (``if x > 0``, ``float(x)``, NumPy), and
    what the function raises; nothing is left of a call that failed.
    """
    if function is None:
        return functools.partial(jit, device=device, symbolic=symbolic)
    if not callable(function):
        raise TraceError(f"ol.jit takes a function, not {function!r}")
    return Jitted(function, device, symbolic)
