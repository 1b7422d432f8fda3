"""What every back end offers to a plan: build a kernel, launch it. Only protocols and records.

A back end is one module beside this one (`cpu.py`, `null.py`) with one class of this shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kernelmill.runtime.memory import View

__all__ = [
    "ENTRY",
    "FLAG_STREAM",
    "KEPT_SHIFT",
    "MOST_BLOCKS",
    "Allocator",
    "Backend",
    "Captured",
    "CompilesAhead",
    "Direct",
    "Grid",
    "Kernel",
    "KernelSource",
    "Launch",
    "Launcher",
    "Target",
    "Value",
    "lacking",
    "reads_host",
]

# What text a back end takes: C++ for the processor, or CUDA C++.
Target: TypeAlias = Literal["host", "cuda"]

# The one function that a generated text exports.
ENTRY: Final = "km_kernel"
# Threads of a block that takes one tile after another; device/transform.cuh has the number too.
_TILE_THREADS: Final = 128
# Blocks of such a launch; beyond, they take several tiles each.
MOST_BLOCKS: Final = 1 << 30

# The call of a device's text that waits for launches in front of it: see device/prims.cuh.
_TURN: Final = "km::take_turn();"

# Bits of a launch's flags: stores that pass the caches; how many dimensions a reduction keeps.
FLAG_STREAM: Final = 1
KEPT_SHIFT: Final = 8


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Generated text of one kernel; `name` is for people, the text is what counts.

    On a device, `tile` is how many elements a block of threads takes at a time, and `by_value`
    names the operands that are handed over in the record of the call.
    """

    name: str
    text: str = field(repr=False)
    tile: int = 0
    by_value: tuple[int, ...] = ()

    @property
    def takes_turn(self) -> bool:
        """Whether the kernel waits for launches in front of it, and may begin before they end."""
        return _TURN in self.text

    def tiles(self, shape: tuple[int, ...]) -> Grid:
        """Return the grid of a device that takes one tile after another."""
        return Grid(min(-(-math.prod(shape) // self.tile), MOST_BLOCKS), _TILE_THREADS, ())


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that can be launched: its entry address, and the library and text it came from."""

    source: KernelSource
    entry: int
    path: Path | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """How a launch is spread over the blocks of a device, where one tile after another will not do.

    `numbers` go to the kernel behind the strides, after two addresses: that of `parts` bytes of
    scratch memory, and of `tickets` counters of 32 bits, which are 0 before a launch and after it.
    Where `tagged` is set, `parts` are 0 before the first of such launches on a stream, and no other
    ones use them; `packed` says the same of records in words of 8 bytes, which have a place of
    their own. `shared` is the dynamic shared memory of a block, in bytes. `together` says that the
    first blocks wait for later ones, so several must be under way.
    """

    blocks: int
    threads: int
    numbers: tuple[int, ...]
    parts: int = 0
    tickets: int = 0
    tagged: bool = False
    packed: bool = False
    shared: int = 0
    together: bool = False


@dataclass(frozen=True, slots=True)
class Captured:
    """An array that an operator captured: its address stands at `offset` among the scalars."""

    offset: int
    name: str
    view: View
    written: bool


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: operands are inputs, then outputs; strides and workspace in bytes.

    `flags` are those of host/abi.hpp; `threads` is the most that may take part. `views` are the
    operands as arrays, for back ends that must know more of them than addresses; `arrays` are those
    that operators captured.
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
    grid: Grid | None = None
    arrays: tuple[Captured, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Value:
    """A scalar that a call was given: later ones may have others of the type, within limits."""

    type: type
    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class Direct:
    """A call as it was bound, from which a back end makes the short way for later ones like it.

    `views` are the operands, inputs first, the last `outputs` of them written; `captures` is the
    size of the block of scalars. The others are those of a `Launch`. Unless `fixed` is set, arrays
    of any one shape are served, else only those of the shapes and strides here. `values` says of
    each operand whether it is a scalar. Addresses on a device must be multiples of `alignment`.
    `constants` is the block of scalars where it is the same in each call.
    """

    views: tuple[View, ...]
    outputs: int
    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    captures: int
    fixed: bool
    serial_below: int
    workspace: int = 0
    flags: int | None = None
    grid: Grid | None = None
    values: tuple[Value | None, ...] = ()
    alignment: int = 1
    constants: bytes = b""

    @property
    def results(self) -> tuple[View, ...]:
        """The operands that are written."""
        return self.views[len(self.views) - self.outputs :]


# Called with the arrays of a call, inputs first, and the captured scalars where there are any: it
# launches and returns True, or returns False where the general way must look at them.
Launcher: TypeAlias = "Callable[..., bool]"
# Called with the inputs of a call: new arrays for its results, or None where it makes none.
Allocator: TypeAlias = "Callable[[tuple[Any, ...]], Any]"


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

    @property
    def arch(self) -> str:
        """Architecture of the chip: "sm_90"; "" where there is none."""
        ...

    @property
    def multiprocessors(self) -> int:
        """What a launch is spread over; 1 where it is spread over threads."""
        ...

    def build(self, source: KernelSource) -> Kernel:
        """Compile and load a kernel, or take it from the cache; raises CompileError."""
        ...

    def launch(self, kernel: Kernel, launch: Launch) -> None:
        """Run a kernel to its end, as far as the caller can tell."""
        ...

    def launcher(self, kernel: Kernel, direct: Direct) -> Launcher | None:
        """Return the short way for calls like this one; None where there is none."""
        ...

    def allocator(self, direct: Direct) -> Allocator | None:
        """Return what makes the outputs of calls on the short way; None leaves it to the long."""
        ...


@runtime_checkable
class CompilesAhead(Protocol):
    """A back end whose compiler takes so long that several texts are compiled side by side."""

    def compile_ahead(self, sources: Sequence[KernelSource]) -> None:
        """Compile texts that `build` loads later; raises CompileError."""
        ...


def lacking(backend: Backend, family: str) -> str:
    """Return why a back end does not run a family of algorithms; "" when it does."""
    if family in backend.families:
        return ""
    return f"{family} has no form for CUDA in this version"


def reads_host(backend: Backend) -> bool:
    """Return whether a back end computes on arrays in the memory of the host."""
    return backend.target == "host" or backend.name == "emulator"
