"""Says why a plugin failed: the exception that began it, its text, and the line of the plugin where it rose."""

from __future__ import annotations

import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path

from oarlock import errors

__all__ = ["Failure", "failure_of"]

_SPEAKING = frozenset(errors.__all__) | {"ProbeError"}
"""Types whose message is written for a person and needs no type in front."""


@dataclass(frozen=True, slots=True)
class Failure:
    """``kind`` is the exception's type, ``where`` a ``file:line`` or empty, ``details`` the whole traceback."""

    kind: str
    message: str
    where: str
    details: str = ""

    def __str__(self) -> str:
        if self.kind in _SPEAKING:
            text = self.message
        else:
            text = f"{self.kind}: {self.message}" if self.message else self.kind
        return f"{text}; raised from {self.where}" if self.where else text


def failure_of(error: BaseException, package: Path | None = None) -> Failure:
    """What to show for ``error``: its root cause, at the innermost line below ``package`` that led there.

    Without such a line: the innermost line outside Python's own library.
    """
    root = _root(error)
    details = "".join(traceback.format_exception(error))
    message = str(root).strip()
    if root is not error and str(error).strip() and str(error).strip() != message:
        message = f"{message} (shown as {type(error).__name__}: {_first_line(str(error))})"
    return Failure(type(root).__name__, message, _where(error, root, package), details)


def _root(error: BaseException) -> BaseException:
    seen = {id(error)}
    while True:
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None or id(cause) in seen:
            return error
        seen.add(id(cause))
        error = cause


def _where(error: BaseException, root: BaseException, package: Path | None) -> str:
    if isinstance(root, SyntaxError) and root.filename:
        return f"{root.filename}:{root.lineno}"
    frames = [frame for part in (error, root) for frame in traceback.extract_tb(part.__traceback__)]
    inside = [frame for frame in frames if package is not None and _below(frame.filename, package)]
    standard = Path(sysconfig.get_path("stdlib"))
    foreign = [
        frame
        for frame in frames
        if not frame.filename.startswith("<")
        and (not _below(frame.filename, standard) or "site-packages" in frame.filename)
        and not _below(frame.filename, Path(__file__).parent)
    ]
    for chosen in (inside, foreign):
        if chosen:
            return f"{chosen[-1].filename}:{chosen[-1].lineno}"
    return ""


def _below(filename: str, folder: Path) -> bool:
    return Path(filename).is_relative_to(folder)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0]
