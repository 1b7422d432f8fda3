"""Locks between processes, and temporary directories that a dead owner cannot leave for ever.

A lock is `flock` on a file: the kernel lets go of it however its holder ends, so nothing here asks
whether a process number is still alive (in a container that answer is wrong). What a lock protects
is not known here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

__all__ = ["Workspace", "hold", "lock_descriptor", "sweep"]

_LOCK: Final = ".lock"
_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.02
_ORPHAN_SECONDS: Final = 86400.0  # for a directory without a lock file: made by hand, or no flock
_OPEN_SECONDS: Final = 5.0
_BUSY: Final = frozenset({errno.EWOULDBLOCK, errno.EACCES})


@contextmanager
def hold(path: Path, timeout: float) -> Iterator[bool]:
    """Hold the lock file `path` inside a `with` block; the file is removed at its end.

    Parameters
    ----------
    path
        Made if absent; its directory must exist.
    timeout
        Seconds to wait for another holder, a thread of this process included.

    Yields
    ------
    bool
        False when the lock could not be had in time, or not at all on this file system. The
        caller decides whether it goes on without.
    """
    descriptor = _acquire(path, timeout)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _release(path, descriptor)


def lock_descriptor(descriptor: int, timeout: float) -> bool:
    """Wait at most `timeout` seconds for an exclusive lock on an open file; return whether held.

    Raises
    ------
    OSError
        The file system has no locks.
    """
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _BUSY:
                raise
        else:
            return True
        rest = deadline - time.monotonic()
        if rest <= 0:
            return False
        time.sleep(min(pause, rest))
        pause = min(2 * pause, _LONGEST_PAUSE)


def _acquire(path: Path, timeout: float) -> int | None:
    """Return an open, locked descriptor of the file that is at `path` now."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return None  # a directory that cannot be written; whoever writes there next will say so
        try:
            if not lock_descriptor(descriptor, max(0.0, deadline - time.monotonic())):
                os.close(descriptor)
                return None
            # The holder before us removed the file when it was done; a lock on a file that has no
            # name any more keeps nobody out.
            if _is_at(path, descriptor):
                return descriptor
        except OSError:  # a file system without locks, where the file serves nobody
            _unlink(path)
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - the system call
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(descriptor))


def _unlink(path: Path) -> None:
    with suppress(OSError):  # removed by hand, or a directory that became read-only: no harm
        os.unlink(path)  # noqa: PTH108 - the system call


def _release(path: Path, descriptor: int) -> None:
    _unlink(path)
    # A process that was forked meanwhile has the descriptor too: closing ours would not unlock.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


class Workspace:
    """A temporary directory with a lock beside it for as long as its owner lives.

    Leaving the `with` block, or `close()`, removes the directory and all in it. `sweep` removes
    those whose owner died before it could.

    Raises
    ------
    OSError
        The directory cannot be made in `parent`.
    """

    __slots__ = ("_descriptor", "_lock", "_owner", "path")

    def __init__(self, parent: Path, prefix: str = "") -> None:
        name = f"{prefix}{os.urandom(8).hex()}"
        self.path = parent / name
        self._owner = os.getpid()
        self._lock = parent / f"{name}{_LOCK}"
        # First the lock, then the directory, so that a sweep never meets a live directory whose
        # lock is still to come. (Where files cannot be locked, no sweep can lock them either.)
        self._descriptor = _acquire(self._lock, _OPEN_SECONDS)
        try:
            os.mkdir(self.path, 0o700)  # noqa: PTH102
        except OSError:
            self._unlock()
            raise

    def close(self) -> None:
        """Remove the directory; in a forked child, which does not own it, do nothing."""
        if os.getpid() == self._owner:
            remove_tree(self.path)
            self._unlock()

    def _unlock(self) -> None:
        if self._descriptor is not None:
            _release(self._lock, self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def sweep(parent: Path, prefix: str = "") -> int:
    """Remove what dead owners left in `parent`: workspaces with their locks, and bare locks.

    Only names that begin with `prefix` and belong to this user are touched.

    Returns
    -------
    int
        How many workspaces and bare locks went.
    """
    try:
        with os.scandir(parent) as listing:
            mine = [
                (item.name, item.stat(follow_symlinks=False))
                for item in listing
                if item.name.startswith(prefix)
            ]
    except OSError:
        return 0  # absent, or emptied under our eyes
    user = os.geteuid()
    names = {name for name, status in mine if status.st_uid == user}
    locked = {name.removesuffix(_LOCK) for name in names if name.endswith(_LOCK)}
    # Without a lock only age tells; where files can be locked it means that the owner is dead too.
    old = time.time() - _ORPHAN_SECONDS
    orphans = {
        name
        for name, status in mine
        if name in names - locked and not name.endswith(_LOCK) and status.st_mtime < old
    }
    for name in orphans:
        remove_tree(parent / name)
    return len(orphans) + sum(_sweep_locked(parent, name) for name in sorted(locked))


def _sweep_locked(parent: Path, name: str) -> int:
    with hold(parent / f"{name}{_LOCK}", 0.0) as dead:
        if dead:
            remove_tree(parent / name)
        return int(dead)


def remove_tree(path: Path) -> None:
    """Remove a directory and all in it; what cannot be removed stays for the next sweep."""
    import shutil  # noqa: PLC0415 - 2 ms that a process which only reads the cache does not pay

    shutil.rmtree(path, ignore_errors=True)
