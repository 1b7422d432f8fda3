"""The Hugging Face Hub, and what speaks like it, as a registry; the one user of `huggingface_hub`.

Large files, Xet and resumed downloads are that library's. Its errors become ours here, with what
was asked.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib
import re
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from kernelmill.errors import (
    IntegrityError,
    KernelmillError,
    MissingExtraError,
    NotPublishedError,
    RegistryError,
)
from kernelmill.package.digest import file_hash, safe_path
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
    may_be_short_id,
    pick_commit,
)
from kernelmill.package.registry_files import blob_id
from kernelmill.package.wanted import check_repo_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["HUB", "HubRegistry"]

HUB: Final = "https://huggingface.co"
_KERNEL: Final = "kernel"
TURNS: Final = 3
_T = TypeVar("_T")
_PAUSE: Final = 0.1
_CHUNK: Final = 1 << 16
_AGAIN: Final = frozenset({429, 500, 502, 503, 504})
_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO})
_STATUS: Final = {
    401: "the token is missing or not accepted",
    403: "the token may not do that; publishing a kernel repository needs approval by the Hub",
    404: "there is no such repository, revision or file, or it is private and no token was given",
    409: "it is there already",
    412: "the branch has moved; somebody else has pushed",
    429: "too many requests; try again later",
    507: "the registry's disk is full",
}


class HubRegistry:
    """See `Registry` for the methods.

    Parameters
    ----------
    url
        The endpoint; "https://huggingface.co" is the Hub itself.
    token
        None for the one that `huggingface_hub` finds (HF_TOKEN, `hf auth login`), False for none.

    Raises
    ------
    MissingExtraError
        `huggingface_hub` is not installed.
    """

    def __init__(self, url: str = HUB, *, token: str | bool | None = None) -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._hub = _library()
        self._api = self._hub.HfApi(
            endpoint=self.url, token=token, library_name="kernelmill", library_version=_version()
        )
        self._trusted: dict[str, bool | None] = {}

    # ------------------------------------------------------------------------- reading

    def refs(self, repo_id: str) -> Refs:
        """See `Registry`."""
        check_repo_id(repo_id)
        found = self._ask(
            f"branches and tags of {repo_id}",
            lambda: self._api.list_repo_refs(repo_id, repo_type=_KERNEL),
        )
        return Refs(
            tuple(self._ref(repo_id, row) for row in found.branches),
            tuple(self._ref(repo_id, row) for row in found.tags),
        )

    def _ref(self, repo_id: str, row: Any) -> Ref:  # Any: the library's GitRefInfo
        asked = f"{repo_id} in {self.url}, {row.name}"
        return Ref(row.name, check_commit_id(str(row.target_commit), asked=asked))

    def commit(self, repo_id: str, revision: str) -> str:
        """See `Registry`. A whole commit id is taken as it is; `files` tells if it is there."""
        if is_commit_id(revision):
            return revision
        refs = self.refs(repo_id)
        known = list(self._commits(repo_id, refs)) if may_be_short_id(revision) else []
        return pick_commit(revision, refs, known, place=f"{repo_id} in {self.url}")

    def _commits(self, repo_id: str, refs: Refs) -> Iterator[str]:
        """Yield the commits of all branches: one short id must fit one of them only."""
        for ref in refs.branches:
            revision = f"refs/heads/{ref.name}"
            ask = functools.partial(
                self._api.list_repo_commits, repo_id, repo_type=_KERNEL, revision=revision
            )
            rows = self._ask(f"commits of {repo_id}, {ref.name}", ask)
            yield from (check_commit_id(row.commit_id, asked=repo_id) for row in rows)

    def files(self, repo_id: str, commit: str) -> tuple[File, ...]:
        """See `Registry`."""
        check_repo_id(repo_id)
        found = self._ask(
            f"files of {repo_id} at {commit[:12]}", lambda: self._tree(repo_id, commit)
        )
        return tuple(sorted(found, key=lambda file: file.path))

    def _tree(self, repo_id: str, commit: str) -> list[File]:
        found: list[File] = []
        rows = self._api.list_repo_tree(repo_id, repo_type=_KERNEL, revision=commit, recursive=True)
        for row in rows:
            if hasattr(row, "blob_id"):
                found.append(_file(row))
            if len(found) > MOST_FILES:
                raise RegistryError(f"{repo_id} in {self.url} has over {MOST_FILES:,} files")
        return found

    def fetch(self, repo_id: str, commit: str, file: File, target: Path) -> None:
        """See `Registry`. Large files of the Hub itself come by Xet, which resumes by itself."""
        check_repo_id(repo_id)
        asked = f"{file.path} of {repo_id} at {commit[:12]}"
        with _bars.off(self._hub.utils):
            if file.sha256 and self._is_the_hub():
                self._ask(asked, lambda: self._fetch_by_xet(repo_id, commit, file, target))
            else:
                self._ask(asked, lambda: self._fetch_by_http(repo_id, commit, file, target))

    def _is_the_hub(self) -> bool:
        return urlsplit(self.url).hostname == urlsplit(HUB).hostname

    def _fetch_by_xet(self, repo_id: str, commit: str, file: File, target: Path) -> None:
        staging = target.with_name(f"{target.name}.hub")
        try:
            made = self._api.hf_hub_download(
                repo_id, file.path, repo_type=_KERNEL, revision=commit, local_dir=staging
            )
            Path(made).replace(target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _fetch_by_http(self, repo_id: str, commit: str, file: File, target: Path) -> None:
        """Go on where a killed download stopped, and never take more than was promised."""
        have = target.stat().st_size if target.is_file() else 0
        if have > file.size:
            target.unlink()
            have = 0
        if have == file.size and target.is_file():
            return
        with target.open("ab") as out:
            self._hub.file_download.http_get(
                self._address(repo_id, commit, file.path),
                out,
                resume_size=have,
                headers=self._headers(),
                expected_size=file.size,
                _tqdm_bar=_Count(file, have, self.url),
            )

    def _address(self, repo_id: str, commit: str, path: str) -> str:
        made = self._hub.hf_hub_url(
            repo_id, path, repo_type=_KERNEL, revision=commit, endpoint=self.url
        )
        return str(made)

    def _headers(self) -> Any:  # Any: a dictionary of the library's
        return self._hub.utils.build_hf_headers(token=self._token)

    def read(self, repo_id: str, commit: str, path: str, *, limit: int = 32 << 20) -> bytes:
        """See `Registry`."""
        check_repo_id(repo_id)
        safe_path(path)
        asked = f"{path} of {repo_id} at {commit[:12]}"
        address = self._address(repo_id, commit, path)
        body, said = self._ask(asked, lambda: self._get(address, limit, asked))
        etag = said.removeprefix("W/").strip('"')
        found = blob_id(body) if len(etag) == 40 else hashlib.sha256(body).hexdigest()  # noqa: PLR2004
        if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", etag) and found != etag:
            raise IntegrityError(
                f"{self.url}: {path} of {repo_id} is {found}; the registry says {etag}"
            )
        return body

    def _get(self, address: str, limit: int, asked: str) -> tuple[bytes, str]:
        """Return a body of at most `limit` bytes, unpacked, and its ETag."""
        session = self._hub.utils.get_session()
        headers = self._headers()
        with session.stream("GET", address, headers=headers, follow_redirects=True) as answer:
            self._hub.utils.hf_raise_for_status(answer)
            body = bytearray()
            for chunk in answer.iter_bytes(_CHUNK):
                body += chunk
                if len(body) > limit:
                    raise RegistryError(f"{asked} has more than the {limit:,} bytes accepted")
            return bytes(body), str(answer.headers.get("etag", ""))

    def trusts(self, publisher: str) -> bool | None:
        """See `Registry`. Asked once; users, who have no overview, are not vouched for."""
        if publisher not in self._trusted:
            self._trusted[publisher] = self._ask(
                f"publisher {publisher}", lambda: self._overview(publisher)
            )
        return self._trusted[publisher]

    def _overview(self, publisher: str) -> bool:
        try:
            found = self._api.get_organization_overview(publisher)
        except self._hub.errors.HfHubHTTPError as error:
            if getattr(error.response, "status_code", 0) == 404:  # noqa: PLR2004 - not found
                return False
            raise
        return getattr(found, "trustedKernelPublisher", False) is True

    # ------------------------------------------------------------------------- writing

    def create(self, repo_id: str, *, private: bool = False) -> None:
        """See `Registry`."""
        check_repo_id(repo_id)
        self._ask(
            f"making {repo_id}",
            lambda: self._api.create_repo(
                repo_id, repo_type=_KERNEL, private=private or None, exist_ok=True
            ),
        )

    def publish(
        self,
        repo_id: str,
        branch: str,
        changes: Sequence[Add | Delete],
        *,
        message: str,
        parent: str | None = None,
    ) -> Commit:
        """See `Registry`. A new branch begins where `main` stands."""
        made = self._ask(
            f"pushing to {repo_id}, {branch}",
            lambda: self._push(repo_id, branch, changes, message, parent),
            turns=1,  # a commit whose answer was lost must not be made twice
        )
        return Commit(check_commit_id(made, asked=repo_id), branch)

    def _push(
        self,
        repo_id: str,
        branch: str,
        changes: Sequence[Add | Delete],
        message: str,
        parent: str | None,
    ) -> str:
        with contextlib.ExitStack() as opened, _bars.off(self._hub.utils):
            operations = [self._operation(change, opened) for change in changes]
            self._api.create_branch(repo_id, branch=branch, repo_type=_KERNEL, exist_ok=True)
            if not self._is_the_hub():
                # Where one content stands twice, the library would send one open file at once
                # from two threads; so each content is sent alone, before the commit.
                unique = {_content(c): o for c, o in zip(changes, operations, strict=True)}
                unique.pop(b"", None)
                self._api.preupload_lfs_files(
                    repo_id, list(unique.values()), repo_type=_KERNEL, revision=branch
                )
            made = self._api.create_commit(
                repo_id,
                operations,
                repo_type=_KERNEL,
                revision=branch,
                commit_message=message,
                parent_commit=parent,
            )
        return str(made.oid)

    def _operation(self, change: Add | Delete, opened: contextlib.ExitStack) -> Any:
        # Any: the library's operations
        if isinstance(change, Delete):
            return self._hub.CommitOperationDelete(change.path, is_folder=False)
        source: Any = change.source
        if isinstance(source, Path) and not self._is_the_hub():
            # An open file goes by LFS. Xet, the library's choice for paths, is the Hub's alone.
            source = opened.enter_context(source.open("rb"))
        return self._hub.CommitOperationAdd(change.path, source)

    # ------------------------------------------------------------------------- errors

    def _ask(self, what: str, work: Callable[[], _T], *, turns: int = TURNS) -> _T:
        """Do something with the library, again where the registry has a moment of weakness."""
        for turn in range(1, turns + 1):
            try:
                return self._ask_once(what, work)
            except _Weak as weak:
                if turn == turns:
                    raise weak.error from weak.error.__cause__
                time.sleep(_PAUSE * 2**turn)
        raise AssertionError(turns)

    def _ask_once(self, what: str, work: Callable[[], _T]) -> _T:
        """Do something with the library, whose errors become ours."""
        errors = self._hub.errors
        try:
            return work()
        except KernelmillError:
            raise
        except errors.OfflineModeIsEnabled as error:
            raise RegistryError(
                f"{what}: HF_HUB_OFFLINE is set, so {self.url} is not asked",
                hint="unset it, or fetch the kernel where there is a network (`kernelmill sync`)",
            ) from error
        except errors.HfHubHTTPError as error:
            made = self._said(what, error)
            made.__cause__ = error
            if getattr(error.response, "status_code", 0) in _AGAIN:
                raise _Weak(made) from error
            raise made from error
        except (errors.HFValidationError, errors.LocalTokenNotFoundError) as error:
            raise RegistryError(f"{what}: {error}") from error
        except _transport_errors() as error:
            if isinstance(error, OSError) and error.errno in _DISK:
                raise
            raise RegistryError(
                f"{what}: {self.url} cannot be reached or broke off: "
                f"{type(error).__name__}: {error}",
                hint="HF_ENDPOINT or the policy names it; HF_HUB_OFFLINE=1 asks the cache alone",
            ) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RegistryError(
                f"{what}: {self.url} answered what cannot be used: {type(error).__name__}: {error}"
            ) from error

    def _said(self, what: str, error: Any) -> RegistryError:  # Any: HfHubHTTPError
        status = getattr(error.response, "status_code", 0)
        said = str(getattr(error, "server_message", "") or "").strip()
        reason = _STATUS.get(status) or f"the registry answered {status}"
        hint = "set HF_TOKEN or run `hf auth login`" if status in {401, 403} else ""
        kind = NotPublishedError if status == 404 else RegistryError  # noqa: PLR2004 - not found
        return kind(f"{what}: {reason} ({self.url}; {status} {said[:300]})", hint=hint)


class _Weak(Exception):  # noqa: N818 - travels from one turn to the next
    """An error that may be gone a moment later."""

    def __init__(self, error: RegistryError) -> None:
        super().__init__(error)
        self.error = error


class _Count:
    """Stands where the library would draw a bar: refuses more bytes than were promised."""

    def __init__(self, file: File, have: int, url: str) -> None:
        self._file = file
        self._have = have
        self._url = url

    def update(self, count: int) -> None:
        """Take notice of some bytes."""
        self._have += count
        if self._have > self._file.size:
            raise IntegrityError(
                f"{self._url} sends more for {self._file.path} than the {self._file.size:,} bytes "
                "that its commit promises"
            )


def _file(row: Any) -> File:  # Any: the library's RepoFile
    lfs = row.lfs
    if lfs is None:
        return File(row.path, int(row.size), str(row.blob_id))
    return File(row.path, int(lfs.size), str(row.blob_id), str(lfs.sha256))


def _content(change: Add | Delete) -> bytes:
    """Return the sha256 of a local file; nothing for what is no local file."""
    source = change.source if isinstance(change, Add) else b""
    return b"" if isinstance(source, bytes) else file_hash(source)


def _library() -> Any:  # Any: a library that resolves its names late
    try:
        import huggingface_hub  # noqa: PLC0415 - a second, and not all registries need it
        import huggingface_hub.errors  # noqa: PLC0415
        import huggingface_hub.file_download  # noqa: PLC0415
        import huggingface_hub.utils  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(
            "the Hugging Face Hub needs the distribution huggingface_hub, which is not installed",
            hint="pip install 'kernelmill[hub]'",
        ) from error
    return huggingface_hub


def _transport_errors() -> tuple[type[BaseException], ...]:
    """Return what the library's HTTP client raises; which one that is differs between versions."""
    found: list[type[BaseException]] = [OSError]
    for name in ("httpx2", "httpx"):
        with contextlib.suppress(ImportError):
            found.append(importlib.import_module(name).HTTPError)
    return tuple(found)


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - asked once

    return version("kernelmill")


class _Bars:
    """The library's progress bars, a setting of the process: off while any thread asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._restore = False

    @contextlib.contextmanager
    def off(self, tools: Any) -> Iterator[None]:  # Any: huggingface_hub.utils
        """Keep them away; `sync` draws one bar of its own for all files."""
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._restore = not tools.are_progress_bars_disabled()
                if self._restore:
                    tools.disable_progress_bars()
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0 and self._restore:
                    tools.enable_progress_bars()


_bars: Final = _Bars()
