"""The bench of a runtime case: an open device, kernels, data, and the checks that every case shares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock.codegen.kernel import signature_of
from oarlock.codegen.pipeline import render
from oarlock.config import config
from oarlock.ir import Operation
from oarlock.runtime import Buffer, Device, Program, Stream, open_device
from oarlock_conformance import kernels
from oarlock_conformance.case import Failure, Options

__all__ = ["CHILD", "Bench", "Ints", "expect", "expect_equal", "muted", "peer_of", "raises", "setting", "together"]

Ints = npt.NDArray[np.int32]
CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[2]); DEVICE = sys.argv[1]\n"
SPIN_S = 0.03
"""How long a spinning kernel should run, in seconds."""


def expect(condition: bool, text: str) -> None:
    """Fail the case with ``text`` unless ``condition``."""
    if not condition:
        raise Failure(text)


def expect_equal(found: npt.ArrayLike, wanted: npt.ArrayLike, what: str) -> None:
    """Fail unless two arrays have the same dtype, shape and bytes; tells the first place where they differ."""
    got, want = np.ascontiguousarray(found), np.ascontiguousarray(wanted)
    if got.dtype != want.dtype or got.shape != want.shape:
        raise Failure(f"{what}: got {got.dtype} {got.shape}, expected {want.dtype} {want.shape}")
    if got.tobytes() == want.tobytes():
        return
    width = got.dtype.itemsize
    left = np.frombuffer(got.tobytes(), np.uint8).reshape(-1, width)
    right = np.frombuffer(want.tobytes(), np.uint8).reshape(-1, width)
    wrong = np.flatnonzero((left != right).any(axis=1))
    at = int(wrong[0])
    raise Failure(
        f"{what}: element {at} is {got.reshape(-1)[at]}, expected {want.reshape(-1)[at]}; {len(wrong)} of {got.size} "
        f"elements are wrong"
    )


@contextmanager
def raises(kind: type[BaseException], what: str, *words: str) -> Iterator[None]:
    """Fail unless the block raises ``kind``, with every one of ``words`` in its text."""
    try:
        yield
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        if missing:
            raise Failure(f"{what}: the {kind.__name__} does not mention {missing[0]!r}: {error}") from error
        return
    except Exception as error:
        text = f"{what}: expected {kind.__name__}, got {type(error).__name__}: {error}"
        raise Failure(text) from error
    raise Failure(f"{what}: expected {kind.__name__}, and nothing was raised")


class Bench:
    """What a case works with. The device is opened again if a case closed it."""

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self.random = np.random.default_rng(options.seed)
        self._programs: dict[tuple[Device, str], Program] = {}
        self._rounds = 0

    @property
    def device(self) -> Device:
        """The device, open."""
        return open_device(self.name)

    @property
    def rounds_factor(self) -> int:
        """1 in the quick setting, 4 otherwise: how much oftener things are repeated."""
        return 1 if self.options.quick else 4

    # --- data ---------------------------------------------------------------------------------------------------------

    def bytes(self, count: int) -> npt.NDArray[np.uint8]:
        """Random bytes."""
        return self.random.integers(0, 256, count, dtype=np.uint8)

    def ints(self, count: int) -> Ints:
        """Random int32 values."""
        return self.random.integers(-(2**31), 2**31, count, dtype=np.int32)

    def upload(self, data: npt.NDArray[Any], stream: Stream | None = None) -> Buffer:
        """A buffer that holds ``data``."""
        buffer = self.device.allocate(data.nbytes)
        self.device.copy_in(buffer, 0, data, stream)
        return buffer

    def filled(self, count: int, value: int = 0) -> Buffer:
        """A buffer of ``count`` int32 that are all ``value``."""
        return self.upload(np.full(count, value, np.int32))

    def download(
        self, buffer: Buffer, count: int, dtype: npt.DTypeLike = np.int32, offset: int = 0, stream: Stream | None = None
    ) -> npt.NDArray[Any]:
        """``count`` values from byte ``offset`` of a buffer, waited for."""
        lane = stream or self.device.current_stream
        host = np.zeros(count, dtype)
        self.device.copy_out(host, buffer, offset, lane)
        lane.synchronize()
        return host

    # --- kernels ------------------------------------------------------------------------------------------------------

    def load(self, *functions: Operation) -> Program:
        """Compile and load kernels."""
        device = self.device
        signatures = [signature_of(function, device.target) for function in functions]
        return device.load(device.compile(render(list(functions), device.target), signatures))

    def program(self, make: Callable[..., Operation | Sequence[Operation]], *arguments: Any) -> Program:
        """The program of one or more of ``oarlock_conformance.kernels``, loaded once for the device."""
        key = (self.device, f"{make.__name__}{arguments}")
        if key not in self._programs:
            made = make(*arguments)
            self._programs[key] = self.load(*([made] if isinstance(made, Operation) else made))
        return self._programs[key]

    def launch(
        self,
        program: Program,
        grid: tuple[int, int, int],
        buffers: Sequence[tuple[Buffer, int]],
        scalars: Sequence[int | float] = (),
        stream: Stream | None = None,
        entry: str = "",
    ) -> None:
        """Launch a kernel (the program's first) on (buffer, byte offset) and the user's scalars."""
        entry = entry or next(iter(program.signatures))
        signature = program.signatures[entry]
        values: list[int | float] = [
            self.device.split_offset(offset, argument.storage.itemsize)[1]
            for (_, offset), argument in zip(buffers, signature.buffers, strict=True)
        ]
        self.device.launch(program, entry, grid, buffers, signature.pack([*values, *scalars]), stream)

    def increment(
        self, y: Buffer, x: Buffer, count: int, by: int = 1, stream: Stream | None = None, y_at: int = 0, x_at: int = 0
    ) -> None:
        """``y[i] = x[i] + by`` on the device; ``y_at`` and ``x_at`` are byte offsets."""
        self.launch(self.program(kernels.increment), (count, 1, 1), [(x, x_at), (y, y_at)], [by], stream)

    def stamp(self, out: Buffer, grid: tuple[int, int, int], salt: int = 1, offset: int = 0) -> None:
        """Each block i of ``grid`` adds ``salt + i`` to int32 number i from byte ``offset`` of ``out``."""
        wide, high = (min(size, 2**31 - 1) for size in grid[:2])
        self.launch(self.program(kernels.stamp), grid, [(out, offset)], [salt, wide, high])

    def spin(self, out: Buffer, seed: int, stream: Stream | None = None, seconds: float = SPIN_S) -> None:
        """Keep the device busy for about ``seconds``; at the end ``out[1] = seed`` (uint32)."""
        program = self.program(kernels.spin)
        if not self._rounds:
            self._rounds = self._calibrated(program)
        rounds = min(2**31 - 1, int(self._rounds * seconds / SPIN_S))
        self.launch(program, (1, 1, 1), [(out, 0)], [rounds, seed], stream)

    def _calibrated(self, program: Program) -> int:
        """Rounds that take about SPIN_S."""
        out = self.filled(2)

        def seconds(rounds: int) -> float:
            start = time.perf_counter()
            self.launch(program, (1, 1, 1), [(out, 0)], [rounds, 7])
            self.device.synchronize()
            return time.perf_counter() - start

        seconds(1)
        rounds = 1 << 14
        while rounds < 1 << 28:
            taken = min(seconds(rounds) for _ in range(3))  # another process may have the processor for a while
            if taken > SPIN_S / 4:
                return int(rounds * SPIN_S / taken)
            rounds *= 2
        return rounds

    # --- the device's state -------------------------------------------------------------------------------------------

    def works(self) -> None:
        """Fail unless the device copies, launches and waits as it should: what every case of a failure ends with."""
        data = self.ints(97)
        x, y = self.upload(data), self.filled(97)
        self.increment(y, x, 97, 5)
        expect_equal(self.download(y, 97), data + np.int32(5), f"{self.name} afterwards: y = x + 5")

    def forget(self) -> None:
        """Drop the kernels that are kept between cases."""
        self._programs.clear()

    def child(self, code: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run code in a child process with the same packages; there ``DEVICE`` is the device's name.

        Fails when it takes longer than ``timeout_s``.
        """
        text = CHILD + textwrap.dedent(code)
        command = [sys.executable, "-c", text, self.name, json.dumps(sys.path)]
        limit = min(timeout_s, self.options.deadline_s * 0.8)
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=os.name == "posix",
        ) as process:  # fmt: skip
            try:
                output, errors = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise Failure(f"a child process did not end within {limit:g} s") from None
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def clean_child(self, code: str, printed: str = "") -> None:
        """Run code in a child, which must end with status 0, an empty standard error, and ``printed``."""
        done = self.child(code)
        errors = done.stderr.strip()
        expect(done.returncode == 0, f"the child's exit status is {done.returncode}, expected 0; it printed: {errors}")
        expect(not errors, f"the child printed to standard error: {errors[-600:]}")
        expect(done.stdout.strip() == printed, f"the child printed {done.stdout.strip()!r}, expected {printed!r}")


def peer_of(device: Device) -> int:
    """The index of another device of the adapter that declares ``peer_copy`` too; -1: there is none."""
    infos = enumerate(device.adapter.devices())
    return next((at for at, info in infos if at != device.index and "peer_copy" in info.capabilities), -1)


def together(count: int, work: Callable[[int], None]) -> None:
    """Run ``work(number)`` in ``count`` threads; the first thing that goes wrong fails the case."""
    faults: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise Failure(f"in one of {count} threads: {type(faults[0]).__name__}: {faults[0]}") from faults[0]


@contextmanager
def setting(name: str, value: object) -> Iterator[None]:
    """Change a setting of the process inside the block."""
    before = getattr(config, name)
    setattr(config, name, value)
    try:
        yield
    finally:
        setattr(config, name, before)


@contextmanager
def muted() -> Iterator[None]:
    """Throw away what is printed to standard error inside the block, by libraries too.

    For sources that are wrong on purpose: a compiler may say what it likes about those.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
