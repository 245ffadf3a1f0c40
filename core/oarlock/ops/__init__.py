"""The operator catalogue: one record per operator, its dialect, and the context in which programs are built."""

from __future__ import annotations

from oarlock.ir import Context, Dialect
from oarlock.ir.control import CONTROL
from oarlock.ops.compare import COMPARE
from oarlock.ops.contract import CONTRACT
from oarlock.ops.convert import CONVERT
from oarlock.ops.elementwise_binary import BINARY
from oarlock.ops.elementwise_unary import UNARY
from oarlock.ops.index import INDEX
from oarlock.ops.random import RANDOM
from oarlock.ops.record import ArrayBuilder, Record, Sample, tensor
from oarlock.ops.reduce import REDUCE
from oarlock.ops.shape import SHAPE
from oarlock.ops.sort import SORT
from oarlock.ops.window import WINDOW

__all__ = ["ARRAY", "RECORDS", "ArrayBuilder", "Record", "Sample", "array_context", "tensor"]

RECORDS: dict[str, Record] = {
    record.name: record
    for family in (UNARY, BINARY, COMPARE, CONVERT, REDUCE, SHAPE, INDEX, CONTRACT, WINDOW, SORT, RANDOM)
    for record in family
}
"""Every operator by name."""

ARRAY = Dialect("array", 1, [record.definition() for record in RECORDS.values()])
"""The array dialect."""


def array_context() -> Context:
    """A context with the dialects that array programs use: builtin, array, control."""
    return Context([ARRAY, CONTROL])
