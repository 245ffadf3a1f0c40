"""A model file: read, checked, and built into programs for concrete input shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from google.protobuf.message import DecodeError
from onnx import FunctionProto, ModelProto, NodeProto, ValueInfoProto

from oarlock.dtypes import DType, from_numpy
from oarlock.errors import DTypeError, ModelError
from oarlock_onnx.functions import has_function
from oarlock_onnx.importer import Functions, Weights
from oarlock_onnx.limits import MAX_FILE_BYTES, one_line
from oarlock_onnx.program import ImportedProgram, Stage, build
from oarlock_onnx.registry import OPERATORS, normal_domain
from oarlock_onnx.tensors import dtype_of
from oarlock_onnx.walk import all_nodes, check_texts, tidy_errors

if TYPE_CHECKING:
    from oarlock_onnx.run import Session, Span

__all__ = ["Model", "TensorSpec", "load"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output as the file declares it: ``dims`` holds a number, a name, or None; ``dims`` None: any rank."""

    name: str
    dtype: DType
    dims: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        dims = (
            "any shape" if self.dims is None else "[" + ", ".join("?" if d is None else str(d) for d in self.dims) + "]"
        )
        return f"{self.name} {self.dtype} {dims}"

    def check(self, shape: Sequence[int], dtype: DType) -> None:
        """Raise ModelError when a tensor of this shape and dtype does not fit."""
        fits = self.dims is None or (
            len(shape) == len(self.dims)
            and all(want == got for want, got in zip(self.dims, shape, strict=True) if isinstance(want, int))
        )
        if not fits or dtype != self.dtype:
            raise ModelError(f"input {self.name!r}: got {dtype} {list(shape)}, the model takes {self}")


class Model:
    """A parsed and checked model. ``inputs`` and ``outputs`` are as declared; weights are decoded when first used.

    ``proto`` must not be changed any more. External data is read below ``folder`` only.
    """

    @tidy_errors
    def __init__(self, proto: ModelProto, folder: Path | None = None, name: str = "model") -> None:
        self.proto = proto
        self.name = name
        self.opsets: dict[str, int] = {normal_domain(entry.domain): entry.version for entry in proto.opset_import}
        self.functions: Functions = _functions(proto)
        self._weights = Weights(folder)
        self._check()
        constants = {tensor.name for tensor in proto.graph.initializer}
        self.inputs: tuple[TensorSpec, ...] = tuple(
            _spec(value, "input") for value in proto.graph.input if value.name not in constants
        )
        self.outputs: tuple[TensorSpec | str, ...] = tuple(_output(value) for value in proto.graph.output)
        self.output_names: tuple[str, ...] = tuple(value.name for value in proto.graph.output)
        _distinct([spec.name for spec in self.inputs], "inputs")

    @tidy_errors
    def build(
        self,
        shapes: Mapping[str, Sequence[int]],
        values: Mapping[str, Array] | None = None,
        answers: Sequence[Array] = (),
    ) -> ImportedProgram | Stage:
        """The program for these input shapes.

        ``values`` are inputs known on the host: where a shape depends on one, the program is specialised by its value
        (``ImportedProgram.specialised``). A ``Stage`` is returned where a shape depends on what only running can give:
        run its program, append its one result to ``answers``, and build again.
        Raises ModelError for a wrong name or shape, and for what is not supported.
        """
        self._check_names(shapes)
        for spec in self.inputs:
            spec.check(shapes[spec.name], spec.dtype)
        return build(
            self.proto.graph, self.opsets, self.functions, self._weights, self.inputs, shapes, values or {}, answers
        )

    def _check_names(self, given: Mapping[str, object]) -> None:
        names = [spec.name for spec in self.inputs]
        unknown = [name for name in given if name not in names]
        missing = [name for name in names if name not in given]
        if unknown:
            raise ModelError(f"no input {unknown[0]!r}; the model takes {', '.join(names) or 'no inputs'}")
        if missing:
            raise ModelError(f"input {missing[0]!r} is missing; the model takes {', '.join(map(str, self.inputs))}")

    def check_inputs(self, inputs: Mapping[str, Array]) -> None:
        """Raise ModelError when names, dtypes or shapes of ``inputs`` do not fit."""
        self._check_names(inputs)
        for spec in self.inputs:
            array = inputs[spec.name]
            try:
                dtype = from_numpy(array.dtype)
            except DTypeError as error:
                raise ModelError(f"input {spec.name!r}: {error}") from error
            spec.check(array.shape, dtype)

    def session(
        self, device: str, progress: Callable[[int, int], None] | None = None, span: Span | None = None
    ) -> Session:
        """This model on a device (``"interpret"``: the interpreter over NumPy).

        ``progress`` is told (kernels compiled, kernels to compile); ``span`` wraps each phase.
        """
        from oarlock_onnx.engine import engine_for
        from oarlock_onnx.run import Session

        return Session(self, engine_for(device, progress), span)

    def _check(self) -> None:
        if not self.proto.HasField("graph") or not self.proto.graph.output:
            raise ModelError(f"{self.name}: it holds no graph with outputs")
        if not self.opsets and self.proto.ir_version >= 3:
            raise ModelError(f"{self.name}: it names no operator set")
        if not self.opsets:
            self.opsets[""] = 1
        missing: dict[str, int] = {}
        for node in all_nodes(self.proto.graph.node):
            self._check_operator(node, self.opsets, missing)
        for function in self.functions.values():
            opsets = {normal_domain(entry.domain): entry.version for entry in function.opset_import}
            for node in all_nodes(function.node):
                self._check_operator(node, opsets, missing)
        if missing:
            text = ", ".join(f"{name} ({count} of it)" if count > 1 else name for name, count in missing.items())
            raise ModelError(f"{self.name}: operators that are not supported: {text}")

    def _check_operator(self, node: NodeProto, opsets: Mapping[str, int], missing: dict[str, int]) -> None:
        domain = normal_domain(node.domain)
        key = (domain, node.op_type)
        if key in self.functions or (key in OPERATORS and domain in opsets):
            return
        if domain in opsets and has_function(domain, node.op_type, opsets[domain]):
            return
        if domain not in opsets:
            raise ModelError(
                f"{self.name}: operator set {domain or 'ai.onnx'!r} of node {node.op_type!r} is not imported"
            )
        name = f"{domain}.{node.op_type}" if domain else node.op_type
        missing[name] = missing.get(name, 0) + 1


@tidy_errors
def load(source: str | Path | bytes, *, name: str | None = None) -> Model:
    """Read and check a model from a file or from its bytes.

    Raises ModelError when it cannot be read, is no ONNX model, or uses operators that are not supported.
    """
    if isinstance(source, bytes):
        return Model(_parse(source, name or "model"), None, name or "model")
    path = Path(source)
    label = name or path.name
    try:
        if path.is_dir():
            raise ModelError(f"{path}: it is a folder, not a model file")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ModelError(
                f"{path}: larger than {MAX_FILE_BYTES} bytes; models of that size keep their weights outside"
            )
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot read it: {getattr(error, 'strerror', None) or error}") from error
    return Model(_parse(data, label), path.parent, label)


def _parse(data: bytes, label: str) -> ModelProto:
    if not data:
        raise ModelError(f"{label}: the file is empty")
    try:
        proto: ModelProto = ModelProto.FromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{label}: it is no ONNX model: {one_line(error)}") from error
    check_texts(proto, label)
    return proto


def _functions(proto: ModelProto) -> dict[tuple[str, str], FunctionProto]:
    found: dict[tuple[str, str], FunctionProto] = {}
    for function in proto.functions:
        key = (normal_domain(function.domain), function.name)
        if key in found:
            raise ModelError(f"function {function.name!r} is defined twice")
        found[key] = function
    return found


def _spec(value: ValueInfoProto, what: str) -> TensorSpec:
    kind = value.type.WhichOneof("value")
    if not value.name:
        raise ModelError(f"an {what} has no name")
    if kind != "tensor_type":
        raise ModelError(f"{what} {value.name!r}: {kind or 'no type'} is not supported, only tensors")
    tensor = value.type.tensor_type
    dtype = dtype_of(tensor.elem_type, f"{what} {value.name!r}")
    if not tensor.HasField("shape"):
        return TensorSpec(value.name, dtype, None)
    dims: list[int | str | None] = []
    for dim in tensor.shape.dim:
        which = dim.WhichOneof("value")
        if which == "dim_value" and dim.dim_value < 0:
            which = None  # some exporters write -1 for an unknown dimension
        dims.append(dim.dim_value if which == "dim_value" else dim.dim_param or None if which == "dim_param" else None)
    return TensorSpec(value.name, dtype, tuple(dims))


def _output(value: ValueInfoProto) -> TensorSpec | str:
    """What is declared of an output; only its name where no type is declared, or one that may yet turn out wrong."""
    tensor = value.type.WhichOneof("value") == "tensor_type" and value.type.tensor_type.elem_type
    return _spec(value, "output") if tensor else value.name


def _distinct(names: Sequence[str], what: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ModelError(f"two {what} are called {name!r}")
