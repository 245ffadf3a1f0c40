"""Passes over array programs, one a file, and the order in which every program takes them."""

from __future__ import annotations

from oarlock.ir.passes import Pass
from oarlock.transforms.cse import CommonSubexpressions
from oarlock.transforms.dce import DeadCode
from oarlock.transforms.decompose import Decompose
from oarlock.transforms.fold import Fold
from oarlock.transforms.simplify import Simplify

__all__ = ["CommonSubexpressions", "DeadCode", "Decompose", "Fold", "Simplify", "standard_passes"]


def standard_passes() -> list[Pass]:
    """The passes that every array program takes before its operators are grouped into kernels."""
    return [Decompose(), Fold(), Simplify(), CommonSubexpressions(), DeadCode()]
