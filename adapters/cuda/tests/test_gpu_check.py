"""The prepared check for a machine with a GPU: all of it that needs none. It has never been run on a GPU."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("oarlock_gpu_check", ROOT / "ci" / "gpu_check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def fake_steps(script: ModuleType, *steps: tuple[str, int, list[str], bool]) -> tuple[object, ...]:
    return tuple(
        script.Step(name, name, limit, lambda c, o, w=words: w, needed) for name, limit, words, needed in steps
    )


def test_plan_fits_eight_minutes(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.TOTAL_S < 480
    assert sum(step.limit_s for step in script.STEPS) <= script.TOTAL_S
    assert script.main(["--plan"]) == 0
    told = capsys.readouterr().out
    assert [line.split()[0] for line in told.splitlines()] == ["install", "doctor", "certify", "bench", "together"]


def test_commands_name_what_was_carried(script: ModuleType, tmp_path: Path) -> None:
    carried, output = tmp_path / "carried", tmp_path / "out"
    words = {step.name: step.command(carried, output) for step in script.STEPS}
    assert str(carried / "wheels") in words["install"] and "--no-index" in words["install"]
    assert words["certify"][3:10] == [
        "certify",
        "cuda",
        "--quick",
        "--jobs",
        "4",
        "--report",
        str(output / "certificate"),
    ]
    assert Path(words["bench"][1]).is_file()
    assert all((ROOT / "ci" / name).is_file() for name in script._CARRIED)


def test_cublas_is_installed_where_it_was_carried(script: ModuleType, tmp_path: Path) -> None:
    assert "nvidia-cublas" not in script._install(tmp_path, tmp_path)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "nvidia_cublas-13.10.0.20-py3-none-any.whl").touch()
    assert script._install(tmp_path, tmp_path)[-1] == "nvidia-cublas"


def test_a_machine_without_a_gpu_is_told_so(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        script.device_count()
    except script.Trouble as trouble:
        assert "this check needs a machine with an NVIDIA GPU" in str(trouble)
    else:
        pytest.skip("UNAVAILABLE: this machine has an NVIDIA GPU")
    assert script.main([]) == 3
    assert "gpu_check: no NVIDIA driver" in capsys.readouterr().err


def test_what_was_not_prepared_for_this_python_is_refused(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(script.Trouble, match=r"holds no about.json: run `ci/gpu_check --prepare FOLDER`"):
        script.check_carried(tmp_path)
    (tmp_path / "about.json").write_text(json.dumps({"python": "cpython-27 on vax"}))
    with pytest.raises(script.Trouble, match=r"is for cpython-27 on vax, and this is"):
        script.check_carried(tmp_path)
    (tmp_path / "about.json").write_text(json.dumps({"python": script.python_tag()}))
    script.check_carried(tmp_path)


def test_steps_keep_what_they_did_when_their_time_is_over(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say = [sys.executable, "-uc"]
    steps = fake_steps(
        script,
        ("first", 20, [*say, "print('hello')"], True),
        ("slow", 2, [*say, "import time; print('half'); time.sleep(60)"], False),
        ("failing", 20, [*say, "raise SystemExit(4)"], False),
        ("last", 20, [*say, "print('end')"], False),
    )
    monkeypatch.setattr(script, "STEPS", steps)
    assert script.check(tmp_path, tmp_path / "out") == 1
    rows = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [(row["step"], row["status"]) for row in rows] == [("first", 0), ("slow", None), ("failing", 4), ("last", 0)]
    assert (tmp_path / "out" / "slow.log").read_text().startswith("half")
    assert "| slow | cut short |" in (tmp_path / "out" / "summary.md").read_text()


def test_nothing_follows_a_failed_installation(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [sys.executable, "-c", "raise SystemExit(1)"]
    monkeypatch.setattr(script, "STEPS", fake_steps(script, ("install", 20, words, True), ("doctor", 20, words, False)))
    assert script.check(tmp_path, tmp_path / "out") == 1
    assert [row["step"] for row in json.loads((tmp_path / "out" / "summary.json").read_text())] == ["install"]
    assert "install.log" in capsys.readouterr().err


def test_time_for_all_steps_is_kept(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    steps = fake_steps(script, ("first", 40, words, False), ("second", 40, words, False))
    monkeypatch.setattr(script, "STEPS", steps)
    monkeypatch.setattr(script, "TOTAL_S", 6)
    assert script.check(tmp_path, tmp_path / "out") == 1
    assert [row["status"] for row in json.loads((tmp_path / "out" / "summary.json").read_text())] == [None, None]


def test_kernels_are_timed_on_any_device(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "ci" / "gpu_bench.py"), "--small", "--device", "cpu:0"]
    subprocess.run([*command, "--output", str(tmp_path / "bench")], check=True, capture_output=True, timeout=120)
    found = json.loads((tmp_path / "bench.json").read_text())
    assert len(found["rows"]) == 7 and all(row["oarlock_s"] > 0 for row in found["rows"])
    assert "GB/s" in (tmp_path / "bench.md").read_text()
    assert [row["name"] for row in found["rows"] if "generated_s" in row] == ["product", "product, float16"]
