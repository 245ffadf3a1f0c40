"""The dialect of operators that exist only between expansion and lowering: steps that the compiler cuts others into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oarlock.errors import DTypeError
from oarlock.ir import Attribute, Dialect, OpDefinition, Type, traits

__all__ = ["SCHEDULE"]


def _same(types: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    if len(types) != 2:
        raise DTypeError(f"schedule.merge_pass takes keys and positions, got {len(types)} operands")
    return tuple(types)


SCHEDULE = Dialect(
    "schedule",
    1,
    [
        OpDefinition(
            "schedule.merge_pass",
            "Merge neighbouring sorted runs of ``width`` along ``axis``; positions travel with their keys.",
            operands=2,
            results=2,
            attributes={"axis": int, "width": int, "descending": bool},
            traits=frozenset({traits.PURE}),
            infer=_same,
        ),
        OpDefinition(
            "schedule.radix_pass",
            "Sort each row along the last dimension, ``axis``, stably by ``bits`` bits from ``shift`` on of a number "
            "that orders as the first operand; further operands travel with it.",
            results=None,
            attributes={"axis": int, "shift": int, "bits": int, "descending": bool},
            traits=frozenset({traits.PURE}),
            infer=lambda types, attributes: tuple(types),
        ),
        OpDefinition(
            "schedule.scan_pieces",
            "A scan, in which every ``piece`` elements along ``axis`` in the order of the walk, but the first ones, "
            "begin with what the second operand holds for those before them.",
            operands=2,
            attributes={"kind": str, "axis": int, "reverse": bool, "exclusive": bool, "piece": int},
            traits=frozenset({traits.PURE}),
            infer=lambda types, attributes: (types[0],),
        ),
        OpDefinition(
            "schedule.sort_rows",
            "The values along ``axis`` in order, NaN last, and the positions they came from, if there is a second "
            "result: equal values then keep their order.",
            operands=1,
            results=None,
            attributes={"axis": int, "descending": bool},
            traits=frozenset({traits.PURE}),
        ),
        OpDefinition(
            "schedule.copy",
            "The same values, laid out in memory in row-major order. ``panels`` are (panels, steps, width) of a matrix "
            "of as many rows as steps, which is copied row by row.",
            operands=1,
            attributes={"panels": bool},
            optional=frozenset({"panels"}),
            traits=frozenset({traits.PURE}),
            infer=lambda types, attributes: tuple(types),
        ),
        OpDefinition(
            "schedule.convolution",
            "A convolution whose image is padded already; with a stride along the last dimension, that dimension is "
            "split into (phase, column).",
            operands=2,
            attributes={"strides": tuple, "dilation": tuple, "groups": int},
            traits=frozenset({traits.PURE}),
        ),
        OpDefinition(
            "schedule.packed_product",
            "(batch..., rows..., columns...): the matrix product of row panels (batch..., panels, K, rows of one), or "
            "rows ``in_place`` (batch..., rows, K...), and column panels (batch..., panels, K..., columns of one), "
            "each with or without the batch; what the last panels hold past the result is not in it. ``batch``, "
            "``rows`` and ``steps`` (of K) count dimensions; a tile has ``tile`` rows.",
            operands=2,
            attributes={"batch": int, "rows": int, "steps": int, "tile": int, "in_place": bool},
            traits=frozenset({traits.PURE}),
        ),
        OpDefinition(
            "schedule.window_product",
            "A convolution of an image (images, positions..., channels) that is padded already with column panels "
            "(panels, steps..., outputs of one): steps are those of each dimension of the kernel and of the channels, "
            "the last two joined where the kernel's last dimension is not dilated. A tile has ``tile`` rows.",
            operands=2,
            attributes={"strides": tuple, "dilation": tuple, "tile": int},
            traits=frozenset({traits.PURE}),
        ),
        OpDefinition(
            "schedule.scores",
            "(batch..., rows..., keys): the matrix product of rows and panels like those of a packed_product: the "
            "first step of an attention, whose kernel computes it.",
            operands=2,
            attributes={"in_place": bool},
            traits=frozenset({traits.PURE}),
        ),
        OpDefinition(
            "schedule.attend",
            "(batch..., rows..., columns...): the matrix product of a softmax over ``schedule.scores`` and column "
            "panels (batch..., panels, keys, columns of one); the last step of an attention. ``batch`` and ``rows`` "
            "count dimensions; ``tile`` rows are computed together.",
            operands=2,
            attributes={"batch": int, "rows": int, "tile": int},
            traits=frozenset({traits.PURE}),
        ),
    ],
)
"""Its operations."""
