"""The machinery of the benchmark suite, on tiny sizes; no test looks at a time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ci.bench import report, rows, worker
from ci.bench.journal import Journal
from ci.bench.judge import best_peer, judge, ratio
from ci.bench.movement import movement_works
from ci.bench.overheads import growth_works, overhead_works
from ci.bench.peers import PEERS, Array, Call, CannotError
from ci.bench.peers.numpy_peer import NumpyPeer, NumpyWords
from ci.bench.transformer import transformer_works
from ci.bench.works import Ask, Work, ahead, kernel_works, rate, takes, within

ROOT = Path(__file__).resolve().parents[3]
WORKS = {work.name: work for work in [*kernel_works(32), *movement_works(32), *transformer_works(8)]}

MOVEMENT = [work.name for work in movement_works(32)]


def prepared(work: Work, folder: Path, peer: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a worker with ``peer`` answers when it makes ``work`` ready."""
    monkeypatch.setattr(worker, "make", lambda name: peer)
    monkeypatch.setattr(worker, "find", WORKS.__getitem__)
    rows.write_case(work, folder)
    return worker.Worker("any").prepare(work.name, str(folder))


@pytest.mark.parametrize("name", WORKS)
def test_work_in_float32_agrees_with_its_reference(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = prepared(WORKS[name], tmp_path, NumpyPeer(), monkeypatch)
    assert "error" not in answer and answer["first_s"] > 0


@pytest.mark.parametrize("name", ["layernorm", "eight", "vector-out-in", "llama-block", "decoder-token", *MOVEMENT])
def test_work_as_onnx_graph_agrees_with_its_reference(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx_peer = pytest.importorskip("ci.bench.peers.onnx_peer")
    assert "error" not in prepared(WORKS[name], tmp_path, onnx_peer.make(), monkeypatch)


class Liar(NumpyPeer):
    """A peer with one wrong element."""

    def prepare(self, work: Work, arrays: Mapping[str, Array]) -> Call:
        call = super().prepare(work, arrays)

        def result() -> list[Array]:
            first, *others = call.result()
            first = first.copy()
            first.flat[-1] += 0.01
            return [first, *others]

        return Call(call.run, result)


def test_wrong_result_is_an_error_not_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = prepared(WORKS["softmax"], tmp_path, Liar(), monkeypatch)
    assert answer["error"].startswith("wrong: off by") and "ms" not in answer


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        ([1.0, 2.0], ""),
        ([1.0, 2.1], "wrong"),
        ([1.0, float("nan")], "wrong"),
        ([1.0], "shape"),
    ],
)
def test_comparison_says_what_differs(result: list[float], fault: str) -> None:
    told = worker.wrong([np.asarray(result)], [np.asarray([1.0, 2.0])], 1e-3)
    assert told.startswith(fault) and bool(told) == bool(fault)


def test_comparison_counts_results() -> None:
    assert worker.wrong([], [np.zeros(1)], 1.0) == "0 results, 1 expected"


def work(*asks: Ask, **others: Any) -> Work:
    return Work("some", "some work", lambda generator: {}, asks=asks, **others)


COLUMNS = {
    "limit": {"ms": [1.0, 2.0, 4.0]},
    "numpy": {"ms": [9.0, 9.0, 9.0]},
    "torch": {"ms": [3.0, 6.0, 12.0]},
    "oarlock": {"ms": [2.0, 4.0, 8.0]},
    "jax": {"error": "wrong"},
}


def test_ratio_is_of_the_same_rounds() -> None:
    assert ratio(COLUMNS, "oarlock", "limit") == 2.0
    assert ratio({**COLUMNS, "oarlock": {"ms": [8.0, 4.0, 2.0]}}, "oarlock", "limit") == 2.0
    assert ratio(COLUMNS, "jax", "limit") is None


def test_best_peer_is_neither_ours_nor_a_limit() -> None:
    assert best_peer(COLUMNS) == "torch"
    assert best_peer({"oarlock": {"ms": [1.0]}, "jax": {"error": "wrong"}}) is None


@pytest.mark.parametrize(
    ("ask", "reached"),
    [
        (within(2.0), True),
        (within(1.9), False),
        (ahead(), True),
        (rate(2.0), False),
        (within(2.0, "plain-c"), None),
        (takes(3, "ms"), False),
        (takes(4, "ms"), True),
        (Ask("", either=(within(1.0), ahead())), True),
        (Ask("", either=(within(1.0), within(1.5))), False),
    ],
)
def test_demand_is_judged(ask: Ask, reached: bool | None) -> None:
    (verdict,) = judge(work(ask), COLUMNS)
    assert verdict.reached is reached


def test_every_demand_and_row_names_columns_that_exist() -> None:
    every = [*WORKS.values(), *overhead_works(WORKS), *growth_works(WORKS, (1, 2))]
    assert len({each.name for each in every}) == len(every)
    for each in every:
        assert set(each.peers) <= set(PEERS)
        for ask in each.asks:
            for part in ask.either or (ask,):
                assert part.subject in PEERS and part.against in (None, "best peer", *PEERS)


def test_journal_survives_a_line_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).add({"row": "a", "rounds": 5, "columns": {"numpy": {}, "torch": {}}})
    with path.open("a") as file:
        file.write('{"row": "b", "rou')
    again = Journal(path)
    assert again.has("a", ["numpy"], 3) and not again.has("a", ["numpy", "jax"], 3)
    assert not again.has("a", ["numpy"], 9) and not again.has("b", ["numpy"], 1)


def test_page_shows_errors_and_disturbance() -> None:
    entry = {"row": "some", "rounds": 3, "lost": {"others": 0.0, "outside": 0.5}, "columns": COLUMNS}
    about = {
        "threads": 2,
        "host": {"system": "any"},
        "revision": "r",
        "date": "d",
        "peers": {"numpy": {"version": "1"}},
    }
    page = report.markdown({"some": work(within(1.9))}, {"some": entry}, about)
    assert "| some work | oarlock <= 1.9 x limit | 2.00 x the time of limit | **no** |" in page
    assert "some work, jax: error: wrong" in page and "disturbed" in page
    assert "| some work (ms) | 2 | 9 | **6** | error | 4 | 2.00 | 0.67 |" in page


def bench(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run the command on tiny sizes; its numbers."""
    command = [sys.executable, "-m", "ci.bench", "--work", str(folder), "--json", str(folder / "numbers.json")]
    folder.mkdir(exist_ok=True)
    variables = {**os.environ, "OARLOCK_BENCH_SIZE": "32"}
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    numbers: dict[str, Any] = json.loads((folder / "numbers.json").read_text())
    return numbers | {"said": done.stderr}


def test_command_measures_checks_and_goes_on_where_it_was(tmp_path: Path) -> None:
    arguments = ("--only", "softmax", "--peers", "numpy,oarlock", "--rounds", "2", "--seconds", "0.005")
    numbers = bench(tmp_path, *arguments)
    (row,) = numbers["rows"]
    assert row["row"] == "softmax"
    for column in ("numpy", "oarlock"):
        assert len(row["columns"][column]["ms"]) == 2 and min(row["columns"][column]["ms"]) > 0
    again = bench(tmp_path, *arguments)
    assert again["rows"] == numbers["rows"] and "prepare" not in again["said"]


def test_first_call_is_measured_in_fresh_processes(tmp_path: Path) -> None:
    numbers = bench(tmp_path, "--only", "first-warm-rmsnorm", "--peers", "oarlock", "--rounds", "1")
    (column,) = numbers["rows"][0]["columns"].values()
    assert len(column["ms"]) == 1 and "arrays and device" in column["note"]


def test_limits_do_the_work_that_they_time() -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    from ci.bench.peers import limit_peer

    entry = WORKS["rmsnorm"]
    arrays = entry.inputs(np.random.default_rng(0))
    copy = limit_peer.make().prepare(entry, arrays)
    copy.run()
    copy.result()  # raises where the copy differs
    plain = limit_peer.make(plain=True).prepare(entry, arrays)
    plain.run()
    expected = entry.function(NumpyWords(), *arrays.values())
    assert worker.wrong(plain.result(), [expected], 1e-5) == ""
    product = limit_peer.make().prepare(WORKS["matmul-32"], WORKS["matmul-32"].inputs(np.random.default_rng(0)))
    assert all(time > 0 for time in product.times(3))
    with pytest.raises(CannotError):
        limit_peer.make(plain=True).prepare(WORKS["softmax"], arrays)
    least = np.float32(2.0**-126)
    assert least * np.float32(0.5) > 0, "the library has switched subnormals off in this process"


def test_model_operator_by_operator_gives_the_same() -> None:
    onnx_peer = pytest.importorskip("ci.bench.peers.onnx_peer")
    from ci.bench.one_by_one import OneByOne

    from oarlock_onnx import load

    entry = WORKS["layernorm"]
    arrays = entry.inputs(np.random.default_rng(0))
    model = load(onnx_peer.build(entry, arrays))
    run = model.session("cpu").prepare({"x": arrays["x"]})
    run.execute()
    single = OneByOne(run.function, "cpu", [*run.program.parameters.values()], [arrays["x"]])
    single.run()
    assert worker.wrong(single.results(), list(run.outputs().values()), 1e-5) == ""
