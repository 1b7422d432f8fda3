"""Names in a compiled library: its arrays by ELF symbols, its lines by addr2line. Only reading."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["Symbol", "arrays_of", "lines_of"]

# ELF64: the header, a section's header, a symbol.
_HEADER: Final = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE: Final = 2
_OBJECT, _THREAD_LOCAL = 1, 6
_LENGTH: Final = re.compile(r"\d+")
_PART: Final = re.compile(r"(\d+)([A-Za-z_]\w*)")
# Variables of the emulator itself, which a copy of a kernel's argument may look at.
_OWN: Final = re.compile(r"km_emu|^_ZTI|^_ZTS|^_ZTV|^CSWTCH|^DW\.ref")
# What says whether a variable was constructed: looked at by the compiler's code, not the kernel's.
_GUARD: Final = "_ZGV"


@dataclass(frozen=True, slots=True)
class Symbol:
    """An array of the library: in thread-local memory (`__shared__`) or in the module's.

    `owner` is the function that declares it, "" for none. What is the compiler's own, or the
    emulator's, has no name: accesses of it are none of the kernel's.
    """

    shared: bool
    at: int
    nbytes: int
    name: str
    owner: str = ""


def arrays_of(library: Path) -> tuple[Symbol, ...]:
    """Return the arrays that a library defines."""
    data = library.read_bytes()
    header = _HEADER.unpack_from(data)
    offset, width, count = header[5], header[10], header[11]
    sections = [_SECTION.unpack_from(data, offset + i * width) for i in range(count)]
    found = []
    for section in sections:
        if section[1] != _SYMBOL_TABLE:
            continue
        start, size, link = section[4], section[5], section[6]
        names = sections[link][4]
        for at in range(start, start + size, _SYMBOL.size):
            name_at, info, _, index, value, nbytes = _SYMBOL.unpack_from(data, at)
            kind = info & 15
            if kind not in (_OBJECT, _THREAD_LOCAL) or not nbytes or not index:
                continue
            first = names + name_at
            name = data[first : data.index(b"\0", first)].decode("utf-8", "replace")
            own = name.startswith(_GUARD) or _OWN.search(name)
            shown = "" if own else _readable(name)
            found.append(Symbol(kind == _THREAD_LOCAL, value, nbytes, shown, _owner(name)))
    return tuple(found)


def _readable(name: str) -> str:
    """Return the last name in a mangled one: that of a variable inside a function, or of a global.

    Examples
    --------
    >>> from kernelmill.runtime.emulator.symbols import _readable
    >>> _readable("_ZZ7reversePfE4tile"), _readable("_ZL7weights"), _readable("table")
    ('tile', 'weights', 'table')
    """
    if not name.startswith("_Z"):
        return name.partition(".")[0]
    last, at = name, 2
    while (match := _PART.search(name, at)) is not None:
        length = int(match[1])
        begin = match.start(2)
        last, at = name[begin : begin + length], begin + length
    return last


def _owner(name: str) -> str:
    """Return the function that a mangled name of a variable begins with.

    Examples
    --------
    >>> from kernelmill.runtime.emulator.symbols import _owner
    >>> _owner("_ZZ7reversePfE4tile"), _owner("_ZZN2km3sumIfEEvPT_E1s"), _owner("_ZL7weights")
    ('reverse', 'sum', '')
    """
    found, at = "", 4 if name.startswith("_ZZN") else 3
    while name.startswith("_ZZ") and (match := _LENGTH.match(name, at)) is not None:
        begin = match.end()
        at = begin + int(match[0])
        found = name[begin:at]
    return found


def lines_of(library: Path, callers: Iterable[int]) -> dict[int, tuple[tuple[str, int], ...]]:
    """Return file and line of each address, innermost first where calls were inlined.

    Without `addr2line` (of binutils) nothing is known.
    """
    wanted = sorted(set(callers))
    program = shutil.which("addr2line")
    if program is None or not wanted:
        return {}
    addresses = [f"{caller - 1:#x}" for caller in wanted]  # the call stands before the return
    done = subprocess.run(
        [program, "-a", "-i", "-e", str(library), *addresses],
        check=False,
        capture_output=True,
        text=True,
    )
    return dict(zip(wanted, _frames(done.stdout), strict=False))


def _frames(text: str) -> Iterator[tuple[tuple[str, int], ...]]:
    frames: list[tuple[str, int]] | None = None
    for line in text.splitlines():
        if line.startswith("0x"):
            if frames is not None:
                yield tuple(frames)
            frames = []
            continue
        file, _, number = line.partition(" ")[0].rpartition(":")
        if frames is not None and number.isdigit():
            frames.append((file, int(number)))
    if frames is not None:
        yield tuple(frames)
