"""Orders, equalities, predicates and data that keep no law: some result inside bounds, no crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelmill as km

if TYPE_CHECKING:
    from collections.abc import Callable

N = 2500
X = np.random.default_rng(0).integers(0, 50, N)
CUTS = np.array([0, 10, N])


def always(a: Any, b: Any) -> Any:
    return a == a or b == b


def never(a: Any, b: Any) -> Any:
    return a != a and b != b


def not_after(a: Any, b: Any) -> Any:
    return a <= b


def circle(a: Any, b: Any) -> Any:
    return (b - a) % 3 == 1


def near(a: Any, b: Any) -> Any:
    return abs(a - b) < 20


@pytest.mark.parametrize("order", [None, always, never, not_after, circle],
                         ids=lambda o: getattr(o, "__name__", "less"))  # fmt: skip
def test_places_in_data_of_no_order_are_places(order: Callable[[Any, Any], Any] | None) -> None:
    for search in (km.lower_bound, km.upper_bound):
        found = search(X, X, order)
        assert found.shape == (N,)
        assert 0 <= found.min() <= found.max() <= N
    if order is always:
        assert km.lower_bound(X, X, order).min() == N
    if order is never:
        assert km.lower_bound(X, X, order).max() == 0


@pytest.mark.parametrize("order", [always, never, not_after, circle], ids=lambda o: o.__name__)
def test_sorting_by_no_order_keeps_the_elements(order: Callable[[Any, Any], Any]) -> None:
    assert sorted(km.sort(X, comparator=order).tolist()) == sorted(X.tolist())


@pytest.mark.parametrize("equal", [always, never, near], ids=lambda o: o.__name__)
def test_runs_by_no_equality_are_told_by_neighbours(equal: Callable[[Any, Any], Any]) -> None:
    begins = [0, *(i for i in range(1, N) if not equal(X[i - 1], X[i]))]
    assert np.array_equal(km.unique(X, equal=equal), X[begins])
    assert km.unique_count(X, equal=equal) == len(begins)
    assert np.array_equal(km.reduce_by_key(X, X, equal=equal)[1], np.add.reduceat(X, begins))


def test_an_operator_that_is_not_associative_combines_each_element_once() -> None:
    counted = np.ones(N, np.int64)
    for found in (
        km.reduce(counted, lambda a, b: a + b),
        km.inclusive_scan(counted, lambda a, b: a + b)[-1],
        km.segmented_reduce(counted, np.array([0, N]), lambda a, b: a + b)[0],
    ):
        assert found == N
    twice = km.reduce(X, lambda a, b: a * 2 - b)  # some value, the same each time
    assert twice == km.reduce(X, lambda a, b: a * 2 - b)


OUT = {
    "a scan": (lambda: km.inclusive_scan(X, out=np.zeros(3, int)),
               "`out` has shape (3,), the result has (2500,)"),
    "a reduction": (lambda: km.reduce(X.reshape(50, 50), axis=0, out=np.zeros(3, int)),
                    "`out` has shape (3,), the result has (50,)"),
    "a histogram": (lambda: km.histogram(X, 5, out=np.zeros(4, int)),
                    "`out` has shape (4,), the result has (5,)"),
    "segments": (lambda: km.segmented_reduce(X, CUTS, out=np.zeros(3, int)),
                 "`out` has shape (3,), the result has (2,)"),
    "scans of segments": (lambda: km.segmented_scan(X, CUTS, out=np.zeros(3, int)),
                          "`out` has shape (3,), the result has (2500,)"),
    "a search": (lambda: km.lower_bound(X, X, out=np.zeros(3, int)),
                 "`out` has shape (3,), the result has (2500,)"),
    "a selection": (lambda: km.select(X, lambda v: v < 40, out=(np.zeros(3, int), np.zeros(1, int))),
                    "`out[0]` has room for 3 elements, "),
    "runs": (lambda: km.unique(X, out=(np.zeros(3, int), np.zeros(1, int))),
             "`out[0]` has room for 3 elements, "),
    "by key": (lambda: km.reduce_by_key(X, X, out=tuple(np.zeros(n, int) for n in (3, 9, 1))),
               "`out[0]` has room for 3 elements, "),
    "places": (lambda: km.argmin(X.reshape(50, 50), 0, out=np.zeros(3, int)),
               "`out` has shape (3,), the result has (50,)"),
}  # fmt: skip


@pytest.mark.parametrize("case", OUT)
def test_an_output_of_another_size_is_named_with_what_was_found(case: str) -> None:
    call, text = OUT[case]
    with pytest.raises(km.ShapeError) as caught:
        call()
    assert caught.value.message.startswith(text)


OFFSETS = {
    "below": (np.array([-1, 5]), "`offsets[0]` is -1; the limits are 0 and 2500"),
    "above": (np.array([0, 2501]), "`offsets[1]` is 2501; the limits are 0 and 2500"),
    "down": (np.array([0, 9, 3, N]), "`offsets` must not decrease: offsets[1] is 9, offsets[2] is"),
    "apart": ((np.array([0, 9]), np.array([5, 3])), "segment 1 begins at 9 and ends at 3"),
}


@pytest.mark.parametrize("case", OFFSETS)
def test_offsets_out_of_order_or_range(case: str) -> None:
    offsets, text = OFFSETS[case]
    with pytest.raises(km.ArgumentError) as caught:
        km.segmented_reduce(X, offsets)
    assert caught.value.message.startswith(text)
    if case == "apart":
        return
    with pytest.raises(km.ArgumentError) as caught:
        km.segmented_scan(X, offsets)
    assert caught.value.message.startswith(text)
