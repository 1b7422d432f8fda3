"""What all iterators of `cuda.compute` are; each of them is in `iterators.py`."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from kernelmill.compat.cuda_compute import types

if TYPE_CHECKING:
    from collections.abc import Hashable

    from kernelmill.dtypes import DType, StructType

    Element = DType | StructType

__all__ = ["IteratorBase"]


class IteratorBase:
    """A sequence by index; `iterator + n` begins n elements later."""

    __slots__ = ("offset",)
    readable = True
    writable = False
    takes_any = False  # writes elements of any type, each as it is

    def __init__(self) -> None:
        self.offset = 0

    def __add__(self, count: int) -> IteratorBase:
        made = copy.copy(self)
        made.offset = self.offset + int(count)
        return made

    @property
    def element(self) -> Element:
        """The type of an element."""
        raise NotImplementedError

    @property
    def value_type(self) -> types.TypeDescriptor:
        """The type of an element, as `cuda.compute` names it."""
        return types.from_numpy_dtype(self.element.to_numpy())

    @property
    def kind(self) -> Hashable:
        """What tells kernels for such iterators apart: no addresses, no values."""
        raise NotImplementedError

    @property
    def length(self) -> int | None:
        """How many elements there are from the offset on; None without end."""
        return None

    def reading(self, count: int, first: int = 0) -> Any:  # Any: what the families take
        """Return what reads `count` elements, `first` behind the offset.

        Raises ValueError where nothing can be read.
        """
        if not self.readable:
            raise ValueError(f"a {type(self).__name__} does not support input operations")
        return self._reading(self.offset + first, count)

    def writing(self, count: int, first: int = 0) -> Any:  # Any: as above
        """Return what takes `count` elements, `first` behind the offset.

        Raises ValueError where nothing can be written.
        """
        if not self.writable:
            raise ValueError(f"a {type(self).__name__} does not support output operations")
        return self._writing(self.offset + first, count)

    def _reading(self, first: int, count: int) -> Any:
        raise NotImplementedError

    def _writing(self, first: int, count: int) -> Any:
        raise NotImplementedError
