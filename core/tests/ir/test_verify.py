"""The verifier: each rule, broken once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oarlock import dtypes
from oarlock.errors import ShapeError, VerifyError
from oarlock.ir import (
    Block,
    Builder,
    Context,
    Dialect,
    OpDefinition,
    Operation,
    Region,
    TensorType,
    Trait,
    Type,
    parse,
    traits,
    verify,
)
from oarlock.ir.control import CONTROL

F4 = TensorType(dtypes.float32, (4,))
I4 = TensorType(dtypes.int32, (4,))


def _same(types: object, attributes: object) -> list[Type]:
    first: Type = types[0]  # type: ignore[index]
    if first != F4:
        raise ShapeError(f"{first} is not {F4}")
    return [first]


def _odd(op: Operation) -> None:
    if len(op.operands) % 2 == 0:
        raise VerifyError("operands are even")


CONTEXT = Context(
    [
        Dialect(
            "t",
            1,
            [
                OpDefinition("t.any", operands=None, results=None, regions=None),
                OpDefinition("t.one", operands=1, results=1, infer=_same, attributes={"axis": int}),
                OpDefinition("t.opt", operands=0, results=0, attributes={"a": (int, str)}, optional=frozenset({"a"})),
                OpDefinition("t.odd", operands=None, results=0, verify=_odd),
                OpDefinition("t.clumsy", results=0, operands=0, verify=lambda op: [][0]),  # type: ignore[misc]
                OpDefinition("t.same", operands=1, results=1, traits=frozenset({traits.SAME_TYPES, traits.PURE})),
                OpDefinition("t.end", operands=None, results=0, traits=frozenset({traits.TERMINATOR})),
                OpDefinition("t.box", operands=0, results=0, regions=1, traits=frozenset({traits.ISOLATED})),
                OpDefinition(
                    "t.lonely", operands=0, results=0, traits=frozenset({Trait("lonely", lambda op: _lonely(op))})
                ),
            ],
        ),
        CONTROL,
    ]
)


def _lonely(op: Operation) -> None:
    if op.prev_op is not None:
        raise VerifyError(f"{op.prev_op.name} stands before it")


def program(text: str) -> Operation:
    return parse(f"t.any() (%x: tensor<4xfloat32>, %i: tensor<4xint32>) {{\n{text}\n}}", CONTEXT)


F = "tensor<4xfloat32>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"%y = t.one(%x, %x) {{axis = 0}} : ({F}, {F}) -> {F}", "t.one: 2 operands, not 1"),
        (f"%y, %z = t.one(%x) {{axis = 0}} : ({F}) -> ({F}, {F})", "t.one: 2 results, not 1"),
        (f"%y = t.one(%x) {{axis = 0}} : ({F}) -> {F} {{}}", "t.one: 1 regions, not 0"),
        (f"%y = t.one(%x) : ({F}) -> {F}", "t.one: attribute axis is missing"),
        (f"%y = t.one(%x) {{axis = 1.0}} : ({F}) -> {F}", "t.one: attribute axis is a float, not int"),
        (f"%y = t.one(%x) {{axis = true}} : ({F}) -> {F}", "t.one: attribute axis is a bool, not int"),
        ("t.opt() {a = 1.0}", "t.opt: attribute a is a float, not int or str"),
        ("t.opt() {b = 1}", "t.opt: no attribute is called b; there are a"),
        (f"%y = t.one(%x) {{axis = 0}} : ({F}) -> tensor<4xint32>", "results are (tensor<4xint32>); inference gives"),
        (f"%y = t.one(%i) {{axis = 0}} : (tensor<4xint32>) -> {F}", "ShapeError: tensor<4xint32> is not tensor<4xflo"),
        ("t.odd(%x, %x)", "t.odd: operands are even"),
        ("t.clumsy()", "t.clumsy: IndexError: list index out of range"),
        (f"%y = t.same(%i) : (tensor<4xint32>) -> {F}", "operands and results differ in type"),
        ("t.end() t.opt()", "t.end ends a block, but t.opt follows it"),
        ("t.opt() t.lonely()", "t.lonely: t.opt stands before it"),
        ("t.opt() {a = 1.0} at \"file.py:3\"", "t.opt (file.py:3): attribute a"),
    ],
)  # fmt: skip
def test_broken_operation_is_refused(text: str, message: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(program(text))
    assert message in str(caught.value)
    assert "\n  in: " in str(caught.value)


def test_good_program_passes() -> None:
    verify(
        program(
            f"""
            %y = t.one(%x) {{axis = 0}} : ({F}) -> {F}
            t.opt() {{a = "x"}}
            t.any(%y) {{ t.odd(%y) t.any() {{ t.odd(%x, %y, %i) }} }}
            t.box() {{ ^0 (%z: {F}): t.odd(%z) ^1: t.end() }}
            t.end(%y)"""
        )
    )


def test_operand_of_sibling_block_is_refused() -> None:
    op = program(f"t.any() {{ ^0: %y = t.same(%x) : ({F}) -> {F} ^1: t.end() }}")
    holder = op.regions[0].block.last_op
    assert holder is not None
    first, second = holder.regions[0].blocks
    assert first.first_op is not None and second.last_op is not None
    second.last_op.set_operands(first.first_op.results)
    with pytest.raises(VerifyError, match=r"operand 0 is not defined above, .* \(result 0 of t.same\)"):
        verify(op)


def test_use_before_definition_is_refused() -> None:
    op = program(f"%y = t.same(%x) : ({F}) -> {F} %z = t.same(%y) : ({F}) -> {F}")
    first, second = op.regions[0].block.ops
    op.regions[0].block.insert_before(first, second.detach())
    with pytest.raises(VerifyError, match="operand 0 is not defined above"):
        verify(op)


def test_isolated_region_sees_nothing_outside() -> None:
    op = program("t.box() { t.odd() }")
    inner = next(o for o in op.walk() if o.name == "t.odd")
    inner.set_operands(op.regions[0].block.args[:1])
    with pytest.raises(VerifyError, match="a block argument of type tensor<4xfloat32>"):
        verify(op)


def test_use_by_operation_outside_is_refused() -> None:
    op = program(f"%y = t.same(%x) : ({F}) -> {F}")
    Operation(CONTEXT.definition("t.odd"), [op.regions[0].block.args[0]])
    with pytest.raises(VerifyError, match=r"t\.odd uses a block argument .* but stands outside the program"):
        verify(op)


def _second(op: Operation) -> Operation:
    last = op.regions[0].block.last_op
    assert last is not None
    return last


def _forget_use(op: Operation) -> None:
    op.regions[0].block.args[0].uses.clear()


def _invent_use(op: Operation) -> None:
    op.regions[0].block.args[1].uses[(_second(op), 0)] = None


def _lose_parent(op: Operation) -> None:
    _second(op).parent = None


def _cut_links(op: Operation) -> None:
    op.regions[0].block.last_op = op.regions[0].block.first_op


def _swap_previous(op: Operation) -> None:
    _second(op).prev_op = None


def _renumber(op: Operation) -> None:
    op.regions[0].block.args[0].index = 1


def _steal_result(op: Operation) -> None:
    _second(op).results[0].op = op


def _move_region(op: Operation) -> None:
    op.regions[0].parent = _second(op)


def _move_block(op: Operation) -> None:
    op.regions[0].block.parent = Region()


def _foreign_attribute(op: Operation) -> None:
    _second(op).attributes["a"] = [1]  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_forget_use, "operand 0 does not know of this use"),
        (_invent_use, "t.same is listed as a user of a block argument of type tensor<4xint32>, but does not use it"),
        (_lose_parent, "it is not linked into its block"),
        (_swap_previous, "it is not linked into its block"),
        (_cut_links, "the last operation of a block is not linked"),
        (_renumber, "block argument 0 does not know its place"),
        (_steal_result, "result 0 does not know that it is result 0"),
        (_move_region, "a region belongs to another operation"),
        (_move_block, "a block belongs to another region"),
        (_foreign_attribute, "attribute a is a list, which cannot be an attribute"),
    ],
)
def test_damaged_structure_is_found(damage: Callable[[Operation], None], message: str) -> None:
    op = program(f"%y = t.same(%x) : ({F}) -> {F} %z = t.same(%x) : ({F}) -> {F}")
    verify(op)
    damage(op)
    with pytest.raises(VerifyError, match=message):
        verify(op)


def test_inner_operation_can_be_verified_alone() -> None:
    op = program(f"%y = t.same(%x) : ({F}) -> {F} t.any() {{ t.odd(%y) t.any(%x) {{ t.odd(%i) }} }} t.odd(%x)")
    for inner in op.walk():
        verify(inner)


def test_context_says_what_is_missing() -> None:
    builder = Builder(CONTEXT, Block())
    with pytest.raises(Exception, match="no dialect 'u'"):
        builder.create("u.op")
