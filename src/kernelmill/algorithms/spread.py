"""How a reduction is spread over a device: which loops, how many threads, pieces and blocks.

Only arithmetic: the loops are in `device/reduce*.cuh`, the text that names them in
`source_reduce.py`. Everything here depends on types, shape and chip alone, so that the same call
on the same chip combines in the same order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kernelmill.runtime.backend import Grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.layout import Access, ReductionLayout

__all__ = [
    "CHUNK",
    "RESIDENT",
    "Order",
    "Spread",
    "grid_of",
    "orders_of",
    "spread_of",
    "state_bytes",
]

# Any fixed order; that of the reduction tree with its lanes; that of the elements.
Order: TypeAlias = Literal["free", "tree", "ordered"]
Loops: TypeAlias = Literal[
    "one", "several", "by_warp", "blocks", "teams", "few", "columns", "narrow"
]

# The numbers of docs/reference/reduction-tree.md.
CHUNK: Final = 16384
_RUN: Final = 16
_WARP: Final = 32
_PACKET: Final = 16
# Threads of a block that several sequences share, or several columns.
_SHARING: Final = 256
# Threads of a block that has a sequence, or a piece of it: the least that serve, and those of
# pieces where the chip is not filled, and where it is.
_ALONE: Final = (128, 256, 512, 1024)
_FEW: Final = 256
_MANY: Final = 512
# Threads on a multiprocessor with which its loads are quickest.
RESIDENT: Final = 1024
# Where one sequence has at most so many packets, so many blocks of so many threads have it at the
# most, and each warp hands over what it has; a thread then asks for so many packets at a time.
_NEAR: Final = 1 << 16
_NEAR_BLOCKS: Final = 64
_NEAR_THREADS: Final = 128
_NEAR_UNROLL: Final = 4
# The most packets of one thread, from where on a row has more threads; the most bytes of results
# that a thread keeps, and a block exchanges.
_MOST_PACKETS: Final = 32
# Neighbouring threads that read a whole line of the cache.
_LINE: Final = 8
_KEPT: Final = 64
_EXCHANGED: Final = 32 << 10
# Up to so many steps of a thread, a sequence has no more pieces than there are multiprocessors.
_FEW_STEPS: Final = 4
# Blocks on a multiprocessor, over all of which pieces are spread.
_COLUMN_BLOCKS: Final = 2
_ORDERED_BLOCKS: Final = 8
# Bytes that a thread asks for at a time; the most neighbours, and bytes of values made of them.
_ASKED: Final = 128
_HELD: Final = 16
_LEAST_UNROLL: Final = 4
_MOST_UNROLL: Final = 8
_HELD_BYTES: Final = 256
# The most columns for which whole memory is read instead.
_NARROW: Final = 16
# Operands that are read for each element.
_READ: Final = frozenset(("contiguous", "strided", "unaligned"))
# Bytes of a part in a record, of a record, and how many records a launch may have.
_WORD: Final = 8
_RECORD: Final = 16
_MOST_RECORDS: Final = 4096
_STATE_ALIGNMENT: Final = 16
_MOST_BLOCKS: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Spread:
    """The loops of a kernel: what its text depends on besides operators and operands.

    `orders` are those of its passes; `threads` make a block, `team` of them share a sequence, or
    lie side by side over columns; a thread takes `unroll` packets of `packet` neighbours at a time,
    of `rows` sequences.
    """

    loops: Loops
    orders: tuple[Order, ...]
    threads: int
    team: int
    packet: int
    unroll: int
    nested: bool
    rows: int = 1


def orders_of(folds: Sequence[tuple[bool, bool]], *, as_tree: bool) -> tuple[Order, ...]:
    """Return the order of each pass over the elements.

    `folds` says of each whether it is ordered, and whether any order gives its bits; `as_tree` asks
    for the bits of the reduction tree. Ordered passes give them always, and serve any fold.
    """
    ordered = any(o for o, _ in folds)
    lanes = as_tree and not all(o or exact for o, exact in folds)
    if ordered:
        return ("tree", "ordered") if lanes else ("ordered",)
    return ("tree",) if lanes else ("free",)


def spread_of(
    layout: ReductionLayout,
    inputs: Sequence[tuple[int, Access]],
    states: Sequence[int],
    orders: tuple[Order, ...],
    multiprocessors: int,
) -> Spread:
    """Choose the loops for a layout.

    `inputs` are itemsize and access of each input, `states` the bytes of accumulators of each pass.
    """
    if layout.form == "columns":
        if orders == ("free",) and _are_narrow(layout, inputs):
            packet = _packet(inputs, states[0])
            unroll = _unroll(packet, inputs, states[0])
            if _SHARING * packet * states[0] <= _EXCHANGED:
                return Spread("narrow", orders, _SHARING, 1, packet, unroll, nested=False)
        return _columns(layout, inputs, max(states), orders, multiprocessors)
    few = _few(layout, inputs, max(states), orders, multiprocessors)
    if few is not None:
        return few
    rows, length = _rows(layout)
    packet = _packet(inputs, max(states)) if "tree" not in orders else 1
    unroll = _unroll(packet, inputs, max(states))
    if "tree" in orders:
        return _tree(layout, orders, unroll, multiprocessors)
    if orders[0] == "ordered":
        team = _ordered_team(rows, length, multiprocessors)
    else:
        team = _team(rows, -(-length // packet), unroll, multiprocessors)
    loops: Loops = "teams" if team <= _WARP else "blocks"
    if loops == "blocks" and orders == ("free",) and layout.form == "rows" and not layout.kept:
        alone = length // (team * packet * unroll) <= 1
        most = multiprocessors * RESIDENT // team * -(-states[0] // _WORD)
        loops = "one" if alone else "several" if most <= _MOST_RECORDS else "blocks"
        if loops == "several" and -(-length // packet) <= _NEAR:
            loops, team, unroll = "by_warp", _NEAR_THREADS, min(unroll, _NEAR_UNROLL)
    threads = _SHARING if loops == "teams" else team
    return Spread(loops, orders, threads, team, packet, unroll, layout.form == "runs")


def _tree(
    layout: ReductionLayout, orders: tuple[Order, ...], unroll: int, multiprocessors: int
) -> Spread:
    """Return the loops in the order of the tree: a warp for each chunk, spread far apart."""
    rows, length = _rows(layout)
    nested = layout.form == "runs"
    if length <= CHUNK:
        return Spread("teams", orders, _SHARING, _WARP, 1, unroll, nested)
    chunks, threads = rows * -(-length // CHUNK), _SHARING
    while threads > _WARP and chunks * _WARP < multiprocessors * threads:
        threads //= 2
    return Spread("blocks", orders, threads, threads, 1, unroll, nested)


def _few(
    layout: ReductionLayout,
    inputs: Sequence[tuple[int, Access]],
    state: int,
    orders: tuple[Order, ...],
    multiprocessors: int,
) -> Spread | None:
    """Return the loops for many sequences that a few packets hold; None for others."""
    rows, length = _rows(layout)
    if layout.form != "rows" or len(orders) > 1 or orders[0] == "ordered":
        return None
    packet = _packet(inputs, state)
    while length % packet:
        packet //= 2
    packets = length // packet
    team = 1 if packets <= _LEAST_UNROLL or orders[0] == "tree" else _LINE
    each = -(-packets // team)
    held = each * packet * state
    if each > _MOST_UNROLL or held > _HELD_BYTES or each * packet > _RUN:
        return None
    if rows * team < multiprocessors * RESIDENT // 2:
        return None
    taken = sum(size for size, pattern in inputs if pattern in _READ) * each * packet
    most = max(1, min(_ASKED // 2 // max(1, taken), _HELD_BYTES // held, _MOST_UNROLL))
    at_once = 1 << (most.bit_length() - 1)
    return Spread("few", orders, _SHARING, team, packet, each, nested=False, rows=at_once)


def _rows(layout: ReductionLayout) -> tuple[int, int]:
    """Return how many sequences there are, and their length."""
    shape, kept = layout.shape, layout.kept
    return math.prod(shape[:kept]), math.prod(shape[kept:])


def _packet(inputs: Sequence[tuple[int, Access]], state: int) -> int:
    """Return how many neighbours a thread takes by one access, a power of two."""
    sizes = [size for size, pattern in inputs if pattern == "contiguous"]
    if not sizes:
        return 1
    wide = _HELD
    while wide > 1 and (wide * max(sizes) > _PACKET or wide * state > 2 * _KEPT):
        wide //= 2
    return wide


def _unroll(packet: int, inputs: Sequence[tuple[int, Access]], state: int) -> int:
    """Return how many packets a thread asks for before it uses the first."""
    taken = sum(size for size, pattern in inputs if pattern in _READ)
    most = min(
        max(_LEAST_UNROLL, _HELD // packet),
        _ASKED // max(1, packet * taken),
        _HELD_BYTES // (packet * state),
        _MOST_UNROLL,
    )
    return 1 << (max(1, most).bit_length() - 1)


def _ordered_team(rows: int, length: int, multiprocessors: int) -> int:
    """Return how many threads share a sequence, each with a run of it at a time."""
    if length <= _RUN:
        return 1
    alone = length <= _RUN * _WARP or rows >= multiprocessors * RESIDENT // _WARP
    return _WARP if alone else _SHARING


def _team(rows: int, packets: int, unroll: int, multiprocessors: int) -> int:
    """Return how many threads share a sequence: some of a warp, or whole blocks."""
    threads = multiprocessors * RESIDENT // max(1, rows)
    wanted = min(packets // unroll, max(threads, packets // _MOST_PACKETS))
    wanted = max(wanted, min(_LINE, packets // 2))
    for team, most in ((1, 2), (8, 16), (_WARP, 2 * _WARP)):
        if wanted <= most:
            return team
    alone = next((team for team in _ALONE if wanted <= team), None)
    return alone or (_MANY if wanted >= threads else _FEW)


def _are_narrow(layout: ReductionLayout, inputs: Sequence[tuple[int, Access]]) -> bool:
    """Return whether a few columns lie side by side, one row after the other, in every input."""
    length, extent = layout.shape[-2:]
    if extent > _NARROW or len(layout.shape) - layout.kept > 2:  # noqa: PLR2004 - rows and columns
        return False
    read = [
        (size, strides)
        for (size, pattern), strides in zip(inputs, layout.strides, strict=False)
        if pattern != "by_value"
    ]
    dense = all(strides[-2:] == (extent * size, size) for size, strides in read)
    patterns = {pattern for _, pattern in inputs} - {"by_value"}
    return dense and patterns == {"contiguous"} and length >= _SHARING


def _columns(
    layout: ReductionLayout,
    inputs: Sequence[tuple[int, Access]],
    state: int,
    orders: tuple[Order, ...],
    multiprocessors: int,
) -> Spread:
    """Return the loops over columns: as many side by side as still fill the chip."""
    extent = layout.shape[-1]
    packet = min(_packet(inputs, state), 4)
    if "tree" in orders and state > 8:  # noqa: PLR2004 - 64 lanes of more would not fit a thread
        packet = 1
    while packet > 1 and packet * 8 > extent:
        packet //= 2
    across = 8
    while across < _WARP and across * packet < extent:
        across *= 2
    threads = _SHARING
    while threads > 1 and threads * packet * state > _EXCHANGED:
        threads //= 2
    across = min(across, threads)
    outside = math.prod(layout.shape[: layout.kept]) * extent // packet
    while across < threads and "tree" not in orders and outside >= 16 * multiprocessors * across:
        across *= 2
    nested = len(layout.shape) - layout.kept > 2  # noqa: PLR2004 - one reduced, and the columns
    return Spread("columns", orders, threads, across, packet, 4, nested)


# --------------------------------------------------------------------------------------- launch


def grid_of(
    spread: Spread, layout: ReductionLayout, states: Sequence[int], multiprocessors: int
) -> Grid:
    """Return the blocks of a launch and the pieces that sequences are cut into."""
    if spread.loops == "narrow":
        width = layout.shape[-1]
        units, length = math.prod(layout.shape[: layout.kept]), layout.shape[-2]
        piece = _piece_of_narrow(spread, units, length, width, multiprocessors)
    elif spread.loops == "columns":
        width = spread.team * spread.packet
        length = math.prod(layout.shape[layout.kept : -1])
        units = math.prod(layout.shape[: layout.kept]) * -(-layout.shape[-1] // width)
        piece = _piece_of_columns(spread, units, length, multiprocessors)
    else:
        width = 1
        units, length = _rows(layout)
        piece = _piece_of_rows(spread, units, length, multiprocessors)
    if spread.loops in ("teams", "few"):
        blocks, pieces = -(-units * spread.team // (spread.threads * spread.rows)), 1
    else:
        pieces = max(1, -(-length // max(1, piece)))
        blocks = units * pieces
    if spread.loops in ("several", "by_warp"):
        records = pieces * (spread.threads // _WARP if spread.loops == "by_warp" else 1)
        return Grid(
            blocks=pieces,
            threads=spread.threads,
            numbers=(0, length, 1, pieces, piece, 0),
            parts=_RECORD * (1 + records * -(-states[0] // _WORD)),
            tickets=1,
            tagged=True,
        )
    parts = [_whole(units * pieces * width * state) for state in states] if pieces > 1 else [0]
    return Grid(
        blocks=min(blocks, _MOST_BLOCKS),
        threads=spread.threads,
        numbers=(layout.kept, length, units, pieces, piece, max(parts)),
        parts=max(parts) * len(parts),
        tickets=units * len(states) if pieces > 1 else 0,
    )


def _whole(nbytes: int) -> int:
    return -(-nbytes // 256) * 256


def _piece_of_rows(spread: Spread, units: int, length: int, multiprocessors: int) -> int:
    if spread.loops in ("teams", "few"):
        return length
    if "tree" in spread.orders:
        return CHUNK * (spread.threads // _WARP)
    if spread.orders[0] == "ordered":
        return _doubled(_RUN * spread.threads, units, length, _ORDERED_BLOCKS * multiprocessors)
    step = spread.threads * spread.packet
    if spread.loops == "by_warp":
        return -(-length // (max(1, min(length // step, _NEAR_BLOCKS)) * step)) * step
    most = max(1, RESIDENT // spread.threads * multiprocessors // max(1, units))
    pieces = length // (step * spread.unroll)
    if spread.loops == "several":
        few = length <= _FEW_STEPS * multiprocessors * step * spread.unroll
        pieces = min(pieces, multiprocessors if few else most)
        step *= spread.unroll  # no thread takes one packet alone
    elif pieces * units > multiprocessors:  # rather longer pieces than two on a multiprocessor
        pieces //= 2
    pieces = max(1, min(pieces, most))
    return -(-length // (pieces * step)) * step


def _piece_of_narrow(
    spread: Spread, units: int, length: int, columns: int, multiprocessors: int
) -> int:
    """Return the rows of a piece, whose elements are whole steps of a block."""
    step = spread.threads // columns * spread.packet
    most = max(1, RESIDENT // spread.threads * multiprocessors // max(1, units))
    pieces = max(1, min(length // (step * spread.unroll), most))
    return -(-length // (pieces * step)) * step


def _piece_of_columns(spread: Spread, units: int, length: int, multiprocessors: int) -> int:
    beside = spread.threads // spread.team
    if "tree" in spread.orders:
        return CHUNK
    most = _COLUMN_BLOCKS * multiprocessors
    if spread.orders[0] == "ordered":
        return _doubled(_RUN * beside, units, length, most)
    pieces = max(1, min(length // (beside * spread.unroll * 2), most // max(1, units)))
    return -(-length // pieces)


def _doubled(piece: int, units: int, length: int, most: int) -> int:
    """Return a piece, doubled until there are no more than so many of them."""
    while units * -(-length // piece) > most and piece < length:
        piece *= 2
    return piece


def state_bytes(accumulators: Sequence[int]) -> int:
    """Return the most bytes that accumulators of these sizes take side by side."""
    if len(accumulators) == 1:
        return accumulators[0]
    return sum(-(-n // _STATE_ALIGNMENT) * _STATE_ALIGNMENT for n in accumulators)
