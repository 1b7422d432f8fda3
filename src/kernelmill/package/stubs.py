"""Shared libraries that hold nothing but a name, to link against what is not installed.

A kernel's library must name torch's libraries, since the loader looks their symbols up there. What
they define is not needed to link; `kernelmill check` compares it with a real torch instead.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["stub", "write_stubs"]

_MACHINES: Final = {"x86_64": 62, "aarch64": 183}
_HEADER: Final = 64
_PROGRAM: Final = 56
_SECTION: Final = 64
_PAGE: Final = 0x1000
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14
_SHT: Final = {".hash": 5, ".dynsym": 11, ".dynstr": 3, ".dynamic": 6, ".shstrtab": 3}


def stub(soname: str, machine: str) -> bytes:
    r"""Return an ELF shared library without code, whose SONAME is `soname`.

    Examples
    --------
    >>> from kernelmill.package.stubs import stub
    >>> stub("libtorch.so", "x86_64")[:4]
    b'\x7fELF'
    """
    names = "\0".join(["", *_SHT]).encode() + b"\0"
    strings = b"\0" + soname.encode() + b"\0"
    at_hash = _HEADER + 2 * _PROGRAM
    at_symbols = at_hash + 24
    at_strings = at_symbols + 24
    at_dynamic = -(-(at_strings + len(strings)) // 8) * 8
    rows = [
        (_DT_SONAME, 1), (_DT_HASH, at_hash), (_DT_STRTAB, at_strings), (_DT_SYMTAB, at_symbols),
        (_DT_STRSZ, len(strings)), (_DT_SYMENT, 24), (0, 0),
    ]  # fmt: skip
    dynamic = b"".join(struct.pack("<QQ", *row) for row in rows)
    end = at_dynamic + len(dynamic)
    at_sections = -(-(end + len(names)) // 8) * 8
    body = bytearray(at_sections)
    body[at_hash : at_hash + 20] = struct.pack("<5I", 1, 1, 0, 0, 0)
    body[at_strings : at_strings + len(strings)] = strings
    body[at_dynamic:end] = dynamic
    body[end : end + len(names)] = names
    body[:_HEADER] = _elf_header(machine, at_sections)
    body[_HEADER:at_hash] = struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, end, end, _PAGE) + struct.pack(
        "<IIQQQQQQ", 2, 6, at_dynamic, at_dynamic, at_dynamic, end - at_dynamic, end - at_dynamic, 8
    )
    sections = [bytes(_SECTION)]
    places = {
        ".hash": (at_hash, 20, 2, 4), ".dynsym": (at_symbols, 24, 3, 24),
        ".dynstr": (at_strings, len(strings), 0, 0), ".dynamic": (at_dynamic, len(dynamic), 3, 16),
        ".shstrtab": (end, len(names), 0, 0),
    }  # fmt: skip
    for name, kind in _SHT.items():
        offset, size, link, each = places[name]
        loaded = 0 if name == ".shstrtab" else 2
        sections.append(
            struct.pack(
                "<IIQQQQIIQQ", names.index(name.encode()), kind, loaded,
                offset if loaded else 0, offset, size, link, 1 if name == ".dynsym" else 0, 8, each,
            )
        )  # fmt: skip
    return bytes(body) + b"".join(sections)


def _elf_header(machine: str, sections: int) -> bytes:
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    return ident + struct.pack(
        "<HHIQQQIHHHHHH", 3, _MACHINES[machine], 1, 0, _HEADER, sections, 0, _HEADER, _PROGRAM, 2,
        _SECTION, len(_SHT) + 1, len(_SHT),
    )  # fmt: skip


def write_stubs(directory: Path, sonames: tuple[str, ...], machine: str) -> list[str]:
    """Write a stub for each name; return their paths, in the same order."""
    directory.mkdir()
    paths = []
    for soname in sonames:
        path = directory / soname
        path.write_bytes(stub(soname, machine))
        paths.append(str(path))
    return paths
