"""Call sites: the line of user code that recorded an operator, kept cheaply and read only when it is needed."""

from __future__ import annotations

import copy
import linecache
import sys
from pathlib import Path
from types import CodeType
from typing import TypeAlias

__all__ = ["Failure", "Site", "call_site", "describe"]

Site: TypeAlias = "tuple[CodeType, int] | None"
"""A code object and the offset of the instruction in it."""

_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"
internal: dict[str, bool] = {}
"""Whether a file, by name, is of this package, of those asked about."""


def is_internal(filename: str) -> bool:
    """Whether ``filename`` is of this package, which is remembered."""
    found = filename.startswith(_PACKAGE)
    internal[filename] = found
    return found


def call_site(depth: int = 2) -> Site:
    """Where the innermost frame outside this package stands, ``depth`` frames up at the least."""
    frame = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        inside = internal.get(code.co_filename)
        if inside is None:
            inside = is_internal(code.co_filename)
        if not inside:
            return code, frame.f_lasti
        frame = frame.f_back  # type: ignore[assignment]
    return None


def describe(site: Site) -> str:
    """``file:line in function: the line`` for a person; a plain remark where the site is unknown."""
    if site is None:
        return "an unknown place"
    code, instruction = site
    line = _line(code, instruction)
    text = linecache.getline(code.co_filename, line).strip()
    return f"{code.co_filename}:{line} in {code.co_name}" + (f": {text}" if text else "")


def _line(code: CodeType, instruction: int) -> int:
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno


class Failure:
    """Why a result will never be there: the error, and the line that recorded the result."""

    __slots__ = ("error", "site")

    def __init__(self, error: Exception, site: Site) -> None:
        self.error = error
        self.site = site

    def again(self) -> Exception:
        """The error, once more, with the line as a note."""
        notes = [*getattr(self.error, "__notes__", ()), "recorded at " + describe(self.site)]
        try:
            error = copy.copy(self.error)
        except TypeError:  # its class cannot be made from its arguments
            error = RuntimeError(f"{type(self.error).__name__}: {self.error}")
        error.__notes__ = notes
        error.__cause__ = self.error
        return error
