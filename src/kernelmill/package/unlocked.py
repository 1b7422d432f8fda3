"""Locks on files that stay, and what is said once where a file system has no locks.

Locks whose files go with them, and temporary directories, are `cache/lock.py`'s.
"""

from __future__ import annotations

import fcntl
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kernelmill import events
from kernelmill.errors import CacheWarning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["locked_file", "say_unlocked"]

_said: Final[set[Path]] = set()


@contextmanager
def locked_file(path: Path, consequence: str) -> Iterator[None]:
    """Hold an exclusive lock on a file inside a `with` block; it is made if absent, and stays.

    Where the file system has no locks, the block runs all the same, and `consequence` is said.

    Raises
    ------
    OSError
        The file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            say_unlocked(path.parent, f"{consequence} ({(error.strerror or str(error)).lower()})")
        yield


def say_unlocked(directory: Path, consequence: str) -> None:
    """Warn, once for a directory in a process, that files in it cannot be locked."""
    if directory in _said:
        return
    _said.add(directory)
    file, line = events.caller()
    text = f"files in {directory} cannot be locked: {consequence}"
    warnings.warn_explicit(text, CacheWarning, file or __file__, line or 1)
