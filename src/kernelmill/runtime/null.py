"""A back end without a device: keeps what it was asked to build and launch, computes nothing.

Tests of layouts, plans and generated text use it; an output keeps whatever bytes it had.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelmill.runtime.backend import Kernel, KernelSource, Launch
from kernelmill.runtime.cpu import FAMILIES

if TYPE_CHECKING:
    from kernelmill.runtime.backend import Allocator, Direct, Launcher, Target

__all__ = ["NullBackend"]


@dataclass(slots=True)
class NullBackend:
    """Records builds and launches, in order."""

    name: str = "null"
    target: Target = "host"
    families: tuple[str, ...] = FAMILIES
    arch: str = ""
    multiprocessors: int = 1
    built: list[KernelSource] = field(default_factory=list)
    launched: list[tuple[Kernel, Launch]] = field(default_factory=list)

    def build(self, source: KernelSource) -> Kernel:
        """Keep the text; its entry is a number that nothing can be called at."""
        self.built.append(source)
        return Kernel(source, entry=0)

    def launch(self, kernel: Kernel, launch: Launch) -> None:
        """Keep the launch."""
        self.launched.append((kernel, launch))

    def launcher(self, kernel: Kernel, direct: Direct) -> Launcher | None:
        """Return None: every launch is kept."""

    def allocator(self, direct: Direct) -> Allocator | None:
        """Return None, as there is no launcher."""
