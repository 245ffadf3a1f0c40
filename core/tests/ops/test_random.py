"""Random bits against the published known answers of Philox4x32-10, and its numbering."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oarlock.ops.random import philox

KNOWN = (
    ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0xA4093822, 0x299F31D0),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


@pytest.mark.parametrize(("key", "counter", "words"), KNOWN)
def test_philox_known_answers(key: Any, counter: Any, words: Any) -> None:
    assert philox(key, np.array([counter], np.uint32))[0].tolist() == list(words)


def test_element_is_word_of_its_block(call: Any) -> None:
    key, counter = np.array([1, 2], np.uint32), np.array([0xFFFFFFFF, 7], np.uint32)
    bits = call("random_bits", key, counter, shape=(3, 3)).reshape(-1)
    blocks = np.array([[0xFFFFFFFF, 7, 0, 0], [0, 8, 0, 0], [1, 8, 0, 0]], np.uint32)
    assert bits.tolist() == philox((1, 2), blocks).reshape(-1)[:9].tolist()


def test_later_counters_continue_the_stream(call: Any) -> None:
    key = np.array([5, 6], np.uint32)
    whole = call("random_bits", key, np.array([0, 0], np.uint32), shape=(64,))
    assert call("random_bits", key, np.array([4, 0], np.uint32), shape=(48,)).tolist() == whole[16:].tolist()
    assert abs(np.unpackbits(whole.view(np.uint8)).mean() - 0.5) < 0.05
