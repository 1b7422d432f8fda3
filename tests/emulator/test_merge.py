"""Sorts by comparison and merges on the emulator: tiles, schedules, the sanitizer, chips, operators that are no order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import devices
import kernelmill as km
from kernelmill.algorithms import policy_merges
from kernelmill.algorithms.policy_merges import MergeTile
from kernelmill.runtime.emulator import Schedule, sanitized, scheduled
from sorted_order import order

SCHEDULES = (Schedule("reversed"), Schedule("random", seed=3), Schedule("random", seed=11))
# Tiles of 300 elements, of five a thread; and of 60, of one a thread.
SMALL = MergeTile(8, 1 << 62, 64, 5, 2)
LARGE = MergeTile(256, 1 << 62, 64, 1, 1)
# One tile, several, the last of every kind, one more than four, more than sixteen.
SIZES = (0, 1, 4, 33, 299, 300, 301, 600, 1203, 300 * 17 + 7)
COLD = km.struct({"a": "i4", "b": "f8", "c": "u1"}, name="Cold")


@pytest.fixture
def small_tiles(monkeypatch):
    """Let sorts of some hundred elements take several tiles and passes."""
    rows = {"bulk": (SMALL, LARGE), "plain": (SMALL, LARGE)}
    monkeypatch.setattr(policy_merges, "_TILES", rows)


@pytest.fixture(autouse=True)
def emulator(monkeypatch):
    """Run what a test sorts on the emulator, unoptimised, and compile some of the texts for chips."""
    devices.on("emulator", monkeypatch)
    with km.Device("emulator"):
        yield


@pytest.fixture
def no_copy_engine(monkeypatch):
    """Give the emulator texts for chips that have none."""
    monkeypatch.setattr("kernelmill.algorithms.merges_sort.chip_of", lambda arch: "plain")


def closer(a: Any, b: Any) -> Any:
    """Whether a is nearer to 0: many different numbers are equal by it."""
    return abs(a) < abs(b)


def numbers(size: int, dtype: str = "i4") -> np.ndarray:
    return np.random.default_rng(size).integers(-40, 40, size).astype(dtype)


def check(x: np.ndarray) -> None:
    """Sort by `closer`, which has many equal elements that can be told apart, and with payloads."""
    wanted = np.argsort(abs(x), kind="stable")
    assert np.array_equal(km.sort(x, comparator=closer), x[wanted])
    assert np.array_equal(km.argsort(x, comparator=closer), wanted)
    falling = np.argsort(-abs(x), kind="stable")
    for dtype in ("u4", "f8", "u2"):
        values = np.arange(x.size).astype(dtype)
        keys, moved = km.sort_by_key(x, values, comparator=closer, descending=True)
        assert np.array_equal(keys, x[falling])
        assert np.array_equal(moved, values[falling])


def check_pairs(x: np.ndarray) -> None:
    """Sort pairs by `closer`: with the fewest texts."""
    wanted = np.argsort(abs(x), kind="stable")
    keys, moved = km.sort_by_key(x, np.arange(x.size, dtype="u4"), comparator=closer)
    assert np.array_equal(keys, x[wanted])
    assert np.array_equal(moved, wanted)


@pytest.mark.parametrize("size", SIZES)
def test_equal_elements_keep_their_order_and_their_values(small_tiles, size):
    check(numbers(size))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_results_do_not_depend_on_who_runs_when(small_tiles, schedule):
    with scheduled(schedule):
        for size in (299, 1203, SIZES[-1]):
            check(numbers(size))


@pytest.mark.parametrize("schedule", [Schedule(), SCHEDULES[1]], ids=str)
def test_the_sanitizer_finds_nothing(small_tiles, schedule):
    a, b = np.sort(numbers(700)), np.sort(numbers(501))
    with sanitized(), scheduled(schedule):
        check_pairs(numbers(297))
        check_pairs(numbers(1503))
        assert np.array_equal(km.merge(a, b), np.sort(np.concatenate([a, b])))


def test_threads_find_where_many_tiles_begin(small_tiles, monkeypatch):
    monkeypatch.setattr(policy_merges, "_SPREAD_TILES", 0)
    for size in (1203, 300 * 70 + 7):
        check_pairs(numbers(size))
        x = numbers(size)
        found = km.sort(x, comparator=lambda a, b: (a * 7 ^ b) % 3 == 0)
        assert Counter(found.tolist()) == Counter(x.tolist())


def test_chips_without_a_copy_engine(small_tiles, no_copy_engine):
    for size in (299, 1203):
        check_pairs(numbers(size))
        check_pairs(numbers(size + 1)[1:])


def slow(*values: str) -> list[Any]:
    return [pytest.param(v, marks=pytest.mark.slow) for v in values]


@pytest.mark.parametrize("dtype", ["c16", *slow("?", "u1", "f2", "f4", "i8", "c8")])
def test_every_type_by_its_own_order(small_tiles, dtype):
    for size in (301, 1203):
        x = numbers(size).astype(dtype)
        if x.dtype.kind in "fc":
            x[::7] = np.nan
            x[::5] = -0.0
        for descending in (False, True):
            wanted = order(x, descending=descending)
            found = km.argsort(x, algorithm="merge", descending=descending)
            assert np.array_equal(found, wanted)
            found = km.sort(x, algorithm="merge", descending=descending)
            assert found.tobytes() == x[wanted].tobytes()


def test_structs_by_a_comparator_with_what_it_captures(small_tiles):
    x = np.zeros(1203, COLD.dtype)
    x["a"], x["b"], x["c"] = numbers(1203), np.arange(1203), 7
    turn = 3
    found = km.sort(x, comparator=lambda p, q: (p.a + turn) % 5 < (q.a + turn) % 5)
    assert np.array_equal(found, x[np.argsort((x["a"] + 3) % 5, kind="stable")])
    turn = 4
    found = km.sort(x, comparator=lambda p, q: (p.a + turn) % 5 < (q.a + turn) % 5)
    assert np.array_equal(found, x[np.argsort((x["a"] + 4) % 5, kind="stable")])
    raw = np.random.default_rng(1).integers(0, 256, (130, 64), np.uint8)
    wide = raw.view(np.dtype([(f"x{i}", "f4") for i in range(16)]))[:, 0].copy()
    wide["x3"] = numbers(130)
    found = km.sort(wide, comparator=lambda p, q: p.x3 < q.x3)
    assert found.tobytes() == wide[np.argsort(wide["x3"], kind="stable")].tobytes()


def test_operators_in_cpp_and_keys(small_tiles):
    less = km.RawOp(
        cpp="__device__ bool closer(int a, int b) { return (a < 0 ? -a : a) < (b < 0 ? -b : b); }",
        arguments=(km.int32, km.int32),
        result=km.bool_,
    )
    x = numbers(1203)
    assert np.array_equal(km.argsort(x, comparator=less), np.argsort(abs(x), kind="stable"))
    found = km.sort(x, key=lambda v: v % 10, algorithm="merge")
    assert np.array_equal(found, x[np.argsort(x % 10, kind="stable")])


@pytest.mark.parametrize(
    "operator",
    [
        lambda a, b: (a * 7 ^ b) % 3 == 0,
        pytest.param(lambda a, b: True, marks=pytest.mark.slow),
        pytest.param(lambda a, b: a <= b, marks=pytest.mark.slow),
        lambda a, b: (a + 5 * b) % 7 < 3,
    ],
    ids=["mixed", "always", "at most", "circles"],
)
def test_an_operator_that_is_no_order_gives_each_element_once(small_tiles, operator):
    for size in (31, 299, 1203, SIZES[-1]):
        x = numbers(size)
        keys, places = km.sort_by_key(x, np.arange(size, dtype=np.int32), comparator=operator)
        assert np.array_equal(np.sort(places), np.arange(size))
        assert np.array_equal(keys, x[places])
    a, b = numbers(700), numbers(900)
    places = np.arange(1600)
    keys, source = km.merge(a, b, values=(places[:700], places[700:]), comparator=operator)
    assert np.array_equal(np.sort(source), places)
    assert np.array_equal(np.concatenate([a, b])[source], keys)


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 40, 5), 0), ((2, 2, 700), 2), ((2, 700, 2), 1)], ids=str
)
def test_rows_along_an_axis(small_tiles, shape, axis):
    x = numbers(shape[0] * shape[1] * shape[2]).reshape(shape)
    wanted = np.argsort(abs(x), axis=axis, kind="stable")
    assert np.array_equal(km.argsort(x, comparator=closer, axis=axis), wanted)
    values = np.arange(x.size, dtype=np.int16).reshape(shape)
    keys, moved = km.sort_by_key(x, values, comparator=closer, axis=axis)
    assert np.array_equal(keys, np.take_along_axis(x, wanted, axis))
    assert np.array_equal(moved, np.take_along_axis(values, wanted, axis))


def test_results_over_their_input_and_other_layouts(small_tiles):
    for size in (200, 900, 1500):  # no pass, one, two
        x = numbers(size)
        wanted = np.argsort(abs(x), kind="stable")
        over = x.copy()
        km.sort(over, comparator=closer, out=over)
        assert np.array_equal(over, x[wanted])
        wide = np.zeros(2 * size, x.dtype)
        km.sort(x[::-1], comparator=closer, out=wide[::2])
        assert np.array_equal(wide[::2], x[::-1][np.argsort(abs(x[::-1]), kind="stable")])
        keys, values = x.copy(), np.arange(size, dtype=x.dtype)
        km.sort_by_key(keys, values, comparator=closer, out=(values, keys))
        assert np.array_equal(values, x[wanted])
        assert np.array_equal(keys, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("tile", policy_merges._TILES["bulk"][:5], ids=str)
def test_the_tiles_of_the_table_sort(monkeypatch, tile):
    monkeypatch.setitem(policy_merges._TILES, "bulk", (tile,))
    size = min(tile.most, tile.elements + 9)
    x = numbers(size, "i4")
    wanted = np.argsort(abs(x), kind="stable")
    assert np.array_equal(km.sort(x, comparator=closer), x[wanted])
    if not tile.pays:
        return
    keys, moved = km.sort_by_key(x, np.arange(size, dtype="u4"), comparator=closer)
    assert np.array_equal(keys, x[wanted])
    assert np.array_equal(moved, wanted)


def test_an_element_that_fits_no_tile_is_refused():
    with pytest.raises(km.NotImplementedHere) as caught:
        km.sort(
            np.zeros(3, [(f"x{i}", "f8") for i in range(40)]), comparator=lambda a, b: a.x0 < b.x0
        )
    assert caught.value.message == (
        "sort of elements of 320 bytes has no form for CUDA in this version; the arrays are on "
        "emulator"
    )


# ----------------------------------------------------------------------------- two arrays


@pytest.mark.parametrize("sizes", [(0, 0), (0, 5), (7, 0), (300, 300), (1000, 3), (2001, 1777)])
def test_two_arrays_are_merged(small_tiles, sizes):
    a, b = (np.sort(numbers(s + i, "f4")[:s]) for i, s in enumerate(sizes))
    both, places = np.concatenate([a, b]), np.arange(sum(sizes))
    wanted = np.argsort(both, kind="stable")
    assert np.array_equal(km.merge(a, b), both[wanted])
    for dtype in ("i8", "f4", "u1"):
        values = places.astype(dtype)
        keys, moved = km.merge(a, b, values=(values[: a.size], values[a.size :]))
        assert np.array_equal(keys, both[wanted])
        assert np.array_equal(moved, values[wanted])
    out = np.zeros((both.size, 2), "f4")
    km.merge(a[::-1], b[::-1], descending=True, out=out[:, 1])
    assert np.array_equal(out[:, 1], both[wanted][::-1])


# ----------------------------------------------------------------------------- segments


@pytest.mark.parametrize("dtype", ["f4", *slow("i8", "?", "f2")])
def test_segments_of_any_lengths(small_tiles, dtype):
    x = numbers(1300).astype(dtype)
    for offsets in (np.array([3]), np.array([0, 1300]), np.array([5, 5, 6, 400, 1299], "i4"),
                    np.sort(numbers(90) + 600).astype("u8")):  # fmt: skip
        for descending in (False, True):
            wanted = np.arange(1300)
            for begin, end in pairwise(offsets.tolist()):
                wanted[begin:end] = begin + order(x[begin:end], descending=descending)
            found = km.segmented_sort(x, offsets, descending=descending)
            assert found.tobytes() == x[wanted].tobytes()
            for kind in ("i8", "u2"):
                values = np.arange(1300).astype(kind)
                keys, moved = km.segmented_sort(x, offsets, values=values, descending=descending)
                assert keys.tobytes() == x[wanted].tobytes()
                assert np.array_equal(moved, values[wanted])


def test_segments_by_a_comparator_and_in_place(small_tiles):
    x, offsets = numbers(1300), np.array([10, 40, 41, 900, 1290])
    wanted = np.arange(1300)
    for begin, end in pairwise(offsets.tolist()):
        wanted[begin:end] = begin + np.argsort(abs(x[begin:end]), kind="stable")
    with sanitized():
        found = km.segmented_sort(x, offsets, comparator=closer)
    assert np.array_equal(found, x[wanted])
    assert km.segmented_sort(x, offsets, comparator=closer, out=x) is x
    assert np.array_equal(x, found)


def test_packets_end_where_elements_do():
    x = np.zeros(10, np.dtype("i4,i4,i4"))
    x["f1"] = numbers(10)
    with sanitized():
        found = km.sort(x, comparator=lambda a, b: a.f1 < b.f1)
    assert np.array_equal(found, x[np.argsort(x["f1"], kind="stable")])
