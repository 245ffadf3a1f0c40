"""The one representation: types, attributes, operations, regions, blocks, values, dialects in a context."""

from oarlock.ir.attributes import Attribute, Dense
from oarlock.ir.context import Builder, Context
from oarlock.ir.dialects import Dialect, InferTypes, OpDefinition, Trait, traits
from oarlock.ir.interpret import Evaluate, Interpreter, interpret
from oarlock.ir.operations import Block, BlockArgument, Operation, OpResult, Region, Value
from oarlock.ir.sizes import Size, evaluate, symbol
from oarlock.ir.text import parse, print_op
from oarlock.ir.types import BufferType, Dim, ScalarType, TensorType, Type
from oarlock.ir.verify import verify

__all__ = [
    "Attribute", "Block", "BlockArgument", "BufferType", "Builder", "Context", "Dense", "Dialect", "Dim", "Evaluate",
    "InferTypes", "Interpreter", "OpDefinition", "OpResult", "Operation", "Region", "ScalarType", "Size", "TensorType",
    "Trait", "Type", "Value", "evaluate", "interpret", "parse", "print_op", "symbol", "traits", "verify",
]  # fmt: skip
