"""The order of the standard passes, the passes that are run only when asked for, and choosing passes by name."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock import dtypes
from oarlock.errors import IRError
from oarlock.ir.passes import Pass, arranged
from oarlock.transforms.alias import Alias
from oarlock.transforms.channels_last import ChannelsLast
from oarlock.transforms.cse import CommonSubexpressions
from oarlock.transforms.dce import DeadCode
from oarlock.transforms.decompose import Decompose
from oarlock.transforms.fold import Fold
from oarlock.transforms.horizontal import Horizontal
from oarlock.transforms.layout import Layout
from oarlock.transforms.mixed import MixedPrecision
from oarlock.transforms.simplify import Simplify
from oarlock.transforms.sink import Sink

__all__ = ["choose_passes", "optional_passes", "standard_passes"]


def standard_passes() -> list[Pass]:
    """The passes that every array program takes before its operators are grouped into kernels."""
    return [
        Decompose(), Fold(), Simplify(), Alias(), ChannelsLast(), Layout(), Sink(), CommonSubexpressions(), DeadCode(),
    ]  # fmt: skip


def optional_passes() -> list[Pass]:
    """The passes that are run where they are asked for by name: they change numbers, or do not always pay."""
    return [Horizontal(), MixedPrecision(dtypes.float16), MixedPrecision(dtypes.bfloat16)]


def choose_passes(text: str, more: Sequence[Pass] = ()) -> list[Pass]:
    """The passes that ``text`` names: ``"fold,dce"`` is these alone, ``"-sink,+horizontal"`` changes the standard list.

    ``more`` are further passes to choose from, which the standard list takes as well: those of plugins. Raises IRError
    for a name that there is not.
    """
    usual = arranged(standard_passes(), more)
    known = {item.name: item for item in (*usual, *optional_passes())}
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word.lstrip("+-") not in known:
            raise IRError(f"no pass {word.lstrip('+-')!r}; there are {', '.join(known)}")
    if not all(word[0] in "+-" for word in words):
        if any(word[0] in "+-" for word in words):
            raise IRError(f"passes {text!r}: give either names, or changes of the usual list, which begin with + or -")
        return [known[word] for word in words]
    dropped = {word[1:] for word in words if word[0] == "-"}
    added = [known[word[1:]] for word in words if word[0] == "+" and known[word[1:]] not in usual]
    return arranged([item for item in usual if item.name not in dropped], added)
