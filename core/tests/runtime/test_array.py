"""Arrays on a device: conversion between host and storage dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from oarlock import dtypes
from oarlock.errors import DTypeError, UnsupportedError
from oarlock.runtime import empty, from_numpy, open_device, storage_of, to_numpy, transfer

SMALL = {
    "compute": frozenset({"bool", "int32", "uint32", "float32"}),
    "storage": (
        ("bool", "int32"), ("int8", "int32"), ("int16", "int32"), ("uint8", "uint32"), ("uint16", "uint32"),
        ("float16", "float32"), ("bfloat16", "float32"),
    ),
}  # fmt: skip
WIDE = {
    "compute": frozenset(dtype.name for dtype in dtypes.ALL if dtype.bits >= 32 or dtype.is_integer),
    "storage": (("bool", "uint8"), ("float16", "uint16"), ("bfloat16", "uint16")),
}


def values(dtype: dtypes.DType) -> np.ndarray:
    if dtype.kind == "bool":
        return np.array([True, False, True])
    if dtype.is_float:
        return np.array([0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan]).astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    return np.array([0, 1, info.min, info.max], dtype.numpy)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("kind", [SMALL, WIDE], ids=["small", "wide"])
def test_every_stored_dtype_comes_back_unchanged(make, dtype, kind):
    device = make(**kind)
    if not device.target.stores(dtype):
        with pytest.raises(UnsupportedError, match=f"fake:0 does not store {dtype}"):
            from_numpy(values(dtype), device)
        return
    array = from_numpy(values(dtype), device)
    assert (array.dtype, array.storage) == (dtype, device.target.storage_of(dtype))
    back = to_numpy(array)
    assert back.dtype == dtype.numpy
    raw = np.uint8
    if dtype.is_float:  # a NaN's payload may change in a conversion
        assert np.array_equal(np.isnan(back.astype(np.float64)), np.isnan(values(dtype).astype(np.float64)))
        back, expected = back[:-1], values(dtype)[:-1]
    else:
        expected = values(dtype)
    assert back.view(raw).tolist() == expected.view(raw).tolist()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
def test_shapes_are_kept(make, shape):
    array = from_numpy(np.ones(shape, np.float32), make())
    assert array.nbytes == 4 * int(np.prod(shape))
    assert to_numpy(array).shape == shape


def test_strides_and_byte_order_are_undone(make):
    device = make()
    source = np.arange(12, dtype=">i4").reshape(3, 4)[::-1, ::2]
    assert to_numpy(from_numpy(source, device)).tolist() == source.tolist()


def test_result_is_the_callers_own(make):
    array = from_numpy(np.zeros(3, np.float32), make())
    first = array.numpy()
    first[0] = 5
    assert array.numpy()[0] == 0


def test_offset_is_in_bytes(make):
    array = from_numpy(np.arange(6, dtype=np.float32), make())
    part = type(array)(array.device, array.buffer, 8, array.dtype, (2,))
    assert to_numpy(part).tolist() == [2, 3]


def test_unsupported_dtype_names_the_nearest_and_the_devices_that_have_it(make, fake):
    device = make(**SMALL, devices=2)
    fake.configure(**WIDE, devices=2)
    open_device("fake:1")
    with pytest.raises(UnsupportedError) as caught:
        storage_of(device, dtypes.float64, "operator add, argument 1")
    text = str(caught.value)
    assert text.startswith(
        "fake:0 does not store float64 (operator add, argument 1). Nearest it does: float32. "
        "Convert with x.astype(ol.float32), or choose a device with float64: "
    )
    assert "fake:1" in text


def test_numpy_dtype_without_equivalent_raises(make):
    with pytest.raises(DTypeError):
        from_numpy(np.zeros(2, np.complex64), make())


def test_values_travel_between_devices_of_different_storage(make, fake):
    first = make(**WIDE, devices=2)
    fake.configure(**SMALL, devices=2)
    second = open_device("fake:1")
    source = np.array([1.5, -3], ml_dtypes.bfloat16)
    moved = transfer(from_numpy(source, first), second)
    assert moved.device is second
    assert moved.nbytes == 8
    assert to_numpy(moved).tolist() == [1.5, -3]
    same = transfer(from_numpy(np.arange(3, dtype=np.float32), first), second)
    assert to_numpy(same).tolist() == [0, 1, 2]


def test_empty_has_room(make):
    assert empty(make(), dtypes.float32, (2, 3)).buffer.nbytes == 24
