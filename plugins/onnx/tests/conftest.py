"""Small models that several tests share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

MakeModel = Callable[..., ModelProto]


def make_model(
    nodes: Sequence[NodeProto],
    inputs: dict[str, Sequence[int | str | None]],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    dtypes: dict[str, int] | None = None,
) -> ModelProto:
    """A model of ``nodes``; inputs are float32 unless ``dtypes`` says otherwise."""
    kinds = dtypes or {}
    graph = helper.make_graph(
        list(nodes),
        "test",
        [
            helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), list(shape))
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.fixture
def model_of() -> MakeModel:
    """``make_model``."""
    return make_model


def sample_models() -> list[ModelProto]:
    """Models that between them use weights, shapes from integers, control flow, recurrence and attributes."""
    rng = np.random.default_rng(0)
    node = helper.make_node
    network = make_model(
        [
            node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
            node("Relu", ["n"], ["r"]),
            node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
            node("Shape", ["p"], ["shape"]),
            node("Slice", ["shape", "zero", "one"], ["batch"]),
            node("Concat", ["batch", "minus"], ["wanted"], axis=0),
            node("Reshape", ["p", "wanted"], ["flat"]),
            node("Softmax", ["flat"], ["y"], axis=1),
        ],
        {"x": ["n", 2, 6, 6]},
        ["y"],
        {
            "w": rng.standard_normal((3, 2, 3, 3)).astype(np.float32),
            "b": np.zeros(3, np.float32),
            "s": np.ones(3, np.float32),
            "m": np.zeros(3, np.float32),
            "v": np.ones(3, np.float32),
            "zero": np.array([0]),
            "one": np.array([1]),
            "minus": np.array([-1]),
        },
    )
    recurrent = make_model(
        [
            node("LSTM", ["x", "w", "r"], ["all", "h", "c"], hidden_size=4),
            node("Squeeze", ["all", "axes"], ["s"]),
            node("Pad", ["s", "pads"], ["p"], mode="reflect"),
            node("Tile", ["p", "repeats"], ["t"]),
            node("Resize", ["t", "", "scales"], ["y"], mode="linear"),
        ],
        {"x": [3, 2, 5]},
        ["y", "h"],
        {
            "w": rng.standard_normal((1, 16, 5)).astype(np.float32),
            "r": rng.standard_normal((1, 16, 4)).astype(np.float32),
            "axes": np.array([1]),
            "pads": np.array([1, 0, 0, 1, 0, 0]),
            "repeats": np.array([1, 2, 1]),
            "scales": np.array([1, 2, 2], np.float32),
        },
    )
    body = helper.make_graph(
        [node("Identity", ["cond"], ["go"]), node("Add", ["acc", "x"], ["next"]), node("Identity", ["next"], ["row"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("cond", TensorProto.BOOL, []),
            helper.make_tensor_value_info("acc", TensorProto.FLOAT, [2]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("go", "next", "row")],
    )
    control = make_model(
        [
            node("Loop", ["trips", "", "x"], ["last", "rows"], body=body),
            node("Gather", ["rows", "pick"], ["g"], axis=0),
            node("Expand", ["g", "wide"], ["e"]),
            node("Range", ["start", "limit", "delta"], ["numbers"]),
            node("ConstantOfShape", ["wide"], ["zeros"]),
            node("Add", ["e", "zeros"], ["y"]),
        ],
        {"x": [2]},
        ["y", "last"],
        {
            "trips": np.array(3),
            "pick": np.array([2, -3]),
            "wide": np.array([3, 2, 2]),
            "start": np.array(0),
            "limit": np.array(9),
            "delta": np.array(2),
        },
    )
    return [network, recurrent, control]


@pytest.fixture
def samples() -> list[ModelProto]:
    """``sample_models``."""
    return sample_models()
