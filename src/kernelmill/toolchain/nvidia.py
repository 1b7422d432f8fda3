"""NVIDIA's compiler libraries as wheels bring them: found, imported, identified. Compiles nothing.

They need neither a driver nor a GPU. What stands for a library is the file that was loaded: a
system CUDA may be found where a wheel is missing, and `found_via` says which it was.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import MissingExtraError
from kernelmill.toolchain.memo import stamp

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["HeaderDirectory", "NvidiaLibrary", "bindings", "load_library", "toolkit_headers"]

# Library: the wheel that brings it with CUDA 13; with CUDA 12 its name ends in -cu12.
_WHEELS: Final = {
    "nvrtc": "nvidia-cuda-nvrtc",
    "nvJitLink": "nvidia-nvjitlink",
    "cudart": "nvidia-cuda-runtime",
}
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
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - for errors only

    try:
        major = version("cuda-bindings").partition(".")[0]
    except PackageNotFoundError:
        major = "13"
    return "cuda12" if major == "12" else "cuda13"


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
    try:
        loaded = pathfinder.load_nvidia_dynamic_lib(name)
    except pathfinder.DynamicLibNotFoundError as error:
        first = str(error).strip().partition("\n")[0]
        _missing(f"the library {name} was not found (wheel {_WHEELS[name]})", first)
    path = Path(loaded.abs_path)
    # NVRTC keeps its built-in headers in a second file beside the first.
    files = [path, *sorted(path.parent.glob(f"lib{name}-builtins.so*"))]
    stamps = [stamp(str(file)) for file in files]
    known = tuple((Path(s[0]).name, s[1], s[2]) for s in stamps if s is not None)
    return NvidiaLibrary(name, str(path), str(loaded.found_via), known)


@once
def toolkit_headers() -> HeaderDirectory | None:
    """Return the directory of the CUDA headers, or None where there is none."""
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
    except ImportError:
        return None
    found = pathfinder.locate_nvidia_header_directory("cudart")
    if found is None or found.abs_path is None:
        return None
    path = Path(found.abs_path)
    state = stamp(str(path / "cuda_runtime_api.h"))
    if state is None:
        return None
    return HeaderDirectory(path, str(found.found_via), (path.name, state[1], state[2]))
