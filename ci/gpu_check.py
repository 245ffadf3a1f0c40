"""Checks the cuda adapter on a machine with an NVIDIA GPU and no network: certificate, tables, all in under 8 minutes.

    ci/gpu_check --prepare FOLDER       with a network: wheels, models and this script, to be carried over (minutes);
                                        --cublas: cuBLAS too, 424 MiB
    FOLDER/gpu_check [--output OUT]     with a GPU: installs from FOLDER, certifies at the quick setting, measures
    ci/gpu_check --plan                 the steps and what each may take

Needs Python's standard library and pip alone; both machines have the same Python and the same kind of system, and the
GPU's machine has NVIDIA's driver. PyTorch is compared with where it is installed there. Each step has a deadline; what
is there when it passes is kept, and the summary says what was cut short. Exit status: 0 conformant, 1 not, 2 wrong
usage, 3 no GPU here.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOTAL_S = 470
"""Seconds for all steps together."""
_CARRIED = ("gpu_check", "gpu_check.py", "gpu_bench.py")
_EXTRAS = "cuda,onnx,certify"
_CUBLAS = "nvidia-cublas"
_ABOUT = "about.json"
_FETCH = """
from oarlock_conformance.models.fetch import fetch
from oarlock_conformance.models.manifest import MODELS
for name in MODELS:
    print(name, fetch(name))
"""
_MAIN = "import sys; from oarlock.cli import main; sys.exit(main())"


class Trouble(Exception):
    """What a person has to put right; the text says how."""


@dataclass(frozen=True, slots=True)
class Step:
    """``command`` gets the Python that has Oarlock on its path; ``limit_s``: seconds that it may take.

    ``needed``: the steps behind it make no sense without it.
    """

    name: str
    about: str
    limit_s: int
    command: Callable[[Path, Path], list[str]]
    needed: bool = False


def _install(carried: Path, output: Path) -> list[str]:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    names = [f"oarlock[{_EXTRAS}]", *([_CUBLAS] if list((carried / "wheels").glob("nvidia_cublas-*.whl")) else [])]
    return [*pip, "--find-links", str(carried / "wheels"), "--target", str(output / "site"), *names]


def _oarlock(*words: str) -> list[str]:
    return [sys.executable, "-c", _MAIN, *words]


STEPS = (
    Step("install", "Oarlock, pycuda and NVRTC from the carried wheels", 70, _install, needed=True),
    Step("doctor", "what Oarlock says of the adapter and its devices", 20, lambda c, o: _oarlock("doctor", "cuda")),
    Step(
        "certify", "oarlock certify cuda --quick: every level, the models from the carried files", 290,
        lambda c, o: _oarlock(
            "certify", "cuda", "--quick", "--jobs", "4", "--report", str(o / "certificate"), "--allow-unavailable"
        ),
    ),
    Step(
        "bench", "kernels against PyTorch, if it is here, and against the device's measured limits", 80,
        lambda c, o: [sys.executable, str(HERE / "gpu_bench.py"), "--output", str(o / "bench")],
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step went: its exit status (None: its time was over), and the seconds it took."""

    name: str
    status: int | None
    seconds: float

    @property
    def text(self) -> str:
        return "cut short" if self.status is None else "done" if self.status == 0 else f"exit status {self.status}"


# --- on the machine with the GPU --------------------------------------------------------------------------------------


def device_count() -> int:
    """The CUDA devices that the driver lists; raises Trouble where there is no driver, or it does not answer."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError as error:
        raise Trouble(f"no NVIDIA driver ({error}): this check needs a machine with an NVIDIA GPU") from error
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status == 100 or (not status and not count.value):
        raise Trouble("NVIDIA's driver lists no device: this check needs a machine with an NVIDIA GPU")
    if status:
        raise Trouble(f"NVIDIA's driver does not work here (cuInit gives {status}): update or reinstall it")
    return count.value


def check_carried(carried: Path) -> None:
    """Raise Trouble unless ``carried`` was prepared for this Python."""
    about = carried / _ABOUT
    if not about.is_file():
        raise Trouble(
            f"{carried} holds no {_ABOUT}: run `ci/gpu_check --prepare FOLDER` on a machine with a network, carry it "
            "here, and run FOLDER/gpu_check"
        )
    prepared = json.loads(about.read_text())["python"]
    if prepared != python_tag():
        raise Trouble(f"{carried} is for {prepared}, and this is {python_tag()}: prepare it with the Python used here")


def python_tag() -> str:
    """What wheels depend on: Python's version and the system."""
    return f"{sysconfig.get_config_var('SOABI') or sys.implementation.cache_tag} on {sysconfig.get_platform()}"


def check(carried: Path, output: Path) -> int:
    """Run the steps; the logs, the certificate, the tables and a summary are in ``output``."""
    output.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(output / "site"), os.environ.get("PYTHONPATH")))),
        "OARLOCK_CACHE_DIR": str(carried / "cache"),
    }
    began = time.monotonic()
    ended: list[Ended] = []
    for step in STEPS:
        left = TOTAL_S - (time.monotonic() - began)
        if left < 5:
            ended.append(Ended(step.name, None, 0.0))
            write_summary(output, ended)
            continue
        print(f"{step.name}: {step.about}; {min(step.limit_s, left):.0f} s at most", flush=True)
        ended.append(run_step(step, step.command(carried, output), min(step.limit_s, left), output, environment))
        print(f"{step.name}: {ended[-1].text}, {ended[-1].seconds:.0f} s", flush=True)
        write_summary(output, ended)
        if step.needed and ended[-1].status != 0:
            print(f"see {output / step.name}.log", file=sys.stderr)
            return 1
    return 0 if all(each.status == 0 for each in ended) else 1


def run_step(step: Step, command: Sequence[str], limit_s: float, output: Path, environment: dict[str, str]) -> Ended:
    """Run one step with its own log; its processes are interrupted, then killed, when its time is over."""
    start = time.monotonic()
    with (output / f"{step.name}.log").open("w") as log:
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        try:
            status: int | None = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
            for number in (signal.SIGINT, signal.SIGKILL):
                os.killpg(child.pid, number)
                try:
                    child.wait(5)
                    break
                except subprocess.TimeoutExpired:
                    continue
    return Ended(step.name, status, time.monotonic() - start)


def write_summary(output: Path, ended: Sequence[Ended]) -> None:
    """What was done so far, as JSON and as a page."""
    rows = [{"step": each.name, "status": each.status, "seconds": round(each.seconds, 1)} for each in ended]
    (output / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")
    lines = ["# The cuda adapter on a GPU", "", "| step | how it ended | seconds |", "|---|---|---|"]
    lines += [f"| {each.name} | {each.text} | {each.seconds:.0f} |" for each in ended]
    table = output / "bench.md"
    lines += ["", table.read_text()] if table.is_file() else []
    (output / "summary.md").write_text("\n".join(lines) + "\n")


# --- on the machine with the network ----------------------------------------------------------------------------------


def prepare(folder: Path, cublas: bool = False) -> None:
    """Fill ``folder`` with all that ``check`` needs, and cuBLAS if asked. Raises Trouble for what fails."""
    root = HERE.parent
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    _run("Oarlock's wheel", [*pip, "wheel", "--quiet", "--no-deps", "-w", str(wheels), str(root)])
    _pycuda(root, folder, wheels)
    (wheel,) = wheels.glob("oarlock-*.whl")
    wanted = [f"{wheel}[{_EXTRAS}]", *([_CUBLAS] if cublas else [])]
    _run("the wheels it needs", [*pip, "wheel", "--quiet", "-w", str(wheels), "--find-links", str(wheels), *wanted])
    environment = {**os.environ, "OARLOCK_CACHE_DIR": str(folder / "cache")}
    with tempfile.TemporaryDirectory() as site:
        _run("installing them", [*_install(folder, Path(site)), "--upgrade"])
        environment["PYTHONPATH"] = str(Path(site) / "site")
        _run("the models", [sys.executable, "-c", _FETCH], environment)
    for name in _CARRIED:
        shutil.copy(HERE / name, folder)
    (folder / _ABOUT).write_text(json.dumps({"python": python_tag()}) + "\n")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 2**20:.0f} MiB for {python_tag()}; carry it over, and run {folder.name}/gpu_check there")


def _pycuda(root: Path, folder: Path, wheels: Path) -> None:
    """pycuda's wheel: PyPI has its source alone. The tests' simulated driver builds the same one."""
    place = root / "adapters" / "cuda" / "tests" / "simulated_driver" / "build.py"
    spec = importlib.util.spec_from_file_location("oarlock_cuda_build", place)
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    print("building pycuda: a minute or two", flush=True)
    try:
        with tempfile.TemporaryDirectory() as work:
            shutil.copy(build.pycuda_wheel(folder, Path(work), build.include_folder()), wheels)
    except build.BuildError as error:
        raise Trouble(f"pycuda cannot be built here: {error}") from error


def _run(what: str, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    print(what, flush=True)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Trouble(f"{what}: {' '.join(command[:6])} ... ended with {done.returncode}:\n{done.stderr[-2000:]}")


def plan() -> str:
    """The steps as a table."""
    lines = [f"{step.name:9} {step.limit_s:4} s  {step.about}" for step in STEPS]
    return "\n".join([*lines, f"{'together':9} {TOTAL_S:4} s  at most"])


def main(given: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="gpu_check", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--prepare", type=Path, metavar="FOLDER", help="fill FOLDER; needs a network and no GPU")
    parser.add_argument("--cublas", action="store_true", help="with --prepare: carry cuBLAS too")
    parser.add_argument("--carried", type=Path, default=HERE, metavar="FOLDER", help="what --prepare filled")
    parser.add_argument("--output", type=Path, default=Path("gpu-check"), metavar="OUT", help="where results go")
    parser.add_argument("--plan", action="store_true", help="print the steps, and stop")
    asked = parser.parse_args(given)
    if asked.plan:
        print(plan())
        return 0
    try:
        if asked.prepare is not None:
            prepare(asked.prepare.resolve(), asked.cublas)
            return 0
        print(f"{device_count()} CUDA devices", flush=True)
    except Trouble as trouble:
        print(f"gpu_check: {trouble}", file=sys.stderr)
        return 1 if asked.prepare is not None else 3
    try:
        check_carried(asked.carried.resolve())
    except Trouble as trouble:
        print(f"gpu_check: {trouble}", file=sys.stderr)
        return 2
    return check(asked.carried.resolve(), asked.output.resolve())


if __name__ == "__main__":
    sys.exit(main())
