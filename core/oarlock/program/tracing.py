"""Tracing: a Python function runs once on tensors that stand for its arguments, and what it records is kept whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from oarlock.errors import TraceError
from oarlock.program.backend import Data, Place
from oarlock.program.calls import Call
from oarlock.program.plans import Entry
from oarlock.program.sites import Site, call_site, describe
from oarlock.program.tape import Recorded, Tape, ThreadState, pending, thread_state
from oarlock.program.trees import Spec, flatten

__all__ = ["Trace", "trace"]


@dataclass(frozen=True, slots=True)
class Trace:
    """What a function recorded. Values are numbered as on a tape; the first leaves are the arguments.

    ``outputs`` are the numbers of the results that the program computes, ``results`` the form of what the function
    returned, and ``given`` its leaves: the position of a result in ``outputs``, or data that is there already.
    ``assigned`` are (argument, position in ``outputs``) of arguments that got another value.
    """

    entries: Sequence[Entry]
    sites: Sequence[Site]
    payloads: Sequence[Data]
    outputs: tuple[int, ...]
    results: Spec
    given: tuple[int | Recorded, ...]
    assigned: tuple[tuple[int, int], ...]


class _TraceTape(Tape):
    """A tape that never runs: who asks for a value is told so."""

    __slots__ = ("name",)

    def __init__(self, place: Place, thread: ThreadState, name: str) -> None:
        super().__init__(place, thread)
        self.name = name
        self.limit = 1 << 62

    def flush(self) -> Exception | None:
        if self.closed:
            raise TraceError(
                f"a tensor that ol.jit made while it traced {self.name} is used outside: it has no value; let "
                f"{self.name} return it"
            )
        raise TraceError(
            f"{self.name} asks for the value of a tensor while ol.jit traces it, at {describe(call_site(2))}. While "
            f"tracing there are no values: compute with tensors (ol.where in place of if, ol.sum in place of a loop "
            f"over elements), give what decides about the program as a Python value, or take that line out of "
            f"{self.name}"
        )

    def overflow(self) -> None:
        """However long it gets, it is one program."""


def trace(name: str, place: Place, arguments: Sequence[Call], call: Callable[[list[Any]], Any]) -> Trace:
    """Run ``call`` on tensors for ``arguments`` (leaves of a program), and keep what it records on ``place``.

    Raises TraceError where a value is asked for, and what ``call`` raises; nothing of it is left then.
    """
    state = thread_state()
    tape = _TraceTape(place, state, name)
    with _recording(state, tape):
        tensors = [_argument(tape, argument) for argument in arguments]
        returned = call(list(tensors))
        leaves: list[Any] = []
        results = flatten(returned, leaves, f"the result of {name}")
        return _finished(tape, tensors, results, leaves)


@contextmanager
def _recording(state: ThreadState, tape: Tape) -> Iterator[None]:
    """Record on ``tape`` inside, and as before afterwards."""
    outer = state.tapes.get(tape.place)
    state.tapes[tape.place] = tape
    state.tracing += 1
    try:
        yield
    finally:
        state.tracing -= 1
        tape.close()
        state.drop(tape)
        if outer is not None and not outer.closed:
            state.tapes[tape.place] = outer


def _argument(tape: Tape, argument: Call) -> Recorded:
    """A tensor that stands for an argument: pending for ever."""
    tensor: Recorded = pending(argument.results[0], tape.place, tape)
    tape.entries.append((argument,))
    tape.sites.append(None)
    tape.payloads.append(None)
    return tensor


def _finished(tape: Tape, tensors: Sequence[Recorded], results: Spec, leaves: Sequence[Any]) -> Trace:
    outputs: dict[int, int] = {}
    given: list[int | Recorded] = []
    for leaf in leaves:
        if isinstance(leaf, Recorded) and leaf._tape is tape:
            given.append(outputs.setdefault(leaf._number, len(outputs)))
        else:
            given.append(leaf)
    assigned = [
        (position, outputs.setdefault(tensor._number, len(outputs)))
        for position, tensor in enumerate(tensors)
        if tensor._tape is tape and tensor._number != position
    ]
    for position, tensor in enumerate(tensors):
        if tensor._tape is not tape:  # assigned a value that does not depend on the arguments
            number = tape.leaf(tensor._kind, tensor._settle())
            assigned.append((position, outputs.setdefault(number, len(outputs))))
    entries, sites, payloads = list(tape.entries), list(tape.sites), list(tape.payloads)
    return Trace(entries, sites, payloads, tuple(outputs), results, tuple(given), tuple(assigned))
