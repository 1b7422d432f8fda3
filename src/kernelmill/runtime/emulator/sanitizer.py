"""Launches that are looked at: in a child process, on copies of the arrays, reported as an error.

The child (`nursery.py`, kept by `parents.py`) gets a job file and memory that holds the arrays; it
leaves their new bytes, its status and the reports. A crash there is one more report.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from kernelmill.errors import ArgumentError, DeviceError
from kernelmill.runtime.emulator.build import build_runtime
from kernelmill.runtime.emulator.launches import raise_for
from kernelmill.runtime.emulator.parents import Nursery
from kernelmill.runtime.emulator.reports import Array, Report, SanitizerError, read_reports
from kernelmill.runtime.emulator.schedule import current_schedule
from kernelmill.runtime.emulator.symbols import arrays_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernelmill.runtime.emulator.launches import Geometry
    from kernelmill.runtime.emulator.parents import Memory
    from kernelmill.runtime.memory import View

__all__ = [
    "Given",
    "Job",
    "Sanitizer",
    "current_sanitizer",
    "run_job",
    "sanitized",
    "symbols_for",
]

InitCheck: TypeAlias = Literal["none", "global", "all"]
INITCHECKS: Final[tuple[InitCheck, ...]] = get_args(InitCheck)
# Arrays lie apart, so that what runs out of one does not run into the next.
_GAP: Final = 4096
_ALIGNED: Final = 256
_CRASHED: Final = 66
_FAST: Final = Path("/dev/shm")  # noqa: S108 - memory that looks like files, private ones below


@dataclass(frozen=True, slots=True)
class Sanitizer:
    """How launches are looked at.

    Parameters
    ----------
    strict
        Report plain reads beside atomic writes too. Compare-and-swap loops begin with such a read.
    initcheck
        Which reads of what was never written are reported: "all", those of "global" memory, or
        "none". Tiles whose tail is loaded and thrown away are read so.
    timeout
        Seconds that one launch may take.
    """

    strict: bool = False
    initcheck: InitCheck = "all"
    timeout: float = 120.0

    def __post_init__(self) -> None:
        if self.initcheck not in INITCHECKS:
            raise ArgumentError(
                f"initcheck {self.initcheck!r} does not exist; accepted: {', '.join(INITCHECKS)}"
            )

    def settings(self) -> dict[str, Any]:
        """Return what the runtime is told."""
        return {"strict": self.strict, "initcheck": INITCHECKS.index(self.initcheck)}


_CURRENT: ContextVar[Sanitizer | None] = ContextVar("kernelmill_sanitizer", default=None)


def current_sanitizer() -> Sanitizer | None:
    """Return how launches in this context are looked at; None where they are not."""
    return _CURRENT.get()


@contextmanager
def sanitized(sanitizer: Sanitizer | None = None) -> Iterator[Sanitizer]:
    """Look at the launches inside the `with`.

    Each then runs in a process of its own; what is found raises `SanitizerError`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> from kernelmill.runtime.emulator import SanitizerError, compile_emulated, sanitized
    >>> text = 'extern "C" __global__ void f(float* x) { x[threadIdx.x + 1] = 0; }'
    >>> kernel = compile_emulated(text, name="f.cu").get_kernel("f")
    >>> with sanitized():
    ...     try:
    ...         km.launch(None, km.LaunchConfig(1, 8), kernel, np.ones(8, np.float32))
    ...     except SanitizerError as error:
    ...         found = error.reports[0]
    >>> print(found.kind, found.place, f"{found.array}[{found.index}]", found.thread)
    out of bounds f.cu:1 x[8] (7, 0, 0)
    """
    chosen = sanitizer or Sanitizer()
    token = _CURRENT.set(chosen)
    try:
        yield chosen
    finally:
        _CURRENT.reset(token)


@dataclass(frozen=True, slots=True)
class Given:
    """An array that a kernel is given, with the name that reports call it by."""

    name: str
    view: View
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One launch; `pointers` are (argument, offset in its bytes, array, offset in the array).

    `texts` are the sources by their names; `others` the kernels of the library that do not run.
    """

    kernel: str
    library: Path
    number: int
    values: Sequence[bytes]
    pointers: Sequence[tuple[int, int, int, int]]
    arrays: Sequence[Given]
    grid: Geometry
    block: Geometry
    shared: int
    cooperative: bool
    texts: Mapping[str, str] = field(repr=False)
    others: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Span:
    """Bytes of the host that arrays lie in, and where their copy is; overlapping ones share it."""

    low: int
    high: int
    arrays: list[int]
    offset: int = 0


def run_job(job: Job, sanitizer: Sanitizer) -> None:
    """Run a launch in a child process and copy what it wrote back.

    Raises
    ------
    SanitizerError
        Something was found.
    DeviceError
        The launch failed otherwise, or took too long.
    """
    spans = _spans(job.arrays)
    size = spans[-1].offset + spans[-1].high - spans[-1].low + _GAP if spans else _GAP
    nursery = _nursery(build_runtime(sanitize=True))
    with (
        nursery.lock,
        tempfile.TemporaryDirectory(prefix="kernelmill-", dir=_place(size)) as name,
        nursery.memory(size, Path(name)) as memory,
    ):
        folder = Path(name)
        for span in spans:
            ctypes.memmove(memory.base + span.offset, span.low, span.high - span.low)
        described = {**_described(job, spans, sanitizer, nursery), "memory": (memory.number, size)}
        (folder / "job.json").write_text(json.dumps(described))
        status = _run(job, folder, size, sanitizer, nursery)
        reports = _reports(job, folder)
        _copy_out(spans, job.arrays, memory)
    if reports:
        raise SanitizerError(job.kernel, reports, schedule=str(current_schedule()))
    raise_for(job.kernel, *status)


def _spans(arrays: Sequence[Given]) -> list[_Span]:
    order = sorted(range(len(arrays)), key=lambda i: arrays[i].view.bounds)
    spans: list[_Span] = []
    for i in order:
        low, high = arrays[i].view.bounds
        if spans and low < spans[-1].high:
            spans[-1].high = max(spans[-1].high, high)
            spans[-1].arrays.append(i)
        else:
            spans.append(_Span(low, high, [i]))
    at = _GAP
    for span in spans:
        span.offset = at + span.low % 16  # vectors are aligned there as they are here
        at = -(-(span.offset + span.high - span.low + _GAP) // _ALIGNED) * _ALIGNED
    return spans


def _place(size: int) -> Path | None:
    """Return where the job goes: memory that looks like files, where there is enough of it."""
    enough = _FAST.is_dir() and 2 * size < shutil.disk_usage(_FAST).free
    return _FAST if enough else None


def _copy_out(spans: Sequence[_Span], arrays: Sequence[Given], memory: Memory) -> None:
    for span in spans:
        if all(arrays[i].constant or arrays[i].view.readonly for i in span.arrays):
            continue
        ctypes.memmove(span.low, memory.base + span.offset, span.high - span.low)


def _described(
    job: Job, spans: Sequence[_Span], sanitizer: Sanitizer, nursery: Nursery
) -> dict[str, Any]:
    where = {i: span for span in spans for i in span.arrays}
    pointers = [
        (argument, at, where[i].offset + job.arrays[i].view.ptr - where[i].low + delta)
        for argument, at, i, delta in job.pointers
    ]
    schedule = current_schedule()
    return {
        "library": str(job.library),
        "runtime": str(nursery.runtime),
        "number": job.number,
        "values": [value.hex() for value in job.values],
        "pointers": pointers,
        "arrays": [
            (span.offset, span.high - span.low, job.arrays[span.arrays[0]].name) for span in spans
        ],
        "grid": job.grid,
        "block": job.block,
        "shared": job.shared,
        "cooperative": job.cooperative,
        "checks": sanitizer.settings(),
        "schedule": (schedule.order, schedule.seed, schedule.blocks, schedule.patience),
        "symbols": _symbols_of_job(job.library, job.others),
    }


def symbols_for(
    library: Path, others: frozenset[str] = frozenset()
) -> list[tuple[bool, int, int, str]]:
    """Return the arrays of a library, but for those of kernels that do not run.

    In the form that the child passes to the runtime.
    """
    return [(s.shared, s.at, s.nbytes, s.name) for s in arrays_of(library) if s.owner not in others]


_symbols_of_job = cache(symbols_for)


def _run(
    job: Job, folder: Path, size: int, sanitizer: Sanitizer, nursery: Nursery
) -> tuple[int, str]:
    """Run the job in a child; return the status of the launch and its message."""
    ended = nursery.run(folder, size, sanitizer.timeout)
    sys.stdout.write((folder / "stdout").read_text(errors="replace"))
    if ended is None:
        raise DeviceError(
            f"kernel {job.kernel!r} did not end within {sanitizer.timeout:g} s under the sanitizer",
            hint="launch a smaller grid, or give it more time: Sanitizer(timeout=...)",
        )
    result = folder / "result.json"
    if result.exists():
        status, message = json.loads(result.read_text())
        return int(status), str(message)
    if ended == _CRASHED:
        return 0, ""  # it is among the reports
    said = (folder / "stderr").read_text(errors="replace").strip()
    raise DeviceError(
        f"the process that ran kernel {job.kernel!r} ended with status {ended}: {said[-2000:]}"
    )


_KEPT: dict[int, Nursery] = {}


def _nursery(runtime: Path) -> Nursery:
    """Return that of this process; one that has ended, or has another runtime, is replaced."""
    found = _KEPT.get(os.getpid())
    if found is None or not found.is_alive or found.runtime != runtime:
        if found is not None:
            found.close()
        _KEPT.clear()
        found = _KEPT[os.getpid()] = Nursery(runtime)
    return found


def _reports(job: Job, folder: Path) -> list[Report]:
    arrays = {
        given.name: Array(given.name, given.view.dtype.itemsize, given.view.shape)
        for given in job.arrays
    }
    path = folder / "reports"
    if not path.exists():
        return []
    return read_reports(path, job.library, list(job.texts), arrays, job.texts)
