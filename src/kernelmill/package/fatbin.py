"""Which GPU architectures a library holds code for, read from its fat binaries. Runs no tool.

A fat binary is a header and entries, one for each cubin or PTX text; the layout is that which
`fatbinary` of CUDA 11 to 13 writes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kernelmill.package.elf import read_library

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Image", "images_of"]

_MAGIC: Final = 0xBA55ED50
_HEADER: Final = struct.Struct("<IHHQ")
# Kind, version, size of the entry's header, of its payload; further on architecture and flags.
_ENTRY: Final = struct.Struct("<HHIQ12xI8xQ")
_KINDS: Final = {1: "ptx", 2: "cubin"}
# What the flags say of code that runs on one chip alone, or on one family.
_SUFFIXES: Final = ((1 << 20, "a"), (1 << 21, "f"))


class Image(NamedTuple):
    """Code for one architecture: `kind` is "cubin" or "ptx", `arch` as sm_90 or sm_90a."""

    kind: str
    arch: str


def images_of(path: Path) -> tuple[Image, ...]:
    """Return what GPU code a library holds, each once, in order.

    Raises
    ------
    PackageError
        It is no library that can be read.
    """
    sections = read_library(path).sections
    found: set[Image] = set()
    with path.open("rb") as file:
        for name in (".nv_fatbin", "__nv_relfatbin"):
            offset, size = sections.get(name, (0, 0))
            file.seek(offset)
            found.update(_images(file.read(size)))
    return tuple(sorted(found, key=lambda image: (image.kind, len(image.arch), image.arch)))


def _images(data: bytes) -> Iterator[Image]:
    at = 0
    while at + _HEADER.size <= len(data):
        magic, _, header, size = _HEADER.unpack_from(data, at)
        if magic != _MAGIC or header < _HEADER.size:
            at += 8  # containers are aligned; between them lie zeros
            continue
        end = min(at + header + size, len(data))
        yield from _entries(data, at + header, end)
        at = end + (-end) % 8


def _entries(data: bytes, at: int, end: int) -> Iterator[Image]:
    while at + _ENTRY.size <= end:
        kind, _, header, size, arch, flags = _ENTRY.unpack_from(data, at)
        if header < _ENTRY.size:
            return
        if kind in _KINDS:
            suffix = next((text for bit, text in _SUFFIXES if flags & bit), "")
            yield Image(_KINDS[kind], f"sm_{arch}{suffix}")
        at += header + size
