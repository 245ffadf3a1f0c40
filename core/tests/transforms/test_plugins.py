"""A distribution that nobody here knows adds an operator with its dialect, and passes, and both work on devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = {
    "oarlock_acme/__init__.py": "",
    "oarlock_acme/dialect.py": '''
"""The dialect acme: one operator, on top of the catalogue."""
import numpy as np
from oarlock import dtypes
from oarlock.ir import Dialect, traits
from oarlock.ops import Record
from oarlock.plugin import hookimpl

GATE = Record(
    "gate", "elementwise", "x * y where y is positive, else 0.", ("x", "y"),
    infer=lambda types, attributes: [types[0]],
    reference=lambda operands, attributes: [np.where(operands[1] > 0, operands[0] * operands[1], np.float32(0))],
    decompose=lambda b, operands, attributes: [
        b("select", b("greater", operands[1], b.full(0, operands[1])), b("multiply", *operands), b.full(0, operands[0]))
    ],
    dtypes=(dtypes.float32,),
    traits=frozenset({traits.PURE, traits.ELEMENTWISE}),
)
DIALECT = Dialect("acme", 1, [GATE.definition("acme")])

@hookimpl
def oarlock_dialect():
    return DIALECT
''',
    "oarlock_acme/passes.py": '''
"""A pass that writes multiply(x, maximum(y, 0)) as acme.gate, for one language of targets alone."""
from oarlock.ir import Pass
from oarlock.ir.drr import Rule, op, value
from oarlock.ir.rewrite import apply_patterns
from oarlock.plugin import hookimpl

X, Y = value("x"), value("y")
RULE = Rule("gated", op("array.multiply", X, op("array.relu", Y)), op("acme.gate", X, Y))

class Gates(Pass):
    name = "acme_gates"
    before = ("decompose",)

    def applies(self, target):
        return target.language == "llvm"

    def run(self, op, context):
        return apply_patterns(op, [RULE.pattern], context)

@hookimpl
def oarlock_pass():
    return Gates()
''',
    "oarlock_acme/broken.py": "raise ImportError('libacme.so is missing')\n",
    "oarlock_acme/failing.py": '''
"""A pass that fails on programs with a cosine."""
from oarlock.ir import Pass
from oarlock.plugin import hookimpl

class Fails(Pass):
    name = "acme_fails"
    after = ("decompose",)

    def run(self, op, context):
        for inner in op.walk():
            if inner.name == "array.cos":
                raise ZeroDivisionError("cosines are not for us")
        return {}

@hookimpl
def oarlock_pass():
    return Fails()
''',
}
PROGRAM = """\
builtin.function() {name = "main"} (%x: tensor<4xfloat32>, %y: tensor<4xfloat32>) {
  %r = array.relu(%y) : (tensor<4xfloat32>) -> tensor<4xfloat32>
  %a = array.multiply(%x, %r) : (tensor<4xfloat32>, tensor<4xfloat32>) -> tensor<4xfloat32>
  %b = acme.gate(%a, %y) : (tensor<4xfloat32>, tensor<4xfloat32>) -> tensor<4xfloat32>
  builtin.return(%b)
}
"""


class Site:
    """A folder on the path with the distribution."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, content in PACKAGE.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)

    def install(self, *passes: str) -> None:
        """Describe the distribution as an installer would; ``passes`` are lines of its entry points."""
        info = self.folder / "oarlock_acme-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oarlock-acme\nVersion: 1.0\n")
        lines = ["[oarlock.dialects]", "acme = oarlock_acme.dialect", "[oarlock.passes]", *passes]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")

    def run(self, code: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Python code where it is installed."""
        path = os.pathsep.join([str(self.folder), *sys.path])
        environment = {**os.environ, "PYTHONPATH": path, "OARLOCK_CACHE_DIR": str(self.folder / "cache")}
        command = [sys.executable, "-c", code, *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    def inspect(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``oarlock inspect``."""
        return self.run("import sys; from oarlock.cli import main; sys.exit(main(['inspect', *sys.argv[1:]]))", *words)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


RUN = """
import json, sys
import numpy as np
from oarlock.ir import interpret, parse, print_op, verify
from oarlock.ir.json import from_json, to_json
from oarlock.registry.compiler import context
from oarlock.runtime import from_numpy, open_device, to_numpy
from oarlock.runtime.plan import Plan

known = context()
assert "acme" not in known.dialects, "a dialect is loaded when it is needed"
function = parse(open(sys.argv[1]).read(), known)
verify(function)
document = to_json(function, known)
assert document["dialects"]["acme"] == 1
assert print_op(from_json(json.loads(json.dumps(document)), context())) == print_op(function)
x, y = np.array([1, 2, 3, -4], np.float32), np.array([-1, 2, 0.5, 3], np.float32)
expected = interpret(function, [x, y])[0]
np.testing.assert_array_equal(expected, np.where(y > 0, x * y * y, 0))
for name in ("cpu", "sim"):
    device = open_device(name)
    plan = Plan(function, device)
    np.testing.assert_array_equal(to_numpy(plan.run([from_numpy(x, device), from_numpy(y, device)])[0]), expected)
    selects = sum(op.name == "array.select" for op in plan.lowered.function.walk())
    print(name, "selects", selects)
"""


def test_operator_and_pass_of_a_plugin_work_on_devices(site: Site, tmp_path: Path) -> None:
    site.install("acme_gates = oarlock_acme.passes")
    program = tmp_path / "program.txt"
    program.write_text(PROGRAM)
    done = site.run(RUN, str(program))
    assert done.returncode == 0, done.stderr
    # The pass applies to targets in LLVM alone: there both products are gates.
    assert done.stdout.splitlines() == ["cpu selects 2", "sim selects 1"]
    done = site.inspect(str(program), "--passes", "--print-after", "acme_gates", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "acme_gates" in done.stdout and "gated 1" in done.stdout
    between = done.stdout.split("\n\nafter acme_gates\n")[1].split("\n\n")[0]
    assert between.count("acme.gate") == 2 and "array.relu" not in between
    done = site.inspect(str(program), "--pipeline", "-acme_gates", "--passes", "--quiet")
    assert "gated" not in done.stdout, done.stderr


def test_pass_that_cannot_be_loaded_is_told_and_left_out(site: Site, tmp_path: Path) -> None:
    site.install("acme_broken = oarlock_acme.broken", "acme_other = oarlock_acme.passes")
    program = tmp_path / "program.txt"
    program.write_text(PROGRAM)
    done = site.inspect(str(program), "--quiet")
    assert done.returncode == 0, done.stderr
    assert "compiled without the pass acme_broken" in done.stderr and "libacme.so is missing" in done.stderr
    assert "expected an oarlock.ir.Pass called 'acme_other'" in done.stderr


def test_failing_pass_of_a_plugin_leaves_a_reproducer(site: Site, tmp_path: Path) -> None:
    site.install("acme_fails = oarlock_acme.failing")
    program = tmp_path / "program.txt"
    program.write_text(PROGRAM.replace("array.relu", "array.cos"))
    done = site.inspect(str(program), "--quiet")
    assert done.returncode == 2
    assert "pass acme_fails failed: ZeroDivisionError: cosines are not for us" in done.stderr
    (path,) = (site.folder / "cache" / "reproducers").iterdir()
    assert f"oarlock inspect {path}" in done.stderr
    again = site.inspect(str(path), "--quiet")
    assert again.returncode == 2
    assert "pass acme_fails failed: ZeroDivisionError: cosines are not for us" in again.stderr
    assert len(list(path.parent.iterdir())) == 1
