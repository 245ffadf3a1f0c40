"""Compiling and loading kernels: C99 by the machine's C compiler, LLVM by llvmlite where there is none."""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import hashlib
import platform
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from oarlock.errors import CompileError, DeviceError
from oarlock.target import Target

__all__ = ["Library", "compile_source", "find_compiler", "open_library", "toolchain"]

_STRICT = ("-Wl,-z,defs", "-Werror=implicit-function-declaration")
_TIMEOUT_S = 120


@functools.cache
def find_compiler() -> str | None:
    """The path of a C compiler, or None."""
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


@functools.cache
def toolchain(language: str) -> str:
    """The compiler's version and the processor that it compiles for; raises DeviceError where it is missing."""
    if language == "llvm":
        binding = _llvm()
        return f"LLVM {binding.llvm_version_info} for {binding.get_host_cpu_name()}"
    compiler = find_compiler()
    if compiler is None:
        raise DeviceError("no C compiler (cc, gcc or clang) is on the path; install one, or pip install oarlock[cpu]")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    return f"{version.stdout.splitlines()[0]} for {_processor()}"


def compile_source(target: Target, source: str, entries: Sequence[str]) -> bytes:
    """A shared object (c99) or an object file (llvm); raises CompileError with the log and the lines it is about."""
    toolchain(target.language)
    data = _compile_llvm(source) if target.language == "llvm" else _compile_c(source, target.flags)
    open_library(target.language, data, entries, source)  # shows a missing entry now rather than in load
    return data


class Library:
    """Loaded kernels by name, called with (buffers, scalars, begin, end). Unloaded when the last reference is gone."""

    def __init__(self, addresses: dict[str, int], unload: Callable[[], None]) -> None:
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
        self.kernels = {name: prototype(address) for name, address in addresses.items()}
        weakref.finalize(self, unload).atexit = False  # at exit a stream's thread may still be inside


def open_library(language: str, data: bytes, entries: Sequence[str], source: str = "") -> Library:
    """Load what ``compile_source`` made; raises CompileError."""
    return (_open_llvm if language == "llvm" else _open_c)(data, entries, source)


def _compile_c(source: str, flags: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="oarlock-sim-") as folder:
        text, built = Path(folder, "kernels.c"), Path(folder, "kernels.so")
        text.write_text(source)
        command = [str(find_compiler()), *flags, *_STRICT, "-o", str(built), str(text), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, cwd=folder)
        if done.returncode:
            raise CompileError.from_log(done.stderr.replace(folder + "/", ""), source)
        return built.read_bytes()


def _open_c(data: bytes, entries: Sequence[str], source: str) -> Library:
    with tempfile.NamedTemporaryFile(prefix="oarlock-sim-", suffix=".so") as file:
        file.write(data)
        file.flush()
        try:
            library = ctypes.CDLL(file.name)
        except OSError as error:
            raise CompileError.from_log(f"the shared object cannot be loaded: {error}", source) from error

    def unload() -> None:
        _ctypes.dlclose(library._handle)

    addresses: dict[str, int] = {}
    for entry in entries:
        try:
            addresses[entry] = ctypes.cast(library[entry], ctypes.c_void_p).value or 0
        except AttributeError as error:
            unload()
            raise CompileError.from_log(f"the source does not define the kernel {entry}", source) from error
    return Library(addresses, unload)


@functools.cache
def _llvm() -> ModuleType:
    try:
        binding = import_module("llvmlite.binding")
    except (ImportError, OSError) as error:
        text = f"there is neither a C compiler nor llvmlite ({error}); install gcc, or pip install oarlock[cpu]"
        raise DeviceError(text) from error
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


def _compile_llvm(source: str) -> bytes:
    binding = _llvm()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), opt=2, reloc="pic", codemodel="small"
    )
    try:
        module = binding.parse_assembly(source)
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        module.verify()
        return bytes(machine.emit_object(module))
    except RuntimeError as error:
        raise CompileError.from_log(str(error), source) from error


def _open_llvm(data: bytes, entries: Sequence[str], source: str) -> Library:
    binding = _llvm()
    jit = binding.create_lljit_compiler(suppress_errors=True)
    builder = binding.JITLibraryBuilder().add_object_img(data).add_current_process()
    for entry in entries:
        builder.export_symbol(entry)
    try:
        tracker: Any = builder.link(jit, "kernels")
    except RuntimeError as error:
        raise CompileError.from_log(f"the object code cannot be linked: {error}", source) from error

    def unload() -> None:
        tracker.close()
        jit.close()

    return Library({entry: tracker[entry] for entry in entries}, unload)


def _processor() -> str:
    """The processor as far as generated code depends on it, for -march=native."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), lines[0])
    return f"{platform.machine()}-{hashlib.sha256(flags.encode()).hexdigest()[:8]}"
