"""The one representation: types, attributes, operations, regions, blocks, values, dialects in a context."""

from oarlock.ir.attributes import Attribute, Dense
from oarlock.ir.context import Builder, Context
from oarlock.ir.control import CONTROL
from oarlock.ir.dialects import Dialect, InferTypes, OpDefinition, Patch, Trait, is_pure, traits
from oarlock.ir.interpret import Evaluate, Interpreter, interpret
from oarlock.ir.json import from_json, operations_in, to_json
from oarlock.ir.operations import Block, BlockArgument, Operation, OpResult, Region, Value
from oarlock.ir.passes import Pass, PassManager, PassResult
from oarlock.ir.rewrite import RewritePattern, Rewriter, apply_patterns, pattern
from oarlock.ir.sizes import Size, evaluate, symbol
from oarlock.ir.text import parse, print_op
from oarlock.ir.types import BufferType, Dim, ScalarType, TensorType, Type
from oarlock.ir.verify import verify

__all__ = [
    "CONTROL", "Attribute", "Block", "BlockArgument", "BufferType", "Builder", "Context", "Dense", "Dialect", "Dim",
    "Evaluate", "InferTypes", "Interpreter", "OpDefinition", "OpResult", "Operation", "Pass", "PassManager",
    "PassResult", "Patch", "Region", "RewritePattern", "Rewriter", "ScalarType", "Size", "TensorType", "Trait", "Type",
    "Value", "apply_patterns", "evaluate", "from_json", "interpret", "is_pure", "operations_in", "parse", "pattern",
    "print_op", "symbol", "to_json", "traits", "verify",
]  # fmt: skip
