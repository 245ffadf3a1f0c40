"""``oarlock new``: renders the package of a new adapter, which works on the host until its driver is put in."""

from __future__ import annotations

import argparse
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from oarlock.cli.template_history import TemplateHistory
from oarlock.config import config
from oarlock.errors import ConfigError
from oarlock.registry.loading import owners
from oarlock.registry.versions import CORE_VERSION
from oarlock.resources import template_folder

__all__ = ["add_arguments", "run"]

_ANSWERS = ".copier-answers.yml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the device's name: acme_npu gives acme_npu:0, ...")
    parser.add_argument("--native", action="store_true", help="an adapter in C++ (pybind11) instead of Python")
    parser.add_argument("--output", type=Path, metavar="DIR", help="the folder to create (default: NAME)")
    parser.add_argument("--defaults", action="store_true", help="ask nothing")
    parser.add_argument(
        "--set", action="append", default=[], metavar="QUESTION=ANSWER", help="answer a question: licence=MIT"
    )
    parser.add_argument("--template", metavar="SOURCE", help="another copier template: a folder, or a git repository")
    parser.add_argument(
        "--update", action="store_true", help="bring a later template to the package in --output (default: here)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Render or update; the exit status is 0."""
    copier = _copier()
    if arguments.update:
        return _update(copier, arguments.output or Path())
    if arguments.name is None:
        raise ConfigError("which name has the device? oarlock new NAME, such as acme_npu")
    output = arguments.output or Path(arguments.name)
    _check(arguments, output)
    source, version = _source(arguments.template)
    answers = dict(_answer(text) for text in arguments.set)
    answers |= {"name": arguments.name, "adapter": "cpp" if arguments.native else "python"}
    compiler = arguments.native or any(map(shutil.which, ("cc", "gcc", "clang")))
    _call(
        copier.run_copy,
        source,
        output,
        data=answers,
        user_defaults={} if compiler else {"host_kernels": "llvm"},
        defaults=arguments.defaults,
        vcs_ref=version,
        quiet=True,
    )
    _tell(output, version)
    return 0


def _copier() -> Any:
    try:
        return import_module("copier")
    except ImportError as error:
        raise ConfigError(f"oarlock new needs copier ({error}): pip install 'oarlock[new]'") from error


def _check(arguments: argparse.Namespace, output: Path) -> None:
    """Refuse a name that is taken, a folder that is not empty, and questions that nobody can answer."""
    name = arguments.name
    for entry in owners("oarlock.adapters", name):
        if entry.distribution == "oarlock":
            raise ConfigError(f'"{name}" is an adapter of {entry.owner}: choose another name')
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"{output} exists: choose another --output; `oarlock new --update` brings a later template")
    if not arguments.defaults and not sys.stdin.isatty():
        raise ConfigError("there is no terminal to ask questions on: give --defaults, and --set for what differs")


def _answer(text: str) -> tuple[str, str]:
    question, sign, answer = text.partition("=")
    if not sign:
        raise ConfigError(f"--set {text}: write QUESTION=ANSWER, such as licence=MIT")
    return question, answer


def _source(given: str | None) -> tuple[str, str | None]:
    """(where the template is, its version): the installed one, with its history where git can keep it."""
    if given is not None:
        return given, None
    if not TemplateHistory.possible():
        return str(template_folder()), None
    history = TemplateHistory(config.cache_dir / "template")
    version = history.remember(template_folder(), CORE_VERSION if CORE_VERSION[:1].isdigit() else "0")
    return history.source, version


def _update(copier: Any, folder: Path) -> int:
    if not (folder / _ANSWERS).is_file():
        raise ConfigError(f"{folder.resolve()} has no {_ANSWERS}: --update works in a package that oarlock new made")
    if not TemplateHistory.possible():
        raise ConfigError("an update compares three versions by git, which is not on the path: install it")
    _, version = _source(None)
    _call(copier.run_update, folder, defaults=True, overwrite=True, quiet=True, vcs_ref=None)
    print(f"  {folder.resolve()} follows template {version}: look at it with `git diff`")
    return 0


def _call(function: Any, *words: Any, **options: Any) -> None:
    """Call copier; what it refuses becomes one line."""
    errors = import_module("copier.errors")
    template_error = import_module("jinja2").TemplateError
    process_error = import_module("plumbum").ProcessExecutionError
    try:
        function(*words, **options)
    except errors.CopierAnswersInterrupt:
        raise KeyboardInterrupt from None
    except (errors.CopierError, template_error, ValueError) as error:
        raise ConfigError(f"the template cannot be rendered: {error}") from error
    except process_error as error:
        text = f"git says: {error.stderr.strip()}"
        raise ConfigError(
            f"{text}. Where the package was made by a version of the template that this machine has not seen, "
            "install that Oarlock, run `oarlock new --update`, and do both again with the new one"
        ) from error


def _tell(output: Path, version: str | None) -> None:
    files = sorted(path for path in output.rglob("*") if path.is_file() and path.suffix in (".py", ".hpp", ".cpp"))
    places = sum(path.read_text("utf-8").count("REPLACE:") for path in files)
    print(f"  created {output}: the contract's twelve methods, working on the host; {places} places to replace")
    print(f"  next: cd {output} && git init && git add . && git commit -m 'From the template'")
    print("        pip install tox && tox                # lint, types, and a certificate; as it is, it is conformant")
    print("        grep -rn REPLACE: .                   # the places where the driver goes; README.md has the order")
    if version is None and not TemplateHistory.possible():
        print("  git was not found: later changes of the template cannot be brought to this package")
