"""The CPU adapter against the contract, with kernels written by hand in LLVM text."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.abi import BufferArgument, KernelSignature, scalar_layout
from oarlock.errors import CompileError, DeviceError, DeviceNotFoundError, LaunchError, OutOfMemoryError
from oarlock.hal import CopyStep, LaunchStep, OperatorCall, host
from oarlock_cpu import CpuAdapter, oarlock_adapter, program

TILE = 256

ADD = f"""
define void @add(ptr %buffers, ptr %scalars, ptr %begin, ptr %end) {{
entry:
  %x_ = load ptr, ptr %buffers
  %y_at = getelementptr ptr, ptr %buffers, i64 1
  %y_ = load ptr, ptr %y_at
  %z_at = getelementptr ptr, ptr %buffers, i64 2
  %z_ = load ptr, ptr %z_at
  %xo = load i32, ptr %scalars
  %yo_at = getelementptr i32, ptr %scalars, i64 1
  %yo = load i32, ptr %yo_at
  %zo_at = getelementptr i32, ptr %scalars, i64 2
  %zo = load i32, ptr %zo_at
  %n_at = getelementptr i32, ptr %scalars, i64 3
  %n = load i32, ptr %n_at
  %x = getelementptr float, ptr %x_, i32 %xo
  %y = getelementptr float, ptr %y_, i32 %yo
  %z = getelementptr float, ptr %z_, i32 %zo
  %b = load i32, ptr %begin
  %e = load i32, ptr %end
  %first = mul i32 %b, {TILE}
  %last_ = mul i32 %e, {TILE}
  %short = icmp slt i32 %last_, %n
  %last = select i1 %short, i32 %last_, i32 %n
  br label %loop
loop:
  %i = phi i32 [ %first, %entry ], [ %next, %loop ]
  %p = getelementptr float, ptr %x, i32 %i
  %q = getelementptr float, ptr %y, i32 %i
  %r = getelementptr float, ptr %z, i32 %i
  %u = load float, ptr %p
  %v = load float, ptr %q
  %w = fadd float %u, %v
  store float %w, ptr %r
  %next = add nsw i32 %i, 1
  %more = icmp slt i32 %next, %last
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""

MARK = """
; counts in buffer 0, an int32 per block of a three-dimensional grid whose extents are in the scalars
define void @mark(ptr %buffers, ptr %scalars, ptr %begin, ptr %end) {
entry:
  %out = load ptr, ptr %buffers
  %gx = load i32, ptr %scalars
  %gy_at = getelementptr i32, ptr %scalars, i64 1
  %gy = load i32, ptr %gy_at
  %bx = load i32, ptr %begin
  %by_at = getelementptr i32, ptr %begin, i64 1
  %by = load i32, ptr %by_at
  %bz_at = getelementptr i32, ptr %begin, i64 2
  %bz = load i32, ptr %bz_at
  %ex = load i32, ptr %end
  %ey_at = getelementptr i32, ptr %end, i64 1
  %ey = load i32, ptr %ey_at
  %ez_at = getelementptr i32, ptr %end, i64 2
  %ez = load i32, ptr %ez_at
  br label %zs
zs:
  %z = phi i32 [ %bz, %entry ], [ %z1, %z_end ]
  br label %ys
ys:
  %y = phi i32 [ %by, %zs ], [ %y1, %y_end ]
  br label %xs
xs:
  %x = phi i32 [ %bx, %ys ], [ %x1, %xs ]
  %a = mul i32 %z, %gy
  %c = add i32 %a, %y
  %d = mul i32 %c, %gx
  %i = add i32 %d, %x
  %p = getelementptr i32, ptr %out, i32 %i
  %old = load i32, ptr %p
  %new = add i32 %old, 1
  store i32 %new, ptr %p
  %x1 = add i32 %x, 1
  %xm = icmp ult i32 %x1, %ex
  br i1 %xm, label %xs, label %y_end
y_end:
  %y1 = add i32 %y, 1
  %ym = icmp ult i32 %y1, %ey
  br i1 %ym, label %ys, label %z_end
z_end:
  %z1 = add i32 %z, 1
  %zm = icmp ult i32 %z1, %ez
  br i1 %zm, label %zs, label %done
done:
  ret void
}
"""


def signature(name: str, buffers: int, scalars: tuple[str, ...]) -> KernelSignature:
    fields, size = scalar_layout([(scalar, dtypes.int32) for scalar in scalars])
    arguments = tuple(BufferArgument(f"b{i}", dtypes.float32, dtypes.float32, "both") for i in range(buffers))
    return KernelSignature(name, arguments, fields, size)


ADD_SIGNATURE = signature("add", 3, ("x_offset", "y_offset", "z_offset", "n"))
MARK_SIGNATURE = signature("mark", 1, ("gx", "gy"))


@pytest.fixture(params=["native", "python"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if request.param == "python":
        monkeypatch.setattr(host, "_native", None)
    elif not host.native_available():
        pytest.skip("the native module is not built")
    monkeypatch.setattr(host.config, "threads", 3)
    opened = CpuAdapter().open(0)
    yield opened
    opened.close()
    opened.close()


def load(driver: Any, source: str, *signatures: KernelSignature) -> Any:
    adapter = CpuAdapter()
    target = adapter.devices()[0].target
    return driver.load(adapter.compile(target, source, [s.name for s in signatures]), signatures)


def put(driver: Any, array: np.ndarray, before: int = 0) -> Any:
    handle = driver.allocate(array.nbytes + before)
    driver.copy_in(None, handle, before, memoryview(array).cast("B"))
    return handle


def get(driver: Any, handle: Any, offset: int, dtype: Any, count: int) -> np.ndarray:
    array = np.empty(count, dtype)
    driver.copy_out(None, memoryview(array).cast("B"), handle, offset)
    driver.synchronize(None, 1.0)
    return array


def test_devices_describes_the_host() -> None:
    (info,) = CpuAdapter().devices()
    assert not info.is_accelerator and info.memory > 0 and info.target.language == "llvm"
    assert not info.target.has_threads
    assert info.target.storage_of(dtypes.bool_) == dtypes.uint8
    assert info.target.storage_of(dtypes.bfloat16) == dtypes.uint16
    assert info.target.computes(dtypes.float64) and not info.target.computes(dtypes.float16)
    assert all(info.target.stores(dtype) for dtype in dtypes.ALL)
    assert isinstance(oarlock_adapter(), CpuAdapter)


def test_open_second_device_raises() -> None:
    with pytest.raises(DeviceNotFoundError, match="cpu:1"):
        CpuAdapter().open(1)


@pytest.mark.parametrize("n", [1, 255, 256, 257, 100_003])
def test_add_with_offsets_matches_numpy(driver: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32)
    kernel = load(driver, ADD, ADD_SIGNATURE)
    a, b, c = put(driver, x, 4 * 5), put(driver, y, 4 * 2), driver.allocate(4 * (n + 7))
    driver.fill(None, c, 0, 4 * (n + 7), 0xFF)
    block = ADD_SIGNATURE.pack([5, 2, 3, n])
    buffers = [(a, 0, 4 * (n + 5)), (b, 0, 4 * (n + 2)), (c, 0, 4 * (n + 7))]
    driver.launch(None, kernel, "add", (-(-n // TILE), 1, 1), (1, 1, 1), buffers, block)
    np.testing.assert_array_equal(get(driver, c, 12, np.float32, n), x + y)
    np.testing.assert_array_equal(get(driver, c, 0, np.uint8, 12), np.full(12, 0xFF, np.uint8))
    np.testing.assert_array_equal(get(driver, c, 4 * (n + 3), np.uint8, 16), np.full(16, 0xFF, np.uint8))
    driver.free(kernel)
    for handle in (a, b, c):
        driver.free(handle)


@pytest.mark.parametrize("grid", [(1, 1, 1), (7, 1, 1), (1, 1, 9), (3, 5, 2), (64, 3, 17)])
def test_launch_runs_every_block_once(driver: Any, grid: tuple[int, int, int]) -> None:
    kernel = load(driver, MARK, MARK_SIGNATURE)
    count = grid[0] * grid[1] * grid[2]
    out = put(driver, np.zeros(count, np.int32))
    driver.launch(None, kernel, "mark", grid, (1, 1, 1), [(out, 0, 4 * count)], MARK_SIGNATURE.pack(grid[:2]))
    np.testing.assert_array_equal(get(driver, out, 0, np.int32, count), np.ones(count, np.int32))


def test_copy_moves_bytes_between_allocations(driver: Any) -> None:
    a, b = put(driver, np.arange(64, dtype=np.uint8)), put(driver, np.zeros(64, np.uint8))
    driver.copy(None, b, 10, a, 3, 20)
    expected = np.zeros(64, np.uint8)
    expected[10:30] = np.arange(3, 23)
    np.testing.assert_array_equal(get(driver, b, 0, np.uint8, 64), expected)


def test_base_offsets_the_binding(driver: Any) -> None:
    kernel = load(driver, MARK, MARK_SIGNATURE)
    out = put(driver, np.zeros(8, np.int32))
    driver.launch(None, kernel, "mark", (4, 1, 1), (1, 1, 1), [(out, 16, 16)], MARK_SIGNATURE.pack([4, 1]))
    assert get(driver, out, 0, np.int32, 8).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_plan_replays_with_new_bindings_and_scalars(driver: Any) -> None:
    n = 1000
    kernel = load(driver, ADD, ADD_SIGNATURE)
    block = ADD_SIGNATURE.pack([0, 0, 0, n])
    grid = (-(-n // TILE), 1, 1)
    bound = ((0, 0, 4 * n), (1, 0, 4 * n), (2, 0, 4 * n))
    again = ((2, 0, 4 * n), (1, 0, 4 * n), (3, 0, 4 * n))
    plan = driver.prepare(
        [
            LaunchStep(kernel, "add", grid, (1, 1, 1), bound, block),
            LaunchStep(kernel, "add", grid, (1, 1, 1), again, block),
            CopyStep(0, 0, 3, 4, 8),
        ]
    )
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32)
        a, b, c, d = put(driver, x), put(driver, y), driver.allocate(4 * n), put(driver, np.zeros(n, np.float32))
        fewer = (1, 12, np.int32(n - seed).tobytes())
        driver.replay(None, plan, [a, b, c, d], [fewer])
        expected = (x + y) + y
        expected[n - seed :] = 0
        np.testing.assert_array_equal(get(driver, d, 0, np.float32, n), expected)
        np.testing.assert_array_equal(get(driver, a, 0, np.float32, 2), expected[1:3])
    driver.free(plan)


def test_double_load_and_free_of_one_keeps_the_other(driver: Any) -> None:
    first, second = load(driver, MARK, MARK_SIGNATURE), load(driver, MARK, MARK_SIGNATURE)
    driver.free(first)
    out = put(driver, np.zeros(4, np.int32))
    driver.launch(None, second, "mark", (4, 1, 1), (1, 1, 1), [(out, 0, 16)], MARK_SIGNATURE.pack([4, 1]))
    assert get(driver, out, 0, np.int32, 4).tolist() == [1, 1, 1, 1]
    with pytest.raises(LaunchError, match="mark"):
        driver.launch(None, first, "mark", (4, 1, 1), (1, 1, 1), [(out, 0, 16)], b"\0" * 8)


def test_launch_of_unknown_entry_names_what_there_is(driver: Any) -> None:
    kernel = load(driver, MARK, MARK_SIGNATURE)
    with pytest.raises(LaunchError, match="nothing is not loaded; the program has mark"):
        driver.launch(None, kernel, "nothing", (1, 1, 1), (1, 1, 1), [], b"")


@pytest.mark.parametrize(
    ("source", "entries", "message"),
    [
        ("define void @k( {", ["k"], "refused"),
        ("define i32 @k(float %x) { ret float %x }", ["k"], "refused"),
        ("define void @k() { ret void }", ["k", "other"], "does not define other"),
        ("declare void @nowhere()\ndefine void @k() { call void @nowhere() ret void }", ["k"], "@nowhere"),
    ],
)
def test_compile_error_has_log_and_source(source: str, entries: list[str], message: str) -> None:
    adapter = CpuAdapter()
    with pytest.raises(CompileError, match=message) as raised:
        adapter.compile(adapter.devices()[0].target, source, entries)
    assert raised.value.source == source


@pytest.mark.parametrize("code", [b"", b"no object code", b"\x7fELF" + bytes(100)])
def test_load_of_broken_code_raises(driver: Any, code: bytes) -> None:
    with pytest.raises(CompileError, match="mark"):
        driver.load(code, [MARK_SIGNATURE])


def test_allocate_more_than_the_host_has_raises_and_keeps_working(driver: Any) -> None:
    total = driver.memory_info()[1]
    with pytest.raises(OutOfMemoryError):
        driver.allocate(total + 1)
    half = driver.allocate(total // 2)
    with pytest.raises(OutOfMemoryError, match="in use"):
        driver.allocate(total // 2 + 4096)
    driver.free(half)
    driver.free(driver.allocate(64))


@pytest.mark.parametrize(("nbytes", "alignment"), [(1, 64), (1000, 64), (1 << 20, 2 << 20), (5 << 20, 2 << 20)])
def test_allocate_is_aligned_and_writable(driver: Any, nbytes: int, alignment: int) -> None:
    handle = driver.allocate(nbytes)
    assert driver.address(handle) % alignment == 0
    driver.fill(None, handle, 0, nbytes, 7)
    assert ctypes.string_at(driver.address(handle) + nbytes - 1, 1) == b"\7"
    driver.free(handle)


def test_adopt_shares_foreign_memory(driver: Any) -> None:
    array = np.arange(10, dtype=np.int32)
    handle = driver.adopt(array.ctypes.data, array.nbytes, array)
    driver.fill(None, handle, 4, 4, 0)
    assert array.tolist() == [0, 0, 2, 3, 4, 5, 6, 7, 8, 9]
    driver.free(handle)
    assert array[2] == 2


def test_missing_llvmlite_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    program.llvm.cache_clear()
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    with pytest.raises(DeviceError, match=r"oarlock\[cpu\]"):
        CpuAdapter().devices()
    monkeypatch.undo()
    assert CpuAdapter().devices()


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize(
    ("x", "y", "batch", "contract", "einsum"),
    [
        ((40, 30), (30, 50), ((), ()), ((1,), (0,)), "mk,kn->mn"),
        ((30, 40), (50, 30), ((), ()), ((0,), (1,)), "km,nk->mn"),
        ((3, 40, 30), (3, 30, 20), ((0,), (0,)), ((2,), (1,)), "bmk,bkn->bmn"),
        ((40, 3, 30), (30, 20, 3), ((1,), (2,)), ((2,), (0,)), "mbk,knb->bmn"),
        ((4, 10, 6, 5), (6, 5, 20), ((), ()), ((2, 3), (0, 1)), "abkl,kln->abn"),
        ((2, 1000), (1000, 20), ((), ()), ((1,), (0,)), "mk,kn->mn"),
    ],
)
def test_matrix_product_matches_einsum(
    driver: Any, dtype: Any, x: Any, y: Any, batch: Any, contract: Any, einsum: str
) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(x).astype(dtype.numpy), rng.standard_normal(y).astype(dtype.numpy)
    expected = np.einsum(einsum, a, b)
    attributes = {"batch": batch, "contract": contract, "dtype": dtype}
    call = OperatorCall("array.dot_general", ((dtype, x), (dtype, y)), ((dtype, expected.shape),), attributes)
    kernel = driver.match(call, CpuAdapter().devices()[0].target)
    assert kernel is not None and kernel.workspace() == 0
    out = driver.allocate(expected.nbytes + 64)
    kernel.run(None, [(put(driver, a, 64), 64), (put(driver, b, 8), 8), (out, 64)])
    result = get(driver, out, 64, dtype.numpy, expected.size).reshape(expected.shape)
    np.testing.assert_allclose(result, expected, rtol=1e-4 if dtype.bits == 32 else 1e-10, atol=1e-4)


def test_match_declines_what_the_library_does_not_do() -> None:
    driver, target = CpuAdapter().open(0), CpuAdapter().devices()[0].target
    attributes = {"batch": ((), ()), "contract": ((1,), (0,)), "dtype": dtypes.int32}
    square = (dtypes.int32, (64, 64))
    tiny = (dtypes.float32, (2, 2))
    assert driver.match(OperatorCall("array.dot_general", (square, square), (square,), attributes), target) is None
    assert driver.match(OperatorCall("array.dot_general", (tiny, tiny), (tiny,), attributes), target) is None
    assert driver.match(OperatorCall("array.add", (tiny, tiny), (tiny,), {}), target) is None
    driver.close()
