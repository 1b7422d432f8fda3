"""Which files of a project were made from others, and can be made again. Removes nothing else."""

from __future__ import annotations

import shutil
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelmill.errors import PackageError
from kernelmill.package.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["COMMANDS", "FOLDER", "GENERATED", "GENERATOR", "Made", "made_files", "remove"]

# The first line of every file that `kernelmill generate` writes holds this.
GENERATED: Final = "made by `kernelmill generate"
_GENERATED_NAMES: Final = ("CMakeLists.txt", "setup.py", "pyproject.toml")
FOLDER: Final = "cmake-kernelmill"
COMMANDS: Final = "compile_commands.json"
# A line of every wheel that `kernelmill wheel` writes.
GENERATOR: Final = "Generator: kernelmill"


@dataclass(frozen=True, slots=True)
class Made:
    """Something in a project that was made; `kept` says why it stays, "" where it may go."""

    path: Path
    kept: str = ""


def made_files(root: Path) -> tuple[Made, ...]:
    """Return what builds and generators left in a project, and what lies among it."""
    return (*_built(root / "build"), *_wheels(root / "dist"), *_generated(root))


def _built(build: Path) -> Iterator[Made]:
    if build.is_symlink() or not build.is_dir():
        return
    for path in sorted(build.iterdir()):
        known = path.name.startswith(".kernelmill") or _is_variant(path.name)
        yield Made(path, "" if known else "it is none of a build's files")


def _is_variant(name: str) -> bool:
    """Tell whether this is a variant's directory, or a file beside it that has its name."""
    for candidate in (name, name.rpartition(".")[0], name.partition(".")[0]):
        try:
            Variant.parse(candidate)
        except PackageError:
            continue
        return True
    return False


def _wheels(dist: Path) -> Iterator[Made]:
    """Find the wheels that say that they were made here."""
    for path in sorted(dist.glob("*.whl")):
        try:
            with zipfile.ZipFile(path) as archive:
                texts = [archive.read(n) for n in archive.namelist() if n.endswith("/WHEEL")]
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError):
            continue  # damaged, or locked by a password: none of ours
        if any(GENERATOR.encode() in text for text in texts):
            yield Made(path)


def _generated(root: Path) -> Iterator[Made]:
    for name in _GENERATED_NAMES:
        path = root / name
        if not path.is_file():
            continue
        with path.open(encoding="utf-8", errors="replace") as file:
            if GENERATED in file.readline():
                yield Made(path)
    if (root / FOLDER).exists():
        yield Made(root / FOLDER)
        if (root / COMMANDS).exists():  # without the directory it is somebody else's
            yield Made(root / COMMANDS)


def remove(made: Made) -> None:
    """Remove a file, or a directory and all that it holds; a link goes, not what it names."""
    if made.path.is_symlink() or not made.path.is_dir():
        made.path.unlink()
    else:
        shutil.rmtree(made.path)
    parent = made.path.parent
    if parent.name in ("build", "dist") and not any(parent.iterdir()):
        parent.rmdir()
