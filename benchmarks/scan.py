"""Running sums and maxima of whole arrays, by known operators and the user's, and sums by key."""

from __future__ import annotations

from functools import cache as once
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import kernelmill as km
from harness import OURS
from peers import peer, values
from several import goals_at, same_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget, Case, Goal

__all__ = ["cases"]

# Of sums, whose order is each contender's own; NumPy adds one after the other.
_TOLERANCE: Final = {"float32": 1e-2, "float64": 1e-9, "int32": 0.0, "int64": 0.0}
_RUN: Final = 8
_larger = km.op(lambda a, b: max(b, a), name="larger")


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    for elements in sorted(budget.sizes, reverse=True):  # of large ones most is asked
        for dtype, ratio in (("float32", 12.0), ("float64", 1.0), ("int32", 1.0), ("int64", 1.0)):
            yield _sums(dtype, elements, ratio)
        yield _maxima("running maximum", km.maximum, elements)
        yield _maxima("running maximum by a Python operator", _larger, elements)
        yield _by_key(elements)


def _case(
    name: str,
    x: np.ndarray[Any, Any],
    contenders: dict[str, Callable[[], Any] | str],
    goals: tuple[Goal, ...],
    moved: int,
) -> Case:
    tolerance = _TOLERANCE[x.dtype.name]
    return same_work(name, x, contenders, goals, moved=moved, tolerance=tolerance)


def _torch(call: Callable[[Any], Any]) -> Callable[[], Any] | str:
    module = peer("torch")
    return module if isinstance(module, str) else partial(call, module)


@once
def _numba_loop(kind: str) -> Any:  # Any: a compiled function, or why there is none
    """Return numba's loop; it cannot spread a scan over threads."""
    numba = peer("numba")
    if isinstance(numba, str):
        return numba

    def sums(x: Any, out: Any) -> Any:
        total = out.dtype.type(0)
        for i in range(x.size):
            total += x[i]
            out[i] = total
        return out

    def maxima(x: Any, out: Any) -> Any:
        most = x[0]
        for i in range(x.size):
            most = max(most, x[i])
            out[i] = most
        return out

    return numba.njit(sums if kind == "sums" else maxima)


def _numba(kind: str, x: Any, out: Any) -> Callable[[], Any] | str:
    loop = _numba_loop(kind)
    if isinstance(loop, str):
        return loop
    loop(x[:8], out[:8])
    return lambda: loop(x, out)


def _sums(dtype: str, elements: int, ratio: float) -> Case:
    (x,) = values(1, elements, dtype, -4.0, 4.0)
    ours, theirs, others, tensor = (np.empty_like(x) for _ in range(4))
    plan = km.inclusive_scan.plan(x, dtype=dtype, out=ours)  # type: ignore[attr-defined]
    contenders = {
        OURS: lambda: plan(x, out=ours),
        "numpy": lambda: np.cumsum(x, dtype=x.dtype, out=theirs),
        "numba": _numba("sums", x, others),
        "torch": _torch(
            lambda torch: torch.cumsum(
                torch.from_numpy(x), 0, dtype=getattr(torch, dtype), out=torch.from_numpy(tensor)
            )
        ),
    }
    return _case("running sum", x, contenders, goals_at(elements, ratio), 2 * x.nbytes)


def _maxima(name: str, op: Any, elements: int) -> Case:
    (x,) = values(1, elements, "float32")
    ours, theirs, others = (np.empty_like(x) for _ in range(3))
    plan = km.inclusive_scan.plan(x, op, out=ours)  # type: ignore[attr-defined]
    contenders = {
        OURS: lambda: plan(x, out=ours),
        "numpy": lambda: np.maximum.accumulate(x, out=theirs),
        "numba": _numba("maxima", x, others),
        "torch": _torch(lambda torch: torch.cummax(torch.from_numpy(x), 0)[0]),
    }
    return _case(name, x, contenders, goals_at(elements, 1.0), 2 * x.nbytes)


def _by_key(elements: int) -> Case:
    (x,) = values(1, elements, "float64")
    keys = np.arange(elements, dtype=np.int32) // _RUN
    starts = np.arange(0, elements, _RUN)
    totals = np.empty(len(starts))
    out = (np.empty(len(starts), np.int32), totals, np.empty(1, np.int64))
    plan = km.reduce_by_key.plan(keys, x, out=out)  # type: ignore[attr-defined]

    def ours() -> Any:
        plan(keys, x, out=out)
        return totals

    def numpy() -> Any:
        """Find the runs, then add; keys and number are results as well."""
        begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        keys[begins]
        return np.add.reduceat(x, begins)

    moved = x.nbytes + keys.nbytes + totals.nbytes
    return _case("sums by key", x, {OURS: ours, "numpy": numpy}, goals_at(elements, 1.0), moved)
