"""A trial import in another process: what raises, exits, crashes or hangs there does no harm."""

from __future__ import annotations

import contextlib
import os
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
from kernelmill import hub
hub.get_local_kernel(sys.argv[1])
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
    # A session of its own, so that what the kernel starts is ended with it.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            out, said = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return Check("import", holds=False, text=f"it did not end within {timeout:g} s")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode == 0 and out.endswith("imported"):
        return Check("import", holds=True, text="in a process of its own")
    return Check("import", holds=False, text=_reason(process.returncode, said))


def _reason(status: int, said: str) -> str:
    if status < 0:
        return f"the process was ended by {signal.Signals(-status).name}"
    lines = [line for line in said.splitlines() if line.startswith("kernelmill.errors.")]
    if status == 1 and lines:
        return lines[-1].partition(": ")[2][:_SAID]
    return f"the process exited with status {status}: {said.strip()[-_SAID:]}"
