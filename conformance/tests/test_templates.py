"""What ``oarlock new`` makes, as a vendor gets it: built, installed from the wheel, and certified by ``tox`` untouched.

``OARLOCK_WHEEL`` names the wheel of Oarlock to use; without it tox's own is taken, and where there is none, one is
built.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 600
"""How long a first certificate may take, on two idle cores."""
QUICK = "m*"
"""The cases of the quick run: memory, maximum, mean, matrix products, max_pool, and what else begins so."""

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.skipif(shutil.which("git") is None, reason="no git"),
]


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of Oarlock alone."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    given = [os.environ.get("OARLOCK_WHEEL", ""), *os.environ.get("TOX_PACKAGE", "").split(os.pathsep)]
    found = next((path for path in map(Path, filter(None, given)) if path.suffix == ".whl" and path.is_file()), None)
    if found is not None:
        shutil.copy(found, folder)
    else:
        words = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
        call(sys.executable, *words, environment=surroundings(folder, folder), cwd=folder)
    return folder


def surroundings(wheelhouse: Path, cache: Path) -> dict[str, str]:
    """The environment of a vendor who has the wheel in a folder: nothing of this test run's own."""
    kept = {name: value for name, value in os.environ.items() if name.partition("_")[0] not in ("TOX", "OARLOCK")}
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        kept.pop(name, None)
    links = " ".join(filter(None, (kept.get("PIP_FIND_LINKS"), str(wheelhouse))))
    return {**kept, "PIP_FIND_LINKS": links, "OARLOCK_CACHE_DIR": str(cache)}


def call(*words: str, environment: Mapping[str, str], cwd: Path, timeout: float = 3000) -> str:
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def certificate(package: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((package / "out" / "acme_npu-0.json").read_text("utf-8"))
    return document


MISUSE = """
import pytest
from oarlock.errors import CompileError, DeviceError, OutOfMemoryError
from oarlock_acme_npu._native import open_device

driver = open_device(1 << 20)
memory = driver.allocate(64)
for error, call in (
    (DeviceError, lambda: driver.free(memory + 1000)),
    (DeviceError, lambda: driver.launch(None, memory, "k", (1, 1, 1), (1, 1, 1), [], b"")),
    (DeviceError, lambda: driver.copy_in(None, memory + 1000, 0, memoryview(b"abcd"))),
    (TypeError, lambda: driver.copy_in(None, memory, 0, memoryview(b"abcdefgh")[::2])),
    (TypeError, lambda: driver.copy_out(None, memoryview(b"abcd"), memory, 0)),
    (TypeError, lambda: driver.copy_in(None, b"handle", 0, memoryview(b"abcd"))),
    (OutOfMemoryError, lambda: driver.allocate(2 << 20)),
    (CompileError, lambda: driver.load(b"no program", [])),
):
    with pytest.raises(error):
        call()
driver.copy_in(None, memory, 4, memoryview(b"abcd"))
host = bytearray(2)
driver.copy_out(None, memoryview(host), memory, 5)
driver.synchronize(None, 1.0)
assert host == b"bc"
driver.free(memory)
with pytest.raises(DeviceError, match="freed"):
    driver.free(memory)
driver.close()
"""
"""A driver in C++ without the core in front of it: what the headers check and translate."""


@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
def test_package_certifies_in_part(native: bool, wheelhouse: Path, tmp_path: Path) -> None:
    from oarlock.cli import main

    package = tmp_path / "acme_npu"
    assert main(["new", "acme_npu", "--defaults", "--output", str(package), *["--native"] * native]) == 0
    environment = surroundings(wheelhouse, tmp_path / "cache")
    words = ("-m", "tox", "-e", "certify", "--", "--quick", "--only", QUICK)
    call(sys.executable, *words, environment=environment, cwd=package)
    document = certificate(package)
    assert document["verdict"]["conformant"], document["verdict"]
    assert document["counts"]["runtime"]["passed"] > 10
    assert document["counts"]["operators"]["passed"] > 30
    if native:
        python = package / ".tox" / "certify" / ("Scripts" if os.name == "nt" else "bin") / "python"
        call(str(python), "-c", MISUSE, environment=environment, cwd=tmp_path)


@pytest.mark.proof
@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
def test_untouched_tox_gives_a_certificate_in_time(native: bool, wheelhouse: Path, tmp_path: Path) -> None:
    """In a fresh environment, from the wheel alone: templates and headers travel in it."""
    environment = surroundings(wheelhouse, tmp_path / "cache")
    call(sys.executable, "-m", "venv", "vendor", environment=environment, cwd=tmp_path)
    python = str(tmp_path / "vendor" / ("Scripts" if os.name == "nt" else "bin") / "python")
    call(python, "-m", "pip", "install", "--quiet", "oarlock[new]", "tox", environment=environment, cwd=tmp_path)
    code = "import sys; from oarlock.cli import main; sys.exit(main(sys.argv[1:]))"
    new = (python, "-c", code, "new", "acme_npu", "--defaults", *["--native"] * native)
    assert "created acme_npu" in call(*new, environment=environment, cwd=tmp_path)
    package = tmp_path / "acme_npu"
    assert "_commit: v" in (package / ".copier-answers.yml").read_text("utf-8")
    start = time.monotonic()
    call(python, "-m", "tox", environment=environment, cwd=package)
    seconds = time.monotonic() - start
    document = certificate(package)
    assert document["verdict"]["conformant"], document["verdict"]
    assert not document["request"]["quick"]
    assert set(document["request"]["levels"]) == {"runtime", "operators"}
    assert seconds < LONGEST_S, f"{seconds:.0f} s in all, {document['seconds']:.0f} s of them certifying"
