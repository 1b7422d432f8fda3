"""`segmented_sort` on a device by comparison: elements carry the numbers of their segments.

The function and its checks are in `segmented_sort.py`, the sort in `merges_sort.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kernelmill.algorithms.merges_sort import MergeCall, fitting_tile, order_of
from kernelmill.algorithms.merges_source import pack_source, unpack_source
from kernelmill.algorithms.policy_merges import pack_policy
from kernelmill.algorithms.series import bound_steps
from kernelmill.algorithms.sort_cuda_passes import Arrays
from kernelmill.runtime.backend import Grid

if TYPE_CHECKING:
    from kernelmill.algorithms.arguments import Argument
    from kernelmill.algorithms.plan import Bound
    from kernelmill.algorithms.sort_host import HostSort

__all__ = ["bind_merge_segments"]


def bind_merge_segments(work: HostSort, offsets: Argument) -> Bound:
    """Bind a sort of segments by comparison to its launches: the first, and what follows it.

    Raises
    ------
    NotImplementedHere
        Elements have more bytes than a tile holds.
    """
    order = replace(order_of(work), parted=True)
    tile = fitting_tile("segmented_sort", order, work.length, work.backend, pays=bool(work.values))
    call = _SegmentsCall(work, order.chip, order=order, tile=tile, offsets=offsets)
    call.bind()
    return bound_steps(call.steps)


@dataclass(slots=True, kw_only=True)
class _SegmentsCall(MergeCall):
    """A call whose elements are compared by their segments first."""

    offsets: Argument

    def bind(self) -> None:
        """Bind all launches of the call."""
        work, nbytes, unit = self.work, self.payload_bytes(), self.work.type.alignment
        keys = self.input(work.keys, unit, in_place=True)  # gone before anything is written
        payload = self.payload(keys, nbytes, in_place=False)
        to = self.output(work.outputs[0], unit)
        given, packed, sorted_ = self.line(self.offsets), self.items(), self.items()
        threads = pack_policy().threads
        pack = self.built(
            ("pack segments", given.dtype),
            partial(pack_source, self.order, given.dtype, threads),
        )
        self.steps.append(self.launch(pack, (keys, given, packed), self._grid(given.size)))
        arrays = Arrays(packed, payload.read, sorted_, payload.written)
        self.merge(arrays, self.passes, nbytes, wide=payload.wide)
        unpack = self.built(("unpack segments",), partial(unpack_source, self.order, threads))
        self.steps.append(self.launch(unpack, (sorted_, to), self._grid(0)))
        self.steps += [*self.takes(payload), *self.later]

    def _grid(self, count: int) -> Grid:
        policy = pack_policy()
        most = self.work.backend.multiprocessors * policy.resident
        blocks = min(most, max(1, -(-self.work.length // policy.threads)))
        return Grid(blocks, policy.threads, (count, 0, 0, 0, 0))
