"""Which state of its sources a project is in: git's tree and commit, else a digest of the files."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelmill.package.metadata import GitState
from kernelmill.toolchain.run import clean_environment, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["MADE", "SourceState", "project_files", "source_state"]

# What a build itself writes into a project does not change the project's state.
MADE: Final = ("build", "dist", "toolchain.lock")
_SKIPPED: Final = frozenset({*MADE, "__pycache__", "node_modules"})
_SECONDS: Final = 30.0
_SHORT: Final = 7


@dataclass(frozen=True, slots=True)
class SourceState:
    """`unique` goes into the names of modules and operators; `git` is None outside a repository."""

    unique: str
    git: GitState | None


def source_state(root: Path) -> SourceState:
    """Return the state of a project: 7 digits of git's tree, with `_dirty` where files differ.

    Outside a repository the digits are of a digest over all files, so that the same files have the
    same names wherever they lie.
    """
    return _git_state(root) or SourceState(_content(root)[:_SHORT], None)


def _git_state(root: Path) -> SourceState | None:
    excluded = [f":(exclude){name}" for name in MADE]
    with ThreadPoolExecutor(1) as beside:  # two programs, each of which is waited for
        asked = beside.submit(_git, root, "status", "--porcelain", "--", ".", *excluded)
        named = _git(root, "rev-parse", "HEAD", "HEAD:./")
        changes = asked.result()
    if named is None or changes is None:
        return None
    commit, tree = named.split()
    dirty = bool(changes.strip())
    return SourceState(f"{tree[:_SHORT]}{'_dirty' if dirty else ''}", GitState(commit, dirty))


def _git(root: Path, *words: str) -> str | None:
    try:
        done = run(
            ["git", "-C", str(root), *words],
            timeout=_SECONDS,
            environment=clean_environment(GIT_OPTIONAL_LOCKS="0"),
        )
    except OSError:
        return None  # no git
    return done.output if done.ok else None


def project_files(root: Path) -> Iterator[str]:
    """Yield the files of a project, as sorted relative POSIX paths; hidden ones are left out."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(n for n in folders if n not in _SKIPPED and not n.startswith("."))
        prefix = os.path.relpath(folder, root)
        for name in sorted(files):
            if name not in _SKIPPED and not name.startswith(".") and not name.endswith(".pyc"):
                yield name if prefix == "." else f"{prefix}/{name}"


def _content(root: Path) -> str:
    whole = hashlib.sha256()
    for name in project_files(root):
        path = root / name
        if not path.is_file():
            continue
        with path.open("rb") as stream:
            part = hashlib.file_digest(stream, "sha256").digest()
        whole.update(f"{len(name)}:{name}".encode("utf-8", "surrogateescape") + part)
    return whole.hexdigest()
