"""The requests of the Hub's protocol that change something: one function each. No sockets here."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import RegistryError
from kernelmill.package.digest import safe_path
from kernelmill.package.registry import File
from kernelmill.package.registry_files import pointer_id
from kernelmill.package.serve_answers import Answer, Problem, json_answer
from kernelmill.package.wanted import check_repo_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.package.serve_answers import Request, Service

__all__ = [
    "MOST_COMMIT",
    "branch",
    "commit",
    "create",
    "lfs_batch",
    "lfs_put",
    "preupload",
    "tag",
]

MOST_COMMIT: Final = 512 << 20  # held in memory
_CHUNK: Final = 1 << 20


def create(service: Service, request: Request) -> Answer:
    """Make a repository; 409 where it is there."""
    asked = request.json()
    if asked.get("type") != "kernel":
        raise Problem(HTTPStatus.BAD_REQUEST, "only repositories of the type kernel are kept here")
    organization_name = asked.get("organization") or request.user or "local"
    repo_id = check_repo_id(f"{organization_name}/{asked.get('name')}")
    url = f"{request.endpoint}/kernels/{repo_id}"
    there = {"url": url, "name": repo_id, "id": repo_id}
    if service.exists(repo_id):
        return json_answer({**there, "error": "You already created this repo"}, HTTPStatus.CONFLICT)
    private = asked.get("visibility") == "private" or bool(asked.get("private"))
    service.registry.create(repo_id, private=private)
    return json_answer(there)


def branch(service: Service, request: Request) -> Answer:
    """Make a branch, at `startingPoint` or where `main` stands."""
    repo_id, name = request.groups["repo"], request.groups["branch"]
    start = request.json().get("startingPoint") or "main"
    if service.refs(repo_id).branch(name) is not None:
        raise Problem(HTTPStatus.CONFLICT, f"Reference already exists: refs/heads/{name}")
    service.registry.move(repo_id, name, service.registry.commit(repo_id, str(start)))
    return json_answer({})


def tag(service: Service, request: Request) -> Answer:
    """Make a tag; one that is there stays where it is."""
    repo_id, commit = service.revision(request)
    name = str(request.json().get("tag"))
    if any(ref.name == name for ref in service.refs(repo_id).tags):
        raise Problem(HTTPStatus.CONFLICT, f"Tag reference exists already: {name}")
    service.registry.move(repo_id, name, commit, tag=True)
    return json_answer({})


def preupload(service: Service, request: Request) -> Answer:
    """Say of each file whether its content goes with the commit or is uploaded before."""
    repo_id, commit = service.revision(request)
    there = {file.path: file for file in service.files(repo_id, commit)}
    rows = []
    for path, size in _asked_rows(request, "files", "path"):
        safe_path(path)
        mode = "lfs" if size >= service.registry.large else "regular"
        row = {"path": path, "uploadMode": mode, "shouldIgnore": False}
        if path in there:
            row["oid"] = there[path].key
        rows.append(row)
    return json_answer({"files": rows})


def lfs_batch(service: Service, request: Request) -> Answer:
    """Say of each large object where it goes; nothing for those that are kept already."""
    repo_id = request.groups["repo"]
    service.refs(repo_id)
    rows = []
    for oid, size in _asked_rows(request, "objects", "oid"):
        File("x", size, "0" * 40, oid)  # refuses what is no sha256
        row: dict[str, Any] = {"oid": oid, "size": size}
        if not service.registry.shelf.exists(f"{check_repo_id(repo_id)}/blobs/{oid}"):
            ticket = service.ticket(repo_id, oid, size)
            href = f"{request.endpoint}/lfs/{repo_id}/{oid}/{size}/{ticket}"
            row["actions"] = {"upload": {"href": href, "header": {}}}
        rows.append(row)
    return json_answer({"transfer": "basic", "objects": rows})


def _asked_rows(request: Request, key: str, name: str) -> list[tuple[str, int]]:
    """Return what names each file of a request, and its size."""
    try:
        return [(str(row[name]), int(row["size"])) for row in request.json().get(key, [])]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        text = f"`{key}` cannot be used; accepted: a list of objects with {name} and size: {error}"
        raise Problem(HTTPStatus.BAD_REQUEST, text) from error


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
    return json_answer({"success": True, "commitOid": made.id, "commitUrl": url, "hookOutput": ""})


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
        except (KeyError, TypeError, ValueError, OverflowError) as error:
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
