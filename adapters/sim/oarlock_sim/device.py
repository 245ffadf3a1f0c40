"""The two simulated devices: one roomy, with every optional ability, and one as tight as real ones get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from oarlock import dtypes
from oarlock.errors import DeviceNotFoundError
from oarlock.hal import Adapter, DeviceInfo, Driver
from oarlock.target import Limits, Target
from oarlock_sim import faults
from oarlock_sim.communication import Collectives
from oarlock_sim.compiler import compile_source, find_compiler, toolchain

__all__ = ["SimAdapter", "SimDriver"]

_ROOMY = frozenset(
    {
        "streams", "elapsed_time", "host_callbacks", "fill", "peer_copy", "memory_info", "reset", "plans",
        "communication",
    }
)  # fmt: skip
_TIGHT = frozenset({"communication"})
_SMALL = ("int8", "int16", "uint8", "uint16")


class SimDriver(Collectives, Driver):
    """One open simulated device."""

    def close(self) -> None:
        self.abandon_groups()
        if self.close_streams():  # else something still runs: its memory stays, unreachable
            self.drop_objects()

    def reset(self) -> None:
        """Start anew, as after opening: handles die, a lost device is back (capability ``reset``)."""
        self.check("reset", "reset")
        self.abandon_groups()
        self.restart_streams()
        self.drop_objects()


class SimAdapter(Adapter):
    """The simulator. ``language`` of kernels: c99 where there is a C compiler, unless it is given. ``plan``: the
    faults of the devices that this object opens."""

    version = "0.1.0"

    def __init__(self, language: Literal["c99", "llvm"] | None = None, plan: faults.Plan | None = None) -> None:
        self.language = language or ("c99" if find_compiler() else "llvm")
        self.plan = plan

    def devices(self) -> list[DeviceInfo]:
        faults.called("devices", self.plan)
        return [
            self._info("roomy", 4 << 30, self._roomy(), _ROOMY),
            self._info("tight", 1 << 30, self._tight(), _TIGHT),
        ]

    def open(self, index: int) -> Driver:
        faults.called("open", self.plan)
        found = self.devices()
        if not 0 <= index < len(found):
            names = " and ".join(f"sim:{i} ({info.name})" for i, info in enumerate(found))
            raise DeviceNotFoundError(f"no device sim:{index}; there are {names}")
        return SimDriver(found[index], self.plan)

    def compile(self, target: Target, source: str, entries: Sequence[str]) -> bytes:
        faults.called("compile", self.plan)
        return compile_source(target, source, entries)

    def cache_key(self, target: Target) -> str:
        return f"{self.version} {toolchain(target.language)}"

    def _info(self, name: str, memory: int, target: Target, capabilities: frozenset[str] = frozenset()) -> DeviceInfo:
        return DeviceInfo(
            name=f"simulated {name} device",
            vendor="oarlock",
            driver=toolchain(self.language),
            memory=memory,
            target=target,
            capabilities=capabilities,
            is_accelerator=False,  # it computes on the host: nobody who wants a fast device wants this one
            notes=("a simulation that enforces its declared limits",),
        )

    def _flags(self) -> tuple[str, ...]:
        if self.language == "llvm":
            return ()
        from oarlock.codegen.render.c99 import FLAGS

        return FLAGS

    def _roomy(self) -> Target:
        return Target(
            language=self.language,
            arch="sim-roomy",
            flags=self._flags(),
            compute=frozenset(dtype.name for dtype in dtypes.ALL) - {"float16", "bfloat16"},
            storage=(("bool", "uint8"), ("float16", "uint16"), ("bfloat16", "uint16")),
            limits=Limits(
                max_grid=(2**31 - 1,) * 3,
                local_memory=64 << 10,
                vector_width=8,
                max_allocation=4 << 30,
                max_binding=4 << 30,
            ),
        )

    def _tight(self) -> Target:
        return Target(
            language=self.language,
            arch="sim-tight",
            flags=self._flags(),
            storage=(("bool", "int32"), *((name, name.rstrip("0123456789") + "32") for name in _SMALL)),
            limits=Limits(
                max_grid=(65535,) * 3,
                local_memory=16 << 10,
                max_buffers=8,
                max_scalar_bytes=256,
                max_allocation=256 << 20,
                max_binding=256 << 20,
                binding_alignment=256,
                copy_alignment=4,
                exclusive_binding=True,
            ),
        )
