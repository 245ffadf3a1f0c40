"""Parses types, sizes and attributes, the parts of the text that stand for values of this representation."""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from typing import Any, cast

import numpy as np

from oarlock.dtypes import DType
from oarlock.errors import ParseError
from oarlock.ir.attributes import Attribute, Dense
from oarlock.ir.scanner import IDENTIFIER, Scanner
from oarlock.ir.sizes import Size
from oarlock.ir.types import BufferType, Dim, ScalarType, TensorType, Type

__all__ = ["AttributeParser", "dense_from_bytes", "parse_size", "parse_type"]

_UNICODE_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|inf\b|nan\b(?:\(0x[0-9a-f]{16}\))?|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_NATURAL = re.compile(r"[0-9]{1,20}")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_STATIC_TENSOR = re.compile(r"tensor<((?:[0-9]{1,19}x)*)([a-z]+[0-9]*)>")
_DENSE_KIND = re.compile(r"((?:[0-9]{1,19}x)*)([a-z]+[0-9]*)")
_SIZE_OPERATOR = re.compile(r"//|[-+*%]")
_SIZE_CHAINS = {"+": re.compile(r"[-+]"), "-": re.compile(r"[-+]"), "*": re.compile(r"\*")}
_NOTHING = re.compile(r"(?!)")
_DEPTH = 128
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
    parser = AttributeParser(text)
    return parser.whole(parser.type)


def parse_size(text: str) -> int | Size:
    """The size that ``text`` is; raises ParseError."""
    parser = AttributeParser(text)
    return parser.whole(parser.size)


class AttributeParser(Scanner):
    """A scanner of types, sizes and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._types: dict[str, Type] = {}

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
        space = self._read(IDENTIFIER, "a memory space")
        if space not in ("global", "local", "private"):
            self._error(f"no memory space {space}; there are global, local, private")
        self._expect(",")
        access = self._read(IDENTIFIER, "an access")
        if access not in ("read", "write", "both"):
            self._error(f"no access {access}; there are read, write, both")
        self._expect(">")
        return BufferType(dtype, cast(Any, space), cast(Any, access))

    def size(self) -> int | Size:
        """A size expression."""
        return self._nested(_DEPTH, self._size)

    def _size(self) -> int | Size:
        match = self._match(_INTEGER)
        if match is not None:
            return int(match.group())
        if self._accept("("):
            left = self.size()
            allowed = _SIZE_OPERATOR
            while not self._accept(")"):
                operator = self._read(allowed, "an operator (+ - * // %), or parentheses around unlike ones")
                left = Size(cast(Any, operator), "", left, self.size())
                allowed = _SIZE_CHAINS.get(operator, _NOTHING)
            return left
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
            return self._nested(_DEPTH, lambda: tuple(self._list("]", self.attribute)))
        match = self._match(_NUMBER)
        if match is not None:
            return self._number(match)
        start = self._position
        match = self._match(IDENTIFIER)
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
