"""torch's headers, compiled once for all sources that include the same. For edits, not releases.

A precompiled header has hundreds of MB and takes as long to make as two bindings take without, so
it pays from the third compilation on. Objects are the same with it and without: it holds what the
source itself includes first, and nothing from where a macro stands that could change it.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from kernelmill.cache.key import digest
from kernelmill.package.build_cache import build_cache
from kernelmill.package.includes import torch_includes
from kernelmill.package.wheels import kept_tree
from kernelmill.toolchain.memo import stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kernelmill.package.objects import Unit

__all__ = ["with_precompiled"]

_KEPT: Final = 4


def with_precompiled(
    unit: Unit, root: Path, run: Callable[[Sequence[str], str], object]
) -> tuple[str, ...]:
    """Return a unit's command with precompiled headers, made with `run` where they are absent.

    A command whose source includes nothing of torch is returned as it is; so is that of a source
    which is no binding, the first time that its headers are asked for.
    """
    command = unit.command
    folders = [root / w[2:] for w in command if w.startswith("-I") and not w.startswith("-I/")]
    headers = torch_includes(root / unit.source, folders)
    if not headers:
        return command
    base = _general(command)
    compiler = stamp(command[0])

    def make(place: Path) -> dict[str, object]:
        header = place / "torch_headers.h"
        header.write_text("".join(f"#include <{name}>\n" for name in headers))
        words = [*base, "-x", "c++-header", str(header), "-o", f"{header}.gch"]
        run(words, "torch's headers were not compiled:")
        return {"headers": list(headers)}

    name = digest(command=base, headers=headers, compiler=compiler)[:24]
    binding = any(word.startswith("-DTORCH_EXTENSION_NAME=") for word in command)
    if not binding and not _wanted_before(name):
        return command
    tree, _ = kept_tree("precompiled", name, make)
    _forget_oldest(tree.parent)
    at = next(i for i, word in enumerate(command) if word.startswith("-std="))
    own = ("-Winvalid-pch", "-include", str(tree / "torch_headers.h"))
    return (*command[:at], *own, *command[at:])


def _wanted_before(name: str) -> bool:
    """Say whether these headers were asked for before, and note that they were now."""
    note = build_cache() / "precompiled" / f"{name}.wanted"
    known = note.exists()
    note.parent.mkdir(parents=True, exist_ok=True)
    note.touch()
    return known


def _general(command: Sequence[str]) -> list[str]:
    """Leave out what differs between projects: their names, directories and pins.

    What other directories are called stays: the headers' own names stand in what they check.
    """
    words: list[str] = []
    for index, word in enumerate(command):
        own = word.startswith(("-DTORCH_EXTENSION_NAME=", "-I"))
        own |= word.startswith("-ffile-prefix-map=") and word.endswith("=.")
        pin = word == "-include" or (index > 0 and command[index - 1] == "-include")
        if not own and not pin:
            words.append(word)
    return words


def _forget_oldest(used: Path) -> None:
    """Keep the few that were used last."""
    used.touch()
    parent = build_cache() / "precompiled"
    found = [path for path in parent.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for path in sorted(found, key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        shutil.rmtree(path, ignore_errors=True)
