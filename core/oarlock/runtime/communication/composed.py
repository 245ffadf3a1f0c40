"""Collectives composed on the host, for ranks that exchange bytes: what every device can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oarlock.dtypes import DType
from oarlock.runtime.communication.hub import Parcel, Parcels
from oarlock.runtime.communication.reduction import Kind, combine

__all__ = ["Composed", "Exchange"]

Values = npt.NDArray[Any]


class Exchange(Protocol):
    """Hand parcels over; ``last`` where nothing more is exchanged in this call."""

    def __call__(self, parcels: Parcels, last: bool = True) -> dict[int, Parcel]: ...


@dataclass(frozen=True, slots=True)
class Composed:
    """The collectives of one call of ``rank`` among ``world_size``. Values are flat NumPy arrays of ``dtype``.

    A reduction of many ranks is cut in pieces, one a rank, and each piece is combined by one rank alone: so every rank
    has the same bits, and each sends and receives about twice its own values.
    """

    rank: int
    world_size: int
    dtype: DType
    exchange: Exchange

    def all_reduce(self, values: Values, kind: Kind) -> Values:
        size = self.world_size
        edges = [len(values) * part // size for part in range(size + 1)]
        pieces = {other: _bytes(values[edges[other] : edges[other + 1]]) for other in range(size)}
        piece = self._combine(self.exchange(pieces, last=False), kind)
        return self.all_gather(piece)

    def reduce_scatter(self, values: Values, kind: Kind) -> Values:
        return self._combine(self.exchange(self._cut(values)), kind)

    def all_gather(self, values: Values) -> Values:
        return self._join(self.exchange({other: _bytes(values) for other in range(self.world_size)}))

    def all_to_all(self, values: Values) -> Values:
        return self._join(self.exchange(self._cut(values)))

    def broadcast(self, values: Values | None, root: int) -> Values:
        """``values`` of rank ``root``; the others pass None."""
        mine = {} if values is None else {other: _bytes(values) for other in range(self.world_size)}
        return self._values(self.exchange(mine)[root])

    def send(self, values: Values, peer: int) -> None:
        self.exchange({peer: _bytes(values)})

    def recv(self, peer: int) -> Values:
        return self._values(self.exchange({})[peer])

    def _cut(self, values: Values) -> Parcels:
        part = len(values) // self.world_size
        return {other: _bytes(values[other * part : (other + 1) * part]) for other in range(self.world_size)}

    def _join(self, parcels: Parcels) -> Values:
        return np.concatenate([self._values(parcels[other]) for other in range(self.world_size)])

    def _combine(self, parcels: Parcels, kind: Kind) -> Values:
        return combine([self._values(parcels[other]) for other in range(self.world_size)], self.dtype, kind)

    def _values(self, parcel: Parcel) -> Values:
        return np.frombuffer(parcel, self.dtype.numpy)


def _bytes(values: Values) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(values).view(np.uint8)
