"""``oarlock tune``: search faster schedules for a model's kernels by measuring, and keep them for later programs."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.cli.inspect import open_parameterised
from oarlock.config import config
from oarlock.errors import ModelError
from oarlock.runtime import open_device
from oarlock.runtime.tuning.known import database
from oarlock.runtime.tuning.store import Result, Store
from oarlock.runtime.tuning.tuner import Limits, Listener, Report, tune, whole

if TYPE_CHECKING:
    from oarlock.runtime.tuning.search import Duel

__all__ = ["add_arguments", "run"]

_REPORT_S = 5.0
"""Seconds between lines of progress where standard error is no terminal."""
_WIDTH = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "examples:\n"
        "  oarlock tune model.onnx --device opencl:0            all that takes 1 % of the time or more\n"
        "  oarlock tune model.onnx --shape x=1,3,224,224 --budget 120\n"
        "  oarlock tune --list                                  what has been found so far\n"
        "results are kept at once: an interrupted search goes on where it was. OARLOCK_TUNED=0 runs without them"
    )
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        type=Path,
        help="a model file such as model.onnx, or a program in .txt or .json",
    )
    parser.add_argument("--device", default=config.device, metavar="NAME", help=f"default: {config.device}")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=1,3,8", help="shape of an input")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="end after about so long (default: when done)")
    parser.add_argument(
        "--trials", type=int, default=64, metavar="N", help="schedules tried for each kernel (default 64)"
    )
    parser.add_argument("--again", action="store_true", help="search also what was searched before")
    parser.add_argument("--list", action="store_true", help="print what is kept, of all devices")
    parser.add_argument("--clear", action="store_true", help="delete what is kept")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def run(arguments: argparse.Namespace) -> int:
    """Tune, list or clear."""
    store = Store(database())
    if arguments.clear:
        store.clear()
        return 0
    if arguments.list:
        _print_list(store, arguments.json)
        return 0
    if arguments.model is None:
        raise ModelError("oarlock tune MODEL: which model? Or --list what is kept, --clear it")
    if arguments.trials < 1 or (arguments.budget is not None and not arguments.budget > 0):
        raise ModelError("--trials is at least 1, and --budget more than 0 seconds")
    progress = _Progress(not arguments.quiet)
    try:
        return _tune(arguments, store, progress)
    except KeyboardInterrupt:
        progress.say(f"interrupted; what was found is kept in {store.path}, and the same command goes on from there")
        return 130
    finally:
        progress.clear()


def _tune(arguments: argparse.Namespace, store: Store, progress: _Progress) -> int:
    progress.draw("reading the model")
    function, parameters = open_parameterised(arguments.model, arguments.shape)
    device = open_device(arguments.device)
    fixed = range(parameters)
    limits = Limits(seconds=arguments.budget, trials=arguments.trials, again=arguments.again)
    report = tune(function, device, store, limits, fixed, progress)
    progress.draw("comparing the whole program")
    outcome = whole(function, device, fixed) if config.tuned else None
    progress.clear()
    if arguments.json:
        print(json.dumps(_as_json(arguments, report, outcome, store), indent=2))
    else:
        print("\n".join(_lines(report, outcome, store)))
    return 1 if any(wrong for item in report.tuned for _, _, wrong in item.refused) else 0


class _Progress(Listener):
    """A line on standard error that is drawn anew; where that is no terminal, a line every few seconds."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._terminal = wanted and sys.stderr.isatty()
        self._told = time.monotonic()
        self._drawn = False

    def profiled(self, done: int, total: int) -> None:
        self.draw(f"timing as it is: {done} of {total} kernels")

    def searching(self, number: int, total: int, key: str, share: float, trials: int, ratio: float) -> None:
        gain = f"{1 - ratio:.0%} faster" if ratio < 1 else "nothing faster"
        name = _short(key.partition(" #")[0])
        self.draw(f"{number} of {total}  {name}, {share:.0%} of the time: {trials} tried, {gain} so far")

    def draw(self, text: str) -> None:
        """Show what happens now."""
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K  {text}")
            sys.stderr.flush()
            self._drawn = True
        elif self._wanted and time.monotonic() - self._told >= _REPORT_S:
            self.say(text)

    def say(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        self._told = time.monotonic()
        if self._wanted:
            print(f"  {text}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Wipe the line."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False


def _lines(report: Report, outcome: Duel | None, store: Store) -> list[str]:
    gained = [item for item in report.tuned if item.result.schedule.to_json()]
    names = [_short(item.result.subject.partition(" #")[0]) for item in gained]
    width = max(map(len, names), default=0)
    lines = [
        f"  {name:<{width}}  {item.share:>4.0%} of the time  {_ms(item.result)}  {item.result.schedule}"
        f"{'  (known)' if item.known else ''}"
        for name, item in zip(names, gained, strict=True)
    ]
    lines += [
        f"  {_short(item.result.subject.partition(' #')[0])}: {schedule} refused{', WRONG' if wrong else ''}: {reason}"
        for item in report.tuned
        for schedule, reason, wrong in item.refused
        if wrong
    ]
    counts = (
        (len(report.tuned) - len(gained), "with nothing faster than the rules"),
        (report.small, "below 1 % of the time"),
        (report.left, "left when time ran out; the same command goes on"),
        (len(report.changed), "that cannot be measured alone"),
    )
    lines += [f"  {count} kernel{'s' if count > 1 else ''} {what}" for count, what in counts if count]
    if outcome is not None:
        lines.append(
            f"  whole program: {outcome.against * 1e3:.3g} -> {outcome.seconds * 1e3:.3g} ms, "
            f"{1 - outcome.ratio:.1%} less (two standard errors: {outcome.noise:.1%})"
        )
    return [*lines, f"  kept in {store.path}"]


def _ms(result: Result) -> str:
    return f"{result.default_ns * 1e-6:.3g} -> {result.best_ns * 1e-6:.3g} ms, {1 - result.ratio:.0%} less"


def _short(name: str) -> str:
    return name if len(name) <= _WIDTH else name[: _WIDTH - 3] + "..."


def _as_json(arguments: argparse.Namespace, report: Report, outcome: Duel | None, store: Store) -> dict[str, Any]:
    return {
        "model": str(arguments.model),
        "device": arguments.device,
        "database": str(store.path),
        "results": [item.to_json() for item in report.tuned],
        "small": report.small,
        "left": report.left,
        "changed": report.changed,
        "whole": None
        if outcome is None
        else {"rules_s": outcome.against, "tuned_s": outcome.seconds, "noise": outcome.noise},
    }


def _print_list(store: Store, as_json: bool) -> None:
    results = store.read()
    if as_json:
        print(json.dumps({"results": [result.to_json() for result in results]}, indent=1))
        return
    print(f"  {len(results)} results in {store.path}")
    for result in results:
        state = str(result.schedule) if result.finished else f"{result.schedule} (unfinished)"
        print(f"  {result.driver}  {_short(result.subject.partition(' #')[0])}  {_ms(result)}  {state}")
