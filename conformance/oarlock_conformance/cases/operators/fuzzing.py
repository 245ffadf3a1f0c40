"""Random programs: Hypothesis draws recipes, each runs on the device, and a failure shrinks to a small program."""

from __future__ import annotations

import importlib.util
import tempfile
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oarlock.errors import ConfigError
from oarlock.runtime import Device
from oarlock_conformance.case import Case, Failure, Options, Outcome
from oarlock_conformance.cases.operators.recipes import Flavour, Program, Recipe, program_of, stored_dtypes
from oarlock_conformance.cases.operators.reproduction import reproduction, write
from oarlock_conformance.cases.operators.stepwise import compare

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["mine", "plan", "run"]

_CASES = {True: 2, False: 8}
_EXAMPLES = {True: 3, False: 12}
_SHRINKS = 80
"""Programs that a failure may cost until it is told."""
_MOST_STEPS = 12
_CONTRACTS: dict[Flavour, str] = {
    "exact": "random programs on integers and whole floats give what the interpreter gives, fused and operator by "
    "operator",
    "any": "random programs of element-wise and moving operators meet each operator's tolerance, and give the same "
    "values fused and operator by operator",
}


def mine(identity: str) -> bool:
    """Whether a case is one of this module."""
    return identity.startswith("random.")


def plan(device: Device, options: Options) -> list[Case]:
    """Cases ``random.exact/0`` ..., each of a few programs. Raises ConfigError where Hypothesis is missing."""
    if importlib.util.find_spec("hypothesis") is None:
        raise ConfigError("random programs need Hypothesis, which is not installed: pip install 'oarlock[certify]'")
    return [
        Case(f"random.{flavour}/{number}", "operators", f"random-{flavour}", text)
        for flavour, text in _CONTRACTS.items()
        for number in range(_CASES[options.quick])
    ]


def run(device: Device, identity: str, options: Options, beat: Callable[[], None]) -> Outcome:
    """Run the programs of one case; ``beat`` is called after each."""
    start = time.perf_counter()
    flavour: Flavour = "exact" if identity.startswith("random.exact/") else "any"
    search = _Search(device, identity, flavour, options, beat)
    search.go()
    details: dict[str, Any] = {"seed": search.seed, "examples": search.wanted, "programs": search.done}
    seconds = time.perf_counter() - start
    if search.found is None:
        return Outcome(identity, "passed", seconds, details=details)
    program, error = search.found
    text = f"{type(error).__name__}: {error}" if not isinstance(error, Failure) else str(error)
    source = reproduction(device.name, program.function, program.operands, flavour == "exact", text)
    details["reproduction"] = source
    if options.repro:
        details["file"] = write(options.repro, identity, source)
    where = f"; reproduce with {details['file']}" if options.repro else "; the program is in the details"
    kind = "value" if isinstance(error, Failure) else "exception"
    return Outcome(identity, "failed", seconds, kind, f"{text}{where}", details)


class _Search:
    """One run of Hypothesis: how many programs it made, and the smallest one that failed."""

    def __init__(
        self, device: Device, identity: str, flavour: Flavour, options: Options, beat: Callable[[], None]
    ) -> None:
        self.device = device
        self.flavour: Flavour = flavour
        self.seed = zlib.crc32(f"{options.seed} {identity}".encode())
        self.wanted = options.examples or _EXAMPLES[options.quick]
        self.done = 0
        self.found: tuple[Program, Exception] | None = None
        self._beat = beat
        self._left = _SHRINKS
        self._kinds = stored_dtypes(device.target)

    def go(self) -> None:
        from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
        from hypothesis.configuration import set_hypothesis_home_dir

        with tempfile.TemporaryDirectory() as folder:
            set_hypothesis_home_dir(folder)  # it keeps files where it runs otherwise
            rules = settings(
                max_examples=self.wanted, database=None, deadline=None, verbosity=Verbosity.quiet, print_blob=False,
                phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
                report_multiple_bugs=False,
            )  # fmt: skip
            check = seed(self.seed)(rules(given(recipes(self.flavour))(self._try)))
            try:
                check()
            except Exception:
                if self.found is None:  # the failure is Hypothesis' own, not a program's
                    raise

    def _try(self, recipe: Recipe) -> None:
        """Run one program. When enough was spent on shrinking, all the rest passes."""
        if self._left <= 0:
            return
        if self.found is not None:
            self._left -= 1
        program = program_of(recipe, self._kinds)
        self.done += 1
        try:
            compare(self.device, program.function, program.operands, self.flavour == "exact")
        except Exception as error:
            if self.found is None or _size(program) <= _size(self.found[0]):
                self.found = (program, error)
            raise
        finally:
            self._beat()


def _size(program: Program) -> tuple[int, int]:
    """Operators, then elements of the operands."""
    return sum(1 for _ in program.function.regions[0].block.ops), sum(x.size for x in program.operands)


def recipes(flavour: Flavour) -> SearchStrategy[Recipe]:
    """Recipes of up to four inputs and twelve operators."""
    from hypothesis import strategies as st

    small, number = st.integers(0, 3), st.integers(0, 255)
    inputs = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 14), small), min_size=1, max_size=4)
    step = st.tuples(number, st.integers(0, 7), *[st.integers(0, 31)] * 4)
    steps = st.lists(step, min_size=1, max_size=_MOST_STEPS)
    return st.builds(lambda i, s: Recipe(flavour, tuple(i), tuple(s)), inputs, steps)
