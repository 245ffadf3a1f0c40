"""Attempts: each in a forked process that plants one mutation before it imports the compiler."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy.typing as npt
from apart import Ended, Say
from catalogue import MUTATIONS, Through
from planting import Stale, plant
from programs import TARGETS, Program, programs

__all__ = ["PROGRAMS", "Healthy", "Row", "attempt", "forkable", "healthy_digests", "healthy_faults", "row_of"]

Array = npt.NDArray[Any]
Digests = dict[str, tuple[str, int]]
_DEVICES: dict[str, str] = {"c99": "sim:0", "llvm": "cpu:0"}
"""Where a rendered text is run."""
PROGRAMS: tuple[Program, ...] = tuple(programs())
"""The set, made before any process is forked: it needs nothing of the compiler."""


@dataclass(frozen=True, slots=True)
class Healthy:
    """What the compiler makes of the set without a mutation: (digest, kernels) by key."""

    digests: Digests

    def kernels(self, through: Through) -> int:
        """The number of kernels that are looked at through ``through``."""
        return sum(count for key, (_, count) in self.digests.items() if key.startswith(f"{through}: "))


@dataclass(frozen=True, slots=True)
class Row:
    """What became of a mutation. ``changed``: programs looked at whose kernels changed; ``first``: the first whose
    results are wrong; ``by``: "value"; "error" where the compiler or the interpreter refused it; "crash" or "time-out"
    where the process of the attempt died of it or hung."""

    name: str
    module: str
    through: Through
    changed: int
    looked: int
    first: str
    by: str
    reason: str
    seconds: float

    @property
    def caught(self) -> bool:
        return bool(self.first) and self.changed > 0

    @property
    def crash_only(self) -> bool:
        """Whether it was caught, but no result was seen to be wrong and nothing refused it."""
        return self.caught and self.by in ("crash", "time-out")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "caught": self.caught}


@dataclass(frozen=True, slots=True)
class _Work:
    """One program for one target or device."""

    key: str
    program: Program
    digest: Callable[[], tuple[str, int]]
    run: Callable[[], Sequence[Array]]


def _work(through: Through) -> Iterator[_Work]:
    """Everything that is looked at."""
    import evaluate  # after the mutation was planted

    for program in PROGRAMS:
        if through in ("kernel", "legal"):
            for name in program.targets:
                target = TARGETS[name]
                text = evaluate.kernel_names if through == "kernel" else evaluate.legalised
                yield _Work(
                    f"{through}: {program.name} on {name}", program, lambda p=program, t=target, f=text: f(p, t),
                    lambda p=program, t=target: evaluate.interpreted(p, t),
                )  # fmt: skip
        elif program.rendered:
            device = evaluate.device(_DEVICES[through])
            yield _Work(
                f"{through}: {program.name}", program, lambda p=program, d=device: evaluate.rendered(p, d.target),
                lambda p=program, d=device: evaluate.on_device(p, d),
            )  # fmt: skip


def _digest(work: _Work) -> tuple[str, int]:
    text, kernels = work.digest()
    return hashlib.sha256(text.encode()).hexdigest(), kernels


def healthy_digests(through: Through, say: Say) -> Digests:
    """What each program is lowered to without a mutation."""
    digests: Digests = {}
    for work in _work(through):
        say(work.key)
        digests[work.key] = _digest(work)
    return digests


def healthy_faults(keys: frozenset[str] | None, through: Through, say: Say) -> list[str]:
    """What is wrong without a mutation (nothing) with the programs ``keys`` (None: all)."""
    wrong = []
    for work in _work(through):
        if keys is None or work.key in keys:
            say(work.key)
            text, _ = _judged(work)
            wrong += [f"{work.key}: {text[:300]}"] * bool(text)
    return wrong


def _judged(work: _Work) -> tuple[str, str]:
    try:
        return work.program.judge(work.run()), "value"
    except Exception as error:
        return f"{type(error).__name__}: {error}", "error"


def attempt(name: str, healthy: Healthy, say: Say) -> Row:
    """Plant a mutation in this process, and look at kernels until one that it changed is seen to be wrong.

    It says (programs changed, looked at, key) before each program, as they are if the process does not survive it.
    """
    start = time.perf_counter()
    mutation = MUTATIONS[name]
    changed = looked = 0

    def row(first: str = "", by: str = "", reason: str = "") -> Row:
        seconds = round(time.perf_counter() - start, 2)
        return Row(name, mutation.module, mutation.through, changed, looked, first, by, reason[:300], seconds)

    try:
        plant(mutation)
        for work in _work(mutation.through):
            looked += 1
            say((changed + 1, looked, work.key))
            try:
                if _digest(work)[0] == healthy.digests[work.key][0]:
                    continue
                changed += 1
            except Stale:
                raise
            except Exception as error:
                changed += 1
                return row(work.key, "error", f"{type(error).__name__}: {error}")
            wrong, by = _judged(work)
            if wrong:
                return row(work.key, by, wrong)
    except Stale as error:
        return row(reason=str(error))
    return row(reason="no kernel of the set shows it" if changed else "it changes no kernel of the set")


def row_of(name: str, ended: Ended) -> Row:
    """The row of an attempt that gave one, or that ended otherwise: RuntimeError for what is no fault of a kernel."""
    if ended.by == "value":
        row: Row = ended.value
        return row
    if ended.by == "error" or ended.note is None:
        raise RuntimeError(f"the attempt of {name} did not get to a kernel: {ended.reason}")
    mutation, (changed, looked, key) = MUTATIONS[name], ended.note
    return Row(name, mutation.module, mutation.through, changed, looked, key, ended.by, ended.reason, ended.seconds)


def forkable() -> None:
    """Raise RuntimeError when the compiler was imported already: a forked process could not plant anything."""
    early = [name for name in sys.modules if name.startswith("oarlock.codegen")]
    if early:
        raise RuntimeError(f"{early[0]} is imported; attempts need a process that has not imported the compiler")
