"""The driver's own calls that pycuda has no binding for, or a wrong one, through ctypes."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import pycuda.driver as cuda

__all__ = ["call", "leave_context", "refused"]


@cache
def _library() -> Any:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def refused(name: str, *arguments: Any) -> int:
    """Call the driver; returns its status, 0 when all is well."""
    return int(getattr(_library(), name)(*arguments))


def call(name: str, *arguments: Any) -> None:
    """Call the driver; raises pycuda's error with the driver's text."""
    if status := refused(name, *arguments):
        text = ctypes.c_char_p()
        refused("cuGetErrorString", status, ctypes.byref(text))
        raise cuda.Error(f"{name} failed: {(text.value or b'unknown error').decode()}")


def leave_context(context: Any) -> None:
    """Release a primary context for good. pycuda keeps one that it releases current, with nobody to take it off."""
    context.push()
    context.detach()
    if cuda.Context.get_current() is None:
        refused("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
