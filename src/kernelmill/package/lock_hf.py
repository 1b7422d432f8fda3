"""Hugging Face's `kernels.lock`: the form of 0.17 is read and written, the one before it is read.

The form of 0.17 names a commit for each dependency. Up to 0.16 there was one entry for each kernel,
with a hash over git's blob ids (and LFS hashes) of each variant, which is checked here too.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import LockError, PackageError
from kernelmill.package.index import KernelNeed
from kernelmill.package.lock import read_file
from kernelmill.package.wanted import MOST_INTEGER, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kernelmill.package.registry import File

__all__ = ["FILE", "HfLock", "read_hf_lock", "variant_hash"]

FILE: Final = "kernels.lock"
_COMMIT: Final = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}", re.ASCII)
_MOST: Final = 64 << 20
_OLD_KEYS: Final = frozenset({"repo_id", "sha", "variants"})
_HASH_TYPE: Final = "git_lfs_concat"


@dataclass(frozen=True, slots=True)
class HfLock:
    """Dependency → commit, and for the older form variant → hash by repository.

    Examples
    --------
    >>> from kernelmill.package.index import KernelNeed
    >>> from kernelmill.package.lock_hf import HfLock
    >>> from kernelmill.package.wanted import Wanted
    >>> lock = HfLock({KernelNeed("org/x", Wanted(1)): "ab" * 20})
    >>> HfLock.parse(lock.text()) == lock
    True
    """

    commits: Mapping[KernelNeed, str]
    hashes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    old: bool = False

    def text(self) -> str:
        """Return the text of the form of 0.17, byte for byte as their tool writes it.

        Raises
        ------
        LockError
            A dependency is a range; that form has integers and revisions alone.
        """
        rows = []
        for need, commit in sorted(self.commits.items(), key=lambda item: _order(item[0])):
            if need.wanted.range or not need.wanted.to_json():
                raise LockError(f"{need} cannot stand in {FILE}: it holds integers and revisions")
            rows.append({"dependency": need.to_json(), "lock": {"commit": commit.lower()}})
        return json.dumps(rows, indent=2, ensure_ascii=False)

    @classmethod
    def parse(cls, text: str | bytes, *, place: str = FILE) -> HfLock:
        """Read either form.

        Raises
        ------
        LockError
            It is neither; the text names the element and the key.
        """
        try:
            rows = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise LockError(f"{place} is no JSON: {error}") from None
        if not isinstance(rows, list):
            raise LockError(f"{place} is no list of locked kernels")
        if rows and isinstance(rows[0], dict) and "repo_id" in rows[0]:
            return _old(rows, place)
        commits: dict[KernelNeed, str] = {}
        for number, row in enumerate(rows):
            need, commit = _entry(row, f"{place}[{number}]")
            if need in commits:
                raise LockError(f"{place}[{number}] repeats {need}")
            commits[need] = commit
        return cls(commits)

    def find(self, repo_id: str) -> tuple[KernelNeed, str]:
        """Return the first entry of a repository, as their loader does: need and commit.

        Raises
        ------
        LockError
            There is none.
        """
        for need, commit in sorted(self.commits.items(), key=lambda item: _order(item[0])):
            if need.repo_id == repo_id:
                return need, commit
        there = ", ".join(sorted({need.repo_id for need in self.commits})) or "none"
        raise LockError(
            f"{repo_id} is not locked; locked: {there}",
            hint="name it in pyproject.toml, then `kernelmill lock`",
        )

    def commit(self, need: KernelNeed) -> str:
        """Return the commit of a kernel that another one depends on.

        Raises
        ------
        LockError
            It is not locked.
        """
        found = self.commits.get(need)
        if found is None and (self.old or need.wanted.range):
            # Either form has one entry for what is asked in other words.
            same = {c for other, c in self.commits.items() if other.repo_id == need.repo_id}
            found = same.pop() if len(same) == 1 else None
        if found is None:
            raise LockError(
                f"{need} is not locked, and a locked kernel depends on it",
                hint="`kernelmill lock` locks what kernels depend on, too",
            )
        return found

    def verify(self, repo_id: str, variant: str, files: Mapping[str, File]) -> None:
        """Compare a variant's listing with the hash of the older form, where there is one.

        Raises
        ------
        LockError
            The variant is not in the lock, or it is another one.
        """
        promised = self.hashes.get(repo_id)
        if promised is None:
            return
        if variant not in promised:
            raise LockError(
                f"{repo_id} {variant} is not in the lock; it has: {', '.join(promised)}"
            )
        found = variant_hash(files)
        if promised[variant] != found:
            raise LockError(
                f"{repo_id} {variant}: locked {promised[variant]}, found {found}",
                hint="the registry has other files at this commit than when it was locked",
            )


def _order(need: KernelNeed) -> tuple[str, bool, int, str]:
    wanted = need.wanted
    return need.repo_id, bool(wanted.revision), wanted.integer or 0, wanted.revision


def variant_hash(files: Mapping[str, File]) -> str:
    """Return the hash of a variant as locks up to 0.16 have it.

    Parameters
    ----------
    files
        Path below the variant's directory → file.
    """
    whole = hashlib.sha256()
    for path in sorted(files):
        whole.update(path.encode())
        whole.update(bytes.fromhex(files[path].key))
    return f"sha256-{whole.hexdigest()}"


def read_hf_lock(path: Path) -> HfLock:
    """Read a `kernels.lock`.

    Raises
    ------
    LockError
        It is not there, or `HfLock.parse` refuses it.
    """
    return HfLock.parse(read_file(path, _MOST), place=str(path))


# ----------------------------------------------------------------------------- reading


def _object(value: object, place: str, keys: Iterable[str]) -> dict[str, Any]:  # Any: JSON
    if not isinstance(value, dict):
        raise LockError(f"{place} is {str(value)[:80]}; accepted: an object")
    unknown = sorted(set(value) - set(keys))
    if unknown:
        raise LockError(f"{place} has the unknown key {unknown[0]!r}")
    return value


def _entry(row: object, place: str) -> tuple[KernelNeed, str]:
    body = _object(row, place, ("dependency", "lock"))
    keys = ("repo-id", "version", "revision")
    dependency = _object(body.get("dependency"), f"{place}.dependency", keys)
    lock = _object(body.get("lock"), f"{place}.lock", ("commit",))
    repo_id = dependency.get("repo-id")
    if not isinstance(repo_id, str):
        raise LockError(f"{place}.dependency.repo-id is {str(repo_id)[:80]}; accepted: a text")
    need = KernelNeed(repo_id, _wanted(dependency, f"{place}.dependency"))
    return need, _commit(lock.get("commit"), f"{place}.lock.commit")


def _wanted(dependency: Mapping[str, object], place: str) -> Wanted:
    version, revision = dependency.get("version"), dependency.get("revision")
    if type(version) is int and revision is None and 0 <= version <= MOST_INTEGER:
        return Wanted(integer=version)
    if isinstance(revision, str) and version is None:
        return Wanted(revision=revision)
    raise LockError(
        f"{place} has version {version!r} and revision {revision!r}; accepted: one of an integer "
        "and a text"
    )


def _commit(value: object, place: str) -> str:
    if not isinstance(value, str) or not _COMMIT.fullmatch(value):
        raise LockError(f"{place} is {str(value)[:80]!r}; accepted: 40 or 64 hexadecimal digits")
    return value.lower()


def _old(rows: list[Any], place: str) -> HfLock:  # Any: JSON
    commits: dict[KernelNeed, str] = {}
    hashes: dict[str, dict[str, str]] = {}
    for number, row in enumerate(rows):
        spot = f"{place}[{number}]"
        body = _object(row, spot, _OLD_KEYS)
        try:
            need = KernelNeed.parse({"repo-id": body.get("repo_id")}, place=spot)
        except PackageError as error:
            raise LockError(error.message) from None
        if need in commits:
            raise LockError(f"{spot} repeats {need.repo_id}")
        commits[need] = _commit(body.get("sha"), f"{spot}.sha")
        variants = body.get("variants")
        if not isinstance(variants, dict):
            raise LockError(f"{spot}.variants is {str(variants)[:80]}; accepted: an object")
        hashes[need.repo_id] = {
            name: _old_hash(item, f"{spot}.variants[{name!r}]") for name, item in variants.items()
        }
    return HfLock(commits, hashes, old=True)


def _old_hash(value: object, place: str) -> str:
    body = _object(value, place, ("hash", "hash_type"))
    text, kind = body.get("hash"), body.get("hash_type")
    if (
        kind != _HASH_TYPE
        or not isinstance(text, str)
        or not re.fullmatch(r"sha256-[0-9a-f]{64}", text)
    ):
        raise LockError(
            f"{place} is {str(value)[:80]}; accepted: hash_type {_HASH_TYPE} and a hash of the "
            "form sha256-<64 hexadecimal digits>"
        )
    return text
