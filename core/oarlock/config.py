"""Settings: the only reader of the process environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from oarlock.errors import ConfigError

__all__ = ["Config", "config"]


@dataclass(slots=True)
class Config:
    """Settings of this process; each can be given as an environment variable ``OARLOCK_<NAME>``."""

    cache_dir: Path
    """Where executables and models are cached (``OARLOCK_CACHE_DIR``)."""
    cache: bool = True
    """Whether executables, and what lowering came to, are cached on disk (``OARLOCK_CACHE``)."""
    device: str = "cpu"
    """The default device (``OARLOCK_DEVICE``)."""
    eager: bool = False
    """Run each operator at once and unfused, for debugging (``OARLOCK_EAGER``)."""
    pool: bool = True
    """Whether freed device memory is kept for reuse (``OARLOCK_POOL``)."""
    poison: bool = False
    """Whether freed device memory is overwritten, to show use after free (``OARLOCK_POISON``)."""
    verify: bool = False
    """Whether programs are verified after each pass, for debugging (``OARLOCK_VERIFY``)."""
    watchdog_s: float = 300.0
    """Deadline of a driver call, in seconds; 0 turns the watchdog off (``OARLOCK_WATCHDOG_S``)."""
    communication_s: float = 120.0
    """How long a rank of a group waits for the others in one call, in seconds (``OARLOCK_COMMUNICATION_S``)."""
    tuned: bool = True
    """Whether measured schedules are used where there are some, rather than the rules alone (``OARLOCK_TUNED``)."""
    threads: int = 0
    """Host threads for kernels; 0: one per core that the process may use (``OARLOCK_THREADS``)."""


def _flag(name: str, default: bool) -> bool:
    text = os.environ.get(name)
    if text is None:
        return default
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off", ""):
        return False
    raise ConfigError(f"{name}={text!r}: use 1 or 0")


def _number(name: str, default: float) -> float:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{name}={text!r}: use a number") from None


def _cache_dir() -> Path:
    explicit = os.environ.get("OARLOCK_CACHE_DIR")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "oarlock"


def _load() -> Config:
    return Config(
        cache_dir=_cache_dir(),
        cache=_flag("OARLOCK_CACHE", True),
        device=os.environ.get("OARLOCK_DEVICE", "cpu"),
        eager=_flag("OARLOCK_EAGER", False),
        pool=_flag("OARLOCK_POOL", True),
        poison=_flag("OARLOCK_POISON", False),
        verify=_flag("OARLOCK_VERIFY", False),
        watchdog_s=_number("OARLOCK_WATCHDOG_S", 300.0),
        communication_s=_number("OARLOCK_COMMUNICATION_S", 120.0),
        tuned=_flag("OARLOCK_TUNED", True),
        threads=int(_number("OARLOCK_THREADS", 0)),
    )


config = _load()
