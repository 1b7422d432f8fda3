"""`make gpu`: the tests that need a GPU, and a family's benchmarks, on a machine that may be bare.

Reports and the results file of the GPU are left in one directory, to be carried home from there.
Nothing is fetched; what is measured is in `cuda_*.py`, what a results file is in `results.py`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import cuda_timing
import results

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FAMILIES", "Family", "files_of", "main"]

ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Family:
    """What belongs together: patterns of test files below `tests/`, and benchmarks."""

    tests: tuple[str, ...]
    benchmarks: tuple[str, ...]


FAMILIES: Final = {
    "runtime": Family(("cuda/test_*.py",), ("cuda_host", "cuda_first_call")),
    "transform": Family(
        ("cuda/test_transform*.py", "cpu/test_transform*.py", "cpu/test_captures.py",
         "cpu/test_guarded.py", "cpu/test_concurrency.py"),
        ("cuda_transform",),
    ),
    "reduce": Family(("cuda/test_reduce*.py", "cpu/test_reduce*.py"), ("cuda_reduce",)),
    "scan": Family(("cuda/test_scan*.py", "cpu/test_scan*.py"), ("cuda_scan",)),
    "select": Family(
        ("cuda/test_select*.py", "cpu/test_select*.py", "cpu/test_unique*.py"), ("cuda_select",)
    ),
    "histogram": Family(("cpu/test_histogram.py",), ("cuda_histogram",)),
    "search": Family(("cpu/test_search.py",), ("cuda_search",)),
    "segmented": Family(("cpu/test_segmented.py",), ("cuda_segmented",)),
    "sort": Family(("cuda/test_sort*.py",), ("cuda_sort",)),
    "merge": Family(("cuda/test_merge*.py", "cpu/test_sorted.py"), ("cuda_merge",)),
    "gpumode": Family(("cpu/test_gpumode.py",), ("gpumode",)),
    "kernels": Family(
        ("cuda/test_kernel*.py", "cuda/test_examples*.py"), ("cuda_kernels",)
    ),
}  # fmt: skip
# Its pattern fits all files; those of another family are left to that.
_THE_REST: Final = "runtime"
# Tests that time the host, or ask for all memory: nothing runs beside them. The others are shared
# by so many processes, where pytest can do that.
_ALONE: Final = frozenset(("test_host_time.py", "test_memory_full.py"))
_MOST_WORKERS: Final = 12
_PLUGINS: Final = ("-p", "no:cacheprovider", "-p", "no:benchmark")
# Of the seconds that a family may take, those that its tests may.
_TESTS_SHARE: Final = 0.5
_TIMED_OUT: Final = 124


def files_of(family: str, tests: Path) -> list[Path]:
    """Return the test files of a family."""
    found = {path for pattern in FAMILIES[family].tests for path in tests.glob(pattern)}
    if family == _THE_REST:
        for other in FAMILIES.keys() - {family}:
            found -= set(files_of(other, tests))
    return sorted(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 where all that was asked for is well."""
    parser = argparse.ArgumentParser(prog="benchmarks/gpu.py", description=__doc__)
    parser.add_argument("family", nargs="*", help=", ".join(FAMILIES))
    parser.add_argument("--out", type=Path, required=True, help="where reports and results go")
    parser.add_argument("--seconds", type=float, default=480, help="that a family may take")
    parser.add_argument("--commit", default="", help="of a tree that was copied without history")
    parser.add_argument("--skip", choices=("tests", "benchmarks"), help="what not to run")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.family if name not in FAMILIES]
    if unknown:
        parser.error(f"there is no family {unknown[0]!r}; families: {', '.join(FAMILIES)}")
    if cuda_timing.absent():
        parser.error(cuda_timing.absent())
    asked.out.mkdir(parents=True, exist_ok=True)
    failed = [name for name in asked.family or FAMILIES if not _run(name, asked)]
    kept = results.place(name=results.machine_name(cuda_timing.machine()))
    if kept.exists():
        shutil.copy(kept, asked.out / kept.name)
    print(f"failed: {', '.join(failed)}" if failed else "all is well")
    return bool(failed)


def _run(family: str, asked: argparse.Namespace) -> bool:
    """Run a family's tests, then its benchmarks; returns whether both went well."""
    end = time.monotonic() + asked.seconds
    well = True
    if asked.skip != "tests":
        files = files_of(family, ROOT / "tests")
        if not files:
            print(f"{family} has no tests", file=sys.stderr)
            well = False
        for name, some, options in (
            (family, [f for f in files if f.name not in _ALONE], _workers()),
            (f"{family}-alone", [f for f in files if f.name in _ALONE], []),
        ):
            if some:
                report = asked.out / f"tests-{name}.xml"
                well &= _tests(some, report, options, asked.seconds * _TESTS_SHARE)
    if asked.skip != "benchmarks":
        for name in FAMILIES[family].benchmarks:
            command = [str(ROOT / "benchmarks" / "run.py"), "--family", name]
            command += ["--commit", asked.commit] if asked.commit else []
            well &= _python(command, end - time.monotonic()) == 0
    return well


def _workers() -> list[str]:
    """Return the options that share tests among processes, where pytest-xdist is there."""
    count = min(os.cpu_count() or 1, _MOST_WORKERS)
    return ["-n", str(count)] if count > 1 and importlib.util.find_spec("xdist") else []


def _tests(files: list[Path], report: Path, options: list[str], seconds: float) -> bool:
    """Run test files, with a report; returns whether all is well."""
    command = ["-m", "pytest", "-m", "cuda and not slow", "-q", *_PLUGINS, *options,
               f"--junitxml={report}", *map(str, files)]  # fmt: skip
    return _python(command, seconds) == 0


def _python(command: Sequence[str], seconds: float) -> int:
    """Run this Python with a command; returns the status, 124 where it took too long."""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    try:
        return subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            timeout=max(seconds, 1.0),
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"stopped after {seconds:.0f} s: {' '.join(command[:3])}", file=sys.stderr)
        return _TIMED_OUT


if __name__ == "__main__":
    sys.exit(main())
