"""Declarative rules: what they match, what they refuse, what they make, and their text."""

from __future__ import annotations

import inspect

import pytest

from oarlock import dtypes
from oarlock.errors import IRError
from oarlock.ir import Context, Dialect, OpDefinition, Operation, TensorType, Value, parse, print_op, traits, verify
from oarlock.ir.drr import Rule, again, attribute, built, either, native, op, value
from oarlock.ir.rewrite import Rewriter, apply_patterns

PURE = frozenset({traits.PURE})
I8 = TensorType(dtypes.int8, ())


def definition(name: str, operands: int | None, results: int = 1) -> OpDefinition:
    return OpDefinition(
        f"t.{name}", operands=operands, results=results, attributes={"n": int, "m": int}, optional=frozenset("nm"),
        traits=PURE, infer=lambda types, attributes: [I8] * results,
    )  # fmt: skip


UNARY = [definition(name, 1) for name in ("a", "b", "c", "d")]
OTHERS = [definition("pair", 2), definition("make", 0), definition("split", 1, 2), definition("join", 2, 2)]
USE = OpDefinition("t.use", operands=None, results=0)
BOX = OpDefinition("t.box", operands=None, results=0, regions=1)
CONTEXT = Context([Dialect("t", 1, [*UNARY, *OTHERS, USE, BOX])])
X, Y, Z, N, M = value("x"), value("y"), value("z"), attribute("n"), attribute("m")


def program(text: str) -> Operation:
    """Lines like ``%y = a %x {n = 1}``; ``%x``, ``%y`` and ``%z`` are there."""
    lines = []
    for line in text.strip().splitlines():
        left, _, right = line.strip().rpartition(" = ") if "{" not in line else line.strip().partition(" = ")
        head, brace, attributes = right.partition(" {")
        name, *operands = head.split()
        types = f" : ({', '.join(['tensor<int8>'] * len(operands))}) -> "
        results = left.split(", ") if left else []
        types = types + ("tensor<int8>" if len(results) == 1 else f"({', '.join(['tensor<int8>'] * len(results))})")
        lines.append(
            f"{left + ' = ' if left else ''}t.{name}({', '.join(operands)}){brace}{attributes}{types if left else ''}"
        )
    arguments = ", ".join(f"%{name}: tensor<int8>" for name in "xyz")
    return parse(f"t.box() ({arguments}) {{\n" + "\n".join(lines) + "\n}", CONTEXT)


def apply(rule: Rule, text: str) -> str:
    """What ``rule`` makes of a program, one operation a line."""
    box = program(text)
    apply_patterns(box, [rule.pattern], CONTEXT)
    verify(box)
    lines = print_op(box).splitlines()[1:-1]
    return "\n".join(line.split(" : ")[0].replace("t.", "").strip() for line in lines)


TWICE = Rule("twice", op("t.a", op("t.a", X)), op("t.b", X))


def test_pattern_of_operations_becomes_another_one() -> None:
    assert apply(TWICE, "%p = a %x\n%q = a %p\nuse %q") == "%q = b(%x)\nuse(%q)"


def test_open_subgraph_is_refused() -> None:
    text = "%p = a %x\n%q = a %p\nuse %p %q"
    assert apply(TWICE, text) == "%p = a(%x)\n%q = a(%p)\nuse(%p, %q)"


def test_shared_operation_stays_for_its_other_users() -> None:
    rule = Rule("twice", op("t.a", op("t.a", X).shared()), op("t.b", X))
    assert apply(rule, "%p = a %x\n%q = a %p\nuse %p %q") == "%p = a(%x)\n%q = b(%x)\nuse(%p, %q)"
    assert apply(rule, "%p = a %x\n%q = a %p\nuse %q") == "%q = b(%x)\nuse(%q)"


def test_result_of_which_another_is_used_is_open() -> None:
    rule = Rule("second", op("t.split", X)[1], op("t.c", X))
    assert apply(rule, "%p, %q = split %x\nuse %q") == "%q = c(%x)\nuse(%q)"
    assert apply(rule, "%p, %q = split %x\nuse %p %q") == "%p, %q = split(%x)\nuse(%p, %q)"


def test_same_term_is_the_same_value() -> None:
    rule = Rule("same", op("t.pair", X, X), X)
    assert apply(rule, "%p = pair %x %x\nuse %p") == "use(%x)"
    assert apply(rule, "%p = pair %x %y\nuse %p") == "%p = pair(%x, %y)\nuse(%p)"


def test_distinct_operations_are_distinct() -> None:
    rule = Rule("both", op("t.pair", op("t.a", X), op("t.a", Y)), op("t.c", X))
    assert "pair" in apply(rule, "%p = a %x\n%q = pair %p %p\nuse %q")
    assert apply(rule, "%p = a %x\n%r = a %y\n%q = pair %p %r\nuse %q") == "%q = c(%x)\nuse(%q)"


def test_any_order_tries_both() -> None:
    rule = Rule("order", op("t.pair", op("t.a", X), Y).any_order(), op("t.pair", X, Y))
    for text in ("%p = a %x\n%q = pair %p %y\nuse %q", "%p = a %x\n%q = pair %y %p\nuse %q"):
        assert apply(rule, text) == "%q = pair(%x, %y)\nuse(%q)"


def test_alternatives_are_tried_until_the_rest_fits() -> None:
    inner = either(op("t.a", X), op(("t.b", "t.c"), X))
    rule = Rule("any", op("t.pair", inner, X), op("t.d", X))
    for name in "abc":
        assert apply(rule, f"%p = {name} %x\n%q = pair %p %x\nuse %q") == "%q = d(%x)\nuse(%q)"
    assert "pair" in apply(rule, "%p = d %x\n%q = pair %p %x\nuse %q")
    nested = Rule("deep", op("t.c", either(op("t.a", either(op("t.b", X), X)), X)), op("t.d", X))
    assert apply(nested, "%p = b %x\n%q = a %p\n%r = c %q\nuse %r") == "%r = d(%x)\nuse(%r)"


def test_root_may_be_an_alternative() -> None:
    rule = Rule("root", either(op("t.a", X), op("t.b", X)), op("t.c", X))
    assert apply(rule, "%p = a %x\n%q = b %p\nuse %q") == "%p = c(%x)\n%q = c(%p)\nuse(%q)"


def test_attributes_are_compared_bound_and_computed() -> None:
    rule = Rule(
        "add",
        source=op("t.a", op("t.a", X, n=N), n=M, m=7),
        where=[native(lambda n: n > 0, N)],
        result=op("t.a", X, n=native(lambda n, m: n + m, N, M)),
    )
    assert apply(rule, "%p = a %x {n = 1}\n%q = a %p {m = 7, n = 2}\nuse %q") == "%q = a(%x) {n = 3}\nuse(%q)"
    assert apply(rule, "%p = a %x {n = 0}\n%q = a %p {m = 7, n = 2}\nuse %q").count("a(") == 2
    assert apply(rule, "%p = a %x {n = 1}\n%q = a %p {m = 8, n = 2}\nuse %q").count("a(") == 2
    assert apply(rule, "%p = a %x {n = 1}\n%q = a %p {m = 7}\nuse %q").count("a(") == 2


def test_same_attribute_term_is_the_same_attribute() -> None:
    rule = Rule("same", op("t.a", op("t.a", X, n=N), n=N), op("t.b", X, n=N))
    assert apply(rule, "%p = a %x {n = 4}\n%q = a %p {n = 4}\nuse %q") == "%q = b(%x) {n = 4}\nuse(%q)"
    assert apply(rule, "%p = a %x {n = 4}\n%q = a %p {n = 5}\nuse %q").count("a(") == 2


def test_again_keeps_name_and_attributes() -> None:
    node = op(("t.a", "t.b"), op("t.c", X), n=N)
    rule = Rule("again", node, op("t.c", again(node, X, m=9)))
    assert apply(rule, "%p = c %x\n%q = b %p {n = 4}\nuse %q") == "%0 = b(%x) {m = 9, n = 4}\n%q = c(%0)\nuse(%q)"


def test_built_value_comes_from_a_function() -> None:
    def first(anchor: Operation, given: Value, rewriter: Rewriter) -> Value:
        assert anchor.name == "t.a"
        return given

    rule = Rule("built", op("t.a", X), op("t.b", built(first, X)))
    assert apply(rule, "%p = a %x\nuse %p") == "%p = b(%x)\nuse(%p)"


def test_constraint_sees_operations() -> None:
    node = op("t.a", X)
    rule = Rule("seen", node, X, [native(lambda found: found.location is None, node)])
    assert apply(rule, "%p = a %x\nuse %p") == "use(%x)"


# --- several roots ----------------------------------------------------------------------------------------------------

JOINED = op("t.join", X, Y)
SIBLINGS = Rule("siblings", (op("t.a", X), op("t.b", op("t.c", X))), (op("t.split", X)[0], op("t.d", X)))


def test_several_roots_are_replaced_together() -> None:
    text = "%p = a %x\n%q = c %x\n%r = b %q\nuse %p %r"
    assert apply(SIBLINGS, text) == "%p, %0 = split(%x)\n%r = d(%x)\nuse(%p, %r)"


def test_roots_are_found_in_any_order_of_the_program() -> None:
    assert apply(SIBLINGS, "%q = c %x\n%r = b %q\n%p = a %x\nuse %p %r").startswith("%p, %0 = split(%x)")
    assert "split" not in apply(SIBLINGS, "%q = c %y\n%r = b %q\n%p = a %x\nuse %p %r")


def test_root_that_is_open_is_not_taken() -> None:
    assert "split" not in apply(SIBLINGS, "%q = c %x\n%r = b %q\n%p = a %x\nuse %p %q %r")


def test_results_go_where_all_is_defined_and_nothing_is_read_yet() -> None:
    rule = Rule("two", (op("t.a", X), op("t.pair", X, Y)), (JOINED[0], JOINED[1]))
    early = "%p = a %x\n%k = c %z\n%q = pair %x %k\nuse %p %q"
    assert apply(rule, early) == "%k = c(%z)\n%p, %q = join(%x, %k)\nuse(%p, %q)"
    refused = "%p = a %x\nuse %p\n%k = c %z\n%q = pair %x %k\nuse %q"
    assert "join" not in apply(rule, refused)
    cycle = "%p = a %x\n%k = c %p\n%q = pair %x %k\nuse %q"
    assert "join" not in apply(rule, cycle)
    assert "join" not in apply(rule, "%p = a %x\n%q = pair %x %p\nuse %q")


def test_constants_that_a_result_reads_move_before_it() -> None:
    rule = Rule("two", (op("t.a", X), op("t.pair", X, Y)), (JOINED[0], JOINED[1]))
    text = "%p = a %x\nuse %p\n%k = make\n%q = pair %x %k\nuse %q"
    assert apply(rule, text) == "%k = make()\n%p, %q = join(%x, %k)\nuse(%p)\nuse(%q)"


def test_one_operation_gives_all_its_results() -> None:
    node = op("t.split", op("t.a", X))
    rule = Rule("all", (node[0], node[1]), (X, op("t.c", X)))
    assert apply(rule, "%k = a %x\n%p, %q = split %k\nuse %p %q") == "%q = c(%x)\nuse(%x, %q)"


def test_matching_many_siblings_takes_linear_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    plain = Rewriter.next

    def counted(rewriter: Rewriter) -> Operation | None:
        steps[-1] += 1
        return plain(rewriter)

    monkeypatch.setattr(Rewriter, "next", counted)
    for count in (50, 100, 200):
        steps.append(0)
        lines = [f"%p{i} = a %x\n%q{i} = c %x\n%r{i} = b %q{i}\nuse %p{i} %r{i}" for i in range(count)]
        apply(SIBLINGS, "\n".join(lines))
    assert steps[2] - steps[1] <= 2.2 * (steps[1] - steps[0])


# --- rules that cannot be ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "result", "where", "message"),
    [
        (X, X, (), "rule bad: root 0 is no operation"),
        (op("t.a", X), Y, (), "rule bad: y does not occur in the source"),
        (op("t.a", X), op("t.a", X, n=N), (), "rule bad: n does not occur"),
        (op("t.a", X), X, (native(len, Y),), "rule bad: y does not occur"),
        (op("t.a", X), op(("t.a", "t.b"), X), (), "the names t.a, t.b; give one"),
        (op("t.a", X), either(X, X), (), "alternatives belong in the source"),
        (op("t.a", X), again(op("t.b", X), X), (), r"again\(\) of an operation that the source does not hold"),
        (op("t.a", native(len, X)), X, (), "a source holds values, attributes and operations alone"),
        ((op("t.a", X), op("t.b", Y)), (X, Y), (), "root 1 reads nothing that a root before it does"),
        ((op("t.a", X), op("t.b", X)), X, (), "1 results for 2 roots"),
        (op("t.a", either(op("t.b", X), op("t.c", Y))), X, (), "or only in an alternative"),
    ],
)
def test_rule_that_cannot_be_applied_is_refused(source, result, where, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(IRError, match=message):
        Rule("bad", source, result, where)


def test_result_of_another_type_is_an_error() -> None:
    changed = OpDefinition("u.f", operands=1, infer=lambda types, attributes: [TensorType(dtypes.bool_, ())])
    context = Context([Dialect("u", 1, [changed])])
    function = parse(
        'builtin.function() {name = "f"} (%x: tensor<int8>) {\n  %y = u.f(%x) : (tensor<int8>) -> tensor<bool>\n'
        "  builtin.return(%y)\n}",
        context,
    )
    with pytest.raises(IRError, match=r"cannot replace a value of tensor<bool> by one of tensor<int8>"):
        apply_patterns(function, [Rule("type", op("u.f", X), X).pattern], context)


# --- text -------------------------------------------------------------------------------------------------------------


def is_even(n: int) -> bool:
    return n % 2 == 0


def half(n: int) -> int:
    return n // 2


def test_rule_prints_as_text() -> None:
    inner = op(("t.a", "t.b"), X, n=N).shared()
    rule = Rule(
        "halved",
        source=(op("t.pair", inner, either(op("t.c", Y), Y), m=3).any_order(), op("t.split", X)[1]),
        where=[native(is_even, N)],
        result=(again(inner, op("t.d", X), n=native(half, N)), X),
    )
    assert str(rule) == inspect.cleandoc(
        """
        rule halved
          %0 = t.a | t.b(%x) {n = $n}, shared
          %1 = t.c(%y)
          %2 = t.pair(%0, (%1 | %y)) {m = 3}, in any order
          %3 = t.split(%x)
        where
          is_even($n)
        becomes
          %4 = t.d(%x)
          %5 = again %0(%4) {n = half($n)}
          %2 := %5
          %3[1] := %x
        """
    )
