"""Broken adapters: each is the simulator with one planted fault, installed under a name of its own.

A saboteur declares the surface that it breaks, never a case. ``SABOTEURS`` holds all of them, ``HEALTHY`` the same
simulators without a fault; the attribute called like one is its plugin object, so that an entry point
``broken_x = oarlock_saboteurs:x`` installs it. Where a fault is active, it says so: ``self.hit()``.
"""

from __future__ import annotations

import importlib

from oarlock_saboteurs.base import HEALTHY, SABOTEURS, BrokenAdapter, BrokenDriver, Saboteur, saboteur

__all__ = ["HEALTHY", "SABOTEURS", "BrokenAdapter", "BrokenDriver", "Saboteur", "saboteur"]

for _name in (
    "bases", "memory", "copies", "addresses", "launching", "programs", "plans", "streams", "events", "lifetime",
    "discovery", "claims", "process", "results", "sources", "vacuity",
    "collectives",
):  # fmt: skip
    importlib.import_module(f"oarlock_saboteurs.{_name}")  # each registers its own


def __getattr__(name: str) -> Saboteur:
    try:
        return SABOTEURS[name] if name in SABOTEURS else HEALTHY[name]
    except KeyError:
        raise AttributeError(name) from None
