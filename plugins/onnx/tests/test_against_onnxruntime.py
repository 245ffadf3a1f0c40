"""Operators with random attributes, and whole networks, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from oarlock_conformance.models.light import LIGHT_MODELS, light_model, refill
from oarlock_onnx import Session
from oarlock_onnx.model import Model
from oarlock_onnx.node_cases import compared

QUICK_MODELS = ("shufflenet", "squeezenet")
Call = tuple[str, dict[str, Any], list[np.ndarray | None], int]


def reference(model: ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)  # type: ignore[no-any-return]


def check(call: Call, outputs: int = 1) -> None:
    """One node by both; integer inputs are constants, so that shapes may depend on them."""
    operator, attributes, values, opset = call
    names = ["" if value is None else f"i{place}" for place, value in enumerate(values)]
    arrays = {name: np.asarray(value) for name, value in zip(names, values, strict=True) if value is not None}
    constants = {name: array for name, array in arrays.items() if array.dtype.kind in "iu"}
    results = [f"o{place}" for place in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(operator, names, results, **attributes)],
        "one",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
            for name, array in arrays.items()
            if name not in constants
        ],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    inputs = {name: array for name, array in arrays.items() if name not in constants}
    expected = reference(model, inputs)
    got = list(Session(Model(model)).run(inputs).values())
    for left, right in zip(got, expected, strict=True):
        assert compared(left, np.asarray(right), 1e-3, 1e-5) == "", (operator, attributes, opset)


class Draw:
    """Choices of one example."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw
        self._random = np.random.default_rng(data.draw(st.integers(0, 2**16)))

    def int(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def one(self, *choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    def floats(self, *shape: int) -> np.ndarray:
        return self._random.standard_normal(shape).astype(np.float32)


def pool(d: Draw) -> tuple[Call, int]:
    operator, rank = d.one("AveragePool", "MaxPool", "LpPool"), d.int(1, 2)
    dims, kernel = [d.int(4, 9) for _ in range(rank)], [d.int(1, 4) for _ in range(rank)]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": [d.int(1, 3) for _ in range(rank)]}
    mode = d.one("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    if mode == "NOTSET":
        attributes["pads"] = [d.int(0, size - 1) for size in kernel * 2]
        attributes["ceil_mode"] = d.int(0, 1)
    else:
        attributes["auto_pad"] = mode
    if operator == "AveragePool":
        attributes["count_include_pad"] = d.int(0, 1)
    outputs = d.int(1, 2) if operator == "MaxPool" else 1
    return (operator, attributes, [d.floats(d.int(1, 2), d.int(1, 3), *dims)], 22), outputs


def conv(d: Draw) -> tuple[Call, int]:
    operator, rank, group = d.one("Conv", "ConvTranspose"), d.int(1, 2), d.int(1, 2)
    channels, filters = group * d.int(1, 2), group * d.int(1, 3)
    dims, kernel = [d.one(1, 4, 5, 8) for _ in range(rank)], [d.int(1, 3) for _ in range(rank)]
    attributes: dict[str, Any] = {
        "group": group,
        "strides": [d.int(1, 3) for _ in range(rank)],
        "dilations": [d.int(1, 2) for _ in range(rank)],
        "pads": [2] * rank + [d.int(2, 3) for _ in range(rank)],
    }
    if operator == "ConvTranspose":
        attributes["pads"] = [0] * 2 * rank
        attributes["output_padding"] = [d.int(0, stride - 1) for stride in attributes["strides"]]
        weight = d.floats(channels, filters // group, *kernel)
    else:
        weight = d.floats(filters, channels // group, *kernel)
    bias = d.floats(filters) if d.int(0, 1) else None
    return (operator, attributes, [d.floats(2, channels, *dims), weight, bias], 11), 1


def resize(d: Draw) -> tuple[Call, int]:
    x = d.floats(1, 2, d.int(2, 6), d.int(2, 6))
    mode = d.one("nearest", "linear", "cubic")
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": d.one("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"),
        "nearest_mode": d.one("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    }
    if mode == "cubic":
        attributes |= {"exclude_outside": d.int(0, 1), "cubic_coeff_a": d.one(-0.75, -0.5)}
    if mode != "nearest":
        attributes["antialias"] = d.int(0, 1)
    if d.int(0, 1):
        scales = np.float32([1, 1, d.one(0.5, 2, 3), d.one(0.5, 2)])
        if attributes["coordinate_transformation_mode"] != "align_corners":
            return ("Resize", attributes, [x, None, scales], 19), 1
    return ("Resize", attributes, [x, None, None, np.array([1, 2, d.int(1, 11), d.int(1, 11)])], 19), 1


def recurrent(d: Draw) -> tuple[Call, int]:
    operator, gates = d.one(("LSTM", 4), ("GRU", 3), ("RNN", 1))
    steps, batch, width, hidden = d.int(1, 4), d.int(1, 3), d.int(1, 3), d.int(1, 3)
    direction = d.one("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    values: list[np.ndarray | None] = [
        d.floats(steps, batch, width),
        d.floats(ways, gates * hidden, width),
        d.floats(ways, gates * hidden, hidden),
        d.floats(ways, 2 * gates * hidden) if d.int(0, 1) else None,
        np.array([d.int(1, steps) for _ in range(batch)], np.int32) if d.int(0, 1) else None,
        d.floats(ways, batch, hidden) if d.int(0, 1) else None,
    ]
    if operator == "LSTM":
        values += [d.floats(ways, batch, hidden), d.floats(ways, 3 * hidden) if d.int(0, 1) else None]
    if operator == "GRU":
        attributes["linear_before_reset"] = d.int(0, 1)
    if d.int(0, 1):
        attributes["clip"] = 0.5
    return (operator, attributes, values, 14), 3 if operator == "LSTM" else 2


def slices(d: Draw) -> tuple[Call, int]:
    x = d.floats(d.int(1, 5), d.int(1, 6))
    axes = d.one([0], [1], [0, 1], [-1, 0])
    starts = [d.one(-9, -2, -1, 0, 1, 3, 9) for _ in axes]
    ends = [d.one(-9, -2, 0, 2, 9, 2**62, -(2**62)) for _ in axes]
    steps = [d.one(1, 2, -1, -2) for _ in axes]
    return ("Slice", {}, [x, *(np.array(part) for part in (starts, ends, axes, steps))], 13), 1


def reduction(d: Draw) -> tuple[Call, int]:
    kinds = ("Sum", "Prod", "Max", "Min", "Mean", "L1", "L2", "LogSumExp", "SumSquare")
    x = d.floats(*[d.int(1, 4) for _ in range(d.int(1, 4))])
    axes = np.array(d.one([], [0], [-1], list(range(x.ndim))), np.int64)
    attributes = {"keepdims": d.int(0, 1), "noop_with_empty_axes": d.int(0, 1)}
    return ("Reduce" + d.one(*kinds), attributes, [x, axes], 18), 1


def softmax(d: Draw) -> tuple[Call, int]:
    x = d.floats(*[d.int(1, 4) for _ in range(d.int(1, 4))])
    operator = d.one("Softmax", "LogSoftmax", "Hardmax")
    return (operator, {"axis": d.int(-x.ndim, x.ndim - 1)}, [x], d.one(11, 13)), 1


def sampled(d: Draw) -> tuple[Call, int]:
    attributes = {
        "mode": d.one("bilinear", "nearest", "bicubic"),
        "padding_mode": d.one("zeros", "border", "reflection"),
        "align_corners": d.int(0, 1),
    }
    x, grid = d.floats(2, 2, d.int(2, 5), d.int(2, 5)), d.floats(2, d.int(1, 4), 3, 2) * np.float32(1.2)
    return ("GridSample", attributes, [x, grid], 16), 1


FAMILIES: list[Callable[[Draw], tuple[Call, int]]] = [
    pool,
    conv,
    resize,
    recurrent,
    slices,
    reduction,
    softmax,
    sampled,
]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: str(family.__name__))
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_operator_with_any_attributes_agrees(family: Callable[[Draw], tuple[Call, int]], data: st.DataObject) -> None:
    call, outputs = family(Draw(data))
    check(call, outputs)


def run_light(name: str, device: str) -> None:
    proto = refill(light_model(name), 7)
    model = Model(proto, None, name)
    (spec,) = model.inputs
    shape = [dim for dim in spec.dims or () if isinstance(dim, int)]
    inputs = {spec.name: np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    (expected,) = reference(proto, inputs)
    (got,) = model.session(device).run(inputs).values()
    assert float(np.std(expected)) > 1e-6, "the network's output tells nothing"
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", QUICK_MODELS)
def test_light_model_agrees(name: str) -> None:
    run_light(name, "interpret")


@pytest.mark.proof
@pytest.mark.parametrize("device", ["interpret", "cpu", "opencl:0", "sim:0"])
@pytest.mark.parametrize("name", LIGHT_MODELS)
def test_every_light_model_agrees(name: str, device: str) -> None:
    run_light(name, device)
