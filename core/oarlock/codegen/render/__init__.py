"""Renderers: kernel functions to source text, one renderer for each target language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol

from oarlock.errors import DuplicatePluginError, UnsupportedError
from oarlock.ir import Operation
from oarlock.target import Target

__all__ = ["Renderer", "is_in_tree", "languages", "register", "renderer"]


class Renderer(Protocol):
    """Prints kernels in one language."""

    def render(self, functions: Sequence[Operation], target: Target) -> str:
        """The source text of one translation unit with the ``functions``, which are legalised for ``target``.

        The entry points have the functions' names. Raises UnsupportedError for what the language cannot say.
        """
        ...

    def has_vectors(self, lanes: int) -> bool:
        """Whether the language has vectors of ``lanes`` elements, a power of two above the target's vector width."""
        return False


_IN_TREE = {
    "c99": "oarlock.codegen.render.c99",
    "cuda": "oarlock.codegen.render.cuda",
    "llvm": "oarlock.codegen.render.llvm",
    "opencl": "oarlock.codegen.render.opencl",
    "wgsl": "oarlock.codegen.render.wgsl",
}
_registered: dict[str, Callable[[], Renderer]] = {}


def languages() -> tuple[str, ...]:
    """The languages that there are renderers for, sorted."""
    return tuple(sorted({*_IN_TREE, *_registered}))


def is_in_tree(language: str) -> bool:
    """Whether the renderer of ``language`` is one of Oarlock's own."""
    return language in _IN_TREE


def register(language: str, factory: Callable[[], Renderer]) -> None:
    """Add a language, as an adapter's package does when it is imported; ``factory`` makes its renderer when needed.

    Raises DuplicatePluginError where there is one of that name.
    """
    if language in languages():
        raise DuplicatePluginError(f"there is a renderer for language {language!r} already; choose another name")
    _registered[language] = factory


def renderer(language: str) -> Renderer:
    """The renderer of ``language``; raises UnsupportedError listing the languages that there are."""
    if language in _registered:
        return _registered[language]()
    if language not in _IN_TREE:
        raise UnsupportedError(
            f"no renderer for language {language!r}; there are {', '.join(languages())}. "
            "An adapter's package adds one with oarlock.codegen.render.register"
        )
    found: Renderer = import_module(f"{__name__}.{language}").RENDERER
    return found
