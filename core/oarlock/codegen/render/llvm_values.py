"""How LLVM IR spells types, literals and the kernel operations that are one instruction."""

from __future__ import annotations

import math
import struct

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError
from oarlock.ir import ScalarType

__all__ = ["INTRINSIC", "binary_opcode", "compare_opcode", "convert_opcode", "literal", "suffix", "type_of"]

_TYPES = {"bool": "i1", "float16": "half", "bfloat16": "bfloat", "float32": "float", "float64": "double"}
_SUFFIX = {"bool": "i1", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}

INTRINSIC = {
    "fma": "fma", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "roundeven",
    "fabs": "fabs", "min": "min", "max": "max",
}  # fmt: skip
"""Kernel operations that are intrinsics (integer ``min`` and ``max`` take a prefix for the sign)."""

_BINARY = {
    "add": ("add", "add", "fadd"), "sub": ("sub", "sub", "fsub"), "mul": ("mul", "mul", "fmul"),
    "div": ("", "", "fdiv"), "quot": ("sdiv", "udiv", ""), "rem": ("srem", "urem", ""), "and": ("and", "and", ""),
    "or": ("or", "or", ""), "xor": ("xor", "xor", ""), "shl": ("shl", "shl", ""), "shr": ("ashr", "lshr", ""),
}  # fmt: skip
_COMPARE = {
    "eq": ("icmp eq", "icmp eq", "fcmp oeq"), "ne": ("icmp ne", "icmp ne", "fcmp une"),
    "lt": ("icmp slt", "icmp ult", "fcmp olt"), "le": ("icmp sle", "icmp ule", "fcmp ole"),
}  # fmt: skip
_COLUMN = {"int": 0, "uint": 1, "bool": 1, "float": 2}


def type_of(type: ScalarType | DType) -> str:
    """The LLVM type of a scalar, a vector, or an element in memory."""
    dtype = type.dtype if isinstance(type, ScalarType) else type
    name = _TYPES.get(dtype.name) or f"i{dtype.bits}"
    return f"<{type.lanes} x {name}>" if isinstance(type, ScalarType) and type.lanes > 1 else name


def suffix(type: ScalarType) -> str:
    """The type as an overloaded intrinsic's name spells it."""
    name = _SUFFIX.get(type.dtype.name) or f"i{type.dtype.bits}"
    return f"v{type.lanes}{name}" if type.lanes > 1 else name


def literal(value: bool | int | float, type: ScalarType) -> str:
    """A constant of ``type``, rounded to its dtype; all lanes of a vector."""
    text = _scalar_literal(value, type.dtype)
    return f"splat ({type_of(type.dtype)} {text})" if type.lanes > 1 else text


def _scalar_literal(value: bool | int | float, dtype: DType) -> str:
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.is_integer:
        return str(int(value))
    with np.errstate(over="ignore"):
        rounded = np.array([value], np.float64).astype(dtype.numpy)
    if dtype == dtypes.float16:
        return f"0xH{rounded.view(np.uint16)[0]:04X}"
    if dtype == dtypes.bfloat16:
        return f"0xR{rounded.view(np.uint16)[0]:04X}"
    number = float(rounded[0])
    if math.isnan(number):
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def binary_opcode(name: str, dtype: DType) -> str:
    """The instruction of a two-operand kernel operation that is no intrinsic."""
    return _BINARY[name][_COLUMN[dtype.kind]]


def compare_opcode(name: str, dtype: DType) -> str:
    """The instruction and predicate of a comparison."""
    return _COMPARE[name][_COLUMN[dtype.kind]]


def convert_opcode(source: DType, target: DType) -> str | None:
    """The instruction that converts; None where the values are the same."""
    if source.is_float and target.is_float:
        if source.bits == target.bits and source != target:
            raise UnsupportedError(f"LLVM IR has no conversion of {source} to {target}: go through float32")
        return None if source == target else "fpext" if target.bits > source.bits else "fptrunc"
    if source.is_float:
        return "fptosi" if target.kind == "int" else "fptoui"
    if target.is_float:
        return "sitofp" if source.kind == "int" else "uitofp"
    if source.kind == "bool":
        return "zext"
    if source.bits == target.bits:
        return None
    return "trunc" if target.bits < source.bits else "sext" if source.kind == "int" else "zext"
