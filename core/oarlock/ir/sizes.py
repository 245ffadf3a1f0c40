"""Sizes: symbolic integers that stand for dimensions, with arithmetic and evaluation on the host.

Arithmetic gives a normal form, so that sizes that are computed in different ways compare equal: a sum of terms, each a
product of factors with a coefficient, in a fixed order. Products of sums are not multiplied out: ``(n + 1) * 2`` keeps
its factors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from oarlock.errors import ShapeError

__all__ = ["Size", "evaluate", "maximum", "minimum", "symbol"]

_Operator = Literal["sym", "+", "-", "*", "//", "%", "max", "min"]


@dataclass(frozen=True, slots=True)
class Size:
    """A symbolic size: a symbol, or an operator on two sizes. Build it with ``symbol`` and arithmetic."""

    operator: _Operator
    name: str = ""
    left: int | Size = 0
    right: int | Size = 0

    def __add__(self, other: int | Size) -> int | Size:
        return _sum((self, 1), (other, 1))

    def __radd__(self, other: int) -> int | Size:
        return _sum((other, 1), (self, 1))

    def __sub__(self, other: int | Size) -> int | Size:
        return _sum((self, 1), (other, -1))

    def __rsub__(self, other: int) -> int | Size:
        return _sum((other, 1), (self, -1))

    def __mul__(self, other: int | Size) -> int | Size:
        return _build(_product(self, other))

    def __rmul__(self, other: int) -> int | Size:
        return _build(_product(other, self))

    def __floordiv__(self, other: int | Size) -> int | Size:
        return _divide(self, other)

    def __rfloordiv__(self, other: int) -> int | Size:
        return Size("//", "", other, self)

    def __rmod__(self, other: int) -> int | Size:
        return Size("%", "", other, self)

    def __mod__(self, other: int | Size) -> int | Size:
        if isinstance(other, int) and other and all(c % other == 0 for c in _terms(self).values()):
            return 0
        return Size("%", "", self, other)

    def __str__(self) -> str:
        if self.operator == "sym":
            return self.name
        if self.operator in ("max", "min"):
            return f"{self.operator}({self.left}, {self.right})"
        left = str(self.left)
        if isinstance(self.left, Size) and self.operator in _CHAINS and self.left.operator in _CHAINS[self.operator]:
            left = left[1:-1]
        return f"({left} {self.operator} {self.right})"


_CHAINS = {"+": "+-", "-": "+-", "*": "*"}
"""What an operator may follow without parentheses: (n + m - 1) is ((n + m) - 1)."""

_Terms: TypeAlias = dict[tuple[Size, ...], int]
"""Coefficients by product; the empty product stands for the constant."""


def symbol(name: str) -> Size:
    """The symbolic size called ``name`` (an identifier)."""
    if not name.isidentifier():
        raise ShapeError(f"{name!r} cannot name a size: it is no identifier")
    return Size("sym", name)


def maximum(left: int | Size, right: int | Size) -> int | Size:
    """The greater of two sizes."""
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    return left if left == right else Size("max", "", left, right)


def minimum(left: int | Size, right: int | Size) -> int | Size:
    """The lesser of two sizes."""
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right)
    return left if left == right else Size("min", "", left, right)


def evaluate(size: int | Size, values: Mapping[str, int]) -> int:
    """The number that ``size`` stands for; raises ShapeError for a symbol that ``values`` lacks."""
    if isinstance(size, int):
        return size
    if size.operator == "sym":
        if size.name not in values:
            raise ShapeError(f"size {size.name} has no value; there are {', '.join(values) or 'none'}")
        return values[size.name]
    return _apply(size.operator, evaluate(size.left, values), evaluate(size.right, values))


def _apply(operator: str, left: int, right: int) -> int:
    if operator in ("//", "%") and right == 0:
        raise ShapeError(f"size expression divides by zero: {left} {operator} {right}")
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//":
            return left // right
        case "%":
            return left % right
        case "max":
            return max(left, right)
        case _:
            return min(left, right)


# --- normal form -----------------------------------------------------------------------------------------------------


def _terms(size: int | Size) -> _Terms:
    """``size`` as a sum of products."""
    if isinstance(size, int):
        return {(): size}
    if size.operator in ("+", "-"):
        result = dict(_terms(size.left))
        for product, coefficient in _terms(size.right).items():
            signed = coefficient if size.operator == "+" else -coefficient
            result[product] = result.get(product, 0) + signed
        return result
    if size.operator == "*":
        return _product(size.left, size.right)
    return {(size,): 1}


def _sum(*parts: tuple[int | Size, int]) -> int | Size:
    result: _Terms = {}
    for size, sign in parts:
        for product, coefficient in _terms(size).items():
            result[product] = result.get(product, 0) + sign * coefficient
    return _build(result)


def _product(left: int | Size, right: int | Size) -> _Terms:
    factors: tuple[Size, ...] = ()
    coefficient = 1
    for side in (left, right):
        terms = {product: c for product, c in _terms(side).items() if c} or {(): 0}
        if len(terms) > 1:
            assert isinstance(side, Size)
            factors += (side,)
        else:
            ((product, c),) = terms.items()
            factors += product
            coefficient *= c
    return {tuple(sorted(factors, key=str)): coefficient} if coefficient else {(): 0}


def _divide(left: Size, right: int | Size) -> int | Size:
    if isinstance(right, int) and right:
        terms = _terms(left)
        if all(coefficient % right == 0 for coefficient in terms.values()):
            return _build({product: coefficient // right for product, coefficient in terms.items()})
    return Size("//", "", left, right)


def _build(terms: _Terms) -> int | Size:
    """The size that is the sum of ``terms``: what is added first, by name, constants last; then what is taken away."""
    present = [(product, coefficient) for product, coefficient in terms.items() if coefficient]
    present.sort(key=lambda term: (term[1] < 0, not term[0], tuple(map(str, term[0]))))
    result: int | Size | None = None
    for product, coefficient in present:
        if result is None:
            result = _term(product, coefficient)
        elif coefficient < 0:
            result = Size("-", "", result, _term(product, -coefficient))
        else:
            result = Size("+", "", result, _term(product, coefficient))
    return 0 if result is None else result


def _term(product: tuple[Size, ...], coefficient: int) -> int | Size:
    if not product:
        return coefficient
    result = product[0]
    for factor in product[1:]:
        result = Size("*", "", result, factor)
    return result if coefficient == 1 else Size("*", "", result, coefficient)
