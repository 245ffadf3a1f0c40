"""Decides whether an adapter and this core speak the same contract; a refusal names both numbers."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from oarlock.errors import ContractVersionError, PluginError
from oarlock.hal import CONTRACT, Adapter

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
    no_adapter = f"{name} ({owner}): its hook returned {type(value).__name__}, which is no oarlock.hal.Adapter"
    declared = getattr(value, "contract", None)
    if not (isinstance(declared, tuple) and len(declared) == 2 and all(type(part) is int for part in declared)):
        raise PluginError(no_adapter)
    both = f"{name} ({owner}) was written for contract {contract_text(declared)}; Oarlock {CORE_VERSION} speaks "
    both += contract_text(CONTRACT)
    if declared[0] < CONTRACT[0]:
        raise ContractVersionError(f"{both}: install a newer {name}, or an Oarlock of contract {declared[0]}")
    if declared > CONTRACT:
        raise ContractVersionError(f"{both}: install a newer Oarlock, or an older {name}")
    if not isinstance(value, Adapter):
        raise PluginError(no_adapter)
