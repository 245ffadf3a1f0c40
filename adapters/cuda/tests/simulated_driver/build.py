"""Builds what the tests run instead of a GPU: pycuda from source, and simulated libraries behind it. Linux, g++.

``python build.py [FOLDER]`` builds what is missing and prints the environment variables that a process needs to see two
simulated CUDA devices. pycuda and the adapter run unmodified; what they call is simulated, and no GPU is involved.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from importlib.metadata import files
from pathlib import Path

HERE = Path(__file__).parent
PYCUDA = "pycuda==2026.1"
_SOURCES = ("build.py", "device.h", "driver.cpp", "fibres.h", "nvrtc.cpp")
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared")
_WHEEL = "nvidia_cuda_nvrtc-0.0.0.dist-info"


class BuildError(Exception):
    """A part cannot be built here; the text says which, and why."""


def environment(folder: Path) -> dict[str, str]:
    """The variables of a process that sees the simulated devices; builds what ``folder`` lacks."""
    made = folder / _fingerprint()
    if not (made / "complete").exists():
        _build(made)
    known = os.environ.get("PYTHONPATH")
    return {
        "LD_LIBRARY_PATH": str(made / "lib"),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(made / "site"), known))),
    }


def _fingerprint() -> str:
    digest = hashlib.sha256(f"{PYCUDA} {sys.version}".encode())
    for name in _SOURCES:
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:16]


def _build(made: Path) -> None:
    """Build in a folder beside ``made``, and move it there when it is whole."""
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as name:
        work = Path(name)
        (work / "lib").mkdir()
        include = _include()
        wheel = _pycuda_wheel(made.parent, work, include)
        _run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(work / "site"), str(wheel))
        (module,) = (work / "site" / "pycuda").glob("_driver*.so")
        _driver(work, module, include)
        _compile(work / "lib" / "libnvrtc.so.13", HERE / "nvrtc.cpp", "-ldl")
        shutil.copy(HERE / "device.h", work / "lib")
        _announce(work)
        (work / "complete").touch()
        try:
            work.rename(made)
        except OSError:  # another process was faster
            if not (made / "complete").exists():
                raise
        else:
            work.mkdir()  # for the context to remove


def _include() -> Path:
    """The folder of cuda.h."""
    for wheel in ("nvidia-cuda-runtime", "nvidia-cuda-profiler-api"):
        try:
            every = [Path(str(each.locate())) for each in files(wheel) or []]
            found = [path for path in every if path.name in ("cuda.h", "cudaProfiler.h")]
        except ModuleNotFoundError as error:
            raise BuildError(f"{wheel} is not installed: pip install oarlock[test-cuda]") from error
        if not found:
            raise BuildError(f"{wheel} holds no header")
    return found[0].parent


def _pycuda_wheel(cache: Path, work: Path, include: Path) -> Path:
    """pycuda, built against an empty library: its symbols are bound when it is loaded. Kept between builds."""
    tag = f"{PYCUDA.replace('==', '-')}-{sysconfig.get_config_var('SOABI')}"
    kept = cache / tag
    if not list(kept.glob("*.whl")):
        stub = work / "stub"
        stub.mkdir()
        (stub / "empty.c").write_text("int oarlock_nothing;\n")
        _run("gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", stub / "libcuda.so", stub / "empty.c")
        pip = (sys.executable, "-m", "pip")
        _run(*pip, "download", "-q", "--no-deps", "--no-binary", "pycuda", "-d", work / "sdist", PYCUDA)
        (archive,) = (work / "sdist").glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(work / "sdist", filter="data")
        (source,) = (p for p in (work / "sdist").iterdir() if p.is_dir())
        options = (f"--cuda-root={include.parent}", "--no-cuda-enable-curand", f"--cudadrv-lib-dir={stub}")
        _run(sys.executable, "configure.py", *options, f"--cudart-lib-dir={stub}", "--cxxflags=-O1", cwd=source)
        _run(*pip, "wheel", "-q", "--no-deps", "-w", work / "wheel", ".", cwd=source)
        kept.mkdir(exist_ok=True)
        for built in (work / "wheel").glob("*.whl"):
            shutil.copy(built, kept)
    return next(kept.glob("*.whl"))


def _driver(work: Path, module: Path, include: Path) -> None:
    """libcuda.so.1: driver.cpp, and for all else that pycuda binds a function that says "not supported"."""
    target = work / "lib" / "libcuda.so.1"
    options = (f"-I{include}", "-Wl,-soname,libcuda.so.1", "-ldl", "-lpthread")
    _compile(target, HERE / "driver.cpp", *options)
    missing = sorted(_symbols(module, "--undefined-only") - _symbols(target, "--defined-only"))
    rest = work / "rest.cpp"
    rest.write_text("".join(f'extern "C" int {name}() {{ return 801; }}\n' for name in missing))
    _compile(target, HERE / "driver.cpp", str(rest), *options)


def _symbols(library: Path, which: str) -> set[str]:
    lines = _run("nm", "-D", which, library).splitlines()
    return {name for line in lines if (name := line.split()[-1].partition("@")[0]).startswith("cu")}


def _announce(work: Path) -> None:
    """Metadata by which the adapter finds the simulated NVRTC as it finds the one in NVIDIA's wheel."""
    info = work / "site" / _WHEEL
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-cuda-nvrtc\nVersion: 0.0.0\n")
    (info / "RECORD").write_text("../lib/libnvrtc.so.13,,\n")


def _compile(target: Path, *arguments: Path | str) -> None:
    _run("g++", *_FLAGS, "-o", target, *arguments)


def _run(*command: Path | str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is not on the path") from error
    if done.returncode:
        told = (done.stdout + done.stderr)[-3000:]
        raise BuildError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{told}")
    return done.stdout


if __name__ == "__main__":
    for name, value in environment(Path(sys.argv[1] if len(sys.argv) > 1 else ".cache/cuda-simulated")).items():
        print(f"export {name}={value}")
