"""Versions and variants of kernels in the cache: what is found where no registry may be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmill.errors import NotPublishedError, PackageError
from kernelmill.package.choice import choose
from kernelmill.package.metadata import FILE, read_metadata
from kernelmill.package.registry import Ref, Refs, pick_commit
from kernelmill.package.versions import variant_files
from kernelmill.package.wanted import branch_of, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelmill.package.cache import HubCache
    from kernelmill.package.system import System
    from kernelmill.package.wanted import Wanted

__all__ = ["find_cached"]


def find_cached(cache: HubCache, repo_id: str, wanted: Wanted, system: System) -> tuple[str, str]:
    """Return the newest cached commit in a range, and its variant for a system.

    Raises
    ------
    NotPublishedError
        No cached commit is in the range.
    PackageError
        The variant for the system is not in the cache, or none is for it.
    """
    refs = cache.refs(repo_id)
    commits = cache.commits(repo_id)
    if wanted.revision:
        known = Refs(tuple(Ref(name, commit) for name, commit in sorted(refs.items())))
        place = f"{repo_id} in the cache {cache.root}"
        asked = [pick_commit(wanted.revision, known, commits, place=place)]
    elif wanted.integer is not None and branch_of(wanted.integer) in refs:
        asked = [refs[branch_of(wanted.integer)]]
    else:  # as for an integer whose branch was never seen: it came with a lock
        asked = _in_range(cache, repo_id, wanted, commits)
    for commit in asked:
        return commit, _variant(cache, repo_id, commit, system)
    there = ", ".join(f"{name} ({commit[:12]})" for name, commit in sorted(refs.items()))
    raise NotPublishedError(
        f"{repo_id} ({wanted}) is not in the cache {cache.root}, and no registry is asked "
        f"while offline; cached: {there or 'nothing'}",
        hint="fetch it once where there is a network, or unset HF_HUB_OFFLINE",
    )


def _in_range(cache: HubCache, repo_id: str, wanted: Wanted, commits: Iterable[str]) -> list[str]:
    """Return the cached commits in a range, the newest version first."""
    found = []
    for commit in commits:
        for directory in sorted((cache.snapshot(repo_id, commit) / "build").glob("*")):
            if not (directory / FILE).is_file():
                continue
            metadata = read_metadata(directory)
            version = parse_version(metadata.semantic_version or str(metadata.version))
            if wanted.admits(version):
                found.append((version, commit))
            break
    return [commit for _, commit in sorted(found, reverse=True)]


def _variant(cache: HubCache, repo_id: str, commit: str, system: System) -> str:
    """Return the variant for a system, judged by all that were published."""
    files = cache.known_files(repo_id, commit)
    build = cache.snapshot(repo_id, commit) / "build"
    present = [p.name for p in build.glob("*") if p.is_dir()] if build.is_dir() else []
    names = list(variant_files(files)) if files is not None else present
    best = str(choose(names, system).require(f"{repo_id} at {commit[:12]}"))
    if best not in present:
        raise PackageError(
            f"{repo_id} at {commit[:12]}: the variant for this system, {best}, is not in the "
            f"cache; cached: {', '.join(sorted(present)) or 'none'}",
            hint="`kernelmill download` fetches it where there is a network",
        )
    return best
