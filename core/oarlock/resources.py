"""Files that travel with the package: C++ headers for adapters, and the templates of new ones."""

from __future__ import annotations

from pathlib import Path

from oarlock.errors import ConfigError

__all__ = ["get_include", "template_folder"]

_PACKAGE = Path(__file__).resolve().parent


def get_include() -> str:
    """The folder to give to a C++ compiler with ``-I``, for ``#include "oarlock/adapter.hpp"``."""
    return str(_find("include", _PACKAGE.parent / "native" / "include"))


def template_folder() -> Path:
    """The copier template that ``oarlock new`` renders."""
    return _find("templates", _PACKAGE.parents[1] / "templates")


def _find(installed: str, in_tree: Path) -> Path:
    """A folder beside this file, or where it lies in the source tree; raises ConfigError where it is in neither."""
    for folder in (_PACKAGE / installed, in_tree):
        if folder.is_dir():
            return folder
    raise ConfigError(f"this Oarlock was installed without {_PACKAGE / installed}: install it again from a wheel")
