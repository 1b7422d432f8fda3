"""Instructions of machine code or PTX, by the line of the source that they came from.

The texts are those that `disassembler.py` and NVRTC give, compiled with their source lines.
"""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Region", "regions_of"]


@dataclass(frozen=True, slots=True)
class Region:
    """The instructions that one line of the source became."""

    kernel: str
    file: str
    line: int
    source: str
    instructions: tuple[str, ...] = field(repr=False)


_SASS_KERNEL: Final = re.compile(r"^\.text\.(\S+):")
_SASS_LINE: Final = re.compile(r'^\s*//## File "(.+?)", line (\d+)')
_SASS_CODE: Final = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.+?)\s*;")
_PTX_KERNEL: Final = re.compile(r"\.entry\s+([\w$]+)")
_PTX_FILE: Final = re.compile(r'^\s*\.file\s+(\d+)\s+"(.+?)"', re.MULTILINE)
_PLACE: Final = r"\s+(\d+)\s+(\d+)\s+(\d+)"
_PTX_LINE: Final = re.compile(rf"^\s*\.loc{_PLACE}(?:.*inlined_at{_PLACE})?")
_PTX_CODE: Final = re.compile(r"^\s+((?:@!?%\w+\s+)?[a-z][\w.:]*\s*[^;]*);")

# Kernel, file, line, instruction.
_Code: TypeAlias = tuple[str, str, int, str]
# Ends of the names of Python texts: files, and what notebooks and prompts keep.
_PYTHONS: Final = (".py", ">")
_NOWHERE: Final = [("", 0)]


def regions_of(sass: str, ptx: str, texts: Mapping[str, str]) -> tuple[Region, ...]:
    """Return the regions of machine code, or of PTX where there is none.

    `texts` are sources that are no files, by name; other lines are read from their files.
    """
    code = _sass_lines(sass) if sass else _ptx_lines(ptx)
    places: dict[tuple[str, str, int], list[str]] = {}
    for kernel, file, line, instruction in code:
        if line:
            places.setdefault((kernel, file, line), []).append(instruction)
    known = {name: text.splitlines() for name, text in texts.items()}
    return tuple(
        Region(kernel, name := _short(file, known), line, _source(name, line, known), tuple(found))
        for (kernel, file, line), found in sorted(places.items())
    )


def _sass_lines(sass: str) -> Iterator[_Code]:
    kernel, frames, fresh = "", _NOWHERE, True
    for text in sass.splitlines():
        if match := _SASS_KERNEL.match(text):
            kernel, frames = match[1], _NOWHERE
        elif match := _SASS_LINE.match(text):
            frame = match[1], int(match[2])
            frames = [frame] if fresh else [*frames, frame]
            fresh = False
        elif (match := _SASS_CODE.match(text)) and match[1] != "NOP":
            fresh = True
            yield kernel, *_written(frames), match[1]


def _ptx_lines(ptx: str) -> Iterator[_Code]:
    files = dict(_PTX_FILE.findall(ptx))
    kernel, frames = "", _NOWHERE
    # A place names the one that it is inlined at, which names its own in the line of it before.
    chains: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for text in ptx.splitlines():
        if match := _PTX_KERNEL.search(text):
            kernel, frames = match[1], _NOWHERE
            chains.clear()
        elif match := _PTX_LINE.match(text):
            place, caller = match.group(1, 2, 3), match.group(4, 5, 6)
            frames = [(files.get(place[0], ""), int(place[1]))]
            if caller[0]:
                frames += chains.get(caller, [(files.get(caller[0], ""), int(caller[1]))])
            chains[place] = frames
        elif kernel and (match := _PTX_CODE.match(text)):
            yield kernel, *_written(frames), match[1]


def _written(frames: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """Return the line that stands for an instruction: the innermost one of Python, else of all."""
    return next((f for f in frames if f[0].endswith(_PYTHONS)), frames[0])


def _short(file: str, known: Mapping[str, Sequence[str]]) -> str:
    """Return the name of a text that is no file: the compiler puts a directory before it."""
    name = Path(file).name
    if name in known:
        return name
    return file[file.index("<") :] if file.endswith(">") and "<" in file else file


def _source(name: str, line: int, known: Mapping[str, Sequence[str]]) -> str:
    lines = known.get(name)
    if lines is None:
        return linecache.getline(name, line).strip()
    return lines[line - 1].strip() if line <= len(lines) else ""
