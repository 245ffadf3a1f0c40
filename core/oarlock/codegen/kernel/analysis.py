"""What renderers and the interpreter ask about a kernel: which arithmetic computes indices."""

from __future__ import annotations

from oarlock.ir import Operation, ScalarType, Value

__all__ = ["INDEX_OPERANDS", "index_arithmetic"]

INDEX_OPERANDS: dict[str, tuple[int, ...]] = {
    "kernel.load": (1,), "kernel.store": (1,), "kernel.prefetch": (1,), "kernel.for": (0, 1, 2),
    "kernel.matrix_fma": (1, 3), "kernel.matrix_store": (1,),
}  # fmt: skip
"""Which operands of an operation are indices or loop bounds."""

_THROUGH = ("kernel.add", "kernel.sub", "kernel.mul", "kernel.neg")


def index_arithmetic(function: Operation) -> set[Operation]:
    """The signed ``add sub mul neg`` that flow into an index or a loop bound through operations of that kind alone.

    The dialect demands that these do not wrap: so renderers may compute them in any wider type, and the interpreter
    checks that they fit.
    """
    found: set[Operation] = set()
    work: list[Value] = []
    for op in function.walk():
        work += [op.operands[position] for position in INDEX_OPERANDS.get(op.name, ())]
    while work:
        value = work.pop()
        source = value.defining_op
        if source is None or source in found or source.name not in _THROUGH:
            continue
        if isinstance(value.type, ScalarType) and value.type.dtype.kind == "int":
            found.add(source)
            work += source.operands
    return found
