"""Calls of every family on every element type and form of input, and what NumPy says of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

import kernelmill as km
from kernelmill import iterators as it
from kernelmill.algorithms.sequences import arrays_of

if TYPE_CHECKING:
    from collections.abc import Callable

assert ml_dtypes  # registers bfloat16 with NumPy

N = 300
SHAPE = (20, 24)
PAIR = km.struct({"key": "int32", "value": "float64"}, name="Pair")


@dataclass(frozen=True)
class Family:
    """How a family is called on elements, and what it gives; both take an array of them."""

    call: Callable[[Any], Any]
    wanted: Callable[[np.ndarray], Any]


def values(dtype: str, shape: int | tuple[int, ...] = N) -> np.ndarray:
    """Elements of a type: small whole numbers, some of them equal to their neighbours."""
    random = np.random.default_rng(3)
    numbers = random.integers(0, 12, shape)
    if dtype == "struct":
        made = np.empty(shape, PAIR.dtype)
        made["key"] = numbers
        made["value"] = random.random(shape)
        return made
    type_ = km.dtype_of(dtype).to_numpy()
    if type_.kind == "c":
        return (numbers + 1j * numbers[::-1]).astype(type_)
    return numbers.astype(type_)


def first(pair: Any) -> Any:
    return pair[0]


def same(x: Any) -> Any:
    return x


PLACES = np.random.default_rng(4).integers(0, N, N)


def arranged(dtype: str, layout: str) -> tuple[Any, np.ndarray]:
    """An input in a form, and its elements."""
    x = values(dtype)
    rows, columns = SHAPE
    if layout == "transposed":
        turned = values(dtype, (columns, rows)).T
        return turned, turned
    if layout == "strided":
        return x[::2], x[::2]
    if layout == "broadcast":
        repeated = np.broadcast_to(x[:1], N)
        return repeated, repeated
    made: dict[str, tuple[Any, np.ndarray]] = {
        "contiguous": (x, x),
        "zip": (it.transform(it.zip(x, it.counting()), first), x),
        "transform": (it.transform(x, same), x),
        "permutation": (it.permutation(x, PLACES), x[PLACES]),
        "reverse": (it.reverse(x), x[::-1]),
    }
    return made[layout]


# ----------------------------------------------------------------------------- operators


def larger(a: Any, b: Any) -> Any:
    return a if a.key >= b.key else b


def is_struct(x: Any) -> bool:
    return element(x).dtype == PAIR.dtype


def element(x: Any) -> np.ndarray:
    """An array of the type of the elements."""
    return next(a for a in arrays_of(x) if isinstance(a, np.ndarray))


def odd(v: Any) -> Any:
    return v != 0


def odd_key(v: Any) -> Any:
    return v.key != 0


def picked(x: np.ndarray) -> np.ndarray:
    return x[(x["key"] if x.dtype == PAIR.dtype else x) != 0]


def equal_keys(a: Any, b: Any) -> Any:
    return a.key == b.key


def keys(x: np.ndarray) -> np.ndarray:
    return x["key"] if x.dtype == PAIR.dtype else x


def firsts(x: np.ndarray) -> np.ndarray:
    of = keys(x)
    return x[np.concatenate([[True], of[1:] != of[:-1]])]


def parted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return picked(x), x[keys(x) == 0]


def runs(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    of = keys(x)
    begins = np.flatnonzero(np.concatenate([[True], of[1:] != of[:-1]]))
    return x[begins], np.diff(begins, append=len(x))


def with_places(x: Any) -> Any:
    equal = equal_keys if is_struct(x) else None
    return km.unique_by_key(x, np.arange(element(x).size), equal=equal)


def first_places(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found, lengths = runs(x)
    return found, np.cumsum(lengths) - lengths


def counted(x: Any) -> Any:
    equal = equal_keys if is_struct(x) else None
    return km.inclusive_scan_by_key(x, np.ones(element(x).size, np.int64), equal=equal)


def counts_in_runs(x: np.ndarray) -> np.ndarray:
    return np.concatenate([np.arange(1, count + 1) for count in runs(x)[1]])


def by_key(a: Any, b: Any) -> Any:
    return a.key < b.key


def largest(x: np.ndarray) -> Any:
    if x.dtype == PAIR.dtype:
        flat = x.reshape(-1)
        return flat[np.argmax(flat["key"])]["key"]
    return np.maximum.reduce(x, axis=None)


def running(x: np.ndarray) -> np.ndarray:
    return np.maximum.accumulate(keys(x))


def reduced(x: Any) -> Any:
    found = km.reduce(x, km.op(larger, commutative=False) if is_struct(x) else km.maximum)
    return found["key"] if is_struct(x) else found


def scanned(x: Any) -> Any:
    found = km.inclusive_scan(x, larger if is_struct(x) else km.maximum)
    return found["key"] if is_struct(x) else found


def searched(values_: Any) -> Any:
    sorted_ = np.sort(values(str(element(values_).dtype) if not is_struct(values_) else "struct"),
                      order="key" if is_struct(values_) else None)  # fmt: skip
    return km.lower_bound(sorted_, values_, by_key if is_struct(values_) else None)


def places(x: np.ndarray) -> np.ndarray:
    name = "struct" if x.dtype == PAIR.dtype else str(x.dtype)
    return np.searchsorted(np.sort(keys(values(name))), keys(x))


OFFSETS = np.array([0, 0, 7, 100, 150])


def segments(x: Any) -> Any:
    found = km.segmented_reduce(x, OFFSETS[1:], larger if is_struct(x) else km.maximum)
    return found["key"] if is_struct(x) else found


def of_segments(x: np.ndarray) -> np.ndarray:
    return np.array([keys(x)[a:b].max() for a, b in pairwise(OFFSETS[1:])])


def scans_of_segments(x: Any) -> Any:
    offsets = np.array([0, 7, 100, element(x).size])
    found = km.segmented_scan(x, offsets, larger if is_struct(x) else km.maximum)
    return found["key"] if is_struct(x) else found


def running_segments(x: np.ndarray) -> np.ndarray:
    offsets = (0, 7, 100, len(x))
    return np.concatenate([running(x[a:b]) for a, b in pairwise(offsets)])


def transformed(x: Any) -> Any:
    return km.transform(x, same)


def emptied(v: Any) -> Any:
    return PAIR(0, v.value)


def cleared(x: Any) -> Any:
    """Replaces elements by whether they are zero, keys by zero: twice is as once."""
    km.for_each(x, emptied if is_struct(x) else odd)
    return transformed(x)


def without(x: np.ndarray) -> np.ndarray:
    if x.dtype != PAIR.dtype:
        return x != 0
    made = x.copy()
    made["key"] = 0
    return made


def mapped(x: Any) -> Any:
    found = km.transform_reduce(x, same, larger if is_struct(x) else km.maximum)
    return found["key"] if is_struct(x) else found


def scanned_before(x: Any) -> Any:
    start = PAIR(0, 0.0) if is_struct(x) else 0
    found = km.exclusive_scan(x, larger if is_struct(x) else km.maximum, init=start)
    return found["key"] if is_struct(x) else found


def before(x: np.ndarray) -> np.ndarray:
    seen = running(x)
    return np.concatenate([np.zeros(1, seen.dtype), seen[:-1]])


def summed_runs(x: Any) -> Any:
    equal = equal_keys if is_struct(x) else None
    return km.reduce_by_key(x, np.ones(element(x).size, np.int64), equal=equal)


def empty(v: Any) -> Any:
    return v == 0


def empty_key(v: Any) -> Any:
    return v.key == 0


def in_three(x: Any) -> Any:
    tests = (odd_key, empty_key) if is_struct(x) else (odd, empty)
    return km.three_way_partition(x, *tests)


def placed_behind(values_: Any) -> Any:
    sorted_ = np.sort(values(str(element(values_).dtype) if not is_struct(values_) else "struct"),
                      order="key" if is_struct(values_) else None)  # fmt: skip
    return km.upper_bound(sorted_, values_, by_key if is_struct(values_) else None)


def behind(x: np.ndarray) -> np.ndarray:
    name = "struct" if x.dtype == PAIR.dtype else str(x.dtype)
    return np.searchsorted(np.sort(keys(values(name))), keys(x), side="right")


EDGES = (0, 3, 5, 11)


def differences(x: Any) -> Any:
    return km.adjacent_difference(x, second)


def second(_: Any, before: Any) -> Any:
    return before


def ordered(x: Any) -> Any:
    found = km.sort(x, comparator=by_key if is_struct(x) else None)
    return found["key"] if is_struct(x) else found


def ordered_segments(x: Any) -> Any:
    found = km.segmented_sort(x, OFFSETS, comparator=by_key if is_struct(x) else None)
    return found["key"] if is_struct(x) else found


def in_segments(x: np.ndarray) -> np.ndarray:
    made = keys(x).copy()
    for begin, end in pairwise(OFFSETS):
        made[begin:end] = np.sort(made[begin:end])
    return made


def merged(x: Any) -> Any:
    return ordered(km.merge(x, x, comparator=by_key if is_struct(x) else None))


FAMILIES: dict[str, Family] = {
    "transform": Family(transformed, lambda x: x),
    "for_each": Family(cleared, without),
    "reduce": Family(reduced, largest),
    "transform_reduce": Family(mapped, largest),
    "argmin": Family(lambda x: km.argmin(x), np.argmin),
    "argmax": Family(lambda x: km.argmax(x), np.argmax),
    "adjacent_difference": Family(differences, lambda x: np.concatenate([x[:1], x[:-1]])),
    "scan": Family(scanned, running),
    "exclusive_scan": Family(scanned_before, before),
    "scan_by_key": Family(counted, counts_in_runs),
    "reduce_by_key": Family(summed_runs, runs),
    "unique_by_key": Family(with_places, first_places),
    "select": Family(lambda x: km.select(x, odd_key if is_struct(x) else odd), picked),
    "partition": Family(lambda x: km.partition(x, odd_key if is_struct(x) else odd), parted),
    "three_way_partition": Family(in_three, lambda x: (*parted(x), x[:0])),
    "unique_count": Family(
        lambda x: km.unique_count(x, equal=equal_keys if is_struct(x) else None),
        lambda x: len(firsts(x))),
    "unique": Family(lambda x: km.unique(x, equal=equal_keys if is_struct(x) else None), firsts),
    "run_length_encode": Family(
        lambda x: km.run_length_encode(x, equal=equal_keys if is_struct(x) else None), runs),
    "histogram": Family(lambda x: km.histogram_even(x, 6, 0, 12),
                        lambda x: np.histogram(x.astype(np.float64), 6, (0, 12))[0]),
    "histogram_range": Family(lambda x: km.histogram_range(x, EDGES),
                              lambda x: np.histogram(x[x < 11].astype(np.float64), EDGES)[0]),
    "bincount": Family(lambda x: km.bincount(x), lambda x: np.bincount(x.astype(np.int64))),
    "search": Family(searched, places),
    "upper_bound": Family(placed_behind, behind),
    "segmented": Family(segments, of_segments),
    "segmented_scan": Family(scans_of_segments, running_segments),
    "sort": Family(ordered, lambda x: np.sort(keys(x), axis=-1)),
    "segmented_sort": Family(ordered_segments, in_segments),
    "topk": Family(lambda x: km.topk(x, 3)[0], lambda x: np.sort(x, axis=-1)[..., :-4:-1]),
    "merge": Family(merged, lambda x: np.sort(np.concatenate([keys(x), keys(x)]))),
}  # fmt: skip


def there(found: Any) -> Any:
    """A result as NumPy's: of a device where nothing came from the host."""
    if type(found) is tuple:
        return tuple(map(there, found))
    return found.numpy() if hasattr(found, "numpy") else found
