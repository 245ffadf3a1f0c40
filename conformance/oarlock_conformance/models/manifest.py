"""The manifest of pretrained models inside published wheels, and their reference inputs and outputs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MODELS", "ModelEntry", "Reference", "reference", "reference_path"]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model: ``member`` of the wheel ``wheel`` of ``package`` at ``version``; hashes are SHA-256 in hexadecimal."""

    name: str
    package: str
    version: str
    wheel: str
    wheel_sha256: str
    member: str
    member_sha256: str
    bytes: int
    licence: str
    reference: str


@dataclass(frozen=True, slots=True)
class Reference:
    """Inputs and the outputs expected of them, by name."""

    inputs: dict[str, npt.NDArray[Any]]
    outputs: dict[str, npt.NDArray[Any]]


@cache
def _entries() -> dict[str, ModelEntry]:
    text = files("oarlock_conformance.models").joinpath("manifest.json").read_text("utf-8")
    names = ModelEntry.__dataclass_fields__
    return {
        item["name"]: ModelEntry(**{key: value for key, value in item.items() if key in names})
        for item in json.loads(text)
    }


MODELS: tuple[str, ...] = tuple(_entries())
"""The names of the models, in the manifest's order."""


def entry(name: str) -> ModelEntry:
    """The model called ``name``; raises KeyError listing those that there are."""
    found = _entries().get(name)
    if found is None:
        raise KeyError(f"no model {name!r}; there are {', '.join(MODELS)}")
    return found


def reference_path(name: str) -> Path:
    """The file of reference inputs (``in::NAME``) and outputs (``out::NAME``) of a model."""
    return Path(str(files("oarlock_conformance.models").joinpath("reference", entry(name).reference)))


def reference(name: str) -> Reference:
    """The reference inputs and outputs of a model."""
    with np.load(reference_path(name), allow_pickle=False) as arrays:
        return Reference(
            {key.removeprefix("in::"): arrays[key] for key in arrays if key.startswith("in::")},
            {key.removeprefix("out::"): arrays[key] for key in arrays if key.startswith("out::")},
        )
