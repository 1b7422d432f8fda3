"""`Cache`: compiled bundles by their key, kept where it is safe and possible to keep them.

The directory that is asked for is used when nobody else can write to it; else, and when it turns
out to be full or read-only, a private temporary directory that lives as long as the process.
"""

from __future__ import annotations

import os
import stat
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill import events
from kernelmill.cache.bundle import Bundle, is_key
from kernelmill.cache.eviction import scan
from kernelmill.cache.lock import Workspace, sweep
from kernelmill.cache.store import Fault, Miss, Removed, Store, words
from kernelmill.errors import ArgumentError, CacheWarning, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Cache", "CacheInfo"]

STORE: Final = "bundles-1"  # the number is that of the layout and of the bundle's format
PRIVATE: Final = "kernelmill-private-"
_AVOID_SECONDS: Final = 60.0
_OF_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What `kernelmill cache info` shows.

    Parameters
    ----------
    root
        The directory that was asked for.
    entries, bytes
        How many bundles are kept there, and the disk space they occupy.
    max_bytes
        The cap.
    oldest, newest
        When the least and the most recently used one was used, in seconds since the epoch; None
        when there is none.
    problem
        Why nothing can be kept in `root`; "" when it can.
    private
        The temporary directory that this process uses in its place, if it has had to.
    """

    root: Path
    entries: int
    bytes: int
    max_bytes: int
    oldest: float | None
    newest: float | None
    problem: str
    private: Path | None


class Cache:
    """Bundles on disk, shared by all processes of one user.

    Nothing is touched before the first call of a method. All methods may be called from several
    threads.

    Parameters
    ----------
    root
        The directory; made when first written to.
    max_bytes
        The cap on disk space; the entry built last stays whatever its size.
    lock_timeout
        Seconds to wait for another process that builds the same key, before building it as well.
    grace
        Seconds after its last use in which an entry is never evicted: a process may know its path
        and not have loaded it yet.

    Examples
    --------
    >>> import tempfile
    >>> from kernelmill.cache import Bundle, Cache, Image, digest
    >>> def build(directory):  # a compiler would run in `directory`
    ...     return Bundle(images=(Image("cpu", "so", b"machine code"),), source="int f();")
    >>> with tempfile.TemporaryDirectory() as home:
    ...     cache = Cache(home, 1 << 20)
    ...     first = cache.get_or_build(digest(source="int f();"), build)
    ...     again = cache.get(first.key)
    >>> again == first, again.images[0].path.name
    (True, 'image-0.so')
    """

    def __init__(
        self,
        root: Path | str,
        max_bytes: int,
        *,
        lock_timeout: float = 180.0,
        grace: float = 60.0,
    ) -> None:
        self.root = Path(root)
        self.max_bytes = max_bytes
        self._lock_timeout = lock_timeout
        self._store = Store(self.root / STORE, max_bytes, grace)
        self._trusted = False
        self._private = _Private()
        self._avoided: tuple[float, str] = (0.0, "")
        self._said = False

    def get(self, key: str) -> Bundle | None:
        """Return the verified bundle of `key`, or None.

        A corrupt entry counts as absent, with a `CacheWarning`.

        Raises
        ------
        ArgumentError
            `key` is not 64 lower-case hexadecimal digits.
        """
        found = self._look(key)
        if isinstance(found, Bundle):
            return found
        if found.corrupt:
            _warn(f"the cache entry {self._store.entry(key)} was not loaded: {found.reason}")
        return None

    def get_or_build(self, key: str, build: Callable[[Path], Bundle]) -> Bundle:
        """Return the bundle of `key`; the first of all processes that ask builds it.

        Parameters
        ----------
        key
            `digest(...)` of everything that goes into the build.
        build
            Called with an empty directory in which it may run a compiler and leave what it likes;
            that directory is gone afterwards. Returns the bundle; its `key` is filled in here.
            When the disk proves full it may be called a second time, with another directory.

        Returns
        -------
        Bundle
            With the path of a file for each image. Where the cache cannot be written, that file is
            in a private temporary directory until the process ends, and a `CacheWarning` says so
            once.

        Raises
        ------
        ArgumentError
            `key` is not a key, or the bundle is beyond the limits of the format.
        ConfigError
            Neither the cache nor a temporary directory can be written.
        Exception
            Whatever `build` raises; nothing is kept then.
        """
        found = self._look(key)
        if isinstance(found, Bundle):
            return found
        notices: list[str] = []
        made = self._obtain(key, build, notices)
        if isinstance(made, Fault):
            made = self._obtain_privately(key, build, made, notices)
        # Only now: no lock is held and the entry is there, should a filter raise the warning.
        for text in notices:
            _warn(text)
        return made

    def info(self) -> CacheInfo:
        """Return what the cache holds; changes nothing and makes no directory."""
        refusal = _refusal(self.root) or _refusal(self._store.path)
        entries = [] if refusal else scan(self._store.path / "entries")
        private = self._private.current()
        return CacheInfo(
            root=self.root,
            entries=len(entries),
            bytes=sum(entry.bytes for entry in entries),
            max_bytes=self.max_bytes,
            oldest=entries[0].used / 1e9 if entries else None,
            newest=entries[-1].used / 1e9 if entries else None,
            problem=refusal or _unwritable(self.root),
            private=None if private is None else private.path.parent,
        )

    def clear(self) -> Removed:
        """Remove all entries and what dead processes left; return how much that was.

        Other files in `root` stay. A library that a process has loaded stays loaded.

        Raises
        ------
        ConfigError
            The directory is not one that this cache would use, or cannot be written.
        """
        problem = _refusal(self.root) or _refusal(self._store.path)
        private = self._private.current()
        if private is not None:
            private.clear()
        if not problem and not self._store.path.exists():
            return Removed(0, 0, 0)
        if not problem:
            try:
                return self._store.clear()
            except OSError as error:
                problem = words(error)
        raise ConfigError(f"the cache in {self.root} was not cleared: {problem}", hint=_HINT)

    def _look(self, key: str) -> Bundle | Miss:
        if not is_key(key):
            raise ArgumentError(
                f"{key!r} is not the key of a cache entry; accepted: 64 lower-case hexadecimal "
                "digits",
                hint="kernelmill.cache.digest(...) makes one",
            )
        start = time.perf_counter()
        found: Bundle | Miss = Miss("absent")
        if not self._refusal():
            found = self._store.read(key)
        private = self._private.current()
        if isinstance(found, Miss) and private is not None:
            kept = private.read(key)
            found = kept if isinstance(kept, Bundle) else found
        if events.active:
            _report(key, found, time.perf_counter() - start)
        return found

    def _refusal(self) -> str:
        """Return why the directory cannot be trusted; "" when it can, or is not there yet."""
        if self._trusted:
            return ""
        refusal = _refusal(self.root) or _refusal(self._store.path)
        self._trusted = not refusal and self._store.path.exists()
        return refusal

    def _obtain(
        self, key: str, build: Callable[[Path], Bundle], notices: list[str]
    ) -> Bundle | Fault:
        until, reason = self._avoided
        if time.monotonic() < until:
            return Fault(reason)
        made: Bundle | Fault
        try:
            if not self._refusal():
                self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._store.prepare()
        except OSError as error:
            made = Fault(words(error))
        else:
            # Asked again: what was absent a moment ago may have been made by somebody else.
            refusal = self._refusal()
            made = (
                Fault(refusal)
                if refusal
                else self._store.obtain(key, build, self._lock_timeout, notices)
            )
        if isinstance(made, Fault):  # so that not each kernel is compiled twice on a full disk
            self._avoided = (time.monotonic() + _AVOID_SECONDS, made.reason)
        return made

    def _obtain_privately(
        self, key: str, build: Callable[[Path], Bundle], fault: Fault, notices: list[str]
    ) -> Bundle:
        built = fault.bundle
        try:
            store = self._private.open()
        except OSError as error:
            made: Bundle | Fault = Fault(words(error))
        else:
            again = build if built is None else lambda _: built
            made = store.obtain(key, again, self._lock_timeout, notices)
        if isinstance(made, Fault):
            raise ConfigError(
                f"compiled kernels can be kept neither in {self.root}: {fault.reason}; "
                f"nor in a temporary directory: {made.reason}",
                hint=_HINT,
            )
        if not self._said:
            self._said = True
            notices.append(
                f"compiled kernels cannot be kept in {self.root}: {fault.reason}; this process "
                f"keeps its own in {store.path.parent} until it ends; {_HINT}"
            )
        return made


_HINT: Final = "set KERNELMILL_CACHE_DIR to a directory of yours that only you can write to"


class _Private:
    """The store in a temporary directory of this process, made when first needed."""

    __slots__ = ("_mutex", "_owner", "_store")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._owner = 0
        self._store: Store | None = None

    def current(self) -> Store | None:
        """Return it if this process has made it; a forked child must not rely on its parent's."""
        return self._store if self._owner == os.getpid() else None

    def open(self) -> Store:
        """Make it, or return it. Raises OSError."""
        import atexit  # noqa: PLC0415 - only where the cache fails
        import tempfile  # noqa: PLC0415 - 4 ms

        with self._mutex:
            current = self.current()
            if current is not None and current.path.is_dir():
                return current
            parent = Path(tempfile.gettempdir())
            sweep(parent, PRIVATE)
            space = Workspace(parent, PRIVATE)
            atexit.register(space.close)
            store = Store(space.path / STORE)
            store.prepare()
            self._store, self._owner = store, os.getpid()
            return store


def _refusal(path: Path) -> str:
    """Return why a directory is not to be trusted with code that this process will run."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return words(error)
    user = os.geteuid()
    refusals = (
        (stat.S_ISLNK(found.st_mode), "is a symbolic link"),
        (not stat.S_ISDIR(found.st_mode), "is not a directory"),
        (found.st_uid != user, f"belongs to user {found.st_uid}, not to {user}"),
        (
            found.st_mode & _OF_OTHERS,
            f"can be written to by other users (mode {stat.S_IMODE(found.st_mode):04o})",
        ),
    )
    return next((f"{path} {reason}" for applies, reason in refusals if applies), "")


def _unwritable(path: Path) -> str:
    """Return why nothing can be written in `path`, or made where it is to be."""
    places = (path.absolute(), *path.absolute().parents)
    there = next(place for place in places if os.path.exists(place))  # noqa: PTH110 - never raises
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written to"


def _report(key: str, found: Bundle | Miss, seconds: float) -> None:
    if isinstance(found, Bundle):
        size = sum(len(image.data) for image in found.images)
        events.emit("cache_hit", key, seconds=seconds, bytes=size)
    else:
        events.emit("cache_miss", key, seconds=seconds, reason=found.reason)


def _warn(text: str) -> None:
    """Warn at the user's own line, which is what he can look at."""
    file, line = events.caller()
    warnings.warn_explicit(text, CacheWarning, file or __file__, line or 1)
