"""The CUDA C++ dialect: NVRTC, which needs no GPU, compiles what it prints; and what lowering makes for it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from oarlock import dtypes as dt
from oarlock.codegen import pipeline
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.legalise import legalise
from oarlock.codegen.lower.call import KernelCall
from oarlock.codegen.render import renderer
from oarlock.codegen.render.cuda import FLAGS
from oarlock.errors import CompileError, DeviceError, UnsupportedError
from oarlock.ir import BufferType, Operation, TensorType, Value
from oarlock.ops import ArrayBuilder
from oarlock_conformance.cases.operators.build import build_function
from oarlock_cuda import compiler
from oarlock_cuda.target import target_for

HERE = Path(__file__).parent
GOLDEN = HERE.parents[2] / "core" / "tests" / "codegen" / "golden"
TARGET = target_for((9, 0))


def load(name: str, path: Path) -> ModuleType:
    """A module from its file."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


operators = load("kernel_operators", HERE.parents[2] / "core" / "tests" / "codegen" / "render" / "test_operators.py")


@pytest.fixture(scope="module")
def nvrtc() -> ModuleType:
    try:
        compiler.version()
    except DeviceError as error:
        pytest.skip(f"UNAVAILABLE: {error}")
    return compiler


def rendered(function: Operation) -> str:
    return renderer("cuda").render([legalise(function, TARGET)], TARGET)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.cu")), ids=lambda path: path.stem)
def test_golden_texts_compile(path: Path, nvrtc: ModuleType) -> None:
    for arch in ("sm_75", "sm_80", "sm_90", "sm_100"):
        binary, log = nvrtc.compile_cuda(path.read_text(), arch, FLAGS)
        assert binary.startswith(b"\x7fELF") and not log


def test_four_numbers_are_one_access(nvrtc: ModuleType) -> None:
    """PTX for a device that NVRTC does not know yet shows what the compiler made of it."""
    ptx, _ = nvrtc.compile_cuda((GOLDEN / "copy_four.cu").read_text(), "sm_999", FLAGS)
    assert b"ld.global.nc.v4" in ptx and b"st.global.v4" in ptx
    assert b".maxntid 64" in ptx


# --- what lowering gives --------------------------------------------------------------------------------------------


def kernels(types: Sequence[TensorType], body: Callable[..., Sequence[Value]], target: object = TARGET) -> str:
    """The text of a program's kernels."""
    calls = pipeline.lower(pipeline.prepare(build_function(types, body)), target).calls  # type: ignore[arg-type]
    return pipeline.render([call.function for call in calls if isinstance(call, KernelCall)], TARGET)


def f32(*shape: int) -> TensorType:
    return TensorType(dt.float32, shape)


def test_products_load_four_numbers_at_once(nvrtc: ModuleType) -> None:
    text = kernels([f32(64, 64), f32(64, 64)], lambda b, x, y: [b("matmul", x, y)])
    assert "load_lanes<float32x4>(in1" in text
    assert not nvrtc.compile_cuda(text, "sm_90", FLAGS)[1]


def add(b: ArrayBuilder, x: Value, y: Value) -> list[Value]:
    return [b("add", x, y)]


def test_indices_have_64_bits_where_they_must_and_there_alone(nvrtc: ModuleType) -> None:
    small, large = (kernels([f32(n), f32(n)], add) for n in (1000, 1 << 31))
    assert "long long" not in small[small.index("extern") :]
    assert "const long long offset_in0" in large and "for (long long" in large
    assert not nvrtc.compile_cuda(large, "sm_90", FLAGS)[1]


def test_launch_bounds_are_the_threads_of_the_block() -> None:
    assert "__launch_bounds__(128 * 1 * 1)" in kernels([f32(1000), f32(1000)], add)


def test_wrong_warp_size_is_refused() -> None:
    """A device whose warps are not what the text takes for granted gets kernels that exchange nothing in them."""
    other = target_for((9, 0), warp=64)
    assert other.subgroup == 0 and not any(word.startswith("matrix_") for word in other.abilities)
    softmax = [f32(8, 300)], lambda b, x: [b("softmax", x, axis=1)]
    assert "__shfl_xor_sync" in kernels(*softmax) and "__shfl" not in kernels(*softmax, other)
    false = replace(TARGET, abilities=frozenset({"subgroup_64"}))
    with pytest.raises(UnsupportedError, match=r"a shuffle among 64 threads; in cuda 32 threads .*subgroup_64"):
        kernels(*softmax, false)


def test_local_memory_over_48_KiB_is_refused_by_name() -> None:
    b = KernelBuilder("greedy", [("y", BufferType(dt.float32))], [], (32, 1, 1))
    held = b.local(dt.float32, 12 * 1024 + 1)
    b.store(held, b.i(0), b.load(b.arguments["y"], b.i(0)))
    with pytest.raises(UnsupportedError, match="kernel greedy uses 49156 bytes of local memory; target cuda/sm_90 has"):
        pipeline.render([b.function], TARGET)


# --- NVRTC ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [d for d in dt.ALL if d.bits >= 32], ids=str)
def test_every_operator_compiles(dtype: dt.DType, nvrtc: ModuleType) -> None:
    binary, log = nvrtc.compile_cuda(rendered(operators.build(dtype, 1).function), "sm_90", FLAGS)
    assert binary.startswith(b"\x7fELF")
    assert not log


def test_error_shows_the_line(nvrtc: ModuleType) -> None:
    source = 'extern "C" __global__ void k(int *x) {\n    x[0] = missing;\n}\n'
    with pytest.raises(CompileError, match=r"2 \|     x\[0\] = missing;"):
        nvrtc.compile_cuda(source, "sm_90", FLAGS)


def test_older_device_is_refused_by_name(nvrtc: ModuleType) -> None:
    with pytest.raises(DeviceError, match="sm_35"):
        nvrtc.compile_cuda("", "sm_35", FLAGS)
