"""NVIDIA's libraries for the host, NVRTC and cuBLAS: from their wheels, or from an installed toolkit."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, files
from typing import Any

from oarlock.errors import DeviceError

__all__ = ["Library"]


class Library:
    """A library whose functions return a status, 0 when all is well. ``stem`` names its file, as in libnvrtc.so.13.

    ``explain`` is the function that gives a status as text; ``failing`` is the error that a failed call raises.
    Raises DeviceError, with the loader's words and what to install, where it cannot be loaded.
    """

    def __init__(self, stem: str, wheels: Sequence[str], explain: str, failing: type[Exception] = DeviceError) -> None:
        self.functions, self.failing = _load(stem, wheels), failing
        self.explain = getattr(self.functions, explain)
        self.explain.restype = ctypes.c_char_p

    def refused(self, name: str, *arguments: Any) -> str:
        """Call a function; why it failed, or nothing."""
        status = getattr(self.functions, name)(*arguments)
        return f"{name}: {self.explain(status).decode()}" if status else ""

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raises ``failing`` where it fails."""
        if text := self.refused(name, *arguments):
            raise self.failing(text)


def _load(stem: str, wheels: Sequence[str]) -> Any:
    tried: list[str] = []
    for path in _candidates(stem, wheels):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
    raise DeviceError(f"lib{stem} cannot be loaded ({tried[0]}): pip install {wheels[0]}, or NVIDIA's CUDA toolkit")


def _candidates(stem: str, wheels: Sequence[str]) -> Iterator[str]:
    """Where it may lie: in a wheel, newest packaging first, then where the system's loader looks."""
    for wheel in wheels:
        try:
            found = files(wheel) or []
        except PackageNotFoundError:
            continue
        yield from (str(each.locate()) for each in found if each.name.startswith((f"lib{stem}.so", f"{stem}64")))
    yield from filter(None, [ctypes.util.find_library(stem)])
    yield from (f"lib{stem}.so.{version}" for version in (13, 12))
