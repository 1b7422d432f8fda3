"""What the sanitizer found, as records and as text; the runtime writes the lines read here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from kernelmill.errors import DeviceError
from kernelmill.runtime.emulator.sources import HERE
from kernelmill.runtime.emulator.symbols import lines_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Array", "Place", "Report", "SanitizerError", "read_reports"]

Triple: TypeAlias = tuple[int, int, int]
_OURS: Final = frozenset(path.name for path in HERE.glob("*.hpp")) | {"prims.cuh"}
_FIELDS: Final = 10
# A comment with this word at the end of a line says that it is meant.
_MEANT: Final = "sanitizer: ignore"


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the source; "" and 0 where it is not known."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else "an unknown line"


@dataclass(frozen=True, slots=True)
class Array:
    """An array as the sanitizer shows it: its name, shape and the bytes of an element."""

    name: str
    itemsize: int
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """One finding.

    Parameters
    ----------
    kind
        "out of bounds", "uninitialised read", "misaligned access", "race", "barrier divergence",
        "mask mismatch", "deadlock", "infinite spin", "use after free", "trap", "assertion",
        "misuse" or "crash".
    place
        The line of the kernel.
    block, thread
        blockIdx and threadIdx.
    array
        The array that was accessed, or the nearest one; "" where it has to do with none.
    index
        Of the element: a number, or one number a dimension.
    other, other_block, other_thread
        Line, block and thread, as ranks, of the other access of a race, or of the other barrier.
    text
        What happened.
    """

    kind: str
    place: Place
    block: Triple
    thread: Triple
    array: str = ""
    index: int | tuple[int, ...] | None = None
    other: Place | None = None
    other_block: int = 0
    other_thread: int = 0
    text: str = ""

    def __str__(self) -> str:
        parts = [f"{self.place}: {self.kind}: {self.text}"]
        if self.array:
            index = ", ".join(map(str, self.index)) if type(self.index) is tuple else self.index
            parts.append(f"{self.array}[{index}]")
        parts.append(f"block {self.block}, thread {self.thread}")
        if self.other is not None:
            parts.append(
                f"the other: {self.other}, block {self.other_block}, thread {self.other_thread}"
            )
        return "; ".join(parts)


class SanitizerError(DeviceError):
    """The sanitizer found something; `reports` are the findings, in the order they were made."""

    def __init__(self, kernel: str, reports: Sequence[Report], *, schedule: str) -> None:
        lines = "\n".join(f"  {report}" for report in reports)
        super().__init__(
            f"kernel {kernel!r}: the sanitizer made {len(reports)} "
            f"report{'s' if len(reports) > 1 else ''}:\n{lines}",
            hint=f"the schedule was {schedule}; it gives the same reports again",
        )
        self.reports = tuple(reports)


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the runtime; callers are offsets in the library."""

    kind: str
    caller: int
    block: Triple
    thread: Triple
    array: str
    byte: int
    nbytes: int
    whole: int
    other: Triple
    text: str
    frames: Sequence[tuple[str, int]] = field(default=())


def _parse(line: str) -> _Line | None:
    parts = line.rstrip("\n").split("\t")
    if len(parts) != _FIELDS:
        return None  # the process ended while it wrote
    kind, caller, block, thread, array, byte, nbytes, whole, other, text = parts
    return _Line(
        kind,
        int(caller),
        _triple(block),
        _triple(thread),
        array,
        int(byte),
        int(nbytes),
        int(whole),
        _triple(other),
        text,
    )


def _triple(text: str) -> Triple:
    x, y, z = map(int, text.split())
    return x, y, z


def read_reports(
    path: Path, library: Path, names: Sequence[str], arrays: Mapping[str, Array], texts: _Texts
) -> list[Report]:
    """Return the findings in a file.

    Parameters
    ----------
    path
        What the runtime wrote.
    library
        The library that was run.
    names
        What the sources are called, so that places are named in the user's words.
    arrays
        Arrays that were given, by the names that the runtime knows them by.
    texts
        The sources by these names; a line that ends in a comment "sanitizer: ignore" is meant.
    """
    lines = [line for line in map(_parse, path.read_text().splitlines()) if line is not None]
    callers = [c for line in lines for c in (line.caller, line.other[0]) if c]
    frames = lines_of(library, callers)
    made = []
    for line in lines:
        place = _place(frames.get(line.caller, ()), names)
        other = _place(frames.get(line.other[0], ()), names) if line.other[0] else None
        if line.kind == "barrier divergence" and other == place:
            continue  # one line, which the compiler made twice
        if _is_meant(place, texts):
            continue
        made.append(_report(line, place, other, arrays))
    return made


_Texts: TypeAlias = "Mapping[str, str]"


def _is_meant(place: Place, texts: _Texts) -> bool:
    lines = texts.get(place.file, "").splitlines()
    return 0 < place.line <= len(lines) and _MEANT in lines[place.line - 1].rpartition("//")[2]


def _place(frames: Sequence[tuple[str, int]], names: Sequence[str]) -> Place:
    """Return the innermost line that is not the emulator's own."""
    for file, line in frames:
        if Path(file).name in _OURS:
            continue
        known = [name for name in names if file == name or file.endswith(f"/{name}")]
        return Place(max(known, key=len) if known else file.removeprefix("./"), line)
    return Place()


def _report(line: _Line, place: Place, other: Place | None, arrays: Mapping[str, Array]) -> Report:
    made = Report(line.kind, place, line.block, line.thread, text=line.text)
    if other is not None:
        made = replace(made, other=other, other_block=line.other[1], other_thread=line.other[2])
    if line.array:
        array = arrays.get(line.array) or Array(line.array, line.nbytes)
        made = replace(made, array=array.name, index=_index(line.byte, array))
    elif line.nbytes:
        made = replace(made, index=line.byte)
    return made


def _index(byte: int, array: Array) -> int | tuple[int, ...]:
    flat = byte // (array.itemsize or 1)
    size = 1
    for extent in array.shape:
        size *= extent
    if len(array.shape) < 2 or not 0 <= flat < size:  # noqa: PLR2004 - one number tells the place
        return flat
    found = []
    for extent in reversed(array.shape):
        found.append(flat % extent)
        flat //= extent
    return tuple(reversed(found))
