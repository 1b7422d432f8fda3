"""Run one command: time limit, bounded output, the whole process group killed. Judges nothing.

No shell is involved. The environment is a short list of what compilers need, in the C locale, so
that a stray CPATH or a French message does not change what comes out.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from kernelmill.config import child_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from threading import Event

__all__ = ["RunResult", "clean_environment", "run"]

Outcome = Literal["exited", "timeout", "flooded", "cancelled"]

# Variables that a compiler or a wrapper of one needs to work at all.
_KEPT: Final = frozenset(
    {"HOME", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SYSTEMROOT", "USER", "XDG_CACHE_HOME"}
)
# Wrappers read their whole set-up from these; Nix's compiler does not link without its own.
_KEPT_PREFIXES: Final = ("CCACHE_", "DISTCC_", "ICECC_", "NIX_", "SCCACHE_")

_KEEP_BYTES: Final = 256 << 10
_LIMIT_BYTES: Final = 16 << 20
_POLL_MS: Final = 50
_REAP_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a command did.

    `returncode` is negative for a signal, as in `subprocess`, and means nothing unless `outcome`
    is `exited`. `output` is stdout and stderr in one, at most 256 KiB; `dropped` counts the bytes
    beyond.
    """

    command: tuple[str, ...]
    outcome: Outcome
    returncode: int
    output: str
    seconds: float
    dropped: int

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself with status 0."""
        return self.outcome == "exited" and self.returncode == 0


@dataclass(slots=True)
class _Output:
    """What was read so far; `total` also counts what was not kept."""

    kept: bytearray = field(default_factory=bytearray)
    total: int = 0

    def add(self, chunk: bytes) -> None:
        self.total += len(chunk)
        self.kept += chunk[: _KEEP_BYTES - len(self.kept)]


def clean_environment(**changes: str) -> dict[str, str]:
    """Return the environment for a compiler: the few variables it needs, the C locale, `changes`.

    Examples
    --------
    >>> from kernelmill.toolchain.run import clean_environment
    >>> clean_environment()["LC_ALL"]
    'C'
    """
    kept = {
        name: value
        for name, value in child_environment().items()
        if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }
    return {**kept, "LC_ALL": "C", **changes}


def run(
    command: Sequence[str],
    *,
    timeout: float,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    cancel: Event | None = None,
) -> RunResult:
    """Run `command` and wait for its end, for `timeout` seconds at the most.

    The command gets a session of its own. When time is up, when it prints more than 16 MiB, when
    `cancel` is set, and when an exception such as KeyboardInterrupt passes through, the process
    and all that it started are killed.

    Parameters
    ----------
    command
        The program and its arguments; no shell reads them.
    timeout
        Seconds.
    cwd
        The directory to run in.
    environment
        All of the environment; `clean_environment()` by default.
    cancel
        Checked every 50 ms; what a thread sets to stop a run in another one.

    Raises
    ------
    OSError
        The command cannot be started: absent, not executable, not a program.

    Examples
    --------
    >>> from kernelmill.toolchain.run import run
    >>> print(run(["echo", "$HOME"], timeout=10).output, end="")
    $HOME
    """
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=dict(clean_environment() if environment is None else environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output = _Output()
    try:
        outcome = _follow(process, output, start + timeout, cancel)
    finally:
        _end(process)
    return RunResult(
        command=tuple(command),
        outcome=outcome,
        returncode=process.returncode,
        output=output.kept.decode("utf-8", "replace"),
        seconds=time.monotonic() - start,
        dropped=output.total - len(output.kept),
    )


def _follow(
    process: subprocess.Popen[bytes], output: _Output, deadline: float, cancel: Event | None
) -> Outcome:
    """Read until the process has ended, or has to be ended."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    os.set_blocking(pipe, False)
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    is_open = True
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return "timeout"
        if cancel is not None and cancel.is_set():
            return "cancelled"
        wait = min(left, _POLL_MS / 1000)
        if is_open and poller.poll(wait * 1000):
            is_open = _drain(pipe, output)
            if output.total > _LIMIT_BYTES:
                return "flooded"
        elif _has_ended(process, 0 if is_open else wait):
            if is_open:  # a child that lives on holds the pipe: take what is there, wait no more
                _drain(pipe, output)
            return "exited"


def _drain(pipe: int, output: _Output) -> bool:
    """Read what is there without waiting; return False at the end of the stream."""
    while output.total <= _LIMIT_BYTES:
        try:
            chunk = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        output.add(chunk)
    return True


def _has_ended(process: subprocess.Popen[bytes], wait: float) -> bool:
    """Say whether the process has ended, and leave its number taken so that its group is ours."""
    until = time.monotonic() + wait
    pause = 0.0002
    while True:
        try:
            ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return True  # the program that we are part of ignores SIGCHLD: the system collected it
        if ended is not None:
            return True
        left = until - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(pause * 2, 0.01)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the group, then collect the process.

    The process is not collected before, so the number of the group cannot be somebody else's.
    """
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # nothing is left of it
    except PermissionError:
        process.kill()  # a member changed its user (setuid); the leader is still ours
    assert process.stdout is not None
    process.stdout.close()
    # A process in an uninterruptible wait (a dead network disk) cannot be collected now.
    try:
        process.wait(_REAP_SECONDS)
    except subprocess.TimeoutExpired:
        process.returncode = -signal.SIGKILL
