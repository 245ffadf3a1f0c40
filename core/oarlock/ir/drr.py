"""Declarative rewrite rules: a source pattern, constraints and a result pattern, which are data and print as text.

    x, p, q = value("x"), attribute("p"), attribute("q")
    Rule(
        "transpose_twice",
        source=op("array.transpose", op("array.transpose", x, permutation=p).shared(), permutation=q),
        where=[native(is_worth_it, x)],
        result=op("array.transpose", x, permutation=native(compose, p, q)),
    )

A term that occurs twice stands for the same value, attribute or operation. The source may have several *roots*, whose
results are replaced together: ``source=(a, b)``, of which each reads something that a root before it does. Operations
of a match vanish, so one whose result is also used outside is not matched (the subgraph is open), unless it is
``shared()``: then it stays for its other users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from oarlock.errors import IRError
from oarlock.ir.attributes import Attribute
from oarlock.ir.rewrite import RewritePattern

__all__ = [
    "Again", "AttributeTerm", "Built", "Either", "Native", "OpTerm", "OutTerm", "Rule", "Term", "ValueTerm", "again",
    "attribute", "built", "either", "native", "op", "value",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A part of a pattern, told from others by identity."""


@dataclass(frozen=True, slots=True, eq=False)
class ValueTerm(Term):
    """Any value."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class AttributeTerm(Term):
    """Any attribute; the same one at every place."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Native(Term):
    """What ``function`` gives for what ``arguments`` stand for: a constraint (true or not), or an attribute."""

    function: Callable[..., Any]
    arguments: tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Built(Term):
    """In a result: the value that ``function(anchor, *arguments, rewriter)`` makes before the operation ``anchor``."""

    function: Callable[..., Any]
    arguments: tuple[object, ...]


Entry: TypeAlias = "Attribute | AttributeTerm | Native"


@dataclass(frozen=True, slots=True, eq=False)
class OpTerm(Term):
    """An operation called one of ``names``; where a value is wanted, its first result.

    Attributes that are not named may be anything.
    """

    names: tuple[str, ...]
    operands: tuple[Term, ...]
    attributes: Mapping[str, Entry] = field(default_factory=dict)
    is_shared: bool = False
    is_any_order: bool = False

    def __getitem__(self, index: int) -> OutTerm:
        """Result ``index``."""
        return OutTerm(self, index)

    def shared(self) -> OpTerm:
        """The same, which may have users outside the match and then stays for them."""
        return replace(self, is_shared=True)

    def any_order(self) -> OpTerm:
        """The same, with its operands in any of the two orders."""
        return replace(self, is_any_order=True)


@dataclass(frozen=True, slots=True, eq=False)
class OutTerm(Term):
    """Result ``index`` of ``node``."""

    node: OpTerm
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Either(Term):
    """In a source: the first of ``choices`` with which all the rest fits."""

    choices: tuple[Term, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Again(Term):
    """In a result: an operation as the matched ``node``, with other operands, and some other attributes."""

    node: OpTerm
    operands: tuple[Term, ...]
    attributes: Mapping[str, Entry]


def value(name: str) -> ValueTerm:
    """A value, by any name."""
    return ValueTerm(name)


def attribute(name: str) -> AttributeTerm:
    """An attribute, by any name."""
    return AttributeTerm(name)


def op(names: str | tuple[str, ...], *operands: Term, **attributes: Entry) -> OpTerm:
    """An operation called ``names`` (or one of them); several names only in a source."""
    return OpTerm((names,) if isinstance(names, str) else names, operands, attributes)


def again(node: OpTerm, *operands: Term, **attributes: Entry) -> Again:
    """In a result: the operation ``node`` once more, on other ``operands``."""
    return Again(node, operands, attributes)


def either(*choices: Term) -> Either:
    """One of several patterns."""
    return Either(choices)


def native(function: Callable[..., Any], *arguments: object) -> Native:
    """What a Python function of what terms stand for gives. An operation's term stands for the operation."""
    return Native(function, arguments)


def built(function: Callable[..., Any], *arguments: object) -> Built:
    """In a result: a value that a Python function makes."""
    return Built(function, arguments)


def _as_tuple(terms: Term | Sequence[Term]) -> tuple[Term, ...]:
    return (terms,) if isinstance(terms, Term) else tuple(terms)


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """``source`` becomes ``result`` (a value for each root) wherever all of ``where`` hold.

    Raises IRError for a rule that could never be applied: see ``_check``.
    """

    name: str
    source: Term | Sequence[Term]
    result: Term | Sequence[Term]
    where: Sequence[Native] = ()
    benefit: int = 1

    def __post_init__(self) -> None:
        _check(self)

    @property
    def roots(self) -> tuple[Term, ...]:
        """The values that are replaced."""
        return _as_tuple(self.source)

    @property
    def results(self) -> tuple[Term, ...]:
        """What replaces them."""
        return _as_tuple(self.result)

    @property
    def pattern(self) -> RewritePattern:
        """The rule as a pattern for ``apply_patterns``."""
        from oarlock.ir.drr_match import Applier

        return RewritePattern(self.name, names_of(self.roots[0]), Applier(self), self.benefit)

    def __str__(self) -> str:
        from oarlock.ir.drr_text import print_rule

        return print_rule(self)


# --- what terms hold --------------------------------------------------------------------------------------------------


def node_of(term: Term) -> OpTerm | None:
    """The operation that a term is a result of."""
    if isinstance(term, OutTerm):
        return term.node
    return term if isinstance(term, OpTerm) else None


def names_of(root: Term) -> tuple[str, ...]:
    """What the operation at a root may be called."""
    if isinstance(root, Either):
        return tuple(dict.fromkeys(name for choice in root.choices for name in names_of(choice)))
    node = node_of(root)
    return node.names if node is not None else ()


def parts(term: object) -> Iterator[Term]:
    """``term`` and all terms in it, those that it is made of first; shared ones once for each place."""
    inner: tuple[object, ...] = ()
    if isinstance(term, OutTerm):
        inner = (term.node,)
    elif isinstance(term, OpTerm):
        inner = (*term.operands, *term.attributes.values())
    elif isinstance(term, Again):
        inner = (term.node, *term.operands, *term.attributes.values())
    elif isinstance(term, Either):
        inner = term.choices
    elif isinstance(term, (Native, Built)):
        inner = term.arguments
    for part in inner:
        yield from parts(part)
    if isinstance(term, Term):
        yield term


def sure(term: Term) -> set[Term]:
    """What a match of ``term`` binds whichever alternative fits."""
    if isinstance(term, Either):
        return set.intersection(*map(sure, term.choices)) | {term} if term.choices else {term}
    if isinstance(term, OutTerm):
        return sure(term.node)
    if isinstance(term, OpTerm):
        attributes = {entry for entry in term.attributes.values() if isinstance(entry, AttributeTerm)}
        return {term}.union(attributes, *map(sure, term.operands))
    return {term}


Path: TypeAlias = tuple[tuple[OpTerm, int], ...]
"""Operations from one that reads a known term up to a root, each with the position of the operand."""


def path_to(root: Term, known: set[Term]) -> Path | None:
    """How to find ``root`` from a term of ``known`` that it reads, by the fewest steps; None: it reads none."""
    waiting: list[tuple[Term, Path]] = [(root, ())]
    for term, above in waiting:
        node = node_of(term)
        if above and (term in known or node in known):
            return above
        if node is not None:
            waiting += [(operand, ((node, i), *above)) for i, operand in enumerate(node.operands)]
    return None


def _check(rule: Rule) -> None:
    """Raise IRError, naming the rule, for what cannot be matched or made."""
    if len(rule.results) != len(rule.roots):
        raise IRError(f"rule {rule.name}: {len(rule.results)} results for {len(rule.roots)} roots")
    known: set[Term] = set()
    for number, root in enumerate(rule.roots):
        if not names_of(root):
            raise IRError(f"rule {rule.name}: root {number} is no operation")
        if any(isinstance(part, (Native, Built, Again)) for part in parts(root)):
            raise IRError(f"rule {rule.name}: a source holds values, attributes and operations alone")
        if number and path_to(root, known) is None:
            raise IRError(f"rule {rule.name}: root {number} reads nothing that a root before it does")
        known |= sure(root)
    there = {part for root in rule.roots for part in parts(root)}
    for constraint in rule.where:
        _check_made(rule, constraint, there, there)
    for term in rule.results:
        _check_made(rule, term, there, known)


def _check_made(rule: Rule, term: Term, there: set[Term], bound: set[Term]) -> None:
    for part in parts(term):
        if isinstance(part, (ValueTerm, AttributeTerm)) and part not in bound:
            raise IRError(f"rule {rule.name}: {part.name} does not occur in the source, or only in an alternative")
        if isinstance(part, Either) and part not in bound:
            raise IRError(f"rule {rule.name}: alternatives belong in the source")
        if isinstance(part, OpTerm) and part not in there and len(part.names) != 1:
            raise IRError(f"rule {rule.name}: a result with the names {', '.join(part.names)}; give one")
        if isinstance(part, Again) and part.node not in bound:
            raise IRError(f"rule {rule.name}: again() of an operation that the source does not hold")
