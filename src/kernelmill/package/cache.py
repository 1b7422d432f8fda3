"""The cache of kernels from registries, in the Hub's own layout. Registries are asked, not known.

```text
kernels--org--name/blobs/<key>                 contents, by git's blob id or sha256
kernels--org--name/snapshots/<commit>/<path>   links to them
kernels--org--name/refs/<branch>               the commit at which a branch was seen
kernels--org--name/trees/<commit>.json         all files of a commit, if huggingface_hub fetched all
kernels--org--name/trees/<commit>.kernelmill.json    all files of a commit (ours alone)
kernels--org--name/kernelmill.json             which registry a commit came from (ours alone)
.locks/kernels--org--name/<key>.lock           held while a content is downloaded
```

Nothing enters `blobs` before its bytes were verified, and everything enters by renaming: a killed
process leaves at most an unfinished file, which the next download goes on from.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import IntegrityError, NotPublishedError, PackageError, RegistryError
from kernelmill.package.digest import file_hash, git_blob_id, safe_path
from kernelmill.package.registry import File, is_commit_id
from kernelmill.package.unlocked import locked_file
from kernelmill.package.wanted import check_repo_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kernelmill.package.registry import Registry

__all__ = ["HubCache", "Source", "content_key"]

_logger: Final = logging.getLogger("kernelmill")
_READ_ONLY: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
TREE_FORMAT: Final = 1  # of huggingface_hub
RECORD: Final = "kernelmill.json"
_MOST_JSON: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Where a commit came from, and whether that registry vouched for its publisher then."""

    registry: str
    trusted: bool | None


def content_key(path: Path, file: File) -> str:
    """Return what the content of a local file is called where `file` names its own by `key`."""
    return file_hash(path).hex() if file.sha256 else git_blob_id(path)


class HubCache:
    """One directory of cached kernels, shared with `huggingface_hub` and `kernels`.

    Parameters
    ----------
    root
        The directory, such as `~/.cache/huggingface/hub`; made when first written to.

    Examples
    --------
    >>> import tempfile
    >>> from kernelmill.package.cache import HubCache
    >>> from kernelmill.package.registry import Add
    >>> from kernelmill.package.registry_files import FilesRegistry
    >>> from kernelmill.package.shelf import open_shelf
    >>> registry = FilesRegistry(open_shelf("memory://cached"))
    >>> registry.create("org/x")
    >>> made = registry.publish("org/x", "v1", [Add("build/a.py", b"x = 1")], message="first")
    >>> with tempfile.TemporaryDirectory() as home:
    ...     cache = HubCache(home)
    ...     files = cache.files("org/x", made.id, registry)
    ...     cache.fetch_file("org/x", made.id, files[0], [registry]).read_text()
    'x = 1'
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def home(self, repo_id: str) -> Path:
        """Return the directory of a repository."""
        return self.root / f"kernels--{check_repo_id(repo_id).replace('/', '--')}"

    def snapshot(self, repo_id: str, commit: str) -> Path:
        """Return the directory with the files of a commit, whether it is there or not."""
        if not is_commit_id(commit):
            raise PackageError(f"{commit[:80]!r} is no commit id; accepted: 40 or 64 digits")
        return self.home(repo_id) / "snapshots" / commit

    # ------------------------------------------------------------------------- references

    def ref(self, repo_id: str, name: str) -> str | None:
        """Return the commit at which a branch or tag was last seen; None where it never was."""
        safe_path(name)
        try:
            text = (self.home(repo_id) / "refs" / name).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return text if is_commit_id(text) else None

    def set_ref(self, repo_id: str, name: str, commit: str) -> None:
        """Remember where a branch or tag stands; nothing is lost where that cannot be written."""
        safe_path(name)
        if self.ref(repo_id, name) != commit:
            with self._noting(f"where {name} of {repo_id} stands"):
                _write(self.home(repo_id) / "refs" / name, commit.encode())

    def refs(self, repo_id: str) -> dict[str, str]:
        """Return all branches and tags that were seen, and their commits."""
        home = self.home(repo_id) / "refs"
        names = [str(p.relative_to(home)) for p in sorted(home.rglob("*")) if p.is_file()]
        found = {name: self.ref(repo_id, name) for name in names}
        return {name: commit for name, commit in found.items() if commit is not None}

    def commits(self, repo_id: str) -> list[str]:
        """Return the commits of which something is here, sorted."""
        home = self.home(repo_id) / "snapshots"
        if not home.is_dir():
            return []
        return sorted(p.name for p in home.iterdir() if is_commit_id(p.name))

    # ------------------------------------------------------------------------- sources

    def source(self, repo_id: str, commit: str) -> Source | None:
        """Return where a commit came from; None where we did not fetch it."""
        row = _read_json(self.home(repo_id) / RECORD).get(commit)
        if not isinstance(row, dict) or not isinstance(row.get("registry"), str):
            return None
        trusted = row.get("trusted")
        return Source(row["registry"], trusted if isinstance(trusted, bool) else None)

    def set_source(self, repo_id: str, commit: str, source: Source) -> None:
        """Remember where a commit came from."""
        if self.source(repo_id, commit) == source:
            return
        place = self.home(repo_id) / RECORD
        with self._noting(f"where {repo_id} came from"), self._locked(repo_id, RECORD):
            row = {"registry": source.registry, "trusted": source.trusted}
            _write(place, json.dumps({**_read_json(place), commit: row}, sort_keys=True).encode())

    # ------------------------------------------------------------------------- files

    def known_files(self, repo_id: str, commit: str) -> tuple[File, ...] | None:
        """Return the files of a commit as they were listed; None where they never were.

        A listing that cannot be used counts as none: it is asked for again.

        Raises
        ------
        IntegrityError
            The listing has a path that would leave its place.
        """
        for place in self._listings(repo_id, commit):
            found = _listing(_read_json(place))
            if found is not None:
                return found
        return None

    def _listings(self, repo_id: str, commit: str) -> tuple[Path, Path]:
        """Return where all files of a commit are listed: by us, by `huggingface_hub`.

        We write no listing of its name: with that, it offers no part of a commit offline, and a
        kernel is fetched as the variant for one system.
        """
        trees = self.home(repo_id) / "trees"
        return trees / f"{commit}.kernelmill.json", trees / f"{commit}.json"

    def files(self, repo_id: str, commit: str, registry: Registry) -> tuple[File, ...]:
        """Return the files of a commit, asking the registry where they were never listed.

        Raises
        ------
        RegistryError
            The registry does not answer, or has no such commit.
        """
        known = self.known_files(repo_id, commit)
        if known is None:
            known = registry.files(repo_id, commit)
            rows = {file.path: _row(file) for file in known}
            body = {"format_version": TREE_FORMAT, "files": rows}
            place, _ = self._listings(repo_id, commit)
            with self._noting(f"which files {repo_id} has"):
                _write(place, json.dumps(body, indent=1).encode())
        return known

    def missing(self, repo_id: str, commit: str, files: Iterable[File]) -> list[File]:
        """Return the files that a snapshot does not have as links to their contents."""
        base = str(self.snapshot(repo_id, commit))
        return [file for file in files if not _is_linked(base, file)]

    def fetch_file(
        self, repo_id: str, commit: str, file: File, registries: Iterable[Registry]
    ) -> Path:
        """Return the path of a file of a snapshot, downloaded and verified where it is not there.

        Parameters
        ----------
        registries
            Where it is asked for, in this order; the next one where one fails or sends other bytes.

        Raises
        ------
        IntegrityError
            The last one sent other bytes than the commit promises.
        RegistryError
            The last one does not answer.
        """
        blob = self.home(repo_id) / "blobs" / file.key
        place = self.snapshot(repo_id, commit) / safe_path(file.path)
        try:
            if not _has(blob, file.size):
                with self._locked(repo_id, file.key):
                    if not _has(blob, file.size):  # another process may have been quicker
                        self._download(repo_id, commit, file, registries, blob)
            _link(blob, place)
        except OSError as error:
            if not self._forbids(error):
                raise
            reason = (error.strerror or str(error)).lower()
            raise PackageError(
                f"{file.path} of {repo_id} is not in the cache {self.root}, which can only be "
                f"read: {reason} ({error.filename})",
                hint="KERNELS_CACHE or HF_HUB_CACHE names another directory",
            ) from None
        return place

    def _forbids(self, error: OSError) -> bool:
        """Return whether an error is that the cache may only be read."""
        return error.errno in _READ_ONLY and str(error.filename).startswith(str(self.root))

    @contextlib.contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """Write what only saves a request later: a cache that may only be read goes without."""
        try:
            yield
        except OSError as error:
            if not self._forbids(error):
                raise
            _logger.info("%s is not noted in %s: %s", what, self.root, error.strerror)

    def _download(
        self, repo_id: str, commit: str, file: File, registries: Iterable[Registry], blob: Path
    ) -> None:
        unfinished = blob.with_name(f"{blob.name}.kernelmill")
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        failures: list[PackageError] = []
        for registry in registries:
            try:
                _fetch(registry, repo_id, commit, file, unfinished)
            except PackageError as error:
                failures.append(error)
            else:
                os.replace(unfinished, blob)  # noqa: PTH105
                return
        raise _joined(failures, file, repo_id) if failures else _unasked(file, repo_id, blob)

    @contextlib.contextmanager
    def _locked(self, repo_id: str, key: str) -> Iterator[None]:
        """Hold the lock that `huggingface_hub` takes for the same content."""
        place = self.root / ".locks" / self.home(repo_id).name / f"{key}.lock"
        with locked_file(place, "two processes that download at once may have to do it again"):
            yield


def _listing(body: Mapping[str, Any]) -> tuple[File, ...] | None:  # Any: JSON
    """Return the files of a listing in the Hub's form; None where it cannot be used."""
    rows = body.get("files")
    if body.get("format_version") != TREE_FORMAT or not isinstance(rows, dict):
        return None
    try:
        return tuple(_file(path, row) for path, row in sorted(rows.items()))
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, IntegrityError):
            raise
        return None


def _fetch(registry: Registry, repo_id: str, commit: str, file: File, target: Path) -> None:
    """Download a file and verify it; what was gone on from and is wrong is taken once more."""
    for turn in (1, 2):
        gone_on_from = target.exists()
        registry.fetch(repo_id, commit, file, target)
        size = target.stat().st_size
        found = content_key(target, file) if size == file.size else f"{size:,} bytes"
        if found == file.key:
            return
        target.unlink()
        if turn == 2 or not gone_on_from:  # noqa: PLR2004 - the second turn
            promised = file.key if size == file.size else f"{file.size:,} bytes"
            raise IntegrityError(
                f"{registry.url} sent {found} for {file.path} of {repo_id} at {commit[:12]}; "
                f"its commit promises {promised}",
                hint="nothing of it was kept; try again, or another mirror",
            )


def _unasked(file: File, repo_id: str, blob: Path) -> RegistryError:
    """Return the error of a file that is absent or damaged, where no registry may be asked."""
    state = "is not in the cache"
    if blob.is_file():
        found = blob.stat().st_size
        state = f"is damaged in the cache ({found:,} bytes, not {file.size:,} as its commit says)"
    return RegistryError(
        f"{file.path} of {repo_id} {state}, and no registry may be asked",
        hint="`kernelmill sync` fetches it where there is a network",
    )


def _joined(failures: list[PackageError], file: File, repo_id: str) -> PackageError:
    """Return one error for what several mirrors failed at: of the kind of the last."""
    if len(failures) == 1:
        return failures[0]
    lines = [f"  {failure.message}" for failure in failures]
    kind = type(failures[-1])
    kind = kind if kind in {IntegrityError, RegistryError, NotPublishedError} else RegistryError
    text = f"{file.path} of {repo_id} could not be had from {len(failures)} registries:"
    return kind("\n".join([text, *lines]), hint=failures[-1].hint)


# ----------------------------------------------------------------------------- the disk


def _has(blob: Path, size: int) -> bool:
    try:
        return os.stat(blob).st_size == size  # noqa: PTH116 - quick
    except (FileNotFoundError, NotADirectoryError):
        return False


def _is_linked(base: str, file: File) -> bool:
    place = f"{base}/{file.path}"
    try:
        target = os.readlink(place)  # noqa: PTH115 - once a file
        found = os.stat(place)  # noqa: PTH116 - quick, and it follows the link
    except OSError:
        return False
    return found.st_size == file.size and target.endswith(f"/blobs/{file.key}")


def _link(blob: Path, place: Path) -> None:
    """Make a snapshot's link to a content, as `huggingface_hub` does: relative."""
    target = os.path.relpath(blob, place.parent)
    with contextlib.suppress(OSError):
        if os.readlink(place) == target:  # noqa: PTH115
            return
    place.parent.mkdir(parents=True, exist_ok=True)
    # Beside the snapshots: whoever hashes a variant meanwhile must not find a file too many.
    temporary = blob.parent.parent / f".{os.getpid()}-{os.urandom(8).hex()}.new"
    os.symlink(target, temporary)  # noqa: PTH211
    try:
        os.replace(temporary, place)  # noqa: PTH105
    except BaseException:
        os.unlink(temporary)  # noqa: PTH108
        raise


def _write(place: Path, body: bytes) -> None:
    """Write a small file, whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=place.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(body)
        os.replace(temporary, place)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def _read_json(place: Path) -> dict[str, Any]:  # Any: JSON
    """Return an object from a file; an empty one where it is absent or unreadable."""
    try:
        with place.open("rb") as stream:
            found = json.loads(stream.read(_MOST_JSON))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _row(file: File) -> dict[str, object]:
    row: dict[str, object] = {"size": file.size, "blob_id": file.blob_id}
    if file.sha256:
        row |= {"lfs_sha256": file.sha256, "lfs_size": file.size}
    return row


def _file(path: str, row: Mapping[str, Any]) -> File:
    sha256 = row.get("lfs_sha256") or ""
    size = row["lfs_size"] if sha256 and row.get("lfs_size") is not None else row["size"]
    return File(path, int(size), str(row["blob_id"]), str(sha256))
