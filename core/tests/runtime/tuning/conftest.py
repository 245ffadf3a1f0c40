"""Small programs for the tuner, and devices that know nothing of earlier tests' schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from oarlock import dtypes
from oarlock.config import config
from oarlock.ir import Block, Operation, Region, TensorType, Type
from oarlock.ops import ArrayBuilder, array_context
from oarlock.runtime import Device, open_device
from oarlock.runtime.tuning import known
from oarlock.runtime.tuning.known import forget


def t(*shape: int, dtype: dtypes.DType = dtypes.float32) -> TensorType:
    """A tensor type."""
    return TensorType(dtype, shape)


def program(types: Sequence[Type], body: Callable[..., Any]) -> Operation:
    """A function of ``types`` whose results are what ``body(builder, *arguments)`` returns."""
    context = array_context()
    block = Block(types)
    builder = ArrayBuilder(context, block)
    results = body(builder, *block.args)
    builder.create("builtin.return", results if isinstance(results, (tuple, list)) else [results])
    return Operation(context.definition("builtin.function"), attributes={"name": "f"}, regions=[Region([block])])


@pytest.fixture
def cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """The host, with an empty cache folder, and nothing shipped."""
    monkeypatch.setattr(config, "cache_dir", tmp_path / "cache")
    (tmp_path / "shipped.json").write_text('{"results": []}')
    monkeypatch.setattr(known, "_SHIPPED", tmp_path / "shipped.json")
    device = open_device("cpu")
    forget(device)
    yield device
    forget(device)
