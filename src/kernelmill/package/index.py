"""The index of a repository's versions: one JSON file on `main`, read and written here.

It names each version, its commit, its variants and their dependencies, so that one request answers
what otherwise takes one for each version. Who pushes writes it (`Index.with_entry`); where it lacks
a version that a branch has, `versions` says so. Repositories without one work as well.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import PackageError
from kernelmill.package.wanted import (
    PythonNeed,
    Version,
    Wanted,
    branch_of,
    check_repo_id,
    parse_version,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["INDEX", "Entry", "Index", "KernelNeed", "check_commit", "kernel_needs", "python_needs"]

INDEX: Final = "kernelmill-index.json"
FORMAT: Final = 1
MOST_BYTES: Final = 32 << 20
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)


def check_commit(text: object, *, place: str) -> str:
    """Return a whole commit id: 40 or 64 lower-case hexadecimal digits.

    Raises
    ------
    PackageError
        It is none; `place` is named.
    """
    if not isinstance(text, str) or not _COMMIT.fullmatch(text):
        raise PackageError(
            f"{place} is {str(text)[:80]!r}; accepted: 40 or 64 lower-case hexadecimal digits"
        )
    return text


@dataclass(frozen=True, slots=True)
class KernelNeed:
    """A kernel that another one, or a project, depends on.

    Examples
    --------
    >>> from kernelmill.package.index import KernelNeed
    >>> str(KernelNeed.parse({"repo-id": "org/relu", "version": ">=1.1,<2"}))
    'org/relu (<2,>=1.1)'
    """

    repo_id: str
    wanted: Wanted

    @classmethod
    def parse(cls, value: object, *, place: str = "kernel-depends") -> KernelNeed:
        """Read `{"repo-id": ..., "version" | "revision": ...}`.

        Raises
        ------
        PackageError
            It is not of that form; the text names the key.
        """
        if not isinstance(value, dict) or "repo-id" not in value:
            raise PackageError(f"{place} is {str(value)[:80]}; accepted: an object with repo-id")
        repo_id = check_repo_id(value["repo-id"], place=f"{place}.repo-id")
        rest = {key: item for key, item in value.items() if key != "repo-id"}
        return cls(repo_id, Wanted.parse(rest, place=place) if rest else Wanted())

    def to_json(self) -> dict[str, object]:
        """Return the object that `parse` reads."""
        return {"repo-id": self.repo_id, **self.wanted.to_json()}

    def __str__(self) -> str:
        return f"{self.repo_id} ({self.wanted})"


@dataclass(frozen=True, slots=True)
class Entry:
    """One version in the index."""

    version: Version
    commit: str
    variants: tuple[str, ...]
    kernels: tuple[KernelNeed, ...] = ()
    python: tuple[PythonNeed, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the entry as it stands in the file."""
        return {
            "version": str(self.version),
            "branch": branch_of(self.version),
            "commit": self.commit,
            "variants": list(self.variants),
            "kernel-depends": [need.to_json() for need in self.kernels],
            "python-depends": [str(need) for need in self.python],
        }


@dataclass(frozen=True, slots=True)
class Index:
    """All versions of one repository, the newest first.

    Examples
    --------
    >>> from kernelmill.package.index import Entry, Index
    >>> from kernelmill.package.wanted import parse_version
    >>> index = Index().with_entry(Entry(parse_version("1.2.0"), "ab" * 20, ("torch-cpu",)))
    >>> Index.from_json(index.to_json()) == index
    True
    """

    entries: tuple[Entry, ...] = ()

    def with_entry(self, entry: Entry) -> Index:
        """Return the index with one version more; the same version is replaced."""
        rest = (other for other in self.entries if other.version != entry.version)
        return Index(tuple(sorted((*rest, entry), key=lambda e: e.version, reverse=True)))

    def to_json(self) -> str:
        """Return the file: the same text for the same versions."""
        body = {"format": FORMAT, "versions": [entry.to_json() for entry in self.entries]}
        return json.dumps(body, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, place: str = INDEX) -> Index:
        """Read the file. Keys that this version of kernelmill does not know are passed over.

        Raises
        ------
        PackageError
            It is no index; the text names the key that is wrong and what was found there.
        """
        if len(text) > MOST_BYTES:
            raise PackageError(f"{place} has {len(text):,} bytes; the limit is {MOST_BYTES:,}")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PackageError(f"{place} is no JSON: {error}") from None
        _expect(value, dict, place)
        if value.get("format") != FORMAT:
            raise PackageError(
                f"{place}: format is {value.get('format')!r}; this version reads {FORMAT}",
                hint="a newer kernelmill may read it; `--no-index` asks each branch instead",
            )
        rows = _expect(value.get("versions"), list, f"{place}: versions")
        entries: dict[Version, Entry] = {}
        for number, row in enumerate(rows):
            entry = _entry(row, f"{place}: versions[{number}]")
            if entry.version in entries:
                raise PackageError(f"{place}: versions[{number}] repeats {entry.version}")
            entries[entry.version] = entry
        return cls(tuple(entries[version] for version in sorted(entries, reverse=True)))


def _expect(value: object, kind: type[Any], place: str) -> Any:
    if not isinstance(value, kind):
        words: dict[type[Any], str] = {dict: "an object", list: "a list", str: "a text"}
        raise PackageError(f"{place} is {str(value)[:80]!r}; accepted: {words[kind]}")
    return value


def _entry(row: object, place: str) -> Entry:
    _expect(row, dict, place)
    fields: Mapping[str, object] = row  # type: ignore[assignment]
    names = _expect(fields.get("variants"), list, f"{place}.variants")
    return Entry(
        version=parse_version(
            _expect(fields.get("version"), str, f"{place}.version"), place=f"{place}.version"
        ),
        commit=check_commit(fields.get("commit"), place=f"{place}.commit"),
        variants=tuple(
            _expect(name, str, f"{place}.variants[{n}]") for n, name in enumerate(names)
        ),
        kernels=tuple(kernel_needs(fields.get("kernel-depends", []), f"{place}.kernel-depends")),
        python=tuple(python_needs(fields.get("python-depends", []), f"{place}.python-depends")),
    )


def kernel_needs(rows: object, place: str) -> Iterator[KernelNeed]:
    """Read a list of kernel dependencies.

    Raises
    ------
    PackageError
        It is none; the text names the element.
    """
    for number, row in enumerate(_expect(rows, list, place)):
        yield KernelNeed.parse(row, place=f"{place}[{number}]")


def python_needs(rows: object, place: str) -> Iterator[PythonNeed]:
    """Read a list of Python dependencies.

    Raises
    ------
    PackageError
        It is none; the text names the element.
    """
    for number, row in enumerate(_expect(rows, list, place)):
        yield PythonNeed.parse(row, place=f"{place}[{number}]")
