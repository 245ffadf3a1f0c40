"""Decides whether an adapter and this core speak the same contract; a refusal names both numbers."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from oarlock.errors import ContractVersionError, PluginError
from oarlock.hal import CONTRACT, Adapter
from oarlock.registry.methods import method_problems

__all__ = ["CORE_VERSION", "check_contract", "contract_text"]


def _installed() -> str:
    try:
        return version("oarlock")
    except PackageNotFoundError:  # run from a folder of sources
        return "unknown"


CORE_VERSION = _installed()
"""The version of this core, as it was installed."""


def contract_text(contract: Any) -> str:
    """``(1, 0)`` as ``1.0``; anything else as it is."""
    return ".".join(map(str, contract)) if isinstance(contract, tuple) else repr(contract)


def check_contract(name: str, owner: str, value: Any) -> None:
    """Accept an Adapter of the same major version and a minor version that is not newer than the core's.

    The number is compared before anything else is looked at, so an adapter of another contract gets this answer.
    """
    who = f"{name} ({owner})"
    no_adapter = f"{who}: its hook oarlock_adapter returned {_given(value)}"
    declared = getattr(value, "contract", None)
    if not (isinstance(declared, tuple) and len(declared) == 2 and all(type(part) is int for part in declared)):
        if isinstance(value, Adapter):
            raise PluginError(
                f"{who}: its contract is {declared!r}; expected the version that it was written for, (major, minor): "
                f"write contract = {CONTRACT}"
            )
        raise PluginError(no_adapter)
    both = f"{name} ({owner}) was written for contract {contract_text(declared)}; Oarlock {CORE_VERSION} speaks "
    both += contract_text(CONTRACT)
    if declared[0] < CONTRACT[0]:
        raise ContractVersionError(f"{both}: install a newer {name}, or an Oarlock of contract {declared[0]}")
    if declared > CONTRACT:
        raise ContractVersionError(f"{both}: install a newer Oarlock, or an older {name}")
    if not isinstance(value, Adapter):
        raise PluginError(no_adapter)
    for problem in method_problems(
        value, [(Adapter, method) for method in ("devices", "open", "compile", "cache_key")]
    ):
        raise PluginError(f"{who}: the adapter's method {problem}")


def _given(value: Any) -> str:
    """What a hook returned in place of an adapter, and what it should return."""
    if isinstance(value, type):
        return f"the class {value.__name__}, which is no object: return {value.__name__}()"
    return (
        f"{type(value).__name__}, which is no oarlock.hal.Adapter; expected one: return an object of a class that "
        f"derives from it"
    )
