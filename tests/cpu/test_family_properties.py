"""Every family on elements, sizes, operators and nests of iterators that are drawn, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km

if TYPE_CHECKING:
    from collections.abc import Callable

it = km.iterators

TYPES = ("int8", "uint16", "int32", "int64", "float16", "float32", "float64")
SIZES = (0, 1, 2, 7, 31, 32, 33, 255, 511, 512, 513, 1023, 1025, 1536, 1537, 3072, 3073, 4099)


def first(a: Any, b: Any) -> Any:
    return a


def last(a: Any, b: Any) -> Any:
    return b


def larger(a: Any, b: Any) -> Any:
    return max(a, b)


def plus(a: Any, b: Any) -> Any:
    return a + b


OPERATORS = {"first": first, "last": last, "larger": larger, "plus": plus}


# ----------------------------------------------------------------------------- nests


def same(v: Any) -> Any:
    return v


def double(v: Any) -> Any:
    return v + v


def item(pair: Any) -> Any:
    return pair[1]


def nested(x: np.ndarray, steps: list[str]) -> tuple[Any, np.ndarray]:
    """An iterator around an array, and its elements."""
    made: Any = x
    for step in steps:
        size = len(x)
        places = (np.arange(size) * 7 + 3) % max(1, size)
        made, x = {
            "transform": lambda m=made, x=x: (it.transform(m, double), x + x),
            "zip": lambda m=made, x=x: (it.transform(it.zip(it.counting(), m), item), x),
            "reverse": lambda m=made, x=x: (it.reverse(m), x[::-1]),
            "strided": lambda m=made, x=x: (it.strided(m, 2), x[::2]),
            "permutation": lambda m=made, x=x, p=places: (it.permutation(m, p), x[p]),
        }[step]()
    return made, x


# ----------------------------------------------------------------------------- one by one


def folded(values: Any, op: Callable[[Any, Any], Any]) -> list[Any]:
    """The results after each element."""
    found: list[Any] = []
    for value in values:
        found.append(op(found[-1], value) if found else value)
    return found


def in_runs(keys: Any, values: Any, op: Callable[[Any, Any], Any]) -> list[list[Any]]:
    """Inclusive results of each run of equal keys."""
    begins = [i for i in range(len(keys)) if i == 0 or keys[i] != keys[i - 1]]
    ends = [*begins[1:], len(keys)][: len(begins)]
    return [folded(values[a:b], op) for a, b in zip(begins, ends, strict=True)]


def keys_of(x: np.ndarray) -> np.ndarray:
    return (np.arange(len(x)) // 5 % 3).astype(np.int16)


def cuts(size: int) -> np.ndarray:
    return np.unique(np.array([0, size // 7, size // 3, size // 3 + 1, size]).clip(0, size))


Check = Callable[[Any, np.ndarray, Any], "tuple[Any, Any]"] if TYPE_CHECKING else Any
FAMILIES: dict[str, Check] = {
    "reduce": lambda g, x, op: (km.reduce(g, op), folded(x, op)[-1]) if len(x) else (0, 0),
    "scan": lambda g, x, op: (km.inclusive_scan(g, op), folded(x, op)),
    "scan by key": lambda g, x, op: (
        km.inclusive_scan_by_key(keys_of(x), g, op),
        [v for run in in_runs(keys_of(x), x, op) for v in run],
    ),
    "reduce by key": lambda g, x, op: (
        km.reduce_by_key(keys_of(x), g, op)[1],
        [run[-1] for run in in_runs(keys_of(x), x, op)],
    ),
    "segments": lambda g, x, op: (
        km.segmented_reduce(g, cuts(len(x)), op),
        [folded(part, op)[-1] for part in np.split(x, cuts(len(x))[1:-1])] if len(x) else [],
    ),
    "scans of segments": lambda g, x, op: (
        km.segmented_scan(g, cuts(len(x)), op),
        [v for part in np.split(x, cuts(len(x))[1:-1]) for v in folded(part, op)],
    ),
    "select": lambda g, x, op: (
        km.select(g, lambda v: op(v, v) > 3), [v for v in x if op(v, v) > 3]
    ),
    "partition": lambda g, x, op: (
        np.concatenate(km.partition(g, lambda v: op(v, v) > 3)),
        [v for v in x if op(v, v) > 3] + [v for v in x if not op(v, v) > 3],
    ),
    "unique": lambda g, x, op: (
        km.unique(g, equal=lambda a, b: op(a, b) == a),
        [v for i, v in enumerate(x) if i == 0 or op(x[i - 1], v) != x[i - 1]],
    ),
    "differences": lambda g, x, op: (
        km.adjacent_difference(g, op), [v if i == 0 else op(v, x[i - 1]) for i, v in enumerate(x)]
    ),
    "histogram": lambda g, x, _: (
        km.histogram_even(g, 4, 0, 12),
        [sum(1 for v in x if 3 * k <= v < 3 * k + 3) for k in range(4)],
    ),
    "search": lambda g, x, _: (
        km.lower_bound(np.arange(0, 12, 2).astype(x.dtype), g),
        [sum(1 for d in range(0, 12, 2) if d < v) for v in x],
    ),
}  # fmt: skip


def check(family: str, data: st.DataObject) -> None:
    dtype, size = data.draw(st.sampled_from(TYPES)), data.draw(st.sampled_from(SIZES))
    steps = data.draw(st.lists(
        st.sampled_from(["transform", "zip", "reverse", "strided", "permutation"]), max_size=2))  # fmt: skip
    exact = [name for name in sorted(OPERATORS) if (dtype, name) != ("float16", "plus")]
    name = data.draw(st.sampled_from(exact))  # halves count to 2048: then an order shows
    seed = data.draw(st.integers(0, 99))
    x = np.random.default_rng(seed).integers(0, 9, size).astype(dtype)
    given_, elements = nested(x, steps)
    with np.errstate(all="ignore"):
        found, wanted = FAMILIES[family](given_, elements, OPERATORS[name])
    found = np.asarray(found)
    expected = np.asarray(wanted, found.dtype if len(np.atleast_1d(wanted)) == 0 else None)
    np.testing.assert_array_equal(found, expected)
    if family not in ("histogram", "search") and len(elements):
        assert found.dtype == elements.dtype


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@settings(max_examples=4)
def test_what_is_drawn_on_the_cpu(family: str, data: st.DataObject) -> None:
    check(family, data)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@settings(max_examples=60)
def test_much_more_of_it(family: str, data: st.DataObject) -> None:
    check(family, data)


@pytest.mark.slow
@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@settings(max_examples=8)
def test_what_is_drawn_on_the_emulator(family: str, data: st.DataObject) -> None:
    with km.Device("emulator"):
        check(family, data)


@pytest.mark.cuda
@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@settings(max_examples=4)
def test_what_is_drawn_on_a_gpu(family: str, data: st.DataObject) -> None:
    with km.Device("cuda"):
        check(family, data)
