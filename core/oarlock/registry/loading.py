"""Loads one plugin by name, on first need, and keeps its failure apart from every other plugin."""

from __future__ import annotations

import importlib.util
import inspect
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import pluggy

from oarlock.errors import DuplicatePluginError, OarlockError, PluginError
from oarlock.hal import Adapter
from oarlock.plugin import GROUPS, PROJECT, Hooks
from oarlock.registry.entries import Entry, entries
from oarlock.registry.failures import Failure, failure_of
from oarlock.registry.methods import abstract_hint
from oarlock.registry.versions import check_contract

__all__ = ["Loaded", "forget", "get_adapter", "load", "names", "owners", "replaced"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The outcome of loading one plugin: its ``value``, or the ``error`` to raise with the ``failure`` behind it."""

    entry: Entry
    value: Any = None
    error: PluginError | None = None
    failure: Failure | None = None

    @property
    def folder(self) -> Path | None:
        """Where the plugin's top package lies."""
        return _folder(self.entry)


_lock = threading.RLock()
_found: dict[str, dict[str, list[Entry]]] = {}
_loaded: dict[tuple[str, str], Loaded] = {}


def forget() -> None:
    """Forget what was found and loaded: the next use looks again, and tries again what failed."""
    with _lock:
        _found.clear()
        _loaded.clear()


def after_fork() -> None:
    """Replace the lock, which another thread may have held when this process was forked."""
    global _lock
    _lock = threading.RLock()


def names(group: str = "oarlock.adapters") -> tuple[str, ...]:
    """The names in ``group``, sorted. Nothing is loaded."""
    return tuple(sorted(_entries(group)))


def owners(group: str, name: str) -> tuple[Entry, ...]:
    """The entries called ``name``: none, one, or several where distributions conflict."""
    return tuple(_entries(group).get(name, ()))


def get_adapter(name: str) -> Adapter:
    """The adapter called ``name``; raises PluginError with the real cause, or naming what is installed."""
    return cast("Adapter", load("oarlock.adapters", name))


def load(group: str, name: str) -> Any:
    """What the plugin ``name`` of ``group`` gives. Loaded once; raises PluginError, the same on every call."""
    outcome = outcome_of(group, name)
    if outcome.error is not None:
        raise type(outcome.error)(*outcome.error.args) from outcome.error.__cause__
    return outcome.value


def outcome_of(group: str, name: str) -> Loaded:
    """How loading ``name`` went; raises PluginError where no such plugin is installed or two claim the name."""
    known = _loaded.get((group, name))
    if known is not None:
        return known
    with _lock:
        known = _loaded.get((group, name))
        if known is None:
            known = _loaded[group, name] = _load(_only_entry(group, name))
        return known


@contextmanager
def replaced(group: str, name: str, value: Any) -> Iterator[None]:
    """Let ``value`` stand for the plugin ``name`` inside the block: for tests of what lies above it."""
    before = outcome_of(group, name)
    with _lock:
        _loaded[group, name] = Loaded(before.entry, value)
    try:
        yield
    finally:
        with _lock:
            _loaded[group, name] = before


def _entries(group: str) -> dict[str, list[Entry]]:
    if group not in GROUPS:
        raise PluginError(f"no plugin group {group!r}; there are {', '.join(GROUPS)}")
    with _lock:
        if not _found:
            _found.update(entries(GROUPS))
        return _found[group]


def _only_entry(group: str, name: str) -> Entry:
    found = _entries(group)
    kind = GROUPS[group].removeprefix(PROJECT + "_")
    if name not in found:
        near = get_close_matches(name, found, 1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise PluginError(f'no {kind} "{name}" is installed{hint} Installed: {", ".join(sorted(found)) or "none"}')
    claims = found[name]
    if len(claims) > 1:
        owned = " and ".join(f"{entry.owner} ({entry.value})" for entry in claims)
        raise DuplicatePluginError(f'{kind} "{name}" is claimed by {owned}: uninstall all but one of them')
    return claims[0]


def _load(entry: Entry) -> Loaded:
    """Import the plugin's module, find its hook and call it. What goes wrong is recorded, whatever it is."""
    try:
        module = entry.point.load()
        value = _call_hook(entry, module)
        return Loaded(entry, value)
    except PluginError as error:
        failure = Failure(type(error).__name__, str(error), "")
        return Loaded(entry, error=error, failure=failure)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _failed(entry, error)


def _failed(entry: Entry, error: BaseException) -> Loaded:
    failure = failure_of(error, _folder(entry))
    kind = GROUPS[entry.group].removeprefix(PROJECT + "_")
    hint = abstract_hint(error, Adapter)
    refusal = PluginError(
        f"{kind} {entry.name} ({entry.owner}) could not be loaded: {failure}. {f'Now {hint}. ' if hint else ''}"
        f"See: oarlock doctor {entry.name}"
    )
    traceback.clear_frames(error.__traceback__)
    refusal.__cause__ = error
    return Loaded(entry, error=refusal, failure=failure)


def _folder(entry: Entry) -> Path | None:
    """Where the plugin's top package lies, found without running it."""
    try:
        spec = importlib.util.find_spec(entry.point.module.partition(".")[0])
    except (ImportError, ValueError, OarlockError):
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _call_hook(entry: Entry, module: Any) -> Any:
    wanted = GROUPS[entry.group]
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    _check_hooks(entry, module, wanted)
    manager.register(module, entry.name)
    value = getattr(manager.hook, wanted)()
    if value is None:
        raise PluginError(
            f"{entry.name} ({entry.owner}): the hook {wanted} in {entry.value} returned None; expected the "
            f"plugin's object: return it"
        )
    if wanted == "oarlock_adapter":
        check_contract(entry.name, entry.owner, value)
    return value


def _check_hooks(entry: Entry, module: Any, wanted: str) -> None:
    """Refuse a module whose hook is misspelt, unmarked or missing; pluggy itself would silently ignore it."""
    known = {name for name in vars(Hooks) if name.startswith(PROJECT + "_")}
    present: set[str] = set()
    for name, options in _marked(module).items():
        hook = options.get("specname") or name
        present.add(hook)
        if hook not in known and not options.get("optionalhook"):
            near = get_close_matches(hook, known, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"hooks are {', '.join(sorted(known))}"
            raise PluginError(f"{entry.name} ({entry.owner}): {entry.value} has an unknown hook {hook}; {hint}")
    if wanted in present:
        return
    if callable(getattr(module, wanted, None)):
        raise PluginError(
            f"{entry.name} ({entry.owner}): {wanted} in {entry.value} is not marked with @hookimpl; write it above the "
            f"function: from oarlock.plugin import hookimpl"
        )
    raise PluginError(
        f"{entry.name} ({entry.owner}): {entry.value} has no hook {wanted}; "
        f"define it and mark it with oarlock.plugin.hookimpl"
    )


def _marked(module: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in dir(module):
        function = inspect.getattr_static(module, name, None)
        function = getattr(function, "__func__", function)
        options = getattr(function, "__dict__", {}).get(PROJECT + "_impl")
        if isinstance(options, dict):
            found[name] = options
    return found
