"""The public face: what it offers, what importing it loads, how tensors are shown and exchanged."""

from __future__ import annotations

import subprocess
import sys
import timeit
from typing import Any

import numpy as np
import pytest

import oarlock as ol


def test_every_public_name_is_there() -> None:
    assert all(getattr(ol, name) is not None or name == "newaxis" for name in ol.__all__)
    assert len(set(ol.__all__)) == len(ol.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ol.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_namespace_has_the_standards_functions() -> None:
    standard = """
        abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh
        bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor broadcast_arrays
        broadcast_to can_cast ceil clip concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum
        diff divide empty empty_like equal exp expand_dims expm1 eye finfo flip floor floor_divide from_dlpack full
        full_like greater greater_equal hypot iinfo imag isdtype isfinite isinf isnan less less_equal linspace log
        log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor matmul matrix_transpose max
        maximum mean meshgrid min minimum moveaxis multiply negative nextafter nonzero not_equal ones ones_like
        permute_dims positive pow prod real reciprocal remainder repeat reshape result_type roll round searchsorted
        sign signbit sin sinh sort sqrt square squeeze stack std subtract sum take take_along_axis tan tanh
        tensordot tile tril triu trunc unique_all unique_counts unique_inverse unique_values unstack var vecdot
        where zeros zeros_like e inf nan newaxis pi bool __array_namespace_info__ __array_api_version__""".split()
    assert not set(standard) - set(ol.__all__)
    assert ol.asarray(1).__array_namespace__() is ol


def test_import_loads_no_plugins_compilers_or_drivers() -> None:
    code = (
        "import sys, oarlock as ol; assert 'numpy' not in sys.modules; ol.asarray; ol.Tensor; "
        "bad = {'pluggy', 'llvmlite', 'pyopencl', 'onnx', 'oarlock.runtime', 'oarlock.registry', 'oarlock.codegen'}; "
        "print(sorted(bad & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], "tensor([[1., 2.], [3., 4.]], dtype=float32, device=host:0)"),
        (3, "tensor(3, dtype=int64, device=host:0)"),
        ([True, False], "tensor([True, False], dtype=bool, device=host:0)"),
        ([10, 200], "tensor([10, 200], dtype=int64, device=host:0)"),
        (np.zeros((0, 2), np.int8), "tensor([], shape=(0, 2), dtype=int8, device=host:0)"),
        ([np.nan, -np.inf], "tensor([nan, -inf], dtype=float32, device=host:0)"),
    ],
)
def test_repr(value: Any, text: str) -> None:
    assert repr(ol.asarray(value)) == text


def test_repr_of_big_tensors_leaves_out_the_middle() -> None:
    text = repr(ol.zeros((1000, 1000)))
    assert "..." in text and len(text) < 1000 and text.endswith("dtype=float32, device=host:0)")
    assert repr(ol.ones((2,), dtype=ol.bfloat16)) == "tensor([1., 1.], dtype=bfloat16, device=host:0)"


def test_conversions_to_python() -> None:
    assert (bool(ol.asarray(2)), int(ol.asarray(2.7)), float(ol.asarray(3)), complex(ol.asarray(1.0))) == (
        True,
        2,
        3.0,
        1,
    )
    assert [10, 20, 30][ol.asarray(1)] == 20
    assert ol.asarray([[1.5]]).item() == 1.5 and ol.asarray([[1], [2]]).tolist() == [[1], [2]]
    assert len(ol.zeros((4, 2))) == 4
    for call in (lambda: bool(ol.ones((2,))), lambda: float(ol.ones((2,))), lambda: [1][ol.asarray(0.0)]):  # type: ignore[call-overload]
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ol.errors.ShapeError, match="one element"):
        ol.ones((2,)).item()
    with pytest.raises(TypeError, match="unhashable"):
        hash(ol.ones(()))


def test_numpy_conversion() -> None:
    t = ol.asarray([1.0, 2.0])
    assert np.asarray(t, np.int8).dtype == np.int8
    assert np.asarray(t).flags.writeable
    view = np.array(t, copy=False)
    assert not view.flags.writeable and view.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="copied"):
        np.array(t, np.int8, copy=False)
    assert isinstance(np.ones(2) + t, ol.Tensor)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64"])
def test_dlpack_both_ways(dtype: str) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    t = ol.from_dlpack(x)
    assert t.__dlpack_device__() == (1, 0)
    back = np.from_dlpack(t)
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(back, x)
    np.testing.assert_array_equal(np.from_dlpack(t[:, ::-1]), x[:, ::-1])
    x[:] = 0
    np.testing.assert_array_equal(t, np.arange(6).reshape(2, 3).astype(dtype))


def test_dlpack_refusals() -> None:
    t = ol.ones((2,))
    for arguments in ({"dl_device": (2, 0)}, {"stream": 1}):
        with pytest.raises(BufferError):
            t.__dlpack__(**arguments)  # type: ignore[arg-type]
    assert not np.from_dlpack(t, copy=False).flags.writeable
    with pytest.raises(BufferError):
        t.__dlpack__(copy=False)  # read-only memory needs DLPack 1.0
    with pytest.raises(BufferError, match="bfloat16"):
        t.astype(ol.bfloat16).__dlpack__()
    with pytest.raises(ol.errors.UnsupportedError, match="DLPack"):
        ol.from_dlpack([1, 2])
    with pytest.raises(BufferError, match="copy"):
        ol.from_dlpack(np.ones(2), copy=False)


def test_dtype_functions() -> None:
    assert (
        ol.can_cast(ol.int8, ol.int16) and not ol.can_cast(ol.int16, ol.int8) and not ol.can_cast(ol.int64, ol.float32)
    )
    assert ol.finfo(ol.bfloat16).eps == 2**-7 and ol.finfo(ol.ones((), dtype=ol.float64)).bits == 64
    assert (ol.iinfo("int8").min, ol.iinfo(ol.uint16).max) == (-128, 65535)
    assert ol.isdtype(ol.uint8, "integral") and ol.isdtype(ol.float16, (ol.bool, "real floating"))
    assert not ol.isdtype(ol.bool, "numeric") and not ol.isdtype(ol.int8, "complex floating")
    assert ol.result_type(ol.int8, 3, ol.uint8) == ol.int16 and ol.result_type(ol.float16, 2.0) == ol.float16
    with pytest.raises(ol.errors.DTypeError):
        ol.iinfo(ol.float32)
    with pytest.raises(ol.errors.DTypeError):
        ol.isdtype(ol.int8, "integer")


def test_devices_and_defaults() -> None:
    assert ol.device().name == "host:0" and ol.device("host:1").name == "host:1"
    assert ol.devices() == ["host:0", "host:1", "small:0"]
    with ol.default_device("small:0"):
        assert ol.zeros((2,)).device is ol.device("small:0")
    info = ol.__array_namespace_info__()
    assert info.default_dtypes(device="small:0")["integral"] == ol.int32
    assert "int64" in info.dtypes() and "int64" not in info.dtypes(device="small:0")
    assert set(info.dtypes(kind="bool")) == {"bool"}


def test_recording_cost_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    t = ol.ones((4,)) + 0.0
    ol.synchronize()
    with capsys.disabled():
        for name, call in (("x + x", lambda: t + t), ("x + 2.5", lambda: t + 2.5)):
            best = min(timeit.repeat(call, number=200, repeat=5)) / 200
            print(f"\nrecording {name}: {best * 1e6:.1f} us", end="")
    ol.synchronize()
