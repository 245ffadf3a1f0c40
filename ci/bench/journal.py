"""Results as they come, a line each, so that an interrupted run goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Journal"]


class Journal:
    """The lines of a file; the last one of a row counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: dict[str, dict[str, Any]] = {}
        if path.is_file():
            for line in path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:
                    continue  # the line that was being written when the run was cut off
                self.rows[entry["row"]] = entry

    def has(self, row: str, columns: Collection[str], rounds: int) -> bool:
        """Whether the row has been measured with these columns, in as many rounds."""
        entry = self.rows.get(row)
        return entry is not None and entry["rounds"] >= rounds and set(columns) <= set(entry["columns"])

    def add(self, entry: Mapping[str, Any]) -> None:
        """Keep a row, on disk too."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        self.rows[str(entry["row"])] = dict(entry)
