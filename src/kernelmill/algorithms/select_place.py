"""How a selection is spread over a device: by a ring of tiles, or a block a tile, and the grid.

The numbers are in `policy.py`, the templates in `device/select.cuh`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kernelmill.algorithms.policy import chip_of, records_bytes, select_ring, select_tile
from kernelmill.algorithms.select_source import Way, stage_bytes
from kernelmill.errors import ArgumentError
from kernelmill.runtime.backend import Grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.arguments import Argument
    from kernelmill.algorithms.policy import SelectTile
    from kernelmill.algorithms.select_source import SelectionText
    from kernelmill.runtime.backend import Backend

__all__ = ["BULK", "Placed", "placed_on_device"]

# What the copy engine wants addresses to be multiples of; the most elements that 32 bits count.
BULK: Final = 16
_NARROW: Final = (1 << 32) - 1
_WARP: Final = 32


class Placed(NamedTuple):
    """How a call goes through its tiles on a device, and the grid."""

    way: Way
    grid: Grid


def placed_on_device(
    text: SelectionText, given: Sequence[Argument], length: int, backend: Backend
) -> Placed:
    """Return how a selection is spread over a device."""
    tile = select_tile(text.width, length, parts=text.parts)
    if tile is None:
        raise ArgumentError(
            f"an element of all arrays has {text.width} bytes; on a GPU up to 1024 are served",
            hint="select indices, and take the elements by them",
        )
    wide = length > _NARROW
    value = (text.marks + (text.lengths is not None)) * (8 if wide else 4)
    aligned = all(c.access == "contiguous" for c in text.columns) and not any(
        a.view.ptr % BULK for a in given
    )
    ring = _ring(text, length, backend) if aligned else None
    if ring is not None:
        tile, stages = ring
        way = Way(tile, wide, stages, tile.reducers)
        tiles, shared = -(-length // tile.elements), stages * stage_bytes(text, tile)
        records, packed = records_bytes(value, tiles)
        return Placed(way, Grid(
            min(backend.multiprocessors, tiles), way.threads, (tiles,), records, 4,
            tagged=not packed, packed=packed, shared=shared,
        ))  # fmt: skip
    tiles = max(1, -(-length // tile.elements))
    records, packed = records_bytes(value, tiles)
    several = tiles > 1
    return Placed(Way(tile, wide), Grid(
        tiles, tile.warps * _WARP, (tiles,), records if several else 0, 1 if several else 0,
        tagged=several and not packed, packed=several and packed,
    ))  # fmt: skip


def _ring(text: SelectionText, length: int, backend: Backend) -> tuple[SelectTile, int] | None:
    """Return the tile and the stages of a ring; None where there is none."""
    tile = select_tile(text.width, ring=True, parts=text.parts)
    if tile is None:
        return None
    row = select_ring(text.width, chip_of(backend.arch), stage_bytes(text, tile))
    return None if row is None or length < row.least else (tile, row.stages)
