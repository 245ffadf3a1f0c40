"""ONNX Runtime: works become graphs of ONNX operators; its optimisations on, or off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from ci.bench.peers import THREADS, Array, Call
from ci.bench.vocabulary import Vocabulary
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from ci.bench.works import Work

__all__ = ["build", "make"]

OPSET = 23


class Node:
    """A value of the graph: its name and shape."""

    __array_priority__ = 100

    def __init__(self, graph: GraphWords, name: str, shape: tuple[int, ...]) -> None:
        self.graph, self.name, self.shape = graph, name, shape

    def _with(self, op: str, other: Any) -> Node:
        right = other if isinstance(other, Node) else self.graph.constant(np.asarray(other, np.float32))
        return self.graph.add(op, [self, right], np.broadcast_shapes(self.shape, right.shape))

    def __add__(self, other: Any) -> Node:
        return self._with("Add", other)

    def __sub__(self, other: Any) -> Node:
        return self._with("Sub", other)

    def __mul__(self, other: Any) -> Node:
        return self._with("Mul", other)

    def __truediv__(self, other: Any) -> Node:
        return self._with("Div", other)


class GraphWords(Vocabulary):
    """Words that add nodes to a graph; norms, GELU and attention are the standard's own operators."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._names = 0

    def _name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def constant(self, array: Array) -> Node:
        node = Node(self, self._name(), array.shape)
        self.weights.append(numpy_helper.from_array(array, node.name))
        return node

    def add(self, op: str, inputs: Sequence[Node | None], shape: Sequence[int], **attributes: Any) -> Node:
        node = Node(self, self._name(), tuple(shape))
        names = [each.name if each is not None else "" for each in inputs]
        self.nodes.append(helper.make_node(op, names, [node.name], **attributes))
        return node

    def exp(self, x: Node) -> Node:
        return self.add("Exp", [x], x.shape)

    def tanh(self, x: Node) -> Node:
        return self.add("Tanh", [x], x.shape)

    def abs(self, x: Node) -> Node:
        return self.add("Abs", [x], x.shape)

    def rsqrt(self, x: Node) -> Node:
        return self.add("Reciprocal", [self.add("Sqrt", [x], x.shape)], x.shape)

    def clip(self, x: Node, low: float, high: float) -> Node:
        bounds = [self.constant(np.asarray(bound, np.float32)) for bound in (low, high)]
        return self.add("Clip", [x, *bounds], x.shape)

    def _reduce(self, op: str, x: Node) -> Node:
        axes = self.constant(np.asarray([-1], np.int64))
        return self.add(op, [x, axes], (*x.shape[:-1], 1), keepdims=1)

    def mean(self, x: Node) -> Node:
        return self._reduce("ReduceMean", x)

    def sum(self, x: Node) -> Node:
        return self._reduce("ReduceSum", x)

    def max(self, x: Node) -> Node:
        return self._reduce("ReduceMax", x)

    def matmul(self, a: Node, b: Node) -> Node:
        return self.add("MatMul", [a, b], (*a.shape[:-1], b.shape[-1]))

    def reshape(self, x: Node, shape: Sequence[int]) -> Node:
        return self.add("Reshape", [x, self.constant(np.asarray(shape, np.int64))], shape)

    def transpose(self, x: Node, axes: Sequence[int]) -> Node:
        return self.add("Transpose", [x], [x.shape[axis] for axis in axes], perm=list(axes))

    def concat(self, parts: Sequence[Node], axis: int) -> Node:
        axis %= len(parts[0].shape)
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self.add("Concat", parts, shape, axis=axis)

    def cut(self, x: Node, start: int, stop: int) -> Node:
        bounds = [self.constant(np.asarray([value], np.int64)) for value in (start, stop, -1)]
        return self.add("Slice", [x, *bounds], (*x.shape[:-1], stop - start))

    def cumsum(self, x: Node) -> Node:
        return self.add("CumSum", [x, self.constant(np.asarray(-1, np.int64))], x.shape)

    def sort(self, x: Node) -> Node:
        return self._top(x, x.shape[-1], largest=0)

    def largest(self, x: Node, count: int) -> Node:
        return self._top(x, count, largest=1)

    def _top(self, x: Node, count: int, largest: int) -> Node:
        k = self.constant(np.asarray([count], np.int64))
        node = Node(self, self._name(), (*x.shape[:-1], count))
        names = [x.name, k.name]
        made = helper.make_node("TopK", names, [node.name, self._name()], axis=-1, largest=largest, sorted=1)
        self.nodes.append(made)
        return node

    def take(self, x: Node, indices: Node) -> Node:
        return self.add("Gather", [x, indices], (*indices.shape, *x.shape[1:]), axis=0)

    def scatter_add(self, x: Node, indices: Node) -> Node:
        zeros = self.add("Expand", [self.constant(np.float32([0])), self._extents(x)], x.shape)
        wide = self.add("Cast", [indices], indices.shape, to=TensorProto.INT64)
        places = self.reshape(wide, (*indices.shape, 1))
        return self.add("ScatterND", [zeros, places, x], x.shape, reduction="add")

    def _extents(self, x: Node) -> Node:
        return self.constant(np.asarray(x.shape, np.int64))

    def silu(self, x: Node) -> Node:
        return x * self.add("Sigmoid", [x], x.shape)

    def gelu(self, x: Node) -> Node:
        return self.add("Gelu", [x], x.shape, approximate="tanh")

    def softmax(self, x: Node) -> Node:
        return self.add("Softmax", [x], x.shape, axis=-1)

    def layer_norm(self, x: Node, weight: Node, bias: Node) -> Node:
        return self.add("LayerNormalization", [x, weight, bias], x.shape, axis=-1, epsilon=self.EPSILON)

    def rms_norm(self, x: Node, weight: Node) -> Node:
        return self.add("RMSNormalization", [x, weight], x.shape, axis=-1, epsilon=self.EPSILON)

    def attention(self, q: Node, k: Node, v: Node, mask: Node | None) -> Node:
        batch = [self.reshape(each, (1, *each.shape)) for each in (q, k, v)]
        made = self.add("Attention", batch, (1, *q.shape), is_causal=int(mask is not None))
        return self.reshape(made, q.shape)


def build(work: Work, arrays: Mapping[str, Array]) -> bytes:
    """The work as an ONNX model; its constants are weights. Outputs are ``out0``, ``out1`` ..."""
    words = GraphWords()
    operands: list[Node] = []
    inputs = []
    for name, array in arrays.items():
        operands.append(Node(words, name, array.shape))
        if name in work.constants:
            words.weights.append(numpy_helper.from_array(array, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
    results = work.function(words, *operands)
    results = results if isinstance(results, list | tuple) else [results]
    outputs = []
    for index, result in enumerate(results):
        words.nodes.append(helper.make_node("Identity", [result.name], [f"out{index}"]))
        outputs.append(helper.make_tensor_value_info(f"out{index}", TensorProto.FLOAT, result.shape))
    graph = helper.make_graph(words.nodes, work.name.replace("/", "-"), inputs, outputs, words.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    data: bytes = model.SerializeToString()
    return data


class OnnxPeer:
    def __init__(self, optimise: bool) -> None:
        self._optimise = optimise

    def version(self) -> str:
        return str(onnxruntime.__version__)

    def prepare(self, work: Work, arrays: Mapping[str, Array]) -> Call:
        return self._call(build(work, arrays), arrays)

    def prepare_model(self, path: Path, arrays: Mapping[str, Array]) -> Call:
        return self._call(str(path), arrays)

    def _call(self, source: bytes | str, arrays: Mapping[str, Array]) -> Call:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        options.log_severity_level = 3
        options.add_session_config_entry("session.force_spinning_stop", "1")  # idle threads sleep between runs
        if not self._optimise:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        names = [value.name for value in session.get_inputs()]
        held = [onnxruntime.OrtValue.ortvalue_from_numpy(arrays[name]) for name in names]
        for name, value in zip(names, held, strict=True):
            binding.bind_ortvalue_input(name, value)
        self._bind_outputs(session, binding)
        return Call(
            lambda: session.run_with_iobinding(binding),
            lambda: [value.numpy() for value in binding.get_outputs()] if held else [],
        )

    def _bind_outputs(self, session: Any, binding: Any) -> None:
        """Give the outputs memory once, where the first run shows how much."""
        for value in session.get_outputs():
            binding.bind_output(value.name, "cpu")
        session.run_with_iobinding(binding)
        first = binding.get_outputs()
        binding.clear_binding_outputs()
        for value, made in zip(session.get_outputs(), first, strict=True):
            binding.bind_ortvalue_output(value.name, made)


def make(optimise: bool = True) -> OnnxPeer:
    return OnnxPeer(optimise)
