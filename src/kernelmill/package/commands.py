"""Runs the commands of a build and keeps their log. Which commands, others decide.

Every command runs in the project's directory, with an environment that is the same on each machine,
and a temporary directory of its own.
"""

from __future__ import annotations

import itertools
import shlex
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

from kernelmill.errors import CompileError, ToolchainError
from kernelmill.package.cuda12 import HINT, commands
from kernelmill.package.precompile import with_precompiled
from kernelmill.toolchain.run import RunResult, clean_environment, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelmill.package.cuda12 import Command
    from kernelmill.package.objects import Unit

__all__ = ["Cancelled", "Commands"]

# The largest templates take minutes an architecture; a compiler that hangs ends some time.
_LIMIT: Final = 3600.0
_MANY_LINES: Final = 400
# What helps, by what a compiler says.
_HINTS: Final = {
    "TORCH_TARGET_VERSION is defined": "the stable ABI has the headers below torch/csrc/stable and "
    "torch/headeronly alone; without `stable-abi` all are there, and each torch is built for",
    "torch/csrc/python_headers.h": "torch/extension.h and torch/python.h need more of Python than "
    "its stable ABI: include torch/all.h, and register with TORCH_LIBRARY_EXPAND",
}


class Cancelled(Exception):  # noqa: N818 - no error: somebody asked for the end
    """The build was ended before this command was."""


@dataclass(slots=True)
class Commands:
    """Runs commands for one variant.

    Parameters
    ----------
    root
        The project's directory.
    work
        A temporary directory.
    threads
        How many architectures nvcc compiles at once.
    cancel
        Set when the build is to end.
    precompiled
        Whether the headers of torch that sources include are compiled once, and that is read.
    lines
        The log: each command with its time and its output.
    """

    root: Path
    work: Path
    threads: int = 1
    cancel: Event = field(default_factory=Event)
    precompiled: bool = False
    lines: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    _serial: itertools.count[int] = field(default_factory=itertools.count)

    def run(self, words: Sequence[str], what: str, *, hint: str = "") -> RunResult:
        """Run one command.

        Raises
        ------
        CompileError
            It fails; `log` is its own output.
        Cancelled
            The build is to end.
        """
        with self._temporary() as place:
            settings = clean_environment(SOURCE_DATE_EPOCH="0", TMPDIR=place)
            try:
                done = run(
                    words, timeout=_LIMIT, cwd=self.root, environment=settings, cancel=self.cancel
                )
            except OSError as error:
                raise ToolchainError(f"{words[0]} cannot be run: {error.strerror}") from error
        self._note(done)
        if done.outcome == "cancelled":
            raise Cancelled
        if not done.ok:
            helps = hint or next((h for word, h in _HINTS.items() if word in done.output), "")
            raise CompileError(f"{what} {_ending(done)}", log=_first_lines(done.output), hint=helps)
        return done

    @contextmanager
    def _temporary(self) -> Iterator[str]:
        """Give a directory whose name nvcc can hand to a shell: it does not quote it there."""
        own = str(self.work)
        if shlex.quote(own) == own:
            yield own
            return
        with tempfile.TemporaryDirectory(prefix="kernelmill-", dir="/tmp") as place:
            yield place

    def _note(self, done: RunResult) -> None:
        text = f"[{done.seconds:7.2f} s] {shlex.join(done.command)}\n{done.output}"
        with self._lock:
            self.lines.append(text.rstrip("\n"))

    # ------------------------------------------------------------------------- compilation

    def compile_unit(self, unit: Unit, out: Path, headers: Path) -> str:
        """Compile a unit to `out`, write what it read to `headers`; return what was said."""
        what = f"{unit.source} was not compiled:"
        if unit.by_nvrtc:
            return self._compile_by_nvrtc(unit, out, headers, what)
        threads = [f"--threads={self.threads}"] if unit.cuda else []
        listing = ["-MD", "-MF", str(headers)]
        command = unit.command
        if self.precompiled and unit.cuda is None:
            command = with_precompiled(unit, self.root, self.run)
        words = [*command, *threads, *listing, "-c", unit.source, "-o", str(out)]
        return self.run(words, what).output

    def _compile_by_nvrtc(self, unit: Unit, out: Path, headers: Path, what: str) -> str:
        assert unit.cuda is not None
        programs, flags = _split(unit.command)
        with self._temporary() as base:  # nor does fatbinary take a comma or a space
            place = Path(base) / f"cuda12-{next(self._serial)}"
            place.mkdir()
            steps = commands(
                unit.source, place, out, cuda=unit.cuda, host=programs, flags=flags,
                device_flags=unit.device_flags, archs=unit.archs,
            )  # fmt: skip
            first = steps[0].words
            listing = ["-MD", "-MF", str(headers), "-MT", str(out)]
            said = [self.run([*first[:-3], *listing, *first[-3:]], what).output]
            return "".join([*said, *self._steps(steps[1:], what)])

    def _steps(self, steps: Sequence[Command], what: str) -> Iterator[str]:
        """Run steps in their order, those of the device beside each other."""
        device = [step for step in steps if step.device]
        for step in steps:
            if step is device[0]:
                with ThreadPoolExecutor(self.threads) as pool:
                    yield from pool.map(lambda s: self.run(s.words, what, hint=HINT).output, device)
            elif step.edit is not None:
                step.edit()
            elif not step.device:
                yield self.run(step.words, what).output

    def preprocess(self, unit: Unit) -> bytes:
        """Return the text that the compiler sees, for each architecture if there are several."""
        what = f"{unit.source} was not preprocessed:"
        number = next(self._serial)

        def text(words: Sequence[str], index: int) -> bytes:
            out = self.work / f"text-{number}-{index}"
            self.run([*words, "-E", unit.source, "-o", str(out)], what)
            return out.read_bytes()

        if unit.cuda is None:
            return text([*unit.command, "-P"], 0)
        base = [word for word in unit.command if not word.startswith("-gencode=")]
        with ThreadPoolExecutor(self.threads) as pool:
            ways = [[*base, f"-gencode=arch=compute_{a.sm},code=sm_{a.sm}"] for a in unit.archs]
            return b"\0".join(pool.map(text, ways, range(len(ways))))


def _split(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divide the host compiler's own words from the flags; the first flag is the standard."""
    at = next(i for i, word in enumerate(command) if word.startswith("-std="))
    return list(command[:at]), list(command[at:])


def _ending(done: RunResult) -> str:
    if done.outcome == "timeout":
        return f"it took longer than {_LIMIT:g} s"
    if done.outcome == "flooded":
        return "the compiler did not stop printing"
    if done.returncode < 0:
        return f"the compiler was ended by signal {-done.returncode}"
    return "the compiler reports"


def _first_lines(output: str) -> str:
    lines = output.splitlines()
    left = len(lines) - _MANY_LINES
    more = [f"... {left} more lines in the log of the build"] if left > 0 else []
    return "\n".join([*lines[:_MANY_LINES], *more])
