"""The register of collective cases: functions with their id, their process, and what a device must have for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from oarlock.runtime import Device

if TYPE_CHECKING:
    from oarlock_conformance.cases.collectives.party import Party

__all__ = ["CASES", "CollectiveCase", "absent", "collective_case"]

Check: TypeAlias = "Callable[..., None]"
Needs: TypeAlias = "Callable[[Device], str]"


@dataclass(frozen=True, slots=True)
class CollectiveCase:
    """One case: ``check(party, *arguments)``. ``unsupported(device)`` says why it does not apply, or is empty."""

    id: str
    group: str
    contract: str
    unsupported: Needs
    check: Check
    arguments: tuple[Any, ...] = ()

    def run(self, party: Party) -> None:
        self.check(party, *self.arguments)


CASES: dict[str, CollectiveCase] = {}
"""Every case by id, in the order of definition."""


def absent(*capabilities: str) -> Needs:
    """What a device lacks of ``capabilities`` and "two_devices" (of its adapter), as a sentence."""

    def missing(device: Device) -> Iterator[str]:
        for name in capabilities:
            if name == "two_devices":
                if len(device.adapter.devices()) < 2:
                    yield "the adapter has one device"
            elif name not in device.info.capabilities:
                yield f"capability {name} is not declared"

    return lambda device: "; ".join(missing(device))


def collective_case(
    identity: str, contract: str, *capabilities: str, unsupported: Needs | None = None, arguments: tuple[Any, ...] = ()
) -> Callable[[Check], Check]:
    """Register a function as the case ``identity`` ("failures.thread/after_success"); its process is the first word."""

    def register(check: Check) -> Check:
        if identity in CASES:
            raise ValueError(f"two collective cases are called {identity}")
        group = identity.partition(".")[0]
        CASES[identity] = CollectiveCase(
            identity, group, contract, unsupported or absent(*capabilities), check, arguments
        )
        return check

    return register
