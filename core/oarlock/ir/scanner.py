"""Scans text from the left: tokens, lists, nesting, and errors with line and column."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, ParseError

__all__ = ["Scanner"]

T = TypeVar("T")

_SPACE = re.compile(r"(?:\s+|#[^\n]*)*")
QUOTED = r'"([^"\\\n]*(?:\\.[^"\\\n]*)*)"'
_STRING = re.compile(QUOTED)
_ESCAPE = re.compile(r"\\(u\{([0-9a-f]{1,6})\}|.)")
_ESCAPED = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r"}
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Scanner:
    """Reads ``text``; every method consumes what it is named for, or raises ParseError."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0

    def whole(self, read: Callable[[], T]) -> T:
        """What ``read`` reads, which must be all there is."""
        result = read()
        self._skip()
        if self._position != len(self._text):
            self.fail("end of text")
        return result

    def fail(self, expected: str) -> NoReturn:
        """Raise ParseError at the current position: ``expected`` was not found."""
        self._skip()
        rest = self._text[self._position : self._position + 24].split("\n", 1)[0]
        self._error(f"expected {expected}, found {repr(rest) if rest else 'the end of the text'}")

    def _error(self, message: str, position: int | None = None) -> NoReturn:
        position = self._position if position is None else position
        line = self._text.count("\n", 0, position) + 1
        column = position - (self._text.rfind("\n", 0, position) + 1) + 1
        raise ParseError(f"line {line}, column {column}: {message}")

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._position)
        if match is not None:
            self._position = match.end()

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._skip()
        match = pattern.match(self._text, self._position)
        if match is not None:
            self._position = match.end()
        return match

    def _read(self, pattern: re.Pattern[str], expected: str) -> str:
        match = self._match(pattern)
        if match is None:
            self.fail(expected)
        return match.group()

    def _peek(self, literal: str) -> bool:
        self._skip()
        return self._text.startswith(literal, self._position)

    def _accept(self, literal: str) -> bool:
        if not self._peek(literal):
            return False
        self._position += len(literal)
        return True

    def _expect(self, literal: str) -> None:
        if not self._accept(literal):
            self.fail(f"'{literal}'")

    def _list(self, end: str, item: Callable[[], T]) -> list[T]:
        """Items with commas between them, up to ``end``."""
        items: list[T] = []
        if self._accept(end):
            return items
        while True:
            items.append(item())
            if self._accept(end):
                return items
            if not self._accept(","):
                self.fail(f"',' or '{end}'")

    def _nested(self, limit: int, read: Callable[[], T]) -> T:
        self._depth += 1
        if self._depth > limit:
            self._error("nested too deeply")
        result = read()
        self._depth -= 1
        return result

    def _string(self) -> str:
        match = self._match(_STRING)
        if match is None:
            self.fail("a string in quotes")
        return self._unescape(match, 1)

    def _unescape(self, match: re.Match[str], group: int) -> str:
        """The string in a group of ``match``, its escapes replaced."""

        def replace(escape: re.Match[str]) -> str:
            code = escape.group(2)
            if code is not None and int(code, 16) <= 0x10FFFF:
                return chr(int(code, 16))
            if escape.group(1) not in _ESCAPED:
                self._error(f"no escape {escape.group()!r}", match.start(group) + escape.start())
            return _ESCAPED[escape.group(1)]

        return _ESCAPE.sub(replace, match.group(group))

    def _name(self) -> str:
        match = self._match(IDENTIFIER)
        return match.group() if match is not None else self._string()

    def _dtype(self) -> DType:
        match = self._match(IDENTIFIER)
        if match is None:
            self.fail("a data type")
        return self._dtype_by_name(match.group(), match.start())

    def _dtype_by_name(self, name: str, position: int) -> DType:
        try:
            return dtypes.by_name(name)
        except DTypeError as error:
            self._error(str(error), position)
