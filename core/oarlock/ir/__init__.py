"""The one representation: types, attributes, operations, regions, blocks, values, dialects in a context."""

from oarlock.ir.attributes import Attribute, Dense
from oarlock.ir.context import Builder, Context
from oarlock.ir.dialects import Dialect, InferTypes, OpDefinition, Trait, traits
from oarlock.ir.operations import Block, BlockArgument, Operation, OpResult, Region, Value
from oarlock.ir.sizes import Size, evaluate, symbol
from oarlock.ir.types import BufferType, Dim, ScalarType, TensorType, Type

__all__ = [
    "Attribute", "Block", "BlockArgument", "BufferType", "Builder", "Context", "Dense", "Dialect", "Dim", "InferTypes",
    "OpDefinition", "OpResult", "Operation", "Region", "ScalarType", "Size", "TensorType", "Trait", "Type", "Value",
    "evaluate", "symbol", "traits",
]  # fmt: skip
