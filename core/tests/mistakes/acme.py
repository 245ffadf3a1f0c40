"""An adapter of the simplest kind: kernels and memory of the host, done when the call returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oarlock.errors import LaunchError
from oarlock.hal import Adapter, DeviceInfo, Driver
from oarlock.plugin import hookimpl
from oarlock.target import Limits, Target
from oarlock_sim.compiler import compile_source, open_library

LANGUAGE = "c99"
FLAGS = ("-std=c99", "-O1", "-ffp-contract=off", "-fPIC", "-shared")


class AcmeDriver(Driver):
    def __init__(self) -> None:
        self.programs: list[Any] = []

    def close(self) -> None:
        self.programs.clear()

    def allocate(self, nbytes: int) -> Any:
        return bytearray(nbytes)

    def free(self, handle: Any) -> None:
        if handle in self.programs:
            self.programs.remove(handle)

    def copy_in(self, stream: Any, dst: Any, dst_offset: int, src: memoryview) -> None:
        memoryview(dst)[dst_offset : dst_offset + src.nbytes] = src

    def copy_out(self, stream: Any, dst: memoryview, src: Any, src_offset: int) -> None:
        dst[:] = memoryview(src)[src_offset : src_offset + dst.nbytes]

    def copy(self, stream: Any, dst: Any, dst_offset: int, src: Any, src_offset: int, nbytes: int) -> None:
        memoryview(dst)[dst_offset : dst_offset + nbytes] = memoryview(src)[src_offset : src_offset + nbytes]

    def synchronize(self, stream: Any, timeout_s: float) -> None:
        return None

    def load(self, executable: bytes, signatures: Sequence[Any]) -> Any:
        library = open_library(LANGUAGE, executable, [signature.name for signature in signatures])
        self.programs.append(library)
        return library

    def launch(
        self, stream: Any, program: Any, entry: str, grid: Any, block: Any, buffers: Sequence[Any], scalars: bytes
    ) -> None:
        import ctypes

        kernel = program.kernels.get(entry)
        if kernel is None:
            raise LaunchError(f"no kernel {entry}")
        places = [ctypes.addressof(ctypes.c_char.from_buffer(memory)) + base for memory, base, _ in buffers]
        corner = ctypes.c_uint32 * 3
        kernel((ctypes.c_void_p * len(places))(*places), scalars, corner(0, 0, 0), corner(*grid))


class AcmeAdapter(Adapter):
    contract = (1, 0)
    version = "0.3"

    def devices(self) -> list[DeviceInfo]:
        target = Target(
            LANGUAGE,
            "acme-1",
            FLAGS,
            storage=(("bool", "uint32"),),
            limits=Limits(max_buffers=16, local_memory=1 << 14, max_allocation=1 << 30),
        )
        return [DeviceInfo("Acme 1", "acme", "acme driver 4.2", 1 << 30, target, frozenset())]

    def open(self, index: int) -> Driver:
        return AcmeDriver()

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        return compile_source(target, source, entries)


@hookimpl
def oarlock_adapter() -> AcmeAdapter:
    return AcmeAdapter()
