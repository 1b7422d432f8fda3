"""The package index that pip is set up to use: which wheels it has, their bytes. Unpacks nothing.

The address, the certificates and the credentials are the user's own (`PIP_INDEX_URL`, `pip.conf`);
nothing is run or imported of pip but `pip config list`, where the environment does not say it all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from functools import cache as once
from html.parser import HTMLParser
from http.client import HTTPException
from typing import IO, TYPE_CHECKING, Final, cast

from kernelmill.config import child_environment
from kernelmill.errors import IntegrityError, ToolchainError
from kernelmill.package.wheels import WheelFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from http.client import HTTPResponse
    from pathlib import Path

__all__ = ["PipIndex", "default_index", "download", "open_url", "redacted"]

_PYPI: Final = "https://pypi.org/simple"
_ACCEPT: Final = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_TIMEOUT: Final = 60.0
_PAGE_LIMIT: Final = 64 << 20
_CHUNK: Final = 1 << 20
_CERTIFICATES: Final = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_HINT: Final = "check the network and `pip config list`; what was fetched once is kept in the cache"


@dataclass(frozen=True, slots=True)
class PipIndex:
    """Addresses of indexes, in pip's order, and the file of certificates to trust, if any."""

    urls: tuple[str, ...]
    certificates: str | None = None

    def files(self, project: str) -> tuple[WheelFile, ...]:
        """Return the wheels of a project, from all indexes, the first one's first.

        Raises
        ------
        ToolchainError
            No index could be asked, or none knows the project.
        """
        failures = []
        found: list[WheelFile] = []
        for url in self.urls:
            try:
                found += _page(f"{url.rstrip('/')}/{project}/", self.certificates)
            except (OSError, ValueError, HTTPException) as error:
                failures.append(f"  {redacted(url)}: {_reason(error)}")
        if not found:
            tried = "\n".join(failures) or "  no index is set up"
            raise ToolchainError(f"no index has wheels of {project}:\n{tried}", hint=_HINT)
        return tuple(found)

    def find(self, project: str, name: str, sha256: str | None = None) -> WheelFile:
        """Return the wheel whose file name matches the pattern `name`, and the hash if given.

        Raises
        ------
        ToolchainError
            As `files`, or there is no such wheel.
        """
        pattern = re.compile(name)
        files = self.files(project)
        fits = [file for file in files if pattern.fullmatch(file.name)]
        same = [file for file in fits if sha256 in (None, file.sha256)]
        if same:
            return min(same, key=lambda file: file.name)
        found = ", ".join(f"{file.name} (sha256 {file.sha256})" for file in fits) or "none"
        wanted = f" with sha256 {sha256}" if sha256 else ""
        raise ToolchainError(
            f"the index has no wheel of {project} that matches {name}{wanted}; found: {found}",
            hint=_HINT,
        )


@once
def default_index() -> PipIndex:
    """Return the index that pip would use here; the index of the Python community by default."""
    environment = child_environment()
    certificates = next((environment[n] for n in _CERTIFICATES if environment.get(n)), None)
    settings: Mapping[str, str] = {
        "index-url": environment.get("PIP_INDEX_URL", ""),
        "extra-index-url": environment.get("PIP_EXTRA_INDEX_URL", ""),
    }
    if not settings["index-url"]:
        settings = _pip_settings()
    urls = [settings.get("index-url") or _PYPI, *settings.get("extra-index-url", "").split()]
    web = tuple(url for url in urls if url.startswith(("http://", "https://")))
    return PipIndex(web, certificates or settings.get("cert"))


def _pip_settings() -> dict[str, str]:
    """Read `pip config list`; the environment's values come after those of files, as for pip."""
    from kernelmill.toolchain.run import run  # noqa: PLC0415 - subprocess: only at a first fetch

    listed = run([sys.executable, "-m", "pip", "config", "list"], timeout=_TIMEOUT)
    found: dict[str, str] = {}
    for line in listed.output.splitlines() if listed.ok else ():
        match = re.fullmatch(r"[^=]*\.([a-z-]+)='(.*)'", line)
        if match:
            found[match[1]] = match[2].replace("\\n", " ")
    return found


# ------------------------------------------------------------------------------- requests


def redacted(url: str) -> str:
    """Return an address without user and password, as texts and logs show it."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def open_url(
    url: str, *, headers: Mapping[str, str] | None = None, certificates: str | None = None
) -> HTTPResponse:
    """Open an address; the environment's proxies are used.

    Raises
    ------
    OSError
        It cannot be opened; `urllib.error.HTTPError` is one.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise urllib.error.URLError(f"{redacted(url)} is not an address of the web")
    sent = {"Accept-Encoding": "identity", **(headers or {})}
    if parts.username:
        login = f"{parts.username}:{parts.password or ''}"
        sent["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
    bare = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    request = urllib.request.Request(bare, headers=sent)  # noqa: S310 - the scheme was checked
    context = ssl.create_default_context(cafile=certificates)
    opened = urllib.request.urlopen(request, timeout=_TIMEOUT, context=context)  # noqa: S310
    return cast("HTTPResponse", opened)


def download(file: WheelFile, path: Path, index: PipIndex) -> None:
    """Write a wheel to `path` and compare its sha256 with what the index promised.

    Raises
    ------
    ToolchainError
        It cannot be fetched.
    IntegrityError
        It is another file than the promised one.
    """
    seen = hashlib.sha256()
    with path.open("wb") as out:
        try:
            with open_url(file.url, certificates=index.certificates) as response:
                shutil.copyfileobj(response, cast("IO[bytes]", _Tee(out, seen.update)), _CHUNK)
        except (urllib.error.URLError, HTTPException, ConnectionError, TimeoutError) as error:
            raise ToolchainError(
                f"{file.name} cannot be fetched from {redacted(file.url)}: {_reason(error)}",
                hint=_HINT,
            ) from error
    if seen.hexdigest() != file.sha256:
        raise IntegrityError(
            f"{file.name} has sha256 {seen.hexdigest()}; the index promised {file.sha256}"
        )


@dataclass(frozen=True, slots=True)
class _Tee:
    out: IO[bytes]
    also: Callable[[bytes], object]

    def write(self, chunk: bytes) -> int:
        self.also(chunk)
        return self.out.write(chunk)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"status {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error)


# ------------------------------------------------------------------------------- pages


@once
def _page(url: str, certificates: str | None) -> tuple[WheelFile, ...]:
    """Read the page of a project, as JSON (PEP 691) or as HTML (PEP 503)."""
    with open_url(url, headers={"Accept": _ACCEPT}, certificates=certificates) as response:
        text = response.read(_PAGE_LIMIT + 1)
        base = response.geturl()
        as_json = "json" in response.headers.get_content_type()
    if len(text) > _PAGE_LIMIT:
        raise ValueError(f"its page has more than {_PAGE_LIMIT >> 20} MiB")
    if as_json:
        pairs = _rows(text)
    else:
        parser = _Links()
        parser.feed(text.decode("utf-8", "replace"))
        pairs = [(url, _fragment_hash(url)) for url in parser.found]
    links = ((urllib.parse.urljoin(base, link), sha256) for link, sha256 in pairs)
    files = (_wheel(_with_login(link, url), sha256) for link, sha256 in links)
    return tuple(file for file in files if file.name.endswith(".whl") and file.sha256)


def _rows(text: bytes) -> list[tuple[str, str]]:
    """Return address and sha256 of each file on a page of JSON."""
    try:
        rows = json.loads(text)["files"]
        return [(str(row["url"]), str(row["hashes"].get("sha256", ""))) for row in rows]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"its page is none of a project: {type(error).__name__} {error}") from None


def _with_login(link: str, index: str) -> str:
    """Give a link the index's user and password, where it leads to the index's own server."""
    parts, own = urllib.parse.urlsplit(link), urllib.parse.urlsplit(index)
    login, _, host = own.netloc.rpartition("@")
    if not login or (parts.scheme, parts.netloc) != (own.scheme, host):
        return link
    return urllib.parse.urlunsplit(parts._replace(netloc=own.netloc))


def _wheel(link: str, sha256: str) -> WheelFile:
    url = urllib.parse.urldefrag(link).url
    # The last part of what is unquoted: %2F must not make a path of a name.
    name = urllib.parse.unquote(urllib.parse.urlsplit(url).path).rpartition("/")[2]
    return WheelFile(name, url, sha256)


def _fragment_hash(url: str) -> str:
    match = re.search(r"#sha256=([0-9a-f]{64})", url)
    return match[1] if match else ""


class _Links(HTMLParser):
    """The addresses that an index page links to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for key, value in attrs if tag == "a" and key == "href" and value]
