"""Whole CUDA programs, host code and all: compiled for the emulator, run in a child process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kernelmill.errors import ArgumentError
from kernelmill.runtime.emulator.build import Request, build_program
from kernelmill.runtime.emulator.schedule import current_schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.toolchain.nvrtc import CudaOptions

__all__ = ["run_program"]


def run_program(
    path: str | Path,
    arguments: Sequence[str] = (),
    *,
    options: CudaOptions | None = None,
    capture: bool = False,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Compile a `.cu` file with a `main` and run it.

    Parameters
    ----------
    path
        The file; includes are found beside it and in `options.include_dirs`.
    arguments
        What `main` gets behind the name of the program.
    options
        `contract`, `defines`, `include_dirs` and `std` count.
    capture
        Whether the result holds what the program wrote; else it goes where this process writes.
    timeout
        Seconds after which the program is stopped.

    Returns
    -------
    subprocess.CompletedProcess
        Its `returncode` is what `main` returned; kernels that fail say so on stderr, and CUDA's
        calls return an error from then on.

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
        text = source.read_text(encoding="utf-8")
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
        std=options.std if options else "c++17",
    )
    built = build_program(request)
    schedule = current_schedule()
    settings = (schedule.order, schedule.seed, schedule.blocks, schedule.patience)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "kernelmill.runtime.emulator.child",
            str(built.path),
            *map(str, settings),
            str(source),
            *arguments,
        ],
        check=False,
        capture_output=capture,
        text=True,
        timeout=timeout,
    )
