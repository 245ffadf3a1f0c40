"""Checks what an adapter tells about its devices: the types, the words, and limits that a launch could ever meet."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from oarlock import dtypes
from oarlock.errors import DeviceError
from oarlock.hal import DeviceInfo
from oarlock.target import Limits, Target

__all__ = ["check_devices"]

_DTYPES = {dtype.name for dtype in dtypes.ALL}
_NEEDED = ("int32", "uint32", "float32")
_LEAST = {
    "max_threads": 1, "vector_width": 1, "max_buffers": 1, "max_scalar_bytes": 1, "max_allocation": 1,
    "max_binding": 1, "copy_alignment": 1, "local_memory": 0,
}  # fmt: skip
"""The least that a limit may be."""


def check_devices(name: str, value: Any) -> list[DeviceInfo]:
    """``value`` as what ``devices()`` of adapter ``name`` must give; raises DeviceError that says what to change."""
    if not isinstance(value, list | tuple):
        given = "nothing (None)" if value is None else f"{type(value).__name__}"
        raise DeviceError(
            f"{name}: devices() returned {given}; expected a list of oarlock.hal.DeviceInfo: return [] where there is "
            f"no device"
        )
    for index, info in enumerate(value):
        where = f"{name}: devices() gives for {name}:{index}"
        if not isinstance(info, DeviceInfo):
            text = f"the class {info.__name__}" if isinstance(info, type) else f"{type(info).__name__} {info!r:.60}"
            raise DeviceError(f"{where} {text}; expected an oarlock.hal.DeviceInfo: make one for each device")
        for problem in _problems(info):
            raise DeviceError(f"{where} {problem}")
    return list(value)


def _problems(info: DeviceInfo) -> Iterator[str]:
    """What is wrong with a DeviceInfo, each with what was expected."""
    for field in ("name", "vendor", "driver"):
        if not isinstance(getattr(info, field), str):
            yield f"{field} {getattr(info, field)!r}; expected a text: correct DeviceInfo.{field}"
    if not _whole(info.memory) or info.memory < 1:
        yield f"memory {info.memory!r}; expected a number of bytes above 0: correct DeviceInfo.memory"
    if not isinstance(info.capabilities, frozenset | set):
        yield (
            f"capabilities {info.capabilities!r} ({type(info.capabilities).__name__}); expected a frozenset of words: "
            f'write capabilities=frozenset({{"fill"}})'
        )
    if info.failure_scope not in ("stream", "device"):
        yield f'failure_scope {info.failure_scope!r}; expected "stream" or "device": correct DeviceInfo.failure_scope'
    if not isinstance(info.target, Target):
        yield f"target {type(info.target).__name__}; expected an oarlock.target.Target: correct DeviceInfo.target"
    else:
        yield from _target_problems(info.target)
        yield from _limit_problems(info.target.limits)


def _target_problems(target: Target) -> Iterator[str]:
    if not isinstance(target.language, str):
        yield f"Target.language {target.language!r}; expected the name of a renderer, such as 'c99'"
    for field in ("compute", "flush_to_zero", "abilities"):
        if not isinstance(getattr(target, field), frozenset):
            yield f"Target.{field} of type {type(getattr(target, field)).__name__}; expected a frozenset of names"
    words = [("compute", name) for name in sorted(target.compute)]
    words += [("flush_to_zero", name) for name in sorted(target.flush_to_zero)]
    words += [("storage", name) for pair in target.storage for name in pair]
    for field, name in words:
        if name not in _DTYPES:
            near = get_close_matches(str(name), _DTYPES, 1, 0.4)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(_DTYPES))}"
            yield f"a dtype {name!r} in Target.{field}, which does not exist; expected dtype names: {hint}"
    missing = [name for name in _NEEDED if name not in target.compute]
    if missing:
        yield f"a Target that does not compute {', '.join(missing)}; expected these at least: add them to compute"
    if target.index_dtype not in target.compute:
        yield f"Target.index_dtype {target.index_dtype!r}; expected one of Target.compute: int32 is always there"


def _limit_problems(limits: Limits) -> Iterator[str]:
    for field in ("max_block", "max_grid"):
        sizes = getattr(limits, field)
        if not (isinstance(sizes, tuple) and len(sizes) == 3 and all(_whole(size) and size >= 1 for size in sizes)):
            yield f"Limits.{field} {sizes!r}; expected three whole numbers from 1 on, for x, y and z: correct it"
    for field, least in _LEAST.items():
        size = getattr(limits, field)
        if not _whole(size) or size < least:
            yield f"Limits.{field} {size!r}; expected a whole number, at least {least}: correct Limits.{field}"
    for field in ("copy_alignment", "binding_alignment"):
        size = getattr(limits, field)
        if size is not None and (not _whole(size) or size < 1 or size & (size - 1)):
            yield f"Limits.{field} {size!r}; expected a power of two: correct Limits.{field}"


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
