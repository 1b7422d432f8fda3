"""`make bench`: measure all families, or some, and merge them into this machine's results file.

Families of the processor and of a GPU go into different files; `make gpu` measures the latter. A
quick run checks that everything runs and gives a first idea; its figures are printed, not kept.
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

import cuda_peers
import cuda_timing
import report
import results
from harness import FULL, OURS, QUICK, Case, measure, verdict
from kernelmill.errors import KernelmillError
from kernelmill.runtime.calibrate import measure_roofline
from peers import threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness import Budget, Row

__all__ = ["CUDA_FAMILIES", "FAMILIES", "main"]

# In the order in which they run; each is a module with `cases(budget)`, which yields cases, or what
# makes one: preparing a case may take longer than it is worth when it was not asked for. One that
# measures by rules of its own has `rows_of(made, budget)` too.
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.list:
        for name in (*FAMILIES, *CUDA_FAMILIES):
            summary = (importlib.import_module(name).__doc__ or "").splitlines()[0]
            print(f"{name:16} {summary}")
        return 0
    chosen = asked.family or list(FAMILIES)
    on_gpu = chosen[0] in CUDA_FAMILIES
    if any((name in CUDA_FAMILIES) is not on_gpu for name in chosen):
        parser.error("families of the processor and of a GPU are measured in runs of their own")
    if on_gpu and cuda_timing.absent():
        parser.error(cuda_timing.absent())
    measured = _measured_on_gpu if on_gpu else _measured
    target = asked.output
    if target is None and not asked.quick:
        name = results.machine_name(cuda_timing.machine()) if on_gpu else ""
        target = results.place(name=name)
    old = results.read(target) if target is not None and target.exists() else None
    failed: list[str] = []
    data = measured(chosen, asked, old, failed)
    if target is not None:
        results.write(target, data)
        _say(f"written: {target}")
        if target.parent == results.DIRECTORY:
            for page in report.update():
                _say(f"written: {page}")
    shown = {**data, "families": {name: data["families"][name] for name in chosen}}
    print(json.dumps(shown, indent=1) if asked.json else report.render(shown))
    for text in failed:
        _say(f"FAILED: {text}")
    return bool(failed)


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
    parser.add_argument("--commit", default="", help="of a tree that has no history")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds, not kept")
    parser.add_argument("--json", action="store_true", help="print the results file, not a table")
    parser.add_argument("--list", action="store_true", help="list the families")
    parser.add_argument("--output", type=Path, help="the results file to merge into")
    return parser


def _measured(
    chosen: Sequence[str],
    asked: argparse.Namespace,
    old: dict[str, Any] | None,
    failed: list[str],
) -> dict[str, Any]:
    budget = QUICK if asked.quick else FULL
    load = os.getloadavg()[0]
    if load > 0.5 and not budget.quick:
        _say(f"the load average is {load:.1f}: other programs disturb the measurement")
    found: dict[str, Sequence[Row]] = {}
    roofline = measure_roofline()
    for name in chosen:
        found[name] = _rows(name, budget, asked, failed)
        roofline = roofline.best_with(measure_roofline())
    stamped = results.stamp(roofline, quick=budget.quick, load=load, commit=asked.commit)
    return results.merge(old, results.machine(), found, stamped)


def _measured_on_gpu(
    chosen: Sequence[str],
    asked: argparse.Namespace,
    old: dict[str, Any] | None,
    failed: list[str],
) -> dict[str, Any]:
    budget = cuda_timing.QUICK if asked.quick else cuda_timing.FULL
    found: dict[str, Sequence[Row]] = {}
    roofline = cuda_timing.roofline()
    for name in chosen:
        found[name] = _rows(name, budget, asked, failed)
        roofline = cuda_timing.best_of(roofline, cuda_timing.roofline())
    cuda_peers.release()
    stamped = cuda_timing.stamp(roofline, quick=budget.quick, commit=asked.commit)
    return results.merge(old, cuda_timing.machine(), found, stamped)


def _rows(family: str, budget: Budget, asked: argparse.Namespace, failed: list[str]) -> list[Row]:
    """Measure a family; what fails is left out, and said in `failed`."""
    start = time.perf_counter()
    rows: list[Row] = []
    module = importlib.import_module(family)
    rows_of = getattr(module, "rows_of", _row_of)
    for made in module.cases(budget):
        if asked.case not in made.name or made.dtype not in (asked.dtype or (made.dtype,)):
            continue
        try:
            found = rows_of(made, budget)
        except (AssertionError, KernelmillError, RuntimeError) as error:
            failed.append(f"{family}: {made.name} {made.dtype}: {error}")
            _say(f"FAILED: {failed[-1]}")
            continue
        rows += found
        for row in found:
            _say(f"{family}: {row.case} {row.dtype} {row.elements}: {_summary(row)}")
    _say(f"{family}: {time.perf_counter() - start:.0f} s on {threads()} threads")
    return rows


def _row_of(made: Any, budget: Budget) -> list[Row]:  # Any: a case, or what makes one
    return [measure(made if isinstance(made, Case) else made.case(), budget)]


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
