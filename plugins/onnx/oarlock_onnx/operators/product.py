"""Matrix products and Einstein sums."""

from __future__ import annotations

import math

import numpy as np

from oarlock import dtypes
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.limits import check_host
from oarlock_onnx.node import Node
from oarlock_onnx.operators.common import (
    cast,
    dtype_of,
    expand,
    like,
    matmul,
    numbers,
    reduce,
    reshape,
    scalar,
    shape_of,
    slice_axis,
    transpose,
)
from oarlock_onnx.operators.index import flat_take
from oarlock_onnx.registry import operator

__all__: list[str] = []


@operator("MatMul")
def matmul_node(b: GraphBuilder, node: Node) -> Value:
    """NumPy's matmul."""
    return matmul(b, node.input(0), node.input(1))


@operator("Gemm")
def gemm(b: GraphBuilder, node: Node) -> Value:
    """alpha A B + beta C, either matrix transposed on request."""
    left, right, extra = node.input(0), node.input(1), node.optional(2)
    if len(shape_of(left)) != 2 or len(shape_of(right)) != 2:
        raise ModelError(f"{list(shape_of(left))} and {list(shape_of(right))} are not both matrices")
    contract = ((0 if node.flag("transA") else 1,), (1 if node.flag("transB") else 0,))
    if shape_of(left)[contract[0][0]] != shape_of(right)[contract[1][0]]:
        raise ModelError(f"{list(shape_of(left))} and {list(shape_of(right))} do not fit this product")
    product = b("dot_general", left, right, batch=((), ()), contract=contract, dtype=dtype_of(left))
    product = _scaled(b, product, node.real("alpha", 1.0))
    if extra is None:
        return product
    return b("add", product, expand(b, _scaled(b, extra, node.real("beta", 1.0)), shape_of(product)))


def _scaled(b: GraphBuilder, x: Value, factor: float) -> Value:
    if factor == 1.0:
        return x
    kind = dtype_of(x)
    if kind.is_float:
        return b("multiply", x, like(b, factor, x))
    return cast(b, b("multiply", cast(b, x, dtypes.float64), scalar(b, factor, dtypes.float64)), kind)


@operator("Det")
def det(b: GraphBuilder, node: Node) -> Value:
    """The determinant of the last two dimensions, by elimination with row exchange."""
    x = node.input(0)
    *batch, rows, columns = shape_of(x) if len(shape_of(x)) >= 2 else (0, 1)
    if rows != columns or rows > 64:
        raise ModelError(f"{list(shape_of(x))} are not square matrices of at most 64 rows")
    count = math.prod(batch)
    matrix = reshape(b, x, (count, rows, rows))
    result = b("broadcast", like(b, 1, x), shape=(count,), dims=())
    for size in range(rows, 0, -1):
        matrix, factor = _eliminate(b, matrix, count, size)
        result = b("multiply", result, factor)
    return reshape(b, result, batch)


def _eliminate(b: GraphBuilder, matrix: Value, count: int, size: int) -> tuple[Value, Value]:
    """The matrices without their first column and pivot row, and the signed pivots."""
    column = reshape(b, slice_axis(b, matrix, 2, 0, 1), (count, size))
    pivot = b("argmax", b("abs", column), axis=1, keepdims=False, dtype=dtypes.int32)
    base = numbers(b, count, 1, 0, size)
    row = flat_take(b, matrix, (count, size), b("add", base, pivot))
    lead = reshape(b, slice_axis(b, row, 1, 0, 1), (count,))
    moved = b("not_equal", pivot, scalar(b, 0, dtypes.int32))
    signed = b("select", moved, b("negative", lead), lead)
    rows = b("add", numbers(b, size - 1, 2, 1), scalar(b, 1, dtypes.int32))
    chosen = b("select", b("equal", rows, reshape(b, pivot, (count, 1))), scalar(b, 0, dtypes.int32), rows)
    rest = flat_take(b, matrix, (count, size), b("add", reshape(b, base, (count, 1)), chosen))
    safe = b("select", b("equal", lead, like(b, 0, lead)), like(b, 1, lead), lead)
    ratio = b("divide", slice_axis(b, rest, 2, 0, 1), reshape(b, safe, (count, 1, 1)))
    tail = reshape(b, slice_axis(b, row, 1, 1, size), (count, 1, size - 1))
    return b("subtract", slice_axis(b, rest, 2, 1, size), b("multiply", ratio, tail)), signed


@operator("Einsum")
def einsum(b: GraphBuilder, node: Node) -> Value:
    """An Einstein sum: operands are joined two at a time, each index summed as soon as nothing needs it."""
    operands = node.all_inputs()
    terms, wanted = _parse(node.string("equation"), [len(shape_of(value)) for value in operands])
    parts = [_prepared(b, value, term) for value, term in zip(operands, terms, strict=True)]
    value, term = parts[0]
    value, term = _summed(b, value, term, wanted + "".join(part[1] for part in parts[1:]))
    for place in range(1, len(parts)):
        later = wanted + "".join(part[1] for part in parts[place + 1 :])
        value, term = _joined(b, (value, term), parts[place], later)
    sizes: dict[str, int] = {}
    for operand, letters in zip(operands, terms, strict=True):
        for letter, dim in zip(letters, shape_of(operand), strict=True):
            sizes[letter] = max(sizes.get(letter, dim), dim) if sizes.get(letter, 1) != 1 else dim
    kept = [letter for letter in wanted if letter in term]
    value = transpose(b, value, [term.index(letter) for letter in kept])
    value = reshape(b, value, [sizes[letter] if letter in term else 1 for letter in wanted])
    return expand(b, value, [sizes[letter] for letter in wanted])


def _parse(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result; dimensions of an ellipsis become digits."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ModelError(f"equation {equation!r} is for {len(terms)} operands, there are {len(ranks)}")
    dots = 0
    for term, rank in zip(terms, ranks, strict=True):
        letters = term.replace("...", "")
        if not (letters.isascii() and letters.isalpha() or not letters) or term.count("...") > 1:
            raise ModelError(f"equation {equation!r} cannot be read")
        extra = rank - len(letters)
        if extra < 0 or (extra and "..." not in term):
            raise ModelError(f"equation {equation!r}: {term!r} is for another rank than {rank}")
        dots = max(dots, extra)
    if dots > 10:
        raise ModelError(f"equation {equation!r}: the ellipsis stands for {dots} dimensions, at most 10 are supported")
    digits = "0123456789"[:dots]
    full = [
        term.replace("...", digits[dots - (rank - len(term.replace("...", ""))) :])
        for term, rank in zip(terms, ranks, strict=True)
    ]
    if arrow:
        result = right.replace("...", digits)
    else:
        joined = "".join(full)
        result = digits + "".join(sorted(c for c in set(joined) - set(digits) if joined.count(c) == 1))
    if len(set(result)) != len(result) or not set(result) <= set("".join(full)):
        raise ModelError(f"equation {equation!r} cannot be read")
    return full, result


def _prepared(b: GraphBuilder, value: Value, term: str) -> tuple[Value, str]:
    """Diagonals of repeated letters taken, dimensions of size 1 dropped."""
    letters = "".join(dict.fromkeys(term))
    shape = shape_of(value)
    if len(letters) != len(term):
        sizes = {letter: {dim for c, dim in zip(term, shape, strict=True) if c == letter} for letter in letters}
        if any(len(dims) > 1 for dims in sizes.values()):
            raise ModelError(f"term {term!r} repeats a letter over different sizes of {list(shape)}")
        dims = [next(iter(sizes[letter])) for letter in letters]
        check_host("taking a diagonal", len(dims) + 1, *dims)
        grid = np.indices(dims, sparse=False)
        places = tuple(grid[letters.index(c)] for c in term)
        flat = np.ravel_multi_index(places, shape) if math.prod(shape) else np.zeros(dims, np.int64)
        value = flat_take(b, value, shape, b.constant(flat.astype(np.int32)))
    dims = list(shape_of(value))
    kept = [place for place, dim in enumerate(dims) if dim != 1]
    return reshape(b, value, [dims[place] for place in kept]), "".join(letters[place] for place in kept)


def _summed(b: GraphBuilder, value: Value, term: str, needed: str) -> tuple[Value, str]:
    axes = tuple(place for place, letter in enumerate(term) if letter not in needed)
    return reduce(b, "sum", value, axes, keepdims=False), "".join(c for c in term if c in needed)


def _joined(b: GraphBuilder, first: tuple[Value, str], second: tuple[Value, str], later: str) -> tuple[Value, str]:
    left, term_l = _summed(b, *first, later + second[1])
    right, term_r = _summed(b, *second, later + term_l)
    shared = [c for c in term_l if c in term_r]
    batch, contract = [c for c in shared if c in later], [c for c in shared if c not in later]
    for letter in shared:
        sizes = shape_of(left)[term_l.index(letter)], shape_of(right)[term_r.index(letter)]
        if sizes[0] != sizes[1]:
            raise ModelError(f"index {letter!r} has sizes {sizes[0]} and {sizes[1]}")
    value = b(
        "dot_general",
        left,
        right,
        batch=(tuple(map(term_l.index, batch)), tuple(map(term_r.index, batch))),
        contract=(tuple(map(term_l.index, contract)), tuple(map(term_r.index, contract))),
        dtype=dtype_of(left),
    )
    free = [c for c in term_l if c not in shared] + [c for c in term_r if c not in shared]
    return value, "".join(batch + free)
