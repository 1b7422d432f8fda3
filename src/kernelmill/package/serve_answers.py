"""What a request to `serve` is, and what answers it: the records, and the registry behind them.

The requests themselves are `serve_routes`' and `serve_writes`'; sockets are `serve`'s.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import secrets
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol

from kernelmill.errors import PackageError, RegistryError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kernelmill.package.registry import Refs
    from kernelmill.package.registry_files import FilesRegistry

__all__ = [
    "MOST_DIGITS",
    "Answer",
    "Problem",
    "Readable",
    "Request",
    "Service",
    "json_answer",
    "whole_number",
]

KEPT: Final = 256
MOST_DIGITS: Final = 18
_MOST_JSON: Final = 64 << 20
_COMMIT: Final = re.compile(r"[0-9a-f]{40}", re.ASCII)
JSON: Final = {"Content-Type": "application/json"}


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
        headers = {**JSON, "X-Error-Message": self.text.encode("ascii", "replace").decode()[:400]}
        headers["X-Error-Message"] = headers["X-Error-Message"].replace("\n", " ")
        if self.code:
            headers["X-Error-Code"] = self.code
        body = json.dumps({"error": self.text}).encode()
        return Answer(self.status, headers, body, len(body))


def whole_number(text: str) -> int:
    """Return the number that a client wrote, -1 where it is none or has too many digits."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else -1


def json_answer(value: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """Return a value as the answer."""
    body = json.dumps(value).encode()
    return Answer(status, dict(JSON), body, len(body))


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
        if self.exists(repo_id) and self.registry.is_private(repo_id):
            raise self._absent(repo_id)

    def exists(self, repo_id: str) -> bool:
        """Return whether there is such a repository."""
        try:
            self.registry.is_private(repo_id)
        except PackageError:
            return False
        return True

    def _absent(self, repo_id: str) -> Problem:
        return Problem(HTTPStatus.NOT_FOUND, f"Repository not found: {repo_id}", "RepoNotFound")

    def refs(self, repo_id: str) -> Refs:
        """Return the references of a repository that is there."""
        if not self.exists(repo_id):
            raise self._absent(repo_id)
        return self.registry.refs(repo_id)

    def revision(self, request: Request) -> tuple[str, str]:
        """Return repository and commit of a request."""
        repo_id, revision = request.groups["repo"], request.groups["rev"]
        if not self.exists(repo_id):
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
