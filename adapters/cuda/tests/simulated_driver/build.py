"""Builds what the tests run instead of a GPU: pycuda from source, and simulated libraries behind it. Linux, g++.

``python build.py [FOLDER]`` builds what is missing and prints the environment variables that a process needs to see two
simulated CUDA devices. pycuda and the adapter run unmodified; what they call is simulated, and no GPU is involved.

Kept in FOLDER (by default ``cuda-simulated`` in the cache folder that OARLOCK_CACHE_DIR names): pycuda's wheel, which
takes minutes to build and is for any simulation, and what was built of these sources.
"""

from __future__ import annotations

import fcntl
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
_SOURCES = tuple(sorted(path.name for path in HERE.iterdir() if path.suffix in (".cpp", ".h", ".py")))
_DRIVER = tuple(HERE / f"{name}.cpp" for name in ("devices", "graphs", "memory", "modules", "streams"))
_FLAGS = ("-std=c++17", "-O2", "-fPIC")
_LIBRARIES = {"nvidia-cuda-nvrtc": "libnvrtc.so.13", "nvidia-cublas": "libcublas.so.13"}
"""What NVIDIA has wheels of, and the library of each that the adapter loads."""


class BuildError(Exception):
    """A part cannot be built here; the text says which, and why."""


def environment(folder: Path) -> dict[str, str]:
    """The variables of a process that sees the simulated devices; builds what ``folder`` lacks."""
    folder = folder.resolve()
    made = folder / _fingerprint()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # processes that begin together build once
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
    include = include_folder()
    with tempfile.TemporaryDirectory(dir=made.parent) as name:
        work = Path(name)
        parts = work / "parts"
        (parts / "lib").mkdir(parents=True)
        wheel = pycuda_wheel(made.parent, work, include)
        _run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", parts / "site", wheel)
        (module,) = (parts / "site" / "pycuda").glob("_driver*.so")
        _driver(work, parts / "lib" / "libcuda.so.1", module, include)
        _run("g++", *_FLAGS, "-shared", "-o", parts / "lib" / "libnvrtc.so.13", HERE / "nvrtc.cpp", "-ldl")
        cublas = (f"-I{include}", HERE / "cublas.cpp", "-L", parts / "lib", "-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN")
        _run("g++", *_FLAGS, "-O3", "-shared", "-o", parts / "lib" / "libcublas.so.13", *cublas)
        for header in ("device.h", "positions.h"):
            shutil.copy(HERE / header, parts / "lib")
        _announce(parts)
        (parts / "complete").touch()
        shutil.rmtree(made, ignore_errors=True)
        parts.rename(made)


def include_folder() -> Path:
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


def pycuda_wheel(cache: Path, work: Path, include: Path) -> Path:
    """pycuda, built against an empty library, whose symbols it binds when it is loaded. Kept between builds.

    The linker would leave out a library of which nothing is used: hence --no-as-needed.
    """
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
        _run(*pip, "wheel", "-q", "--no-deps", "-w", work / "wheel", ".", cwd=source, LDFLAGS="-Wl,--no-as-needed")
        kept.mkdir(exist_ok=True)
        for built in (work / "wheel").glob("*.whl"):
            shutil.copy(built, kept)
    return next(kept.glob("*.whl"))


def _driver(work: Path, target: Path, module: Path, include: Path) -> None:
    """libcuda.so.1: the simulated calls, and for all else that pycuda binds a function that says "not supported"."""
    objects = [work / f"{source.stem}.o" for source in _DRIVER]
    for source, made in zip(_DRIVER, objects, strict=True):
        _run("g++", *_FLAGS, "-c", f"-I{include}", "-o", made, source)
    defined = set().union(*(_symbols("--defined-only", each) for each in objects))
    rest = work / "rest.cpp"
    missing = sorted(_symbols("-D", "--undefined-only", module) - defined)
    rest.write_text("".join(f'extern "C" int {name}() {{ return 801; }}\n' for name in missing))
    options = ("-shared", "-Wl,-soname,libcuda.so.1", "-ldl", "-lpthread")
    _run("g++", *_FLAGS, "-o", target, *objects, rest, *options)


def _symbols(*asked: Path | str) -> set[str]:
    lines = _run("nm", *asked).splitlines()
    return {name for line in lines if line and (name := line.split()[-1].partition("@")[0]).startswith("cu")}


def _announce(parts: Path) -> None:
    """Metadata by which the adapter finds the simulated libraries as it finds those in NVIDIA's wheels."""
    for wheel, library in _LIBRARIES.items():
        info = parts / "site" / f"{wheel.replace('-', '_')}-0.0.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {wheel}\nVersion: 0.0.0\n")
        (info / "RECORD").write_text(f"../lib/{library},,\n")


def _run(*command: Path | str, cwd: Path | None = None, **variables: str) -> str:
    settings = {**os.environ, **variables}
    try:
        done = subprocess.run(
            [str(c) for c in command], cwd=cwd, env=settings, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is not on the path") from error
    if done.returncode:
        told = (done.stdout + done.stderr)[-3000:]
        raise BuildError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{told}")
    return done.stdout


def default_folder() -> Path:
    """Where builds are kept unless said otherwise: in the cache folder of the project."""
    return Path(os.environ.get("OARLOCK_CACHE_DIR") or ".cache/oarlock") / "cuda-simulated"


if __name__ == "__main__":
    for name, value in environment(Path(sys.argv[1]) if len(sys.argv) > 1 else default_folder()).items():
        print(f"export {name}={value}")
