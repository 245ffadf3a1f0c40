"""Recording: when programs run, what they compute, when they are built, and how they fail."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import oarlock as ol
from oarlock.config import config
from oarlock.errors import LaunchError
from oarlock.program import tape
from oarlock.program.plans import Counters, counters

pytestmark = pytest.mark.usefixtures("way")


class Work:
    """How much the counters grew since this was made."""

    def __init__(self) -> None:
        self.before = Counters(counters.built, counters.flushed, counters.outputs)

    @property
    def built(self) -> int:
        return counters.built - self.before.built

    @property
    def flushed(self) -> int:
        return counters.flushed - self.before.flushed

    @property
    def outputs(self) -> int:
        return counters.outputs - self.before.outputs


@pytest.fixture
def x() -> ol.Tensor:
    return ol.asarray(np.arange(6, dtype=np.float32).reshape(2, 3))


def names(function: object) -> list[str]:
    return [op.name.split(".")[1] for op in function.regions[0].block.ops]  # type: ignore[attr-defined]


def test_nothing_runs_until_a_value_is_observed(x: ol.Tensor) -> None:
    work = Work()
    y = ol.sum(x * 2.0 + 1.0, axis=0)
    assert work.flushed == 0
    np.testing.assert_array_equal(np.asarray(y), [8, 12, 16])
    assert work.flushed == 1
    np.asarray(y)
    assert work.flushed == 1


@pytest.mark.parametrize(
    "observe",
    [
        repr,
        np.asarray,
        bool,
        float,
        int,
        ol.Tensor.item,
        ol.Tensor.tolist,
        lambda t: t.__dlpack__(),
        lambda t: ol.synchronize(),
    ],
)
def test_every_kind_of_observation_runs_the_tape(observe: object) -> None:
    work = Work()
    y = ol.asarray(1.0) + 1.0
    observe(y)  # type: ignore[operator]
    assert work.flushed == 1


def test_dead_results_are_neither_outputs_nor_computed(x: ol.Tensor, backend: object) -> None:
    work = Work()
    kept = x + 1.0
    unused = ol.exp(kept)
    del unused
    result = ol.sqrt(kept)
    kept = None  # type: ignore[assignment]
    gc.collect()
    result.numpy()
    assert work.outputs == 1
    assert names(backend.functions[-1]) == ["from_scalar", "add", "sqrt", "return"]  # type: ignore[attr-defined]


def test_living_results_are_all_computed_by_one_program(x: ol.Tensor) -> None:
    work = Work()
    a, b = x + 1.0, x * 2.0
    np.asarray(a)
    np.asarray(b)
    assert (work.flushed, work.outputs) == (1, 2)


def test_new_scalars_and_new_data_do_not_build_again() -> None:
    work = Work()
    results = []
    for i in range(5):
        x = ol.asarray(np.full((2, 3), i, np.float32))
        results.append(ol.sum(x * float(i) + i).item())
    assert results == [6.0 * (i * i + i) for i in range(5)]
    assert (work.built, work.flushed) == (1, 5)


def test_another_shape_dtype_or_structure_builds_again(x: ol.Tensor) -> None:
    work = Work()
    (x + 1.0).numpy()
    (x + 1.0).numpy()
    assert work.built == 1
    (ol.zeros((4,)) + 1.0).numpy()
    (x.astype(ol.float64) + 1.0).numpy()
    (x + x).numpy()
    assert work.built == 4


def test_moving_index_becomes_a_run_time_scalar() -> None:
    x = ol.asarray(np.arange(100, dtype=np.float32).reshape(10, 10))
    work = Work()
    for i in range(8):
        np.testing.assert_array_equal(x[i], np.arange(100).reshape(10, 10)[i])
        np.testing.assert_array_equal(x[i : i + 2, 3], np.arange(100).reshape(10, 10)[i : i + 2, 3])
    assert work.built == 4  # a static and a moving program for each of the two patterns


def test_an_input_used_twice_is_entered_once(x: ol.Tensor, backend: object) -> None:
    ((x + 1.0) * x).numpy()
    assert len(backend.functions[-1].regions[0].block.args) == 2  # type: ignore[attr-defined]


def test_failure_poisons_all_results_with_the_line_that_recorded_them(x: ol.Tensor, backend: object) -> None:
    failure = LaunchError("kernel add_7 failed")
    failure.add_note("on stream 2")
    backend.fail_with = failure  # type: ignore[attr-defined]
    first = x + 1.0
    second = ol.exp(x)  # the line of the second one
    for result, line in ((first, "first = x + 1.0"), (second, "second = ol.exp(x)"), (first, "first = x + 1.0")):
        with pytest.raises(LaunchError, match="kernel add_7 failed") as caught:
            result.numpy()
        first_note, note = caught.value.__notes__
        assert first_note == "on stream 2"
        assert note.startswith("recorded at ") and __file__ in note and line in note
    with pytest.raises(LaunchError):
        first + 1.0
    np.testing.assert_array_equal(x + 1.0, np.arange(6).reshape(2, 3) + 1)


def test_synchronize_raises_the_failure(x: ol.Tensor, backend: object) -> None:
    backend.fail_with = LaunchError("kernel add_7 failed")  # type: ignore[attr-defined]
    result = x + 1.0
    with pytest.raises(LaunchError, match="add_7"):
        ol.synchronize()
    with pytest.raises(LaunchError):
        repr(result)


def test_interrupted_program_can_be_run_again(x: ol.Tensor, backend: object) -> None:
    backend.fail_with = KeyboardInterrupt()  # type: ignore[attr-defined]
    result = x + 1.0
    with pytest.raises(KeyboardInterrupt):
        result.numpy()
    np.testing.assert_array_equal(result + 1.0, np.arange(6).reshape(2, 3) + 2)


def test_use_from_another_thread_runs_the_tape(x: ol.Tensor) -> None:
    pending = x + 1.0
    work = Work()
    seen: list[np.ndarray] = []  # type: ignore[type-arg]

    def use() -> None:
        doubled = pending * 2.0
        assert work.flushed == 1
        seen.append(np.asarray(doubled))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    np.testing.assert_array_equal(seen[0], (np.arange(6).reshape(2, 3) + 1) * 2)
    np.testing.assert_array_equal(pending + 1.0, np.arange(6).reshape(2, 3) + 2)


def test_threads_record_and_share_without_mixing(x: ol.Tensor) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        value = x
        for step in range(60):
            value = value + float(number)
            if step % 7 == number % 7:
                ol.sum(value).item()
        if not np.array_equal(np.asarray(value), np.arange(6).reshape(2, 3) + 60 * number):
            wrong.append(value.numpy())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_eager_mode_runs_each_operator(x: ol.Tensor, backend: object) -> None:
    work = Work()
    with ol.eager_mode():
        y = ol.exp(x * 2.0 + 1.0)
        assert work.flushed == 3
    assert all(len(names(f)) <= 3 for f in backend.functions)  # type: ignore[attr-defined]
    np.testing.assert_allclose(y, np.exp(np.arange(6, dtype=np.float32).reshape(2, 3) * 2 + 1), rtol=1e-6)


def test_in_eager_mode_views_are_read_in_place(x: ol.Tensor, backend: object) -> None:
    """A transpose and a slice belong to the operator that reads them, though somebody holds them; they run alone when
    their own values are asked for, once."""
    work = Work()
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    with ol.eager_mode():
        turned = ol.permute_dims(x, (1, 0))
        cut = turned[1:, :]
        assert work.flushed == 0
        y = ol.exp(cut)
        assert work.flushed == 1
        z = ol.exp(turned)
        assert work.flushed == 2
        del turned
        np.testing.assert_array_equal(cut, host.T[1:])
        assert work.flushed == 3
        assert work.outputs == 3
        np.testing.assert_array_equal(cut, host.T[1:])
        assert work.flushed == 3
    assert [len(names(f)) for f in backend.functions] == [4, 3, 3]  # type: ignore[attr-defined]
    np.testing.assert_allclose(y, np.exp(host.T[1:]), rtol=1e-6)
    np.testing.assert_allclose(z, np.exp(host.T), rtol=1e-6)


def test_in_eager_mode_views_alone_end_at_the_limit(x: ol.Tensor) -> None:
    work = Work()
    with ol.eager_mode():
        y = x
        for _ in range(250):
            y = ol.permute_dims(y, (1, 0))
        assert work.flushed == 250 // tape.limits.views
        np.testing.assert_array_equal(y, np.arange(6, dtype=np.float32).reshape(2, 3))


def test_in_eager_mode_a_failure_leaves_views_usable(x: ol.Tensor, backend: object) -> None:
    with ol.eager_mode():
        turned = ol.permute_dims(x, (1, 0))
        backend.fail_with = LaunchError("kernel exp_1 failed")  # type: ignore[attr-defined]
        y = ol.exp(turned)
        np.testing.assert_array_equal(turned, np.arange(6, dtype=np.float32).reshape(2, 3).T)
        with pytest.raises(LaunchError):
            y.numpy()


def test_a_view_of_eager_mode_is_of_use_everywhere(x: ol.Tensor) -> None:
    """Twice in one operator, after the block, in another thread, and assigned to."""
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    with ol.eager_mode():
        turned = ol.permute_dims(x, (1, 0))
        np.testing.assert_array_equal(turned + turned, host.T * 2)
        again = ol.permute_dims(turned, (1, 0))
        x[0, 0] = 100.0
        np.testing.assert_array_equal(again, host)
    np.testing.assert_array_equal(turned * 3.0, host.T * 3)
    found: list[np.ndarray] = []

    def elsewhere() -> None:
        with ol.eager_mode():
            found.append(np.asarray(again - 1.0))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0], host - 1)
    assert x[0, 0] == 100.0


def test_eager_setting_runs_each_operator(x: ol.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "eager", True)
    work = Work()
    y = x + 1.0
    assert work.flushed == 1
    y = ol.exp(y)
    assert work.flushed == 2


@pytest.fixture
def few_operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tape.limits, "operators", 100)
    monkeypatch.setattr("oarlock.program.cut.SMALL_PROGRAM", 1)
    yield


def test_long_tape_without_repetition_runs_at_the_limit(few_operators: None, x: ol.Tensor) -> None:
    work = Work()
    value = x
    for i in range(99):
        value = getattr(ol, ("exp", "sin", "cos", "tanh", "sqrt", "abs")[(i * i) // 7 % 6])(value)
    assert work.flushed == 0
    value = value + x
    assert work.flushed == 1


def test_long_loop_is_cut_into_turns_that_are_one_program(few_operators: None) -> None:
    weight = ol.asarray(np.eye(3, dtype=np.float32))
    value = ol.ones((2, 3))
    work = Work()
    for i in range(60):
        for _ in range(3):
            value = ol.tanh(value @ weight) + 1.0
        value = value * float(i) / 7.0
    assert work.flushed >= 3
    assert work.built <= 3  # what precedes the loop with its first turn, one turn, perhaps the first with new inputs
    expected = np.ones((2, 3), np.float32)
    for i in range(60):
        for _ in range(3):
            expected = np.tanh(expected) + np.float32(1)
        expected = expected * np.float32(i) / np.float32(7)
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_values_alive_across_a_cut_are_right(few_operators: None, x: ol.Tensor) -> None:
    kept, value = [], x
    two = ol.asarray(2.0)
    for i in range(120):
        value = value + two
        if i % 50 == 3:
            kept.append((i, value * 1.0))
        value = ol.maximum(value, 0.0)
    for i, one in kept:
        np.testing.assert_array_equal(one, np.arange(6).reshape(2, 3) + 2 * (i + 1))
    np.testing.assert_array_equal(value, np.arange(6).reshape(2, 3) + 240)
    assert two.item() == 2.0


def test_failure_in_a_turn_poisons_what_is_pending(few_operators: None, x: ol.Tensor, backend: object) -> None:
    backend.fail_with = LaunchError("kernel failed")  # type: ignore[attr-defined]
    value = x
    with pytest.raises(LaunchError, match="kernel failed"):
        for _ in range(200):
            value = ol.exp(value) * 0.0


def test_bytes_held_pass_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape.limits, "held_bytes", 1000)
    work = Work()
    x = ol.zeros((10, 10))
    assert work.flushed == 0
    x = x + 1.0
    x = x + 1.0
    assert work.flushed == 1


def test_operands_on_two_devices_are_refused(x: ol.Tensor) -> None:
    y = x.to("host:1")
    with pytest.raises(ol.errors.DeviceError, match=r"host:0 and host:1: move one with x\.to\('host:0'\)"):
        x + y
    assert (x + y.to("host:0")).device is x.device


def test_operand_of_a_reopened_device_is_refused(x: ol.Tensor, backend: object) -> None:
    backend.reopen("host:0")  # type: ignore[attr-defined]
    with pytest.raises(ol.errors.DeviceError, match="before host:0 was closed and opened again"):
        x + ol.ones((2, 3))


def test_scalar_tensor_needs_no_device_to_be_read() -> None:
    work = Work()
    two = ol.asarray(2.5)
    assert two.item() == 2.5 and two.to("host:1").astype(ol.int8).item() == 2 and np.asarray(two, copy=False) == 2.5
    assert work.flushed == 1  # the conversion


def test_small_device_has_32_bit_defaults_and_refuses_64() -> None:
    y = ol.arange(3, device="small:0")
    assert y.dtype == ol.int32
    assert ol.sum(y).dtype == ol.argmax(y).dtype == ol.int32
    with pytest.raises(ol.errors.UnsupportedError, match="small:0 does not store float64.*Nearest it does: float32"):
        ol.asarray(np.zeros(3), device="small:0")
    with pytest.raises(ol.errors.UnsupportedError, match="int64"):
        y.astype(ol.int64)
