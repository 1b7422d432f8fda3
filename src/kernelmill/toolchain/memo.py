"""Small facts about programs, remembered on disk from one process to the next. Knows no compiler.

A memo saves time and is never needed: what cannot be read, is damaged, or could have been written
by somebody else counts as absent.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import stat
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FileStamp", "memo_key", "own_directory", "recall", "remember", "stamp"]

_logger = logging.getLogger("kernelmill")
_LIMIT_BYTES: Final = 64 << 10
# O_NONBLOCK: opening a FIFO that was put there must not wait for its writer.
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

FileStamp = tuple[str, int, int]


def stamp(path: str) -> FileStamp | None:
    """Return what tells one state of a file from another: real path, size and mtime in ns.

    None where there is no such file.
    """
    real = os.path.realpath(path)
    try:
        status = os.stat(real)  # noqa: PTH116 - on the path of every first call: no Path is made
    except OSError:
        return None
    return real, status.st_size, status.st_mtime_ns


def memo_key(*parts: object) -> str:
    """Return a file name for the facts about `parts`, which JSON can write."""
    return _digest(json.dumps(parts))


def recall(directory: Path, key: str, *, max_age: float | None = None) -> dict[str, object] | None:
    """Return what was remembered under `key`, or None.

    Parameters
    ----------
    directory
        Where memos are kept.
    key
        From `memo_key`.
    max_age
        Seconds; an older memo counts as absent.
    """
    try:
        raw = _read(directory / f"{key}.json", max_age)
        memo = json.loads(raw)
        facts, seal = memo["facts"], memo["seal"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if seal != _digest(json.dumps([key, facts])) or not isinstance(facts, dict):
        return None
    return facts


def remember(directory: Path, key: str, facts: dict[str, object]) -> None:
    """Keep `facts` under `key`; where that is not possible, a debug message says so."""
    text = json.dumps({"facts": facts, "seal": _digest(json.dumps([key, facts]))})
    aside = directory / f".{key}.{os.getpid()}-{time.monotonic_ns()}"
    try:
        own_directory(directory)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        aside.replace(directory / f"{key}.json")
    except OSError as error:
        _logger.debug("no memo is kept in %s: %s", directory, error)
        with contextlib.suppress(OSError):
            aside.unlink()


def own_directory(directory: Path) -> Path:
    """Make `directory` and the one above it for this user alone, and return it.

    Raises
    ------
    OSError
        It cannot be made, or somebody else could write in one of the two.
    """
    for place in (directory.parent, directory):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = place.lstat()
        if (
            not stat.S_ISDIR(status.st_mode)
            or status.st_uid != os.geteuid()
            or status.st_mode & _OTHERS_WRITE
        ):
            raise PermissionError(errno.EACCES, "it is not a directory of this user alone", place)
    return directory


def _read(path: Path, max_age: float | None) -> bytes:
    """Read a memo that is a plain file of this user alone; ValueError if it is not."""
    descriptor = os.open(path, _OPEN)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_uid != os.geteuid()
            or status.st_mode & _OTHERS_WRITE
            or status.st_size > _LIMIT_BYTES
            or (max_age is not None and time.time() - status.st_mtime > max_age)
        ):
            raise ValueError(path)
        return file.read(_LIMIT_BYTES)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
