"""`topk`, `merge`, sets, segments and shuffles against NumPy; faults by their texts."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelmill as km
from sorted_order import order

NUMBERS = st.lists(st.integers(-9, 9), max_size=60)
# Examples share the device that a test runs on.
SHARED = (HealthCheck.function_scoped_fixture,)


# ----------------------------------------------------------------------------- topk


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f2", "f4", "i8", "c8", "c16"])
@pytest.mark.parametrize("largest", [True, False])
def test_the_first_of_an_order_and_where_they_are(dtype: str, largest: bool) -> None:
    random = np.random.default_rng(1)
    for length, k in ((1, 1), (5, 0), (5, 5), (700, 3), (5000, 16), (5000, 3000), (150_000, 40)):
        x = random.integers(0, 250, length).astype(dtype)
        if x.dtype.kind == "f":
            x[0] = np.nan
            x[length // 2] = -0.0
        wanted = order(x, descending=largest)[:k]
        values, found = km.topk(x, k, largest)
        assert np.array_equal(found, wanted)
        assert values.tobytes() == x[wanted].tobytes()


def test_rows_have_their_own_first_ones(place: str) -> None:
    random = np.random.default_rng(2)
    many = 100 if place == "emulator" else 900
    x = random.normal(size=(7, many, 3))
    for axis in (0, 1, 2):
        k = min(2, x.shape[axis])
        values, found = km.topk(x, k, axis=axis)
        wanted = np.argsort(-x, axis=axis, kind="stable").take(np.arange(k), axis=axis)
        assert np.array_equal(found, wanted)
        assert np.array_equal(values, np.take_along_axis(x, wanted, axis))
    out = np.zeros((7, many, 1)), np.zeros((7, many, 1), np.int64)
    assert km.batched_topk(x, 1, largest=False, out=out) is out
    assert np.array_equal(out[1][..., 0], x.argmin(-1))
    wide = random.normal(size=(3, 40_000 if place == "emulator" else 100_000)).astype("f4")
    assert np.array_equal(km.batched_topk(wide, 5)[1], np.argsort(-wide, kind="stable")[:, :5])


def test_there_may_be_no_elements_to_take(place: str) -> None:
    for shape, axis in (((0,), 0), ((0, 2), 0), ((2, 0), 1), ((0, 70_000), 1)):
        values, found = km.topk(np.zeros(shape, "f4"), 0, axis=axis)
        assert (
            values.shape == found.shape == tuple(0 if a == axis else n for a, n in enumerate(shape))
        )
    assert km.batched_topk(np.zeros((0, 70_000)), 3)[1].shape == (0, 3)


def test_topk_of_tensors_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randperm(5000).sub(2500).to(torch.bfloat16).unique()
    x = x[torch.randperm(len(x))]
    for k in (3, len(x) - 1):
        wanted = torch.topk(x, k)
        values, found = km.topk(x, k)
        assert torch.equal(values, wanted.values)
        assert torch.equal(found, wanted.indices)


def test_topk_plans_and_views(place: str) -> None:
    x = np.random.default_rng(3).normal(size=4000)
    plan = km.topk.plan(x, 3)
    assert np.array_equal(plan(x[::-1])[0], np.sort(x)[::-1][:3])
    assert "topk" in plan.explain()


@settings(max_examples=15, deadline=None, suppress_health_check=SHARED)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=50), st.data())
def test_the_nth_element_is_in_its_place(place: str, numbers: list[int], data: Any) -> None:
    x = np.array(numbers, "f8")
    n = data.draw(st.integers(-len(x), len(x) - 1))
    for descending in (False, True):
        found = km.nth_element(x, n, descending=descending)
        wanted = np.sort(x)[::-1] if descending else np.sort(x)
        at = n % len(x)
        assert found[at] == wanted[at]
        assert np.array_equal(np.sort(found), np.sort(x))
        front, back = found[:at], found[at:]
        assert not front.size or (
            front.min() >= back.max() if descending else front.max() <= back.min()
        )
    by_size = km.nth_element(x, n, comparator=lambda a, b: abs(a) < abs(b))
    assert abs(by_size[n]) == np.sort(abs(x))[n]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_parts_hold_the_very_elements(place: str, dtype: str) -> None:
    random = np.random.default_rng(8)
    x = random.normal(size=400).astype(dtype)
    special = np.array([0.0, -0.0, np.nan, -np.nan], dtype)
    x[::2] = random.choice(special, 200)
    bits = f"u{x.itemsize}"
    for n in (10, 150, -1):
        for descending in (False, True):
            found = km.nth_element(x, n, descending=descending)
            assert np.array_equal(np.sort(found.view(bits)), np.sort(x.view(bits)))


def test_a_direction_is_what_is_true(place: str) -> None:
    x = np.array([3, 1, 2])
    for yes in (2, -1, np.True_, "so"):
        assert km.sort(x, descending=yes).tolist() == [3, 2, 1]
        assert km.argsort(x, descending=yes).tolist() == [0, 2, 1]
        assert km.topk(x, 2, yes)[0].tolist() == [3, 2]
        assert km.batched_topk(x[None], 1, yes)[0].tolist() == [[3]]
        assert km.merge(x[:1], x[1:2], descending=yes).tolist() == [3, 1]
        assert km.segmented_sort(x, np.array([0, 3]), descending=yes).tolist() == [3, 2, 1]
    assert km.sort.plan(x, descending=2)(x).tolist() == [3, 2, 1]


# ----------------------------------------------------------------------------- merge and sets


@settings(max_examples=20, deadline=None, suppress_health_check=SHARED)
@given(NUMBERS, NUMBERS, st.booleans())
def test_merging_is_stable(
    place: str, first: list[int], second: list[int], descending: bool
) -> None:
    a, b = (np.array(sorted(v, reverse=descending), "i4") for v in (first, second))
    both = np.concatenate([a, b])
    wanted = order(both, descending=descending)
    assert np.array_equal(km.merge(a, b, descending=descending), both[wanted])
    numbers = np.arange(len(both))
    keys, (found, doubled) = km.merge(
        a,
        b,
        values=(
            (numbers[: len(a)], 2.0 * numbers[: len(a)]),
            (numbers[len(a) :], 2.0 * numbers[len(a) :]),
        ),
        descending=descending,
    )
    assert np.array_equal(keys, both[wanted])
    assert np.array_equal(found, wanted)
    assert np.array_equal(doubled, 2.0 * wanted)


def test_long_arrays_are_merged_by_all_threads(place: str) -> None:
    random = np.random.default_rng(4)
    a, b = np.sort(random.normal(size=70_000)), np.sort(random.normal(size=30_001))
    out = np.zeros((100_001, 2))
    km.merge(a, b, out=out[:, 0])
    assert np.array_equal(out[:, 0], np.sort(np.concatenate([a, b])))
    keys, found = km.merge(a, b, values=(np.zeros(70_000, bool), np.ones(30_001, bool)))
    assert np.array_equal(keys, out[:, 0])
    assert found.sum() == 30_001
    falling = km.merge(-a, -b, comparator=lambda x, y: x > y)
    assert np.array_equal(falling, -out[:, 0])


def test_structs_with_gaps_are_merged_as_values() -> None:
    type_ = np.dtype([("a", "f4"), ("b", "i8"), ("c", "u1")], align=True)
    values = np.zeros(5, type_)
    values["b"] = np.arange(5)
    keys, found = km.merge(np.array([1, 4, 6]), np.array([0, 4]), values=(values[:3], values[3:]))
    assert keys.tolist() == [0, 1, 4, 4, 6]
    assert found.dtype == type_
    assert found["b"].tolist() == [3, 0, 1, 4, 2]


def test_merging_without_order_gives_the_elements() -> None:
    random = np.random.default_rng(5)
    a, b = random.permutation(40_000), random.permutation(30_000)
    found = km.merge(a, b, comparator=lambda x, y: (x * 7 ^ y) % 3 == 0)
    assert Counter(found.tolist()) == Counter(a.tolist()) + Counter(b.tolist())
    keys, source = km.merge(a, b, values=(np.arange(40_000), np.arange(40_000, 70_000)))
    assert np.array_equal(np.concatenate([a, b])[source], keys)
    assert np.array_equal(np.sort(source), np.arange(70_000))


@settings(max_examples=15, deadline=None, suppress_health_check=SHARED)
@given(NUMBERS, NUMBERS)
def test_sets_count_as_in_cpp(place: str, first: list[int], second: list[int]) -> None:
    a, b = np.array(sorted(first), "i8"), np.array(sorted(second), "i8")
    left, right = Counter(first), Counter(second)
    for name, wanted in (
        ("set_union", left | right),
        ("set_intersection", left & right),
        ("set_difference", left - right),
    ):
        assert getattr(km, name)(a, b).tolist() == sorted(wanted.elements())
    falling = km.set_union(a[::-1], b[::-1], comparator=lambda x, y: x > y)
    assert falling.tolist() == sorted((left | right).elements(), reverse=True)


@settings(max_examples=15, deadline=None, suppress_health_check=SHARED)
@given(NUMBERS)
def test_it_is_told_whether_an_array_is_sorted(place: str, numbers: list[int]) -> None:
    x = np.array(numbers, "f4")
    assert km.is_sorted(x) == (numbers == sorted(numbers))
    assert km.is_sorted(x, descending=True) == (numbers == sorted(numbers, reverse=True))
    by_size = sorted(numbers, key=abs)
    assert km.is_sorted(x, comparator=lambda a, b: abs(a) < abs(b)) == (
        [abs(v) for v in numbers] == [abs(v) for v in by_size]
    )


def test_iterators_are_looked_at_as_arrays_are() -> None:
    falling = km.iterators.transform(np.arange(5), lambda i: -i)
    assert km.is_sorted(falling, descending=True)
    assert km.nth_element(falling, 1)[1] == -3
    assert sorted(km.shuffle(falling, seed=1).tolist()) == [-4, -3, -2, -1, 0]
    evens = km.iterators.transform(np.arange(5), lambda i: 2 * i)
    assert km.set_union(evens, np.arange(3)).tolist() == [0, 1, 2, 4, 6, 8]


def test_nan_belongs_behind() -> None:
    assert km.is_sorted(np.array([1.0, np.nan, np.nan]))
    assert not km.is_sorted(np.array([np.nan, 1.0]))


# ----------------------------------------------------------------------------- segments


def by_segments(x: np.ndarray, offsets: np.ndarray, *, descending: bool) -> np.ndarray:
    """The places of the elements, each segment in order."""
    found = np.arange(len(x))
    for begin, end in pairwise(offsets.tolist()):
        found[begin:end] = begin + order(x[begin:end], descending=descending)
    return found


@pytest.mark.parametrize(("dtype", "descending"), [("i4", False), ("f8", True), ("u1", True)])
def test_segments_of_any_lengths(place: str, dtype: str, descending: bool) -> None:
    random = np.random.default_rng(6)
    size = 9_000 if place == "emulator" else 200_000
    x = random.integers(0, 99, size).astype(dtype)
    for offsets in (
        np.array([0, size]),
        np.array([3]),
        np.array([0, 0, 5, 6, size // 2, size - 1, size - 1], "i4"),
        np.sort(random.integers(0, size, size // 100)).astype("u8"),
    ):
        wanted = by_segments(x, offsets, descending=descending)
        assert np.array_equal(km.segmented_sort(x, offsets, descending=descending), x[wanted])
        keys, found = km.segmented_sort(x, offsets, values=np.arange(size), descending=descending)
        assert np.array_equal(keys, x[wanted])
        assert np.array_equal(found, wanted)


def test_segments_by_a_comparator_and_in_place(place: str) -> None:
    x = np.random.default_rng(7).integers(-50, 50, 3000)
    offsets = np.array([10, 40, 41, 2900])
    wanted = by_segments(abs(x), offsets, descending=False)
    found = km.segmented_sort(x, offsets, comparator=lambda a, b: abs(a) < abs(b))
    assert np.array_equal(found, x[wanted])
    y = x.copy()
    assert km.segmented_sort(y, offsets, out=y) is y
    assert np.array_equal(y, x[by_segments(x, offsets, descending=False)])


def test_segments_are_written_over_what_they_are_read_of(place: str) -> None:
    offsets = np.array([0, 3, 7, 8])
    x = np.array([5, 2, 9, 4, 8, 1, 7, 3])
    places = by_segments(x, offsets, descending=False)
    keys, values, more = x.copy(), x[::-1].copy(), x + 100
    wanted = x[places], values[places], more[places]
    km.segmented_sort(keys, offsets, values=(values, more), out=(more, keys, values))
    for found, right in zip((more, keys, values), wanted, strict=True):
        assert np.array_equal(found, right)
    bounds = np.array([0, 2, 4, 4])
    km.segmented_sort(np.array([9, 3, 8, 1]), bounds, out=bounds)
    assert bounds.tolist() == [3, 9, 1, 8]


# ----------------------------------------------------------------------------- shuffle


def test_a_seed_decides_the_order(place: str) -> None:
    x = np.arange(5000.0)
    first = km.shuffle(x, seed=1)
    assert np.array_equal(first, km.shuffle(x, seed=1))
    with km.Device("cpu"):
        assert np.array_equal(first, km.shuffle(x, seed=1))
    assert not np.array_equal(first, km.shuffle(x, seed=2))
    assert np.array_equal(np.sort(first), x)
    assert km.shuffle(x[:0]).size == 0


X = np.arange(3.0)
FAULTS: list[tuple[Any, type[Exception], str]] = [
    (
        lambda: km.topk(X, 4),
        km.ArgumentError,
        "`k` is 4; the limits are 0 and 3, the length of `x`",
    ),
    (
        lambda: km.topk(np.zeros(3, "u1,f4"), 1),
        km.DTypeError,
        "`x` has elements of Struct, which have no order",
    ),
    (
        lambda: km.batched_topk(X, 1),
        km.ShapeError,
        "`x` has shape (3,); expected: rows, two dimensions or more",
    ),
    (lambda: km.nth_element(X, 3), km.ArgumentError, "`n` is 3; `x` has 3 elements"),
    (
        lambda: km.merge(X, X.astype("f4")),
        km.DTypeError,
        "`a` has elements of float64, `b` of float32; merged arrays have one type",
    ),
    (
        lambda: km.merge(X, X.reshape(1, 3)),
        km.ShapeError,
        "`b` has shape (1, 3); expected: one dimension",
    ),
    (
        lambda: km.merge(X, X, values=X),
        km.ArgumentError,
        "`values` is not a tuple of two: for `a` and for `b`",
    ),
    (
        lambda: km.merge(X, X, values=(X, X[:2])),
        km.ShapeError,
        "`values[1]` has shape (2,), `b` has (3,); there is a value for each element",
    ),
    (
        lambda: km.segmented_sort(X, np.array([0, 4])),
        km.ArgumentError,
        "`offsets[1]` is 4; the limits are 0 and 3, the length of `x`",
    ),
    (
        lambda: km.segmented_sort(X, np.array([0, 2, 1])),
        km.ArgumentError,
        "`offsets` must not decrease: offsets[1] is 2, offsets[2] is 1",
    ),
    (
        lambda: km.segmented_sort(X, X),
        km.DTypeError,
        "`offsets` has elements of float64; expected: integers",
    ),
    (
        lambda: km.is_sorted(np.zeros(2, "u1,f4")),
        km.DTypeError,
        "`x` has elements of Struct: they have no order",
    ),
    (lambda: km.topk(X, 1.5), km.ArgumentError, "`k` is 1.5; expected: an integer"),
    (lambda: km.nth_element(X, "1"), km.ArgumentError, "`n` is '1'; expected: an integer"),
    (lambda: km.shuffle(X, seed=0.5), km.ArgumentError, "`seed` is 0.5; expected: an integer"),
    (
        lambda: km.segmented_sort(X, np.array([0, 3]), values=()),
        km.ArgumentError,
        "`values` is empty; at least one array is needed",
    ),
    (
        lambda: km.segmented_sort(X, [0, 3]),
        km.ArgumentError,
        (
            "argument 'offsets' is a list; accepted: a NumPy array, a buffer, a CPU torch tensor or "
            "an object with __dlpack__"
        ),
    ),
    (
        lambda: km.merge(X, X, values=(X, (X,))),
        km.ArgumentError,
        "`values` has a tuple of arrays on one side and not on the other",
    ),
    (
        lambda: km.is_sorted(X, comparator=lambda a, b: a - b),
        km.DTypeError,
        "lambda returns float64; a comparator returns a bool",
    ),
    (
        lambda: km.set_union(X, X.reshape(1, 3)),
        km.ShapeError,
        "`b` has shape (1, 3); expected: one dimension",
    ),
    (
        lambda: km.shuffle(X.reshape(1, 3)),
        km.ShapeError,
        "`x` has shape (1, 3); expected: one dimension",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), FAULTS)
def test_faults_say_what_was_found(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert caught.value.message == text  # type: ignore[attr-defined]
