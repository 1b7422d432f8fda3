"""`select`, `partition` and `three_way_partition` on each device: values, layouts, buffers, faults."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km
from array_layouts import filled
from kernelmill.config import override
from kernelmill.errors import ArgumentError, DTypeError, OperatorError, ShapeError

pytestmark = pytest.mark.usefixtures("device")

BF16 = np.dtype(ml_dtypes.bfloat16)
TYPES = ["?", "i1", "u2", "i4", "i8", "u8", "f2", BF16, "f4", "f8", "c16"]
SAMPLED = [pytest.param(t, marks=() if t in ("u2", "f4") else pytest.mark.slow)
           for t in TYPES]  # fmt: skip
PAIR = np.dtype([("a", "i4"), ("b", "f8")], align=True)
WIDE = np.dtype([(f"f{i}", "f8") for i in range(8)])
# A register, a block, a warp's part, a tile and a chunk, and both sides of each; primes.
SIZES = (0, 1, 2, 15, 63, 64, 65, 127, 511, 512, 513, 1021, 1024, 4095, 4097, 8191, 8192, 8193,
         16383, 16384, 16385, 20011)  # fmt: skip
THRESHOLD = 1.5


def kept_of(size: int, seed: int, share: float = 0.5) -> np.ndarray:
    return np.random.default_rng(seed).random(size) < share


def elements(size: int, dtype: Any, seed: int) -> np.ndarray:
    dtype = np.dtype(dtype)
    if dtype.fields is None:
        return filled((size,), dtype, seed)
    made = np.zeros(size, dtype)
    for number, name in enumerate(dtype.names):
        made[name] = filled((size,), dtype[name], seed + number)
    return made


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    assert type(found) is np.ndarray
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    for name in wanted.dtype.names or (...,):  # what lies between fields is nobody's business
        assert found[name].tobytes() == wanted[name].tobytes()


# ----------------------------------------------------------------------------- values


@pytest.mark.parametrize("dtype", SAMPLED)
def test_flags_of_every_size(dtype):
    for size in SIZES:
        x, flags = elements(size, dtype, size), kept_of(size, size)
        same(km.select(x, flags=flags), x[flags])
        for share in (0.0, 0.03, 1.0):
            flags = kept_of(size, size, share)
            same(km.select(x, flags=flags), x[flags])


def test_a_predicate_of_every_size():
    for size in SIZES:
        x = filled((size,), "f4", size)
        same(km.select(x, lambda v: v > THRESHOLD), x[x > np.float32(1.5)])


@pytest.mark.parametrize("dtype", [PAIR, pytest.param(WIDE, marks=pytest.mark.slow)])
def test_structs(dtype):
    for size in (0, 1, 31, 512, 4099):
        x = elements(size, dtype, size)
        first, second = dtype.names[:2]
        flags = x[first] > x[second]
        if dtype is PAIR:
            same(km.select(x, lambda v: v.a > v.b), x[flags])
            found = km.partition(x, lambda v: v.a > v.b)
            same(found[0], x[flags])
            same(found[1], x[~flags])
        else:
            same(km.select(x, flags=flags), x[flags])


@pytest.mark.parametrize("dtype", SAMPLED)
def test_partitions_keep_the_order_of_every_part(dtype):
    for size in (0, 1, 33, 513, 8193, 20011):
        x, flags = elements(size, dtype, size), kept_of(size, size, 0.3)
        yes, no = km.partition(x, flags=flags)
        same(yes, x[flags])
        same(no, x[~flags])


def test_three_parts_of_every_size():
    for size in SIZES:
        x = filled((size,), "i2", size)
        first, second = x > 9000, (x > -9000) & (x <= 9000)
        found = km.three_way_partition(x, lambda v: v > 9000, lambda v: v > -9000)
        for part, flags in zip(found, (first, second, ~(first | second)), strict=True):
            same(part, x[flags])


@pytest.mark.not_on("emulator")
def test_the_first_predicate_comes_first():
    x = np.arange(9)
    first, second, rest = km.three_way_partition(x, lambda v: v > 3, lambda v: True)
    assert (first.tolist(), second.tolist(), rest.tolist()) == ([4, 5, 6, 7, 8], [0, 1, 2, 3], [])


def test_arrays_of_several_types_together():
    for size in (0, 1, 700, 20011):
        x = tuple(elements(size, t, size) for t in ("f8", "u1", "f4", "i2"))
        flags = (x[0] > 0) & (x[3] > 0)
        found = km.select(x, lambda a, b, c, d: a > 0 and d > 0)
        assert type(found) is tuple
        for part, whole in zip(found, x, strict=True):
            same(part, whole[flags])
        yes, no = km.partition(x, flags=flags)
        same(no[1], x[1][~flags])
        same(yes[2], x[2][flags])
    (alone,) = km.select((np.arange(4),), lambda v: v > 1)
    same(alone, np.array([2, 3]))


@pytest.mark.not_on("emulator")
def test_what_a_predicate_returns_is_taken_for_true_as_in_python():
    x = np.array([0.0, -0.0, 2.5, np.nan, -1.0])
    same(km.select(x, lambda v: v), x[[2, 3, 4]])
    same(km.select(np.arange(6), lambda v: v & 2), np.array([2, 3]))
    same(km.select(np.array([0, 1j, 0j]), lambda v: v), np.array([1j]))
    same(km.select(np.arange(3), lambda v: 1), np.arange(3))
    same(km.select(np.arange(4), flags=np.array([0.0, 0.5, np.nan, -0.0])), np.array([1, 2]))


def test_a_stored_bool_may_hold_any_byte():
    raw = np.array([0, 1, 2, 255, 0, 3], np.uint8)
    flags = raw.view(bool)
    same(km.select(np.arange(6), flags=flags), np.array([1, 2, 3, 5]))
    assert km.select(flags, lambda v: v).view(np.uint8).tolist() == [1, 2, 255, 3]


@pytest.mark.not_on("emulator")
def test_captured_scalars_are_read_at_each_call():
    x = np.arange(10)
    for low, wanted in ((3, [3, 4, 5, 6, 7, 8, 9]), (8, [8, 9]), (20, [])):
        assert km.select(x, lambda v: v >= low).tolist() == wanted
    high = 4
    plan = km.partition.plan(x, lambda v: v < high)
    assert [p.tolist() for p in plan(x)] == [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]
    high = 2
    assert [p.tolist() for p in plan(x)] == [[0, 1], [2, 3, 4, 5, 6, 7, 8, 9]]


@given(st.integers(0, 3000), st.sampled_from((-3, -1, 2, 3)), st.integers(0, 1 << 16))
@settings(max_examples=8)
def test_arrays_of_any_stride(size, step, seed):
    base = filled((size * abs(step),), "i4", seed)
    x, y = base[::step][:size], filled((size,), "f8", seed)
    same(km.select(x, lambda v: v > 0), x[x > 0])
    found = km.select((y, x), lambda a, b: a > 0)
    same(found[0], y[y > 0])
    same(found[1], x[y > 0])


def test_one_element_seen_many_times_and_odd_addresses():
    x = np.broadcast_to(np.float32(2.0), (700,))
    same(km.select(x, lambda v: v > 1), np.full(700, 2, np.float32))
    raw = np.zeros(4 * 700 + 1, np.uint8)
    odd = raw[1:].view("f4")
    odd[:] = filled((700,), "f4", 1)
    same(km.select(odd, lambda v: v > 0), odd[odd > 0])
    packed = np.zeros(700, [("a", "u1"), ("b", "f4")])
    packed["b"] = odd
    same(km.select(packed["b"], lambda v: v > 0), odd[odd > 0])


@pytest.mark.host
@pytest.mark.parametrize("march", ["x86-64-v2", "x86-64-v3"])
def test_the_same_on_one_thread_and_on_two_and_on_older_processors(march):
    x = filled((300_007,), "f4", 1)
    wide = filled((300_007,), "c16", 2)
    bytes_ = filled((300_007,), "u1", 3)
    flags = x > 0
    for threads in (1, 2):
        with override(num_threads=threads, march=march):
            found = km.select((x, wide, bytes_), lambda a, b, c: a > 0)
            for part, whole in zip(found, (x, wide, bytes_), strict=True):
                same(part, whole[flags])
            same(km.partition(x, lambda v: v > 0)[1], x[~flags])


@pytest.mark.host
def test_large_arrays_stream_and_small_shares_are_copied_out():
    x = filled((1 << 23,), "f8", 1)
    for share in (0.5, 3.0):
        flags = x > share * 8
        found = km.select(x, lambda v: v > share * 8)
        same(found, x[flags])
        if flags.sum() * 4 < x.size:  # a small result does not keep a large buffer
            assert found.base is None
    a, b, c = km.three_way_partition(x[1:], lambda v: v > 4, lambda v: v > -4)
    same(a, x[1:][x[1:] > 4])
    same(c, x[1:][x[1:] <= -4])
    assert a.size + b.size + c.size == x.size - 1


@pytest.mark.not_on("cuda")
def test_iterators_are_selected_from_as_arrays_are():
    x = filled((9001,), "f4", 1)
    flags = x > 0
    places = km.select(km.iterators.counting(3), flags=flags)
    same(places, 3 + np.flatnonzero(flags))
    found = km.select((x, km.iterators.counting(np.int32(0))), lambda v, i: v > 0)
    same(found[0], x[flags])
    same(found[1], np.flatnonzero(flags).astype("i4"))
    for scale in (2, 3):
        doubled = km.iterators.transform(x, lambda v: v * scale)
        same(km.select(doubled, lambda v: v > 0), (x * np.float32(scale))[flags])
    with pytest.raises(ArgumentError, match="select got iterators without an end"):
        km.select(km.iterators.counting(0), lambda v: v > 3)


# ----------------------------------------------------------------------------- buffers


@pytest.mark.not_on("emulator")
def test_out_gets_elements_and_count_and_nothing_else():
    x = filled((9001,), "i4", 1)
    wanted = x[x > 0]
    for dtype in (np.int64, np.uint32, np.int16):
        buffer, count = np.full(9001, 7, np.int32), np.zeros(1, dtype)
        out = (buffer, count)
        assert km.select(x, lambda v: v > 0, out=out) is out
        assert count[0] == wanted.size
        same(buffer[: wanted.size], wanted)
        assert (buffer[wanted.size :] == 7).all()


def test_partitions_into_buffers():
    x = filled((9001,), "f4", 1)
    yes, no, count = np.empty_like(x), np.empty_like(x), np.zeros(1, np.int64)
    km.partition(x, lambda v: v > 0, out=(yes, no, count))
    same(yes[: count[0]], x[x > 0])
    same(no[: x.size - count[0]], x[x <= 0])
    parts, counts = [np.empty_like(x) for _ in range(3)], np.zeros(2, np.int64)
    km.three_way_partition(x, lambda v: v > 4, lambda v: v > 0, out=(*parts, counts))
    assert counts.tolist() == [(x > 4).sum(), ((x > 0) & (x <= 4)).sum()]
    same(parts[2][: x.size - counts.sum()], x[x <= 0])


def km_waits() -> bool:
    """Whether calls wait for their end, and so can tell what was too small."""
    return getattr(km, "device", "cpu") != "cuda"


@pytest.mark.parametrize("size", [0, 1, 5000, 8192 * 3])
def test_nothing_is_written_beyond_a_short_buffer(size):
    x = np.arange(size, dtype=np.int32)
    room = np.full(size // 2 + 100, -1, np.int32)
    short = room[: size // 2]
    count = np.full(1, -5, np.int64)
    if size > short.size and km_waits():
        text = f"`out[0]` has room for {size // 2} elements, {size} were found"
        with pytest.raises(ShapeError, match=re.escape(text)):
            km.select(x, lambda v: v >= 0, out=(short, count))
    else:
        km.select(x, lambda v: v >= 0, out=(short, count))
    assert count[0] == size
    assert (room[: size // 2] == x[: size // 2]).all()
    assert (room[size // 2 :] == -1).all()


@pytest.mark.not_on("emulator")
def test_plans_and_buffers():
    x = filled((5000,), "f4", 1)
    plan = km.select.plan(x, lambda v: v > 0)
    same(plan(x), x[x > 0])
    same(plan(-x), (-x)[-x > 0])
    buffer, count = np.empty_like(x), np.zeros(1, np.int64)
    assert plan(x, out=(buffer, count))[1][0] == (x > 0).sum()
    same(buffer[: count[0]], x[x > 0])
    flags = x < 0
    same(km.select.plan(x, flags=flags)(x, flags), x[flags])


@pytest.mark.not_on("emulator")
def test_an_input_may_be_a_buffer():
    x = filled((9001,), "f4", 1)
    wanted = x[x > 0].copy()
    count = np.zeros(1, np.int64)
    km.select(x, lambda v: v > 0, out=(x, count))
    same(x[: count[0]], wanted)


# ----------------------------------------------------------------------------- faults

X = np.arange(6, dtype=np.float32)
COUNT = np.zeros(1, np.int64)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: km.select(X), ArgumentError, "select got neither `pred` nor `flags`"),
        (
            lambda: km.partition(X, lambda v: v, flags=X),
            ArgumentError,
            "partition got both `pred` and `flags`; it takes one of them",
        ),
        (
            lambda: km.select(X, flags=X[:4]),
            ShapeError,
            "`flags` has 4 elements, `x` has 6",
        ),
        (
            lambda: km.select((X, X[1:]), lambda a, b: a > b),
            ShapeError,
            "`x[1]` has 5 elements, `x[0]` has 6",
        ),
        (
            lambda: km.select(X.reshape(2, 3), lambda v: v > 0),
            ShapeError,
            "`x` is of shape (2, 3); select takes arrays of one dimension",
        ),
        (
            lambda: km.select((X, 2), lambda a, b: a > b),
            ShapeError,
            "`x[1]` is a scalar; select takes arrays of one dimension",
        ),
        (
            lambda: km.select(X, flags=np.zeros(6, PAIR)),
            DTypeError,
            "`flags` has dtype",
        ),
        (
            lambda: km.select(X, lambda v: (v, v)),
            DTypeError,
            "`pred` returns",
        ),
        (
            lambda: km.select(X, lambda a, b: a > b),
            OperatorError,
            "`<lambda>` takes 2 arguments, got 1: missing `b`",
        ),
        (
            lambda: km.select(X, lambda v: v > 0, out=X),
            ArgumentError,
            "`out` is a ndarray; select takes a tuple of 2 here: a buffer for x, the count",
        ),
        (
            lambda: km.partition(X, lambda v: v > 0, out=(X, COUNT)),
            ArgumentError,
            (
                "`out` is 2 arrays; partition takes a tuple of 3 here: a buffer for x of part 0, "
                "a buffer for x of part 1, the count"
            ),
        ),
        (
            lambda: km.select(X, lambda v: v > 0, out=(np.zeros(6), COUNT)),
            DTypeError,
            "`out[0]` has dtype float64, the elements are float32",
        ),
        (
            lambda: km.select(X, lambda v: v > 0, out=(X.copy(), np.zeros(1))),
            DTypeError,
            "`out[1]` has dtype float64; accepted: integers",
        ),
        (
            lambda: km.select(X, lambda v: v > 0, out=(X.copy(), np.zeros(2, np.int64))),
            ShapeError,
            "`out[1]` has shape (2,), the counts have (1,)",
        ),
        (
            lambda: km.select(X, lambda v: v > 0, out=(np.zeros((6, 2), np.float32), COUNT)),
            ShapeError,
            "`out[0]` has shape (6, 2); accepted: arrays of one dimension",
        ),
        (
            lambda: km.select(np.zeros(300), lambda v: v > 0, out=(np.zeros(300), COUNT.view("i1"))),
            DTypeError,
            "`out[1]` has dtype int8, which ends at 127; there are 300 elements",
        ),
    ],
)  # fmt: skip
@pytest.mark.not_on("cuda")
def test_wrong_calls_are_refused(call, error, text):
    with pytest.raises(error, match=re.escape(text)):
        call()


def test_buffers_may_not_overlap():
    room = np.zeros(12, np.float32)
    with pytest.raises(ArgumentError, match=re.escape("`out[0]` and `out[1]` overlap")):
        km.partition(X, lambda v: v > 0, out=(room[:6], room[3:9], np.zeros(1, np.int64)))


def test_a_plan_takes_arrays_of_its_kind_only():
    plan = km.select.plan(X, lambda v: v > 1)
    with pytest.raises(ArgumentError, match="select takes 1 arrays here"):
        plan(X, X)
    assert plan(np.arange(9, dtype=np.float32)).size == 7
    with pytest.raises(ArgumentError, match="this plan was prepared for select"):
        plan(np.arange(9))
