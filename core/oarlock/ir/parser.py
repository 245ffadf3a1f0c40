r"""Parses the text that printer.py prints, in linear time.

    operation  = [value {"," value} "="] name "(" [value {"," value}] ")" ["{" pair {"," pair} "}"]
                 [":" "(" [type {"," type}] ")" "->" (type | "(" [type {"," type}] ")")] {region} ["at" string]
    pair       = (identifier | string) "=" attribute
    region     = [arguments] "{" {operation} "}" | "{" {"^" number [arguments] ":" {operation}} "}"
    arguments  = "(" value ":" type {"," value ":" type} ")"
    value      = "%" (number | (identifier | string) ["#" number])
    attribute  = "none" | "true" | "false" | integer | float | string | "[" [attribute {"," attribute}] "]" | dtype
               | type | "size<" size ">" | "dense<" {number "x"} dtype ":" (string | "[" [scalar {"," scalar}] "]") ">"
    type       = "tensor<" {(number | size in parentheses) "x"} dtype ">" | "scalar<" dtype ["," number] ">"
               | "buffer<" dtype "," space "," access ">"
    size       = integer | identifier | ("max" | "min") "(" size "," size ")" | "(" size [operator size] ")"

Comments run from ``#`` to the end of the line. A single block without arguments and operations is written ``{^0:}``,
since ``{}`` is a region without blocks. A name is known from its definition to the end of its block, and not inside
isolated operations.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

import numpy as np

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, IRError, ParseError
from oarlock.ir.attributes import Attribute, Dense
from oarlock.ir.context import Context
from oarlock.ir.dialects import OpDefinition, traits
from oarlock.ir.operations import Block, Operation, Region, Value
from oarlock.ir.sizes import Size
from oarlock.ir.types import BufferType, Dim, ScalarType, TensorType, Type

__all__ = ["Parser", "dense_from_bytes", "parse_size", "parse_type"]

T = TypeVar("T")

_SPACE = re.compile(r"(?:\s+|#[^\n]*)*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNICODE_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_OPERATION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+")
_QUOTED = r'"([^"\\\n]*(?:\\.[^"\\\n]*)*)"'
_STRING = re.compile(_QUOTED)
_VALUE = re.compile(rf"%(?:[0-9]+|([A-Za-z_][A-Za-z0-9_]*)|{_QUOTED})(?:#[0-9]+)?")
_BLANK = r"(?:\s|#[^\n]*\n)*"
_ATTRIBUTES = re.compile(rf"\{{(?={_BLANK}(?:[A-Za-z_][A-Za-z0-9_]*|{_QUOTED}){_BLANK}=)")
_AT = re.compile(r"at(?=\s*\")")
_ESCAPE = re.compile(r"\\(u\{([0-9a-f]{1,6})\}|.)")
_ESCAPED = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r"}
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|inf\b|nan\b(?:\(0x[0-9a-f]{16}\))?|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_NATURAL = re.compile(r"[0-9]{1,20}")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_STATIC_TENSOR = re.compile(r"tensor<((?:[0-9]{1,19}x)*)([a-z]+[0-9]*)>")
_DENSE_KIND = re.compile(r"((?:[0-9]{1,19}x)*)([a-z]+[0-9]*)")
_SIZE_OPERATOR = re.compile(r"//|[-+*%]")
_REGION_DEPTH = 64
_VALUE_DEPTH = 128
_MAX_RANK = 64


def dense_from_bytes(dtype: DType, shape: tuple[int, ...], data: str) -> Dense:
    """The array whose little-endian bytes ``data`` holds in base64.

    The length is compared with the shape before anything is decoded; raises ParseError when they differ.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if len(shape) > _MAX_RANK or len(data) != (nbytes + 2) // 3 * 4:
        raise ParseError(f"dense of {dtype} {shape} takes {nbytes} bytes in base64; got {len(data)} characters")
    try:
        raw = base64.b64decode(data, validate=True)
        if len(raw) != nbytes:
            raise ParseError(f"dense of {dtype} {shape} takes {nbytes} bytes; got {len(raw)}")
        return Dense(np.frombuffer(raw, dtype.numpy.newbyteorder("<")).reshape(shape))
    except (binascii.Error, ValueError) as error:
        raise ParseError(f"dense of {dtype} {shape}: {error}") from None


def parse_type(text: str) -> Type:
    """The type that ``text`` is; raises ParseError."""
    return Parser(text).whole(Parser.type)


def parse_size(text: str) -> int | Size:
    """The size that ``text`` is; raises ParseError."""
    return Parser(text).whole(Parser.size)


class Parser:
    """Reads text from the left; every method consumes what it is named for, or raises ParseError."""

    def __init__(self, text: str, context: Context | None = None) -> None:
        self._text = text
        self._position = 0
        self._context = context or Context()
        self._values: dict[str, Value] = {}
        self._defined: list[str] = []
        self._types: dict[str, Type] = {}
        self._depth = 0

    def whole(self, read: Callable[[Parser], T]) -> T:
        """What ``read`` reads, which must be all there is."""
        result = read(self)
        self._skip()
        if self._position != len(self._text):
            self.fail("end of text")
        return result

    # --- scanning ----------------------------------------------------------------------------------------------------

    def fail(self, expected: str) -> NoReturn:
        """Raise ParseError at the current position: ``expected`` was not found."""
        self._skip()
        rest = self._text[self._position : self._position + 24].split("\n", 1)[0]
        self._error(f"expected {expected}, found {repr(rest) if rest else 'the end of the text'}")

    def _error(self, message: str, position: int | None = None) -> NoReturn:
        position = self._position if position is None else position
        line = self._text.count("\n", 0, position) + 1
        column = position - (self._text.rfind("\n", 0, position) + 1) + 1
        raise ParseError(f"line {line}, column {column}: {message}")

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._position)
        if match is not None:
            self._position = match.end()

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._skip()
        match = pattern.match(self._text, self._position)
        if match is not None:
            self._position = match.end()
        return match

    def _read(self, pattern: re.Pattern[str], expected: str) -> str:
        match = self._match(pattern)
        if match is None:
            self.fail(expected)
        return match.group()

    def _peek(self, literal: str) -> bool:
        self._skip()
        return self._text.startswith(literal, self._position)

    def _accept(self, literal: str) -> bool:
        if not self._peek(literal):
            return False
        self._position += len(literal)
        return True

    def _expect(self, literal: str) -> None:
        if not self._accept(literal):
            self.fail(f"'{literal}'")

    def _list(self, end: str, item: Callable[[], T]) -> list[T]:
        """Items with commas between them, up to ``end``."""
        items: list[T] = []
        if self._accept(end):
            return items
        while True:
            items.append(item())
            if self._accept(end):
                return items
            if not self._accept(","):
                self.fail(f"',' or '{end}'")

    def _nested(self, limit: int, read: Callable[[], T]) -> T:
        self._depth += 1
        if self._depth > limit:
            self._error("nested too deeply")
        result = read()
        self._depth -= 1
        return result

    def _string(self) -> str:
        match = self._match(_STRING)
        if match is None:
            self.fail("a string in quotes")
        return self._unescape(match, 1)

    def _unescape(self, match: re.Match[str], group: int) -> str:
        """The string in a group of ``match``, its escapes replaced."""

        def replace(escape: re.Match[str]) -> str:
            code = escape.group(2)
            if code is not None and int(code, 16) <= 0x10FFFF:
                return chr(int(code, 16))
            if escape.group(1) not in _ESCAPED:
                self._error(f"no escape {escape.group()!r}", match.start(group) + escape.start())
            return _ESCAPED[escape.group(1)]

        return _ESCAPE.sub(replace, match.group(group))

    def _name(self) -> str:
        match = self._match(_IDENTIFIER)
        return match.group() if match is not None else self._string()

    def _dtype(self) -> DType:
        match = self._match(_IDENTIFIER)
        if match is None:
            self.fail("a data type")
        return self._dtype_by_name(match.group(), match.start())

    def _dtype_by_name(self, name: str, position: int) -> DType:
        try:
            return dtypes.by_name(name)
        except DTypeError as error:
            self._error(str(error), position)

    # --- types, sizes ------------------------------------------------------------------------------------------------

    def type(self) -> Type:
        """A type."""
        match = self._match(_STATIC_TENSOR)
        if match is not None:
            text = match.group()
            if text not in self._types:
                dims = tuple(map(int, match.group(1).split("x")[:-1]))
                self._types[text] = TensorType(self._dtype_by_name(match.group(2), match.start(2)), dims)
            return self._types[text]
        if self._accept("tensor<"):
            return self._symbolic_tensor()
        if self._accept("scalar<"):
            dtype = self._dtype()
            lanes = int(self._read(_NATURAL, "a number of lanes")) if self._accept(",") else 1
            self._expect(">")
            return ScalarType(dtype, lanes)
        if self._accept("buffer<"):
            return self._buffer()
        self.fail("a type (tensor<...>, scalar<...> or buffer<...>)")

    def _symbolic_tensor(self) -> TensorType:
        dims: list[Dim] = []
        while True:
            if self._peek("("):
                dims.append(self.size())
            else:
                match = self._match(_NATURAL)
                if match is None:
                    break
                dims.append(int(match.group()))
            self._expect("x")
        dtype = self._dtype()
        self._expect(">")
        return TensorType(dtype, tuple(dims))

    def _buffer(self) -> BufferType:
        dtype = self._dtype()
        self._expect(",")
        space = self._read(_IDENTIFIER, "a memory space")
        if space not in ("global", "local", "private"):
            self._error(f"no memory space {space}; there are global, local, private")
        self._expect(",")
        access = self._read(_IDENTIFIER, "an access")
        if access not in ("read", "write", "both"):
            self._error(f"no access {access}; there are read, write, both")
        self._expect(">")
        return BufferType(dtype, cast(Any, space), cast(Any, access))

    def size(self) -> int | Size:
        """A size expression."""
        return self._nested(_VALUE_DEPTH, self._size)

    def _size(self) -> int | Size:
        match = self._match(_INTEGER)
        if match is not None:
            return int(match.group())
        if self._accept("("):
            left = self.size()
            if self._accept(")"):
                return left
            operator = self._read(_SIZE_OPERATOR, "an operator (+ - * // %)")
            right = self.size()
            self._expect(")")
            return Size(cast(Any, operator), "", left, right)
        name = self._read(_UNICODE_IDENTIFIER, "a size")
        if name in ("max", "min") and self._accept("("):
            left = self.size()
            self._expect(",")
            right = self.size()
            self._expect(")")
            return Size(cast(Any, name), "", left, right)
        return Size("sym", name)

    # --- attributes --------------------------------------------------------------------------------------------------

    def attribute(self) -> Attribute:
        """One attribute."""
        if self._peek('"'):
            return self._string()
        if self._accept("["):
            return self._nested(_VALUE_DEPTH, lambda: tuple(self._list("]", self.attribute)))
        match = self._match(_NUMBER)
        if match is not None:
            return self._number(match)
        start = self._position
        match = self._match(_IDENTIFIER)
        if match is None:
            self.fail("an attribute")
        word = match.group()
        if word in ("none", "true", "false"):
            return {"none": None, "true": True, "false": False}[word]
        if word in ("tensor", "scalar", "buffer"):
            self._position = start
            return self.type()
        if word == "size":
            self._expect("<")
            size = self.size()
            self._expect(">")
            return size
        if word == "dense":
            self._expect("<")
            return self._dense()
        return self._dtype_by_name(word, match.start())

    def _number(self, match: re.Match[str]) -> int | float:
        text = match.group()
        try:
            if "nan(" in text:
                bits = bytes.fromhex(text[text.index("x") + 1 : -1])
                return float(struct.unpack(">d", bits)[0])
            if "0x" in text:
                return int(text, 16)
            if text[-1] in "fn" or any(c in text for c in ".eE"):
                return float(text)
            return int(text)
        except ValueError as error:
            self._error(str(error), match.start())

    def _dense(self) -> Dense:
        match = self._match(_DENSE_KIND)
        if match is None:
            self.fail("a shape and data type")
        shape = tuple(map(int, match.group(1).split("x")[:-1]))
        dtype = self._dtype_by_name(match.group(2), match.start(2))
        self._expect(":")
        self._skip()
        start = self._position
        if self._accept("["):
            dense = self._dense_values(dtype, shape, self._list("]", self.attribute), start)
        else:
            data = self._string()
            try:
                dense = dense_from_bytes(dtype, shape, data)
            except ParseError as error:
                self._error(str(error), start)
        self._expect(">")
        return dense

    def _dense_values(self, dtype: DType, shape: tuple[int, ...], values: list[Attribute], start: int) -> Dense:
        if len(shape) > _MAX_RANK or math.prod(shape) != len(values):
            self._error(f"dense of {dtype} {shape} takes {math.prod(shape)} values; got {len(values)}", start)
        kinds: tuple[type, ...] = {"bool": (bool,), "int": (int,), "uint": (int,), "float": (int, float)}[dtype.kind]
        if not all(isinstance(v, kinds) and isinstance(v, bool) == (dtype.kind == "bool") for v in values):
            self._error(f"dense of {dtype}: a value is not {dtype.kind}", start)
        try:
            with np.errstate(over="ignore"):
                return Dense(np.array(values, dtype.numpy).reshape(shape))
        except (OverflowError, ValueError) as error:
            self._error(f"dense of {dtype}: {error}", start)

    # --- operations --------------------------------------------------------------------------------------------------

    def operation(self) -> Operation:
        """One operation with all that it holds."""
        self._skip()
        start = self._position
        targets = self._targets()
        name = self._read(_OPERATION, "an operation (dialect.name)")
        try:
            definition = self._context.definition(name)
        except IRError as error:
            self._error(str(error), start)
        self._expect("(")
        operands = self._list(")", self._use)
        attributes = dict(self._list("}", self._pair)) if self._match(_ATTRIBUTES) else {}
        result_types = self._signature(operands) if self._accept(":") else []
        if len(result_types) != len(targets):
            self._error(f"{name}: {len(targets)} names for {len(result_types)} results", start)
        op = Operation(definition, operands, attributes, result_types)
        self._regions(op, definition)
        for target, result in zip(targets, op.results, strict=True):
            self._define(target, result)
        if self._match(_AT):
            op.location = self._string()
        return op

    def _targets(self) -> list[re.Match[str]]:
        targets: list[re.Match[str]] = []
        while (match := self._match(_VALUE)) is not None:
            targets.append(match)
            if not self._accept(","):
                self._expect("=")
                return targets
        if targets:
            self.fail("a value")
        return targets

    def _use(self) -> Value:
        match = self._match(_VALUE)
        if match is None:
            self.fail("a value")
        value = self._values.get(match.group())
        if value is None:
            self._error(f"{match.group()} is not defined above", match.start())
        return value

    def _define(self, match: re.Match[str], value: Value) -> None:
        name = match.group()
        if name in self._values:
            self._error(f"{name} is defined twice", match.start())
        self._values[name] = value
        self._defined.append(name)
        value.name_hint = match.group(1) or (self._unescape(match, 2) if match.group(2) is not None else None)

    def _pair(self) -> tuple[str, Attribute]:
        name = self._name()
        self._expect("=")
        return name, self.attribute()

    def _signature(self, operands: list[Value]) -> list[Type]:
        self._expect("(")
        start = self._position
        given = self._list(")", self.type)
        types = [value.type for value in operands]
        if given != types:
            self._error(f"operands are ({', '.join(map(str, types))}), not ({', '.join(map(str, given))})", start)
        self._expect("->")
        return self._list(")", self.type) if self._accept("(") else [self.type()]

    def _regions(self, op: Operation, definition: OpDefinition) -> None:
        outer = self._values
        if definition.has(traits.ISOLATED):
            self._values = {}
        while self._peek("{") or self._peek("("):
            op.add_region(self._nested(_REGION_DEPTH, self._region))
        self._values = outer

    def _region(self) -> Region:
        if self._peek("("):
            region = Region([self._block(self._arguments, "{")])
            self._expect("}")
            return region
        self._expect("{")
        region = Region()
        if not self._peek("^") and not self._peek("}"):
            region.add_block(self._block(Block, ""))
        while not self._accept("}"):
            self._expect("^")
            self._read(_NATURAL, "a number")
            region.add_block(self._block(self._arguments if self._peek("(") else Block, ":"))
        return region

    def _block(self, arguments: Callable[[], Block], start: str) -> Block:
        """A block from its arguments on, up to the next or the region's end; its names are forgotten there."""
        outer = len(self._defined)
        block = arguments()
        self._expect(start)
        while not self._peek("^") and not self._peek("}"):
            block.append(self.operation())
        for name in self._defined[outer:]:
            del self._values[name]
        del self._defined[outer:]
        return block

    def _arguments(self) -> Block:
        self._expect("(")
        block = Block()
        self._list(")", lambda: self._argument(block))
        return block

    def _argument(self, block: Block) -> None:
        match = self._match(_VALUE)
        if match is None:
            self.fail("a value")
        self._expect(":")
        self._define(match, block.add_argument(self.type()))
