"""Operators in C++ and structs of 64 bytes in every family, against NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelmill as km
from kernelmill.algorithms.capabilities import absence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

it = km.iterators
N = 3000
X = np.random.default_rng(0).integers(0, 40, N)
SORTED = np.sort(X)
CUTS = np.array([0, 1, 70, 71, 2000, N])
INT2 = (km.int64, km.int64)


def raw(text: str, arguments: tuple[Any, ...], result: Any) -> km.RawOp:
    return km.RawOp(cpp=f"__device__ {text}", arguments=arguments, result=result)


ODD = raw("bool odd(long x) { return x & 1; }", (km.int64,), km.bool_)
BIG = raw("bool big(long x) { return x > 30; }", (km.int64,), km.bool_)
SAME = raw("bool same(long a, long b) { return a / 4 == b / 4; }", INT2, km.bool_)
LESS = raw("bool less(long a, long b) { return a < b; }", INT2, km.bool_)
GREATER = raw("long greater(long a, long b) { return a > b ? a : b; }", INT2, km.int64)
TWICE = raw("long twice(long x) { return 2 * x; }", (km.int64,), km.int64)


def heads(x: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.concatenate([[True], x[1:] != x[:-1]]))


def for_each_of(x: np.ndarray, op: Any) -> np.ndarray:
    copy = x.copy()
    km.for_each(copy, op)
    return copy


Family = tuple["Callable[[], Any]", "Callable[[], Any]"]
RAW: dict[str, Family] = {
    "select": (lambda: km.select(X, ODD), lambda: X[X % 2 == 1]),
    "partition": (lambda: km.partition(X, ODD), lambda: (X[X % 2 == 1], X[X % 2 == 0])),
    "three parts": (
        lambda: km.three_way_partition(X, ODD, BIG),
        lambda: (X[X % 2 == 1], X[(X % 2 == 0) & (X > 30)], X[(X % 2 == 0) & (X <= 30)]),
    ),
    "unique": (lambda: km.unique(X, equal=SAME), lambda: X[heads(X // 4)]),
    "count": (lambda: km.unique_count(X, equal=SAME), lambda: len(heads(X // 4))),
    "search": (lambda: km.lower_bound(SORTED, X, LESS), lambda: np.searchsorted(SORTED, X)),
    "upper": (lambda: km.upper_bound(SORTED, X, LESS), lambda: np.searchsorted(SORTED, X, "right")),
    "segments": (
        lambda: km.segmented_reduce(X, CUTS, GREATER),
        lambda: np.maximum.reduceat(X, CUTS[:-1]),
    ),
    "scans of segments": (
        lambda: km.segmented_scan(X, np.array([0, N]), GREATER),
        lambda: np.maximum.accumulate(X),
    ),
    "by key": (
        lambda: km.reduce_by_key(X // 4, X, GREATER)[1],
        lambda: np.maximum.reduceat(X, heads(X // 4)),
    ),
    "keys": (
        lambda: km.reduce_by_key(X, X, equal=SAME)[1],
        lambda: np.add.reduceat(X, heads(X // 4)),
    ),
    "scan": (lambda: km.inclusive_scan(X, GREATER), lambda: np.maximum.accumulate(X)),
    "for each": (lambda: for_each_of(X, TWICE), lambda: 2 * X),
    "histogram": (
        lambda: km.bincount(it.transform(X, TWICE)),
        lambda: np.bincount(2 * X),
    ),
    "argmax": (lambda: km.argmax(it.transform(X, TWICE)), lambda: X.argmax()),
    "differences": (
        lambda: km.adjacent_difference(X, GREATER),
        lambda: np.concatenate([X[:1], np.maximum(X[1:], X[:-1])]),
    ),
    "sort": (lambda: km.sort(X, comparator=LESS), lambda: SORTED),
}


def check(family: Family) -> None:
    call, wanted = family
    found, right = call(), wanted()
    several = type(right) is tuple
    for a, b in zip(found, right, strict=True) if several else [(found, right)]:
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", RAW)
def test_operators_in_cpp(name: str, place: str) -> None:
    del place
    check(RAW[name])


# ----------------------------------------------------------------------------- 64 bytes

WIDE = km.struct({"key": "int32", "tag": "int16", "rest": "float32",
                  **{f"v{i}": "float64" for i in range(6)}}, name="Wide")  # fmt: skip
S = np.zeros(N, WIDE.dtype)
S["key"], S["rest"] = X, np.arange(N)
for number in range(6):
    S[f"v{number}"] = np.random.default_rng(number).random(N)
T = S[np.argsort(X, kind="stable")]
T.flags.writeable = S.flags.writeable = False


def odd(s: Any) -> Any:
    return s.key % 2 == 1


def alike(a: Any, b: Any) -> Any:
    return a.key == b.key


def first(a: Any, b: Any) -> Any:
    return a.key < b.key


def higher(a: Any, b: Any) -> Any:
    return b if b.v5 > a.v5 else a


def greatest(x: np.ndarray, begins: Any) -> np.ndarray:
    ends = [*begins[1:], len(x)]
    return x[[a + np.argmax(x["v5"][a:b]) for a, b in zip(begins, ends, strict=True)]]


def doubled(s: Any) -> Any:
    return WIDE(s.key * 2, s.tag, s.rest, s.v0, s.v1, s.v2, s.v3, s.v4, s.v5)


def doubled_keys() -> np.ndarray:
    made = S.copy()
    made["key"] *= 2
    return made


STRUCTS: dict[str, Family] = {
    "select": (lambda: km.select(S, odd), lambda: S[X % 2 == 1]),
    "partition": (lambda: km.partition(S, odd), lambda: (S[X % 2 == 1], S[X % 2 == 0])),
    "unique": (lambda: km.unique(T, equal=alike), lambda: T[heads(T["key"])]),
    "runs": (
        lambda: km.run_length_encode(T, equal=alike),
        lambda: (T[heads(T["key"])], np.diff(heads(T["key"]), append=N)),
    ),
    "search": (
        lambda: km.lower_bound(T, S, first),
        lambda: np.searchsorted(T["key"], S["key"]),
    ),
    "segments": (
        lambda: km.segmented_reduce(S, CUTS, higher),
        lambda: greatest(S, CUTS[:-1]),
    ),
    "scan": (
        lambda: km.inclusive_scan(S, higher)["v5"],
        lambda: np.maximum.accumulate(S["v5"]),
    ),
    "by key": (
        lambda: km.reduce_by_key(T["key"], T, higher)[1],
        lambda: greatest(T, heads(T["key"])),
    ),
    "reduce": (lambda: km.reduce(S, higher), lambda: S[np.argmax(S["v5"])]),
    "for each": (lambda: for_each_of(S, doubled), doubled_keys),
    "reversed": (
        lambda: km.transform(it.reverse(S), lambda s: s),
        lambda: S[::-1],
    ),
    "sort": (lambda: km.sort(S, comparator=first), lambda: T),
}


@pytest.fixture(params=["cpu", pytest.param("emulator", marks=pytest.mark.slow),
                        pytest.param("cuda", marks=pytest.mark.cuda)])  # fmt: skip
def wide_place(request: pytest.FixtureRequest, unoptimised: None) -> Iterator[str]:
    """A device that is current; each kernel of the emulator takes seconds to compile."""
    del unoptimised
    if absence(request.param):
        pytest.skip(absence(request.param))
    with km.Device(request.param):
        yield request.param


def test_the_struct_has_the_size_it_is_named_for() -> None:
    assert WIDE.dtype.itemsize == 64


@pytest.mark.parametrize("name", STRUCTS)
def test_structs_of_64_bytes(name: str, wide_place: str) -> None:
    del wide_place
    check(STRUCTS[name])
