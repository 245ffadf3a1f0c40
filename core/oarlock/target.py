"""What the compiler generates for: a frozen description of language, types, abilities and limits.

Everything that generated code depends on is here and nowhere else, so a Target is part of every cache key.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError

__all__ = ["Limits", "Target"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Numbers that a launch or a binding may not pass. Sizes are bytes unless said otherwise."""

    max_block: tuple[int, int, int] = (1, 1, 1)
    """Threads per block in each dimension. (1, 1, 1): blocks have no threads, the CPU kind of target."""
    max_threads: int = 1
    """Threads per block in all."""
    max_grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    """Blocks in each dimension."""
    local_memory: int = 0
    """Local (shared) memory per block."""
    vector_width: int = 1
    """float32 lanes of the widest vector operation."""
    max_buffers: int = 64
    """Buffers of one kernel."""
    max_scalar_bytes: int = 1024
    """Size of one scalar block."""
    max_allocation: int = 2**62
    """Largest single allocation."""
    max_binding: int = 2**62
    """Largest extent of one binding."""
    binding_alignment: int | None = None
    """A binding's base is a multiple of this; None: the base is always 0."""
    copy_alignment: int = 1
    """Offsets and sizes of copies are multiples of this."""
    exclusive_binding: bool = False
    """One allocation may be bound at most once in a launch."""


@dataclass(frozen=True, slots=True)
class Target:
    """What generated code may assume.

    ``language`` names the renderer (``"llvm"``, ``"c99"``, ``"opencl"``, ...); ``compute`` the dtype names that
    arithmetic exists for; ``storage`` maps a dtype name to the name of the physical dtype that holds it (absent: the
    dtype itself when it is in ``compute``, else it cannot be stored); ``abilities`` are words such as
    ``"local_memory"``, ``"subgroup_32"``, ``"atomics"``, ``"fma"``, ``"matrix_float16"``.
    """

    language: str
    arch: str = "generic"
    flags: tuple[str, ...] = ()
    compute: frozenset[str] = frozenset({"bool", "int32", "uint32", "float32"})
    storage: tuple[tuple[str, str], ...] = ()
    flush_to_zero: frozenset[str] = frozenset()
    """dtype names whose subnormals may be flushed."""
    index_dtype: str = "int32"
    abilities: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)

    def computes(self, dtype: DType) -> bool:
        """Whether arithmetic on ``dtype`` exists as such."""
        return dtype.name in self.compute

    def stores(self, dtype: DType) -> bool:
        """Whether a tensor of ``dtype`` can live on this target."""
        return dtype.name in self.compute or any(name == dtype.name for name, _ in self.storage)

    def storage_of(self, dtype: DType) -> DType:
        """The physical dtype that holds ``dtype``; raises UnsupportedError naming what the target stores."""
        for name, physical in self.storage:
            if name == dtype.name:
                return dtypes.by_name(physical)
        if dtype.name in self.compute:
            return dtype
        stored = ", ".join(d.name for d in dtypes.ALL if self.stores(d))
        raise UnsupportedError(f"target {self.language}/{self.arch} does not store {dtype}; it stores {stored}")

    @property
    def has_threads(self) -> bool:
        """Whether a block has threads (the GPU kind of target) rather than being a function (the CPU kind)."""
        return self.limits.max_threads > 1

    @property
    def subgroup(self) -> int:
        """Threads that exchange values without memory, neighbours in a block; 0: none (no ability ``subgroup_N``)."""
        widths = [int(word.removeprefix("subgroup_")) for word in self.abilities if word.startswith("subgroup_")]
        return max(widths, default=0)

    @property
    def has_fma(self) -> bool:
        """Whether kernels multiply and add with one rounding."""
        return "fma" in self.abilities

    def with_limits(self, **changes: Any) -> Target:
        """A copy with some limits changed."""
        return replace(self, limits=replace(self.limits, **changes))

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary with sorted collections; equal targets give equal dictionaries."""
        record = asdict(self)
        for name in ("compute", "flush_to_zero", "abilities"):
            record[name] = sorted(record[name])
        return record

    def fingerprint(self) -> str:
        """A short hash of all of it, for cache keys."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]
