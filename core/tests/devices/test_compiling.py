"""The kernels of one program are compiled in parallel: two compilations wait for each other."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oarlock as ol
from oarlock.config import config
from oarlock.runtime import Device
from oarlock.runtime.kernels import BATCH

FUNCTIONS = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "exp", "expm1", "floor", "log",
    "log1p", "log2",
)  # fmt: skip


def test_two_batches_are_compiled_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function with an addition of its own, so that no kernel is known from elsewhere, and none joins another."""
    assert len(FUNCTIONS) > BATCH
    monkeypatch.setattr(config, "cache_dir", tmp_path)
    both = threading.Barrier(2, timeout=30)
    threads: set[int] = set()
    compile_alone = Device.compile

    def compile_together(device: Device, *given: Any, **options: Any) -> Any:
        if len(threads) < 2 and threading.get_ident() not in threads:
            threads.add(threading.get_ident())
            both.wait()
        return compile_alone(device, *given, **options)

    monkeypatch.setattr(Device, "compile", compile_together)
    operands = [ol.asarray(np.full(100 + i, 1.0, np.float32), device="cpu") for i in range(len(FUNCTIONS))]

    @ol.jit
    def all_of_them(*values: Any) -> Any:
        return [getattr(ol, name)(x * 0.123 + 0.5) for name, x in zip(FUNCTIONS, values, strict=True)]

    found = all_of_them(*operands)
    assert len(threads) == 2
    np.testing.assert_allclose(found[10].numpy(), np.full(110, np.exp(np.float32(0.623))), rtol=1e-6)
