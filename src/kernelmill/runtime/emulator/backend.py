"""The emulator as a back end of plans: the texts of a GPU, run on arrays of the host."""

from __future__ import annotations

import ctypes
import math
import struct
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kernelmill.runtime.backend import Kernel
from kernelmill.runtime.emulator.build import Request, build_program
from kernelmill.runtime.emulator.launches import start
from kernelmill.runtime.emulator.program import EmulatedCode, EmulatedKernel
from kernelmill.runtime.emulator.templates import emulator_headers

if TYPE_CHECKING:
    from kernelmill.runtime.backend import (
        Allocator,
        Direct,
        KernelSource,
        Launch,
        Launcher,
        Target,
    )

__all__ = ["EmulatorBackend"]

# The kernel that a generated text defines.
_ENTRY: Final = "km_kernel"
# These stand in the templates as well.
_THREADS: Final = 128
_DIMS: Final = 8
_SLOT: Final = 16
# Blocks of a launch; beyond, they take several tiles each.
_MOST_BLOCKS: Final = 1 << 30
_TICKET: Final = 4
_NO_NUMBERS: Final[tuple[int, ...]] = ()
_LOCK: Final = threading.Lock()


@dataclass(slots=True)
class EmulatorBackend:
    """Compiles CUDA C++ with the host's compiler and runs it in this process."""

    name: str = "emulator"
    target: Target = "cuda"
    families: tuple[str, ...] = ("transform", "reduce")
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
        return EmulatedCode(name, build_program(request)).get_kernel(_ENTRY)

    @staticmethod
    def launch(kernel: Kernel, launch: Launch) -> None:
        """Run a kernel to its end.

        Raises
        ------
        ArgumentError
            An array is not aligned as a GPU wants it.
        DeviceError
            The kernel trapped or came to a standstill.
        """
        elements = math.prod(launch.shape)
        grid, extra = launch.grid, _NO_NUMBERS
        if grid is None:
            blocks, threads = min(-(-elements // kernel.source.tile), _MOST_BLOCKS), _THREADS
        else:
            blocks, threads = grid.blocks, grid.threads
            parts = ctypes.create_string_buffer(grid.parts + 256)
            tickets = ctypes.create_string_buffer(grid.tickets * _TICKET + 256)
            extra = (_aligned(parts), _aligned(tickets), *grid.numbers)
        record = _record(kernel.source, launch, elements, extra)
        start(
            kernel.source.name,
            kernel.entry,
            [_aligned(record)],
            (blocks, 1, 1),
            (threads, 1, 1),
        )

    def launcher(self, kernel: Kernel, direct: Direct) -> Launcher | None:
        """Return None: every launch takes the general way."""

    def allocator(self, direct: Direct) -> Allocator | None:
        """Return None, as there is no launcher."""


def _aligned(buffer: ctypes.Array[ctypes.c_char]) -> int:
    """Return the first address in a buffer that is a multiple of 256, as allocations of CUDA."""
    return -(-ctypes.addressof(buffer) // 256) * 256


def _record(
    source: KernelSource, launch: Launch, elements: int, extra: tuple[int, ...]
) -> ctypes.Array[ctypes.c_char]:
    """Return the call record of the templates: scalars, addresses, shape, strides, what follows."""
    slots = [
        ctypes.string_at(view.ptr, view.dtype.itemsize).ljust(_SLOT, b"\0")
        for view in (launch.views[i] for i in source.by_value)
    ]
    block = launch.captures + b"".join(slots)
    packed = _packer(max(len(block), _SLOT), len(launch.pointers), len(extra))
    rank = len(launch.shape)
    rest = (0,) * (_DIMS - rank)
    numbers = [elements, rank, *launch.shape, *rest]
    for strides in launch.strides:
        numbers += strides
        numbers += rest
    made = ctypes.create_string_buffer(packed.size + 512)
    offset = _aligned(made) - ctypes.addressof(made)
    packed.pack_into(made, offset, block, *launch.pointers, *numbers, *extra)
    return made


@lru_cache(maxsize=1024)
def _packer(room: int, operands: int, extra: int) -> struct.Struct:
    return struct.Struct(f"<{room}s{operands}Q{2 + _DIMS + _DIMS * operands + extra}q")
