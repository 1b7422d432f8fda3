"""What is known of a registry's kernels while versions are chosen; each thing is asked once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelmill.package.parallel import each
from kernelmill.package.versions import Needs, Published, describe, published
from kernelmill.package.wanted import Version, Wanted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelmill.package.index import KernelNeed
    from kernelmill.package.registry import File
    from kernelmill.package.versions import Reading

__all__ = ["Catalog"]


@dataclass(slots=True)
class Catalog:
    """Versions by repository, as far as somebody has asked.

    Parameters
    ----------
    registry
        Where they are published.
    preferred
        Slot → commit that is chosen before newer ones where it meets what is asked.
    """

    registry: Reading
    preferred: Mapping[str, str] = field(default_factory=dict)
    _versions: dict[str, tuple[Published, ...]] = field(default_factory=dict)
    _described: dict[tuple[str, str, int], Published] = field(default_factory=dict)
    _files: dict[tuple[str, str], tuple[File, ...]] = field(default_factory=dict)
    _read: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    _commits: dict[tuple[str, str], str] = field(default_factory=dict)

    # ------------------------------------------------------------------------- looking ahead

    def crawl(self, needs: Sequence[KernelNeed]) -> None:
        """Ask for what a search will want first: the first choice for each need, level by level."""
        seen: set[KernelNeed] = set()
        level = list(dict.fromkeys(needs))
        while level:
            seen.update(level)
            repos = dict.fromkeys(need.repo_id for need in level)
            list(each(self.versions, [repo for repo in repos if repo not in self._versions]))
            found = each(self._first, level)
            level = list(
                dict.fromkeys(need for needs in found for need in needs.kernels if need not in seen)
            )

    def _first(self, need: KernelNeed) -> Needs:
        candidates = self.candidates(need.repo_id, [need.wanted], need.repo_id)
        return self.needs(need.repo_id, candidates[0]) if candidates else Needs()

    # ------------------------------------------------------------------------- questions

    def versions(self, repo_id: str) -> tuple[Published, ...]:
        """Return the published versions of a repository, the newest first."""
        found = self._versions.get(repo_id)
        if found is None:
            found = published(self.registry, repo_id, refs=True)
            self._versions[repo_id] = found
        return found

    def described(self, repo_id: str, one: Published) -> Published:
        """Return a version with its exact number, variants and needs."""
        key = repo_id, one.commit, one.version.major
        found = self._described.get(key)
        if found is None:
            found = self._described[key] = describe(self, repo_id, one)
        return found

    def files(self, repo_id: str, commit: str) -> tuple[File, ...]:
        """Return the files of a commit."""
        key = repo_id, commit
        found = self._files.get(key)
        if found is None:
            found = self._files[key] = self.registry.files(repo_id, commit)
        return found

    def read(self, repo_id: str, commit: str, path: str) -> bytes:
        """Return the bytes of a small file."""
        key = repo_id, commit, path
        found = self._read.get(key)
        if found is None:
            found = self._read[key] = self.registry.read(repo_id, commit, path)
        return found

    def needs(self, repo_id: str, one: Published) -> Needs:
        """Return what a version depends on."""
        return self.described(repo_id, one).needs or Needs()

    def commit(self, repo_id: str, revision: str) -> str:
        """Return the whole id of a revision."""
        key = repo_id, revision
        found = self._commits.get(key)
        if found is None:
            found = self._commits[key] = self.registry.commit(repo_id, revision)
        return found

    def admits(self, need: KernelNeed, one: Published) -> bool:
        """Whether a version is what is asked for; a revision is told by its commit."""
        return self._fits(need.repo_id, one, [need.wanted])

    def candidates(
        self, repo_id: str, wanted: Sequence[Wanted], slot: str
    ) -> tuple[Published, ...]:
        """Return the versions that meet all of `wanted`: the preferred one, then newest first.

        Where an integer is asked for, the head of its branch comes before newer versions.
        """
        revisions = [what.revision for what in wanted if what.revision]
        found = self._at(repo_id, revisions[0]) if revisions else self.versions(repo_id)
        if any(what.integer is None and not what.revision for what in wanted):
            # A branch whose exact version is unknown may be in a range or not, newest or not.
            exact = each(lambda one: self._exact(repo_id, one), found)
            found = tuple(sorted(exact, key=lambda one: one.version, reverse=True))
        found = tuple(one for one in found if self._fits(repo_id, one, wanted))
        if any(what.integer is not None for what in wanted):  # which mean heads of branches
            found = tuple(sorted(found, key=lambda one: not one.branch))
        kept = self.preferred.get(slot)
        return tuple(sorted(found, key=lambda one: one.commit != kept))

    def _exact(self, repo_id: str, one: Published) -> Published:
        return one if one.exact else self.described(repo_id, one)

    def _fits(self, repo_id: str, one: Published, wanted: Sequence[Wanted]) -> bool:
        for what in wanted:
            if what.revision:
                if self.commit(repo_id, what.revision) != one.commit:
                    return False
                continue
            seen = one if what.integer is not None else self._exact(repo_id, one)
            if not what.admits(seen.version):
                return False
        return True

    def _at(self, repo_id: str, revision: str) -> tuple[Published, ...]:
        commit = self.commit(repo_id, revision)
        known = [one for one in self._versions.get(repo_id, ()) if one.commit == commit]
        if known:
            return tuple(known)
        return (self.described(repo_id, Published(Version("0"), commit, exact=False)),)

    def slot(self, need: KernelNeed) -> str:
        """Return the place of a need where several major versions live side by side."""
        if need.wanted.integer is not None:
            return f"{need.repo_id}@{need.wanted.integer}"
        found = self.candidates(need.repo_id, [need.wanted], "")
        major = f"{self.described(need.repo_id, found[0]).version.major}" if found else "?"
        return f"{need.repo_id}@{major}"
