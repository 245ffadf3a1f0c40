"""Every record on its samples: complete, consistent with its inference, its decomposition equal to its reference."""

from __future__ import annotations

import warnings
from typing import Any, get_args

import numpy as np
import pytest

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import ScalarType
from oarlock.ops import ARRAY, RECORDS, Record
from oarlock.ops.record import Tolerance
from oarlock.ops.tolerance import check

NAMES = sorted(RECORDS)
FEW = (dtypes.bool_, dtypes.uint8, dtypes.int32, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
"""A dtype of every way in which decompositions may differ."""
COMPOSITES = [name for name in NAMES if RECORDS[name].decompose is not None]


def samples(record: Record, dtype: DType) -> list[Any]:
    assert record.samples is not None
    return list(record.samples(dtype, np.random.default_rng(1)))


@pytest.mark.parametrize("name", NAMES)
def test_record_is_complete(name: str) -> None:
    record = RECORDS[name]
    assert record.name == name
    assert len(record.summary) > 5
    assert record.summary.endswith(".")
    assert record.tolerance in get_args(Tolerance)
    assert record.optional <= set(record.attributes)
    assert ARRAY.operations["array." + name].interface(Record) is record
    for dtype in record.dtypes:
        assert len(samples(record, dtype)) >= 2, dtype


@pytest.mark.parametrize("name", NAMES)
def test_reference_agrees_with_inference(name: str, types_of: Any) -> None:
    record = RECORDS[name]
    for dtype in record.dtypes:
        for sample in samples(record, dtype):
            before = [x.copy() for x in sample.operands]
            with warnings.catch_warnings(), np.errstate(all="raise"):
                warnings.simplefilter("error")
                results = record.reference(sample.operands, sample.attributes)
            wanted = record.infer_types(types_of(record, sample), sample.attributes)
            assert [(w.dtype.numpy, w.shape) for w in wanted] == [(r.dtype, r.shape) for r in results], (dtype, sample)
            for old, new in zip(before, sample.operands, strict=True):
                assert old.tobytes() == new.tobytes()
            assert check(record, sample.operands, sample.attributes, results) is None, (dtype, sample.attributes)


@pytest.mark.parametrize("name", COMPOSITES)
def test_decomposition_agrees_with_reference(name: str, types_of: Any, run: Any) -> None:
    record = RECORDS[name]
    assert record.decompose is not None
    for dtype in [d for d in record.dtypes if d in FEW]:
        for sample in samples(record, dtype):

            def emit(b: Any, *operands: Any, sample: Any = sample) -> Any:
                assert record.decompose is not None
                return record.decompose(b, operands, sample.attributes)

            results = run(emit, *sample.operands, types=types_of(record, sample))
            message = check(record, sample.operands, sample.attributes, results)
            assert message is None, (dtype, [x.shape for x in sample.operands], sample.attributes, message)


@pytest.mark.parametrize("name", NAMES)
def test_samples_repeat(name: str) -> None:
    record = RECORDS[name]
    dtype = record.dtypes[-1]
    for one, two in zip(samples(record, dtype), samples(record, dtype), strict=True):
        assert one.attributes == two.attributes
        assert [x.tobytes() for x in one.operands] == [x.tobytes() for x in two.operands]


def test_primitives_interpret_through_their_operation(run: Any) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (result,) = run(lambda b, v: b("reduce_sum", b("exp", v), axes=(1,)), x)
    np.testing.assert_allclose(result, np.exp(x).sum(1), rtol=1e-6)


def test_from_scalar_takes_run_time_scalars(run: Any, types_of: Any) -> None:
    (result,) = run(lambda b, s: b("from_scalar", s), np.float32(3), types=[ScalarType(dtypes.float32)])
    assert result.shape == () and result == 3
