"""The `Bundle`, a compiled thing with all that is needed to load it, and its form on disk.

One directory is one bundle: `manifest`, the generated source, and each image in a file of its own,
so that it can be loaded from where it lies. The reader here is the only one; it takes every byte
for hostile: lengths are bounded before anything is read, every file is compared with its sha256
before it is used, and file names come from the format, never from the manifest. Where bundles are
kept, and who may write there, is not decided here.

::

    kernelmill-bundle 1 <sha256 of all that follows this line>
    {"entries": [{"attributes": {...}, "name": ...}, ...],
     "images": [{"sha256": ..., "size": ..., "suffix": ..., "target": ...}, ...],
     "key": ..., "signature": ..., "source": {"sha256": ..., "size": ..., "suffix": ...}}
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from kernelmill.errors import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Attribute", "Bundle", "EntryPoint", "Image", "is_key", "read_bundle", "write_bundle"]

Attribute: TypeAlias = bool | int | float | str

FORMAT: Final = 1
MANIFEST: Final = "manifest"
MAX_MANIFEST: Final = 4 << 20
MAX_IMAGE: Final = 1 << 30
MAX_SOURCE: Final = 64 << 20
MAX_IMAGES: Final = 256
MAX_ENTRIES: Final = 4096
MAX_ATTRIBUTES: Final = 64
MAX_NAME: Final = 1024
MAX_TEXT: Final = 1 << 16
MAX_SIGNATURE: Final = 1 << 20

_MAGIC: Final = b"kernelmill-bundle "
_HEADER: Final = re.compile(rb"kernelmill-bundle (\d{1,9}) ([0-9a-f]{64})\n")
_HEADER_BYTES: Final = len(_MAGIC) + 9 + 1 + 64 + 1
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_SUFFIX: Final = re.compile(r"[a-z0-9]{1,16}")
_TARGET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,63}")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_SHOWN: Final = 60
_INT64: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Image:
    """One binary for one target.

    Parameters
    ----------
    target
        What it runs on: "cpu", "x86-64-v3", "sm_90".
    suffix
        What it is: "so", "cubin", "ptx", "ltoir".
    data
        Its bytes, at most 1 GiB.
    path
        The file that holds exactly `data`; set by the reader and by the cache.
    """

    target: str
    suffix: str
    data: bytes = field(repr=False)
    path: Path | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """One symbol of the images, and what a launcher must know of it (threads, shared bytes ...)."""

    name: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Images for one or more targets, the table of their entry points, and what they were made of.

    Parameters
    ----------
    images
        One for each target.
    entries
        The table of entry points, the same in each image.
    signature
        The types that the entry points take, as their caller writes them.
    source
        The generated text, without the first line that carries `key` in the file.
    source_suffix
        "cpp", "cu", "ptx".
    key
        `digest(...)` of everything that made it; the cache fills it in.
    digest
        sha256 of the manifest, which holds the sha256 of every file: what it is, where `key` says
        what it was made of. Set by the reader and the writer.
    """

    images: tuple[Image, ...]
    entries: tuple[EntryPoint, ...] = ()
    signature: str = ""
    source: str = field(default="", repr=False)
    source_suffix: str = "cpp"
    key: str = ""
    digest: str = field(default="", compare=False)

    def image(self, target: str) -> Image:
        """Return the image for `target`.

        Raises
        ------
        ArgumentError
            There is none; the text lists the targets that there are.
        """
        for image in self.images:
            if image.target == target:
                return image
        targets = ", ".join(image.target for image in self.images)
        raise ArgumentError(f"there is no image for target {target!r}; targets: {targets}")


def is_key(text: str) -> bool:
    """Return whether `text` can be the key of a bundle: 64 lower-case hexadecimal digits."""
    return _KEY.fullmatch(text) is not None


# ------------------------------------------------------------------------------- the format
# A checker takes a value and where it stands, and returns it or raises; the format is a table of
# checkers, and writer and reader run the same one: what is written can be read.

_Checker: TypeAlias = Callable[[Any, str], Any]  # Any: the value may be whatever JSON can hold


def _refuse(where: str, found: object, accepted: str) -> NoReturn:
    raise ArgumentError(f"a bundle cannot hold {where} {_shown(found)}; accepted: {accepted}")


def _shown(found: object) -> str:
    """Return a short text; a list is not written out, since a hostile one may be nested deeply."""
    match found:
        case str() if len(found) > _SHOWN:
            return f"{found[:_SHOWN]!r}... of {len(found)} characters"
        case None | bool() | str() | float():
            return repr(found)
        case int():
            return str(found) if abs(found) < 1 << 128 else f"int of {found.bit_length()} bits"
        case list():
            return f"list of {len(found)}"
        case dict():
            return f"object of {len(found)}"
        case _:
            return f"{type(found).__name__}"


def _text(limit: int) -> _Checker:
    def check(value: object, where: str) -> str:
        # Half of a surrogate pair would come back from JSON joined to its neighbour.
        if type(value) is not str or len(value) > limit or _SURROGATE.search(value):
            _refuse(where, value, f"text of at most {limit} characters, no surrogates")
        return value

    return check


def _match(pattern: re.Pattern[str]) -> _Checker:
    def check(value: object, where: str) -> str:
        if type(value) is not str or not pattern.fullmatch(value):
            _refuse(where, value, f"text that matches {pattern.pattern}")
        return value

    return check


def _size(limit: int) -> _Checker:
    def check(value: object, where: str) -> int:
        if type(value) is not int or not 0 <= value <= limit:
            _refuse(where, value, f"a size of at most {limit} bytes")
        return value

    return check


def _list(item: _Checker, limit: int) -> _Checker:
    def check(value: object, where: str) -> list[Any]:
        if type(value) is not list or len(value) > limit:
            _refuse(where, value, f"a list of at most {limit}")
        return [item(member, f"{where}[{i}]") for i, member in enumerate(value)]

    return check


def _record(members: dict[str, _Checker]) -> _Checker:
    def check(value: object, where: str) -> dict[str, Any]:
        if type(value) is not dict or value.keys() != members.keys():
            _refuse(where, value, f"an object of {', '.join(members)}")
        return {name: member(value[name], f"{where}.{name}") for name, member in members.items()}

    return check


def _attributes(value: object, where: str) -> dict[str, Attribute]:
    if type(value) is not dict or len(value) > MAX_ATTRIBUTES:
        _refuse(where, value, f"an object of at most {MAX_ATTRIBUTES} attributes")
    return {
        _text(MAX_NAME)(name, f"{where} name"): _attribute(item, f"{where}[{name!r}]")
        for name, item in value.items()
    }


def _attribute(value: object, where: str) -> Attribute:
    match value:
        case bool():
            return value
        case int() if -_INT64 <= value < _INT64:
            return value
        case float() if math.isfinite(value):
            return value
        case str():
            _text(MAX_TEXT)(value, where)
            return value
    _refuse(where, value, "bool, 64-bit int, finite float, text")


_SHA256: Final = _match(_KEY)
_CHECK_MANIFEST: Final = _record(
    {
        "entries": _list(
            _record({"attributes": _attributes, "name": _text(MAX_NAME)}), MAX_ENTRIES
        ),
        "images": _list(
            _record(
                {
                    "sha256": _SHA256,
                    "size": _size(MAX_IMAGE),
                    "suffix": _match(_SUFFIX),
                    "target": _match(_TARGET),
                }
            ),
            MAX_IMAGES,
        ),
        "key": _match(_KEY),
        "signature": _text(MAX_SIGNATURE),
        "source": _record(
            {"sha256": _SHA256, "size": _size(MAX_SOURCE), "suffix": _match(_SUFFIX)}
        ),
    }
)


def _image_name(index: int, suffix: str) -> str:
    return f"image-{index}.{suffix}"


def _source_name(suffix: str) -> str:
    return f"source.{suffix}"


def _source_header(key: str) -> bytes:
    return f"// kernelmill {key}\n".encode()


# ------------------------------------------------------------------------------- the writer


def write_bundle(directory: Path, bundle: Bundle) -> Bundle:
    """Make `directory` and write the bundle into it; every file is on the disk when this returns.

    Returns
    -------
    Bundle
        The same, with its `digest` and the `path` of each image.

    Raises
    ------
    ArgumentError
        A member of the bundle is beyond the limits of the format.
    OSError
        The directory exists, or cannot be written. What was written so far is left behind.
    """
    source = _source_header(bundle.key) + bundle.source.encode("utf-8", "surrogatepass")
    manifest, digest = _manifest(bundle, source)
    os.mkdir(directory, 0o700)  # noqa: PTH102 - the system call, as in all of this file
    images = []
    for i, image in enumerate(bundle.images):
        path = directory / _image_name(i, image.suffix)
        _write_file(path, image.data)
        images.append(replace(image, path=path))
    _write_file(directory / _source_name(bundle.source_suffix), source)
    _write_file(directory / MANIFEST, manifest)
    sync_directory(directory)
    return replace(bundle, images=tuple(images), digest=digest)


def _manifest(bundle: Bundle, source: bytes) -> tuple[bytes, str]:
    body = {
        "entries": [
            {"attributes": dict(entry.attributes), "name": entry.name} for entry in bundle.entries
        ],
        "images": [
            {
                "sha256": hashlib.sha256(image.data).hexdigest(),
                "size": len(image.data),
                "suffix": image.suffix,
                "target": image.target,
            }
            for image in bundle.images
        ],
        "key": bundle.key,
        "signature": bundle.signature,
        "source": {
            "sha256": hashlib.sha256(source).hexdigest(),
            "size": len(source),
            "suffix": bundle.source_suffix,
        },
    }
    text = json.dumps(_CHECK_MANIFEST(body, "manifest"), indent=1, sort_keys=True).encode() + b"\n"
    if len(text) > MAX_MANIFEST:
        _refuse("a manifest of bytes", len(text), f"at most {MAX_MANIFEST}")
    digest = hashlib.sha256(text).hexdigest()
    return b"%b%d %b\n%b" % (_MAGIC, FORMAT, digest.encode(), text), digest


def _write_file(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` last through a loss of power."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# ------------------------------------------------------------------------------- the reader


def read_bundle(directory: Path, *, key: str | None = None) -> Bundle:
    """Read and verify the bundle in `directory`.

    Parameters
    ----------
    directory
        As `write_bundle` made it.
    key
        What the bundle must have been made of; None takes any.

    Raises
    ------
    FileNotFoundError
        There is no such directory.
    ArgumentError
        What is there is not a whole and unchanged bundle; nothing of it was used.
    OSError
        The system refuses to read it.
    """
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        body, digest = _read_manifest(folder)
        if key is not None and body["key"] != key:
            raise ArgumentError(f"the bundle was made for key {body['key']}, not for {key}")
        names = [_image_name(i, row["suffix"]) for i, row in enumerate(body["images"])]
        rows = zip(names, body["images"], strict=True)
        blobs = [_read_verified(folder, name, row) for name, row in rows]
        source_name = _source_name(body["source"]["suffix"])
        source = _read_verified(folder, source_name, body["source"])
    finally:
        os.close(folder)
    return Bundle(
        images=tuple(
            Image(row["target"], row["suffix"], data, directory / name)
            for row, name, data in zip(body["images"], names, blobs, strict=True)
        ),
        entries=tuple(EntryPoint(row["name"], row["attributes"]) for row in body["entries"]),
        signature=body["signature"],
        source=_source_text(source, body["key"]),
        source_suffix=body["source"]["suffix"],
        key=body["key"],
        digest=digest,
    )


def _read_manifest(folder: int) -> tuple[dict[str, Any], str]:
    """Return the checked body; Any: the checkers have seen to the types."""
    raw = _read_file(folder, MANIFEST, MAX_MANIFEST + _HEADER_BYTES)
    header = _HEADER.match(raw)
    if header is None:
        raise ArgumentError("the manifest does not begin as that of a kernelmill bundle")
    if int(header[1]) != FORMAT:
        raise ArgumentError(f"the bundle is of format {int(header[1])}; this reader knows {FORMAT}")
    text = raw[header.end() :]
    digest = hashlib.sha256(text).hexdigest()
    if digest.encode() != header[2]:
        raise ArgumentError("the manifest does not have the sha256 in its first line")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: no JSON, no UTF-8, huge integers
        raise ArgumentError(f"the manifest is not JSON: {error}") from None
    checked: dict[str, Any] = _CHECK_MANIFEST(body, "manifest")
    return checked, digest


def _read_verified(folder: int, name: str, row: dict[str, Any]) -> bytes:
    data = _read_file(folder, name, row["size"])
    if len(data) != row["size"]:
        raise ArgumentError(f"{name} has {len(data)} bytes; the manifest says {row['size']}")
    if hashlib.sha256(data).hexdigest() != row["sha256"]:
        raise ArgumentError(f"{name} does not have the sha256 in the manifest")
    return data


def _read_file(folder: int, name: str, limit: int) -> bytes:
    """Read a whole regular file of at most `limit` bytes; nothing is read of a longer one."""
    # Without O_NONBLOCK, opening a pipe that was put in the file's place would wait for ever.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno not in _NOT_A_FILE:
            raise
        raise ArgumentError(f"{name} cannot be opened: {error.strerror}") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ArgumentError(f"{name} is not a regular file")
        if status.st_size > limit:
            raise ArgumentError(f"{name} has {status.st_size} bytes; the limit is {limit}")
        return _read_all(fd, status.st_size)
    finally:
        os.close(fd)


_NOT_A_FILE: Final = frozenset({errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.ENOTDIR})


def _read_all(fd: int, size: int) -> bytes:
    data = os.read(fd, size)
    parts = [data]
    missing = size - len(data)
    while data and missing:  # one read moves at most 2 GiB, and less on some network disks
        data = os.read(fd, missing)
        parts.append(data)
        missing -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _source_text(data: bytes, key: str) -> str:
    header = _source_header(key)
    if not data.startswith(header):
        raise ArgumentError("the source does not begin with the bundle's key")
    try:
        return data[len(header) :].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"the source is not UTF-8: {error}") from None
