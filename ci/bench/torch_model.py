"""An ONNX model as a PyTorch module, for the operators of the image classifiers of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import torch
import torch.nn.functional as F
from ci.bench.peers import CannotError
from onnx import helper, numpy_helper

__all__ = ["TorchModel"]


class TorchModel(torch.nn.Module):
    """Runs the graph's nodes in order; weights are buffers, so that compilers may treat them as constants."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        graph = onnx.load(path).graph
        self._places: dict[str, str] = {}
        self._shapes: dict[str, list[int]] = {}
        for number, tensor in enumerate(graph.initializer):
            array = numpy_helper.to_array(tensor).copy()
            if array.dtype.kind == "i":
                self._shapes[tensor.name] = [int(extent) for extent in array.reshape(-1)]
                continue
            self._places[tensor.name] = f"weight_{number}"
            self.register_buffer(f"weight_{number}", torch.from_numpy(array))
        self._inputs = [v.name for v in graph.input if v.name not in {t.name for t in graph.initializer}]
        self._outputs = [value.name for value in graph.output]
        self._nodes = [
            (n.op_type, list(n.input), n.output[0], {a.name: helper.get_attribute_value(a) for a in n.attribute})
            for n in graph.node
        ]
        missing = {op for op, *_ in self._nodes if not hasattr(self, "_" + op)}
        if missing:
            raise CannotError(f"operators that are not translated to PyTorch: {', '.join(sorted(missing))}")

    def forward(self, *inputs: torch.Tensor) -> Any:
        values: dict[str, Any] = dict(zip(self._inputs, inputs, strict=True))
        values |= {name: getattr(self, place) for name, place in self._places.items()}
        values |= self._shapes
        for op, operands, result, attributes in self._nodes:
            values[result] = getattr(self, "_" + op)(*(values[name] for name in operands), **attributes)
        return [values[name] for name in self._outputs]

    def _Conv(self, x: Any, w: Any, b: Any = None, **a: Any) -> Any:
        return F.conv2d(
            x, w, b, a.get("strides", 1), _padding(a), a.get("dilations", 1), a.get("group", 1)
        )  # fmt: skip

    def _BatchNormalization(self, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, **a: Any) -> Any:
        return F.batch_norm(x, mean, variance, scale, bias, eps=a.get("epsilon", 1e-5))

    def _MaxPool(self, x: Any, **a: Any) -> Any:
        return F.max_pool2d(x, a["kernel_shape"], a.get("strides", 1), _padding(a))

    def _AveragePool(self, x: Any, **a: Any) -> Any:
        return F.avg_pool2d(x, a["kernel_shape"], a.get("strides", 1), _padding(a), count_include_pad=False)

    def _GlobalAveragePool(self, x: Any) -> Any:
        return x.mean((2, 3), keepdim=True)

    def _Gemm(self, x: Any, w: Any, b: Any, transB: int = 0, broadcast: int = 1) -> Any:
        return F.linear(x, w if transB else w.T, b)

    def _Softmax(self, x: Any, axis: int = 1) -> Any:
        return F.softmax(x.flatten(axis), dim=-1).reshape(x.shape)

    def _Concat(self, *parts: Any, axis: int) -> Any:
        return torch.cat(parts, dim=axis)

    def _Unsqueeze(self, x: Any, axes: list[int]) -> Any:
        for axis in axes:
            x = x.unsqueeze(axis)
        return x

    def _Reshape(self, x: Any, shape: list[int]) -> Any:
        return x.reshape(shape)

    def _Dropout(self, x: Any, ratio: float = 0.5) -> Any:
        return x

    def _Relu(self, x: Any) -> Any:
        return F.relu(x)

    def _Add(self, x: Any, y: Any) -> Any:
        return x + y

    def _Sum(self, x: Any, *others: Any) -> Any:
        for other in others:
            x = x + other
        return x

    def _Mul(self, x: Any, y: Any) -> Any:
        return x * y


def _padding(attributes: dict[str, Any]) -> Any:
    pads = attributes.get("pads", [0, 0, 0, 0])
    if pads[:2] != pads[2:]:
        raise CannotError(f"padding {pads} is not the same on both sides")
    return pads[:2]
