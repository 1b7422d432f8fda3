"""The table of numbers that tune templates: one frozen row for each kind of work on each chip.

Rows are chosen by family, class of chip, bytes of a value and class of operator.
What the numbers mean is in the templates; those that decide about the order of combination stand
here too, and are marked: they are part of `docs/reference/reduction-tree.md` and never tuned.
"""

from __future__ import annotations

import json
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kernelmill.config import get_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "GROUP_TILES",
    "SCAN_TREES",
    "Chip",
    "CopyPolicy",
    "EvenPolicy",
    "HistogramPolicy",
    "OpClass",
    "RingPolicy",
    "ScanTree",
    "SearchPolicy",
    "SegmentTree",
    "chip_of",
    "copy_policy",
    "histogram_policy",
    "own_rows_file",
    "records_bytes",
    "ring_policy",
    "ring_rows",
    "scan_beside",
    "scan_tree",
    "search_policy",
    "segment_tree",
    "segments_evenly",
    "select_ring",
    "select_tile",
    "trying",
]

# Chips with a copy engine and 227 KiB of shared memory a block (sm_90 to sm_110), and others.
Chip: TypeAlias = Literal["bulk", "plain"]
# Operators of one or two instructions, and all others.
OpClass: TypeAlias = Literal["light", "any"]

_WARP: Final = 32
_STAGE_UNIT: Final = 128
# Shared memory of a block that stages may take; what roles hand over takes some of the 227 KiB.
_STAGES_ROOM: Final = 216 << 10
# Later ones, of desktops, have the copy engine, but not half of that memory.
_BULK: Final = range(90, 120)


def chip_of(arch: str) -> Chip:
    """Return the class of a chip by its architecture; the emulator has bulk copies.

    Examples
    --------
    >>> from kernelmill.algorithms.policy import chip_of
    >>> chip_of("sm_90a"), chip_of("sm_80"), chip_of("sm_120"), chip_of("")
    ('bulk', 'plain', 'plain', 'bulk')
    """
    digits = "".join(filter(str.isdigit, arch))
    return "bulk" if not digits or int(digits) in _BULK else "plain"


# ----------------------------------------------------------------------------- trees: never tuned

# Tiles of a group in `device/lookback.cuh`.
GROUP_TILES: Final = 128


@dataclass(frozen=True, slots=True)
class ScanTree:
    """The tile of a scan, for values of up to `largest` bytes.

    A lane takes `run` neighbours in each of `rows` rows, a tile has `warps` warps of 32 lanes.
    """

    largest: int
    run: int
    rows: int
    warps: int = 8

    @property
    def part(self) -> int:
        """Elements of a warp."""
        return _WARP * self.run * self.rows

    @property
    def tile(self) -> int:
        """Elements of a tile."""
        return self.part * self.warps


SCAN_TREES: Final = (
    ScanTree(4, 4, 6),
    ScanTree(8, 2, 6),
    ScanTree(16, 1, 6),
    ScanTree(1 << 30, 1, 2),
)


def scan_tree(value_bytes: int) -> ScanTree:
    """Return the tile of a scan of values of so many bytes."""
    return next(t for t in SCAN_TREES if value_bytes <= t.largest)


def records_bytes(value_bytes: int, tiles: int, units: int = 1) -> tuple[int, bool]:
    """Return the scratch memory of `device/lookback.cuh`, and whether its records are packed."""
    packed = value_bytes <= 4  # noqa: PLR2004 - a value and a number of 4 bytes each make a word
    record = 8 if packed else 16 * -(-value_bytes // 8)
    return 16 + units * record * (tiles + tiles // GROUP_TILES + 1), packed


@dataclass(frozen=True, slots=True)
class SegmentTree:
    """The tile of segments in `device/segmented.cuh`, for accumulators of up to `largest` bytes.

    A lane takes `wide` neighbours in each of `rows` rows; `resident` blocks share a
    multiprocessor, and a block finds bounds for one of `ahead` times as many later.
    """

    largest: int
    wide: int
    rows: int
    resident: int = 4
    ahead: int = 4

    @property
    def tile(self) -> int:
        """Elements of a tile of 8 warps."""
        return 8 * _WARP * self.wide * self.rows


_SEGMENT_TREES: Final = (
    SegmentTree(4, 4, 8, resident=5),
    SegmentTree(8, 2, 8),
    SegmentTree(16, 1, 8, resident=2),
    SegmentTree(32, 1, 4, resident=2),
    SegmentTree(1 << 30, 1, 2, resident=1),
)


def segment_tree(value_bytes: int) -> SegmentTree:
    """Return the tile of segments of accumulators of so many bytes."""
    return next(t for t in _SEGMENT_TREES if value_bytes <= t.largest)


# ----------------------------------------------------------------------------- tuned


@dataclass(frozen=True, slots=True)
class EvenPolicy:
    """How `device/segmented_even.cuh` reduces segments whose lengths are alike.

    Mean lengths of up to `most`, or `ordered` where order counts; from `many` elements on, those of
    `least` to `less`: tiles do as well with others. `fewer` blocks share a multiprocessor than with
    tiles: lanes have more elements in registers.
    """

    most: int = 8192
    ordered: int = 128
    many: int = 1 << 22
    least: int = 512
    less: int = 2048
    fewer: int = 1

    def lanes(self, length: int, segments: int, wide: int, *, ordered: bool) -> int:
        """Return how many lanes take a segment, `wide` elements each at a time; 0 for tiles."""
        least, most = (self.least, self.less) if length >= self.many else (0, self.most)
        most = min(most, self.ordered) if ordered else most
        if not segments * least <= length <= segments * most:
            return 0
        lanes = 1
        while lanes < _WARP and lanes * wide * segments < length:
            lanes *= 2
        return lanes


_EVENLY: Final = EvenPolicy()


def segments_evenly() -> EvenPolicy:
    """Return how segments of even lengths are reduced on a device."""
    return _EVENLY


@dataclass(frozen=True, slots=True)
class RingPolicy:
    """How `device/ring.cuh` runs a family, from `least` to `most` elements: reducers, stages."""

    family: str
    chip: Chip
    largest: int
    op: OpClass
    reducers: int
    stages: int
    least: int
    most: int = 1 << 62


# The first row that fits counts. `largest`: bytes of an element in a stage.
_RINGS: Final = (
    RingPolicy("scan", "bulk", 2, "any", reducers=4, stages=16, least=1 << 24),
    RingPolicy("scan", "bulk", 4, "any", reducers=8, stages=9, least=1 << 20, most=1 << 25),
    RingPolicy("scan", "bulk", 4, "any", reducers=4, stages=9, least=1 << 25),
    RingPolicy("scan", "bulk", 8, "any", reducers=4, stages=9, least=3 << 21),
    RingPolicy("scan", "bulk", 16, "any", reducers=4, stages=9, least=1 << 18),
    # Fewer warps, or a value of 64 bytes does not fit the registers of a thread.
    RingPolicy("scan", "bulk", 64, "any", reducers=2, stages=9, least=1 << 18),
    RingPolicy("select", "bulk", 1, "any", reducers=8, stages=8, least=1 << 21),
    RingPolicy("select", "bulk", 4, "any", reducers=4, stages=8, least=1 << 21),
    RingPolicy("select", "bulk", 1024, "any", reducers=6, stages=6, least=1 << 21),
)


# A row that is tried at the moment: see `tuning.py`.
_TRIED: list[RingPolicy] = []


def own_rows_file() -> Path:
    """Return where rows of the user's lie, which `kernelmill tune --store` writes."""
    return get_config().cache_dir / "tuning.json"


@lru_cache(maxsize=4)
def _own_rows(path: Path) -> tuple[RingPolicy, ...]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return tuple(RingPolicy(**row) for row in rows)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError):
        warnings.warn(f"{path} holds no rows of the tuning table; it is ignored", stacklevel=2)
        return ()


def ring_rows() -> tuple[RingPolicy, ...]:
    """Return the rows of rings: what is tried, the user's own, those of the table."""
    return (*_TRIED, *_own_rows(own_rows_file()), *_RINGS)


@contextmanager
def trying(row: RingPolicy) -> Iterator[None]:
    """Let a row come first, for calls that are planned inside the block."""
    _TRIED.append(row)
    try:
        yield
    finally:
        _TRIED.remove(row)


def ring_policy(
    family: str, chip: Chip, element_bytes: int, tile: int, length: int, *, op: OpClass = "any"
) -> RingPolicy | None:
    """Return how a ring of tiles of so many elements runs; None where there is none.

    Stages are as many as the row says, or as fit.
    """
    rows = (r for r in ring_rows() if (r.family, r.chip) == (family, chip) and r.op in ("any", op))
    row = next((r for r in rows if element_bytes <= r.largest and length <= r.most), None)
    if row is None or length < row.least:
        return None
    stage = -(-element_bytes * tile // _STAGE_UNIT) * _STAGE_UNIT
    stages = min(row.stages, _STAGES_ROOM // stage)
    # One is filled while another one is worked on.
    return replace(row, stages=stages) if stages > 1 else None


# Blocks of `device/scan.cuh` that share a multiprocessor, one block a tile: bounds registers.
_SCAN_BESIDE: Final = ((4, 3), (8, 2), (1 << 30, 1))


def scan_beside(value_bytes: int) -> int:
    """Return how many blocks of a scan share a multiprocessor at least."""
    return next(beside for most, beside in _SCAN_BESIDE if value_bytes <= most)


@dataclass(frozen=True, slots=True)
class SelectTile:
    """The tile of a selection, for elements of up to `largest` bytes, all arrays together.

    A lane takes `run` neighbours in each of `rows` rows, a tile has `warps` warps of 32 lanes; in a
    ring `reducers` more count them.
    """

    largest: int
    run: int
    rows: int
    warps: int = 8
    reducers: int = 4

    @property
    def elements(self) -> int:
        """Elements of a tile."""
        return _WARP * self.run * self.rows * self.warps


# With a ring, where the work for a tile grows with its parts, and that of looking back with tiles.
_SELECT_RING_TILES: Final = {
    1: (
        SelectTile(1, 4, 8, 16, 8),
        SelectTile(2, 4, 8, 12, 6),
        SelectTile(4, 4, 8),
        SelectTile(8, 4, 4, 12, 6),
        SelectTile(16, 4, 2, 12, 6),
        SelectTile(32, 4, 1, 12, 6),
        SelectTile(64, 2, 1, 12, 6),
    ),
    2: (
        SelectTile(4, 4, 4, 20, 5),
        SelectTile(8, 4, 3, 16),
        SelectTile(16, 4, 2, 12, 6),
        SelectTile(32, 4, 1, 12, 6),
        SelectTile(64, 2, 1, 12, 6),
    ),
    3: (
        SelectTile(4, 4, 8, 16),
        SelectTile(8, 4, 3, 16),
        SelectTile(16, 4, 2, 12, 6),
        SelectTile(32, 4, 1, 12, 6),
        SelectTile(64, 2, 1, 12, 6),
    ),
}
# One block a tile: what fits in static shared memory.
_SELECT_TILES: Final = (
    SelectTile(4, 4, 8),
    SelectTile(8, 4, 4),
    SelectTile(16, 4, 2),
    SelectTile(32, 4, 1),
    SelectTile(64, 2, 1),
    SelectTile(128, 1, 1),
    SelectTile(256, 1, 1, 4),
    SelectTile(512, 1, 1, 2),
    SelectTile(1024, 1, 1, 1),
)


# Of several parts, longer ones keep the registers of a block busy for too long.
_PARTED_ROWS: Final = 4


def select_tile(
    element_bytes: int, length: int = 0, *, ring: bool = False, parts: int = 1
) -> SelectTile | None:
    """Return the tile of a selection of elements of so many bytes; None where none holds them.

    `ring` asks for that of a ring, `parts` says how many kinds of elements are written. Other tiles
    have as few rows as make of `length` elements one group of tiles, which is looked back on at
    once.
    """
    tiles = _SELECT_RING_TILES[parts] if ring else _SELECT_TILES
    tile = next((t for t in tiles if element_bytes <= t.largest), None)
    if tile is None or ring:
        return tile
    rows, most = 1, tile.rows if parts == 1 else min(tile.rows, _PARTED_ROWS)
    while rows < most and replace(tile, rows=rows).elements * GROUP_TILES < length:
        rows *= 2
    return replace(tile, rows=min(rows, most))


def select_ring(element_bytes: int, chip: Chip, stage_bytes: int) -> RingPolicy | None:
    """Return how the ring runs a selection whose stages have so many bytes; None where none does.

    Stages are as many as the row says, or as fit.
    """
    rows = (r for r in ring_rows() if r.family == "select" and r.chip == chip)
    row = next((r for r in rows if element_bytes <= r.largest), None)
    stages = min(row.stages, _STAGES_ROOM // stage_bytes) if row else 0
    return replace(row, stages=stages) if row and stages > 1 else None


@dataclass(frozen=True, slots=True)
class HistogramPolicy:
    """How `device/histogram.cuh` counts.

    Counters of 4 bytes a block, the most copies of each, threads of a block, blocks of them beside
    each other on a multiprocessor, and bytes that a thread asks for at a time. Sums in order:
    threads, blocks on a multiprocessor, the least elements of one, bytes of tables in shared
    memory, and of all tables.
    """

    counters: int = 8192
    copies: int = 32
    threads: int = 1024
    resident: int = 1
    packet: int = 16
    sum_threads: int = 256
    sum_blocks: int = 4
    sum_piece: int = 2048
    table_bytes: int = 32768
    most_bytes: int = 1 << 28


_HISTOGRAM: Final = HistogramPolicy()


def histogram_policy() -> HistogramPolicy:
    """Return how histograms are counted on a device."""
    return _HISTOGRAM


@dataclass(frozen=True, slots=True)
class SearchPolicy:
    """How `device/search.cuh` searches for up to `most` values.

    Threads of a block, values of a thread side by side, how many parts of what is left it tells
    apart at a time, bytes of the data that a block keeps, and blocks on a multiprocessor.
    """

    most: int
    threads: int
    beside: int
    ways: int
    kept: int
    resident: int

    def pivots(self, element_bytes: int) -> int:
        """Return how many elements a block keeps."""
        return max(1, self.kept // element_bytes)


@dataclass(frozen=True, slots=True)
class CopyPolicy:
    """How `device/batched_copy.cuh` copies.

    Bytes of a part, threads of a block, and blocks on a multiprocessor.
    """

    part: int = 4096
    threads: int = 256
    resident: int = 8


_COPIES: Final = CopyPolicy()


def copy_policy() -> CopyPolicy:
    """Return how many pieces of memory are copied on a device."""
    return _COPIES


# Few values wait for memory, many for its bandwidth.
_SEARCHES: Final = (
    SearchPolicy(1 << 13, 64, 1, 8, 2048, 16),
    SearchPolicy(1 << 15, 256, 1, 4, 4096, 8),
    SearchPolicy(1 << 17, 256, 1, 2, 4096, 8),
    SearchPolicy(1 << 62, 512, 4, 2, 16384, 2),
)


def search_policy(values: int) -> SearchPolicy:
    """Return how so many values are searched for on a device."""
    return next(row for row in _SEARCHES if values <= row.most)
