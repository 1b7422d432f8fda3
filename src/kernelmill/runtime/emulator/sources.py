"""All files of a CUDA text, rewritten: the text itself, headers in memory, and headers on disk.

Which compiler reads them is decided in `build.py`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.runtime.emulator.plain import plain_forms
from kernelmill.runtime.emulator.rewrite import kernel_macros, rewrite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelmill.runtime.emulator.rewrite import KernelName

__all__ = ["HERE", "SHIMS", "Sources", "definitions", "emulator_digest", "gather"]

HERE: Final = Path(__file__).resolve().parent
# Headers of the CUDA toolkit and of C that mean something else here.
SHIMS: Final = HERE / "include"
_INCLUDE: Final = re.compile(
    r'^(?P<head>[ \t]*#[ \t]*include[ \t]*)(?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>)',
    re.MULTILINE,
)
# Headers that bring no overloads of math functions, and are read in milliseconds.
_LIGHT: Final = {"initializer_list", "type_traits"} | {
    f"{head}{name}{tail}"
    for head, tail in (("", ".h"), ("c", ""))
    for name in ("stdint", "stddef", "stdio", "string", "limits", "float", "stdbool", "inttypes")
}
# Ours too, but CUDA's own bring the C++ library's math with them.
_HEAVY: Final = frozenset(("cuda_runtime.h", "cuda_runtime_api.h", "cuda_profiler_api.h"))
# Rare intrinsics, in headers of their own: what a text does not name, it does not wait for.
_RARE: Final = (
    ("lanes", re.compile(r"\b__v\w+[24]\b|\b__dp2a_|\b__\w+_r[zud]\b")),
    (
        "special",
        re.compile(
            r"\b(?:erfc?inv|normcdfinv|erfcx|cyl_bessel_i[01]|r?norm\w*|rhypot|sincospi)f?\b"
        ),
    ),
)
_HOST_API: Final = re.compile(r"\bcuda[A-Z]\w*\s*\(|\bcuda(?:Error|Stream|Event)_t\b")


@dataclass(frozen=True, slots=True)
class Sources:
    """What the compiler gets: the text with its prelude, and files by the names they have there.

    `kernels` are those that the files define, templates among them; `spins` says whether plain
    memory is waited for, `volatile`; `plain` has the plain forms of kernels, see `plain.py`.
    """

    text: str
    files: Mapping[str, str]
    kernels: tuple[KernelName, ...]
    spins: bool
    plain: Mapping[str, str]


@once
def emulator_digest() -> str:
    """Return one digest over everything here that decides what a text becomes."""
    state = hashlib.sha256()
    for path in sorted([*HERE.glob("*.hpp"), *HERE.glob("*.cpp"), *HERE.glob("*.py")]):
        state.update(f"{path.name}\n".encode())
        state.update(path.read_bytes())
    for path in sorted(p for p in SHIMS.rglob("*") if p.is_file()):
        state.update(f"{path.relative_to(SHIMS)}\n".encode())
        state.update(path.read_bytes())
    return state.hexdigest()


def gather(
    text: str,
    *,
    name: str,
    headers: Mapping[str, str],
    directories: Sequence[Path] = (),
    defines: Sequence[str] = (),
    program: bool = False,
    folder: str = "disk",
) -> Sources:
    """Rewrite a text and all that it includes.

    Parameters
    ----------
    text, name
        The text, and what it is called in messages.
    headers
        Texts that `#include "name"` finds before any file.
    directories
        Where other includes are looked for; those that are found nowhere are left to the compiler.
    defines
        Macros, "NAME" or "NAME=VALUE".
    program
        Whether there is host code: then it sees CUDA's runtime API without including it.
    folder
        What the names of files on disk begin with, of which each text of a program has its own.

    Raises
    ------
    CompileError, NotImplementedHere
        As `rewrite` does.
    """
    reached = _Reached(headers, directories, folder)
    reached.visit(text, None)
    macros = frozenset(m for t in (text, *reached.texts.values()) for m in kernel_macros(t))
    main = rewrite(reached.pointed(text, None), macros)
    files = {}
    rewritten = []
    kernels = list(main.kernels)
    ptx, host = main.ptx, main.launches or bool(_HOST_API.search(text))
    for key, body in reached.texts.items():
        made = rewrite(reached.pointed(body, reached.places.get(key)), macros)
        files[key] = f'#line 1 "{reached.names[key]}"\n{made.text}'
        kernels += made.kernels
        rewritten.append(made)
        ptx, host = ptx or made.ptx, host or made.launches
    # Ours look at macros such as NDEBUG; a user's `N` must not change the names in them.
    first = [d for d in defines if d.startswith(("_", "NDEBUG"))]
    prelude = definitions(first)
    prelude += ["#define KM_EMU_PROGRAM\n"] if program else []
    prelude += [] if reached.heavy or host or program else ["#define KM_EMU_LIGHT\n"]
    prelude += ['#include "emulator/device.hpp"\n']
    prelude += ['#include "emulator/ptx_numbers.hpp"\n'] if ptx else []
    prelude += ['#include "emulator/host_api.hpp"\n'] if host or program else []
    texts = (text, *reached.texts.values())
    for header, names in _RARE:
        prelude += [f'#include "emulator/{header}.hpp"\n'] if any(map(names.search, texts)) else []
    prelude += definitions([d for d in defines if d not in first])
    whole = "".join([*prelude, f'#line 1 "{name}"\n', main.text, "\n"])
    spins = main.spins or any(made.spins for made in rewritten)
    plain = plain_forms(text, [*prelude, *reached.texts.values()])
    return Sources(whole, files, tuple(dict.fromkeys(kernels)), spins, plain)


def definitions(defines: Sequence[str]) -> list[str]:
    """Return the lines that define macros, "NAME" or "NAME=VALUE"."""
    return [f"#define {d.replace('=', ' ', 1) if '=' in d else f'{d} 1'}\n" for d in defines]


class _Reached:
    """The files behind `#include`, by the names that the compiler will find them by."""

    def __init__(
        self, headers: Mapping[str, str], directories: Sequence[Path], folder: str
    ) -> None:
        self._headers, self._directories, self._folder = headers, directories, folder
        self.texts: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.places: dict[str, Path] = {}
        self._keys: dict[Path, str] = {}
        self.heavy = False

    def visit(self, text: str, place: Path | None) -> None:
        """Follow the includes of a text; `place` is the directory it lies in."""
        for match in _INCLUDE.finditer(text):
            name = match["quoted"] or match["angled"]
            if name in self._headers:
                self._add(name, name, self._headers[name], None)
                continue
            path = self._find(name, place)
            if path is not None:
                key = self._keys.setdefault(path, f"{self._folder}/{len(self._keys)}_{path.name}")
                self._add(
                    key, str(path), path.read_text(encoding="utf-8", errors="replace"), path.parent
                )
            elif name in _HEAVY or (name not in _LIGHT and not (SHIMS / name).is_file()):
                self.heavy = True

    def _add(self, key: str, name: str, text: str, place: Path | None) -> None:
        if key in self.texts:
            return
        self.texts[key], self.names[key] = text, name
        if place is not None:
            self.places[key] = place
        self.visit(text, place)

    def _find(self, name: str, place: Path | None) -> Path | None:
        if (SHIMS / name).is_file():
            return None
        places = (place, *self._directories) if place is not None else self._directories
        found = next((d / name for d in places if (d / name).is_file()), None)
        return None if found is None else found.resolve()

    def pointed(self, text: str, place: Path | None) -> str:
        """Return a text whose includes of files on disk name their rewritten copies."""

        def replaced(match: re.Match[str]) -> str:
            name = match["quoted"] or match["angled"]
            path = None if name in self._headers else self._find(name, place)
            return match[0] if path is None else f'{match["head"]}"{self._keys[path]}"'

        return _INCLUDE.sub(replaced, text)
