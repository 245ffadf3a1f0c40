"""Each file in golden/ holds a program, and what the passes named in its first line make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock.ir import parse, print_op, verify
from oarlock.ir.passes import PassManager
from oarlock.ops import array_context
from oarlock.transforms import optional_passes, standard_passes

GOLDEN = Path(__file__).parent / "golden"
AFTER = "\n# after\n"
PASSES = {item.name: item for item in (*standard_passes(), *optional_passes())}


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.ir")), ids=lambda path: path.stem)
def test_passes_give_golden_program(path: Path, update_golden: bool) -> None:
    text = path.read_text()
    before, _, expected = text.partition(AFTER)
    names = text.splitlines()[0].removeprefix("# passes:").split()
    context = array_context()
    program = parse(before, context)
    verify(program)
    PassManager(context, [PASSES[name] for name in names], level=3).run(program)
    actual = print_op(program) + "\n"
    if update_golden:
        path.write_text(before.rstrip("\n") + "\n" + AFTER + actual)
    else:
        assert actual == expected.removeprefix("\n")


def test_every_pass_has_a_golden_file() -> None:
    tested = {name for path in GOLDEN.glob("*.ir") for name in path.read_text().splitlines()[0].split()[2:]}
    assert tested >= set(PASSES)
