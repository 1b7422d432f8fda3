"""`make bench`: measure all families, or some, and merge them into this machine's results file.

Families of the processor and of a GPU go into different files; `make gpu` measures the latter. A
quick run checks that everything runs and gives a first idea; its figures are printed, not kept.
Rows are kept as they are measured: a run that is ended early, or whose time is up, leaves the rows
it had no time for as they were, marked as older.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import cuda_peers
import cuda_timing
import report
import results
from allowance import Allowance, in_order
from harness import FULL, OURS, QUICK, Case, Row, measure, verdict
from kernelmill.errors import KernelmillError
from kernelmill.runtime.calibrate import Roofline, measure_roofline
from peers import threads
from recording import Recorder, Stopped, stopped_by_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness import Budget

__all__ = ["CUDA_FAMILIES", "FAMILIES", "main"]

# In the order in which they run; each is a module with `cases(budget)`, which yields cases, or what
# makes one (see `Later`): preparing a case may take longer than it is worth when it was not asked
# for. One that measures by rules of its own has `rows_of(made, budget)` too, which yields rows.
FAMILIES: Final = (
    "overhead", "first_call", "transform", "reduce", "scan", "fused", "layouts", "selection",
    "histogram", "search", "segmented", "sort",
    "emulator", "build", "hub", "lock",
)  # fmt: skip
CUDA_FAMILIES: Final = (
    "cuda_host", "cuda_first_call", "cuda_transform", "cuda_reduce", "cuda_scan", "cuda_select",
    "cuda_histogram", "cuda_search", "cuda_segmented", "cuda_sort", "cuda_merge",
    "cuda_kernels", "gpumode",
)  # fmt: skip


_INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    start = time.monotonic()
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.list:
        for name in (*FAMILIES, *CUDA_FAMILIES):
            summary = (importlib.import_module(name).__doc__ or "").splitlines()[0]
            print(f"{name:16} {summary}")
        return 0
    chosen = list(dict.fromkeys(asked.family or FAMILIES))
    on_gpu = chosen[0] in CUDA_FAMILIES
    if any((name in CUDA_FAMILIES) is not on_gpu for name in chosen):
        parser.error("families of the processor and of a GPU are measured in runs of their own")
    if on_gpu and cuda_timing.absent():
        parser.error(cuda_timing.absent())
    side = _gpu(asked) if on_gpu else _processor(asked)
    target = asked.output
    if target is None and not asked.quick:
        target = results.place(name=results.machine_name(side.machine) if on_gpu else "")
    run = _Run(side, asked, Recorder(target, side.machine), start)
    status = 0
    try:
        with stopped_by_signals():
            for name in chosen:
                run.family(name)
    except (Stopped, KeyboardInterrupt) as ended:
        status = ended.status if isinstance(ended, Stopped) else _INTERRUPTED
        _say(f"stopped by {ended if isinstance(ended, Stopped) else 'the keyboard'}")
    else:
        side.release()
    run.say_older(chosen)
    _shown(run, asked, chosen)
    return status or bool(run.failed)


def _shown(run: _Run, asked: argparse.Namespace, chosen: Sequence[str]) -> None:
    """Say where the results are, and print them."""
    data, target = run.recorder.data, run.recorder.target
    if target is not None:
        _say(f"written: {target}")
        if target.parent == results.DIRECTORY:
            for page in report.update():
                _say(f"written: {page}")
    families = {name: data["families"][name] for name in chosen if name in data["families"]}
    shown = {**data, "families": families}
    print(json.dumps(shown, indent=1) if asked.json else report.render(shown))
    for text in run.failed:
        _say(f"FAILED: {text}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description=__doc__)
    parser.add_argument(
        "--family",
        action="append",
        choices=(*FAMILIES, *CUDA_FAMILIES),
        help="only this one; can be repeated; by default those of the processor",
    )
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument(
        "--dtype", action="append", help="only cases of this element type; can be repeated"
    )
    parser.add_argument(
        "--budget", type=float, help="seconds that each family may take, divided over its rows"
    )
    parser.add_argument("--commit", default="", help="of a tree that has no history")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds, not kept")
    parser.add_argument("--json", action="store_true", help="print the results file, not a table")
    parser.add_argument("--list", action="store_true", help="list the families")
    parser.add_argument("--output", type=Path, help="the results file to merge into")
    return parser


# ----------------------------------------------------------------------------- two kinds of machine


@dataclass(frozen=True, slots=True)
class _Side:
    """What the processor and a GPU do differently; a roofline is of one of the two kinds."""

    budget: Budget
    machine: results.Data
    roofline: Callable[[], Any]
    best_of: Callable[[Any, Any], Any]
    stamp: Callable[[Any], results.Data]
    release: Callable[[], None]


def _processor(asked: argparse.Namespace) -> _Side:
    budget = QUICK if asked.quick else FULL
    load = os.getloadavg()[0]
    if load > 0.5 and not budget.quick:
        _say(f"the load average is {load:.1f}: other programs disturb the measurement")
    return _Side(
        budget,
        results.machine(),
        measure_roofline,
        lambda one, other: one.best_with(other),
        lambda roof: results.stamp(roof, quick=budget.quick, load=load, commit=asked.commit),
        lambda: None,
    )


def _gpu(asked: argparse.Namespace) -> _Side:
    budget = cuda_timing.QUICK if asked.quick else cuda_timing.FULL
    return _Side(
        budget,
        cuda_timing.machine(),
        cuda_timing.roofline,
        cuda_timing.best_of,
        lambda roof: cuda_timing.stamp(roof, quick=budget.quick, commit=asked.commit),
        cuda_peers.release,
    )


# ----------------------------------------------------------------------------- a run


class _Run:
    """Families that are measured one after the other."""

    def __init__(
        self, side: _Side, asked: argparse.Namespace, recorder: Recorder, start: float
    ) -> None:
        self.recorder = recorder
        self.failed: list[str] = []
        self._side, self._asked = side, asked
        self._start = start
        self._roofline: Any = None

    def family(self, name: str) -> None:
        """Measure a family; what fails is left out, and said in `failed`."""
        allowance = Allowance(self._asked.budget)
        if self._roofline is None and allowance.seconds is not None:
            # What the process needed to begin is part of the first family's time.
            allowance.seconds -= time.monotonic() - self._start
        self._measure_roofline()
        stamped = self._side.stamp(self._roofline)
        self.recorder.begin(name, stamped)
        whole = self._rows(name, allowance)
        self._measure_roofline()
        self.recorder.end({**stamped, "roofline": _plain(self._roofline)}, whole=whole)

    def _measure_roofline(self) -> None:
        found = self._side.roofline()
        known = self._roofline
        self._roofline = found if known is None else self._side.best_of(known, found)

    def _rows(self, name: str, allowance: Allowance) -> bool:
        """Measure the rows of a family; returns whether they are all that it has."""
        start = time.perf_counter()
        module = importlib.import_module(name)
        rows_of = getattr(module, "rows_of", _rows_of)
        budget = self._side.budget
        whole = not self._asked.case and not self._asked.dtype
        with closing(in_order(module.cases(budget), self._is_asked)) as found:
            for made, sizes in found:
                later = self._sizes(made) if sizes is None else sizes
                given = allowance.of_next(made.elements, later, budget)
                if given is None:
                    whole = False
                    _say(f"{name}: no time is left of {self._asked.budget:g} s")
                    break
                whole &= self._measure(name, made, rows_of(made, given))
                allowance.spent(given)
        _say(f"{name}: {time.perf_counter() - start:.0f} s on {threads()} threads")
        return whole

    def _is_asked(self, made: Any) -> bool:  # Any: a case, or what makes one
        dtypes = self._asked.dtype or (made.dtype,)
        return self._asked.case in made.name and made.dtype in dtypes

    def _sizes(self, made: Any) -> list[int]:  # Any: as above
        """Return the sizes of rows that are still to come, as far as earlier runs tell."""
        return [row.elements for row in self.recorder.older() if row.case != made.name]

    def _measure(self, family: str, made: Any, rows: Iterator[Row]) -> bool:  # Any: as above
        """Keep rows as they are measured; returns whether nothing failed."""
        try:
            for row in rows:
                self.recorder.add(row)
                _say(f"{family}: {row.case} {row.dtype} {row.elements}: {_summary(row)}")
        except (AssertionError, KernelmillError, RuntimeError) as error:
            self.failed.append(f"{family}: {made.name} {made.dtype}: {error}")
            _say(f"FAILED: {self.failed[-1]}")
            if isinstance(error, AssertionError):
                self.recorder.wrong(made)
            return False
        return True

    def say_older(self, chosen: Sequence[str]) -> None:
        """Say which rows of these families are of earlier runs."""
        for name in chosen:
            family = self.recorder.data["families"].get(name, {"older": ()})
            for group in family.get("older", ()):
                rows = [Row.from_json(row) for row in group["rows"]]
                stamped = group["stamp"]
                _say(
                    f"{name}: {len(rows)} rows are of {stamped['date'][:10]}, commit "
                    f"{stamped['commit'][:12]}: "
                    + "; ".join(f"{row.case} {row.dtype} {row.elements}" for row in rows)
                )


def _plain(roofline: Any) -> Any:  # Any: a roofline of either kind
    return asdict(roofline) if isinstance(roofline, Roofline) else roofline


def _rows_of(made: Any, budget: Budget) -> Iterator[Row]:  # Any: a case, or what makes one
    yield measure(made if isinstance(made, Case) else made.case(), budget)


def _summary(row: Row) -> str:
    times = ", ".join(f"{n} {report.duration(s)}" for n, s in row.best.items() if n != OURS)
    missed = [report.goal_text(g) for g in row.goals if not verdict(row, g)[1]]
    return f"{report.duration(row.best[OURS])} ({times}) {'MISSED ' if missed else ''}" + "; ".join(
        missed
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
