"""The parent's side of the nursery: the process it keeps, and the memory that both see."""

from __future__ import annotations

import atexit
import ctypes
import mmap
import os
import select
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Memory", "Nursery"]

# So much memory is kept for the next launch: to get it anew takes longer than the copies into it.
_MOST_KEPT: Final = 64 << 20
# Seconds that it may take to end.
_PATIENCE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a job: its address here, and the descriptor that the nursery knows it by.

    Where that is below 0, the memory is the file `memory` in the job's folder.
    """

    base: int
    number: int


class Nursery:
    """A process that forks a child for each job, so that a launch does not start an interpreter.

    Parameters
    ----------
    runtime
        The library of the runtime that looks on.
    """

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        self.lock = threading.RLock()
        self._kept = os.memfd_create("kernelmill") if hasattr(os, "memfd_create") else -1
        self._map: mmap.mmap | None = None
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "kernelmill.runtime.emulator.nursery",
                str(runtime),
                str(self._kept),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[self._kept] if self._kept >= 0 else [],
        )
        atexit.register(self.close)

    @property
    def is_alive(self) -> bool:
        """Whether it takes jobs."""
        return self._process.poll() is None

    @contextmanager
    def memory(self, size: int, folder: Path) -> Iterator[Memory]:
        """Give memory for a job: what is kept, where that may be large enough, or a file."""
        if size <= _MOST_KEPT and self._kept >= 0:
            if self._map is None or len(self._map) < size:
                self._map = None  # before the longer one is made
                os.ftruncate(self._kept, size)
                self._map = mmap.mmap(self._kept, size)
            yield Memory(_address(self._map), self._kept)
            return
        with (folder / "memory").open("w+b") as file:
            file.truncate(size)
            mapped = mmap.mmap(file.fileno(), size)
        yield Memory(_address(mapped), -1)

    def run(self, folder: Path, size: int, timeout: float) -> int | None:
        """Return the status that the child for a folder ended with; None when it took too long.

        `size` is that of the memory; the next child makes itself ready for one like it.
        """
        asked, answer = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answer is not None
        try:
            kept = size if size <= _MOST_KEPT else 0
            asked.write(f"{kept} {folder}\n".encode())
            asked.flush()
        except BrokenPipeError:
            return 1
        try:
            if not select.select([answer], [], [], timeout)[0]:
                self.close()
                return None
        except BaseException:  # KeyboardInterrupt: the next job must not get this one's answer
            self.close()
            raise
        return int(answer.readline() or b"1")

    def close(self) -> None:
        """End it, and the child that it waits for."""
        if self.is_alive:
            self._process.terminate()  # it ends its child first
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._kept >= 0:
            os.close(self._kept)
            self._kept = -1


def _address(mapped: mmap.mmap) -> int:
    """Return where it begins, which stays its place as long as it lives."""
    return ctypes.addressof(ctypes.c_char.from_buffer(mapped))
