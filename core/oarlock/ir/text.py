"""The text form of the representation: print_op and parse, which are each other's inverse."""

from __future__ import annotations

from oarlock.ir.context import Context
from oarlock.ir.operations import Operation
from oarlock.ir.parser import Parser
from oarlock.ir.printer import Printer

__all__ = ["parse", "print_op"]


def print_op(op: Operation, *, locations: bool = False, regions: bool = True) -> str:
    """``op`` and all that it holds as text.

    ``locations`` adds the lines of user code; without ``regions`` each region is shown as ``{...}``, which is for
    readers only. Operands from outside ``op`` get names too; such text can be read, not parsed.
    """
    return Printer(locations, regions).print(op)


def parse(text: str, context: Context) -> Operation:
    """The operation that ``text`` is; not yet verified.

    Raises ParseError with line and column, and what was expected there.
    """
    parser = Parser(text, context)
    return parser.whole(parser.operation)
