"""Iterators in `transform` and `reduce`, in and out, on every device; `where`, neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import kernelmill as km
from kernelmill import iterators as it

if TYPE_CHECKING:
    from collections.abc import Callable

N = 1000
X = np.random.default_rng(5).integers(-50, 50, N).astype(np.float32)
I32 = np.arange(N, dtype=np.int32)
PLACES = np.random.default_rng(6).integers(-5, N + 5, N)
GAIN = 3.0


def there(found: Any) -> Any:
    return found.numpy() if hasattr(found, "numpy") else found


CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "counting": (
        lambda: km.transform((it.counting(5), X), lambda i, v: i * GAIN + v),
        lambda: np.arange(5, 5 + N) * GAIN + X,
    ),
    "zip of transform of counting": (
        lambda: km.transform(it.zip(it.transform(it.counting(), lambda i: i * i), I32),
                             lambda p: p[0] + p.f1),
        lambda: np.arange(N) ** 2 + I32,
    ),
    "unpacked": (
        lambda: km.transform(((X, I32), 2), second),
        lambda: I32 * 2,
    ),
    "permutation": (
        lambda: km.transform(it.permutation(X, PLACES), lambda v: v + np.float32(1)),
        lambda: X[np.clip(PLACES, 0, N - 1)] + 1,
    ),
    "reverse and strided": (
        lambda: km.transform((it.reverse(X), it.strided(np.arange(2 * N), 2)), lambda a, b: a - b),
        lambda: X[::-1] - np.arange(0, 2 * N, 2),
    ),
    "constant and scalar": (
        lambda: km.transform((X, it.constant(np.int8(2)), 3), lambda v, c, s: v * c + s),
        lambda: X * np.float32(2) + np.float32(3),
    ),
    "sum of squares": (
        lambda: km.reduce(it.transform(X, lambda v: v * v)),
        lambda: np.float32((X.astype(np.float64) ** 2).sum()),
    ),
    "sum of counting": (
        lambda: km.reduce(it.strided(it.counting(), 3, count=100_000)),
        lambda: 3 * np.int64(100_000 * 99_999 // 2),
    ),
    "least with its place": (
        lambda: km.reduce(it.zip(X, it.counting()), lesser)["f1"],
        lambda: X.argmin(),
    ),
    "tuples as structs": (
        lambda: km.reduce(it.zip(I32, it.constant(np.int64(1))),
                          lambda a, b: (max(a[0], b[0]), a[1] + b[1])),
        lambda: np.array((N - 1, N), np.dtype([("f0", "i4"), ("f1", "i8")], align=True))[()],
    ),
    "dot by places": (
        lambda: km.transform_reduce((it.permutation(I32, it.shuffle(N, seed=4)), 2),
                                    lambda v, s: v * s),
        lambda: np.int64(I32.sum() * 2),
    ),
    "maximum, reversed, past the cache": (
        lambda: km.reduce(it.reverse(it.zip(it.cache_modified(X), X)), lambda a, b:
                          a if a[0] > b[0] else b)["f0"],
        lambda: X.max(),
    ),
}  # fmt: skip


def second(pair: Any, s: Any) -> Any:
    _, i = pair
    return i * s


def lesser(a: Any, b: Any) -> Any:
    return a if a[0] < b[0] or (a[0] == b[0] and a[1] < b[1]) else b


@pytest.mark.parametrize("name", CASES)
def test_what_is_computed(name: str, place: str) -> None:
    made, wanted = CASES[name]
    found = there(made())
    np.testing.assert_array_equal(found, wanted())
    assert np.asarray(found).dtype.descr == np.asarray(wanted()).dtype.descr


def test_outputs(place: str) -> None:
    a, b = np.zeros(N), np.zeros(N, np.int64)
    out = (it.reverse(a), it.transform_output(b, lambda q: -q))
    assert km.transform((X, it.counting()), lambda v, i: (v, i), out=out) is out
    np.testing.assert_array_equal(a, X[::-1])
    np.testing.assert_array_equal(b, -np.arange(N))

    order = np.random.default_rng(2).permutation(N)
    kept, firsts = np.full(2 * N, -1.0, np.float32), np.zeros(N, np.int32)
    km.transform((X, I32), lambda v, i: (v, i),
                 out=it.permutation(it.zip(it.strided(kept, 2), firsts), order))  # fmt: skip
    np.testing.assert_array_equal(kept[::2][order], X)
    np.testing.assert_array_equal(kept[1::2], -1)
    np.testing.assert_array_equal(firsts[order], I32)

    km.transform((X, I32), lambda v, i: (v, i), out=it.zip(it.discard(), firsts))
    np.testing.assert_array_equal(firsts, I32)
    nothing = it.discard()
    assert km.transform(X, lambda v: v, out=nothing) is nothing


def test_what_overlaps_is_read_first(place: str) -> None:
    x = np.arange(100)
    km.transform(it.permutation(x, np.arange(100)[::-1].copy()), lambda v: v, out=x)
    np.testing.assert_array_equal(x, np.arange(100)[::-1])
    x = np.arange(100)
    km.transform(x, lambda v: v, out=it.permutation(x, np.arange(100)[::-1].copy()))
    np.testing.assert_array_equal(x, np.arange(100)[::-1])


def test_where(place: str) -> None:
    x, i = np.arange(12.0).reshape(3, 4), np.arange(12).reshape(3, 4)
    out = np.full((3, 4), -1.0)
    assert km.transform(x, lambda v: v * 2, out=out, where=x > 5) is out
    np.testing.assert_array_equal(out, np.where(x > 5, x * 2, -1))
    out = np.full((3, 4), -1.0)
    km.transform((x, i), lambda v, j: v * 2 + j, out=out, where=lambda v, j: j % 2 == 0)
    np.testing.assert_array_equal(out, np.where(i % 2 == 0, x * 2 + i, -1))
    out = np.full((3, 4), -1.0, np.float32)
    km.transform(x.T, lambda v: v * GAIN, out=out.T, where=(i.T, lambda s: s > 7))
    np.testing.assert_array_equal(out, np.where(i > 7, x * 3, -1))
    out = x.copy()
    km.transform(out, lambda v: -v, out=out, where=np.array([1, 0, 2, 0]))
    np.testing.assert_array_equal(out, x * [-1, 1, -1, 1])

    a, b = np.zeros(12), np.zeros(12)
    km.transform(np.arange(12), lambda v: (v, -v), out=(a, it.reverse(b)), where=lambda v: v > 8)
    np.testing.assert_array_equal(a, [0] * 9 + [9, 10, 11])
    np.testing.assert_array_equal(b, [-11, -10, -9] + [0] * 9)


def test_for_each(place: str) -> None:
    x = X.copy()
    assert km.for_each(x, lambda v: v / 2) is x
    np.testing.assert_array_equal(x, X / 2)
    a, b = I32.copy(), X.copy()
    km.for_each((a, b), lambda i, v: (i + 1, v * GAIN))
    np.testing.assert_array_equal(a, I32 + 1)
    np.testing.assert_array_equal(b, X * 3)
    grid = np.ones((3, 4))
    km.for_each(grid, lambda v: v + 1)
    np.testing.assert_array_equal(grid, 2)
    x = I32.copy()
    km.for_each(it.permutation(x, np.array([1, 3, 5])), lambda v: -v)
    np.testing.assert_array_equal(x[:7], [0, -1, 2, -3, 4, -5, 6])


@pytest.mark.parametrize("count", [0, 1, 2, 3, 127, 128, 129, 1000])
def test_adjacent_difference(count: int, place: str) -> None:
    x = np.random.default_rng(count).integers(0, 100, count)
    wanted = np.concatenate([x[:1], np.diff(x)])
    np.testing.assert_array_equal(km.adjacent_difference(x), wanted)
    np.testing.assert_array_equal(km.adjacent_difference(x[::-1]),
                                  np.concatenate([x[::-1][:1], np.diff(x[::-1])]))  # fmt: skip
    same = x.copy()
    assert km.adjacent_difference(same, out=same) is same
    np.testing.assert_array_equal(same, wanted)
    if count:
        greater = km.adjacent_difference(x, lambda a, before: a > before)
        np.testing.assert_array_equal(greater, np.concatenate([x[:1] != 0, x[1:] > x[:-1]]))
        out = np.zeros(count)
        km.adjacent_difference(it.transform(x, lambda v: v * GAIN), out=it.reverse(out))
        np.testing.assert_array_equal(out[::-1], wanted * 3)


@pytest.mark.parametrize("count", [2, 3, 129])
def test_neighbours_are_read_before_results_lie_on_them(count: int, place: str) -> None:
    x = np.random.default_rng(count).integers(0, 100, count)
    wanted = np.concatenate([x[::-1][:1], np.diff(x[::-1])])
    forms = (
        lambda a: km.adjacent_difference(it.reverse(a), out=a),
        lambda a: km.adjacent_difference(it.permutation(a, np.arange(count)[::-1]), out=a),
        lambda a: km.adjacent_difference(a[::-1], out=a),
    )
    for form in forms:
        room = x.copy()
        form(room)
        np.testing.assert_array_equal(room, wanted)
    room = x.copy()
    km.adjacent_difference(room, out=it.reverse(room))
    np.testing.assert_array_equal(room[::-1], np.concatenate([x[:1], np.diff(x)]))


@pytest.mark.parametrize("count", [0, 1, 2, 129])
def test_plans_of_neighbours(count: int, place: str) -> None:
    x = np.random.default_rng(count).integers(0, 100, count)
    wanted = np.concatenate([x[:1], np.diff(x)])
    plan = km.adjacent_difference.plan(x)
    np.testing.assert_array_equal(plan(x), wanted)
    out, same = np.full(count, 7), x.copy()
    assert plan(x, out=out) is out
    assert plan(same, out=same) is same
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(same, wanted)
    room = np.append(x, 0)  # a result that lies one element behind what it is made of
    plan(room[:count], out=room[1:])
    np.testing.assert_array_equal(room[1:], wanted)
    doubled = it.transform(x, lambda v: 2 * v)
    around = km.adjacent_difference.plan(doubled, out=it.reverse(out))
    around(doubled, out=it.reverse(out))
    np.testing.assert_array_equal(out[::-1], 2 * wanted)


def test_a_plan_of_neighbours_takes_other_lengths_and_scalars(place: str) -> None:
    gain = 2
    plan = km.adjacent_difference.plan(I32, lambda a, before: gain * (a - before))
    gain = 5
    np.testing.assert_array_equal(plan(I32), [0] + [5] * (N - 1))
    np.testing.assert_array_equal(plan(I32[:9]), [0] + [5] * 8)
    strided = km.adjacent_difference.plan(I32[::3], np.subtract)
    np.testing.assert_array_equal(strided(I32[::3][:50]), [0] + [3] * 49)
    with pytest.raises(km.ArgumentError, match="prepared for .*int32.*, the arrays need .*float32"):
        plan(X)


def test_plans_of_for_each(place: str) -> None:
    x, y = I32.copy(), I32.copy()
    each = km.for_each.plan(x, lambda v: v + 1)
    assert each(x) is x
    np.testing.assert_array_equal(x, I32 + 1)
    assert each(x[:7]).base is x
    np.testing.assert_array_equal(x[:8], [2, 3, 4, 5, 6, 7, 8, 8])
    both = km.for_each.plan((x, y), lambda a, b: (b, a - b))
    got = both(x, y)
    assert got[0] is x
    assert got[1] is y
    np.testing.assert_array_equal(x, I32)
    odd = it.strided(y, 2)
    km.for_each.plan(odd, lambda v: v * 0)(odd)
    assert not y[::2].any()


# ----------------------------------------------------------------------------- drawn nests


@st.composite
def nests(draw: Any, depth: int = 3) -> tuple[Any, np.ndarray]:
    """An iterator with an end, and what NumPy says are its elements; they are small integers."""
    kind = draw(st.sampled_from(
        ["array", "count"] if depth == 0 else
        ["array", "reverse", "strided", "permutation", "transform", "two", "zip", "shuffled"]
    ))  # fmt: skip
    if kind == "array":
        count = draw(st.sampled_from([1, 2, 7, 100]))
        values = np.arange(2 * count, dtype=draw(st.sampled_from(["i2", "i4", "i8"]))) % 50
        step = draw(st.sampled_from([1, 2, -1]))
        view = values[::step][:count]
        return view, view.astype(np.int64)
    if kind == "count":
        start, step, count = draw(st.tuples(st.integers(-5, 5), st.integers(-3, 3), st.just(9)))
        return it.strided(it.counting(start, step), 1, count=count), start + step * np.arange(count)
    part, values = draw(nests(depth - 1))
    if kind == "reverse":
        return it.reverse(part), values[::-1]
    if kind == "strided":
        step = draw(st.integers(1, 3))
        return it.strided(part, step), values[::step]
    if kind == "permutation":
        places = np.array(draw(st.lists(st.integers(-2, 120), min_size=1, max_size=20)))
        return it.permutation(part, places), values[np.clip(places, 0, len(values) - 1)]
    if kind == "transform":
        return it.transform(part, lambda v: v * 2 - 1), values * 2 - 1
    if kind == "two":
        return it.transform((part, it.counting(3)), lambda v, i: v + i), (
            values + np.arange(3, 3 + len(values))
        )
    if kind == "zip":
        zipped = it.zip(part, it.reverse(part))
        return it.transform(zipped, lambda p: p[0] - p[1]), values - values[::-1]
    order = it.shuffle(len(values), seed=draw(st.integers(0, 3)))
    places = there(km.transform(order, lambda i: i))
    return it.permutation(part, order), values[places]


@settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
@given(nests())
def test_drawn_nests(nest: tuple[Any, np.ndarray]) -> None:
    part, values = nest
    out = np.zeros(len(values), np.int64)
    km.transform(part, lambda v: v, out=out)
    np.testing.assert_array_equal(out, values)
    assert km.reduce(it.transform(part, lambda v: np.int64(v))) == values.sum()


@pytest.mark.slow
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(nests())
def test_drawn_nests_on_the_emulator(nest: tuple[Any, np.ndarray]) -> None:
    part, values = nest
    out = np.zeros(len(values), np.int64)
    with km.Device("emulator"):
        km.transform(part, lambda v: v, out=out)
    np.testing.assert_array_equal(out, values)


# ----------------------------------------------------------------------------- text and faults


def test_one_kernel_for_other_numbers() -> None:
    def plan(start: int, gain: float) -> km.Plan:
        return km.transform.plan((it.counting(start), X), lambda i, v: i * gain + v)

    one, other = plan(1, 2.0), plan(7, 3.0)
    assert one.source == other.source
    np.testing.assert_array_equal(other((it.counting(7)), X), np.arange(7, 7 + N) * 3.0 + X)


def test_elements_are_part_of_one_operator() -> None:
    text = km.transform.plan((it.zip(it.transform(it.counting(), lambda i: i + 1), X), X),
                             lambda p, v: p[0] * v + p[1]).source  # fmt: skip
    assert text.count("km::arg<km::f32, km::contiguous>") == 1  # X goes in once
    assert "km::arg<km::i64, km::index>" in text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: km.transform(it.counting(), lambda i: i),
         "`inputs` has no end, and nothing else says how many elements there are"),
        (lambda: km.reduce(it.counting()),
         "`x` has no end, and nothing else says how many elements there are"),
        (lambda: km.transform((it.counting(), X, X[:5]), lambda i, a, b: i + a + b),
         "`inputs[1]` has 1000 elements, `inputs[2]` has 5"),
        (lambda: km.transform((it.counting(), np.zeros((2, 3))), lambda i, a: i + a),
         "`inputs[1]` has shape (2, 3); iterators are of one dimension"),
        (lambda: km.transform((it.counting(), X), lambda i, a: (i, a), out=(X.copy(),) * 3),
         "lambda has 2 results, `out` has 3 arrays"),
        (lambda: km.transform((it.counting(), X), lambda i, a: ((i, a), a)),
         "lambda returns a tuple inside a tuple"),
        (lambda: km.transform((it.counting(), X), lambda i, a: (a,)),
         "lambda returns a tuple of 1; several results are two or more"),
        (lambda: km.reduce(it.zip(X, X), lambda a, b: (a[0], b[0], a[1])),
         ("lambda of two Struct gives (float32, float32, float32), which cannot be combined with "
          "Struct")),
        (lambda: km.transform(X, lambda v: v, where=X > 1),
         "`where` is given without `out`, whose elements it leaves as they are"),
        (lambda: km.transform(X, lambda v: v, out=np.zeros(4), where=X > 1),
         "shapes do not broadcast: `inputs` has (1000,), `out` has (4,)"),
        (lambda: km.transform(X, lambda v: v, out=np.zeros(N, int), where=X > 1),
         "lambda returns float32, `out` has int64: not of the same kind"),
        (lambda: km.adjacent_difference(np.zeros((2, 2))),
         "`x` has shape (2, 2); expected: one dimension"),
        (lambda: km.adjacent_difference(it.counting()), "`x` has no end"),
        (lambda: km.adjacent_difference(X, out=np.zeros(3)), "`out` has 3 elements, `x` has 1000"),
        (lambda: km.adjacent_difference(X[:1], out=np.zeros((1, 1), X.dtype)),
         "`out` has shape (1, 1); expected: one dimension"),
        (lambda: km.adjacent_difference(X, lambda a, b: (a, b)),
         "the operator returns (float32, float32); adjacent_difference stores one value"),
        (lambda: it.constant(300, dtype=np.uint8), "`value` is 300, out of bounds for uint8"),
        (lambda: it.constant(np.inf, dtype=int), "`value` is inf, out of bounds for int64"),
        (lambda: it.strided(X, 2.5), "`step` is 2.5; expected: an integer"),
        (lambda: it.shuffle("a"), "`count` is 'a'; expected: an integer"),
        (lambda: it.constant("a", dtype=float), "`value` is 'a'; expected: a number"),
        (lambda: it.counting(10**400, dtype=float),
         "`start` is of 1329 bits, out of bounds for float64"),
        (lambda: it.counting(0, np.nan, dtype=int), "`step` is nan; expected: a number"),
        (lambda: km.reduce(X, init=10**400),
         "Python integer of 1329 bits out of bounds for float32"),
    ],
)  # fmt: skip
def test_faults(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(km.KernelmillError) as error:
        call()
    assert error.value.message == text
