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
    size       = integer | identifier | ("max" | "min") "(" size "," size ")" | "(" size {operator size} ")"

Comments run from ``#`` to the end of the line. A single block without arguments and operations is written ``{^0:}``,
since ``{}`` is a region without blocks. A name is known from its definition to the end of its block, and not inside
isolated operations. The operators of a size in one pair of parentheses are all + or -, or all ``*``, or it is one.
Regions nest at most 64 deep, lists and sizes 128.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from oarlock.errors import IRError
from oarlock.ir.attribute_parser import AttributeParser
from oarlock.ir.attributes import Attribute
from oarlock.ir.context import Context
from oarlock.ir.dialects import OpDefinition, traits
from oarlock.ir.operations import Block, Operation, Region, Value
from oarlock.ir.scanner import QUOTED
from oarlock.ir.types import Type

__all__ = ["Parser"]

_OPERATION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+")
_VALUE = re.compile(rf"%(?:[0-9]+|([A-Za-z_][A-Za-z0-9_]*)|{QUOTED})(?:#[0-9]+)?")
_NUMBER = re.compile(r"[0-9]{1,20}")
_BLANK = r"(?:\s|#[^\n]*\n)*"
_ATTRIBUTES = re.compile(rf"\{{(?={_BLANK}(?:[A-Za-z_][A-Za-z0-9_]*|{QUOTED}){_BLANK}=)")
_AT = re.compile(r"at(?=\s*\")")
_DEPTH = 64


class Parser(AttributeParser):
    """A scanner of operations; what they are called is known from ``context``."""

    def __init__(self, text: str, context: Context) -> None:
        super().__init__(text)
        self._context = context
        self._values: dict[str, Value] = {}
        self._defined: list[str] = []

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
            op.add_region(self._nested(_DEPTH, self._region))
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
            self._read(_NUMBER, "a number")
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
