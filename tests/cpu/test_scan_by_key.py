"""Scans and reductions by key, against a loop over the elements."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km

pytestmark = pytest.mark.usefixtures("device")

# A tile of pairs of 16 bytes has 1536 elements, of 8 bytes 3072.
SIZES = (0, 1, 2, 5, 100, 1535, 1536, 1537, 3073, 10007)


def plus(a: Any, b: Any) -> Any:
    return a + b


def second(a: Any, b: Any) -> Any:
    return b


def looped(keys: Any, values: Any, op: Any, equal: Any, init: Any) -> tuple[list[Any], ...]:
    """Return inclusive and exclusive scan, keys and totals."""
    inclusive, exclusive, found, totals, total = [], [], [], [], None
    for i, (key, value) in enumerate(zip(keys, values, strict=True)):
        begins = i == 0 or not equal(keys[i - 1], key)
        if begins:
            found.append(key)
        if begins and i:
            totals.append(total)
        exclusive.append(init if begins else total if init is None else op(init, total))
        total = value if begins else op(total, value)
        inclusive.append(total if init is None else op(init, total))
    return inclusive, exclusive, found, totals + ([total] if len(keys) else [])


def runs(size: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9 if seed % 2 else 2500, size + 1)
    return np.repeat(rng.integers(0, 4, size + 1), lengths)[:size].astype(np.int16)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("dtype", ["i4", "f8"])
def test_segments_of_any_length(dtype: str, seed: int) -> None:
    for size in SIZES:
        keys = runs(size, seed)
        values = np.random.default_rng(size).integers(0, 9, size).astype(dtype)
        wanted = looped(keys.tolist(), values.tolist(), plus, lambda a, b: a == b, 2)
        assert km.inclusive_scan_by_key(keys, values, init=2).tolist() == wanted[0]
        assert km.exclusive_scan_by_key(keys, values, init=2).tolist() == wanted[1]
        found, totals = km.reduce_by_key(keys, values)
        assert (found.tolist(), totals.tolist()) == wanted[2:]
        assert found.dtype == keys.dtype


def test_operators_that_do_not_commute_and_keys_that_are_alike() -> None:
    keys, values = runs(5000, 1), np.arange(5000)
    alike = lambda a, b: a // 2 == b // 2
    wanted = looped(keys.tolist(), values.tolist(), second, alike, None)
    assert km.inclusive_scan_by_key(keys, values, second, equal=alike).tolist() == wanted[0]
    found, totals = km.reduce_by_key(keys, values, second, equal=alike)
    assert (found.tolist(), totals.tolist()) == wanted[2:]


def test_structs_as_keys_and_halves_as_values() -> None:
    keys = np.zeros(400, [("a", "i4"), ("b", "f8")])
    keys["a"], keys["b"] = np.arange(400) // 10, np.arange(400) // 5
    found, totals = km.reduce_by_key(keys, np.ones(400, np.float16))
    np.testing.assert_array_equal(totals, np.full(80, 5, np.float16))
    np.testing.assert_array_equal(found, keys[::5])


def test_the_first_key_of_a_run_is_kept() -> None:
    keys = np.array([0.0, -0.0, 2.25, 2.5, 2.75, 7.0, -0.0, 0.0])
    found, totals = km.reduce_by_key(keys, np.arange(8), equal=lambda a, b: a // 1 == b // 1)
    assert list(zip(found.tolist(), totals.tolist(), strict=True)) == [
        (0.0, 1), (2.25, 9), (7.0, 5), (0.0, 13),
    ]  # fmt: skip
    found, _ = km.reduce_by_key(keys[[0, 1, 5, 6, 7]], np.arange(5))  # zeros are equal
    np.testing.assert_array_equal(np.signbit(found), [False, False, True])


@pytest.mark.parametrize("room", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("shorter", [0, 1])
def test_nothing_is_written_beyond_the_shorter_buffer(room: int, shorter: int) -> None:
    keys = np.array([10, 11, 20, 35, 36, 30])
    out = [np.full(8, -1), np.full(8, -1), np.zeros(1, np.int64)]
    given_out = tuple(a[:room] if i == shorter else a for i, a in enumerate(out))
    decades = lambda a, b: a // 10 == b // 10
    if room < 3:
        with pytest.raises(km.ShapeError, match=rf"`out\[{shorter}\]` has room for {room} elem"):
            km.reduce_by_key(keys, np.ones(6, int), equal=decades, out=given_out)
    else:
        km.reduce_by_key(keys, np.ones(6, int), equal=decades, out=given_out)
    taken, rest = min(room, 3), [-1] * 8
    assert out[0].tolist() == [10, 20, 35][:taken] + rest[taken:]
    assert out[1].tolist() == [2, 1, 3][:taken] + rest[taken:]
    assert out[2][0] == 3


def test_nan_equals_nothing() -> None:
    keys = np.array([np.nan, np.nan, 1, 1])
    assert km.inclusive_scan_by_key(keys, np.ones(4)).tolist() == [1, 1, 1, 2]


def test_the_identity_starts_each_segment() -> None:
    keys = np.array([0, 0, 1, 1, 1])
    assert km.exclusive_scan_by_key(keys, np.arange(1, 6)).tolist() == [0, 1, 0, 3, 7]


def test_layouts_and_outputs() -> None:
    keys, values = runs(4000, 0)[::2], np.arange(4000)[::-2]
    out = np.zeros(4000, np.int64)[::2]
    wanted = looped(keys.tolist(), values.tolist(), plus, lambda a, b: a == b, None)
    assert km.inclusive_scan_by_key(keys, values, out=out) is out
    assert out.tolist() == wanted[0]
    there = np.arange(4000)
    km.inclusive_scan_by_key(np.zeros(4000, np.int8), there, out=there)
    np.testing.assert_array_equal(there, np.cumsum(np.arange(4000)))


def test_reductions_into_buffers() -> None:
    keys, values = np.arange(3000) // 3, np.ones(3000)
    found, totals, count = np.zeros(1500, int), np.zeros(1200), np.zeros(1, np.int32)
    given_out = (found, totals, count)
    assert km.reduce_by_key(keys, values, out=given_out) is given_out
    assert count[0] == 1000
    np.testing.assert_array_equal(found[:1000], np.arange(1000))
    np.testing.assert_array_equal(totals, [3.0] * 1000 + [0.0] * 200)
    empty = (found, totals, count)
    km.reduce_by_key(keys[:0], values[:0], out=empty)
    assert count[0] == 0


def test_plans() -> None:
    keys, values = np.array([0, 0, 1]), np.array([1, 2, 3])
    plan = km.reduce_by_key.plan(keys, values)
    for k, v in ((keys, values), (keys[::-1].copy(), values)):
        found = plan(k, v)
        wanted = km.reduce_by_key(k, v)
        np.testing.assert_array_equal(found[0], wanted[0])
        np.testing.assert_array_equal(found[1], wanted[1])
    scan = km.inclusive_scan_by_key.plan(keys, values)
    assert scan(keys, values).tolist() == [1, 3, 3]


@settings(max_examples=25)
@given(
    keys=st.lists(st.integers(0, 2), max_size=300),
    op=st.sampled_from([plus, second]),
    init=st.none() | st.integers(-3, 3),
)
def test_random_segments(keys: list[int], op: Any, init: int | None) -> None:
    values = np.arange(len(keys), dtype=np.int64) + 1
    wanted = looped(keys, values.tolist(), op, lambda a, b: a == b, init)
    array = np.array(keys, np.uint8)
    assert km.inclusive_scan_by_key(array, values, op, init=init).tolist() == wanted[0]
    if init is not None:
        assert km.exclusive_scan_by_key(array, values, op, init=init).tolist() == wanted[1]


def fails(error: type[Exception], text: str) -> Any:
    return pytest.raises(error, match=re.escape(text))


@pytest.mark.not_on("cuda")
def test_faults_name_what_was_found() -> None:
    keys, values = np.arange(4), np.ones(4)
    with fails(km.ShapeError, "`values` has 3 elements, `keys` has 4"):
        km.inclusive_scan_by_key(keys, values[:3])
    with fails(km.ShapeError, "`keys` is of shape (2, 2); reduce_by_key takes arrays of one dim"):
        km.reduce_by_key(keys.reshape(2, 2), values)
    with fails(km.ShapeError, "`values` is a scalar; exclusive_scan_by_key takes arrays of one"):
        km.exclusive_scan_by_key(keys, 1.0)
    with fails(km.ArgumentError, "`op` is a tuple; reduce_by_key takes one operator"):
        km.reduce_by_key(keys, values, (km.add,))
    with fails(km.ArgumentError, "`out` is 2 arrays; reduce_by_key takes a tuple of 3"):
        km.reduce_by_key(keys, values, out=(keys.copy(), values.copy()))
    count = np.zeros(1, np.int64)
    with fails(km.DTypeError, "`out[0]` has dtype float64, the keys are int64"):
        km.reduce_by_key(keys, values, out=(values.copy(), values.copy(), count))
    with fails(km.DTypeError, "add gives float64, `out[1]` has int64: not of the same kind"):
        km.reduce_by_key(keys, values, out=(keys.copy(), keys.copy(), count))
    with fails(km.ShapeError, "`out[2]` has shape (2,), the count has (1,)"):
        km.reduce_by_key(keys, values, out=(keys.copy(), values.copy(), np.zeros(2, int)))
    with fails(km.DTypeError, "`out[2]` has dtype float64; accepted: integers"):
        km.reduce_by_key(keys, values, out=(keys.copy(), values.copy(), np.zeros(1)))
    room = np.zeros(8, np.int64)
    with fails(km.ArgumentError, "`out[0]` and `out[2]` overlap"):
        km.reduce_by_key(keys, values, out=(room[:4], values.copy(), room[:1]))


@pytest.mark.host
def test_the_common_order_is_kept_on_request() -> None:
    keys, values = runs(9000, 1), np.random.default_rng(4).normal(size=9000)
    with km.Device("emulator"):
        wanted = km.inclusive_scan_by_key(keys, values)
    found = km.inclusive_scan_by_key(keys, values, determinism="device_to_device")
    np.testing.assert_array_equal(found, wanted)
    quick = km.inclusive_scan_by_key(keys, values)
    np.testing.assert_allclose(quick, found, rtol=1e-9, atol=1e-9)
