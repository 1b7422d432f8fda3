"""Bounds of the integers of a kernel: what extents, arguments and thread indices say of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from kernelmill.compiler import ir
from kernelmill.compiler.kernel_ir import Below, Effect, Extent, Special
from kernelmill.dtypes import DType, Type, int32, int64, weak_int

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.compiler.kernel_ir import Kernel

__all__ = ["FULL", "NARROW_LIMIT", "RULES", "Bounds", "Ranges"]

Bounds: TypeAlias = tuple[int, int]

# Extents, arguments and grids up to this are narrow: one more step of a loop still fits int32.
NARROW_LIMIT: Final = 1 << 30
FULL: Final[Bounds] = (int64.min, int64.max)
# Passes over a function before locals that still grow are given up, and at most.
_GROWING: Final = 2
_MOST_PASSES: Final = 12


@dataclass(slots=True)
class Ranges:
    """Bounds of the integers of one function."""

    kernel: Kernel
    function: ir.Function
    locals: dict[str, Bounds] = field(default_factory=dict)

    def of(self, node: ir.Expr) -> Bounds:
        """Return bounds of an integer expression."""
        type_ = node.type
        whole = _whole(type_)
        match node:
            case ir.Const(value=int() as value):
                return (value, value) if whole[0] <= value <= whole[1] else whole
            case ir.Local(name):
                found = self.locals.get(name, whole)
            case ir.Param(index):
                found = self._param(index, whole)
            case Extent():
                found = (0, int64.max if self.kernel.wide else NARROW_LIMIT)
            case Below(_, limit):
                found = (0, max(self.of(limit)[1] - 1, 0))
            case Special(name):
                found = _special(name, self.kernel)
            case ir.Cast(value) if _is_integer(value.type):
                found = self.of(value)
            case ir.Select(_, then, orelse):
                found = _hull(self.of(then), self.of(orelse))
            case ir.Apply(op, args) if all(_is_integer(a.type) for a in args):
                rule = RULES.get(op)
                found = whole if rule is None else rule(*(self.of(a) for a in args))
            case _:
                return whole
        return found if whole[0] <= found[0] and found[1] <= whole[1] else whole

    def _param(self, index: int, whole: Bounds) -> Bounds:
        if self.function is not self.kernel.program.entry or index >= len(self.kernel.limits):
            return whole
        return self.kernel.limits[index] or whole

    # ------------------------------------------------------------------ locals

    def settle(self) -> None:
        """Find bounds of the locals by repetition; those that keep growing get none."""
        for turn in range(_MOST_PASSES):
            before = dict(self.locals)
            self._block(self.function.body)
            if self.locals == before:
                return
            if turn >= _GROWING:
                grown = {n for n, b in self.locals.items() if before.get(n, b) != b}
                self.locals.update(dict.fromkeys(grown, FULL))
        self.locals = dict.fromkeys(self.locals, FULL)

    def _block(self, block: tuple[ir.Stmt, ...]) -> None:
        for statement in block:
            match statement:
                case ir.Assign(name, value) if _is_integer(value.type):
                    self._note(name, self.of(value))
                case ir.If(_, then, orelse):
                    self._block(then)
                    self._block(orelse)
                case ir.For(name, start, stop, step, body):
                    self._note(name, self.turns(start, stop, step))
                    self._block(body)
                case ir.While(_, body):
                    self._block(body)
                case Effect(name=str() as name):
                    if statement.result is not None and _is_integer(statement.result):
                        self._note(name, _whole(statement.result))

    def _note(self, name: str, found: Bounds) -> None:
        self.locals[name] = _hull(self.locals[name], found) if name in self.locals else found

    def turns(self, start: ir.Expr, stop: ir.Expr, step: ir.Expr) -> Bounds:
        """Return bounds of a loop variable."""
        first, last, by = self.of(start), self.of(stop), self.of(step)
        if by[0] > 0:
            return first[0], max(first[0], last[1] - 1)
        if by[1] < 0:
            return min(first[1], last[0] + 1), first[1]
        return FULL


def _hull(a: Bounds, b: Bounds) -> Bounds:
    return min(a[0], b[0]), max(a[1], b[1])


def _is_integer(type_: Type) -> bool:
    return type_ == weak_int or (isinstance(type_, DType) and type_.is_integer)


def _whole(type_: Type) -> Bounds:
    if isinstance(type_, DType) and type_.is_integer:
        return type_.min, type_.max
    return FULL


def _special(name: str, kernel: Kernel) -> Bounds:
    if name == "lane":
        return 0, 31
    base, _, axis = name.partition(".")
    side = kernel.block["xyz".index(axis)]
    blocks = NARROW_LIMIT // kernel.threads if kernel.small else int32.max
    rows = {"threadIdx": (0, side - 1), "blockDim": (side, side), "gridDim": (1, blocks)}
    return rows.get(base, (0, blocks - 1))


def _products(a: Bounds, b: Bounds) -> Bounds:
    found = [x * y for x in a for y in b]
    return min(found), max(found)


def _quotients(a: Bounds, b: Bounds) -> Bounds:
    if b[0] > 0:
        found = [x // y for x in a for y in b]
        return min(found), max(found)
    size = max(abs(a[0]), abs(a[1]))
    return -size, size


def _remainders(a: Bounds, b: Bounds) -> Bounds:
    if b[0] >= 0:
        top = max(b[1] - 1, 0)
        return 0, min(top, a[1]) if a[0] >= 0 else top
    return min(b[0] + 1, 0), max(b[1] - 1, 0)


def _shifted(a: Bounds, b: Bounds) -> Bounds:
    if b[0] < 0 or b[1] >= int64.bits:
        return FULL
    return _products(a, (1 << b[0], 1 << b[1]))


def _masked(a: Bounds, b: Bounds) -> Bounds:
    tops = [x[1] for x in (a, b) if x[0] >= 0]
    return (0, min(tops)) if tops else FULL


# Bounds of the result of an operation by those of its operands.
RULES: Final[dict[str, Callable[..., Bounds]]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _products,
    "neg": lambda a: (-a[1], -a[0]),
    "pos": lambda a: a,
    "abs": lambda a: (0 if a[0] <= 0 <= a[1] else min(map(abs, a)), max(map(abs, a))),
    "floordiv": _quotients,
    "mod": _remainders,
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "lshift": _shifted,
    "and": _masked,
    "int": lambda a: a,
}
