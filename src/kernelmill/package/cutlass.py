"""CUTLASS for kernels whose manifest depends on it: its headers from a wheel or a directory."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.config import child_environment
from kernelmill.errors import ToolchainError
from kernelmill.package.digest import hash_variant
from kernelmill.package.headers import HeaderSet, headers_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["cutlass_folders", "cutlass_headers", "stands_in"]

_PROJECT: Final = "nvidia-cutlass"
# Releases of its wheel, by what manifests call them; the others were never uploaded there.
_WHEELS: Final = {
    "cutlass_3_5": "3.5.1.0",
    "cutlass_3_6": "3.6.0.0",
    "cutlass_3_8": "3.8.0.0",
    "cutlass_4_0": "4.2.0.0",  # the next one that there is
}
_DIRECTORY: Final = "CUTLASS_SRC_DIR"
_VERSION: Final = re.compile(r"#define CUTLASS_(?:MAJOR|MINOR|PATCH)\s+(\d+)")


def cutlass_headers(depends: Iterable[str]) -> HeaderSet | None:
    """Return the headers for what a kernel depends on; None without CUTLASS.

    Raises
    ------
    ToolchainError
        It depends on a release of which no wheel exists, and no directory is set; or that directory
        is none of CUTLASS.

    Examples
    --------
    >>> from kernelmill.package.cutlass import cutlass_headers
    >>> cutlass_headers(["torch"]) is None
    True
    """
    wanted = next((name for name in depends if name.startswith("cutlass_")), None)
    if wanted is None:
        return None
    own = child_environment().get(_DIRECTORY)
    if own:
        return _of_directory(Path(own).resolve())
    if wanted not in _WHEELS:
        raise ToolchainError(
            f"{wanted} is in no wheel; wheels have {', '.join(_WHEELS)}",
            hint=f"clone CUTLASS and set {_DIRECTORY} to its directory",
        )
    return headers_of(_PROJECT, _WHEELS[wanted])


def cutlass_folders(headers: HeaderSet) -> tuple[Path, ...]:
    """Return the directories to include."""
    wheel = headers.project == _PROJECT
    root = headers.path / "cutlass_library" / "source" if wheel else headers.path
    return tuple(folder for folder in _folders(root) if folder.is_dir())


def stands_in(depends: Iterable[str], headers: HeaderSet) -> str:
    """Say so where the headers are of another release than the manifest names, else nothing.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kernelmill.package.cutlass import stands_in
    >>> from kernelmill.package.headers import HeaderSet
    >>> headers = HeaderSet("nvidia-cutlass", "4.2.0.0", Path(), "", "", "", "ranges")
    >>> stands_in(["torch", "cutlass_4_0"], headers)
    'cutlass_4_0 is compiled with the headers of 4.2.0.0'
    """
    for name in depends:
        release = name.removeprefix("cutlass_").replace("_", ".")
        if name.startswith("cutlass_") and not f"{headers.version}.".startswith(f"{release}."):
            return f"{name} is compiled with the headers of {headers.version}"
    return ""


def _folders(root: Path) -> tuple[Path, ...]:
    return (root / "include", root / "tools" / "util" / "include")


def _of_directory(root: Path) -> HeaderSet:
    version = root / "include" / "cutlass" / "version.h"
    try:
        numbers = _VERSION.findall(version.read_text("utf-8", "replace"))
    except OSError:
        raise ToolchainError(
            f"{_DIRECTORY} is {root}, which holds no include/cutlass/version.h",
            hint="it is the directory of a clone of CUTLASS",
        ) from None
    trees = [hash_variant(folder).root() for folder in _folders(root) if folder.is_dir()]
    tree = hashlib.sha256("".join(trees).encode()).hexdigest()
    return HeaderSet("cutlass", ".".join(numbers), root, tree, _DIRECTORY, "", "directory")
