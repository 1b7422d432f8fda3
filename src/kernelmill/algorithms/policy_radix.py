"""The rows of the table of `policy.py` for sorts by digits, short rows, segments and topk.

What the numbers mean is in the templates that the classes name.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kernelmill.algorithms.policy import Chip

__all__ = [
    "RadixTile",
    "RanksPolicy",
    "SegmentedRows",
    "TopkPolicy",
    "radix_count",
    "radix_ranks",
    "radix_row",
    "radix_tile",
    "segmented_rows",
    "topk_policy",
]

_WARP: Final = 32


@dataclass(frozen=True, slots=True)
class RadixTile:
    """The tile of a radix sort, for elements of so many bytes: see `device/radix_pass.cuh`.

    It serves keys of up to `keys` bytes with a payload of up to `payload`, and up to `most` of
    them. A thread has `items`, a block `warps` warps; `scanners` blocks hand out places, and wait
    so many nanoseconds (`rest`) before they ask again; one row in so many (`tabled`) is matched by
    a table. Digits cost at most `dear` to look at: 0 for integers, 1 for floats, 2 for complex.
    """

    keys: int
    payload: int
    most: int
    warps: int
    items: int
    scanners: int = 4
    tabled: int = 0
    rest: int = 0
    dear: int = 2

    @property
    def elements(self) -> int:
        """Elements of a tile."""
        return _WARP * self.warps * self.items

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return _WARP * self.warps

    @property
    def resident(self) -> int:
        """Blocks that share a multiprocessor: bounds registers."""
        return max(1, 1024 // self.threads)


_ANY: Final = 1 << 62
# The first row that fits counts. Few elements want many tiles, and those more scanners.
_RADIX_TILES: Final[dict[Chip, tuple[RadixTile, ...]]] = {
    "bulk": (
        RadixTile(8, 8, 1 << 17, 8, 8),
        RadixTile(8, 8, 1 << 19, 8, 8, 8),
        RadixTile(8, 8, 1 << 21, 16, 8, 8),
        RadixTile(8, 8, 1 << 22, 16, 10),
        RadixTile(2, 0, _ANY, 16, 28, 2, 4, 100),
        RadixTile(4, 0, _ANY, 16, 28, 2, 4),
        RadixTile(4, 4, _ANY, 16, 22, 1),
        RadixTile(4, 8, _ANY, 16, 14, 2),
        RadixTile(8, 0, _ANY, 16, 20, 4, 0, 500, 0),
        RadixTile(8, 0, _ANY, 16, 18, 4, 0, 500, 1),
        RadixTile(8, 0, _ANY, 16, 14, 4, 0, 500),
        RadixTile(8, 4, _ANY, 16, 14, 2, 0, 0, 1),
        RadixTile(8, 8, _ANY, 16, 10, 2),
    ),
    # 48 KiB of shared memory with what counts take.
    "plain": (
        RadixTile(4, 0, _ANY, 16, 16),
        RadixTile(4, 4, _ANY, 16, 8),
        RadixTile(8, 0, _ANY, 16, 8),
        RadixTile(8, 8, _ANY, 16, 4),
    ),
}
# Rows that one block sorts in one launch.
_RADIX_ROWS: Final[dict[Chip, tuple[RadixTile, ...]]] = {
    "bulk": (
        RadixTile(8, 8, 1 << 11, 8, 8),
        RadixTile(8, 8, 1 << 12, 16, 8),
        RadixTile(8, 8, 1 << 13, 16, 16),
    ),
    "plain": (
        RadixTile(8, 8, 1 << 11, 16, 4),
        RadixTile(4, 4, 1 << 12, 16, 8),
    ),
}


@dataclass(frozen=True, slots=True)
class RanksPolicy:
    """Rows of which each element is compared with all: see `device/radix_ranks.cuh`.

    They have at most `most` elements, all of them together at most `pairs` pairs; a block has
    `warps` warps.
    """

    most: int
    pairs: int
    warps: int = 16


# 48 KiB of shared memory hold that many keys of 8 bytes.
_RADIX_RANKS: Final[dict[Chip, RanksPolicy]] = {
    "bulk": RanksPolicy(8192, 1 << 26),
    "plain": RanksPolicy(4096, 1 << 25),
}


def radix_ranks(chip: Chip, rows: int, length: int) -> RanksPolicy | None:
    """Return how short rows are sorted by comparing all with all; None where that takes longer."""
    found = _RADIX_RANKS[chip]
    return found if length <= found.most and rows * length * length <= found.pairs else None


def radix_tile(chip: Chip, keys: int, payload: int, length: int, *, dear: int = 0) -> RadixTile:
    """Return the tile of a sort of so many elements; `keys` and `payload` are bytes of one."""
    return next(
        t for t in _RADIX_TILES[chip] if _serves(t, keys, payload, length) and dear <= t.dear
    )


def radix_row(chip: Chip, keys: int, payload: int, length: int) -> RadixTile | None:
    """Return the tile by which one block sorts a whole row; None where it is too long."""
    return next((t for t in _RADIX_ROWS[chip] if _serves(t, keys, payload, length)), None)


def _serves(tile: RadixTile, keys: int, payload: int, length: int) -> bool:
    return keys <= tile.keys and payload <= tile.payload and length <= tile.most


# Shared memory for the counts of all digits, and the most copies of each: one a bank.
_RADIX_COUNTS: Final[dict[Chip, int]] = {"bulk": 128 << 10, "plain": 48 << 10}
_RADIX_COPIES: Final = 32
# Bytes that a thread of a count asks for at a time; of few elements, so that many blocks count.
_RADIX_COUNTED: Final = 64
_RADIX_COUNTED_FEW: Final = (1 << 17, 16)


def radix_count(chip: Chip, passes: int, length: int) -> tuple[int, int]:
    """Return how the digits of so many elements are counted.

    How many copies of the counts a block has, a power of 2; how many bytes a thread asks for.
    """
    most = min(_RADIX_COPIES, _RADIX_COUNTS[chip] // (1024 * passes))
    few, counted = _RADIX_COUNTED_FEW
    return 1 << (most.bit_length() - 1), counted if length <= few else _RADIX_COUNTED


@dataclass(frozen=True, slots=True)
class SegmentedRows:
    """How segments are sorted by digits: see `device/segmented_sort.cuh`.

    Those that a warp does not sort are sorted by a block that holds a tile; those of `long`
    elements and more, as arrays. On a multiprocessor there are so many blocks of each launch:
    `listing`, where a thread looks at a segment or at `looked` elements, `of_blocks`, `of_warps`.
    """

    tile: RadixTile
    long: int = 1 << 19
    listing: int = 8
    looked: int = 64
    of_blocks: int = 2
    of_warps: int = 8


_SEGMENTED_ROWS: Final[dict[Chip, SegmentedRows]] = {
    "bulk": SegmentedRows(RadixTile(8, 8, _ANY, 16, 8)),
    "plain": SegmentedRows(RadixTile(8, 8, _ANY, 16, 4)),
}


def segmented_rows(chip: Chip) -> SegmentedRows:
    """Return how segments are sorted by digits on a chip."""
    return _SEGMENTED_ROWS[chip]


@dataclass(frozen=True, slots=True)
class TopkPolicy:
    """How the first elements of an order are found: see `device/topk.cuh`.

    A block of `threads` holds `capacity` elements and serves up to `most` of each row. It reads
    rows of up to `alone` by itself; longer ones are looked through by `blocks` blocks of another
    kernel on a multiprocessor, whose threads ask for `asked` bytes at a time, behind a limit from a
    sample of at most 2^`sample` elements.

    The limit leaves more than are asked for but for one call in some millions: `more` of a sample
    more than are expected there, and `spreads` times their spread; and keeps place for `room` times
    what is expected below it.
    """

    threads: int
    capacity: int
    most: int
    alone: int = 1 << 15
    blocks: int = 4
    sample: int = 15
    asked: int = 64
    more: int = 4
    spreads: int = 4
    room: int = 4

    def which(self, k: int, length: int, bits: int) -> int:
        """Return which element of a sample of 2^bits is the limit for the first k of so many."""
        expected = (k << bits) / length
        return self.more + ceil(expected + self.spreads * sqrt(expected))

    def sample_bits(self, length: int) -> int:
        """Return the size of a sample of so many elements, as a power of 2."""
        return max(0, min(self.sample, length.bit_length() - 6))


_TOPK: Final[dict[Chip, TopkPolicy]] = {
    "bulk": TopkPolicy(1024, 4096, 1024),
    "plain": TopkPolicy(512, 2048, 512),
}


def topk_policy(chip: Chip) -> TopkPolicy:
    """Return how the first elements of an order are found on a chip."""
    return _TOPK[chip]
