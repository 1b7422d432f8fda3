"""What an ELF library says of itself: symbols, versions, segments, libraries. Judges nothing.

Read straight from the file, which may come from a stranger: whatever does not fit is one error.
The format: https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html and the LSB for versions.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kernelmill.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["MACHINES", "Library", "Segment", "Symbol", "read_library"]

MACHINES: Final = {62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64le"}
_HEADER: Final = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")
_PROGRAM: Final = struct.Struct("<IIQQQQQQ")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_DYNAMIC: Final = struct.Struct("<qQ")
_NEED: Final = struct.Struct("<HHIII")
_NEED_NAME: Final = struct.Struct("<IHHII")
_SHARED, _SIX_FOUR, _LITTLE = 3, 2, 1
_DYNAMIC_TYPE, _SYMBOLS_TYPE, _NEED_TYPE, _VERSIONS_TYPE = 6, 11, 0x6FFFFFFE, 0x6FFFFFFF
_NEEDED, _SONAME, _RPATH, _RUNPATH, _TEXTREL, _FLAGS = 1, 14, 15, 29, 22, 30
_TEXTREL_FLAG: Final = 4
_LOAD, _STACK = 1, 0x6474E551
_BINDS: Final = {0: "local", 1: "global", 2: "weak", 10: "unique"}
_HIDDEN: Final = (1, 2)
_WRITE, _EXECUTE = 2, 1
# More than any library has; a stranger's count is not believed beyond it.
_MOST_SECTIONS: Final = 65_536
_MOST_VERSIONS: Final = 65_536
_MOST_NAME: Final = 65_536
_NOTHING: Final = 8


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol that crosses the border of the library; `version` as GLIBC_2.14, "" for none."""

    name: str
    defined: bool
    bind: str
    hidden: bool = False
    version: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of memory that the loader makes: `kind` is "load" or "stack"."""

    kind: str
    writable: bool
    executable: bool


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library for 64-bit processors; `sections` are pairs of offset and size by name."""

    machine: str
    needed: tuple[str, ...] = ()
    soname: str = ""
    search_path: str = ""
    text_relocations: bool = False
    symbols: tuple[Symbol, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    segments: tuple[Segment, ...] = ()
    sections: dict[str, tuple[int, int]] = field(default_factory=dict)

    def undefined(self) -> tuple[Symbol, ...]:
        """Return what other libraries must bring; weak symbols may be absent."""
        return tuple(s for s in self.symbols if not s.defined and s.bind != "local")

    def exports(self) -> tuple[Symbol, ...]:
        """Return what other libraries can see."""
        return tuple(s for s in self.symbols if s.defined and s.bind != "local" and not s.hidden)


def read_library(path: Path) -> Library:
    """Read a shared library.

    Raises
    ------
    PackageError
        It is no ELF library for 64-bit little-endian processors, or is damaged.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).library()
    except struct.error:
        size = path.stat().st_size
        raise PackageError(
            f"{path} is no ELF library that can be read: it ends too early, after {size:,} bytes"
        ) from None
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        # ValueError: an empty file cannot be mapped; text that is no UTF-8.
        raise PackageError(f"{path} is no ELF library that can be read: {error}") from None


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int
    info: int


class _Reader:
    """The file, and its parts as they are found."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        fields = _HEADER.unpack_from(data)
        magic, wide, order, _, kind, self.machine = fields[:6]
        if magic != b"\x7fELF":
            raise ValueError("it does not begin as ELF files do")
        if (wide, order, kind) != (_SIX_FOUR, _LITTLE, _SHARED):
            raise ValueError("it is no shared library for 64-bit little-endian processors")
        self.programs = (fields[8], fields[12], fields[13])
        self.headers = (fields[9], fields[14], fields[15])
        self.names_index = fields[16]
        self.sections = self._sections()

    def library(self) -> Library:
        dynamic = dict[int, list[int]]()
        for tag, value in self._dynamic():
            dynamic.setdefault(tag, []).append(value)
        names = self._names_of(_DYNAMIC_TYPE)
        texts = {
            tag: [self._text(names, v) for v in dynamic.get(tag, [])] for tag in (1, 14, 15, 29)
        }
        flags = dynamic.get(_FLAGS, [0])[0]
        versions = dict(self._needed_versions())
        return Library(
            machine=MACHINES.get(self.machine, f"machine {self.machine}"),
            needed=tuple(texts[_NEEDED]),
            soname="".join(texts[_SONAME]),
            search_path=":".join(texts[_RPATH] + texts[_RUNPATH]),
            text_relocations=_TEXTREL in dynamic or bool(flags & _TEXTREL_FLAG),
            symbols=tuple(self._symbols({key: name for key, (_, name) in versions.items()})),
            versions=tuple(dict.fromkeys(versions.values())),
            segments=tuple(self._segments()),
            sections={s.name: (s.offset, s.size) for s in self.sections if s.kind != _NOTHING},
        )

    def _sections(self) -> list[_Section]:
        start, size, count = self.headers
        if count > _MOST_SECTIONS or (count and size != _SECTION.size):
            raise ValueError("its table of sections is damaged")
        raw = [_SECTION.unpack_from(self.data, start + size * i) for i in range(count)]
        if not raw:
            raise ValueError("it has no table of sections")
        if any(r[1] != _NOTHING and r[4] + r[5] > len(self.data) for r in raw):
            raise ValueError("a section lies beyond the end of the file")
        names = raw[self.names_index]
        table = _Section("", names[1], names[4], names[5], 0, 0)
        return [_Section(self._text(table, r[0]), r[1], r[4], r[5], r[6], r[7]) for r in raw]

    def _text(self, table: _Section | None, offset: int) -> str:
        if table is None or offset >= table.size:
            raise ValueError("a name lies outside of its table")
        start = table.offset + offset
        end = self.data.find(b"\0", start, table.offset + table.size)
        if end < 0 or end - start > _MOST_NAME:
            raise ValueError(f"a name has no end within {_MOST_NAME:,} bytes")
        return self.data[start:end].decode("utf-8", "replace")

    def _of_kind(self, kind: int) -> _Section | None:
        return next((s for s in self.sections if s.kind == kind), None)

    def _names_of(self, kind: int) -> _Section | None:
        section = self._of_kind(kind)
        return self.sections[section.link] if section else None

    def _dynamic(self) -> Iterator[tuple[int, int]]:
        section = self._of_kind(_DYNAMIC_TYPE)
        if section is None:
            return
        for offset in range(section.offset, section.offset + section.size, _DYNAMIC.size):
            tag, value = _DYNAMIC.unpack_from(self.data, offset)
            if tag == 0:
                return
            yield tag, value

    def _segments(self) -> Iterator[Segment]:
        start, size, count = self.programs
        for index in range(count):
            kind, flags, *_ = _PROGRAM.unpack_from(self.data, start + size * index)
            if kind in (_LOAD, _STACK):
                name = "load" if kind == _LOAD else "stack"
                yield Segment(name, bool(flags & _WRITE), bool(flags & _EXECUTE))

    def _needed_versions(self) -> Iterator[tuple[int, tuple[str, str]]]:
        """Yield the number that symbols carry, and the library and version it stands for."""
        section = self._of_kind(_NEED_TYPE)
        if section is None:
            return
        names, at = self.sections[section.link], section.offset
        left = _MOST_VERSIONS  # rows of a stranger may overlap, over and over
        for _ in range(section.info):
            _, count, file, first, following = _NEED.unpack_from(self.data, at)
            inner = at + first
            left -= count
            if left < 0:
                raise ValueError(f"it names more than {_MOST_VERSIONS:,} versions of symbols")
            for _ in range(count):
                _, _, number, name, next_inner = _NEED_NAME.unpack_from(self.data, inner)
                yield number & 0x7FFF, (self._text(names, file), self._text(names, name))
                if next_inner == 0:
                    break
                inner += next_inner
            if following == 0:
                return
            at += following

    def _symbols(self, versions: dict[int, str]) -> Iterator[Symbol]:
        section = self._of_kind(_SYMBOLS_TYPE)
        if section is None:
            return
        names = self.sections[section.link]
        numbers = self._of_kind(_VERSIONS_TYPE)
        for index in range(1, section.size // _SYMBOL.size):
            fields = _SYMBOL.unpack_from(self.data, section.offset + index * _SYMBOL.size)
            name, info, other, place = fields[:4]
            number = self._number(numbers, index)
            yield Symbol(
                self._text(names, name),
                defined=place != 0,
                bind=_BINDS.get(info >> 4, "other"),
                hidden=other & 3 in _HIDDEN,
                version=versions.get(number, ""),
            )

    def _number(self, numbers: _Section | None, index: int) -> int:
        if numbers is None:
            return 0
        (number,) = struct.unpack_from("<H", self.data, numbers.offset + 2 * index)
        return int(number & 0x7FFF)
