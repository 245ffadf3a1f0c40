"""Vendor packages made of the code on a page: installed as throw-away distributions, with commands run on them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_FILE = re.compile(r"^```(\w+)\n# file: (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SCRIPT = re.compile(r"^```python\n(?!# file: )(.*?)^```", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_MAIN = "import sys; from oarlock.cli import main; sys.exit(main(sys.argv[1:]))"


def files_on(text: str, files: dict[str, str]) -> dict[str, str]:
    """``files`` with those that a page shows, in blocks whose first line is ``# file: PATH``: whole, or as a diff."""
    found = dict(files)
    for language, name, content in _FILE.findall(text):
        found[name] = patched(found[name], content) if language == "diff" else content
    return found


def patched(text: str, diff: str) -> str:
    """``text`` with the hunks of a diff, each after a line ``@@``; what a hunk replaces is there exactly once."""
    for hunk in diff.split("@@\n")[1:]:
        lines = hunk.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] != without) for without in "+-")
        assert text.count(old) == 1, f"the text holds {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    return text


def script_on(text: str) -> str:
    """The Python of a page that is no file: one program, in the order of the page."""
    return "\n".join(match[1] for match in _SCRIPT.finditer(text))


def commands_on(text: str) -> list[tuple[list[str], list[str]]]:
    """(words of the command, lines that it prints) of every ``$ oarlock`` line on ``skiff`` in a console block."""
    found: list[tuple[list[str], list[str]]] = []
    for block in _CONSOLE.finditer(text):
        for line in block[1].splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ ").replace("'", "").split(), []))
            else:
                found[-1][1].append(line)
    return [(words, lines) for words, lines in found if words[0] == "oarlock" and "skiff" in words]


def missing_lines(shown: list[str], printed: str) -> list[str]:
    """Lines of a page that a command did not print, in their order. Numbers and blanks do not count; ``...`` is any."""
    there = iter([_plain(line) for line in printed.splitlines()])
    wanted = [line for line in shown if line.strip().strip(".")]
    return [line for line in wanted if not any(map(_pattern(line).fullmatch, there))]


def _pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, map(_plain, line.split("...")))).replace(r"\ .*", ".*"))


def _plain(line: str) -> str:
    return re.sub(r"\d[\d,.]*", "#", " ".join(line.split()))


@dataclass(slots=True)
class Vendor:
    """A folder on the path that holds one vendor's distribution."""

    site: Path
    text: str = ""
    files: dict[str, str] = field(default_factory=dict)

    def install(self, text: str) -> None:
        """Add the files of a page, or of a part of one; describe the distribution as an installer would."""
        self.text = text
        self.files = files_on(text, self.files)
        for name, content in self.files.items():
            path = self.site / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        if "pyproject.toml" not in self.files:
            return
        project = tomllib.loads(self.files["pyproject.toml"])["project"]
        info = self.site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(exist_ok=True)
        about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        (info / "METADATA").write_text(about)
        groups = project["entry-points"].items()
        lines = [line for group, names in groups for line in (f"[{group}]", *(f"{n} = {m}" for n, m in names.items()))]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")

    def run(self, *words: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        """Run ``oarlock words`` where the distribution is installed."""
        return self.python(_MAIN, *words, timeout_s=timeout_s)

    def python(self, code: str, *words: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """Run Python code where the distribution is installed."""
        path = os.pathsep.join([str(self.site), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        return subprocess.run(
            [sys.executable, "-c", code, *words],
            env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "error"},
            cwd=self.site.parent,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def run_shown(self) -> None:
        """Run every command on the package that the text shows: it ends as is shown, and prints what is shown."""
        for words, shown in commands_on(self.text):
            done = self.run(*words[1:])
            wanted = int("not conformant" in "".join(shown))
            assert done.returncode == wanted, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
            missing = missing_lines(shown, done.stdout + done.stderr)
            assert not missing, f"{' '.join(words)}: the page shows {missing}; printed was\n{done.stdout}"

    def run_script(self) -> None:
        """Run the text's Python that is no file."""
        code = script_on(self.text)
        if code:
            done = self.python(code)
            assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr


@pytest.fixture
def vendor(tmp_path: Path) -> Vendor:
    site = tmp_path / "site"
    site.mkdir()
    return Vendor(site)


@pytest.fixture(scope="module")
def tutorial() -> list[str]:
    """The tutorial's parts, from ``## 0.`` on."""
    page = (ROOT / "docs" / "vendors" / "tutorial.md").read_text(encoding="utf-8")
    return page.split("\n## ")[1:]
