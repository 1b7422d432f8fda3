"""What a registry is: repositories, revisions, files, publication. No transport here.

`registry_hub` speaks to the Hugging Face Hub and whatever speaks like it, `registry_files` keeps
repositories in a directory or behind an fsspec URL, `registry_open` makes them from settings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from kernelmill.errors import NotPublishedError, RegistryError
from kernelmill.package.digest import safe_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = [
    "MOST_FILES",
    "Add",
    "Commit",
    "Delete",
    "File",
    "Ref",
    "Refs",
    "Registry",
    "check_commit_id",
    "is_commit_id",
    "may_be_short_id",
    "pick_commit",
]

MOST_FILES: Final = 100_000
_FULL: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)
_SHORT: Final = re.compile(r"[0-9a-f]{7,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or a tag, and the whole id of the commit where it stands."""

    name: str
    commit: str


@dataclass(frozen=True, slots=True)
class Refs:
    """The branches and tags of a repository."""

    branches: tuple[Ref, ...] = ()
    tags: tuple[Ref, ...] = ()

    def branch(self, name: str) -> Ref | None:
        """Return the branch of a name, or None."""
        return next((ref for ref in self.branches if ref.name == name), None)

    def find(self, name: str) -> Ref | None:
        """Return the branch of a name, else the tag, else None."""
        return self.branch(name) or next((ref for ref in self.tags if ref.name == name), None)


@dataclass(frozen=True, slots=True)
class File:
    """A file of a commit.

    Parameters
    ----------
    path
        Relative POSIX path; checked when the file is made.
    size
        Bytes.
    blob_id
        Git's id of the content; of its pointer where `sha256` is given.
    sha256
        Hexadecimal, for a large file (LFS); "" else.

    Examples
    --------
    >>> from kernelmill.package.registry import File
    >>> File("build/torch-cpu/__init__.py", 0, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391").key[:7]
    'e69de29'
    """

    path: str
    size: int
    blob_id: str
    sha256: str = ""

    def __post_init__(self) -> None:
        safe_path(self.path)
        ok = re.fullmatch(r"[0-9a-f]{40}", self.blob_id) and (
            not self.sha256 or re.fullmatch(r"[0-9a-f]{64}", self.sha256)
        )
        if not ok or self.size < 0:
            raise RegistryError(
                f"the listing says of {self.path} size {self.size}, blob {self.blob_id[:80]!r}, "
                f"sha256 {self.sha256[:80]!r}; accepted: 40 and 64 hexadecimal digits"
            )

    @property
    def key(self) -> str:
        """What names the content, in the Hub's cache too: a large file's `sha256`, or `blob_id`."""
        return self.sha256 or self.blob_id


@dataclass(frozen=True, slots=True)
class Add:
    """A file to publish: its path in the repository and where its bytes are."""

    path: str
    source: Path | bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """A file to remove from a branch."""

    path: str


@dataclass(frozen=True, slots=True)
class Commit:
    """What a publication made."""

    id: str
    branch: str


@runtime_checkable
class Registry(Protocol):
    """Where kernels are published. All methods may be called from several threads.

    Every method raises `RegistryError` where the registry is absent, refuses or answers nonsense;
    the text names the registry, what was asked and what came back.
    """

    @property
    def url(self) -> str:
        """The address, without credentials; policies and errors name the registry by it."""

    def refs(self, repo_id: str) -> Refs:
        """Return branches and tags, one request."""

    def commit(self, repo_id: str, revision: str) -> str:
        """Return the whole commit id of a branch, a tag, or a (short) commit id.

        Raises
        ------
        RegistryError
            Also when a short id fits several commits, or none.
        """

    def files(self, repo_id: str, commit: str) -> tuple[File, ...]:
        """Return all files of a commit, sorted by path."""

    def fetch(self, repo_id: str, commit: str, file: File, target: Path) -> None:
        """Write the bytes of a file to `target`, going on where a killed download stopped.

        The bytes are not verified here; the cache does that, whatever the registry.
        """

    def read(self, repo_id: str, commit: str, path: str, *, limit: int = 32 << 20) -> bytes:
        """Return the bytes of a small file, verified; for indexes and metadata.

        `commit` may be the name of a branch, whose head then takes no second request.

        Raises
        ------
        NotPublishedError
            There is no such file, or no such branch or repository.
        RegistryError
            It is larger than `limit` bytes.
        """

    def trusts(self, publisher: str) -> bool | None:
        """Return whether the registry vouches for a publisher; None where it says nothing."""

    def create(self, repo_id: str, *, private: bool = False) -> None:
        """Make a repository unless it is there."""

    def publish(
        self,
        repo_id: str,
        branch: str,
        changes: Sequence[Add | Delete],
        *,
        message: str,
        parent: str | None = None,
    ) -> Commit:
        """Commit changes to a branch, which is made if it is not there.

        Raises
        ------
        RegistryError
            Also when the branch does not stand at `parent` any more.
        """


def is_commit_id(text: str) -> bool:
    """Return whether this is a commit id of full length."""
    return _FULL.fullmatch(text) is not None


def may_be_short_id(text: str) -> bool:
    """Return whether this can be the beginning of a commit id, which is then looked for."""
    return _SHORT.fullmatch(text) is not None


def check_commit_id(text: str, *, asked: str) -> str:
    """Return a commit id that a registry answered, if it is one of full length.

    Raises
    ------
    RegistryError
        It is not; `asked` says what was asked.
    """
    if not is_commit_id(text):
        raise RegistryError(
            f"{asked}: the registry answered the commit {text[:80]!r}; accepted: 40 or 64 "
            "hexadecimal digits"
        )
    return text


def pick_commit(revision: str, refs: Refs, commits: Sequence[str], *, place: str) -> str:
    """Return the whole commit id of a revision: a name, a whole or a short id.

    Parameters
    ----------
    revision
        A branch, a tag or at least seven hexadecimal digits.
    refs, commits
        What the registry has.
    place
        Repository and registry, for errors.

    Raises
    ------
    RegistryError
        Nothing fits, or a short id fits several commits.

    Examples
    --------
    >>> from kernelmill.package.registry import Ref, Refs, pick_commit
    >>> pick_commit("v1", Refs((Ref("v1", "ab" * 20),)), [], place="org/x")[:6]
    'ababab'
    """
    ref = refs.find(revision.removeprefix("refs/heads/").removeprefix("refs/tags/"))
    if ref is not None:
        return ref.commit
    known = sorted({*commits, *(ref.commit for ref in (*refs.branches, *refs.tags))})
    fitting = [c for c in known if c.startswith(revision)] if may_be_short_id(revision) else []
    if len(fitting) > 1:
        raise RegistryError(
            f"{place}: the short commit {revision} fits {len(fitting)} commits: "
            + ", ".join(commit[:16] for commit in fitting[:8]),
            hint="write more digits",
        )
    if not fitting:
        names = ", ".join(ref.name for ref in (*refs.branches, *refs.tags)) or "none"
        raise NotPublishedError(
            f"{place} has no revision {revision[:80]!r}; branches and tags: {names[:400]}"
        )
    return fitting[0]
