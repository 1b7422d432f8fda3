"""A pass over kernels: integers that are known to be small are computed in 32 bits.

Weak integers have 64 bits. Where the bounds of extents, arguments and thread indices show that a
value fits int32, and so do the values it is made of, it is computed in int32: the values are the
same, and a device has no 64-bit integer units. Loops that cannot overflow are marked `plain`. How
bounds are found is in `ranges.py`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelmill.compiler import ir
from kernelmill.compiler.intrinsics import OPERATIONS
from kernelmill.compiler.kernel_ir import Below, Effect, Extent, Invoke, Special
from kernelmill.compiler.ranges import FULL, NARROW_LIMIT, RULES, Bounds, Ranges
from kernelmill.compiler.rewrite import rewrite_function
from kernelmill.dtypes import (
    bool_,
    float32,
    int32,
    int64,
    uint32,
    uint64,
    weak_float,
    weak_int,
)

if TYPE_CHECKING:
    from kernelmill.compiler.kernel_ir import Kernel

__all__ = ["NARROW_LIMIT", "Exact", "grid_loops", "narrow"]

_NARROW: Final[Bounds] = (int32.min, int32.max)


def narrow(kernel: Kernel) -> Kernel:
    """Return the kernel with small integers in 32 bits; its values are the same."""
    kernel = _with_covered_loops(_with_single_floats(kernel))
    functions = tuple(_Narrower(kernel, f).run() for f in kernel.program.functions)
    return dataclasses.replace(
        kernel, program=dataclasses.replace(kernel.program, functions=functions)
    )


def grid_loops(function: ir.Function) -> list[ir.For]:
    """Return the loops whose turns are a whole grid apart."""
    return [
        s
        for s in ir.walk_statements(function.body)
        if isinstance(s, ir.For)
        and any(
            isinstance(n, Special) and n.name.startswith("gridDim")
            for n in ir.walk_expressions(s.step)
        )
    ]


def _with_covered_loops(kernel: Kernel) -> Kernel:
    """Mark the loops over the grid that make at most one turn."""
    entry = kernel.program.entry
    loops = zip(grid_loops(entry), kernel.covered, strict=False)
    marked = {id(loop) for loop, covered in loops if covered}
    if not marked:
        return kernel
    made = dataclasses.replace(entry, body=_marked(entry.body, marked))
    functions = (*kernel.program.functions[:-1], made)
    return dataclasses.replace(
        kernel, program=dataclasses.replace(kernel.program, functions=functions)
    )


def _marked(block: tuple[ir.Stmt, ...], loops: set[int]) -> tuple[ir.Stmt, ...]:
    made: list[ir.Stmt] = []
    for statement in block:
        match statement:
            case ir.For(body=body):
                single = id(statement) in loops
                made.append(
                    dataclasses.replace(statement, body=_marked(body, loops), single=single)
                )
            case ir.While(body=body):
                made.append(dataclasses.replace(statement, body=_marked(body, loops)))
            case ir.If(then=then, orelse=orelse):
                parts = _marked(then, loops), _marked(orelse, loops)
                made.append(dataclasses.replace(statement, then=parts[0], orelse=parts[1]))
            case _:
                made.append(statement)
    return tuple(made)


def _with_single_floats(kernel: Kernel) -> Kernel:
    """Pass Python floats as float32 that are used as nothing else: they are rounded once anyway."""
    entry = kernel.program.entry
    nodes = [
        n
        for s in ir.walk_statements(entry.body)
        for o in ir.operands(s)
        for n in ir.walk_expressions(o)
    ]
    uses = Counter(n.index for n in nodes if isinstance(n, ir.Param))
    casts = Counter(_single_cast(n) for n in nodes)
    single = {
        i
        for i, (_, type_) in enumerate(entry.params)
        if type_ == weak_float and uses[i] and uses[i] == casts[i]
    }
    if not single:
        return kernel

    def change(node: ir.Expr) -> ir.Expr:
        index = _single_cast(node)
        return ir.Param(index, float32) if index in single else node

    params = tuple((n, float32 if i in single else t) for i, (n, t) in enumerate(entry.params))
    made = dataclasses.replace(rewrite_function(entry, change), params=params)
    functions = (*kernel.program.functions[:-1], made)
    return dataclasses.replace(
        kernel, program=dataclasses.replace(kernel.program, functions=functions)
    )


def _single_cast(node: ir.Expr) -> int:
    """Return which parameter a node converts to float32, -1 for none."""
    match node:
        case ir.Cast(ir.Param(index), type_) if type_ == float32:
            return index
        case _:
            return -1


# ----------------------------------------------------------------------------- rewriting


class _Narrower:
    """Rewrites one function."""

    def __init__(self, kernel: Kernel, function: ir.Function) -> None:
        self.function = function
        self.ranges = Ranges(kernel, function)
        self.ranges.settle()
        self.narrow = {
            name
            for name, type_ in function.locals
            if type_ == weak_int and _fits(self.ranges.locals.get(name, FULL))
        }
        for statement in ir.walk_statements(function.body):
            if isinstance(statement, ir.For) and not self._reaches(statement)[1]:
                self.narrow.discard(statement.name)

    def run(self) -> ir.Function:
        """Return the function with small integers in 32 bits."""
        if self.function.raw is not None:
            return self.function
        names = tuple((n, int32 if n in self.narrow else t) for n, t in self.function.locals)
        return dataclasses.replace(
            self.function, locals=names, body=self._block(self.function.body)
        )

    # ------------------------------------------------------------------ statements

    def _block(self, block: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        return tuple(self._statement(s) for s in block)

    def _statement(self, statement: ir.Stmt) -> ir.Stmt:  # noqa: PLR0911 - one a kind
        match statement:
            case ir.Assign(name, value, span):
                return ir.Assign(name, self._for_local(name, value), span)
            case ir.Return(value, span):
                return ir.Return(self.wide(value), span)
            case ir.If(test, then, orelse, span):
                return ir.If(self.wide(test), self._block(then), self._block(orelse), span)
            case ir.While(test, body, span):
                return ir.While(self.wide(test), self._block(body), span)
            case ir.For():
                return self._loop(statement)
            case Effect():
                return self._effect(statement)
            case _:
                return statement

    def _for_local(self, name: str, value: ir.Expr) -> ir.Expr:
        return self.small(value) if name in self.narrow else self.wide(value)

    def _reaches(self, loop: ir.For) -> tuple[bool, bool]:
        """Return whether a loop runs upwards and stays in int64, and whether it stays in int32."""
        start, stop, step = (self.ranges.of(b) for b in (loop.start, loop.stop, loop.step))
        last = max(stop[1] - 1 + step[1], start[1])
        plain = step[0] > 0 and last <= int64.max
        return plain, plain and all(map(_fits, (start, stop, step))) and last <= int32.max

    def _loop(self, loop: ir.For) -> ir.Stmt:
        plain, _ = self._reaches(loop)
        change = self.small if loop.name in self.narrow else self.wide
        start, stop, step = (change(b) for b in (loop.start, loop.stop, loop.step))
        body = self._block(loop.body)
        return dataclasses.replace(loop, start=start, stop=stop, step=step, body=body, plain=plain)

    def _effect(self, statement: Effect) -> Effect:
        if isinstance(statement, Invoke):
            return statement.with_operands(tuple(map(self.wide, statement.operands())))
        place = getattr(statement, "place", None)
        count = len(place.index) if place is not None else 0
        operands = statement.operands()
        index = [self._index(v) for v in operands[:count]]
        return statement.with_operands((*index, *map(self.wide, operands[count:])))

    def _index(self, value: ir.Expr) -> ir.Expr:
        if value.type == weak_int and _fits(self.ranges.of(value)):
            return self.small(value)
        return self.wide(value)

    # ------------------------------------------------------------------ expressions

    def small(self, node: ir.Expr) -> ir.Expr:  # noqa: PLR0911 - one way out a kind of node
        """Return a weak integer that fits as an int32."""
        match node:
            case ir.Const(value):
                return ir.Const(value, int32)
            case ir.Local(name) if name in self.narrow:
                return ir.Local(name, int32)
            case Extent() | Special():
                return dataclasses.replace(node, type=int32)
            case Below(value):
                return self.small(value) if _fits(self.ranges.of(value)) else self._cut(value)
            case ir.Cast(value) if value.type == int32:
                return self.wide(value)
            case ir.Apply(op, args) if op in _EXACT and self._small_parts(args):
                return self._applied(op, args)
            case ir.Select(test, then, orelse) if self._small_parts((then, orelse)):
                return ir.Select(self.wide(test), self.small(then), self.small(orelse), int32)
            case _:
                return ir.Cast(self._rebuilt(node), int32)

    def _cut(self, value: ir.Expr) -> ir.Expr:
        return ir.Cast(self._rebuilt(value), int32)

    def _as_int32(self, value: ir.Expr) -> ir.Expr:
        return self._rebuilt(value) if value.type == int32 else self.small(value)

    def _small_parts(self, args: tuple[ir.Expr, ...]) -> bool:
        return all(a.type == weak_int and _fits(self.ranges.of(a)) for a in args)

    def _applied(self, op: str, args: tuple[ir.Expr, ...]) -> ir.Expr:
        """Apply an operation in 32 bits; a division of what is not negative needs no signs."""
        made = tuple(self.small(a) for a in args)
        found = [self.ranges.of(a) for a in args]
        if op in ("floordiv", "mod") and all(low >= 0 for low, _ in found):
            halves: tuple[ir.Expr, ...] = tuple(map(_unsigned, made))
            kind = Exact if found[1][0] > 0 else ir.Apply
            return ir.Cast(kind(op, halves, uint32), int32)
        return (Exact if op in _PLAIN else ir.Apply)(op, made, int32)

    def wide(self, node: ir.Expr) -> ir.Expr:
        """Return an expression of the same type, with small parts in 32 bits."""
        computed = not isinstance(node, (ir.Const, ir.Param))
        if node.type == weak_int and computed and _fits(self.ranges.of(node)):
            made = self.small(node)
            if isinstance(made, ir.Cast) and made.value.type == weak_int:
                return made.value
            return ir.Cast(made, weak_int)
        match node:
            case ir.Apply(op, args, type_) if type_ == bool_ and op in _COMPARED:
                if all(a.type == int32 or self._small_parts((a,)) for a in args):
                    return ir.Apply(op, tuple(map(self._as_int32, args)), bool_)
        return self._rebuilt(node)

    def _rebuilt(self, node: ir.Expr) -> ir.Expr:
        match node:
            case ir.Cast(value, type_) if value.type == weak_int and _fits(self.ranges.of(value)):
                if isinstance(value, (ir.Const, ir.Param)):
                    return node
                made = self.small(value)
                return made if type_ == int32 else ir.Cast(made, type_)
            case Below(value):
                return self._rebuilt(value)
            case ir.Apply("floordiv" | "mod" as op, args, type_) if type_ == weak_int and all(
                self.ranges.of(a)[0] >= 0 for a in args
            ):
                kind = Exact if self.ranges.of(args[1])[0] > 0 else ir.Apply
                wide = [self.wide(a) for a in args]
                halves: tuple[ir.Expr, ...] = tuple(ir.Cast(w, uint64) for w in wide)
                return ir.Cast(kind(op, halves, uint64), weak_int)
            case ir.Apply(op, args, type_) if type_ == weak_int and op in _PLAIN:
                parts = tuple(self.wide(a) for a in args)
                return (Exact if self._is_exact(op, args) else ir.Apply)(op, parts, type_)
            case _:
                return _with_children(node, tuple(self.wide(c) for c in ir.children(node)))

    def _is_exact(self, op: str, args: tuple[ir.Expr, ...]) -> bool:
        low, high = RULES[op](*(self.ranges.of(a) for a in args))
        return int64.min <= low and high <= int64.max


@dataclass(frozen=True, slots=True)
class Exact(ir.Apply):
    """An operation on integers whose result is known to fit, and whose divisor is not zero."""


def _fits(bounds: Bounds) -> bool:
    return _NARROW[0] <= bounds[0] and bounds[1] <= _NARROW[1]


def _unsigned(node: ir.Expr) -> ir.Expr:
    if isinstance(node, ir.Const):
        return ir.Const(node.value, uint32)
    return ir.Cast(node, uint32)


# Operations whose result in int32 is that in int64 where both fit.
_EXACT: Final = frozenset(
    (
        "add", "sub", "mul", "neg", "pos", "abs", "floordiv", "mod", "min", "max", "minimum",
        "maximum", "and", "or", "xor",
    )
)  # fmt: skip
_PLAIN: Final = frozenset(("add", "sub", "mul"))
_COMPARED: Final = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
assert OPERATIONS.keys() >= _EXACT | _COMPARED


def _with_children(node: ir.Expr, parts: tuple[ir.Expr, ...]) -> ir.Expr:
    """Return a node with other children of the same types."""
    match node:
        case ir.Apply() | ir.Call():
            return dataclasses.replace(node, args=parts)
        case ir.Cast() | ir.GetField() | ir.GetItem():
            return dataclasses.replace(node, value=parts[0])
        case ir.Select():
            test, then, orelse = parts
            return dataclasses.replace(node, condition=test, then=then, orelse=orelse)
        case ir.MakeStruct() | ir.MakeTuple():
            return dataclasses.replace(node, values=parts)
        case _:
            return node
