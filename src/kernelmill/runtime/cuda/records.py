"""The record that a kernel of the templates is called with: what `Call` is in device/transform.cuh.

Captured scalars and values first, then addresses, counts, shape and strides, then what else a
family passes. Where its numbers come from is not here.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SLOT", "Layout", "layout_of", "write"]

# These stand in device/transform.cuh as well.
DIMS: Final = 8
SLOT: Final = 16


class Layout:
    """Where the parts of a record lie: `room` bytes of scalars, so many operands and numbers."""

    __slots__ = ("_packer", "count_at", "extra_at", "pointers_at", "size")

    def __init__(self, room: int, operands: int, extra: int) -> None:
        numbers = 2 + DIMS + DIMS * operands
        self._packer = struct.Struct(f"<{room}s{operands}Q{numbers + extra}q")
        self.pointers_at = room
        self.count_at = room + 8 * operands
        self.extra_at = self.count_at + 8 * numbers
        self.size = -(-self._packer.size // SLOT) * SLOT

    def pack_into(self, record: bytearray, block: bytes, numbers: Sequence[int]) -> None:
        """Write a whole record."""
        self._packer.pack_into(record, 0, block, *numbers)


@lru_cache(maxsize=1024)
def layout_of(block: int, operands: int, extra: int) -> Layout:
    """Return the layout for a block of so many bytes of scalars."""
    return Layout(max(block, SLOT), operands, extra)


def write(
    record: bytearray,
    block: bytes,
    pointers: Sequence[int],
    shape: Sequence[int],
    strides: Sequence[Sequence[int]],
    *,
    extra: Sequence[int] = (),
) -> None:
    """Write the record of a call; strides in bytes, a sequence an operand."""
    layout = layout_of(len(block), len(pointers), len(extra))
    assert len(record) == layout.size, "the text has another record"
    elements = 1
    for extent in shape:
        elements *= extent
    rest = (0,) * (DIMS - len(shape))
    numbers = [*pointers, elements, len(shape), *shape, *rest]
    for steps in strides:
        numbers += steps
        numbers += rest
    numbers += extra
    layout.pack_into(record, block, numbers)
