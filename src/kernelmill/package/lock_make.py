"""Making locks: from `pyproject.toml` and a registry to `kernelmill.lock` and `kernels.lock`.

The two say the same about commits. Checking that a lock still holds is choosing again, with what
was locked preferred, and comparing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelmill.errors import LockError
from kernelmill.package import lock_hf
from kernelmill.package.catalog import Catalog
from kernelmill.package.dependencies import PYPROJECT, read_dependencies
from kernelmill.package.index import KernelNeed
from kernelmill.package.lock import (
    FILE,
    Lock,
    LockedFile,
    LockedKernel,
    LockedVariant,
    digest_of,
    read_lock,
)
from kernelmill.package.lock_hf import HfLock, read_hf_lock
from kernelmill.package.metadata import Metadata
from kernelmill.package.parallel import each
from kernelmill.package.resolve import resolve
from kernelmill.package.versions import BUILD, variant_files
from kernelmill.package.wanted import Wanted, branch_of, integer_of_branch
from kernelmill.package.whole_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kernelmill.package.dependencies import Dependencies
    from kernelmill.package.registry import File
    from kernelmill.package.resolve import Pin, Resolution
    from kernelmill.package.versions import Published, Reading

__all__ = ["Made", "check_lock", "make_lock", "write_lock"]

_METADATA: Final = "metadata.json"
_UNDIGESTED: Final = frozenset({_METADATA, "metadata.json.sigstore"})


# ----------------------------------------------------------------------------- making


@dataclass(frozen=True, slots=True)
class Made:
    """Both locks of a project."""

    lock: Lock
    hf: HfLock


def make_lock(
    registry: Reading,
    project: Dependencies,
    *,
    previous: Lock | None = None,
    upgrade: Iterable[str] | bool = False,
) -> Made:
    """Resolve what a project needs and take down every file of every variant.

    Parameters
    ----------
    registry
        Where the kernels are published.
    project
        What is asked for.
    previous
        An earlier lock: its versions stay as long as they meet what is asked.
    upgrade
        Repositories that take the newest version in any case; True for all.

    Raises
    ------
    ResolutionError
        No versions go together.
    LockError
        A variant's metadata and its files contradict each other.
    RegistryError
        The registry does not answer.
    """
    catalog = Catalog(registry, _preferred(previous, upgrade))
    found = resolve(registry, project.needs, side_by_side=project.side_by_side, catalog=catalog)
    return _taken_down(catalog, project, found)


def _preferred(previous: Lock | None, upgrade: Iterable[str] | bool) -> dict[str, str]:  # noqa: FBT001
    if previous is None or upgrade is True:
        return {}
    fresh = frozenset() if isinstance(upgrade, bool) else frozenset(upgrade)
    return {
        slot: kernel.commit
        for slot, kernel in previous.kernels.items()
        if kernel.repo_id not in fresh
    }


def _taken_down(catalog: Catalog, project: Dependencies, found: Resolution) -> Made:
    """Write down the files of what was chosen, and make the rows for Hugging Face's lock."""
    listings = dict(
        zip(
            (pin.slot for pin in found.pins),
            each(lambda pin: _listing(catalog, pin), found.pins),
            strict=True,
        )
    )
    flat = [(pin, name) for pin in found.pins for name in listings[pin.slot]]
    rows = each(lambda row: _variant(catalog, *row, listings[row[0].slot][row[1]]), flat)
    variants: dict[str, dict[str, LockedVariant]] = {pin.slot: {} for pin in found.pins}
    needs: dict[str, list[KernelNeed]] = {pin.slot: [] for pin in found.pins}
    for (pin, name), (variant, metadata) in zip(flat, rows, strict=True):
        variants[pin.slot][name] = variant
        needs[pin.slot] += (
            KernelNeed(d.repo_id, Wanted(d.version, revision=d.revision or ""))
            for d in metadata.kernel_depends
        )
    asked = {(need.repo_id, need.wanted.revision) for need in project.needs}
    kernels = {pin.slot: _kernel(pin, variants[pin.slot], catalog, asked) for pin in found.pins}
    return Made(Lock(project.needs, kernels), HfLock(_hf_rows(project, found.pins, needs, catalog)))


def _listing(catalog: Catalog, pin: Pin) -> dict[str, dict[str, File]]:
    return variant_files(catalog.files(pin.repo_id, pin.published.commit))


def _kernel(
    pin: Pin,
    variants: Mapping[str, LockedVariant],
    catalog: Catalog,
    asked: Iterable[tuple[str, str]],
) -> LockedKernel:
    one = pin.published
    names = [
        r for repo_id, r in asked if repo_id == pin.repo_id and r and one.commit[: len(r)] != r
    ]
    listed = any(other.commit == one.commit for other in catalog.versions(pin.repo_id))
    return LockedKernel(
        slot=pin.slot,
        version=str(one.version),
        # Not where branch and tags stand today: locking again later must give the same text.
        revision=names[0] if names else branch_of(one.version) if listed else "",
        commit=one.commit,
        variants=variants,
        needs=pin.leads_to,
        python=tuple(map(str, catalog.needs(pin.repo_id, one).python)),
    )


def _variant(
    catalog: Catalog, pin: Pin, name: str, files: Mapping[str, File]
) -> tuple[LockedVariant, Metadata]:
    place = f"{pin.repo_id}@{pin.published.revision}: {BUILD}/{name}"
    if _METADATA not in files:
        raise LockError(f"{place} has no {_METADATA}", hint="ask its publisher to push it again")
    raw = catalog.read(pin.repo_id, pin.published.commit, f"{BUILD}/{name}/{_METADATA}")
    metadata = Metadata.parse(raw, place=f"{place}/{_METADATA}")
    sums = _promised(metadata, files, place)
    sums[_METADATA] = hashlib.sha256(raw).hexdigest()
    locked: dict[str, LockedFile] = {}
    for path, file in files.items():
        known = sums.get(path) or file.sha256
        if not known:
            body = catalog.read(pin.repo_id, pin.published.commit, file.path)
            known = hashlib.sha256(body).hexdigest()
        if file.sha256 and known != file.sha256:
            raise LockError(
                f"{place}: {path} is {file.sha256} in the repository, {known} in its metadata",
                hint="its publisher pushed files of two builds; ask for a new version",
            )
        size = len(raw) if path == _METADATA else file.size
        locked[path] = LockedFile(known, size)
    return LockedVariant(name, locked), metadata


def _promised(metadata: Metadata, files: Mapping[str, File], place: str) -> dict[str, str]:
    """Return the sums that the metadata names, after it was compared with what is there.

    A publisher who names a wrong sum locks a file that does not exist, so it is never loaded.
    """
    digest = metadata.digest
    if digest is None:
        return {}
    there = set(files) - _UNDIGESTED
    for path in sorted(there ^ set(digest.files)):
        word = "there, but not" if path in there else "missing, but"
        raise LockError(
            f"{place}: {path} is {word} in the digest of its metadata",
            hint="its publisher pushed files of two builds; ask for a new version",
        )
    return digest.hexadecimal() if digest.algorithm == "sha256" else {}


def _hf_rows(
    project: Dependencies,
    pins: Sequence[Pin],
    needs: Mapping[str, Sequence[KernelNeed]],
    catalog: Catalog,
) -> dict[KernelNeed, str]:
    """Return what Hugging Face's client looks up: integers and revisions, as kernels name them."""
    rows: dict[KernelNeed, str] = {}
    by_slot = {pin.slot: pin for pin in pins}
    everybody: list[tuple[Sequence[Pin], Sequence[KernelNeed]]] = [(pins, project.needs)]
    everybody += [([by_slot[slot] for slot in pin.leads_to], needs[pin.slot]) for pin in pins]
    for among, asked in everybody:
        for need in asked:
            meant = _meant(need, among, catalog)
            rows[_as_theirs(need, meant)] = meant.published.commit
    for pin in pins:  # what only a range leads to must be found there, too
        if pin.published.commit not in rows.values():
            integer = Wanted(pin.published.version.major)
            rows[KernelNeed(pin.repo_id, integer)] = pin.published.commit
    return rows


def _meant(need: KernelNeed, among: Sequence[Pin], catalog: Catalog) -> Pin:
    same = [pin for pin in among if pin.repo_id == need.repo_id]
    fitting = [pin for pin in same if catalog.admits(need, pin.published)]
    return (fitting or same)[0]


def _as_theirs(need: KernelNeed, pin: Pin) -> KernelNeed:
    if need.wanted.integer is not None or need.wanted.revision:
        return need
    return KernelNeed(need.repo_id, Wanted(pin.published.version.major))


def write_lock(directory: Path, made: Made) -> tuple[Path, Path]:
    """Write both locks, each whole or not at all; return their paths."""
    ours, theirs = directory / FILE, directory / lock_hf.FILE
    replace_file(ours, made.lock.text())
    replace_file(theirs, made.hf.text())
    return ours, theirs


# ----------------------------------------------------------------------------- checking


def check_lock(directory: Path, registry: Reading | None) -> Lock:
    """Return the lock of a project if it still holds.

    Parameters
    ----------
    directory
        With `pyproject.toml` and both locks.
    registry
        Asked whether branches, tags and versions are where they were; None compares files alone.

    Raises
    ------
    LockError
        It does not hold; the text says of each kernel why.
    """
    project = read_dependencies(directory)
    lock = read_lock(directory / FILE)
    theirs = read_hf_lock(directory / lock_hf.FILE)
    problems = [*_asked_otherwise(project, lock), *_contradictions(lock, theirs)]
    if not problems and registry is not None:
        catalog = Catalog(registry, _preferred(lock, upgrade=False))
        found = resolve(registry, project.needs, side_by_side=project.side_by_side, catalog=catalog)
        problems = [*_moved(lock, found), *_gone_back(lock, found, catalog)]
    if problems:
        raise LockError(
            "\n".join([f"{directory / FILE} does not hold any more:", *problems]),
            hint="`kernelmill lock` makes it anew; `git diff` shows what that changes",
        )
    return lock


def _asked_otherwise(project: Dependencies, lock: Lock) -> Iterator[str]:
    def keyed(needs: Iterable[KernelNeed]) -> dict[str, KernelNeed]:
        return {digest_of(need.to_json()): need for need in needs}

    asked, locked = keyed(project.needs), keyed(lock.requires)
    for key in sorted(asked.keys() - locked.keys(), key=lambda k: str(asked[k])):
        yield f"  {PYPROJECT} asks for {asked[key]}, which is not what was locked"
    for key in sorted(locked.keys() - asked.keys(), key=lambda k: str(locked[k])):
        yield f"  it was made for {locked[key]}, which {PYPROJECT} does not ask for"


def _contradictions(lock: Lock, theirs: HfLock) -> Iterator[str]:
    commits = {(kernel.repo_id, kernel.commit) for kernel in lock.kernels.values()}
    for need, commit in theirs.commits.items():
        if (need.repo_id, commit) not in commits:
            yield f"  {lock_hf.FILE} has {need} at {commit}, {FILE} has not"
    said = {(need.repo_id, commit) for need, commit in theirs.commits.items()}
    for slot, kernel in lock.kernels.items():
        if (kernel.repo_id, kernel.commit) not in said:
            yield f"  {FILE} has {slot} at {kernel.commit}, {lock_hf.FILE} has not"


def _gone_back(lock: Lock, found: Resolution, catalog: Catalog) -> Iterator[str]:
    """Find branches that stand at an older version; one that went on is no fault of the lock."""
    for pin in found.pins:
        kernel = lock.kernels.get(pin.slot)
        if kernel is None or integer_of_branch(kernel.revision) is None:
            continue
        there = catalog.versions(pin.repo_id)
        head = next((one for one in there if one.branch == kernel.revision), None)
        if head and pin.published.commit == kernel.commit and head.version < pin.published.version:
            yield _otherwise(pin.slot, kernel, head)


def _otherwise(slot: str, kernel: LockedKernel, now: Published) -> str:
    return (
        f"  {slot}: {kernel.revision or 'it'} stood at {kernel.commit} ({kernel.version}) when it "
        f"was locked; the registry now has {now.commit} ({now.version})"
    )


def _moved(lock: Lock, found: Resolution) -> Iterator[str]:
    now = {pin.slot: pin for pin in found.pins}
    for slot, kernel in lock.kernels.items():
        pin = now.get(slot)
        if pin is None:
            yield f"  {slot} is locked, and nothing needs it"
        elif pin.published.commit != kernel.commit:
            yield _otherwise(slot, kernel, pin.published)
    for slot in sorted(now.keys() - lock.kernels.keys()):
        yield f"  {slot} is needed, and not locked"
