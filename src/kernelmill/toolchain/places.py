"""Where NVIDIA's libraries are, and which of several is the one: by the driver, then by the place.

A machine may have those of CUDA 12 and 13. The first rule is that the driver takes what they make,
the second that what Python's own path holds comes before what the system has, the third that they
are of the version that the bindings are made for. Nothing is loaded here but, to ask for its
version, the driver.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.config import child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = [
    "WHEEL",
    "Place",
    "Wanted",
    "bindings_major",
    "driver_version",
    "header_places",
    "in_order",
    "is_loaded",
    "library_places",
]

# How what lies on Python's path was found, and what the loader of the system looks for itself.
WHEEL: Final = "site-packages"
SYSTEM: Final = "system-search"
# Library: the directory below `nvidia/` in wheels of CUDA 12; from 13 on it is cu13/lib for all.
_TWELVE: Final = {"nvrtc": "cuda_nvrtc", "nvJitLink": "nvjitlink", "cudart": "cuda_runtime"}
_MAJORS: Final = (13, 12)
_WHEEL_OF: Final = re.compile(r"cu(\d+)", re.ASCII)
_ROOTS: Final = ("lib64", "lib", f"targets/{os.uname().machine}-linux/lib")
_DRIVER: Final = "libcuda.so.1"


@dataclass(frozen=True, slots=True)
class Place:
    """A file, or a name that the system's loader may know; its major version, and how it is found.

    `found_via` is "site-packages" for what lies on Python's path, as wheels do, "conda",
    "CUDA_PATH" or "system-search".
    """

    path: str
    major: int
    found_via: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What decides between several: what the driver takes at most, and who calls the library.

    Either is None where it is not known. `only` is the one major version that will do: nvJitLink
    reads LTO-IR of its own alone.
    """

    driver: int | None = None
    bindings: int | None = None
    only: int | None = None

    def rank(self, place: Place) -> tuple[bool, bool, bool, bool]:
        """Return what is against a place, the weightiest first; of equals, the first one counts."""
        return (
            self.only is not None and place.major != self.only,
            self.driver is not None and place.major > self.driver,
            place.found_via != WHEEL,
            self.bindings is not None and place.major != self.bindings,
        )


def in_order(places: Iterable[Place], wanted: Wanted) -> list[Place]:
    """Return places, the best first.

    Examples
    --------
    >>> from kernelmill.toolchain.places import Place, Wanted, in_order
    >>> system = Place("/usr/lib/libnvrtc.so.13", 13, "system-search")
    >>> own = Place("/env/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", 12, "site-packages")
    >>> in_order([system, own], Wanted(driver=13))[0].major
    12
    """
    return sorted(places, key=wanted.rank)


# ----------------------------------------------------------------------------- places


def library_places(
    name: str,
    path: Iterable[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Place]:
    """Return where a library may be loaded from: wheels, conda, a toolkit, the system's loader.

    Whether the system knows its names is seen when they are loaded.
    """
    env = child_environment() if environment is None else environment
    found = [
        place
        for site in _sites(path)
        for directory in _wheel_directories(site, name, "lib")
        for place in _files(directory, name, WHEEL)
    ]
    for root, via in _toolkits(env):
        for below in _ROOTS:
            found += _files(root / below, name, via)
    found += (Place(f"lib{name}.so.{major}", major, SYSTEM) for major in _MAJORS)
    return list(dict.fromkeys(found))


def header_places(name: str, header: str, path: Iterable[str] | None = None) -> list[Place]:
    """Return the directories of wheels that hold a header."""
    return [
        Place(str(directory), _major_of(directory.parent), WHEEL)
        for site in _sites(path)
        for directory in _wheel_directories(site, name, "include")
        if (directory / header).is_file()
    ]


def _sites(path: Iterable[str] | None) -> list[Path]:
    """Return the directories of Python's path: wheels may lie in others than site-packages."""
    return [Path(site or ".") for site in dict.fromkeys(sys.path if path is None else path)]


def _wheel_directories(site: Path, name: str, kind: str) -> Iterator[Path]:
    """Yield the directories below a site that wheels of any version put a library into."""
    root = site / "nvidia"
    names = _names_in(root)
    whole = [entry for entry in names if _WHEEL_OF.fullmatch(entry)]
    for entry in sorted(whole, key=lambda entry: -_major_of(root / entry)):
        yield root / entry / kind
    if _TWELVE[name] in names:
        yield root / _TWELVE[name] / kind


def _major_of(directory: Path) -> int:
    named = _WHEEL_OF.fullmatch(directory.name)
    return int(named[1]) if named else 12


def _files(directory: Path, name: str, via: str) -> list[Place]:
    """Return the libraries in a directory by the names that programs load them by."""
    kind = re.compile(rf"lib{name}\.so\.(\d+)", re.ASCII)
    names = sorted(_names_in(directory), reverse=True)
    matches = [match for match in map(kind.fullmatch, names) if match]
    return [Place(str(directory / match[0]), int(match[1]), via) for match in matches]


def _names_in(directory: Path) -> list[str]:
    try:
        return [entry.name for entry in directory.iterdir()]
    except OSError:
        return []


def _toolkits(env: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if env.get("CONDA_PREFIX"):
        yield Path(env["CONDA_PREFIX"]), "conda"
    root = env.get("CUDA_PATH") or env.get("CUDA_HOME")
    if root:
        yield Path(root), "CUDA_PATH"


# ----------------------------------------------------------------------------- what decides


def driver_version(load: Callable[[str], ctypes.CDLL] = ctypes.CDLL) -> tuple[int, int] | None:
    """Return the version of CUDA that the driver is for, such as (13, 0); None where none is there.

    Nothing is initialised: no device is opened, and a process may fork after it.
    """
    try:
        library = load(_DRIVER)
    except OSError:
        return None
    number = ctypes.c_int(0)
    if library.cuDriverGetVersion(ctypes.byref(number)) or not number.value:
        return None
    return number.value // 1000, number.value % 1000 // 10


def bindings_major() -> int | None:
    """Return the major version of cuda-bindings; None where it is not installed."""
    try:
        return int(version("cuda-bindings").partition(".")[0])
    except PackageNotFoundError:
        return None


def is_loaded(name: str) -> int | None:
    """Return the major version of a library that this process has already; None where it has none.

    The newest, as cuda.bindings looks for it.
    """
    for major in _MAJORS:
        try:
            ctypes.CDLL(f"lib{name}.so.{major}", mode=os.RTLD_NOLOAD)
        except OSError:
            continue
        return major
    return None
