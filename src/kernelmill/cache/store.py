"""`Store`: one directory of bundles by key, and how an entry comes into it whole or not at all.

What is in a bundle is `bundle.py`'s, locks and temporary directories are `lock.py`'s, the size cap
is `eviction.py`'s; which directory to trust, and what to do when it fails, is `disk.py`'s.

::

    entries/<key>/    one bundle each, renamed into place
    locks/<key>.lock  held by whoever builds that key
    tmp/<random>/     where it is built and written, with <random>.lock beside it
    usage             the sum of the entries' sizes
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kernelmill.cache.bundle import Bundle, read_bundle, write_bundle
from kernelmill.cache.eviction import Cap, mark_used, scan
from kernelmill.cache.lock import Workspace, hold, sweep
from kernelmill.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Fault", "Miss", "Removed", "Store", "words"]

ABSENT: Final = "absent"
_ATTEMPTS: Final = 10
_PROBE_BYTES: Final = 1 << 20
# These say that this process or machine is short of something, and nothing of the entry.
_SHORTAGE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_OCCUPIED: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})


@dataclass(frozen=True, slots=True)
class Miss:
    """No entry that can be used; `reason` is "absent" or what is wrong with the one there."""

    reason: str

    @property
    def corrupt(self) -> bool:
        """Whether there is an entry, and it is not whole."""
        return self.reason != ABSENT


@dataclass(frozen=True, slots=True)
class Fault:
    """The store cannot be written; `bundle` is what had been built by then."""

    reason: str
    bundle: Bundle | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """What `Store.clear` removed."""

    entries: int
    bytes: int
    leftovers: int


def words(error: OSError) -> str:
    """Return what the system said, without the number."""
    reason = (error.strerror or str(error)).lower()
    return f"{reason} ({error.filename})" if error.filename else reason


class Store:
    """The directory `path`.

    Parameters
    ----------
    path
        Its parent must exist and be trusted.
    max_bytes
        The cap on disk space; None for none.
    grace
        Seconds after its last use in which an entry is never evicted.
    """

    __slots__ = ("_cap", "_swept", "path")

    def __init__(self, path: Path, max_bytes: int | None = None, grace: float = 0.0) -> None:
        self.path = path
        self._cap = None if max_bytes is None else Cap(path, max_bytes, grace)
        self._swept = False

    def entry(self, key: str) -> Path:
        """Return the directory of the entry `key`, whether it is there or not."""
        return self.path / "entries" / key

    def prepare(self) -> None:
        """Make the directories, for this user alone.

        Raises
        ------
        OSError
            They cannot be made.
        """
        for directory in (self.path, *(self.path / name for name in ("entries", "locks", "tmp"))):
            directory.mkdir(mode=0o700, exist_ok=True)

    def read(self, key: str) -> Bundle | Miss:
        """Read and verify the entry `key`, and mark it used.

        What is wrong with it counts only if it is wrong twice: between two files another process
        may have evicted or replaced the entry.
        """
        entry = self.entry(key)
        reason = ABSENT
        for _ in range(2):
            try:
                bundle = read_bundle(entry, key=key)
            except FileNotFoundError:
                return Miss(ABSENT)
            except ArgumentError as error:
                reason = error.message
            except OSError as error:
                if error.errno in _SHORTAGE:
                    raise
                reason = words(error)
            else:
                mark_used(entry)
                return bundle
        return Miss(reason)

    def obtain(
        self,
        key: str,
        build: Callable[[Path], Bundle],
        lock_timeout: float,
        notices: list[str],
    ) -> Bundle | Fault:
        """Return the entry `key` as another process has meanwhile built it, else build it.

        What `build` raises is not a fault and passes through. A corrupt entry that was replaced
        adds a text to `notices`.
        """
        with hold(self.path / "locks" / f"{key}.lock", lock_timeout):
            found = self.read(key)
            if isinstance(found, Bundle):
                return found
            made = self._build(key, build)
        if found.corrupt:
            notices.append(f"the cache entry {self.entry(key)} was not loaded: {found.reason}")
        if isinstance(made, Bundle):
            self._tidy(key)
        return made

    def _build(self, key: str, build: Callable[[Path], Bundle]) -> Bundle | Fault:
        try:
            space = Workspace(self.path / "tmp")
        except OSError as error:
            return Fault(words(error))
        with space:
            try:
                bundle = replace(build(space.path), key=key)
            except Exception:
                # A compiler that finds the disk full only says that it failed.
                reason = _probe(space.path)
                if not reason:
                    raise
                return Fault(reason)
            try:
                return self._publish(space.path / key, bundle)
            except OSError as error:
                return Fault(words(error), bundle)

    def _publish(self, staged: Path, bundle: Bundle) -> Bundle:
        """Write the bundle to `staged` and rename that into place, or take the one of a winner."""
        written = write_bundle(staged, bundle)
        target = self.entry(bundle.key)
        for attempt in range(_ATTEMPTS):
            try:
                os.rename(staged, target)  # noqa: PTH104 - fails if there is an entry already
            except OSError as error:
                if error.errno not in _OCCUPIED:
                    raise
            else:
                return _at(target, written)
            winner = self.read(bundle.key)
            if isinstance(winner, Bundle):
                return winner
            _move_away(target, staged.with_name(f"corrupt-{attempt}"))
        raise OSError(errno.EBUSY, "another process puts broken entries in its place", str(target))

    def _tidy(self, key: str) -> None:
        if self._cap is not None:
            self._cap.added(key)
        if not self._swept:
            self._swept = True
            self.sweep()

    def sweep(self) -> int:
        """Remove what dead processes left; return how many things that were."""
        return sweep(self.path / "tmp") + sweep(self.path / "locks")

    def clear(self) -> Removed:
        """Remove all entries and leftovers.

        A process that has loaded a library from one of them keeps it.

        Raises
        ------
        OSError
            The store cannot be written.
        """
        self.prepare()
        gone = []
        with Workspace(self.path / "tmp") as grave:
            for entry in scan(self.path / "entries"):
                _move_away(self.entry(entry.key), grave.path / entry.key)
                gone.append(entry.bytes)
        if self._cap is not None:
            self._cap.reset()
        return Removed(len(gone), sum(gone), self.sweep())


def _at(target: Path, bundle: Bundle) -> Bundle:
    """Return the bundle with the paths that its files have in `target`."""
    images = tuple(
        replace(image, path=None if image.path is None else target / image.path.name)
        for image in bundle.images
    )
    return replace(bundle, images=images)


def _move_away(path: Path, grave: Path) -> None:
    try:
        os.rename(path, grave)  # noqa: PTH104 - in one step: a reader sees all of it or none
    except FileNotFoundError:
        return  # somebody else has just done it


def _probe(directory: Path) -> str:
    """Return why a file of some size cannot be written into `directory`, "" if it can."""
    probe = directory / "probe"
    try:
        with probe.open("wb") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
        probe.unlink()
    except OSError as error:
        return words(error)
    return ""
