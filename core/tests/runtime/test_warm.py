"""Outcomes of lowering on disk: a hit gives the same plan without a compiler; what it depends on makes a miss."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from oarlock import dtypes
from oarlock.codegen import fuse
from oarlock.codegen.schedule import RULES, Schedule
from oarlock.config import config
from oarlock.ir import Block, Context, Dialect, OpDefinition, Operation, Pass, Region, TensorType, Value
from oarlock.ops import ArrayBuilder, array_context
from oarlock.registry.compiler import all_passes
from oarlock.runtime import Device, from_numpy, lowering, open_device, sources, to_numpy, warm
from oarlock.runtime.cache import DiskCache
from oarlock.runtime.plan import LibraryStep, Plan
from oarlock.runtime.profile import profiled
from oarlock.runtime.sources import state_of
from oarlock.runtime.tuning import known

F32 = dtypes.float32
Body = Callable[[ArrayBuilder, Value, Value], Value]


def norm(b: ArrayBuilder, x: Value, w: Value) -> Value:
    """Rows over their sums of squares, and an offset that is a constant array."""
    total = b("reduce_sum", b("multiply", x, x), axes=(1,), keepdims=True)
    return b("add", b("divide", x, total), b.constant(np.arange(40, dtype=np.float32), F32))


def product(b: ArrayBuilder, x: Value, w: Value) -> Value:
    """Times a matrix: packed, or thin, which the host leaves to a library."""
    return b("dot_general", norm(b, x, w), w, batch=((), ()), contract=((1,), (0,)), dtype=F32)


def reversed_norm(b: ArrayBuilder, x: Value, w: Value) -> Value:
    return b("reverse", norm(b, x, w), axes=(1,))


def function(body: Body = norm, rows: int = 64) -> Operation:
    block = Block([TensorType(F32, (rows, 40)), TensorType(F32, (40, 48))])
    builder = ArrayBuilder(array_context(), block)
    builder.create("builtin.return", [body(builder, *block.args)])
    definition = array_context().definition("builtin.function")
    return Operation(definition, attributes={"name": "f"}, regions=[Region([block])])


def operands(rows: int = 64) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in ((rows, 40), (40, 48))]


def values(plan: Plan, rows: int = 64) -> np.ndarray:
    (result,) = plan.run([from_numpy(x, plan.device) for x in operands(rows)[: len(plan.arguments)]])
    return to_numpy(result)


@pytest.fixture
def cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """The host with an empty cache folder, no kernels loaded, and no schedules known."""
    monkeypatch.setattr(config, "cache_dir", tmp_path / "cache")
    monkeypatch.setattr(config, "cache", True)
    monkeypatch.setattr(config, "verify", False)
    # pytest loads the modules of a distribution that has a plugin for it by a loader of its own
    monkeypatch.setattr(sources, "_LOADERS", (*sources._LOADERS, AssertionRewritingHook))
    device = open_device("cpu")
    monkeypatch.setitem(device.held, "schedules", None)
    kernels = device.held.pop("kernels", None)
    yield device
    device.held.pop("kernels", None)
    if kernels is not None:
        device.held["kernels"] = kernels


@pytest.fixture
def lowerings(monkeypatch: pytest.MonkeyPatch) -> list[Operation]:
    """Gets each function that is lowered."""
    done: list[Operation] = []
    lower = lowering.lower
    monkeypatch.setattr(lowering, "lower", lambda f, *given, **named: (done.append(f), lower(f, *given, **named))[1])
    return done


def entries(folder: str = "lowered") -> list[Path]:
    return [path for path in (config.cache_dir / folder).rglob("*") if path.is_file()]


def test_second_plan_is_read_and_gives_the_same_bits(cpu: Device, lowerings: list[Operation]) -> None:
    first = Plan(function(), cpu)
    assert (len(lowerings), len(entries())) == (1, 1)
    cpu.held.pop("kernels")
    second = Plan(function(), cpu)
    assert len(lowerings) == 1
    assert [(s.label, s.signature, s.grid) for s in second.steps] == [
        (s.label, s.signature, s.grid) for s in first.steps
    ]
    assert values(second).tobytes() == values(first).tobytes()


def test_second_process_lowers_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import test_warm as here\n"
        "from oarlock.runtime import kernels, lowering, open_device\n"
        "done = []\n"
        "for module, name in ((lowering, 'lower'), (lowering, 'prepare'), (kernels, 'render')):\n"
        "    inner = getattr(module, name)\n"
        "    setattr(module, name, lambda *a, f=inner, n=name, **k: (done.append(n), f(*a, **k))[1])\n"
        "plan = here.Plan(here.function(here.product), open_device('cpu'))\n"
        "print(here.json.dumps([done, here.values(plan).tobytes().hex()]))\n"
    )
    environment = {
        "PYTHONPATH": ":".join(sys.path), "OARLOCK_CACHE_DIR": str(tmp_path / "cache"), "OARLOCK_TUNED": "0",
    }  # fmt: skip
    told = []
    for seed in "12":
        command = [sys.executable, "-c", code, str(Path(__file__).parent)]
        child = subprocess.run(
            command, env={**environment, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=False
        )
        assert child.returncode == 0, child.stderr
        told.append(json.loads(child.stdout))
    assert told[0][0] == ["prepare", "lower", "render"]
    assert told[1] == [[], told[0][1]]


def test_what_it_tells_is_the_same(cpu: Device, lowerings: list[Operation]) -> None:
    first, second = Plan(function(), cpu), Plan(function(), cpu)
    assert len(lowerings) == 1
    assert [second.describe(s) for s in second.steps] == [first.describe(s) for s in first.steps]
    assert any("multiply+reduce_sum+divide" in first.describe(s)[0] for s in first.steps)
    names = [str(call.function.attributes["name"]) for call in second.lowered.calls]
    assert len(lowerings) == 2, "the kernels' IR is made when it is asked for"
    assert names == [str(call.function.attributes["name"]) for call in first.lowered.calls]
    assert [len(g.members) for g in second.lowered.groups] == [len(g.members) for g in first.lowered.groups]
    with profiled() as profile:
        values(second)
    assert [(span.name, span.kernel) for span in profile.spans()] == [first.describe(s) for s in first.steps]


def test_fixed_arguments_are_read_too(cpu: Device, lowerings: list[Operation]) -> None:
    w = operands()[1]
    first, second = (Plan(function(product), cpu, fixed={1: from_numpy(w, cpu)}) for _ in range(2))
    assert len(lowerings) == 1
    assert values(second).tobytes() == values(first).tobytes()
    Plan(function(product), cpu)
    assert len(lowerings) == 2, "which arguments are fixed decides what is packed"


def _other_passes(patch: pytest.MonkeyPatch, cpu: Device) -> None:
    patch.setattr(lowering, "all_passes", lambda: all_passes()[:-1])


def _other_compiler(patch: pytest.MonkeyPatch, cpu: Device) -> None:
    patch.setattr(warm, "_COMMON", [*warm._COMMON[:2], "other", *warm._COMMON[3:]])


def _other_schedules(patch: pytest.MonkeyPatch, cpu: Device) -> None:
    patch.setitem(cpu.held, "schedules", known.Known({"a #1": Schedule(rows=2)}))


def _other_target(patch: pytest.MonkeyPatch, cpu: Device) -> None:
    patch.setattr(cpu, "target", cpu.target.with_limits(vector_width=4))


def _other_driver(patch: pytest.MonkeyPatch, cpu: Device) -> None:
    patch.setattr(type(cpu.adapter), "cache_key", lambda self, target: "driver 2")


def _flipped(patch: pytest.MonkeyPatch, cpu: Device) -> None:
    (path,) = entries()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _nonsense(patch: pytest.MonkeyPatch, cpu: Device) -> None:
    (path,) = entries()
    DiskCache(config.cache_dir / "lowered").write(path.name, b'{"function": 7}')


def _no_executable(patch: pytest.MonkeyPatch, cpu: Device) -> None:
    for path in entries("executables"):
        path.unlink()
    cpu.held.pop("kernels")


@pytest.mark.parametrize(
    "change",
    [
        _other_passes, _other_compiler, _other_schedules, _other_target, _other_driver, _flipped, _nonsense,
        _no_executable,
    ],
)  # fmt: skip
def test_change_is_a_miss(
    cpu: Device, lowerings: list[Operation], monkeypatch: pytest.MonkeyPatch, change: Callable[..., None]
) -> None:
    want = values(Plan(function(), cpu))
    change(monkeypatch, cpu)
    got = values(Plan(function(), cpu))
    assert len(lowerings) == 2
    np.testing.assert_allclose(got, want, 1e-5)
    Plan(function(), cpu)
    assert len(lowerings) == 2, "what was lowered again is kept"


def test_other_schedules_are_told_apart() -> None:
    prints = {known.Known({"a #1": s}).fingerprint for s in (Schedule(rows=1), Schedule(rows=2), Schedule(vectors=1))}
    assert len(prints) == 3
    assert known.Known({"a #1": Schedule(rows=1)}).fingerprint in prints


@pytest.mark.parametrize("what", ["size", "constant", "attribute"])
def test_other_function_is_a_miss(cpu: Device, lowerings: list[Operation], what: str) -> None:
    def changed(b: ArrayBuilder, x: Value, w: Value) -> Value:
        total = b("reduce_sum", b("multiply", x, x), axes=(1,), keepdims=True)
        offset = b.constant(np.arange(40, dtype=np.float32) + (what == "constant"), F32)
        return b("reverse", b("add", b("divide", x, total), offset), axes=(0,) if what == "attribute" else (1,))

    rows = 65 if what == "size" else 64
    Plan(function(reversed_norm), cpu)
    got = values(Plan(function(changed, rows), cpu), rows)
    assert len(lowerings) == 2
    x = operands(rows)[0]
    want = x / (x * x).sum(1, keepdims=True) + np.arange(40, dtype=np.float32) + (what == "constant")
    np.testing.assert_allclose(got, want[::-1] if what == "attribute" else want[:, ::-1], 1e-4, 1e-4)


class _Own(Pass):
    """A pass of somebody else's."""

    name = "own"

    def run(self, op: Operation, context: Context) -> Mapping[str, int]:
        return {}


@pytest.mark.parametrize("why", ["choice", "pass", "state", "verify", "cache", "language", "loader", "constants"])
def test_what_is_not_sure_is_neither_read_nor_written(
    cpu: Device, lowerings: list[Operation], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "pass":
        monkeypatch.setattr(lowering, "all_passes", lambda: [*all_passes(), _Own()])
    elif why == "state":
        passes = all_passes()
        passes[0].state = object()  # type: ignore[attr-defined]
        monkeypatch.setattr(lowering, "all_passes", lambda: passes)
    elif why in ("verify", "cache"):
        monkeypatch.setattr(config, why, why == "verify")
    elif why == "language":
        monkeypatch.setattr(warm, "is_in_tree", lambda language: False)
    elif why == "loader":
        monkeypatch.setattr(fuse.__spec__, "loader", object())
    elif why == "constants":
        monkeypatch.setattr(warm, "MOST_CONSTANT_BYTES", 159)
    for number in (1, 2):
        Plan(function(), cpu, choice=(lambda subject: RULES) if why == "choice" else None)
        assert len(lowerings) == number
    assert entries() == []


@pytest.mark.parametrize(("inner", "warm_start"), [(fuse.__spec__.loader, True), (object(), False)])
def test_editable_install_starts_warm(
    cpu: Device, lowerings: list[Operation], monkeypatch: pytest.MonkeyPatch, inner: object, warm_start: bool
) -> None:
    """Its loaders are scikit-build's, around those that read the files."""
    inner = getattr(inner, "_skbuild_loader", inner)
    monkeypatch.setattr(fuse.__spec__, "loader", SimpleNamespace(_skbuild_loader=inner))
    for _ in range(2):
        Plan(function(), cpu)
    assert len(lowerings) == (1 if warm_start else 2)


def test_foreign_operators_have_no_entry(cpu: Device) -> None:
    context = array_context()
    context.register(Dialect("acme", 1, [OpDefinition("acme.twice", "", operands=1)]))
    made = function()
    block = made.regions[0].block
    op = Operation(context.definition("acme.twice"), [block.args[0]], {}, [block.args[0].type])
    block.insert_before(block.terminator, op)
    assert warm.entry_for(function(), cpu, all_passes(), None, ()) is not None
    assert warm.entry_for(made, cpu, all_passes(), None, ()) is None


def test_adapter_is_asked_again_for_kernels_of_its_own(
    cpu: Device, lowerings: list[Operation], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 16  # a thin product, which the host gives to a library
    first, second = Plan(function(product, rows), cpu), Plan(function(product, rows), cpu)
    assert len(lowerings) == 1
    assert [type(s) for s in second.steps] == [type(s) for s in first.steps]
    assert LibraryStep in {type(s) for s in second.steps}
    assert values(second, rows).tobytes() == values(first, rows).tobytes()
    monkeypatch.setattr(type(cpu.driver), "match", lambda self, call, target: None)
    third = Plan(function(product, rows), cpu)
    assert len(lowerings) == 2
    assert LibraryStep not in {type(s) for s in third.steps}
    np.testing.assert_allclose(values(third, rows), values(first, rows), 1e-3, 1e-3)


def test_state_of_files_changes_with_each_of_them(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.py").write_text("1")
    seen = {state_of(tmp_path)}
    (tmp_path / "inner" / "b.py").write_text("1")
    seen.add(state_of(tmp_path))
    (tmp_path / "inner" / "b.py").write_text("22")
    seen.add(state_of(tmp_path))
    (tmp_path / "inner" / "b.py").rename(tmp_path / "c.py")
    seen.add(state_of(tmp_path))
    assert len(seen) == 4 and None not in seen
    (tmp_path / "notes.txt").write_text("1")
    assert state_of(tmp_path) in seen
    assert state_of(tmp_path / "nowhere") is None
