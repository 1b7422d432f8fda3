"""NVIDIA's compiler libraries as wheels bring them: found, imported, identified. Compiles nothing.

They need neither a driver nor a GPU. Which of several libraries it is, `places.py` decides; what
stands for a library is the file that was loaded, and `found_via` says how it was found.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import MissingExtraError
from kernelmill.toolchain.memo import stamp
from kernelmill.toolchain.places import (
    Place,
    Wanted,
    bindings_major,
    driver_version,
    header_places,
    in_order,
    is_loaded,
    library_places,
)

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = [
    "HeaderDirectory",
    "NvidiaLibrary",
    "bindings",
    "choices",
    "load_library",
    "state_of",
    "toolkit_headers",
]

# Library: the wheel that brings it with CUDA 13; with CUDA 12 its name ends in -cu12.
_WHEELS: Final = {
    "nvrtc": "nvidia-cuda-nvrtc",
    "nvJitLink": "nvidia-nvjitlink",
    "cudart": "nvidia-cuda-runtime",
}
_HEADER: Final = "cuda_runtime_api.h"
_PIP: Final = "pip install 'kernelmill[{}]'"


@dataclass(frozen=True, slots=True)
class NvidiaLibrary:
    """A library in this process: its file, how it was found, and what tells its state apart.

    `found_via` is "site-packages" for a wheel; `stamps` hold size and mtime of the files.
    """

    name: str
    path: str
    found_via: str
    stamps: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class HeaderDirectory:
    """Where `cuda_fp16.h` and its like are; `identity` changes when they do."""

    path: Path
    found_via: str
    identity: tuple[str, int, int]


def _extra() -> str:
    """Return the extra that fits what is installed: that of CUDA 13 where nothing is."""
    return "cuda12" if bindings_major() == 12 else "cuda13"  # noqa: PLR2004 - a version of CUDA


def _missing(what: str, found: str) -> NoReturn:
    raise MissingExtraError(f"{what}: {found}", hint=_PIP.format(_extra()))


def bindings(module: str) -> Any:  # Any: it may be absent, so nothing is known of it beforehand
    """Import `cuda.bindings.<module>`.

    Raises
    ------
    MissingExtraError
        The package is not installed, or is too old to have the module.
    """
    try:
        return importlib.import_module(f"cuda.bindings.{module}")
    except ImportError as error:
        _missing("compiling for CUDA needs the package cuda-bindings", str(error))


# ----------------------------------------------------------------------------- libraries


def choices(name: str) -> list[Place]:
    """Return where `nvrtc` or `nvJitLink` may come from, what is taken first; loads nothing."""
    version = driver_version()
    only = None
    if name == "nvJitLink":
        only = is_loaded("nvrtc") or choices("nvrtc")[0].major
    wanted = Wanted(version[0] if version else None, bindings_major(), only)
    return in_order(library_places(name), wanted)


@once
def load_library(name: str) -> NvidiaLibrary:
    """Load `nvrtc` or `nvJitLink` and say which file it is.

    Raises
    ------
    MissingExtraError
        It is neither in a wheel nor on the system.
    """
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
    except ImportError as error:
        _missing("compiling for CUDA needs the package cuda-bindings", str(error))
    # The bindings take what the process has already, and else would look in site-packages alone,
    # for the newest.
    chosen = None if is_loaded(name) else _loaded_first(name)
    try:
        loaded = pathfinder.load_nvidia_dynamic_lib(name)
    except pathfinder.DynamicLibNotFoundError as error:
        first = str(error).strip().partition("\n")[0]
        _missing(f"the library {name} was not found (wheel {_WHEELS[name]})", first)
    path = str(loaded.abs_path)
    via = chosen.found_via if chosen is not None else str(loaded.found_via)
    return NvidiaLibrary(name, path, via, state_of(path, name))


def state_of(path: str, name: str) -> tuple[tuple[str, int, int], ...]:
    """Return size and mtime of the files of a library: built-in headers lie in a second one."""
    library = Path(path)
    stamps = [stamp(str(file)) for file in (library, *_built_in(library, name))]
    return tuple((Path(s[0]).name, s[1], s[2]) for s in stamps if s is not None)


def _loaded_first(name: str) -> Place | None:
    """Load the first of the choices that can be; None where there is none."""
    for place in choices(name):
        try:
            for file in _built_in(Path(place.path), name):
                ctypes.CDLL(str(file), os.RTLD_NOW | os.RTLD_GLOBAL)
            ctypes.CDLL(place.path, os.RTLD_NOW | os.RTLD_GLOBAL)
        except OSError:
            continue
        return place
    return None


def _built_in(library: Path, name: str) -> list[Path]:
    """Return the second file of a library, which some versions do not find by themselves."""
    return sorted(library.parent.glob(f"lib{name}-builtins.so*")) if library.is_absolute() else []


# ----------------------------------------------------------------------------- headers


@once
def toolkit_headers() -> HeaderDirectory | None:
    """Return the directory of the CUDA headers, or None where there is none.

    Those of the version that NVRTC is of come first.
    """
    nvrtc = is_loaded("nvrtc") or choices("nvrtc")[0].major
    places = header_places("cudart", _HEADER)
    if places:
        place = min(places, key=lambda place: place.major != nvrtc)
        return _directory(Path(place.path), place.found_via)
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
    except ImportError:
        return None
    found = pathfinder.locate_nvidia_header_directory("cudart")
    if found is None or found.abs_path is None:
        return None
    return _directory(Path(found.abs_path), str(found.found_via))


def _directory(path: Path, found_via: str) -> HeaderDirectory | None:
    state = stamp(str(path / _HEADER))
    if state is None:
        return None
    return HeaderDirectory(path, found_via, (path.name, state[1], state[2]))
