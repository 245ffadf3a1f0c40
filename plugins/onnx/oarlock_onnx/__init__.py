"""Oarlock's ONNX importer: models become programs of the array IR."""

from oarlock_onnx import operators as _operators  # fills the registry
from oarlock_onnx.model import Model, TensorSpec, load
from oarlock_onnx.program import ImportedProgram, Stage
from oarlock_onnx.run import Session

__all__ = ["ImportedProgram", "Model", "Session", "Stage", "TensorSpec", "load"]

del _operators
