"""The Hub's protocol for kernels as `huggingface_hub` emits it: a function a request. No sockets.

The table at the end is the whole protocol. It was recorded from the clients; the real Hub was not
reached.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import json
import re
import secrets
import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from kernelmill.errors import PackageError, RegistryError
from kernelmill.package.digest import safe_path
from kernelmill.package.registry import File, Refs
from kernelmill.package.registry_files import pointer_id
from kernelmill.package.wanted import check_repo_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kernelmill.package.registry_files import FilesRegistry

__all__ = ["ROUTES", "Answer", "Problem", "Request", "Route", "Service"]

PAGE: Final = 1000
KEPT: Final = 256
MOST_COMMIT: Final = 512 << 20  # held in memory
MOST_OBJECT: Final = 1 << 36
_CHUNK: Final = 1 << 20
_MOST_JSON: Final = 64 << 20
_COMMIT: Final = re.compile(r"[0-9a-f]{40}", re.ASCII)
_JSON: Final = {"Content-Type": "application/json"}


class Readable(Protocol):
    """What a body is read from."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""


@dataclass(slots=True)
class Request:
    """What came in."""

    groups: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    length: int
    stream: Readable
    endpoint: str = ""
    user: str | None = None

    def body(self, limit: int = _MOST_JSON) -> bytes:
        """Return the body."""
        if self.length > limit:
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the limit is {limit:,} bytes")
        found = self.stream.read(self.length)
        if len(found) != self.length:
            raise Problem(HTTPStatus.BAD_REQUEST, "the body ended early")
        return found

    def json(self) -> dict[str, Any]:  # Any: what JSON can hold
        """Return the body as an object."""
        try:
            found = json.loads(self.body())
        except (ValueError, RecursionError):
            raise Problem(HTTPStatus.BAD_REQUEST, "the body is no JSON") from None
        if not isinstance(found, dict):
            raise Problem(HTTPStatus.BAD_REQUEST, "the body is no JSON object")
        return found


@dataclass(slots=True)
class Answer:
    """What goes out: `body` is bytes, or what yields them, of `length` bytes."""

    status: HTTPStatus = HTTPStatus.OK
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | Iterator[bytes] = b""
    length: int = 0

    def chunks(self) -> Iterator[bytes]:
        """Yield the body, never more than `length` bytes."""
        left = self.length
        for chunk in (self.body,) if isinstance(self.body, bytes) else self.body:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return


class Problem(Exception):  # noqa: N818 - an answer, which travels as an exception
    """A refusal, with the codes that `huggingface_hub` turns into its own errors."""

    def __init__(self, status: HTTPStatus, text: str, code: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.code = code

    def answer(self) -> Answer:
        """Return it as an answer."""
        headers = {**_JSON, "X-Error-Message": self.text.encode("ascii", "replace").decode()[:400]}
        headers["X-Error-Message"] = headers["X-Error-Message"].replace("\n", " ")
        if self.code:
            headers["X-Error-Code"] = self.code
        body = json.dumps({"error": self.text}).encode()
        return Answer(self.status, headers, body, len(body))


def _json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    body = json.dumps(value).encode()
    return Answer(status, dict(_JSON), body, len(body))


class Service:
    """The registry behind the requests, with what its answers need to name."""

    def __init__(self, registry: FilesRegistry, trusted: frozenset[str]) -> None:
        self.registry = registry
        self.trusted = trusted
        # Commits never change, and each file of one that is asked for needs the whole list.
        self.files = functools.lru_cache(maxsize=KEPT)(registry.files)
        self._secret = secrets.token_bytes(32)

    def check_public(self, repo_id: str) -> None:
        """Hide a private repository as the Hub does: as if it were not there."""
        if self._exists(repo_id) and self.registry.is_private(repo_id):
            raise self._absent(repo_id)

    def _exists(self, repo_id: str) -> bool:
        try:
            self.registry.is_private(repo_id)
        except PackageError:
            return False
        return True

    def _absent(self, repo_id: str) -> Problem:
        return Problem(HTTPStatus.NOT_FOUND, f"Repository not found: {repo_id}", "RepoNotFound")

    def refs(self, repo_id: str) -> Refs:
        """Return the references of a repository that is there."""
        if not self._exists(repo_id):
            raise self._absent(repo_id)
        return self.registry.refs(repo_id)

    def revision(self, request: Request) -> tuple[str, str]:
        """Return repository and commit of a request."""
        repo_id, revision = request.groups["repo"], request.groups["rev"]
        if not self._exists(repo_id):
            raise self._absent(repo_id)
        name = f"{repo_id}/commits/{revision}.json"
        if _COMMIT.fullmatch(revision) and self.registry.shelf.exists(name):
            return repo_id, revision
        try:
            return repo_id, self.registry.commit(repo_id, revision)
        except RegistryError as error:
            raise Problem(HTTPStatus.NOT_FOUND, error.message, "RevisionNotFound") from error

    def ticket(self, repo_id: str, oid: str, size: int) -> str:
        """Return what lets the holder upload one object, since clients send no token with it."""
        text = f"{repo_id}\0{oid}\0{size}".encode()
        return hashlib.blake2s(text, key=self._secret).hexdigest()


# ----------------------------------------------------------------------------- reading


def organization(service: Service, request: Request) -> Answer:
    """Say who publishes under a name, and whether the registry vouches for it."""
    name = request.groups["org"]
    trusted = name in service.trusted
    return _json(
        {"name": name, "fullname": name, "avatarUrl": "", "trustedKernelPublisher": trusted}
    )


def whoami(_: Service, request: Request) -> Answer:
    """Say whose token it is."""
    if request.user is None:
        raise Problem(HTTPStatus.UNAUTHORIZED, "Invalid user token.")
    return _json({"type": "user", "name": request.user, "fullname": request.user, "orgs": []})


def refs(service: Service, request: Request) -> Answer:
    """List branches and tags."""
    found = service.refs(request.groups["repo"])

    def rows(kind: str) -> list[dict[str, str]]:
        return [
            {"name": r.name, "ref": f"refs/{kind}/{r.name}", "targetCommit": r.commit}
            for r in (found.branches if kind == "heads" else found.tags)
        ]

    return _json({"branches": rows("heads"), "tags": rows("tags"), "converts": []})


def info(service: Service, request: Request) -> Answer:
    """Describe a repository at a revision (`main` where none is named)."""
    groups = {"rev": "main", **{k: v for k, v in request.groups.items() if v}}
    repo_id, commit = service.revision(replace(request, groups=groups))
    files = service.files(repo_id, commit)
    private = service.registry.is_private(repo_id)
    siblings = [{"rfilename": file.path} for file in files]
    return _json(
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
    return _json(rows)


def tree(service: Service, request: Request) -> Answer:
    """List the files of a revision below a path, in pages."""
    repo_id, commit = service.revision(request)
    path = request.groups.get("path", "").strip("/")
    deep = request.query.get("recursive", "false").lower() in {"true", "1"}
    files = service.files(repo_id, commit)
    rows = _rows(files, f"{path}/" if path else "", deep=deep)
    if path and not rows:
        raise Problem(HTTPStatus.NOT_FOUND, f"{path} does not exist", "EntryNotFound")
    begin = int(request.query.get("cursor", "0"))
    answer = _json(rows[begin : begin + PAGE])
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
    if not dash or not first.isdecimal() or not (last.isdecimal() or not last):
        return 0, size  # as RFC 9110 says of what cannot be read
    begin, end = int(first), min(int(last) + 1 if last else size, size)
    if begin >= size or begin >= end:
        raise Problem(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, f"the file has {size} bytes")
    return begin, end


# ----------------------------------------------------------------------------- writing


def create(service: Service, request: Request) -> Answer:
    """Make a repository; 409 where it is there."""
    asked = request.json()
    if asked.get("type") != "kernel":
        raise Problem(HTTPStatus.BAD_REQUEST, "only repositories of the type kernel are kept here")
    organization_name = asked.get("organization") or request.user or "local"
    repo_id = check_repo_id(f"{organization_name}/{asked.get('name')}")
    url = f"{request.endpoint}/kernels/{repo_id}"
    there = {"url": url, "name": repo_id, "id": repo_id}
    if service._exists(repo_id):  # noqa: SLF001 - the service of this very module
        return _json({**there, "error": "You already created this repo"}, HTTPStatus.CONFLICT)
    private = asked.get("visibility") == "private" or bool(asked.get("private"))
    service.registry.create(repo_id, private=private)
    return _json(there)


def branch(service: Service, request: Request) -> Answer:
    """Make a branch, at `startingPoint` or where `main` stands."""
    repo_id, name = request.groups["repo"], request.groups["branch"]
    start = request.json().get("startingPoint") or "main"
    if service.refs(repo_id).branch(name) is not None:
        raise Problem(HTTPStatus.CONFLICT, f"Reference already exists: refs/heads/{name}")
    service.registry.move(repo_id, name, service.registry.commit(repo_id, str(start)))
    return _json({})


def tag(service: Service, request: Request) -> Answer:
    """Make a tag; one that is there stays where it is."""
    repo_id, commit = service.revision(request)
    name = str(request.json().get("tag"))
    if any(ref.name == name for ref in service.refs(repo_id).tags):
        raise Problem(HTTPStatus.CONFLICT, f"Tag reference exists already: {name}")
    service.registry.move(repo_id, name, commit, tag=True)
    return _json({})


def preupload(service: Service, request: Request) -> Answer:
    """Say of each file whether its content goes with the commit or is uploaded before."""
    repo_id, commit = service.revision(request)
    there = {file.path: file for file in service.files(repo_id, commit)}
    rows = []
    for asked in request.json().get("files", []):
        path, size = str(asked["path"]), int(asked["size"])
        safe_path(path)
        mode = "lfs" if size >= service.registry.large else "regular"
        row = {"path": path, "uploadMode": mode, "shouldIgnore": False}
        if path in there:
            row["oid"] = there[path].key
        rows.append(row)
    return _json({"files": rows})


def lfs_batch(service: Service, request: Request) -> Answer:
    """Say of each large object where it goes; nothing for those that are kept already."""
    repo_id = request.groups["repo"]
    service.refs(repo_id)
    rows = []
    for asked in request.json().get("objects", []):
        oid, size = str(asked["oid"]), int(asked["size"])
        File("x", size, "0" * 40, oid)  # refuses what is no sha256
        row: dict[str, Any] = {"oid": oid, "size": size}
        if not service.registry.shelf.exists(f"{check_repo_id(repo_id)}/blobs/{oid}"):
            ticket = service.ticket(repo_id, oid, size)
            href = f"{request.endpoint}/lfs/{repo_id}/{oid}/{size}/{ticket}"
            row["actions"] = {"upload": {"href": href, "header": {}}}
        rows.append(row)
    return _json({"transfer": "basic", "objects": rows})


def lfs_put(service: Service, request: Request) -> Answer:
    """Take a large object, if it is the promised one."""
    groups = request.groups
    repo_id, oid, size = groups["repo"], groups["oid"], int(groups["size"])
    if not secrets.compare_digest(service.ticket(repo_id, oid, size), groups["ticket"]):
        raise Problem(HTTPStatus.FORBIDDEN, "no upload of this object was asked for")
    if request.length != size:
        raise Problem(HTTPStatus.BAD_REQUEST, f"{request.length} bytes; {size} were promised")
    with tempfile.NamedTemporaryFile() as temporary:
        found, left = hashlib.sha256(), size
        while left and (chunk := request.stream.read(min(left, _CHUNK))):
            found.update(chunk)
            temporary.write(chunk)
            left -= len(chunk)
        temporary.flush()
        if left or found.hexdigest() != oid:
            raise Problem(HTTPStatus.BAD_REQUEST, "the bytes are not those of the promised sha256")
        service.registry.shelf.write(f"{repo_id}/blobs/{oid}", Path(temporary.name))
    return Answer()


def commit(service: Service, request: Request) -> Answer:
    """Commit what an ndjson body says."""
    repo_id, name = request.groups["repo"], request.groups["rev"].removeprefix("refs/heads/")
    here = service.refs(repo_id).branch(name)
    if here is None:
        raise Problem(HTTPStatus.NOT_FOUND, f"Invalid rev id: {name}", "RevisionNotFound")
    there = [file.path for file in service.files(repo_id, here.commit)]
    asked = _Asked(service, repo_id, there)
    for line in request.body(MOST_COMMIT).splitlines():
        asked.take(line)
    try:
        made = service.registry.commit_files(
            repo_id, name, asked.added, asked.gone, message=asked.message, parent=asked.parent
        )
    except RegistryError as error:
        status = HTTPStatus.PRECONDITION_FAILED if asked.parent else HTTPStatus.BAD_REQUEST
        raise Problem(status, error.message) from error
    url = f"{request.endpoint}/kernels/{repo_id}/commit/{made.id}"
    return _json({"success": True, "commitOid": made.id, "commitUrl": url, "hookOutput": ""})


class _Asked:
    """What the lines of a commit ask for."""

    def __init__(self, service: Service, repo_id: str, there: list[str]) -> None:
        self.message = ""
        self.parent: str | None = None
        self.added: list[File] = []
        self.gone: list[str] = []
        self._registry = service.registry
        self._repo_id = repo_id
        self._there = there

    def take(self, line: bytes) -> None:
        """Read one line."""
        try:
            row = json.loads(line)
            work = _LINES[row["key"]]
            work(self, row["value"])
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            text = f"a line of the commit cannot be used: {error}"
            raise Problem(HTTPStatus.BAD_REQUEST, text) from error

    def header(self, value: dict[str, Any]) -> None:
        """Read message and parent."""
        self.message = f"{value['summary']}\n{value.get('description', '')}".strip()
        self.parent = value.get("parentCommit")

    def file(self, value: dict[str, Any]) -> None:
        """Keep a content that came with the commit."""
        body = base64.b64decode(value["content"], validate=True)
        self.added.append(self._registry.store(self._repo_id, body, value["path"]))

    def large_file(self, value: dict[str, Any]) -> None:
        """Name a content that was uploaded before."""
        oid, size = value["oid"], int(value["size"])
        self.added.append(File(value["path"], size, pointer_id(oid, size), oid))

    def deleted_file(self, value: dict[str, Any]) -> None:
        """Remove a file."""
        if value["path"] not in self._there:
            text = f"A file with this name doesn't exist: {value['path']}"
            raise Problem(HTTPStatus.NOT_FOUND, text, "EntryNotFound")
        self.gone.append(value["path"])

    def deleted_folder(self, value: dict[str, Any]) -> None:
        """Remove all files below a folder."""
        folder = value["path"].rstrip("/") + "/"
        self.gone += [path for path in self._there if path.startswith(folder)]


_LINES: Final[dict[str, Callable[[_Asked, dict[str, Any]], None]]] = {
    "header": _Asked.header,
    "file": _Asked.file,
    "lfsFile": _Asked.large_file,
    "deletedFile": _Asked.deleted_file,
    "deletedFolder": _Asked.deleted_folder,
}


def card(_: Service, request: Request) -> Answer:
    """Accept any header of a README.md."""
    request.body()
    return _json({"errors": [], "warnings": []})


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
    most: int = MOST_COMMIT


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
    Route("POST", "/api/repos/create", create, writes=True),
    Route("POST", "/api/validate-yaml", card),
    Route("POST", f"{_API}/branch/(?P<branch>[^/]+)", branch, writes=True),
    Route("POST", f"{_API}/tag/{_REV}", tag, writes=True),
    Route("POST", f"{_API}/preupload/{_REV}", preupload, writes=True),
    Route("POST", f"{_API}/commit/{_REV}", commit, writes=True),
    Route("POST", rf"/kernels/{_REPO}\.git/info/lfs/objects/batch", lfs_batch, writes=True),
    Route(
        "PUT",
        rf"/lfs/{_REPO}/(?P<oid>[0-9a-f]{{64}})/(?P<size>\d{{1,15}})/(?P<ticket>[0-9a-f]{{64}})",
        lfs_put,
        most=MOST_OBJECT,
    ),
)
