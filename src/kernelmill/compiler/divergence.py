"""`check_barriers`: refuses what all threads of a block must reach where only some of them do.

Only what is certain is refused: a branch or a loop that depends on the index of the thread itself.
What depends on values that were loaded is left to the sanitizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelmill.compiler import ir
from kernelmill.compiler.intrinsics import EFFECTS
from kernelmill.compiler.kernel_ir import Invoke, Perform, Special
from kernelmill.errors import OperatorError

if TYPE_CHECKING:
    from kernelmill.errors import SourceSpan

__all__ = ["check_barriers"]


def check_barriers(program: ir.Program) -> None:
    """Check a kernel's program; raises OperatorError with the line of the barrier."""
    waiting: dict[str, str] = {}
    for function in program.functions:
        checker = _Checker(function, waiting)
        checker.block(function.body, None)
        if checker.found:
            waiting[function.name] = checker.found


class _Checker:
    """Checks one function; `found` names what it waits for, "" for nothing."""

    def __init__(self, function: ir.Function, waiting: dict[str, str]) -> None:
        self.waiting = waiting
        self.found = ""
        self.varying = _varying(function)

    def block(self, block: tuple[ir.Stmt, ...], parted: str | None) -> None:
        """Check a block; `parted` is what made the threads part before it: "if", "loop"."""
        for statement in block:
            match statement:
                case ir.If(test, then, orelse):
                    inner = "if" if self._varies(test) else parted
                    self.block(then, inner)
                    self.block(orelse, inner)
                case ir.For(start=start, stop=stop, step=step, body=body):
                    differs = any(map(self._varies, (start, stop, step)))
                    self.block(body, "loop" if differs else parted)
                case ir.While(test, body):
                    self.block(body, "loop" if self._varies(test) else parted)
                case Perform(op=op) if EFFECTS[op].waits == "block":
                    self._wait(EFFECTS[op].spelling, parted, statement.span)
                case Invoke(call=call) if call.function in self.waiting:
                    self._wait(self.waiting[call.function], parted, statement.span)

    def _varies(self, value: ir.Expr) -> bool:
        return _depends(value, self.varying)

    def _wait(self, name: str, parted: str | None, span: SourceSpan | None) -> None:
        self.found = name
        if parted is None:
            return
        raise OperatorError(
            f"`{name}` waits for all threads of a block, and only some of them come here: this "
            f"{_KINDS[parted]} depends on the index of the thread",
            span=span,
            hint=_HINTS[parted],
        )


_KINDS: Final = {"if": "branch", "loop": "loop"}
_HINTS: Final = {
    "if": "put it outside the branch, so that every thread comes to it",
    "loop": "put it in a `km.tile_range`, or in a `km.block_range` over fixed extents that the "
    "threads of a block divide",
}


def _varying(function: ir.Function) -> set[str]:
    """Return the locals that are computed from the index of the thread."""
    found: set[str] = set()
    while True:
        before = len(found)
        for statement in ir.walk_statements(function.body):
            match statement:
                case ir.Assign(name, value) if _depends(value, found):
                    found.add(name)
                case ir.For(name=name, start=start) if _depends(start, found):
                    found.add(name)
        if len(found) == before:
            return found


def _depends(value: ir.Expr, varying: set[str]) -> bool:
    return any(
        (isinstance(n, Special) and n.name.startswith(("threadIdx", "lane")))
        or (isinstance(n, ir.Local) and n.name in varying)
        for n in ir.walk_expressions(value)
    )
