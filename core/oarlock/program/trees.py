"""Trees: nested tuples, lists and dicts with tensors at their leaves, taken apart and put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from oarlock.errors import UnsupportedError
from oarlock.program.tape import Recorded

__all__ = ["LEAF", "Spec", "flatten", "rebuild"]

Spec: TypeAlias = Any
"""The form of a tree, hashable: ``LEAF``, (kind of container, ...), or a static value with its type."""


class _Leaf:
    __slots__ = ()

    def __repr__(self) -> str:
        return "LEAF"


LEAF = _Leaf()
_STATIC = "static"


def flatten(tree: Any, leaves: list[Any], what: str) -> Spec:
    """The form of ``tree``; its tensors and NumPy arrays are appended to ``leaves``, from left to right.

    Anything else is static: a part of the form, which must be hashable. Raises UnsupportedError that names ``what``
    for a value that is not.
    """
    if isinstance(tree, (Recorded, np.ndarray)):
        leaves.append(tree)
        return LEAF
    if isinstance(tree, (tuple, list)):
        parts = tuple(flatten(part, leaves, f"{what}[{i}]") for i, part in enumerate(tree))
        return (type(tree), parts)
    if isinstance(tree, dict):
        parts = tuple(flatten(part, leaves, f"{what}[{key!r}]") for key, part in tree.items())
        return (type(tree), tuple(tree), parts)
    if isinstance(tree, float):
        return (_STATIC, float, tree.hex(), tree)  # 0.0 and -0.0 are equal, but not the same
    try:
        hash(tree)
    except TypeError:
        raise UnsupportedError(
            f"{what} is a {type(tree).__name__}, which is no tensor and cannot be hashed, so that no program can be "
            f"found by it: give tensors, numbers, strings and the like, in tuples, lists and dicts"
        ) from None
    return (_STATIC, type(tree), tree)


def rebuild(spec: Spec, leaves: Iterator[Any]) -> Any:
    """The tree of form ``spec`` with ``leaves``."""
    if spec is LEAF:
        return next(leaves)
    kind = spec[0]
    if kind is _STATIC:
        return spec[-1]
    if issubclass(kind, dict):
        return kind(zip(spec[1], [rebuild(part, leaves) for part in spec[2]], strict=True))
    parts = [rebuild(part, leaves) for part in spec[1]]
    make: Callable[..., Any] = getattr(kind, "_make", kind)  # named tuples
    return make(parts)
