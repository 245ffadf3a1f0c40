"""Passes over array programs, one a file, and the order in which every program takes them."""

from __future__ import annotations

from oarlock.transforms.alias import Alias
from oarlock.transforms.cse import CommonSubexpressions
from oarlock.transforms.dce import DeadCode
from oarlock.transforms.decompose import Decompose
from oarlock.transforms.fold import Fold
from oarlock.transforms.horizontal import Horizontal
from oarlock.transforms.layout import Layout
from oarlock.transforms.mixed import MixedPrecision
from oarlock.transforms.pipeline import choose_passes, optional_passes, standard_passes
from oarlock.transforms.simplify import Simplify
from oarlock.transforms.sink import Sink

__all__ = [
    "Alias", "CommonSubexpressions", "DeadCode", "Decompose", "Fold", "Horizontal", "Layout", "MixedPrecision",
    "Simplify", "Sink", "choose_passes", "optional_passes", "standard_passes",
]  # fmt: skip
