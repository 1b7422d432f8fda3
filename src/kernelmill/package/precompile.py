"""torch's headers, compiled once for all bindings with the same flags. For edits, not releases.

A precompiled header has hundreds of MB and takes as long to make as two bindings take without, so
it pays from the third compilation on. Objects are the same with it and without.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from kernelmill.cache.key import digest
from kernelmill.package.wheels import build_cache, kept_tree
from kernelmill.toolchain.memo import stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["with_precompiled"]

_KEPT: Final = 4
# By a word of the command that tells the framework: what its bindings include.
_HEADERS: Final = {
    "/torch/csrc/api/include": ("torch/library.h", "ATen/ATen.h"),
    "-DTORCH_TARGET_VERSION=": (
        "torch/csrc/stable/library.h",
        "torch/csrc/stable/ops.h",
        "torch/csrc/stable/tensor.h",
    ),
}


def with_precompiled(
    command: tuple[str, ...], run: Callable[[Sequence[str], str], object]
) -> tuple[str, ...]:
    """Return a command that reads precompiled headers, made with `run` where they are absent.

    A command that compiles no binding of torch is returned as it is.
    """
    headers = next((h for w, h in _HEADERS.items() if any(w in word for word in command)), None)
    if headers is None or not any(word.startswith("-DTORCH_EXTENSION_NAME=") for word in command):
        return command
    base = _general(command)
    compiler = stamp(command[0])

    def make(place: Path) -> dict[str, object]:
        header = place / "torch_binding.h"
        header.write_text("".join(f"#include <{name}>\n" for name in headers))
        words = [*base, "-x", "c++-header", str(header), "-o", f"{header}.gch"]
        run(words, "torch's headers were not compiled:")
        return {"headers": list(headers)}

    name = digest(command=base, headers=headers, compiler=compiler)[:24]
    tree, _ = kept_tree("precompiled", name, make)
    _forget_oldest(tree.parent)
    at = next(i for i, word in enumerate(command) if word.startswith("-std="))
    own = ("-Winvalid-pch", "-include", str(tree / "torch_binding.h"))
    return (*command[:at], *own, *command[at:])


def _general(command: Sequence[str]) -> list[str]:
    """Leave out what differs between projects: their names, directories and pins."""
    words: list[str] = []
    for index, word in enumerate(command):
        own = word.startswith(("-DTORCH_EXTENSION_NAME=", "-I", "-ffile-prefix-map="))
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
