"""How a benchmark is measured: contenders of one case in turn, best of several rounds, and results.

What is measured is in one file a family. A case is one expression at one type and size; all its
contenders run in the same process, on the same arrays, in rounds, so that a disturbance does not
fall on one of them alone. Results are checked against NumPy before anything is timed.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from dataclasses import asdict, dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "BUILT_IN",
    "COPY",
    "CUDA_CPP",
    "FASTEST",
    "FLOOR",
    "FULL",
    "OURS",
    "PEERS",
    "QUICK",
    "REFERENCE",
    "Budget",
    "Case",
    "Contender",
    "Goal",
    "Later",
    "Row",
    "largest_error",
    "measure",
    "timed_statement",
    "verdict",
]

OURS: Final = "kernelmill"
REFERENCE: Final = "C++"
# Other ways to do the same from Python; "the fastest peer" is the fastest of these.
PEERS: Final = (
    "numpy", "numba", "torch", "torch.compile", "numexpr", "CuPy", "cuda.compute", "cuda.core",
    "Triton",
)  # fmt: skip
FASTEST: Final = "fastest peer"
# On a GPU: a copy of as many bytes, whose time is the roofline; km's own operator in the place of
# a Python function; the driver called in a loop from C; the same kernel in CUDA C++.
COPY: Final = "copy"
CUDA_CPP: Final = "CUDA C++"
BUILT_IN: Final = "built-in"
FLOOR: Final = "C loop"

# ----------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class Goal:
    """What is asked of kernelmill: `ratio` times the speed of `peer`, or at most `seconds`.

    `peer` is a contender, or "fastest peer". With a peer and no ratio, what is asked is its time
    and as much more as is larger: `share` of it, or `seconds`.
    """

    peer: str = ""
    ratio: float = 0.0
    seconds: float = 0.0
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work.

    `run` does it once and returns the result. `measure`, where given, does it a number of times and
    returns the seconds of all of them; `single` says that once is enough for a round, `once` that
    one round is, `compared` that the result is the case's.
    """

    name: str
    run: Callable[[], Any]
    measure: Callable[[int], float] | None = None
    single: bool = False
    once: bool = False
    compared: bool = True


@dataclass(frozen=True, slots=True)
class Case:
    """One expression at one type and size.

    `bytes` are those read and written in a call, 0 where bandwidth says nothing, `written` those of
    them that are written; `skipped` says of absent contenders why. Results may differ from NumPy's
    by `tolerance`, relative to `scale` or, where that is 0, to the largest value; None compares
    nothing. `error`, where given, runs a contender and returns that difference itself.
    """

    name: str
    dtype: str
    elements: int
    contenders: tuple[Contender, ...]
    goals: tuple[Goal, ...] = ()
    bytes: int = 0
    written: int = 0
    tolerance: float | None = None
    scale: float = 0.0
    skipped: dict[str, str] = field(default_factory=dict)
    error: Callable[[Contender], float] | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """A case whose arrays are made when it is its turn; what `case` returns may make it in turn.

    `elements` are those of its row, 0 where they are not known before.
    """

    name: str
    dtype: str
    elements: int
    case: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Row:
    """What a case gave, in seconds a call: the best and the median of the rounds."""

    case: str
    dtype: str
    elements: int
    bytes: int
    written: int
    rounds: int
    best: dict[str, float]
    median: dict[str, float]
    goals: tuple[Goal, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells the row from others of its family."""
        return self.case, self.dtype, self.elements

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain data; `Row.from_json` reads it back."""
        return {**asdict(self), "goals": [asdict(goal) for goal in self.goals]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Row:
        """Read a row; raises TypeError where a field is missing or unknown."""
        return cls(**{**data, "goals": tuple(Goal(**goal) for goal in data["goals"])})

    def fastest_peer(self) -> str | None:
        """Return the name of the fastest of the peers that ran."""
        present = [name for name in PEERS if name in self.best]
        return min(present, key=self.best.__getitem__, default=None)

    def speedup(self, name: str) -> float | None:
        """Return how many times as fast as `name` kernelmill was; None where that did not run."""
        found = self.fastest_peer() if name == FASTEST else name
        if found is None or found not in self.best or OURS not in self.best:
            return None
        return self.best[found] / self.best[OURS]


def verdict(row: Row, goal: Goal) -> tuple[float | None, bool]:
    """Return what was reached, a ratio or seconds, and whether it is enough.

    A goal whose peer did not run is not met: None, False.
    """
    if not goal.peer:
        reached = row.best.get(OURS)
        return reached, reached is not None and reached <= goal.seconds
    reached = row.speedup(goal.peer)
    if goal.ratio or reached is None:
        return reached, reached is not None and reached >= goal.ratio
    ours = row.best[OURS]
    theirs = reached * ours
    return reached, ours <= theirs + max(goal.share * theirs, goal.seconds)


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to measure: sizes, rounds, seconds of one case and of one batch of calls.

    `share` is how much of the usual time a case has: less than 1 where a family's time is short.
    """

    quick: bool
    sizes: tuple[int, ...]
    rounds: tuple[int, int]
    case_seconds: float
    batch_seconds: float
    share: float = 1.0

    @property
    def large(self) -> int:
        """The size for cases that are measured at one size only."""
        return 1 << (22 if self.quick else 24)


# 2^12 elements lie in the first-level cache, 2^16 in the second, 2^20 in the last.
FULL: Final = Budget(
    quick=False,
    sizes=(1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26),
    rounds=(2, 25),
    case_seconds=0.8,
    batch_seconds=2e-3,
)
QUICK: Final = Budget(
    quick=True,
    sizes=(1 << 12, 1 << 20, 1 << 24),
    rounds=(2, 7),
    case_seconds=0.15,
    batch_seconds=5e-4,
)


# ----------------------------------------------------------------------------- timers


def timed_statement(statement: str, **names: Any) -> Callable[[int], float]:
    """Return a timer of a statement, without the cost of calling a function around it."""
    lines = f"def timed(number):\n start = clock()\n for _ in loop(None, number):\n  {statement}\n"
    lines += " return clock() - start\n"
    scope = {**names, "clock": time.perf_counter, "loop": repeat}
    exec(lines, scope)
    timer: Callable[[int], float] = scope["timed"]
    return timer


# ----------------------------------------------------------------------------- measuring

# Threads of the contender before may still spin for work; they sleep after this.
_SETTLE: Final = 4e-3
# Calls that take longer need no settling: what is left of the others does not show.
_LONG: Final = 50e-3
# The first call may compile something; when it takes longer than this, it is taken as it is.
_KNOWN: Final = 0.5


def measure(case: Case, budget: Budget) -> Row:
    """Check the results of all contenders, then time them in rounds.

    Raises
    ------
    AssertionError
        A result of kernelmill or of the C++ loop differs from NumPy's.
    """
    first, wrong = _check(case)
    timers = {
        c.name: _Timer(c, budget, first.get(c.name, 0.0))
        for c in case.contenders
        if c.name not in wrong
    }
    names = list(timers)
    fewest, most = (1, 1) if any(c.once for c in case.contenders) else budget.rounds
    end = time.perf_counter() + budget.case_seconds
    done = 0
    collecting = gc.isenabled()
    gc.disable()
    try:
        while done < most and (done < fewest or time.perf_counter() < end):
            turn = done % len(names)
            for name in names[turn:] + names[:turn]:
                timers[name].round()
            done += 1
    finally:
        if collecting:
            gc.enable()
    return Row(
        case=case.name,
        dtype=case.dtype,
        elements=case.elements,
        bytes=case.bytes,
        written=case.written,
        rounds=done,
        best={name: min(timer.seconds) for name, timer in timers.items()},
        median={name: statistics.median(timer.seconds) for name, timer in timers.items()},
        goals=case.goals,
        skipped=case.skipped | wrong,
    )


class _Timer:
    """One contender with its times so far, in seconds a call."""

    def __init__(self, contender: Contender, budget: Budget, first: float) -> None:
        """Choose how many calls make a batch; `first` are the seconds of a call, 0.0 if unknown."""
        self.contender = contender
        self.seconds: list[float] = []
        self._measure = contender.measure or timed_statement("run()", run=contender.run)
        self._number, self._batches, self._long = 1, 1, True
        if contender.single or first > _KNOWN:
            return
        if not first:
            self._measure(1)  # it may compile something
        seconds = self._measure(1)
        self._long = seconds > _LONG
        self._number = max(1, math.ceil(budget.batch_seconds / max(seconds, 1e-8)))
        self._batches = 1 if self._long else 3

    def round(self) -> None:
        """Run a few batches; the best of them is the time of the round."""
        if not self._long:
            time.sleep(_SETTLE)
            self._measure(min(self._number, 16))
        self.seconds.append(
            min(self._measure(self._number) for _ in range(self._batches)) / self._number
        )


# The plain loop has one accumulator a lane: its rounding errors add up over large arrays.
_PLAIN_LOOP: Final = 10


def _check(case: Case) -> tuple[dict[str, float], dict[str, str]]:
    """Compare all results with NumPy's; returns the seconds of a call, and whose results are wrong.

    Such a peer is not timed: float32 sums in one accumulator are wrong for large arrays.
    """
    first: dict[str, float] = {}
    wrong: dict[str, str] = {}
    if case.tolerance is None:
        return first, wrong
    wanted: Any = None
    if case.error is None:
        wanted = _copied(next(c for c in case.contenders if c.name == "numpy").run())
    for contender in case.contenders:
        if not contender.compared:
            continue
        start = time.perf_counter()
        found = contender.run() if case.error is None else None
        first[contender.name] = time.perf_counter() - start
        if case.error is None:
            whole = contender.name not in PEERS
            error = float(np.max([*_errors(found, wanted, case.scale, whole=whole)]))
        else:
            error = case.error(contender)
        if not error <= case.tolerance * (_PLAIN_LOOP if contender.name == "C++" else 1):
            of = "NumPy's" if case.error is None else "the right one"
            text = (
                f"{case.name} {case.dtype} {case.elements}: its result differs from {of} by "
                f"{error:.2g} of the scale, the limit is {case.tolerance:.2g}"
            )
            assert contender.name in PEERS, f"{contender.name}: {text}"
            wrong[contender.name] = text
    return first, wrong


def _copied(result: Any) -> Any:
    """Return a result that later calls into the same output leave alone."""
    return tuple(map(_copied, result)) if type(result) is tuple else np.array(result)


def _errors(found: Any, wanted: Any, scale: float, *, whole: bool) -> Iterator[float]:
    """Yield the largest difference of each result, relative to `scale` or the largest value."""
    many = type(wanted) is tuple
    for mine, theirs in zip(
        found if many else (found,), wanted if many else (wanted,), strict=True
    ):
        yield largest_error(np.asarray(mine), np.asarray(theirs), scale, whole=whole)


_PIECE: Final = 1 << 18


def largest_error(
    found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], scale: float, *, whole: bool
) -> float:
    """Return the largest difference of two arrays, relative to `scale` or the largest value.

    Unless `whole`, of large arrays the first and the last million elements are compared: enough to
    see that a peer does the same work.
    """
    a, b = found.ravel(), wanted.ravel()
    assert a.shape == b.shape, f"{a.shape} is not {b.shape}"
    worst = largest = 0.0
    ends = 4 * _PIECE
    for at in range(0, a.size, _PIECE):  # in pieces, so that large arrays need no temporaries
        if not whole and ends <= at < a.size - ends:
            continue
        x, y = (part[at : at + _PIECE].astype(np.float64) for part in (a, b))
        worst = float(np.maximum(worst, np.max(np.abs(x - y))))  # nan stays, unlike with max()
        largest = float(np.maximum(largest, np.max(np.abs(y))))
    return worst / (scale or largest or 1.0)
