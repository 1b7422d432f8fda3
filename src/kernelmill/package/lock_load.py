"""Kernels as a lock of either form names them: fetched ahead (`sync`), loaded (`load_locked`).

What is downloaded is compared with the lock, and so is what is loaded. Commits are those of the
lock: where branches and tags stand today is nobody's question here.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kernelmill.config import get_config
from kernelmill.errors import LockError, NotPublishedError, PackageError, RegistryError
from kernelmill.package.choice import choose
from kernelmill.package.digest import hash_variant
from kernelmill.package.load import load
from kernelmill.package.lock import Lock
from kernelmill.package.metadata import FILE
from kernelmill.package.obtain import (
    Located,
    Shelves,
    local_overrides,
    nothing_more,
    refuse_circle,
)
from kernelmill.package.parallel import each
from kernelmill.package.policy import read_policy
from kernelmill.package.system import here
from kernelmill.package.versions import needs_of, variant_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from types import ModuleType

    from kernelmill.package.lock import LockedKernel
    from kernelmill.package.lock_find import FoundLock
    from kernelmill.package.lock_hf import HfLock
    from kernelmill.package.registry import File

__all__ = ["Synced", "load_found", "load_locked", "sync"]


def load_found(
    found: FoundLock,
    repo_id: str,
    *,
    backend: str | None = None,
    trust: bool | Sequence[str] = False,
    check_arch: bool = True,
    offline: bool | None = None,
) -> ModuleType:
    """Return a kernel as a lock names it that was found for some code.

    Parameters
    ----------
    found
        From `lock_find.find_lock`; the policy of its project counts, where it has one.
    repo_id
        `organization/name`.
    backend, trust, check_arch
        As for `hub.get_kernel`.
    offline
        True makes no request; None does what HF_HUB_OFFLINE says.

    Raises
    ------
    LockError, PackageError
        As `load_locked`.
    """
    shelves = Shelves(
        policy=read_policy(found.project), backend=backend, trust=trust, check_arch=check_arch
    )
    if offline is not None:
        shelves.offline = offline
    return load_locked(shelves, found.lock, repo_id)


def load_locked(shelves: Shelves, lock: Lock | HfLock, repo_id: str) -> ModuleType:
    """Return a kernel as it is locked, with what it depends on, as a module.

    Parameters
    ----------
    shelves
        Cache, registries, policy; offline, it asks nobody.
    lock
        Ours, in which every file is verified, or Hugging Face's, in which the commit is.
    repo_id
        `organization/name`.

    Raises
    ------
    LockError
        It is not locked, or something else than what was locked is there.
    PackageError
        It has no variant for this system, is not trusted, or cannot be imported.
    """
    if isinstance(lock, Lock):
        return shelves.load_locked(lock, repo_id)
    return _load_theirs(shelves, lock, repo_id, lock.find(repo_id)[1], ())


def _load_theirs(
    shelves: Shelves, lock: HfLock, repo_id: str, commit: str, chain: tuple[str, ...]
) -> ModuleType:
    refuse_circle(repo_id, chain)
    override = local_overrides(get_config().local_kernels).get(repo_id)
    if override is not None:
        return shelves.load_local(override)
    located, files = _locate(shelves, repo_id, commit)
    found, verify = shelves.candidate(located)
    lock.verify(repo_id, located.variant, files)
    verify(found)
    shelves.check_system(found)
    needs: dict[str, ModuleType] = {}
    for need in needs_of([found.metadata], place=str(found.directory / FILE)).kernels:
        theirs = lock.commit(need)
        needs[need.repo_id] = _load_theirs(shelves, lock, need.repo_id, theirs, (*chain, repo_id))
    return load(found, verify=nothing_more, dependencies=needs)


def _locate(shelves: Shelves, repo_id: str, commit: str) -> tuple[Located, dict[str, File]]:
    """Return the variant of a commit for this system, and its files."""
    settings = shelves.settings(repo_id)
    shelves.rule(settings, repo_id, commit)
    try:
        listing = shelves.listing(Located(repo_id, commit, "", settings))
    except NotPublishedError as error:
        raise _gone(shelves, repo_id, commit, "") from error
    variants = variant_files(listing)
    best = str(choose(variants, here(shelves.backend)).require(f"{repo_id} at {commit[:12]}"))
    return Located(repo_id, commit, best, settings), variants[best]


def _gone(shelves: Shelves, repo_id: str, commit: str, revision: str) -> LockError:
    """Say where a branch or tag stands, of which the registry has lost the locked commit."""
    registry = shelves.open(shelves.settings(repo_id))
    try:
        ref = registry.refs(repo_id).find(revision) if revision else None
    except RegistryError:
        ref = None
    now = f"; {revision} stands at {ref.commit} now" if ref is not None else ""
    return LockError(
        f"{repo_id}: the locked commit {commit} is not in {registry.url} any more{now}",
        hint="its publisher replaced it; look at what changed before `kernelmill lock --upgrade`",
    )


# ----------------------------------------------------------------------------- ahead of time


@dataclass(frozen=True, slots=True)
class Synced:
    """A kernel that lies in the cache as it was locked."""

    slot: str
    version: str
    commit: str
    variants: tuple[str, ...]
    directory: Path
    size: int


def sync(
    shelves: Shelves,
    lock: Lock | HfLock,
    *,
    all_variants: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Synced, ...]:
    """Download every kernel of a lock into the cache and compare it with the lock.

    Parameters
    ----------
    shelves
        Cache, registries, policy; offline, it only compares.
    lock
        Ours or Hugging Face's.
    all_variants
        Those for other systems too, such as for an image that is built elsewhere.
    progress
        Called with bytes that are there and bytes altogether.

    Raises
    ------
    LockError
        Bytes are not those that were locked, or a registry has lost a commit.
    PackageError
        A kernel has no variant for this system; the others were fetched all the same.
    RegistryError
        A registry does not answer.
    """
    jobs = (
        _ours(shelves, lock, all_variants)
        if isinstance(lock, Lock)
        else _theirs(shelves, lock, all_variants)
    )
    total = _Total(progress)
    found = list(each(lambda job: _carry_out(shelves, job, total), jobs))
    refusals = [one for one in found if isinstance(one, PackageError)]
    if len(refusals) == 1:
        raise refusals[0]
    if refusals:
        kinds = {type(one) for one in refusals}
        kind = kinds.pop() if len(kinds) == 1 else PackageError
        text = "\n".join(one.message for one in refusals)
        raise kind(text, hint=refusals[0].hint)
    return tuple(one for one in found if isinstance(one, Synced))


@dataclass(slots=True)
class _Total:
    """Progress over all kernels, from several threads."""

    tell: Callable[[int, int], None] | None
    guard: threading.Lock = field(default_factory=threading.Lock)
    done: int = 0
    size: int = 0

    def of_one(self) -> Callable[[int, int], None] | None:
        """Return what one kernel's download calls."""
        if self.tell is None:
            return None
        before = [0, 0]

        def said(done: int, size: int) -> None:
            assert self.tell is not None
            with self.guard:
                self.done += done - before[0]
                self.size += size - before[1]
                before[:] = done, size
                self.tell(self.done, self.size)

        return said


@dataclass(frozen=True, slots=True)
class _Job:
    """One kernel to fetch: what to fetch, and how it is compared with the lock."""

    slot: str
    version: str
    revision: str
    find: Callable[[], Located]
    variants: Callable[[Located], Sequence[str]]
    compare: Callable[[Located, str, Path], None]


def _ours(shelves: Shelves, lock: Lock, everything: bool) -> Iterable[_Job]:  # noqa: FBT001
    def job(kernel: LockedKernel) -> _Job:
        def find() -> Located:
            if everything:
                settings = shelves.settings(kernel.repo_id)
                name = next(iter(kernel.variants), "")
                return Located(kernel.repo_id, kernel.commit, name, settings, kernel.revision)
            return shelves.locate_locked(kernel)

        def compare(_: Located, variant: str, directory: Path) -> None:
            kernel.verify(variant, hash_variant(directory), (directory / FILE).read_bytes())

        return _Job(
            kernel.slot, kernel.version, kernel.revision, find,
            lambda located: tuple(kernel.variants) if everything else (located.variant,),
            compare,
        )  # fmt: skip

    return [job(kernel) for kernel in lock.kernels.values()]


def _theirs(shelves: Shelves, lock: HfLock, everything: bool) -> Iterable[_Job]:  # noqa: FBT001
    def job(repo_id: str, commit: str, version: str) -> _Job:
        def files(located: Located) -> dict[str, dict[str, File]]:
            return variant_files(shelves.listing(located))

        def compare(located: Located, variant: str, _: Path) -> None:
            lock.verify(repo_id, variant, files(located)[variant])

        return _Job(
            repo_id, version, "", lambda: _locate(shelves, repo_id, commit)[0],
            lambda located: tuple(files(located)) if everything else (located.variant,),
            compare,
        )  # fmt: skip

    once = {(need.repo_id, commit): str(need.wanted) for need, commit in lock.commits.items()}
    return [job(repo_id, commit, version) for (repo_id, commit), version in once.items()]


def _carry_out(shelves: Shelves, job: _Job, total: _Total) -> Synced | PackageError:
    """Fetch one kernel and compare it; a refusal is returned, so that the others go on."""
    try:
        located = job.find()
        mine = replace(shelves, progress=total.of_one())
        variants = job.variants(located)
        try:
            directory = mine.download(located, variants=variants)
        except NotPublishedError as error:
            raise _gone(shelves, located.repo_id, located.commit, job.revision) from error
        size = 0
        for variant in variants:
            place = directory.parent / variant
            job.compare(located, variant, place)
            size += sum(p.stat().st_size for p in place.rglob("*") if p.is_file())
    except PackageError as error:
        return error
    return Synced(job.slot, job.version, located.commit, tuple(variants), directory.parent, size)
