"""The pass manager: order, verification, results, errors."""

from __future__ import annotations

import pytest

from oarlock.errors import IRError, VerifyError
from oarlock.ir import Context, Operation, parse
from oarlock.ir.passes import Pass, PassManager

CONTEXT = Context()
TEXT = 'builtin.module() { builtin.function() {name = "f"} { builtin.return() } }'


class Rename(Pass):
    name = "rename"

    def run(self, op: Operation, context: Context) -> dict[str, int]:
        for inner in op.walk():
            if inner.name == "builtin.function":
                inner.attributes["name"] = "g"
        return {"renamed": 1, "skipped": 0}


class Costly(Rename):
    name = "costly"
    level = 3


class Break(Pass):
    name = "break"

    def run(self, op: Operation, context: Context) -> dict[str, int]:
        for inner in op.walk():
            if inner.name == "builtin.return":
                inner.erase()
        return {}


class Raise(Pass):
    name = "raise"

    def run(self, op: Operation, context: Context) -> dict[str, int]:
        raise KeyError("lost")


def test_passes_run_in_order_and_report() -> None:
    module = parse(TEXT, CONTEXT)
    manager = PassManager(CONTEXT, [Rename(), Costly()], print_after=["rename"])
    manager.run(module)
    (result,) = manager.results
    assert (result.name, result.statistics, result.operations_before, result.operations_after) == (
        "rename", {"renamed": 1, "skipped": 0}, 3, 3,
    )  # fmt: skip
    assert result.text == str(module) and '"g"' in result.text
    assert result.seconds >= 0
    assert "rename" in manager.report() and "3 -> 3 operations; renamed 1" in manager.report()


def test_level_includes_more_passes() -> None:
    manager = PassManager(CONTEXT, [Rename(), Costly()], level=3)
    manager.run(parse(TEXT, CONTEXT))
    assert [result.name for result in manager.results] == ["rename", "costly"]
    assert all(result.text is None for result in manager.results)


def test_failing_pass_is_named() -> None:
    with pytest.raises(IRError, match="pass raise failed: KeyError: 'lost'"):
        PassManager(CONTEXT, [Rename(), Raise()]).run(parse(TEXT, CONTEXT))


def test_breaking_pass_is_named() -> None:
    with pytest.raises(IRError, match=r"pass break broke the program: builtin\.function: .*does not end in"):
        PassManager(CONTEXT, [Break(), Rename()]).run(parse(TEXT, CONTEXT))


def test_broken_program_is_not_blamed_on_a_pass() -> None:
    with pytest.raises(VerifyError, match="does not end in"):
        PassManager(CONTEXT, [Rename()]).run(parse('builtin.function() {name = "f"} {^0:}', CONTEXT))


def test_verification_can_be_left_out() -> None:
    manager = PassManager(CONTEXT, [Break()], verify_each=False, print_after=True)
    manager.run(parse(TEXT, CONTEXT))
    assert manager.results[0].text is not None
