"""What this installation has and lacks, as facts; what `kernelmill doctor` shows.

Nothing is printed here, no device is opened, and only `warm` compiles. What distributions are
installed, and which are in each other's way, is found in `installed.py`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import stat
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kernelmill import events
from kernelmill.algorithms.capabilities import absence
from kernelmill.cache import CacheInfo, default_cache
from kernelmill.config import UnknownVariable, get_config, unknown_variables
from kernelmill.errors import KernelmillError
from kernelmill.installed import (
    BINDINGS,
    DISTRIBUTION,
    extras,
    find_conflicts,
    install_line,
    installed,
    names_of,
    requirements_of,
    version_of,
)
from kernelmill.runtime.calibrate import HostCache, host_caches
from kernelmill.runtime.native import NativeStatus, native_status
from kernelmill.toolchain import HostCompiler, host_cpu, missing_features, survey_host_compilers
from kernelmill.toolchain.nvidia import load_library
from kernelmill.toolchain.nvjitlink import nvjitlink_version
from kernelmill.toolchain.nvrtc import nvrtc_version
from kernelmill.toolchain.places import driver_version

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernelmill.installed import Conflict, Extra

__all__ = [
    "Compiler",
    "Cpu",
    "Cuda",
    "CudaLibrary",
    "Folder",
    "Report",
    "Warmth",
    "clear_folders",
    "examine",
    "folders",
    "warm",
]

# ----------------------------------------------------------------------------- devices


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor: `threads` run kernels, `instruction_set` is what code is compiled for."""

    model: str
    threads: int
    instruction_set: str
    march: str
    caches: tuple[HostCache, ...]


@dataclass(frozen=True, slots=True)
class CudaLibrary:
    """NVRTC or nvJitLink: its `version`, the file that is taken, and how that was found.

    All but the name are "" where there is none.
    """

    name: str
    version: str
    path: str
    found_via: str


@dataclass(frozen=True, slots=True)
class Cuda:
    """What is there for CUDA: `driver` and `bindings` are "" where they are not found.

    `version` is that of CUDA which the driver is for; it decides which `libraries` are taken.
    """

    driver: str
    bindings: str
    reason: str
    version: str = ""
    libraries: tuple[CudaLibrary, ...] = ()


_LEVELS: Final = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
_DRIVER: Final = "libcuda.so.1"
_VERSIONS: Final = {"nvrtc": nvrtc_version, "nvJitLink": nvjitlink_version}


def _cpu() -> Cpu:
    cpu, config = host_cpu(), get_config()
    levels = (level for level in _LEVELS if not missing_features(level, cpu))
    known = next(levels, "x86-64") if cpu.machine == "x86_64" else cpu.machine
    return Cpu(cpu.model, config.threads(), known, config.march, host_caches())


def _cuda() -> Cuda:
    bindings = version_of(BINDINGS) if _is_there("cuda.bindings") else ""
    found = driver_version()
    version = ".".join(map(str, found)) if found else ""
    libraries = tuple(_library(name, ask) for name, ask in _VERSIONS.items())
    return Cuda(_driver(), bindings, absence("cuda"), version, libraries)


def _library(name: str, ask: Callable[[], tuple[int, int]]) -> CudaLibrary:
    """Load a library of NVIDIA's, as the first kernel for CUDA does."""
    try:
        found, version = load_library(name), ask()
    except KernelmillError:
        return CudaLibrary(name, "", "", "")
    return CudaLibrary(name, ".".join(map(str, version)), found.path, found.found_via)


def _driver() -> str:
    """Load the driver library, which does nothing by itself."""
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return ""
    return _DRIVER


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


# ----------------------------------------------------------------------------- the rest


@dataclass(frozen=True, slots=True)
class Compiler:
    """A candidate: `name` and where it is, or why it cannot be used."""

    name: str
    kind: str
    target: str
    command: tuple[str, ...]
    reason: str
    chosen: bool


def _compilers() -> tuple[Compiler, ...]:
    rows: list[Compiler] = []
    for found in survey_host_compilers():
        if isinstance(found, HostCompiler):
            first = not any(row.chosen for row in rows)
            rows.append(
                Compiler(found.label, found.kind, found.target, found.command, "", chosen=first)
            )
        else:
            rows.append(Compiler(found.asked, "", "", (), found.reason, chosen=False))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder beside the bundles; `kept` says why `clear_folders` left it."""

    path: Path
    holds: str
    files: int
    bytes: int
    kept: str = ""


_FOLDERS: Final = (
    ("toolchain", "what is known of compilers"),
    ("zig", "what zig builds once"),
)
_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def folders(root: Path) -> tuple[Folder, ...]:
    """Return the folders that the toolchain keeps in the cache directory, as far as they exist."""
    return tuple(
        Folder(root / name, holds, *_weigh(root / name))
        for name, holds in _FOLDERS
        if (root / name).is_dir()
    )


def _weigh(directory: Path) -> tuple[int, int]:
    """Return how many files there are below a directory, and their bytes."""
    files = size = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                size += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 - there may be many
            except FileNotFoundError:
                continue  # another process has just removed it
            files += 1
    return files, size


def clear_folders(root: Path) -> tuple[Folder, ...]:
    """Remove the folders that the toolchain made in the cache directory; return what they held.

    It makes them for one user alone. One that others may enter was made by somebody else, though
    it has the name, and stays.
    """
    return tuple(_cleared(folder) for folder in folders(root))


def _cleared(folder: Folder) -> Folder:
    status = folder.path.lstat()
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not own or status.st_mode & _OF_OTHERS:
        return _kept(folder, "it is not a directory of this user alone")
    try:
        shutil.rmtree(folder.path)
    except OSError as error:
        return _kept(folder, f"{error.strerror} ({error.filename})")
    return folder


def _kept(folder: Folder, reason: str) -> Folder:
    return Folder(folder.path, folder.holds, folder.files, folder.bytes, reason)


@dataclass(frozen=True, slots=True)
class Warmth:
    """What `warm` did: seconds in all, and how many kernels had to be compiled."""

    seconds: float
    compiled: int


def warm() -> Warmth:
    """Make the first call of a new process quick: find a compiler, compile and run a kernel.

    Raises CompileError when that fails.
    """
    import numpy as np  # noqa: PLC0415 - this and the next only where a kernel is run

    from kernelmill.algorithms.transform import transform  # noqa: PLC0415

    start = time.perf_counter()
    with events.listen("compile") as compiled:
        transform(np.zeros(1, np.float32), lambda x: x + 1)
    return Warmth(time.perf_counter() - start, len(compiled))


# ----------------------------------------------------------------------------- all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All facts; `missing` are lines for the shell that install what is not there."""

    version: str
    python: str
    platform: str
    cpu: Cpu
    cuda: Cuda
    emulator: str
    compilers: tuple[Compiler, ...]
    extras: tuple[Extra, ...]
    conflicts: tuple[Conflict, ...]
    cache: CacheInfo
    folders: tuple[Folder, ...]
    native: NativeStatus
    unknown_variables: tuple[UnknownVariable, ...]
    missing: tuple[str, ...]
    warmth: Warmth | None = field(default=None)

    @property
    def has_compiler(self) -> bool:
        """Whether kernels can be compiled here."""
        return any(compiler.chosen for compiler in self.compilers)


def examine(*, warmth: Warmth | None = None) -> Report:
    """Gather the facts; `warmth` is what `warm` returned, when it ran before."""
    requirements = requirements_of(DISTRIBUTION)
    found = installed(names_of(requirements))
    rows = extras(requirements, found)
    compilers = _compilers()
    cuda = _cuda()
    return Report(
        version=version_of(DISTRIBUTION),
        python=platform.python_version(),
        platform=f"{sys.platform} {platform.machine()}",
        cpu=_cpu(),
        cuda=cuda,
        emulator=absence("emulator"),
        compilers=compilers,
        extras=rows,
        conflicts=find_conflicts(found),
        cache=default_cache().info(),
        folders=folders(get_config().cache_dir),
        native=native_status(),
        unknown_variables=unknown_variables(),
        missing=_missing(rows, compilers, cuda),
        warmth=warmth,
    )


def _missing(
    rows: tuple[Extra, ...], compilers: tuple[Compiler, ...], cuda: Cuda
) -> tuple[str, ...]:
    """Return one line for all that is missing; of the extras for CUDA one serves, with a driver."""
    absent = [row.name for row in rows if not row.complete]
    of_cuda = [row for row in rows if row.name.startswith("cuda")]
    begun = [row.name for row in of_cuda if any(need.version for need in row.needs)]
    served = not cuda.driver or any(row.complete for row in of_cuda)
    wanted = [] if served else (begun or ["cuda13"])[-1:]
    names = [n for n in absent if n in wanted or not n.startswith("cuda")]
    if any(compiler.chosen for compiler in compilers):
        names = [n for n in names if n != "zig"]
    return (install_line(*names),) if names else ()
