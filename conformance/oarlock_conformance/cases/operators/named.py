"""The register of named cases: operators and programs at what real devices got wrong, each with its own check."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oarlock import dtypes
from oarlock.dtypes import DType
from oarlock.ir import TensorType, Value
from oarlock.ops import ArrayBuilder
from oarlock.runtime import Device
from oarlock_conformance.case import Case, Failure, Options, Outcome
from oarlock_conformance.cases.operators.build import build_function
from oarlock_conformance.cases.operators.device_run import run_twice

__all__ = ["NAMED", "NamedCase", "compute", "expect", "named", "plan", "run"]

Array = npt.NDArray[Any]
Check: TypeAlias = "Callable[[Device, Options], Mapping[str, Any] | None]"
Needs: TypeAlias = "Callable[[Device], str]"


@dataclass(frozen=True, slots=True)
class NamedCase:
    """One of them. ``dtypes`` must be stored; ``needs`` says what else is missing. ``quick``: also in that setting."""

    id: str
    group: str
    contract: str
    check: Check
    dtypes: tuple[DType, ...] = ()
    needs: Needs = lambda device: ""
    quick: bool = True

    def missing(self, device: Device) -> str:
        """Why it does not apply to a device; empty when it does."""
        absent = [dtype.name for dtype in self.dtypes if not device.target.stores(dtype)]
        return f"{', '.join(absent)} is not stored" if absent else self.needs(device)


NAMED: dict[str, NamedCase] = {}
"""Every named case by id, in the order of definition."""


def named(
    identity: str,
    contract: str,
    *,
    over: Sequence[DType] = (),
    stores: Sequence[DType] = (),
    quick: Sequence[DType] | bool = True,
    needs: Needs = lambda device: "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of (device, options) as the case ``identity``, which needs the dtypes that it ``stores``; of
    (device, options, dtype) as one case ``identity/dtype`` for each dtype ``over``, of which those in ``quick`` belong
    to the quick setting.

    It raises Failure, and may return details.
    """

    def register(check: Callable[..., Any]) -> Callable[..., Any]:
        group = identity.partition(".")[0]
        if not over:
            _add(NamedCase(identity, group, contract, check, tuple(stores), needs, bool(quick)))
        for dtype in over:
            fast = quick if isinstance(quick, bool) else dtype in quick
            _add(NamedCase(f"{identity}/{dtype}", group, contract, _with(check, dtype), (dtype,), needs, fast))
        return check

    return register


def _with(check: Callable[..., Any], dtype: DType) -> Check:
    return lambda device, options: check(device, options, dtype)


def _add(case: NamedCase) -> None:
    if case.id in NAMED:
        raise ValueError(f"two named cases are called {case.id}")
    NAMED[case.id] = case


def plan(device: Device, options: Options) -> list[Case]:
    """The named cases of a setting."""
    return [
        Case(case.id, "operators", f"named-{case.group}", case.contract, case.missing(device))
        for case in NAMED.values()
        if case.quick or not options.quick
    ]


def run(device: Device, identity: str, options: Options) -> Outcome:
    """Run one of them."""
    start = time.perf_counter()
    try:
        with np.errstate(all="ignore"):
            details = NAMED[identity].check(device, options) or {}
    except Failure as failure:
        return Outcome(identity, "failed", time.perf_counter() - start, "value", str(failure))
    except Exception as error:
        return Outcome(identity, "failed", time.perf_counter() - start, "exception", f"{type(error).__name__}: {error}")
    return Outcome(identity, "passed", time.perf_counter() - start, details=details)


def compute(device: Device, operands: Sequence[Array], body: Callable[..., Sequence[Value]]) -> list[Array]:
    """The results of ``body(builder, *operands)`` on the device: see ``run_twice``."""
    types = [TensorType(dtypes.from_numpy(x.dtype), x.shape) for x in operands]

    def whole(b: ArrayBuilder, *arguments: Value) -> Sequence[Value]:
        return body(b, *arguments)

    return run_twice(device, build_function(types, whole, "named"), list(operands), frozenset())


def expect(what: str, got: Array, want: npt.ArrayLike) -> None:
    """Fail unless ``got`` has the shape and, NaN being equal to NaN, the values of ``want``."""
    wanted = np.asarray(want)
    if got.shape != wanted.shape:
        raise Failure(f"{what}: shape {got.shape}, expected {wanted.shape}")
    wide, exact = (x.astype(np.float64) if x.dtype.kind not in "iub" else x for x in (got, wanted))
    wrong = (wide != exact) & ~(_is_nan(wide) & _is_nan(exact))
    if wrong.any():
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), got.shape))
        place = f" at {at}" if at else ""
        raise Failure(f"{what}{place}: {got[at]}, expected {wanted[at]}; {int(wrong.sum())} of {got.size} are wrong")


def _is_nan(x: Array) -> Array:
    return np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, np.bool_)
