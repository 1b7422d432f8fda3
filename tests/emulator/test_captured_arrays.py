"""Captured arrays under the sanitizer: they are memory that it knows, read and written."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernelmill.runtime.emulator.reports import SanitizerError

pytestmark = pytest.mark.usefixtures("unoptimised")


def test_the_sanitizer_finds_nothing_in_what_is_right():
    table, counts = np.arange(7, dtype=np.float32)[::-2], np.zeros(3, np.int32)
    x = np.arange(-3, 9, dtype=np.int32)

    def op(i):
        km.atomic.add(counts, i % 3, 1)
        counts[9] = 1  # outside: nothing happens
        return table[i]

    with km.Device("emulator", sanitize=True):
        found = km.transform(x, op)
        total = km.reduce(x, lambda a, b: a + b + counts[0], init=np.int32(2))
    assert found.tolist() == [0, 0, 0, 6, 4, 2, 0, 0, 0, 0, 0, 0]
    assert counts.tolist() == [4, 4, 4]
    assert total == x.sum() + 2 + 4 * len(x)


def test_the_sanitizer_sees_threads_that_meet_in_an_element():
    last = np.zeros(1, np.int32)

    def op(i):
        last[0] = i
        return i

    with (
        km.Device("emulator", sanitize=True),
        pytest.raises(SanitizerError, match="race"),
    ):
        km.transform(np.arange(64, dtype=np.int32), op)
