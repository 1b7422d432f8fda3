"""Loop nests: each element is visited once, at its address, whatever the strides."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km
from array_layouts import lowered, shapes, views
from kernelmill.algorithms.layout import (
    MAX_DIMS,
    Layout,
    Operand,
    broadcast,
    c_strides,
    elementwise,
    memory_order,
    normalize_axes,
    reduction,
)
from reference_tree import sequence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def operand(x: np.ndarray) -> Operand:
    return Operand(x.shape, x.strides, x.itemsize)


def walked(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """The offset of each operand at each step of a loop nest, outermost loop first."""
    for index in itertools.product(*map(range, shape)):
        yield tuple(sum(i * s for i, s in zip(index, row, strict=True)) for row in strides)


def offsets(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The offset in bytes of each element of `x`, broadcast to `shape`."""
    y = np.broadcast_to(x, shape)
    found = np.zeros(shape, np.int64)
    for axis, stride in enumerate(y.strides):
        at = np.arange(shape[axis]) * stride
        found += at.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return found


@given(st.data())
@settings(max_examples=150)
def test_elementwise_visits_each_element_once(data: st.DataObject) -> None:
    shape = data.draw(shapes().filter(lambda s: np.prod(s) <= 2000))
    a, _ = data.draw(views(lowered(data.draw, shape), "f4"))
    b, _ = data.draw(views(shape, "i2"))
    out, _ = data.draw(views(shape, "f8", broadcast=False))
    arrays = [np.asarray(v) for v in (a, b, out)]
    layout = elementwise(shape, list(map(operand, arrays[:2])), [operand(arrays[2])])
    wanted = zip(*(offsets(v, shape).ravel().tolist() for v in arrays), strict=True)
    assert sorted(walked(layout.shape, layout.strides)) == sorted(wanted)
    assert 1 not in layout.shape
    check_patterns(layout, [4, 2, 8])


def check_patterns(layout: Layout, itemsizes: list[int]) -> None:
    for k, (pattern, item) in enumerate(zip(layout.patterns, itemsizes, strict=True)):
        inner = layout.strides[k][-1] if layout.shape else item
        if pattern == "contiguous":
            assert inner == item or 0 in layout.shape
        elif pattern == "broadcast":
            assert inner == 0
        elif pattern == "transposed":
            assert k < len(itemsizes) - 1
            assert layout.strides[k][-2] == item


def test_contiguous_arrays_are_one_loop() -> None:
    x, y = np.zeros((3, 4, 5)), np.zeros((3, 4, 5), np.float32)
    layout = elementwise((3, 4, 5), [operand(x)], [operand(y)])
    assert layout == Layout((60,), ((8,), (4,)), ("contiguous", "contiguous"))
    fortran = elementwise((5, 4, 3), [operand(x.T)], [operand(y.T)])
    assert fortran == layout


def test_writes_are_as_sequential_as_they_can_be() -> None:
    x, y = np.zeros((40, 50)), np.zeros((50, 40))
    layout = elementwise((40, 50), [operand(y.T)], [operand(x)])
    assert layout == Layout((40, 50), ((8, 320), (400, 8)), ("transposed", "contiguous"))
    small = elementwise((4, 50), [operand(np.zeros((50, 4)).T)], [operand(np.zeros((4, 50)))])
    assert small.patterns == ("strided", "contiguous")  # a tile would not pay


def test_a_broadcast_scalar_and_no_dimension() -> None:
    x, one = np.zeros((3, 4)), np.zeros(())
    layout = elementwise((3, 4), [operand(x), operand(one)], [operand(x)])
    assert layout.patterns == ("contiguous", "broadcast", "contiguous")
    assert elementwise((), [operand(one)], [operand(one)]).shape == ()
    assert elementwise((1, 1), [operand(np.zeros((1, 1)))], [operand(np.zeros((1, 1)))]).shape == ()


def test_empty_arrays_count_as_contiguous_whatever_their_strides() -> None:
    empty = Operand((0,), (0,), 8)  # np.arange(0.0)
    assert elementwise((0,), [empty], [empty]).patterns == ("contiguous", "contiguous")


def test_the_limit_of_dimensions() -> None:
    x = np.zeros((4,) * MAX_DIMS)[(slice(None, None, 2),) * MAX_DIMS]
    assert len(elementwise(x.shape, [operand(x)], [operand(np.zeros(x.shape))]).shape) == MAX_DIMS
    y = np.zeros((4,) * 9)[(slice(None, None, 2),) * 9]
    with pytest.raises(km.ShapeError, match="leave 9 to walk, the limit is 8"):
        elementwise(y.shape, [operand(y)], [operand(np.zeros(y.shape))])


@given(st.data())
@settings(max_examples=150)
def test_reductions_visit_sequences_in_the_order_of_the_tree(data: st.DataObject) -> None:
    shape = data.draw(shapes(empty=False).filter(lambda s: np.prod(s) <= 2000))
    axes = tuple(sorted(data.draw(st.sets(st.sampled_from(range(len(shape))))))) if shape else ()
    ordered = data.draw(st.booleans())
    x, _ = data.draw(views(shape, "f4"))
    x = np.asarray(x)
    out = np.zeros([n for a, n in enumerate(shape) if a not in axes])
    layout = reduction(shape, axes, [operand(x)], [operand(out)], ordered=ordered)
    columns = layout.form == "columns"
    rank, kept = len(layout.shape), layout.kept
    inner = (rank - 1,) if columns else ()
    reduced = [d for d in range(kept, rank) if d not in inner]
    order = [*range(kept), *inner, *reduced]  # kept dimensions outermost, then the sequence
    steps = list(walked([layout.shape[d] for d in order],
                        [[row[d] for d in order] for row in layout.strides]))  # fmt: skip
    length = int(np.prod([layout.shape[d] for d in reduced]))
    found = {}
    for k in range(0, len(steps), length):
        group = steps[k : k + length]
        assert len({to for _, to in group}) == 1
        found[group[0][1]] = [at for at, _ in group]
    # The same from the page: offsets of the elements, as a sequence of arrays over the kept axes.
    at = offsets(x, shape)
    rows = np.array(sequence(at, axes, commutative=not ordered, like=[x])).reshape(length, -1)
    wanted = {8 * k: rows[:, k].tolist() for k in range(rows.shape[1])}
    assert found == wanted


def test_forms_of_reductions() -> None:
    x = np.zeros((30, 40, 50))

    def form(axes: tuple[int, ...]) -> str:
        out = np.zeros([n for a, n in enumerate(x.shape) if a not in axes])
        return reduction(x.shape, axes, [operand(x)], [operand(out)], ordered=False).form

    assert form((0, 1, 2)) == form((2,)) == form((1, 2)) == "rows"
    assert form((0,)) == form((1,)) == form((0, 1)) == "columns"
    assert form((0, 2)) == "runs"


@given(st.lists(shapes(4), min_size=1, max_size=4))
def test_broadcast_is_numpys(given_shapes: list[tuple[int, ...]]) -> None:
    names = [f"x{i}" for i in range(len(given_shapes))]
    try:
        wanted = np.broadcast_shapes(*given_shapes)
    except ValueError:
        with pytest.raises(km.ShapeError, match="shapes do not broadcast"):
            broadcast(names, given_shapes)
    else:
        assert broadcast(names, given_shapes) == wanted


@given(st.data())
@settings(max_examples=200)
def test_memory_order_is_numpys(data: st.DataObject) -> None:
    shape = data.draw(shapes(empty=False).filter(lambda s: np.prod(s) <= 2000))
    arrays = [np.asarray(data.draw(views(shape, "f4", unaligned=False))[0]) for _ in range(2)]
    for given_arrays in (arrays[:1], arrays):
        order = memory_order(shape, list(map(operand, given_arrays)))
        made = np.empty([shape[a] for a in order]).transpose(np.argsort(order))
        wanted = np.asarray(np.add(*arrays) if len(given_arrays) > 1 else -arrays[0])
        scale = made.itemsize // wanted.itemsize
        steps = [s // scale for s, n in zip(made.strides, shape, strict=True) if n > 1]
        assert steps == [s for s, n in zip(wanted.strides, shape, strict=True) if n > 1]


def test_c_strides() -> None:
    assert c_strides((2, 3, 4), 8) == np.zeros((2, 3, 4)).strides
    assert c_strides((), 8) == ()
    assert c_strides((5,), 2) == (2,)


def test_axes() -> None:
    assert normalize_axes(None, 3) == (0, 1, 2)
    assert normalize_axes((-1, 0), 3) == (0, 2)
    assert normalize_axes(np.int8(1), 3) == (1,)
    assert normalize_axes([], 3) == ()
    with pytest.raises(km.ShapeError) as caught:
        normalize_axes(3, 3)
    assert str(caught.value) == (
        "axis 3 is out of range for an array of 3 dimensions\n\nhint: axes are -3 to 2"
    )
