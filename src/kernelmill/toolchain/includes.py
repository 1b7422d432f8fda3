"""What a CUDA source includes: texts at hand, files on disk, and headers of the CUDA toolkit.

A cache key must hold everything that made a thing, so the files behind `#include` are read here
before the compiler reads them. Conditions around an include do not count: too much is hashed, never
too little.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Included", "included"]

_INCLUDE: Final = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*(?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>|(?P<computed>\S+))',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Included:
    """What a source reaches.

    Parameters
    ----------
    texts
        The headers in memory that are used, by the name they are included by.
    files
        sha256 of each file on disk, by its path.
    outside
        Names that are in neither: headers of the toolkit, or missing.
    computed
        Whether some include is made by a macro, so that this list may be short.
    """

    texts: dict[str, str]
    files: dict[str, str]
    outside: tuple[str, ...]
    computed: bool


def included(source: str, headers: Mapping[str, str], directories: Sequence[Path]) -> Included:
    r"""Follow the includes of `source` through `headers`, then through `directories`.

    Examples
    --------
    >>> found = included('#include "a.h"\n#include <b.h>', {"a.h": "int a;", "c.h": ""}, ())
    >>> sorted(found.texts), found.outside
    (['a.h'], ('b.h',))
    """
    texts: dict[str, str] = {}
    files: dict[str, str] = {}
    outside: dict[str, None] = {}
    computed = False
    left: list[tuple[str, Path | None]] = [(source, None)]
    while left:
        text, place = left.pop()
        for match in _INCLUDE.finditer(text):
            name = match["quoted"] or match["angled"]
            if name is None:
                computed = True
            elif name in headers:
                if name not in texts:
                    texts[name] = headers[name]
                    left.append((headers[name], None))
            elif (path := _find(name, place, directories)) is None:
                outside[name] = None
            elif str(path) not in files:
                data = path.read_bytes()
                files[str(path)] = hashlib.sha256(data).hexdigest()
                left.append((data.decode("utf-8", "replace"), path.parent))
    return Included(texts, files, tuple(outside), computed)


def _find(name: str, place: Path | None, directories: Sequence[Path]) -> Path | None:
    places = (place, *directories) if place is not None else directories
    return next((d / name for d in places if (d / name).is_file()), None)
