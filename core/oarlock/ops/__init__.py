"""The operator catalogue: one record per operator, its dialect, and the context in which programs are built."""

from __future__ import annotations

from oarlock.ir import Context, Dialect
from oarlock.ir.control import CONTROL
from oarlock.ops.activation import ACTIVATION
from oarlock.ops.arithmetic import COMPOSITE_ARITHMETIC
from oarlock.ops.compare import COMPARE
from oarlock.ops.contract import CONTRACT
from oarlock.ops.convert import CONVERT
from oarlock.ops.elementwise_binary import BINARY
from oarlock.ops.elementwise_unary import UNARY
from oarlock.ops.index import INDEX
from oarlock.ops.linear import LINEAR
from oarlock.ops.masks import MASKS
from oarlock.ops.normalise import NORMALISE
from oarlock.ops.pooling import POOLING
from oarlock.ops.random import RANDOM
from oarlock.ops.record import ArrayBuilder, Record, Sample, tensor
from oarlock.ops.recurrent import RECURRENT
from oarlock.ops.reduce import REDUCE
from oarlock.ops.resize import RESIZE
from oarlock.ops.selection import SELECTION
from oarlock.ops.shape import SHAPE
from oarlock.ops.sort import SORT
from oarlock.ops.statistics import STATISTICS
from oarlock.ops.window import WINDOW

__all__ = ["ARRAY", "RECORDS", "ArrayBuilder", "Record", "Sample", "array_context", "tensor"]

_PRIMITIVES = (UNARY, BINARY, COMPARE, CONVERT, REDUCE, SHAPE, INDEX, CONTRACT, WINDOW, SORT, RANDOM)
_COMPOSITES = (
    ACTIVATION, COMPOSITE_ARITHMETIC, STATISTICS, NORMALISE, LINEAR, SELECTION, MASKS, POOLING, RESIZE, RECURRENT,
)  # fmt: skip

RECORDS: dict[str, Record] = {record.name: record for family in (*_PRIMITIVES, *_COMPOSITES) for record in family}
"""Every operator by name: primitives first."""

ARRAY = Dialect("array", 1, [record.definition() for record in RECORDS.values()])
"""The array dialect."""


def array_context() -> Context:
    """A context with the dialects that array programs use: builtin, array, control."""
    return Context([ARRAY, CONTROL])
