"""The size cap of a store: what it holds, and which entries go when that is too much.

An entry's time of use is its directory's mtime, set at every hit. The sum of sizes is kept in the
file `usage`, so that a build costs no scan; a scan corrects it whenever it is above the cap.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelmill.cache.lock import Workspace, lock_descriptor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Cap", "StoredEntry", "mark_used", "scan"]

_BLOCK: Final = 4096  # what a file occupies is a multiple of it
_DIGITS: Final = 20
_NOTHING: Final = (FileNotFoundError, NotADirectoryError, PermissionError)
_USAGE_SECONDS: Final = 5.0
# Down to this share of the cap, so that the next builds do not scan again.
_KEEP_NUMERATOR: Final = 9
_KEEP_DENOMINATOR: Final = 10


@dataclass(frozen=True, slots=True, order=True)
class StoredEntry:
    """One entry of a store: when it was last used (ns since the epoch), its name and its bytes."""

    used: int
    key: str
    bytes: int


def scan(entries: Path) -> list[StoredEntry]:
    """Return what is in the directory `entries`, the least recently used first."""
    return sorted(_scanned(entries))


def _scanned(entries: Path) -> Iterator[StoredEntry]:
    with suppress(*_NOTHING), os.scandir(entries) as listing:
        for item in listing:
            # Another process may remove an entry between any two of these calls.
            with suppress(*_NOTHING):
                used = item.stat(follow_symlinks=False).st_mtime_ns
                yield StoredEntry(used, item.name, entry_bytes(item.path))


def entry_bytes(entry: str | Path) -> int:
    """Return what an entry occupies on the disk, its directory included."""
    total = _BLOCK
    with suppress(*_NOTHING), os.scandir(entry) as files:
        for file in files:
            total += -(-file.stat(follow_symlinks=False).st_size // _BLOCK) * _BLOCK
    return total


def mark_used(entry: Path) -> None:
    """Make `entry` the most recently used one."""
    now = time.time_ns()  # the kernel's own "now" has the grain of a timer tick, 4 ms
    with suppress(OSError):  # read-only, or gone: then there is nothing to keep
        os.utime(entry, ns=(now, now))


class Cap:
    """Keeps one store at or below `max_bytes`.

    Parameters
    ----------
    store
        The directory that holds `entries`, `locks`, `tmp` and `usage`.
    max_bytes
        The cap.
    grace
        Seconds after its last use in which an entry stays whatever its size: a process may have
        its path and not have loaded it yet.
    """

    __slots__ = ("_grace", "_max_bytes", "_rest_until", "_store")

    def __init__(self, store: Path, max_bytes: int, grace: float) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._grace = grace
        self._rest_until = 0.0

    def added(self, key: str) -> None:
        """Count the new entry `key`; when the store is above the cap, remove the oldest others."""
        size = entry_bytes(self._store / "entries" / key)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(self._store / "usage", flags, 0o600)
        except OSError:
            self._within_cap(key, self._scanned_sum())
            return
        try:
            # One lock around sum and eviction: what others add meanwhile is counted after it, so
            # the sum may be too high, which the next scan mends, but never too low.
            if _locked(descriptor):
                known = _read_number(descriptor)
                usage = self._scanned_sum() if known is None else known + size
                _write_number(descriptor, self._within_cap(key, usage))
        finally:
            os.close(descriptor)

    def reset(self) -> None:
        """Forget the sum, after entries were removed by other means; the next build scans."""
        with suppress(OSError):
            os.truncate(self._store / "usage", 0)

    def _scanned_sum(self) -> int:
        return sum(entry.bytes for entry in scan(self._store / "entries"))

    def _within_cap(self, kept: str, usage: int) -> int:
        """Evict if `usage` is above the cap; return the sum after that."""
        if usage <= self._max_bytes or time.monotonic() < self._rest_until:
            return usage
        found = scan(self._store / "entries")
        total = sum(entry.bytes for entry in found)
        target = self._max_bytes * _KEEP_NUMERATOR // _KEEP_DENOMINATOR
        fresh = time.time_ns() - int(self._grace * 1e9)
        with Workspace(self._store / "tmp") as grave:
            for entry in found if total > self._max_bytes else ():
                if total <= target:
                    break
                if entry.key != kept and entry.used <= fresh and self._remove(entry.key, grave):
                    total -= entry.bytes
        if total > self._max_bytes:
            self._rest_until = time.monotonic() + self._grace
        return total

    def _remove(self, key: str, grave: Workspace) -> bool:
        """Take an entry away in one step: a reader sees all of it or none.

        A process that loaded a library from it keeps the file, which has only lost its name.
        """
        try:
            os.rename(self._store / "entries" / key, grave.path / key)  # noqa: PTH104
        except OSError:
            return False
        return True


def _locked(descriptor: int) -> bool:
    """Lock the sum; another process may be evicting for as long as it takes to scan."""
    try:
        return lock_descriptor(descriptor, _USAGE_SECONDS)
    except OSError:
        return True  # no locks here: a sum may be lost, and the next scan mends it


def _read_number(descriptor: int) -> int | None:
    text = os.pread(descriptor, _DIGITS + 1, 0).strip()
    return int(text) if text.isdigit() and len(text) <= _DIGITS else None


def _write_number(descriptor: int, number: int) -> None:
    with suppress(OSError):  # a full disk: the sum is wrong until the next scan
        os.pwrite(descriptor, f"{number:<{_DIGITS}}\n".encode(), 0)
