"""`unique` and its kin on each device: runs of equal neighbours, keys with values, lengths."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kernelmill as km
from array_layouts import filled
from kernelmill.config import override
from kernelmill.errors import ArgumentError, DTypeError, ShapeError

pytestmark = pytest.mark.usefixtures("device")

TYPES = ["?", "i1", "i4", "i8", "u2", "f2", "f4", "f8", "c16"]
SAMPLED = [pytest.param(t, marks=() if t in ("u2", "f4") else pytest.mark.slow)
           for t in TYPES]  # fmt: skip
SIZES = (0, 1, 2, 31, 64, 65, 511, 513, 1024, 1025, 4096, 4097, 8193, 16384, 20011)


def runs(size: int, dtype: Any, seed: int, mean: float = 3.0) -> np.ndarray:
    """Few values in runs of any length: neighbours are often equal, and often not."""
    random = np.random.default_rng(seed)
    lengths = random.geometric(1 / mean, size + 1)
    values = random.integers(0, 2 if dtype == "?" else 5, size + 1)
    return np.repeat(values, lengths)[:size].astype(dtype)


def heads(x: np.ndarray) -> np.ndarray:
    return np.append(True, x[1:] != x[:-1])[: x.size]


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    assert type(found) is np.ndarray
    assert found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes()


def check_all(x: np.ndarray, y: np.ndarray) -> None:
    first = heads(x)
    same(km.unique(x), x[first])
    keys, values = km.unique_by_key(x, y)
    same(keys, x[first])
    same(values, y[first])
    count = km.unique_count(x)
    assert type(count) is int
    assert count == first.sum()
    values, lengths = km.run_length_encode(x)
    same(values, x[first])
    same(lengths, np.diff(np.append(np.flatnonzero(first), x.size)))
    same(np.repeat(values, lengths), x)


@pytest.mark.parametrize("dtype", SAMPLED)
def test_runs_of_every_size(dtype):
    for size in SIZES:
        check_all(runs(size, dtype, size), np.arange(size, dtype=np.float32))


def test_all_equal_all_different_and_runs_longer_than_a_tile():
    for x in (np.zeros(20011, "f4"), np.arange(20011, dtype="f4"), runs(30000, "f4", 1, 9000.0)):
        check_all(x, np.arange(x.size, dtype=np.float32))


def test_the_first_run_ends_in_a_later_chunk():
    x = np.zeros(40000, np.uint8)
    x[39999] = 1
    values, lengths = km.run_length_encode(x)
    assert (values.tolist(), lengths.tolist()) == ([0, 1], [39999, 1])


def test_nan_equals_nothing_and_zeros_are_equal():
    x = np.array([np.nan, np.nan, 0.0, -0.0, 1.0, 1.0])
    found = km.unique(x)
    assert found.tobytes() == x[[0, 1, 2, 4]].tobytes()
    assert km.unique_count(x) == 4


def test_structs_are_compared_field_by_field():
    pair = np.dtype([("a", "i2"), ("b", "f4")], align=True)
    x = np.zeros(3000, pair)
    x["a"], x["b"] = runs(3000, "i2", 1), runs(3000, "f4", 2)
    x.view(np.uint8).reshape(3000, -1)[:, 2:4] = filled((3000, 2), "u1", 3)  # padding
    first = heads(x["a"]) | heads(x["b"])
    found = km.unique(x)
    assert found["a"].tolist() == x["a"][first].tolist()
    assert found["b"].tolist() == x["b"][first].tolist()
    found = km.unique(x, equal=lambda a, b: a.a == b.a)
    assert found["b"].tolist() == x["b"][heads(x["a"])].tolist()


def test_several_keys_and_several_values():
    a, b = runs(9001, "i4", 1), runs(9001, "f8", 2, 5.0)
    y, z = np.arange(9001, dtype="u1"), np.arange(9001, dtype="i8")
    first = heads(a) | heads(b)
    (keys_a, keys_b), (values_y, values_z) = km.unique_by_key((a, b), (y, z))
    for found, whole in ((keys_a, a), (keys_b, b), (values_y, y), (values_z, z)):
        same(found, whole[first])
    keys, values = km.unique_by_key((a, b), y)
    same(keys[1], b[first])
    same(values, y[first])
    assert km.unique_count((a, b)) == first.sum()
    found = km.unique((a, b), equal=lambda a0, a1, b0, b1: a0 == b0)
    same(found[1], b[heads(a)])


@pytest.mark.not_on("cuda")
def test_iterators_are_keys_as_arrays_are():
    x = runs(9001, "i4", 1)
    keys, values = km.unique_by_key(
        km.iterators.transform(x, lambda v: v // 2), km.iterators.counting(0)
    )
    first = heads(x // 2)
    same(keys, (x // 2)[first])
    same(values, np.flatnonzero(first))
    assert km.unique_count((x, km.iterators.counting(0))) == 9001


def test_an_equality_of_the_users():
    x = filled((5000,), "f8", 1)
    limit = 3.0
    first = np.append(True, ~(np.abs(x[1:] - x[:-1]) < limit))
    same(km.unique(x, equal=lambda a, b: abs(b - a) < limit), x[first])
    values, lengths = km.run_length_encode(x, equal=lambda a, b: abs(b - a) < limit)
    same(values, x[first])
    assert lengths.sum() == x.size
    same(km.unique(x, equal=lambda a, b: 0), x)
    same(km.unique(x, equal=lambda a, b: 1), x[:1])


@pytest.mark.not_on("emulator")
def test_the_order_of_the_arguments_of_an_equality():
    x = np.array([5, 3, 4, 4, 1, 2])
    same(km.unique(x, equal=lambda before, here: before > here), np.array([5, 4, 4, 2]))


@pytest.mark.not_on("emulator")
def test_keys_of_any_stride():
    x = runs(9001, "i4", 1)
    same(km.unique(x[::-1]), x[::-1][heads(x[::-1])])
    keys, values = km.unique_by_key(x[::2], np.arange(9001)[::2])
    first = heads(x[::2])
    same(keys, x[::2][first])
    same(values, np.arange(9001)[::2][first])
    same(km.unique(np.broadcast_to(np.int32(3), (100,))), np.array([3], np.int32))


@pytest.mark.host
@pytest.mark.parametrize("march", ["x86-64-v2", pytest.param("x86-64-v3", marks=pytest.mark.slow)])
def test_the_same_on_one_thread_and_on_two_and_on_older_processors(march):
    x = runs(300_007, "f4", 1, 700.0)
    for threads in (1, 2):
        with override(num_threads=threads, march=march):
            check_all(x, np.arange(x.size, dtype=np.float32))


@pytest.mark.not_on("emulator")
def test_buffers_and_counts():
    x = runs(9001, "i4", 1)
    first = heads(x)
    places = np.append(np.flatnonzero(first), x.size)
    values, count = np.empty_like(x), np.zeros(1, np.int64)
    for dtype in (np.int64, np.uint16):
        lengths = np.full(x.size, 7, dtype)
        out = (values, lengths, count)
        assert km.run_length_encode(x, out=out) is out
        assert count[0] == first.sum()
        same(lengths[: count[0]], np.diff(places).astype(dtype))
        assert (lengths[count[0] :] == 7).all()
    assert km.unique_count(x, out=count) is count
    assert count[0] == first.sum()
    keys = np.empty_like(x)
    km.unique_by_key(x, np.arange(9001), out=(keys, np.empty(9001, np.int64), count))
    same(keys[: count[0]], x[first])


@pytest.mark.not_on("emulator")
def test_plans():
    x = runs(9001, "i4", 1)
    same(km.unique.plan(x)(x), x[heads(x)])
    assert km.unique_count.plan(x)(x[::-1].copy()) == heads(x).sum()
    plan = km.unique_by_key.plan(x, x)
    same(plan(x, np.arange(9001, dtype="i4"))[1], np.flatnonzero(heads(x)).astype("i4"))
    limit = 0
    plan = km.run_length_encode.plan(x, equal=lambda a, b: b - a > limit)
    assert plan(x)[1].sum() == 9001
    limit = -10
    assert plan(x)[1].tolist() == [9001]


def test_a_plan_gives_next_results_the_room_of_the_last_ones_until_they_need_more():
    n = 1 << 19
    few, more, all_ = (np.repeat(np.arange(n // m), m) for m in (8, 7, 1))
    plan = km.run_length_encode.plan(few)
    for x, lengths in ((few, 8), (few, 8), (more[:n], 7), (all_, 1), (few, 8), (all_, 1)):
        x = np.resize(x, n)
        values, found = plan(x)
        same(values, x[heads(x)])
        same(np.repeat(values, found), x)
        assert (found[:-1] == lengths).all()
    kept = km.unique.plan(few)
    first = [kept(few) for _ in range(3)]  # each of them has memory of its own
    first[1][:] = 0
    same(first[0], first[2])
    same(kept(all_), all_)


@pytest.mark.not_on("cuda")
@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: km.unique_by_key(x, x[:5]), ShapeError, "`values` has 5 elements, `keys` has 6"),
        (lambda x: km.unique(()), ArgumentError, "`x` is empty"),
        (lambda x: km.unique_by_key(x, ()), ArgumentError, "`values` is empty"),
        (lambda x: km.unique_by_key((), x), ArgumentError, "`keys` is empty"),
        (
            lambda x: km.unique(x, equal=lambda a, b: (a, b)),
            DTypeError,
            "`equal` returns",
        ),
        (
            lambda x: km.run_length_encode(x, out=(x, x)),
            ArgumentError,
            (
                "`out` is 2 arrays; run_length_encode takes a tuple of 3 here: a buffer for x, "
                "one for the lengths, the count"
            ),
        ),
        (
            lambda x: km.run_length_encode(x, out=(x.copy(), np.zeros(6), np.zeros(1, "i8"))),
            DTypeError,
            "`out[1]` has dtype float64; accepted: integers",
        ),
        (
            lambda x: km.run_length_encode(x, out=(x.copy(), np.zeros(2, "i8"), np.zeros(1, "i8"))),
            ShapeError,
            "`out[1]` has room for 2 elements, 6 were found",
        ),
    ],
)
def test_wrong_calls_are_refused(call, error, text):
    with pytest.raises(error, match=re.escape(text)):
        call(np.arange(6))
