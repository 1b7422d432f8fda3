"""Kernels by name: found in registries or in the cache, downloaded, verified and loaded.

Which versions there are is `versions`', what a kernel must prove is `policy`'s, how it becomes a
module is `load`'s. Here these meet: nothing is downloaded from whom the policy does not trust, and
nothing is imported that has not proved what the policy asks.
"""

from __future__ import annotations

import functools
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.config import get_config
from kernelmill.errors import IntegrityError, PackageError
from kernelmill.package.cache import HubCache, Source
from kernelmill.package.choice import choose, local_variant
from kernelmill.package.digest import hash_variant
from kernelmill.package.evidence import check_signature, verify_commit
from kernelmill.package.load import Candidate, Origin, load, read_candidate, verify_digest
from kernelmill.package.metadata import FILE
from kernelmill.package.offline import find_cached
from kernelmill.package.policy import Policy, RegistrySettings, Rule, read_policy
from kernelmill.package.registry_open import open_mirrors, open_settings
from kernelmill.package.requirements import check_arch, check_python
from kernelmill.package.signature import signature_path
from kernelmill.package.system import here
from kernelmill.package.versions import needs_of, newest, variant_files
from kernelmill.package.wanted import Wanted, check_repo_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import ModuleType

    from kernelmill.package.lock import Lock, LockedKernel
    from kernelmill.package.registry import File, Registry
    from kernelmill.package.system import System

    Progress = Callable[[int, int], None]

__all__ = [
    "MOST_BYTES",
    "Located",
    "Shelves",
    "local_overrides",
    "nothing_more",
    "refuse_circle",
]

MOST_BYTES: Final = 16 << 30
THREADS: Final = 8
_SIGNED: Final = 3


@dataclass(frozen=True, slots=True)
class Located:
    """One variant of one commit of a kernel, and the registry that named it."""

    repo_id: str
    commit: str
    variant: str
    settings: RegistrySettings
    revision: str = ""

    def __str__(self) -> str:
        return f"{self.repo_id} {self.variant} at {self.commit[:12]}"


def local_overrides(text: str) -> dict[str, Path]:
    """Read LOCAL_KERNELS: `organization/name=directory`, several separated by a colon.

    Raises
    ------
    PackageError
        A part is not of that form.

    Examples
    --------
    >>> from kernelmill.package.obtain import local_overrides
    >>> local_overrides("org/x=/tmp/x:org/y=/tmp/y")["org/y"].name
    'y'
    """
    found: dict[str, Path] = {}
    for part in filter(None, text.split(os.pathsep)):
        repo_id, equals, path = part.partition("=")
        if not equals or not repo_id or not path:
            raise PackageError(
                f"LOCAL_KERNELS has {part!r}; accepted: organization/name=directory, several "
                "separated by a colon"
            )
        found[repo_id] = Path(path)
    return found


@dataclass(slots=True)
class Shelves:
    """Everything that finds and loads kernels by name, with one policy, cache and system.

    Parameters
    ----------
    policy
        Registries and rules.
    registry
        The name of one of them, "" for the one that serves the repository.
    offline
        Whether no registry is asked.
    trust
        True vouches for all, a list for the repositories in it, where no rule is about them.
    backend
        "cpu" leaves the accelerator out; None is what the system has.
    progress
        Called with bytes that are there and bytes altogether, while files are downloaded.
    """

    policy: Policy = field(default_factory=read_policy)
    registry: str = ""
    offline: bool = field(default_factory=lambda: get_config().hub_offline)
    trust: bool | Sequence[str] = False
    backend: str | None = None
    progress: Progress | None = None
    check_arch: bool = True
    cache: HubCache = field(default_factory=lambda: HubCache(get_config().hub_cache))
    _opened: dict[str, Registry] = field(default_factory=dict)
    _vouches: dict[tuple[str, str], bool | None] = field(default_factory=dict)
    _listings: dict[tuple[str, str], tuple[File, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a text in `trust`: parts of its name would be trusted as well."""
        listed = isinstance(self.trust, (list, tuple, set, frozenset))
        if not (isinstance(self.trust, bool) or listed):
            raise PackageError(
                f"trust is {str(self.trust)[:80]!r}; accepted: True, False, a list of repositories",
                hint='for example ["org/img2gray"]',
            )

    # ------------------------------------------------------------------------- trust

    def settings(self, repo_id: str) -> RegistrySettings:
        """Return the registry of a repository, whose name is checked."""
        check_repo_id(repo_id)
        return self.policy.registry(repo_id, self.registry)

    def open(self, settings: RegistrySettings) -> Registry:
        """Return a registry, opened once."""
        if settings.name not in self._opened:
            self._opened[settings.name] = open_settings(settings)
        return self._opened[settings.name]

    def rule(self, settings: RegistrySettings, repo_id: str, commit: str = "") -> Rule:
        """Return what a repository's kernels must prove.

        Raises
        ------
        TrustError
            They are not trusted at all; the hint is the command that would change it.
        """
        asked = self.trust is True or (self.trust is not False and repo_id in self.trust)
        return self.policy.rule(
            settings.name,
            repo_id,
            vouched=lambda: asked or self._vouched(settings, repo_id, commit),
            trust="publisher" if asked else settings.trust,
        )

    def _vouched(self, settings: RegistrySettings, repo_id: str, commit: str) -> bool | None:
        source = self.cache.source(repo_id, commit) if commit else None
        if source is not None and source.registry == settings.url and source.trusted is not None:
            return source.trusted
        if self.offline:
            return None
        publisher = repo_id.partition("/")[0]
        vouched = self.open(settings).trusts(publisher)
        self._vouches[settings.name, publisher] = vouched
        return vouched

    # ------------------------------------------------------------------------- where it is

    def locate(self, repo_id: str, wanted: Wanted) -> Located:
        """Return the newest version in a range, and its variant for this system.

        Raises
        ------
        TrustError
            The policy does not trust its publisher; no request about it was made.
        PackageError
            No version is in the range, or none has a variant for this system.
        RegistryError
            The registry does not answer.
        """
        settings = self.settings(repo_id)
        if self.offline:
            commit, variant = find_cached(self.cache, repo_id, wanted, _system(self.backend))
            return Located(repo_id, commit, variant, settings)
        self.rule(settings, repo_id)
        registry = self.open(settings)
        found = newest(registry, repo_id, wanted, system=_system(self.backend))
        one = found.published
        for name in {one.branch, one.tag, wanted.revision} - {"", one.commit}:
            if not one.commit.startswith(name):
                self.cache.set_ref(repo_id, name, one.commit)
        return Located(repo_id, one.commit, found.variant, settings, one.branch or wanted.revision)

    # ------------------------------------------------------------------------- bytes

    def listing(self, located: Located) -> tuple[File, ...]:
        """Return all files of the commit of a kernel.

        Raises
        ------
        PackageError
            They were never listed, and no registry may be asked.
        """
        key = (located.repo_id, located.commit)
        known = self._listings.get(key) or self.cache.known_files(*key)
        if known is not None:
            self._listings[key] = known
            return known
        if self.offline:
            raise PackageError(
                f"the files of {located.repo_id} at {located.commit[:12]} were never listed, so "
                "that what is in the cache cannot be verified offline",
                hint="`kernelmill download` lists them where there is a network",
            )
        return self.cache.files(located.repo_id, located.commit, self.open(located.settings))

    def download(self, located: Located, *, variants: Iterable[str] = ()) -> Path:
        """Fetch the files of a kernel into the cache; return the variant's directory there.

        Parameters
        ----------
        located
            What is wanted.
        variants
            More of them; the one for this system is fetched in any case.

        Raises
        ------
        TrustError, RegistryError, IntegrityError
            See `rule` and `HubCache.fetch_file`.
        """
        self.rule(located.settings, located.repo_id, located.commit)
        names = {located.variant, *variants} - {""}
        files = [file for file in self.listing(located) if _belongs(file.path, names)]
        total = sum(file.size for file in files)
        if total > MOST_BYTES:
            raise IntegrityError(
                f"{located} has {total:,} bytes; the limit is {MOST_BYTES:,}",
                hint="no kernel is that large: its listing was made to fill a disk",
            )
        self._note_source(located)
        sources: Iterable[Registry] = () if self.offline else _Lazy(self, located.settings)
        self._fetch_all(located, files, sources)
        return self._place(located)

    def _place(self, located: Located) -> Path:
        snapshot = self.cache.snapshot(located.repo_id, located.commit)
        return snapshot / "build" / located.variant

    def _note_source(self, located: Located) -> None:
        if self.offline:
            return
        publisher = located.repo_id.partition("/")[0]
        vouched = self._vouches.get((located.settings.name, publisher))
        known = self.cache.source(located.repo_id, located.commit)
        if vouched is None and known is not None and known.registry == located.settings.url:
            return
        source = Source(located.settings.url, vouched)
        self.cache.set_source(located.repo_id, located.commit, source)

    def _fetch_all(
        self, located: Located, files: Sequence[File], sources: Iterable[Registry]
    ) -> None:
        total = sum(file.size for file in files)
        missing = self.cache.missing(located.repo_id, located.commit, files)
        done = total - sum(file.size for file in missing)
        fetch = functools.partial(
            self.cache.fetch_file, located.repo_id, located.commit, registries=sources
        )
        if not missing:
            return
        with ThreadPoolExecutor(THREADS) as pool:
            jobs = [(pool.submit(fetch, file), file) for file in missing]
            try:
                for job, file in jobs:
                    job.result()
                    done += file.size
                    if self.progress is not None:
                        self.progress(done, total)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    # ------------------------------------------------------------------------- verified

    def candidate(self, located: Located) -> tuple[Candidate, Callable[[Candidate], None]]:
        """Return a downloaded variant, and what verifies it before it is imported.

        Raises
        ------
        TrustError
            A signature is wanted and not there, or not over these bytes.
        """
        rule = self.rule(located.settings, located.repo_id, located.commit)
        found = _read(located, rule, self.download(located))
        return found, functools.partial(self._verify, located, rule)

    def _verify(self, located: Located, rule: Rule, found: Candidate) -> None:
        files = variant_files(self.listing(located)).get(located.variant, {})
        verify_commit(found, files)
        verify_digest(found, required=rule.level > 1)

    def load(
        self,
        repo_id: str,
        wanted: Wanted,
        chain: tuple[str, ...] = (),
    ) -> ModuleType:
        """Return a kernel as a module, with what it depends on loaded before.

        Raises
        ------
        PackageError
            As `locate`, `download` and `load.load`; or kernels depend on each other in a circle.
        """
        override = local_overrides(get_config().local_kernels).get(repo_id)
        if override is not None:
            return self.load_local(override, chain)
        located = self.locate(repo_id, wanted)
        found, verify = self.candidate(located)
        return self.finish(found, verify, (*chain, repo_id))

    def load_local(self, path: Path, chain: tuple[str, ...] = ()) -> ModuleType:
        """Return a kernel of a directory; what it depends on comes from registries."""
        found = read_candidate(local_variant(path, backend=self.backend))
        return self.finish(found, verify_digest, (*chain, str(path)))

    def finish(
        self, found: Candidate, verify: Callable[[Candidate], None], chain: tuple[str, ...]
    ) -> ModuleType:
        """Verify a kernel, load what it depends on, then the kernel."""
        verify(found)
        self.check_system(found)
        needs: dict[str, ModuleType] = {}
        for need in needs_of([found.metadata], place=str(found.directory / FILE)).kernels:
            refuse_circle(need.repo_id, chain)
            needs[need.repo_id] = self.load(need.repo_id, need.wanted, chain)
        return load(found, verify=nothing_more, dependencies=needs)

    def check_system(self, found: Candidate) -> None:
        """Make sure that what a verified kernel needs is here: distributions and the chip.

        Raises
        ------
        PackageError
            It is not.
        """
        check_python(found.metadata)
        if self.check_arch:
            check_arch(found.metadata)

    # ------------------------------------------------------------------------- locked

    def locate_locked(self, kernel: LockedKernel) -> Located:
        """Return the variant for this system of a kernel that is locked; asks nobody."""
        choice = choose(kernel.variants, _system(self.backend))
        variant = str(choice.require(f"{kernel.slot} {kernel.version}, as locked,"))
        settings = self.settings(kernel.repo_id)
        return Located(kernel.repo_id, kernel.commit, variant, settings, kernel.revision)

    def load_locked(self, lock: Lock, repo_id: str) -> ModuleType:
        """Return a kernel as it is locked, every file of it verified against the lock.

        Raises
        ------
        LockError
            It is not locked, or a file is not the locked one.
        PackageError
            As `load`.
        """
        override = local_overrides(get_config().local_kernels).get(repo_id.partition("@")[0])
        if override is not None:
            return self.load_local(override)
        kernel = lock.find(repo_id)
        located = self.locate_locked(kernel)
        rule = self.rule(located.settings, kernel.repo_id, kernel.commit)
        place = self._place(located)
        try:
            found = _as_locked(located, rule, kernel, place)
        except PackageError:  # not there, or not whole: what is missing is fetched, or said
            found = _as_locked(located, rule, kernel, self.download(located))
        else:
            self._note_source(located)
        self.check_system(found)
        # The lock was made without circles, and reading it checked that all slots are there.
        needs = {slot.partition("@")[0]: self.load_locked(lock, slot) for slot in kernel.needs}
        return load(found, verify=nothing_more, dependencies=needs)


def refuse_circle(repo_id: str, chain: Sequence[str]) -> None:
    """Refuse a kernel that one before it in the chain of dependencies is already.

    Raises
    ------
    PackageError
        It is; the text shows the way round.
    """
    if repo_id in chain:
        circle = " -> ".join([*chain[chain.index(repo_id) :], repo_id])
        raise PackageError(f"kernels depend on each other in a circle: {circle}")


def _system(backend: str | None) -> System:
    """Return what this process can load; asked again once torch is there."""
    return _system_with(backend, "torch" in sys.modules)


@functools.cache
def _system_with(backend: str | None, torch: bool) -> System:  # noqa: FBT001 - part of the key
    del torch
    return here(backend)


@dataclass(frozen=True, slots=True)
class _Lazy:
    """A registry and its mirrors, opened when something must really be asked."""

    shelves: Shelves
    settings: RegistrySettings

    def __iter__(self) -> Iterator[Registry]:
        yield self.shelves.open(self.settings)
        yield from open_mirrors(self.settings)


def _read(located: Located, rule: Rule, directory: Path) -> Candidate:
    """Read and hash a variant in the cache; its signature before, where the rule wants one."""
    origin = Origin(located.settings.url, located.repo_id, located.commit)
    checks = None
    if rule.level == _SIGNED:
        checks = functools.partial(check_signature, located.repo_id, rule, directory)
    return read_candidate(directory, origin=origin, before_parsing=checks)


def _as_locked(located: Located, rule: Rule, kernel: LockedKernel, directory: Path) -> Candidate:
    """Return a variant in the cache, every file of it compared with the lock."""
    found = _read(located, rule, directory)
    digest = found.digest
    if digest.algorithm != "sha256":
        digest = hash_variant(directory)
    # The lock has the sha256 of every file of the commit, which says more than blob ids do.
    kernel.verify(located.variant, digest, found.raw)
    verify_digest(found, required=rule.level > 1)
    return found


def nothing_more(_: Candidate) -> None:
    """Verify nothing: it was done before the dependencies were loaded."""


def _belongs(path: str, variants: Iterable[str]) -> bool:
    """Return whether a file belongs to one of some variants; bytecode never does."""
    if path.endswith(".pyc") or "__pycache__" in path.split("/"):
        return False
    return any(
        path.startswith(f"build/{name}/") or path == signature_path(name) for name in variants
    )
