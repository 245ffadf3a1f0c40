"""A group of ranks, seen from one of them: collectives on device arrays, in the order of streams."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock.errors import BoundsError, ClosedError, DeviceError, DTypeError, ShapeError
from oarlock.runtime.array import DeviceArray
from oarlock.runtime.communication.calls import Call
from oarlock.runtime.communication.endings import remember
from oarlock.runtime.communication.engine import Engine, Member, shared_engine
from oarlock.runtime.communication.hub import Meeting
from oarlock.runtime.communication.reduction import Kind, check_kind
from oarlock.runtime.communication.turn import Turn
from oarlock.runtime.communication.work import Work
from oarlock.runtime.stream import Stream, check_stream

if TYPE_CHECKING:
    from oarlock.runtime.device import Device

__all__ = ["ProcessGroup"]


class ProcessGroup:
    """This rank's end of a group: ``rank`` of ``world_size``, on ``device``; from ``local_groups`` or ``join_group``.

    Every rank makes the same calls in the same order, with the same dtype, count, kind and root; that is checked before
    data moves, and a difference raises MismatchError on every rank, naming both. A rank that cannot take part in a call
    raises its own error, and the others CommunicationError with its text. A rank that does not come in time raises
    RankTimeoutError, one that fails, leaves or dies RankLostError, on every rank; after those two the group is of no
    more use, and the device is.

    A call reads what the work before it in ``stream`` wrote (None: the current one), and the stream's later work sees
    the result. It waits on the host for the other ranks; where every rank's vendor has an engine for the call the work
    itself is asynchronous, else it goes through the host. The first call of a group waits for every rank, also when it
    is between two. float16 and bfloat16 are combined in float32 and rounded once; integers wrap; every rank gets the
    same bits. Arrays are contiguous, of any size with 0.

    Use it as ``with group:`` in the thread that is the rank: an exception that leaves the block is told to the others,
    who would wait until their time is over otherwise. One thread at a time makes calls.
    """

    def __init__(self, meeting: Meeting, device: Device, rank: int, world_size: int, name: str) -> None:
        self.device = device
        self.rank = rank
        self.world_size = world_size
        self.name = name
        self._meeting = meeting
        self._everyone = frozenset(range(world_size))
        self._engine: Engine | None = None
        self._begun = False
        self._closed = False
        self._lock = threading.RLock()
        self._numbers: dict[frozenset[int], int] = {}
        self._forget = remember(self, meeting)

    # --- collectives --------------------------------------------------------------------------------------------------

    def all_reduce(
        self, src: DeviceArray, dst: DeviceArray | None = None, kind: Kind = "sum", stream: Stream | None = None
    ) -> DeviceArray:
        """Combine the arrays of all ranks, element by element; each gets the result in ``dst``, or a new array.

        ``kind`` is "sum", "prod", "max", "min" or "avg" (floats: the sum divided by the number of ranks). ``dst`` may
        be ``src``.
        """
        with self._work("all_reduce", src, stream, kind) as work:
            check_kind(kind, src.dtype)
            out = self._result(dst, src.shape, src, work)
            work.all_reduce(src, out, kind)
            return out

    def all_gather(self, src: DeviceArray, dst: DeviceArray | None = None, stream: Stream | None = None) -> DeviceArray:
        """The arrays of all ranks in the order of ranks: shape ``(world_size, *src.shape)``."""
        with self._work("all_gather", src, stream) as work:
            out = self._result(dst, (self.world_size, *src.shape), src, work)
            work.all_gather(src, out)
            return out

    def reduce_scatter(
        self, src: DeviceArray, dst: DeviceArray | None = None, kind: Kind = "sum", stream: Stream | None = None
    ) -> DeviceArray:
        """Combine the arrays of all ranks; rank r gets the r-th of equal parts of the first dimension."""
        with self._work("reduce_scatter", src, stream, kind) as work:
            check_kind(kind, src.dtype)
            out = self._result(dst, (self._share(src), *src.shape[1:]), src, work)
            work.reduce_scatter(src, out, kind)
            return out

    def all_to_all(self, src: DeviceArray, dst: DeviceArray | None = None, stream: Stream | None = None) -> DeviceArray:
        """Cut the first dimension in ``world_size`` equal parts; rank r gets the r-th part of every rank, in order."""
        with self._work("all_to_all", src, stream) as work:
            self._share(src)
            out = self._result(dst, src.shape, src, work)
            work.all_to_all(src, out)
            return out

    def broadcast(self, array: DeviceArray, root: int = 0, stream: Stream | None = None) -> DeviceArray:
        """Copy rank ``root``'s values into the array of every other rank; returns ``array``."""
        with self._work("broadcast", array, stream, root=root) as work:
            self._check_rank(root)
            work.broadcast(array, root)
            return array

    def send(self, array: DeviceArray, peer: int, stream: Stream | None = None) -> None:
        """Send to rank ``peer``, which receives the same dtype and count; waits until it does.

        The two ranks' calls are checked and counted between them alone.
        """
        self._check_peer(peer)
        with self._work("send/recv", array, stream, root=self.rank, peer=peer) as work:
            work.send(array, peer)

    def recv(self, array: DeviceArray, peer: int, stream: Stream | None = None) -> DeviceArray:
        """Receive from rank ``peer`` into ``array``, which is returned."""
        self._check_peer(peer)
        with self._work("send/recv", array, stream, root=peer, peer=peer) as work:
            work.recv(array, peer)
            return array

    def barrier(self) -> None:
        """Return once every rank has come here. Work of streams is not waited for."""
        with self._turn(Call("barrier", 0), self._everyone) as turn:
            turn.exchange({})

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def native(self) -> bool:
        """Whether the ranks share a vendor's engine, which does what it can. Known after the first call."""
        return self._engine is not None

    def abort(self, reason: str = "gave up") -> None:
        """Break the group: what is pending raises RankLostError on every rank, telling ``reason``."""
        self._meeting.leave(self.rank, reason)
        self.close()

    def close(self) -> None:
        """Leave the group; again does nothing. Calls of other ranks that need this one raise RankLostError."""
        if self._closed:
            return
        self._closed = True
        self._forget()
        self._meeting.leave(self.rank)
        if self._engine is not None:
            self._engine.close()
            self.device.collect()

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._meeting.leave(self.rank, f"failed: {type(error).__name__}: {error}")
        self.close()

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.name}: rank {self.rank} of {self.world_size} on {self.device.name}>"

    # --- one call -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _work(
        self,
        operation: str,
        array: DeviceArray,
        stream: Stream | None,
        kind: str = "",
        root: int = -1,
        peer: int | None = None,
    ) -> Iterator[Work]:
        """One call on ``array``, with everybody or with ``peer``."""
        members = self._everyone if peer is None else frozenset((self.rank, peer))
        call = Call(operation, 0, array.dtype.name, array.size, kind, root)
        with self._turn(call, members) as turn:
            self._check_array(array)
            lane = self.device.current_stream if stream is None else stream
            check_stream(self.device, lane)
            yield Work(turn, self._engine, lane, self.rank, self.world_size)

    @contextmanager
    def _turn(self, call: Call, members: Collection[int]) -> Iterator[Turn]:
        with self._lock:
            if self.device.gate.is_forked:
                self.device.gate.check()  # before anything that the parent's threads may hold
            if self._closed:
                raise ClosedError(f"{self.name}: rank {self.rank} has closed its group; make a new one")
            if not self._begun:
                self._begin()
            party = frozenset(members)
            number = self._numbers.get(party, 0) + 1
            with Turn(self._meeting, self.rank, members, replace(call, number=number)) as turn:
                self._numbers[party] = number
                yield turn

    def _begin(self) -> None:
        """With the first call: find out whether all ranks have the same engine, and begin a group of it."""
        mine = json.dumps(Member.of(self.device, self.rank).to_json()).encode()
        with Turn(self._meeting, self.rank, self._everyone, Call("the first call", 0)) as turn:
            got = turn.exchange(dict.fromkeys(self._everyone, mine))
            members = [Member.from_json(json.loads(bytes(got[rank]))) for rank in range(self.world_size)]
            if shared_engine(members):
                turn.commit()
                self._engine = Engine(self.device, bytes.fromhex(members[0].group_id), self.rank, self.world_size)
                turn.done()
                self._meeting.watch(self._engine.abort)
            self._begun = True

    # --- checks -------------------------------------------------------------------------------------------------------

    def _check_array(self, array: DeviceArray) -> None:
        if array.device is not self.device:
            raise DeviceError(f"{self.name}: an array of {array.device.name} is given to a rank on {self.device.name}")
        array.buffer.check_range(array.offset_bytes, array.nbytes, "collective")

    def _result(self, dst: DeviceArray | None, shape: tuple[int, ...], src: DeviceArray, work: Work) -> DeviceArray:
        """``dst``, checked, or a new array."""
        if dst is None:
            return work.new(src, shape)
        self._check_array(dst)
        if dst.dtype != src.dtype:
            raise DTypeError(f"{self.name}: the result is {src.dtype}, and dst holds {dst.dtype}")
        if dst.shape != shape:
            raise ShapeError(f"{self.name}: the result has shape {shape}, and dst has {dst.shape}")
        return dst

    def _share(self, src: DeviceArray) -> int:
        """The size of one rank's part of the first dimension."""
        if not src.shape or src.shape[0] % self.world_size:
            raise ShapeError(
                f"{self.name}: the first dimension of shape {src.shape} cannot be cut in {self.world_size} equal parts"
            )
        return src.shape[0] // self.world_size

    def _check_rank(self, rank: int) -> None:
        if rank not in self._everyone:
            raise BoundsError(f"{self.name}: no rank {rank}; ranks are 0 to {self.world_size - 1}")

    def _check_peer(self, peer: int) -> None:
        self._check_rank(peer)
        if peer == self.rank:
            raise BoundsError(f"{self.name}: rank {peer} cannot exchange with itself; copy the array")
