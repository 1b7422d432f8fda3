"""The rows of the table of `policy.py` for merges: tiles by the bytes of elements, and of lengths.

What the numbers mean is in `device/merge_tile.cuh`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kernelmill.algorithms.policy import Chip

__all__ = [
    "LARGEST_ELEMENT",
    "SPARE_THREADS",
    "SPLIT_THREADS",
    "MergeTile",
    "PackPolicy",
    "merge_tile",
    "pack_policy",
    "split_blocks",
]

# As device/merge_tile.cuh and device/merge_sort.cuh have them.
SPARE_THREADS: Final = 4
SPLIT_THREADS: Final = 64
# Tiles that a block finds the places of: a thread or a warp each, and one more.
_SPLIT_TILES: Final = (63, 1)
# The most tiles whose places warps find.
_SPREAD_TILES: Final = 1 << 11


@dataclass(frozen=True, slots=True)
class MergeTile:
    """The tile of a merge sort, for elements of up to `largest` bytes, and up to `most` of them.

    A thread has `items`, an odd number; `resident` blocks share a multiprocessor: bounds registers.
    `pays` says whether it serves elements with payloads too.
    """

    largest: int
    most: int
    threads: int
    items: int
    resident: int
    pays: bool = True

    @property
    def elements(self) -> int:
        """Elements of a tile."""
        return (self.threads - SPARE_THREADS) * self.items


_ANY: Final = 1 << 62
# The first row that fits counts: those of few elements are of one tile each, or of many small ones.
_TILES: Final[dict[Chip, tuple[MergeTile, ...]]] = {
    "bulk": (
        MergeTile(8, 1260, 256, 5, 4),
        MergeTile(8, 4572, 512, 9, 2),
        MergeTile(8, 9180, 1024, 9, 1),
        MergeTile(4, 1 << 20, 256, 17, 4),
        MergeTile(4, _ANY, 192, 27, 4, pays=False),
        MergeTile(4, _ANY, 192, 23, 4),
        MergeTile(8, _ANY, 256, 11, 4),
        MergeTile(16, _ANY, 256, 7, 3),
        MergeTile(32, _ANY, 128, 5, 2),
        MergeTile(64, _ANY, 128, 3, 2),
        MergeTile(256, _ANY, 64, 1, 1),
    ),
    # 48 KiB of shared memory.
    "plain": (
        MergeTile(8, 1260, 256, 5, 4),
        MergeTile(4, _ANY, 256, 15, 4),
        MergeTile(8, _ANY, 256, 7, 3),
        MergeTile(16, _ANY, 256, 3, 3),
        MergeTile(32, _ANY, 128, 3, 2),
        MergeTile(64, _ANY, 64, 3, 2),
        MergeTile(256, _ANY, 64, 1, 1),
    ),
}

# Bytes of the largest elements that are compared on a device.
LARGEST_ELEMENT: Final = max(tile.largest for tiles in _TILES.values() for tile in tiles)


def merge_tile(chip: Chip, element_bytes: int, length: int, *, pays: bool) -> MergeTile | None:
    """Return the tile of a merge of so many elements; None where an element has too many bytes."""
    rows = (t for t in _TILES[chip] if element_bytes <= t.largest and t.pays >= pays)
    return next((t for t in rows if length <= t.most), None)


@dataclass(frozen=True, slots=True)
class PackPolicy:
    """How elements are given the numbers of their segments, see `device/merge_segments.cuh`.

    Threads of a block, and blocks on a multiprocessor.
    """

    threads: int = 256
    resident: int = 16


_PACKING: Final = PackPolicy()


def pack_policy() -> PackPolicy:
    """Return how elements are given the numbers of their segments on a device."""
    return _PACKING


def split_blocks(tiles: int) -> tuple[int, bool]:
    """Return how many blocks find the places of tiles, and whether by warps."""
    spread = tiles <= _SPREAD_TILES
    return max(1, -(-tiles // _SPLIT_TILES[spread])), spread
