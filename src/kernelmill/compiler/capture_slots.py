"""Passes over the slots of captured scalars: those that nobody reads go, some become floats."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kernelmill.compiler import ir
from kernelmill.compiler.kernel_ir import Invoke
from kernelmill.compiler.rewrite import rewrite_function
from kernelmill.dtypes import DType, weak_float, weak_int

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["as_floats", "limits_of", "prune"]


def prune(program: ir.Program) -> tuple[ir.Program, list[int]]:
    """Drop functions that nothing calls and captures that nothing reads.

    Returns the program and, for each capture kept, its former slot.
    """
    wanted = {program.entry.name}
    for function in reversed(program.functions):
        if function.name in wanted:
            wanted |= {n.function for n in _nodes(function) if isinstance(n, ir.Call)}
            statements_ = ir.walk_statements(function.body)
            wanted |= {s.call.function for s in statements_ if isinstance(s, Invoke)}
    functions = [f for f in program.functions if f.name in wanted]
    used = sorted({n.index for f in functions for n in _nodes(f) if isinstance(n, ir.Capture)})
    moved = {old: new for new, old in enumerate(used)}

    def renumber(node: ir.Expr) -> ir.Expr:
        return ir.Capture(moved[node.index], node.type) if isinstance(node, ir.Capture) else node

    if used != list(range(len(program.captures))):
        functions = [rewrite_function(f, renumber) for f in functions]
    return ir.Program(tuple(functions), tuple(program.captures[i] for i in used)), used


def as_floats(program: ir.Program) -> ir.Program:
    """Hand over as floats the Python ints that meet nothing else: no integer type limits them."""
    left: Counter[int] = Counter()
    for function in program.functions:
        for node in _nodes(function):
            match node:
                case ir.Cast(ir.Capture(index), DType(kind="float" | "complex")):
                    left[index] -= 1
                case ir.Capture(index):
                    left[index] += 1
    found = [index for index, (_, type_) in enumerate(program.captures) if type_ == weak_int]
    chosen = {index for index in found if left[index] == 0}
    if not chosen:
        return program

    def change(node: ir.Expr) -> ir.Expr:
        if isinstance(node, ir.Capture) and node.index in chosen:
            return ir.Capture(node.index, weak_float)
        return node

    slots = tuple(
        (name, weak_float if index in chosen else type_)
        for index, (name, type_) in enumerate(program.captures)
    )
    return ir.Program(tuple(rewrite_function(f, change) for f in program.functions), slots)


def _nodes(function: ir.Function) -> Iterator[ir.Expr]:
    for statement in ir.walk_statements(function.body):
        for operand in ir.operands(statement):
            yield from ir.walk_expressions(operand)


def limits_of(program: ir.Program) -> dict[int, tuple[DType, ...]]:
    """Return, for each captured Python int, the integer types to which it is converted."""
    found: dict[int, dict[DType, None]] = {}
    for function in program.functions:
        for node in _nodes(function):
            match node:
                case ir.Cast(ir.Capture(index, type_), DType() as wanted):
                    if type_ == weak_int and wanted.is_integer:
                        found.setdefault(index, {})[wanted] = None
    return {index: tuple(types_) for index, types_ in found.items()}
