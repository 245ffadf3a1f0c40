"""The ONNX backend interface."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, helper

from oarlock.errors import DeviceNotFoundError, ModelError
from oarlock_onnx import backend

MakeModel = Callable[..., ModelProto]
X = np.float32([[-1, 2], [3, -4]])


@pytest.fixture
def model(model_of: MakeModel) -> ModelProto:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Add", ["y", "w"], ["z"])]
    return model_of(nodes, {"x": [2, 2], "w": [2]}, ["y", "z"])


@pytest.mark.parametrize("device", ["interpret", "CPU", "sim:0"])
def test_prepared_model_takes_lists_and_mappings(model: ModelProto, device: str) -> None:
    prepared = backend.prepare(model, device)
    w = np.float32([10, 20])
    for inputs in ([X, w], {"w": w, "x": X}):
        y, z = prepared.run(inputs)
        np.testing.assert_array_equal(y, np.maximum(X, 0))
        np.testing.assert_array_equal(z, np.maximum(X, 0) + w)


def test_outputs_have_names(model: ModelProto) -> None:
    result = backend.run_model(model, [X, np.float32([0, 0])], "interpret")
    np.testing.assert_array_equal(result["y"], np.maximum(X, 0))


def test_run_node_runs_one_node() -> None:
    (y,) = backend.run_node(helper.make_node("Transpose", ["a"], ["b"]), [X], "interpret")
    np.testing.assert_array_equal(y, X.T)
    (s,) = backend.run_node(helper.make_node("Softmax", ["a"], ["b"]), [X], "interpret", opset_version=11)
    np.testing.assert_allclose(s.sum(axis=1), 1, rtol=1e-6)


def test_supports_device_tells_what_there_is() -> None:
    assert backend.supports_device("CPU") and backend.supports_device("cpu") and backend.supports_device("sim:1")
    assert not backend.supports_device("CUDA") and not backend.supports_device("cpu:99")


def test_unknown_device_is_an_error(model: ModelProto) -> None:
    with pytest.raises(DeviceNotFoundError):
        backend.prepare(model, "nothing:0")


def test_is_compatible_looks_at_operators(model: ModelProto, model_of: MakeModel) -> None:
    assert backend.OarlockBackend.is_compatible(model)
    assert not backend.OarlockBackend.is_compatible(
        model_of([helper.make_node("Multinomial", ["x"], ["y"])], {"x": [1, 2]}, ["y"])
    )


def test_inputs_that_are_no_tensors_are_refused(model: ModelProto) -> None:
    with pytest.raises(ModelError, match="only tensors"):
        backend.prepare(model, "interpret").run([[X], X])
    with pytest.raises(ModelError, match="takes 2 inputs"):
        backend.prepare(model, "interpret").run([X, X, X])
