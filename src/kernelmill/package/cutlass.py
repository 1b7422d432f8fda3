"""CUTLASS for kernels whose manifest depends on it: its headers from a wheel or a directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.config import child_environment
from kernelmill.errors import ToolchainError
from kernelmill.package.headers import headers_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["cutlass_includes"]

# Releases of the wheel nvidia-cutlass; what else manifests may name was never uploaded there.
_WHEELS: Final = {
    "cutlass_3_5": "3.5.1.0",
    "cutlass_3_6": "3.6.0.0",
    "cutlass_3_8": "3.8.0.0",
}
_DIRECTORY: Final = "CUTLASS_SRC_DIR"


def cutlass_includes(depends: Iterable[str]) -> tuple[str, ...]:
    """Return the directories to include for what a kernel depends on; none without CUTLASS.

    Raises
    ------
    ToolchainError
        It depends on a release of which no wheel exists, and no directory is set.

    Examples
    --------
    >>> from kernelmill.package.cutlass import cutlass_includes
    >>> cutlass_includes(["torch"])
    ()
    """
    wanted = [name for name in depends if name.startswith("cutlass_")]
    if not wanted:
        return ()
    own = child_environment().get(_DIRECTORY)
    if own:
        root = Path(own).resolve()
    elif wanted[0] in _WHEELS:
        headers = headers_of("nvidia-cutlass", _WHEELS[wanted[0]])
        root = headers.path / "cutlass_library" / "source"
    else:
        raise ToolchainError(
            f"{wanted[0]} is in no wheel; wheels have {', '.join(_WHEELS)}",
            hint=f"clone CUTLASS and set {_DIRECTORY} to its directory",
        )
    folders = (root / "include", root / "tools" / "util" / "include")
    return tuple(str(folder) for folder in folders if folder.is_dir())
