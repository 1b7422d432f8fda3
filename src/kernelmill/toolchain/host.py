"""Find the host C++ compiler and identify it. Compiling is in `compile.py`, asking in `identify`.

The warm path runs no compiler: what a compiler said of itself is remembered on disk under the size
and the time of its files, and only those are looked at again.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, get_args

from kernelmill.config import Config, get_config
from kernelmill.errors import ToolchainError
from kernelmill.toolchain.cpu import host_cpu
from kernelmill.toolchain.flags import Kind, Language, compile_flags, link_flags
from kernelmill.toolchain.memo import FileStamp, memo_key, recall, remember, stamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "HostCompiler",
    "Rejection",
    "find_host_compiler",
    "survey_host_compilers",
    "toolchain_identity",
]

# In this order; the wheel comes last because it links no C++ library.
_ON_PATH: Final = ("c++", "g++", "clang++")
_WHEEL: Final = "ziglang"
_ZIG_NAMES: Final = frozenset({"zig", _WHEEL})
_ZIG_SUBCOMMANDS: Final = ("cc", "c++")

_MEMO_SCHEMA: Final = 1
# A compiler may become usable without any change of its own file (its libraries get installed).
_REJECTION_SECONDS: Final = 3600.0
_TEXT_LIMIT: Final = 4096

_INSTALL: Final = (
    "install a C++ compiler: `apt install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora), "
    "or, with no rights on the machine, `pip install kernelmill[zig]`"
)


@dataclass(frozen=True, slots=True)
class HostCompiler:
    """A compiler that has made a shared library for this machine.

    `command` is the program and the arguments that always come first (`("…/zig", "cc")`).
    `version` and `target` are in the compiler's own words. `identity` is the digest of all of them
    and of the real path, size and time of its files.
    """

    kind: Kind
    command: tuple[str, ...]
    version: str
    target: str
    identity: str

    @property
    def label(self) -> str:
        """Its name and version, as error texts show them.

        Examples
        --------
        >>> from kernelmill.toolchain import HostCompiler
        >>> HostCompiler("gcc", ("/usr/bin/g++",), "12.2.0", "x86_64-linux-gnu", "").label
        'g++ 12.2.0'
        """
        words = takewhile(lambda word: not word.startswith("-"), _programs(self.command, self.kind))
        return " ".join([*(Path(word).name for word in words), self.version])

    def __str__(self) -> str:
        return f"{self.label} ({self.kind}, {self.target}): {shlex.join(self.command)}"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate that cannot be used, and why.

    `lasting` says that the same would come out if it was asked again now; `remembered` that the
    answer is from an earlier process.
    """

    asked: str
    reason: str
    lasting: bool = False
    remembered: bool = False

    def __str__(self) -> str:
        return f"{self.asked}: {self.reason}"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A command to examine; `kind` is None until the compiler has said what it is."""

    asked: str
    kind: Kind | None
    command: tuple[str, ...]


def find_host_compiler(config: Config | None = None) -> HostCompiler:
    """Return the C++ compiler to compile kernels with.

    It is `KERNELMILL_CXX` if that is set, else the first that works of `c++`, `g++` and `clang++`
    on PATH, else the one in the `ziglang` wheel.

    Parameters
    ----------
    config
        The settings; the current ones by default.

    Raises
    ------
    ToolchainError
        None can be used; the text lists what was tried and why each was turned down.

    Examples
    --------
    >>> from kernelmill.toolchain import find_host_compiler
    >>> find_host_compiler().kind in ("gcc", "clang", "zig")
    True
    """
    config = config or get_config()
    rejections: list[Rejection] = []
    for trust in (True, False):
        rejections = []
        for found in _examine_all(config, trust=trust and config.cxx is None):
            if isinstance(found, HostCompiler):
                return found
            rejections.append(found)
        if not any(rejection.remembered for rejection in rejections):
            break
    if config.cxx is not None:
        raise ToolchainError(
            f"KERNELMILL_CXX={config.cxx!r} cannot be used: {rejections[0].reason}",
            hint="name a working g++, clang++ or zig, or unset KERNELMILL_CXX to look for one",
        )
    tried = "\n".join(f"  {rejection}" for rejection in rejections)
    raise ToolchainError(f"no usable C++ compiler was found; tried:\n{tried}", hint=_INSTALL)


def survey_host_compilers(config: Config | None = None) -> tuple[HostCompiler | Rejection, ...]:
    """Return every candidate of `find_host_compiler`, in its order; one compiler appears once.

    Examples
    --------
    >>> from kernelmill.toolchain import survey_host_compilers
    >>> len(survey_host_compilers()) > 0
    True
    """
    config = config or get_config()
    seen: set[str] = set()
    survey: list[HostCompiler | Rejection] = []
    for found in _examine_all(config, trust=False):
        if isinstance(found, HostCompiler):
            if found.identity in seen:
                continue
            seen.add(found.identity)
        survey.append(found)
    return tuple(survey)


def toolchain_identity(compiler: HostCompiler, march: str, *, language: Language = "c++") -> str:
    """Return the digest of all that the toolchain adds to a binary; a part of cache keys.

    It covers the compiler's files, version and target, all flags and, where `march` is `native`,
    the model and the features of the processor.

    Examples
    --------
    >>> from kernelmill.toolchain import find_host_compiler, toolchain_identity
    >>> len(toolchain_identity(find_host_compiler(), "native"))
    64
    """
    return _digest(
        compiler.kind,
        compiler.identity,
        compiler.version,
        compiler.target,
        compile_flags(compiler.kind, march, language=language),
        link_flags(compiler.kind),
        host_cpu().digest if march == "native" else host_cpu().machine,
    )


# ------------------------------------------------------------------------------- candidates


def _examine_all(config: Config, *, trust: bool) -> Iterator[HostCompiler | Rejection]:
    asked = (config.cxx,) if config.cxx is not None else (*_ON_PATH, _WHEEL)
    for name in asked:
        candidate = _candidate(name)
        if isinstance(candidate, Rejection):
            yield candidate
        else:
            yield _examine(candidate, config.cache_dir / "toolchain", trust=trust)


def _candidate(asked: str) -> _Candidate | Rejection:
    """Turn what was asked for into a command with an absolute path."""
    if asked == _WHEEL:
        return _wheel(asked, ())
    try:
        words = (asked,) if os.path.isfile(asked) else tuple(shlex.split(asked))  # noqa: PTH113
    except ValueError as error:
        return Rejection(asked, f"it is not a command: {error}")
    program = _which(words[0]) if words else None
    if program is not None:
        return _as_zig(asked, (program, *words[1:]))
    if words[:1] == ("zig",):
        return _wheel(asked, words[1:])
    return Rejection(asked, _absence(words[0] if words else asked, alone=len(words) <= 1))


def _wheel(asked: str, arguments: tuple[str, ...]) -> _Candidate | Rejection:
    """Find zig in the `ziglang` wheel; importing that package is not needed, nor done."""
    spec = importlib.util.find_spec(_WHEEL)
    for directory in (spec.submodule_search_locations or ()) if spec else ():
        program = _which(os.path.join(os.path.abspath(directory), "zig"))  # noqa: PTH100, PTH118
        if program is not None:
            return _as_zig(asked, (program, *arguments))
    missing = "the wheel is not installed" if spec is None else "the wheel holds no zig program"
    return Rejection(asked, missing)


def _as_zig(asked: str, command: tuple[str, ...]) -> _Candidate:
    """Recognise zig by its name and give it the one subcommand that is used, `cc`."""
    for index, word in enumerate(command):
        if os.path.basename(word) in _ZIG_NAMES:  # noqa: PTH119 - the words are not all paths
            rest = command[index + 1 :]
            rest = rest[1:] if rest[:1] and rest[0] in _ZIG_SUBCOMMANDS else rest
            return _Candidate(asked, "zig", (*command[: index + 1], "cc", *rest))
    return _Candidate(asked, None, command)


def _which(program: str) -> str | None:
    """Return the absolute path of an executable file, without following links.

    The name that a wrapper was called by tells it what to be, so it stays. An empty entry of PATH
    means the current directory, which no compiler is taken from.
    """
    if os.sep in program:
        places = [os.path.abspath(program)]  # noqa: PTH100
    else:
        places = [
            os.path.abspath(os.path.join(directory, program))  # noqa: PTH100, PTH118
            for directory in os.get_exec_path()
            if directory
        ]
    return next((place for place in places if _is_program(place)), None)


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113


def _absence(program: str, *, alone: bool) -> str:
    """Say why `_which` found nothing."""
    it = "it" if alone else program
    if os.sep not in program:
        return f"{it} is not on PATH"
    if not os.path.exists(program):  # noqa: PTH110
        return "there is no such file" if alone else f"there is no file {program}"
    if os.path.isdir(program):  # noqa: PTH112
        return f"{it} is a directory"
    return f"{it} is not executable"


# ------------------------------------------------------------------------------ examination


def _examine(candidate: _Candidate, memos: Path, *, trust: bool) -> HostCompiler | Rejection:
    """Return what is known of the candidate, from a memo if there is one, else by running it."""
    stamps = _command_stamps(_programs(candidate.command, candidate.kind))
    # The flags are part of the key: a compiler was tried with these, not with others.
    tried = compile_flags(candidate.kind or "gcc", "native")
    key = memo_key(_MEMO_SCHEMA, candidate.command, stamps, tried)
    known = _recall(candidate, memos, key, trust=trust)
    if known is not None:
        return known
    from kernelmill.toolchain.identify import examine  # noqa: PLC0415 - subprocess: 6 ms to import

    found = examine(candidate.asked, candidate.kind, candidate.command)
    if isinstance(found, Rejection):
        if found.lasting:
            remember(memos, key, {"rejection": found.reason})
        return found
    parts = tuple(sorted({*stamps, *(s for s in map(stamp, found.parts) if s is not None)}))
    facts = {"kind": found.kind, "version": found.version, "target": found.target}
    remember(memos, key, {**facts, "parts": [list(part) for part in parts]})
    return _compiler(candidate.command, found.kind, found.version, found.target, parts)


def _programs(command: tuple[str, ...], kind: Kind | None) -> tuple[str, ...]:
    """Return the part of a command that may name programs: zig's `cc` is not the `cc` on PATH."""
    return command[: command.index("cc")] if kind == "zig" else command


def _command_stamps(command: Sequence[str]) -> tuple[FileStamp, ...]:
    """Stamp the program, and every argument that is one too (`ccache g++`)."""
    programs = (_which(word) for word in command if not word.startswith("-"))
    return tuple(s for s in (stamp(p) for p in programs if p is not None) if s is not None)


def _recall(
    candidate: _Candidate, memos: Path, key: str, *, trust: bool
) -> HostCompiler | Rejection | None:
    facts = recall(memos, key)
    if facts is None:
        return None
    if "rejection" in facts:
        reason = _text(facts["rejection"])
        fresh = trust and recall(memos, key, max_age=_REJECTION_SECONDS) is not None
        if reason is None or not fresh:
            return None
        return Rejection(candidate.asked, reason, lasting=True, remembered=True)
    kind, version, target = (_text(facts.get(name)) for name in ("kind", "version", "target"))
    parts = _parts(facts.get("parts"))
    if kind not in get_args(Kind) or version is None or target is None or parts is None:
        return None
    if candidate.kind not in (None, kind) or any(stamp(part[0]) != part for part in parts):
        return None
    return _compiler(candidate.command, cast("Kind", kind), version, target, parts)


def _text(value: object) -> str | None:
    good = isinstance(value, str) and len(value) <= _TEXT_LIMIT
    return value if good and isinstance(value, str) else None


def _parts(value: object) -> tuple[FileStamp, ...] | None:
    if not isinstance(value, list) or not value:
        return None
    parts: list[FileStamp] = []
    for row in value:
        match row:
            case [str(path), int(size), int(time)]:
                parts.append((path, size, time))
            case _:
                return None
    return tuple(parts)


def _compiler(
    command: tuple[str, ...], kind: Kind, version: str, target: str, parts: tuple[FileStamp, ...]
) -> HostCompiler:
    # The path of the program is in its stamp, links followed: c++ and g++ share what they make.
    identity = _digest(kind, version, target, command[1:], sorted(parts))
    return HostCompiler(kind, command, version, target, identity)


def _digest(*parts: object) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()
