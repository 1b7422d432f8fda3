"""Whole CUDA programs, host code and all: compiled for the emulator, run in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kernelmill.errors import ArgumentError
from kernelmill.runtime.emulator.build import Request, build_program, build_runtime
from kernelmill.runtime.emulator.reports import Report, read_reports
from kernelmill.runtime.emulator.sanitizer import Sanitizer, symbols_for
from kernelmill.runtime.emulator.schedule import current_schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.toolchain.nvrtc import CudaOptions

__all__ = ["ProgramRun", "run_program"]


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """How a program ended; what it wrote is empty where it was not captured.

    `returncode` is what `main` returned, `reports` are the findings of the sanitizer.
    """

    returncode: int
    stdout: str = field(default="", repr=False)
    stderr: str = field(default="", repr=False)
    reports: tuple[Report, ...] = ()


def run_program(
    path: str | Path,
    arguments: Sequence[str] = (),
    *,
    others: Sequence[str | Path] = (),
    options: CudaOptions | None = None,
    capture: bool = False,
    timeout: float | None = None,
    sanitizer: Sanitizer | None = None,
) -> ProgramRun:
    """Compile a `.cu` file with a `main` and run it.

    Parameters
    ----------
    path
        The file; includes are found beside it and in `options.include_dirs`.
    arguments
        What `main` gets behind the name of the program.
    others
        Further files of the program, `.cu` or of the host.
    options
        `contract`, `defines`, `include_dirs` and `std` count.
    capture
        Whether the result holds what the program wrote; else it goes where this process writes.
    timeout
        Seconds after which the program is stopped.
    sanitizer
        How its launches are looked at; None where they are not. What `cudaMalloc` gave counts as
        not yet written.

    Returns
    -------
    ProgramRun
        Kernels that fail say so on stderr, and CUDA's calls return an error from then on.

    Raises
    ------
    ArgumentError
        There is no such file.
    CompileError, NotImplementedHere
        The text cannot be compiled for the emulator.
    subprocess.TimeoutExpired
        It took longer.
    """
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ArgumentError(f"cannot read {source}: {error.strerror}") from error
    found = options.include_dirs if options else ()
    request = Request(
        text,
        source.name,
        include_dirs=(source.resolve().parent, *(Path(d) for d in found)),
        defines=options.defines if options else (),
        contract=options.contract if options else True,
        program=True,
        others=tuple(Path(other) for other in others),
        std=options.std if options else "c++17",
        sanitize=sanitizer is not None,
    )
    with tempfile.TemporaryDirectory(prefix="kernelmill-") as name:
        report = Path(name) / "reports"
        settings = Path(name) / "settings.json"
        library = build_program(request).path
        settings.write_text(json.dumps(_settings(library, report, sanitizer)))
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "kernelmill.runtime.emulator.child",
                str(settings),
                str(source),
                *arguments,
            ],
            check=False,
            capture_output=capture,
            text=True,
            timeout=timeout,
        )
        reports = []
        if report.exists():
            texts = {source.name: text}
            reports = read_reports(report, library, list(texts), {}, texts)
    return ProgramRun(done.returncode, done.stdout or "", done.stderr or "", tuple(reports))


def _settings(library: Path, report: Path, sanitizer: Sanitizer | None) -> dict[str, object]:
    schedule = current_schedule()
    found: dict[str, object] = {
        "library": str(library),
        "runtime": str(build_runtime(sanitize=sanitizer is not None)),
        "schedule": (schedule.order, schedule.seed, schedule.blocks, schedule.patience),
    }
    if sanitizer is not None:
        found["report"] = str(report)
        found["checks"] = sanitizer.settings()
        found["symbols"] = symbols_for(library)
    return found
