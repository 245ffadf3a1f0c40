"""The journal of a certification: outcomes as they come, so that an interrupted run goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from oarlock.errors import ConfigError
from oarlock_conformance.case import Outcome

__all__ = ["Journal", "journal_path"]

VERSION = 1


def journal_path(folder: Path, device: str) -> Path:
    """Where the journal of a device lies in the report folder."""
    return folder / f"{device.replace(':', '-')}.journal.jsonl"


class Journal:
    """A file of JSON lines: first what the run is bound to, then an outcome a line.

    ``binding`` holds what must not change between the parts of a run: device, hashes, request, cases.
    """

    def __init__(self, path: Path, stream: IO[str]) -> None:
        self.path = path
        self._stream = stream

    @classmethod
    def begin(cls, path: Path, binding: Mapping[str, Any]) -> Journal:
        """A new journal, in place of the one there. Raises ConfigError where it cannot be written."""
        journal = cls(path, _opened(path, "w"))
        journal._write({"journal": VERSION, "binding": dict(binding)})
        return journal

    @classmethod
    def resume(cls, path: Path, binding: Mapping[str, Any]) -> tuple[Journal, dict[str, Outcome]]:
        """The journal there, to be continued, and the outcomes in it, by case; a new one where there is none.

        A last line that was cut off is dropped. Raises ConfigError for a journal of another run, with what differs,
        and for one that cannot be read.
        """
        if not path.exists():
            return cls.begin(path, binding), {}
        outcomes = _read(path, binding)
        return cls(path, _opened(path, "a")), outcomes

    def add(self, outcome: Outcome) -> None:
        """Note an outcome; it is in the file when this returns."""
        self._write(outcome.to_json())

    def close(self) -> None:
        self._stream.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()


def _opened(path: Path, mode: str) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open(mode, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot write the journal: {error.strerror}") from error


def _read(path: Path, binding: Mapping[str, Any]) -> dict[str, Outcome]:
    try:
        whole = path.read_bytes()
        lines = whole[: whole.rfind(b"\n") + 1].decode("utf-8").splitlines()
        if not whole.endswith(b"\n"):
            path.write_bytes(whole[: whole.rfind(b"\n") + 1])
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read the journal: {error}. Run without --resume to begin again") from error
    try:
        head, *rest = map(json.loads, lines)
        found = head["binding"] if head["journal"] == VERSION else None
        outcomes = {item["case"]: Outcome(**item) for item in rest}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: it is no journal of this version. Run without --resume to begin again") from error
    if found is None:
        raise ConfigError(f"{path}: a journal of another version. Run without --resume to begin again")
    different = [
        f"{key} was {_brief(found.get(key))}, is {_brief(value)}"
        for key, value in binding.items()
        if found.get(key) != value
    ]
    if different:
        raise ConfigError(
            f"{path}: the journal is of another run: {'; '.join(different)}. Run without --resume to begin again"
        )
    return outcomes


def _brief(value: Any) -> str:
    words = value if isinstance(value, str) else json.dumps(value)
    return f"{words[:12]}..." if len(words) == 64 and " " not in words else words or "nothing"
