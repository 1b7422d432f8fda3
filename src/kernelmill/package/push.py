"""Publishing a built kernel: which files change on the branch of its major version, and the index.

A push is planned first and carried out then. Only what differs from the branch is sent; a push that
was killed is simply made again, since contents that arrived are not sent twice. The branch moves
when everything is there, the index on `main` after it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelmill.errors import NotPublishedError, PackageError
from kernelmill.package.choice import directories
from kernelmill.package.digest import file_hash, git_blob_id, variant_files
from kernelmill.package.index import INDEX, Entry, Index
from kernelmill.package.load import Candidate, read_candidate, verify_digest
from kernelmill.package.metadata import FILE
from kernelmill.package.registry import Add, Delete, File, Refs
from kernelmill.package.signature import BUNDLE, FOLDER, sign, signature_path
from kernelmill.package.variant import Variant
from kernelmill.package.versions import needs_of, read_index
from kernelmill.package.wanted import Version, branch_of, check_repo_id, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kernelmill.package.metadata import Metadata
    from kernelmill.package.registry import Registry

__all__ = ["PushPlan", "Pushed", "plan_push", "push"]

BUILD: Final = "build"
BENCHMARKS: Final = "benchmarks"
MAIN: Final = "main"
MOST_CHANGES: Final = 1000  # in one commit, as the Hub accepts it
_README: Final = "README.md"


@dataclass(frozen=True, slots=True)
class PushPlan:
    """What a push would do.

    Parameters
    ----------
    repo_id, branch, version
        Where it goes, and the semantic version (the integer alone where the build names none).
    parent
        The commit where the branch stands; "" where it has to be made.
    variants
        The names of those that are pushed.
    changes
        Files to add or replace, and to delete.
    unchanged
        How many files are there already.
    size
        Bytes of the files to add.
    entry
        What goes into the index, without the commit.
    readme
        The text for `main`; None where there is none.
    states
        Of which state of the sources each variant was built, as its names of operators end.
    """

    repo_id: str
    branch: str
    version: Version
    exact: bool
    parent: str
    variants: tuple[str, ...]
    changes: tuple[Add | Delete, ...]
    unchanged: int
    size: int
    entry: Entry
    readme: bytes | None = None
    states: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the plan in words, one line a fact."""
        state = f"stands at {self.parent[:12]}" if self.parent else "is made"
        yield f"{self.repo_id}: version {self.version} to the branch {self.branch}, which {state}"
        yield f"variants: {', '.join(self.variants)}"
        if len(set(self.states)) > 1:
            rows = (f"{n} ({s})" for n, s in zip(self.variants, self.states, strict=True))
            yield (
                f"note: they are of different states of the sources: {', '.join(rows)}; "
                "`kernelmill build --all` builds all of this one"
            )
        for change in self.changes:
            yield f"  {'+' if isinstance(change, Add) else '-'} {change.path}"
        added = sum(isinstance(change, Add) for change in self.changes)
        yield (
            f"{added} files to send ({self.size:,} bytes), {len(self.changes) - added} to delete, "
            f"{self.unchanged} unchanged"
        )


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did: the commit where the branch stands now, and whether it moved."""

    repo_id: str
    branch: str
    version: str
    commit: str
    moved: bool


def plan_push(
    root: Path,
    repo_id: str,
    registry: Registry,
    *,
    variants: Sequence[str] = (),
    keys: Sequence[Path] = (),
    prune: bool = False,
    force: bool = False,
) -> PushPlan:
    """Compare what was built with what is published; nothing is changed.

    Parameters
    ----------
    root
        A project, with `build/`.
    repo_id, registry
        Where it is to go.
    variants
        Which variants; all that are built where none is named.
    keys
        Files with private keys; each signs every variant.
    prune
        Whether variants that were not built here are deleted from the branch.
    force
        Whether a version that is published may be replaced, or the branch go back to an older one.

    Raises
    ------
    PackageError
        Nothing is built, the variants are of different versions, one is not what its digest says,
        or the version is published already with other contents.
    RegistryError
        The registry does not answer.
    """
    check_repo_id(repo_id)
    found = _built(root, variants)
    version, exact = _version(found)
    branch = branch_of(version)
    refs = _refs(registry, repo_id)
    here = refs.branch(branch)
    start = here or refs.branch(MAIN)
    there = {f.path: f for f in registry.files(repo_id, start.commit)} if start else {}
    wanted = {**_files(root, found), **_signatures(root, repo_id, found, keys)}
    changes = tuple(_changes(wanted, there, list(found), prune=prune or here is None))
    index = read_index(registry, repo_id) or Index()
    if exact and not force:
        replaced = any(c.path in there and c.path.startswith(f"{BUILD}/") for c in changes)
        _check_version(index, version, branch, replaced=replaced, repo_id=repo_id)
    needs = needs_of([c.metadata for c in found.values()], place=str(root))
    kept = {path.split("/")[1] for path in there if path.startswith(f"{BUILD}/")}
    names = sorted({*found, *(kept if not prune and here is not None else ())})
    return PushPlan(
        repo_id=repo_id,
        branch=branch,
        version=version,
        exact=exact,
        parent=here.commit if here else "",
        variants=tuple(found),
        changes=changes,
        unchanged=len(wanted) - sum(isinstance(change, Add) for change in changes),
        size=sum(_size(c.source) for c in changes if isinstance(c, Add)),
        entry=Entry(version, "0" * 40, tuple(names), needs.kernels, needs.python),
        readme=_readme(root),
        states=tuple(_state(one.metadata) for one in found.values()),
    )


def push(plan: PushPlan, registry: Registry, *, private: bool = False) -> Pushed:
    """Carry a plan out.

    Parameters
    ----------
    plan, registry
        From `plan_push`, and the same registry.
    private
        Whether a repository that has to be made is private.

    Raises
    ------
    RegistryError
        The registry refuses, or somebody else has pushed since the plan was made.
    """
    registry.create(plan.repo_id, private=private)
    commit, parent = plan.parent, plan.parent or None
    label = f"{plan.version}" if plan.exact else f"version {plan.version}"
    for begin in range(0, len(plan.changes), MOST_CHANGES):
        part = plan.changes[begin : begin + MOST_CHANGES]
        made = registry.publish(
            plan.repo_id, plan.branch, part, message=f"Publish {label}", parent=parent
        )
        commit = parent = made.id
    moved = commit != plan.parent
    if not commit:  # a branch without anything of its own is made all the same
        commit = registry.publish(plan.repo_id, plan.branch, [], message=f"Publish {label}").id
    if plan.exact:
        _write_index(plan, registry, commit)
    return Pushed(plan.repo_id, plan.branch, str(plan.version), commit, moved)


# ----------------------------------------------------------------------------- what was built


def _built(root: Path, variants: Sequence[str]) -> dict[str, Candidate]:
    """Return the variants to push, each verified against its own digest."""
    build = root / BUILD
    names = sorted(directories(build))
    missing = sorted(set(variants) - set(names))
    if missing or not names:
        raise PackageError(
            f"{build.absolute()} has no variant {missing[0]!r}"
            if missing
            else f"{build.absolute()} holds no variants",
            hint="`kernelmill build` makes them",
        )
    found: dict[str, Candidate] = {}
    for name in variants or names:
        Variant.parse(name)
        found[name] = read_candidate(build / name)
        verify_digest(found[name])
    return found


def _state(metadata: Metadata) -> str:
    return metadata.id.removeprefix(f"_{metadata.python_name}_{metadata.backend}_")


def _version(found: Mapping[str, Candidate]) -> tuple[Version, bool]:
    """Return the one version of all variants, and whether it is a semantic one."""
    texts = {
        name: c.metadata.semantic_version or str(c.metadata.version) for name, c in found.items()
    }
    if len(set(texts.values())) > 1:
        lines = [f"  {name}: {text}" for name, text in sorted(texts.items())]
        raise PackageError(
            "\n".join(["the variants are of different versions:", *lines]),
            hint="`kernelmill build --all` builds all of one version",
        )
    first = next(iter(found.values())).metadata
    version = parse_version(texts[next(iter(texts))], place=f"{first.name}: kernelmill.version")
    wrong = [c for c in found.values() if c.metadata.version != version.major]
    if wrong:
        raise PackageError(
            f"{wrong[0].directory}: version is {wrong[0].metadata.version}, and the semantic "
            f"version {version} has the major number {version.major}; they must be the same"
        )
    return version, first.semantic_version is not None


def _files(root: Path, found: Mapping[str, Candidate]) -> dict[str, Path | bytes]:
    wanted: dict[str, Path | bytes] = {}
    for name, one in found.items():
        base = f"{BUILD}/{name}"
        for path in (*variant_files(one.directory), FILE, BUNDLE):
            place = one.directory / path
            if place.is_file():
                wanted[f"{base}/{path}"] = place
    benchmarks = root / BENCHMARKS
    for place in sorted(benchmarks.glob("benchmark*.py")) if benchmarks.is_dir() else []:
        wanted[f"{BENCHMARKS}/{place.name}"] = place
    return wanted


def _signatures(
    root: Path, repo_id: str, found: Mapping[str, Candidate], keys: Sequence[Path]
) -> dict[str, Path | bytes]:
    if keys:
        return {signature_path(n): sign(repo_id, n, c.raw, keys) for n, c in found.items()}
    places = {signature_path(name): root / signature_path(name) for name in found}
    return {path: place for path, place in places.items() if place.is_file()}


def _readme(root: Path) -> bytes | None:
    for name in (_README, "CARD.md"):
        if (root / name).is_file():
            return (root / name).read_bytes()
    return None


# ----------------------------------------------------------------------------- what is there


def _refs(registry: Registry, repo_id: str) -> Refs:
    try:
        return registry.refs(repo_id)
    except NotPublishedError:
        return Refs()


def _changes(
    wanted: Mapping[str, Path | bytes],
    there: Mapping[str, File],
    variants: Iterable[str],
    *,
    prune: bool,
) -> Iterator[Add | Delete]:
    for path in sorted(wanted):
        if path not in there or not _same(wanted[path], there[path]):
            yield Add(path, wanted[path])
    ours = [f"{BUILD}/", f"{FOLDER}/"] if prune else [f"{BUILD}/{name}/" for name in variants]
    for path in sorted(there):
        if path not in wanted and path.startswith(tuple(ours)):
            yield Delete(path)
    stale = {signature_path(name) for name in variants} - set(wanted)
    yield from (Delete(path) for path in sorted(stale & set(there)) if not prune)


def _same(source: Path | bytes, file: File) -> bool:
    if _size(source) != file.size:
        return False
    if isinstance(source, bytes):
        from kernelmill.package.registry_files import blob_id  # noqa: PLC0415 - signatures only

        return blob_id(source) == file.blob_id
    return (file_hash(source).hex() if file.sha256 else git_blob_id(source)) == file.key


def _size(source: Path | bytes) -> int:
    return len(source) if isinstance(source, bytes) else os.stat(source).st_size  # noqa: PTH116


def _check_version(
    index: Index, version: Version, branch: str, *, replaced: bool, repo_id: str
) -> None:
    """Refuse to give a published version other contents, or to let a branch go back."""
    of_branch = [entry for entry in index.entries if branch_of(entry.version) == branch]
    if not of_branch:
        return
    if replaced and any(entry.version == version for entry in of_branch):
        raise PackageError(
            f"{repo_id} {version} is published, and what was built here differs from it",
            hint="raise the version in pyproject.toml and build again, or push with --force; more "
            "variants of a published version need no --force",
        )
    if of_branch[0].version > version:
        raise PackageError(
            f"{repo_id}: the branch {branch} has version {of_branch[0].version}, which is newer "
            f"than {version}",
            hint="push with --force to let the branch go back",
        )


def _write_index(plan: PushPlan, registry: Registry, commit: str) -> None:
    """Add the version to the index; where somebody else wrote it meanwhile, read it again."""
    entry = Entry(
        plan.entry.version,
        commit,
        plan.entry.variants,
        plan.entry.kernels,
        plan.entry.python,
    )
    for turn in (1, 2, 3):
        head = _refs(registry, plan.repo_id).branch(MAIN)
        before = read_index(registry, plan.repo_id) or Index()
        after = before.with_entry(entry).to_json()
        changes = [Add(INDEX, after.encode())] if before.to_json() != after else []
        if plan.readme is not None and head is not None:
            files = {file.path: file for file in registry.files(plan.repo_id, head.commit)}
            if _README not in files or not _same(plan.readme, files[_README]):
                changes.append(Add(_README, plan.readme))
        if not changes:
            return
        try:
            registry.publish(
                plan.repo_id,
                MAIN,
                changes,
                message=f"List {plan.version}",
                parent=head.commit if head else None,
            )
        except PackageError:
            if turn == 3:  # noqa: PLR2004 - the last turn
                raise
        else:
            return
