"""What this machine can load: processor, torch, CUDA, tvm-ffi. Imports none of them.

The versions are read from the files of the installed distributions, so that a question costs
milliseconds; only the C++ ABI of an old torch has to be asked of torch itself.
"""

from __future__ import annotations

import ast
import importlib.util
import platform
import re
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from kernelmill.errors import PackageError
from kernelmill.package.release import Release
from kernelmill.package.variant import Backend

__all__ = ["System", "here"]

_CPUS: Final = {"arm64": "aarch64", "AMD64": "x86_64"}
# Wheels of torch have been built with the new ABI of libstdc++ since this version.
_CXX11_SINCE: Final = Release.of(2, 7)
_NUMBERS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)*")


@dataclass(frozen=True, slots=True)
class System:
    """What decides which variants load: None where a framework is not installed.

    `cxx11` tells the ABI of torch on Linux, and is None elsewhere; `macos` is None but on macOS.
    """

    backend: Backend
    cpu: str
    os: str
    torch: Release | None = None
    cxx11: bool | None = None
    tvm_ffi: Release | None = None
    macos: Release | None = None
    free_threaded: bool = False

    @classmethod
    def parse(cls, text: str, *, torch: str = "", tvm_ffi: str = "") -> Self:
        """Return a system described as `backend-cpu-os`, with the frameworks that are named.

        Examples
        --------
        >>> from kernelmill.package.system import System
        >>> System.parse("cu130-x86_64-linux", torch="2.13").backend.name
        'cuda'
        """
        parts = text.split("-")
        if len(parts) != 3:  # noqa: PLR2004 - backend, processor, system
            raise PackageError(f"{text!r} describes no system", hint="for example cpu-x86_64-linux")
        backend, cpu, system = parts
        return cls(
            Backend.parse(backend),
            cpu,
            system,
            torch=_of(torch),
            cxx11=True if system == "linux" else None,
            tvm_ffi=_of(tvm_ffi),
        )


def _of(text: str) -> Release | None:
    """Return major and minor of a version of a distribution, None for ""."""
    match = _NUMBERS.match(text)
    if match is None:
        return None
    found = Release.parse(match[0])
    return Release.of(found.major, found.minor)


def here(backend: str | None = None) -> System:
    """Return what this process can load; `backend` "cpu" leaves the accelerator out.

    Raises
    ------
    PackageError
        Another backend is asked for than the one that torch was built for.

    Examples
    --------
    >>> from kernelmill.package.system import here
    >>> here("cpu").backend.name
    'cpu'
    """
    facts = _torch_facts()
    found = _backend(facts)
    if backend not in (None, "cpu", found.name):
        raise PackageError(
            f"backend {backend!r} was asked for; this system has "
            f"{' and '.join(sorted({'cpu', found.name}))}"
        )
    torch = _of(facts.get("__version__", ""))
    machine = platform.machine()
    return System(
        backend=Backend("cpu") if backend == "cpu" else found,
        cpu=_CPUS.get(machine, machine),
        os=platform.system().lower(),
        torch=torch,
        cxx11=_cxx11(torch),
        tvm_ffi=_of(_version("apache-tvm-ffi")),
        macos=_of(platform.mac_ver()[0]),
        free_threaded=sys.version_info < (3, 15)
        and bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    )


def _version(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to import

    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _torch_facts() -> dict[str, str]:
    """Return what torch's `version.py` assigns, without importing torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    path = Path(spec.origin).with_name("version.py")
    if not path.is_file():
        return {}
    facts: dict[str, str] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target, value = _assigned(node)
        if target and isinstance(value, ast.Constant) and isinstance(value.value, str):
            facts[target] = value.value
    return facts


def _assigned(node: ast.stmt) -> tuple[str, ast.expr | None]:
    if isinstance(node, ast.Assign):
        target: ast.expr = node.targets[0]
    elif isinstance(node, ast.AnnAssign):
        target = node.target
    else:
        return "", None
    return (target.id, node.value) if isinstance(target, ast.Name) else ("", None)


def _backend(facts: dict[str, str]) -> Backend:
    xpu = facts.get("xpu", "")  # a year, then a version without dots: 20250200
    versions = {
        "cuda": facts.get("cuda", ""),
        "rocm": facts.get("hip", ""),
        "xpu": f"{xpu[:4]}.{xpu[5:6]}",
    }
    for name, text in versions.items():
        version = _of(text)
        if version is not None:
            return Backend(name, version)
    if platform.system() == "Darwin" and platform.machine() == "arm64" and facts:
        return Backend("metal")
    return Backend("cpu") if facts else _cuda_without_torch()


def _cuda_without_torch() -> Backend:
    """Return CUDA where its runtime library is found, as `kernels` does; else the processor."""
    import ctypes  # noqa: PLC0415 - only where there is no torch
    import ctypes.util  # noqa: PLC0415

    name = ctypes.util.find_library("cudart")
    if name is None:
        return Backend("cpu")
    version = ctypes.c_int(0)
    try:
        failed = ctypes.CDLL(name).cudaRuntimeGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):  # another machine's library, or one that is no runtime
        return Backend("cpu")
    if failed:
        return Backend("cpu")
    return Backend("cuda", Release.of(version.value // 1000, version.value % 1000 // 10))


def _cxx11(torch: Release | None) -> bool | None:
    if platform.system() != "Linux":
        return None
    loaded: Any = sys.modules.get("torch")  # Any: torch, which nothing here may import
    if loaded is not None:
        return bool(loaded.compiled_with_cxx11_abi())
    return torch is None or torch >= _CXX11_SINCE
