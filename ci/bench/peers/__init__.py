"""The peers: each library, the way of using it, and the process that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pathlib import Path

    from ci.bench.works import Work

__all__ = ["OURS", "PEERS", "THREADS", "Array", "Call", "CannotError", "Peer", "PeerEntry", "make"]

Array = npt.NDArray[Any]
THREADS = 2
"""Threads of each peer."""
OURS = ("oarlock", "oarlock-unfused", "oarlock-opencl")
"""The columns that are not peers of ``oarlock``."""


class CannotError(Exception):
    """This peer has no way to do this work; the message says why. It is shown as a dash, not as a failure."""


@dataclass(frozen=True, slots=True)
class Call:
    """A work made ready: ``run`` does all of it and returns when the result is there, which ``result`` then reads."""

    run: Callable[[], Any]
    result: Callable[[], Sequence[Array]]
    note: str = ""


class Peer(Protocol):
    """A library in its own process."""

    def version(self) -> str: ...

    def prepare(self, work: Work, arrays: Mapping[str, Array]) -> Call:
        """Make ``work`` ready on ``arrays`` (by the names of its inputs). Raises CannotError."""
        ...

    def prepare_model(self, path: Path, arrays: Mapping[str, Array]) -> Call:
        """The same for an ONNX model."""
        ...


@dataclass(frozen=True, slots=True)
class PeerEntry:
    """How a peer is made: ``module`` of this package has ``make(**options)``; ``library`` is what it imports first."""

    module: str
    library: str
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    cache: str = ""
    """The variable that names its cache folder on disk."""


_JAX = {
    "JAX_PLATFORMS": "cpu",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
PEERS: dict[str, PeerEntry] = {
    "limit": PeerEntry("limit_peer", "ctypes"),
    "plain-c": PeerEntry("limit_peer", "ctypes", {"plain": True}),
    "numpy": PeerEntry("numpy_peer", "numpy"),
    "torch": PeerEntry("torch_peer", "torch"),
    "torch-compile": PeerEntry("torch_peer", "torch", {"compiled": True}, cache="TORCHINDUCTOR_CACHE_DIR"),
    "jax": PeerEntry("jax_peer", "jax", environment=_JAX, cache="JAX_COMPILATION_CACHE_DIR"),
    "onnxruntime": PeerEntry("onnx_peer", "onnxruntime"),
    "onnxruntime-plain": PeerEntry("onnx_peer", "onnxruntime", {"optimise": False}),
    "tinygrad": PeerEntry("tinygrad_peer", "tinygrad", environment={"DEV": "CPU", "BEAM": "2"}, cache="XDG_CACHE_HOME"),
    "oarlock": PeerEntry("oarlock_peer", "oarlock", {"device": "cpu"}, cache="OARLOCK_CACHE_DIR"),
    "oarlock-unfused": PeerEntry(
        "oarlock_peer", "oarlock", {"device": "cpu", "fused": False}, cache="OARLOCK_CACHE_DIR"
    ),
    "oarlock-opencl": PeerEntry("oarlock_peer", "oarlock", {"device": "opencl:0"}, cache="OARLOCK_CACHE_DIR"),
}


def make(name: str) -> Peer:
    """The peer called ``name``; imports its library."""
    entry = PEERS[name]
    module = import_module(f"ci.bench.peers.{entry.module}")
    peer: Peer = module.make(**entry.options)
    return peer


def as_list(result: Any, convert: Callable[[Any], Any] = np.asarray) -> list[Array]:
    """One result or several, as NumPy arrays."""
    parts = result if isinstance(result, list | tuple) else [result]
    return [convert(part) for part in parts]
