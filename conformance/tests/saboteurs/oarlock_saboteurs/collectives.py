"""Faults of an engine of collectives, between two devices of the adapter."""

from __future__ import annotations

from typing import Any

import numpy as np

from oarlock.dtypes import DType
from oarlock.hal import Handle, Place, ReduceKind
from oarlock_saboteurs import BrokenDriver, saboteur
from oarlock_saboteurs.bases import Pair


class Reducing(BrokenDriver):
    """A driver whose all_reduce gives something else."""

    def reduced(self, exchange: Any, rank: int, right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What rank ``rank`` gets in place of ``right``."""
        raise NotImplementedError

    def _give(self, name: str, stream: Handle | None, member: Any, *rest: Any) -> None:
        *others, result = rest

        def changed(exchange: Any) -> np.ndarray[Any, Any]:
            right: np.ndarray[Any, Any] = result(exchange)
            if name != "all_reduce":
                return right
            found = self.reduced(exchange, member.rank, right)
            if found.tobytes() != right.tobytes():
                self.hit()
            return found

        super()._give(name, stream, member, *others, changed)


@saboteur("collectives", "all_reduce reduces nothing: each rank gets its own values", Pair)
class AllReduceReducesNothing(Reducing):
    def reduced(self, exchange: Any, rank: int, right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(exchange.sent[rank])


@saboteur("collectives", "all_reduce gives every rank the values of rank 0", Pair)
class AllReduceOfRankZero(Reducing):
    def reduced(self, exchange: Any, rank: int, right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(exchange.sent[0])


@saboteur("collectives", "all_reduce gives the last rank a value that is off in the last place", Pair)
class AllReduceUnlike(Reducing):
    def reduced(self, exchange: Any, rank: int, right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if rank != max(exchange.sent) or right.dtype != np.float32:
            return right
        return np.nextafter(right, np.float32(np.inf))


@saboteur("collectives", "all_reduce of more than one element leaves the last one as it was", Pair)
class AllReduceDropsLast(Reducing):
    def reduced(self, exchange: Any, rank: int, right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        found = right.copy()
        if found.size > 1:
            found[-1] = exchange.sent[rank][-1]
        return found


@saboteur("collectives", "float32 is reduced in float16", Pair)
class AllReduceInHalf(Reducing):
    def reduced(self, exchange: Any, rank: int, right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if right.dtype != np.float32:
            return right
        with np.errstate(all="ignore"):
            return right.astype(np.float16).astype(np.float32)


@saboteur("collectives", "the largest and the smallest are taken for the sum", Pair)
class AllReduceKindLost(BrokenDriver):
    def all_reduce(
        self, stream: Handle | None, group: Handle, src: Place, dst: Place, count: int, dtype: DType, kind: ReduceKind
    ) -> None:
        if kind in ("max", "min"):
            self.hit()
            kind = "sum"
        super().all_reduce(stream, group, src, dst, count, dtype, kind)


@saboteur("collectives", "broadcast takes rank 0 for its root", Pair)
class BroadcastFromZero(BrokenDriver):
    def broadcast(
        self, stream: Handle | None, group: Handle, buffer: Place, count: int, dtype: DType, root: int
    ) -> None:
        if root:
            self.hit()
        super().broadcast(stream, group, buffer, count, dtype, 0)


@saboteur("collectives", "a result is stored at the start of its allocation", Pair)
class CollectiveIgnoresOffset(BrokenDriver):
    def all_reduce(
        self, stream: Handle | None, group: Handle, src: Place, dst: Place, count: int, dtype: DType, kind: ReduceKind
    ) -> None:
        if dst[1]:
            self.hit()
        super().all_reduce(stream, group, src, (dst[0], 0), count, dtype, kind)


@saboteur("collectives", "collectives run on the default stream", Pair)
class CollectiveIgnoresStream(BrokenDriver):
    def _give(self, name: str, stream: Handle | None, *rest: Any) -> None:
        if stream is not None:
            self.hit()
        super()._give(name, None, *rest)


@saboteur("collectives", "aborting a group does nothing", Pair)
class AbortDoesNothing(BrokenDriver):
    def abort_group(self, group: Handle) -> None:
        self._member(group)
        self.hit()
