"""Operators whose result sizes depend on values: the values are made known first, then NumPy computes on the host."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.limits import check_host, check_size
from oarlock_onnx.node import Node
from oarlock_onnx.operators.common import axis_of, cast, gather_axis, reshape, shape_of, slice_axis
from oarlock_onnx.registry import operator

__all__: list[str] = []

Array = npt.NDArray[Any]


@operator("NonZero")
def non_zero(b: GraphBuilder, node: Node) -> Value:
    """The coordinates of elements that are not zero: [rank, count]."""
    found = np.nonzero(b.static(node.input(0), "the input of NonZero"))
    return b.known(np.asarray(found, np.int64).reshape(len(found), -1))


@operator("Compress")
def compress(b: GraphBuilder, node: Node) -> Value:
    """The slices along an axis (or the elements) for which the condition holds."""
    x = node.input(0)
    condition = b.static(node.input(1), "the condition of Compress").reshape(-1)
    if not node.has("axis"):
        x = reshape(b, x, (int(np.prod(shape_of(x), dtype=np.int64)),))
    axis = axis_of(node.integer("axis", 0), len(shape_of(x)))
    if condition.dtype != np.bool_ or len(condition) > shape_of(x)[axis]:
        raise ModelError(f"the condition ({condition.dtype}, {len(condition)}) does not fit {list(shape_of(x))}")
    return gather_axis(b, x, np.flatnonzero(condition), axis)


@operator("Unique")
def unique(b: GraphBuilder, node: Node) -> list[Value]:
    """Unique elements or slices, where they first occur, the way back, and their counts."""
    x = b.static(node.input(0), "the input of Unique")
    axis = axis_of(node.integer("axis"), x.ndim) if node.has("axis") else None
    values, first, back, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    back = back.reshape(-1)
    if not node.flag("sorted", True):
        order = np.argsort(first, kind="stable")
        values = np.take(values, order, axis=0 if axis is None else axis)
        back = np.argsort(order, kind="stable")[back]
        first, counts = first[order], counts[order]
    return [b.known(values), *(b.known(np.asarray(part, np.int64)) for part in (first, back, counts))]


@operator("NonMaxSuppression")
def non_max_suppression(b: GraphBuilder, node: Node) -> Value:
    """Boxes of highest score that overlap no better one too much: [count, (image, class, box)]."""
    boxes = b.static(node.input(0), "boxes").astype(np.float64)
    scores = b.static(node.input(1), "scores")
    given = [node.optional(place) for place in (2, 3, 4)]
    limit, overlap, least = (None if v is None else b.static(v, "a limit").reshape(-1)[0] for v in given)
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[2] != 4 or boxes.shape[1] != scores.shape[2]:
        raise ModelError(f"boxes {list(boxes.shape)} and scores {list(scores.shape)} do not fit")
    corners = _corners(boxes, node.flag("center_point_box"))
    chosen: list[tuple[int, int, int]] = []
    for image, group in itertools.product(range(scores.shape[0]), range(scores.shape[1])):
        kept = _suppressed(
            corners[image],
            scores[image, group],
            0 if limit is None else int(limit),
            0.0 if overlap is None else float(overlap),
            None if least is None else float(least),
        )
        chosen += [(image, group, box) for box in kept]
    return b.known(np.asarray(chosen, np.int64).reshape(-1, 3))


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes as low and high corner [..., 2, 2]."""
    if centred:
        middle, size = boxes[..., :2], boxes[..., 2:]
        return np.stack([middle - size / 2, middle + size / 2], axis=-2)
    pairs = boxes.reshape(*boxes.shape[:-1], 2, 2)
    return np.stack([pairs.min(axis=-2), pairs.max(axis=-2)], axis=-2)


def _suppressed(corners: Array, scores: Array, limit: int, overlap: float, least: float | None) -> list[int]:
    areas = np.prod(corners[:, 1] - corners[:, 0], axis=-1)
    kept: list[int] = []
    for box in np.argsort(-scores, kind="stable"):
        if len(kept) >= limit:
            break
        if least is not None and not scores[box] > least:
            continue
        low = np.maximum(corners[kept, 0], corners[box, 0])
        high = np.minimum(corners[kept, 1], corners[box, 1])
        shared = np.prod(np.maximum(high - low, 0), axis=-1)
        union = areas[kept] + areas[box] - shared
        if not (shared > overlap * union).any():
            kept.append(int(box))
    return kept


@operator("TfIdfVectorizer")
def tf_idf_vectorizer(b: GraphBuilder, node: Node) -> Value:
    """Counts of n-grams of integers, with up to a number of elements skipped between two of an n-gram."""
    x, mode = node.input(0), node.string("mode")
    shortest, longest = node.integer("min_gram_length"), node.integer("max_gram_length")
    skips = node.integer("max_skip_count")
    if not node.has("pool_int64s") or mode not in ("TF", "IDF", "TFIDF"):
        raise ModelError(f"mode {mode!r} with n-grams of strings is not supported")
    pool, starts, places = node.integers("pool_int64s"), node.integers("ngram_counts"), node.integers("ngram_indexes")
    if not places or min(places) < 0 or not 1 <= shortest <= longest <= len(starts) + 1 or not 0 <= skips < 1024:
        raise ModelError("n-gram lengths, skips and indexes do not fit")
    check_host("TfIdfVectorizer", max(places) + 1)
    width = check_size("the result", (max(places) + 1,), dtypes.float32)
    single = len(shape_of(x)) == 1
    rows = reshape(b, cast(b, x, dtypes.int64), (1, *shape_of(x)) if single else shape_of(x))
    counts = b("broadcast", b.constant(np.float32(0)), shape=(shape_of(rows)[0], width), dims=())
    used = 0
    for length in range(1, len(starts) + 1):
        end = starts[length] if length < len(starts) else len(pool)
        grams = np.asarray(pool[starts[length - 1] : end], np.int64)
        if len(grams) % length or used + len(grams) // length > len(places):
            raise ModelError("ngram_counts, ngram_indexes and the pool do not fit")
        target = np.asarray(places[used : used + len(grams) // length], np.int32)
        used += len(target)
        if len(target) and shortest <= length <= longest:
            found = _count(b, rows, grams.reshape(-1, length), range(1, 2 + (skips if length > 1 else 0)))
            counts = b("scatter", counts, b.constant(target), found, axis=1, kind="add")
    if mode == "IDF":
        counts = b("minimum", counts, b.constant(np.float32(1)))
    if mode != "TF" and node.has("weights"):
        weights = np.ones(width, np.float32)
        weights[list(places)] = node.reals("weights")
        counts = b("multiply", counts, b.constant(weights))
    return reshape(b, counts, (width,)) if single else counts


def _count(b: GraphBuilder, rows: Value, grams: Array, distances: range) -> Value:
    """How often each n-gram occurs in each row, over all distances between its elements: float32 [rows, grams]."""
    count, size = shape_of(rows)
    total = b("broadcast", b.constant(np.float32(0)), shape=(count, len(grams)), dims=())
    for distance in distances:
        positions = size - (grams.shape[1] - 1) * distance
        if positions < 1:
            continue
        hit: Value | None = None
        for place in range(grams.shape[1]):
            part = slice_axis(b, rows, 1, place * distance, place * distance + positions)
            same = b("equal", reshape(b, part, (count, 1, positions)), b.constant(grams[:, place][None, :, None]))
            hit = same if hit is None else b("bitwise_and", hit, same)
        if hit is not None:
            total = b("add", total, b("reduce_sum", cast(b, hit, dtypes.float32), axes=(2,), keepdims=False))
    return total
