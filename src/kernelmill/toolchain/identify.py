"""Ask a compiler what it is, and have it make one library. Finding one is in `host.py`.

This is the slow path: it runs once for a state of the compiler's files, then `host.py` remembers.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from kernelmill.config import get_config
from kernelmill.errors import CompileError
from kernelmill.toolchain.compile import RefusedError, compile_shared, compiler_environment
from kernelmill.toolchain.diagnostics import bound_log, summarise
from kernelmill.toolchain.host import HostCompiler, Rejection
from kernelmill.toolchain.run import RunResult, run

if TYPE_CHECKING:
    from kernelmill.toolchain.flags import Kind

__all__ = ["Examined", "examine"]

Env = dict[str, str]

# A compiler says its version in milliseconds; a disk that has to wake up may add some seconds.
_ANSWER_SECONDS: Final = 30.0
_TRIAL_SECONDS: Final = 120.0

_BANNER: Final = re.compile(
    r"^(?:.*\s)?(?P<kind>gcc|clang) version (?P<version>\d\S*)", re.MULTILINE
)
_TARGET: Final = re.compile(r"^Target: (?P<target>\S+)", re.MULTILINE)
_ZIG_VERSION: Final = re.compile(r"^(?P<version>\d+\.\d+\.\S+)$", re.MULTILINE)
# zig adds the version of the running kernel, which must not decide whether a binary is reused.
_KERNEL_VERSION: Final = re.compile(r"(?<=-linux)[\d.]+")

# The program behind a driver or a wrapper (ccache, a shell script): when it changes, what comes
# out changes, though the file that is called stays the same.
_INNER: Final = {"gcc": "cc1plus", "clang": "clang"}

# The link needs the C library and libm; nothing is included, as in all code that we generate.
_TRIAL: Final = """\
static_assert(sizeof(void *) == 8, "64-bit code is needed");
extern "C" double log2(double);
extern "C" __attribute__((visibility("default"))) double km_trial(double x, double y, double z) {
    return __builtin_fma(x, y, log2(z));
}
"""
_SELF: Final = Path("/proc/self/exe")
_ELF_HEADER: Final = 20


@dataclass(frozen=True, slots=True)
class Examined:
    """What a compiler said of itself; `parts` are its files beyond the program that is called."""

    kind: Kind
    version: str
    target: str
    parts: tuple[str, ...]


def examine(asked: str, kind: Kind | None, command: tuple[str, ...]) -> Examined | Rejection:
    """Run the compiler to learn its family, version and target, and let it make one library.

    Parameters
    ----------
    asked
        What the candidate is called in texts.
    kind
        `zig`, or None for a compiler that will say what it is.
    command
        The program and its first arguments.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="kernelmill-") as place:
            environment = compiler_environment(kind, Path(place))
            ask = _ask_zig if kind == "zig" else _ask
            found = ask(asked, command, environment)
            if isinstance(found, Rejection):
                return found
            return _try(asked, command, found, Path(place)) or found
    except OSError as error:
        return Rejection(asked, f"there is no place to try it in: {error}")


def _ask(asked: str, command: tuple[str, ...], environment: Env) -> Examined | Rejection:
    answer = _answer(asked, (*command, "-v"), environment)
    if isinstance(answer, Rejection):
        return answer
    banner, target = _BANNER.search(answer.output), _TARGET.search(answer.output)
    if banner is None or target is None:
        return Rejection(
            asked,
            f"{command[0]} -v names neither gcc nor clang: {_first_line(answer)}",
            lasting=True,
        )
    kind = banner["kind"]
    inner = _answer(asked, (*command, f"-print-prog-name={_INNER[kind]}"), environment)
    path = inner.output.strip() if isinstance(inner, RunResult) else ""
    return Examined(
        kind=cast("Kind", kind),
        version=banner["version"],
        target=target["target"],
        parts=(path,) if os.path.isabs(path) else (),  # noqa: PTH117 - text of a compiler
    )


def _ask_zig(asked: str, command: tuple[str, ...], environment: Env) -> Examined | Rejection:
    program = command[: command.index("cc")]
    answer = _answer(asked, (*program, "version"), environment)
    if isinstance(answer, Rejection):
        return answer
    version = _ZIG_VERSION.search(answer.output)
    banner = _answer(asked, (*command, "--version"), environment)
    if isinstance(banner, Rejection):
        return banner
    target = _TARGET.search(banner.output)
    if version is None or target is None:
        odd = answer if version is None else banner
        return Rejection(asked, f"{program[0]} is not zig: {_first_line(odd)}", lasting=True)
    return Examined(
        kind="zig",
        version=version["version"],
        target=_KERNEL_VERSION.sub("", target["target"]),
        parts=(),
    )


def _answer(asked: str, command: tuple[str, ...], environment: Env) -> RunResult | Rejection:
    """Run the compiler for something that it prints."""
    question = " ".join(command)
    try:
        result = run(command, timeout=_ANSWER_SECONDS, environment=environment)
    except OSError as error:
        return Rejection(asked, f"{command[0]} cannot be run: {error.strerror}")
    if result.outcome == "timeout":
        return Rejection(asked, f"{question} did not answer within {_ANSWER_SECONDS:g} s")
    if result.outcome != "exited":
        return Rejection(asked, f"{question} does not stop printing")
    if result.returncode != 0:
        status = f"status {result.returncode}" if result.returncode > 0 else "a signal"
        return Rejection(asked, f"{question} ended with {status}: {_first_line(result)}")
    return result


def _first_line(result: RunResult) -> str:
    lines = bound_log(result.output.strip()).splitlines()
    return repr(lines[0]) if lines else "it printed nothing"


def _try(asked: str, command: tuple[str, ...], found: Examined, place: Path) -> Rejection | None:
    """Have the compiler make a library, and see that it is for the machine that we run on."""
    compiler = HostCompiler(found.kind, command, found.version, found.target, "")
    try:
        made = compile_shared(
            _TRIAL,
            place / "trial.so",
            compiler=compiler,
            march="native",
            timeout=min(_TRIAL_SECONDS, get_config().cxx_timeout),
        )
    except CompileError as error:
        detail = summarise(error.log) or error.message
        lasting = isinstance(error, RefusedError)
        return Rejection(asked, f"{command[0]} cannot make a shared library: {detail}", lasting)
    ours = _machine(_SELF)
    if ours and _machine(made.path) != ours:
        reason = f"{command[0]} makes code for another machine ({found.target})"
        return Rejection(asked, reason, lasting=True)
    return None


def _machine(path: Path) -> bytes:
    """Return what tells machines apart in an ELF header: class, byte order, machine number."""
    try:
        with path.open("rb") as file:
            header = file.read(_ELF_HEADER)
    except OSError:
        return b""  # no /proc: what comes out cannot be compared
    return header[4:6] + header[18:20]
