"""The emulator as a back end of plans: the texts of a GPU, run on arrays of the host."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from kernelmill.runtime.backend import ENTRY, Kernel
from kernelmill.runtime.cuda.records import SLOT, layout_of, write
from kernelmill.runtime.emulator.arguments import Packed
from kernelmill.runtime.emulator.build import Request, build_program
from kernelmill.runtime.emulator.launches import start
from kernelmill.runtime.emulator.program import EmulatedCode, EmulatedKernel
from kernelmill.runtime.emulator.sanitizer import Given, current_sanitizer, run_job
from kernelmill.runtime.emulator.templates import emulator_headers
from kernelmill.runtime.memory import View, as_view

if TYPE_CHECKING:
    from kernelmill.runtime.backend import (
        Allocator,
        Direct,
        KernelSource,
        Launch,
        Launcher,
        Target,
    )
    from kernelmill.runtime.cuda.records import Layout

__all__ = ["EmulatorBackend"]

_TICKET: Final = 4
_ALLOCATION: Final = 256
_NO_VIEWS: Final[tuple[View, ...]] = ()
_LOCK: Final = threading.Lock()


@dataclass(slots=True)
class EmulatorBackend:
    """Compiles CUDA C++ with the host's compiler and runs it in this process."""

    name: str = "emulator"
    target: Target = "cuda"
    families: tuple[str, ...] = (
        "transform",
        "reduce",
        "scan",
        "histogram",
        "search",
        "segmented",
        "select",
        "sort",
        "merge",
        "batched_copy",
        "segmented_sort",
    )
    arch: str = ""
    multiprocessors: int = 4
    _loaded: dict[str, EmulatedKernel] = field(default_factory=dict, repr=False)

    def build(self, source: KernelSource) -> Kernel:
        """Compile and load a kernel, or take it from the cache; raises CompileError."""
        found = self._loaded.get(source.text)
        if found is None:
            with _LOCK:
                found = self._loaded.get(source.text) or self._build(source)
                self._loaded[source.text] = found
        return Kernel(source, found.entry)

    @staticmethod
    def _build(source: KernelSource) -> EmulatedKernel:
        name = f"{source.name}.cu"
        # No contraction: the bits are those of the CPU.
        request = Request(source.text, name, emulator_headers(), contract=False)
        return EmulatedCode(request, build_program(request)).get_kernel(ENTRY)

    def launch(self, kernel: Kernel, launch: Launch) -> None:
        """Run a kernel to its end.

        Raises
        ------
        ArgumentError
            An array is not aligned as a GPU wants it.
        DeviceError
            The kernel trapped or came to a standstill.
        """
        grid, scratch = kernel.source.tiles(launch.shape), _NO_VIEWS
        if launch.grid is not None:
            grid = launch.grid
            scratch = (_zeros(grid.parts + 1), _zeros(_TICKET * grid.tickets + 1))
        record, layout = _record(kernel.source, launch, scratch, grid.numbers)
        packed = Packed([bytes(record)], {})
        where = (grid.blocks, 1, 1), (grid.threads, 1, 1)
        sanitizer = current_sanitizer()
        if sanitizer is None:
            start(
                kernel.source.name,
                kernel.entry,
                packed.addresses,
                *where,
                shared=grid.shared,
                cooperative=grid.together,
            )
            return
        given = [
            (Given(_called(i, view), view), layout.pointers_at + 8 * i)
            for i, view in enumerate(launch.views)
            if i not in kernel.source.by_value and view.ptr  # an index is no memory
        ]
        given += [
            (Given(name, view), layout.extra_at + 8 * i)
            for i, (name, view) in enumerate(zip(("parts", "tickets"), scratch, strict=False))
        ]
        given += [(Given(c.name, c.view), c.offset) for c in launch.arrays if c.view.size]
        job = self._loaded[kernel.source.text].code.job(
            ENTRY,
            packed.values,
            [(0, at, place, 0) for place, (_, at) in enumerate(given)],
            [array for array, _ in given],
            *where,
            grid.shared,
            cooperative=grid.together,
        )
        run_job(job, sanitizer)

    def launcher(self, kernel: Kernel, direct: Direct) -> Launcher | None:
        """Return None: every launch takes the general way."""

    def allocator(self, direct: Direct) -> Allocator | None:
        """Return None, as there is no launcher."""


def _called(number: int, view: View) -> str:
    """Return the name of an operand in reports."""
    return f"operand {number} ({view.dtype})"


def _zeros(nbytes: int) -> View:
    """Return scratch memory, aligned as allocations of CUDA are."""
    raw = np.zeros(nbytes + _ALLOCATION, np.uint8)
    start_at = -raw.ctypes.data % _ALLOCATION
    return as_view(raw[start_at : start_at + nbytes], "scratch")


def _record(
    source: KernelSource, launch: Launch, scratch: tuple[View, ...], numbers: tuple[int, ...]
) -> tuple[bytearray, Layout]:
    """Return the call record of the templates, and where its parts lie."""
    slots = [
        ctypes.string_at(view.ptr, view.dtype.itemsize).ljust(SLOT, b"\0")
        for view in (launch.views[i] for i in source.by_value)
    ]
    block = launch.captures + b"".join(slots)
    extra = (*(view.ptr for view in scratch), *numbers)
    layout = layout_of(len(block), len(launch.pointers), len(extra))
    record = bytearray(layout.size)
    write(record, block, launch.pointers, launch.shape, launch.strides, extra=extra)
    return record, layout
