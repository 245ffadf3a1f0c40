"""What generated functions are made of, and that every way to run them gives the same bits."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.codegen.kernel import KernelBuilder
from oarlock.codegen.kernel.interpret import run_kernel
from oarlock.codegen.math import BOUNDS, FUNCTIONS, emit
from oarlock.codegen.pipeline import render
from oarlock.codegen.render.c99 import FLAGS
from oarlock.dtypes import DType
from oarlock.errors import DTypeError, UnsupportedError
from oarlock.ir import BufferType, Operation, ScalarType
from oarlock.target import Target

Array = np.ndarray[Any, Any]
Kernels = dict[tuple[str, DType], Operation]
FLOATS = (dtypes.float32, dtypes.float64)
BINARY = ("power", "atan2", "fmod")
BRANCHES = ("sin", "cos", "tan")
SAMPLES = (0.0, -0.0, 1.0, -1.0, 0.3, -0.7, 2.5, -13.25, 1e-3, 1e9, -3e30, 1e-41, 88.9, -103.5, np.inf, -np.inf, np.nan)


def samples(name: str, dtype: DType) -> list[Array]:
    first = np.array(SAMPLES).astype(dtype.numpy)
    return [first, np.roll(first, 5)] if name in BINARY else [first]


def same(left: Array, right: Array) -> bool:
    both_nan = np.isnan(left) & np.isnan(right)
    return bool(np.all(both_nan | ((left == right) & (np.signbit(left) == np.signbit(right)))))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_function_uses_its_own_width_and_no_fused_operation(kernels: Kernels, name: str, dtype: DType) -> None:
    allowed = {dtype.name, f"int{dtype.bits}", f"uint{dtype.bits}", "bool", "int32"}
    used, kinds = set(), set()
    for op in kernels[name, dtype].walk():
        kinds.add(op.name.removeprefix("kernel."))
        used |= {result.type.dtype.name for result in op.results if isinstance(result.type, ScalarType)}
    assert used <= allowed
    assert "fma" not in kinds
    assert ("if" in kinds) == (name in BRANCHES)
    loops = sum(op.name == "kernel.for" for op in kernels[name, dtype].walk())
    assert loops == (2 if name == "fmod" else 1)  # one is the kernel's own


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_interpreter_and_compiled_code_give_the_same_bits(
    kernels: Kernels, evaluate: Callable[..., Array], name: str, dtype: DType
) -> None:
    arguments = samples(name, dtype)
    result = np.zeros_like(arguments[0])
    run_kernel(kernels[name, dtype], (1, 1, 1), [*arguments, result], [result.size])
    assert same(result, evaluate(name, *arguments))


def test_compiled_c_gives_the_same_bits(kernels: Kernels, evaluate: Callable[..., Array], tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: gcc or cc is not on the path")
    compute = frozenset("bool int32 uint32 int64 uint64 float32 float64".split())
    (tmp_path / "k.c").write_text(render(list(kernels.values()), Target("c99", compute=compute)))
    command = [compiler, *FLAGS, "-O1", "-o", "k.so", "k.c", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    box = (ctypes.c_uint32 * 3)(0, 0, 0), (ctypes.c_uint32 * 3)(1, 1, 1)
    for name, dtype in kernels:
        arguments = samples(name, dtype)
        result = np.zeros_like(arguments[0])
        pointers = (ctypes.c_void_p * 3)(*(x.ctypes.data for x in (*arguments, result)))
        getattr(library, f"{name}_{dtype}")(pointers, np.int32(result.size).tobytes(), *box)
        assert same(result, evaluate(name, *arguments)), (name, dtype)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"fmod"}))
def test_vectors_give_the_same_bits_as_scalars(evaluate: Callable[..., Array], name: str) -> None:
    arguments = [x[:16] for x in samples(name, dtypes.float32)]
    buffers = [(f"x{i}", BufferType(dtypes.float32, "global", "read")) for i in range(len(arguments))]
    b = KernelBuilder("v", [*buffers, ("y", BufferType(dtypes.float32, "global", "write"))], [])
    operands = [b.load(b.arguments[x], b.i(0), 16) for x, _ in buffers]
    b.store(b.arguments["y"], b.i(0), emit(b, name, *operands))
    result = np.zeros(16, np.float32)
    run_kernel(b.function, (1, 1, 1), [*(np.ascontiguousarray(x) for x in arguments), result], [])
    assert same(result, evaluate(name, *arguments))


def test_every_function_states_a_bound_no_looser_than_opencl() -> None:
    allowed = {
        0: "fmod", 2: "log1p", 3: "exp exp2 expm1 log log2 log10", 4: "sin cos asin acos sinh cosh asinh acosh",
        5: "tan atan tanh atanh", 6: "atan2", 16: "erf power",
    }  # fmt: skip
    opencl = {name: bound for bound, names in allowed.items() for name in names.split()}
    assert set(BOUNDS) == set(FUNCTIONS) == set(opencl)
    assert all(BOUNDS[name] <= opencl[name] for name in BOUNDS)


def test_unknown_function_and_other_dtypes_are_refused() -> None:
    b = KernelBuilder("k", [], [("h", dtypes.float16), ("x", dtypes.float32), ("d", dtypes.float64)])
    h, x, d = (b.arguments[name] for name in "hxd")
    with pytest.raises(UnsupportedError, match="gamma is not generated; there are acos"):
        emit(b, "gamma", x)
    with pytest.raises(DTypeError, match="convert first"):
        emit(b, "exp", h)
    with pytest.raises(DTypeError, match="all of one type"):
        emit(b, "power", x, d)
    with pytest.raises(UnsupportedError, match="scalars"):
        emit(b, "fmod", b.splat(x, 4), b.splat(x, 4))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_are_never_loose(kernels: Kernels, name: str, dtype: DType) -> None:
    """A driver that may regroup took the rounding inside exp away: e ** x became a power of two."""
    assert not [op.name for op in kernels[name, dtype].walk() if op.attributes.get("loose")]
