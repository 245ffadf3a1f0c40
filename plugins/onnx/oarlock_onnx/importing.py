"""The importer as the core finds it: by file suffix."""

from __future__ import annotations

from pathlib import Path

from oarlock_onnx.model import Model, load

__all__ = ["OnnxImporter"]


class OnnxImporter:
    """Reads ``.onnx`` files."""

    suffixes: tuple[str, ...] = (".onnx",)

    def read(self, path: Path) -> Model:
        """The model in ``path``; raises ModelError."""
        return load(path)
