"""Checks that the methods of an adapter or a driver take the arguments that the contract passes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

__all__ = ["abstract_hint", "described", "method_problems"]


def described(contract: type, method: str) -> str:
    """``copy_in(stream, dst, dst_offset, src)``: a method as the contract writes it."""
    names = list(inspect.signature(getattr(contract, method)).parameters)[1:]
    return f"{method}({', '.join(names)})"


def method_problems(value: object, wanted: Iterable[tuple[type, str]]) -> list[str]:
    """What is wrong with the methods ``wanted`` (class of the contract, name) of ``value``: one sentence each."""
    found = (_problem(value, contract, name) for contract, name in wanted)
    return [text for text in found if text]


def _problem(value: object, contract: type, name: str) -> str:
    method = getattr(value, name)
    if inspect.iscoroutinefunction(method):
        return f"{name} is async; the contract calls {described(contract, name)} and takes what it returns: write `def`"
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # a method of a native module need not tell
        return ""
    passed = list(inspect.signature(getattr(contract, name)).parameters)[1:]
    try:
        signature.bind(*passed)
    except TypeError:
        has = ", ".join(signature.parameters)
        text = f"{name}({has}) cannot take the {len(passed)} arguments of the contract"
        return f"{text}: {described(contract, name)}; change its parameters"
    return ""


def abstract_hint(error: BaseException, *contracts: type) -> str:
    """How to go on when an object could not be made because methods are missing; empty for any other error."""
    text = str(error)
    if not isinstance(error, TypeError) or "abstract" not in text:
        return ""
    missing = [
        described(contract, name)
        for contract in contracts
        for name in sorted(getattr(contract, "__abstractmethods__", ()))
        if name in text.replace("'", " ").replace(",", " ").split()
    ]
    return f"define {', '.join(missing)}, as in docs/contract.md" if missing else ""
