"""The unmodified adapter and pycuda on the simulated driver: what CUDA has edges for, each by its name.

It is a simulation and no GPU: what these tests show is that the adapter makes the right calls, and that it tells what
the driver answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Child = Callable[..., Any]
_SUM_OF_A_WARP = """
    from rig import *
    rig = Rig()
    body = '''
        float sum = x0[threadIdx.x];
        for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
        x1[threadIdx.x] = sum;
    '''
    x, y = rig.put(np.arange(64)), rig.put(np.zeros(64))
    rig.launch(rig.kernel(body, 2), (1, 1, 1), (64, 1, 1), [x, y])
    print(rig.get(y, 64)[[0, 31, 32, 63]].tolist())
"""


def told(done: Any) -> str:
    """What a child printed; it must have ended well and silently."""
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return str(done.stdout).strip()


def test_devices_say_that_they_are_simulated(child: Child) -> None:
    code = """
        from oarlock_cuda import CudaAdapter
        for info in CudaAdapter().devices():
            print(info.name, info.target.arch, info.failure_scope)
    """
    assert told(child(code)).splitlines() == ["simulated CUDA device (no GPU) sm_90 device"] * 2


def test_warp_operations_exchange_between_32_lanes(child: Child) -> None:
    assert told(child(_SUM_OF_A_WARP)) == "[496.0, 496.0, 1520.0, 1520.0]"


def test_wrong_warp_size_is_an_error_and_not_a_wrong_sum(child: Child) -> None:
    done = child(_SUM_OF_A_WARP, WARP="16")
    assert done.returncode == 1
    assert "DeviceLostError: copy out" in done.stderr or "DeviceLostError: synchronize" in done.stderr
    assert "launch failure; latest kernels: kernel" in done.stderr


def test_wrong_warp_size_takes_the_ability_from_the_target(child: Child) -> None:
    code = """
        from oarlock_cuda import CudaAdapter
        print([word for word in CudaAdapter().devices()[0].target.abilities if "subgroup" in word])
    """
    assert told(child(code, WARP="16")) == "[]"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_on_tensor_cores_are_right(child: Child, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"""
        import numpy as np, ml_dtypes, oarlock as ol
        from oarlock_cuda import compiler
        plain, seen = compiler.compile_cuda, []
        compiler.compile_cuda = lambda source, *rest: seen.append("matrix_{dtype}" in source) or plain(source, *rest)
        x = np.random.default_rng(0).random((60, 70)).astype("{dtype}")  # cuBLAS leaves it
        y = np.asarray(ol.matmul(ol.asarray(x, device="cuda:0"), ol.asarray(x.T, device="cuda:0"))).astype("d")
        wanted = x.astype("d") @ x.T.astype("d")
        print(any(seen), abs(y - wanted).max() / wanted.max() < 2.0 ** -{10 if dtype == "float16" else 7})
    """
    monkeypatch.setenv("OARLOCK_CACHE", "0")  # so that it is compiled, and the text seen
    assert told(child(code)) == "True True"


def test_partial_last_block_leaves_the_rest_alone(child: Child) -> None:
    code = """
        from rig import *
        rig = Rig()
        kernel = rig.kernel("int i = 64 * blockIdx.x + threadIdx.x; if (i < n0) x0[i] = 1;", 1, 1)
        x = rig.put(np.zeros(192))
        rig.launch(kernel, (3, 1, 1), (64, 1, 1), [x], [130])
        print(np.flatnonzero(rig.get(x, 192)).tolist() == list(range(130)))
    """
    assert told(child(code)) == "True"


def test_grid_beyond_65535_runs_in_x_and_is_refused_in_y(child: Child) -> None:
    code = """
        from rig import *
        rig = Rig()
        print(rig.info.target.limits.max_grid)
        kernel = rig.kernel("if (blockIdx.x == gridDim.x - 1) x0[0] = gridDim.x;", 1)
        x = rig.put(np.zeros(4))
        rig.launch(kernel, (70000, 1, 1), (1, 1, 1), [x])
        print(rig.get(x, 1)[0])
        try:
            rig.launch(kernel, (1, 70000, 1), (1, 1, 1), [x])
        except Exception as error:
            print(type(error).__name__, error)
        print(rig.get(x, 1)[0])
    """
    lines = told(child(code)).splitlines()
    assert lines == [
        "(2147483647, 65535, 65535)",
        "70000.0",
        "LaunchError kernel kernel: cuLaunchKernel failed: invalid argument",
        "70000.0",
    ]


def test_local_memory_over_48_kib_is_refused_by_the_compiler(child: Child) -> None:
    code = """
        from rig import *
        rig = Rig()
        print(rig.info.target.limits.local_memory)
        body = "__shared__ float s[%d]; s[threadIdx.x] = 1; __syncthreads(); x0[0] = s[0];"
        x = rig.put(np.zeros(4))
        rig.launch(rig.kernel(body % 12288), (1, 1, 1), (32, 1, 1), [x])
        print(rig.get(x, 1)[0])
        try:
            rig.kernel(body % 12289)
        except Exception as error:
            print(type(error).__name__, error)
    """
    size, fits, refused = told(child(code)).split("\n", 2)
    assert (size, fits) == ("49152", "1.0")
    assert refused.startswith("CompileError") and "too much shared data (49156 bytes" in refused


def test_misaligned_vector_access_loses_the_device(child: Child) -> None:
    code = """
        from rig import *
        rig = Rig()
        body = "struct alignas(16) four { float s[4]; }; *(four *)(x1 + n0) = *(const four *)(x0 + n0);"
        kernel = rig.kernel(body, 2, 1)
        x, y = rig.put(np.arange(16)), rig.put(np.zeros(16))
        rig.launch(kernel, (1, 1, 1), (1, 1, 1), [x, y], [4])
        print(rig.get(y, 8)[4:].tolist())
        try:
            rig.launch(kernel, (1, 1, 1), (1, 1, 1), [x, y], [5])
            rig.get(y, 8)
        except Exception as error:
            print(type(error).__name__, error)
    """
    fine, lost = told(child(code, CHECK="1")).splitlines()
    assert fine == "[4.0, 5.0, 6.0, 7.0]"
    assert lost.startswith("DeviceLostError") and "misaligned address; latest kernels: kernel" in lost


def test_exhausted_memory_says_how_much_there_is(child: Child) -> None:
    code = """
        from oarlock.runtime import open_device
        device = open_device("cuda:0")
        kept = device.allocate(6 << 20)
        for allocate in (device.allocate, device.driver.allocate):
            try:
                allocate(3 << 20)
            except Exception as error:
                print(type(error).__name__, error)
        del kept
        device.allocate(7 << 20)
    """
    core, driver = told(child(code, MEMORY_MIB="8")).splitlines()
    assert core.startswith("OutOfMemoryError cuda:0: out of memory: asked 3.0 MiB; in use 6.0 MiB")
    assert driver == "OutOfMemoryError allocate: cuMemAlloc failed: out of memory"


def test_out_of_bounds_write_is_found_on_request(child: Child) -> None:
    code = """
        from rig import *
        rig = Rig()
        kernel = rig.kernel("x0[threadIdx.x] = 1;")
        x = rig.put(np.zeros(6))
        rig.launch(kernel, (1, 1, 1), (6, 1, 1), [x])
        print(rig.get(x, 6).sum())
        try:
            rig.launch(kernel, (1, 1, 1), (7, 1, 1), [x])
            rig.get(x, 6)
        except Exception as error:
            print(type(error).__name__, error)
    """
    done = child(code, CHECK="1")
    fine, lost = done.stdout.splitlines()
    assert fine == "6.0" and "kernel kernel wrote behind an allocation" in done.stderr
    assert lost.startswith("DeviceLostError") and "illegal memory access" in lost


@pytest.mark.parametrize("index", [1024, 1 << 20, (1 << 22) - 8])
def test_access_far_out_of_bounds_is_always_found(child: Child, index: int) -> None:
    code = f"""
        from rig import *
        rig = Rig()
        x, _ = rig.put(np.zeros(6)), [rig.put(np.zeros(1 << 19)) for _ in range(16)]
        rig.launch(rig.kernel("x0[0] = x0[n0];", 1, 1), (1, 1, 1), (1, 1, 1), [x], [{index}])
        try:
            rig.get(x, 6)
        except Exception as error:
            print(type(error).__name__, error)
        try:
            rig.driver.allocate(16)
        except Exception as error:
            print(type(error).__name__, error)
        rig.close()
        again = Rig()
        print(again.get(again.put(np.ones(2)), 2).sum())
    """
    first, later, again = told(child(code)).splitlines()
    assert first.startswith("DeviceLostError") and "illegal memory access" in first
    assert later.startswith("DeviceLostError allocate: the device was lost before (")
    assert again == "2.0"


@pytest.mark.parametrize("order", ["x0[0] = threadIdx.x;", "x0[threadIdx.x] = x0[(threadIdx.x + 1) % 64] + 1;"])
def test_race_is_found_on_request(child: Child, order: str) -> None:
    code = f"""
        from rig import *
        rig = Rig()
        kernel = rig.kernel({order!r})
        x = rig.put(np.zeros(64))
        try:
            rig.launch(kernel, (1, 1, 1), (64, 1, 1), [x])
            rig.get(x, 64)
        except Exception as error:
            print(type(error).__name__)
    """
    done = child(code, CHECK="1")
    assert done.stdout == "DeviceLostError\n" and "in another order: a race" in done.stderr


def test_barrier_that_some_threads_never_reach_is_an_error(child: Child) -> None:
    code = """
        from rig import *
        rig = Rig()
        x = rig.put(np.zeros(64))
        try:
            rig.launch(rig.kernel("if (threadIdx.x < 32) __syncthreads();"), (1, 1, 1), (64, 1, 1), [x])
            rig.get(x, 64)
        except Exception as error:
            print(type(error).__name__)
    """
    assert told(child(code)) == "DeviceLostError"
