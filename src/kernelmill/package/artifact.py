"""A variant's directory: which files, in which state, and how it comes into place whole.

Files have mode 0644 and the time 0, there is no bytecode, and a file is read from the sources as it
is: two builds of the same sources give the same bytes. The log of a build lies outside.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.errors import ManifestError, PackageError
from kernelmill.package.digest import hash_variant
from kernelmill.package.metadata import FILE as METADATA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelmill.package.metadata import Metadata

__all__ = ["Artifact", "python_files", "swap", "write_artifact"]

_MODE: Final = 0o644
_OPS: Final = "_ops.py"


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a directory is to hold.

    `texts` are files by name and content, `copies` files by name and where they lie now; `metadata`
    has no digest yet.
    """

    metadata: Metadata
    texts: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, Path] = field(default_factory=dict)


def python_files(root: Path, folder: str, extensions: tuple[str, ...]) -> dict[str, Path]:
    """Return the files of a kernel's Python package, by their name in the variant.

    Parameters
    ----------
    root, folder
        The project, and the package's directory in it.
    extensions
        Which files beside `*.py`, without the dot.

    Raises
    ------
    ManifestError
        There is no `__init__.py`, a file is called `_ops.py`, or a link leaves the project.
    """
    place = root / folder
    endings = ("py", *extensions)
    found: dict[str, Path] = {}
    for directory, folders, files in os.walk(place):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            path = Path(directory, name)
            if name.rpartition(".")[2] in endings and "." in name:
                found[path.relative_to(place).as_posix()] = _inside(root, path)
    if "__init__.py" not in found:
        raise ManifestError(
            f"{folder}/__init__.py is absent; it is what `import` gets",
            hint="the directory has the kernel's name, with _ for -",
        )
    if _OPS in found:
        raise ManifestError(f"{folder}/{_OPS} is written by the build; remove or rename yours")
    return found


def _inside(root: Path, path: Path) -> Path:
    if not path.resolve().is_relative_to(root):
        raise ManifestError(f"{path.relative_to(root)} leads out of the project")
    return path


def write_artifact(artifact: Artifact, directory: Path) -> Metadata:
    """Fill a new directory; return the metadata as written, with the digest.

    Raises
    ------
    PackageError
        Two files have one name.
    OSError
        A file cannot be read or written.
    """
    directory.mkdir()
    twice = set(artifact.texts) & set(artifact.copies)
    if twice:
        raise PackageError(f"two files of the variant are called {min(twice)}")
    for name, text in artifact.texts.items():
        _place(directory, name).write_text(text, encoding="utf-8")
    for name, source in artifact.copies.items():
        shutil.copyfile(source, _place(directory, name))
    metadata = replace(artifact.metadata, digest=hash_variant(directory))
    (directory / METADATA).write_text(metadata.text(), encoding="utf-8")
    _settle(directory)
    return metadata


def _place(directory: Path, name: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _settle(directory: Path) -> None:
    """Give all files one mode and one time, whatever the user's own habits are."""
    for folder, _, files in os.walk(directory, topdown=False):
        for name in files:
            path = os.path.join(folder, name)  # noqa: PTH118
            os.chmod(path, _MODE)  # noqa: PTH101
            os.utime(path, (0, 0))
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - as git and the Hub have it
        os.utime(folder, (0, 0))


def swap(made: Path, place: Path, aside: Path) -> None:
    """Put a whole directory in the place of another, which goes `aside` and is removed.

    At no time is there half a directory: there is the old one, for an instant none, the new one.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise PackageError(f"{place} is in the way: it is no directory")
    if place.exists():
        os.replace(place, aside)  # noqa: PTH105
    try:
        os.replace(made, place)  # noqa: PTH105
    except OSError:
        if aside.exists():
            os.replace(aside, place)  # noqa: PTH105
        raise
    shutil.rmtree(aside, ignore_errors=True)
