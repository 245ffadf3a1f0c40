"""The database: several writers, broken files, other versions; nothing of it stops a program."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from oarlock.codegen.schedule import RULES, Schedule
from oarlock.errors import TuningError
from oarlock.runtime.tuning import store as module
from oarlock.runtime.tuning.store import Result, Store

RESULT = Result(
    "dot_general float32[8,8] #1", "t", "d", Schedule(rows=4, vectors=2), 70, 100, 0.01, 5, True, "2026-01-01", "0"
)


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "s.sqlite")
    assert store.read() == []
    store.write(RESULT)
    other = replace(RESULT, target="u", schedule=RULES, finished=False)
    store.write(other)
    assert store.read() == [RESULT, other]
    assert store.read("t", "d") == [RESULT] and store.read("t", "e") == []
    better = replace(RESULT, best_ns=50)
    store.write(better)
    assert store.read("t", "d") == [better]
    assert better.ratio == 0.5


def test_clear_deletes(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.clear()
    store.write(RESULT)
    store.clear()
    assert store.read() == [] and not store.path.exists()


_WRITE_MANY = """
import sys
from pathlib import Path
from oarlock.codegen.schedule import RULES
from oarlock.runtime.tuning.store import Result, Store
for number in range(8):
    subject = f"{sys.argv[2]} #{number}"
    Store(Path(sys.argv[1])).write(Result(subject, "t", "d", RULES, 70, 100, 0.01, 5, True, "2026-01-01", "0"))
"""


def test_processes_write_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    writers = [subprocess.Popen([sys.executable, "-c", _WRITE_MANY, str(path), name]) for name in "abc"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert len(Store(path).read("t", "d")) == 24


@pytest.mark.parametrize(
    "content", [b"no database at all, but long enough to look like one" * 40, b"SQLite format 3\0"]
)
def test_broken_file_is_named_with_the_way_out(tmp_path: Path, content: bytes) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.path.write_bytes(content)
    for use in (store.read, lambda: store.write(RESULT)):
        with pytest.raises(TuningError, match=r"s\.sqlite.*tune --clear"):
            use()
    store.clear()
    store.write(RESULT)
    assert store.read() == [RESULT]


def test_truncated_file_is_an_error_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    for number in range(20):
        store.write(replace(RESULT, subject="many" * 60 + f" #{number}"))
    store.path.write_bytes(store.path.read_bytes()[:5000])
    with pytest.raises(TuningError, match="tune --clear"):
        store.read()


def test_other_version_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.write(RESULT)
    with sqlite3.connect(store.path) as database:
        database.execute("PRAGMA user_version = 9")
    with pytest.raises(TuningError, match="form 9, this Oarlock reads form 1"):
        store.read()


def test_locked_file_says_that_somebody_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.05)
    store = Store(tmp_path / "s.sqlite")
    store.write(RESULT)
    holder = sqlite3.connect(store.path)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(TuningError, match="another process holds it"):
        store.read()
    holder.close()
    assert store.read() == [RESULT]


def test_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TuningError):
        Store(tmp_path / "file" / "s.sqlite").write(RESULT)


@pytest.mark.parametrize("schedule", ['{"rows": 4000}', '{"later": 1}', "[", "3"])
def test_records_that_nobody_understands_are_left_out(tmp_path: Path, schedule: str) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.write(RESULT)
    store.write(replace(RESULT, subject="other"))
    with sqlite3.connect(store.path) as database:
        database.execute("UPDATE results SET schedule = ? WHERE subject = 'other'", (schedule,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.read() == [RESULT]
