"""The short way of host kernels for NumPy arrays of other layouts: the very shapes and strides.

Arrays in C order have a faster one in `_native.c`. What arrays a kernel takes at all is decided
before, in `algorithms/`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.runtime.backend import FLAG_STREAM
from kernelmill.runtime.memory import empty_numpy
from kernelmill.runtime.native import native, stream_threshold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.runtime.backend import Allocator, Direct, Kernel
    from kernelmill.runtime.memory import View

__all__ = ["StridedLauncher", "strided_allocator"]

# Elements from which a kernel runs without the GIL, as in _native.c.
_GIL_ABOVE: Final = 32768


@dataclass(frozen=True, slots=True)
class _Expected:
    """What an operand must be: element type, shape and strides, and where its bytes lie.

    Those are `low` to `high` from its address on.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int
    low: int
    high: int

    @classmethod
    def of(cls, view: View) -> _Expected:
        """Return what the operand of another call was."""
        dtype, (low, high) = view.dtype.to_numpy(), view.bounds
        at = view.ptr
        return cls(dtype, view.shape, view.strides, dtype.alignment, low - at, high - at)


class StridedLauncher:
    """A kernel, called with NumPy arrays; False when they need the general path."""

    __slots__ = (
        "_captures", "_count", "_elements", "_entry", "_expected", "_flags", "_inputs", "_known",
        "_serial_below", "_shape", "_strides", "_workspace",
    )  # fmt: skip

    def __init__(self, kernel: Kernel, direct: Direct) -> None:
        """Serve calls like `direct`, of its very shapes and strides, none of which are empty."""
        self._entry = kernel.entry
        self._expected = tuple(map(_Expected.of, direct.views))
        self._count = len(direct.views)
        self._inputs = self._count - direct.outputs
        at = [view.ptr for view in direct.views]
        self._known = [[ptr - out for ptr in at] for out in at]
        self._captures = direct.constants or bytes(direct.captures)
        self._shape, self._strides = direct.shape, direct.strides
        self._elements = math.prod(direct.shape)
        moved = sum(view.nbytes for view in direct.views)
        streams = FLAG_STREAM if moved > stream_threshold() else 0
        self._flags = streams if direct.flags is None else direct.flags
        self._workspace = direct.workspace
        self._serial_below = direct.serial_below

    def __call__(self, *operands: Any) -> bool:
        """Run the kernel on the arrays, inputs first; a last `bytes` replaces the captures."""
        count, captures = self._count, self._captures
        if len(operands) == count + 1:
            captures = operands[count]
            if type(captures) is not bytes or len(captures) != len(self._captures):
                return False
        elif len(operands) != count:
            return False
        module = native()
        address = module.address
        pointers: list[int] = []
        for operand, expected in zip(operands, self._expected, strict=False):
            if type(operand) is not np.ndarray:
                return False
            at, _, dtype, shape, strides, is_readonly = address(operand)
            if (
                shape != expected.shape
                or strides != expected.strides
                or dtype != expected.dtype
                or at % expected.alignment
                or (is_readonly and len(pointers) >= self._inputs)
            ):
                return False
            pointers.append(at)
        if self._overlap(pointers):
            return False
        elements = self._elements
        return module.call(
            self._entry,
            self._shape,
            tuple(pointers),
            self._strides,
            captures,
            self._workspace,
            self._flags,
            min(module.thread_count(), 1 + elements // self._serial_below),
            elements > _GIL_ABOVE,
        )

    def _overlap(self, pointers: list[int]) -> bool:
        """Whether an output may share bytes with another operand, so that the general path decides.

        It has decided of operands that lie as they did in the call that was prepared.
        """
        expected = self._expected
        for out in range(self._inputs, self._count):
            start = pointers[out]
            low, high = start + expected[out].low, start + expected[out].high
            for k in range(out):
                at = pointers[k]
                meet = at + expected[k].low < high and low < at + expected[k].high
                if meet and at - start != self._known[out][k]:
                    return True
        return False


def strided_allocator(results: Sequence[View]) -> Allocator:
    """Return what makes NumPy arrays of these shapes, in the same order of memory."""
    return partial(_allocated, tuple(map(_order_of, results)))


_Made = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any]]


def _order_of(view: View) -> _Made:
    """Return the shape in the order of memory, the axes to turn it back by, and the dtype."""
    axes = sorted(range(len(view.shape)), key=lambda axis: -view.strides[axis])
    back = tuple(sorted(range(len(axes)), key=axes.__getitem__))
    return tuple(view.shape[axis] for axis in axes), back, view.dtype.to_numpy()


def _allocated(made: tuple[_Made, ...], _: tuple[Any, ...]) -> Any:
    arrays = tuple(empty_numpy(shape, dtype).transpose(back) for shape, back, dtype in made)
    return arrays[0] if len(arrays) == 1 else arrays
