"""The table of ONNX operators: one function each, keyed by domain and operator type."""

from __future__ import annotations

from collections.abc import Callable

from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.node import Item, Node

__all__ = ["OPERATORS", "Implementation", "normal_domain", "operator"]

Implementation = Callable[[GraphBuilder, Node], "Item | list[Item] | list[Value]"]
"""Emits a node; gives its one output, or a list of its outputs."""

OPERATORS: dict[tuple[str, str], Implementation] = {}
"""(domain, operator type) -> implementation. It looks at ``Node.version`` where versions differ."""


def normal_domain(domain: str) -> str:
    """``ai.onnx`` and the empty domain are one."""
    return "" if domain == "ai.onnx" else domain


def operator(*names: str, domain: str = "") -> Callable[[Implementation], Implementation]:
    """Register a function for the operators called ``names``."""

    def register(function: Implementation) -> Implementation:
        for name in names:
            if (domain, name) in OPERATORS:
                raise ValueError(f"operator {name} is registered twice")
            OPERATORS[domain, name] = function
        return function

    return register
