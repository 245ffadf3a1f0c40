"""The compile proof: every kernel through NVRTC for every architecture, with what its machine code uses.

    python adapters/cuda/tests/nvrtc_matrix.py --output docs/proof/nvrtc.json [--jobs 2] [--full] [--parts calls,...]

No GPU and no driver is needed. Writes the JSON file, and beside it a page with the same name and the ending .md. Exit
status 1 where a kernel does not compile, NVRTC remarks on one, or one is past a limit of its architecture.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from cubin import Report, Usage, read_log, read_usage
from nvrtc_kernels import PARTS, Collection, collect

from oarlock.codegen.pipeline import render
from oarlock.errors import CompileError
from oarlock.target import Target
from oarlock_conformance.case import Options
from oarlock_cuda import compiler
from oarlock_cuda.target import target_for

__all__ = ["ARCHITECTURES", "Collection", "Compiled", "Job", "compile_job", "faults", "jobs", "page", "run"]

ARCHITECTURES: dict[str, tuple[int, int]] = {"sm_75": (7, 5), "sm_80": (8, 0), "sm_90": (9, 0), "sm_100": (10, 0)}
"""Turing, Ampere, Hopper, Blackwell. CUDA 13 compiles for nothing older than sm_75."""
_TOGETHER = 12
"""Kernels of one compilation, as in the runtime."""
_THREAD_REGISTERS, _BLOCK_REGISTERS, _SHARED = 255, 65536, 48 << 10
"""Limits of all four: registers of a thread and of a block's threads together, shared bytes that need no opt-in."""
_GRANULE = 8
"""A thread's registers are handed out in multiples of this."""
_WORST = 12


@dataclass(frozen=True, slots=True)
class Job:
    """One compilation: ``threads`` are the threads of a block for each kernel in ``source``, by name."""

    arch: str
    flags: tuple[str, ...]
    source: str
    threads: dict[str, int]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What became of a job: usage and report by kernel, remarks of the compiler, or the ``error`` that it gave."""

    arch: str
    usage: dict[str, Usage]
    reports: dict[str, Report]
    remarks: str
    error: str
    seconds: float


def jobs(collection: Collection, arch: str) -> Iterator[Job]:
    """The compilations of a collection's kernels for ``arch``."""
    functions = list(collection.kernels.values())
    for start in range(0, len(functions), _TOGETHER):
        batch = functions[start : start + _TOGETHER]
        threads = {str(f.attributes["name"]): _product(f.attributes["block"]) for f in batch}
        yield Job(arch, collection.target.flags, render(batch, collection.target), threads)


def _product(block: Any) -> int:
    x, y, z = block
    return int(x) * int(y) * int(z)


def compile_job(job: Job) -> Compiled:
    """Compile a job, and read what its kernels use."""
    start = time.perf_counter()
    usage: dict[str, Usage] = {}
    reports: dict[str, Report] = {}
    remarks = error = ""
    try:
        binary, log = compiler.compile_cuda(job.source, job.arch, [*job.flags, "--ptxas-options=-v"])
        usage = read_usage(binary)
        reports, remarks = read_log(log)
    except CompileError as failure:
        error = str(failure)
    return Compiled(job.arch, usage, reports, remarks, error, time.perf_counter() - start)


def faults(job: Job, compiled: Compiled) -> list[str]:
    """What is wrong with a job's result; empty when every kernel compiled silently and is within the limits."""
    if compiled.error:
        return [f"{job.arch}: {', '.join(job.threads)}: {compiled.error}"]
    found = [f"{job.arch}: remarks on {', '.join(job.threads)}: {compiled.remarks}"] if compiled.remarks else []
    for name, threads in job.threads.items():
        usage = compiled.usage.get(name)
        problems = ["it is not in the machine code"] if usage is None else list(_excess(usage, threads))
        if usage is not None and compiled.reports.get(name) is not None:
            report = compiled.reports[name]
            said = (report.registers, report.shared, report.stack)
            if said != (usage.registers, usage.shared, usage.stack):
                problems.append(f"the assembler reports {said} registers, shared and stack bytes; its code has {usage}")
        found += [f"{job.arch}: {name}: {problem}" for problem in problems]
    return found


def _excess(usage: Usage, threads: int) -> Iterator[str]:
    if usage.threads != threads:
        yield f"__launch_bounds__ says {usage.threads} threads, a launch has {threads}"
    if usage.registers > _THREAD_REGISTERS:
        yield f"{usage.registers} registers a thread; there are {_THREAD_REGISTERS}"
    together = -(-usage.registers // _GRANULE) * _GRANULE * max(threads, 32)
    if together > _BLOCK_REGISTERS:
        yield f"{together} registers for {threads} threads; a block has {_BLOCK_REGISTERS}"
    if usage.shared > _SHARED:
        yield f"{usage.shared} bytes of shared memory; a block has {_SHARED}"


def run(
    parts: Sequence[str],
    options: Options,
    workers: int,
    say: Callable[[str], None],
    share: tuple[int, int] = (0, 1),
    architectures: Sequence[str] = tuple(ARCHITECTURES),
) -> dict[str, Any]:
    """The matrix as a JSON-ready dictionary; ``faults`` holds what is wrong."""
    start = time.perf_counter()
    targets = {arch: target_for(ARCHITECTURES[arch]) for arch in architectures}
    distinct: dict[Target, Target] = {}
    for target in targets.values():
        distinct.setdefault(replace(target, arch=""), target)  # lowering does not look at the architecture's name
    collections = dict(zip(distinct, collect(list(distinct.values()), parts, options, say, share), strict=True))
    collected = time.perf_counter() - start
    work = [job for arch, t in targets.items() for job in jobs(collections[replace(t, arch="")], arch)]
    say(f"{sum(len(job.threads) for job in work)} kernels to compile")
    rows: dict[str, list[tuple[str, Usage, Report]]] = {arch: [] for arch in architectures}
    seconds, wrong = dict.fromkeys(architectures, 0.0), []
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        pending = {pool.submit(compile_job, job): job for job in work}
        for number, done in enumerate(as_completed(pending), 1):
            job, compiled = pending[done], done.result()
            wrong += faults(job, compiled)
            seconds[job.arch] += compiled.seconds
            rows[job.arch] += [(n, u, compiled.reports[n]) for n, u in compiled.usage.items()]
            say(f"{number} of {len(work)} compilations, {len(wrong)} faults")
    return {
        "nvrtc": compiler.version(),
        "setting": "quick" if options.quick else "full",
        "parts": list(parts),
        "architectures": {arch: _summary(rows[arch], seconds[arch]) for arch in architectures},
        "collect_s": round(collected, 1),
        "wall_s": round(time.perf_counter() - start, 1),
        "cut_short": sorted({case for each in collections.values() for case in each.cut_short}),
        "faults": wrong,
    }


def _summary(rows: Sequence[tuple[str, Usage, Report]], seconds: float) -> dict[str, Any]:
    ranked = sorted(rows, key=lambda row: (-row[1].registers, row[0]))
    spilled = sorted((row for row in rows if row[2].spill_stores), key=lambda row: -row[2].spill_stores)
    registers = sorted(row[1].registers for row in rows)
    return {
        "kernels": len(rows),
        "registers": {"median": registers[len(registers) // 2], "most": registers[-1]} if registers else {},
        "shared_most": max((row[1].shared for row in rows), default=0),
        "stack_most": max((row[1].stack for row in rows), default=0),
        "spilling": len(spilled),
        "spill_stores": sum(row[2].spill_stores for row in rows),
        "compile_s": round(seconds, 1),
        "most_registers": [_row(*row) for row in ranked[:_WORST]],
        "most_spills": [_row(*row) for row in spilled[:_WORST]],
    }


def _row(name: str, usage: Usage, report: Report) -> dict[str, Any]:
    return {
        "name": name,
        "registers": usage.registers,
        "threads": usage.threads,
        "shared": usage.shared,
        "stack": usage.stack,
        "spill_stores": report.spill_stores,
        "spill_loads": report.spill_loads,
    }


def page(matrix: dict[str, Any]) -> str:
    """The matrix as a page for people."""
    lines = [
        "# Kernels through NVRTC",
        "",
        "Made by `python adapters/cuda/tests/nvrtc_matrix.py`: a compile proof. There was no GPU, and nothing was run.",
        f"NVRTC {matrix['nvrtc']}, {matrix['setting']} setting of the operators level, parts: "
        f"{', '.join(matrix['parts'])}. CUDA 13 compiles for nothing older than sm_75 (Turing).",
        "",
        "| architecture | kernels | registers: median, most | shared, most | stack, most | with spills | compiler |",
        "|---|---|---|---|---|---|---|",
    ]
    for arch, each in matrix["architectures"].items():
        lines.append(
            f"| {arch} | {each['kernels']:,} | {each['registers']['median']}, {each['registers']['most']} | "
            f"{each['shared_most']:,} B | {each['stack_most']:,} B | {each['spilling']} | {each['compile_s']:,.0f} s |"
        )
    lines += [
        "",
        "Checked of each: it compiles without a remark; at most 255 registers a thread, 65,536 for the threads of a "
        "block, 48 KiB of shared memory; `__launch_bounds__` is the block that it is launched with; registers, shared "
        "memory and stack in the machine code are what the assembler reports.",
        "",
        f"Collecting the kernels took {matrix['collect_s']:,.0f} s, all of it {matrix['wall_s']:,.0f} s, by the clock, "
        "whatever else the machine did. "
        f"Faults: {len(matrix['faults'])}.",
    ]
    if matrix["cut_short"]:
        lines += [
            "",
            f"Cases that failed on cpu:0 and whose later programs are missing: {', '.join(matrix['cut_short'])}.",
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the whole matrix, or the parts asked for."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--jobs", type=int, default=2, help="compilations at a time")
    parser.add_argument(
        "--full", action="store_true", help="every call of the operators level, not the quick setting's"
    )
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    asked = parser.parse_args()
    parts = asked.parts.split(",")
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    asked.output.parent.mkdir(parents=True, exist_ok=True)  # now, and not when there is something to lose
    last = [0.0]

    def say(text: str) -> None:
        if time.monotonic() - last[0] > 5:
            last[0] = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    matrix = run(parts, Options(quick=not asked.full), asked.jobs, say)
    asked.output.write_text(json.dumps(matrix, indent=1) + "\n")
    asked.output.with_suffix(".md").write_text(page(matrix))
    print(page(matrix))
    for fault in matrix["faults"]:
        print(fault, file=sys.stderr)
    return 1 if matrix["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
