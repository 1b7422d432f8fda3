"""`verify_kernel`: places, effects and indices of a kernel, beside the rules of `verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmill.compiler import ir
from kernelmill.compiler.intrinsics import ATOMICS, EFFECTS
from kernelmill.compiler.ir_verify import VerifyError, verify
from kernelmill.compiler.kernel_ir import (
    SPECIALS,
    Atomic,
    Effect,
    Extent,
    Load,
    Perform,
    Place,
    Special,
    Store,
    is_index,
)
from kernelmill.dtypes import StructType, bool_

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelmill.compiler.kernel_ir import Kernel

__all__ = ["verify_kernel"]


def verify_kernel(kernel: Kernel) -> None:
    """Check a kernel; raises VerifyError with the rule that is broken."""
    verify(kernel.program)
    known = {f.name for f in kernel.program.functions}
    for function in kernel.program.functions:
        for statement in ir.walk_statements(function.body):
            for node in _nodes(statement):
                _expression(kernel, node)
            if isinstance(statement, Effect):
                _effect(kernel, statement, known)


def _require(condition: bool, rule: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not condition:
        raise VerifyError(rule)


def _nodes(statement: ir.Stmt) -> Iterator[ir.Expr]:
    for operand in ir.operands(statement):
        yield from ir.walk_expressions(operand)


def _expression(kernel: Kernel, node: ir.Expr) -> None:
    if isinstance(node, Extent):
        found = {a.name: a for a in kernel.arrays}.get(node.array)
        _require(found is not None and node.dim < found.ndim, f"extent of {node.array}")
        _require(is_index(node.type), f"extent of type {node.type}")
    elif isinstance(node, Special):
        _require(node.name in (*SPECIALS, "lane"), f"unknown index {node.name}")
        _require(is_index(node.type), f"index of type {node.type}")


def _effect(kernel: Kernel, statement: Effect, known: set[str]) -> None:
    match statement:
        case Load(place=place):
            _place(kernel, place)
        case Store(place, value):
            _place(kernel, place)
            _writable(kernel, place)
            _require(value.type == place.type, f"{value.type} is stored as {place.type}")
        case Atomic(op=op, place=place, values=values):
            _require(op in ATOMICS, f"unknown atomic operation {op}")
            _place(kernel, place)
            _require(len(values) == ATOMICS[op].values, f"values of atomic {op}")
            for value in values:
                _require(value.type == place.type, f"{value.type} meets {place.type}")
            if op != "load":
                _writable(kernel, place)
        case Perform(op=op, args=args, function=function):
            _require(op in EFFECTS, f"unknown effect {op}")
            row = EFFECTS[op]
            _require(row.combines == (function is not None), f"operator of {op}")
            _require(function is None or function in known, f"unknown function {function}")
            if op not in ("print", "check"):
                count = row.values + row.tests + row.counts
                _require(len(args) == count, f"{op} takes {count} arguments, got {len(args)}")
                for test in args[row.values : row.values + row.tests]:
                    _require(test.type == bool_, f"{op} tests {test.type}")


def _place(kernel: Kernel, place: Place) -> None:
    array = {a.name: a for a in kernel.arrays}.get(place.array)
    _require(array is not None, f"unknown array {place.array}")
    assert array is not None
    _require(len(place.index) == array.ndim, f"{len(place.index)} indices of {place.array}")
    for index in place.index:
        _require(is_index(index.type), f"index of type {index.type}")
    found = array.dtype
    for name in place.fields:
        member = found.field(name) if isinstance(found, StructType) else None
        _require(member is not None, f"{found} has no field {name}")
        assert member is not None
        found = member.type
    _require(found == place.type, f"{place.array} holds {found}, not {place.type}")


def _writable(kernel: Kernel, place: Place) -> None:
    array = kernel.array(place.array)
    _require(not array.readonly and array.space != "constant", f"{place.array} is written")
