"""Writes docs/walk.md: one small program followed through every stage, by running it. ``--check`` only compares."""

from __future__ import annotations

import argparse
import difflib
import linecache
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import oarlock as ol
from oarlock.cli.stages import Choice, array_stage, fused_stage, kernel_stage, plan_stage, source_stage
from oarlock.ir import Operation
from oarlock.ir.interpret import interpret
from oarlock.ir.passes import PassManager
from oarlock.ir.text import print_op
from oarlock.ops import array_context
from oarlock.program.plans import counters
from oarlock.program.sites import describe
from oarlock.program.tape import Tape
from oarlock.runtime import Device, open_device
from oarlock.runtime.execute import plan_for
from oarlock.transforms import standard_passes

PAGE = Path(__file__).resolve().parent.parent / "docs" / "walk.md"
CPU, OPENCL = "cpu:0", "opencl:0"
FIRST = Choice("reduce_sum")
"""The first of the two kernels, which is shown in full."""

PROGRAM = """\
import oarlock as ol


def program(x, b, factor):
    y = x * factor + b
    z = y - ol.mean(y, axis=1, keepdims=True)
    return ol.max(z, axis=0)
"""
X = [[1.0, 2.0, 4.0], [0.5, -1.0, 3.0]]
B = [0.25, 0.0, -0.25]

MACHINE = (r"^attributes #0 = .*$", "attributes #0 = { nounwind }")
"""What in the text depends on the machine (how wide its vectors should be), and what stands for it in a comparison."""


def main() -> int:
    """Write the page, or compare it; exit status 1 where it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with docs/walk.md instead of writing it")
    arguments = parser.parse_args()
    page = make()
    if not arguments.check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    there = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    difference = list(difflib.unified_diff(portable(there), portable(page), "docs/walk.md", "made now", lineterm=""))
    if difference:
        print("\n".join(["docs/walk.md is out of date: run python ci/make_walk.py", *difference]), file=sys.stderr)
    return 1 if difference else 0


def portable(page: str) -> list[str]:
    """The lines of the page without what depends on the machine."""
    return re.sub(*MACHINE, page, flags=re.MULTILINE).splitlines()


def load_program() -> Callable[..., Any]:
    """The program as a function whose lines can be shown."""
    name = "program.py"
    linecache.cache[name] = (len(PROGRAM), None, PROGRAM.splitlines(keepends=True), name)
    space: dict[str, Any] = {}
    exec(compile(PROGRAM, name, "exec"), space)
    function: Callable[..., Any] = space["program"]
    return function


def operands(device: str) -> tuple[Any, Any]:
    """x and b on ``device``."""
    return ol.asarray(X, dtype=ol.float32, device=device), ol.asarray(B, dtype=ol.float32, device=device)


def tape_lines(tape: Tape) -> Iterator[str]:
    """The entries of a tape: number, call, operands, and the line that recorded it."""
    for number, (entry, site) in enumerate(zip(tape.entries, tape.sites, strict=True)):
        call, *used = entry
        attributes = "".join(f", {key}={value}" for key, value in call.attributes.items())
        what = f"{call.name}({', '.join(f'#{value}' for value in used)}{attributes})"
        where = f"   {describe(site)}" if site is not None else "   an input"
        kinds = ", ".join(map(str, call.results))
        yield f"#{number}  {what:<40} {kinds:<22}{where}"


@contextmanager
def driver_calls(device: Device, log: list[str]) -> Iterator[None]:
    """Note the launches and replays that reach the driver of ``device``."""
    driver: Any = device.driver
    names: dict[int, str] = {}

    def name(handle: object) -> str:
        return names.setdefault(id(handle), "ABCDEFGH"[len(names)])

    def launch(stream: Any, program: Any, entry: str, grid: Any, block: Any, buffers: Any, scalars: bytes) -> None:
        bound = ", ".join(f"({name(handle)}, {base}, {extent})" for handle, base, extent in buffers)
        log.append(
            f"launch(stream={stream}, entry={entry!r},\n       grid={grid}, block={block},\n"
            f"       buffers=[{bound}],\n       scalars={scalars.hex(' ', 4)!r})"
        )
        originals["launch"](stream, program, entry, grid, block, buffers, scalars)

    def replay(stream: Any, plan: Any, bindings: Any, scalars: Any) -> None:
        patches = ", ".join(f"(step {step}, offset {offset}, {data.hex()})" for step, offset, data in scalars)
        log.append(f"replay(stream={stream}, bindings=[{', '.join(map(name, bindings))}], scalars=[{patches}])")
        originals["replay"](stream, plan, bindings, scalars)

    wrapped = {"launch": launch, "replay": replay}
    originals = {key: getattr(driver, key) for key in wrapped if hasattr(driver, key)}
    for key in originals:
        setattr(driver, key, wrapped[key])
    try:
        yield
    finally:
        for key in originals:
            delattr(driver, key)


def block(text: str, language: str = "") -> str:
    """A fenced block."""
    return f"```{language}\n{text.rstrip()}\n```"


def pass_lines(function: Operation) -> Iterator[str]:
    """What each pass did, without times."""
    manager = PassManager(array_context(), standard_passes())
    manager.run(function.clone())
    for result in manager.results:
        counts = ", ".join(f"{name} {count}" for name, count in result.statistics.items() if count) or "nothing to do"
        yield f"{result.name:<12} {result.operations_before} -> {result.operations_after} operations; {counts}"


def signature_lines(function: Operation, device: Device) -> Iterator[str]:
    """The scalar blocks of the plan's kernels."""
    for step in plan_for(function, device).steps:
        signature = step.signature  # type: ignore[union-attr]  # this plan has launches alone
        fields = ", ".join(f"{field.name} {field.dtype} at {field.offset}" for field in signature.scalars)
        yield f"{signature.name}: {signature.scalar_bytes} bytes\n    {fields}"


def make() -> str:
    """The page."""
    program = load_program()
    cpu, opencl = open_device(CPU), open_device(OPENCL)
    x, b = operands(CPU)
    top = program(x, b, 2)
    tape = top._tape
    recorded = list(tape_lines(tape))
    key = (tuple(tape.entries), (top._number,))
    calls: dict[str, list[str]] = {CPU: [], OPENCL: []}
    with driver_calls(cpu, calls[CPU]):
        shown = repr(top)
    function = top._place.plans[key].function
    built = counters.built
    again = repr(program(x, b, 5))
    rebuilt = counters.built - built
    with driver_calls(opencl, calls[OPENCL]):
        elsewhere = repr(program(*operands(OPENCL), 2))
    oracle = interpret(function, [np.float32(X), np.float32(2), np.float32(B)])[0]
    return PAGE_TEXT.format(
        program=block(PROGRAM, "python"),
        x=X,
        b=B,
        tape=block("\n".join(recorded)),
        recorded=block(print_op(function, locations=True)),
        passes=block("\n".join(pass_lines(function))),
        after=block(array_stage(function, Choice(), False).text.split("after passes\n")[1]),
        fused=block(fused_stage(function, cpu, Choice()).text),
        kernel=block(kernel_stage(function, cpu, FIRST).text),
        llvm=block(source_stage(function, cpu, FIRST).text, "llvm"),
        opencl=block(source_stage(function, opencl, FIRST).text, "c"),
        plan=block(plan_stage(function, cpu, Choice()).text),
        opencl_plan=block(plan_stage(function, opencl, Choice()).text),
        replay=block("\n\n".join(calls[CPU])),
        scalars=block("\n".join(signature_lines(function, opencl))),
        launch=block("\n\n".join(calls[OPENCL])),
        shown=block(f">>> program(x, b, 2)\n{shown}"),
        again=block(f">>> program(x, b, 5)\n{again}"),
        rebuilt=rebuilt,
        elsewhere=block(f">>> program(x, b, 2)        # x and b on {OPENCL}\n{elsewhere}"),
        oracle=block(f"{oracle}"),
    )


PAGE_TEXT = """\
# A program, followed down

This page is made by `python ci/make_walk.py`, which runs the program below and prints what each room of the house hands
to the next. Nothing here is written by hand but the sentences in between. `oarlock inspect` prints the same stages for
any model; [compiler.md](compiler.md) says what each of them is for.

{program}

`x` is `{x}`, `b` is `{b}`, both float32; `factor` is 2.

## 1. The tape

Nothing runs when `program` is called: each operator goes to the tape of its thread and device. An entry is a call
(operator, attributes, inferred result types, shared by all entries that look alike) and the numbers of its operands.
The Python number 2 became an input, a *run-time scalar*. `y` and `z` are out of scope by now, so nobody will ask for
them.

{tape}

## 2. The recorded program

Looking at the result runs the tape. Its structure (calls and operand numbers) has not been seen before, so IR is built
from it, once: a function of `array` operators, each with the line of user code that recorded it.

{recorded}

## 3. After the passes

Composite operators become primitives (`mean` is a sum and a division), constants fold, what is equal is computed once,
and what nobody needs is dropped.

{passes}

{after}

## 4. Fusion groups

What can share a kernel does. The row sum and all that happens to the elements of a row form one group; the maximum goes
along the other dimension and needs whole columns, so it is a second one. Operators that only move or make elements
belong to no group: who reads them computes them (`inlines`).

{fused}

## 5. The kernel dialect

A group becomes a `kernel.function`: buffers, then an element offset for each, then sizes and the program's run-time
scalar (`%s4`). Sizes are parameters, so that other shapes share the kernel, which is named by a hash of its text. (This
one holds the 3.0 that `mean` divides by, so other row lengths have another.)
On the CPU a block is a function that works off some rows. A row of at most 64 elements is summed in order. `y` is
computed twice rather than stored.

The first kernel for `cpu:0`:

{kernel}

## 6. Source text

The renderer of the target's language prints it. For the CPU that is LLVM, with the C ABI of `oarlock.abi`: the three
outer loops walk a box of blocks, `begin` to `end`, so that whoever calls it can share the grid out among threads.

{llvm}

On OpenCL blocks have threads, so lowering chose another schedule for the same group: a thread takes a row, and strides
by the number of threads in the grid. Buffers and scalars are parameters.

{opencl}

## 7. The plan

A plan is the launches in order, and the memory of what lives between them. `z` lies in the arena, at offset 0, from
step 0 to step 1.

{plan}

The same program on `opencl:0`:

{opencl_plan}

## 8. Launches

The core packs one block of scalars per launch, at offsets that the kernel's signature gives:

{scalars}

The OpenCL adapter gets these calls. A to D are handles that it gave out; a buffer is (handle, base, extent) in bytes.
The last four bytes of the first scalar block are the 2.0 that the user wrote.

{launch}

The CPU adapter declares the capability `plans`: it got both launches when the plan was made, and gets one call now,
with the arena, the inputs and the result, and the bytes of the run-time scalar.

{replay}

## 9. The result

{shown}

On the other device:

{elsewhere}

The interpreter over NumPy, which is the oracle of the tests, gives for the same function:

{oracle}

With another factor the tape looks the same, so the plan is used again (functions built: {rebuilt}):

{again}
"""


if __name__ == "__main__":
    sys.exit(main())
