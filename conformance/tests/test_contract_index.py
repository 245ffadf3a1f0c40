"""Every statement of the contract is checked by a case, or the index says why none can."""

from __future__ import annotations

import ast
import fnmatch
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import oarlock.hal
from oarlock_conformance.case import LEVELS
from oarlock_conformance.cases import runtime
from oarlock_conformance.registry import RUNTIME

sys.path.insert(0, str(Path(__file__).parent))
from statements import STATEMENTS

sys.path.pop(0)

ROOT = Path(__file__).parents[2]
HAL = Path(oarlock.hal.__file__).parent
NO_STATEMENTS = ("__init__", "host")
"""The list of names, and a service that adapters may use."""


def sentences(text: str) -> list[str]:
    """The sentences of a docstring, each on one line."""
    return [s for s in re.split(r"(?<=\.)\s+", " ".join(text.split())) if s]


def statements() -> Iterator[tuple[str, str]]:
    """(place, sentence) for all of the contract, as its docstrings have it."""
    for path in sorted(HAL.glob("*.py")):
        if path.stem not in NO_STATEMENTS:
            yield from _walk(ast.parse(path.read_text()), path.stem)


def _walk(node: ast.Module | ast.ClassDef | ast.FunctionDef, place: str) -> Iterator[tuple[str, str]]:
    for sentence in sentences(ast.get_docstring(node) or ""):
        yield place, sentence
    for item, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(item, ast.ClassDef | ast.FunctionDef) and not item.name.startswith("_"):
            yield from _walk(item, f"{place}.{item.name}")
        target = item.targets[0] if isinstance(item, ast.Assign) else getattr(item, "target", None)
        text = after.value if isinstance(after, ast.Expr) else None
        if isinstance(target, ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            for sentence in sentences(text.value):
                yield f"{place}.{target.id}", sentence


def index() -> dict[str, list[tuple[str, str]]]:
    """(beginning of a sentence, checks) by place."""
    found: dict[str, list[tuple[str, str]]] = {}
    place = ""
    for line in STATEMENTS.strip().splitlines():
        if line.startswith(" "):
            beginning, _, checks = line.strip().partition(" | ")
            found[place].append((beginning, checks))
        else:
            place = line
            assert place not in found, f"{place} is twice in the index"
            found[place] = []
    return found


def entries_for(place: str, sentence: str, table: dict[str, list[tuple[str, str]]]) -> list[str]:
    """The entries that a sentence falls under; one for all of a place or of what is above it counts as well."""
    parents = [place.rsplit(".", count)[0] for count in range(1, place.count(".") + 1)]
    here = [checks for beginning, checks in table.get(place, []) if beginning == "*" or sentence.startswith(beginning)]
    return here or [checks for above in parents for beginning, checks in table.get(above, []) if beginning == "*"][:1]


def test_every_statement_is_in_the_index_once() -> None:
    table = index()
    wrong = [
        f"{place}: {sentence} ({len(found)} entries)"
        for place, sentence in statements()
        if len(found := entries_for(place, sentence, table)) != 1
    ]
    assert wrong == []


def test_no_entry_is_stale() -> None:
    said: dict[str, list[str]] = {}
    for place, sentence in statements():
        said.setdefault(place, []).append(sentence)
    stale = [
        f"{place}: {beginning}"
        for place, lines in index().items()
        for beginning, _ in lines
        if not any(beginning == "*" or sentence.startswith(beginning) for sentence in said.get(place, []))
    ]
    assert stale == []


def test_what_the_index_names_exists() -> None:
    assert runtime.plan  # which has registered every case
    missing = []
    for place, lines in index().items():
        for beginning, checks in lines:
            if checks.startswith("none: ") and len(checks) > len("none: ") + 8:
                continue
            for check in checks.split():
                if not _exists(check):
                    missing.append(f"{place}: {beginning}: {check}")
    assert missing == []


def _exists(check: str) -> bool:
    if check.startswith("level:"):
        return check.removeprefix("level:") in LEVELS
    if check.startswith("test:"):
        return (ROOT / check.removeprefix("test:")).exists()
    return any(fnmatch.fnmatchcase(case, check) for case in RUNTIME)


def test_the_index_is_able_to_fail() -> None:
    table = index()
    assert entries_for("memory.MemoryDriver.allocate", "A sentence that nobody has written.", table) == []
    assert not _exists("memory.no_such/case")
    assert not _exists("level:none")
