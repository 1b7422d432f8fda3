"""What sources include, read from their text: which headers are theirs, which are others'.

No compiler is run, and conditions are not evaluated: what stands under one may be included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["Closure", "closure_of", "torch_includes"]

_DIRECTIVE: Final = re.compile(r"^[ \t]*#[ \t]*(\w+)[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_NAMED: Final = re.compile(r'(?:<([^>]+)>|"([^"]+)")')
_TORCH: Final = re.compile(r"<((?:torch|ATen|c10)/[^>]+)>")
# Macros that no header of torch or of the system asks for: `GATE_CASES(...)`, but not `AT_...`.
_OWN: Final = re.compile(
    r"(?:(?!AT_|C10_|TORCH_|USE_|NDEBUG|PY|NO_|STD_)[A-Z][A-Z0-9_]*|TORCH_LIBRARY\w*_EXPAND)\b"
)
_DEPTH: Final = 8


def _directives(path: Path) -> list[tuple[str, str]]:
    """Return the preprocessor's lines of a file: the word and what follows."""
    text = _COMMENT.sub("", path.read_text("utf-8", "replace"))
    return [(match[1], match[2]) for match in _DIRECTIVE.finditer(text)]


# ----------------------------------------------------------------------------- all of it


@dataclass(frozen=True, slots=True)
class Closure:
    """A source with the headers of the project that it may include.

    `outside` are the names that no file of the project has; `words` are the identifiers in all
    texts; `certain` is False where an include is a macro, so that anything may be included.
    """

    outside: frozenset[str]
    words: frozenset[str]
    certain: bool

    def reads(self, folders: Iterable[Path]) -> bool:
        """Say whether it may include a header that lies in one of these directories."""
        if not self.certain:
            return True
        return any((folder / name).is_file() for folder in folders for name in self.outside)


def closure_of(source: Path, folders: Sequence[Path]) -> Closure:
    """Read a source and, as often as they are named, the project's own headers.

    Parameters
    ----------
    source
        The file.
    folders
        The project's directories of headers, searched after that of the file itself.
    """
    outside: set[str] = set()
    words: set[str] = set()
    certain = True
    waiting, seen = [source], {source}
    while waiting:
        path = waiting.pop()
        words.update(re.findall(r"\w+", path.read_text("utf-8", "replace")))
        for name in _names(path):
            found = next((f / name for f in (path.parent, *folders) if (f / name).is_file()), None)
            if found is None:
                outside.add(name)
            elif found not in seen:
                seen.add(found)
                waiting.append(found)
            certain = certain and bool(name)
    return Closure(frozenset(outside), frozenset(words), certain)


def _names(path: Path) -> Iterator[str]:
    """Yield what a file includes; an empty name where it is a macro that says what."""
    for word, rest in _directives(path):
        if word in ("include", "include_next", "import"):
            match = _NAMED.match(rest)
            yield (match[1] or match[2]) if match else ""


# ----------------------------------------------------------------------------- torch's, at first


def torch_includes(source: Path, folders: Sequence[Path]) -> tuple[str, ...]:
    r"""Return the headers of torch that a source includes whatever is defined, in their order.

    It ends where a macro is defined that could change what they say.

    Parameters
    ----------
    source
        The file; the headers that it names in quotes are followed.
    folders
        Where those are looked for, after the file's own directory.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from kernelmill.package.includes import torch_includes
    >>> text = "#include <torch/library.h>\n#define AT_X 1\n#include <ATen/ATen.h>\n"
    >>> with tempfile.TemporaryDirectory() as place:
    ...     source = pathlib.Path(place, "x.cpp")
    ...     _ = source.write_text(text)
    ...     torch_includes(source, [])
    ('torch/library.h',)
    """
    reader = _Reader(folders)
    reader.read(source, _DEPTH)
    return tuple(reader.found)


@dataclass(slots=True)
class _Reader:
    """Collects headers of torch from a file and from what it includes."""

    folders: Sequence[Path]
    found: dict[str, None] = field(default_factory=dict)
    seen: set[Path] = field(default_factory=set)

    def read(self, source: Path, depth: int) -> bool:
        """Collect from one file; return whether what stands behind it may be collected too."""
        self.seen.add(source)
        rows = _directives(source)
        guard = rows[1][1] if [word for word, _ in rows[:2]] == ["ifndef", "define"] else ""
        level = -1 if guard and rows[0][1] == guard else 0
        for word, rest in rows:
            level += word in ("if", "ifdef", "ifndef")
            level -= word == "endif"
            if word in ("define", "undef") and rest != guard and not _OWN.match(rest):
                return False
            if word == "include" and not self._include(source, rest, depth, always=level <= 0):
                return False
        return True

    def _include(self, source: Path, rest: str, depth: int, *, always: bool) -> bool:
        torch, named = _TORCH.match(rest), _NAMED.match(rest)
        if torch and always:
            self.found[torch[1]] = None
        if named is None or named[2] is None:
            return True
        for folder in (source.parent, *self.folders):
            path = folder / named[2]
            if path.is_file():
                return path in self.seen or (always and depth > 0 and self.read(path, depth - 1))
        return True
