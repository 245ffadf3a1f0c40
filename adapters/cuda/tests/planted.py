"""Faults planted in the simulated driver, which the unmodified cases must catch through the unmodified adapter.

    python adapters/cuda/tests/planted.py [NAME ...]

The saboteurs of the conformance suite are broken simulators of another adapter; these break the CUDA driver below the
adapter, for the kinds of fault that a driver can have. Each is caught when the cases that look at what it breaks do not
all pass, and when it was active; without a fault all of them must pass. The exit status is 0 when all that is so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FAULTS", "SURFACES", "Caught", "Fault", "trial"]

SURFACES: dict[str, tuple[str, str]] = {
    "copies": ("runtime", "memory.cop*"),
    "peers": ("runtime", "memory.peer/*"),
    "fill": ("runtime", "memory.fill/*"),
    "allocate": ("runtime", "memory.allocate/*"),
    "free": ("runtime", "memory.info/*"),
    "streams": ("runtime", "stream.*"),
    "events": ("runtime", "event.*"),
    "completion": ("runtime", "event.query/means_done"),
    "time": ("runtime", "event.elapsed/*"),
    "programs": ("runtime", "program.*"),
    "launches": ("runtime", "launch.*"),
    "plans": ("runtime", "plan.*"),
    "rounding": ("operators", "rounding.*"),
    "elementary": ("operators", "exp/*"),
    "limits": ("runtime", "claims.limits/*"),
    "contexts": ("runtime", "devices.*"),
    "end": ("runtime", "life.exit/*"),
    "warps": ("operators", "reduce_sum/*"),
    "products": ("operators", "dot_general/*"),
    "halves": ("operators", "dot_general/float16/*"),
}
"""Level and pattern of the cases that look at one thing."""
_FULL = ("halves",)
"""Surfaces of which the quick setting has too few cases."""
_LIBRARY = ("products", "halves")
"""Surfaces of cuBLAS, which is given the cases' small products too."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is planted, by the name that the simulated driver knows it by."""

    surface: str
    what: str


FAULTS: dict[str, Fault] = {
    "copy_in_offset": Fault("copies", "a copy in ignores its offset"),
    "copy_in_short": Fault("copies", "a copy in of more than a page lacks its last byte"),
    "copy_in_unstaged": Fault("copies", "a copy in reads the host's memory after it has returned"),
    "copy_out_offset": Fault("copies", "a copy out ignores its offset"),
    "copy_out_now": Fault("copies", "a copy out does not wait for the stream's work before it"),
    "copy_offset": Fault("copies", "a copy within the device ignores the source's offset"),
    "peer_nothing": Fault("peers", "a copy from a peer does nothing"),
    "fill_zero": Fault("fill", "a fill sets 0"),
    "memory_twice": Fault("allocate", "an allocation is handed out twice"),
    "memory_misaligned": Fault("allocate", "an address is no multiple of 256"),
    "memory_other_error": Fault("allocate", "exhausted memory is told as an invalid value"),
    "memory_leak": Fault("free", "freed memory is not given back"),
    "memory_info_still": Fault("free", "free memory never shrinks"),
    "stream_done_early": Fault("streams", "a busy stream says that it is done"),
    "event_early": Fault("events", "an event completes when it is recorded"),
    "event_never": Fault("completion", "an event never completes"),
    "wait_nothing": Fault("events", "a stream does not wait for an event"),
    "elapsed_seconds": Fault("time", "elapsed time is in seconds, not milliseconds"),
    "elapsed_negative": Fault("time", "elapsed time runs backwards"),
    "module_stale": Fault("programs", "loading a module gives the first one again"),
    "launch_last_block": Fault("launches", "the last block does not run"),
    "launch_grid_y": Fault("launches", "all rows of a grid are row 0"),
    "launch_stale": Fault("launches", "a kernel runs with the arguments of its launch before"),
    "launch_other_stream": Fault("streams", "kernels run on another stream than they were given to"),
    "barrier_nothing": Fault("launches", "threads pass a barrier without waiting"),
    "graph_last_step": Fault("plans", "a graph lacks its last step"),
    "graph_update_nothing": Fault("plans", "updating a graph changes nothing"),
    "graph_other_stream": Fault("plans", "a graph runs on another stream than it was given to"),
    "attribute_shared": Fault("limits", "the device reports more shared memory than a block may have"),
    "context_other": Fault("contexts", "every device gives the first one's context"),
    "close_prints": Fault("end", "the driver prints when a context is released"),
    "exit_crashes": Fault("end", "the process crashes when the driver is unloaded"),
    "compile_shuffle": Fault("warps", "lanes of a warp exchange nothing"),
    "product_tf32": Fault("products", "cuBLAS rounds float32 to TF32's 10 bits of mantissa"),
    "product_half_sums": Fault("halves", "cuBLAS sums float16 in float16"),
    "product_other_stream": Fault("products", "cuBLAS works on another stream than it was given"),
    "product_transposed": Fault("halves", "cuBLAS reads a transposed operand as it lies"),
    "compile_contract": Fault("rounding", "NVRTC joins products and sums though it was told not to"),
    "compile_fast_math": Fault("elementary", "NVRTC reorders sums, and takes it that there is no NaN"),
}


@dataclass(frozen=True, slots=True)
class Caught:
    """Cases that ran, those that did not pass, and how often the fault was active."""

    cases: int
    failing: tuple[str, ...]
    reached: int


def trial(variables: Mapping[str, str], surface: str, fault: str = "") -> Caught:
    """The cases of a surface in a process with the simulation's ``variables`` and a fault, or without one."""
    level, pattern = SURFACES[surface]
    with tempfile.TemporaryDirectory() as name:
        reached = Path(name) / "reached"
        planted = {"OARLOCK_CUDA_SIM_FAULT": fault, "OARLOCK_CUDA_SIM_REACHED": str(reached)} if fault else {}
        if fault.startswith("compile_"):
            planted["OARLOCK_CACHE_DIR"] = str(Path(name) / "cache")  # or nothing would be compiled
        if surface in _LIBRARY:
            every = Path(__file__).parent / "every_product"
            planted["PYTHONPATH"] = os.pathsep.join((str(every), variables["PYTHONPATH"]))
        command = (
            *("-c", "import sys; from oarlock.cli import main; sys.exit(main())", "certify", "cuda:0"),
            *(() if surface in _FULL else ("--quick",)),
            *("--level", level, "--only", pattern, "--jobs", "1", "--deadline", "25", "--report", name, "--json"),
        )
        done = subprocess.run(
            [sys.executable, *command], env={**os.environ, **variables, **planted}, capture_output=True, text=True
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"certify ended with {done.returncode}: {done.stderr[-2000:]}")
        cases = [case for case in json.loads(done.stdout)["cases"] if case["state"] != "unsupported"]
        failing = tuple(case["id"] for case in cases if case["state"] != "passed")
        return Caught(len(cases), failing, len(reached.read_bytes()) if reached.exists() else 0)


def main() -> int:
    """Print the table of the faults named on the command line, or of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names: list[str] = parser.parse_args().names or list(FAULTS)
    if unknown := set(names) - set(FAULTS):
        parser.error(f"no fault is called {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    sys.path.insert(0, str(Path(__file__).parent / "simulated_driver"))
    from build import default_folder, environment

    variables = environment(default_folder())
    good = True
    for surface in dict.fromkeys(FAULTS[name].surface for name in names):
        healthy = trial(variables, surface)
        good &= not healthy.failing
        print(f"{surface}: {healthy.cases} cases without a fault, failing: {', '.join(healthy.failing) or 'none'}")
        for name in (name for name in names if FAULTS[name].surface == surface):
            caught = trial(variables, surface, name)
            good &= bool(caught.failing) and caught.reached > 0
            state = f"caught by {caught.failing[0]}" if caught.failing else "NOT CAUGHT"
            state = state if caught.reached else "NOT REACHED"
            print(f"  {name:<22}{FAULTS[name].what:<62}{state} ({len(caught.failing)} of {caught.cases})", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
