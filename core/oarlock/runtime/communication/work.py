"""The device's side of one call: on the vendor's engine where every rank has it, else through the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from oarlock.errors import UnsupportedError
from oarlock.runtime.array import DeviceArray, to_numpy, to_storage
from oarlock.runtime.communication.composed import Composed
from oarlock.runtime.communication.engine import Engine
from oarlock.runtime.communication.reduction import Kind
from oarlock.runtime.communication.turn import Turn
from oarlock.runtime.lane import Lane
from oarlock.runtime.stream import Stream

__all__ = ["Work"]

_DIRECT, _BY_PARTS = 1, 2
"""Ways to use an engine: the collective itself, or others that make it up."""
_PARTS = {"all_gather": ("broadcast",), "reduce_scatter": ("all_reduce",), "all_to_all": ("send", "recv")}


@dataclass(frozen=True, slots=True)
class Work:
    """One call of ``rank`` on ``stream``. Arrays are of one device and dtype, and checked."""

    turn: Turn
    engine: Engine | None
    stream: Stream
    rank: int
    world_size: int

    def new(self, like: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
        """A new array for a result."""
        nbytes = math.prod(shape) * like.storage.itemsize
        buffer = like.device.allocate(nbytes, label="result of a collective", stream=self.stream)
        return DeviceArray(like.device, buffer, 0, like.dtype, shape)

    def all_reduce(self, src: DeviceArray, out: DeviceArray, kind: Kind) -> None:
        if self._way("all_reduce", [src, out], kind, in_place=True):
            self._submit("all_reduce", [src, out], src.size, src.dtype, kind)
        else:
            self._write(out, self._composed(src).all_reduce(self._read(src), kind))

    def all_gather(self, src: DeviceArray, out: DeviceArray) -> None:
        way = self._way("all_gather", [src, out])
        if way & _DIRECT:
            self._submit("all_gather", [src, out], src.size, src.dtype)
        elif way:
            for root in range(self.world_size):
                place = _part(out, root, src.size)
                if root == self.rank:
                    self._copy(place, src)
                self._give("broadcast", [place], src.size, src.dtype, root)
            self.turn.done()
        else:
            self._write(out, self._composed(src).all_gather(self._read(src)))

    def reduce_scatter(self, src: DeviceArray, out: DeviceArray, kind: Kind) -> None:
        way = self._way("reduce_scatter", [src, out], kind)
        if way & _DIRECT:
            self._submit("reduce_scatter", [src, out], out.size, src.dtype, kind)
        elif way:
            whole = self.new(src, src.shape)
            self._submit("all_reduce", [src, whole], src.size, src.dtype, kind)
            self._copy(out, _part(whole, self.rank, out.size))
        else:
            self._write(out, self._composed(src).reduce_scatter(self._read(src), kind))

    def all_to_all(self, src: DeviceArray, out: DeviceArray) -> None:
        count = src.size // self.world_size
        way = self._way("all_to_all", [src, out])
        if way & _DIRECT:
            self._submit("all_to_all", [src, out], count, src.dtype)
        elif way:
            self._copy(_part(out, self.rank, count), _part(src, self.rank, count))
            for low, high in _pairs(self.world_size):  # in one order on all ranks, so that none waits in a circle
                if self.rank in (low, high):
                    peer = high if self.rank == low else low
                    sends = ("send", _part(src, peer, count)), ("recv", _part(out, peer, count))
                    for name, place in sends if self.rank == low else sends[::-1]:
                        self._give(name, [place], count, src.dtype, peer)
            self.turn.done()
        else:
            self._write(out, self._composed(src).all_to_all(self._read(src)))

    def broadcast(self, array: DeviceArray, root: int) -> None:
        if self._way("broadcast", [array]):
            self._submit("broadcast", [array], array.size, array.dtype, root)
            return
        mine = self.rank == root
        got = self._composed(array).broadcast(self._read(array) if mine else None, root)
        if not mine:
            self._write(array, got)

    def send(self, array: DeviceArray, peer: int) -> None:
        if self._way("send", [array]):
            self._submit("send", [array], array.size, array.dtype, peer)
        else:
            self._composed(array).send(self._read(array), peer)

    def recv(self, array: DeviceArray, peer: int) -> None:
        if self._way("recv", [array]):
            self._submit("recv", [array], array.size, array.dtype, peer)
        else:
            self._write(array, self._composed(array).recv(peer))

    # --- the engine ---------------------------------------------------------------------------------------------------

    def _way(self, operation: str, arrays: Sequence[DeviceArray], kind: str = "", in_place: bool = False) -> int:
        """How all ranks use the engine for this call: _DIRECT and _BY_PARTS, or 0 for the host."""
        engine = self.engine
        if engine is None:
            return 0
        first, dtype = arrays[0], arrays[0].dtype
        flags = 0
        if first.size and kind != "avg" and not any(array.offset_bytes % array.storage.itemsize for array in arrays):
            apart = len(arrays) < 2 or not _overlap(*arrays)
            if apart or (in_place and _same_place(*arrays)):
                flags = _DIRECT * engine.has(operation, dtype, kind)
            parts = _PARTS.get(operation)
            if parts and apart and all(engine.has(part, dtype, kind) for part in parts):
                flags |= _BY_PARTS
        way = self.turn.agree(flags)
        if way:
            self.turn.commit()
        return way

    def _submit(self, operation: str, arrays: Sequence[DeviceArray], *arguments: Any) -> None:
        """Give the one collective that this call is to the engine."""
        self._give(operation, arrays, *arguments)
        self.turn.done()

    def _give(self, operation: str, arrays: Sequence[DeviceArray], *arguments: Any) -> None:
        if self.engine is None:
            raise UnsupportedError(f"{operation}: the group has no engine")
        self.engine.submit(operation, self._lane, arrays, *arguments)

    # --- the host -----------------------------------------------------------------------------------------------------

    @property
    def _lane(self) -> Lane:
        return self.stream.lane

    def _composed(self, array: DeviceArray) -> Composed:
        return Composed(self.rank, self.world_size, array.dtype, self.turn.exchange)

    def _read(self, array: DeviceArray) -> npt.NDArray[Any]:
        """The values on the host once the stream has made them; raises the failure of the work before."""
        return to_numpy(array, self.stream).reshape(-1)

    def _write(self, array: DeviceArray, values: npt.NDArray[Any]) -> None:
        held = to_storage(values, array.dtype, array.storage)
        array.device.copy_in(array.buffer, array.offset_bytes, held, self.stream)

    def _copy(self, dst: DeviceArray, src: DeviceArray) -> None:
        dst.device.copy(dst.buffer, dst.offset_bytes, src.buffer, src.offset_bytes, src.nbytes, self.stream)


def _part(array: DeviceArray, index: int, count: int) -> DeviceArray:
    """The ``index``-th ``count`` elements."""
    start = array.offset_bytes + index * count * array.storage.itemsize
    return replace(array, offset_bytes=start, shape=(count,))


def _pairs(count: int) -> list[tuple[int, int]]:
    return [(low, high) for low in range(count) for high in range(low + 1, count)]


def _overlap(left: DeviceArray, right: DeviceArray) -> bool:
    if left.buffer.allocation is not right.buffer.allocation:
        return False
    return (
        left.offset_bytes < right.offset_bytes + right.nbytes and right.offset_bytes < left.offset_bytes + left.nbytes
    )


def _same_place(left: DeviceArray, right: DeviceArray) -> bool:
    return left.buffer.allocation is right.buffer.allocation and left.offset_bytes == right.offset_bytes
