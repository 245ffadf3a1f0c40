"""Signal processing: Fourier transforms as products with constant matrices, mel weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock.dtypes import DType
from oarlock.errors import ModelError
from oarlock.ir import Value
from oarlock_onnx.builder import GraphBuilder
from oarlock_onnx.limits import check_host, check_size
from oarlock_onnx.node import Node
from oarlock_onnx.operators.common import (
    axis_of,
    cast,
    dtype_of,
    like,
    pad_axes,
    reshape,
    shape_of,
    slice_axis,
    transpose,
    wide,
)
from oarlock_onnx.registry import operator
from oarlock_onnx.tensors import dtype_of as onnx_dtype

__all__: list[str] = []

Array = npt.NDArray[Any]


def _scalar_of(b: GraphBuilder, value: Value, what: str) -> float:
    array = b.static(value, what)
    if array.size != 1:
        raise ModelError(f"{what} must be one number, it has shape {list(array.shape)}")
    return float(array.reshape(()))


@operator("DFT")
def dft(b: GraphBuilder, node: Node) -> Value:
    """The discrete Fourier transform along an axis; the last dimension holds real and imaginary part."""
    x, length_at = node.input(0), node.optional(1)
    rank = len(shape_of(x))
    if node.version >= 20:
        given = node.optional(2)
        axis = -2 if given is None else int(_scalar_of(b, given, "axis"))
    else:
        axis = node.integer("axis", 1)
    axis = axis_of(axis, rank)
    if axis == rank - 1 or shape_of(x)[-1] not in (1, 2):
        raise ModelError(f"axis {axis} of {list(shape_of(x))}: the last dimension holds real and imaginary part")
    inverse, onesided = node.flag("inverse"), node.flag("onesided")
    dim = shape_of(x)[axis]
    default = 2 * (dim - 1) if inverse and onesided else dim
    length = default if length_at is None else int(_scalar_of(b, length_at, "dft_length"))
    return _transform(b, x, axis, length, inverse, onesided)


def _transform(b: GraphBuilder, x: Value, axis: int, length: int, inverse: bool, onesided: bool) -> Value:
    if length < 1:
        raise ModelError(f"a transform of length {length} is not possible")
    if onesided and not inverse and shape_of(x)[-1] != 1:
        raise ModelError("a one-sided transform takes real input")
    kept = length // 2 + 1 if onesided else length
    size_in, size_out = (kept, length) if inverse else (length, kept)
    check_host("the transform", size_in, size_out)
    kind, rank = dtype_of(x), len(shape_of(x))
    x = _fitted(b, cast(b, x, wide(kind)), axis, size_in)
    order = [place for place in range(rank - 1) if place != axis] + [axis]
    cosine, sine = _matrices(size_in, size_out, length, inverse, onesided)
    parts = [reshape(b, part, shape_of(part)[:-1]) for part in _split_parts(b, x)]
    parts = [transpose(b, part, order) for part in parts]
    results = _complex_product(b, parts, cosine, sine, inverse and onesided, wide(kind))
    back = [order.index(place) for place in range(rank - 1)]
    shaped = [transpose(b, result, back) for result in results]
    shaped = [reshape(b, result, (*shape_of(result), 1)) for result in shaped]
    joined = shaped[0] if len(shaped) == 1 else b("concat", *shaped, axis=rank - 1)
    return cast(b, joined, kind)


def _fitted(b: GraphBuilder, x: Value, axis: int, size: int) -> Value:
    """Cut, or padded by zeros, to ``size`` along ``axis``."""
    high = [0] * len(shape_of(x))
    high[axis] = size - shape_of(x)[axis]
    return pad_axes(b, x, (0,) * len(high), high, like(b, 0, x))


def _split_parts(b: GraphBuilder, x: Value) -> list[Value]:
    axis = len(shape_of(x)) - 1
    return [slice_axis(b, x, axis, place, place + 1) for place in range(shape_of(x)[-1])]


def _matrices(size_in: int, size_out: int, length: int, inverse: bool, onesided: bool) -> tuple[Array, Array]:
    """Real and imaginary part of the factors [in, out]; angles are reduced first, so they stay exact."""
    turns = (np.arange(size_in)[:, None] * np.arange(size_out)[None, :]) % length
    angles = (2 if inverse else -2) * math.pi * turns / length
    weights = np.ones((size_in, 1))
    if inverse:
        weights /= length
        if onesided:
            weights[1 : (length + 1) // 2] *= 2
    return weights * np.cos(angles), weights * np.sin(angles)


def _complex_product(
    b: GraphBuilder, parts: list[Value], cosine: Array, sine: Array, real_only: bool, dtype: DType
) -> list[Value]:
    def times(x: Value, matrix: Array) -> Value:
        return b(
            "dot_general",
            x,
            b.constant(matrix, dtype),
            batch=((), ()),
            contract=((len(shape_of(x)) - 1,), (0,)),
            dtype=dtype,
        )

    real = times(parts[0], cosine)
    imaginary = None if real_only else times(parts[0], sine)
    if len(parts) == 2:
        real = b("subtract", real, times(parts[1], sine))
        if imaginary is not None:
            imaginary = b("add", imaginary, times(parts[1], cosine))
    return [real] if imaginary is None else [real, imaginary]


@operator("STFT")
def stft(b: GraphBuilder, node: Node) -> Value:
    """Transforms of windows of the signal: [batch, frames, bins, 2]."""
    signal, window = node.input(0), node.optional(2)
    step = int(_scalar_of(b, node.input(1), "frame_step"))
    given = node.optional(3)
    if given is not None:
        length = int(_scalar_of(b, given, "frame_length"))
    else:
        length = shape_of(window)[0] if window is not None else shape_of(signal)[1]
    if len(shape_of(signal)) != 3 or step < 1 or not 1 <= length <= shape_of(signal)[1]:
        raise ModelError(f"signal {list(shape_of(signal))}, frame_step {step} and frame_length {length} do not fit")
    frames = (shape_of(signal)[1] - length) // step + 1
    check_host("cutting frames", frames, length)
    places = np.arange(frames)[:, None] * step + np.arange(length)[None, :]
    cut = b("gather", signal, b.constant(places.astype(np.int32)), axis=1)
    if window is not None:
        if shape_of(window) != (length,):
            raise ModelError(f"window {list(shape_of(window))} does not fit frames of {length}")
        cut = b("multiply", cut, reshape(b, window, (length, 1)))
    return _transform(b, cut, 2, length, False, node.flag("onesided", True))


@operator("MelWeightMatrix")
def mel_weight_matrix(b: GraphBuilder, node: Node) -> Value:
    """Triangular filters on the mel scale: [spectrogram bins, mel bins]."""
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    bins, length, rate, low, high = (_scalar_of(b, node.input(place), name) for place, name in enumerate(names))
    rows, columns = int(length) // 2 + 1, int(bins)
    kind = onnx_dtype(node.integer("output_datatype", 1), "output_datatype")
    check_size("the matrix", (rows, columns), kind)
    check_host("the matrix", rows, columns)
    if columns < 1 or rate <= 0 or min(low, high) <= -700:
        raise ModelError(f"{columns} mel bins at {rate} Hz from {low} to {high} Hz are not possible")
    mels = 2595 * np.log10(1 + np.array([low, high]) / 700)
    edges = mels[0] + np.arange(columns + 2) * ((mels[1] - mels[0]) / (columns + 2))
    places = np.floor((int(length) + 1) * (700 * (10 ** (edges / 2595) - 1)) / rate).astype(np.int64)
    matrix = np.zeros((rows, columns))
    for column in range(columns):
        left, centre, right = places[column : column + 3]
        rising = centre - left
        if rising == 0 and 0 <= centre < rows:
            matrix[centre, column] = 1
        for row in range(max(left, 0), min(centre + 1, rows)) if rising else ():
            matrix[row, column] = (row - left) / rising
        for row in range(max(centre, 0), min(right, rows)):
            matrix[row, column] = (right - row) / (right - centre)
    return b.constant(matrix, kind)
