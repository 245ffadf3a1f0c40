"""The pretrained models that certification runs: what they are, where they come from, what they must give.

``oarlock_conformance.models.light`` adds architectures without weights; it needs the ``onnx`` package.
"""

from oarlock_conformance.models.fetch import ModelUnavailable, fetch
from oarlock_conformance.models.manifest import MODELS, ModelEntry, Reference, reference, reference_path

__all__ = ["MODELS", "ModelEntry", "ModelUnavailable", "Reference", "fetch", "reference", "reference_path"]
