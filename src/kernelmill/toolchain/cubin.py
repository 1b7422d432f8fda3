"""What a cubin says of its kernels: registers, stack, shared memory. Runs and disassembles nothing.

The file is ELF; sections `.nv.info` hold what the assembler noted, one record after another.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelmill.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Resources", "architecture_of", "resources_of"]

_HEADER: Final = struct.Struct("<5s3xB9xH12xQQI6xHHH")
_SECTION: Final = struct.Struct("<I4xQQQQII16x")
_SYMBOL: Final = struct.Struct("<IxB18x")
_RECORD: Final = struct.Struct("<BBH")
_PAIR: Final = struct.Struct("<II")
_EXTENTS: Final = struct.Struct("<III")
_CUDA: Final = 190
# What tells kernels from functions that they call.
_ENTRY: Final = 0x10
# The format of records with a payload, and the attributes that are read.
_SIZED: Final = 4
_REGISTERS, _FRAME, _MOST_THREADS = 0x2F, 0x11, 0x05
# Since this version of the format, the chip stands in the second byte of the flags.
_NEW_FLAGS: Final = 8
# From this chip on, the first KiB of shared memory is the system's, and part of the section.
_RESERVING: Final = 90
_RESERVED: Final = 1024


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel needs: `stack` and `shared` in bytes, `stack` and `registers` a thread.

    `most_threads` is what `__launch_bounds__` promises, 0 where it does not.
    """

    name: str
    registers: int
    stack: int
    shared: int
    most_threads: int


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    start: int
    size: int
    link: int
    info: int


def architecture_of(cubin: bytes) -> str:
    """Return what a cubin is for: "sm_90".

    Raises
    ------
    ArgumentError
        It is no cubin.
    """
    _, version, _, _, _, flags, *_ = _header(cubin)
    return f"sm_{flags >> 8 & 0xFF if version >= _NEW_FLAGS else flags & 0xFF}"


def resources_of(cubin: bytes) -> tuple[Resources, ...]:
    """Return what each kernel of a cubin needs, by name.

    Raises
    ------
    ArgumentError
        It is no cubin.

    Examples
    --------
    >>> from kernelmill.toolchain.cubin import resources_of
    >>> from kernelmill.toolchain.nvrtc import compile_cuda
    >>> text = 'extern "C" __global__ void one(float* x) { *x = 1; }'
    >>> resources_of(compile_cuda(text, arch="sm_90").data)
    (Resources(name='one', registers=8, stack=0, shared=0, most_threads=0),)
    """
    sections = list(_sections(cubin))
    by_name = {s.name: s for s in sections}
    symbols = list(_symbols(cubin, sections))
    noted: dict[str, dict[int, int]] = {}
    for attribute, payload in _records(cubin, by_name.get(".nv.info")):
        if attribute in (_REGISTERS, _FRAME):
            symbol, value = _PAIR.unpack_from(payload)
            noted.setdefault(symbols[symbol][0], {})[attribute] = value
    kernels = {name for name, other in symbols if other & _ENTRY}
    reserved = _RESERVED if int(architecture_of(cubin).removeprefix("sm_")) >= _RESERVING else 0
    found = []
    for name in sorted(kernels):
        shared = by_name.get(f".nv.shared.{name}")
        most = 0
        for attribute, payload in _records(cubin, by_name.get(f".nv.info.{name}")):
            if attribute == _MOST_THREADS:
                x, y, z = _EXTENTS.unpack_from(payload)
                most = x * y * z
        values = noted.get(name, {})
        found.append(
            Resources(
                name,
                values.get(_REGISTERS, 0),
                values.get(_FRAME, 0),
                max(shared.size - reserved, 0) if shared else 0,
                most,
            )
        )
    return tuple(found)


def _header(cubin: bytes) -> tuple[int, ...]:
    if len(cubin) >= _HEADER.size:
        found = _HEADER.unpack_from(cubin)
        if found[0] == b"\x7fELF\x02" and found[2] == _CUDA:
            return found
    raise ArgumentError("this is no cubin: it does not begin as an ELF file for CUDA")


def _sections(cubin: bytes) -> Iterator[_Section]:
    _, _, _, _, start, _, entry, count, names = _header(cubin)
    rows = [_SECTION.unpack_from(cubin, start + entry * i) for i in range(count)]
    base = rows[names][3]
    for name, _, _, offset, size, link, info in rows:
        yield _Section(_text(cubin, base + name), offset, size, link, info)


def _symbols(cubin: bytes, sections: list[_Section]) -> Iterator[tuple[str, int]]:
    """Yield the name of each symbol, and what kind of one it is."""
    table = next(s for s in sections if s.name == ".symtab")
    base = sections[table.link].start
    for at in range(table.start, table.start + table.size, _SYMBOL.size):
        name, other = _SYMBOL.unpack_from(cubin, at)
        yield _text(cubin, base + name), other


def _records(cubin: bytes, section: _Section | None) -> Iterator[tuple[int, bytes]]:
    """Yield attribute and payload of each record that has one."""
    if section is None:
        return
    at, end = section.start, section.start + section.size
    while at < end:
        form, attribute, size = _RECORD.unpack_from(cubin, at)
        at += _RECORD.size
        if form == _SIZED:
            yield attribute, cubin[at : at + size]
            at += size


def _text(cubin: bytes, at: int) -> str:
    return cubin[at : cubin.index(b"\0", at)].decode("utf-8", "replace")
