"""The Hugging Face Hub, and what speaks like it, as a registry; the one user of `huggingface_hub`.

Large files, Xet and resumed downloads are that library's. Its errors become ours here, with what
was asked.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kernelmill.errors import (
    IntegrityError,
    MissingExtraError,
    NotPublishedError,
    RegistryError,
)
from kernelmill.package.digest import safe_path
from kernelmill.package.registry import (
    MOST_FILES,
    Add,
    Commit,
    Delete,
    File,
    Ref,
    Refs,
    check_commit_id,
    pick_commit,
)
from kernelmill.package.registry_files import blob_id
from kernelmill.package.wanted import check_repo_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["HUB", "HubRegistry"]

HUB: Final = "https://huggingface.co"
_KERNEL: Final = "kernel"
_WHOLE: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)
_SHORT: Final = re.compile(r"[0-9a-f]{7,39}", re.ASCII)
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
        with self._asking(f"branches and tags of {repo_id}"):
            found = self._api.list_repo_refs(repo_id, repo_type=_KERNEL)
        return Refs(
            tuple(self._ref(repo_id, row) for row in found.branches),
            tuple(self._ref(repo_id, row) for row in found.tags),
        )

    def _ref(self, repo_id: str, row: Any) -> Ref:  # Any: the library's GitRefInfo
        asked = f"{repo_id} in {self.url}, {row.name}"
        return Ref(row.name, check_commit_id(str(row.target_commit), asked=asked))

    def commit(self, repo_id: str, revision: str) -> str:
        """See `Registry`. A whole commit id is taken as it is; `files` tells if it is there."""
        if _WHOLE.fullmatch(revision):
            return revision
        refs = self.refs(repo_id)
        known = list(self._commits(repo_id, refs)) if _SHORT.fullmatch(revision) else []
        return pick_commit(revision, refs, known, place=f"{repo_id} in {self.url}")

    def _commits(self, repo_id: str, refs: Refs) -> Iterator[str]:
        """Yield the commits of all branches: one short id must fit one of them only."""
        for ref in refs.branches:
            with self._asking(f"commits of {repo_id}, {ref.name}"):
                rows = self._api.list_repo_commits(
                    repo_id, repo_type=_KERNEL, revision=f"refs/heads/{ref.name}"
                )
            yield from (check_commit_id(row.commit_id, asked=repo_id) for row in rows)

    def files(self, repo_id: str, commit: str) -> tuple[File, ...]:
        """See `Registry`."""
        check_repo_id(repo_id)
        found: list[File] = []
        with self._asking(f"files of {repo_id} at {commit[:12]}"):
            rows = self._api.list_repo_tree(
                repo_id, repo_type=_KERNEL, revision=commit, recursive=True
            )
            for row in rows:
                if hasattr(row, "blob_id"):
                    found.append(_file(row))
                if len(found) > MOST_FILES:
                    raise RegistryError(f"{repo_id} in {self.url} has over {MOST_FILES:,} files")
        return tuple(sorted(found, key=lambda file: file.path))

    def fetch(self, repo_id: str, commit: str, file: File, target: Path) -> None:
        """See `Registry`. What a killed download left lies beside `target` and is gone on from."""
        staging = target.with_name(f"{target.name}.hub")
        with self._asking(f"{file.path} of {repo_id} at {commit[:12]}"), _bars.off(self._hub.utils):
            made = self._api.hf_hub_download(
                repo_id, file.path, repo_type=_KERNEL, revision=commit, local_dir=staging
            )
        found = Path(made).stat().st_size
        if found != file.size:
            Path(made).unlink()
            raise IntegrityError(
                f"{self.url}: {file.path} of {repo_id} came with {found:,} bytes; "
                f"its commit promises {file.size:,}"
            )
        Path(made).replace(target)
        shutil.rmtree(staging, ignore_errors=True)

    def read(self, repo_id: str, commit: str, path: str, *, limit: int = 32 << 20) -> bytes:
        """See `Registry`."""
        check_repo_id(repo_id)
        safe_path(path)
        library = self._hub
        address = library.hf_hub_url(
            repo_id, path, repo_type=_KERNEL, revision=commit, endpoint=self.url
        )
        headers = library.utils.build_hf_headers(token=self._token)
        with self._asking(f"{path} of {repo_id} at {commit[:12]}"):
            answer = library.utils.http_backoff(
                "GET", address, headers=headers, follow_redirects=True
            )
            library.utils.hf_raise_for_status(answer)
            body: bytes = answer.content
        if len(body) > limit:
            raise RegistryError(
                f"{path} of {repo_id} has {len(body):,} bytes; {limit:,} are accepted"
            )
        etag = str(answer.headers.get("etag", "")).removeprefix("W/").strip('"')
        if re.fullmatch(r"[0-9a-f]{40}", etag) and blob_id(body) != etag:
            raise IntegrityError(
                f"{self.url}: {path} of {repo_id} is {blob_id(body)}; the registry says {etag}"
            )
        return body

    def trusts(self, publisher: str) -> bool | None:
        """See `Registry`. Asked once; users, who have no overview, are not vouched for."""
        if publisher not in self._trusted:
            with self._asking(f"publisher {publisher}"):
                self._trusted[publisher] = self._overview(publisher)
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
        with self._asking(f"making {repo_id}"):
            self._api.create_repo(
                repo_id, repo_type=_KERNEL, private=private or None, exist_ok=True
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
        with contextlib.ExitStack() as opened, self._asking(f"pushing to {repo_id}, {branch}"):
            operations = [self._operation(change, opened) for change in changes]
            self._api.create_branch(repo_id, branch=branch, repo_type=_KERNEL, exist_ok=True)
            opened.enter_context(_bars.off(self._hub.utils))
            made = self._api.create_commit(
                repo_id,
                operations,
                repo_type=_KERNEL,
                revision=branch,
                commit_message=message,
                parent_commit=parent,
            )
        return Commit(check_commit_id(str(made.oid), asked=repo_id), branch)

    def _operation(self, change: Add | Delete, opened: contextlib.ExitStack) -> Any:
        # Any: the library's operations
        if isinstance(change, Delete):
            return self._hub.CommitOperationDelete(change.path, is_folder=False)
        source: Any = change.source
        if isinstance(source, Path) and urlsplit(self.url).hostname != urlsplit(HUB).hostname:
            # An open file goes by LFS. Xet, the library's choice for paths, is the Hub's alone.
            source = opened.enter_context(source.open("rb"))
        return self._hub.CommitOperationAdd(change.path, source)

    # ------------------------------------------------------------------------- errors

    @contextlib.contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Turn the library's errors into ours."""
        errors = self._hub.errors
        try:
            yield
        except errors.OfflineModeIsEnabled as error:
            raise RegistryError(
                f"{what}: HF_HUB_OFFLINE is set, so {self.url} is not asked",
                hint="unset it, or fetch the kernel where there is a network (`kernelmill sync`)",
            ) from error
        except errors.HfHubHTTPError as error:
            raise self._said(what, error) from error
        except (errors.HFValidationError, errors.LocalTokenNotFoundError) as error:
            raise RegistryError(f"{what}: {error}") from error
        except _transport_errors() as error:
            raise RegistryError(
                f"{what}: {self.url} cannot be reached: {type(error).__name__}: {error}"
            ) from error

    def _said(self, what: str, error: Any) -> RegistryError:  # Any: HfHubHTTPError
        status = getattr(error.response, "status_code", 0)
        said = str(getattr(error, "server_message", "") or "").strip()
        reason = _STATUS.get(status) or f"the registry answered {status}"
        if "moved" in reason or "private" in reason:
            hint = ""
        else:
            hint = "set HF_TOKEN or run `hf auth login`" if status in {401, 403} else ""
        kind = NotPublishedError if status == 404 else RegistryError  # noqa: PLR2004 - not found
        return kind(f"{what}: {reason} ({self.url}; {status} {said[:300]})", hint=hint)


def _file(row: Any) -> File:  # Any: the library's RepoFile
    lfs = row.lfs
    if lfs is None:
        return File(row.path, int(row.size), str(row.blob_id))
    return File(row.path, int(lfs.size), str(row.blob_id), str(lfs.sha256))


def _library() -> Any:  # Any: a library that resolves its names late
    try:
        import huggingface_hub  # noqa: PLC0415 - a second, and not all registries need it
        import huggingface_hub.errors  # noqa: PLC0415
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
    for name, base in (("httpx2", "HTTPError"), ("httpx", "HTTPError")):
        with contextlib.suppress(ImportError):
            module = __import__(name)
            found.append(getattr(module, base))
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
