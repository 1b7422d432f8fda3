"""Compile source text to a shared library, one or several at once. Keys and storage: `cache.py`.

The compiler runs in the directory of the source and is given relative names, so that the same text
makes the same bytes wherever it is compiled. A binary appears under its name only when it is whole.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from kernelmill.config import get_config
from kernelmill.errors import CompileError, ToolchainError
from kernelmill.toolchain.diagnostics import bound_log, hint_for, missing_runtime, summarise
from kernelmill.toolchain.flags import FAMILIES, SUFFIX, Language, compile_flags, link_flags
from kernelmill.toolchain.memo import own_directory
from kernelmill.toolchain.run import RunResult, clean_environment, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelmill.toolchain.flags import Kind
    from kernelmill.toolchain.host import HostCompiler

__all__ = [
    "CompileRequest",
    "CompileResult",
    "RefusedError",
    "compile_many",
    "compile_shared",
    "compiler_environment",
]

_ELF: Final = b"\x7fELF"
_LIMIT_HINT: Final = "a larger limit, in seconds, can be set in KERNELMILL_CXX_TIMEOUT"
_OTHER_HINT: Final = "another compiler can be named in KERNELMILL_CXX"


class RefusedError(CompileError):
    """The compiler ran to its end and made no library; it would do the same again."""


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """One library of `compile_many`; the fields are the arguments of `compile_shared`."""

    source: str
    out: Path
    language: Language = "c++"
    include_dirs: tuple[Path, ...] = ()
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileResult:
    """A library that was made: where it and its source are, and how it was done.

    `log` is what the compiler said (its warnings), `command` is what was run in the directory of
    `source`, `seconds` is the time from call to return.
    """

    path: Path
    source: Path
    log: str
    seconds: float
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Job:
    """What stays the same over the attempts at one library."""

    request: CompileRequest
    source: Path
    compiler: HostCompiler
    march: str
    limit: float
    scratch: Path
    cancel: Event | None


def compile_shared(
    source: str,
    out: Path,
    *,
    compiler: HostCompiler,
    march: str,
    include_dirs: Sequence[Path] = (),
    extra: Sequence[str] = (),
    language: Language = "c++",
    timeout: float | None = None,
    cancel: Event | None = None,
) -> CompileResult:
    """Compile `source` to the shared library `out`.

    The text is kept beside the library, under the same name with the suffix of its language, also
    when the compiler fails. On failure there is no `out`; one that was there before stays.

    Parameters
    ----------
    source
        The text of the program.
    out
        The file to make; its directory exists.
    compiler
        From `find_host_compiler`.
    march
        The instruction set: `native`, `x86-64-v2`, `x86-64-v3`, `x86-64-v4` or another name that
        the compiler knows.
    include_dirs
        Directories for `#include`.
    extra
        Further arguments; they come after the source, so libraries may be among them.
    language
        `c++` (C++17) or `c` (C11).
    timeout
        Seconds; the setting `cxx_timeout` by default.
    cancel
        Stops the compiler when it is set.

    Raises
    ------
    CompileError
        The compiler reported errors, ran out of time, was killed, made nothing of use, or was
        cancelled; `log` holds at most 100 lines of its output.
    ToolchainError
        The compiler cannot be started at all.

    Examples
    --------
    >>> import ctypes, tempfile
    >>> from pathlib import Path
    >>> from kernelmill.toolchain import compile_shared, find_host_compiler
    >>> text = 'extern "C" __attribute__((visibility("default"))) int two() { return 2; }'
    >>> with tempfile.TemporaryDirectory() as place:
    ...     made = compile_shared(
    ...         text, Path(place) / "two.so", compiler=find_host_compiler(), march="native"
    ...     )
    ...     ctypes.CDLL(str(made.path)).two()
    2
    """
    start = time.monotonic()
    limit = get_config().cxx_timeout if timeout is None else timeout
    request = CompileRequest(source, out, language, tuple(include_dirs), tuple(extra))
    text = out.with_suffix(SUFFIX[language])
    with _scratch(text, source) as scratch:
        job = _Job(request, text, compiler, march, limit, scratch, cancel)
        result = _attempts(job, start + limit)
        log = bound_log(result.output, dropped=result.dropped)
        built = scratch / out.name
        _judge(job, result, log, built)
        built.replace(out)
    return CompileResult(out, text, log, time.monotonic() - start, result.command)


def compile_many(
    requests: Sequence[CompileRequest],
    *,
    compiler: HostCompiler,
    march: str,
    jobs: int | None = None,
    timeout: float | None = None,
) -> tuple[CompileResult, ...]:
    """Compile several libraries at the same time; the results are in the order of `requests`.

    Parameters
    ----------
    requests
        What to make; no two have the same `out`.
    compiler, march, timeout
        As for `compile_shared`; the limit holds for each library.
    jobs
        How many compilers run at once; by default one for each processor of the affinity mask.

    Raises
    ------
    CompileError
        As `compile_shared`; the first failure stops the other compilers.

    Examples
    --------
    >>> from kernelmill.toolchain import compile_many, find_host_compiler
    >>> compile_many([], compiler=find_host_compiler(), march="native")
    ()
    """
    assert len({request.out for request in requests}) == len(requests)
    if not requests:
        return ()
    cancel = Event()
    workers = min(jobs or len(os.sched_getaffinity(0)), len(requests))
    with ThreadPoolExecutor(workers, thread_name_prefix="kernelmill-compile") as pool:
        futures = [
            pool.submit(
                compile_shared,
                request.source,
                request.out,
                compiler=compiler,
                march=march,
                include_dirs=request.include_dirs,
                extra=request.extra,
                language=request.language,
                timeout=timeout,
                cancel=cancel,
            )
            for request in requests
        ]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:  # KeyboardInterrupt too: no compiler outlives the call
            cancel.set()
            for future in futures:
                future.cancel()
            raise
    return tuple(future.result() for future in futures)


# ------------------------------------------------------------------------------ the attempts


@contextmanager
def _scratch(text: Path, source: str) -> Iterator[Path]:
    """Write the source; give a directory beside it for all that the compiler leaves behind."""
    try:
        text.write_text(source, encoding="utf-8")
        scratch = tempfile.TemporaryDirectory(
            prefix=".build-", dir=text.parent, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise CompileError(
            f"cannot write {text} to compile it: {error.strerror}",
            hint="another place can be named in KERNELMILL_CACHE_DIR",
        ) from error
    with scratch as name:
        yield Path(name).absolute()


def _attempts(job: _Job, deadline: float) -> RunResult:
    """Try without the compiler's runtime library first, where its family has that choice."""
    result = _attempt(job, deadline - time.monotonic(), lean=True)
    if FAMILIES[job.compiler.kind].lean and not result.ok and missing_runtime(result.output):
        result = _attempt(job, deadline - time.monotonic(), lean=False)
    return result


def _attempt(job: _Job, timeout: float, *, lean: bool) -> RunResult:
    command = _command(job, lean=lean)
    try:
        return run(
            command,
            timeout=timeout,
            cwd=job.source.parent,
            environment=compiler_environment(job.compiler.kind, job.scratch),
            cancel=job.cancel,
        )
    except OSError as error:
        raise ToolchainError(
            f"cannot run the compiler {command[0]}: {error.strerror}", hint=_OTHER_HINT
        ) from error


def _command(job: _Job, *, lean: bool) -> tuple[str, ...]:
    kind, request = job.compiler.kind, job.request
    here = job.source.parent.absolute()
    includes = [directory.absolute() for directory in request.include_dirs]
    return (
        *job.compiler.command,
        *compile_flags(kind, job.march, language=request.language),
        *link_flags(kind, lean=lean),
        f"-ffile-prefix-map={here}=.",
        *(f"-ffile-prefix-map={directory}={directory.name}" for directory in includes),
        *(f"-I{directory}" for directory in includes),
        "-o",
        f"{job.scratch.name}/{request.out.name}",
        "-x",
        request.language,
        f"./{job.source.name}",
        "-x",
        "none",
        *request.extra,
        "-lm",
    )


def compiler_environment(kind: Kind | None, scratch: Path) -> dict[str, str]:
    """Keep all temporary files of the compiler in `scratch`, and zig's library under our cache."""
    environment = clean_environment(TMPDIR=str(scratch))
    if kind == "zig":
        environment["ZIG_LOCAL_CACHE_DIR"] = str(scratch)
        environment["ZIG_GLOBAL_CACHE_DIR"] = str(_zig_cache(scratch))
    return environment


def _zig_cache(scratch: Path) -> Path:
    """Return where zig keeps what it builds once, and links into what it makes.

    Where our cache cannot serve, it is the scratch directory: slower, never wrong.
    """
    try:
        directory = own_directory(get_config().cache_dir / "zig")
    except OSError:
        return scratch
    return directory if os.access(directory, os.W_OK | os.X_OK) else scratch


# --------------------------------------------------------------------------------- the verdict


def _judge(job: _Job, result: RunResult, log: str, built: Path) -> None:
    """Raise unless the compiler says that it succeeded and left a library."""
    name, file = job.compiler.label, job.source.name
    if result.outcome == "timeout":
        raise CompileError(
            f"{name} did not finish {file} within the limit of {job.limit:g} s",
            log=log,
            hint=_LIMIT_HINT,
        )
    if result.outcome == "flooded":
        size = (len(result.output) + result.dropped) >> 20
        raise CompileError(
            f"{name} was stopped: it had printed {size} MiB of messages on {file}",
            log=log,
            hint=_OTHER_HINT,
        )
    if result.outcome == "cancelled":
        raise CompileError(f"{name} was stopped before it had finished {file}", log=log)
    if result.returncode < 0:
        raise CompileError(
            f"{name} was killed by {_signal(-result.returncode)} while it compiled {file}",
            log=log,
            hint=hint_for(result.output) or "memory may have run out; " + _OTHER_HINT,
        )
    if result.returncode > 0:
        # From all of the output: zig lists every processor it knows before it says what is wrong.
        first = bound_log(summarise(result.output))
        raise RefusedError(
            f"{name} failed on {file} with status {result.returncode}"
            + (f": {first}" if first else ""),
            log=log,
            hint=hint_for(result.output) or f"the source is kept in {job.source}",
        )
    _check_library(job, built, log)


def _check_library(job: _Job, built: Path, log: str) -> None:
    name = job.compiler.label
    try:
        with built.open("rb") as file:
            magic = file.read(len(_ELF))
    except OSError:
        raise RefusedError(
            f"{name} reported success on {job.source.name} but made no file",
            log=log,
            hint=_OTHER_HINT,
        ) from None
    if magic != _ELF:
        raise RefusedError(
            f"{name} reported success on {job.source.name} but what it made is not a shared "
            f"library: it begins with {magic!r}, not with {_ELF!r}",
            log=log,
            hint=_OTHER_HINT,
        )


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
