"""The text of a declarative rule, for people: its operations in order, then constraints, then what replaces what."""

from __future__ import annotations

from oarlock.ir.drr import Again, AttributeTerm, Built, Either, Native, OpTerm, OutTerm, Rule, Term, ValueTerm
from oarlock.ir.printer import attribute_text

__all__ = ["print_rule"]


def print_rule(rule: Rule) -> str:
    """``rule`` as text: ``%x`` are values, ``$p`` attributes, ``f(...)`` Python functions."""
    writer = _Writer()
    roots = list(map(writer.text, rule.roots))
    lines = [f"rule {rule.name}", *writer.take()]
    if rule.where:
        constraints = [writer.text(constraint) for constraint in rule.where]
        lines += ["where", *(f"  {text}" for text in constraints)]
    results = list(map(writer.text, rule.results))
    lines += ["becomes", *writer.take()]
    lines += [f"  {root} := {result}" for root, result in zip(roots, results, strict=True)]
    return "\n".join(lines)


class _Writer:
    """Numbers operations as it meets them."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._numbers: dict[Term, int] = {}

    def take(self) -> list[str]:
        """The lines written since the last time."""
        lines, self._lines = self._lines, []
        return lines

    def text(self, term: object) -> str:
        """What ``term`` is called where it is used; the operations that it needs are written first."""
        if isinstance(term, ValueTerm):
            return f"%{term.name}"
        if isinstance(term, AttributeTerm):
            return f"${term.name}"
        if isinstance(term, (Native, Built)):
            name = getattr(term.function, "__name__", type(term.function).__name__)
            return f"{name}({', '.join(map(self.text, term.arguments))})"
        if isinstance(term, Either):
            return f"({' | '.join(map(self.text, term.choices))})"
        if isinstance(term, OutTerm):
            return f"{self.text(term.node)}[{term.index}]"
        if isinstance(term, (OpTerm, Again)):
            if term not in self._numbers:
                self._write(term)
            return f"%{self._numbers[term]}"
        return attribute_text(term)  # type: ignore[arg-type]

    def _write(self, term: OpTerm | Again) -> None:
        operands = ", ".join(map(self.text, term.operands))
        attributes = ", ".join(f"{name} = {self.text(entry)}" for name, entry in sorted(term.attributes.items()))
        name = f"again {self.text(term.node)}" if isinstance(term, Again) else " | ".join(term.names)
        self._numbers[term] = len(self._numbers)
        line = f"  %{self._numbers[term]} = {name}({operands})" + (f" {{{attributes}}}" if attributes else "")
        if isinstance(term, OpTerm):
            line += ", in any order" * term.is_any_order + ", shared" * term.is_shared
        self._lines.append(line)
