"""The light models inside the ``onnx`` package: real architectures whose weights must be filled in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, numpy_helper

__all__ = ["LIGHT_MODELS", "light_model", "refill"]

LIGHT_MODELS: tuple[str, ...] = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
    "zfnet512",
)  # fmt: skip
"""The names of the nine models."""


def light_model(name: str) -> ModelProto:
    """A light model as it is shipped: each weight is one repeated number, made by a ConstantOfShape node."""
    return onnx.load(Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx")


def refill(model: ModelProto, seed: int) -> ModelProto:
    """A copy of ``model`` with every constant weight drawn from a generator seeded by ``seed``.

    Weights of two and more dimensions are normal with variance 2 / inputs, so that values keep their scale from layer
    to layer; scales lie in [0.25, 0.75) and variances in [0.75, 1.25), so that residual sums stay small; biases and
    means are normal with deviation 0.1.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    shapes = {tensor.name: tensor for tensor in graph.initializer}
    generator = np.random.default_rng(seed)
    fillers = [node for node in graph.node if node.op_type == "ConstantOfShape" and node.input[0] in shapes]
    for node in fillers:
        shape = [int(dim) for dim in numpy_helper.to_array(shapes[node.input[0]])]
        values = _draw(generator, shape, _role(graph.node, node.output[0]))
        graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
        graph.node.remove(node)
    used = {name for node in graph.node for name in node.input}
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)
    for value in [value for value in graph.input if value.name in shapes and value.name not in used]:
        graph.input.remove(value)
    return copy


def _draw(generator: np.random.Generator, shape: Sequence[int], role: str) -> npt.NDArray[Any]:
    if role in ("scale", "variance"):
        return generator.random(shape, np.float32) * np.float32(0.5) + np.float32(0.25 if role == "scale" else 0.75)
    normal = generator.standard_normal(shape, np.float32)
    inputs = math.prod(shape[1:])
    return normal * np.float32(math.sqrt(2 / inputs) if len(shape) > 1 and inputs > 1 else 0.1)


def _role(nodes: Sequence[NodeProto], name: str) -> str:
    """What a constant is for: a ``scale``, a ``variance`` or an ``offset``, by what it feeds."""
    for node in nodes:
        if name not in node.input:
            continue
        if node.op_type == "BatchNormalization":
            return {1: "scale", 4: "variance"}.get(list(node.input).index(name), "offset")
        if node.op_type == "Unsqueeze":
            return _role(nodes, node.output[0])
        return "scale" if node.op_type == "Mul" else "offset"
    return "offset"
