"""Groups: operators that share a kernel, and where their results are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from oarlock.codegen.free import significant
from oarlock.codegen.values import shape_of
from oarlock.ir import Operation, Value, traits
from oarlock.target import Target

__all__ = [
    "ANCHORS", "MAX_MEMBERS", "MOVERS", "PLACING", "SIZE_BYTES", "SOLITARY", "Group", "Placement",
    "copies_what_is_computed", "is_interleaved", "latest",
    "worth_copying",
]  # fmt: skip

ANCHORS = (
    "array.dot_general", "array.convolution", "schedule.convolution", "schedule.packed_product",
    "schedule.window_product", "schedule.attend", "array.window_reduce", "array.argmax", "array.argmin",
)  # fmt: skip
SOLITARY = (
    "array.scatter", "array.scan", "schedule.scan_pieces", "schedule.merge_pass", "schedule.radix_pass",
    "schedule.sort_rows",
)  # fmt: skip
"""Operators that have a kernel of their own and take no part in fusion."""
MOVERS = ("array.pad", "array.concat", "array.gather", "array.random_bits", "schedule.copy")
PLACING = ("schedule.packed_product", "schedule.window_product")
"""Anchors whose kernels can store what they compute as a part of something larger."""
SIZE_BYTES = 64
"""What sizes may take of a scalar block, where run-time scalars take the most."""
MAX_MEMBERS = 64
MOST_COPIES, STRETCH = 4, 16
"""Parts of a concatenation that are copied at most, and what of each lies together at least."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an output is stored: in ``whole``, from ``start`` on along ``axis``."""

    whole: Value
    axis: int
    start: int


@dataclass(slots=True, eq=False)
class Group:
    """Operators that share a kernel, in program order.

    ``shape`` is the domain with its ones; ``axes`` the dimensions of ``shape`` that its reductions reduce (None: there
    is none). ``maps`` gives for each member's result which significant dimension of the domain each of its own
    significant dimensions is. ``depths`` counts the reductions that a member waits for.
    """

    shape: tuple[int, ...]
    members: list[Operation] = field(default_factory=list)
    axes: tuple[int, ...] | None = None
    anchor: Operation | None = None
    library: object | None = None
    """The adapter's own kernel, where it has one for the group's only member."""
    maps: dict[Value, tuple[int, ...]] = field(default_factory=dict)
    depths: dict[Value, int] = field(default_factory=dict)
    outputs: list[Value] = field(default_factory=list)
    placed: dict[Value, Placement] = field(default_factory=dict)
    """The outputs that are parts of a concatenation, which they are stored in."""
    leaves: list[Value] = field(default_factory=list)
    merged_into: Group | None = None
    bits: int = 0
    """This group's bit, and those of the groups merged into it."""
    ancestors: int = 0
    """The bits of all groups that this one needs, directly or not."""

    @property
    def domain(self) -> tuple[int, ...]:
        """The sizes of the domain without ones."""
        return significant(self.shape)

    @property
    def stored(self) -> list[Value]:
        """What the kernel stores to: outputs, or what they are parts of."""
        return list(dict.fromkeys(self.placed[v].whole if v in self.placed else v for v in self.outputs))

    @property
    def reduced(self) -> frozenset[int]:
        """The significant dimensions that are reduced."""
        axes = self.axes or ()
        significant = [i for i, d in enumerate(self.shape) if d != 1]
        return frozenset(k for k, i in enumerate(significant) if i in axes)

    @property
    def is_column(self) -> bool:
        """Whether the reductions leave the last dimension: rows would be read across memory."""
        return self.axes is not None and len(self.domain) - 1 not in self.reduced

    def is_element(self, value: Value) -> bool:
        """Whether a member's result lives on the whole domain rather than on its rows."""
        return len(self.maps[value]) == len(self.domain)


def copies_what_is_computed(op: Operation) -> bool:
    """Whether it copies, into panels, what an element-wise operator computes for it alone, in the order of panels."""
    computed = op.operands[0].defining_op if op.attributes.get("panels") else None
    return computed is not None and computed.definition.has(traits.ELEMENTWISE) and len(op.operands[0].uses) == 1


def is_interleaved(op: Operation) -> bool:
    """Whether neighbours in the result of ``op`` come from several operands."""
    return op.name == "array.concat" and op.attributes["axis"] == len(shape_of(op.result)) - 1


def latest(group: Group) -> Group:
    """What a group was merged into, or itself."""
    while group.merged_into is not None:
        group = group.merged_into
    return group


def worth_copying(op: Operation, parts: Sequence[Group | None], target: Target) -> list[int]:
    """Which parts of a concatenation, that no group can store in it, are copied to let each part be stored on its own:
    one of several; or a few long ones, where neighbours that come from several operands could not be vectors."""
    absent = [position for position, part in enumerate(parts) if part is None]
    if len(absent) == 1 < len(parts):
        return absent
    long = all(shape_of(v)[-1:] >= (STRETCH,) for v in op.operands)
    return absent if long and is_interleaved(op) and len(absent) <= MOST_COPIES and not target.has_threads else []
