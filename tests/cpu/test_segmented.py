"""`segmented_reduce` and `segmented_scan` on each device: values, order, bits, offsets of all kinds."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km
from array_layouts import same
from kernelmill.algorithms.policy import segment_tree

it = km.iterators
pytestmark = pytest.mark.usefixtures("device")

TYPES = ["i1", "f2", "c8", *(pytest.param(t, marks=pytest.mark.slow)
         for t in ("?", "u2", "i4", "u8", "f4", "f8", "c16"))]  # fmt: skip
TILE = segment_tree(8).tile
LENGTHS = (0, 1, 2, 7, 31, 33, 64, 1000, 5000)


def first_of(a: Any, b: Any) -> Any:
    return a


def last_of(a: Any, b: Any) -> Any:
    return b


def affine(a: Any, b: Any) -> Any:
    """Composes x -> x * low + high of 16 bits each: associative, and the order matters."""
    low, high = (a & 255) * (b & 255) & 255, ((a >> 8) * (b & 255) + (b >> 8)) & 255
    return high << 8 | low


def pieces(x: np.ndarray, offsets: np.ndarray) -> list[np.ndarray]:
    return [x[a:b] for a, b in itertools.pairwise(offsets)]


def cut(size: int, seed: int, lengths: tuple[int, ...] = LENGTHS) -> np.ndarray:
    """Offsets of segments of mixed lengths that make up `size` elements, the last ones empty."""
    rng, at = np.random.default_rng(seed), [0]
    while at[-1] < size:
        at.append(min(size, at[-1] + int(rng.choice(lengths))))
    return np.array([*at, size, size])


@pytest.mark.parametrize("dtype", TYPES)
def test_each_segment_is_an_array_of_its_own(dtype: str) -> None:
    """Small whole numbers: their sums are exact in any order, and of the type of `km.reduce`."""
    x = np.random.default_rng(1).integers(0, 3, 3 * TILE + 5).astype(dtype)
    offsets = cut(len(x), 2)
    found = km.segmented_reduce(x, offsets)
    wanted = [km.reduce(part) if len(part) else 0 for part in pieces(x, offsets)]
    assert found.dtype == np.asarray(wanted[0]).dtype
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("size", [0, 1, TILE - 1, TILE, TILE + 1, 40 * TILE + 3])
def test_tiles_and_segments_of_all_lengths(size: int) -> None:
    x = np.random.default_rng(size).integers(-100, 100, size)
    sums = np.concatenate([[0], np.cumsum(x)])
    for step in (1, 8, TILE, max(1, size)):
        offsets = np.minimum(np.arange(0, size + step, step), size)
        assert np.array_equal(km.segmented_reduce(x, offsets), np.diff(sums[offsets])), step
        scanned = km.segmented_scan(x, offsets)
        starts = np.repeat(sums[offsets[:-1]], np.diff(offsets))
        assert np.array_equal(scanned, sums[1:] - starts), step


@pytest.mark.parametrize(
    "op",
    [km.maximum, first_of, last_of, affine],
    ids=lambda o: getattr(o, "name", None) or o.__name__,
)
def test_the_order_is_kept(op: Any) -> None:
    x = np.random.default_rng(3).integers(1, 1 << 16, 2 * TILE + 77)
    offsets = cut(len(x), 4, (1, 3, 8, 65, 6000))[:-2]  # none is empty
    wanted = []
    for part in pieces(x, offsets):
        total = int(part[0])
        for value in part[1:].tolist():
            total = max(total, value) if op is km.maximum else op(total, value)
        wanted.append(total)
    assert np.array_equal(km.segmented_reduce(x, offsets, op), wanted)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 70), min_size=1, max_size=60), st.integers(0, 5), st.integers(0, 5),
       st.sampled_from(["i4", "i8", "u4"]))  # fmt: skip
def test_any_offsets(lengths: list[int], before: int, behind: int, kind: str) -> None:
    """Segments need not begin with the first element, nor end with the last."""
    offsets = (before + np.concatenate([[0], np.cumsum(lengths)])).astype(kind)
    x = np.arange(1, int(offsets[-1]) + behind + 1)
    wanted = [int(part.sum()) for part in pieces(x, offsets)]
    assert km.segmented_reduce(x, offsets).tolist() == wanted


@pytest.mark.parametrize("exclusive", [False, True])
def test_scans_start_anew(exclusive: bool) -> None:
    x = np.random.default_rng(5).integers(1, 1 << 16, 2 * TILE + 9)
    offsets = cut(len(x), 6)
    wanted = np.zeros_like(x)
    for a, b in itertools.pairwise(offsets):
        total = 1
        for i in range(a, b):
            following = affine(total, int(x[i]))
            wanted[i] = total if exclusive else following
            total = following
    assert np.array_equal(
        km.segmented_scan(x, offsets, affine, exclusive=exclusive, init=1), wanted
    )


def test_begins_and_ends_may_overlap() -> None:
    x = np.random.default_rng(7).integers(0, 9, 4000)
    begins = np.random.default_rng(8).integers(0, 4000, 300)
    ends = np.minimum(begins + np.random.default_rng(9).integers(0, 900, 300), 4000)
    for op, fold in ((km.add, np.sum), (last_of, lambda part: part[-1])):
        found = km.segmented_reduce(x, (begins, ends), op, init=0)
        wanted = [fold(x[a:b]) if b > a else 0 for a, b in zip(begins, ends, strict=True)]
        assert np.array_equal(found, wanted)


@pytest.mark.not_on("cuda")
def test_segments_of_one_length_are_rows() -> None:
    x = np.arange(60.0, dtype=np.float32)
    same(km.segmented_reduce(x, op=km.maximum, segment_size=12), x[11::12])
    assert km.segmented_scan(x[:0], np.array([0])).shape == (0,)
    assert np.array_equal(
        km.segmented_scan(x, segment_size=20), np.cumsum(x.reshape(3, 20), 1).ravel()
    )
    buffer = bytearray(b"abcd")
    assert km.segmented_reduce(buffer, segment_size=2).tolist() == [195, 199]
    assert km.segmented_scan(memoryview(buffer), segment_size=2).tolist() == [97, 195, 99, 199]


def test_elements_may_lie_apart() -> None:
    x = np.random.default_rng(2).integers(0, 9, 3000).astype(np.float32)[::-3]
    offsets = cut(len(x), 3)
    assert np.array_equal(km.segmented_reduce(x, offsets), [p.sum() for p in pieces(x, offsets)])


@pytest.mark.parametrize("fields", [3, 7])
def test_structs_are_reduced(fields: int) -> None:
    names = [f"f{i}" for i in range(fields)]
    record = km.struct(dict.fromkeys(names, "f8"), name="Record")
    source = ", ".join(f"a.{n} + b.{n}" for n in names)
    scope: dict[str, Any] = {"Record": record}
    exec(f"def combine(a, b):\n    return Record({source})\n", scope)
    x = np.zeros(700, record.dtype)
    for name in names:
        x[name] = np.random.default_rng(1).integers(0, 9, 700)
    offsets = cut(700, 1, (1, 2, 40, 300))[:-2]
    found = km.segmented_reduce(x, offsets, scope["combine"])
    for name in names:
        assert np.array_equal(found[name], [p[name].sum() for p in pieces(x, offsets)])


def test_the_bits_are_the_same_again() -> None:
    x = np.random.default_rng(4).normal(size=6 * TILE).astype(np.float32)
    offsets = cut(len(x), 5, (1, 9, 700, 2 * TILE))
    first = km.segmented_reduce(x, offsets)
    assert first.tobytes() == km.segmented_reduce(x, offsets).tobytes()
    assert np.allclose(first, [p.sum() for p in pieces(x.astype(float), offsets)], atol=1e-3)


@pytest.mark.host
def test_the_bits_are_those_of_reduce_for_any_number_of_threads() -> None:
    from kernelmill.config import override

    x = np.random.default_rng(4).normal(size=700000).astype(np.float32)
    offsets = cut(len(x), 5, (1, 9, 63, 64, 65, 16385, 300000))
    for op in (km.add, lambda a, b: a + b):
        wanted = [km.reduce(p, op) if len(p) else np.float32(0) for p in pieces(x, offsets)]
        for threads in (1, 2):
            with override(num_threads=threads):
                found = km.segmented_reduce(
                    x, offsets, op, init=None if op is km.add else np.float32(-0.0)
                )
            if op is km.add:
                assert found.tobytes() == np.array(wanted, np.float32).tobytes()
            else:
                full = np.diff(offsets) > 0
                assert np.array_equal(found[full], np.array(wanted, np.float32)[full])


@pytest.mark.host
def test_a_plan_takes_other_offsets() -> None:
    plan = km.segmented_reduce.plan(np.zeros(4), np.array([0, 1, 4]), km.maximum)
    assert plan(np.array([3.0, 9, 1, 2]), np.array([0, 3, 4])).tolist() == [9.0, 2.0]
    with pytest.raises(km.ArgumentError):
        plan(np.zeros(4), np.array([0, 5, 4]))


@pytest.mark.not_on("cuda")
def test_results_go_to_out() -> None:
    out = np.full(6, -1)
    km.segmented_reduce(np.array([1, 2, 3]), np.array([0, 1, 1, 3]), out=out[::2])
    assert out.tolist() == [1, -1, 0, -1, 5, -1]


# ----------------------------------------------------------------------------- bad arguments

X = np.arange(5.0)
FAULTS: list[tuple[Any, type[Exception], str]] = [
    (lambda: km.segmented_reduce(X, np.array([0, 2, 6])), km.ArgumentError, "`offsets[2]` is 6; the limits are 0 and 5, the length of `x`"),
    (lambda: km.segmented_reduce(X, np.array([-1, 2])), km.ArgumentError, "`offsets[0]` is -1; the limits are 0 and 5, the length of `x`"),
    (lambda: km.segmented_reduce(X, np.array([0, 4, 2])), km.ArgumentError, "`offsets` must not decrease: offsets[1] is 4, offsets[2] is 2"),
    (lambda: km.segmented_reduce(X, (np.array([3]), np.array([1]))), km.ArgumentError, "segment 0 begins at 3 and ends at 1"),
    (lambda: km.segmented_reduce(X, (np.array([3]), np.array([4, 5]))), km.ShapeError,
     "`offsets[0]` is int64 of shape (1,), `offsets[1]` is int64 of shape (2,): begins and ends are alike"),
    (lambda: km.segmented_reduce(X, np.array([0.0, 2.0])), km.DTypeError, "`offsets` has elements of float64; expected: integers"),
    (lambda: km.segmented_reduce(X, np.array([], int)), km.ShapeError, "`offsets` is empty; expected: one more than there are segments"),
    (lambda: km.segmented_reduce(X.reshape(1, 5), np.array([0, 5])), km.ShapeError, "`x` has shape (1, 5); expected: one dimension"),
    (lambda: km.segmented_reduce(X, np.array([0, 1, 1]), last_of), km.ArgumentError, "segment 1 is empty, and last_of has no identity"),
    (lambda: km.segmented_reduce(X), km.ArgumentError, "`offsets` is missing"),
    (lambda: km.segmented_reduce(X, np.array([0, 5]), segment_size=1), km.ArgumentError, "`offsets` and `segment_size` were both given; one says what segments are"),
    (lambda: km.segmented_reduce([1, 2], segment_size=2), km.ArgumentError, "argument 'x' is a list; accepted: a NumPy array, a buffer, a CPU torch tensor or an object with __dlpack__"),
    (lambda: km.segmented_scan(3, segment_size=2), km.ShapeError, "`x` has shape (); expected: one dimension"),
    (lambda: km.segmented_reduce(X, segment_size=2), km.ShapeError, "`segment_size` is 2, `x` has 5 elements: not a multiple"),
    (lambda: km.segmented_reduce(X, segment_size=2.5), km.ArgumentError, "`segment_size` is 2.5; expected: an integer"),
    (lambda: km.segmented_scan(X, segment_size=5, out=np.zeros(4, int)), km.ShapeError, "`out` has shape (4,), the result has (5,)"),
    (lambda: km.segmented_scan(X[:4], segment_size=2, out=np.zeros((2, 2), int)), km.ShapeError, "`out` has shape (2, 2), the result has (4,)"),
    (lambda: km.segmented_scan(X, np.array([1, 5])), km.ArgumentError, "`offsets` go from 1 to 5; a scan has segments from 0 to 5, the length of `x`"),
    (lambda: km.segmented_scan(X, np.array([0, 5]), last_of, exclusive=True), km.ArgumentError, "last_of has no identity for the first element of a segment"),
    (lambda: km.segmented_scan(X, (np.array([0]), np.array([5]))), km.ArgumentError, "`offsets` is a tuple; a scan takes one array of offsets"),
    (lambda: km.segmented_reduce(X, np.array([0, 5]), (km.add, km.maximum)), km.ArgumentError, "`op` is a tuple; segments take one operator"),
    (lambda: km.segmented_reduce(X, np.array([0, 5]), out=np.zeros(2)), km.ShapeError, "`out` has shape (2,), the result has (1,)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), FAULTS, ids=[f[2][:40] for f in FAULTS])
@pytest.mark.host
def test_bad_arguments_are_named(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert caught.value.message == text  # type: ignore[attr-defined]


@pytest.mark.host
def test_bits_of_every_device_are_refused_where_an_order_matters() -> None:
    with km.Device("emulator"), pytest.raises(km.NotImplementedHere) as caught:
        km.segmented_reduce(X, np.array([0, 5]), determinism="device_to_device")
    assert caught.value.message == (
        "segmented_reduce of add in float64 has no order that is the same on every device: "
        "`determinism='device_to_device'`"
    )


@pytest.mark.host
@pytest.mark.parametrize("count", [3, 100, 70_000])
def test_plans_look_at_the_offsets_of_each_call(count: int) -> None:
    x = np.arange(2.0 * count)
    offsets = np.arange(count + 1) * 2
    plan = km.segmented_reduce.plan(x, offsets)
    wanted = x.reshape(-1, 2).sum(1)
    assert np.array_equal(plan(x, offsets), wanted)
    out = np.zeros(count)
    assert plan(x, offsets, out=out) is out
    assert np.array_equal(out, wanted)
    empty = offsets.copy()
    empty[1] = 0
    assert plan(x, empty)[:2].tolist() == [0.0, 6.0]
    wrong = offsets.copy()
    wrong[1] = 2 * count
    with pytest.raises(km.ArgumentError, match=r"`offsets` must not decrease: offsets\[1\] is"):
        plan(x, wrong)
    wrong[1], wrong[-1] = 2, 2 * count + 1
    with pytest.raises(km.ArgumentError, match="the limits are 0 and"):
        plan(x, wrong)
    with pytest.raises(km.ArgumentError, match="this plan was prepared for"):
        plan(x.astype("f4"), offsets)


@pytest.mark.not_on("cuda")
def test_a_plan_looks_at_the_offsets_of_each_call() -> None:
    x, offsets = np.arange(8.0), np.array([0, 3, 8])
    plan = km.segmented_reduce.plan(x, offsets)
    for _ in range(3):
        assert plan(x, offsets).tolist() == [3, 25]
    offsets[1] = 5
    assert plan(x, offsets).tolist() == [10, 18]
    with pytest.raises(
        km.ArgumentError, match=re.escape("`offsets[2]` is 8; the limits are 0 and 7")
    ):
        plan(x[:7], offsets)
    assert plan(x, offsets).tolist() == [10, 18]
    offsets[1] = 9
    with pytest.raises(
        km.ArgumentError, match=re.escape("`offsets[1]` is 9; the limits are 0 and 8")
    ):
        plan(x, offsets)
    halves = np.array([0, 0, 3, 0, 8, 0], np.int32)  # the bytes of [0, 3, 8] in int64
    with pytest.raises(km.ArgumentError, match="must not decrease"):
        plan(x, halves)


@pytest.mark.not_on("cuda", "emulator")
@pytest.mark.parametrize("step", [1, -2])
def test_scans_of_ones_beside_a_long_segment(step: int) -> None:
    lengths = [*[1] * 100, 300_001, *[1] * 71, 5, 16 * 16384, 2]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    x = np.random.default_rng(4).integers(-99, 99, 2 * offsets[-1])[::step][: offsets[-1]]
    inclusive = np.concatenate([np.cumsum(part) for part in pieces(x, offsets)])
    same(km.segmented_scan(x, offsets), inclusive)
    same(km.segmented_scan(x, offsets, exclusive=True, init=7), inclusive - x + 7)
    same(km.segmented_scan(x, offsets, last_of), x.copy())
    backwards = np.empty_like(inclusive)
    km.segmented_scan(it.reverse(x), len(x) - offsets[::-1], out=it.reverse(backwards))
    from_behind = [np.cumsum(part[::-1])[::-1] for part in pieces(x, offsets)]
    same(backwards, np.concatenate(from_behind))


# ----------------------------------------------------------------------------- offsets as iterators


def evenly(size: int, length: int, start: int = 0) -> Any:
    """Offsets `start`, `start + length`, … of so many elements; a count that needs no memory."""
    return it.strided(it.counting(start, length), 1, count=size // length + 1)


@pytest.mark.not_on("cuda", "emulator")
@pytest.mark.parametrize("length", [1, 7, 40, 20_000, 280_000])
def test_offsets_may_be_counted(length: int) -> None:
    size = 280_000 if length > 40 else 840
    x = np.random.default_rng(length).integers(0, 9, size).astype(np.float32)
    rows = x.reshape(-1, length)
    offsets = evenly(size, length)
    same(km.segmented_reduce(x, offsets), rows.sum(1))
    same(km.segmented_reduce(x[::-1], offsets, last_of), rows[::-1, 0].copy())
    same(km.segmented_scan(x, offsets, km.maximum), np.maximum.accumulate(rows, 1).ravel())
    begins = it.strided(it.counting(0, length), 1, count=len(rows))
    ends = it.transform(begins, lambda begin: begin + 1)
    same(km.segmented_reduce(x, (begins, ends)), rows[:, 0].copy())
    out = np.empty(len(rows), np.float32)
    places = it.strided(np.repeat(np.arange(0, size + 1, length), 2), 2)
    km.segmented_reduce(it.transform(x, lambda v: v + 1), places, out=it.reverse(out))
    same(out[::-1].copy(), rows.sum(1) + np.float32(length))
    plan = km.segmented_reduce.plan(x, offsets)
    same(plan(x, offsets), rows.sum(1))
    both = km.segmented_reduce(it.reverse(x), segment_size=length, out=it.reverse(out))
    assert both.parts[0] is out
    same(out, rows.sum(1))


BAD = {
    "beyond": (evenly(12, 4), "`offsets[3]` is 12; the limits are 0 and 10, the length of `x`"),
    "below": (evenly(10, 5, -1), "`offsets[0]` is -1; the limits are 0 and 10, the length of `x`"),
    "down": (evenly(2, 1, 8), None),
    "endless": (it.counting(), "`offsets` has no end"),
    "floats": (it.strided(it.counting(0.0, 2.0), 1, count=3), "`offsets` has elements of float64; expected: integers"),
    "empty": (it.strided(it.constant(0), 1, count=0), "`offsets` is empty; expected: one more than there are segments"),
    "same": (it.strided(it.constant(3), 1, count=3), "segment 0 is empty, and last_of has no identity"),
}  # fmt: skip


@pytest.mark.not_on("cuda", "emulator")
@pytest.mark.parametrize("case", BAD)
def test_wrong_offsets_that_are_counted_are_named(case: str) -> None:
    offsets, text = BAD[case]
    x = np.arange(10.0)
    if text is None:
        assert km.segmented_reduce(x, offsets, last_of).tolist() == [8, 9]
        backwards, text = (
            it.reverse(offsets),
            "`offsets` must not decrease: offsets[0] is 10, offsets[1] is 9",
        )
        offsets = backwards
    with pytest.raises(km.KernelmillError) as caught:
        km.segmented_reduce(x, offsets, last_of)
    assert caught.value.message == text


@pytest.mark.not_on("cuda")
def test_a_scan_with_counted_offsets_goes_over_all_elements() -> None:
    x = np.arange(10.0)
    with pytest.raises(km.ArgumentError, match="`offsets` go from 2 to 10; a scan has segments"):
        km.segmented_scan(x, evenly(8, 4, 2))
