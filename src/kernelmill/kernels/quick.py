"""The quick way to launch a kernel again: calls that look alike are told apart by a few attributes.

A call whose arrays are tensors of torch, arrays of CuPy or our own in the memory of a device, and
whose other arguments are Python numbers, is looked up here; all else takes the general way.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kernelmill.compiler.narrow import NARROW_LIMIT
from kernelmill.runtime.cuda.arrays import CudaArray

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from kernelmill.kernels.arguments import Given
    from kernelmill.kernels.variants import Variant

__all__ = ["QuickCall", "QuickCalls", "look"]

# Positions in memory matter to a kernel by their low bits.
_ALIGNMENT: Final = 15
_MOST: Final = 256
# Larger floats, and NaN, are rounded with care where float32 is passed.
_SINGLE: Final = 3.4e38


@dataclass(frozen=True, slots=True)
class QuickCall:
    """What a call needs that looks like an earlier one.

    `values` is what is passed; `places` are positions in it and of the argument that goes there.
    `spans` are the first and the last byte of each array, counted from its address.
    """

    variant: Variant
    loaded: Any  # Any: a kernel of a device
    values: tuple[object, ...]
    places: tuple[tuple[int, int], ...]
    spans: tuple[tuple[int, int], ...]

    def passed(self, args: Sequence[object]) -> list[object]:
        """Return what is passed for the arguments of a call."""
        made = list(self.values)
        for place, argument in self.places:
            made[place] = args[argument]
        return made


@dataclass(slots=True)
class QuickCalls:
    """Calls of one kernel, by what they look like."""

    found: dict[Hashable, QuickCall] = field(default_factory=dict)

    def get(self, key: Hashable, addresses: Sequence[int]) -> QuickCall | None:
        """Return an earlier call like this one, unless its arrays overlap or it is out of date."""
        call = self.found.get(key)
        if call is None or not call.variant.is_current():
            return None
        if len(addresses) > 1 and not _apart(addresses, call.spans):
            return None
        return call

    def keep(
        self, key: Hashable, given: Sequence[Given], variant: Variant, loaded: Any
    ) -> None:  # Any: as above
        """Keep a call whose arrays do not overlap."""
        if not variant.kernel.disjoint:
            return
        places, spans = [], []
        order = {g.name: i for i, g in enumerate(given)}
        for place, parameter in enumerate(variant.parameters):
            if parameter.kind in ("data", "scalar"):
                places.append((place, order[parameter.name]))
        for one in given:
            view: Any = one.value
            if one.original is not None:
                low, high = view.bounds
                spans.append((low - view.ptr, high - view.ptr))
        filled = {place for place, _ in places}  # kept arrays would live as long as the kernel
        values = tuple(
            None if place in filled else value for place, value in enumerate(variant.passed(given))
        )
        if len(self.found) >= _MOST:
            self.found.clear()
        self.found[key] = QuickCall(variant, loaded, values, tuple(places), tuple(spans))


def _apart(addresses: Sequence[int], spans: Sequence[tuple[int, int]]) -> bool:
    """Whether no two arrays share memory.

    There are few: comparing each with each takes less time than sorting them.
    """
    for i, (low, high) in enumerate(spans):
        first, end = addresses[i] + low, addresses[i] + high
        for j in range(i):
            other, over = spans[j]
            shared = first < addresses[j] + over and addresses[j] + other < end
            if shared and first < end and other < over:
                return False
    return True


def look(config: Hashable, args: Sequence[Any]) -> tuple[Hashable, list[int]] | None:
    """Return what a call looks like and the addresses of its arrays, or None for an unusual one."""
    torch = sys.modules.get("torch")
    tensor = None if torch is None else torch.Tensor
    key: list[Hashable] = [config]
    addresses: list[int] = []
    for value in args:
        kind = type(value)
        if kind is tensor:
            if not value.is_cuda or value.requires_grad or value.is_conj() or value.is_neg():
                return None
            at = value.data_ptr()
            shape, strides = value.shape, value.stride()
            key.append((value.dtype, shape, strides, value.get_device(), at & _ALIGNMENT))
        elif kind is int:
            if not -NARROW_LIMIT <= value <= NARROW_LIMIT:
                return None
            key.append(value >= 0)
            continue
        elif kind is float:
            if not abs(value) <= _SINGLE:
                return None
            key.append(float)
            continue
        elif kind is CudaArray:
            at = int(value.buffer.handle)
            key.append((CudaArray, value.dtype, value.shape, value.device))
        elif kind.__module__ == "cupy" and kind.__name__ == "ndarray":
            at = value.data.ptr
            dtype, strides = value.dtype, value.strides
            key.append((dtype, value.shape, strides, value.device.id, at & _ALIGNMENT))
        else:
            return None
        addresses.append(at)
    return (tuple(key), addresses) if addresses else None
