"""GPU MODE's problems by its rules: kernelmill, cuda.compute and torch, and their geometric means.

A run draws fresh data from a new seed, fills 256 MB so that the L2 cache holds nothing of it, and
times the call between two events that follow in the queue; its result is judged each time. A size
ends after 100 runs, when the relative error of the mean is below 0.1 %, or when its time is up.
The mean stands in a row as the best. Data and tolerances are in `gpumode_problems.py`.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import cuda_timing as timing
from gpumode_peers import contenders
from gpumode_problems import PROBLEMS
from harness import Goal, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumode_peers import Solution
    from gpumode_problems import Problem, Size
    from harness import Budget

__all__ = ["cases", "rows_of", "timed"]

_RUNS: Final = 100
_FEWEST: Final = 3
_SEED_STEP: Final = 13
_ENOUGH: Final = 1e-3
_FLUSHED: Final = 1 << 28
# Of one contender at one size; a quick run takes a tenth.
_SECONDS: Final = 0.5
_AHEAD: Final = (Goal("cuda.compute", 1.0), Goal("torch", 1.0))


@dataclass(frozen=True, slots=True)
class Sizes:
    """All sizes of a problem."""

    name: str
    dtype: str
    problem: Problem
    elements: int = 0  # many


def cases(budget: Budget) -> Iterator[Sizes]:
    """Yield the problems."""
    del budget
    for problem in PROBLEMS:
        yield Sizes(problem.name, problem.dtype, problem)


def rows_of(made: Sizes, budget: Budget) -> Iterator[Row]:
    """Yield a row for each size of a problem, and one of the geometric means.

    Raises
    ------
    AssertionError
        A result of kernelmill is wrong.
    """
    problem = made.problem
    solutions, skipped = contenders(problem.name)
    limit = budget.share * _SECONDS / (10 if budget.quick else 1)
    rows = []
    for size in problem.sizes[:2] if budget.quick else problem.sizes:
        seconds = {
            name: timed(name, solve, problem, size, limit) for name, solve in solutions.items()
        }
        row = Row(
            case=problem.name + "".join(f", {percent} % of one" for percent in size[1:]),
            dtype=problem.dtype,
            elements=problem.elements(size),
            bytes=0,
            written=0,
            rounds=max(map(len, seconds.values())),
            best={name: statistics.fmean(found) for name, found in seconds.items()},
            median={name: statistics.median(found) for name, found in seconds.items()},
            skipped=skipped,
        )
        rows.append(row)
        yield row
    yield _means(problem, rows)


def _means(problem: Problem, rows: list[Row]) -> Row:
    names = rows[0].best
    return Row(
        case=f"{problem.name}, geometric mean",
        dtype=problem.dtype,
        elements=0,
        bytes=0,
        written=0,
        rounds=len(rows),
        best={name: statistics.geometric_mean([r.best[name] for r in rows]) for name in names},
        median={name: statistics.geometric_mean([r.median[name] for r in rows]) for name in names},
        goals=_AHEAD,
        skipped=rows[0].skipped,
    )


def timed(name: str, solve: Solution, problem: Problem, size: Size, limit: float) -> list[float]:
    """Return the seconds of each run of a solution at a size.

    Raises
    ------
    AssertionError
        A result is wrong.
    """
    data = problem.data(size, 0, "cuda")
    _judged(name, problem, size, data, solve(data))  # what is compiled or loaded, is so here
    flush = timing.torch().empty(_FLUSHED, dtype=timing.torch().uint8, device="cuda")
    found: list[float] = []
    end = time.perf_counter() + limit
    while len(found) < _RUNS and not _is_enough(found):
        data = problem.data(size, _SEED_STEP * (len(found) + 1), "cuda")
        seconds, result = _run(solve, data, flush)
        _judged(name, problem, size, data, result)
        found.append(seconds)
        if time.perf_counter() > end and len(found) >= _FEWEST:
            break
    return found


def _run(solve: Solution, data: tuple[Any, ...], flush: Any) -> tuple[float, Any]:
    """Run a solution between two events, behind a fill of the cache."""
    t = timing.torch()
    start, stop = (t.cuda.Event(enable_timing=True) for _ in range(2))
    t.cuda.synchronize()
    flush.fill_(1)
    start.record()
    result = solve(data)
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1e-3, result


def _judged(name: str, problem: Problem, size: Size, data: tuple[Any, ...], result: Any) -> None:
    if not problem.right(data, result):
        raise AssertionError(f"{name} is wrong in {problem.name} of {size}")


def _is_enough(found: list[float]) -> bool:
    """Return whether the relative error of the mean is small."""
    if len(found) < _FEWEST:
        return False
    error = statistics.stdev(found) / math.sqrt(len(found))
    return error < _ENOUGH * statistics.fmean(found)
