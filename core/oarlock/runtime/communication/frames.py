"""Messages between processes: a line of JSON, then parcels as raw bytes. Nothing that is received is unpickled."""

from __future__ import annotations

import json
import threading
from multiprocessing.connection import Connection
from typing import Any

from oarlock.runtime.communication.hub import Parcel, Parcels

__all__ = ["Line"]


class Line:
    """A connection that several threads send on, and one receives from."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, head: dict[str, Any], parcels: Parcels | None = None) -> None:
        """Send ``head``, which is JSON, and parcels; raises OSError once the other side is gone."""
        sent = dict(parcels or {})
        text = json.dumps({**head, "parcels": list(sent)}).encode()
        with self._sending:
            self._connection.send_bytes(text)
            for parcel in sent.values():
                self._connection.send_bytes(parcel if isinstance(parcel, bytes) else parcel.data)

    def receive(self) -> tuple[dict[str, Any], dict[int, Parcel]]:
        """The next message; raises EOFError or OSError once the other side is gone."""
        head = json.loads(self._connection.recv_bytes())
        return head, {int(rank): self._connection.recv_bytes() for rank in head["parcels"]}

    def close(self) -> None:
        self._connection.close()
