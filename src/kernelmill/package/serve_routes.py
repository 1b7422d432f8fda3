"""The Hub's protocol for kernels as `huggingface_hub` emits it: a function a request. No sockets.

The table at the end is the whole protocol; what changes something is in `serve_writes`. It was
recorded from the clients; the real Hub was not reached.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from kernelmill.package import serve_writes
from kernelmill.package.serve_answers import (
    MOST_DIGITS,
    Answer,
    Problem,
    json_answer,
    whole_number,
)
from kernelmill.package.wanted import check_repo_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.package.registry import File
    from kernelmill.package.serve_answers import Request, Service

__all__ = ["ROUTES", "Route"]

PAGE: Final = 1000
MOST_OBJECT: Final = 1 << 36


# ----------------------------------------------------------------------------- reading


def organization(service: Service, request: Request) -> Answer:
    """Say who publishes under a name, and whether the registry vouches for it."""
    name = request.groups["org"]
    trusted = name in service.trusted
    return json_answer(
        {"name": name, "fullname": name, "avatarUrl": "", "trustedKernelPublisher": trusted}
    )


def whoami(_: Service, request: Request) -> Answer:
    """Say whose token it is."""
    if request.user is None:
        raise Problem(HTTPStatus.UNAUTHORIZED, "Invalid user token.")
    return json_answer({"type": "user", "name": request.user, "fullname": request.user, "orgs": []})


def refs(service: Service, request: Request) -> Answer:
    """List branches and tags."""
    found = service.refs(request.groups["repo"])

    def rows(kind: str) -> list[dict[str, str]]:
        return [
            {"name": r.name, "ref": f"refs/{kind}/{r.name}", "targetCommit": r.commit}
            for r in (found.branches if kind == "heads" else found.tags)
        ]

    return json_answer({"branches": rows("heads"), "tags": rows("tags"), "converts": []})


def info(service: Service, request: Request) -> Answer:
    """Describe a repository at a revision (`main` where none is named)."""
    groups = {"rev": "main", **{k: v for k, v in request.groups.items() if v}}
    repo_id, commit = service.revision(replace(request, groups=groups))
    files = service.files(repo_id, commit)
    private = service.registry.is_private(repo_id)
    siblings = [{"rfilename": file.path} for file in files]
    return json_answer(
        {"id": repo_id, "_id": commit, "sha": commit, "private": private, "siblings": siblings}
    )


def commits(service: Service, request: Request) -> Answer:
    """List the commits of a revision, the newest first."""
    repo_id, commit = service.revision(request)
    rows = []
    for one in service.registry.history(repo_id, commit):
        message, seconds = service.registry.message(repo_id, one)
        date = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        title, _, rest = message.partition("\n")
        rows.append({"id": one, "title": title, "message": rest, "authors": [], "date": date})
    return json_answer(rows)


def tree(service: Service, request: Request) -> Answer:
    """List the files of a revision below a path, in pages."""
    repo_id, commit = service.revision(request)
    path = request.groups.get("path", "").strip("/")
    deep = request.query.get("recursive", "false").lower() in {"true", "1"}
    files = service.files(repo_id, commit)
    rows = _rows(files, f"{path}/" if path else "", deep=deep)
    if path and not rows:
        raise Problem(HTTPStatus.NOT_FOUND, f"{path} does not exist", "EntryNotFound")
    cursor = request.query.get("cursor", "0")
    begin = whole_number(cursor)
    if begin < 0:
        text = f"the cursor {cursor[:80]!r} is no number; accepted: 1 to {MOST_DIGITS} digits"
        raise Problem(HTTPStatus.BAD_REQUEST, text)
    answer = json_answer(rows[begin : begin + PAGE])
    if begin + PAGE < len(rows):
        tail = f"/{quote(path)}" if path else ""
        options = f"recursive={deep}&expand=False&cursor={begin + PAGE}"
        where = f"{request.endpoint}/api/kernels/{repo_id}/tree/{commit}{tail}?{options}"
        answer.headers["Link"] = f'<{where}>; rel="next"'
    return answer


def _rows(files: tuple[File, ...], prefix: str, *, deep: bool) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    below: dict[str, Any] = {}
    for file in files:
        if not file.path.startswith(prefix):
            continue
        parts = file.path.removeprefix(prefix).split("/")
        for count in range(1, len(parts) if deep else min(len(parts), 2)):
            folder = prefix + "/".join(parts[:count])
            below.setdefault(folder, hashlib.sha1(usedforsecurity=False)).update(
                f"{file.path}\0{file.key}\n".encode()
            )
            rows[folder] = {"type": "directory", "size": 0, "path": folder}
        if deep or len(parts) == 1:
            rows[file.path] = _file_row(file)
    for folder, made in below.items():
        rows[folder]["oid"] = made.hexdigest()
    return [rows[path] for path in sorted(rows)]


def _file_row(file: File) -> dict[str, Any]:
    row: dict[str, Any] = {"type": "file", "oid": file.blob_id, "size": file.size}
    row["path"] = file.path
    if file.sha256:
        row["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
    return row


def resolve(service: Service, request: Request) -> Answer:
    """Send a file, or a range of it."""
    repo_id, commit = service.revision(request)
    path = request.groups["path"]
    file = next((f for f in service.files(repo_id, commit) if f.path == path), None)
    if file is None:
        problem = Problem(HTTPStatus.NOT_FOUND, f"{path} does not exist", "EntryNotFound").answer()
        problem.headers["X-Repo-Commit"] = commit
        return problem
    begin, end = _range(request.headers.get("range", ""), file.size)
    headers = {
        "Content-Type": "application/octet-stream",
        "Accept-Ranges": "bytes",
        "ETag": f'"{file.key}"',
        "X-Repo-Commit": commit,
    }
    if file.sha256:
        headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
    status = HTTPStatus.OK
    if (begin, end) != (0, file.size):
        status = HTTPStatus.PARTIAL_CONTENT
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{file.size}"
    name = f"{check_repo_id(repo_id)}/blobs/{file.key}"
    return Answer(status, headers, service.registry.shelf.stream(name, begin), end - begin)


def _range(header: str, size: int) -> tuple[int, int]:
    if not header:
        return 0, size
    first, dash, last = header.removeprefix("bytes=").partition("-")
    begin, until = whole_number(first), whole_number(last) if last else size - 1
    if not dash or begin < 0 or (last and until < 0):
        return 0, size  # as RFC 9110 says of what cannot be read
    end = min(until + 1, size)
    if begin >= size or begin >= end:
        raise Problem(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, f"the file has {size} bytes")
    return begin, end


def card(_: Service, request: Request) -> Answer:
    """Accept any header of a README.md."""
    request.body()
    return json_answer({"errors": [], "warnings": []})


def no_xet(_: Service, __: Request) -> Answer:
    """Say what a client must do that would upload through Xet."""
    raise Problem(
        HTTPStatus.NOT_FOUND,
        "this registry has no Xet storage; set HF_HUB_DISABLE_XET=1 and push again",
    )


def no_harnesses(_: Service, __: Request) -> Answer:
    """Have no registry of programs that use the client."""
    raise Problem(HTTPStatus.NOT_FOUND, "not kept here")


# ----------------------------------------------------------------------------- the protocol


@dataclass(frozen=True, slots=True)
class Route:
    """One request: its method, its path (of quoted segments) and what may stand in the query."""

    method: str
    path: str
    answer: Callable[[Service, Request], Answer]
    query: tuple[str, ...] = ()
    writes: bool = False
    most: int = serve_writes.MOST_COMMIT


_REPO: Final = r"(?P<repo>[\w.-]+/[\w.-]+)"
_REV: Final = r"(?P<rev>[^/]+)"
_API: Final = f"/api/kernels/{_REPO}"

ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", r"/api/organizations/(?P<org>[\w.-]+)/overview", organization),
    Route("GET", "/api/whoami-v2", whoami),
    Route("GET", "/api/agent-harnesses", no_harnesses),
    Route("GET", _API, info),
    Route("GET", f"{_API}/refs", refs),
    Route("GET", f"{_API}/revision/{_REV}", info),
    Route("GET", f"{_API}/commits/{_REV}", commits),
    Route(
        "GET",
        f"{_API}/tree/{_REV}(?:/(?P<path>.*))?",
        tree,
        ("recursive", "expand", "cursor", "limit"),
    ),
    Route("GET", f"{_API}/xet-write-token/{_REV}", no_xet),
    Route("GET", f"/kernels/{_REPO}/resolve/{_REV}/(?P<path>.+)", resolve, ("download",)),
    Route("POST", "/api/repos/create", serve_writes.create, writes=True),
    Route("POST", "/api/validate-yaml", card),
    Route("POST", f"{_API}/branch/(?P<branch>[^/]+)", serve_writes.branch, writes=True),
    Route("POST", f"{_API}/tag/{_REV}", serve_writes.tag, writes=True),
    Route("POST", f"{_API}/preupload/{_REV}", serve_writes.preupload, writes=True),
    Route("POST", f"{_API}/commit/{_REV}", serve_writes.commit, writes=True),
    Route(
        "POST",
        rf"/kernels/{_REPO}\.git/info/lfs/objects/batch",
        serve_writes.lfs_batch,
        writes=True,
    ),
    Route(
        "PUT",
        rf"/lfs/{_REPO}/(?P<oid>[0-9a-f]{{64}})/(?P<size>\d{{1,15}})/(?P<ticket>[0-9a-f]{{64}})",
        serve_writes.lfs_put,
        most=MOST_OBJECT,
    ),
)
