"""The result of a translation: the program and what it takes from its surroundings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelmill.compiler import ir
    from kernelmill.compiler.frontend.scope import Baked, CapturedScalar

__all__ = ["Translation"]


@dataclass(frozen=True, slots=True)
class Translation:
    """A verified program, the scalars it captures by slot, and the objects that shaped it."""

    program: ir.Program
    captures: tuple[CapturedScalar, ...]
    baked: tuple[Baked, ...]
