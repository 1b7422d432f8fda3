"""Blocks of captured scalars are filled up to where the next one may start."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernelmill.algorithms.plan import aligned


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 40])
def test_a_block_grows_to_a_multiple_of_16_bytes_by_zeros(size):
    found = aligned(b"\xff" * size)
    assert found == b"\xff" * size + bytes(len(found) - size)
    assert len(found) == (size + 15) // 16 * 16


def test_a_plan_reads_the_value_of_each_call_and_notices_another_type():
    factor = 2.5
    x = np.arange(4.0)
    plan = km.transform.plan(x, lambda v: v * factor)
    scope, functions = plan.built.scope, plan.functions
    assert scope.read(functions) == np.float64(2.5).tobytes() + bytes(8)
    factor = -1.0
    assert scope.read(functions) == np.float64(-1.0).tobytes() + bytes(8)
    np.testing.assert_array_equal(plan(x), -x)
    factor = 3
    assert scope.read(functions) is None


def test_an_operator_without_captures_has_an_empty_block():
    plan = km.transform.plan(np.arange(4.0), lambda v: v + 1)
    assert plan.built.scope.read(plan.functions) == b""
