"""The machine's limits and a plain C kernel, measured in the same rounds as the peers."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ci.bench.peers import Array, Call, CannotError
from ci.bench.vocabulary import Vocabulary

if TYPE_CHECKING:
    from ci.bench.works import Work

__all__ = ["FLAGS", "TimedCall", "make"]

FLAGS = (
    "-O3", "-march=native", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno",
    "-shared", "-fPIC", "-pthread",
)  # fmt: skip
"""Sums may be reordered. Not ``-ffast-math``: a library linked with it flushes subnormals in the whole process."""
_TURNS = 2_000_000


class TimedCall(Call):
    """A call that times itself, inside C: ``times(n)`` gives n times in ms, of which ``factor`` make the work's."""

    __slots__ = ("times",)
    times: Callable[[int], list[float]]

    def __init__(self, times: Callable[[int], list[float]], result: Callable[[], list[Array]], note: str) -> None:
        super().__init__(lambda: times(1), result, note)
        object.__setattr__(self, "times", times)


@functools.cache
def _library() -> ctypes.CDLL:
    source = Path(__file__).resolve().parent.parent / "limits.c"
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "limits.so"
        subprocess.run(["cc", *FLAGS, str(source), "-o", str(built), "-lm"], check=True)
        library = ctypes.CDLL(str(built))
    library.limit_multiply_add.restype = ctypes.c_double
    return library


def _aligned(array: Array) -> Array:
    """A copy of ``array`` at a multiple of 2 MiB, as huge pages have it."""
    room = np.empty(array.nbytes + (2 << 20), np.uint8)
    skip = -room.ctypes.data % (2 << 20)
    made = room[skip : skip + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def _timed(function: Callable[..., Any], *arguments: Any) -> Callable[[int], list[float]]:
    """Call ``function`` on ``arguments``, which are kept: arrays by their address, and numbers of ctypes."""

    def times(repeats: int) -> list[float]:
        ms = (ctypes.c_double * repeats)()
        given = [ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else a for a in arguments]
        if function(*given, ctypes.c_int(repeats), ms):
            raise RuntimeError("a thread could not be made")
        return list(ms)

    return times


class LimitPeer:
    def __init__(self, plain: bool) -> None:
        self._plain = plain

    def version(self) -> str:
        done = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[0] + " " + " ".join(FLAGS)

    def prepare(self, work: Work, arrays: Mapping[str, Array]) -> Call:
        name = work.plain if self._plain else work.limit
        if not name:
            raise CannotError("no such limit")
        call: Call = getattr(self, "_" + name)(work, list(arrays.values()))
        return call

    def prepare_model(self, path: Path, arrays: Mapping[str, Array]) -> Call:
        raise CannotError("no limit of models")

    def _copy(self, work: Work, arrays: list[Array]) -> Call:
        """A copy of the first input."""
        source = _aligned(arrays[0])
        out = _aligned(np.zeros_like(source))
        times = _timed(_library().limit_copy, out, source, ctypes.c_size_t(source.size))

        def check() -> list[Array]:
            if not np.array_equal(out, source):
                raise RuntimeError("the copy is wrong")
            return []

        return TimedCall(times, check, f"copy of {source.nbytes >> 20} MiB, stores past the cache")

    def _read(self, work: Work, arrays: list[Array]) -> Call:
        """All of the largest input, once."""
        source = _aligned(max(arrays, key=lambda array: array.nbytes))
        times = _timed(_library().limit_read, source, ctypes.c_size_t(source.size))
        return TimedCall(times, list, f"read of {source.nbytes >> 20} MiB")

    def _multiply_add(self, work: Work, arrays: list[Array]) -> Call:
        """The work's operations at the rate of a loop of nothing but multiply-adds."""

        def times(repeats: int) -> list[float]:
            ms = (ctypes.c_double * repeats)()
            done = _library().limit_multiply_add(ctypes.c_uint64(_TURNS), ctypes.c_int(repeats), ms)
            return [value * work.operations / done for value in ms]

        return TimedCall(times, list, "multiply-adds in registers")

    def _rms_norm(self, work: Work, arrays: list[Array]) -> Call:
        x, weight = (_aligned(array) for array in arrays)
        out = _aligned(np.zeros_like(x))
        rows, columns = (ctypes.c_size_t(extent) for extent in x.shape)
        function = _library().plain_rms_norm
        times = _timed(function, out, x, weight, rows, columns, ctypes.c_float(Vocabulary.EPSILON))
        return TimedCall(times, lambda: [out], "two loops a row, vectorised by the compiler")


def make(plain: bool = False) -> LimitPeer:
    return LimitPeer(plain)
