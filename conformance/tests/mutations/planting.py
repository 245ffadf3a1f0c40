"""Plants a mutation: one module of the compiler is loaded from a changed text."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

from catalogue import Mutation

__all__ = ["Stale", "plant"]

_ROOM = "oarlock.codegen."


class Stale(Exception):
    """The text that a mutation replaces is not there, or more than once: the mutation must be written anew."""


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module with one text replaced."""

    def __init__(self, fullname: str, path: str, mutation: Mutation) -> None:
        super().__init__(fullname, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_source(fullname) or ""
        found = source.count(self._mutation.old)
        if found != 1:
            raise Stale(f"{self._mutation.name}: its text is {found} times in {fullname}, not once")
        return compile(source.replace(self._mutation.old, self._mutation.new), self.path, "exec", dont_inherit=True)


class _Finder:
    """Finds the module that a mutation is in before anybody else does."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _ROOM + self._mutation.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(name, spec.origin, self._mutation)
        return spec


def plant(mutation: Mutation) -> None:
    """From now on this process imports the mutated module; the compiler must not have been imported before."""
    early = [name for name in sys.modules if name.startswith(_ROOM)]
    if early:
        raise RuntimeError(f"{early[0]} was imported before the mutation {mutation.name} was planted")
    sys.meta_path.insert(0, _Finder(mutation))  # type: ignore[arg-type]
