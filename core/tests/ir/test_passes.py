"""The pass manager: order, levels, targets, verification, results, errors, reproducers."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock.errors import IRError, ParseError, VerifyError
from oarlock.ir import Context, Operation, parse, verify
from oarlock.ir.passes import Pass, PassManager, arranged
from oarlock.ir.reproducer import read_reproducer
from oarlock.target import Target

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


# --- order, levels, targets -------------------------------------------------------------------------------------------


def made(pass_name: str, **wishes: object) -> Pass:
    """A pass that does nothing."""
    body = {"name": pass_name, "run": lambda self, op, context: {}, **wishes}
    return type("Made", (Pass,), body)()  # type: ignore[no-any-return]


def order(*more: Pass) -> list[str]:
    return [item.name for item in arranged([made("one"), made("two"), made("three")], more)]


def test_passes_go_where_they_wish() -> None:
    assert order(made("x")) == ["one", "two", "three", "x"]
    assert order(made("x", after=("one",))) == ["one", "x", "two", "three"]
    assert order(made("x", before=("three",))) == ["one", "two", "x", "three"]
    assert order(made("x", after=("one",), before=("three",))) == ["one", "x", "two", "three"]
    assert order(made("x", requires=("two",))) == ["one", "two", "x", "three"]
    assert order(made("x", after=("gone",))) == ["x", "one", "two", "three"]


def test_passes_may_wish_for_each_other() -> None:
    assert order(made("y", after=("x",)), made("x", after=("two",))) == ["one", "two", "x", "y", "three"]


def test_wishes_that_contradict_the_order_are_refused() -> None:
    with pytest.raises(IRError, match="pass x wants to come after three and before one; the order is one, two, three"):
        order(made("x", after=("three",), before=("one",)))


def test_pass_that_requires_another_one_says_so() -> None:
    needs = made("needs", requires=("costly",))
    PassManager(CONTEXT, [Costly(), needs], level=3).run(parse(TEXT, CONTEXT))
    for passes, level in (([Costly(), needs], 2), ([needs, Costly()], 3)):
        with pytest.raises(IRError, match="pass needs requires costly to have run before; there is none"):
            PassManager(CONTEXT, passes, level=level).run(parse(TEXT, CONTEXT))


def test_target_chooses_passes() -> None:
    class OnlyC(Rename):
        name = "only_c"

        def applies(self, target: Target) -> bool:
            return target.language == "c99"

    passes = [OnlyC(), made("any")]
    for target, names in ((None, ["only_c", "any"]), (Target("c99"), ["only_c", "any"]), (Target("llvm"), ["any"])):
        manager = PassManager(CONTEXT, passes, target=target)
        manager.run(parse(TEXT, CONTEXT))
        assert [result.name for result in manager.results] == names


# --- reproducers ------------------------------------------------------------------------------------------------------


def fails_again(path: Path, passes: dict[str, Pass]) -> str:
    """What a reproducer says that it failed with; checked to be how it fails again."""
    found = read_reproducer(path, CONTEXT)
    verify(found.program)
    with pytest.raises(IRError) as caught:
        PassManager(CONTEXT, [passes[name] for name in found.passes]).run(found.program)
    assert str(caught.value) == found.error
    return found.error


@pytest.mark.parametrize(("broken", "text"), [(Raise(), "KeyError: 'lost'"), (Break(), "does not end in")])
def test_failure_leaves_a_file_that_fails_again(broken: Pass, text: str, tmp_path: Path) -> None:
    manager = PassManager(CONTEXT, [Rename(), broken], reproducers=tmp_path / "new")
    with pytest.raises(IRError, match=r"to see it again: oarlock inspect \S+\.json"):
        manager.run(parse(TEXT, CONTEXT))
    (path,) = (tmp_path / "new").iterdir()
    assert text in fails_again(path, {"rename": Rename(), broken.name: broken})
    found = read_reproducer(path, CONTEXT)
    assert found.passes == (broken.name,)
    assert '"g"' in str(found.program), "the program is as it was before the pass that failed"


def test_failure_of_passes_together_keeps_them_all(tmp_path: Path) -> None:
    class Second(Pass):
        name = "second"

        def run(self, op: Operation, context: Context) -> dict[str, int]:
            raise ValueError(f"run number {len(seen)}" if seen else "never")

    class First(Rename):
        name = "first"

        def run(self, op: Operation, context: Context) -> dict[str, int]:
            seen.append(1)
            return {}

    seen: list[int] = []
    with pytest.raises(IRError, match="run number 1"):
        PassManager(CONTEXT, [First(), Second()], reproducers=tmp_path).run(parse(TEXT, CONTEXT))
    (path,) = tmp_path.iterdir()
    assert read_reproducer(path, CONTEXT).passes == ("first", "second")


def test_run_on_copy_leaves_the_program_alone(tmp_path: Path) -> None:
    module = parse(TEXT, CONTEXT)
    manager = PassManager(CONTEXT, [Rename()])
    copy = manager.run_on_copy(module)
    assert '"f"' in str(module) and '"g"' in str(copy)
    with pytest.raises(IRError, match="oarlock inspect"):
        PassManager(CONTEXT, [Break()], reproducers=tmp_path).run_on_copy(module)
    verify(module)


def test_folder_that_cannot_be_written_is_told_beside_the_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    manager = PassManager(CONTEXT, [Raise()], reproducers=tmp_path / "file")
    with pytest.raises(IRError, match=r"pass raise failed: KeyError: 'lost'\n  it could not be written to"):
        manager.run(parse(TEXT, CONTEXT))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "it is no JSON"),
        ("{}", "it is no reproducer"),
        ('{"reproducer": {"passes": []}}', "it has no list of passes"),
        ('{"reproducer": {"passes": ["x"]}}', "document has format None"),
    ],
)
def test_file_that_is_no_reproducer_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ParseError, match=message):
        read_reproducer(path, CONTEXT)
