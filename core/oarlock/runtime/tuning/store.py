"""The database of measured schedules: one SQLite file in the cache folder, shared by the processes of one user.

Reading takes everything of one target and driver at once and closes the file; each result is written on its own, so
that nothing is lost when a search is interrupted. Writers wait for each other for a few seconds.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from oarlock.codegen.schedule import Schedule
from oarlock.errors import ConfigError, TuningError

__all__ = ["Result", "Store"]

VERSION = 1
"""Of the table; kept in the file's ``user_version``."""
WAIT_S = 5.0
"""How long another process may keep the file to itself."""


@dataclass(frozen=True, slots=True)
class Result:
    """What was found for a subject on a target by a driver. ``schedule`` is all rules where nothing was better."""

    subject: str
    target: str
    driver: str
    schedule: Schedule
    best_ns: int
    default_ns: int
    noise: float
    """Two standard errors of the ratio of the two."""
    trials: int
    finished: bool
    """False where the search was cut short: it goes on with the next call."""
    date: str
    version: str
    """Of Oarlock."""

    @property
    def ratio(self) -> float:
        """The best's part of the default's time."""
        return self.best_ns / max(1, self.default_ns)

    def to_json(self) -> dict[str, Any]:
        """For a file; ``from_json`` reads it."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"schedule": self.schedule.to_json()}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Result:
        """Raises ConfigError for a schedule that cannot be."""
        return cls(**{**record, "schedule": Schedule.from_json(record["schedule"])})


_COLUMNS = tuple(f.name for f in fields(Result))
_KEY = ("subject", "target", "driver")


class Store:
    """The results in the file ``path``, which need not exist. Every method raises TuningError where it is unusable."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, target: str | None = None, driver: str | None = None) -> list[Result]:
        """The results of a target and driver (None: of all); none where there is no file.

        A record that this version cannot understand is left out.
        """
        if not self.path.exists():
            return []
        where = "(?1 IS NULL OR target = ?1) AND (?2 IS NULL OR driver = ?2)"
        query = f"SELECT {', '.join(_COLUMNS)} FROM results WHERE {where} ORDER BY rowid"
        with self._open() as database:
            rows = database.execute(query, (target, driver)).fetchall()
        return [found for row in rows if (found := _result(row)) is not None]

    def write(self, result: Result) -> None:
        """Keep a result in place of what was known of its subject there."""
        row = [getattr(result, name) for name in _COLUMNS]
        row[_COLUMNS.index("schedule")] = json.dumps(result.schedule.to_json())
        row[_COLUMNS.index("finished")] = int(result.finished)
        with self._open() as database:
            marks = ", ".join("?" for _ in _COLUMNS)
            database.execute(f"INSERT OR REPLACE INTO results ({', '.join(_COLUMNS)}) VALUES ({marks})", row)

    def clear(self) -> None:
        """Delete the file, whatever it is."""
        try:
            for suffix in ("", "-journal"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        except OSError as error:
            raise TuningError(f"{self.path}: cannot delete it: {error.strerror}") from error

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The file with its table, in one transaction."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=WAIT_S)) as database, database:
                (version,) = database.execute("PRAGMA user_version").fetchone()
                tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                if tables and version != VERSION:
                    raise TuningError(
                        f"{self.path}: it holds measured schedules in form {version}, this Oarlock reads form "
                        f"{VERSION}: `oarlock tune --clear` deletes it"
                    )
                if not tables:
                    self._create(database)
                yield database
        except (sqlite3.Error, OSError) as error:
            busy = "locked" in str(error)
            advice = "another process holds it" if busy else "`oarlock tune --clear` deletes it"
            raise TuningError(f"{self.path}: the database of measured schedules: {error}; {advice}") from error

    @staticmethod
    def _create(database: sqlite3.Connection) -> None:
        columns = ", ".join(f"{name} NOT NULL" for name in _COLUMNS)
        database.execute("BEGIN IMMEDIATE")
        database.execute(f"CREATE TABLE IF NOT EXISTS results ({columns}, PRIMARY KEY ({', '.join(_KEY)}))")
        database.execute(f"PRAGMA user_version = {VERSION}")


def _result(row: tuple[Any, ...]) -> Result | None:
    record = dict(zip(_COLUMNS, row, strict=True))
    try:
        return Result.from_json(
            {**record, "schedule": json.loads(record["schedule"]), "finished": bool(record["finished"])}
        )
    except (ConfigError, ValueError, TypeError):
        return None
