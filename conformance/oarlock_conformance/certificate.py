"""The certificate's document outside a certification: its seal, and reading one from a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from oarlock.errors import ConfigError

__all__ = ["SCHEMA", "Document", "content_hash", "file_name", "read_certificate", "sealed"]

SCHEMA = "oarlock.certificate/2"
"""The schema of the JSON document: ``certificate.schema.json`` beside this file describes it."""

Document: TypeAlias = "dict[str, Any]"


def content_hash(document: Mapping[str, Any]) -> str:
    """A SHA-256 of all of a document but ``content_hash``: of its JSON with sorted keys and no spaces."""
    content = {key: value for key, value in document.items() if key != "content_hash"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sealed(document: Document) -> Document:
    """The document with its hash; values become what JSON makes of them."""
    plain: Document = json.loads(json.dumps(document))
    return {**plain, "content_hash": content_hash(plain)}


def read_certificate(path: Path) -> Document:
    """The document in a file; raises ConfigError when it is no certificate of this version."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or f"it is no JSON: {error}"
        raise ConfigError(f"{path}: cannot read the certificate: {text}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise ConfigError(f"{path}: it is no certificate of this version: its schema is {schema!r}, expected {SCHEMA}")
    missing = [key for key in ("created", "device", "request", "verdict", "counts", "cases") if key not in document]
    if missing:
        raise ConfigError(f"{path}: it is no certificate: {missing[0]!r} is missing")
    return dict(document)


def file_name(device: str) -> str:
    """What the files of a device are called, without suffix."""
    return device.replace(":", "-")
