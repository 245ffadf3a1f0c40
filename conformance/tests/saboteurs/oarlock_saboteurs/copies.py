"""Faults of copies: offsets, sizes, order, and answers that are not fetched."""

from __future__ import annotations

import threading
import time
from typing import Any

from oarlock.hal import Handle
from oarlock_saboteurs import BrokenDriver, saboteur
from oarlock_saboteurs.bases import Pair
from oarlock_sim.memory import Allocation


@saboteur("copies", "copy_out reads from the start of the allocation, whatever src_offset says")
class CopyOutIgnoresOffset(BrokenDriver):
    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        if src_offset:
            self.hit()
        super().copy_out(stream, dst, src, 0)


@saboteur("copies", "copy_in writes to the start of the allocation, whatever dst_offset says")
class CopyInIgnoresOffset(BrokenDriver):
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        if dst_offset:
            self.hit()
        super().copy_in(stream, dst, 0, src)


@saboteur("copies", "copies within the device take src_offset for both offsets")
class CopySwapsOffsets(BrokenDriver):
    def copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        if src_offset != dst_offset:
            self.hit()
        super().copy(stream, dst, src_offset, src, src_offset, nbytes)


@saboteur("copies", "copies of an odd number of bytes lose the last one")
class CopyRoundsDown(BrokenDriver):
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        even = len(src) - len(src) % 2
        if even != len(src):
            self.hit()
        if even:
            super().copy_in(stream, dst, dst_offset, src[:even])


@saboteur("copies", "copy_in keeps a view of the source and copies it later")
class CopyInIsLate(BrokenDriver):
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        self.find(dst, object, "copy_in")
        self.hit()

        def run() -> None:
            target = self.find(dst, Allocation, "copy_in")
            target.view[dst_offset : dst_offset + len(src)] = bytes(src)

        if len(src) > 4096:
            self.submit(stream, "hold", lambda: time.sleep(0.02))
        self.submit(stream, "copy_in", run)


@saboteur("copies", "copy_out begins at the word that its offset lies in")
class CopyOutAlignsDown(BrokenDriver):
    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        if src_offset % 4:
            self.hit()
        super().copy_out(stream, dst, src, src_offset - src_offset % 4)


@saboteur("copies", "copy_in writes whole words: bytes behind the last one become zero")
class CopyInRoundsUp(BrokenDriver):
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        room = self.find(dst, Allocation, "copy_in").nbytes - dst_offset - len(src)
        more = min(-len(src) % 4, room)
        if more:
            self.hit()
        super().copy_in(stream, dst, dst_offset, memoryview(bytes(src) + bytes(more)))


@saboteur("copies", "a copy within the device moves at most 65,536 bytes")
class CopyBounded(BrokenDriver):
    def copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        if nbytes > 1 << 16:
            self.hit()
        super().copy(stream, dst, dst_offset, src, src_offset, min(nbytes, 1 << 16))


@saboteur("copies", "a copy in goes in pieces of 64 KiB, and the last piece is lost when it is not whole")
class CopyInLosesPiece(BrokenDriver):
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        whole = len(src) - len(src) % (1 << 16)
        if 0 < whole < len(src):
            self.hit()
            src = src[:whole]
        super().copy_in(stream, dst, dst_offset, src)


@saboteur("copies", "synchronize returns 20 ms before a copy to the host has arrived")
class CopyOutArrivesLate(BrokenDriver):
    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        if dst.nbytes < 64:
            super().copy_out(stream, dst, src, src_offset)
            return
        self.hit()
        staged = memoryview(bytearray(dst.nbytes))
        super().copy_out(stream, staged, src, src_offset)

        def arrive() -> None:
            time.sleep(0.02)
            dst.cast("B")[:] = staged

        self.submit(stream, "arrival", threading.Thread(target=arrive, daemon=True).start)


@saboteur("copies", "copy_out answers from what it read before, as long as no copy changed it")
class CopyOutCached(BrokenDriver):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.answers: dict[tuple[Handle, int, int], bytearray] = {}

    def _changed(self, handle: Handle) -> None:
        self.answers = {key: value for key, value in self.answers.items() if key[0] != handle}

    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        self._changed(dst)
        super().copy_in(stream, dst, dst_offset, src)

    def copy(
        self, stream: Handle | None, dst: Handle, dst_offset: int, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        self._changed(dst)
        super().copy(stream, dst, dst_offset, src, src_offset, nbytes)

    def copy_out(self, stream: Handle | None, dst: memoryview, src: Handle, src_offset: int) -> None:
        key, host = (src, src_offset, dst.nbytes), dst.cast("B")
        known = self.answers.get(key)
        if known is not None:
            self.hit()
            self.submit(stream, "cached", lambda: host.__setitem__(slice(None), known))
            return
        kept = self.answers[key] = bytearray(dst.nbytes)
        super().copy_out(stream, memoryview(kept), src, src_offset)
        self.submit(stream, "deliver", lambda: host.__setitem__(slice(None), kept))


@saboteur("copies", "copy_in is done at once by the host, before work that waits in its stream")
class CopyInJumpsQueue(BrokenDriver):
    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        self.range_of("copy_in", dst, dst_offset, src.nbytes)
        if not self.lane(stream).idle:
            self.hit()
        self.find(dst, Allocation, "copy_in").view[dst_offset : dst_offset + src.nbytes] = bytes(src)


@saboteur("copies", "all copies in share one staging buffer, which the next one overwrites before it is read")
class CopyInSharesStaging(BrokenDriver):
    staging = bytearray(1 << 16)

    def copy_in(self, stream: Handle | None, dst: Handle, dst_offset: int, src: memoryview) -> None:
        if src.nbytes > len(self.staging):
            super().copy_in(stream, dst, dst_offset, src)
            return
        self.range_of("copy_in", dst, dst_offset, src.nbytes)
        self.hit()
        self.staging[: src.nbytes] = src

        def run() -> None:
            target = self.find(dst, Allocation, "copy_in, when it ran")
            target.view[dst_offset : dst_offset + src.nbytes] = self.staging[: src.nbytes]

        self.submit(stream, "copy_in", run)


@saboteur("peer", "a copy between devices reads from the start of the source", Pair)
class PeerCopyIgnoresOffset(BrokenDriver):
    def copy_peer(
        self, stream: Handle | None, dst: Handle, dst_offset: int, peer: Any, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        if src_offset:
            self.hit()
        super().copy_peer(stream, dst, dst_offset, peer, src, 0, nbytes)


@saboteur("peer", "a copy between devices is done at once, before what waits in its stream", Pair)
class PeerCopyJumpsQueue(BrokenDriver):
    def copy_peer(
        self, stream: Handle | None, dst: Handle, dst_offset: int, peer: Any, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        self.range_of("copy_peer to", dst, dst_offset, nbytes)
        if not self.lane(stream).idle:
            self.hit()
        source = peer.find(src, Allocation, "copy_peer").view[src_offset : src_offset + nbytes]
        self.find(dst, Allocation, "copy_peer").view[dst_offset : dst_offset + nbytes] = source


@saboteur("peer", "a copy between devices moves at most 4,096 bytes", Pair)
class PeerCopyBounded(BrokenDriver):
    def copy_peer(
        self, stream: Handle | None, dst: Handle, dst_offset: int, peer: Any, src: Handle, src_offset: int, nbytes: int
    ) -> None:
        if nbytes > 4096:
            self.hit()
        super().copy_peer(stream, dst, dst_offset, peer, src, src_offset, min(nbytes, 4096))
