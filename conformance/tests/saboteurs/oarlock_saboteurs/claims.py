"""False claims: what a device declares and does not do, or does and does not declare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from oarlock.errors import LaunchError, OutOfMemoryError
from oarlock.hal import DeviceInfo, Handle, LaunchStep
from oarlock.target import Limits
from oarlock_saboteurs import BrokenAdapter, BrokenDriver, saboteur
from oarlock_saboteurs.launching import Relaunching
from oarlock_sim.device import SimDriver


class Claiming(BrokenAdapter):
    """An adapter with other capabilities and limits than the simulator has."""

    more: ClassVar[frozenset[str]] = frozenset()
    flush: ClassVar[frozenset[str]] = frozenset()

    def limits(self, limits: Limits) -> Limits:
        """The limits that it claims."""
        return limits

    def devices(self) -> list[DeviceInfo]:
        (info,) = super().devices()
        target = replace(info.target, limits=self.limits(info.target.limits))
        if self.flush:
            target = replace(target, flush_to_zero=self.flush)
        return [replace(info, target=target, capabilities=info.capabilities | self.more)]


@saboteur("claims", "capability address is declared, and there is no address")
class ClaimsAddress(Claiming):
    more = frozenset({"address"})

    def devices(self) -> list[DeviceInfo]:
        self.hit()
        return super().devices()


@saboteur("claims", "memory_info is declared, and refuses when it is called")
class ClaimsMemoryInfo(BrokenDriver):
    def memory_info(self) -> tuple[int, int]:
        self.hit()
        raise NotImplementedError("memory_info")


@saboteur("claims", "plans are declared, and prepare refuses")
class ClaimsPlans(BrokenDriver):
    def prepare(self, steps: Sequence[object]) -> Handle:
        self.hit()
        raise NotImplementedError("graphs are not supported by this driver")


@saboteur("claims", "max_allocation is 4 GiB, and 64 MiB is refused")
class ClaimsMaxAllocation(BrokenDriver):
    def allocate(self, nbytes: int) -> Handle:
        if nbytes >= 64 << 20:
            self.hit()
            raise OutOfMemoryError(f"{nbytes} bytes asked")
        return super().allocate(nbytes)


@saboteur("claims", "max_grid is 2^31 - 1, and more than 65,535 blocks fail")
class ClaimsMaxGrid(BrokenDriver):
    def _check_launch(self, step: LaunchStep) -> None:
        if max(step.grid) > 65535:
            self.hit()
            raise LaunchError(f"kernel {step.entry}: invalid configuration argument")
        super()._check_launch(step)


@saboteur("claims", "max_buffers is what the simulator has, and the driver passes 12")
class ClaimsMaxBuffers(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        if len(step.buffers) <= 12:
            return step
        return replace(step, buffers=(*step.buffers[:12], *(step.buffers[11] for _ in step.buffers[12:])))


@saboteur("claims", "max_scalar_bytes is 4,096, and the driver passes 64")
class ClaimsMaxScalars(Relaunching):
    def changed(self, step: LaunchStep) -> LaunchStep:
        return replace(step, scalars=step.scalars[:64] + bytes(max(0, len(step.scalars) - 64)))


@saboteur("claims", "flush_to_zero is declared for float32, and subnormals are kept")
class ClaimsFlush(Claiming):
    flush = frozenset({"float32"})

    def devices(self) -> list[DeviceInfo]:
        self.hit()
        return super().devices()


@saboteur("claims", "copy_alignment is 1, and odd offsets are refused")
class ClaimsCopyAlignment(BrokenDriver):
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        if dst_offset % 4 or src.nbytes % 4:
            self.hit()
            raise LaunchError("copy_in: unaligned")
        super().copy_in(stream, dst, dst_offset, src)


@saboteur("claims", "the memory is 4 GiB, and 64 MiB can be had in all")
class ClaimsMemory(Claiming):
    class Small(BrokenDriver):
        def allocate(self, nbytes: int) -> Handle:
            if self.used + nbytes > 64 << 20:
                self.hit()
                raise OutOfMemoryError(f"{nbytes} bytes asked, {self.used} in use")
            return super().allocate(nbytes)

    driver: type[SimDriver] = Small


@saboteur("claims", "buffers of one launch may be the same, and the driver refuses it")
class ClaimsShared(BrokenDriver):
    def _check_launch(self, step: LaunchStep) -> None:
        handles = [handle for handle, _, _ in step.buffers]
        if len({*handles}) < len(handles):
            self.hit()
            raise LaunchError(f"kernel {step.entry}: one buffer is bound twice")
        super()._check_launch(step)


@saboteur("claims", "failures spoil a stream, it says, and they spoil the device")
class ClaimsFailureScope(BrokenDriver):
    def _end(self, lane: object, command: object, error: Exception | None) -> None:
        super()._end(lane, command, error)  # type: ignore[arg-type]
        if error is not None:
            self.hit()
            for other in self.lanes.values():
                other.failure = other.failure or error
