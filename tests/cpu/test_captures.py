"""Captured scalars: read at each call, checked, and never a reason to compile."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import kernelmill as km
from array_layouts import filled, same
from kernelmill import events

pytestmark = pytest.mark.usefixtures("device")

X = filled((1000,), "f4", 1)
GLOBAL = 2.0


def compiles(call: Any) -> tuple[Any, list[str]]:
    """The result of a call and what it built: kernels compiled or taken from the disk."""
    with events.listen("compile", "cache_hit", "cache_miss") as seen:
        found = call()
    return found, [e.kind for e in seen]


def test_a_new_value_is_seen_and_compiles_nothing() -> None:
    k = 1.0

    def op(v: Any) -> Any:
        return v * k

    same(km.transform(X, op), X)
    for k in (2.5, -3.0, float("inf"), 0.1):
        for quiet in (False, True):  # events take the general path, silence the quick one
            if quiet:
                same(km.transform(X, op), X * np.float32(k))
            else:
                found, built = compiles(lambda: km.transform(X, op))
                same(found, X * np.float32(k))
                assert built == []


def test_globals_are_read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    op = lambda v: v + GLOBAL
    same(km.transform(X, op), X + np.float32(2))
    monkeypatch.setitem(globals(), "GLOBAL", 7.5)
    same(km.transform(X, op), X + np.float32(7.5))


def test_a_lambda_made_again_compiles_nothing() -> None:
    out = np.empty_like(X)
    with events.listen("compile", "cache_hit", "cache_miss") as seen:
        for k in range(1, 20):
            km.transform(X, lambda v: v * k, out=out)
            same(out, X * np.float32(k))
            if k == 1:
                seen.clear()
        assert seen == []
    for k in range(1, 20):
        km.transform(X, lambda v: v * k, out=out)
        same(out, X * np.float32(k))


def scaled_by(k: Any) -> Any:
    return lambda v: v * k


def test_closures_of_one_text_do_not_share_values() -> None:
    two, three = scaled_by(2.0), scaled_by(3.0)
    for _ in range(3):
        same(km.transform(X, two), X * 2)
        same(km.transform(X, three), X * 3)
    same(km.transform_reduce(X, two, km.maximum), (X * 2).max())
    same(km.transform_reduce(X, three, km.maximum), (X * 3).max())


def test_another_type_specialises_again() -> None:
    i = filled((100,), "i4", 1)
    results = [km.transform(i, scaled_by(k)) for k in (2, 2.5, np.int8(3), np.float32(2), 1j, True)]
    values = (2, 2.5, np.int8(3), np.float32(2), 1j, True)
    for found, k in zip(results, values, strict=True):
        same(found, i * k)
    for k in (7, 0.5):  # back to what is known
        found, built = compiles(lambda: km.transform(i, scaled_by(k)))
        same(found, i * k)
        assert built == []


def test_defaults_are_captured() -> None:
    ops = [lambda v, k=k: v + k for k in (1, 2.5, 40)]
    for op, k in zip(ops, (1, 2.5, 40), strict=True):
        same(km.transform(X, op), X + np.float32(k))


def test_captures_of_inner_and_called_functions() -> None:
    shift = 1.0

    def inner(v: Any) -> Any:
        return v + shift

    def op(v: Any) -> Any:
        def square(w: Any) -> Any:
            return w * w * factor

        return square(inner(v))

    for shift, factor in ((1.0, 2.0), (3.0, 0.5)):
        moved = X + np.float32(shift)
        same(km.transform(X, op), moved * moved * np.float32(factor))


def test_attributes_of_objects_are_read_late() -> None:
    class Settings:
        gain = 2.0

    settings = Settings()
    op = lambda v: v * settings.gain
    same(km.transform(X, op), X * 2)
    settings.gain = 3.5
    same(km.transform(X, op), X * np.float32(3.5))


def test_attributes_of_a_class_are_those_of_its_objects() -> None:
    class Settings:
        table = np.float32([3, 5])
        kind = np.float32

    settings = Settings()
    op = lambda v: settings.table[1] * v + settings.kind(1)
    same(km.transform(X, op), X * 5 + 1)
    settings.table = np.float32([3, 7])
    same(km.transform(X, op), X * 7 + 1)


def test_bool_and_numpy_scalars() -> None:
    for flag, step in itertools.product((True, False), (np.float32(1), np.float32(2.5))):
        found, built = compiles(lambda: km.transform(X, lambda v: v + step if flag else v))
        same(found, X + step if flag else X)
        assert built == [] or (flag and step == 1)


@pytest.mark.parametrize("value", [
    np.bool_(True), np.int8(-5), np.uint8(200), np.int16(-300), np.uint16(60000), np.int32(-70000),
    np.uint32(4_000_000_000), np.int64(-(2**40)), np.uint64(2**63 + 1), np.float16(1.5),
    np.float32(0.1), np.float64(0.1), np.complex64(1 + 2j), np.complex128(1 + 2j), 1.5 - 2j,
], ids=lambda v: type(v).__name__)  # fmt: skip
def test_every_type_is_handed_over_whole(value: Any) -> None:
    x = np.zeros(3, np.int8)
    if value.__class__ is np.bool_:
        same(km.transform(x, lambda v: value), np.full(3, value))
        return
    found = km.transform(x, lambda v: value)
    assert found.tolist() == [value.item() if isinstance(value, np.generic) else value] * 3


def test_captures_of_mixed_sizes_keep_their_places() -> None:
    a, b, c, d = np.int8(1), 2.5, np.uint16(300), np.complex128(1 + 1j)
    e, f = True, np.float32(0.5)
    found = km.transform(X, lambda v: (a, b, c, d, e, f, v + a))
    for got, wanted in zip(found, (a, np.float64(b), c, d, np.bool_(e), f), strict=False):
        same(got, np.full(1000, wanted))
    same(found[-1], X + np.float32(1))


def test_integers_are_checked_against_what_they_meet() -> None:
    i = np.arange(3, dtype=np.int8)
    k = 5

    def op(v: Any) -> Any:
        return v + k

    same(km.transform(i, op), i + np.int8(5))
    for k in (128, -129, 2**70):
        for _ in range(2):
            with pytest.raises(OverflowError) as caught:
                km.transform(i, op)
            assert str(caught.value) == (
                f"Python integer {k} out of bounds for int8\n\n"
                "hint: `k` is captured and meets values of type int8, which holds -128 to 127"
            )
    k = 127
    same(km.transform(i, op), i + np.int8(127))


def test_integers_above_int64_meet_uint64_only() -> None:
    k = 2**64 - 1
    found = km.transform(np.arange(3, dtype="u8"), lambda v: v + k)
    same(found, np.array([2**64 - 1, 0, 1], "u8"))
    with pytest.raises(OverflowError) as caught:
        km.transform(X, lambda v: v * 0 + 2 * k)
    assert str(caught.value).startswith(f"Python integer {k} out of bounds for int64")


def test_captured_lists_are_refused() -> None:
    table = [1.0, 2.0]
    with pytest.raises(km.OperatorError, match="table"):
        km.transform(X, lambda v: v * table)


def test_structs_and_functions_are_baked() -> None:
    def one(v: Any) -> Any:
        return v + 1

    def two(v: Any) -> Any:
        return v * 2

    chosen = one
    op = lambda v: chosen(v)
    same(km.transform(X, op), X + np.float32(1))
    chosen = two
    same(km.transform(X, op), X * 2)
    chosen = one
    found, built = compiles(lambda: km.transform(X, op))
    same(found, X + np.float32(1))
    assert built == []


def test_callable_objects_with_equality_of_their_own() -> None:
    from dataclasses import dataclass

    @dataclass
    class Scale:
        k: float

        def __call__(self, v: Any) -> Any:
            return v * self.k

    @dataclass(frozen=True)
    class Frozen:
        k: float

        def __call__(self, v: Any) -> Any:
            return v * self.k

    for cls in (Scale, Frozen):
        for k in (2.0, 3.0, 2):
            same(km.transform(X, cls(k)), X * np.float32(k))
    scale = Scale(2.0)
    same(km.transform(X, scale), X * 2)
    scale.k = 5.0
    same(km.transform(X, scale), X * 5)


def test_plans_read_captures_at_each_call() -> None:
    k = 1.0
    plan = km.transform.plan(X, lambda v: v * k)
    total = km.transform_reduce.plan(X, lambda v: v * k, km.maximum)
    for k in (1.0, 2.5, -1.0):
        same(plan(X), X * np.float32(k))
        same(total(X), (X * np.float32(k)).max())
    k = 2
    with pytest.raises(km.ArgumentError, match="this plan was prepared for"):
        plan(filled((10,), "i4", 1))


def test_plans_notice_another_class_and_values_out_of_range() -> None:
    i, out = np.arange(5, dtype=np.int8), np.empty(5, np.int8)
    k: Any = 3
    plan = km.transform.plan(i, lambda v: v + k, out=out)
    for k in (127, -128, 0):
        same(plan(i, out=out), i + np.int8(k))
    k = 128
    with pytest.raises(OverflowError, match="Python integer 128 out of bounds for int8"):
        plan(i, out=out)
    wide = np.empty(5, np.int64)
    # Each needs another kernel, or none is possible.
    for k in (np.int64(3), 2.5, "text"):  # noqa: B007 - it is captured
        with pytest.raises((km.ArgumentError, km.DTypeError, km.OperatorError)):
            plan(i, out=out)
    k = True
    with pytest.raises(km.ArgumentError, match="this plan was prepared for"):
        plan(i, out=wide)
    k = 4
    same(plan(i, out=out), i + np.int8(4))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("k", [2**63, -(2**63) - 1, 2**64, 10**30])
def test_a_python_integer_of_any_size_meets_floats(dtype: str, k: int) -> None:
    x = filled((5,), dtype, 3)
    same(km.transform(x, lambda v: v + k), x + x.dtype.type(k))
    same(km.reduce(x, km.maximum, init=k), max(x.max(), x.dtype.type(k)))
    same(km.transform_reduce(x, lambda v: v * k, km.maximum), (x * x.dtype.type(k)).max())


def test_what_a_float_cannot_hold_is_refused_as_by_numpy() -> None:
    k = 3

    def op(v: Any) -> Any:
        return v + k

    x = filled((5,), "f8", 4)
    same(km.transform(x, op), x + 3)
    k = 10**400
    with pytest.raises(
        OverflowError, match="Python integer of 1329 bits out of bounds for float64"
    ):
        km.transform(x, op)


def test_an_integer_that_meets_floats_and_integers_keeps_the_limits() -> None:
    k = 2**63
    x, n = filled((5,), "f8", 5), filled((5,), "i4", 6)
    with pytest.raises(OverflowError, match="out of bounds for int32"):
        km.transform((x, n), lambda a, b: a + k + (b + k))


@pytest.mark.parametrize("name", ["sort", "argsort", "segmented_sort", "lower_bound", "merge"])
def test_comparators_made_again_read_their_own_scope(name: str) -> None:
    x = np.arange(20)

    def called(k: int) -> Any:
        less = lambda a, b: (a % k) < (b % k)
        if name == "segmented_sort":
            return km.segmented_sort(x, np.array([0, 20]), comparator=less)
        y = x[np.argsort(x % k, kind="stable")]
        if name == "merge":
            return km.merge(y, y[:0], comparator=less)
        if name == "lower_bound":
            return y[km.lower_bound(y, x[: k - 1], comparator=less)]
        return getattr(km, name)(x, comparator=less)

    for k in (3, 5, 7):
        order = np.argsort(x % k, kind="stable")
        wanted = np.arange(k - 1) if name == "lower_bound" else order
        np.testing.assert_array_equal(called(k), wanted)
