"""Expressions in C: what one kernel operation on scalars is in text, free of undefined behaviour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from oarlock.codegen.render.cdialect import CDialect
from oarlock.dtypes import DType
from oarlock.errors import UnsupportedError

__all__ = ["FUNCTIONS", "OPERATORS", "expression", "literal", "type_name"]

OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "quot": "/", "rem": "%", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
}  # fmt: skip
"""Two-operand operations with an operator."""
FUNCTIONS = ("fma", "fabs", "sqrt", "floor", "ceil", "trunc", "rint")
"""Operations that are functions."""
_WRAPPING = ("add", "sub", "mul", "shl")


def type_name(dialect: CDialect, dtype: DType) -> str:
    """The name of a dtype; raises UnsupportedError when the language has none."""
    name = dialect.types.get(dtype.name)
    if name is None:
        raise UnsupportedError(f"{dialect.language} has no {dtype}; it has {', '.join(dialect.types)}")
    return name


def literal(dialect: CDialect, value: bool | int | float, dtype: DType) -> str:
    """A constant, exact: floats in decimal where that is exact, else in hexadecimal."""
    if dtype.kind == "bool":
        return dialect.booleans[bool(value)]
    suffix = dialect.suffixes.get(dtype.name, "")
    if dtype.is_integer:
        number = int(value)
        if dtype.kind == "int" and dtype.bits >= 32 and number == -(1 << (dtype.bits - 1)):
            return f"({number + 1}{suffix} - 1)"
        return f"({number}{suffix})" if number < 0 else f"{number}{suffix}"
    return _float_literal(dialect, float(value), dtype, suffix)


def _float_literal(dialect: CDialect, value: float, dtype: DType, suffix: str) -> str:
    with np.errstate(over="ignore"):
        number = float(np.array([value], np.float64).astype(dtype.numpy)[0])
    cast = "" if dtype.name == "float32" else f"({type_name(dialect, dtype)})"
    if math.isnan(number):
        text = f"{cast}{dialect.nan}"
    elif math.isinf(number):
        text = f"{'-' if number < 0 else ''}{cast}{dialect.infinity}"
    else:
        decimal = repr(number)
        exact = "e" not in decimal and len(decimal) < 12 and Decimal(decimal) == Decimal(number)
        text = (decimal if exact else _hexadecimal(number)) + suffix
    return f"({text})" if text.startswith("-") else text


def _hexadecimal(number: float) -> str:
    mantissa, exponent = number.hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0")
    return f"{mantissa}{'0' if mantissa.endswith('.') else ''}p{exponent}"


def expression(
    dialect: CDialect, kind: str, x: Sequence[str], source: DType, result: DType, unwrapped: bool = False
) -> str:
    """``kind`` applied to the operands ``x``; those of ``min`` and ``max`` are repeated, so they must be names.

    ``source`` is the dtype of the first operand. ``unwrapped`` integer arithmetic is known to stay in range.
    """
    if dialect.expression is not None:
        return dialect.expression(kind, x, source, result)
    if kind in FUNCTIONS:
        name = dialect.math.get(kind, kind).format(f="f" if result.bits == 32 else "")
        return f"{name}({', '.join(map(bare, x))})"
    if kind == "select":
        return f"({x[0]} ? {x[1]} : {x[2]})"
    if kind in ("min", "max"):
        return f"({x[0]} {'<' if kind == 'min' else '>'} {x[1]} ? {x[0]} : {x[1]})"
    if kind == "convert":
        return f"(({type_name(dialect, result)}){x[0]})"
    if kind == "bitcast":
        return _bitcast(dialect, x[0], source, result)
    if kind in ("neg", "not"):
        return _unary(dialect, kind, x[0], source)
    if kind in _WRAPPING and source.is_integer and not unwrapped and source.name not in ("uint32", "uint64"):
        wide = f"({_unsigned(dialect, source)})"
        second = x[1] if kind == "shl" else wide + x[1]
        return f"(({type_name(dialect, source)})({wide}{x[0]} {OPERATORS[kind]} {second}))"
    return f"({x[0]} {OPERATORS[kind]} {x[1]})"


def bare(text: str) -> str:
    """``text`` without parentheses around all of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text


def _unsigned(dialect: CDialect, dtype: DType) -> str:
    """The unsigned type that wraps as ``dtype`` does and that no promotion turns into a signed one."""
    name = "uint64" if dtype.bits == 64 else "uint32"
    if name not in dialect.types:
        raise UnsupportedError(f"{dialect.language} has no {name}, which arithmetic on {dtype} goes through")
    return dialect.types[name]


def _bitcast(dialect: CDialect, x: str, source: DType, result: DType) -> str:
    name = type_name(dialect, result)
    if source.is_integer and result.is_integer:
        return f"(({name}){x})"
    return dialect.bitcast.format(type=name, source=type_name(dialect, source), value=bare(x))


def _unary(dialect: CDialect, kind: str, x: str, dtype: DType) -> str:
    if kind == "not":
        if dtype.kind == "bool":
            return f"(!{x})"
        return f"(~{x})" if dtype.bits >= 32 else f"(({type_name(dialect, dtype)})(~{x}))"
    if dtype.is_float:
        return f"(-{x})"
    return f"(({type_name(dialect, dtype)})(0{dialect.suffixes.get('uint32', '')} - ({_unsigned(dialect, dtype)}){x}))"
