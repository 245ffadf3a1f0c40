"""Prints operations as text; parser.py reads it back, and states the grammar."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from oarlock.dtypes import DType
from oarlock.ir.attributes import Attribute, Dense
from oarlock.ir.dialects import traits
from oarlock.ir.operations import Block, Operation, Region, Value
from oarlock.ir.sizes import Size
from oarlock.ir.types import Type

__all__ = ["Printer", "attribute_text"]

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUES_SHOWN = 16
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_DEFAULT_NAN = struct.pack("<d", math.nan)


def _quote(text: str) -> str:
    """``text`` in quotes; whatever is not printable is escaped, so one line stays one line."""
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text) + '"'


def _name(text: str) -> str:
    return text if IDENTIFIER.fullmatch(text) else _quote(text)


def _integer(value: int) -> str:
    return int.__repr__(value) if abs(value) < 1 << 64 else hex(value)


def _float(value: float) -> str:
    if math.isnan(value) and struct.pack("<d", value) != _DEFAULT_NAN:
        return f"nan(0x{struct.pack('>d', value).hex()})"
    return float.__repr__(value)


def _values(dense: Dense) -> str | None:
    """The values of a small array as a list, or None where only bytes say them exactly."""
    if dense.array.size > _VALUES_SHOWN:
        return None
    flat: list[Any] = dense.array.reshape(-1).tolist()
    if dense.dtype.kind == "bool":
        return ", ".join("true" if value else "false" for value in flat)
    if not dense.dtype.is_float:
        return ", ".join(map(str, flat))
    numpy_dtype = dense.dtype.numpy
    texts: list[str] = []
    for item, value in zip(dense.array.reshape(-1), flat, strict=True):
        number = float(value)
        short = str(item) if dense.dtype.bits == 32 and math.isfinite(number) else float.__repr__(number)
        exact = numpy_dtype.type(float(short)).tobytes() == item.tobytes()
        text = short if exact else float.__repr__(number)
        if numpy_dtype.type(float(text)).tobytes() != item.tobytes():
            return None
        texts.append(text)
    return ", ".join(texts)


def _dense(dense: Dense) -> str:
    kind = "".join(f"{dim}x" for dim in dense.array.shape) + dense.dtype.name
    values = _values(dense)
    if values is not None:
        return f"dense<{kind}: [{values}]>"
    return f'dense<{kind}: "{base64.b64encode(dense.array.tobytes()).decode()}">'


def attribute_text(value: Attribute) -> str:
    """One attribute as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(attribute_text, value)) + "]"
    if isinstance(value, (DType, Type)):
        return str(value)
    if isinstance(value, Size):
        return f"size<{value}>"
    if isinstance(value, Dense):
        return _dense(value)
    return f"<{type(value).__name__}>"  # no attribute: only an operation that is refused for it is printed


class Printer:
    """Prints one operation. Isolated operations number and name their values afresh."""

    def __init__(self, locations: bool = False, regions: bool = True) -> None:
        self._locations = locations
        self._regions = regions
        self._lines: list[str] = []
        self._names: dict[Value, str] = {}
        self._taken: dict[str | None, int] = {}
        self._types: dict[Type, str] = {}

    def print(self, op: Operation) -> str:
        """``op`` as text, without a newline at the end."""
        self._operation(op, "")
        return "\n".join(self._lines)

    def name(self, value: Value) -> str:
        """The name of ``value``, unique in its scope; a value from outside gets one as well."""
        name = self._names.get(value)
        if name is None:
            hint = value.name_hint
            count = self._taken.get(hint, 0)
            self._taken[hint] = count + 1
            if hint is None:
                name = f"%{count}"
            else:
                name = f"%{_name(hint)}" if count == 0 else f"%{_name(hint)}#{count}"
            self._names[value] = name
        return name

    def _type(self, type: Type) -> str:
        text = self._types.get(type)
        if text is None:
            text = self._types[type] = str(type)
        return text

    def _type_list(self, values: Sequence[Value]) -> str:
        return "(" + ", ".join(self._type(value.type) for value in values) + ")"

    def line(self, op: Operation) -> str:
        """``op`` alone, without its regions. Values have one name in all that one printer prints in one scope."""
        text = ""
        operands = ", ".join(map(self.name, op.operands_))
        if op.results:
            text += ", ".join(map(self.name, op.results)) + " = "
        text += f"{op.name}({operands})"
        if op.attributes:
            pairs = (f"{_name(name)} = {attribute_text(value)}" for name, value in sorted(op.attributes.items()))
            text += " {" + ", ".join(pairs) + "}"
        if op.results:
            results = self._type(op.results[0].type) if len(op.results) == 1 else self._type_list(op.results)
            text += f" : {self._type_list(op.operands_)} -> {results}"
        return text

    def _operation(self, op: Operation, indent: str) -> None:
        self._lines.append(indent + self.line(op))
        outer = self._names, self._taken
        if op.definition.has(traits.ISOLATED):
            self._names, self._taken = {}, {}
        for region in op.regions:
            self._region(region, indent)
        self._names, self._taken = outer
        if self._locations and op.location is not None:
            self._lines[-1] += f" at {_quote(op.location)}"

    def _region(self, region: Region, indent: str) -> None:
        if not self._regions:
            self._lines[-1] += " {...}"
        elif not region.blocks:
            self._lines[-1] += " {}"
        elif len(region.blocks) == 1 and (region.blocks[0].args or region.blocks[0].first_op is not None):
            self._lines[-1] += f"{self._arguments(region.blocks[0])} {{"
            self._operations(region.blocks[0].ops, indent)
            self._lines.append(indent + "}")
        else:
            self._lines[-1] += " {"
            for number, block in enumerate(region.blocks):
                self._lines.append(f"{indent}^{number}{self._arguments(block)}:")
                self._operations(block.ops, indent)
            self._lines.append(indent + "}")

    def _arguments(self, block: Block) -> str:
        if not block.args:
            return ""
        return " (" + ", ".join(f"{self.name(a)}: {self._type(a.type)}" for a in block.args) + ")"

    def _operations(self, ops: Iterable[Operation], indent: str) -> None:
        for op in ops:
            self._operation(op, indent + "  ")
