"""Selections of half of an array, partitions and runs of equal elements, into new arrays."""

from __future__ import annotations

from functools import cache as once
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import kernelmill as km
from harness import OURS, Case, Contender, Goal
from peers import peer, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget

__all__ = ["cases"]

_DTYPES: Final = ("float32", "float64", "int32")
# Never slower than NumPy from here on; below, no more than a microsecond.
_NEVER_SLOWER: Final = 1 << 16
_LARGE: Final = 1 << 20
_CALL: Final = Goal("numpy", seconds=1e-6)
_LIKE_NUMPY: Final = Goal("numpy", 1.0)
_HALF: Final = 0.5


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    for elements in budget.sizes:
        for dtype in _DTYPES:
            yield _select(dtype, elements)
        yield _parts(elements)
        yield _runs(elements)
        yield _keys(elements)


def _goals(elements: int, ratio: float) -> tuple[Goal, ...]:
    if elements < _NEVER_SLOWER:
        return (_CALL,)
    return (Goal("numpy", ratio),) if elements >= _LARGE else (_LIKE_NUMPY,)


def _case(
    name: str,
    x: np.ndarray[Any, Any],
    contenders: dict[str, Callable[[], Any] | str],
    ratio: float,
    moved: int,
) -> Case:
    """Make a case of functions; texts say why there is none."""
    found = tuple(Contender(n, run) for n, run in contenders.items() if not isinstance(run, str))
    wanted = _listed(next(c for c in found if c.name == "numpy").run())

    def error(contender: Contender) -> float:
        got = _listed(contender.run())
        alike = len(got) == len(wanted) and all(map(np.array_equal, got, wanted))
        return 0.0 if alike else float("inf")

    return Case(
        name=name,
        dtype=x.dtype.name,
        elements=x.size,
        contenders=found,
        goals=_goals(x.size, ratio),
        bytes=moved,
        tolerance=0.0,
        skipped={n: text for n, text in contenders.items() if isinstance(text, str)},
        error=error,
    )


def _listed(found: Any) -> list[np.ndarray[Any, Any]]:
    parts = found if isinstance(found, tuple) else (found,)
    return [np.asarray(part) for part in parts]


# ----------------------------------------------------------------------------- the cases


def _select(dtype: str, elements: int) -> Case:
    low, high = (0.0, 1.0) if dtype.startswith("float") else (-1000.0, 1000.0)
    (x,) = values(1, elements, dtype, low, high)
    limit = x.dtype.type(_HALF)
    plan = km.select.plan(x, lambda v: v > limit)  # type: ignore[attr-defined]  # set on the function
    torch, numba = peer("torch"), _numba_select()
    tensor = None if isinstance(torch, str) else torch.from_numpy(x)
    kept = int((x > limit).sum())
    contenders: dict[str, Callable[[], Any] | str] = {
        OURS: lambda: plan(x),
        "numpy": lambda: x[x > limit],
        "numba": numba if isinstance(numba, str) else lambda: numba(x, limit),
        "torch": torch if tensor is None else partial(_by_torch, tensor, float(limit)),
    }
    ratio = 20.0 if elements >= 1 << 26 and x.itemsize == 4 else 10.0  # NumPy moves bytes as fast
    return _case("x[x > half]", x, contenders, ratio, x.nbytes + kept * x.itemsize)


def _by_torch(tensor: Any, limit: float) -> Any:
    return tensor[tensor > limit].numpy()


def _parts(elements: int) -> Case:
    (x,) = values(1, elements, "float32", 0.0, 1.0)
    limit = np.float32(_HALF)
    plan = km.partition.plan(x, lambda v: v > limit)  # type: ignore[attr-defined]  # set on the function

    def by_numpy() -> Any:
        flags = x > limit
        return x[flags], x[~flags]

    return _case("x[p], x[~p]", x, {OURS: lambda: plan(x), "numpy": by_numpy}, 8.0, 2 * x.nbytes)


def _runs(elements: int) -> Case:
    x = np.resize(_few_values(), elements)
    plan = km.run_length_encode.plan(x)  # type: ignore[attr-defined]  # set on the function

    def by_numpy() -> Any:
        begins = np.flatnonzero(np.append(True, x[1:] != x[:-1]))
        return x[begins], np.diff(np.append(begins, x.size))

    runs = km.unique_count(x)
    moved = x.nbytes + runs * (x.itemsize + 8)
    return _case("run lengths", x, {OURS: lambda: plan(x), "numpy": by_numpy}, 4.0, moved)


def _keys(elements: int) -> Case:
    x = np.resize(_few_values(), elements)
    (y,) = values(1, elements, "float32")
    plan = km.unique_by_key.plan(x, y)  # type: ignore[attr-defined]  # set on the function

    def by_numpy() -> Any:
        begins = np.append(True, x[1:] != x[:-1])
        return x[begins], y[begins]

    moved = x.nbytes + y.nbytes + km.unique_count(x) * 8
    return _case("unique by key", x, {OURS: lambda: plan(x, y), "numpy": by_numpy}, 8.0, moved)


@once
def _few_values() -> np.ndarray[Any, Any]:
    random = np.random.default_rng(1)
    return np.repeat(random.integers(0, 9, 16411), random.integers(1, 8, 16411)).astype(np.int32)


@once
def _numba_select() -> Any:  # Any: a function, or the reason why there is none
    numba = peer("numba")
    if isinstance(numba, str):
        return numba

    def select(x: Any, limit: Any) -> Any:
        pieces = 64
        step = (x.size + pieces - 1) // pieces
        held = np.zeros(pieces + 1, np.int64)
        for p in numba.prange(pieces):
            count = 0
            for i in range(p * step, min(x.size, (p + 1) * step)):
                count += x[i] > limit
            held[p + 1] = count
        at = np.cumsum(held)
        out = np.empty(at[pieces], x.dtype)
        for p in numba.prange(pieces):
            place = at[p]
            for i in range(p * step, min(x.size, (p + 1) * step)):
                if x[i] > limit:
                    out[place] = x[i]
                    place += 1
        return out

    return numba.njit(parallel=True)(select)
