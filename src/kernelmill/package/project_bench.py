"""`kernelmill bench`: a project's benchmarks against what was built, and where results are kept."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from kernelmill.config import child_environment
from kernelmill.errors import PackageError
from kernelmill.package.metadata import read_metadata
from kernelmill.package.whole_file import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from kernelmill.package.matrix import Project

__all__ = ["Result", "bench", "results_path"]

_SECONDS: Final = 1800.0


@dataclass(frozen=True, slots=True)
class Result:
    """One benchmark: seconds a call, and how far its result is from the one wanted.

    `difference` is a share of the largest value, None where nothing verifies the result.
    """

    file: str
    benchmark: str
    iterations: int
    median: float
    least: float
    mean: float
    difference: float | None
    passed: bool


def results_path(variant: Path) -> Path:
    """Return where the results of a variant are kept: beside it, so that its digest stays."""
    return variant.with_name(f"{variant.name}.benchmarks.json")


def bench(project: Project, variant: Path, *, warmup: int, iterations: int) -> tuple[Result, ...]:
    """Run `benchmarks/benchmark*.py`, each in a process of its own, and keep the results.

    Raises
    ------
    PackageError
        There are none, or one fails; what it wrote is on stderr already.
    """
    files = sorted((project.root / "benchmarks").glob("benchmark*.py"))
    if not files:
        raise PackageError(
            f"there are no benchmarks in {project.root / 'benchmarks'}",
            hint="a file benchmark_NAME.py with a class NAMEBenchmark is one",
        )
    found: list[Result] = []
    gpu = ""
    for file in files:
        rows, gpu = _run(file, variant, warmup=warmup, iterations=iterations)
        found += [Result(file.name, **row) for row in rows]
    metadata = read_metadata(variant)
    machine = {"cpu": platform.processor() or platform.machine(), "gpu": gpu}
    record = {
        "kernel": metadata.name,
        "version": metadata.semantic_version or str(metadata.version),
        "id": metadata.id,
        "variant": variant.name,
        "machine": machine | {"python": platform.python_version(), "system": platform.platform()},
        "results": [asdict(result) for result in found],
    }
    replace_file(results_path(variant), json.dumps(record, indent=2) + "\n")
    return tuple(found)


def _run(
    file: Path, variant: Path, *, warmup: int, iterations: int
) -> tuple[list[dict[str, Any]], str]:  # Any: JSON
    asked = {"file": str(file), "variant": str(variant), "warmup": warmup, "iterations": iterations}
    command = [sys.executable, "-B", "-m", "kernelmill.package.bench_child", json.dumps(asked)]
    try:
        done = subprocess.run(
            command,
            cwd=file.parent.parent,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            env=child_environment(),
        )
    except subprocess.TimeoutExpired:
        raise PackageError(f"{file.name} did not end within {_SECONDS:.0f} s") from None
    lines = [line[1:] for line in done.stdout.split("\n") if line.startswith("\x1e")]
    if done.returncode or not lines:
        raise PackageError(f"{file.name} failed: it ended with status {done.returncode}")
    answer = json.loads(lines[-1])
    return answer["rows"], answer["gpu"]
