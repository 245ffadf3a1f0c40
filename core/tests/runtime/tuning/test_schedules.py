"""Schedules in the compiler: without any all is as it was, with any the results are the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oarlock import dtypes
from oarlock.codegen.candidates import space_of
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.lower.subject import Subject
from oarlock.codegen.pipeline import lower, prepare
from oarlock.codegen.schedule import RULES, Schedule
from oarlock.ir.text import print_op
from oarlock.runtime import Device, open_device
from oarlock.runtime.tuning.bench import Bench
from oarlock.runtime.tuning.search import Refused
from oarlock.runtime.tuning.subjects import works_of

from .conftest import program, t

NONE = ((0, 0), (0, 0))
ONE = ((1, 1), (1, 1))


def convolution(padding: Any, groups: int = 1, strides: tuple[int, int] = (1, 1)) -> Callable[..., Any]:
    return lambda b, x, w: b("convolution", x, w, strides=strides, padding=padding, dilation=(1, 1), groups=groups)


def matmul(b: Any, x: Any, y: Any) -> Any:
    return b("matmul", x, y)


def turned(b: Any, x: Any, y: Any) -> Any:
    return b("matmul", x, b("transpose", y, permutation=(1, 0)))


PROGRAMS = {
    "product": ([t(37, 41), t(41, 50)], matmul, ()),
    "turned product": ([t(37, 41), t(50, 41)], turned, ()),
    "batch of products": ([t(2, 33, 40), t(2, 40, 35)], matmul, ()),
    "product with fixed weights": ([t(37, 41), t(41, 50)], matmul, (1,)),
    "half product": ([t(37, 41, dtype=dtypes.float16), t(41, 50, dtype=dtypes.float16)], matmul, ()),
    "row times matrix": ([t(1, 41), t(41, 130)], matmul, ()),
    "row times turned matrix": ([t(1, 41), t(130, 41)], turned, ()),
    "convolution": ([t(1, 5, 9, 11), t(7, 5, 3, 3)], convolution(ONE), (1,)),
    "pixelwise convolution": ([t(2, 20, 6, 7), t(18, 20, 1, 1)], convolution(NONE), (1,)),
    "striding convolution": ([t(1, 4, 12, 13), t(6, 4, 3, 3)], convolution(ONE, strides=(2, 2)), ()),
    "grouped convolution": ([t(1, 6, 9, 11), t(8, 3, 3, 3)], convolution(ONE, 2), ()),
    "depthwise convolution": ([t(1, 6, 9, 11), t(6, 1, 3, 3)], convolution(ONE, 6), ()),
    "softmax": ([t(13, 300)], lambda b, x: b("softmax", x, axis=1), ()),
    "columns": ([t(70, 90)], lambda b, x: b("reduce_sum", x, axes=(0,), keepdims=False), ()),
    "elements": ([t(513, 520)], lambda b, x: b("tanh", b("multiply", x, x)), ()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_candidates_compute_the_same(name: str, cpu: Device) -> None:
    """The first and last change of each parameter alone, and the last ones together, against the rules' results."""
    types, body, fixed = PROGRAMS[name]
    works, changed = works_of(program(types, body), cpu, fixed)
    assert works and not [key for key in changed if not key.startswith("pad")]
    for work in works:
        bench = Bench(work, cpu)
        together: dict[str, int | str] = {}
        for axis in work.space:
            together |= axis[-1]
        for change in [*(axis[i] for axis in work.space for i in (0, -1)), together]:
            try:
                bench.build(Schedule.from_json(change))
            except Refused as error:
                raise AssertionError(f"{work.key}: {change}: {error}") from error


@pytest.mark.parametrize("device", ["sim:0", "sim:1"])
def test_candidates_compute_the_same_on_other_targets(device: str, cpu: Device) -> None:
    opened = open_device(device)
    for name in ("product", "softmax", "elements"):
        types, body, fixed = PROGRAMS[name]
        for work in works_of(program(types, body), opened, fixed)[0]:
            bench = Bench(work, opened)
            for axis in work.space:
                bench.build(Schedule.from_json(axis[0]))


@pytest.mark.parametrize("name", PROGRAMS)
def test_rules_as_a_choice_change_no_text(name: str, cpu: Device) -> None:
    types, body, fixed = PROGRAMS[name]
    plain = lower(prepare(program(types, body)), cpu.target)
    asked: list[Subject] = []
    chosen = lower(prepare(program(types, body)), cpu.target, choice=lambda s: asked.append(s) or RULES, fixed=fixed)
    assert asked
    texts = [
        [(print_op(c.function), c.grid, c.scalars) for c in lowered.calls if isinstance(c, KernelCall)]
        for lowered in (plain, chosen)
    ]
    assert texts[0] == texts[1]


def keys(name: str, device: Device, **changes: Any) -> list[str]:
    types, body, fixed = PROGRAMS[name]
    return [work.key for work in works_of(program(types, body), device, changes.get("fixed", fixed))[0]]


def test_keys_tell_apart_what_may_differ(cpu: Device) -> None:
    found = [keys(name, cpu)[0] for name in PROGRAMS]
    assert len(set(found)) == len(PROGRAMS)
    assert found[0].startswith("dot_general float32[37,41] float32[41,50] #")
    assert keys("product", cpu, fixed=(1,)) == keys("product with fixed weights", cpu)
    assert keys("product", cpu) == keys("product", cpu)


def test_keys_do_not_depend_on_what_follows(cpu: Device) -> None:
    types, body, _ = PROGRAMS["product"]
    alone = program(types, body)
    followed = program(types, lambda b, x, y: b("tanh", body(b, x, y)))
    assert works_of(alone, cpu)[0][0].key == works_of(followed, cpu)[0][0].key


def test_keys_are_the_same_in_another_process(cpu: Device) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from tuning.test_schedules import PROGRAMS, keys\n"
        "from oarlock.runtime import open_device\n"
        "print(*(key for name in PROGRAMS for key in keys(name, open_device('cpu'))), sep='\\n')"
    )
    folder = str(Path(__file__).parents[1])
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)}
    told = subprocess.run([sys.executable, "-c", code, folder], env=environment, capture_output=True, text=True)
    assert told.stdout.split("\n")[:-1] == [key for name in PROGRAMS for key in keys(name, cpu)], told.stderr


def test_spaces_are_bounded(cpu: Device) -> None:
    """A search tries at most the changes of all parameters, twice."""
    works = [work for types, body, fixed in PROGRAMS.values() for work in works_of(program(types, body), cpu, fixed)[0]]
    assert max(sum(map(len, work.space)) for work in works) <= 24
    asked: list[Subject] = []
    lower(prepare(program(*PROGRAMS["product"][:2])), cpu.target, choice=lambda s: asked.append(s) or RULES)
    assert space_of(asked[-1], cpu.target.with_limits(max_block=(64, 1, 1), max_threads=64)) is not None
