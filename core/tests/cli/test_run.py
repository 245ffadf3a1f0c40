"""``oarlock run``: models from files, inputs given or random, comparison, trace, errors of one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from oarlock.cli import main

onnx = pytest.importorskip("onnx")
pytest.importorskip("oarlock_onnx")

X = np.float32([[1, -2, 3], [-4, 5, -6]])


@pytest.fixture
def model(tmp_path: Path) -> str:
    """y = relu(x) and z = y + 1, for x of [n, 3]."""
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Add", ["y", "one"], ["z"])],
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 3]) for name in ("y", "z")],
        [onnx.numpy_helper.from_array(np.float32(1), "one")],
    )
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def save(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path, **arrays)
    return str(path)


def run(*arguments: str) -> int:
    return main(["run", *arguments])


@pytest.mark.parametrize("device", ["interpret", "cpu", "sim:1"])
def test_run_writes_outputs_and_prints_them(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str
) -> None:
    inputs, outputs = save(tmp_path / "in.npz", x=X), tmp_path / "out.npz"
    assert run(model, "--device", device, "--input", inputs, "--output", str(outputs)) == 0
    with np.load(outputs) as arrays:
        np.testing.assert_array_equal(arrays["y"], np.maximum(X, 0))
        np.testing.assert_array_equal(arrays["z"], np.maximum(X, 0) + 1)
    captured = capsys.readouterr()
    assert "y  float32 [2, 3]" in captured.out and "ms a run" in captured.out
    assert "compile" in captured.err
    assert [path.name for path in tmp_path.glob(".*part")] == []


def test_run_quiet_says_nothing_on_standard_error(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model, "--device", "interpret", "--shape", "x=4,3", "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_run_compares_with_a_reference_file(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = save(tmp_path / "good.npz", **{"in::x": X, "out::y": np.maximum(X, 0)})
    assert run(model, "--device", "interpret", "--compare", good) == 0
    assert "y: largest difference 0, within" in capsys.readouterr().out
    bad = save(tmp_path / "bad.npz", **{"in::x": X, "out::y": np.maximum(X, 0) + np.float32([0, 0, 0.01])})
    assert run(model, "--device", "interpret", "--compare", bad) == 1
    assert "OUTSIDE" in capsys.readouterr().out
    assert run(model, "--device", "interpret", "--compare", bad, "--tolerance", "0.02") == 0


def test_run_compares_plain_outputs_for_given_inputs(model: str, tmp_path: Path) -> None:
    inputs = save(tmp_path / "in.npz", x=X)
    expected = save(tmp_path / "ref.npz", z=np.maximum(X, 0) + 1)
    assert run(model, "--device", "interpret", "--input", inputs, "--compare", expected) == 0


@pytest.mark.parametrize(
    "expected",
    [np.full((2, 3), np.nan, np.float32), np.zeros((3, 2), np.float32), np.maximum(X, 0).astype(np.float64)],
)
def test_run_finds_other_values_shapes_and_dtypes(model: str, tmp_path: Path, expected: np.ndarray) -> None:
    reference = save(tmp_path / "ref.npz", **{"in::x": X, "out::y": expected})
    assert run(model, "--device", "interpret", "--compare", reference) == 1


def test_run_prints_json(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = save(tmp_path / "ref.npz", **{"in::x": X, "out::y": np.maximum(X, 0)})
    assert run(model, "--device", "interpret", "--compare", reference, "--json", "--repeat", "3") == 0
    content = json.loads(capsys.readouterr().out)
    assert content["outputs"][0] == {"name": "y", "dtype": "float32", "shape": [2, 3]}
    assert len(content["seconds"]["runs"]) == 3
    assert content["compared"] == [{"name": "y", "largest_difference": 0.0, "within": True, "problem": ""}]


@pytest.mark.parametrize(("device", "clock"), [("cpu", "host"), ("sim:0", "device"), ("opencl:0", "device")])
def test_run_writes_a_trace(model: str, tmp_path: Path, device: str, clock: str) -> None:
    trace = tmp_path / "trace.json"
    assert run(model, "--device", device, "--shape", "x=2,3", "--profile", str(trace)) == 0
    events = json.loads(trace.read_text())["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert {event["ph"] for event in events} == {"M", "X", "s", "f"}
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in complete)
    host = [event for event in complete if event["cat"] == "host"]
    assert {"parse", "build", "compile", "load", "execute", "fetch"} <= {event["name"] for event in host}

    kernels = [event for event in complete if event["cat"] == "kernel"]
    submits = [event for event in complete if event["cat"] == "submit"]
    starts, ends = ([event for event in events if event["ph"] == phase] for phase in "sf")
    assert 0 < len(kernels) == len(submits) == len(starts) == len(ends)
    names = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    profiled = max(event["ts"] for event in host if event["name"] == "execute")
    for kernel, submit, start, end in zip(kernels, submits, starts, ends, strict=True):
        assert kernel["args"] == submit["args"] and kernel["args"]["clock"] == clock
        assert submit["name"] == f"submit {kernel['args']['kernel']}" and submit["pid"] == names["oarlock run"]
        assert kernel["pid"] == names[device if ":" in device else device + ":0"]
        assert start["id"] == end["id"] == kernel["args"]["launch"] and end["bp"] == "e"
        assert (start["ts"], start["pid"], start["tid"]) == (submit["ts"], submit["pid"], submit["tid"])
        assert (end["ts"], end["pid"], end["tid"]) == (kernel["ts"], kernel["pid"], kernel["tid"])
        assert submit["ts"] >= profiled and kernel["ts"] + kernel["dur"] >= submit["ts"]
    assert any(event["name"].startswith("maximum") and event["name"].endswith(" f32[2,3]") for event in kernels)


def test_random_inputs_are_the_same_for_a_seed(model: str, tmp_path: Path) -> None:
    results = []
    for number, seed in enumerate(("1", "1", "2")):
        path = tmp_path / f"{number}.npz"
        assert run(model, "--device", "interpret", "--shape", "x=2,3", "--seed", seed, "--output", str(path)) == 0
        with np.load(path) as arrays:
            results.append(arrays["z"])
    assert np.array_equal(results[0], results[1]) and not np.array_equal(results[0], results[2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "input 'x' has shape [n, 3]: give its values with --input, or its shape with --shape x=1,3"),
        (["--shape", "x=2,4"], "input 'x': got float32 [2, 4], the model takes x float32 [n, 3]"),
        (["--shape", "w=2"], "--shape: no input 'w'; the model takes x"),
        (["--shape", "x"], "--shape 'x': write NAME=1,3,224,224"),
        (["--shape", "x=2,3", "--device", "nothing:3"], 'no device "nothing:3"'),
        (["--shape", "x=2,3", "--tolerance", "small"], "--tolerance 'small'"),
        (["--shape", "x=2,3", "--repeat", "0"], "--repeat 0: at least 1"),
        (["--input", "absent.npz"], "absent.npz: cannot read arrays from it: No such file"),
        (["--shape", "x=2,3", "--output", "no/such/folder/out.npz"], "cannot write it"),
    ],
)
def test_run_errors_are_one_line(
    model: str, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run(model, "--device", "interpret", "--quiet", *options) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and "Traceback" not in error


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": X}, "no input 'z'; the model takes x"),
        ({"x": X, "z": X}, "no input 'z'"),
        ({"x": X.astype(np.float64)}, "got float64 [2, 3]"),
        ({"x": np.array([None])}, "cannot read arrays from it"),
    ],
)
def test_inputs_that_do_not_fit_are_one_line(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arrays: dict[str, np.ndarray], message: str
) -> None:
    path = save(tmp_path / "in.npz", **arrays)
    assert run(model, "--device", "interpret", "--quiet", "--input", path) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("name", ["absent.onnx", "broken.onnx", "model.pt", "model"])
def test_model_files_that_cannot_be_read_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    if not name.startswith("absent"):
        (tmp_path / name).write_bytes(b"not a model")
    assert run(str(tmp_path / name), "--quiet") == 2
    assert capsys.readouterr().err.count("\n") == 1
