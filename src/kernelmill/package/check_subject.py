"""A variant as the rules of `check` see it, and what a finding is. Holds no rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kernelmill.errors import PackageError
from kernelmill.package.elf import Library, read_library
from kernelmill.package.metadata import Metadata, read_metadata
from kernelmill.package.variant import Variant

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Finding", "Level", "Subject", "open_subject"]

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found: which rule, in which file, what breaks for whom, what helps.

    An error breaks for somebody; a warning may; a note says what could not be checked here.
    """

    rule: str
    level: Level
    file: str
    message: str
    breaks: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """A variant: its name, its metadata and its library, None where they cannot be read."""

    path: Path
    variant: Variant | None
    metadata: Metadata | None
    library_path: Path | None
    library: Library | None
    manylinux: str
    problems: tuple[Finding, ...] = ()

    @property
    def library_name(self) -> str:
        """The library's file name."""
        return self.library_path.name if self.library_path else ""

    @property
    def torch(self) -> bool:
        """Whether torch loads its library."""
        variant = self.variant
        return variant is not None and not variant.noarch and variant.framework.name != "tvm-ffi"

    @property
    def stable(self) -> bool:
        """Whether it is for torch's stable ABI."""
        return self.variant is not None and self.variant.framework.name == "torch-stable-abi"


def open_subject(path: Path, manylinux: str) -> Subject:
    """Read what there is; what cannot be read is a finding itself."""
    problems: list[Finding] = []
    variant = metadata = library = None
    try:
        variant = Variant.parse(path.resolve().name)
    except PackageError as error:
        breaks = "no loader chooses this directory"
        problems.append(Finding("name", "error", "", error.message, breaks, error.hint))
    try:
        metadata = read_metadata(path)
    except (PackageError, OSError) as error:
        said = error.message if isinstance(error, PackageError) else str(error)
        breaks = "`kernels` from 0.15 on refuses to load the variant"
        problems.append(Finding("metadata", "error", "metadata.json", said, breaks))
    libraries = sorted(file for file in path.glob("*.so") if file.is_file())
    place = libraries[0] if libraries else None
    if place is not None:
        try:
            library = read_library(place)
        except PackageError as error:
            breaks = "importing the kernel fails for everybody"
            problems.append(Finding("library", "error", place.name, error.message, breaks))
    return Subject(path, variant, metadata, place, library, manylinux, tuple(problems))
