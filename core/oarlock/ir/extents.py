"""Extents: sizes that are numbers now and other numbers later, with the conditions under which all else stays the same.

A program is compiled for one example of its sizes. An ``Extent`` is such a size: an int, for all who compute with it,
that remembers how it came about. What is decided by comparing one becomes a *guard*. For other sizes for which every
guard decides alike, the same steps would have been taken: only the numbers that extents became are worked out anew.

What needs the plain number (text, ``int(x)``, a constant tensor) takes it by ``known``, which guards that it stays.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["Extent", "Extents", "known", "resolved"]

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "/": operator.truediv, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


class Extents:
    """The sizes of one compilation, what was computed from them, and the guards.

    ``nodes`` are (operator, operand, operand) or (name, None, None) for a symbol; an operand is a plain number, or
    ``Ref(node)``.
    """

    def __init__(self) -> None:
        self.nodes: list[tuple[str, Any, Any]] = []
        self.guards: dict[tuple[str, Any, Any], bool] = {}
        self._found: dict[tuple[Any, ...], int] = {}
        self._lock = threading.Lock()

    def symbol(self, name: str, example: int) -> Extent:
        """The size called ``name``, which is ``example`` now."""
        return self._made(int(example), (name, None, None))

    def _made(self, value: int, node: tuple[Any, ...]) -> Extent:
        with self._lock:
            number = self._found.get(node)
            if number is None:
                number = self._found[node] = len(self.nodes)
                self.nodes.append(node)
        return Extent(value, self, number)

    def compute(self, name: str, left: Any, right: Any) -> Any:
        """``left name right``, one of which is an extent: an extent, or a plain float, which guards its operands."""
        if name == "/":
            return known(left) / known(right)
        value = _ARITHMETIC[name](_plain(left), _plain(right))
        return self._made(value, (name, _operand(left), _operand(right)))

    def decide(self, name: str, left: Any, right: Any) -> bool:
        """Whether ``left name right`` now; a guard."""
        decided = _COMPARISONS[name](_plain(left), _plain(right))
        a, b = _operand(left), _operand(right)
        if a != b:  # the same extent is always equal to itself
            self.guards[(name, a, b)] = decided
        return decided

    def evaluate(self, symbols: Mapping[str, int]) -> list[Any] | None:
        """The values of all nodes for other sizes; None where a guard decides otherwise."""
        values: list[Any] = []
        try:
            for name, left, right in self.nodes:
                if right is None:
                    values.append(symbols[name])
                else:
                    a = values[left.node] if type(left) is Ref else left
                    b = values[right.node] if type(right) is Ref else right
                    values.append(_ARITHMETIC[name](a, b))
        except (ZeroDivisionError, ValueError):
            return None
        for (name, left, right), decided in self.guards.items():
            a = values[left.node] if type(left) is Ref else left
            b = values[right.node] if type(right) is Ref else right
            if _COMPARISONS[name](a, b) is not decided:
                return None
        return values


class Ref:
    """A node, as an operand of another."""

    __slots__ = ("node",)

    def __init__(self, node: int) -> None:
        self.node = node

    def __eq__(self, other: object) -> bool:
        return type(other) is Ref and other.node == self.node

    def __hash__(self) -> int:
        return hash(("node", self.node))

    def __repr__(self) -> str:
        return f"%{self.node}"


def _plain(value: Any) -> Any:
    return int.__add__(value, 0) if isinstance(value, Extent) else value


def _operand(value: Any) -> Any:
    return Ref(value.node) if isinstance(value, Extent) else value


def known(value: Any) -> Any:
    """``value`` as a plain number; an extent is guarded to stay what it is."""
    if isinstance(value, Extent):
        value.extents.decide("==", value, _plain(value))
        return _plain(value)
    return value


def _binary(name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    def forward(self: Extent, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        if isinstance(other, float):
            return _ARITHMETIC[name](float(known(self)), other)
        return self.extents.compute(name, self, other)

    def backward(self: Extent, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        if isinstance(other, float):
            return _ARITHMETIC[name](other, float(known(self)))
        return self.extents.compute(name, other, self)

    return forward, backward


class Extent(int):
    """One size; see the module. Hashed as what it came from, so that tables do not mistake it for a number.

    Python reads an int without asking it in a few places, ``range`` above all: what loops as often as an extent says
    must ask for ``known``.
    """

    extents: Extents
    node: int

    def __new__(cls, value: int, extents: Extents, node: int) -> Extent:
        made = super().__new__(cls, value)
        made.extents = extents
        made.node = node
        return made

    __add__, __radd__ = _binary("+")
    __sub__, __rsub__ = _binary("-")
    __mul__, __rmul__ = _binary("*")
    __floordiv__, __rfloordiv__ = _binary("//")
    __mod__, __rmod__ = _binary("%")
    __truediv__, __rtruediv__ = _binary("/")
    __lshift__, __rlshift__ = _binary("<<")
    __rshift__, __rrshift__ = _binary(">>")
    __and__, __rand__ = _binary("&")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __neg__(self) -> Any:
        return 0 - self

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __pow__(self, other: Any, mod: Any = None) -> Any:
        return pow(known(self), known(other), mod)

    def __rpow__(self, other: Any, mod: Any = None) -> Any:
        return pow(other, known(self), mod)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, float)):
            return NotImplemented
        if isinstance(other, Extent) and other.extents is not self.extents:
            return False  # of another compilation
        return self.extents.decide("==", self, other)

    def __ne__(self, other: object) -> bool:
        return NotImplemented if not isinstance(other, (int, float)) else not self == other

    def __lt__(self, other: float) -> bool:
        return self.extents.decide("<", self, other)

    def __le__(self, other: float) -> bool:
        return self.extents.decide("<=", self, other)

    def __gt__(self, other: float) -> bool:
        return not self.extents.decide("<=", self, other)

    def __ge__(self, other: float) -> bool:
        return not self.extents.decide("<", self, other)

    def __hash__(self) -> int:
        return hash((id(self.extents), self.node))

    def __bool__(self) -> bool:
        return not self.extents.decide("==", self, 0)

    def bit_length(self) -> int:
        bits = _plain(self).bit_length()
        self.extents.decide("<", self, 1 << bits)
        self.extents.decide("<", self, (1 << bits) >> 1)
        return int(bits)

    def __int__(self) -> int:
        return known(self)  # type: ignore[no-any-return]

    def __index__(self) -> int:
        return known(self)  # type: ignore[no-any-return]

    def __float__(self) -> float:
        return float(known(self))

    def __repr__(self) -> str:
        return repr(known(self))

    def __str__(self) -> str:
        return str(known(self))

    def __format__(self, form: str) -> str:
        return format(known(self), form)

    def __reduce__(self) -> Any:
        return int, (known(self),)


def resolved(value: Any, values: Sequence[Any]) -> Any:
    """``value`` with each extent in it as the number that it is in ``values``, which ``evaluate`` gave."""
    if isinstance(value, Extent):
        return values[value.node]
    return tuple([resolved(part, values) for part in value]) if type(value) is tuple else value
