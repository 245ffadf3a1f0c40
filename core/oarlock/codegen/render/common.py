"""What every renderer reads off a kernel.function: its name, parameters and threads."""

from __future__ import annotations

from dataclasses import dataclass

from oarlock.errors import IRError
from oarlock.ir import BufferType, Operation, Value

__all__ = ["Parameters", "parameters"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """A kernel's frame; ``buffers`` and ``scalars`` are (block argument, name)."""

    name: str
    threads: tuple[int, int, int]
    buffers: tuple[tuple[Value, str], ...]
    scalars: tuple[tuple[Value, str], ...]


def parameters(function: Operation) -> Parameters:
    """The frame of ``function``; raises IRError when it is no kernel.function."""
    names, block = function.attributes.get("arguments"), function.attributes.get("block")
    if function.name != "kernel.function" or not isinstance(names, tuple) or not isinstance(block, tuple):
        raise IRError(f"{function.name} is no kernel.function with arguments and block")
    pairs = tuple((a, str(name)) for a, name in zip(function.regions[0].block.args, names, strict=True))
    x, y, z = (int(n) for n in block)  # type: ignore[arg-type]
    return Parameters(
        str(function.attributes["name"]),
        (x, y, z),
        tuple(pair for pair in pairs if isinstance(pair[0].type, BufferType)),
        tuple(pair for pair in pairs if not isinstance(pair[0].type, BufferType)),
    )
