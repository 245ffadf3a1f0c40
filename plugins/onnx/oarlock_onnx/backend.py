"""The ONNX backend interface: ``prepare``, ``run_model``, ``run_node``, ``supports_device``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, defs, helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from oarlock import dtypes
from oarlock.errors import ModelError, OarlockError
from oarlock_onnx.engine import Engine, engine_for
from oarlock_onnx.model import Model
from oarlock_onnx.run import Session
from oarlock_onnx.tensors import onnx_type_of

__all__ = ["OarlockBackend", "OarlockRep", "prepare", "run_model", "run_node", "supports_device"]

Array = npt.NDArray[Any]


class OarlockRep(BackendRep):
    """A prepared model."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs; ``inputs`` is a list in the model's order, a mapping by name, or one array."""
        names = [spec.name for spec in self.session.model.inputs]
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if not isinstance(inputs, Mapping):
            if len(inputs) > len(names):
                raise ModelError(f"the model takes {len(names)} inputs, got {len(inputs)}")
            inputs = dict(zip(names, inputs, strict=False))
        for name, value in inputs.items():
            if not isinstance(value, (np.ndarray, np.generic)):
                raise ModelError(f"input {name!r}: {type(value).__name__} is not supported, only tensors")
        outputs = self.session.run({name: np.asarray(value) for name, value in inputs.items()})
        return namedtupledict("Outputs", list(outputs))(*outputs.values())


class OarlockBackend(Backend):
    """Runs ONNX models on an Oarlock device. ``"CPU"`` means ``cpu``; any other name is a device's."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether every operator of ``model`` is supported."""
        try:
            Model(model)
        except ModelError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> OarlockRep:
        """Check ``model`` and open ``device``; raises ModelError, DeviceError."""
        return OarlockRep(Session(Model(model), _engine(device)))

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """The outputs of ``model``."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node; ``opset_version`` chooses the operator set, the newest by default."""
        names = [name for name in node.input if name]
        arrays = dict(zip(names, [np.asarray(value) for value in inputs], strict=True))
        version = int(kwargs.get("opset_version", defs.onnx_opset_version()))
        graph = helper.make_graph(
            [node],
            "node",
            [
                helper.make_tensor_value_info(name, onnx_type_of(dtypes.from_numpy(array.dtype)), array.shape)
                for name, array in arrays.items()
            ],
            [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output if name],
        )
        opsets = [helper.make_opsetid("", version)]
        if node.domain not in ("", "ai.onnx"):
            opsets.append(helper.make_opsetid(node.domain, int(kwargs.get("domain_version", 1))))
        return cls.run_model(helper.make_model(graph, opset_imports=opsets), arrays, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether ``device`` can be opened here."""
        try:
            _engine(device)
        except OarlockError:
            return False
        return True


def _engine(device: str) -> Engine:
    return engine_for("cpu" if device.upper() == "CPU" else device)


prepare = OarlockBackend.prepare
run_model = OarlockBackend.run_model
run_node = OarlockBackend.run_node
supports_device = OarlockBackend.supports_device
