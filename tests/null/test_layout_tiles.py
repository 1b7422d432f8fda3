"""Element-wise loop nests bring together the two dimensions that a tile needs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kernelmill as km
from kernelmill.algorithms.layout import Operand, c_strides, elementwise


def operand(array):
    return Operand(array.shape, array.strides, array.itemsize)


def nest(array, *more):
    out = Operand(array.shape, c_strides(array.shape, 4), 4)
    return elementwise(array.shape, [operand(array), *map(operand, more)], [out])


X = np.arange(16 * 17 * 18 * 19, dtype=np.float32).reshape(16, 17, 18, 19)


@pytest.mark.parametrize(
    "axes", [axes for axes in itertools.permutations(range(4)) if axes[3] != 3], ids=str
)
def test_whatever_the_order_of_axes_a_turned_input_is_read_in_tiles(axes):
    found = nest(X.transpose(axes))
    assert found.patterns == ("transposed", "contiguous")
    assert found.strides[0][-2] == 4
    assert found.strides[1][-1] == 4


def test_dimensions_that_are_too_short_for_a_tile_are_walked_as_they_lie_in_the_input():
    narrow = np.empty((18, 17, 16, 3), np.float32)
    found = nest(narrow.transpose(3, 2, 1, 0))
    assert found.shape == (17, 16, 3, 18)
    assert found.patterns == ("strided", "contiguous")


def test_rows_are_read_in_the_order_of_memory_where_the_inputs_agree():
    assert nest(X.transpose(0, 2, 1, 3)).shape == (16, 17, 18, 19)
    found = nest(X.transpose(0, 2, 1, 3), np.empty((16, 18, 17, 19), np.float32))
    assert found.shape == (16, 18, 17, 19)  # they do not: rows are written in order
    row = nest(X.transpose(0, 2, 1, 3), np.empty(19, np.float32))
    assert row.shape == (16, 17, 18, 19)  # an input that does not move says nothing


def test_a_tile_goes_on_along_the_dimension_that_continues_the_contiguous_one():
    found = nest(X.transpose(3, 2, 1, 0))
    assert found.shape == (17, 18, 19, 16)
    assert found.strides[0][-3:-1] == (19 * 4, 4)


def test_an_input_that_is_turned_already_keeps_its_tile():
    turned, reversed_ = X.transpose(0, 1, 3, 2), np.empty((18, 19, 17, 16), np.float32)
    found = nest(turned, reversed_.transpose(3, 2, 1, 0))
    assert found.shape == (16, 17, 19, 18)
    assert found.patterns[0] == "transposed"


def test_a_reversed_axis_is_not_taken_for_a_contiguous_one():
    found = nest(X[..., ::-1].transpose(3, 2, 1, 0))
    assert found.patterns == ("strided", "contiguous")


@pytest.mark.parametrize("axes", [(3, 2, 1, 0), (3, 0, 1, 2), (1, 3, 0, 2)], ids=str)
def test_the_values_are_those_of_numpy(axes):
    x = X.transpose(axes)
    other = np.arange(x.size, dtype=np.float32).reshape(x.shape[::-1]).transpose(3, 2, 1, 0)
    out = np.full(x.shape, np.nan, np.float32)
    km.transform((x, other), lambda a, b: a - b, out=out)
    np.testing.assert_array_equal(out, x - other)
