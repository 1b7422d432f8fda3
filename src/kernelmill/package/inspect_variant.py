"""What a kernel says of itself, and which of its promises hold; imports no kernel.

Each promise is checked on its own and reported, whatever the policy asks for; the last check is the
policy's.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernelmill.errors import PackageError
from kernelmill.package.cache import content_key
from kernelmill.package.choice import directories, local_variant
from kernelmill.package.evidence import verify_commit
from kernelmill.package.load import Candidate, read_candidate, verify_digest
from kernelmill.package.metadata import FILE
from kernelmill.package.signature import BUNDLE, Signed, read_keys, signature_path
from kernelmill.package.versions import needs_of, variant_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kernelmill.package.metadata import Provenance
    from kernelmill.package.obtain import Located, Shelves

__all__ = [
    "Check",
    "Facts",
    "Verdict",
    "facts_of_directory",
    "facts_of_published",
    "verify_directory",
    "verify_published",
]


@dataclass(frozen=True, slots=True)
class Check:
    """One promise: whether it holds (None where there is no such promise), and what was found."""

    name: str
    holds: bool | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of one variant."""

    variant: str
    directory: Path
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing fails."""
        return all(check.holds is not False for check in self.checks)

    def tried(self, check: Check) -> Verdict:
        """Return the verdict with one check more."""
        return replace(self, checks=(*self.checks, check))


@dataclass(frozen=True, slots=True)
class Facts:
    """What a variant's metadata says, and where it came from."""

    name: str
    version: str
    integer: int
    variant: str
    id: str
    license: str
    backend: str
    archs: tuple[str, ...]
    source: str
    upstream: str
    built_by: str
    built_from: str
    kernels: tuple[str, ...]
    python: tuple[str, ...]
    digest: str
    signed_by: tuple[str, ...]
    repository: str = ""
    commit: str = ""
    directory: str = ""

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield what people read: name and value."""
        yield "name", self.name
        yield "version", f"{self.version} (v{self.integer})"
        for name in ("repository", "commit", "variant", "id", "license", "backend"):
            yield name, str(getattr(self, name))
        for name in ("archs", "source", "upstream", "built_by", "built_from", "kernels", "python"):
            value = getattr(self, name)
            yield name.replace("_", " "), value if isinstance(value, str) else ", ".join(value)
        yield "digest", self.digest
        yield "signed by", ", ".join(self.signed_by)
        yield "directory", self.directory


# ----------------------------------------------------------------------------- facts


def facts_of_directory(path: Path, *, backend: str | None = None) -> Facts:
    """Return what the best variant in a directory says.

    Raises
    ------
    PackageError
        There is none for this system, or its metadata cannot be used.
    """
    return _facts(read_candidate(local_variant(path, backend=backend)))


def facts_of_published(shelves: Shelves, located: Located) -> Facts:
    """Return what a published variant says; it is downloaded for that.

    Raises
    ------
    PackageError
        As `Shelves.download`.
    """
    found = read_candidate(shelves.download(located))
    return replace(
        _facts(found),
        repository=f"{located.repo_id} ({located.settings.url})",
        commit=located.commit,
    )


def _facts(found: Candidate) -> Facts:
    metadata = found.metadata
    needs = needs_of([metadata], place=str(found.directory / FILE))
    provenance = metadata.provenance
    return Facts(
        name=metadata.name,
        version=metadata.semantic_version or str(metadata.version),
        integer=metadata.version,
        variant=found.name,
        id=metadata.id,
        license=metadata.license,
        backend=metadata.backend,
        archs=metadata.archs or (),
        source=metadata.source or "",
        upstream=metadata.upstream or "",
        built_by=_builder(provenance),
        built_from=_state(provenance),
        kernels=tuple(map(str, needs.kernels)),
        python=tuple(map(str, needs.python)),
        digest=f"{metadata.digest.algorithm}, {metadata.digest.root()}" if metadata.digest else "",
        signed_by=tuple(_signers(found.directory)),
        directory=str(found.directory),
    )


def _builder(provenance: Provenance | None) -> str:
    """Return what built a kernel: the format has a bare version for `kernel-builder`'s."""
    made = provenance.builder if provenance else ""
    return f"kernel-builder {made}" if made[:1].isdigit() else made


def _state(provenance: Provenance | None) -> str:
    if provenance is None or provenance.kernel is None:
        return ""
    changed = ", with changes that were not committed" if provenance.kernel.dirty else ""
    return f"commit {provenance.kernel.commit}{changed}"


def _signers(directory: Path) -> Iterator[str]:
    yield from read_keys(directory.parent.parent / signature_path(directory.name))
    if (directory / BUNDLE).is_file():
        yield "a sigstore bundle"


# ----------------------------------------------------------------------------- verdicts


def verify_directory(path: Path, *, every: bool, backend: str | None = None) -> list[Verdict]:
    """Check the variants in a directory: digests, and whether they can be read at all.

    Raises
    ------
    PackageError
        There is no variant in it.
    """
    first = local_variant(path, backend=backend)
    beside = first.parent
    places = [beside / name for name in sorted(directories(beside))] if every else [first]
    return [_verdict(place, lambda found: [_digest(found), *_there(found)]) for place in places]


def _verdict(place: Path, checks: Callable[[Candidate], list[Check]]) -> Verdict:
    try:
        found = read_candidate(place)
    except PackageError as error:
        return Verdict(place.name, place, (Check("readable", holds=False, text=error.message),))
    return Verdict(place.name, place, tuple(checks(found)))


def _digest(found: Candidate) -> Check:
    if found.metadata.digest is None:
        return Check("digest", None, "metadata.json holds none")
    return _tried("digest", lambda: verify_digest(found), f"{len(found.digest.files)} files")


def _there(found: Candidate) -> Iterator[Check]:
    signers = ", ".join(_signers(found.directory))
    if signers:
        text = f"by {signers}; it counts for a repository's name, so `verify ORG/NAME` checks it"
        yield Check("signature", None, text)


def _tried(name: str, work: Callable[[], object], text: str) -> Check:
    try:
        found = work()
    except PackageError as error:
        return Check(name, holds=False, text=" ".join(error.message.split()))
    return Check(name, holds=True, text=text if found is None else str(found))


def verify_published(
    shelves: Shelves, located: Located, *, every: bool, repair: bool = False
) -> list[Verdict]:
    """Check variants of a commit: its blob ids, digests, signatures, and what the policy asks.

    Parameters
    ----------
    shelves, located
        Where, and what.
    every
        Whether all variants are checked; else the one for this system.
    repair
        Whether contents in the cache that are not as promised are downloaded again.

    Raises
    ------
    PackageError
        As `Shelves.download`.
    """
    names = list(variant_files(shelves.listing(located))) if every else [located.variant]
    if repair:
        _drop_wrong(shelves, located, names)
    shelves.download(located, variants=names)
    build = shelves.cache.snapshot(located.repo_id, located.commit) / "build"
    verdicts = []
    for name in names:
        one = replace(located, variant=name)
        verdicts.append(_verdict(build / name, functools.partial(_checks, shelves, one)))
    return verdicts


def _drop_wrong(shelves: Shelves, located: Located, names: list[str]) -> None:
    files = variant_files(shelves.listing(located))
    home = shelves.cache.home(located.repo_id)
    for name in names:
        for file in files.get(name, {}).values():
            blob = home / "blobs" / file.key
            if blob.is_file() and content_key(blob, file) != file.key:
                blob.unlink()


def _checks(shelves: Shelves, located: Located, found: Candidate) -> list[Check]:
    files = variant_files(shelves.listing(located)).get(located.variant, {})
    commit = _tried("commit", lambda: verify_commit(found, files), f"{len(files)} files")
    rule = shelves.rule(located.settings, located.repo_id, located.commit)
    level = rule.level
    made = [commit, _digest(found), *_signature_checks(located, found)]
    text = f"level {level} for {rule.publisher!r}"
    return [*made, _tried("policy", lambda: _policy(shelves, located), text)]


def _policy(shelves: Shelves, located: Located) -> None:
    found, verify = shelves.candidate(located)
    verify(found)


def _signature_checks(located: Located, found: Candidate) -> Iterator[Check]:
    place = found.directory.parent.parent / signature_path(found.name)
    signed = Signed(located.repo_id, found.name, found.raw, place, found.directory / BUNDLE)
    for key in read_keys(place):
        yield Check("signature", signed.holds(key), f"by {key}")
    if (found.directory / BUNDLE).is_file():
        yield Check("sigstore", None, "a bundle is there; a rule with an identity checks it")
