"""What plugins add to the compiler: dialects, found when a program needs them, and passes that every program takes."""

from __future__ import annotations

import warnings

from oarlock.errors import PluginError
from oarlock.ir import Context, Dialect, Pass
from oarlock.ir.passes import arranged
from oarlock.ops import array_context
from oarlock.registry.loading import load, names
from oarlock.transforms import standard_passes

__all__ = ["all_passes", "context", "plugin_passes"]

_told: set[str] = set()


def context() -> Context:
    """A context with the dialects of array programs, and those of plugins as soon as they are asked for.

    Asking for a dialect whose plugin cannot be loaded raises PluginError with the real cause.
    """
    base = array_context()
    return Context(list(base.dialects.values()), find=_dialect)


def _dialect(name: str) -> Dialect | None:
    if name not in names("oarlock.dialects"):
        return None
    dialect = load("oarlock.dialects", name)
    if not isinstance(dialect, Dialect) or dialect.name != name:
        given = f"the dialect {dialect.name!r}" if isinstance(dialect, Dialect) else type(dialect).__name__
        raise PluginError(f"dialect {name}: its plugin gives {given}; expected an oarlock.ir.Dialect called {name!r}")
    return dialect


def plugin_passes() -> list[Pass]:
    """The passes of all plugins. One that cannot be loaded is left out, and its cause is told in a warning, once."""
    found: list[Pass] = []
    for name in names("oarlock.passes"):
        try:
            found.append(_pass(name))
        except PluginError as error:
            if name not in _told:
                _told.add(name)
                warnings.warn(f"programs are compiled without the pass {name}: {error}", RuntimeWarning, stacklevel=2)
    return found


def _pass(name: str) -> Pass:
    item = load("oarlock.passes", name)
    if not isinstance(item, Pass) or item.name != name:
        given = f"the pass {item.name!r}" if isinstance(item, Pass) else type(item).__name__
        raise PluginError(f"pass {name}: its plugin gives {given}; expected an oarlock.ir.Pass called {name!r}")
    return item


def all_passes() -> list[Pass]:
    """The standard passes, with those of plugins at their places."""
    return arranged(standard_passes(), plugin_passes())
