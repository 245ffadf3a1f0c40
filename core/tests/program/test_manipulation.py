"""Functions that change shapes, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import oarlock as ol


@pytest.fixture(params=[np.float32, np.int8, np.bool_], ids=lambda d: np.dtype(d).name)
def x(request: pytest.FixtureRequest) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).integers(0, 100, (2, 3, 4)).astype(request.param)


CALLS: list[tuple[str, Callable[[Any, Any], Any], Callable[[Any], Any]]] = [
    ("broadcast_to", lambda ns, a: ns.broadcast_to(a, (5, 2, 3, 4)), lambda a: np.broadcast_to(a, (5, 2, 3, 4))),
    ("expand_dims", lambda ns, a: ns.expand_dims(a, axis=-2), lambda a: np.expand_dims(a, -2)),
    ("expand_dims-two", lambda ns, a: ns.expand_dims(a, axis=(0, 3)), lambda a: np.expand_dims(a, (0, 3))),
    ("flip", lambda ns, a: ns.flip(a), lambda a: np.flip(a)),
    ("flip-axis", lambda ns, a: ns.flip(a, axis=(1, -1)), lambda a: np.flip(a, (1, -1))),
    ("moveaxis", lambda ns, a: ns.moveaxis(a, 0, -1), lambda a: np.moveaxis(a, 0, -1)),
    ("moveaxis-two", lambda ns, a: ns.moveaxis(a, (0, 1), (2, 0)), lambda a: np.moveaxis(a, (0, 1), (2, 0))),
    ("permute_dims", lambda ns, a: ns.permute_dims(a, (2, 0, 1)), lambda a: a.transpose(2, 0, 1)),
    ("matrix_transpose", lambda ns, a: ns.matrix_transpose(a), lambda a: a.swapaxes(-1, -2)),
    ("swapaxes", lambda ns, a: ns.swapaxes(a, 0, 2), lambda a: a.swapaxes(0, 2)),
    ("reshape", lambda ns, a: ns.reshape(a, (4, -1)), lambda a: a.reshape(4, -1)),
    ("reshape-flat", lambda ns, a: ns.reshape(a, -1), lambda a: a.reshape(-1)),
    ("roll", lambda ns, a: ns.roll(a, 5), lambda a: np.roll(a, 5)),
    ("roll-axes", lambda ns, a: ns.roll(a, (1, -2), axis=(0, 2)), lambda a: np.roll(a, (1, -2), (0, 2))),
    ("tile", lambda ns, a: ns.tile(a, (2, 1, 3)), lambda a: np.tile(a, (2, 1, 3))),
    ("tile-more", lambda ns, a: ns.tile(a, (2, 1, 2, 1)), lambda a: np.tile(a, (2, 1, 2, 1))),
    ("repeat", lambda ns, a: ns.repeat(a, 3, axis=1), lambda a: np.repeat(a, 3, 1)),
    ("repeat-flat", lambda ns, a: ns.repeat(a, 2), lambda a: np.repeat(a, 2)),
    ("repeat-each", lambda ns, a: ns.repeat(a, [2, 0, 1], axis=1), lambda a: np.repeat(a, [2, 0, 1], 1)),
    ("concat", lambda ns, a: ns.concat([a, a[:, :1], a], axis=1), lambda a: np.concatenate([a, a[:, :1], a], 1)),
    ("concat-flat", lambda ns, a: ns.concat([a, a], axis=None), lambda a: np.concatenate([a, a], None)),
    ("stack", lambda ns, a: ns.stack([a, a], axis=-1), lambda a: np.stack([a, a], -1)),
    ("squeeze", lambda ns, a: ns.squeeze(a[:1, :, 2:3], (0, -1)), lambda a: a[:1, :, 2:3].squeeze((0, -1))),
]


@pytest.mark.parametrize(("call", "numpy_call"), [row[1:] for row in CALLS], ids=[row[0] for row in CALLS])
def test_function_is_numpys(call: Any, numpy_call: Any, x: np.ndarray[Any, Any], same: Callable[..., None]) -> None:
    same(call(ol, ol.asarray(x)), np.ascontiguousarray(numpy_call(x)))


def test_unstack_and_iteration(x: np.ndarray[Any, Any], same: Callable[..., None]) -> None:
    for part, expected in zip(ol.unstack(ol.asarray(x), axis=1), np.moveaxis(x, 1, 0), strict=True):
        same(part, expected)
    for part, expected in zip(ol.asarray(x), x, strict=True):
        same(part, expected)


def test_broadcast_arrays_and_meshgrid(same: Callable[..., None]) -> None:
    a, b, c = np.arange(3), np.arange(4), np.arange(2)
    for result, expected in zip(
        ol.broadcast_arrays(ol.asarray(a[:, None]), ol.asarray(b)), np.broadcast_arrays(a[:, None], b), strict=True
    ):
        same(result, expected)
    for indexing in ("xy", "ij"):
        for count in (1, 2, 3):
            given = (a, b, c)[:count]
            results = ol.meshgrid(*map(ol.asarray, given), indexing=indexing)
            for result, expected in zip(results, np.meshgrid(*given, indexing=indexing), strict=True):  # type: ignore[call-overload]
                same(result, expected)


def test_concat_promotes_and_keeps_empty_parts(same: Callable[..., None]) -> None:
    a, b = np.arange(3, dtype=np.int8), np.zeros((0,), np.float32)
    same(ol.concat([ol.asarray(a), ol.asarray(b)]), np.arange(3, dtype=np.float32))


def test_repeat_by_a_tensor_is_counted_on_the_host(same: Callable[..., None]) -> None:
    before = ol.host_operations().get("repeat", 0)
    same(ol.repeat(ol.arange(3), ol.asarray([1, 2, 0])), np.array([0, 1, 1]))
    assert ol.host_operations()["repeat"] == before + 1


def test_strided_views_join_as_copies(same: Callable[..., None]) -> None:
    d = np.arange(8, dtype=np.float32).reshape(2, 4)
    t = ol.asarray(d)
    turned = ol.flip(ol.permute_dims(t, (1, 0)), axis=0)
    same(ol.concat([t[:, :2], turned[:2, :2]]), np.concatenate([d[:, :2], np.rot90(d)[:2, :2]]))
    same(ol.stack([-t[..., 1::2], t[..., ::2]], axis=-1), np.stack([-d[..., 1::2], d[..., ::2]], -1))


def test_refusals() -> None:
    t = ol.ones((2, 3))
    for call, text in [
        (lambda: ol.reshape(t, (4, 2)), "reshape"), (lambda: ol.reshape(t, (-1, 4)), "does not fit"),
        (lambda: ol.broadcast_to(t, (2, 4)), "broadcast"), (lambda: ol.squeeze(t, 0), "size 2, not 1"),
        (lambda: ol.permute_dims(t, (0, 0)), "once"), (lambda: ol.concat([t, ol.ones((3, 2))]), "concat"),
        (lambda: ol.concat([]), "nothing"), (lambda: ol.stack([t, ol.ones((3,))]), "differ"),
        (lambda: ol.zeros((-1,)), "negative"), (lambda: t.T.mT.reshape(7), "reshape"),
    ]:  # fmt: skip
        with pytest.raises(ol.errors.ShapeError, match=text):
            call()
