"""NVRTC, NVIDIA's run-time compiler, from its wheel or from an installed toolkit. It needs no GPU and no driver."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from oarlock.errors import CompileError, DeviceError
from oarlock_cuda.library import Library

__all__ = ["architectures", "compile_cuda", "library", "version"]


@cache
def library() -> Library:
    """The library; raises DeviceError that says what to install."""
    return Library("nvrtc", ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"), "nvrtcGetErrorString")


@cache
def version() -> str:
    """NVRTC's version, such as "13.5"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


@cache
def architectures() -> tuple[int, ...]:
    """The architectures that machine code can be made for, ascending: 75 is sm_75."""
    count = ctypes.c_int()
    library().call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library().call("nvrtcGetSupportedArchs", numbers)
    return tuple(sorted(numbers))


def compile_cuda(source: str, arch: str, flags: Sequence[str]) -> tuple[bytes, str]:
    """Machine code of ``source`` for ``arch`` ("sm_90"), and the compiler's remarks.

    For a device that is newer than NVRTC: PTX for the newest architecture it knows, which the driver translates.
    Raises CompileError with the log and the source lines; DeviceError where NVRTC is missing or the device too old.
    """
    number, known = int(arch.removeprefix("sm_")), architectures()
    if number < known[0]:
        raise DeviceError(
            f"NVRTC {version()} compiles for sm_{known[0]} and newer, and the device is {arch}: install an older one, "
            "pip install nvidia-cuda-nvrtc-cu12"
        )
    binary = number in known
    target = arch if binary else f"compute_{max(n for n in known if n <= number)}"
    options = [f"--gpu-architecture={target}", *flags]
    program = ctypes.c_void_p()
    library().call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
    try:
        given = (ctypes.c_char_p * len(options))(*(each.encode() for each in options))
        refused = library().refused("nvrtcCompileProgram", program, len(options), given)
        log = _text(program, "ProgramLog")
        if refused:
            raise CompileError.from_log(log or refused, source)
        return _bytes(program, "CUBIN" if binary else "PTX"), log
    finally:
        library().refused("nvrtcDestroyProgram", ctypes.byref(program))


def _bytes(program: Any, what: str) -> bytes:
    size = ctypes.c_size_t()
    library().call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    library().call(f"nvrtcGet{what}", program, buffer)
    return buffer.raw


def _text(program: Any, what: str) -> str:
    return _bytes(program, what).rstrip(b"\0").decode("utf-8", "replace").strip()
