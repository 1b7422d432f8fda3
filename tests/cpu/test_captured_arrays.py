"""Arrays that operators capture, on each device: elements, extents, changes, and what compiles nothing."""

from __future__ import annotations

import gc
import re
import weakref
from typing import Any

import numpy as np
import pytest

import kernelmill as km
from kernelmill import events
from kernelmill.errors import ArgumentError

TABLE = np.arange(10, dtype=np.float32) * 3
X = np.arange(-3, 13, dtype=np.int32)


def gathered(table: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What `table[i]` is: zero outside."""
    inside = (x >= 0) & (x < len(table))
    return np.where(inside, table[np.where(inside, x, 0)], table.dtype.type(0))


def built(call: Any) -> list[str]:
    with events.listen("compile", "cache_hit", "cache_miss") as seen:
        call()
    return [e.kind for e in seen]


def test_elements_and_extents(place: str) -> None:
    def op(i: Any) -> Any:
        return TABLE[i] + TABLE[-1] * len(TABLE)

    found = km.transform(X, op)
    np.testing.assert_array_equal(found, gathered(TABLE, X) + TABLE[-1] * np.float32(10))


def test_another_array_of_its_type_compiles_nothing(place: str) -> None:
    for n in (1, 5, 9):
        table = np.arange(n, dtype=np.int64) * n
        call = lambda table=table: km.transform(X, lambda i: table[i])
        kinds = built(call)
        assert not kinds or n == 1
        np.testing.assert_array_equal(call(), gathered(table, X))


def test_each_call_reads_the_elements_anew(place: str) -> None:
    gain = np.ones(2, np.float64)
    op = lambda v: v * gain[1]
    for value in (2.0, -3.5):
        gain[1] = value
        np.testing.assert_array_equal(km.transform(X, op), X * value)


def test_arrays_of_several_dimensions_lie_anyhow(place: str) -> None:
    whole = np.arange(60, dtype=np.int16).reshape(5, 12)
    for table in (whole, whole[::-1, ::3], whole.T, whole[:, 2:3]):
        n = np.arange(-1, 6)
        i, j = (a.ravel() for a in np.meshgrid(n, n))
        rows, columns = table.shape
        inside = (i >= 0) & (i < rows) & (j >= 0) & (j < columns)
        wanted = np.where(inside, table[np.where(inside, i, 0), np.where(inside, j, 0)], 0)
        found = km.transform((i, j), lambda i, j: table[i, j])
        np.testing.assert_array_equal(found, wanted)
        shape = km.transform(n, lambda i: table.shape[0] * 100 + table.shape[1] + table.ndim)
        assert shape.tolist() == [rows * 100 + columns + 2] * len(n)


def test_structs_and_flags(place: str) -> None:
    point = np.dtype([("x", "f4"), ("n", "i2"), ("on", "?")], align=True)
    points = np.zeros(3, point)
    points["x"], points["n"], points["on"] = [1.5, 2.5, 3.5], [4, 5, 6], [True, False, True]
    flags = np.array([True, False, True])
    index = np.arange(3)
    found = km.transform(index, lambda i: points[i].x if points[i].on else points[i].n)
    assert found.tolist() == [1.5, 5.0, 3.5]
    assert km.transform(index, lambda i: flags[i] and not flags[i - 1]).tolist() == [
        True, False, True,
    ]  # fmt: skip


def test_parts_of_complex_elements_and_fields_by_name(place: str) -> None:
    z = np.array([1 + 2j, -3j], np.complex64)
    pairs = np.zeros(2, [("a", "f4"), ("z", "c8")])

    def moved(i: Any) -> Any:
        pairs[i]["a"] = z[i].real - 1
        return z[i].real + 2 * z[i].imag + pairs[i]["z"].imag

    assert km.transform(np.arange(2), moved).tolist() == [5.0, -6.0]
    assert pairs["a"].tolist() == [0.0, -1.0]


def test_loops_over_elements(place: str) -> None:
    weights = np.array([1.0, 0.5, 0.25])

    def polynomial(x: Any) -> Any:
        total = 0.0
        for k in range(len(weights)):
            total = total * x + weights[k]
        return total

    x = np.linspace(-1, 1, 7)
    np.testing.assert_array_equal(km.transform(x, polynomial), (1.0 * x + 0.5) * x + 0.25)


def test_every_family_reads_them(place: str) -> None:
    bias = np.array([1, 2], np.int32)
    rank = np.array([5, 0, 4, 1, 3, 2])
    total = int(X.sum())
    assert km.reduce(X, lambda a, b: a + b + bias[0]) == total + len(X) - 1
    assert km.reduce(X, lambda a, b: a + b + bias[0], init=np.int32(7)) == total + len(X) + 7
    found = km.inclusive_scan(X, lambda a, b: a + b + bias[1])
    np.testing.assert_array_equal(found, np.cumsum(X) + 2 * np.arange(len(X)))
    np.testing.assert_array_equal(km.select(X, lambda v: v > bias[1]), X[X > 2])
    keys = np.arange(6)
    found = km.sort(keys, comparator=lambda a, b: rank[a] < rank[b])
    np.testing.assert_array_equal(found, np.argsort(rank))
    ends = np.array([0, 4, 4, 16])
    found = km.segmented_reduce(X, ends, lambda a, b: a + b + bias[0], init=np.int32(10))
    assert found.tolist() == [X[:4].sum() + 4 + 10, 10, X[4:].sum() + 12 + 10]
    places = km.lower_bound(keys, np.array([2, 4]), comparator=lambda a, b: a + bias[0] < b)
    assert places.tolist() == [1, 3]


def test_an_iterator_reads_them(place: str) -> None:
    squares = np.arange(8, dtype=np.float64) ** 2
    places = km.iterators.strided(km.iterators.counting(np.int32(2)), 1, count=4)
    fed = km.iterators.transform(places, lambda i: squares[i])
    assert km.reduce(fed, km.add) == 4 + 9 + 16 + 25
    assert km.inclusive_scan(fed, km.add).tolist() == [4, 13, 29, 54]


def test_changes_are_made_once_an_element(place: str) -> None:
    counts, last = np.zeros(4, np.int32), np.zeros(16, np.int32)

    def op(v: Any) -> Any:
        km.atomic.add(counts, v % 4, 1)
        last[v + 3] = v
        last[v + 3] += 1
        return v

    np.testing.assert_array_equal(km.transform(X, op), X)
    np.testing.assert_array_equal(counts, np.bincount(X % 4))
    np.testing.assert_array_equal(last, X + 1)


@pytest.mark.parametrize("size", [1, 1000, 70_001])
def test_a_predicate_is_asked_once_an_element(place: str, size: int) -> None:
    refused = np.zeros(1, np.int32)
    x = np.arange(size, dtype=np.int32)

    def odd(v: Any) -> Any:
        if v % 2 == 1:
            return True
        km.atomic.add(refused, 0, 1)
        return False

    np.testing.assert_array_equal(km.select(x, odd), x[1::2])
    assert refused[0] == len(x[::2])


def test_predicates_of_partitions_are_asked_once(place: str) -> None:
    asked = np.zeros(2, np.int32)
    x = np.arange(5000, dtype=np.int32)

    def small(v: Any) -> Any:
        km.atomic.add(asked, 0, 1)
        return v < 1000

    def big(v: Any) -> Any:
        km.atomic.add(asked, 1, 1)
        return v >= 3000

    np.testing.assert_array_equal(km.partition(x, small)[1], x[1000:])
    assert asked.tolist() == [5000, 0]
    parts = km.three_way_partition(x, small, big)
    assert [len(p) for p in parts] == [1000, 2000, 2000]
    assert asked.tolist() == [10_000, 5000]


@pytest.mark.parametrize("name", ["add", "sub", "min", "max", "exch"])
@pytest.mark.parametrize("dtype", ["i2", "u8", "f2", "f4", "f8"])
def test_atomics_leave_what_they_should(place: str, name: str, dtype: str) -> None:
    if place != "cpu" and (dtype, name) not in (("f4", "add"), ("f4", "exch")):
        pytest.skip("the templates of kernels are tested for themselves")
    atomic = getattr(km.atomic, name)
    held = np.full(3, 5, dtype)
    x = np.array([2, 3], dtype)
    old = km.transform(x, lambda v: atomic(held, 1, v))
    wanted = {"add": [10], "sub": [0], "min": [2], "max": [5], "exch": [2, 3]}[name]
    assert held[0] == held[2] == 5
    assert held[1] in np.array(wanted).astype(dtype)
    assert 5 in old


def test_bits_flags_and_exchanges(place: str) -> None:
    seen, flags, tries = np.zeros(2, np.uint8), np.zeros(2, np.bool_), np.zeros(2, np.int64)

    def op(v: Any) -> Any:
        km.atomic.or_(seen, 0, 1 << v)
        km.atomic.exch(flags, 1, True)
        km.atomic.cas(tries, v % 2, 0, 7)
        km.atomic.store(tries, 5, 1)  # outside: nothing happens
        return km.atomic.load(tries, 9)

    found = km.transform(np.arange(5, dtype=np.uint8), op)
    assert found.tolist() == [0] * 5
    assert seen.tolist() == [31, 0]
    assert flags.tolist() == [False, True]
    assert tries.tolist() == [7, 7]


def test_an_array_that_cannot_be_written_is_refused(place: str) -> None:
    held = np.zeros(3, np.int32)
    held.flags.writeable = False

    def op(v: Any) -> Any:
        held[0] = v
        return v

    text = "argument 'held' is read-only; an output is written"
    with pytest.raises(ArgumentError, match=f"^{re.escape(text)}$|^{re.escape(text)}\n"):
        km.transform(X, op)


def test_another_kind_of_array_compiles_again(place: str) -> None:
    if place != "cpu":
        pytest.skip("one device is enough")
    for table in (np.arange(4.0), np.arange(4), np.arange(8.0)[::2], np.arange(4.0).reshape(2, 2)):
        if table.ndim == 2:
            with pytest.raises(km.OperatorError, match="`table` has 2 dimensions, got 1 index"):
                km.transform(X, lambda i: table[i])
        else:
            found = km.transform(X, lambda i: table[i])
            assert found.dtype == table.dtype
            np.testing.assert_array_equal(found, gathered(table, X))


def test_plans_read_them_at_each_call(place: str) -> None:
    gain = np.full(1, 2.0)
    plan = km.transform.plan(X, lambda v: v * gain[0])
    np.testing.assert_array_equal(plan(X), X * 2.0)
    gain[0] = 5
    np.testing.assert_array_equal(plan(X), X * 5.0)


def test_tensors_are_captured() -> None:
    torch = pytest.importorskip("torch")
    table = torch.arange(6, dtype=torch.float32).reshape(2, 3).T
    found = km.transform(np.arange(3), lambda i: table[i, 1] + table.shape[0])
    assert found.tolist() == [6.0, 7.0, 8.0]


def test_explain_names_arrays() -> None:
    text = km.op(lambda i: TABLE[i], name="look").explain(km.int64)
    assert "captured, read at each call: TABLE: float32[:]" in text


def test_many_operators_each_with_an_array(place: str) -> None:
    low, high = np.array([3], np.int32), np.array([9], np.int32)
    parts = km.three_way_partition(X, lambda v: v < low[0], lambda v: v >= high[0])
    wanted = [X[X < 3], X[X >= 9], X[(X >= 3) & (X < 9)]]
    for found, part in zip(parts, wanted, strict=True):
        np.testing.assert_array_equal(found, part)
    sums = (lambda a, b: a + b + low[0], lambda a, b: a + b + high[0])
    both = km.reduce(X, sums, init=(1, 2))
    assert [int(v) for v in both] == [int(X.sum()) + 16 * 3 + 1, int(X.sum()) + 16 * 9 + 2]


def test_bits_are_not_promised_of_operators_that_change_arrays() -> None:
    counts = np.zeros(1, np.int32)

    def op(a: Any, b: Any) -> Any:
        km.atomic.add(counts, 0, 1)
        return a + b

    with pytest.raises(km.OperatorError, match="changes elements of `counts`"):
        km.reduce(X, op, determinism="device_to_device")


def test_elements_are_changed_once_where_functions_have_quick_forms() -> None:
    counts = np.zeros(1, np.int64)
    far = np.array([1e30, 1.0] * 500)

    def op(v: Any) -> Any:
        km.atomic.add(counts, 0, 1)
        return np.sin(v)

    km.transform(far, op)
    assert counts[0] == 1000


def test_arrays_are_not_kept(place: str) -> None:
    x = np.arange(6, dtype=np.int32)
    calls = {
        "transform": lambda t: km.transform(x, lambda i: t[i]),
        "reduce": lambda t: km.reduce(x, lambda a, b: a + b + t[0]),
        "select": lambda t: km.select(x, lambda i: t[i] > 2),
        "sort": lambda t: km.sort(x, comparator=lambda a, b: t[a] < t[b]),
        "iterator": lambda t: km.reduce(km.iterators.transform(x, lambda i: t[i]), km.add),
    }
    for name, call in calls.items():
        for _ in range(3):
            table = np.arange(6, dtype=np.int32)
            call(table)
            held = weakref.ref(table)
            del table
            gc.collect()
            assert held() is None, name
