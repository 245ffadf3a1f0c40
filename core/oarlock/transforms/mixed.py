"""Mixed precision: products and convolutions of float32 take 16-bit operands, and give float32 again.

This changes numbers, so it runs only when it is asked for: by the name ``mixed_float16`` or ``mixed_bfloat16``.
Sums stay in float32; a product's operands are rounded once, a convolution's result once more. Reductions, elementary
functions and all other arithmetic stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError
from oarlock.ir import Context, Operation
from oarlock.ir.passes import Pass
from oarlock.ir.rewrite import RewritePattern, Rewriter, apply_patterns
from oarlock.ops.record import tensor
from oarlock.target import Target
from oarlock.transforms.matching import emit

__all__ = ["MixedPrecision"]


class MixedPrecision(Pass):
    """Rounds the operands of float32 products and convolutions to ``dtype``, float16 or bfloat16."""

    name = "mixed"
    level = 3
    after = ("simplify", "layout", "sink")
    before = ("cse",)

    def __init__(self, dtype: DType) -> None:
        if dtype not in (dtypes.float16, dtypes.bfloat16):
            raise DTypeError(f"mixed precision in {dtype}; use float16 or bfloat16")
        self.dtype = dtype
        self.name = f"mixed_{dtype}"

    def applies(self, target: Target) -> bool:
        """Where the dtype can be stored."""
        return target.stores(self.dtype)

    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        """Convert in ``op``; how many products and convolutions."""
        patterns = [
            RewritePattern("products", "array.dot_general", self._product),
            RewritePattern("convolutions", "array.convolution", self._convolution),
        ]
        return apply_patterns(op, patterns, context)

    def _product(self, op: Operation, rewriter: Rewriter) -> bool:
        if tensor(op.operands_[0]).dtype != dtypes.float32:
            return False
        build = emit(op, rewriter)
        operands = [build.convert(operand, self.dtype) for operand in op.operands_]
        rewriter.replace(op, build.create(op.name, operands, op.attributes).results)
        return True

    def _convolution(self, op: Operation, rewriter: Rewriter) -> bool:
        if tensor(op.operands_[0]).dtype != dtypes.float32:
            return False
        build = emit(op, rewriter)
        operands = [build.convert(operand, self.dtype) for operand in op.operands_]
        made = build.create(op.name, operands, op.attributes).result
        rewriter.replace(op, [build.convert(made, dtypes.float32)])
        return True
