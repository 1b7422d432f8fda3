"""What a multiprocessor of each chip has, and how many blocks of a kernel it holds at once.

The figures are those of the CUDA programming guide (technical specifications by compute
capability); a device says more about itself in `runtime`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kernelmill.errors import ArgumentError

__all__ = ["CHIPS", "Chip", "Occupancy", "chip_named", "occupancy_of"]

_WARP: Final = 32
_KIB: Final = 1024
_REGISTERS: Final = 64 * _KIB
# Registers are given to warps in units; the warps of a multiprocessor are in four quarters.
_REGISTER_UNIT: Final = 256
_QUARTERS: Final = 4
_MOST_THREADS: Final = 1024
_ARCH: Final = re.compile(r"(?:sm|compute)_(\d+)[af]?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Chip:
    """One multiprocessor: `shared` is its memory for blocks, `reserved` what each takes more.

    `unit` is what shared memory is given out in; all in bytes.
    """

    threads: int
    blocks: int
    shared: int
    reserved: int = _KIB
    unit: int = 128


# By the number of the architecture.
CHIPS: Final[dict[int, Chip]] = {
    75: Chip(1024, 16, 64 * _KIB, reserved=0, unit=256),
    80: Chip(2048, 32, 164 * _KIB),
    86: Chip(1536, 16, 100 * _KIB),
    87: Chip(1536, 16, 164 * _KIB),
    89: Chip(1536, 24, 100 * _KIB),
    90: Chip(2048, 32, 228 * _KIB),
    100: Chip(2048, 32, 228 * _KIB),
    103: Chip(2048, 32, 228 * _KIB),
    120: Chip(1536, 24, 100 * _KIB),
    121: Chip(1536, 24, 100 * _KIB),
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many blocks a multiprocessor runs at once, its share of all warps, what limits them."""

    block: int
    blocks: int
    share: float
    limit: str


def chip_named(arch: str) -> Chip | None:
    """Return the chip of an architecture such as "sm_90a"; None where its figures are not known."""
    match = _ARCH.fullmatch(arch)
    return CHIPS.get(int(match[1])) if match else None


def occupancy_of(chip: Chip, block: int, registers: int, shared: int) -> Occupancy:
    """Compute how many blocks fit at once.

    Parameters
    ----------
    chip
        See `chip_named`.
    block
        Threads of a block.
    registers
        Of a thread.
    shared
        Bytes of a block, static and dynamic.

    Raises
    ------
    ArgumentError
        A block has fewer threads than one, or more than 1024.

    Examples
    --------
    >>> from kernelmill.toolchain.chips import chip_named, occupancy_of
    >>> occupancy_of(chip_named("sm_90"), 256, 64, 0)
    Occupancy(block=256, blocks=4, share=0.5, limit='registers')
    """
    if not 1 <= block <= _MOST_THREADS:
        raise ArgumentError(f"a block of {block} threads cannot be launched: 1 to {_MOST_THREADS}")
    warps = -(-block // _WARP)
    of_warp = -(-max(registers, 1) * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    # A warp's registers lie in one quarter; a block's warps are spread over all four.
    held = _REGISTERS // _QUARTERS // of_warp * _QUARTERS
    taken = -(-(shared + chip.reserved) // chip.unit) * chip.unit
    rows = {
        "threads": chip.threads // _WARP // warps,
        "blocks": chip.blocks,
        "registers": held // warps,
        "shared memory": chip.shared // taken if taken else chip.blocks,
    }
    limit = min(rows, key=rows.__getitem__)
    blocks = rows[limit]
    return Occupancy(block, blocks, blocks * warps * _WARP / chip.threads, limit)
