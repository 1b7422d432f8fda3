"""Radix sorts of a GPU on the emulator: small tiles, adversarial orders of blocks, the sanitizer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import devices
import kernelmill as km
from kernelmill.algorithms import policy_radix, series
from kernelmill.algorithms.policy_radix import RadixTile, RanksPolicy
from kernelmill.runtime.emulator import Schedule, sanitized, scheduled
from sorted_order import order

SCHEDULES = (Schedule("reversed"), Schedule("random", seed=3), Schedule("random", seed=11))
TYPES = ("?", "bfloat16", "i8", "c8")
MORE = ("i1", "u1", "i2", "u2", "f2", "i4", "u4", "u8", "f8")
# Tiles of 512 elements, from the first one on that a block does not sort alone.
SMALL = RadixTile(8, 8, 1 << 62, 8, 2, 2)
ALONE = RadixTile(8, 8, 300, 8, 2)
NO_RANKS = RanksPolicy(-1, 0)
# In one block; one tile, several, the last of every kind, more than a scanner asks for at a time.
SIZES = (0, 1, 255, 301, 512, 513, 1023, 512 * 19 + 5)


@pytest.fixture
def small_tiles(monkeypatch):
    """Let sorts of some hundred elements take several tiles; texts are compiled for chips too."""
    monkeypatch.setattr(policy_radix, "_RADIX_TILES", {"bulk": (SMALL,), "plain": (SMALL,)})
    monkeypatch.setattr(policy_radix, "_RADIX_ROWS", {"bulk": (ALONE,), "plain": (ALONE,)})
    monkeypatch.setattr(policy_radix, "_RADIX_RANKS", {"bulk": NO_RANKS, "plain": NO_RANKS})


@pytest.fixture(autouse=True)
def emulator():
    """Run what a test sorts on the emulator."""
    with km.Device("emulator"):
        yield


@pytest.fixture
def texts_for_chips(emulator, monkeypatch):
    """Compile what runs for chips too."""
    devices.on("emulator", monkeypatch)
    with km.Device("emulator"):
        yield


def sample(name: str, size: int) -> np.ndarray:
    """Any bits that a type has, many of them equal, with everything that floats have."""
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
    random = np.random.default_rng([size, dtype.itemsize])
    if name == "?":
        return random.random(size) < 0.4
    x = np.frombuffer(random.bytes(size * dtype.itemsize), dtype).copy()
    x[: size // 3] = x[:1]
    if dtype.kind in "fV" or name == "bfloat16":
        at = random.permutation(size)[: size // 2]
        x[at] = random.choice(
            np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf], dtype), at.size
        )
    random.shuffle(x)
    return x


def same(a: Any, b: Any) -> bool:
    """Whether two arrays hold the same bits."""
    return a.dtype == b.dtype and a.shape == b.shape and bool(a.tobytes() == b.tobytes())


def check(x: np.ndarray, **options: Any) -> None:
    wanted = order(x, **options)
    assert same(km.sort(x, **options), x[wanted])
    assert same(km.argsort(x, **options), wanted)
    numbers = np.arange(x.size)
    for values in (numbers.astype("u4"), numbers.astype("f8"), numbers.astype("u2")):
        keys, moved = km.sort_by_key(x, values, **options)
        assert same(keys, x[wanted])
        assert same(moved, values[wanted])


@pytest.mark.parametrize("name", [*TYPES, *(pytest.param(n, marks=pytest.mark.slow) for n in MORE)])
def test_every_type_in_one_tile_and_in_several(small_tiles, name):
    for size in SIZES:
        x = sample(name, size)
        assert same(km.sort(x), x[order(x)])
    x = sample(name, SIZES[-1])
    assert same(km.sort(x, descending=True), x[order(x, descending=True)])


@pytest.mark.parametrize("name", ["?", "f2", "f4", "c8"])
def test_short_rows_are_compared_with_all(texts_for_chips, name):
    for size in (1, 31, 32, 33, 700):
        check(sample(name, size))
    check(sample(name, 300), descending=True)
    x = sample("f4", 300)
    with sanitized(), scheduled(SCHEDULES[1]):
        assert same(km.argsort(x), order(x))
    over, wanted = x.copy(), x[order(x)]
    km.sort(over, out=over)
    assert same(over, wanted)


def test_places_and_values_go_with_keys(small_tiles, texts_for_chips):
    for size in SIZES:
        check(sample("f4", size))
    check(sample("f4", SIZES[-1]), descending=True)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_results_do_not_depend_on_who_runs_when(small_tiles, schedule):
    with scheduled(schedule):
        for size in SIZES:
            check(sample("f4", size))


@pytest.mark.parametrize("schedule", [Schedule(), SCHEDULES[1]], ids=str)
def test_the_sanitizer_finds_nothing(small_tiles, schedule):
    x = sample("f4", 1300)
    with sanitized(), scheduled(schedule):
        assert same(km.sort(x), x[order(x)])
        assert same(km.argsort(x[:200]), order(x[:200]))


@pytest.mark.parametrize("launches", [1, 2, 4])
def test_a_sort_that_is_interrupted_spoils_no_later_one(small_tiles, monkeypatch, launches):
    x, real, done = sample("f4", 1500), series.execute, []

    def execute(bound: Any) -> Any:
        done.append(bound)
        if len(done) == launches:
            raise KeyboardInterrupt
        return real(bound)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(series, "execute", execute)
        km.sort(x)
    assert len(done) == launches
    assert same(km.sort(x), x[order(x)])
    assert same(km.argsort(x), order(x))


@pytest.mark.slow
@pytest.mark.parametrize("tile", policy_radix._RADIX_TILES["bulk"], ids=str)
def test_the_tiles_of_the_table_sort(monkeypatch, tile):
    monkeypatch.setitem(policy_radix._RADIX_TILES, "bulk", (replace(tile, most=1 << 62),))
    x = sample("i4" if tile.keys == 4 else "u2" if tile.keys < 4 else "i8", tile.elements * 2 + 9)
    if not tile.payload:
        return check_keys(x)
    values = np.arange(x.size, dtype=f"i{tile.payload}")
    wanted = order(x)
    keys, moved = km.sort_by_key(x, values)
    assert same(keys, x[wanted])
    assert same(moved, values[wanted])


def check_keys(x: np.ndarray) -> None:
    assert same(km.sort(x), np.sort(x))


@pytest.mark.parametrize(
    "make",
    [np.sort, lambda x: np.sort(x)[::-1], lambda x: x[:1].repeat(3000)],
    ids=["sorted", "reversed", "all alike"],
)
def test_arrangements(small_tiles, make):
    check(np.ascontiguousarray(make(sample("f4", 3000))))


def test_bits_choose_what_counts(small_tiles):
    x = np.random.default_rng(1).integers(-(1 << 31), (1 << 31) - 1, 1500, np.int32)
    for low, high in ((5, 16), (31, 32), (7, 7)):
        part = (x.view("u4").astype("u8") ^ (1 << 31)) % (1 << high) >> low
        assert same(km.argsort(x, bits=(low, high)), np.argsort(part, kind="stable"))


@pytest.mark.parametrize("name", ["u1", "u4", "i8"])
def test_bits_choose_what_counts_in_short_rows_too(name):
    x = np.random.default_rng(2).integers(0, 100, (2, 300)).astype(name)
    for low, high in ((1, 4), (0, 5), (3, 3)):
        part = x.astype("u8") % (1 << high) >> low
        places = km.argsort(x, bits=(low, high))
        assert same(places, np.argsort(part, kind="stable"))
        assert same(km.sort(x, bits=(low, high)), np.take_along_axis(x, places, -1))


@pytest.mark.parametrize(("name", "low", "high"), [("f4", 20, 32), ("f2", 0, 15), ("c8", 20, 40)])
def test_tiles_are_filled_up_for_any_bits(small_tiles, name, low, high):
    x = sample(name, 700)
    x = np.where(np.isnan(x), x.dtype.type(1), x)  # what is compared is that of the processor
    down = km.argsort(x, bits=(low, high), descending=True)
    with km.Device("cpu"):
        assert same(down, km.argsort(x, bits=(low, high), descending=True))


@pytest.mark.parametrize("size", [2, 13, 64])
def test_values_of_any_size_go_with_their_keys(small_tiles, size):
    random = np.random.default_rng(size)
    keys = random.integers(0, 9, 1200).astype("f4")
    row = np.dtype([(f"b{i}", "u1") for i in range(size)])
    values = random.integers(0, 256, (1200, size), np.uint8).view(row)[:, 0]
    wanted = order(keys)
    found, (moved, places) = km.sort_by_key(keys, (values, np.arange(1200)))
    assert same(found, keys[wanted])
    assert np.array_equal(places, wanted)
    assert moved.tobytes() == values[wanted].tobytes()
    found, moved = km.sort_by_key(keys, values)
    assert moved.tobytes() == values[wanted].tobytes()


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 40, 5), 0), ((2, 2, 700), 2), ((2, 700, 2), 1)], ids=str
)
def test_rows_along_an_axis(small_tiles, shape, axis):
    x = sample("f4", shape[0] * shape[1] * shape[2]).reshape(shape)
    wanted = np.argsort(x, axis=axis, kind="stable")
    assert same(np.ascontiguousarray(km.argsort(x, axis=axis)), wanted)
    values = np.arange(x.size, dtype=np.int16).reshape(shape)
    keys, moved = km.sort_by_key(x, values, axis=axis)
    assert np.array_equal(moved, np.take_along_axis(values, wanted, axis))
    assert same(np.ascontiguousarray(keys), np.take_along_axis(x, wanted, axis))


def test_arrays_that_lie_otherwise_and_results_over_their_input(small_tiles):
    for size in (200, 1500):
        x = sample("f4", size)
        assert same(km.sort(x[::-1]), x[::-1][order(x[::-1])])
        assert same(km.sort(x[::3]), x[::3][order(x[::3])])
        wide = np.zeros(2 * size, x.dtype)
        km.sort(x, out=wide[::2])
        assert same(wide[::2].copy(), x[order(x)])
        over, wanted = x.copy(), order(x)
        km.sort(over, out=over)
        assert same(over, x[wanted])
        shifted = np.concatenate([x, x[:1]])
        km.sort(shifted[:-1], out=shifted[1:])
        assert same(shifted[1:].copy(), x[wanted])
        keys, values = x.copy(), np.arange(size, dtype=x.dtype)
        km.sort_by_key(keys, values, out=(values, keys))
        assert same(values, x[wanted])
        assert same(keys, np.arange(size, dtype=x.dtype)[wanted])
