"""Fusion: which operators of a program share a kernel.

A group computes operators over one domain (the sizes of S that are not 1). Element-wise operators over the same domain
share a group; a reduction of the domain makes it a *row* group, where operators on the reduced shape ("row level") and
on the domain ("element level") stay together, so that a softmax is one kernel. A contraction, window or scan (an
*anchor*) founds a group that element-wise consumers of its result join. Operators that only move or make elements
(*free* ones: broadcast, transpose, slice, iota ...) belong to no group: who reads them computes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from oarlock.codegen.free import REDUCTIONS, base_of, is_free, significant, through
from oarlock.codegen.groups import (
    ANCHORS,
    MAX_MEMBERS,
    MOVERS,
    PLACING,
    SIZE_BYTES,
    SOLITARY,
    Group,
    Placement,
    copies_what_is_computed,
    is_interleaved,
    latest,
    worth_copying,
)
from oarlock.codegen.schedule_dialect import SCHEDULE
from oarlock.codegen.values import ints, numel, shape_of
from oarlock.ir import Builder, Operation, ScalarType, TensorType, Value
from oarlock.ops import array_context
from oarlock.target import Target

__all__ = ["fuse"]


class _Fuser:
    def __init__(self, function: Operation, target: Target, claimed: Mapping[Operation, object]) -> None:
        self.claimed = claimed
        self.context = array_context()
        self.context.register(SCHEDULE)
        self.block = function.regions[0].block
        self.target = target
        self.owner: dict[Operation, Group] = {}
        self.groups: list[Group] = []
        self.order = {op: i for i, op in enumerate(self.block.ops)}
        self.steps = {op: _steps_before(op) for op in self.block.ops if op.name == "schedule.attend"}
        self.attended = {step for steps in self.steps.values() for step in steps}
        self.returned = set(self.block.terminator.operands)
        self.joined: dict[Operation, list[Group]] = {}
        """The groups that store the parts of a concatenation."""
        self._bases: dict[Operation, list[Value]] = {}
        self._numbers: dict[Operation, frozenset[Value]] = {}
        self.placements: dict[Value, Placement] = {}

    def run(self) -> list[Group]:
        for op in self.block.ops:
            if op is self.block.terminator:
                continue
            if is_free(op):
                if any(r in self.returned for r in op.results) and not self.is_alias(op):
                    self.found(op)
            elif op.name != "array.constant":
                self.place(op)
        for op in self.block.ops:
            if op.name == "array.concat":
                self.store_parts(op)
        return [self.finish(g) for g in self.sorted_groups()]

    def is_alias(self, op: Operation) -> bool:
        """Whether a free operator's result is the same memory as a value that lies in memory anyway."""
        value: Value | None = op.result
        while value is not None:
            definition = value.defining_op
            if definition is None or not is_free(definition):
                return True
            if definition.name != "array.reshape":
                return False
            value = definition.operands[0]
        return False

    # --- placing ---------------------------------------------------------------------------------------------------

    def place(self, op: Operation) -> None:
        if op in self.attended:
            return  # the group of what attends to it will hold it
        if op in self.claimed:
            self.found(op)
            self.owner[op].library = self.claimed[op]
            return
        if op.name in SOLITARY or op.name in ANCHORS or (op.name in MOVERS and not copies_what_is_computed(op)):
            self.found(op)
            return
        for group in self.producers(op):
            if self.try_join(op, group):
                return
        self.found(op)

    def found(self, op: Operation) -> None:
        """Start a group with ``op``."""
        reduction = op.name in REDUCTIONS and not is_free(op)
        shape = shape_of(op.operands[0] if reduction else op.results[0])
        group = Group(shape)
        if op.name in ANCHORS or op.name in SOLITARY:
            group.anchor = op
        group.bits = 1 << len(self.groups)
        self.groups.append(group)
        for step in self.steps.get(op, ()):
            self.add(step, group, ())
        if reduction:
            group.axes = tuple(sorted(ints(op, "axes")))
            self.add(op, group, self.row_map(group))
        else:
            self.add(op, group, tuple(range(len(group.domain))))

    @staticmethod
    def row_map(group: Group) -> tuple[int, ...]:
        return tuple(k for k in range(len(group.domain)) if k not in group.reduced)

    def add(self, op: Operation, group: Group, dims: tuple[int, ...]) -> None:
        group.members.append(op)
        self.owner[op] = group
        depth = max((group.depths.get(b, 0) for b in self.bases(op) if b in group.maps), default=0)
        for result in op.results:
            group.maps[result] = dims
            group.depths[result] = depth + (op.name in REDUCTIONS and group.axes is not None)
        ancestors = group.ancestors
        for other in self.producers(op):
            if other is not group:
                ancestors |= other.ancestors | other.bits
        self.widen(group, ancestors)

    def widen(self, group: Group, ancestors: int) -> None:
        """Give ``group``, and all that need it, more ancestors."""
        if ancestors == group.ancestors:
            return
        group.ancestors = ancestors
        for other in self.groups:
            if other.merged_into is None and other.ancestors & group.bits:
                other.ancestors |= ancestors

    def bases(self, op: Operation) -> list[Value]:
        """The values in memory that ``op`` reads, perhaps through free operators."""
        found = self._bases.get(op)
        if found is None:
            found = self._bases[op] = [
                b for b in map(base_of, op.operands) if b is not None and isinstance(b.type, TensorType)
            ]
        return found

    def group_of(self, value: Value) -> Group | None:
        op = value.defining_op
        group = self.owner.get(op) if op is not None else None
        return None if group is None else latest(group)

    def producers(self, op: Operation) -> list[Group]:
        """The groups that ``op`` reads from: those with reductions first, then the latest first."""
        found = {id(g): g for g in (self.group_of(b) for b in self.bases(op)) if g is not None}
        return sorted(found.values(), key=lambda g: (g.axes is None, -self.order[g.members[-1]]))

    def try_join(self, op: Operation, group: Group) -> bool:
        """Add ``op`` to ``group``, merging its other producers in where that is sound; False when it does not fit."""
        if group.library is not None or (group.anchor is not None and group.anchor.name in SOLITARY):
            return False
        if op.name in REDUCTIONS and any(map(is_interleaved, group.members)) and not self.target.has_threads:
            return False  # its elements would be read one by one; stored, they are vectors
        saved_axes = group.axes
        dims = self.fit(op, group)
        if dims is None:
            group.axes = saved_axes
            return False
        for other in self.producers(op):
            if other is not group and self.can_merge(op, group, other):
                self.merge(group, other)
        others = [g for g in self.producers(op) if g is not group]
        crowded = len(group.members) >= MAX_MEMBERS or self.count_buffers(group, op) > self.target.limits.max_buffers
        crowded = crowded or self.scalar_bytes([*group.members, op]) > self.target.limits.max_scalar_bytes
        if crowded or any(self.reaches(group, other) for other in others):
            group.axes = saved_axes
            return False
        self.add(op, group, dims)
        return True

    def fit(self, op: Operation, group: Group) -> tuple[int, ...] | None:
        """The map of ``op``'s result in ``group``, or None when it has no place there. May set ``group.axes``."""
        if op.name in REDUCTIONS:
            return self.fit_reduction(op, group)
        sizes = significant(shape_of(op.results[0]))
        element = tuple(range(len(group.domain)))
        candidates: list[tuple[int, ...]] = []
        if sizes == group.domain:
            candidates.append(element)
        rows = self.row_map(group)
        if group.axes is not None and rows != element and sizes == tuple(group.domain[k] for k in rows):
            candidates.append(rows)
        for dims in candidates:
            waits = any(group.depths.get(b, 0) for b in self.bases(op) if b in group.maps)
            if dims == element and group.is_column and waits:
                continue
            if all(self.agrees(op, v, dims, group) for v in op.operands):
                return dims
        return None

    def fit_reduction(self, op: Operation, group: Group) -> tuple[int, ...] | None:
        (x,) = op.operands
        if group.anchor is not None or significant(shape_of(x)) != group.domain or numel(x) == 0:
            return None
        kept = [i for i, d in enumerate(shape_of(x)) if d != 1]
        reduced = frozenset(k for k, i in enumerate(kept) if i in ints(op, "axes"))
        if group.axes is not None and reduced != group.reduced:
            return None
        base = base_of(x)
        if base is None or base not in group.maps or not group.is_element(base):
            return None
        element = tuple(range(len(group.domain)))
        if not self.maps_to(x, list(range(len(group.domain))), group, shape_of(x)):
            return None
        if group.axes is None:
            if not reduced:
                return None
            positions = [i for i, d in enumerate(group.shape) if d != 1]
            group.axes = tuple(positions[k] for k in sorted(reduced))
        if group.is_column and group.depths.get(base, 0):
            return None
        return tuple(k for k in element if k not in reduced)

    def agrees(self, op: Operation, operand: Value, dims: tuple[int, ...], group: Group) -> bool:
        """Whether ``operand`` of an element-wise ``op`` placed at ``dims`` reads its base where that is computed."""
        base = base_of(operand)
        if base is None or base not in group.maps:
            return True
        shape = shape_of(op.results[0])
        names = iter(dims)
        own: list[int | None] = [next(names) if d != 1 else None for d in shape]
        lead = len(shape) - len(shape_of(operand))
        current = [own[lead + i] if d != 1 else None for i, d in enumerate(shape_of(operand))]
        return self.traces(operand, current, group)

    def maps_to(self, value: Value, dims: Sequence[int], group: Group, shape: Sequence[int]) -> bool:
        names = iter(dims)
        return self.traces(value, [next(names) if d != 1 else None for d in shape], group)

    def traces(self, value: Value, current: list[int | None], group: Group) -> bool:
        """Follow free operators from ``value``, whose dimensions are the domain's ``current``, to a member."""
        while value not in group.maps:
            op = value.defining_op
            assert op is not None
            step = through(op, current)
            if step is None:
                return False
            current, value = step, op.operands[0]
        return tuple(d for d in current if d is not None) == group.maps[value]

    # --- soundness -------------------------------------------------------------------------------------------------

    def predecessors(self, group: Group) -> Iterator[Group]:
        for member in group.members:
            for base in self.bases(member):
                for other in self.groups_of(base):
                    if other is not group:
                        yield other

    def groups_of(self, value: Value) -> list[Group]:
        """The groups that compute ``value``: several where they store parts of it."""
        op = value.defining_op
        if op in self.joined:
            return [latest(group) for group in self.joined[op]]
        found = self.group_of(value)
        return [] if found is None else [found]

    @staticmethod
    def reaches(ancestor: Group, group: Group) -> bool:
        """Whether ``group`` needs something that ``ancestor`` computes."""
        return bool(group.ancestors & ancestor.bits)

    def can_merge(self, op: Operation, group: Group, other: Group) -> bool:
        """Whether ``other`` may become part of ``group`` because ``op`` reads both over one domain."""
        if (
            other.domain != group.domain
            or other.library is not None
            or other.anchor is not None
            or group.anchor is not None
        ):
            return False
        if other.axes is not None and (group.axes is None or other.reduced != group.reduced):
            return False
        if other.axes is not None and (self.reaches(other, group) or self.reaches(group, other)):
            return False  # one waits for the other's reductions, which its depths do not count
        if len(other.members) + len(group.members) >= MAX_MEMBERS:
            return False
        probe = Group(group.shape, axes=group.axes, maps={**other.maps}, depths=other.depths)
        if self.fit(op, probe) is None or not (self.reads_in_place(group, other) and self.reads_in_place(other, group)):
            return False
        together = other.members + group.members + [op]
        if self.buffers(together) > self.target.limits.max_buffers:
            return False
        if self.scalar_bytes(together) > self.target.limits.max_scalar_bytes:
            return False
        middle = [
            g for g in (*self.predecessors(group), *self.predecessors(other)) if g is not group and g is not other
        ]
        return not any(self.reaches(group, m) or self.reaches(other, m) for m in middle)

    def reads_in_place(self, group: Group, other: Group) -> bool:
        """Whether members of ``group`` read what ``other`` computes at the place of the domain where it is computed."""
        for member in group.members:
            for operand in member.operands:
                if base_of(operand) not in other.maps:
                    continue
                if member.name in MOVERS:
                    return False
                if member.name in REDUCTIONS:
                    if not self.maps_to(operand, range(len(other.domain)), other, shape_of(operand)):
                        return False
                elif not self.agrees(member, operand, group.maps[member.results[0]], other):
                    return False
        return True

    def merge(self, group: Group, other: Group) -> None:
        group.members = sorted((*other.members, *group.members), key=self.order.__getitem__)
        group.maps.update(other.maps)
        group.depths.update(other.depths)
        other.merged_into = group
        group.bits |= other.bits
        self.widen(group, (group.ancestors | other.ancestors) & ~group.bits)

    # --- concatenation ---------------------------------------------------------------------------------------------

    def store_parts(self, op: Operation) -> None:
        """Let those who compute the parts of a concatenation store them in it, where all of them can."""
        group = self.group_of(op.result)
        assert group is not None
        if group.members != [op] or len(set(op.operands)) != len(op.operands):
            return
        parts = [self.part_group(v, op) for v in op.operands]
        for position in worth_copying(op, parts, self.target):  # what is there already, or others read too
            parts[position] = self.copied(op, position)
        if any(part is None for part in parts):
            return
        groups = list(dict.fromkeys(latest(part) for part in parts if part is not None))
        for other in groups[1:]:
            if self.stands_beside(groups[0], latest(other)):
                self.merge(groups[0], latest(other))
        axis, start = op.attributes["axis"], 0
        assert isinstance(axis, int)
        for v in op.operands:
            self.placements[v] = Placement(op.result, axis, start)
            start += shape_of(v)[axis]
        self.joined[op] = groups
        group.merged_into = groups[0]

    def copied(self, op: Operation, position: int) -> Group | None:
        """The group of a new copy of an operand, which takes its place."""
        if not numel(op.operands[position]) or op.parent is None:
            return None
        b = Builder(self.context, op.parent, op)
        copy = b.create("schedule.copy", (op.operands[position],))
        op.set_operand(position, copy.result)
        self.order[copy] = self.order[op]
        self.found(copy)
        return self.owner[copy]

    def part_group(self, v: Value, op: Operation) -> Group | None:
        """The group whose kernel can store ``v`` as a part of the concatenation ``op``."""
        group = self.group_of(v)
        if group is None or v not in group.maps or group.library is not None or group.axes is not None:
            return None
        anchored = group.anchor is not None and group.anchor.name not in PLACING
        alone = v not in self.returned and [user for user, _ in v.uses] == [op]
        return group if alone and not anchored and numel(v) and group.is_element(v) else None

    def stands_beside(self, group: Group, other: Group) -> bool:
        """Whether ``other``, which needs nothing of ``group`` and the reverse, may share its kernel."""
        if group is other or group.domain != other.domain or group.anchor is not None or other.anchor is not None:
            return False
        together = [*group.members, *other.members]
        if len(together) > MAX_MEMBERS or self.buffers(together) > self.target.limits.max_buffers:
            return False
        if self.scalar_bytes(together) > self.target.limits.max_scalar_bytes:
            return False
        return not (self.reaches(group, other) or self.reaches(other, group))

    def count_buffers(self, group: Group, op: Operation) -> int:
        return self.buffers([*group.members, op])

    def buffers(self, members: Sequence[Operation]) -> int:
        inside = {r for m in members for r in m.results}
        leaves = {b for m in members for b in self.bases(m) if b not in inside}
        mine = set(members)
        outputs = [r for r in inside if self.escapes(r, mine)]
        return len(leaves) + len(outputs)

    def scalar_bytes(self, members: Sequence[Operation]) -> int:
        """About how long the scalar block will be: run-time scalars, an offset per buffer, and a few sizes.

        Nothing is counted where the program has no run-time scalars: then blocks stay far below any limit.
        """
        numbers = {v for m in members for v in self.numbers(m)}
        if not numbers:
            return 0
        return SIZE_BYTES + 4 * self.buffers(members) + 8 * len(numbers)

    def numbers(self, op: Operation) -> frozenset[Value]:
        """The run-time scalars that ``op`` reads through free operators."""
        found = self._numbers.get(op)
        if found is None:
            scalars: set[Value] = set()
            stack = list(op.operands)
            while stack:
                value = stack.pop()
                made = value.defining_op
                if isinstance(value.type, ScalarType):
                    scalars.add(value)
                elif made is not None and is_free(made):
                    stack.extend(made.operands)
            found = self._numbers[op] = frozenset(scalars)
        return found

    def escapes(self, value: Value, members: set[Operation]) -> bool:
        """Whether something outside ``members`` reads ``value``, perhaps through free operators."""
        stack = [value]
        while stack:
            current = stack.pop()
            if current in self.returned:
                return True
            for user in current.users:
                if user in members or user is self.block.terminator:
                    continue
                if not is_free(user):
                    return True
                stack.extend(user.results)
        return False

    # --- result ----------------------------------------------------------------------------------------------------

    def sorted_groups(self) -> list[Group]:
        """The live groups, each after those it needs."""
        live = [g for g in self.groups if g.merged_into is None]
        done: set[int] = set()
        result: list[Group] = []
        for root in sorted(live, key=lambda g: self.order[g.members[-1]]):
            stack = [(root, False)]
            while stack:
                group, ready = stack.pop()
                if ready:
                    result.append(group)
                    continue
                if id(group) in done:
                    continue
                done.add(id(group))
                stack.append((group, True))
                stack.extend((p, False) for p in self.predecessors(group) if id(p) not in done)
        return result

    def finish(self, group: Group) -> Group:
        inside = {r for m in group.members for r in m.results}
        mine = set(group.members)
        # a free operator that founded its group is computed here, not looked through
        group.outputs = [
            r for m in group.members for r in m.results if self.escapes(r, mine) or (is_free(m) and r in self.returned)
        ]
        if group.anchor is not None and group.anchor.name in SOLITARY:
            group.outputs = list(group.anchor.results)  # such a kernel stores all it has
        group.placed = {v: self.placements[v] for v in group.outputs if v in self.placements}
        leaves: dict[Value, None] = {}
        for member in group.members:
            for base in self.bases(member):
                if base not in inside:
                    leaves[base] = None
        group.leaves = list(leaves)
        return group


def _steps_before(attend: Operation) -> list[Operation]:
    """What a ``schedule.attend`` is computed from inside its kernel: its scores, and what stands between, in order."""
    inside: dict[Operation, bool] = {}

    def leads_to_scores(value: Value) -> bool:
        op = value.defining_op
        if op is None or op.name == "schedule.attend":
            return False
        if op.name == "schedule.scores":
            inside[op] = True
        if op not in inside:
            reached = [leads_to_scores(v) for v in op.operands]
            inside[op] = any(reached)
        return inside[op]

    leads_to_scores(attend.operands[0])
    return [op for op, yes in inside.items() if yes]


def fuse(function: Operation, target: Target, claimed: Mapping[Operation, object] | None = None) -> list[Group]:
    """The kernels of a function of array primitives with static shapes, in an order in which they can run.

    Operations in ``claimed`` run as the adapter's own kernels.
    """
    return _Fuser(function, target, claimed or {}).run()
