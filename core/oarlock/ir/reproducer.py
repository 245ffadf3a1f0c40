"""Reproducers: a program and the passes that failed on it, as one JSON file that loads and fails again.

It is a program's document (see ``ir.json``) with one key more:
``"reproducer": {"passes": [NAME, ...], "error": TEXT}``.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock.errors import ParseError
from oarlock.ir.context import Context
from oarlock.ir.json import from_json, to_json
from oarlock.ir.operations import Operation

__all__ = ["Reproducer", "read_reproducer", "reproducer_of", "write_reproducer"]


@dataclass(frozen=True, slots=True, eq=False)
class Reproducer:
    """``program`` as it was before ``passes``, of which the last failed with ``error``."""

    program: Operation
    passes: tuple[str, ...]
    error: str


def write_reproducer(folder: Path, program: Operation, context: Context, passes: Sequence[str], error: str) -> Path:
    """Write a file into ``folder``, which is made; the same failure gives the same file."""
    document = to_json(program, context) | {"reproducer": {"passes": list(passes), "error": error}}
    text = json.dumps(document)
    path = folder / f"{passes[-1]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, delete=False) as stream:
        stream.write(text)
    os.replace(stream.name, path)
    return path


def reproducer_of(document: Any) -> tuple[tuple[str, ...], str] | None:
    """The passes and the error of a document that is a reproducer, else None; raises ParseError for a broken one."""
    if not isinstance(document, dict) or "reproducer" not in document:
        return None
    told = document["reproducer"]
    passes = told.get("passes") if isinstance(told, dict) else None
    if not isinstance(passes, list) or not passes or not all(isinstance(name, str) for name in passes):
        raise ParseError("reproducer: it has no list of passes")
    return tuple(passes), str(told.get("error", ""))


def read_reproducer(path: Path, context: Context) -> Reproducer:
    """What ``write_reproducer`` wrote; raises ParseError for any other file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ParseError(f"{path}: it is no JSON: {error}") from None
    told = reproducer_of(document)
    if told is None:
        raise ParseError(f"{path}: it is no reproducer: it has no key 'reproducer'")
    return Reproducer(from_json(document, context), *told)
