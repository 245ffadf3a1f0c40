"""``ol.jit``: when functions are traced, what their programs are, and that nothing is left of one that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import oarlock as ol
from oarlock.errors import DeviceError, ShapeError, TraceError, UnsupportedError
from oarlock.program.tape import thread_state

pytestmark = pytest.mark.usefixtures("way")


def ramp(*shape: int) -> ol.Tensor:
    return ol.asarray(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))


def names(function: object) -> list[str]:
    return [op.name.split(".")[1] for op in function.regions[0].block.ops]  # type: ignore[attr-defined]


def test_function_is_traced_once_per_shape_dtype_and_static_value() -> None:
    calls = []

    @ol.jit
    def f(x: ol.Tensor, n: object) -> ol.Tensor:
        calls.append(x.shape)
        return x * 2 + (0 if n is None else 1)

    for _ in range(3):
        np.testing.assert_array_equal(f(ramp(3), None), [0, 2, 4])
    assert len(calls) == f.traces == f.compiles == 1
    np.testing.assert_array_equal(f(ramp(3), 5), [1, 3, 5])
    assert f(ramp(4), None).shape == (4,)
    assert f(ramp(3).astype(ol.float64), None).dtype == ol.float64
    assert f.traces == 4
    for number in (1, 1.0, True, 0.0, -0.0):
        f(ramp(3), number)
    assert f.traces == 9


def test_arguments_and_results_are_trees() -> None:
    class Pair(NamedTuple):
        left: Any
        right: Any

    @ol.jit
    def f(pair: Pair, table: dict[str, Any], *, more: list[Any]) -> Any:
        return {"sum": pair.left + table["x"], "rest": [more[0] - 1, None, "text", Pair(pair.right, 3)]}

    found = f(Pair(ramp(2), ramp(3)), {"x": ramp(2)}, more=[ramp(2), "static"])
    np.testing.assert_array_equal(found["sum"], [0, 2])
    np.testing.assert_array_equal(found["rest"][0], [-1, 0])
    assert found["rest"][1:3] == [None, "text"]
    assert isinstance(found["rest"][3], Pair) and found["rest"][3].right == 3
    np.testing.assert_array_equal(found["rest"][3].left, [0, 1, 2])
    assert f.traces == 1


def test_results_may_be_arguments_constants_or_nothing() -> None:
    outside = ramp(2)
    f = ol.jit(lambda x: (x, x, outside, ol.asarray(5.0), x + 1))
    x = ramp(2)
    a, b, c, d, e = f(x)
    for found, expected in ((a, x), (b, x), (c, outside), (d, 5.0), (e, [1, 2])):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    assert ol.jit(lambda x: None)(x) is None


def test_tensors_from_outside_are_constants(backend: Any) -> None:
    weights = ramp(3)
    pending = weights + 1.0
    f = ol.jit(lambda x: x * weights + pending)
    np.testing.assert_array_equal(f(ramp(3)), [1, 3, 7])
    assert len(f.program(ramp(3)).regions[0].block.args) == 3


def test_numbers_given_as_tensors_do_not_trace_again() -> None:
    f = ol.jit(lambda x, rate: x * rate)
    for rate in (0.5, 2.0, 3.0):
        np.testing.assert_array_equal(f(ramp(2), ol.asarray(rate)), [0, rate])
    assert f.traces == 1


def test_numpy_arrays_are_arguments() -> None:
    f = ol.jit(lambda x: x + x)
    np.testing.assert_array_equal(f(np.float32([1, 2])), [2, 4])
    np.testing.assert_array_equal(f(ol.asarray(np.float32([2, 3]))), [4, 6])
    assert f.traces == 1


def test_unused_arguments_are_no_parameters() -> None:
    f = ol.jit(lambda x, y: y + 1)
    np.testing.assert_array_equal(f(ramp(3), ramp(2)), [1, 2])
    assert len(f.program(ramp(3), ramp(2)).regions[0].block.args) == 2  # y, and the number 1


def test_assignment_changes_the_callers_tensor() -> None:
    @ol.jit
    def f(x: ol.Tensor, y: ol.Tensor) -> ol.Tensor:
        old = x + 0
        x[0] = 7
        x += y
        return old

    for _ in range(2):
        x = ramp(3)
        old = f(x, ramp(3))
        np.testing.assert_array_equal(x, [7, 2, 4])
        np.testing.assert_array_equal(old, [0, 1, 2])
    x = ramp(3)
    with pytest.raises(TraceError, match="given twice"):
        f(x, x)
    np.testing.assert_array_equal(x, [0, 1, 2])


@pytest.mark.parametrize(
    "ask",
    [bool, float, int, np.asarray, repr, lambda t: t.item(), lambda t: [0][t], lambda t: ol.synchronize(),
     lambda t: t.to("host:1"), lambda t: t.__dlpack__(), lambda t: ol.unique_values(t)],
)  # fmt: skip
def test_asking_for_a_value_names_the_line(ask: Callable[[Any], Any]) -> None:
    def f(x: ol.Tensor) -> ol.Tensor:
        y = ol.sum(x).astype(ol.int64)
        ask(y)  # this line
        return x

    jitted = ol.jit(f)
    with pytest.raises(TraceError, match="asks for the value") as caught:
        jitted(ramp(3))
    assert "this line" in str(caught.value) or "lambda t" in str(caught.value)
    assert thread_state().tracing == 0
    np.testing.assert_array_equal(ramp(3) + 1, [1, 2, 3])
    assert jitted.compiles == 0


def test_tensors_of_a_trace_cannot_be_used_outside() -> None:
    kept: list[ol.Tensor] = []

    @ol.jit
    def f(x: ol.Tensor) -> ol.Tensor:
        kept.append(x + 1)
        return x * 2

    f(ramp(2))
    for use in (np.asarray, lambda t: t + 1, lambda t: ol.jit(lambda x: x)(t)):
        with pytest.raises(TraceError, match="used outside"):
            use(kept[0])


def test_errors_leave_nothing_behind() -> None:
    @ol.jit
    def f(x: ol.Tensor, y: ol.Tensor) -> ol.Tensor:
        return x + y

    pending = ramp(3) + 1
    with pytest.raises(ShapeError):
        f(ramp(3), ramp(4))
    assert thread_state().tracing == 0
    np.testing.assert_array_equal(f(pending, ramp(3)), [1, 3, 5])
    with pytest.raises(ZeroDivisionError):
        ol.jit(lambda x: x + 1 // 0)(ramp(3))


def test_arguments_must_fit() -> None:
    f = ol.jit(lambda x, y: x + y)
    with pytest.raises(DeviceError, match="move one"):
        f(ramp(2), ramp(2).to("host:1"))
    with pytest.raises(UnsupportedError, match="argument 1 of .* is a set"):
        f(ramp(2), {1, 2})
    with pytest.raises(TraceError, match="takes a function"):
        ol.jit(3)  # type: ignore[call-overload]


def test_device_says_where_it_runs() -> None:
    f = ol.jit(lambda: ol.ones((2,), device="host:1") * 3, device="host:1")
    assert f().device.name == "host:1"
    g = ol.jit(device="host:1")(lambda x: x + 1)
    assert g(np.float32([1])).device.name == "host:1"
    with pytest.raises(DeviceError):
        g(ramp(1))


def test_jitted_functions_inside_become_part_of_the_program() -> None:
    inner = ol.jit(lambda x: ol.exp(x))
    outer = ol.jit(lambda x: inner(x) + 1)
    np.testing.assert_array_equal(outer(ol.zeros((2,))), [2, 2])
    assert (inner.traces, outer.traces) == (0, 1)
    assert names(outer.program(ol.zeros((2,)))).count("exp") == 1


def test_methods_can_be_compiled() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        @ol.jit
        def __call__(self, x: ol.Tensor) -> ol.Tensor:
            return x * self.by

    double, triple = Scale(2.0), Scale(3.0)
    np.testing.assert_array_equal(double(ramp(2)), [0, 2])
    np.testing.assert_array_equal(triple(ramp(2)), [0, 3])


def test_in_eager_mode_the_function_itself_runs() -> None:
    f = ol.jit(lambda x: x + (1 if float(x[0]) == 0 else 2))
    with ol.eager_mode():
        np.testing.assert_array_equal(f(ramp(2)), [1, 2])
    assert f.traces == 0


def test_many_threads_trace_once() -> None:
    gate = threading.Barrier(4)
    found: list[Any] = []

    @ol.jit
    def f(x: ol.Tensor) -> ol.Tensor:
        return ol.sum(x * x)

    def work() -> None:
        x = ramp(4)
        x + 0  # something of this thread that waits
        gate.wait()
        found.append(float(f(x)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [14.0] * 4 and f.traces == 1
