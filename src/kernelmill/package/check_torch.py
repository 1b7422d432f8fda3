"""Rules of `check` about torch: which of its symbols a library needs, and which torch has them."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.package.check_subject import Finding
from kernelmill.package.elf import read_library
from kernelmill.package.release import Release
from kernelmill.package.system import here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelmill.package.check_subject import Subject

__all__ = ["TORCH_RULES", "shim_versions"]

# Mangled names of torch's C++, which changes with every release.
_CPP: Final = re.compile(r"_Z(?:N[VK]*|T[VISV]N)?(?:3c10|2at|5torch|5caffe2)")
_SHIM: Final = re.compile(r"aoti_torch_|torch_|aoti_")
_BLOCK: Final = re.compile(r"#if TORCH_FEATURE_VERSION >= TORCH_VERSION_(\d+)_(\d+)_\d+")
_NAME: Final = re.compile(r"\b(?P<name>(?:aoti_)?torch_\w+)\s*\(")
# What stood in the headers when the stable ABI began.
_FIRST: Final = Release.of(2, 9)
_SHOWN: Final = 4
_LIBRARIES: Final = (
    "libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so",
    # Where torch was built for CUDA.
    "libc10_cuda.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so",
)  # fmt: skip


def shim_versions(include: Path) -> dict[str, Release]:
    """Return the version of torch that brought each function of its stable C interface.

    Read from torch's own headers, where blocks say from which version on they hold.
    """
    found: dict[str, Release] = {}
    for name in ("torch/csrc/stable/c/shim.h", "torch/csrc/inductor/aoti_torch/c/shim.h"):
        path = include / name
        if path.is_file():
            for function, version in _declared(path.read_text(encoding="utf-8")):
                found.setdefault(function, version)
    return found


def _declared(text: str) -> Iterator[tuple[str, Release]]:
    """Yield the functions of a header, each with the version of the block around it."""
    blocks: list[Release | None] = []
    for line in text.splitlines():
        match = _BLOCK.match(line)
        if match:
            blocks.append(Release.of(int(match[1]), int(match[2])))
        elif line.startswith(("#if", "#ifdef", "#ifndef")):
            blocks.append(None)
        elif line.startswith("#endif") and blocks:
            blocks.pop()
        version = max((block for block in blocks if block), default=_FIRST)
        for name in _NAME.finditer(line):
            yield name["name"], version


def _stable(subject: Subject) -> Iterator[Finding]:
    """Find what a library for the stable ABI uses beyond it."""
    if not subject.stable or subject.library is None or subject.variant is None:
        return
    names = [symbol.name for symbol in subject.library.undefined()]
    foreign = sorted(name for name in names if _CPP.match(name))
    if foreign:
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        yield Finding(
            "torch-stable-abi",
            "error",
            subject.library_name,
            f"it uses torch's C++: {', '.join(foreign[:_SHOWN])}{more}",
            "it loads in the version of torch that it was built with, and in few others",
            "include only torch/csrc/stable and torch/headeronly, or build it as classic",
        )
    include = _torch_include()
    used = sorted(name for name in names if _SHIM.match(name))
    if include is None:
        if used:
            message = f"{len(used)} functions of torch's C interface are used; no torch to compare"
            yield Finding("torch-stable-abi", "note", subject.library_name, message)
        return
    target = subject.variant.framework.version
    since = shim_versions(include)
    for name in used:
        if name in since and target is not None and since[name] > target:
            yield Finding(
                "torch-stable-abi",
                "error",
                subject.library_name,
                f"{name} came with torch {since[name]}; the variant is for {target}",
                f"loading fails in torch older than {since[name]}",
                f'raise `stable-abi` to "{since[name]}", or do without it',
            )


def _undefined(subject: Subject) -> Iterator[Finding]:
    """Compare what a classic library needs with what the torch that it is for exports."""
    if not subject.torch or subject.stable or subject.library is None or subject.variant is None:
        return
    system = here()
    version = subject.variant.framework.version
    if system.torch != version:
        yield Finding(
            "undefined-symbols",
            "note",
            subject.library_name,
            f"its symbols were not compared: torch {version} is not installed here",
        )
        return
    brought = _torch_exports()
    needed = [
        s.name for s in subject.library.undefined() if _CPP.match(s.name) and s.bind != "weak"
    ]
    missing = sorted(name for name in needed if name not in brought)
    cuda = subject.variant.backend.name == "cuda" and system.backend.name != "cuda"
    if missing and cuda:
        message = f"{len(missing)} symbols may be of torch's CUDA libraries, which are not here"
        yield Finding("undefined-symbols", "note", subject.library_name, message)
    elif missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        yield Finding(
            "undefined-symbols",
            "error",
            subject.library_name,
            f"torch {version} has no {', '.join(missing[:_SHOWN])}{more}",
            f"loading fails in torch {version}, which is the one it is for",
        )


@cache
def _torch_folder() -> Path | None:
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _torch_include() -> Path | None:
    folder = _torch_folder()
    include = folder / "include" if folder else None
    return include if include is not None and include.is_dir() else None


@cache
def _torch_exports() -> frozenset[str]:
    folder = _torch_folder()
    names: set[str] = set()
    for name in _LIBRARIES if folder else ():
        assert folder is not None
        path = folder / "lib" / name
        if path.is_file():
            names.update(symbol.name for symbol in read_library(path).exports())
    return frozenset(names)


TORCH_RULES: Final[tuple[Callable[[Subject], Iterator[Finding]], ...]] = (_stable, _undefined)
