"""A failing program as one file that needs nothing but ``oarlock``: it runs the program and prints expected and got."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oarlock.ir import Operation, print_op

__all__ = ["reproduction", "write"]

_TEXT = '''"""A program that {device} computes wrongly: {reason}

Run it: python THIS_FILE [DEVICE]. It needs oarlock and the device's adapter. The exit status is 1 where they differ.
"""

import sys

import numpy as np

from oarlock.dtypes import by_name
from oarlock.ir import Block, Builder, Operation, Region, interpret, parse
from oarlock.ops import Record, array_context
from oarlock.ops.tolerance import check
from oarlock.runtime import from_numpy, open_device, to_numpy
from oarlock.runtime.execute import execute

PROGRAM = """
{program}
"""


def array(dtype, shape, content):
    """The array of these bytes, written in hexadecimal."""
    return np.frombuffer(bytes.fromhex(content), by_name(dtype).numpy).reshape(shape)


OPERANDS = [
{operands}
]
context = array_context()
device = open_device(sys.argv[1] if len(sys.argv) > 1 else "{device}")
np.seterr(all="ignore")


def alone(op):
    """One operator as a program."""
    block = Block([value.type for value in op.operands])
    builder = Builder(context, block)
    made = builder.create(op.name, list(block.args), dict(op.attributes), [result.type for result in op.results])
    builder.create("builtin.return", list(made.results))
    return Operation(context.definition("builtin.function"), (), {{"name": "alone"}}, (), [Region([block])])


def run(function, operands):
    """What the device gives."""
    return [to_numpy(x) for x in execute(function, device, [from_numpy(x, device) for x in operands])]


def same(left, right):
    """Whether two arrays hold the same values, NaN being equal to NaN."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    return bool(((left == right) | (np.isnan(left) & np.isnan(right))).all())


function = parse(PROGRAM.strip(), context)
block = function.regions[0].block
values = dict(zip(block.args, OPERANDS))
differs = False
for op in block.ops:
    if op is block.terminator:
        break
    given = [values[value] for value in op.operands]
    record = op.definition.interface(Record)
    found = run(alone(op), given) if given else list(record.reference((), op.attributes))
    wrong = check(record, given, op.attributes, found, flush=bool(device.target.flush_to_zero))
    if wrong:
        differs = True
        print(f"{{op.name}} by itself: {{wrong}}")
        print("  expected", record.reference(given, op.attributes))
        print("  got     ", found)
    values.update(zip(op.results, found))
by_one = [values[value] for value in block.terminator.operands]
fused = run(function, OPERANDS)
interpreted = interpret(function, OPERANDS)
for number, (got, single, expected) in enumerate(zip(fused, by_one, interpreted)):
    if same(got, single) and ({bounded} or same(got, expected)):
        continue
    differs = True
    print(f"result {{number}}")
    print("  expected (interpreted)       ", expected)
    print("  got (operators one by one)   ", single)
    print("  got (all operators together) ", got)
print(f"{{device.name}}: {{'the results differ' if differs else 'all is well'}}")
sys.exit(differs)
'''


def reproduction(
    device: str, function: Operation, operands: Sequence[npt.NDArray[Any]], exact: bool, reason: str
) -> str:
    """The file's text. ``exact``: results must be the interpreter's, not only meet each operator's tolerance."""
    rows = [
        f'    array("{_name(x)}", {x.shape}, "{np.ascontiguousarray(x).tobytes().hex()}"),  # {_brief(x)}'
        for x in operands
    ]
    return _TEXT.format(
        device=device,
        reason=reason.replace("\\", "/").replace('"""', "'''"),
        program=print_op(function).replace("\\", "\\\\").replace('"""', '\\"\\"\\"'),
        operands="\n".join(rows),
        bounded=not exact,
    )


def write(folder: str, case: str, text: str) -> str:
    """Write a reproduction into a report's folder; returns its path."""
    path = Path(folder) / f"{case.replace('/', '-')}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def _name(x: npt.NDArray[Any]) -> str:
    return "bool" if x.dtype == np.bool_ else str(x.dtype)


def _brief(x: npt.NDArray[Any]) -> str:
    return np.array2string(x.reshape(-1)[:6], separator=", ", max_line_width=1000).replace("\n", " ")
