"""A trial import in another process: what raises, exits, crashes or hangs there does no harm."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from kernelmill.package.inspect_variant import Check

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["try_import"]

_PROGRAM: Final = """
import faulthandler, sys
faulthandler.enable()
from kernelmill.package.load import load, read_candidate, verify_digest
load(read_candidate(sys.argv[1]), verify=verify_digest)
sys.stdout.write("imported")
sys.stdout.flush()
"""
_SAID: Final = 300


def try_import(directory: Path, *, timeout: float = 60.0) -> Check:
    """Import a variant in a process of its own.

    Parameters
    ----------
    directory
        The variant's directory.
    timeout
        Seconds after which the process is killed.

    Returns
    -------
    Check
        Whether the import ended well, and in which way it did not.
    """
    command = [sys.executable, "-c", _PROGRAM, str(directory)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return Check("import", holds=False, text=f"it did not end within {timeout:g} s")
    if done.returncode == 0 and done.stdout.endswith("imported"):
        return Check("import", holds=True, text="in a process of its own")
    return Check("import", holds=False, text=_reason(done.returncode, done.stderr))


def _reason(status: int, said: str) -> str:
    if status < 0:
        return f"the process was ended by {signal.Signals(-status).name}"
    lines = [line for line in said.splitlines() if line.startswith("kernelmill.errors.")]
    if status == 1 and lines:
        return lines[-1].partition(": ")[2][:_SAID]
    return f"the process exited with status {status}: {said.strip()[-_SAID:]}"
