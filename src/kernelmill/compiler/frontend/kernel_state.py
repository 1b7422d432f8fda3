"""The memory and the threads of the kernel that is being translated. Nothing is translated here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.compiler import ir
from kernelmill.compiler.frontend.values import Dimension, Memory
from kernelmill.compiler.kernel_ir import Array, Extent
from kernelmill.dtypes import DType, StructType, dtype_of, weak_int
from kernelmill.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from kernelmill.compiler.kernel_ir import Space

__all__ = ["KernelState"]

# What a block has without asking, and what a program may hold of constant memory.
SHARED_LIMIT: Final = 48 << 10
CONSTANT_LIMIT: Final = 64 << 10


@dataclass(slots=True)
class KernelState:
    """What a kernel has beside its program: arrays by name, and the shape of a block.

    `flat` says that blocks lie in one direction; `naming` is the variable that is assigned now.
    """

    block: tuple[int, int, int]
    flat: bool
    debug: bool
    arrays: dict[str, Array] = field(default_factory=dict)
    naming: str = ""
    dynamic: ir.Expr | None = None
    _made: dict[Hashable, Memory] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    def argument(self, array: Array) -> Memory:
        """Add an array that is passed; return it as a value."""
        self.arrays[array.name] = array
        if array.shape is not None:
            extents: list[ir.Expr] = [ir.Const(n, weak_int) for n in array.shape]
        else:
            extents = [Extent(array.name, k) for k in range(array.ndim)]
        return Memory(array, tuple(Dimension(None, e) for e in extents))

    def allocate(
        self, key: Hashable, space: Space, shape: tuple[int, ...], dtype: DType | StructType
    ) -> Memory:
        """Return the array of a call that makes one: the same one each time it is translated."""
        key = (key, shape, dtype, space)
        found = self._made.get(key)
        if found is None:
            name = self._free(self.naming or space)
            found = self.argument(Array(name, dtype, len(shape), space, shape))
            self._made[key] = found
            self._check(space)
        return found

    def constant(self, key: Hashable, name: str, value: np.ndarray[Any, np.dtype[Any]]) -> Memory:
        """Return a NumPy array of the surroundings as constant memory."""
        found = self._made.get(key)
        if found is None:
            dtype = dtype_of(value.dtype)
            data = np.ascontiguousarray(value).tobytes()
            made = Array(
                self._free(name),
                dtype,
                value.ndim,
                "constant",
                value.shape,
                readonly=True,
                data=data,
            )
            found = self.argument(made)
            self._made[key] = found
            self._check("constant")
        return found

    def all_elements(self, array: Array) -> Memory:
        """Return all elements of a global array in C order, as an array of one dimension."""
        found = self._made.get(("flat", array.name))
        if found is None:
            name = self._free(f"{array.name}_flat")
            made = Array(name, array.dtype, 1, "global", readonly=array.readonly, base=array.name)
            found = self._made["flat", array.name] = self.argument(made)
        return found

    def free_name(self, space: str) -> str:
        """Return a name for a new array: that of the variable it is assigned to."""
        return self._free(self.naming or space)

    def _free(self, name: str) -> str:
        free, count = name, 1
        while free in self.arrays:
            count += 1
            free = f"{name}_{count}"
        return free

    def _check(self, space: Space) -> None:
        limit, what = _LIMITS.get(space, (None, ""))
        if limit is None:
            return
        found = [a for a in self.arrays.values() if a.space == space and a.shape is not None]
        sizes = {a.name: math.prod(a.shape or ()) * a.dtype.itemsize for a in found}
        if sum(sizes.values()) > limit:
            listed = ", ".join(f"`{n}` {size}" for n, size in sizes.items())
            raise OperatorError(
                f"the kernel asks for {sum(sizes.values())} bytes of {what} memory ({listed}); "
                f"the limit is {limit}",
                hint=_LIMIT_HINTS[space],
            )


_LIMITS: Final[dict[str, tuple[int, str]]] = {
    "shared": (SHARED_LIMIT, "static shared"),
    "constant": (CONSTANT_LIMIT, "constant"),
}
_LIMIT_HINTS: Final = {
    "shared": "use smaller tiles, or km.dynamic_shared and `kernel[grid, block, stream, bytes]`",
    "constant": "pass the array as an argument",
}
