"""What NVRTC is, remembered from one process to the next: what is in the cache needs no compiler.

The library and its bindings take some 50 ms to load. Which library would be loaded is decided in
`places.py`; how it is asked, in `nvrtc.py`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kernelmill.toolchain.memo import memo_key, recall, remember, stamp
from kernelmill.toolchain.nvidia import choices, state_of
from kernelmill.toolchain.places import is_loaded

if TYPE_CHECKING:
    from kernelmill.toolchain.memo import FileStamp
    from kernelmill.toolchain.nvidia import NvidiaLibrary

__all__ = ["Compiler", "keep", "recalled"]

_SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Compiler:
    """NVRTC as far as results depend on it: version, state of its files, chips from sm_75 on."""

    version: tuple[int, int]
    stamps: tuple[FileStamp, ...]
    architectures: tuple[str, ...]


def recalled(directory: Path) -> Compiler | None:
    """Return what is remembered of the library that would be loaded; None where one is already."""
    if is_loaded("nvrtc") is not None:
        return None
    path = choices("nvrtc")[0].path
    facts = recall(directory, _key(path)) if Path(path).is_absolute() else None
    return None if facts is None else _read(facts, state_of(path, "nvrtc"))


def keep(directory: Path, library: NvidiaLibrary, found: Compiler) -> None:
    """Remember what the library that was loaded said; nothing where it is not the first choice."""
    path = choices("nvrtc")[0].path
    same = stamp(path) == stamp(library.path) is not None
    if same and Path(path).is_absolute() and recall(directory, _key(path)) != asdict(found):
        remember(directory, _key(path), asdict(found))


def _key(path: str) -> str:
    return memo_key("nvrtc", _SCHEMA, path)


def _read(facts: dict[str, Any], stamps: tuple[FileStamp, ...]) -> Compiler | None:
    """Return facts as they were written; None where they are of another state of the files."""
    try:
        major, minor = facts["version"]
        kept = tuple((str(name), int(size), int(time)) for name, size, time in facts["stamps"])
        found = Compiler((int(major), int(minor)), kept, tuple(map(str, facts["architectures"])))
    except (KeyError, TypeError, ValueError):
        return None
    return found if kept == stamps else None
