"""Subjects: what a schedule is chosen for, with a key that is the same in every process, and as a program of its own.

A subject is an operator that expansion may treat in several ways (a matrix product, a convolution), by itself, so that
what is fused behind it does not matter; or a fused group of element-wise operators and reductions, as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from oarlock.codegen.free import base_of, is_free
from oarlock.codegen.groups import Group
from oarlock.codegen.lower.structure import Structure
from oarlock.codegen.values import shape_of
from oarlock.ir import Block, Dense, Operation, Region, ScalarType, TensorType, Value
from oarlock.ops import array_context

__all__ = ["Subject", "fixed_values", "is_subject", "operator_subject"]

_NAMED = 4
"""Operators that a key spells out."""


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """What a schedule is chosen for. ``fixed``: the leaves that are the same in every run of the program."""

    group: Group
    fixed: frozenset[Value] = frozenset()

    @property
    def members(self) -> Sequence[Operation]:
        return self.group.members

    @property
    def leaves(self) -> Sequence[Value]:
        return self.group.leaves

    @property
    def is_operator(self) -> bool:
        """Whether it is a contraction by itself rather than a fused group."""
        return len(self.members) == 1 and self.members[0].name in ("array.dot_general", "array.convolution")

    @property
    def is_exact(self) -> bool:
        """Whether its sizes are numbers, not those of one example of many, which asking for a key would pin."""
        return all(type(d) is int for v in (*self.leaves, *self.group.outputs) for d in shape_of(v))

    @property
    def identity(self) -> Hashable:
        """Equal for equal keys, and quicker made."""
        return (Structure(self.group).key, tuple(v in self.fixed for v in self.leaves))

    @property
    def key(self) -> str:
        """``head`` and a hash of the whole structure: for a database."""
        return f"{self.head} #{hashlib.sha256(_text(self.identity).encode()).hexdigest()[:16]}"

    @property
    def head(self) -> str:
        """Operators and types of leaves, some of them: what people know it by."""
        names = [op.name.partition(".")[2] for op in self.members if not is_free(op) or len(self.members) == 1]
        words = ["_".join(names[:_NAMED]) + (f"_and_{len(names) - _NAMED}" if len(names) > _NAMED else "")]
        for value in self.leaves[:_NAMED]:
            assert isinstance(value.type, TensorType)
            dims = ",".join(map(str, shape_of(value)))
            words.append(f"{value.type.dtype}[{dims}]{' fixed' if value in self.fixed else ''}")
        return " ".join(words)

    def program(self) -> tuple[Operation, tuple[int, ...]]:
        """The subject as a function of its leaves (run-time scalars first), and which arguments are fixed."""
        context = array_context()
        behind = self._behind()
        scalars = dict.fromkeys(v for op in behind for v in op.operands if isinstance(v.type, ScalarType))
        block = Block([v.type for v in (*scalars, *self.leaves)])
        mapping: dict[Value, Value] = dict(zip((*scalars, *self.leaves), block.args, strict=True))
        for op in behind:
            block.append(op.clone(mapping))
        results = [mapping[v] for v in self.group.outputs]
        block.append(Operation(context.definition("builtin.return"), results))
        name = {"name": "subject"}
        function = Operation(context.definition("builtin.function"), (), name, (), [Region([block])])
        held = (len(scalars) + i for i, v in enumerate(self.leaves) if v in self.fixed)
        return function, tuple(held)

    def _behind(self) -> list[Operation]:
        """The members and the free operators that they read through, in program order."""
        inside = {*self.members}
        pending = [v for op in self.members for v in op.operands]
        while pending:
            value = pending.pop()
            op = value.defining_op
            if op is not None and op not in inside and value not in self.leaves and is_free(op):
                inside.add(op)
                pending += op.operands
        block = self.members[0].parent
        assert block is not None
        return [op for op in block.ops if op in inside]


def fixed_values(function: Operation, arguments: Collection[int]) -> frozenset[Value]:
    """The values of a function that are the same in every run, where the arguments at these positions are."""
    block = function.regions[0].block
    found: set[Value] = {block.args[i] for i in arguments}
    for op in block.ops:
        if not op.regions and all(v in found for v in op.operands):
            found.update(op.results)
    return frozenset(found)


def operator_subject(op: Operation, fixed: frozenset[Value]) -> Subject:
    """An operator by itself."""
    leaves = list(dict.fromkeys(b for v in op.operands if (b := base_of(v)) is not None))
    return Subject(
        Group(shape_of(op.results[0]), [op], leaves=leaves, outputs=list(op.results)), fixed.intersection(leaves)
    )


def is_subject(group: Group) -> bool:
    """Whether a group's schedule may be chosen: element-wise operators and reductions, all of the array dialect."""
    return group.anchor is None and all(m.name.startswith("array.") for m in group.members)


def _text(value: object) -> str:
    """A text that is equal for equal parts of a structure's key in every process."""
    if isinstance(value, Dense):
        return f"{value.dtype}{value.array.shape}{hashlib.sha256(value.array.tobytes()).hexdigest()}"
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"({' '.join(map(_text, value))})"
    return str(value)
