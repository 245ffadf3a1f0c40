"""The hooks by which a package adds to Oarlock, and the marker for its functions.

A package names a module in an entry-point group; the module has one function marked ``@hookimpl``::

    [project.entry-points."oarlock.adapters"]        # the entry's name is the thing's name
    acme_npu = "oarlock_acme_npu"

    # oarlock_acme_npu/__init__.py
    from oarlock.plugin import hookimpl

    @hookimpl
    def oarlock_adapter():
        from oarlock_acme_npu.device import AcmeAdapter
        return AcmeAdapter()

| group               | hook               | gives                                          |
|---------------------|--------------------|------------------------------------------------|
| oarlock.adapters    | oarlock_adapter    | an ``oarlock.hal.Adapter``                     |
| oarlock.dialects    | oarlock_dialect    | an ``oarlock.ir.Dialect``                      |
| oarlock.passes      | oarlock_pass       | an ``oarlock.ir.Pass`` of the entry's name     |
| oarlock.importers   | oarlock_importer   | an ``Importer`` of one model format            |
| oarlock.models      | oarlock_model      | a function that gives the path of a model file |
| oarlock.engines     | oarlock_engine     | an engine object                               |
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pluggy

if TYPE_CHECKING:
    from oarlock.hal import Adapter
    from oarlock.ir import Dialect, Pass

__all__ = ["GROUPS", "PROJECT", "Hooks", "Importer", "hookimpl", "hookspec"]

PROJECT = "oarlock"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin's module as the implementation of the hook with its name."""

GROUPS: dict[str, str] = {
    "oarlock.adapters": "oarlock_adapter",
    "oarlock.dialects": "oarlock_dialect",
    "oarlock.passes": "oarlock_pass",
    "oarlock.importers": "oarlock_importer",
    "oarlock.models": "oarlock_model",
    "oarlock.engines": "oarlock_engine",
}
"""Each entry-point group and the hook that a module of it implements."""


class Importer(Protocol):
    """Reads one model format. ``suffixes`` are file name endings with their dot, such as ``(".onnx",)``."""

    suffixes: tuple[str, ...]

    def read(self, path: Path) -> Any:
        """The model in ``path``; raises ModelError with one clear line for a file that it cannot read."""
        ...


class Hooks:
    """The hook specifications. A hook is called once, when its plugin is needed first; it must be cheap."""

    @hookspec(firstresult=True)
    def oarlock_adapter(self) -> Adapter | None:
        """The adapter. The vendor's libraries load later, in ``Adapter.devices`` and ``Adapter.open``."""

    @hookspec(firstresult=True)
    def oarlock_dialect(self) -> Dialect | None:
        """The dialect."""

    @hookspec(firstresult=True)
    def oarlock_pass(self) -> Pass | None:
        """The pass, which every program takes where ``applies`` says so. Its ``after`` and ``before`` place it."""

    @hookspec(firstresult=True)
    def oarlock_importer(self) -> Importer | None:
        """The importer."""

    @hookspec(firstresult=True)
    def oarlock_model(self) -> Callable[[], Path] | None:
        """A function that gives the path of a model file, fetching it if need be."""

    @hookspec(firstresult=True)
    def oarlock_engine(self) -> object | None:
        """The engine."""
