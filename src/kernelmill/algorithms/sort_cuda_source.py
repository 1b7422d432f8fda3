"""The CUDA texts of sorts: one instance of a template of `device/radix*.cuh` each.

Which of them a call takes, and in what order, is in `sort_cuda.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelmill.algorithms.source import text_of
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.runtime.backend import KernelSource

if TYPE_CHECKING:
    from kernelmill.algorithms.policy_radix import RadixTile, TopkPolicy
    from kernelmill.dtypes import DType

__all__ = [
    "BELOW_THREADS",
    "COUNT_THREADS",
    "RANKED",
    "SEGMENTS_LISTED",
    "SEGMENTS_WARPS",
    "TAKEN",
    "TAKE_THREADS",
    "RadixOrder",
    "below_source",
    "count_room",
    "count_source",
    "pass_room",
    "pass_source",
    "ranks_room",
    "ranks_source",
    "rows_room",
    "rows_source",
    "segments_source",
    "take_source",
    "topk_source",
    "warps_room",
    "work_bytes",
]

# As device/radix.cuh and device/radix_take.cuh have them.
COUNT_THREADS: Final = 1024
TAKE_THREADS: Final = 256
TAKEN: Final = 1024  # elements of a block
SEGMENTS_LISTED: Final = 256
SEGMENTS_WARPS: Final = 128
RANKED: Final = 32  # likewise, of device/radix_ranks.cuh
BELOW_THREADS: Final = 512  # of device/topk.cuh
_DIGITS: Final = 256
_COUNT: Final = 4
_MOST_PASSES: Final = 8
_TICKETS: Final = 64
_DIGIT_BITS: Final = 8
_WORD: Final = 8


@dataclass(frozen=True, slots=True)
class RadixOrder:
    """What digits are of: bits `first` to `end` of the order of a type, from above or below."""

    type: DType
    first: int
    end: int
    descending: bool

    @property
    def passes(self) -> int:
        """How many digits there are; without bits, one that is the same for all."""
        return max(1, -(-(self.end - self.first) // _DIGIT_BITS))

    @property
    def is_whole(self) -> bool:
        """Whether all bits of an element count."""
        return self.first == 0 and self.end == 8 * self.type.itemsize

    @property
    def dear(self) -> int:
        """What it costs to look at a digit: 0 for integers, 1 for floats, 2 for pairs of them."""
        return {"float": 1, "complex": 2}.get(self.type.kind, 0)

    @property
    def text(self) -> str:
        """The type that says so in C++."""
        spelled = type_spelling(self.type, qualified=True)
        turned = str(self.descending).lower()
        return f"km::radix_order<{spelled}, {self.first}, {self.end}, {turned}>"

    def __str__(self) -> str:
        turned = ", descending" if self.descending else ""
        return f"{self.type}, bits {self.first} to {self.end}{turned}"


def work_bytes(tiles: int, place: int) -> int:
    """Return the memory of a call of several tiles, as `radix_work` lays it out."""
    return _MOST_PASSES * _DIGITS * _WORD + _TICKETS + tiles * _DIGITS * (_COUNT + place)


def count_room(order: RadixOrder, copies: int) -> int:
    """Return the shared memory of a block that counts."""
    return order.passes * _DIGITS * _COUNT * copies


def rows_room(tile: RadixTile, keys: int, payload: int) -> int:
    """Return the shared memory of a block that sorts a row."""
    return tile.elements * (keys + payload) + tile.warps * _DIGITS * _COUNT


def ranks_room(length: int, keys: int) -> int:
    """Return the shared memory of a block that compares its elements with a whole row."""
    return -(-length // RANKED) * RANKED * keys


def pass_room(tile: RadixTile, keys: int, payload: int) -> int:
    """Return the shared memory of a tile."""
    tables = 2 if tile.tabled else 1
    return tile.elements * (keys + payload) + tables * tile.warps * _DIGITS * _COUNT


def _tile(tile: RadixTile) -> str:
    numbers = (tile.warps, tile.items, tile.scanners, tile.tabled, tile.rest)
    return f"km::radix_tile<{', '.join(map(str, numbers))}>"


def _payload(nbytes: int) -> str:
    return f"km::u{8 * nbytes}" if nbytes else "km::no_payload"


@dataclass(frozen=True, slots=True)
class _Kernel:
    """One kernel that runs one instance of a template: `bounds` are those of its launches."""

    name: str
    template: str
    run: str
    operands: int
    bounds: str
    tile: int

    def source(self, check: str = "") -> KernelSource:
        """Return its whole text."""
        rest = (
            f"typedef {self.run} Run;\n{check}"
            f"KM_EXPORT void __launch_bounds__({self.bounds})\n"
            f"km_kernel(const __grid_constant__ km::RadixCall<{self.operands}> call) {{\n"
            "  km::take_turn();\n  Run::run(call);\n}\n"
        )
        return KernelSource(self.name, text_of(self.name, [self.template], [], rest), self.tile)


def _checked(room: int) -> str:
    return f'static_assert(Run::room == {room}, "what is asked of shared memory");\n'


def count_source(order: RadixOrder, place: int, copies: int) -> KernelSource:
    """Return the text that counts all digits; `place` is the bytes of a place."""
    run = f"km::radix_count<{order.text}, km::u{8 * place}, {copies}>"
    bounds = f"{COUNT_THREADS}, 1"
    return _Kernel(f"digits ({order})", "radix.cuh", run, 2, bounds, COUNT_THREADS).source()


def pass_source(order: RadixOrder, payload: int, place: int, tile: RadixTile) -> KernelSource:
    """Return the text of a pass over many tiles."""
    run = f"km::radix_pass<{order.text}, {_payload(payload)}, km::u{8 * place},\n    {_tile(tile)}>"
    name = f"radix pass ({order}, {payload} bytes beside)"
    check = _checked(pass_room(tile, order.type.itemsize, payload))
    bounds = f"{tile.threads}, {tile.resident}"
    return _Kernel(name, "radix_pass.cuh", run, 5, bounds, tile.elements).source(check)


def rows_source(order: RadixOrder, payload: int, tile: RadixTile) -> KernelSource:
    """Return the text that sorts rows, a block each."""
    run = f"km::radix_rows<{order.text}, {_payload(payload)},\n    {_tile(tile)}>"
    name = f"radix rows ({order}, {payload} bytes beside)"
    check = _checked(rows_room(tile, order.type.itemsize, payload))
    return _Kernel(name, "radix.cuh", run, 4, str(tile.threads), tile.elements).source(check)


def ranks_source(order: RadixOrder, payload: int, warps: int) -> KernelSource:
    """Return the text that sorts short rows by comparing all with all."""
    run = f"km::radix_ranks<{order.text}, {_payload(payload)}, {warps}>"
    name = f"radix ranks ({order}, {payload} bytes beside)"
    return _Kernel(name, "radix_ranks.cuh", run, 4, str(32 * warps), RANKED).source()


def _topk_block(order: RadixOrder, place: int, policy: TopkPolicy) -> str:
    numbers = f"{policy.threads}, {policy.capacity}"
    return f"km::topk_block<{order.text}, km::u{8 * place}, {numbers}>"


def topk_source(
    part: str, order: RadixOrder, place: int, policy: TopkPolicy, operands: int
) -> KernelSource:
    """Return the text of a launch of a topk whose blocks hold elements: "limit" or "first"."""
    block = _topk_block(order, place, policy)
    check = (
        f'static_assert({block}::room == {policy.capacity * (order.type.itemsize + place)}, "");\n'
    )
    kernel = _Kernel(f"topk {part} ({order})", "topk.cuh", f"km::topk_{part}<{block}>", operands,
                     str(policy.threads), policy.capacity)  # fmt: skip
    return kernel.source(check)


def below_source(order: RadixOrder, place: int, policy: TopkPolicy) -> KernelSource:
    """Return the text that finds what is below the limits of rows."""
    run = f"km::topk_below<{_topk_block(order, place, policy)}>"
    return _Kernel(f"topk below ({order})", "topk.cuh", run, 2, str(BELOW_THREADS),
                   BELOW_THREADS).source()  # fmt: skip


def warps_room(keys: int) -> int:
    """Return the shared memory of a block whose warps sort a segment each."""
    return SEGMENTS_WARPS // 32 * 512 * (2 * keys + 2)


def segments_source(
    part: str, order: RadixOrder, payload: int, offset: DType, tile: RadixTile
) -> KernelSource:
    """Return the text of a launch of a sort of segments: "listed", "of_warps" or "of_blocks"."""
    spelled = type_spelling(offset, qualified=True)
    last, threads = {
        "listed": (f", {tile.elements}", SEGMENTS_LISTED),
        "of_warps": ("", SEGMENTS_WARPS),
        "of_blocks": (f",\n    {_tile(tile)}", tile.threads),
    }[part]
    run = f"km::segments_{part}<{order.text}, {_payload(payload)}, {spelled}{last}>"
    name = f"segments {part} ({order}, {payload} bytes beside)"
    rooms = {
        "of_warps": warps_room(order.type.itemsize),
        "of_blocks": rows_room(tile, order.type.itemsize, payload),
    }
    check = _checked(rooms[part]) if part in rooms else ""
    kernel = _Kernel(name, "segmented_sort.cuh", run, 8, str(threads), tile.elements)
    return kernel.source(check)


def take_source(itemsize: int, word: int, place: int) -> KernelSource:
    """Return the text that takes elements of some bytes, in words, by their places."""
    run = f"km::radix_take<{itemsize}, km::u{8 * word}, km::u{8 * place}>"
    name = f"take elements of {itemsize} bytes"
    return _Kernel(name, "radix_take.cuh", run, 3, str(TAKE_THREADS), TAKEN).source()
