"""Some members of a zip file on a web server, by range requests. Knows nothing of wheels or caches.

A wheel of torch has 530 MB, its headers 9 MB, in two contiguous runs: seven requests fetch them.
"""

from __future__ import annotations

import re
import struct
import urllib.error
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Final

from kernelmill.errors import IntegrityError
from kernelmill.package.digest import safe_path
from kernelmill.package.pip_index import open_url, redacted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["Member", "NoRangesError", "RangedZip"]

_TAIL: Final = 1 << 16
_GAP: Final = 1 << 18  # reading over what is not wanted is cheaper than another request
_PIECE: Final = 4 << 20
_THREADS: Final = 4
_END: Final = b"PK\5\6"
_END64: Final = b"PK\6\6"
_CENTRAL: Final = b"PK\1\2"
_CENTRAL_SIZE: Final = 46
_LOCAL_SIZE: Final = 30
_FULL16: Final = 0xFFFF
_FULL32: Final = 0xFFFFFFFF
_PARTIAL: Final = 206
_DEFLATED: Final = 8
_STORED: Final = 0
# More than any wheel of ours has; what a server says of itself is not believed beyond it.
_MOST_DIRECTORY: Final = 64 << 20
_MOST_UNPACKED: Final = 1 << 30


class NoRangesError(Exception):
    """The server does not serve parts of the file; the whole has to be fetched."""


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """One file in the zip: where it lies, until where the next one, and what it must be."""

    start: int
    name: str
    method: int
    crc: int
    packed: int
    size: int
    end: int


@dataclass(frozen=True, slots=True)
class RangedZip:
    """A zip file at an address."""

    url: str
    certificates: str | None = None

    def members(self) -> tuple[Member, ...]:
        """Read the central directory.

        Raises
        ------
        NoRangesError
            The server sends whole files only; nothing but its first answer was read.
        IntegrityError
            What it sends is no zip file.
        OSError
            It cannot be reached.
        """
        tail, total = self._get(f"-{_TAIL}")
        try:
            count, size, start = _end_record(tail, self.url)
            base = total - len(tail)
            if size > _MOST_DIRECTORY:
                raise IntegrityError(
                    f"{redacted(self.url)}: its directory has {size:,} bytes; the limit is "
                    f"{_MOST_DIRECTORY:,}"
                )
            if start >= base:
                directory = tail[start - base : start - base + size]
            else:
                directory, _ = self._get(f"{start}-{start + size - 1}")
            rows = sorted(_central(directory))
        except (struct.error, UnicodeDecodeError) as error:
            raise IntegrityError(f"{redacted(self.url)} has a damaged directory: {error}") from None
        if len(rows) != count:
            raise IntegrityError(f"{redacted(self.url)}: {len(rows)} of {count} entries are there")
        ends = [row[0] for row in rows[1:]] + [start]
        return tuple(Member(*row, end) for row, end in zip(rows, ends, strict=True))

    def extract(self, members: Iterable[Member], directory: Path) -> int:
        """Write members below `directory`, each compared with its checksum; return the bytes read.

        Raises
        ------
        NoRangesError, IntegrityError, OSError
            As `members`.
        """
        wanted = sorted(members)
        size = sum(max(member.size, member.end - member.start) for member in wanted)
        if size > _MOST_UNPACKED:
            raise IntegrityError(
                f"{redacted(self.url)}: what is wanted has {size:,} bytes; the limit is "
                f"{_MOST_UNPACKED:,}"
            )
        pieces = list(_pieces(wanted))
        with ThreadPoolExecutor(_THREADS) as pool:
            return sum(pool.map(lambda piece: self._extract_piece(piece, directory), pieces))

    def _extract_piece(self, piece: Sequence[Member], directory: Path) -> int:
        start, end = piece[0].start, piece[-1].end
        data, _ = self._get(f"{start}-{end - 1}")
        for member in piece:
            path = directory / safe_path(member.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_unpack(member, memoryview(data)[member.start - start :]))
        return len(data)

    def _get(self, wanted: str) -> tuple[bytes, int]:
        """Return the bytes of a range, and the size of the whole file."""
        headers = {"Range": f"bytes={wanted}"}
        try:
            response = open_url(self.url, headers=headers, certificates=self.certificates)
        except urllib.error.HTTPError as error:
            raise NoRangesError(f"status {error.code}") from error
        with response:
            # A server without ranges answers 200 and the whole file: its body is never read.
            if response.status != _PARTIAL:
                raise NoRangesError(f"status {response.status}")
            range_ = response.headers.get("Content-Range", "")
            match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", range_)
            if match is None:
                raise NoRangesError(f"Content-Range {range_!r}")
            first, last, total = map(int, match.groups())
            asked = (total - _TAIL, total - 1) if wanted[0] == "-" else _bounds(wanted)
            if (max(0, asked[0]), asked[1]) != (first, last):
                raise NoRangesError(f"{range_!r} for {wanted}")
            try:
                data = response.read(last - first + 2)  # one more: no server sends it unnoticed
            except HTTPException as error:  # broken off
                raise IntegrityError(f"{redacted(self.url)}: {error!r} for {range_}") from None
        if len(data) != last - first + 1:
            raise IntegrityError(f"{redacted(self.url)}: {len(data)} bytes for {range_}")
        return data, total


def _bounds(wanted: str) -> tuple[int, int]:
    first, _, last = wanted.partition("-")
    return int(first), int(last)


def _end_record(tail: bytes, url: str) -> tuple[int, int, int]:
    """Return how many entries the directory has, its size and where it starts."""
    at = tail.rfind(_END)
    if at < 0:
        raise IntegrityError(f"{redacted(url)} is no zip file")
    count, size, start = struct.unpack_from("<HII", tail, at + 10)
    if count == _FULL16 or _FULL32 in (size, start):
        at = tail.rfind(_END64)
        if at < 0:
            raise IntegrityError(f"{redacted(url)} has no directory of a large zip file")
        count, size, start = struct.unpack_from("<QQQ", tail, at + 32)
    return count, size, start


def _central(directory: bytes) -> Iterator[tuple[int, str, int, int, int, int]]:
    at = 0
    while directory[at : at + 4] == _CENTRAL and at + _CENTRAL_SIZE <= len(directory):
        (method,) = struct.unpack_from("<H", directory, at + 10)
        crc, packed, size, names, extras, comments = struct.unpack_from(
            "<IIIHHH", directory, at + 16
        )
        (start,) = struct.unpack_from("<I", directory, at + 42)
        name_end = at + _CENTRAL_SIZE + names
        name = directory[at + _CENTRAL_SIZE : name_end].decode()
        extra = directory[name_end : name_end + extras]
        size, packed, start = _large(extra, size, packed, start)
        yield start, name, method, crc, packed, size
        at = name_end + extras + comments


def _large(extra: bytes, *values: int) -> tuple[int, ...]:
    """Replace the values that do not fit 32 bits by those of the extra field 1."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            wide = iter(struct.unpack_from(f"<{length // 8}Q", extra, at + 4))
            return tuple(next(wide, value) if value == _FULL32 else value for value in values)
        at += 4 + length
    return values


def _pieces(members: Sequence[Member]) -> Iterator[Sequence[Member]]:
    """Cut the members into pieces of about 4 MiB; what lies between close ones is read too."""
    piece: list[Member] = []
    for member in members:
        far = piece and member.start - piece[-1].end > _GAP
        if piece and (far or member.end - piece[0].start > _PIECE):
            yield piece
            piece = []
        piece.append(member)
    if piece:
        yield piece


def _unpack(member: Member, data: memoryview) -> bytes:
    if len(data) < _LOCAL_SIZE:
        raise IntegrityError(f"{member.name} has no header where the directory names it")
    names, extras = struct.unpack_from("<HH", data, 26)
    start = _LOCAL_SIZE + names + extras
    packed = bytes(data[start : start + member.packed])
    if member.method not in (_STORED, _DEFLATED):
        raise IntegrityError(f"{member.name} is packed in the unknown way {member.method}")
    try:
        # No more than is promised, and one byte that shows if there is more.
        unpack = zlib.decompressobj(-15).decompress
        plain = unpack(packed, member.size + 1) if member.method == _DEFLATED else packed
    except zlib.error as error:
        raise IntegrityError(f"{member.name} cannot be unpacked: {error}") from None
    if len(plain) != member.size or zlib.crc32(plain) != member.crc:
        raise IntegrityError(f"{member.name} is not what the directory of its wheel promises")
    return plain
