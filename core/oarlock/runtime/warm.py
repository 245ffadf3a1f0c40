"""Outcomes of lowering on disk: a process that compiles what another one compiled goes on where that one ended.

An entry lies beside the executables (``DiskCache``) and is trusted as they are: it is the user's own, and whole. It
holds no code, but JSON that names the executables with its kernels, so one of them that is missing makes it a miss. Its
key holds everything that lowering depends on; where that cannot be said, nothing is read or written:

- sizes that stand for others (``extents``), whose launches are expressions,
- schedules that are given rather than known of the device, and programs that are verified after each pass,
- operators, renderers and passes that are not Oarlock's own, or modules that are but were changed as they were loaded,
- programs that hold more than ``MOST_CONSTANT_BYTES`` of constants.

The adapter is asked again for kernels of its own, as for any plan; where it answers otherwise that is a miss.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Collection, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from oarlock import dtypes
from oarlock.abi import BufferArgument, KernelSignature, ScalarField
from oarlock.codegen.render import is_in_tree
from oarlock.codegen.schedule_dialect import SCHEDULE
from oarlock.config import config
from oarlock.errors import OarlockError
from oarlock.hal import CONTRACT
from oarlock.ir import Attribute, Block, Context, Dense, OpDefinition, Operation, Pass, Region, Type
from oarlock.ir.json import from_json, to_json
from oarlock.ops import array_context
from oarlock.registry.versions import CORE_VERSION
from oarlock.runtime.cache import DiskCache
from oarlock.runtime.device import Device
from oarlock.runtime.kernels import Progress, Stored, kernels_of
from oarlock.runtime.library import claims_of
from oarlock.runtime.outcome import Outcome, read_parts, written_parts
from oarlock.runtime.program import Program
from oarlock.runtime.sources import COMPILER, from_files
from oarlock.runtime.tuning.known import Known

__all__ = ["MOST_CONSTANT_BYTES", "Claims", "Entry", "entry_for"]

MOST_CONSTANT_BYTES = 1 << 20
"""Constants are hashed for the key, and written where a step reads them."""

_COMMON = [CORE_VERSION, list(CONTRACT), COMPILER, platform.python_version(), np.__version__, ml_dtypes.__version__]
"""What is the same for all keys of this process; constants are folded by NumPy."""


class Claims:
    """Asks a device's adapter for kernels of its own, and notes what it was asked and what it gave."""

    def __init__(self, device: Device) -> None:
        self._claim = claims_of(device)
        self._asked: list[tuple[OpDefinition, list[Type], dict[str, Attribute], list[Type]]] = []
        self.kernels: list[object | None] = []

    def __call__(self, op: Operation) -> object | None:
        kernel = self._claim(op)
        operands, results = [v.type for v in op.operands], [r.type for r in op.results]
        self._asked.append((op.definition, operands, dict(op.attributes), results))
        self.kernels.append(kernel)
        return kernel

    def function(self, context: Context) -> Operation:
        """The operations that were asked about, as a function that has what they take as its arguments."""
        block = Block()
        for definition, operands, attributes, results in self._asked:
            block.append(Operation(definition, [block.add_argument(t) for t in operands], attributes, results))
        return Operation(context.definition("builtin.function"), (), {"name": "asked"}, (), [Region([block])])


class Entry:
    """Where the outcome of lowering a function for ``device`` lies. Made by ``entry_for``."""

    def __init__(self, device: Device, key: str, context: Context) -> None:
        self.key = key
        self._device = device
        self._context = context
        self._disk = DiskCache(config.cache_dir / "lowered")

    def read(self, progress: Progress | None = None) -> tuple[Outcome, dict[str, Program]] | None:
        """The outcome, and the programs with its kernels, by name; None where anything of it is missing."""
        payload = self._disk.read(self.key)
        if payload is None:
            return None
        try:
            record = json.loads(payload)
            function = from_json(record["function"], self._context)
            claims = Claims(self._device)
            for op in from_json(record["asked"], self._context).regions[0].block.ops:
                claims(op)
            if [kernel is not None for kernel in claims.kernels] != record["claimed"]:
                return None
            outcome = Outcome(function, read_parts(record["parts"], function, claims.kernels))
            stored = [Stored(e["key"], tuple(map(_signature, e["signatures"]))) for e in record["executables"]]
        except (OarlockError, LookupError, TypeError, ValueError):  # whole, and yet not what is written here
            return None
        programs = kernels_of(self._device).take(stored, progress)
        return None if programs is None else (outcome, programs)

    def write(self, outcome: Outcome, programs: dict[str, Program], claims: Claims) -> None:
        """Keep the outcome, unless it holds what has no place in an entry."""
        used = list(dict.fromkeys(programs[part.kernel] for part in outcome.parts if isinstance(part.kernel, str)))
        if _constant_bytes(outcome.function) > MOST_CONSTANT_BYTES:
            return
        try:
            record = {
                "function": to_json(outcome.function, self._context),
                "asked": to_json(claims.function(self._context), self._context),
                "claimed": [kernel is not None for kernel in claims.kernels],
                "parts": written_parts(outcome, claims.kernels),
                "executables": [
                    {
                        "key": kernels_of(self._device).key_of(program),
                        "signatures": [_written(s) for s in program.signatures.values()],
                    }
                    for program in used
                ],
            }
        except (LookupError, TypeError):  # a buffer of another function, an adapter's kernel that it was not asked for
            return
        self._disk.write(self.key, json.dumps(record).encode())


def entry_for(
    function: Operation, device: Device, passes: Sequence[Pass], known: Known | None, fixed: Collection[int]
) -> Entry | None:
    """Where the outcome of ``function`` lies, with ``passes``, schedules ``known`` and ``fixed`` arguments.

    None where it cannot be said what it depends on, or nothing is kept on disk.
    """
    target = device.target
    if not config.cache or config.verify or COMPILER is None or not from_files() or not is_in_tree(target.language):
        return None
    context = array_context()
    context.register(SCHEDULE)
    own = all(_is_own(op, context) for op in function.walk())
    if not own or _constant_bytes(function) > MOST_CONSTANT_BYTES:
        return None
    described = [_described(item) for item in passes]
    if None in described:
        return None
    adapter = device.adapter
    parts = [
        *_COMMON, device.adapter_name, adapter.version, adapter.cache_key(target), target.fingerprint(), described,
        known.fingerprint if known is not None else None, sorted(fixed), to_json(function, context),
    ]  # fmt: skip
    return Entry(device, hashlib.sha256(json.dumps(parts).encode()).hexdigest(), context)


def _is_own(op: Operation, context: Context) -> bool:
    dialect = context.dialects.get(op.definition.dialect)
    return dialect is not None and dialect.operations.get(op.name) is op.definition


def _constant_bytes(function: Operation) -> int:
    attributes = (value for op in function.walk() for value in op.attributes.values())
    return sum(value.array.nbytes for value in attributes if isinstance(value, Dense))


def _described(item: Pass) -> list[Any] | None:
    """A pass as a part of a key; None where its state cannot be told."""
    kind = type(item)
    state = sorted(vars(item).items())
    plain = all(isinstance(value, (bool, int, float, str)) for _, value in state)
    if not plain or kind.__module__.partition(".")[0] != "oarlock":  # of a plugin's files too little is known
        return None
    return [item.name, kind.__module__, kind.__qualname__, state]


# --- signatures as JSON -----------------------------------------------------------------------------------------------


def _written(signature: KernelSignature) -> list[Any]:
    buffers = [[b.name, b.dtype.name, b.storage.name, b.access, b.overlap] for b in signature.buffers]
    scalars = [[s.name, s.dtype.name, s.offset] for s in signature.scalars]
    return [signature.name, buffers, scalars, signature.scalar_bytes, signature.block]


def _signature(record: Sequence[Any]) -> KernelSignature:
    name, buffers, scalars, scalar_bytes, block = record
    dtype: Callable[[str], dtypes.DType] = dtypes.by_name
    return KernelSignature(
        name,
        tuple([BufferArgument(n, dtype(d), dtype(storage), access, o) for n, d, storage, access, o in buffers]),
        tuple([ScalarField(n, dtype(d), offset) for n, d, offset in scalars]),
        scalar_bytes,
        tuple(block),
    )
