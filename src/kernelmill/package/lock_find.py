"""Which lock holds for a piece of code: one beside its project, or one packed into its wheel.

Code that runs from a project's directory has the nearest lock above its own file. Code that was
installed has the one in its distribution's metadata (`lock_wheel` puts it there). The current
directory counts only for code without a file, such as an interactive session.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.errors import LockError
from kernelmill.package import lock_hf
from kernelmill.package.lock import FILE, Lock, read_file
from kernelmill.package.lock_hf import HfLock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import Distribution
    from types import FrameType

__all__ = ["Caller", "FoundLock", "caller", "find_lock", "parse_lock", "read_any_lock"]

NAMES: Final = (FILE, lock_hf.FILE)  # ours first: it says more
_OURS: Final = "kernelmill"
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose lock is looked for: a module's name, and its file where it has one."""

    module: str
    file: Path | None


@dataclass(frozen=True, slots=True)
class FoundLock:
    """A lock, in words where it was found, and the project's directory where it has one."""

    lock: Lock | HfLock
    place: str
    project: Path | None = None


def caller() -> Caller:
    """Return the code outside kernelmill that called into it."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - `inspect.stack` reads every source
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] != _OURS and not name.startswith("importlib"):
            text = frame.f_globals.get("__file__")
            file = Path(text).absolute() if isinstance(text, str) else None
            return Caller(name, file if file is not None and file.is_file() else None)
        frame = frame.f_back
    return Caller("__main__", None)


def find_lock(who: Caller, lockfile: Path | str | None = None) -> FoundLock:
    """Return the lock that holds for some code.

    Parameters
    ----------
    who
        From `caller`.
    lockfile
        A `kernelmill.lock` or `kernels.lock` that is meant in any case.

    Raises
    ------
    LockError
        There is none, and the text says where it was looked for; or it cannot be used.
    """
    if lockfile is not None:
        return read_any_lock(Path(lockfile))
    looked: list[str] = []
    installed = who.file is not None and bool(_INSTALLED & set(who.file.parts))
    if not installed:
        start = who.file.parent if who.file is not None else Path.cwd()
        for directory in (start, *start.parents):
            for name in NAMES:
                if (directory / name).is_file():
                    return read_any_lock(directory / name)
        looked.append(f"{start} and the directories above it")
    for distribution in _distributions(who.module.partition(".")[0]):
        looked.append(f"the metadata of {distribution.name} {distribution.version}")
        for name in NAMES:
            text = distribution.read_text(name)
            if text is not None:
                place = f"{name} in the metadata of {distribution.name} {distribution.version}"
                return FoundLock(parse_lock(text, place), place)
    of = "" if who.file is None else f" for the module {who.module!r}"
    raise LockError(
        f"no lock was found{of}; looked in: {', '.join(looked) or '-'}",
        hint="`kernelmill lock` makes one; installing the project again packs it into its metadata",
    )


def read_any_lock(path: Path) -> FoundLock:
    """Read a lock file of ours or of Hugging Face, whatever it is called.

    Raises
    ------
    LockError
        It is not there, or cannot be used; the text names the file and the place in it.
    """
    return FoundLock(parse_lock(read_file(path), str(path)), str(path), path.absolute().parent)


def parse_lock(text: str | bytes, place: str) -> Lock | HfLock:
    """Read the text of a lock: an object is ours, a list is Hugging Face's.

    Raises
    ------
    LockError
        It is neither.
    """
    return _parse(text, place)


@functools.lru_cache(maxsize=8)
def _parse(text: str | bytes, place: str) -> Lock | HfLock:
    """Read a text once: a program loads several kernels of one lock."""
    first = text.lstrip()[:1]
    if first in {"[", b"["}:
        return HfLock.parse(text, place=place)
    return Lock.parse(text, place=place)


@functools.lru_cache(maxsize=64)
def _names(package: str) -> tuple[str, ...]:
    """Return the distributions that a top-level package came from; reads all metadata, so once."""
    from importlib.metadata import packages_distributions  # noqa: PLC0415 - slow to import

    return tuple(dict.fromkeys(packages_distributions().get(package, ())))


def _distributions(package: str) -> Iterator[Distribution]:
    from importlib.metadata import distribution  # noqa: PLC0415 - slow to import

    for name in _names(package):
        yield distribution(name)
