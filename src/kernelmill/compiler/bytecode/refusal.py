"""The one error text of a function that cannot be rebuilt from bytecode. No checks live here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kernelmill.errors import OperatorError

if TYPE_CHECKING:
    from types import CodeType

__all__ = ["HINT", "Place", "UnknownShapeError", "refusal"]

HINT: Final = "define the function in a file or a notebook cell, so that its source can be read"


class Place(NamedTuple):
    """Where an instruction or a node stands in the text that is gone; as `ast` counts."""

    line: int
    end_line: int
    column: int
    end_column: int


class UnknownShapeError(Exception):
    """An arrangement of instructions that no rule covers; `recover` turns it into a refusal."""


def refusal(code: CodeType, found: str, line: int | None = None) -> OperatorError:
    """Return the error that says what was found, in which function and on which line."""
    return OperatorError(
        f"{code.co_name!r} has no source text, and its bytecode cannot be turned back into the "
        f"operator language: found {found} "
        f"({code.co_filename}, line {line or code.co_firstlineno})",
        hint=HINT,
    )
