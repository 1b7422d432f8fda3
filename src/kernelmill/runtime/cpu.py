"""The CPU back end: host kernels on the thread pool of the native call path.

How a text becomes a kernel is in `program.py`, how arrays become pointers in `memory.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.errors import ArgumentError
from kernelmill.runtime.memory import POOLED_FROM, empty_numpy
from kernelmill.runtime.native import native
from kernelmill.runtime.program import build_host_kernel
from kernelmill.runtime.strided import StridedLauncher, strided_allocator

if TYPE_CHECKING:
    from kernelmill.runtime.backend import (
        Allocator,
        Direct,
        Kernel,
        KernelSource,
        Launch,
        Launcher,
        Target,
    )

__all__ = ["FAMILIES", "CpuBackend"]

# Every family of algorithms has a form for the processor.
FAMILIES: Final = (
    "transform",
    "reduce",
    "scan",
    "select",
    "histogram",
    "search",
    "segmented",
    "sort",
    "topk",
    "merge",
    "batched_copy",
    "segmented_sort",
)
MOST_OPERANDS: Final = 32  # the native call path's
# More bytes than any call moves: a call with flags of its own streams nothing by itself.
_NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """Compiles with the host C++ compiler and runs in this process."""

    name: str = "cpu"
    target: Target = "host"
    families: tuple[str, ...] = FAMILIES
    arch: str = ""
    multiprocessors: int = 1

    def build(self, source: KernelSource) -> Kernel:
        """Compile and load a kernel, or take it from the cache."""
        return build_host_kernel(source)

    def launch(self, kernel: Kernel, launch: Launch) -> None:
        """Run a kernel and wait for its end."""
        _check_count(len(launch.pointers))
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

    def launcher(self, kernel: Kernel, direct: Direct) -> Launcher | None:
        """Return the native launcher for NumPy arrays in C order, another for others."""
        if any(view.dtype.name == "bfloat16" for view in direct.views):
            return None
        _check_count(len(direct.views))
        if not all(view.is_c_contiguous for view in direct.views):
            return StridedLauncher(kernel, direct) if direct.fixed else None
        read = {view.ptr for view in direct.views[: len(direct.views) - direct.outputs]}
        if direct.fixed and any(view.ptr in read for view in direct.results):
            return StridedLauncher(kernel, direct)  # the native one leaves such calls
        shapes = tuple(view.shape for view in direct.views)
        made: Launcher = native().Launcher(
            kernel.entry,
            tuple(view.dtype.to_numpy() for view in direct.views),
            direct.outputs,
            captures=direct.constants or bytes(direct.captures) or None,
            workspace=direct.workspace,
            serial_below=direct.serial_below,
            nontemporal_above=-1 if direct.flags is None else _NEVER,
            flags=direct.flags or 0,
            fixed=(shapes, direct.shape, direct.strides) if direct.fixed else None,
        )
        return made

    def allocator(self, direct: Direct) -> Allocator | None:
        """Return what makes the same NumPy arrays again, or one of the inputs' shape."""
        if not all(view.is_c_contiguous for view in direct.results):
            return strided_allocator(direct.results)
        made = tuple((view.shape, view.dtype.to_numpy()) for view in direct.results)
        if direct.fixed and len(made) == 1:
            return _always(*made[0])
        if direct.fixed:
            return partial(_same, made)
        return partial(_like_first, made[0][1]) if len(made) == 1 else None


def _check_count(operands: int) -> None:
    if operands > MOST_OPERANDS:
        raise ArgumentError(
            f"a call on the CPU takes at most {MOST_OPERANDS} arrays, inputs and results together; "
            f"this one has {operands}",
            hint="make structs of what belongs together, or several calls",
        )


def _always(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Allocator:
    """Return what makes arrays of one shape, with as little Python as there may be."""
    if math.prod(shape) * dtype.itemsize < POOLED_FROM:
        return lambda _: np.empty(shape, dtype)
    return lambda _: empty_numpy(shape, dtype)


def _same(made: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...], _: tuple[Any, ...]) -> Any:
    return tuple(empty_numpy(shape, dtype) for shape, dtype in made)


def _like_first(dtype: np.dtype[Any], inputs: tuple[Any, ...]) -> np.ndarray[Any, Any] | None:
    """Return a new output for inputs of one shape."""
    first = inputs[0]
    if type(first) is not np.ndarray or not first.shape:
        return None
    return empty_numpy(first.shape, dtype)
