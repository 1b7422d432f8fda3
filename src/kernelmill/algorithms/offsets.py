"""What offsets of segments must be: within the elements, and ascending; arrays and iterators.

What is done with segments is in `segments.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmill.algorithms.iterators import strided
from kernelmill.algorithms.moves import computed
from kernelmill.algorithms.reduce import transform_reduce
from kernelmill.algorithms.sequences import length_of
from kernelmill.algorithms.transform import transform
from kernelmill.compiler.op import WELL_KNOWN
from kernelmill.errors import ArgumentError
from kernelmill.runtime.memory import is_on_cuda

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["check_computed", "check_offsets"]


def check_offsets(
    offsets: Sequence[Any], length: int, *, whole: bool
) -> np.ndarray[Any, Any] | None:
    """Check offsets, or begins and ends, in the memory of the host; return lengths of segments.

    Offsets in the memory of a device are not looked at, which would be a wait. Those that are no
    offsets at all are left to others. `whole` says that all elements have a segment.
    """
    if any(map(is_on_cuda, offsets)):
        return None
    found = [np.asarray(a) for a in offsets]
    if any(a.ndim != 1 or a.dtype.kind not in "iu" or not a.size for a in found):
        return None
    begins, ends = (found[0][:-1], found[0][1:]) if len(found) == 1 else found
    if begins.shape != ends.shape:
        return None
    names = ("offsets", "offsets") if len(found) == 1 else ("offsets[0]", "offsets[1]")
    for name, a in zip(names, found, strict=False):
        if a.min() < 0 or a.max() > length:
            at = int(np.argmax((a < 0) | (a > length)))
            raise ArgumentError(
                f"`{name}[{at}]` is {a[at]}; the limits are 0 and {length}, the length of `x`"
            )
    if bool(np.any(begins > ends)):
        at = int(np.argmax(begins > ends))
        if len(found) == 1:
            raise ArgumentError(
                f"`offsets` must not decrease: offsets[{at}] is {begins[at]}, "
                f"offsets[{at + 1}] is {ends[at]}"
            )
        raise ArgumentError(f"segment {at} begins at {begins[at]} and ends at {ends[at]}")
    if whole and found[0].size and (found[0][0] != 0 or found[0][-1] != length):
        raise ArgumentError(
            f"`offsets` go from {found[0][0]} to {found[0][-1]}; a scan has segments from 0 to "
            f"{length}, the length of `x`"
        )
    lengths: np.ndarray[Any, Any] = ends - begins
    return lengths


def check_computed(
    offsets: Sequence[Any], length: int, *, whole: bool, lacks: bool
) -> np.ndarray[Any, Any] | None:
    """Check offsets of which some are iterators, as `check_offsets`, without memory for them.

    Returns None where all is well. `lacks` says that segments without elements have no result.
    """
    if _are_right(offsets, length, whole=whole, lacks=lacks):
        return None
    return check_offsets(computed(tuple(offsets), "offsets"), length, whole=whole)


def _as_it_is(value: Any) -> Any:
    return value


def _are_right(offsets: Sequence[Any], length: int, *, whole: bool, lacks: bool) -> bool:
    first, last = offsets[0], offsets[-1]
    count = length_of(first)
    if len(offsets) == 1:
        if count is None or count < 2:  # noqa: PLR2004 - no segment
            return False
        begins, ends = strided(first, 1, count=count - 1), strided(last, 1, start=1)
        if whole:
            outer = transform(strided(first, count - 1, count=2), _as_it_is)
            if outer.tolist() != [0, length]:
                return False
    else:
        if not count or count != length_of(last):
            return False
        begins, ends = first, last
    least = int(lacks)

    def room(begin: Any, end: Any) -> Any:
        low, high = np.int64(begin), np.int64(end)
        return min(low, length - high, high - low - least)

    return bool(transform_reduce((begins, ends), room, WELL_KNOWN["minimum"]) >= 0)
