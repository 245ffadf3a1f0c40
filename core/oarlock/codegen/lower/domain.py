"""The domain of a kernel as runs of dimensions, cut only where an operator treats neighbours differently."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.codegen.free import is_free, through
from oarlock.codegen.groups import ANCHORS, Group
from oarlock.codegen.lower.emitter import Emitter
from oarlock.codegen.lower.index import Index, Run, single, split_linear
from oarlock.codegen.values import shape_of
from oarlock.ir import Operation, Value

__all__ = ["cuts", "member_index", "run_of", "runs_between", "turned_dim", "walk_runs"]


def cuts(group: Group) -> set[int]:
    """Boundaries k between significant dimensions k-1 and k of the domain that must lie between two runs."""
    rank = len(group.domain)
    result: set[int] = set()
    for member in group.members:
        if member.name in ANCHORS or member.name in ("array.gather", "array.pad", "array.concat") or is_free(member):
            return set(range(1, rank))
        if member.name == "array.random_bits":
            continue  # its operands are no part of the domain
        for operand in member.operands:
            result |= _operand_cuts(member, operand, group)
    for value, place in group.placed.items():
        result.add(sum(d != 1 for d in shape_of(value)[: place.axis]))
    for k in group.reduced:
        if k > 0 and k - 1 not in group.reduced:
            result.add(k)
        if k + 1 < rank and k + 1 not in group.reduced:
            result.add(k + 1)
    return result


def _operand_cuts(member: Operation, operand: Value, group: Group) -> set[int]:
    rank = len(group.domain)
    reduction = member.results[0] in group.depths and member.name.startswith("array.reduce_")
    dims = tuple(range(rank)) if reduction else group.maps[member.results[0]]
    shape = shape_of(operand if reduction else member.results[0])
    names = iter(dims)
    own: list[int | None] = [next(names) if d != 1 else None for d in shape]
    lead = len(shape) - len(shape_of(operand))
    current = [own[lead + i] if d != 1 else None for i, d in enumerate(shape_of(operand))]
    result: set[int] = set()
    value = operand
    while (op := value.defining_op) is not None and is_free(op) and op.operands and value not in group.maps:
        if op.name == "array.from_scalar":
            break
        if op.name in ("array.slice", "array.reverse"):
            for i, (d, before) in enumerate(zip(shape_of(value), shape_of(op.operands[0]), strict=True)):
                k = current[i]
                if k is not None and (d != before or op.name == "array.reverse"):
                    result |= {k, k + 1}
        else:
            step = through(op, current)
            if step is None:
                break
            current = step
        value = op.operands[0]
    if op is not None and op.name == "array.iota":
        axis = op.attributes["axis"]
        assert isinstance(axis, int)
        k = current[axis]
        return set() if k is None else {d for d in (k, k + 1) if 0 < d < rank}
    used = [k for k in current if k is not None]
    if used != sorted(used):
        return set(range(1, rank))
    for k in range(1, rank):
        if (k in used) != (k - 1 in used):
            result.add(k)
    return {k for k in result if 0 < k < rank}


def turned_dim(group: Group) -> int | None:
    """The dimension of the domain along which some operand lies in memory, where that is not the last one; where
    operands lie along several such, the largest."""
    last = len(group.domain) - 1
    found = {
        along
        for member in group.members
        for operand in member.operands
        if member.results[0] in group.maps and (along := _along(member, operand, group)) is not None
    }
    return max((k for k in found if k != last), key=lambda k: group.domain[k], default=None)


def _along(member: Operation, operand: Value, group: Group) -> int | None:
    """The dimension of the domain along which what is behind ``operand`` lies in memory; None where that is not so
    simple."""
    shape = shape_of(member.results[0])
    names = iter(group.maps[member.results[0]])
    own: list[int | None] = [next(names) if d != 1 else None for d in shape]
    lead = len(shape) - len(shape_of(operand))
    if lead < 0 or member.name in ("array.gather", "array.pad", "array.concat", "array.random_bits"):
        return None
    current = [own[lead + i] if d != 1 else None for i, d in enumerate(shape_of(operand))]
    value = operand
    while value not in group.leaves:
        op = value.defining_op
        if op is None or value in group.maps or not is_free(op) or not op.operands or op.name == "array.from_scalar":
            return None
        if op.name not in ("array.slice", "array.reverse"):
            step = through(op, current)
            if step is None:
                return None
            current = step
        value = op.operands[0]
    kept = [k for k, d in zip(current, shape_of(value), strict=True) if d != 1]
    return kept[-1] if len(kept) > 1 else None


def runs_between(sizes: Sequence[int], boundaries: set[int]) -> list[tuple[int, int]]:
    """(first, end) of each run of dimensions."""
    if not sizes:
        return []
    edges = [0, *sorted(k for k in boundaries if 0 < k < len(sizes)), len(sizes)]
    return list(zip(edges, edges[1:], strict=False))


def run_of(e: Emitter, domain: Sequence[int], first: int, end: int, position: Value) -> Run:
    """The run over dimensions ``first..end`` of the domain at ``position``."""
    dims = tuple(domain[first:end])
    if len(dims) == 1:
        return single(dims[0], e.size(dims[0], "domain", first), position)
    total = 1
    for dim in dims:
        total *= dim
    return Run(dims, e.size(total, "run", first, end), position, lambda i: e.size(dims[i], "domain", first + i))


def walk_runs(e: Emitter, domain: Sequence[int], spans: Sequence[tuple[int, int]], linear: Value) -> list[Run]:
    """The runs behind a row-major position over several runs."""
    zero = e.b.i(0)
    shapes = [run_of(e, domain, first, end, zero) for first, end in spans]
    counts = [run.count for run in shapes]
    positions = split_linear(e.b, linear, counts, [run.total for run in shapes])
    return [run_of(e, domain, first, end, p) for (first, end), p in zip(spans, positions, strict=True)]


def member_index(e: Emitter, value: Value, runs: Sequence[Run]) -> Index:
    """The index of a member's result, given the runs over its significant dimensions."""
    return Index(tuple(runs)).reshape(e.b, shape_of(value), lambda i: e.size(shape_of(value)[i], value, i))
