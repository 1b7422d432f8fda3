"""A registry of plain files, in a directory or behind an fsspec URL. `serve` offers the same ones.

```text
org/name/repo.json             {"format": 1, "private": false}
org/name/refs.json             {"branches": {"v1": commit}, "tags": {...}}
org/name/commits/<commit>.json parent, message, time and every file; its sha1 is the commit's id
org/name/blobs/<key>           contents, by git's blob id or, from a size on, by their sha256
```

So the id of a commit vouches for all its files: whoever changes one must change the id.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import IntegrityError, NotPublishedError, RegistryError
from kernelmill.package.digest import file_hash, git_blob_id, safe_path
from kernelmill.package.registry import (
    MOST_FILES,
    Add,
    Commit,
    Delete,
    File,
    Ref,
    Refs,
    check_commit_id,
    is_commit_id,
    pick_commit,
)
from kernelmill.package.wanted import check_repo_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kernelmill.package.shelf import Shelf

__all__ = ["LARGE", "FilesRegistry", "blob_id", "pointer_id"]

FORMAT: Final = 1
LARGE: Final = 1 << 20
_MOST_RECORD: Final = 64 << 20


def blob_id(body: bytes) -> str:
    """Return git's id of a content."""
    return hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False).hexdigest()


def pointer_id(sha256: str, size: int) -> str:
    """Return git's id of the pointer that stands for a large file."""
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"
    return blob_id(text.encode())


@dataclass(frozen=True, slots=True)
class _Record:
    """One commit as it is kept."""

    parent: str
    message: str
    time: int
    files: tuple[File, ...]

    def to_json(self) -> bytes:
        rows = {f.path: [f.size, f.blob_id, f.sha256] for f in self.files}
        body = {"format": FORMAT, "parent": self.parent, "message": self.message}
        return json.dumps({**body, "time": self.time, "files": rows}, sort_keys=True).encode()


class FilesRegistry:
    """See `Registry` for the methods.

    Parameters
    ----------
    shelf
        Where the files are.
    large
        From how many bytes on a file is kept and named by its sha256.

    Examples
    --------
    >>> from kernelmill.package.registry import Add
    >>> from kernelmill.package.registry_files import FilesRegistry
    >>> from kernelmill.package.shelf import open_shelf
    >>> registry = FilesRegistry(open_shelf("memory://registry"))
    >>> registry.create("org/x")
    >>> made = registry.publish("org/x", "v1", [Add("build/a.py", b"x = 1")], message="first")
    >>> registry.read("org/x", registry.commit("org/x", "v1"), "build/a.py")
    b'x = 1'
    """

    def __init__(self, shelf: Shelf, *, large: int = LARGE) -> None:
        self.shelf = shelf
        self.large = large
        self.url = shelf.url

    # ------------------------------------------------------------------------- reading

    def refs(self, repo_id: str) -> Refs:
        """See `Registry`."""
        record = self._json(repo_id, "refs.json")
        return Refs(
            tuple(self._ref(repo_id, record, "branches")), tuple(self._ref(repo_id, record, "tags"))
        )

    def _ref(self, repo_id: str, record: Mapping[str, Any], kind: str) -> Iterable[Ref]:
        rows = record.get(kind, {})
        if not isinstance(rows, dict):
            raise RegistryError(f"{self.url}: {kind} of {repo_id} are no object")
        for name, commit in sorted(rows.items()):
            yield Ref(name, check_commit_id(str(commit), asked=f"{repo_id} {kind} {name}"))

    def commit(self, repo_id: str, revision: str) -> str:
        """See `Registry`."""
        names = self.shelf.names(f"{check_repo_id(repo_id)}/commits")
        commits = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        return pick_commit(revision, self.refs(repo_id), commits, place=f"{repo_id} in {self.url}")

    def files(self, repo_id: str, commit: str) -> tuple[File, ...]:
        """See `Registry`."""
        return self._record(repo_id, commit).files

    def history(self, repo_id: str, commit: str) -> tuple[str, ...]:
        """Return a commit and those before it, the newest first."""
        found: list[str] = []
        while commit:
            found.append(commit)
            commit = self._record(repo_id, commit).parent
        return tuple(found)

    def message(self, repo_id: str, commit: str) -> tuple[str, int]:
        """Return a commit's message and its time in seconds since the epoch."""
        record = self._record(repo_id, commit)
        return record.message, record.time

    def is_private(self, repo_id: str) -> bool:
        """Return whether `serve` asks for a token before it shows the repository."""
        return bool(self._json(repo_id, "repo.json").get("private"))

    def fetch(self, repo_id: str, commit: str, file: File, target: Path) -> None:
        """See `Registry`."""
        del commit
        have = target.stat().st_size if target.is_file() else 0
        if have > file.size:
            target.unlink()
            have = 0
        name = f"{check_repo_id(repo_id)}/blobs/{file.key}"
        try:
            with target.open("ab") as out:
                for chunk in self.shelf.stream(name, have):
                    have += len(chunk)
                    if have > file.size:
                        raise IntegrityError(f"{self.url}: {file.path} is longer than promised")
                    out.write(chunk)
        except FileNotFoundError as error:
            raise RegistryError(f"{self.url} has lost the content of {file.path}") from error

    def read(self, repo_id: str, commit: str, path: str, *, limit: int = 32 << 20) -> bytes:
        """See `Registry`."""
        if not is_commit_id(commit):
            commit = self.commit(repo_id, commit)
        file = next((f for f in self.files(repo_id, commit) if f.path == path), None)
        if file is None:
            raise NotPublishedError(f"{repo_id} in {self.url} has no {path} at {commit[:12]}")
        name = f"{check_repo_id(repo_id)}/blobs/{file.key}"
        try:
            body = self.shelf.read(name, limit=limit)
        except FileNotFoundError as error:
            raise RegistryError(f"{self.url} has lost the content of {path}") from error
        found = hashlib.sha256(body).hexdigest() if file.sha256 else blob_id(body)
        if found != file.key:
            raise IntegrityError(
                f"{self.url}: {repo_id} {path} is {found}; its commit promises {file.key}"
            )
        return body

    def trusts(self, publisher: str) -> bool | None:
        """See `Registry`. Files say nothing of their publisher."""
        del publisher
        return None

    # ------------------------------------------------------------------------- writing

    def create(self, repo_id: str, *, private: bool = False) -> None:
        """See `Registry`."""
        base = check_repo_id(repo_id)
        with self.shelf.locked(base):
            if self.shelf.exists(f"{base}/repo.json"):
                return
            first = self._keep(repo_id, _Record("", "initial commit", int(time.time()), ()))
            self._write(f"{base}/refs.json", {"branches": {"main": first}, "tags": {}})
            self._write(f"{base}/repo.json", {"format": FORMAT, "private": private})

    def publish(
        self,
        repo_id: str,
        branch: str,
        changes: Sequence[Add | Delete],
        *,
        message: str,
        parent: str | None = None,
    ) -> Commit:
        """See `Registry`."""
        adds = [change for change in changes if isinstance(change, Add)]
        added = [self.store(repo_id, add.source, add.path) for add in adds]
        gone = [change.path for change in changes if isinstance(change, Delete)]
        return self.commit_files(repo_id, branch, added, gone, message=message, parent=parent)

    def commit_files(
        self,
        repo_id: str,
        branch: str,
        added: Sequence[File],
        gone: Sequence[str],
        *,
        message: str,
        parent: str | None = None,
    ) -> Commit:
        """Commit files whose contents are kept already; else as `publish`."""
        base = check_repo_id(repo_id)
        for file in added:
            if not self.shelf.exists(f"{base}/blobs/{file.key}"):
                raise RegistryError(f"{self.url} has not got the content of {file.path} yet")
        with self.shelf.locked(base):
            here = self.refs(repo_id).branch(branch)
            now = here.commit if here else ""
            if parent is not None and parent != now:
                raise RegistryError(
                    f"{repo_id} in {self.url}: {branch} stands at {now[:12] or 'nothing'}, not at "
                    f"{parent[:12] or 'nothing'}; somebody else has pushed",
                    hint="push again: what is there already is not sent twice",
                )
            before = {f.path: f for f in self._record(repo_id, now).files} if now else {}
            after = {path: file for path, file in before.items() if path not in set(gone)}
            after.update((file.path, file) for file in added)
            record = _Record(now, message, int(time.time()), tuple(after[p] for p in sorted(after)))
            made = self._keep(repo_id, record)
            self._move(repo_id, branch, made, tag=False)
        return Commit(made, branch)

    def store(self, repo_id: str, source: Path | bytes, path: str) -> File:
        """Keep a content and return the file that it makes under `path`."""
        safe_path(path)
        size, blob, sha256 = _identify(source)
        file = (
            File(path, size, pointer_id(sha256, size), sha256)
            if size >= self.large
            else File(path, size, blob)
        )
        name = f"{check_repo_id(repo_id)}/blobs/{file.key}"
        if not self.shelf.exists(name):
            self.shelf.write(name, source)
        return file

    def move(self, repo_id: str, branch: str, commit: str, *, tag: bool = False) -> None:
        """Let a branch or a tag, which is made if need be, stand at a commit."""
        with self.shelf.locked(check_repo_id(repo_id)):
            self._move(repo_id, branch, commit, tag=tag)

    def _move(self, repo_id: str, branch: str, commit: str, *, tag: bool) -> None:
        _check_ref(branch)
        record = self._json(repo_id, "refs.json")
        kind = "tags" if tag else "branches"
        rows = {**record.get(kind, {}), branch: commit}
        self._write(f"{check_repo_id(repo_id)}/refs.json", {**record, kind: rows})

    def _keep(self, repo_id: str, record: _Record) -> str:
        if len(record.files) > MOST_FILES:
            raise RegistryError(
                f"{repo_id} would have {len(record.files):,} files; the limit is {MOST_FILES:,}"
            )
        body = record.to_json()
        made = hashlib.sha1(body, usedforsecurity=False).hexdigest()
        self.shelf.write(f"{check_repo_id(repo_id)}/commits/{made}.json", body)
        return made

    # ------------------------------------------------------------------------- records

    def _record(self, repo_id: str, commit: str) -> _Record:
        name = f"commits/{check_commit_id(commit, asked=repo_id)}.json"
        body = self._bytes(repo_id, name, f"{repo_id} in {self.url} has no commit {commit}")
        found = hashlib.sha1(body, usedforsecurity=False).hexdigest()
        if found != commit:
            raise IntegrityError(
                f"{self.url}: the record of {repo_id} at {commit} was changed; its id is {found}"
            )
        record = self._parsed(body, repo_id, name)
        try:
            files = tuple(File(path, *row) for path, row in sorted(record["files"].items()))
            return _Record(record["parent"], record["message"], record["time"], files)
        except (KeyError, TypeError, AttributeError) as error:
            raise RegistryError(f"{self.url}: {repo_id} {name} is no commit: {error}") from error

    def _json(self, repo_id: str, name: str) -> dict[str, Any]:
        body = self._bytes(repo_id, name, f"{self.url} has no repository {repo_id}")
        return self._parsed(body, repo_id, name)

    def _bytes(self, repo_id: str, name: str, absent: str) -> bytes:
        try:
            return self.shelf.read(f"{check_repo_id(repo_id)}/{name}", limit=_MOST_RECORD)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotPublishedError(absent) from error

    def _parsed(self, body: bytes, repo_id: str, name: str) -> dict[str, Any]:
        try:
            record = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RegistryError(f"{self.url}: {repo_id} {name} is no JSON: {error}") from error
        if not isinstance(record, dict):
            raise RegistryError(f"{self.url}: {repo_id} {name} is no object")
        return record

    def _write(self, name: str, record: Mapping[str, object]) -> None:
        self.shelf.write(name, json.dumps(record, sort_keys=True).encode())


def _check_ref(name: str) -> None:
    safe_path(name)
    if len(name) > 200 or name.startswith(("-", "refs/")):  # noqa: PLR2004 - as file names go
        raise RegistryError(f"{name[:80]!r} is no name of a branch or a tag")


def _identify(source: Path | bytes) -> tuple[int, str, str]:
    """Return size, git's blob id and sha256 of a content."""
    if isinstance(source, bytes):
        return len(source), blob_id(source), hashlib.sha256(source).hexdigest()
    return source.stat().st_size, git_blob_id(source), file_hash(source).hex()
