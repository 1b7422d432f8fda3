"""A registry that `huggingface_hub` and `kernels` use through HF_ENDPOINT: sockets and access.

What each request means is `serve_routes`'. Requests outside the protocol that those clients speak
are refused and noted, so that a test sees a client that does something new.
"""

from __future__ import annotations

import hmac
import logging
import re
import socket
import threading
from collections import deque
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote, urlsplit

from kernelmill.errors import ArgumentError, KernelmillError, PackageError
from kernelmill.package.serve_answers import Answer, Problem, Request, Service, whole_number
from kernelmill.package.serve_routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from kernelmill.package.registry_files import FilesRegistry

__all__ = ["Access", "Server", "User", "read_tokens"]

KEPT: Final = 10_000
IDLE_SECONDS: Final = 120
_HOST: Final = re.compile(r"[A-Za-z0-9.-]+(:\d{1,5})?|\[[0-9a-f:]+\](:\d{1,5})?", re.ASCII)
_logger: Final = logging.getLogger("kernelmill")


@dataclass(frozen=True, slots=True)
class User:
    """Who a token belongs to, and whether it may write."""

    name: str
    token: str
    writes: bool


@dataclass(frozen=True, slots=True)
class Access:
    """Who may do what.

    Parameters
    ----------
    users
        Tokens. Private repositories are shown to them alone.
    open_writes
        Whether anybody who reaches the server may write; for a loopback address.
    trusted
        Organizations for which it vouches (`trustedKernelPublisher`).
    """

    users: tuple[User, ...] = ()
    open_writes: bool = False
    trusted: frozenset[str] = frozenset()

    def user(self, header: str) -> User | None:
        """Return whose token an Authorization header has; tokens are compared in constant time."""
        token = header.removeprefix("Bearer ").strip().encode()
        fitting = [u for u in self.users if hmac.compare_digest(u.token.encode(), token)]
        return fitting[0] if fitting else None


def read_tokens(path: Path) -> tuple[User, ...]:
    """Read a file of tokens: `name read|write token`, one a line; `#` begins a comment.

    Raises
    ------
    PackageError
        A line is not of that form, or others can read the file.
    """
    if path.stat().st_mode & 0o077:
        raise PackageError(
            f"{path} holds tokens and can be read by others", hint=f"chmod 600 {path}"
        )
    users = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or words[1] not in {"read", "write"}:  # noqa: PLR2004 - the three words
            raise PackageError(f"{path}, line {number}: accepted: NAME read|write TOKEN")
        users.append(User(words[0], words[2], words[1] == "write"))
    return tuple(users)


@dataclass(slots=True)
class Log:
    """What came in: the last requests, and of those that were refused as unknown."""

    requests: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))
    refused: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))


class Server:
    """A registry on a socket.

    Parameters
    ----------
    registry
        What it offers.
    access
        Who may do what.
    host, port
        Where it listens; port 0 is any free one.

    Raises
    ------
    ArgumentError
        Nothing can listen there.

    Examples
    --------
    >>> from kernelmill.package.registry_files import FilesRegistry
    >>> from kernelmill.package.serve import Server
    >>> from kernelmill.package.shelf import open_shelf
    >>> with Server(FilesRegistry(open_shelf("memory://served"))) as server:
    ...     server.endpoint.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self,
        registry: FilesRegistry,
        access: Access | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        handler: type[Handler] | None = None,
    ) -> None:
        self.log = Log()
        self.access = access or Access()
        self._http = _listening(host, port, handler or Handler)
        self._http.owner = self
        bound = self._http.server_address[1]
        self.endpoint = f"http://[{host}]:{bound}" if ":" in host else f"http://{host}:{bound}"
        self.service = Service(registry, self.access.trusted)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve until interrupted."""
        self._http.serve_forever(poll_interval=0.1)

    def __enter__(self) -> Self:
        """Serve in another thread."""
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self._http.shutdown()
        if self._thread is not None:
            self._thread.join()
        self._http.server_close()


class _Sockets(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    owner: Server


class _Sockets6(_Sockets):
    address_family = socket.AF_INET6


def _listening(host: str, port: int, handler: type[Handler]) -> _Sockets:
    kind = _Sockets6 if ":" in host else _Sockets
    try:
        return kind((host, port), handler)
    except OSError as error:
        raise ArgumentError(
            f"nothing can listen on {host} port {port}: {(error.strerror or str(error)).lower()}",
            hint="--port 0 takes any free port, --host an address of this machine",
        ) from None


class Handler(BaseHTTPRequestHandler):
    """One connection. Tests override `answer` to send what a broken registry would."""

    protocol_version = "HTTP/1.1"
    server_version = "kernelmill"
    timeout = IDLE_SECONDS
    server: _Sockets

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Send the library's own lines to our logger."""
        _logger.debug("serve: %s", format % args)

    def do_GET(self) -> None:
        """Answer."""
        self._serve()

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self._serve()

    def do_POST(self) -> None:
        """Answer."""
        self._serve()

    def do_PUT(self) -> None:
        """Answer."""
        self._serve()

    def _serve(self) -> None:
        owner = self.server.owner
        owner.log.requests.append(f"{self.command} {self.path}")
        try:
            answer = self._respond()
        except Problem as problem:
            answer = problem.answer()
        except KernelmillError as error:
            answer = Problem(HTTPStatus.BAD_REQUEST, error.message).answer()
        except OSError as error:  # a full disk
            text = error.strerror or str(error)
            answer = Problem(HTTPStatus.INSUFFICIENT_STORAGE, text).answer()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            self.close_connection = True  # an unread body must not be taken for the next request
        self.answer(answer)

    def _respond(self) -> Answer:
        url = urlsplit(self.path)
        method = "GET" if self.command == "HEAD" else self.command
        for route in ROUTES:
            match = re.fullmatch(route.path, url.path, re.ASCII) if route.method == method else None
            if match is not None:
                groups = {k: unquote(v or "") for k, v in match.groupdict().items()}
                query = {k: v[-1] for k, v in parse_qs(url.query).items()}
                self._check_query(route.query, query)
                request = self._request(groups, query, route.most)
                self._check_access(request, writes=route.writes)
                return route.answer(self.server.owner.service, request)
        raise self._refusal("this registry has no such request")

    def _refusal(self, text: str) -> Problem:
        self.server.owner.log.refused.append(f"{self.command} {self.path}")
        return Problem(HTTPStatus.NOT_FOUND, f"{text}: {self.command} {self.path}")

    def _check_query(self, known: Iterable[str], query: dict[str, str]) -> None:
        strange = sorted(set(query) - set(known))
        if strange:
            raise self._refusal(f"unknown in the query: {', '.join(strange)}")

    def _request(self, groups: dict[str, str], query: dict[str, str], most: int) -> Request:
        text = self.headers.get("Content-Length", "0")
        length = whole_number(text)
        if not 0 <= length <= most or self.headers.get("Transfer-Encoding"):
            raise Problem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a body of {text[:80]} bytes; accepted: up to {most:,}, with Content-Length",
            )
        return Request(
            groups=groups,
            query=query,
            headers={name.lower(): value for name, value in self.headers.items()},
            length=length,
            stream=self.rfile,
            endpoint=self._endpoint(),
        )

    def _endpoint(self) -> str:
        """Return the address by which the client knows this server, perhaps behind another one."""
        host = self.headers.get("Host", "")
        if not _HOST.fullmatch(host):
            return self.server.owner.endpoint
        scheme = self.headers.get("X-Forwarded-Proto", "http")
        return f"{scheme if scheme in {'http', 'https'} else 'http'}://{host}"

    def _check_access(self, request: Request, *, writes: bool) -> None:
        access = self.server.owner.access
        header = request.headers.get("authorization", "")
        user = access.user(header)
        request.user = user.name if user else None
        if writes and not (access.open_writes or (user is not None and user.writes)):
            status = HTTPStatus.FORBIDDEN if user else HTTPStatus.UNAUTHORIZED
            raise Problem(status, "writing here needs a token that may write")
        repo_id = request.groups.get("repo")
        if repo_id and not access.open_writes and user is None:
            self.server.owner.service.check_public(repo_id)

    # ----------------------------------------------------------------------------- sending

    def answer(self, answer: Answer) -> None:
        """Send an answer."""
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(answer.length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            left = answer.length
            for chunk in answer.chunks():
                self.wfile.write(chunk)
                left -= len(chunk)
            # What is shorter than was promised breaks off: the client would wait for the rest.
            self.close_connection = self.close_connection or left > 0
