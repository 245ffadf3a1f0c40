"""Sizes: symbolic integers that stand for dimensions, with arithmetic and evaluation on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from oarlock.errors import ShapeError

__all__ = ["Size", "evaluate", "symbol"]

_Operator = Literal["sym", "+", "-", "*", "//", "%", "max", "min"]


@dataclass(frozen=True, slots=True)
class Size:
    """A symbolic size: a symbol, or an operator on two sizes. Build it with ``symbol`` and arithmetic."""

    operator: _Operator
    name: str = ""
    left: int | Size = 0
    right: int | Size = 0

    def __add__(self, other: int | Size) -> int | Size:
        return _combine("+", self, other)

    def __radd__(self, other: int) -> int | Size:
        return _combine("+", other, self)

    def __sub__(self, other: int | Size) -> int | Size:
        return _combine("-", self, other)

    def __rsub__(self, other: int) -> int | Size:
        return _combine("-", other, self)

    def __mul__(self, other: int | Size) -> int | Size:
        return _combine("*", self, other)

    def __rmul__(self, other: int) -> int | Size:
        return _combine("*", other, self)

    def __floordiv__(self, other: int | Size) -> int | Size:
        return _combine("//", self, other)

    def __mod__(self, other: int | Size) -> int | Size:
        return _combine("%", self, other)

    def __str__(self) -> str:
        if self.operator == "sym":
            return self.name
        if self.operator in ("max", "min"):
            return f"{self.operator}({self.left}, {self.right})"
        return f"({self.left} {self.operator} {self.right})"


def symbol(name: str) -> Size:
    """The symbolic size called ``name`` (an identifier)."""
    if not name.isidentifier():
        raise ShapeError(f"{name!r} cannot name a size: it is no identifier")
    return Size("sym", name)


def _apply(operator: str, left: int, right: int) -> int:
    if operator in ("//", "%") and right == 0:
        raise ShapeError(f"size expression divides by zero: {left} {operator} {right}")
    return {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "//": lambda: left // right,
        "%": lambda: left % right,
        "max": lambda: max(left, right),
        "min": lambda: min(left, right),
    }[operator]()


def _combine(operator: _Operator, left: int | Size, right: int | Size) -> int | Size:
    if isinstance(left, int) and isinstance(right, int):
        return _apply(operator, left, right)
    if operator in ("+", "-") and right == 0:
        return left
    if operator == "+" and left == 0:
        return right
    if operator in ("*", "//") and right == 1:
        return left
    if operator == "*" and left == 1:
        return right
    if operator == "-" and left == right:
        return 0
    return Size(operator, "", left, right)


def evaluate(size: int | Size, values: Mapping[str, int]) -> int:
    """The number that ``size`` stands for; raises ShapeError for a symbol that ``values`` lacks."""
    if isinstance(size, int):
        return size
    if size.operator == "sym":
        if size.name not in values:
            raise ShapeError(f"size {size.name} has no value; there are {', '.join(values) or 'none'}")
        return values[size.name]
    return _apply(size.operator, evaluate(size.left, values), evaluate(size.right, values))
