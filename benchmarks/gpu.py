"""`make gpu`: the tests that need a GPU, and a family's benchmarks, on a machine that may be bare.

Reports and the results file of the GPU are left in one directory, to be carried home from there:
after each family, so that a machine that is taken away takes one family at most. Nothing is
fetched; what is measured is in `cuda_*.py`, what a results file is in `results.py`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import cuda_timing
import results

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

__all__ = ["FAMILIES", "Family", "files_of", "main"]

ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Family:
    """What belongs together: patterns of test files below `tests/`, and benchmarks."""

    tests: tuple[str, ...]
    benchmarks: tuple[str, ...]

    @property
    def tests_share(self) -> float:
        """Of the seconds that it may take, those that its tests may."""
        return _TESTS_SHARE if self.benchmarks else _BUDGET


FAMILIES: Final = {
    "runtime": Family(("cuda/test_*.py",), ("cuda_host", "cuda_first_call")),
    "transform": Family(
        ("cuda/test_transform*.py", "cpu/test_transform*.py", "cpu/test_captures.py",
         "cpu/test_guarded.py", "cpu/test_concurrency.py"),
        ("cuda_transform",),
    ),
    "reduce": Family(
        ("cuda/test_reduce*.py", "cpu/test_reduce*.py", "cpu/test_extremes.py"), ("cuda_reduce",)
    ),
    "scan": Family(("cuda/test_scan*.py", "cpu/test_scan*.py"), ("cuda_scan",)),
    "select": Family(
        ("cuda/test_select*.py", "cpu/test_select*.py", "cpu/test_unique*.py"), ("cuda_select",)
    ),
    "histogram": Family(("cpu/test_histogram.py",), ("cuda_histogram",)),
    "search": Family(("cpu/test_search.py",), ("cuda_search",)),
    "segmented": Family(("cpu/test_segmented.py",), ("cuda_segmented",)),
    "sort": Family(("cuda/test_sort*.py", "cpu/test_sort.py"), ("cuda_sort",)),
    "merge": Family(("cuda/test_merge*.py", "cpu/test_sorted.py"), ("cuda_merge",)),
    "gpumode": Family(("cpu/test_gpumode.py",), ("gpumode",)),
    "kernels": Family(
        ("cuda/test_kernel*.py", "cuda/test_examples*.py"), ("cuda_kernels",)
    ),
    "operators": Family(
        ("cuda/test_captured_arrays.py", "cuda/test_raw.py", "cpu/test_captured_arrays.py",
         "cpu/test_raw*.py"),
        (),
    ),
    "iterators": Family(("cpu/test_iterator*.py", "cpu/test_feeds.py"), ()),
    "capabilities": Family(
        ("cpu/test_capabilities.py", "cpu/test_family_properties.py", "cpu/test_far_indices.py",
         "cpu/test_bad_input.py"),
        (),
    ),
}  # fmt: skip
# Its pattern fits all files; those of another family are left to that.
_THE_REST: Final = "runtime"
# Tests that time the host, or ask for all memory: nothing runs beside them. The others are shared
# by so many processes, where pytest can do that.
_ALONE: Final = frozenset(("test_host_time.py", "test_memory_full.py"))
_MOST_WORKERS: Final = 12
_PLUGINS: Final = ("-p", "no:cacheprovider", "-p", "no:benchmark")
# Of the seconds that a family may take, those that its tests may where there are benchmarks too; of
# those that either may take alone, those after which none begins.
_TESTS_SHARE: Final = 0.5
_BUDGET: Final = 0.9
_LEAST: Final = 5.0
# Seconds in which what has to end writes down what it has.
_GRACE: Final = 15.0
_TIMED_OUT: Final = 124
_ALL: Final = "all"


def files_of(family: str, tests: Path) -> list[Path]:
    """Return the test files of a family."""
    found = {path for pattern in FAMILIES[family].tests for path in tests.glob(pattern)}
    if family == _THE_REST:
        for other in FAMILIES.keys() - {family}:
            found -= set(files_of(other, tests))
    return sorted(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 where all that was asked for is well."""
    asked, chosen = _asked(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _ended)
    end = None if asked.total is None else time.monotonic() + asked.total
    failed = []
    for number, name in enumerate(chosen):
        seconds = asked.seconds
        if end is not None:
            seconds = min(seconds, (end - time.monotonic()) / (len(chosen) - number))
        if seconds < _LEAST:
            print(f"{name}: no time is left of {asked.total:g} s", file=sys.stderr)
            failed.append(name)
            continue
        start = time.monotonic()
        well = _run(name, asked, seconds)
        failed += [] if well else [name]
        _carry(asked.out)
        took = time.monotonic() - start
        print(f"{name}: {'well' if well else 'FAILED'} after {took:.0f} s", file=sys.stderr)
    print(f"failed: {', '.join(failed)}" if failed else "all is well")
    return bool(failed)


def _asked(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Read the command line; returns it, and the families in the order in which they run."""
    parser = argparse.ArgumentParser(prog="benchmarks/gpu.py", description=__doc__)
    parser.add_argument(
        "family", nargs="*", help=f"{', '.join(FAMILIES)}; all, which is also the default"
    )
    parser.add_argument("--out", type=Path, required=True, help="where reports and results go")
    parser.add_argument("--seconds", type=float, default=480, help="that a family may take")
    parser.add_argument("--total", type=float, help="seconds that all together may take")
    parser.add_argument("--commit", default="", help="of a tree that was copied without history")
    parser.add_argument("--skip", choices=("tests", "benchmarks"), help="what not to run")
    asked = parser.parse_args(arguments)
    words = [word for text in asked.family for word in text.replace(",", " ").split()]
    unknown = [name for name in words if name not in FAMILIES and name != _ALL]
    if unknown:
        parser.error(f"there is no family {unknown[0]!r}; families: {', '.join(FAMILIES)}")
    reason = cuda_timing.absent()
    if reason:
        print(f"nothing was run, since it needs an NVIDIA GPU: {reason}", file=sys.stderr)
        raise SystemExit(2)
    every = not words or _ALL in words
    return asked, list(FAMILIES) if every else list(dict.fromkeys(words))


def _ended(number: int, _: FrameType | None) -> NoReturn:
    """End what runs, with this."""
    raise SystemExit(128 + number)


def _carry(out: Path) -> None:
    """Copy the results as they are to where they are carried home from."""
    name = _machine_name()
    kept = results.place(name=name)
    if name and kept.exists():
        shutil.copy(kept, out / kept.name)


@once
def _machine_name() -> str:
    """Ask another process what the GPU is called: with a context here, its memory is not all free.

    Returns "" where that process finds none.
    """
    text = "import cuda_timing, results; print(results.machine_name(cuda_timing.machine()))"
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=Path(__file__).parent,
        env=_environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def _environment() -> dict[str, str]:
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _run(family: str, asked: argparse.Namespace, seconds: float) -> bool:
    """Run a family's tests, then its benchmarks; returns whether both went well."""
    end = time.monotonic() + seconds
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
                well &= _tests(some, report, options, seconds * FAMILIES[family].tests_share)
    if asked.skip != "benchmarks":
        names = FAMILIES[family].benchmarks
        for number, name in enumerate(names):
            left = (end - time.monotonic()) / (len(names) - number)
            command = [str(ROOT / "benchmarks" / "run.py"), "--family", name]
            command += ["--budget", f"{max(left * _BUDGET, 1.0):.0f}"]
            command += ["--commit", asked.commit] if asked.commit else []
            well &= _python(command, left) == 0
    return well


def _workers() -> list[str]:
    """Return the options that share tests among processes, where pytest-xdist is there."""
    count = min(os.cpu_count() or 1, _MOST_WORKERS)
    return ["-n", str(count)] if count > 1 and importlib.util.find_spec("xdist") else []


def _tests(files: list[Path], report: Path, options: list[str], seconds: float) -> bool:
    """Run test files, with a report; returns whether all is well."""
    command = ["-m", "pytest", "-m", "cuda and not slow", "-q", *_PLUGINS, *options,
               f"--junitxml={report}", *map(str, files)]  # fmt: skip
    return _python(command, seconds, signal.SIGINT) == 0


def _python(command: Sequence[str], seconds: float, ends: signal.Signals = signal.SIGTERM) -> int:
    """Run this Python with a command; returns the status, 124 where it took too long.

    It is asked to end by the signal at which it writes down what it has, then given some time.
    """
    child = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env=_environment(),
        start_new_session=True,  # so that all its processes can be ended
    )
    try:
        return child.wait(max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        print(f"stopped after {seconds:.0f} s: {' '.join(command[:3])}", file=sys.stderr)
        return _TIMED_OUT
    finally:
        _end(child, ends)


def _end(child: subprocess.Popen[bytes], ends: signal.Signals) -> None:
    """See to it that nothing of a child is left."""
    if child.poll() is None:
        child.send_signal(ends)
        with suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


if __name__ == "__main__":
    sys.exit(main())
