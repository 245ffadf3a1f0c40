"""The one table of surfaces: which cases look at what a saboteur may break, and on which healthy device they pass."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from oarlock_conformance.case import Case, Level

__all__ = ["SURFACES", "Surface"]


@dataclass(frozen=True, slots=True)
class Surface:
    """Cases of ``level`` whose id matches one of ``patterns``; ``healthy`` names the simulator to compare with."""

    level: Level
    patterns: tuple[str, ...]
    healthy: str = "healthy"

    def holds(self, case: Case) -> bool:
        """Whether a case belongs to it."""
        return not case.unsupported and any(fnmatch.fnmatchcase(case.id, pattern) for pattern in self.patterns)


def _records(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}/*" for name in names)


SURFACES: dict[str, Surface] = {
    # --- the runtime ----------------------------------------------------------------------------------------------
    "copies": Surface("runtime", ("memory.cop*", "memory.arrays/*", "launch.order/mixed")),
    "memory": Surface("runtime", ("memory.allocate/*", "memory.free/*", "memory.trim/*")),
    "fill": Surface("runtime", ("memory.fill/*",)),
    "info": Surface("runtime", ("memory.info/*", "claims.capability/memory_info")),
    "address": Surface(
        "runtime",
        ("memory.address/*", "memory.adopt/*", "memory.pinned/*", "memory.allocate/alignment", "claims.capability/*"),
        "addressed",
    ),
    "peer": Surface("runtime", ("memory.copy/devices", "memory.peer/*", "claims.capability/peer_copy"), "pair"),
    "devices": Surface("runtime", ("devices.*", "memory.copy/devices"), "pair"),
    "launch": Surface("runtime", ("launch.*",)),
    "binding": Surface("runtime", ("launch.buffers/*", "memory.cop*", "memory.arrays/*"), "tight"),
    "program": Surface("runtime", ("program.*",)),
    "plan": Surface("runtime", ("plan.*", "claims.capability/plans")),
    "stream": Surface(
        "runtime",
        ("stream.*", "event.wait/*", "launch.order/*", "memory.copy_out/after_kernel", "claims.capability/streams"),
    ),
    "event": Surface("runtime", ("event.[!e]*",)),
    "time": Surface("runtime", ("event.elapsed/*",)),
    "failure": Surface("runtime", ("failure.*",)),
    "thread": Surface("runtime", ("threads.*",)),
    "life": Surface("runtime", ("life.*",)),
    "discovery": Surface("runtime", ("discovery.*",)),
    "claims": Surface("runtime", ("claims.*", "launch.*", "memory.info/*", "memory.allocate/*", "failure.*")),
    "process": Surface("runtime", ("launch.grid/*", "life.exit/normal", "life.process/*")),
    # --- the operators --------------------------------------------------------------------------------------------
    "arithmetic": Surface(
        "operators",
        (
            "bool.*", "rounding.*",
            *_records(
                "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "maximum", "minimum", "round",
                "left_shift", "right_shift", "equal", "less", "negative", "abs",
            ),
        ),
    ),
    "elementary": Surface("operators", _records("tanh", "exp", "sqrt", "rsqrt", "log", "sigmoid", "erf", "power")),
    "convert": Surface("operators", ("convert/float32/*", "convert/float64/*", "convert/int64/*", "trunc/float32/*")),
    "reduce": Surface("operators", ("nan.*", "sum.*", *_records("reduce_*", "arg*", "any", "all"))),
    "products": Surface("operators", _records("matmul", "dot_general")),
    "movement": Surface(
        "operators", _records("transpose", "reshape", "slice", "pad", "concat", "reverse", "broadcast")
    ),
    "index": Surface("operators", _records("gather*", "scatter*", "take_along_axis", "one_hot")),
    "window": Surface("operators", _records("window_reduce", "max_pool", "convolution")),
    "sort": Surface("operators", ("nan.sort/*", *_records("sort", "top_k"))),
    "random": Surface("operators", ("draws.*", *_records("random_bits"))),
    "fused": Surface("operators", ("fused.*", "random.*")),
    # --- collectives --------------------------------------------------------------------------------------------
    "collectives": Surface("collectives", ("engine.*", "reductions.*", "moves.*", "order.*"), "pair"),
}  # fmt: skip
