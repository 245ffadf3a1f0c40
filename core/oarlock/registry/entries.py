"""Finds which plugins are installed, from the metadata of distributions alone: nothing of a plugin is imported."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions

__all__ = ["Entry", "entries", "normalised"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry point: ``name`` in ``group``, owned by ``distribution`` (its project name) in ``version``."""

    group: str
    name: str
    value: str
    distribution: str
    version: str
    point: EntryPoint

    @property
    def owner(self) -> str:
        """The distribution with its version, as a person reads it."""
        return f"{self.distribution} {self.version}"


def normalised(project: str) -> str:
    """A project name as package indexes compare it."""
    return project.lower().replace("_", "-").replace(".", "-")


def entries(groups: Iterable[str]) -> dict[str, dict[str, list[Entry]]]:
    """The entries of each of ``groups`` by name. A name with more than one is claimed by several distributions.

    A distribution that is seen twice (its folder is on the path twice, an old copy lies further down) counts once:
    the first on the path, as for imports.
    """
    found: dict[str, dict[str, list[Entry]]] = {group: {} for group in groups}
    seen: set[str] = set()
    for distribution in distributions():
        project = _project_with_plugins(distribution)
        if project is None or normalised(project) in seen:
            continue
        seen.add(normalised(project))
        for entry in _of(distribution, project, found):
            found[entry.group].setdefault(entry.name, []).append(entry)
    return found


def _project_with_plugins(distribution: Distribution) -> str | None:
    """The project's name when it has entry points of this project; reading other metadata would be slow."""
    try:
        text = distribution.read_text("entry_points.txt")
        if not text or "[oarlock." not in text:
            return None
        return distribution.metadata["Name"] or None
    except (OSError, UnicodeDecodeError):
        return None


def _of(distribution: Distribution, project: str, groups: Container[str]) -> Iterator[Entry]:
    version = distribution.version or "unknown version"
    unique: set[tuple[str, str, str]] = set()
    for point in distribution.entry_points:
        if point.group in groups and (point.group, point.name, point.value) not in unique:
            unique.add((point.group, point.name, point.value))
            yield Entry(point.group, point.name, point.value, project, version, point)
