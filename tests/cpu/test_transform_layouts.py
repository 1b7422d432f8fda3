"""`transform` on arrays of every layout: values, where they are written, memory order, overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelmill as km
from array_layouts import filled, lowered, same, shapes, views
from kernelmill.runtime.native import stream_threshold

pytestmark = pytest.mark.usefixtures("device")


def scaled(a: Any, b: Any) -> Any:
    return a * 2 - b


@given(st.data())
@settings(max_examples=150)
def test_any_strides_in_and_out(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    a, _ = data.draw(views(lowered(data.draw, shape), np.float32))
    b, _ = data.draw(views(shape, np.int16))
    expected = scaled(a, b)
    if data.draw(st.booleans()):
        same(km.transform((a, b), scaled), expected)
        return
    out, memory = data.draw(views(shape, np.float32, broadcast=False))
    before = memory.copy()
    np.copyto(out, expected)
    wanted = memory.copy()
    memory[...] = before
    assert km.transform((a, b), scaled, out=out) is out
    same(memory, wanted)  # nothing beside the view is written


@pytest.mark.host  # an array of no library has C order on a device
@given(st.data())
@settings(max_examples=60)
def test_the_result_has_the_memory_order_that_numpy_gives_it(data: st.DataObject) -> None:
    shape = data.draw(shapes(empty=False))
    a, _ = data.draw(views(shape, np.float32, broadcast=False, unaligned=False))
    found, expected = km.transform(a, lambda v: -v), np.negative(a)
    same(found, expected)
    steps = [s for s, n in zip(found.strides, shape, strict=True) if n > 1]
    wanted = [s for s, n in zip(expected.strides, shape, strict=True) if n > 1]
    assert steps == wanted


@given(st.data())
@settings(max_examples=80, suppress_health_check=list(HealthCheck))
def test_inputs_that_overlap_the_output_are_read_before_they_are_written(
    data: st.DataObject,
) -> None:
    size, count = 400, data.draw(st.integers(1, 100))
    memory = filled((size,), np.float32, data.draw(st.integers(0, 99)))

    def view() -> np.ndarray:
        step = data.draw(st.sampled_from((1, 1, 2, 3, -1, -2)))
        reach = (count - 1) * abs(step) + 1
        start = data.draw(st.integers(0, size - reach))
        found = memory[start : start + reach : abs(step)]
        return found if step > 0 else found[::-1]

    a, b, out = view(), view(), view()
    wanted = memory.copy()
    at = (out.ctypes.data - memory.ctypes.data) // 4
    step = out.strides[0] // 4
    wanted[[at + i * step for i in range(count)]] = scaled(a.copy(), b.copy())
    before = memory.copy()
    for _ in range(2):  # the second call takes the quick path
        memory[...] = before
        km.transform((a, b), scaled, out=out)
        same(memory, wanted)


def test_in_place() -> None:
    x = np.arange(1000, dtype=np.float32)
    for k in range(1, 4):
        assert km.transform(x, lambda v: v + 1, out=x) is x
        same(x, np.arange(1000, dtype=np.float32) + k)
    y = x.reshape(10, 100).T
    km.transform((y, y), lambda a, b: a + b, out=y)
    same(x, 2 * (np.arange(1000, dtype=np.float32) + 3))


def test_shifted_by_one_in_both_directions() -> None:
    for source, target in ((slice(0, -1), slice(1, None)), (slice(1, None), slice(0, -1))):
        x = np.arange(100_000, dtype=np.int32)
        wanted = x.copy()
        wanted[target] = x[source] * 2
        km.transform(x[source], lambda v: v * 2, out=x[target])
        same(x, wanted)


@pytest.mark.parametrize("size", [0, 1, 2, 63, 64, 65, 1000, 65535, 65536, 65537])
@pytest.mark.parametrize("dtype", ["u1", "f8"])
def test_sizes(size: int, dtype: str) -> None:
    x = filled((size,), dtype, size)
    same(km.transform(x, lambda v: v + v), x + x)
    wide = np.zeros(size + 2, dtype)
    km.transform(x, lambda v: v + v, out=wide[1:-1])
    same(wide, np.concatenate([[0], x + x, [0]]).astype(dtype))


def test_four_axes_in_every_order() -> None:
    import itertools

    x = filled((7, 17, 5, 18), np.float32, 3)
    y = filled((7, 17, 5, 18), np.int16, 4)
    for order in itertools.permutations(range(4)):
        moved = y.transpose(order).copy().transpose(np.argsort(order))
        same(km.transform((x, moved), scaled), scaled(x, moved))
        same(km.transform((x.transpose(order), y.transpose(order)), scaled),
             scaled(x.transpose(order), y.transpose(order)))  # fmt: skip


@pytest.mark.parametrize("shapes_", [
    ((3, 1), (4,)), ((2, 1, 5), (7, 1)), ((1,), (40, 33)), ((), (3, 3)), ((40, 1), (1, 33)),
    ((0, 3), (1, 3)), ((1, 1), ()), ((17, 1, 19), (17, 18, 1)),
])  # fmt: skip
def test_broadcasting(shapes_: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (filled(s, t, 5) for s, t in zip(shapes_, ("f4", "i2"), strict=True))
    same(km.transform((a, b), scaled), np.asarray(scaled(a, b)))


def test_inputs_broadcast_to_a_larger_output() -> None:
    out = np.zeros((3, 4), np.float32)
    km.transform(np.arange(4, dtype=np.float32), lambda v: v + 1, out=out)
    same(out, np.tile(np.arange(1, 5, dtype=np.float32), (3, 1)))


def test_zero_dimensions_give_a_scalar_as_in_numpy() -> None:
    for a in (np.float32(3), np.array(3, np.float32)):
        for _ in range(2):
            found = km.transform((a, np.array(2, np.int16)), scaled)
            assert type(found) is np.float32
            assert found == 4
    out = np.zeros((), np.float32)
    assert km.transform((np.float32(3), np.array(2, np.int16)), scaled, out=out) is out
    same(out, np.array(4, np.float32))


def strided(dims: int) -> np.ndarray:
    """Two elements along each axis, no two of which merge."""
    return np.zeros((4,) * dims, np.uint8)[(slice(None, None, 2),) * dims]


def test_eight_dimensions_are_walked_and_more_when_they_merge() -> None:
    x = filled((4,) * 8, np.uint8, 1)[(slice(None, None, 2),) * 8]
    same(km.transform(x, lambda v: v + 1), x + np.uint8(1))
    y = filled((2,) * 12, np.uint8, 2)
    same(km.transform(y, lambda v: v + 1), y + np.uint8(1))


def test_nine_dimensions_that_do_not_merge_are_refused() -> None:
    with pytest.raises(km.ShapeError) as caught:
        km.transform(strided(9), lambda v: v + 1)
    assert str(caught.value) == (
        "9 dimensions with these strides leave 9 to walk, the limit is 8\n\n"
        "hint: copy the array to C order: `np.ascontiguousarray(x)`"
    )


@pytest.mark.host
@pytest.mark.parametrize("offset", [0, 1, 5])
def test_streamed_stores_give_the_same_result(offset: int) -> None:
    size = stream_threshold() // 8 + 70_001  # one float32 is read and one written
    memory = np.arange(size + 16, dtype=np.float32)
    x = memory[offset : offset + size]
    out = np.full(size + 16, -1, np.float32)
    km.transform(x, lambda v: v * 2 + 1, out=out[offset : offset + size])
    assert np.array_equal(out[offset : offset + size], x * 2 + 1)
    assert (out[:offset] == -1).all()
    assert (out[offset + size :] == -1).all()
    pieces = np.empty(size, np.float32)
    for k in range(0, size, 1 << 20):
        km.transform(x[k : k + (1 << 20)], lambda v: v * 2 + 1, out=pieces[k : k + (1 << 20)])
    assert np.array_equal(out[offset : offset + size], pieces)


@pytest.mark.host
def test_streamed_stores_with_strides_and_several_outputs() -> None:
    rows = stream_threshold() // (12 * 1024) + 3
    x = filled((1024, rows), np.float32, 9).T  # transposed
    low, high = km.transform(x, lambda v: (v - 1, v > 0))
    same(low, x - np.float32(1))
    same(high, x > 0)
    wide = np.zeros((rows, 1024 + 5), np.float32)
    km.transform(x, lambda v: v - 1, out=wide[:, 3:-2])
    same(wide[:, 3:-2], x - np.float32(1))
    assert not wide[:, :3].any()
    assert not wide[:, -2:].any()


@pytest.mark.host
@pytest.mark.slow
def test_more_than_two_to_the_31_elements() -> None:
    size = (1 << 31) + 12_347  # a multiple of 5
    x = np.zeros(size, np.uint8)
    x[-3:] = 7, 8, 9
    x[:2] = 1, 2
    km.transform(x, lambda v: v + 3, out=x)
    assert x[:3].tolist() == [4, 5, 3]
    assert x[-4:].tolist() == [3, 10, 11, 12]
    assert km.reduce(x) == 3 * size + 3 + 24
    assert km.reduce(x, km.maximum) == 12
    assert km.reduce(x.reshape(-1, 5), km.maximum, axis=0).tolist() == [
        int(x[k::5].max()) for k in range(5)
    ]
