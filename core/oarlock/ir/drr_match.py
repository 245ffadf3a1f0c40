"""Finds where a declarative rule fits, and puts its result there."""

from __future__ import annotations

from itertools import islice
from typing import Any, TypeAlias

from oarlock.errors import IRError
from oarlock.ir.attributes import Attribute, attribute_key
from oarlock.ir.context import Builder
from oarlock.ir.dialects import is_pure
from oarlock.ir.drr import (
    Again,
    AttributeTerm,
    Built,
    Either,
    Native,
    OpTerm,
    OutTerm,
    Path,
    Rule,
    Term,
    ValueTerm,
    node_of,
    path_to,
    sure,
)
from oarlock.ir.operations import Block, Operation, OpResult, Value
from oarlock.ir.rewrite import Rewriter

__all__ = ["Applier"]

_Found: TypeAlias = dict[Term, Any]
"""What terms stand for: values, attributes, operations; for a root that is one of several choices, its value."""
_Goal: TypeAlias = tuple[Term, Value]

_MOST_USERS = 32
"""Users of a value among which a further root is looked for, so that the time stays linear."""


class Applier:
    """A rule as what a pattern calls: ``applier(op, rewriter)``."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._roots = rule.roots
        self._first = _index(rule.roots[0])
        self._inner, self._equal = _quick_tests(rule.roots[0])
        node = node_of(rule.roots[0])
        operands = node.operands if node is not None and len(rule.roots) == 1 else rule.roots
        self._is_flat = all(isinstance(operand, ValueTerm) for operand in operands)
        self._paths: list[Path] = []
        known = sure(rule.roots[0])
        for root in rule.roots[1:]:
            self._paths.append(path_to(root, known) or ())
            known |= sure(root)

    def __call__(self, op: Operation, rewriter: Rewriter) -> bool:
        """Rewrite with ``op`` as the first root; whether the rule fits."""
        if self._first >= len(op.results) or not self._may_fit(op):
            return False
        found = self._solve([(self._roots[0], op.results[self._first])], {}, 1, rewriter)
        if found is None:
            return False
        self._apply(found, rewriter)
        return True

    def _may_fit(self, op: Operation) -> bool:
        """A quick test that most operations do not pass."""
        operands = op.operands_
        if self._inner and self._inner[-1][0] >= len(operands):
            return False
        for position, names in self._inner:
            made = operands[position].defining_op
            if made is None or made.name not in names:
                return False
        return all(j < len(operands) and operands[i] is operands[j] for i, j in self._equal)

    # --- matching -----------------------------------------------------------------------------------------------------

    def _solve(self, goals: list[_Goal], found: _Found, roots: int, rewriter: Rewriter) -> _Found | None:
        """``found`` with all that fits ``goals`` and the roots from number ``roots`` on; None where nothing does."""
        while goals:
            term, value = goals.pop()
            if isinstance(term, ValueTerm):
                if found.setdefault(term, value) is not value:
                    return None
            elif isinstance(term, Either):
                for choice in term.choices:
                    trial = self._solve([*goals, (choice, value)], {**found, term: value}, roots, rewriter)
                    if trial is not None:
                        return trial
                return None
            else:
                node = node_of(term)
                op = value.defining_op
                if node is None or op is None or op.results[_index(term)] is not value:
                    return None
                if node in found:
                    if found[node] is not op:
                        return None
                    continue
                if not _fits(node, op, found):
                    return None
                found[node] = op
                pairs = list(zip(node.operands, op.operands_, strict=True))
                if node.is_any_order and len(pairs) == 2:
                    (left, a), (right, b) = pairs
                    trial = self._solve([*goals, (right, b), (left, a)], dict(found), roots, rewriter)
                    pairs = [(left, b), (right, a)]
                    if trial is not None:
                        return trial
                goals.extend(reversed(pairs))
        if roots < len(self._roots):
            return self._next_root(found, roots, rewriter)
        return found if self._holds(found, rewriter) else None

    def _next_root(self, found: _Found, number: int, rewriter: Rewriter) -> _Found | None:
        root = self._roots[number]
        for value in _ascend(self._paths[number - 1], found, _index(root)):
            trial = self._solve([(root, value)], dict(found), number + 1, rewriter)
            if trial is not None:
                return trial
        return None

    def _holds(self, found: _Found, rewriter: Rewriter) -> bool:
        """Whether the match is closed, distinct operations stand for distinct terms, and the constraints hold."""
        if self._is_flat and len(self._root_value(self._roots[0], found).op.results) == 1:
            return all(_evaluate(constraint, found) for constraint in self.rule.where)
        nodes = {term: op for term, op in found.items() if isinstance(term, OpTerm)}
        matched = set(nodes.values())
        if len(matched) != len(nodes):
            return False
        replaced = {self._root_value(root, found) for root in self._roots}
        if len(replaced) != len(self._roots) or any(value in replaced for value in _reads(found)):
            return False
        for node, op in nodes.items():
            if node.is_shared:
                continue
            for result in op.results:
                if result not in replaced and any(user not in matched for user, _ in result.uses):
                    return False
        if len(self._roots) > 1 and self._place(found, rewriter) is None:
            return False
        return all(_evaluate(constraint, found) for constraint in self.rule.where)

    @staticmethod
    def _root_value(root: Term, found: _Found) -> OpResult:
        node = node_of(root)
        result: OpResult = found[root] if node is None else found[node].results[_index(root)]
        return result

    # --- rewriting ----------------------------------------------------------------------------------------------------

    def _place(self, found: _Found, rewriter: Rewriter) -> Operation | None:
        """The root before which the result goes: after all it reads, before all that read it; None: there is none."""
        ops = [self._root_value(root, found).op for root in self._roots]
        if len(ops) == 1:
            return ops[0]
        block = ops[0].parent
        if block is None or any(op.parent is not block for op in ops):
            return None
        order = rewriter.order
        ops.sort(key=order.position)
        if all(_is_before(value, ops[0], rewriter) or _may_move(value) for value in _reads(found)):
            return ops[0]
        last = order.position(ops[-1])
        users = {user for op in ops[:-1] for result in op.results for user, _ in result.uses} - set(ops)
        inside = [_in_block(user, block) for user in users]
        early = any(user is None or order.position(user) < last for user in inside)
        return None if early else ops[-1]

    def _apply(self, found: _Found, rewriter: Rewriter) -> None:
        anchor = self._place(found, rewriter)
        old = [self._root_value(root, found) for root in self._roots]
        assert anchor is not None
        for value in _reads(found):
            if not _is_before(value, anchor, rewriter):
                _hoist(value, anchor, rewriter)
        maker = _Maker(found, anchor, rewriter)
        for value, term in zip(old, self.rule.results, strict=True):
            rewriter.replace_value(value, maker.value(term))
        for node in _by_users(found):
            op = found[node]
            dead = op.parent is not None and not any(result.uses for result in op.results)
            if dead and (not node.is_shared or is_pure(op)):
                rewriter.erase(op)


class _Maker:
    """Makes the operations of a result before ``anchor``, each term once."""

    def __init__(self, found: _Found, anchor: Operation, rewriter: Rewriter) -> None:
        self._found = found
        self._anchor = anchor
        self._rewriter = rewriter
        self._builder = rewriter.builder(anchor, Builder)
        self._made: dict[Term, Any] = {}

    def value(self, term: Term) -> Value:
        """The value that a term of a result stands for."""
        if isinstance(term, ValueTerm):
            return self._value(self._found[term])
        if isinstance(term, Built):
            if term not in self._made:
                arguments = [_evaluate(argument, self._found) for argument in term.arguments]
                self._made[term] = term.function(self._anchor, *arguments, self._rewriter)
            return self._value(self._made[term])
        return self._value(self._operation(term).results[_index(term)])

    def _value(self, value: object) -> Value:
        if not isinstance(value, Value):
            raise IRError(f"a result needs a value; it got {value!r}")
        return value

    def _operation(self, term: Term) -> Operation:
        node = node_of(term) or term
        if node in self._found:
            return self._found[node]  # type: ignore[no-any-return]
        if node not in self._made:
            assert isinstance(node, (OpTerm, Again))
            like = self._found[node.node] if isinstance(node, Again) else None
            attributes: dict[str, Attribute] = dict(like.attributes) if like is not None else {}
            attributes |= {name: _evaluate(entry, self._found) for name, entry in node.attributes.items()}
            name = like.name if like is not None else node_name(node)
            self._made[node] = self._builder.create(name, [self.value(o) for o in node.operands], attributes)
        return self._made[node]  # type: ignore[no-any-return]


def node_name(node: OpTerm | Again) -> str:
    """What an operation that is made is called."""
    assert isinstance(node, OpTerm)
    return node.names[0]


def _index(term: Term) -> int:
    return term.index if isinstance(term, OutTerm) else 0


def _quick_tests(root: Term) -> tuple[list[tuple[int, tuple[str, ...]]], list[tuple[int, int]]]:
    """Operands of ``root`` that are made by operations of these names, and pairs of operands that are one value."""
    node = node_of(root)
    if node is None or node.is_any_order:
        return [], []
    inner = [(i, made.names) for i, operand in enumerate(node.operands) if (made := node_of(operand)) is not None]
    last = {operand: i for i, operand in enumerate(node.operands)}
    return inner, [(i, last[operand]) for i, operand in enumerate(node.operands) if last[operand] != i]


def _fits(node: OpTerm, op: Operation, found: _Found) -> bool:
    """Whether the operation itself is as the pattern wants it."""
    if op.name not in node.names or len(op.operands_) != len(node.operands):
        return False
    for name, wanted in node.attributes.items():
        if name not in op.attributes:
            return False
        there = op.attributes[name]
        if isinstance(wanted, AttributeTerm):
            wanted = found.setdefault(wanted, there)
        if there is not wanted and attribute_key(there) != attribute_key(wanted):  # type: ignore[arg-type]
            return False
    return True


def _evaluate(term: object, found: _Found) -> Any:
    """What a term, or a plain object, stands for in a function's arguments or an attribute."""
    if isinstance(term, Native):
        return term.function(*(_evaluate(argument, found) for argument in term.arguments))
    if isinstance(term, OutTerm):
        return found[term.node].results[term.index]
    return found.get(term) if isinstance(term, Term) else term


# --- further roots ----------------------------------------------------------------------------------------------------


def _ascend(path: Path, found: _Found, index: int) -> list[Value]:
    """The values that result ``index`` of a further root may be."""
    node, position = path[0]
    term = node.operands[position]
    inner = node_of(term)
    level: list[Value] = [found[term] if inner is None else found[inner].results[_index(term)]]
    for step, (node, position) in enumerate(path, 1):
        users = [user for value in level for user in _readers(value, node, position)]
        wanted = index
        if step < len(path):
            above, at = path[step]
            wanted = _index(above.operands[at])
        level = [user.results[wanted] for user in users if wanted < len(user.results)]
    return level


def _readers(value: Value, node: OpTerm, position: int) -> list[Operation]:
    """Users of ``value`` that may be ``node``, of the first few."""
    positions = (0, 1) if node.is_any_order else (position,)
    first = islice(value.uses, _MOST_USERS)
    return [user for user, at in first if at in positions and user.name in node.names]


# --- places -----------------------------------------------------------------------------------------------------------


def _in_block(op: Operation, block: Block) -> Operation | None:
    """The operation of ``block`` that is ``op`` or holds it."""
    current: Operation | None = op
    while current is not None and current.parent is not block:
        current = current.parent_op
    return current


def _reads(found: _Found) -> list[Value]:
    """The values that a result may use."""
    values = [found[term] for term in found if isinstance(term, ValueTerm)]
    return values + [r for t in found if isinstance(t, OpTerm) and t.is_shared for r in found[t].results]


def _is_before(value: Value, op: Operation, rewriter: Rewriter) -> bool:
    made = value.defining_op
    return made is None or made.parent is not op.parent or rewriter.order.before(made, op)


def _may_move(value: Value) -> bool:
    """Whether what makes ``value`` may stand anywhere: a constant, for one."""
    made = value.defining_op
    return made is not None and not made.operands_ and not made.regions and is_pure(made)


def _hoist(value: Value, anchor: Operation, rewriter: Rewriter) -> None:
    made = value.defining_op
    assert made is not None and anchor.parent is not None
    anchor.parent.insert_before(anchor, made.detach())
    rewriter.order.forget(made)


def _by_users(found: _Found) -> list[OpTerm]:
    """The matched operations, each before those it reads."""
    nodes = [term for term in found if isinstance(term, OpTerm)]
    placed: dict[OpTerm, None] = {}

    def visit(node: OpTerm) -> None:
        for operand in node.operands:
            for part in operand.choices if isinstance(operand, Either) else (operand,):
                inner = node_of(part)
                if inner is not None and inner in found and inner not in placed:
                    visit(inner)
        placed[node] = None

    for node in nodes:
        if node not in placed:
            visit(node)
    return list(reversed(placed))
