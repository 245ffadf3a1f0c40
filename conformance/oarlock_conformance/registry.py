"""The register of runtime cases: functions marked with their id, the sentence they check and the ability they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from oarlock_conformance.bench import Bench

__all__ = ["RUNTIME", "RuntimeCase", "runtime_case"]

Check: TypeAlias = "Callable[[Bench], None]"


@dataclass(frozen=True, slots=True)
class RuntimeCase:
    """One runtime case: ``needs`` names the capabilities without which it does not apply, ``threads`` in a block, or
    ``two_devices`` of the adapter."""

    id: str
    contract: str
    needs: tuple[str, ...]
    check: Check

    @property
    def group(self) -> str:
        """The process that it runs in: the first word of its id."""
        return self.id.partition(".")[0]


RUNTIME: dict[str, RuntimeCase] = {}
"""Every runtime case by id, in the order of definition."""


def runtime_case(identity: str, contract: str, *needs: str) -> Callable[[Check], Check]:
    """Register a function as the case ``identity`` ("memory.copy_out/offset"), which checks ``contract``.

    The function takes a Bench and raises Failure; any other exception fails the case too.
    """

    def register(check: Check) -> Check:
        if identity in RUNTIME:
            raise ValueError(f"two runtime cases are called {identity}")
        RUNTIME[identity] = RuntimeCase(identity, contract, needs, check)
        return check

    return register
