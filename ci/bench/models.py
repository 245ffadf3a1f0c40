"""The ONNX models of the table: real architectures with drawn weights, and one that is fetched from its wheel."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
from ci.bench.peers import Array
from ci.bench.works import Ask, Work, ahead, faster, within
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

__all__ = ["model_file", "model_reference", "model_works"]

_UNET = "terrain_consistency_unet"
_WHEEL = "adaptive-terrain-diffusion==0.4.2"
_MEMBER = "terrain_diffusion/weights/terrain_consistency_unet_difficulty100.onnx"
_SHA256 = "95be54b4a39d58320e187a7ec533351c957f16a00be58773c86074828ee67887"
_CACHE = Path(__file__).resolve().parents[2] / ".cache" / "bench" / "models"


def model_file(name: str, path: Path) -> Path:
    """Write the model called ``name`` to ``path``."""
    if name == _UNET:
        path.write_bytes(_fetched().read_bytes())
        return path
    from oarlock_conformance.models.light import light_model, refill

    model = refill(light_model(name), 1)
    for node in model.graph.node:
        if node.op_type == "Softmax" and not node.attribute:
            node.attribute.append(onnx.helper.make_attribute("axis", 1))  # the default then, but not of the reference
    onnx.save(model, path)
    return path


def _fetched() -> Path:
    """The UNet out of its wheel, which is downloaded once and checked by its hash."""
    target = _CACHE / f"{_UNET}.onnx"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, _WHEEL]
            subprocess.run(command, check=True, stdout=sys.stderr)
            wheel = next(Path(folder).glob("*.whl"))
            with zipfile.ZipFile(wheel) as archive:
                target.write_bytes(archive.read(_MEMBER))
    if hashlib.sha256(target.read_bytes()).hexdigest() != _SHA256:
        target.unlink()
        raise RuntimeError(f"{_WHEEL} does not hold the {_UNET} that was measured before: its SHA-256 differs")
    return target


class BatchNormalization(OpRun):
    """With the statistics that it is given; the reference of before opset 14 takes the batch's own."""

    op_domain = ""

    def _run(self, x: Array, *given: Array, epsilon: float, **rest: object) -> tuple[Array]:
        scale, bias, mean, variance = (each.reshape(-1, *(1,) * (x.ndim - 2)) for each in given)
        return (((x - mean) / np.sqrt(variance + epsilon) * scale + bias).astype(x.dtype),)


def model_reference(path: Path, arrays: Mapping[str, Array]) -> list[Array]:
    """The outputs by NumPy in float64: the same graph, every float32 in it widened."""
    model = onnx.load(path)
    _widen(model.graph)
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    results = ReferenceEvaluator(model, new_ops=[BatchNormalization]).run(None, wide)
    assert isinstance(results, list)
    return results


def _widen(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _images(name: str) -> Callable[[np.random.Generator], Mapping[str, Array]]:
    return lambda generator: {name: generator.standard_normal((1, 3, 224, 224), np.float32)}


def _unet_inputs(generator: np.random.Generator) -> Mapping[str, Array]:
    noisy = generator.standard_normal((1, 1, 128, 128), np.float32)
    return {"noisy": noisy, "sigma": np.asarray([0.5], np.float32), "difficulty": np.asarray([0.3], np.float32)}


_RUNTIMES = ("onnxruntime", "onnxruntime-plain", "oarlock", "oarlock-unfused", "oarlock-opencl")


def model_works() -> list[Work]:
    """The rows of models."""

    def row(
        name: str,
        title: str,
        model: str,
        inputs: Callable[[np.random.Generator], Mapping[str, Array]],
        asks: tuple[Ask, ...],
        peers: tuple[str, ...] = ("torch", "torch-compile", *_RUNTIMES),
    ) -> Work:
        return Work(name, title, inputs, asks=asks, model=model, tolerance=5e-3, group="networks", peers=peers)

    fusion = (faster(1.5, "oarlock-unfused"), within(1.2, "onnxruntime-plain", "oarlock-unfused"))
    return [
        row("resnet50", "ResNet-50, batch 1", "resnet50", _images("gpu_0/data_0"), (ahead(),)),
        row("squeezenet", "SqueezeNet, batch 1", "squeezenet", _images("data_0"), (ahead(),)),
        row("densenet121", "DenseNet-121, batch 1", "densenet121", _images("data_0"), (ahead(),)),
        row("unet", f"UNet ({_UNET}), batch 1", _UNET, _unet_inputs, fusion, _RUNTIMES),
    ]
