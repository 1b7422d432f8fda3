"""Where a files registry keeps its objects: a local directory or an fsspec URL. Bytes under names.

What the names and bytes mean is `registry_files`'. A write is whole or absent: locally by renaming,
behind fsspec by the one `put` of the storage.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kernelmill.errors import MissingExtraError, RegistryError
from kernelmill.package.unlocked import locked_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

__all__ = ["Folder", "Remote", "Shelf", "open_shelf"]

_T = TypeVar("_T")
_CHUNK: Final = 1 << 20
# Which distributions an fsspec scheme needs, for the hint.
_LISTED: Final = ("s3", "s3a", "gs", "gcs", "abfs", "az")
_NEEDS: Final = {
    "s3": "s3fs",
    "http": "aiohttp",
    "https": "aiohttp",
    "gs": "gcsfs",
    "abfs": "adlfs",
}


class Shelf(Protocol):
    """Objects under relative POSIX names. A name that is not there raises FileNotFoundError."""

    @property
    def url(self) -> str:
        """The address, without credentials."""

    def read(self, name: str, *, limit: int) -> bytes:
        """Return an object of at most `limit` bytes; RegistryError beyond."""

    def stream(self, name: str, offset: int) -> Iterator[bytes]:
        """Yield the bytes of an object from an offset on."""

    def exists(self, name: str) -> bool:
        """Return whether there is such an object."""

    def write(self, name: str, source: bytes | Path) -> None:
        """Make or replace an object, whole or not at all."""

    def names(self, name: str) -> list[str]:
        """Return what lies directly below a name, sorted; empty where nothing does."""

    def locked(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Hold off other writers below a name, as far as the storage can."""


class Folder:
    """A directory of this machine. Several processes may read and write it."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 - links stay links
        self.url = self.root.as_uri()

    def read(self, name: str, *, limit: int) -> bytes:
        """See `Shelf`."""
        with (self.root / name).open("rb") as stream:
            return _limited(stream.read(limit + 1), limit, f"{self.root / name}")

    def stream(self, name: str, offset: int) -> Iterator[bytes]:
        """See `Shelf`."""
        with (self.root / name).open("rb") as stream:
            stream.seek(offset)
            while chunk := stream.read(_CHUNK):
                yield chunk

    def exists(self, name: str) -> bool:
        """See `Shelf`."""
        return (self.root / name).is_file()

    def write(self, name: str, source: bytes | Path) -> None:
        """See `Shelf`."""
        place = self.root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as out:
                _copy(source, out)
                out.flush()
                os.fsync(out.fileno())
            os.chmod(temporary, 0o644)  # noqa: PTH101
            os.replace(temporary, place)  # noqa: PTH105
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)  # noqa: PTH108
            raise

    def names(self, name: str) -> list[str]:
        """See `Shelf`."""
        place = self.root / name
        if not place.is_dir():
            return []
        return sorted(e.name for e in place.iterdir() if not e.name.startswith("."))

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """See `Shelf`."""
        of_two = "of two pushes at the same moment the later one wins"
        with locked_file(self.root / name / ".lock", of_two):
            yield


class Remote:
    """An address that fsspec knows. Nothing holds off a second writer; the last one wins."""

    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        # Any: the keyword arguments of fsspec's file systems, such as endpoint_url or key.
        scheme = url.partition("://")[0]
        fsspec = _fsspec(scheme)
        try:
            # What others write must be seen: a listing that fsspec remembers would hide it.
            fresh = {"use_listings_cache": False} if scheme in _LISTED else {}
            self._fs, self._root = fsspec.core.url_to_fs(url, **fresh, **(options or {}))
        except ImportError as error:
            raise _missing(scheme) from error
        self.url = url

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}" if name else self._root

    def _said(self, error: Exception, name: str) -> Exception:
        """Return an error of a storage as ours; that nothing is there stays what it is."""
        status = getattr(error, "status", None)
        if isinstance(error, FileNotFoundError) or status == 404:  # noqa: PLR2004
            return FileNotFoundError(f"{self.url}/{name}")
        return RegistryError(f"{self.url}: {name}: {type(error).__name__}: {error}")

    def _do(self, name: str, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except RegistryError:
            raise
        except Exception as error:
            raise self._said(error, name) from error

    def read(self, name: str, *, limit: int) -> bytes:
        """See `Shelf`."""
        return self._do(name, lambda: self._read(self._path(name), limit))

    def _read(self, path: str, limit: int) -> bytes:
        """Return an object that is not larger than it may be, without holding more than that."""
        if not self.url.startswith(("http://", "https://")):
            size = self._fs.size(path)
            if size is not None and size > limit:
                raise _too_large(path, limit)
            body: bytes = self._fs.cat_file(path)
            return _limited(body, limit, path)
        made = bytearray()  # a web server may send more than it says, compressed
        with self._fs.open(path, "rb", block_size=0) as stream:
            while chunk := stream.read(_CHUNK):
                made += chunk
                if len(made) > limit:
                    raise _too_large(path, limit)
        return bytes(made)

    def stream(self, name: str, offset: int) -> Iterator[bytes]:
        """See `Shelf`."""
        with self._do(name, lambda: self._fs.open(self._path(name), "rb")) as stream:
            if offset:
                self._do(name, lambda: stream.seek(offset))
            while chunk := self._do(name, lambda: stream.read(_CHUNK)):
                yield chunk

    def exists(self, name: str) -> bool:
        """See `Shelf`."""
        return bool(self._do(name, lambda: self._fs.exists(self._path(name))))

    def write(self, name: str, source: bytes | Path) -> None:
        """See `Shelf`."""
        path = self._path(name)
        if isinstance(source, bytes):
            self._do(name, lambda: self._fs.pipe_file(path, source))
        else:
            self._do(name, lambda: self._fs.put_file(str(source), path))

    def names(self, name: str) -> list[str]:
        """See `Shelf`."""
        try:
            found = self._do(name, lambda: self._fs.ls(self._path(name), detail=False))
        except FileNotFoundError:
            return []
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:  # noqa: ARG002 - no such storage has locks
        """See `Shelf`."""
        yield


def open_shelf(url: str, options: dict[str, Any] | None = None) -> Shelf:
    """Return the shelf of a path or URL.

    Parameters
    ----------
    url
        A path, `file://`, or what fsspec knows: `memory://`, `s3://`, `http://` (to read only).
    options
        What fsspec's file system takes, such as `endpoint_url`.

    Raises
    ------
    MissingExtraError
        The distribution that serves this scheme is not installed.

    Examples
    --------
    >>> from kernelmill.package.shelf import open_shelf
    >>> shelf = open_shelf("memory://examples")
    >>> shelf.write("a/b", b"bytes")
    >>> shelf.read("a/b", limit=100), shelf.names("a")
    (b'bytes', ['b'])
    """
    scheme, colon, rest = url.partition("://")
    if not colon:
        return Folder(url)
    if scheme == "file":
        from urllib.parse import unquote  # noqa: PLC0415 - for one scheme

        return Folder(unquote(rest.removeprefix("localhost")))
    return Remote(url, options)


def _fsspec(scheme: str) -> Any:  # Any: fsspec has no types
    try:
        importlib.import_module("fsspec.core")
        return importlib.import_module("fsspec")
    except ImportError as error:
        raise _missing(scheme) from error


def _missing(scheme: str) -> MissingExtraError:
    package = _NEEDS.get(scheme, "fsspec")
    return MissingExtraError(
        f"registries at {scheme}:// need the distribution {package}, which is not installed",
        hint=f"pip install 'kernelmill[hub]' {package}",
    )


def _limited(body: bytes, limit: int, place: str) -> bytes:
    if len(body) > limit:
        raise _too_large(place, limit)
    return body


def _too_large(place: str, limit: int) -> RegistryError:
    return RegistryError(f"{place} has more than the {limit:,} bytes that are accepted")


def _copy(source: bytes | Path, out: BinaryIO) -> None:
    if isinstance(source, bytes):
        out.write(source)
        return
    with source.open("rb") as stream:
        shutil.copyfileobj(stream, out, _CHUNK)
