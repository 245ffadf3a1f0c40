"""The compile proof: kernels of the conformance suite through NVRTC for four architectures, and the reader of its code.

NVRTC needs no GPU, and nothing here runs on one. A commit's tests take a share of the kernels; the whole matrix is
``pytest -m proof`` or ``nvrtc_matrix.py``.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oarlock import dtypes
from oarlock.codegen import pipeline
from oarlock.codegen.lower.call import KernelCall
from oarlock.errors import DeviceError, OarlockError
from oarlock.ir import TensorType
from oarlock_conformance.case import Options
from oarlock_conformance.cases.operators.build import build_function
from oarlock_cuda import compiler
from oarlock_cuda.target import target_for

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.append(str(HERE))
cubin, kernels, matrix = (importlib.import_module(name) for name in ("cubin", "nvrtc_kernels", "nvrtc_matrix"))

STORED = HERE.parents[2] / "docs" / "proof" / "nvrtc.json"
SHARES = 24
"""The quick tests compile the kernels of every n-th record."""
ARCHITECTURES = tuple(matrix.ARCHITECTURES)
_TWO_KERNELS = """
extern "C" __global__ __launch_bounds__(32 * 4) void light(float *x, int n) {
    __shared__ float held[256];
    held[threadIdx.x] = x[n];
    __syncthreads();
    x[threadIdx.x] = held[threadIdx.x ^ 1];
}
extern "C" __global__ __launch_bounds__(1024) void heavy(double *x, int n) {
    double held[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) held[i] = x[i * n + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = held[i] * held[i * 7 % 64];
}
"""


@pytest.fixture(scope="module", autouse=True)
def nvrtc() -> None:
    try:
        compiler.version()
    except DeviceError as error:
        pytest.skip(f"UNAVAILABLE: {error}")


def no_models() -> str:
    """Why the pretrained models cannot be had here; empty when they can."""
    try:
        for name in kernels.MODELS:
            kernels.fetch(name)
    except OarlockError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_usage_is_read_from_the_machine_code(arch: str) -> None:
    binary, log = compiler.compile_cuda(_TWO_KERNELS, arch, ["--ptxas-options=-v"])
    usage = cubin.read_usage(binary)
    reports, rest = cubin.read_log(log)
    assert rest == "" and set(usage) == set(reports) == {"light", "heavy"}
    for name, used in usage.items():
        report = reports[name]
        assert (used.registers, used.shared, used.stack) == (report.registers, report.shared, report.stack)
    assert (usage["light"].threads, usage["light"].shared, usage["light"].stack) == (128, 1024, 0)
    assert (usage["heavy"].threads, usage["heavy"].registers) == (1024, 64)
    assert usage["heavy"].stack > 0 and reports["heavy"].spill_stores > 0


def test_reader_refuses_what_is_no_machine_code() -> None:
    with pytest.raises(ValueError, match="64-bit little-endian ELF"):
        cubin.read_usage(b"//\n.version 8.0\n")


def job(source: str, threads: int) -> Any:
    return matrix.Job("sm_90", ("--std=c++17",), source, {"k": threads})


@pytest.mark.parametrize(
    ("source", "threads", "fault"),
    [
        ("__launch_bounds__(64) void k(int *x) { *x = missing; }", 64, '"missing" is undefined'),
        ("__launch_bounds__(64) void k(int *x) { int idle; *x = 1; }", 64, "idle.* never referenced"),
        ("__launch_bounds__(64) void k(int *x) { *x = 1; }", 128, "says 64 threads, a launch has 128"),
        ("void k(int *x) { *x = 1; }", 128, "says 0 threads, a launch has 128"),
        ("void other(int *x) { *x = 1; }", 128, "k: it is not in the machine code"),
    ],
    ids=["error", "remark", "bounds", "no bounds", "absent"],
)
def test_faults_are_found(source: str, threads: int, fault: str) -> None:
    work = job('extern "C" __global__ ' + source, threads)
    found = matrix.faults(work, matrix.compile_job(work))
    assert len(found) == 1
    assert re.search(fault, found[0], re.S), found


def test_limits_are_checked() -> None:
    work = job("", 1024)
    for usage, fault in [
        (cubin.Usage(256, 0, 0, 1024), "256 registers a thread"),
        (cubin.Usage(72, 0, 0, 1024), "73728 registers for 1024 threads"),
        (cubin.Usage(32, 49153, 0, 1024), "49153 bytes of shared memory"),
    ]:
        found = matrix.faults(work, matrix.Compiled("sm_90", {"k": usage}, {}, "", "", 0.0))
        assert any(fault in text for text in found), found


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_share_of_the_kernels_compiles_within_the_limits(arch: str) -> None:
    found = matrix.run(["calls"], Options(quick=True), 1, lambda text: None, (5, SHARES), [arch])
    assert found["architectures"][arch]["kernels"] > 10
    assert found["faults"] == []


def test_what_programs_lower_for_the_host_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once more when the host has lowered it before: the outcome that it keeps is not read."""
    plan = kernels.fused.plan
    for module in (kernels.named, kernels.fuzzing):
        monkeypatch.setattr(module, "plan", lambda *_: [])
    monkeypatch.setattr(
        kernels.fused, "plan", lambda *given: [c for c in plan(*given) if c.id == "fused.softmax/float32"]
    )
    for _ in range(2):
        (found,) = kernels.collect([target_for((9, 0))], ["programs"], Options(quick=True))
        assert found.kernels and not found.cut_short


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "tf32"])
def test_matrix_units_compile_within_the_limits(kind: str, arch: str) -> None:
    """Tensor-core products; sm_75 has those of float16 alone, and gets a kernel without them for the rest."""
    dtype = dtypes.float32 if kind == "tf32" else dtypes.by_name(kind)
    target = target_for(matrix.ARCHITECTURES[arch], matrix=(kind,))
    types = [TensorType(dtype, shape) for shape in ((256, 128), (128, 192), (192,))]
    function = build_function(types, lambda b, x, y, z: [b("relu", b("add", b("matmul", x, y), z))])
    calls = pipeline.lower(pipeline.prepare(function), target).calls
    functions = {str(c.function.attributes["name"]): c.function for c in calls if isinstance(c, KernelCall)}
    collection = matrix.Collection(target, functions)
    (work,) = matrix.jobs(collection, arch)
    assert ("mma.sync" in work.source) == (kind == "float16" or arch != "sm_75")
    assert matrix.faults(work, matrix.compile_job(work)) == []


def test_architectures_differ_in_what_lowering_sees_only_where_they_must() -> None:
    targets = [replace(target_for(capability), arch="") for capability in matrix.ARCHITECTURES.values()]
    assert len(set(targets)) == 2
    assert targets[1].abilities - targets[0].abilities == {"matrix_bfloat16"}


def test_stored_matrix_has_no_faults() -> None:
    stored = json.loads(STORED.read_text())
    assert set(stored["architectures"]) == set(ARCHITECTURES)
    assert stored["parts"] == list(kernels.PARTS)
    assert stored["faults"] == [] and stored["cut_short"] == []
    assert STORED.with_suffix(".md").read_text() == matrix.page(stored)


@pytest.mark.proof
def test_every_kernel_compiles_within_the_limits() -> None:
    missing = no_models()
    if missing:
        pytest.skip(f"UNAVAILABLE: {missing}")
    found = matrix.run(kernels.PARTS, Options(quick=True), os.cpu_count() or 1, lambda text: None)
    assert found["faults"] == [] and found["cut_short"] == []
