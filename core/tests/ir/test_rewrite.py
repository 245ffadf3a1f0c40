"""The pattern rewriter: order, worklist, convergence."""

from __future__ import annotations

import pytest

from oarlock import dtypes
from oarlock.errors import IRError
from oarlock.ir import Builder, Context, Dialect, OpDefinition, Operation, TensorType, parse, print_op, traits, verify
from oarlock.ir.rewrite import RewritePattern, Rewriter, apply_patterns, pattern

PURE = frozenset({traits.PURE})
CONTEXT = Context(
    [
        Dialect(
            "t",
            1,
            [
                *(OpDefinition(f"t.{name}", operands=1, infer=lambda t, a: t, traits=PURE) for name in "abc"),
                OpDefinition("t.box", operands=None, results=None, regions=1),
                OpDefinition("t.use", operands=None, results=0),
            ],
        )
    ]
)
I1 = TensorType(dtypes.int8, ())


def program(*names: str) -> Operation:
    """A chain of operations on one value, ending in t.use."""
    lines = ["t.box() (%v0: tensor<int8>) {"]
    lines += [f"%v{i + 1} = t.{name}(%v{i}) : (tensor<int8>) -> tensor<int8>" for i, name in enumerate(names)]
    return parse("\n".join([*lines, f"t.use(%v{len(names)})", "}"]), CONTEXT)


def names(op: Operation) -> str:
    return "".join(inner.name[2:] for inner in op.regions[0].block.ops if inner.name != "t.use")


@pattern("t.a")
def twice(op: Operation, rewriter: Rewriter) -> bool:
    """a(a(x)) is x."""
    inner = op.operands[0].defining_op
    if inner is None or inner.name != "t.a":
        return False
    rewriter.replace(op, [inner.operands[0]])
    if not inner.result.uses:
        rewriter.erase(inner)
    return True


def becomes(old: str, new: str, benefit: int = 1) -> RewritePattern:
    def rewrite(op: Operation, rewriter: Rewriter) -> bool:
        rewriter.replace(op, rewriter.builder(op, Builder).create(f"t.{new}", op.operands).results)
        return True

    return RewritePattern(f"{old}->{new}", f"t.{old}", rewrite, benefit)


def test_pattern_applies_until_nothing_fits() -> None:
    op = program(*"aaabaab")
    assert apply_patterns(op, [twice], CONTEXT) == {"twice": 2}
    assert names(op) == "abb"
    verify(op)


def test_new_operations_and_users_are_looked_at() -> None:
    op = program(*"cbac")
    apply_patterns(op, [becomes("b", "a"), becomes("c", "b"), twice], CONTEXT)
    assert names(op) == ""
    verify(op)


def test_greater_benefit_goes_first() -> None:
    for first, second, expected in ((1, 2, "c"), (2, 1, "b")):
        op = program("a")
        apply_patterns(op, [becomes("a", "b", first), becomes("a", "c", second)], CONTEXT)
        assert names(op) == expected


def test_pattern_without_root_sees_every_operation() -> None:
    seen = []

    @pattern(None)
    def look(op: Operation, rewriter: Rewriter) -> bool:
        seen.append(op.name)
        return False

    assert apply_patterns(program("a", "b"), [look], CONTEXT) == {}
    assert seen == ["t.a", "t.b", "t.use"]


def test_endless_rewriting_is_an_error_that_names_the_patterns() -> None:
    with pytest.raises(
        IRError, match=r"do not converge: t\.box changes without end, most by a->b \(3 times\), b->a \(2"
    ):
        apply_patterns(program("a"), [becomes("a", "b"), becomes("b", "a")], CONTEXT, max_iterations=4)


def test_rewrites_that_multiply_are_no_endless_ones() -> None:
    @pattern("t.c")
    def spread(op: Operation, rewriter: Rewriter) -> bool:
        value = op.operands[0]
        for _ in range(500):
            value = rewriter.builder(op, Builder).create("t.b", [value]).result
        rewriter.replace(op, [value])
        return True

    op = program("c")
    assert apply_patterns(op, [spread, becomes("b", "a")], CONTEXT, max_iterations=2) == {"spread": 1, "b->a": 500}


def test_long_chain_converges_in_linear_time() -> None:
    op = program(*"a" * 10_000)
    apply_patterns(op, [twice], CONTEXT)
    assert names(op) == ""


def test_replace_checks_types() -> None:
    op = parse(
        "t.box() (%x: tensor<int8>, %y: tensor<bool>) { %z = t.a(%x) : (tensor<int8>) -> tensor<int8> }", CONTEXT
    )
    block = op.regions[0].block
    with pytest.raises(IRError, match=r"cannot replace t\.a of \(tensor<int8>\) by \(tensor<bool>\)"):
        Rewriter(CONTEXT).replace(next(block.ops), [block.args[1]])


def test_replacement_keeps_location_and_name() -> None:
    op = parse(
        't.box() (%x: tensor<int8>) { %z = t.a(%x) : (tensor<int8>) -> tensor<int8> at "f:1" t.use(%z) }', CONTEXT
    )
    apply_patterns(op, [becomes("a", "b")], CONTEXT)
    assert '%z = t.b(%x) : (tensor<int8>) -> tensor<int8> at "f:1"' in print_op(op, locations=True)


def test_operations_inside_erased_ones_are_forgotten() -> None:
    op = parse(
        "t.box() { t.box() { %r = t.box() : () -> tensor<int8> {} %z = t.a(%r) : (tensor<int8>) -> tensor<int8> } }",
        CONTEXT,
    )

    @pattern("t.box")
    def drop(op: Operation, rewriter: Rewriter) -> bool:
        if op.results:
            return False
        rewriter.erase(op)
        return True

    @pattern("t.a")
    def fail(op: Operation, rewriter: Rewriter) -> bool:
        raise AssertionError("it is gone")

    assert apply_patterns(op, [drop, fail], CONTEXT) == {"drop": 1}
    assert names(op) == ""
