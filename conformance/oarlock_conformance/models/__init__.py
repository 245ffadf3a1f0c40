"""The pretrained models that certification runs: what they are, where they come from, what they must give."""

from oarlock_conformance.models.fetch import ModelUnavailable, fetch
from oarlock_conformance.models.light import LIGHT_MODELS, light_model, refill
from oarlock_conformance.models.manifest import MODELS, ModelEntry, reference

__all__ = ["LIGHT_MODELS", "MODELS", "ModelEntry", "ModelUnavailable", "fetch", "light_model", "reference", "refill"]
