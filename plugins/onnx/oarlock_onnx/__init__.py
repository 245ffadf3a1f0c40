"""Oarlock's ONNX importer: models become programs of the array IR."""

from __future__ import annotations

from oarlock.plugin import Importer, hookimpl
from oarlock_onnx import operators as _operators  # fills the registry
from oarlock_onnx.engine import DeviceEngine, Engine, HostEngine
from oarlock_onnx.model import Model, TensorSpec, load
from oarlock_onnx.program import ImportedProgram, Stage
from oarlock_onnx.run import Run, Session

__all__ = [
    "DeviceEngine", "Engine", "HostEngine", "ImportedProgram", "Model", "Run", "Session", "Stage", "TensorSpec", "load",
    "oarlock_importer",
]  # fmt: skip

del _operators


@hookimpl
def oarlock_importer() -> Importer:
    """The importer of ``.onnx`` files."""
    from oarlock_onnx.importing import OnnxImporter

    return OnnxImporter()
