"""The operators level is made from the records: a new one is covered at once, by every class of values and shapes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.ir import TensorType, interpret
from oarlock.ops import ARRAY, RECORDS
from oarlock.ops.arithmetic import COMPOSITE_ARITHMETIC
from oarlock.ops.record import Record
from oarlock.runtime import open_device
from oarlock_conformance.case import Options, Outcome
from oarlock_conformance.cases import operators
from oarlock_conformance.cases.operators import classes, named
from oarlock_conformance.cases.operators.build import build_function, mix, mixes
from oarlock_conformance.cases.operators.calls import Call, Unit
from oarlock_conformance.cases.operators.views import VIEWS, View, read, store

FULL, QUICK = Options(), Options(quick=True)
NEW = "twice_of_this_test"


class Heard:
    """Keeps outcomes."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}

    def start(self, *cases: str) -> None: ...

    def beat(self) -> None: ...

    def end(self, outcome: Outcome) -> None:
        self.outcomes[outcome.case] = outcome


@pytest.fixture
def new_record(monkeypatch: pytest.MonkeyPatch) -> Iterator[Record]:
    """A record that nothing else knows: x + x."""
    square = next(record for record in COMPOSITE_ARITHMETIC if record.name == "square")
    record = Record(
        NEW, "elementwise", "x + x", ("x",), square.infer, lambda operands, attributes: (operands[0] + operands[0],),
        dtypes=(dtypes.float32, dtypes.float16, dtypes.int8), traits=square.traits, samples=square.samples,
        decompose=lambda b, operands, attributes: (b("add", operands[0], operands[0]),),
    )  # fmt: skip
    for name in list(RECORDS):
        monkeypatch.delitem(RECORDS, name)  # the others are the level's business
    monkeypatch.setitem(RECORDS, NEW, record)
    monkeypatch.setitem(ARRAY.operations, f"array.{NEW}", record.definition())
    yield record


def test_new_record_is_covered_the_day_it_is_added(new_record: Record, uncached: None) -> None:
    device = open_device("sim")
    full = {case.id for case in operators.plan(device, FULL) if case.id.startswith(NEW)}
    wanted = {"values", "sizes", *VIEWS} - {"plain"}
    assert {f"{NEW}/float32/{name}" for name in (*wanted, "dense")} <= full
    assert {f"{NEW}/float16/{name}" for name in (*wanted, "exhaustive")} <= full
    assert {f"{NEW}/int8/{name}" for name in (*wanted, "exhaustive")} <= full
    quick = [case.id for case in operators.plan(device, QUICK) if case.id.startswith(NEW)]
    assert {f"{NEW}/{kind}/values" for kind in ("float32", "float16", "int8")} <= set(quick)
    heard = Heard()
    chosen = [*quick, f"{NEW}/float32/sizes", f"{NEW}/float32/strided"]
    operators.run("sim", [case for case in chosen if case in quick], QUICK, False, heard)
    operators.run("sim", chosen[-2:], FULL, False, heard)
    assert [outcome for outcome in heard.outcomes.values() if outcome.state != "passed"] == []
    assert set(heard.outcomes) == set(chosen)


def test_new_record_that_is_wrong_fails(new_record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    object.__setattr__(new_record, "decompose", lambda b, operands, attributes: (b("abs", operands[0]),))
    heard = Heard()
    operators.run("sim", [f"{NEW}/float32/values"], QUICK, False, heard)
    outcome = heard.outcomes[f"{NEW}/float32/values"]
    assert outcome.state == "failed"
    assert NEW in outcome.reason and "expected" in outcome.reason


def test_every_pattern_of_a_narrow_type_is_met() -> None:
    unit = Unit(RECORDS["exp"], dtypes.bfloat16)
    (call,) = [call for call in unit.calls(FULL) if call.id == "exp/bfloat16/exhaustive"]
    assert len(np.unique(call.sample.operands[0].view(np.uint16))) == 1 << 16
    unit = Unit(RECORDS["remainder"], dtypes.int8)
    (call,) = [call for call in unit.calls(FULL) if call.id == "remainder/int8/exhaustive"]
    pairs = {*zip(*(x.tolist() for x in call.sample.operands), strict=True)}
    assert len(pairs) == 1 << 16
    (quick,) = [call for call in Unit(RECORDS["exp"], dtypes.float16).calls(QUICK) if call.mixed]
    assert len(np.unique(quick.sample.operands[0].view(np.uint16))) > 512


def test_dense_patterns_cover_every_exponent() -> None:
    (call,) = [call for call in Unit(RECORDS["exp"], dtypes.float32).calls(FULL) if call.id == "exp/float32/dense"]
    bits = call.sample.operands[0].view(np.uint32)
    assert len(np.unique(bits >> 23)) == 512
    assert len(np.unique(bits & 0xFFFF)) > 30_000  # not one mantissa again and again


def test_lengths_and_shapes_are_those_asked_for() -> None:
    assert {1, 255, 256, 257, 1023, 1024, 1025, 100_000} <= set(classes.LENGTHS)
    around = {2**k + e for k in range(1, 14) for e in (-1, 0, 1)}
    assert {(), (0,), (1,)} <= set(classes.SHAPES) and {(n,) for n in around} <= set(classes.SHAPES)
    for name in ("reduce_sum", "dot_general", "argmax"):
        calls = Unit(RECORDS[name], dtypes.float32).calls(FULL)
        sizes = {max(max(x.shape, default=0) for x in s.operands) for call in calls for s in call.samples}
        assert {255, 1025, 100_000} <= sizes


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bool_, dtypes.bfloat16, dtypes.int64], ids=str)
def test_what_is_stored_reads_back(view: View, dtype: dtypes.DType) -> None:
    for shape in ((), (7,), (3, 5), (0, 2), (2, 3, 4)):
        x = (np.arange(int(np.prod(shape))) % 4 // 2).reshape(shape).astype(dtype.numpy)
        x = np.broadcast_to(x[..., :1], x.shape) if view == "broadcast" and x.size and x.ndim else x
        stored = store(x, view)
        types = [TensorType(dtype, stored.shape)]
        (found,) = interpret(build_function(types, lambda b, s, x=x: [read(b, s, x, view)]), [stored])
        assert found.tobytes() == np.ascontiguousarray(x).tobytes()
        if view not in ("plain", "broadcast") and x.size > 5 and x.ndim > (view == "transposed"):
            assert stored.tobytes() != np.ascontiguousarray(x).tobytes()


@pytest.mark.parametrize("view", VIEWS)
def test_mixed_calls_give_what_each_gives(view: View) -> None:
    names = ("add", "subtract", "multiply", "maximum", "negative", "abs")
    calls: list[Call] = []
    for name in names:
        found = [c for c in Unit(RECORDS[name], dtypes.float32).calls(FULL) if c.view == view and c.mixed]
        calls += found[:1]
    if view == "plain":
        calls = [c for name in names for c in Unit(RECORDS[name], dtypes.float32).calls(QUICK) if c.mixed]
    (batch,) = mixes(calls)
    built = mix(batch)
    results = built.split(interpret(built.function, built.operands))
    for call, ((found,),) in zip(batch, results, strict=True):
        (want,) = call.record.reference(call.sample.operands, call.sample.attributes)
        assert np.array_equal(found, want, equal_nan=True), call.id


def test_named_cases_cover_the_known_faults() -> None:
    wanted = (
        "nan.reduce_max/float16", "nan.argmin/float32", "nan.pairs/bfloat16", "sum.float16_ones", "sum.bfloat16_ones",
        "sum.float16_beyond_its_range", "subnormal.sum/float32", "edges.integer/int64", "edges.convert/float16",
        "view.concat", "view.stack", "view.host", "view.odd_copy/uint8", "view.rows_apart", "view.wide_slice",
        "view.offset", "empty.products", "empty.reductions", "determinism.kernels/float32", "large.elements/int8",
        "large.product/int8",
    )  # fmt: skip
    assert set(wanted) <= set(named.NAMED)
    quick = {case.id for case in named.plan(open_device("sim"), QUICK)}
    assert not any(case.startswith("large.") for case in quick)
    assert "edges.narrow/float16" in quick
