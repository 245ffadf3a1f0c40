"""``oarlock new``: complete packages, clean by their own rules, that work; later templates; and clear refusals."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("copier", reason="oarlock new is the extra `new`")

from oarlock import registry
from oarlock.cli import main, new, template_history
from oarlock.config import config
from oarlock.resources import get_include, template_folder
from oarlock.runtime import opening

COMMON = {
    ".copier-answers.yml", ".github/workflows/certify.yml", ".gitignore", ".gitlab-ci.yml", "LICENSE", "README.md",
    "oarlock_acme_npu/__init__.py", "oarlock_acme_npu/device.py", "oarlock_acme_npu/program.py",
    "oarlock_acme_npu/py.typed", "oarlock_acme_npu/waivers.toml", "pyproject.toml", "tests/test_acme_npu.py", "tox.ini",
}  # fmt: skip
PYTHON = {"oarlock_acme_npu/memory.py", "oarlock_acme_npu/stream.py"}
NATIVE = {
    "CMakeLists.txt", "oarlock_acme_npu/_native.pyi", "src/memory.hpp", "src/module.cpp", "src/program.hpp",
    "src/stream.hpp",
}  # fmt: skip
needs_compiler = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The template's history of this test alone."""
    monkeypatch.setattr(config, "cache_dir", tmp_path / "cache")


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """A rendered Python adapter, installed for this process."""
    package = tmp_path / "acme_npu"
    assert render(package) == 0
    info = package / "oarlock_acme_npu-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oarlock-acme-npu\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[oarlock.adapters]\nacme_npu = oarlock_acme_npu\n")
    before = list(sys.path)
    sys.path.insert(0, str(package))
    registry.forget()
    yield package
    for device in opening.open_devices():
        if device.adapter_name == "acme_npu":
            device.close()
    sys.path[:] = before
    for name in [name for name in sys.modules if name.partition(".")[0] == "oarlock_acme_npu"]:
        del sys.modules[name]
    registry.forget()


def render(package: Path, *words: str) -> int:
    return main(["new", "acme_npu", "--defaults", "--output", str(package), *words])


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def command(folder: Path, *words: str) -> None:
    done = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize(("words", "own"), [((), PYTHON), (("--native",), NATIVE)], ids=["python", "native"])
def test_package_is_complete_and_clean(words: tuple[str, ...], own: set[str], tmp_path: Path) -> None:
    package = tmp_path / "acme_npu"
    assert render(package, *words) == 0
    assert files(package) == COMMON | own
    text = "\n".join((package / name).read_text("utf-8") for name in files(package))
    assert text.count("REPLACE:") >= 10
    assert not re.search(r"\{\{(?!/)|\{%", text.replace("${{", "")), "a placeholder of the template is left"
    command(package, "ruff", "format", "--no-cache", "--check", ".")
    command(package, "ruff", "check", "--no-cache", ".")
    if not words:  # the stub is all that the other adds for the type checker, and this takes seconds
        command(package, "mypy", "--cache-dir", str(tmp_path / "types"))


@needs_compiler
def test_python_package_passes_runtime_cases(installed: Path) -> None:
    from oarlock_conformance.bench import Bench
    from oarlock_conformance.case import Options
    from oarlock_conformance.cases.runtime import plan
    from oarlock_conformance.registry import RUNTIME

    bench = Bench("acme_npu", Options(quick=True))
    required = {case.id for case in plan(bench.device, bench.options) if not case.unsupported}
    names = [name for name in RUNTIME if name in required and name.partition(".")[0] in ("memory", "launch", "failure")]
    assert len(names) > 20
    for name in names[::3]:
        RUNTIME[name].check(bench)
    bench.forget()


@needs_compiler
def test_compiler_refusal_shows_source_lines(installed: Path) -> None:
    from oarlock.errors import CompileError

    adapter = registry.get_adapter("acme_npu")
    target = adapter.devices()[0].target
    with pytest.raises(CompileError, match="unknown_type x"):
        adapter.compile(target, "unknown_type x;", ["x"])


@pytest.mark.parametrize("kernels", ["c99", "opencl", "cuda", "llvm"])
def test_languages_and_licences_make_valid_packages(kernels: str, tmp_path: Path) -> None:
    import tomllib

    licences = {"c99": "Apache-2.0", "opencl": "MIT", "cuda": "BSD-3-Clause", "llvm": "Proprietary"}
    package = tmp_path / "x"
    answers = ("--set", f"kernels={kernels}", "--set", f"licence={licences[kernels]}", "--set", "ci=github")
    assert render(package, *answers, "--set", "author=Ada Acme") == 0
    project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["license"].removeprefix("LicenseRef-") == licences[kernels]
    assert project["entry-points"]["oarlock.adapters"] == {"acme_npu": "oarlock_acme_npu"}
    assert ("Ada Acme" in (package / "LICENSE").read_text("utf-8")) == (licences[kernels] != "Apache-2.0")
    assert not (package / ".gitlab-ci.yml").exists()
    command(package, "ruff", "format", "--no-cache", "--check", ".")
    command(package, "ruff", "check", "--no-cache", ".")


@needs_git
def test_update_brings_the_later_template_and_keeps_own_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    template, package = tmp_path / "template", tmp_path / "acme_npu"
    shutil.copytree(template_folder(), template)
    monkeypatch.setattr(new, "template_folder", lambda: template)
    monkeypatch.setattr(new, "CORE_VERSION", "1.0.0")
    assert render(package, "--set", "vendor=Zephyr") == 0
    memory, tox = package / "oarlock_acme_npu" / "memory.py", package / "tox.ini"
    memory.write_text(memory.read_text("utf-8").replace("self.live[handle] = nbytes", "self.live[handle] = nbytes + 0"))
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "own")):
        git(package, *words)
    for path, old, later in (
        (template / "shared" / "tox.ini.jinja", "ruff check .", "ruff check --show-fixes ."),
        (template / "adapter-python" / "{{ module }}" / "memory.py.jinja", "Memory: allocation", "Memory: to allocate"),
    ):
        path.write_text(path.read_text("utf-8").replace(old, later))
    monkeypatch.setattr(new, "CORE_VERSION", "1.1.0")
    assert main(["new", "--update", "--output", str(package)]) == 0
    assert "--show-fixes" in tox.read_text("utf-8")
    assert "to allocate" in memory.read_text("utf-8")
    assert "nbytes + 0" in memory.read_text("utf-8")
    answers = (package / ".copier-answers.yml").read_text("utf-8")
    assert "_commit: v1.1.0" in answers
    assert "vendor: Zephyr" in answers
    assert "v1.1.0" in capsys.readouterr().out
    assert "<<<<<<<" not in memory.read_text("utf-8") + tox.read_text("utf-8")


@needs_git
def test_history_tags_what_is_new_alone(tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.mkdir()
    (template / "copier.yml").write_text("name: {type: str}\n")
    history = template_history.TemplateHistory(tmp_path / "history")
    assert history.remember(template, "1.0") == "v1.0"
    assert history.remember(template, "1.0") == "v1.0"
    (template / "copier.yml").write_text("name: {type: str, default: x}\n")
    assert history.remember(template, "1.0") == "v1.0.post1"
    assert history.remember(template, "1.0") == "v1.0.post1"
    assert history.remember(template, "1.1") == "v1.1"
    assert history.versions() == ("v1.0", "v1.0.post1", "v1.1")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "oarlock new NAME"),
        (("cpu", "--defaults"), "an adapter of oarlock"),
        (("Acme-NPU", "--defaults"), "lower-case letters"),
        (("acme_npu",), "give --defaults"),
        (("acme_npu", "--defaults", "--set", "licence=GPL"), "Apache-2.0"),
        (("acme_npu", "--defaults", "--set", "licence"), "QUESTION=ANSWER"),
        (("acme_npu", "--defaults", "--output", "."), "exists"),
        (("--update",), "has no .copier-answers.yml"),
        (("acme_npu", "--defaults", "--template", "nowhere"), "cannot be rendered"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: tuple[str, ...],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "own.txt").write_text("mine")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "stdin", open("/dev/null"))  # noqa: SIM115
    assert main(["new", *words]) == 2
    errors = capsys.readouterr().err
    assert told in errors
    assert "Traceback" not in errors
    assert files(tmp_path / "here") == {"own.txt"}


def test_missing_copier_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "copier", None)
    assert main(["new", "acme_npu", "--defaults"]) == 2
    assert "pip install 'oarlock[new]'" in capsys.readouterr().err


def test_headers_are_found() -> None:
    import oarlock

    assert oarlock.get_include() == get_include()
    assert (Path(get_include()) / "oarlock" / "adapter.hpp").is_file()
