"""Whether a variant is what its sources make, byte for byte: it is built twice more, elsewhere."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.errors import PackageError
from kernelmill.package.build import Options, build
from kernelmill.package.check_subject import Finding
from kernelmill.package.elf import read_library
from kernelmill.package.matrix import entries, read_project
from kernelmill.package.metadata import read_metadata
from kernelmill.package.recipe import recipe_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelmill.package.matrix import Entry, Project
    from kernelmill.package.metadata import Metadata

__all__ = ["differences", "reproduce"]

# Two directories whose names have other lengths, and other numbers of compilers at once.
_PLACES: Final = (("a", 1), ("another-directory", 2))
_BREAKS: Final = "nobody else can make sure that the binary belongs to these sources"
# Metadata names the state of the sources' repository, which a copy does not have.
_APART: Final = "metadata.json"
_SHOWN: Final = 6


def reproduce(root: Path, variant: Path) -> tuple[Finding, ...]:
    """Build a variant of a project twice, and compare both with each other and with what is there.

    Raises
    ------
    PackageError
        The project has no such variant.
    CompileError
        It cannot be built.
    """
    metadata = read_metadata(variant)
    prefix = f"_{metadata.python_name}_{metadata.backend}_"
    if not metadata.id.startswith(prefix):
        raise PackageError(f"{metadata.id} is no name that kernelmill gives: {prefix}... would be")
    unique = metadata.id.removeprefix(prefix)
    archs = _asked(root, variant.name, metadata)
    with tempfile.TemporaryDirectory(prefix="kernelmill-") as place:
        made = []
        for name, jobs in _PLACES:
            copy = Path(place) / name / "project"
            skipped = shutil.ignore_patterns("build", ".git", "__pycache__")
            shutil.copytree(root, copy, symlinks=True, ignore=skipped)
            options = Options(jobs=jobs, unique=unique, archs=archs, use_cache=False)
            made.append(_built(copy, variant.name, options))
        first, second = made
        return (
            *_compared(first, second, "two builds", apart=()),
            *_compared(variant, first, "it and a new build", apart=(_APART,)),
        )


def _entry(project: Project, name: str) -> Entry:
    for entry in entries(project):
        if str(entry.variant) == name:
            return entry
    raise PackageError(f"the project has no variant {name}", hint="`kernelmill build --list`")


def _asked(root: Path, name: str, metadata: Metadata) -> tuple[str, ...] | None:
    """Return the capabilities of a variant that was built for others than the toolkit's own."""
    project = read_project(root)
    entry = _entry(project, name)
    if entry.variant.noarch or metadata.archs is None:
        return None
    own = tuple(map(str, recipe_of(project, entry, metadata.id).archs))
    return None if own == metadata.archs else metadata.archs


def _built(copy: Path, name: str, options: Options) -> Path:
    project = read_project(copy)
    build(project, [_entry(project, name)], options)
    return copy / "build" / name


def _compared(one: Path, other: Path, what: str, *, apart: tuple[str, ...]) -> Iterator[Finding]:
    for name, message in differences(one, other):
        if name not in apart:
            yield Finding("reproducible", "error", name, f"{what} differ: {message}", _BREAKS)


def differences(one: Path, other: Path) -> Iterator[tuple[str, str]]:
    """Yield the files in which two variants differ, and for a library in which sections."""
    names = sorted(
        {p.relative_to(d).as_posix() for d in (one, other) for p in d.rglob("*") if p.is_file()}
    )
    for name in names:
        first, second = one / name, other / name
        if not (first.is_file() and second.is_file()):
            yield name, f"{name} is in one of them only"
        elif first.read_bytes() != second.read_bytes():
            yield name, f"{name}{_where(first, second)}"


def _where(first: Path, second: Path) -> str:
    """Name the sections that differ; empty for what is no library."""
    try:
        mine, theirs = read_library(first).sections, read_library(second).sections
    except PackageError:
        return ""
    a, b = first.read_bytes(), second.read_bytes()
    found = [
        name
        for name in dict.fromkeys([*mine, *theirs])
        if name and _piece(a, mine.get(name)) != _piece(b, theirs.get(name))
    ]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f" in {', '.join(found[:_SHOWN])}{more}" if found else " outside of all sections"


def _piece(data: bytes, place: tuple[int, int] | None) -> bytes | None:
    return None if place is None else data[place[0] : place[0] + place[1]]
