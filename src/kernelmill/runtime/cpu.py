"""The CPU back end: host kernels on the thread pool of the native call path.

How a text becomes a kernel is in `program.py`, how arrays become pointers in `memory.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelmill.runtime.native import native
from kernelmill.runtime.program import build_host_kernel

if TYPE_CHECKING:
    from kernelmill.runtime.backend import Kernel, KernelSource, Launch, Target

__all__ = ["FAMILIES", "CpuBackend"]

# Every family of algorithms has a form for the processor.
FAMILIES: Final = ("transform", "reduce")


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """Compiles with the host C++ compiler and runs in this process."""

    name: str = "cpu"
    target: Target = "host"
    families: tuple[str, ...] = FAMILIES

    def build(self, source: KernelSource) -> Kernel:
        """Compile and load a kernel, or take it from the cache."""
        return build_host_kernel(source)

    def launch(self, kernel: Kernel, launch: Launch) -> None:
        """Run a kernel and wait for its end."""
        native().call(
            kernel.entry,
            launch.shape,
            launch.pointers,
            launch.strides,
            launch.captures,
            launch.workspace,
            launch.flags,
            launch.threads,
            launch.release_gil,
        )
