"""Passes that make IR shorter and free of branches, without changing a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelmill.compiler import ir

__all__ = ["simplify"]


def simplify(program: ir.Program) -> ir.Program:
    """Return the same program."""
    return program
