"""Reductions along axes: every choice of axes, layout and form against NumPy and the tree."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km
from array_layouts import filled, same, shapes, views
from kernelmill.config import override
from reference_tree import CHUNK, reduced

pytestmark = pytest.mark.usefixtures("device")


def affine(a: Any, b: Any) -> Any:
    """Neither commutative nor associative: every change of the order shows."""
    return a * 3 + b


def thrice(a: Any, b: Any) -> Any:
    return a * np.uint32(3) + b


CHOICES = [c for r in range(5) for c in itertools.combinations(range(4), r)]
LAYOUTS = {
    "c": lambda x: x,
    "f": np.asfortranarray,
    "transposed": lambda x: np.ascontiguousarray(x.transpose(2, 0, 3, 1)).transpose(1, 3, 0, 2),
    "backwards": lambda x: np.ascontiguousarray(x[::-1, :, ::-1])[::-1, :, ::-1],
    "sliced": lambda x: np.repeat(np.repeat(x, 2, 3), 2, 1)[:, ::2, :, ::2],
    "broadcast": lambda x: np.broadcast_to(x[:, :1], x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_choices_of_axes(layout: str) -> None:
    x = LAYOUTS[layout](filled((3, 17, 5, 36), "f4", 1))
    y = LAYOUTS[layout](filled((3, 17, 5, 36), "u4", 2))
    for axis in CHOICES:
        for keepdims in (False, True):
            found = km.reduce(x, axis=axis, keepdims=keepdims)
            tree = np.asarray(reduced(x, np.add, axis=axis)) if axis else x
            shape = np.sum(x, axis=axis, keepdims=keepdims).shape
            same(found, tree.reshape(shape))
        found = km.reduce(y, affine, axis=axis)
        same(found, reduced(y, thrice, axis=axis, commutative=False) if axis else y)
        same(km.reduce(y, km.maximum, axis=axis), y.max(axis=axis))


@given(st.data())
@settings(max_examples=100)
def test_any_array_along_any_axes(data: st.DataObject) -> None:
    shape = data.draw(shapes(empty=False))
    axis = tuple(data.draw(st.sets(st.sampled_from(range(len(shape)))))) if shape else ()
    x, _ = data.draw(views(shape, "f4"))
    y, _ = data.draw(views(shape, "u4"))
    named = tuple(a - len(shape) if data.draw(st.booleans()) else a for a in axis)
    tree = reduced(x, np.add, axis=axis) if axis else x
    same(km.reduce(x, axis=named), tree)
    same(km.reduce(y, affine, axis=named),
         reduced(y, thrice, axis=axis, commutative=False) if axis else y)  # fmt: skip


@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_rows_of_a_few_elements(dtype: str) -> None:
    for length in range(1, 20):  # fewer than a packet of 16 bytes, and some more
        x = filled((37, length), dtype, length)
        same(km.reduce(x, axis=1), reduced(x if dtype == "f4" else x.astype("u8"), np.add, axis=1))
        same(km.reduce(x, km.maximum, axis=1), x.max(axis=1))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "shape", [(3, CHUNK + 7), (CHUNK + 7, 3), (2 * CHUNK + 1, 65), (37, 2, 700), (700, 40, 3)]
)
def test_long_axes_are_cut_into_chunks(shape: tuple[int, ...], threads: int) -> None:
    with override(num_threads=threads):
        x, y = filled(shape, "f4", 1), filled(shape, "u4", 2)
        axes = [(0,), (len(shape) - 1,)] + ([(0, 1), (0, 2), (1, 2)] if len(shape) == 3 else [])
        for axis in axes:
            same(km.reduce(x, axis=axis), reduced(x, np.add, axis=axis))
            same(km.reduce(y, affine, axis=axis),
                 reduced(y, thrice, axis=axis, commutative=False))  # fmt: skip


def test_windows_that_overlap() -> None:
    with override(num_threads=2):
        for step, width in ((16, 65), (48, 40), (1, 33)):
            base = filled((5000 * step + width,), "f4", step)
            x = np.lib.stride_tricks.as_strided(base, (5000, width), (4 * step, 4))
            for axis in (0, 1, None):
                same(km.reduce(x, axis=axis), reduced(x, np.add, axis=axis))


def test_the_names_of_axes() -> None:
    x = filled((3, 4, 5), "i4", 1)
    total = x.sum(axis=1, dtype="i8")
    for axis in (1, -2, np.int64(1), (1,), [1], [-2]):
        for _ in range(2):
            same(km.reduce(x, axis=axis), total)
    same(km.reduce(x, axis=(2, 0)), x.sum(axis=(0, 2), dtype="i8"))
    same(km.reduce(x, axis=()), x.astype("i8"))


@pytest.mark.parametrize(
    ("axis", "error", "text"),
    [
        (3, km.ShapeError,
         "axis 3 is out of range for an array of 3 dimensions\n\nhint: axes are -3 to 2"),
        (-4, km.ShapeError,
         "axis -4 is out of range for an array of 3 dimensions\n\nhint: axes are -3 to 2"),
        ((1, -2), km.ShapeError, "axis (1, -2) names an axis twice"),
        (1.0, km.ArgumentError, "`axis` is 1.0; expected: an integer or several"),
        ("0", km.ArgumentError, "`axis` is '0'; expected: an integer or several"),
    ],
)  # fmt: skip
def test_axes_that_are_none(axis: Any, error: type[Exception], text: str) -> None:
    x = np.zeros((2, 2, 2))
    km.reduce(x, axis=1)  # 1.0 is not 1 on the second call either
    for _ in range(2):
        with pytest.raises(error) as caught:
            km.reduce(x, axis=axis)
        assert str(caught.value) == text


def test_a_zero_dimensional_array_has_no_axis() -> None:
    assert km.reduce(np.float32(3)) == 3
    assert km.reduce(np.array(3), axis=()) == 3
    with pytest.raises(km.ShapeError) as caught:
        km.reduce(np.array(3), axis=0)
    assert str(caught.value) == (
        "axis 0 is out of range for an array of 0 dimensions\n\nhint: a 0-d array has no axis"
    )


@given(st.data())
@settings(max_examples=60)
def test_out_of_any_strides(data: st.DataObject) -> None:
    shape = data.draw(shapes(empty=False).filter(bool))
    axis = data.draw(st.integers(0, len(shape) - 1))
    keepdims = data.draw(st.booleans())
    x, _ = data.draw(views(shape, "f4", broadcast=False))
    expected = np.sum(x, axis=axis, keepdims=keepdims, dtype="f8")
    out, memory = data.draw(views(expected.shape, "f4", broadcast=False))
    before = memory.copy()
    out[...] = reduced(x, np.add, axis=axis).reshape(expected.shape)
    wanted = memory.copy()
    memory[...] = before
    assert km.reduce(x, axis=axis, keepdims=keepdims, out=out) is out
    same(memory, wanted)


def test_out_of_another_type() -> None:
    x = filled((40, 50), "f4", 1)
    out = np.zeros(50)
    km.reduce(x, axis=0, out=out)
    same(out, reduced(x, np.add, axis=0).astype("f8"))


def test_several_operators_along_an_axis() -> None:
    x = filled((60, 40), "i2", 1)
    for axis in (0, 1):
        total, low, tree = km.reduce(x, (km.add, km.minimum, affine), axis=axis)
        same(total, x.sum(axis=axis, dtype="i8"))
        same(low, x.min(axis=axis))
        same(tree, reduced(x, lambda a, b: a * np.int16(3) + b, axis=axis, commutative=False))
    outs = np.zeros(40, "i8"), np.zeros((40, 2), "i2")[:, 1]
    km.reduce(x, (km.add, km.minimum), axis=0, out=outs)
    same(outs[0], x.sum(axis=0, dtype="i8"))
    same(outs[1], x.min(axis=0))


def test_axes_without_elements() -> None:
    x = np.zeros((3, 0, 4), "f4")
    same(km.reduce(x, axis=1), np.zeros((3, 4), "f4"))
    same(km.reduce(x, km.minimum, axis=1), np.full((3, 4), np.inf, "f4"))
    same(km.reduce(x, axis=0), np.zeros((0, 4), "f4"))
    same(km.reduce(x, axis=(0, 2)), np.zeros(0, "f4"))
    same(km.reduce(x, affine, axis=1, init=2.0), np.full((3, 4), 2, "f4"))
    same(km.reduce(x, axis=1, keepdims=True), np.zeros((3, 1, 4), "f4"))
    with pytest.raises(km.ArgumentError, match="reduction of no elements with affine"):
        km.reduce(x, affine, axis=1)


def test_init_along_an_axis() -> None:
    x = filled((30, 20), "u4", 1)
    with np.errstate(over="ignore"):
        for axis in (0, 1):
            tree = reduced(x, thrice, axis=axis, commutative=False)
            same(km.reduce(x, affine, axis=axis, init=5), np.uint32(15) + tree)


def test_transform_reduce_along_axes_of_broadcast_inputs() -> None:
    a, b = filled((40, 1, 36), "f4", 1), filled((17, 36), "f4", 2)
    for axis in (0, 1, 2, (0, 2)):
        found = km.transform_reduce((a, b), lambda p, q: p * q, axis=axis)
        like = [np.broadcast_to(v, (40, 17, 36)) for v in (a, b)]
        same(found, reduced(a * b, np.add, axis=axis, like=like))


def test_more_dimensions_than_are_walked() -> None:
    x = np.zeros((4,) * 9, np.uint8)[(slice(None, None, 2),) * 9]
    with pytest.raises(km.ShapeError, match="9 dimensions with these strides leave 9 to walk"):
        km.reduce(x, axis=(0, 2, 4))
    assert (km.reduce(np.ones((2,) * 12, np.uint8), axis=(6, 7, 8, 9, 10, 11)) == 64).all()
