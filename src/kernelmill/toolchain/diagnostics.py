"""What a compiler's output says: its errors as data, a bounded log, a hint. Runs no compiler.

g++, clang++ and zig write `file:line:column: severity: message`; linkers do not, so a link error
is found by the words they share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Diagnostic", "bound_log", "hint_for", "missing_runtime", "parse_log", "summarise"]

LOG_LINES: Final = 100
HEAD_LINES: Final = 20
LINE_CHARACTERS: Final = 400

_PLACED: Final = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<severity>fatal error|error|warning|note): (?P<message>.*)$",
    re.MULTILINE,
)
_UNPLACED: Final = re.compile(
    r"^(?:\S+: )?(?:fatal )?error: (?P<message>.*)$"
    r"|^(?P<link>.*(?:undefined reference to|cannot find -l|cannot find \S+\.o\b).*)$",
    re.MULTILINE,
)
_UNDEFINED: Final = re.compile(r"undefined (?:symbol|reference to)[: ] *[`'\"]?(?P<name>[\w.]+)")
# The names of the compiler's own runtime begin with two underscores; C++ names begin with _Z.
_RUNTIME: Final = re.compile(r"__\w+")

_INSTALL_DEV: Final = (
    "the compiler's own files are not complete; install them: "
    "`apt install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora)"
)
# The first row whose pattern is found gives the hint.
_HINTS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (
        re.compile(r"No space left on device"),
        "the disk is full; free some space, or name another place in KERNELMILL_CACHE_DIR",
    ),
    (
        re.compile(r"[Kk]illed signal terminated program|out of memory|cannot allocate memory"),
        "memory ran out; close other programs, or compile on a larger machine",
    ),
    (
        re.compile(
            r"bad value .* for .-m(?:arch|cpu)="
            r"|unknown target CPU|[Uu]nknown CPU|unsupported argument .* -m(?:arch|cpu)="
        ),
        "KERNELMILL_MARCH names an instruction set that the compiler does not know; try native",
    ),
    (
        re.compile(r"cannot (?:find|open) \S*(?:crt\w*\.o|-lm|-lc|-lgcc)\b"),
        _INSTALL_DEV,
    ),
    (re.compile(r"cc1(?:plus)?.{0,3}: (?:execvp: )?No such file"), _INSTALL_DEV),
    (
        re.compile(r"internal compiler error|PLEASE submit a bug report"),
        "the compiler itself failed; another one can be named in KERNELMILL_CXX",
    ),
)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message of a compiler about one place of the source.

    `line` counts from 1; `column` too, and is 0 where the compiler names none.
    """

    file: str
    line: int
    column: int
    severity: str
    message: str


def parse_log(log: str) -> tuple[Diagnostic, ...]:
    """Return the messages in `log` that name a place, in order.

    Examples
    --------
    >>> from kernelmill.toolchain import parse_log
    >>> parse_log("k.cpp:3:14: error: 'y' was not declared")[0].line
    3
    """
    return tuple(
        Diagnostic(
            file=match["file"].removeprefix("./"),
            line=int(match["line"]),
            column=int(match["column"] or 0),
            severity=match["severity"],
            message=match["message"].strip(),
        )
        for match in _PLACED.finditer(log)
    )


def summarise(log: str) -> str:
    """Return the first error of `log` in one line: place and message, or an empty string."""
    errors = [d for d in parse_log(log) if d.severity.endswith("error")]
    if errors:
        first = errors[0]
        column = f", column {first.column}" if first.column else ""
        return f"{first.file} line {first.line}{column}: {first.message}"
    match = _UNPLACED.search(log)
    return (match["message"] or match["link"] or "").strip() if match else ""


def hint_for(log: str) -> str:
    """Return what to do about a failure that `log` makes recognisable, or an empty string."""
    return next((hint for pattern, hint in _HINTS if pattern.search(log)), "")


def missing_runtime(log: str) -> bool:
    """Say whether the link failed for want of functions of the compiler's own runtime library."""
    return any(_RUNTIME.fullmatch(name["name"]) for name in _UNDEFINED.finditer(log))


def bound_log(log: str, *, dropped: int = 0) -> str:
    """Return `log` fit to be shown: printable, at most 100 lines of at most 400 characters.

    The first error is among them.

    Parameters
    ----------
    log
        What the compiler printed.
    dropped
        Bytes that were printed beyond `log`; the last line then says so.
    """
    lines = log.splitlines()
    # Long lists may come before the first error; the log must have it.
    first = next((i for i, line in enumerate(lines) if "error: " in line), 0)
    skipped = range(HEAD_LINES, first if first >= LOG_LINES else HEAD_LINES)
    shown = [_printable(line) for line in lines[: skipped.start]]
    if skipped:
        shown.append(f"[{len(skipped)} lines not shown]")
    rest = lines[skipped.stop :][: LOG_LINES - HEAD_LINES]
    shown += [_printable(line) for line in rest]
    hidden = len(lines) - skipped.stop - len(rest) if rest else 0
    if hidden or dropped:
        more = [f"{hidden} more lines"] if hidden else []
        more += [f"{dropped} more bytes"] if dropped else []
        shown.append(f"[{' and '.join(more)} not shown]")
    return "\n".join(shown)


def _printable(line: str) -> str:
    """Replace what could move a terminal's cursor; cut what is too long."""
    clean = "".join(c if c.isprintable() else " " if c == "\t" else "\ufffd" for c in line)
    if len(clean) <= LINE_CHARACTERS:
        return clean
    return f"{clean[:LINE_CHARACTERS]}[{len(clean) - LINE_CHARACTERS} more characters]"
