"""Programs stored by older versions load: ``data/foundation.json`` is as version 1 of the array dialect wrote it.

The file holds every operator of that version but ``from_scalar``, on small constants, and both forms of control flow.
It is never written anew: where an operator changes so that it does not load, its dialect gets a new version with a
patch.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oarlock.ir import CONTROL, Context, Dialect, interpret, verify
from oarlock.ir.json import from_json, operations_in, to_json
from oarlock.ops import ARRAY, array_context

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "foundation.json").read_text())


def names(document: dict[str, Any]) -> set[str]:
    return {operation["name"] for operation in operations_in(document)}


def test_stored_program_is_of_the_first_version_and_holds_the_operators() -> None:
    assert DOCUMENT["oarlock"] == 1
    assert DOCUMENT["dialects"] == {"builtin": 1, "array": 1, "control": 1}
    assert len(names(DOCUMENT)) == 141


def test_stored_program_loads_and_runs() -> None:
    function = from_json(DOCUMENT, array_context())
    verify(function)
    results = interpret(function, [])
    assert len(results) == len(function.regions[0].block.terminator.operands)
    assert from_json(to_json(function, array_context()), array_context()).name == function.name


def _rename(document: dict[str, Any]) -> None:
    """Version 2 of the test's array dialect: relu is called rectify, and sums say ``sum``."""
    for operation in operations_in(document):
        operation["name"] = {"array.relu": "array.rectify", "array.reduce_sum": "array.sum"}.get(
            operation["name"], operation["name"]
        )


def later() -> Context:
    """A context whose array dialect is of version 2."""
    renamed = {"array.relu": "array.rectify", "array.reduce_sum": "array.sum"}
    definitions = [replace(d, name=renamed.get(name, name)) for name, d in ARRAY.operations.items()]
    return Context([Dialect("array", 2, definitions, {1: _rename}), CONTROL])


def test_stored_program_loads_through_a_patch() -> None:
    context = later()
    function = from_json(DOCUMENT, context)
    verify(function)
    there = {op.name for op in function.walk()}
    assert {"array.rectify", "array.sum"} <= there and not {"array.relu", "array.reduce_sum"} & there
    assert to_json(function, context)["dialects"]["array"] == 2
    before = interpret(from_json(DOCUMENT, array_context()), [])
    for actual, expected in zip(interpret(function, []), before, strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert "array.relu" in names(DOCUMENT), "the stored document stays as it is"
