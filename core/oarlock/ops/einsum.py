"""einsum over ArrayBuilder: Einstein's notation as transposes, sums and dot_general."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oarlock.errors import ShapeError
from oarlock.ir import Dim, Value
from oarlock.ops.inference import same_dtypes
from oarlock.ops.record import ArrayBuilder, tensor

__all__ = ["einsum"]


@dataclass(frozen=True, slots=True)
class _Term:
    """A tensor with one label per axis."""

    value: Value
    labels: tuple[str, ...]

    def size(self, label: str) -> Dim:
        return tensor(self.value).shape[self.labels.index(label)]


def einsum(b: ArrayBuilder, equation: str, *operands: Value) -> Value:
    """``numpy.einsum(equation, *operands)`` for operands of one dtype: explicit or implicit result, ellipses, repeated
    labels (diagonals). Raises ShapeError for an equation that does not fit."""
    inputs, output = _parsed(equation, [tensor(x).rank for x in operands])
    if operands:
        same_dtypes("einsum", [tensor(x) for x in operands])
    terms = [_diagonal(b, _Term(x, labels), equation) for x, labels in zip(operands, inputs, strict=True)]
    _check_sizes(terms, equation)
    result = terms[0]
    for place, term in enumerate(terms[1:], 1):
        later = {label for rest in terms[place + 1 :] for label in rest.labels}
        result = _contracted(b, result, term, later | set(output))
    result = _summed(b, result, set(output))
    return b("transpose", result.value, permutation=tuple(result.labels.index(label) for label in output))


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks) or not ranks:
        raise ShapeError(f"einsum: {equation!r} names {len(parts)} operands; got {len(ranks)}")
    spread = max(
        (rank - len(p.replace("...", "")) for p, rank in zip(parts, ranks, strict=True) if "..." in p), default=0
    )
    inputs = [_labels(part, rank, spread, equation) for part, rank in zip(parts, ranks, strict=True)]
    dots = tuple(f".{i}" for i in range(spread))
    if arrow:
        output = tuple(c for piece in _pieces(right, equation) for c in (dots if piece == "..." else piece))
    else:
        counted = [label for labels in inputs for label in labels if not label.startswith(".")]
        output = (*dots, *sorted(label for label in set(counted) if counted.count(label) == 1))
    known = {label for labels in inputs for label in labels}
    if len(set(output)) != len(output) or not set(output) <= known:
        raise ShapeError(f"einsum: the result of {equation!r} repeats a label or names one that no operand has")
    return inputs, output


def _pieces(part: str, equation: str) -> list[str]:
    before, dots, after = part.partition("...")
    if not all(c.isalpha() for c in before + after):
        raise ShapeError(f"einsum: {equation!r} holds something that is no letter, comma, arrow or ellipsis")
    return [before, dots, after] if dots else [before]


def _labels(part: str, rank: int, spread: int, equation: str) -> tuple[str, ...]:
    pieces = _pieces(part, equation)
    named = sum(len(p) for p in pieces if p != "...")
    if named > rank or (len(pieces) == 1 and named != rank):
        raise ShapeError(f"einsum: {part!r} of {equation!r} does not label the {rank} axes of its operand")
    dots = tuple(f".{i}" for i in range(spread - (rank - named), spread))
    return tuple(c for piece in pieces for c in (dots if piece == "..." else piece))


def _check_sizes(terms: Sequence[_Term], equation: str) -> None:
    sizes: dict[str, Dim] = {}
    for term in terms:
        for label in term.labels:
            size = term.size(label)
            if size != 1 and sizes.setdefault(label, size) != size:
                raise ShapeError(f"einsum: label {label!r} of {equation!r} stands for {sizes[label]} and {size}")


def _diagonal(b: ArrayBuilder, term: _Term, equation: str) -> _Term:
    """``term`` with every label once: repeated ones are masked to the diagonal and summed."""
    for label in term.labels:
        first = term.labels.index(label)
        while term.labels.count(label) > 1:
            second = term.labels.index(label, first + 1)
            shape = tensor(term.value).static_shape
            if shape[first] != shape[second]:
                raise ShapeError(f"einsum: {equation!r} takes the diagonal of unequal axes of {tensor(term.value)}")
            value = _take_diagonal(b, term.value, first, second)
            term = _Term(value, term.labels[:second] + term.labels[second + 1 :])
    return term


def _take_diagonal(b: ArrayBuilder, x: Value, first: int, second: int) -> Value:
    """The diagonal of two equal axes, at ``first``: every (size + 1)-th element once they are merged."""
    shape = tensor(x).static_shape
    size = shape[first]
    others = [axis for axis in range(len(shape)) if axis not in (first, second)]
    rest = tuple(shape[axis] for axis in others)
    merged = b("reshape", b("transpose", x, permutation=(first, second, *others)), shape=(size * size, *rest))
    whole = (0,) * len(rest), rest, (1,) * len(rest)
    line = b("slice", merged, starts=(0, *whole[0]), limits=(size * size, *whole[1]), steps=(size + 1, *whole[2]))
    order = list(range(1, len(rest) + 1))
    order.insert(first, 0)
    return b("transpose", line, permutation=tuple(order))


def _summed(b: ArrayBuilder, term: _Term, kept: set[str]) -> _Term:
    axes = tuple(axis for axis, label in enumerate(term.labels) if label not in kept)
    if not axes:
        return term
    return _Term(b("reduce_sum", term.value, axes=axes), tuple(label for label in term.labels if label in kept))


def _contracted(b: ArrayBuilder, x: _Term, y: _Term, kept: set[str]) -> _Term:
    """The product of two terms, summed over the labels that nobody needs later."""
    x, y = _summed(b, x, kept | set(y.labels)), _summed(b, y, kept | set(x.labels))
    x, y = _without_ones(b, x, y), _without_ones(b, y, x)
    shared = [label for label in x.labels if label in y.labels]
    batch = [label for label in shared if label in kept]
    summed = [label for label in shared if label not in kept]
    value = b(
        "dot_general",
        x.value,
        y.value,
        batch=tuple(tuple(t.labels.index(label) for label in batch) for t in (x, y)),
        contract=tuple(tuple(t.labels.index(label) for label in summed) for t in (x, y)),
        dtype=tensor(x.value).dtype,
    )
    free = [label for t in (x, y) for label in t.labels if label not in shared]
    return _Term(value, (*batch, *free))


def _without_ones(b: ArrayBuilder, term: _Term, other: _Term) -> _Term:
    """``term`` without axes of size 1 that ``other`` has in full: they broadcast."""
    drop = [label for label in term.labels if label in other.labels and term.size(label) == 1 != other.size(label)]
    if not drop:
        return term
    labels = tuple(label for label in term.labels if label not in drop)
    return _Term(b("reshape", term.value, shape=tuple(term.size(label) for label in labels)), labels)
