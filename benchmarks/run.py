"""`make bench`: measure all families, or some, and merge them into this machine's results file.

A quick run checks that everything runs and gives a first idea; its figures are printed, not kept.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import report
import results
from harness import FULL, OURS, QUICK, measure, verdict
from kernelmill.runtime.calibrate import measure_roofline
from peers import threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness import Budget, Row

__all__ = ["FAMILIES", "main"]

# In the order in which they run; each is a module with `cases(budget)`.
FAMILIES: Final = ("overhead", "first_call", "transform", "reduce", "fused", "layouts")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    asked = _parser().parse_args(arguments)
    if asked.list:
        for name in FAMILIES:
            summary = (importlib.import_module(name).__doc__ or "").splitlines()[0]
            print(f"{name:12} {summary}")
        return 0
    chosen = asked.family or list(FAMILIES)
    target = asked.output or (None if asked.quick else results.place())
    old = results.read(target) if target is not None and target.exists() else None
    data = _measured(chosen, QUICK if asked.quick else FULL, old, asked.case)
    if target is not None:
        results.write(target, data)
        _say(f"written: {target}")
        if target.parent == results.DIRECTORY:
            for page in report.update():
                _say(f"written: {page}")
    shown = {**data, "families": {name: data["families"][name] for name in chosen}}
    print(json.dumps(shown, indent=1) if asked.json else report.render(shown))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description=__doc__)
    parser.add_argument(
        "--family", action="append", choices=FAMILIES, help="only this one; can be repeated"
    )
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds, not kept")
    parser.add_argument("--json", action="store_true", help="print the results file, not a table")
    parser.add_argument("--list", action="store_true", help="list the families")
    parser.add_argument("--output", type=Path, help="the results file to merge into")
    return parser


def _measured(
    chosen: Sequence[str], budget: Budget, old: dict[str, Any] | None, pattern: str
) -> dict[str, Any]:
    load = os.getloadavg()[0]
    if load > 0.5 and not budget.quick:
        _say(f"the load average is {load:.1f}: other programs disturb the measurement")
    found: dict[str, Sequence[Row]] = {}
    roofline = measure_roofline()
    for name in chosen:
        found[name] = _rows(name, budget, pattern)
        roofline = roofline.best_with(measure_roofline())
    stamped = results.stamp(roofline, quick=budget.quick, load=load)
    return results.merge(old, results.machine(), found, stamped)


def _rows(family: str, budget: Budget, pattern: str) -> list[Row]:
    start = time.perf_counter()
    rows = []
    for case in importlib.import_module(family).cases(budget):
        if pattern not in case.name:
            continue
        row = measure(case, budget)
        rows.append(row)
        _say(f"{family}: {row.case} {row.dtype} {row.elements}: {_summary(row)}")
    _say(f"{family}: {time.perf_counter() - start:.0f} s on {threads()} threads")
    return rows


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
