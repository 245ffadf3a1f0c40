"""Checks what a driver gives back, so that a slip of its author is told where it happens, with the way out."""

from __future__ import annotations

from typing import Any

from oarlock.errors import DeviceError
from oarlock.hal import Adapter, Driver, Handle
from oarlock.registry.methods import abstract_hint, described, method_problems

__all__ = ["check_bytes", "check_driver", "check_handle", "check_kind", "check_nothing", "hint_for"]

_MANDATORY = ("close", "allocate", "free", "copy_in", "copy_out", "copy", "synchronize", "load", "launch")


def check_driver(index: int, driver: Any) -> None:
    """Raise DeviceError unless ``driver`` is what ``open(index)`` must return, with methods that can be called."""
    if not isinstance(driver, Driver):
        if isinstance(driver, type):
            text = f"the class {driver.__name__}; expected an object: return {driver.__name__}(...)"
        else:
            given = "nothing (None)" if driver is None else f"a {type(driver).__name__}"
            text = f"{given}; expected an oarlock.hal.Driver: return an object of a class that derives from it"
        raise DeviceError(f"open({index}) returned {text}")
    for problem in method_problems(driver, [(Driver, name) for name in _MANDATORY]):
        raise DeviceError(f"the driver's method {problem}")


def check_handle(method: str, value: Handle) -> Handle:
    """``value`` as a handle that ``method`` gives out; raises DeviceError for what cannot be one."""
    if value is None or isinstance(value, bytes | str):
        given = "nothing (None)" if value is None else f"{type(value).__name__}, which is content and no handle"
        raise DeviceError(
            f"{method} returned {given}; expected a handle: return the object by which the driver knows what it made"
        )
    return value


def check_bytes(value: Any) -> bytes:
    """``value`` as what ``compile`` must return."""
    if not isinstance(value, bytes):
        way = "return text.encode()" if isinstance(value, str) else "return bytes(...) of the compiled program"
        raise DeviceError(
            f"compile returned {type(value).__name__}; expected bytes, which go to disk and to load: {way}"
        )
    return value


def check_kind(method: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    """Raise DeviceError unless ``value`` is of a type that ``method`` may return."""
    if not isinstance(value, kind):
        raise DeviceError(
            f"{method} returned {value!r:.60} ({type(value).__name__}); expected {expected}: see {method} in "
            f"docs/contract.md"
        )


def check_nothing(method: str, value: object) -> None:
    """Raise DeviceError when a method that returns nothing did: a status, as a rule, that nobody would look at."""
    if value is not None:
        way = "raise DeviceTimeoutError when the deadline passes" if method == "synchronize" else "raise LaunchError"
        raise DeviceError(
            f"{method} returned {value!r:.60}; expected nothing (None): for a failure, {way}, with a text for a person"
        )


def hint_for(error: Exception) -> str:
    """What the author of an adapter may do about an exception of a foreign type."""
    found = abstract_hint(error, Driver, Adapter)
    if found:
        return found
    if isinstance(error, NotImplementedError):
        return f"write the method: {described(Driver, 'launch')} and the others are in docs/contract.md"
    return "an adapter raises DeviceError or a kind of it (LaunchError, OutOfMemoryError); its traceback is the cause"
