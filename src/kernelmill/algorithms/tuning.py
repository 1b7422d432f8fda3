"""Measures rows of the tuning table on the machine's GPU, and keeps better ones for the user.

The table is `policy.py`; the command line is `kernelmill tune`. A variant that does not compile or
does not run is a trial like the others, with its error.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.algorithms.policy import RingPolicy, own_rows_file, ring_rows, trying
from kernelmill.algorithms.scan import inclusive_scan
from kernelmill.algorithms.select import select
from kernelmill.errors import ArgumentError, KernelmillError
from kernelmill.runtime.cuda.copies import to_device
from kernelmill.runtime.cuda.device import cuda_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["FAMILIES", "Trial", "better_of", "store", "tune"]

FAMILIES: Final = ("scan", "select")
_REDUCERS: Final = (2, 4, 8)
_STAGES: Final = (4, 6, 9, 12, 16)
_TURNS: Final = 10
_ROUNDS: Final = 3
# What a row must win to be worth keeping: less is noise.
_GAIN: Final = 0.02
_TYPES: Final = {2: "float16", 4: "float32", 8: "float64"}


@dataclass(frozen=True, slots=True)
class Trial:
    """A row, and the seconds of one call with it; or why there are none."""

    row: RingPolicy
    seconds: float | None
    error: str = ""

    @property
    def is_best_known(self) -> bool:
        """Whether it is the row that holds now."""
        return self.row in ring_rows()


def tune(
    family: str,
    *,
    elements: int = 1 << 26,
    measure: Callable[[str, RingPolicy, int], float] | None = None,
) -> Iterator[Trial]:
    """Try variants of the rows of a family, one after the other, the present ones first.

    Parameters
    ----------
    family
        One of `FAMILIES`.
    elements
        How many are scanned or selected from.
    measure
        Seconds of a call with a row; on the current GPU by default.

    Raises
    ------
    ArgumentError
        There is no such family.
    DeviceError
        There is no GPU.
    """
    if family not in FAMILIES:
        raise ArgumentError(f"`family` is {family!r}; accepted: {', '.join(FAMILIES)}")
    if measure is None:
        cuda_device()
        measure = seconds_of
    for row in ring_rows():
        if row.family == family and row.largest in _TYPES:
            for variant in _variants(row):
                yield _tried(family, variant, elements, measure)


def _variants(row: RingPolicy) -> list[RingPolicy]:
    others = [replace(row, reducers=r, stages=s) for r in _REDUCERS for s in _STAGES]
    return [row, *(other for other in others if other != row)]


def _tried(
    family: str, row: RingPolicy, elements: int, measure: Callable[[str, RingPolicy, int], float]
) -> Trial:
    try:
        with trying(row):
            return Trial(row, measure(family, row, elements))
    except KernelmillError as error:
        return Trial(row, None, error.message.splitlines()[0])


def seconds_of(family: str, row: RingPolicy, elements: int) -> float:
    """Return the seconds of one call on the current GPU, the least of a few rounds."""
    x: Any = to_device(_data(row, elements))
    plan, out = _call(family, x)
    wait = cuda_device().core.sync
    best = float("inf")
    for turn in range(_ROUNDS + 1):
        wait()
        start = time.perf_counter()
        for _ in range(_TURNS):
            plan(x, out=out)
        wait()
        if turn:  # the first one warms up
            best = min(best, (time.perf_counter() - start) / _TURNS)
    return best


def _data(row: RingPolicy, elements: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(0)
    return random.integers(-8, 8, elements, dtype=np.int8).astype(_TYPES[row.largest])


def _call(family: str, x: Any) -> tuple[Any, Any]:
    from kernelmill.runtime.cuda.arrays import empty  # noqa: PLC0415 - where there is a GPU alone

    made = empty(x.shape, x.dtype, "cuda", device=x.device)
    if family == "scan":
        return inclusive_scan.plan(x, out=made), made  # type: ignore[attr-defined]  # public
    count = to_device(np.zeros(1, np.int64))
    out = (made, count)
    return select.plan(x, _is_positive, out=out), out  # type: ignore[attr-defined]  # public


def _is_positive(value: Any) -> Any:
    return value > 0


# ----------------------------------------------------------------------------- rows that are kept


def better_of(trials: Sequence[Trial]) -> tuple[RingPolicy, ...]:
    """Return the variants that win over the row that holds, one for each size of elements."""
    found = []
    for largest in dict.fromkeys(t.row.largest for t in trials):
        alike = [t for t in trials if t.row.largest == largest]
        timed = [(t.seconds, i) for i, t in enumerate(alike) if t.seconds is not None]
        present = next((t.seconds for t in alike if t.is_best_known), None)
        if not timed:
            continue
        best, at = min(timed)
        if present is None or best < present * (1 - _GAIN):
            found.append(alike[at].row)
    return tuple(found)


def store(rows: Sequence[RingPolicy]) -> Path:
    """Keep rows for later processes of this user; they come before those of the table."""
    path = own_rows_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    space = path.with_suffix(".new")
    space.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    space.replace(path)
    return path
