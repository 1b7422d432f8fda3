"""Feeds: what is read and written by index, with a kernel that does nothing but copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import feed_kernels
import kernelmill as km
from kernelmill.algorithms import iterators as it
from kernelmill.algorithms import sequences
from kernelmill.algorithms.feeds import read_feeds, write_feeds

if TYPE_CHECKING:
    from collections.abc import Callable

N = 37
X = np.linspace(-3, 5, N).astype(np.float32)
I32 = np.arange(N, dtype=np.int32)
PLACES = np.array([3, 0, 99, -4, 36, 3, 12, 1 << 40])
PAIR = np.dtype([("a", np.float16), ("b", np.bool_), ("c", np.float64)])
GAIN = 3.0


def there(found: Any) -> np.ndarray:
    """A result as NumPy's: on a device it stays there where no array came from the host."""
    return found.numpy() if hasattr(found, "numpy") else np.asarray(found)


def as_float32(v: Any) -> Any:
    return np.float32(v)


def pairs() -> np.ndarray:
    made = np.zeros(N, PAIR)
    made["a"], made["b"], made["c"] = X, X > 0, -X
    return made


def clipped(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    return values[np.clip(places, 0, len(values) - 1)]


def zipped(*columns: np.ndarray) -> np.ndarray:
    made = np.zeros(len(columns[0]), np.dtype([(f"f{i}", c.dtype) for i, c in enumerate(columns)],
                                              align=True))  # fmt: skip
    for i, column in enumerate(columns):
        made[f"f{i}"] = column
    return made


# What is read, and what NumPy says it is.
READ: dict[str, tuple[Callable[[], Any], Callable[[], np.ndarray]]] = {
    "array": (lambda: X, lambda: X),
    "strided": (lambda: X[::3], lambda: X[::3]),
    "backwards": (lambda: X[::-1], lambda: X[::-1]),
    "repeated": (lambda: np.broadcast_to(np.float32(2), N), lambda: np.full(N, 2, np.float32)),
    "packed struct": (pairs, pairs),
    "field": (lambda: pairs()["c"], lambda: pairs()["c"]),
    "counting": (lambda: it.strided(it.counting(5), 1, count=9), lambda: np.arange(5, 14)),
    "counting by": (
        lambda: it.strided(it.counting(5, -3), 2, start=1, count=9),
        lambda: np.arange(5, -200, -3)[1::2][:9],
    ),
    "counting int8": (
        lambda: it.strided(it.counting(100, dtype="int8"), 1, count=N),
        lambda: np.arange(100, 100 + N).astype(np.int8),
    ),
    "counting float32": (
        lambda: it.strided(it.counting(0.1, 0.7, dtype=np.float32), 1, count=N),
        lambda: np.float32(0.1) + np.float32(0.7) * np.arange(N, dtype=np.float32),
    ),
    "counting bfloat16": (
        lambda: it.transform(it.strided(it.counting(1.5, dtype="bfloat16"), 1, count=N), as_float32),
        lambda: 1.5 + np.arange(N, dtype=np.float32),
    ),
    "constant": (
        lambda: it.strided(it.constant(2.5), 1, count=N),
        lambda: np.full(N, 2.5),
    ),
    "constant complex": (
        lambda: it.strided(it.constant(np.complex64(1 - 2j)), 1, count=N),
        lambda: np.full(N, 1 - 2j, np.complex64),
    ),
    "constant struct": (
        lambda: it.strided(it.constant(pairs()[1]), 1, count=N),
        lambda: np.full(N, pairs()[1]),
    ),
    "transform": (
        lambda: it.transform((X, it.counting(2)), lambda x, i: x * np.float32(GAIN) + np.float32(i)),
        lambda: X * np.float32(3) + np.arange(2, 2 + N).astype(np.float32),
    ),
    "transform of many": (
        lambda: it.transform(I32, lambda i: (i, -i)),
        lambda: zipped(I32, -I32),
    ),
    "zip": (lambda: it.zip(X, it.counting()), lambda: zipped(X, np.arange(N))),
    "zip in zip": (
        lambda: it.transform(((X, I32), X), lambda p, x: p[0] + x if p[1] > 3 else x),
        lambda: np.where(I32 > 3, X + X, X),
    ),
    "permutation": (lambda: it.permutation(X, PLACES), lambda: clipped(X, PLACES)),
    "permutation of struct": (
        lambda: it.permutation(pairs(), PLACES),
        lambda: clipped(pairs(), PLACES),
    ),
    "permutation by uint64": (
        lambda: it.permutation(X, np.array([1, 2**64 - 1], np.uint64)),
        lambda: X[[1, -1]],
    ),
    "permutation of transform": (
        lambda: it.permutation(it.transform(X[::-2], lambda v: v * 2), it.reverse(PLACES)),
        lambda: clipped(X[::-2] * 2, PLACES[::-1]),
    ),
    "permutation of count": (
        lambda: it.permutation(it.counting(7, 2), PLACES),
        lambda: 7 + 2 * PLACES,
    ),
    "permutation of permutation": (
        lambda: it.permutation(it.permutation(X, PLACES), np.array([2, 1, 7])),
        lambda: clipped(X, PLACES)[[2, 1, 7]],
    ),
    "reverse": (
        lambda: it.reverse(it.zip(X, it.strided(it.counting(), 1, count=N))),
        lambda: zipped(X[::-1], np.arange(N)[::-1]),
    ),
    "strided of strided": (
        lambda: it.strided(it.strided(it.zip(X, I32), 2, start=1), 3),
        lambda: zipped(X[1::2][::3], I32[1::2][::3]),
    ),
    "shuffle in permutation": (
        lambda: it.permutation(X, it.shuffle(N, seed=3)),
        lambda: X[there(km.transform(it.shuffle(N, seed=3), lambda i: i))],
    ),
    "tabulate": (
        lambda: it.strided(it.tabulate(lambda i: i * i % 7), 1, count=N),
        lambda: np.arange(N) ** 2 % 7,
    ),
    "cache modified": (lambda: it.cache_modified(X), lambda: X),
    "cache modified struct": (lambda: it.cache_modified(pairs(), "global"), pairs),
    "cache modified double": (
        lambda: it.cache_modified(X.astype(np.float64)[::2], "volatile"),
        lambda: X.astype(np.float64)[::2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_reading(name: str, place: str) -> None:
    made, wanted = READ[name]
    found = there(feed_kernels.copy(made()))
    assert found.dtype == wanted().dtype
    np.testing.assert_array_equal(found, wanted())


def test_a_shuffle_has_every_number_once(place: str) -> None:
    for count in (1, 2, 3, 64, 65, 1000):
        found = there(feed_kernels.copy(it.shuffle(count, seed=count)))
        np.testing.assert_array_equal(np.sort(found), np.arange(count))
    one, other = (there(feed_kernels.copy(it.shuffle(1000, seed=s))) for s in (1, 2))
    assert (one != np.arange(1000)).mean() > 0.9
    assert (one != other).mean() > 0.9
    # A shuffle mixes: neighbours go apart, and no part stays where it was.
    assert abs(np.corrcoef(one, np.arange(1000))[0, 1]) < 0.2


def written(made: Callable[[], tuple[Any, list[np.ndarray]]], x: Any) -> list[np.ndarray]:
    out, arrays = made()
    feed_kernels.copy(x, out)
    return arrays


def test_writing(place: str) -> None:
    zeros = np.zeros(2 * N)
    feed_kernels.copy(X, it.strided(zeros, 2, start=1))
    np.testing.assert_array_equal(zeros[1::2], X)
    np.testing.assert_array_equal(zeros[::2], 0)

    reversed_ = np.zeros(N, np.float32)
    feed_kernels.copy(X, it.reverse(it.transform_output(reversed_, lambda v: v * GAIN)))
    np.testing.assert_array_equal(reversed_, X[::-1] * np.float32(3))

    ints, floats = np.zeros(N, np.int32), np.zeros(N, np.float64)
    feed_kernels.copy(it.zip(it.counting(dtype="int16"), X), (ints, it.reverse(floats)))
    np.testing.assert_array_equal(ints, np.arange(N))
    np.testing.assert_array_equal(floats, X[::-1])


def test_writing_to_places(place: str) -> None:
    kept = np.full(N, -1.0, np.float32)
    places = np.array([4, 0, N, -1, N - 1, 1 << 40])
    feed_kernels.copy(X[: len(places)], it.permutation(kept[::-1], places))
    wanted = np.full(N, -1.0, np.float32)
    wanted[[4, 0, N - 1]] = X[[0, 1, 4]]
    np.testing.assert_array_equal(kept[::-1], wanted)

    structs, firsts = np.zeros(N, PAIR), np.zeros(N, np.int64)
    order = np.random.default_rng(1).permutation(N)
    feed_kernels.copy(
        it.zip(pairs(), it.counting()), it.permutation(it.zip(structs, firsts), order)
    )
    np.testing.assert_array_equal(structs[order], pairs())
    np.testing.assert_array_equal(firsts[order], np.arange(N))


def test_an_output_that_is_read_is_copied_first(place: str) -> None:
    x = np.arange(8)
    feed_kernels.copy(it.permutation(x, np.arange(8)[::-1].copy()), x)
    np.testing.assert_array_equal(x, np.arange(8)[::-1])
    x = np.arange(8)
    feed_kernels.copy(it.reverse(x), x)
    np.testing.assert_array_equal(x, np.arange(8)[::-1])
    x = np.arange(8)
    feed_kernels.copy(x, it.permutation(x, np.arange(8)[::-1].copy()))
    np.testing.assert_array_equal(x, np.arange(8)[::-1])


def test_what_is_discarded_needs_no_memory() -> None:
    assert feed_kernels.copy(X, it.discard()) is not None
    feeds = read_feeds((X,), ("x",), "transform")
    (sink,), result = write_feeds(it.discard(), (km.float32,), feeds, length=N)
    assert not sink.arguments
    assert sink.operator is None
    assert sequences.is_iterator(result)


def test_one_text_serves_other_numbers_and_scalars() -> None:
    def made(start: int, gain: float) -> tuple[Any, ...]:
        part = it.transform((X, it.counting(start)), lambda x, i: x * gain + i)
        (feed,) = read_feeds((part,), ("x",), "transform").read
        return feed.key, feed.operator.read(feed.function)

    (one, a), (other, b) = made(1, 2.0), made(5, 3.0)
    assert one == other
    assert a != b


def test_plain_arrays_need_no_text() -> None:
    feeds = read_feeds((X, X[::2]), ("x", "y"), "transform")
    assert feed_kernels.plain(feeds.read) == [True, False]
    sinks, _ = write_feeds((X.copy(), np.zeros(N)), (km.float32, km.float32), feeds, length=N)
    assert feed_kernels.plain(sinks) == [True, False]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: it.permutation(X, X),
            "`indices` of permutation() are float32; expected: integers",
        ),
        (
            lambda: it.permutation(X[:0], PLACES),
            "`values` of permutation() has no elements to read",
        ),
        (lambda: it.zip(X, X[:5]), "parts of zip have 37 and 5 elements"),
        (lambda: np.zeros((2, 3)), "`x` has shape (2, 3); expected: one dimension"),
        (lambda: it.discard(), "an iterator of kind Discard cannot be read"),
    ],
)
def test_what_cannot_be_read(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(km.KernelmillError) as error:
        feed_kernels.copy(call(), length=3)
    assert error.value.message == text


@pytest.mark.parametrize(
    ("out", "text"),
    [
        (lambda: np.zeros(N - 1), "`out` has 36 elements; expected: 37"),
        (
            lambda: np.zeros(N, np.int32),
            "a result is float32, `out` has int32: not of the same kind",
        ),
        (lambda: it.counting(), "an iterator of kind Counting cannot be written to"),
        (lambda: it.zip(np.zeros(N), np.zeros(N)), "a zip of 2 outputs takes float32, of 1 values"),
    ],
)
def test_what_cannot_be_written(out: Callable[[], Any], text: str) -> None:
    with pytest.raises(km.KernelmillError) as error:
        feed_kernels.copy(X, out())
    assert error.value.message == text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: it.counting(dtype="?"), "`dtype` is bool; expected: an integer or float type"),
        (lambda: it.counting("a", dtype="int8"), "`start` and `step` are 'a', 1; expected: numbers"),
        (lambda: it.constant([1, 2]), "`value` has shape (2,); expected: one value"),
        (lambda: it.zip(), "zip() takes at least one array or iterator"),
        (lambda: it.zip(3), "`parts` is 3; expected: an array or an iterator"),
        (lambda: it.reverse(np.zeros((2, 2))),
         "`part` has shape (2, 2); iterators are of one dimension"),
        (lambda: it.reverse(it.counting()), "reverse() of an iterator without end; it has no last element"),
        (lambda: it.strided(X, 0), "`step` is 0, `start` is 0; expected: not 0, and from 0 on"),
        (lambda: it.strided(X, 3, start=1, count=13),
         "`count` is 13; from 1 by 3 there are 12 elements"),
        (lambda: it.strided(it.counting(), -2, start=5, count=4),
         "`count` is 4; from 5 by -2 there are 3 elements"),
        (lambda: it.shuffle(-1), "`count` is -1; expected: 0 or more"),
        (lambda: it.cache_modified(X, "fast"),  # type: ignore[arg-type]  # that is the test
         "`modifier` is 'fast'; accepted: 'stream', 'global', 'volatile'"),
        (lambda: it.cache_modified(it.counting()), "cache_modified() takes an array, not an iterator"),
    ],
)  # fmt: skip
def test_what_is_no_iterator(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(km.KernelmillError) as error:
        call()
    assert error.value.message == text
