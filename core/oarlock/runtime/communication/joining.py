"""Groups whose ranks are processes: they find one another at an address where rank 0 listens."""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import socket
import threading
import time
from multiprocessing.connection import Client, Connection, Listener
from typing import TypeAlias

from oarlock.config import config
from oarlock.errors import BoundsError, CommunicationError, ConfigError, MismatchError, RankTimeoutError
from oarlock.runtime.communication.frames import Line
from oarlock.runtime.communication.group import ProcessGroup
from oarlock.runtime.communication.remote import HostHub, RemoteHub
from oarlock.runtime.device import Device

__all__ = ["join_group"]

Address: TypeAlias = tuple[str, int] | str
_RETRY_S = 0.05


def join_group(
    address: str, device: Device, rank: int, world_size: int, *, key: bytes, timeout_s: float | None = None
) -> ProcessGroup:
    """Join the group that meets at ``address`` as ``rank`` of ``world_size``; returns once all ranks have come.

    ``address`` is "host:port", or the path of a local socket; rank 0 listens there, and data of composed collectives
    goes through it. All ranks give the same ``key``, which keeps strangers out. ``timeout_s``: how long to wait here
    and in each call (None: ``config.communication_s``). Raises RankTimeoutError when ranks do not come, MismatchError
    where they do not fit together, CommunicationError for a wrong key or an address that cannot be used.
    """
    if world_size < 1 or not 0 <= rank < world_size:
        raise BoundsError(f"no rank {rank} in a group of {world_size}: ranks are 0 to {world_size - 1}")
    if not key:
        raise ConfigError("join_group: the key is empty; give all ranks the same secret bytes")
    limit = config.communication_s if timeout_s is None else timeout_s
    name = f"group at {address}"
    if rank == 0:
        return _lead(name, _parsed(address), device, world_size, key, limit)
    line = Line(_connect(name, _parsed(address), key, limit))
    line.send({"rank": rank, "world_size": world_size})
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_hear, args=(line, answers), daemon=True).start()
    try:
        refusal = answers.get(timeout=limit)
    except queue.Empty:
        line.close()
        raise RankTimeoutError(f"{name}: rank {rank} waited {limit:g} s for the others to join") from None
    if refusal is not None:
        line.close()
        raise MismatchError(f"{name}: rank {rank} was refused: {refusal}")
    return ProcessGroup(RemoteHub(name, line, limit), device, rank, world_size, name)


def _hear(line: Line, answers: queue.SimpleQueue[str | None]) -> None:
    """Wait for rank 0's word on joining: None is welcome."""
    try:
        head, _ = line.receive()
        answers.put(head["refused"])
    except (EOFError, OSError):
        answers.put("rank 0 has ended or given up")


def _parsed(address: str) -> Address:
    host, colon, port = address.rpartition(":")
    return (host, int(port)) if colon and port.isdigit() else address


def _connect(name: str, address: Address, key: bytes, limit: float) -> Connection:
    """A connection to rank 0, which may not listen yet."""
    deadline = time.monotonic() + limit
    while True:
        try:
            return Client(address, authkey=key)
        except multiprocessing.AuthenticationError as error:
            raise CommunicationError(f"{name}: the key is not that of rank 0") from error
        except (OSError, EOFError) as error:
            if time.monotonic() > deadline:
                raise RankTimeoutError(f"{name}: rank 0 does not listen there after {limit:g} s: {error}") from error
            time.sleep(_RETRY_S)


def _lead(name: str, address: Address, device: Device, world_size: int, key: bytes, limit: float) -> ProcessGroup:
    """Rank 0: wait for the others, and serve the hub to them."""
    try:
        listener = Listener(address, backlog=max(1, world_size), authkey=key)
    except OSError as error:
        raise CommunicationError(f"{name}: cannot listen there: {error}") from error
    arrived: queue.SimpleQueue[Connection] = queue.SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_accept, args=(listener, arrived, stop), name="oarlock-join", daemon=True).start()
    lines: dict[int, Line] = {}
    try:
        _gather(name, lines, arrived, world_size, limit)
        for line in lines.values():
            line.send({"refused": None})
    except (CommunicationError, OSError) as error:
        for line in lines.values():
            line.close()
        if isinstance(error, CommunicationError):
            raise
        raise CommunicationError(f"{name}: a rank was lost while the others joined: {error}") from error
    finally:
        stop.set()
        _wake(address)
        listener.close()
    return ProcessGroup(HostHub(name, world_size, limit, lines), device, 0, world_size, name)


def _accept(listener: Listener, arrived: queue.SimpleQueue[Connection], stop: threading.Event) -> None:
    """Take connections until it is told to stop; those that do not know the key are turned away."""
    while not stop.is_set():
        try:
            arrived.put(listener.accept())
        except (multiprocessing.AuthenticationError, EOFError, OSError):
            continue


def _wake(address: Address) -> None:
    """Let the accepting thread see that it is to stop."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family) as knock:
        knock.settimeout(1.0)
        knock.connect(address)


def _gather(
    name: str, lines: dict[int, Line], arrived: queue.SimpleQueue[Connection], world_size: int, limit: float
) -> None:
    """Fill ``lines`` with a connection for each rank but 0; who does not fit is told, and so is this rank."""
    deadline = time.monotonic() + limit
    while len(lines) < world_size - 1:
        try:
            line = Line(arrived.get(timeout=max(0.0, deadline - time.monotonic())))
            head, _ = line.receive()
        except queue.Empty:
            absent = ", ".join(str(rank) for rank in range(1, world_size) if rank not in lines)
            raise RankTimeoutError(f"{name}: rank 0 waited {limit:g} s; absent: rank {absent}") from None
        except (EOFError, OSError):
            continue
        refusal = _misfit(head["rank"], head["world_size"], lines, world_size)
        if refusal:
            for each in [line, *lines.values()]:
                each.send({"refused": refusal})
            line.close()
            raise MismatchError(f"{name}: {refusal}")
        lines[head["rank"]] = line


def _misfit(rank: int, size: int, lines: dict[int, Line], world_size: int) -> str:
    if size != world_size:
        return f"the ranks differ in world_size: rank 0 has {world_size}, rank {rank} has {size}"
    return f"two ranks say that they are rank {rank}" if rank in lines else ""
