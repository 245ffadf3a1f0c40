"""NVRTC, which needs no GPU, compiles what the CUDA dialect renders for every kernel operator."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from oarlock import dtypes
from oarlock.codegen.legalise import legalise
from oarlock.codegen.render import renderer
from oarlock.codegen.render.cuda import FLAGS
from oarlock.errors import CompileError, DeviceError
from oarlock.target import Limits, Target

ROOT = Path(__file__).resolve().parents[3]
TARGET = Target(
    "cuda",
    arch="sm_90",
    flags=FLAGS,
    compute=frozenset(dtype.name for dtype in dtypes.ALL) - {"float16", "bfloat16"},
    storage=(("float16", "uint16"), ("bfloat16", "uint16")),
    limits=Limits(max_block=(1024, 1024, 64), max_threads=1024, local_memory=48 << 10, vector_width=4),
)


def load(name: str, path: Path) -> ModuleType:
    """A module from its file."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


operators = load("kernel_operators", ROOT / "core" / "tests" / "codegen" / "render" / "test_operators.py")
compiler = load("oarlock_cuda_compiler", ROOT / "adapters" / "cuda" / "oarlock_cuda" / "compiler.py")


@pytest.fixture(scope="module")
def nvrtc() -> ModuleType:
    try:
        compiler.version()
    except DeviceError as error:
        pytest.skip(f"UNAVAILABLE: {error}")
    return compiler


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.bits >= 32], ids=str)
def test_every_operator_compiles(dtype: dtypes.DType, nvrtc: ModuleType) -> None:
    function = legalise(operators.build(dtype, 1).function, TARGET)
    binary, log = nvrtc.compile_cuda(renderer("cuda").render([function], TARGET), "sm_90", FLAGS)
    assert binary.startswith(b"\x7fELF")
    assert not log


def test_error_shows_the_line(nvrtc: ModuleType) -> None:
    source = 'extern "C" __global__ void k(int *x) {\n    x[0] = missing;\n}\n'
    with pytest.raises(CompileError, match=r"2 \|     x\[0\] = missing;"):
        nvrtc.compile_cuda(source, "sm_90", FLAGS)


def test_older_device_is_refused_by_name(nvrtc: ModuleType) -> None:
    with pytest.raises(DeviceError, match="sm_35"):
        nvrtc.compile_cuda("", "sm_35", FLAGS)
