"""``oarlock tune``: a search from the command line, its progress, its database, and errors of one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from oarlock.cli import main, tune
from oarlock.config import config
from oarlock.runtime import open_device
from oarlock.runtime.tuning.known import database, forget

PROGRAM = """\
builtin.function() {name = "f"} (%0: tensor<48x40xfloat32>, %1: tensor<40x64xfloat32>) {
  %2 = array.matmul(%0, %1) : (tensor<48x40xfloat32>, tensor<40x64xfloat32>) -> tensor<48x64xfloat32>
  builtin.return(%2)
}
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A matrix product as text, and an empty cache folder."""
    monkeypatch.setattr(config, "cache_dir", tmp_path / "cache")
    forget(open_device("cpu"))
    path = tmp_path / "product.txt"
    path.write_text(PROGRAM)
    yield str(path)
    forget(open_device("cpu"))


def run(*arguments: str) -> int:
    return main(["tune", *arguments])


def test_tune_searches_prints_and_keeps(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model, "--device", "cpu", "--trials", "2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    subjects = [result["subject"] for result in told["results"]]
    assert any(subject.startswith("dot_general float32[48,40] float32[40,64] #") for subject in subjects)
    assert told["database"] == str(database()) and database().exists()
    assert not any(result["known"] for result in told["results"])
    assert run(model, "--device", "cpu", "--trials", "2", "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert all(result["known"] for result in again["results"])
    assert run(model, "--device", "cpu", "--trials", "1", "--again") == 0
    assert f"kept in {database()}" in capsys.readouterr().out


def test_list_and_clear(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--list") == 0
    assert "0 results" in capsys.readouterr().out
    run(model, "--trials", "1", "--quiet")
    capsys.readouterr()
    assert run("--list") == 0
    assert "dot_general float32[48,40] float32[40,64]" in capsys.readouterr().out
    assert run("--list", "--json") == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["trials"] >= 0
    assert run("--clear") == 0 and not database().exists()


def test_progress_goes_to_standard_error(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "_REPORT_S", 0.0)
    assert run(model, "--trials", "1") == 0
    captured = capsys.readouterr()
    assert "timing as it is" in captured.err and "of the time: 1 tried" in captured.err
    assert "tried" not in captured.out
    assert run(model, "--trials", "1", "--again", "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_interruption_says_where_things_are(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "tune", interrupted)
    assert run(model) == 130
    assert "interrupted; what was found is kept in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "which model?"),
        (["absent.txt"], "absent.txt: cannot read it"),
        (["MODEL", "--trials", "0"], "--trials is at least 1"),
        (["MODEL", "--budget", "-3"], "--budget more than 0"),
    ],
)
def test_mistakes_are_one_line(model: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert run(*(model if word == "MODEL" else word for word in arguments)) == 2
    error = capsys.readouterr().err
    assert says in error and error.startswith("oarlock: ")


def test_broken_database_stops_a_search_before_it_begins(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    database().parent.mkdir(parents=True)
    database().write_text("no database " * 200)
    assert run(model) == 2
    assert "`oarlock tune --clear` deletes it" in capsys.readouterr().err
    assert run("--clear") == 0 and run(model, "--trials", "1", "--quiet") == 0


def test_weights_of_a_model_count_as_fixed(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("oarlock_onnx")
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 40])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 64])],
        [onnx.numpy_helper.from_array(np.ones((40, 64), np.float32), "w")],
    )
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert run(str(path), "--shape", "x=48,40", "--trials", "1", "--json", "--quiet") == 0
    subjects = [result["subject"] for result in json.loads(capsys.readouterr().out)["results"]]
    assert any(subject.startswith("dot_general float32[48,40] float32[40,64] fixed #") for subject in subjects)
