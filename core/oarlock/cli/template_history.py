"""The adapter template as a git repository that remembers each version used here, for ``copier update``."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
from pathlib import Path

from oarlock.errors import ConfigError

__all__ = ["TemplateHistory"]

_IDENTITY = ("-c", "user.name=Oarlock", "-c", "user.email=oarlock@localhost", "-c", "commit.gpgsign=false")
_PLAIN = ("-c", "core.autocrlf=false", "-c", "core.hooksPath=", "-c", "init.defaultBranch=main")


class TemplateHistory:
    """The repository in ``folder``. A version is a tag, ``v0.1.0``; the same version with other files is a post-release
    of it, ``v0.1.0.post1``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def possible() -> bool:
        """Whether git is installed."""
        return shutil.which("git") is not None

    @property
    def source(self) -> str:
        """What the rendered package names as its origin: under the home directory, the same for every user."""
        folder = self.folder.resolve()
        home = Path.home().resolve()
        return f"~/{folder.relative_to(home).as_posix()}" if folder.is_relative_to(home) else str(folder)

    def versions(self) -> tuple[str, ...]:
        """The tags, oldest first."""
        return tuple(self._git("tag", "--list", "v*", "--sort=version:refname").split())

    def remember(self, template: Path, version: str) -> str:
        """Add the files of ``template`` as ``version``, unless its newest tag has them already; returns the tag."""
        if not (self.folder / ".git").is_dir():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._git("init", "--quiet")
        of_version = [tag for tag in self.versions() if tag == f"v{version}" or tag.startswith(f"v{version}.post")]
        if of_version:
            self._git("checkout", "--quiet", "--force", of_version[-1])
            self._git("clean", "--quiet", "--force", "-d", "-x")
            if _same(template, self.folder):
                return of_version[-1]
        tag = f"v{version}.post{len(of_version)}" if of_version else f"v{version}"
        for path in self.folder.iterdir():
            if path.name != ".git":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(template, self.folder, dirs_exist_ok=True)
        self._git("add", "--all", "--force")
        self._git("commit", "--quiet", "--allow-empty", "--message", f"Adapter template of Oarlock {version}")
        self._git("tag", tag)
        return tag

    def _git(self, *words: str) -> str:
        places = (f"--git-dir={self.folder / '.git'}", f"--work-tree={self.folder}")
        command = ["git", *_IDENTITY, *_PLAIN, *places, *words]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise ConfigError(
                f"the template's history in {self.folder} cannot be kept: git {words[0]}: {done.stderr.strip()}; "
                "remove that folder, or name a template with --template"
            )
        return done.stdout


def _same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files, git's own aside."""
    names = _files(one)
    return names == _files(other) and not any(filecmp.cmpfiles(one, other, names, shallow=False)[1:])


def _files(folder: Path) -> list[str]:
    found = []
    for base, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        found += [str(Path(base, name).relative_to(folder)) for name in files]
    return sorted(found)
