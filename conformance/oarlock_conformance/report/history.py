"""The history of speed: a line of JSON per certification in ``history.jsonl``, and a figure's values in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oarlock.errors import ConfigError
from oarlock_conformance.certificate import Document

__all__ = ["FILE", "add_history", "entry_of", "past", "read_history"]

FILE = "history.jsonl"
_SHOWN = 24
"""Points of a line."""

Entry = dict[str, Any]


def entry_of(document: Document) -> Entry:
    """What is kept of a certificate: what it is of, and its figures by case."""
    figures = {
        case["id"]: {
            name: {key: item[key] for key in ("median", "spread", "unit")}
            for name, item in case["details"]["figures"].items()
        }
        for case in document["cases"]
        if "figures" in case["details"]
    }
    return {
        "created": document["created"],
        "device": document["device"]["id"],
        "name": document["device"]["name"],
        "driver": document["device"]["driver"],
        "adapter": document["device"]["adapter"]["version"],
        "processor": document["environment"]["processor"],
        "quick": document["request"]["quick"],
        "state": document["verdict"]["state"],
        "figures": figures,
    }


def add_history(folder: Path, document: Document) -> None:
    """Append a certificate's figures, if it has any and is not there yet; raises OSError."""
    entry = entry_of(document)
    known = {(line["device"], line["created"]) for line in read_history(folder)}
    if entry["figures"] and (entry["device"], entry["created"]) not in known:
        with (folder / FILE).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")


def read_history(folder: Path) -> list[Entry]:
    """The lines there are, the oldest first; raises ConfigError for a file that is no history."""
    path = folder / FILE
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read the history: {error}") from error
    try:
        entries = [json.loads(line) for line in lines if line.strip()]
        return [entry for entry in entries if entry["device"] and entry["created"] and "figures" in entry]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: it is no history: {error}; move it away to begin a new one") from error


def past(history: Sequence[Entry], document: Document, case: str, figure: str) -> list[tuple[str, float, str]]:
    """(when, value, unit) of a figure of the same device in the same machine, the oldest first; this one is last."""
    now = entry_of(document)
    before = [entry for entry in history if entry["created"] < now["created"]]
    same = [entry for entry in before if all(entry.get(key) == now[key] for key in ("device", "name", "processor"))]
    found = []
    for entry in [*same, now]:
        item = entry["figures"].get(case, {}).get(figure)
        if item is not None:
            found.append((entry["created"], item["median"], item["unit"]))
    return found[-_SHOWN:]
