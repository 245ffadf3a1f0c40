"""NVRTC, NVIDIA's run-time compiler, from its wheel or from an installed toolkit. It needs no GPU and no driver."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from oarlock.errors import CompileError, DeviceError

__all__ = ["architectures", "compile_cuda", "library", "version"]

_INSTALL = "install it: pip install oarlock[cuda], or NVIDIA's CUDA toolkit"
_WHEELS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")


def _candidates() -> Iterator[str]:
    """Where NVRTC may lie: in a wheel, newest packaging first, then where the system's loader looks."""
    for wheel in _WHEELS:
        try:
            found = files(wheel) or []
        except PackageNotFoundError:
            continue
        yield from (
            str(Path(str(each.locate())))
            for each in found
            if each.name.startswith(("libnvrtc.so", "nvrtc64")) and "builtins" not in each.name
        )
    yield from filter(None, [ctypes.util.find_library("nvrtc")])
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


@cache
def library() -> Any:
    """The library; raises DeviceError that says where it was looked for, and what to install."""
    tried: list[str] = []
    for path in _candidates():
        try:
            found = ctypes.CDLL(path)
        except OSError as error:
            tried.append(f"{path} ({error})")
            continue
        found.nvrtcGetErrorString.restype = ctypes.c_char_p
        return found
    raise DeviceError(f"NVRTC cannot be loaded: {'; '.join(tried)}. {_INSTALL}")


def _call(name: str, *arguments: Any) -> None:
    status = getattr(library(), name)(*arguments)
    if status:
        raise DeviceError(f"{name}: {library().nvrtcGetErrorString(status).decode()}")


@cache
def version() -> str:
    """NVRTC's version, such as "13.5"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


@cache
def architectures() -> tuple[int, ...]:
    """The architectures that machine code can be made for, ascending: 75 is sm_75."""
    count = ctypes.c_int()
    _call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    _call("nvrtcGetSupportedArchs", numbers)
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
    _call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
    try:
        status = library().nvrtcCompileProgram(
            program, len(options), (ctypes.c_char_p * len(options))(*(each.encode() for each in options))
        )
        log = _text(program, "ProgramLog")
        if status:
            raise CompileError.from_log(log or library().nvrtcGetErrorString(status).decode(), source)
        return _bytes(program, "CUBIN" if binary else "PTX"), log
    finally:
        library().nvrtcDestroyProgram(ctypes.byref(program))


def _bytes(program: Any, what: str) -> bytes:
    size = ctypes.c_size_t()
    _call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _call(f"nvrtcGet{what}", program, buffer)
    return buffer.raw


def _text(program: Any, what: str) -> str:
    return _bytes(program, what).rstrip(b"\0").decode("utf-8", "replace").strip()
