"""`topk` on a device: the launches of `device/topk.cuh`, or a sort where much is asked for.

What a call is, is in `topk.py`; the numbers that tune are in `policy_radix.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kernelmill.algorithms.arguments import Argument
from kernelmill.algorithms.merges_sort import bind_merge_sort
from kernelmill.algorithms.policy import chip_of
from kernelmill.algorithms.policy_radix import topk_policy
from kernelmill.algorithms.series import bound_steps
from kernelmill.algorithms.sort_call import SortRequest
from kernelmill.algorithms.sort_cuda import (
    Call,
    absent,
    bind_cuda_sort,
    copied,
    has_digits,
    taken,
    whole_order,
)
from kernelmill.algorithms.sort_cuda_passes import NARROW, as_rows, built_for, new, step
from kernelmill.algorithms.sort_cuda_source import BELOW_THREADS, below_source, topk_source
from kernelmill.algorithms.sort_host import HostSort
from kernelmill.dtypes import DType, int64, uint8
from kernelmill.runtime.backend import Grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.algorithms.plan import Bound
    from kernelmill.algorithms.policy_radix import TopkPolicy
    from kernelmill.dtypes import StructType
    from kernelmill.runtime.backend import Backend, KernelSource
    from kernelmill.runtime.memory import View

__all__ = ["Asked", "bind_cuda_topk"]

# As device/topk.cuh has them.
_ROW: Final = 24


@dataclass(frozen=True, slots=True)
class Asked:
    """A topk whose arguments are checked: `outputs` are values and places."""

    x: Argument
    outputs: tuple[Argument, ...]
    axis: int
    k: int
    largest: bool
    backend: Backend


def bind_cuda_topk(asked: Asked) -> Bound:
    """Bind a topk to its launches: the first one, and what follows it."""
    chip = chip_of(asked.backend.arch)
    policy = topk_policy(chip)
    request = SortRequest("argsort", descending=asked.largest, axis=asked.axis)
    work = HostSort(request, asked.x, (), asked.outputs, asked.axis, None, asked.backend)
    call = _Topk(work, chip, k=asked.k)
    if asked.k > policy.most or not has_digits(work):
        call.sort()
    else:
        call.select(policy)
    return bound_steps(call.steps)


@dataclass(slots=True, kw_only=True)
class _Topk(Call):
    """A topk on its way to launches."""

    k: int

    # ------------------------------------------------------------------ by a sort

    def sort(self) -> None:
        """Sort places of all elements, and take the first ones."""
        work, shape = self.work, self.work.shape
        x = replace(work.keys, view=self._rows(work.type.alignment))
        places = self._made(int64)
        request = replace(work.request, axis=1)
        to = Argument("places", places, int64)
        sort = HostSort(request, x, (), (to,), 1, None, work.backend)
        self.steps.append((bind_cuda_sort if has_digits(sort) else bind_merge_sort)(sort))
        values = self._made(work.type)
        self.steps.append(taken(x.view, places, values, shape, work.backend))
        for sorted_, output in zip((values, places), work.outputs, strict=True):
            target = self._moved(output.view)
            self.steps.append(copied(output.name, _first_of(sorted_, target), target))

    def _made(self, dtype: DType | StructType) -> View:
        """Return memory for a value of each element."""
        view = self.work.keys.view
        return as_rows(new(view, view.size * dtype.itemsize), self.work.shape, dtype)

    def _rows(self, unit: int) -> View:
        return self.input(self.work.keys, unit, in_place=False)

    # ------------------------------------------------------------------ by limits

    def select(self, policy: TopkPolicy) -> None:
        """Bind the launches that find limits, what is below them, and the first of it."""
        work, (rows, length) = self.work, self.work.shape
        order = whole_order(work)
        place = 4 if length <= NARROW else 8
        keys = self._rows(work.type.itemsize)
        shape = (rows, self.k)
        found = [
            as_rows(self.output(o, o.view.dtype.itemsize), shape, o.view.dtype)
            for o in work.outputs
        ]
        alone = length <= policy.alone or not 0 < rows < work.backend.multiprocessors
        capacity, memory = 0, absent(keys)
        if not alone:
            bits = policy.sample_bits(length)
            which = policy.which(self.k, length, bits)
            capacity = -(-(policy.room * which * length >> bits) // 16) * 16
            held = order.type.itemsize + place
            memory = replace(new(keys, rows * (_ROW + capacity * held)), dtype=uint8)
            limit = partial(topk_source, "limit", order, place, policy, 2)
            self._launch(("limit", order, place, policy), limit, (keys, memory),
                         Grid(rows, policy.threads, (capacity, which, bits),
                              shared=policy.capacity * held))  # fmt: skip
            a_block = BELOW_THREADS * policy.asked // order.type.itemsize
            most = -(-policy.blocks * work.backend.multiprocessors // rows)
            blocks = max(1, min(most, -(-length // a_block)))
            self._launch(("below", order, place, policy),
                         partial(below_source, order, place, policy), (keys, memory),
                         Grid(rows * blocks, BELOW_THREADS, (capacity, blocks, 0)))  # fmt: skip
        first = partial(topk_source, "first", order, place, policy, 4)
        self._launch(("first", order, place, policy), first, (keys, memory, *found),
                     Grid(rows, policy.threads, (capacity, self.k, 0),
                          shared=policy.capacity * (order.type.itemsize + place)))  # fmt: skip
        self.steps += self.later

    def _launch(
        self,
        key: tuple[object, ...],
        source: Callable[[], KernelSource],
        views: tuple[View, ...],
        grid: Grid,
    ) -> None:
        built = built_for(("topk", *key), self.work.backend, self.work.type.itemsize, source)
        bound = step(built, self.work.shape, views, grid)
        self.steps.append(bound if self.k else replace(bound, elements=0))


def _first_of(rows: View, like: View) -> View:
    """Return the first elements of rows, as many and in the shape of another array."""
    shape = like.shape
    steps, far = [rows.strides[1]], rows.strides[0]
    for extent in reversed(shape[1:-1] if len(shape) > 1 else ()):
        steps.append(far)
        far *= extent
    if len(shape) > 1:
        steps.append(far)
    return replace(rows, shape=shape, strides=tuple(reversed(steps)))
