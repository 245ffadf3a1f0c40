"""The rewrite that docs/compiler.md shows twice does the same by hand and as a rule, which is shorter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from oarlock.ir import drr, parse, verify
from oarlock.ir.rewrite import RewritePattern, apply_patterns, pattern
from oarlock.ops import ArrayBuilder, array_context
from oarlock.transforms.layout import leaves_order, sources

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "compiler.md").read_text(encoding="utf-8")
HAND, RULE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TEXT = re.search(r"^```\n(rule .*?)\n```", PAGE, re.MULTILINE | re.DOTALL)
CONTEXT = array_context()
PROGRAM = """\
builtin.function() {name = "f"} (%x: tensor<3x5x2xfloat32>) {
  %t = array.transpose(%x) {permutation = [1, 0, 2]} : (tensor<3x5x2xfloat32>) -> tensor<5x3x2xfloat32>
  %a = array.reduce_max(%t) {axes = [0], keepdims = false} : (tensor<5x3x2xfloat32>) -> tensor<3x2xfloat32>
  %b = array.reduce_max(%t) {axes = [2], keepdims = false} : (tensor<5x3x2xfloat32>) -> tensor<5x3xfloat32>
  %c = array.reduce_max(%t) {axes = [0], keepdims = true} : (tensor<5x3x2xfloat32>) -> tensor<1x3x2xfloat32>
  builtin.return(%a, %b, %c, %t)
}
"""


def defined(code: str) -> Any:
    space: dict[str, Any] = {name: getattr(drr, name) for name in drr.__all__}
    space |= {"ArrayBuilder": ArrayBuilder, "pattern": pattern, "leaves_order": leaves_order, "sources": sources}
    exec(compile(code, "docs/compiler.md", "exec"), space)
    return space["reduce_behind_transpose"]


def result(rewrite: RewritePattern) -> str:
    function = parse(PROGRAM, CONTEXT)
    assert apply_patterns(function, [rewrite], CONTEXT) == {"reduce_behind_transpose": 1}
    verify(function)
    return str(function)


def test_both_do_the_same() -> None:
    by_hand = result(defined(HAND))
    assert "reduce_max(%x) {axes = [1]" in by_hand
    assert result(defined(RULE).pattern) == by_hand


@pytest.mark.parametrize("measure", [len, str.split, str.splitlines], ids=["characters", "words", "lines"])
def test_rule_is_shorter(measure: Any) -> None:
    sizes = [measure(code) if measure is len else len(measure(code)) for code in (RULE, HAND)]
    assert sizes[0] < sizes[1]


def test_its_text_is_as_shown() -> None:
    assert TEXT is not None
    assert str(defined(RULE)) == TEXT[1]
