"""Which loops over the grid make at most one turn: those that the grid of a launch covers.

A kernel is compiled for that, since a loop of one turn needs no counter, step or second test.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kernelmill.compiler import ir
from kernelmill.compiler.kernel_ir import Extent, Special
from kernelmill.compiler.narrow import grid_loops

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.compiler.kernel_ir import Kernel
    from kernelmill.kernels.arguments import Given

__all__ = ["covered_loops"]


def covered_loops(
    kernel: Kernel, given: Sequence[Given], grid: tuple[int, int, int]
) -> tuple[bool, ...]:
    """Return for each loop over the grid whether no thread makes a second turn.

    Only what follows from the shapes of arrays is found, so that calls of the same shapes agree.
    """
    entry = kernel.program.entry
    loops = grid_loops(entry)
    if not loops:
        return ()
    reader = _Reader(kernel, given, grid)
    return tuple(reader.covers(loop) for loop in loops)


class _Reader:
    """Evaluates integers of a kernel on the host, as far as shapes and the grid say them."""

    def __init__(self, kernel: Kernel, given: Sequence[Given], grid: tuple[int, int, int]) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        for one in given:
            view: Any = one.value  # Any: a view where the argument is an array
            if one.original is not None:
                self.shapes[one.name] = view.shape
        for array in kernel.arrays:
            if array.base in self.shapes:
                self.shapes[array.name] = (math.prod(self.shapes[array.base]),)
        self.grid = dict(zip("xyz", grid, strict=True))
        statements = list(ir.walk_statements(kernel.program.entry.body))
        assigned = [s for s in statements if isinstance(s, ir.Assign)]
        counts = Counter(s.name for s in assigned)
        counts.update(s.name for s in statements if isinstance(s, ir.For))
        self.values = {s.name: s.value for s in assigned if counts[s.name] == 1}

    def covers(self, loop: ir.For) -> bool:
        """Whether the step of a loop reaches its end."""
        stop, step = self.read(loop.stop), self.read(loop.step)
        return stop is not None and step is not None and step >= stop

    def read(self, node: ir.Expr) -> int | None:  # noqa: PLR0911 - one way out a kind of node
        """Return the value of an expression, or None."""
        match node:
            case ir.Const(value=int() as value):
                return value
            case Extent(array, dim) if array in self.shapes:
                return self.shapes[array][dim]
            case Special(name) if name.startswith("gridDim"):
                return self.grid[name[-1]]
            case ir.Local(name) if name in self.values:
                return self.read(self.values[name])
            case ir.Cast(value):
                return self.read(value)
            case ir.Apply(op, args) if op in _OPERATIONS:
                parts = [self.read(a) for a in args]
                known = [p for p in parts if p is not None]
                return _OPERATIONS[op](*known) if len(known) == len(parts) else None
            case _:
                return None


def _quotient(a: int, b: int) -> int:
    return a // b if b else 0


def _remainder(a: int, b: int) -> int:
    return a % b if b else 0


_OPERATIONS: Final[dict[str, Callable[..., int]]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "floordiv": _quotient,
    "mod": _remainder,
    "min": min,
    "max": max,
}
