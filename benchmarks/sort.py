"""Sorts of plain numbers, places, values and by comparators, merges, and the largest elements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import kernelmill as km
import peers
from harness import OURS, REFERENCE, Goal
from several import same_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness import Budget, Case, Contender

__all__ = ["cases"]

_LARGE: Final = 1 << 22
# Beyond, torch takes seconds.
_MOST_OF_TORCH: Final = 1 << 20
_FIRST: Final = 16
# At least as fast as NumPy, but for what a measurement is off.
_AS_FAST: Final = 0.97


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    random = np.random.default_rng(1)
    sizes = _sizes(budget.sizes)
    yield _by_comparator(_numbers(random, "float32", min(max(sizes), 1 << 20)))
    for elements in sizes:
        for dtype, places in (("float32", 3.0), ("int64", 2.0)):
            x = _numbers(random, dtype, elements)
            yield _case("sort", x, km.sort, np.sort, _sorts(elements))
            if elements >= _LARGE and dtype == "float32":
                yield _case("topk", x, _first, _numpy_first, 10.0)
            if elements > _LARGE:
                continue
            yield from _places(x, places)
            few = random.integers(0, 10, elements).astype(dtype)
            yield _case("sort, 10 values", few, km.sort, np.sort, _AS_FAST)
            yield _case("sort, sorted", np.sort(x), km.sort, np.sort, _AS_FAST)
            if elements == _LARGE:
                yield _merges(np.sort(x[::2]), np.sort(x[1::2]))


def _sizes(asked: Sequence[int]) -> list[int]:
    """Return the sizes, those first of which most is asked; 2^22 stands for what is next to it."""
    near = {_LARGE if _LARGE >> 2 <= n <= _LARGE << 2 else n for n in asked}
    return sorted(near, key=lambda n: (n < _LARGE, n > _LARGE, -n))


def _numbers(random: np.random.Generator, dtype: str, elements: int) -> np.ndarray[Any, Any]:
    if dtype == "float32":
        return random.standard_normal(elements, np.float32)
    return random.integers(-(1 << 62), 1 << 62, elements)


def _sorts(elements: int) -> float:
    return 1.5 if elements >= _LARGE else _AS_FAST


def _places(x: np.ndarray[Any, Any], large: float) -> Iterator[Case]:
    ratio = large if x.size >= _LARGE else _AS_FAST
    values = np.arange(x.size, dtype=np.float32)
    by_key = _case(
        "sort_by_key",
        x,
        lambda v: km.sort_by_key(v, values)[1],
        lambda v: _numpy_by_key(v, values)[1],
        ratio,
    )
    wanted = np.sort(x)

    def error(contender: Contender) -> float:
        """Where equal elements come from is left open by NumPy: the elements themselves are not."""
        return 0.0 if np.array_equal(x[contender.run().astype(np.int64)], wanted) else float("inf")

    for case in (_case("argsort", x, km.argsort, _numpy_argsort, ratio), by_key):
        yield replace(case, error=error)


def _numpy_argsort(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.argsort(x)


def _numpy_by_key(x: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    places = np.argsort(x)
    return x[places], values[places]


def _first(x: np.ndarray[Any, Any]) -> Any:
    return km.topk(x, _FIRST)[0]


def _numpy_first(x: np.ndarray[Any, Any]) -> Any:
    return np.sort(np.partition(x, x.size - _FIRST)[-_FIRST:])[::-1]


def _smaller(a: Any, b: Any) -> Any:
    return abs(a) < abs(b)


def _by_comparator(x: np.ndarray[Any, Any]) -> Case:
    """Elements of one size may come in any order: what is compared is their sizes."""
    out = np.empty_like(x)
    loops = peers.loops()
    other: Callable[[], Any] | str = loops.missing
    if loops.library is not None:
        other = loops.bind("sort_by_size", (x,), out, threads=1, streams=False)
    sizes = np.sort(abs(x))

    def error(contender: Contender) -> float:
        return 0.0 if np.array_equal(abs(contender.run()), sizes) else float("inf")

    case = same_work(
        "sort, comparator",
        x,
        {
            OURS: lambda: _by_size(x),
            REFERENCE: other,
            "numpy": lambda: _numpy_by_size(x),
            "torch": "it has no such call",
        },
        (Goal(REFERENCE, 1.8),),
        moved=2 * x.nbytes,
    )
    return replace(case, error=error)


def _merges(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> Case:
    both = np.concatenate([a, b])
    return same_work(
        "merge",
        both,
        {
            OURS: lambda: km.merge(a, b),
            "numpy": lambda: np.sort(both, kind="stable"),
            "torch": "it has no such call",
        },
        (Goal("numpy", _AS_FAST),),
        moved=2 * both.nbytes,
    )


def _by_size(x: np.ndarray[Any, Any]) -> Any:
    return km.sort(x, comparator=_smaller)


def _numpy_by_size(x: np.ndarray[Any, Any]) -> Any:
    return x[np.argsort(abs(x), kind="stable")]


def _case(
    name: str,
    x: np.ndarray[Any, Any],
    ours: Callable[[Any], Any],
    numpys: Callable[[Any], Any],
    ratio: float,
) -> Case:
    return same_work(
        name,
        x,
        {
            OURS: lambda: ours(x),
            "numpy": lambda: numpys(x),
            "torch": _torch(x) if name == "sort" else "it has no such call",
        },
        (Goal("numpy", ratio),),
        moved=2 * x.nbytes,
    )


def _torch(x: np.ndarray[Any, Any]) -> Callable[[], Any] | str:
    if x.size > _MOST_OF_TORCH:
        return "it takes seconds a call at this size"
    module = peers.peer("torch")
    if isinstance(module, str):
        return module
    tensor = module.from_numpy(x)

    def run() -> Any:  # Any: an array
        return module.sort(tensor).values.numpy()

    return run
