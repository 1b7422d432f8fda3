"""What every back end offers to a plan: build a kernel, launch it. Only protocols and records.

A back end is one module beside this one (`cpu.py`, `null.py`) with one class of this shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from kernelmill.runtime.memory import View

__all__ = [
    "FLAG_STREAM",
    "KEPT_SHIFT",
    "Backend",
    "Kernel",
    "KernelSource",
    "Launch",
    "Target",
    "lacking",
]

# What text a back end takes: C++ for the processor, or CUDA C++.
Target: TypeAlias = Literal["host", "cuda"]

# Bits of a launch's flags: stores that pass the caches; how many dimensions a reduction keeps.
FLAG_STREAM: Final = 1
KEPT_SHIFT: Final = 8


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Generated text of one kernel; `name` is for people, the text is what counts.

    On a device, `tile` is how many elements a block of threads takes at a time.
    """

    name: str
    text: str = field(repr=False)
    tile: int = 0


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that can be launched: its entry address, and the library and text it came from."""

    source: KernelSource
    entry: int
    path: Path | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: operands are inputs, then outputs; strides and workspace in bytes.

    `flags` are those of host/abi.hpp; `threads` is the most that may take part. `views` are the
    operands as arrays, for back ends that must know more of them than addresses.
    """

    shape: tuple[int, ...]
    pointers: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    captures: bytes
    workspace: int
    threads: int
    flags: int
    release_gil: bool
    views: tuple[View, ...] = field(default=(), repr=False, compare=False)


class Backend(Protocol):
    """A device family that can run operators."""

    @property
    def name(self) -> str:
        """Name of the device: "cpu", "cuda:0"."""
        ...

    @property
    def target(self) -> Target:
        """What text it compiles."""
        ...

    @property
    def families(self) -> tuple[str, ...]:
        """Families of algorithms that it runs."""
        ...

    def build(self, source: KernelSource) -> Kernel:
        """Compile and load a kernel, or take it from the cache; raises CompileError."""
        ...

    def launch(self, kernel: Kernel, launch: Launch) -> None:
        """Run a kernel to its end, as far as the caller can tell."""
        ...


def lacking(backend: Backend, family: str) -> str:
    """Return why a back end does not run a family of algorithms; "" when it does."""
    if family in backend.families:
        return ""
    return f"{family} has no form for CUDA in this version"
