"""What lies on the stack of `symbolic` for a few instructions only, and what becomes of it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelmill.compiler.bytecode.refusal import UnknownShapeError

if TYPE_CHECKING:
    from types import CodeType

    from kernelmill.compiler.bytecode.decode import Op

__all__ = [
    "Cell",
    "Code",
    "Defined",
    "Keywords",
    "Several",
    "count_of",
    "earlier_targets",
    "elements",
    "overwritten",
    "variable",
]


@dataclass(frozen=True, slots=True)
class Code:
    """The constant that MAKE_FUNCTION takes."""

    code: CodeType


@dataclass(frozen=True, slots=True)
class Cell:
    """The cell of one variable, or the tuple of those of a closure."""


@dataclass(frozen=True, slots=True)
class Keywords:
    """Defaults of keyword-only parameters."""

    values: dict[str, ast.expr]


@dataclass(frozen=True, slots=True)
class Defined:
    """A function that the next instruction gives its name."""

    node: ast.FunctionDef


@dataclass(frozen=True, slots=True)
class Several:
    """A value that some targets of `a, b = c = value` have got already."""

    targets: list[ast.expr]
    value: ast.expr


def variable(op: Op) -> str:
    """Return the name of the variable that an instruction reads or assigns."""
    assert isinstance(op.arg, tuple)
    return str(op.arg[1])


def count_of(op: Op) -> int:
    """Return the count that an instruction comes with."""
    assert isinstance(op.arg, int)
    return op.arg


def elements(value: ast.expr) -> list[ast.expr]:
    """Return the elements of the tuple that a function takes its defaults from."""
    if not isinstance(value, ast.Tuple):
        raise UnknownShapeError("a function whose defaults are no tuple")
    return value.elts


def overwritten(targets: list[ast.expr | None]) -> list[ast.expr]:
    """Return the targets with each missing one named like the next, which overwrites it."""
    named: list[ast.expr] = []
    for target in targets[::-1]:
        found = target
        if found is None and named and isinstance(named[-1], ast.Name):
            found = ast.copy_location(ast.Name(named[-1].id, ast.Store()), named[-1])
        if found is None:
            raise UnknownShapeError("a value that is not used")
        named.append(found)
    return named[::-1]


def earlier_targets(value: ast.expr) -> tuple[list[ast.expr], ast.expr]:
    """Split `x = y = e`, which is the same bytecode as `y = (x := e)`."""
    targets: list[ast.expr] = []
    while isinstance(value, ast.NamedExpr):
        targets.insert(0, value.target)
        value = value.value
    return targets, value
