"""The table that describes a C-like language to the shared printer; a vendor's own C takes about forty lines of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from oarlock.codegen.render.common import Parameters
from oarlock.dtypes import DType

__all__ = ["CDialect", "Expression"]

Expression: TypeAlias = Callable[[str, Sequence[str], DType, DType], str]
"""(operation, operands, dtype of the first operand, dtype of the result) -> text that needs no parentheses."""


@dataclass(frozen=True, slots=True)
class CDialect:
    """How a C-like language spells what the shared printer needs. Fields in braces are filled in by the printer."""

    language: str
    """The name that Target.language gives."""
    types: Mapping[str, str]
    """dtype name -> type name. A dtype that is missing cannot be rendered."""
    function: str
    """The head of a kernel: ``{name}``, ``{parameters}``, the threads of a block ``{x}``, ``{y}``, ``{z}``."""
    buffer: str
    """A buffer parameter: ``{type}``, ``{name}``, and ``{const}``: ``const`` and a blank where it is only read."""
    scalar: str = "const {type} {name}"
    """A scalar parameter: ``{type}``, ``{name}``."""
    extra_parameters: tuple[str, ...] = ()
    """Parameters after the scalars, as they stand."""
    local: str = "{type} {name}[{size}];"
    """A local array, declared at the top of the kernel: ``{type}``, ``{name}``, ``{size}``."""
    private: str = "{type} {name}[{size}];"
    """A private array: likewise."""
    threads: bool = True
    """Whether blocks have threads; without, a kernel with more than one thread is refused."""
    unroll: str = ""
    """The line before a loop that is to be unrolled ``{count}`` times."""
    barrier: str = ""
    """The statement that the threads of a block wait in."""
    prefetch: str = ""
    """The statement that says that what is at ``{place}`` is read soon. Empty: that is not said."""
    shuffle: str = ""
    """``{value}`` in the thread whose number in the subgroup is this one's xor ``{mask}``. Empty: there is none."""
    matrix: frozenset[str] = frozenset()
    """The kinds of matrix units that ``matrix_KIND<STRIDE>(a, b, total)`` in ``enable`` computes with, by
    ``matrix_KIND``; ``matrix_store`` stores. Subgroups take part as a whole."""
    subgroup: int = 0
    """The threads of a subgroup."""
    block_id: str = ""
    """An int expression, with ``{axis}`` (0, 1, 2) or ``{xyz}`` (x, y, z); likewise the next two. Empty: unknown."""
    thread_id: str = "0"
    block_count: str = ""
    math: Mapping[str, str] = field(default_factory=dict)
    """``fma fabs sqrt floor ceil trunc rint`` -> function name, where it differs; ``{f}`` is ``f`` for float32."""
    bitcast: str = "as_{type}({value})"
    """The bits of ``{value}``, a ``{source}``, as ``{type}``; integers of one width are cast instead."""
    suffixes: Mapping[str, str] = field(default_factory=lambda: {"uint32": "u", "float32": "f"})
    """dtype name -> what follows a literal of it."""
    booleans: tuple[str, str] = ("0", "1")
    """false and true."""
    constant: str = "const {type} {name} = {value};"
    """The statement that names a value for good."""
    variable: str = "{type} {name}"
    """What declares a variable, in front of ``;`` or of its first value."""
    expression: Expression | None = None
    """Prints a kernel operation on scalars; None: as C does."""
    infinity: str = "INFINITY"
    nan: str = "NAN"
    vector: str = "{type}{lanes}"
    """The name of a vector type: ``{type}``, ``{dtype}``, ``{lanes}``."""
    bool_lanes: str = "int8"
    """The dtype that holds the lanes of a bool vector."""
    lanes: tuple[int, ...] = ()
    """The numbers of lanes that vectors may have."""
    pack: str = "({vector})({items})"
    """A vector made of scalars."""
    splat: str = ""
    """A vector of equal lanes, ``{value}``. Empty: packed."""
    whole: Callable[[str, Sequence[str], DType, DType, int], str | None] | None = None
    """What a kernel operation is on whole vectors: of its operands, the first one's dtype, the result's, and the lanes.
    None, or where it gives None: lane by lane."""
    lane: str = ".s{lane:x}"
    """What follows a vector to select a lane: ``{lane}`` or, up to four, ``{xyzw}``."""
    load: str = ""
    """A vector at ``{place}`` (a pointer aligned to elements) in ``{space}`` (global, local, private): ``{vector}``,
    ``{lanes}``. Empty: lane by lane."""
    store: str = ""
    """The statement that stores ``{value}`` at ``{place}``, likewise. Empty: lane by lane."""
    stream: str = ""
    """The statement that stores a whole ``{vector}`` past the caches, at a multiple of its size; ``{value}``,
    ``{place}``. Empty: as all are stored."""
    fence: str = ""
    """The last statement of a kernel that stores past the caches."""
    vector_operators: bool = True
    """Whether + - * / take whole vectors of floats."""
    vector_math: bool = True
    """Whether the functions in ``math`` take whole vectors."""
    vector_declaration: str = ""
    """What declares a vector type that is used: ``{vector}``, ``{type}``, ``{bytes}``, ``{itemsize}``."""
    preamble: str = ""
    """What stands first."""
    enable: Mapping[str, str] = field(default_factory=dict)
    """dtype name, or ``matrix_KIND`` -> what stands first where that is used."""
    reserved: frozenset[str] = frozenset()
    """Words that a parameter cannot have as its name, besides C's keywords and the types."""
    entry: Callable[[Parameters], str] | None = None
    """Prints what calls the function, where the function itself is not the entry point."""
