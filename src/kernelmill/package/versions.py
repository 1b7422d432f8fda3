"""The versions that a repository publishes, and which of them this machine loads.

A version lives where its publisher put it: at the head of the branch `vN`, under a tag such as
`v1.2.0`, or, where a branch has moved on from it, in the index on `main`. The index answers in one
request. Without it, references take one and each version one more, in parallel. What is fetched and
verified is decided elsewhere.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from kernelmill.errors import NotPublishedError, NoVariantError, PackageError
from kernelmill.package.choice import Choice, choose
from kernelmill.package.index import (
    INDEX,
    MOST_BYTES,
    Index,
    KernelNeed,
    kernel_needs,
    python_needs,
)
from kernelmill.package.metadata import FILE, Metadata
from kernelmill.package.parallel import both, each
from kernelmill.package.wanted import (
    PythonNeed,
    Version,
    Wanted,
    branch_of,
    check_repo_id,
    integer_of_branch,
    joined,
    parse_version,
    version_of_tag,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelmill.package.registry import File, Refs
    from kernelmill.package.system import System

__all__ = [
    "Needs",
    "Published",
    "Reading",
    "Selection",
    "Surveyed",
    "describe",
    "needs_of",
    "newest",
    "published",
    "read_index",
    "survey",
    "variant_files",
]

BUILD: Final = "build"
STATUS: Final = "kernel-status.toml"
MOST_STATUS: Final = 1 << 16


class Readable(Protocol):
    """What a description asks of a registry; `Catalog` offers it too, and remembers."""

    def files(self, repo_id: str, commit: str) -> tuple[File, ...]:
        """Return the files of a commit."""

    def read(self, repo_id: str, commit: str, path: str) -> bytes:
        """Return the bytes of a small file."""


class Reading(Protocol):
    """What choosing and locking ask of a registry; `Registry` has it, and so has `Routed`."""

    def refs(self, repo_id: str) -> Refs:
        """Return branches and tags."""

    def commit(self, repo_id: str, revision: str) -> str:
        """Return the whole id of a branch, tag or short commit."""

    def files(self, repo_id: str, commit: str) -> tuple[File, ...]:
        """Return the files of a commit."""

    def read(self, repo_id: str, commit: str, path: str, *, limit: int = 32 << 20) -> bytes:
        """Return the bytes of a small file."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a version depends on, over all its variants."""

    kernels: tuple[KernelNeed, ...] = ()
    python: tuple[PythonNeed, ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """One version of a kernel as published.

    Parameters
    ----------
    version
        The semantic version. Where `exact` is false only its integer is known (yet).
    commit
        The whole id.
    branch, tag
        What points at it; "" for none.
    variants, needs
        Names of the variants, and dependencies; None where nobody has looked.
    """

    version: Version
    commit: str
    branch: str = ""
    tag: str = ""
    exact: bool = True
    variants: tuple[str, ...] | None = None
    needs: Needs | None = None

    @property
    def revision(self) -> str:
        """The name by which people know it: branch, tag, else the commit."""
        return self.branch or self.tag or self.commit

    def __str__(self) -> str:
        return str(self.version) if self.exact else str(self.version.major)


# ----------------------------------------------------------------------------- which there are


def published(
    registry: Reading, repo_id: str, *, index: bool = True, refs: bool = False
) -> tuple[Published, ...]:
    """Return the versions of a repository, the newest first.

    Parameters
    ----------
    registry, repo_id
        Where, and `organization/name`.
    index
        Whether to ask for the index on `main` first.
    refs
        Whether branches and tags are asked in any case (at the same time), so that a branch that
        has moved on from the index is seen.

    Raises
    ------
    PackageError
        The index is there and cannot be used, or a tag names another version than its branch may.
    RegistryError
        The registry is absent, or has no such repository, or the kernel moved to another one.
    """
    check_repo_id(repo_id)
    found = _published(registry, repo_id, index=index, refs=refs)
    if not found:
        _say_moved(registry, repo_id)
    return found


def _published(
    registry: Reading, repo_id: str, *, index: bool, refs: bool
) -> tuple[Published, ...]:
    if not index:
        return _of_refs(registry.refs(repo_id))
    if not refs:
        found = read_index(registry, repo_id)
        return _of_refs(registry.refs(repo_id)) if found is None else _of_index(found)
    found, heads = both(
        lambda: read_index(registry, repo_id),
        lambda: registry.refs(repo_id),
    )
    return _merge(_of_index(found) if found else (), _of_refs(heads), repo_id)


def _say_moved(registry: Reading, repo_id: str) -> None:
    """Refuse a repository that says where its kernel went; nobody is sent to others unasked."""
    try:
        text = registry.read(repo_id, "main", STATUS, limit=MOST_STATUS)
        status = tomllib.loads(text.decode())
    except (NotPublishedError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        return  # it has none, or none that can be read: then it says nothing of where it went
    destination = status.get("destination")
    if status.get("kind") == "redirect" and isinstance(destination, str):
        raise NotPublishedError(
            f"{repo_id} has no versions; its {STATUS} says that the kernel moved to "
            f"{destination[:200]!r}",
            hint="name that repository, if you trust its publisher",
        )


def read_index(registry: Reading, repo_id: str) -> Index | None:
    """Return the index on `main`, None where there is none.

    Raises
    ------
    PackageError
        It is there and cannot be used.
    RegistryError
        The registry does not answer.
    """
    try:
        text = registry.read(repo_id, "main", INDEX, limit=MOST_BYTES)
    except NotPublishedError:
        return None
    return Index.from_json(text, place=f"{repo_id}: {INDEX}")


def _of_index(index: Index) -> tuple[Published, ...]:
    heads: set[int] = set()
    made = []
    for entry in index.entries:  # the newest first, so the first of a major version is its head
        major = entry.version.major
        made.append(
            Published(
                entry.version,
                entry.commit,
                branch="" if major in heads else branch_of(major),
                variants=entry.variants,
                needs=Needs(entry.kernels, entry.python),
            )
        )
        heads.add(major)
    return tuple(made)


def _of_refs(refs: Refs) -> tuple[Published, ...]:
    made: dict[tuple[str, int], Published] = {}
    for ref in refs.tags:
        version = version_of_tag(ref.name)
        before = made.get((ref.commit, version.major)) if version else None
        if version is not None and (before is None or before.version < version):
            made[ref.commit, version.major] = Published(version, ref.commit, tag=ref.name)
    for ref in refs.branches:
        integer = integer_of_branch(ref.name)
        if integer is not None:
            head = Published(Version(str(integer)), ref.commit, exact=False)
            tagged = made.get((ref.commit, integer), head)
            made[ref.commit, integer] = replace(tagged, branch=ref.name)
    return _ordered(made.values())


def _merge(
    indexed: Iterable[Published], heads: Iterable[Published], repo_id: str
) -> tuple[Published, ...]:
    """Join what the index says with where branches and tags stand now; commits decide."""
    merged = {(one.commit, one.version.major): replace(one, branch="") for one in indexed}
    said = {one.version: one.commit for one in merged.values()}
    for head in heads:
        key = (head.commit, head.version.major)
        known = merged.get(key)
        merged[key] = replace(known, branch=head.branch, tag=head.tag) if known else head
        other = said.get(head.version, head.commit) if head.tag and not known else head.commit
        if other != head.commit:
            raise PackageError(
                f"{repo_id}: the tag {head.tag} stands at {head.commit}; the index on main says "
                f"that {head.version} is {other}",
                hint="a tag does not move; ask the publisher which of the two is meant",
            )
    return _ordered(merged.values())


def _ordered(found: Iterable[Published]) -> tuple[Published, ...]:
    """Sort the newest first; a head whose exact version is unknown comes first of its major."""
    return tuple(
        sorted(
            found,
            key=lambda one: (one.version.major, not one.exact, one.version, one.commit),
            reverse=True,
        )
    )


# ----------------------------------------------------------------------------- what one consists of


def variant_files(files: Iterable[File]) -> dict[str, dict[str, File]]:
    """Return variant → path below it → file, of what is below `build/` and no bytecode."""
    found: dict[str, dict[str, File]] = {}
    for file in files:
        top, _, rest = file.path.partition("/")
        variant, _, path = rest.partition("/")
        if top != BUILD or not path or path.endswith(".pyc") or "__pycache__" in path.split("/"):
            continue
        found.setdefault(variant, {})[path] = file
    return dict(sorted(found.items()))


def describe(registry: Readable, repo_id: str, one: Published) -> Published:
    """Return a version with its variants, dependencies and exact number, read from its metadata.

    Raises
    ------
    PackageError
        Metadata is missing or wrong, or says another major version than the branch.
    RegistryError
        The registry does not answer.
    """
    if one.exact and one.needs is not None:
        return one
    variants = variant_files(registry.files(repo_id, one.commit))
    names = [name for name, files in variants.items() if FILE in files]

    def read(name: str) -> Metadata:
        path = f"{BUILD}/{name}/{FILE}"
        text = registry.read(repo_id, one.commit, path)
        return Metadata.parse(text, place=f"{repo_id}@{one.revision}: {path}")

    found = list(each(read, names))
    return replace(
        one,
        version=one.version if one.exact else _version(found, one, repo_id),
        exact=True,
        variants=tuple(variants),
        needs=needs_of(found, place=f"{repo_id}@{one.revision}"),
    )


def _version(found: Iterable[Metadata], one: Published, repo_id: str) -> Version:
    """Return the version that all variants have reached: the lowest one that they name."""
    place = f"{repo_id}@{one.revision}: kernelmill.version"
    texts = {m.semantic_version or str(m.version) for m in found}
    if not texts:
        return one.version
    version = min(parse_version(text, place=place) for text in texts)
    if one.branch and version.major != one.version.major:
        raise PackageError(
            f"{repo_id}: the branch {one.branch} holds version {version}; accepted there: "
            f"{one.version.major}.*",
            hint="its publisher pushed to the wrong branch",
        )
    return version


def needs_of(found: Iterable[Metadata], *, place: str) -> Needs:
    """Return what variants depend on together.

    Under the key `kernelmill`, `kernel-depends` and `python-depends` hold what the others' keys
    cannot say: ranges, and Python distributions beyond the curated ones. A range for a repository
    stands in the place of the integer that others read.
    """
    kernels: dict[str, KernelNeed] = {}
    python: list[PythonNeed] = []
    for metadata in found:
        ours = metadata.kernelmill
        ranged = list(
            kernel_needs(ours.get("kernel-depends", []), f"{place}: kernelmill.kernel-depends")
        )
        covered = {need.repo_id for need in ranged}
        for dependency in metadata.kernel_depends:
            if dependency.repo_id not in covered:
                wanted = Wanted(dependency.version, revision=dependency.revision or "")
                ranged.append(KernelNeed(check_repo_id(dependency.repo_id), wanted))
        kernels.update((str(need), need) for need in ranged)
        python += (PythonNeed.parse(text, place=place) for text in metadata.python_depends)
        extra = ours.get("python-depends", [])
        python += python_needs(extra, f"{place}: kernelmill.python-depends")
    return Needs(tuple(kernels[key] for key in sorted(kernels)), joined(python))


# ----------------------------------------------------------------------------- on this machine


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A version, and what this machine makes of its variants."""

    published: Published
    choice: Choice

    def to_json(self) -> dict[str, object]:
        """Return what `kernelmill versions --json` prints of it."""
        one, best = self.published, self.choice.best
        return {
            "version": str(one.version) if one.exact else None,
            "integer": one.version.major,
            "branch": one.branch or None,
            "tag": one.tag or None,
            "commit": one.commit,
            "preferred": str(best) if best else None,
            "variants": [
                {"name": str(d.variant), "accepted": d.accepted, "reason": d.reason}
                for d in self.choice.decisions
            ],
            "unreadable": list(self.choice.unreadable),
        }


def survey(
    registry: Reading, repo_id: str, *, index: bool = True, system: System | None = None
) -> tuple[Surveyed, ...]:
    """Return each version with this machine's decision on each of its variants, the newest first.

    Takes one request where the index is on `main`, else one for the references and one a version.

    Raises
    ------
    PackageError, RegistryError
        As `published`.
    """
    found = published(registry, repo_id, index=index)

    def look(one: Published) -> Surveyed:
        names = one.variants
        if names is None:
            names = tuple(variant_files(registry.files(repo_id, one.commit)))
        return Surveyed(replace(one, variants=names), choose(names, system))

    return tuple(each(look, found))


@dataclass(frozen=True, slots=True)
class Selection:
    """The version that was chosen, and its variant for this machine."""

    published: Published
    variant: str


def newest(
    registry: Reading,
    repo_id: str,
    wanted: Wanted,
    *,
    system: System | None = None,
    index: bool = True,
) -> Selection:
    """Return the newest version in a range that has a variant for this machine.

    An integer means the head of its branch, as for Hugging Face; a revision is that commit.

    Raises
    ------
    NotPublishedError
        No version is in the range; the text lists what there is.
    NoVariantError
        Those in the range have no variant for this machine; the text says of each why not.
    """
    if wanted.revision:
        commit = registry.commit(repo_id, wanted.revision)
        found: tuple[Published, ...] = (Published(Version("0"), commit, exact=False),)
    else:
        there = published(registry, repo_id, index=index, refs=True)
        found = _admitted(registry, repo_id, wanted, there)
        if wanted.integer is not None:  # the head, which a publisher may have moved back
            found = tuple(sorted(found, key=lambda one: not one.branch))[:1]
    refusals: list[str] = []
    for one in found:
        names = one.variants
        if names is None:
            names = tuple(variant_files(registry.files(repo_id, one.commit)))
        choice = choose(names, system)
        if choice.best is not None:
            return Selection(replace(one, variants=names), str(choice.best))
        label = wanted.revision or str(one)
        refusals += [f"  {label}: {d.variant}: {d.reason}" for d in choice.decisions]
        refusals += [] if choice.decisions else [f"  {label}: it has no variants"]
    raise NoVariantError(
        "\n".join([f"{repo_id} ({wanted}) has no variant for this machine:", *refusals]),
        hint=f"`kernelmill versions {repo_id}` shows all versions",
    )


def _admitted(
    registry: Reading, repo_id: str, wanted: Wanted, found: tuple[Published, ...]
) -> tuple[Published, ...]:
    """Return the versions that are asked for; where only an integer is known, look closer."""

    def look(one: Published) -> Published:
        return one if one.exact else describe(registry, repo_id, one)

    if wanted.integer is None:
        found = _ordered(each(look, found))
    fitting = tuple(one for one in found if wanted.admits(one.version))
    if fitting:
        return fitting
    there = ", ".join(map(str, found)) or "none"
    raise NotPublishedError(
        f"{repo_id} has no {'version in the range ' if wanted.range else ''}{wanted}; "
        f"published: {there}"
    )
