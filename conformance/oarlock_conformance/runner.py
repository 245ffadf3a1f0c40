"""Runs groups of cases in child processes: a crash, a hang or a stray line spoils its own group, and no more."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from oarlock.errors import ConfigError, DeviceError, DeviceNotFoundError, OarlockError
from oarlock_conformance.case import ALONE, Case, Level, Options, Outcome
from oarlock_conformance.waivers import Waiver
from oarlock_conformance.worker import command

__all__ = ["DeviceAbsent", "Group", "Plan", "groups_of", "make_plan", "process_case", "run_groups"]


class DeviceAbsent(DeviceError):
    """The device is not here: its driver or its hardware is missing. No fault of the adapter, and never a pass."""


_REFUSALS: dict[str, type[OarlockError]] = {
    "mistyped": DeviceNotFoundError,
    "absent": DeviceAbsent,
    "unready": ConfigError,
}

_MOST_DEATHS = 8
"""Processes that a group may lose before the rest of its cases is given up."""
_SHOWN = 1200
"""Characters of stray output that are kept."""


@dataclass(frozen=True, slots=True)
class Group:
    """Cases that share a process. The group has a case of its own: that its process behaves."""

    level: Level
    name: str
    cases: tuple[Case, ...]

    @property
    def process(self) -> Case:
        return process_case(self.level, self.name)


def process_case(level: Level, group: str) -> Case:
    """The case that a group's process ends well."""
    text = "the process ends with status 0, prints nothing of its own, and leaves no stream or event alive"
    return Case(f"process/{level}.{group}", level, group, text)


def groups_of(cases: Sequence[Case]) -> list[Group]:
    """The groups of the cases that must be run, in order of their first case."""
    found: dict[tuple[Level, str], list[Case]] = {}
    for case in cases:
        if not case.unsupported:
            found.setdefault((case.level, case.group), []).append(case)
    return [Group(level, name, tuple(members)) for (level, name), members in found.items()]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a device is, every case of the chosen levels, and the entries of the adapter's waivers.toml.

    ``waivers_wrong`` says why that file cannot be used; empty where it can.
    """

    device: dict[str, Any]
    cases: tuple[Case, ...]
    waivers: tuple[Waiver, ...] = ()
    waivers_wrong: str = ""


def make_plan(device: str, levels: Sequence[str], options: Options) -> Plan:
    """Ask a child process what there is to certify.

    Raises DeviceNotFoundError for a name that is mistyped (the text lists what there is), DeviceAbsent for a device
    whose driver or hardware is not here, DeviceError for one that cannot be opened or described, ConfigError where the
    suite lacks what it needs itself.
    """
    with _Child({"device": device, "levels": list(levels), "options": options.to_json()}) as child:
        for event in child.events(options.deadline_s):
            if event["event"] == "planned":
                return Plan(
                    event["device"],
                    tuple(Case(**item) for item in event["cases"]),
                    tuple(map(Waiver.from_json, event["waivers"])),
                    event["waivers_wrong"],
                )
            if event["event"] == "refused":
                raise _REFUSALS.get(event["why"], DeviceError)(event["reason"])
        raise DeviceError(f"{device} cannot be opened: {child.epitaph()}")


Tell = Callable[[Outcome], None]


class _Crew:
    """What the groups of a run share: whom to tell, one at a time, and the processes to stop when it is broken off."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._children: set[_Child] = set()
        self.stopped = False

    def tell(self, outcome: Outcome) -> None:
        with self._lock:
            if not self.stopped:
                self._tell(outcome)

    @contextmanager
    def child(self, job: dict[str, Any]) -> Iterator[_Child]:
        """A process that is stopped with the run."""
        with _Child(job) as child:
            with self._lock:
                self._children.add(child)
                late = self.stopped
            if late:  # it was on its way while the others were stopped
                child.kill()
            try:
                yield child
            finally:
                with self._lock:
                    self._children.discard(child)

    def stop(self) -> None:
        """Stop every process; nothing is told any more."""
        with self._lock:
            self.stopped = True
            children = list(self._children)
        for child in children:
            child.kill()


def run_groups(device: str, groups: Sequence[Group], options: Options, jobs: int, tell: Tell) -> None:
    """Run ``groups`` with at most ``jobs`` processes at once; ``tell`` is called with each outcome, one at a time.

    Groups of levels that measure time come last, one after the other. Any exception, such as KeyboardInterrupt, stops
    all processes and is raised.
    """
    crew = _Crew(tell)
    together = [group for group in groups if group.level not in ALONE]
    alone = [group for group in groups if group.level in ALONE]
    for batch, width in ((together, max(1, jobs)), (alone, 1)):
        with ThreadPoolExecutor(width) as pool:
            running = [pool.submit(_GroupRun(device, group, options, crew).run) for group in batch]
            try:
                for done in running:
                    done.result()
            except BaseException:
                crew.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


@dataclass(slots=True)
class _GroupRun:
    """One group on its way: cases left, those that must be run alone, and what its processes did wrong."""

    device: str
    group: Group
    options: Options
    crew: _Crew
    left: list[str] = field(default_factory=list)
    alone: set[str] = field(default_factory=set)
    faults: list[tuple[str, str]] = field(default_factory=list)
    deaths: int = 0

    def run(self) -> None:
        start = time.perf_counter()
        self.left = [case.id for case in self.group.cases]
        while self.left and self.deaths < _MOST_DEATHS and not self.crew.stopped:
            isolate = bool(self.alone)
            self._process([case for case in self.left if case in self.alone or not isolate], isolate)
        for case in self.left:
            text = f"not run: the group lost {self.deaths} processes before its turn"
            self.crew.tell(Outcome(case, "error", 0.0, "missing", text))
        self._end(time.perf_counter() - start)

    def _process(self, batch: Sequence[str], isolate: bool) -> None:
        job = {
            "device": self.device, "level": self.group.level, "cases": list(batch), "isolate": isolate,
            "options": self.options.to_json(),
        }  # fmt: skip
        flying: list[str] = []
        ended = False
        with self.crew.child(job) as child:
            for event in child.events(self.options.deadline_s):
                if event["event"] == "start":
                    flying = list(event["cases"])
                elif event["event"] == "end":
                    outcome = Outcome(**event["outcome"])
                    flying = [case for case in flying if case != outcome.case]
                    self._tell(outcome)
                elif event["event"] == "refused":
                    self._give_up(f"the device cannot be used: {event['reason']}")
                    return
                elif event["event"] == "done":
                    ended = True
                    if event["alive"]:
                        self.faults.append(("leak", f"alive at the end: {event['alive']}"))
                    if event["fallbacks"]:
                        ran = ", ".join(f"{name} ({count} times)" for name, count in event["fallbacks"].items())
                        self.faults.append(("fallback", f"ran on the host, and not on the device: {ran}"))
            self._judge(child, ended, flying)

    def _judge(self, child: _Child, ended: bool, flying: list[str]) -> None:
        """What a process's end says about its cases and its group."""
        kind, text = child.verdict()
        if ended and kind:
            self.faults.append((kind, text))
        if ended or not self.left:
            return
        self.deaths += 1
        if len(flying) == 1:
            self._tell(Outcome(flying[0], "error", 0.0, kind or "exit", text or child.epitaph()))
        elif flying:
            self.alone = set(flying)
        else:
            self.faults.append((kind or "exit", text or child.epitaph()))

    def _tell(self, outcome: Outcome) -> None:
        if outcome.case in self.left:  # once only
            self.left.remove(outcome.case)
            self.alone.discard(outcome.case)
            self.crew.tell(outcome)

    def _give_up(self, reason: str) -> None:
        for case in self.left:
            self.crew.tell(Outcome(case, "error", 0.0, "exception", reason))
        self.left.clear()

    def _end(self, seconds: float) -> None:
        case = self.group.process.id
        if not self.faults:
            self.crew.tell(Outcome(case, "passed", seconds))
            return
        kind = self.faults[0][0]
        self.crew.tell(Outcome(case, "error", seconds, kind, "; ".join(text for _, text in self.faults)))


class _Child:
    """A worker process, and the events it sends."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._noise: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the child)
        self._process = subprocess.Popen(
            command(job), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._noise,
            start_new_session=os.name == "posix",
        )  # fmt: skip
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._late = 0.0
        self._reader.start()

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._noise.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def events(self, deadline_s: float) -> Iterator[dict[str, Any]]:
        """Events until the process has ended. One that is silent for ``deadline_s`` seconds is stopped."""
        while True:
            try:
                line = self._lines.get(timeout=deadline_s)
            except queue.Empty:
                self._late = deadline_s
                break
            if not line:
                break
            yield json.loads(line)
        if not self._late:
            try:
                self._process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                self._late = deadline_s
        self.kill()

    def kill(self) -> None:
        """Stop it, if it has not ended."""
        if self._process.poll() is None:
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()

    def noise(self) -> str:
        """What it printed."""
        self._noise.seek(0)
        return self._noise.read().decode("utf-8", "replace").strip()

    def verdict(self) -> tuple[str, str]:
        """How the process went wrong, as (kind, text); two empty ones when it ended well."""
        printed = self.noise()
        status = self._process.returncode
        if self._late:
            return "time-out", f"nothing was heard for {self._late:g} s, and the process was stopped{_said(printed)}"
        if status < 0:
            return "crash", f"the process died of {_signal(-status)}{_said(printed)}"
        if status:
            return "exit", f"the process ended with status {status}{_said(printed)}"
        return ("output", f"the process printed: {printed[:_SHOWN]}") if printed else ("", "")

    def epitaph(self) -> str:
        """Why it ended before it was done."""
        return self.verdict()[1] or "the process ended early, with status 0"


def _signal(number: int) -> str:
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"


def _said(printed: str) -> str:
    return f"; it printed: {printed[-_SHOWN:]}" if printed else ""
