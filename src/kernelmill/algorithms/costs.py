"""The cost model: bytes and operations an element. Nothing is built or launched here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kernelmill.compiler import ir
from kernelmill.compiler.kernel_ir import Invoke

__all__ = ["WORTH_A_THREAD", "Cost", "count_flops"]

# Operations that take many instructions, counted in multiples of an addition.
_WEIGHTS: Final = {
    **dict.fromkeys(("truediv", "sqrt", "rsqrt", "floordiv", "mod", "fmod", "cbrt"), 8),
    **dict.fromkeys(("exp", "exp2", "log", "log2", "log10", "sin", "cos", "tanh", "erf"), 16),
    **dict.fromkeys(("expm1", "log1p", "tan", "asin", "acos", "atan", "atan2", "hypot"), 24),
    **dict.fromkeys(("sinh", "cosh", "asinh", "acosh", "atanh", "erfc", "pow"), 40),
    **dict.fromkeys(("tgamma", "lgamma"), 100),
}
# Turns that a loop is taken to make when nothing is known of it.
_TURNS: Final = 8
# What one core does: bytes from its caches and additions, a second. Only their ratio to the cost of
# waking a thread matters here.
_CORE_BYTES: Final = 25e9
_CORE_FLOPS: Final = 12e9
# Work for which a second thread is worth its wake-up.
WORTH_A_THREAD: Final = 8e-6


@dataclass(frozen=True, slots=True)
class Cost:
    """What one element costs: bytes read and written, and operations."""

    bytes: int
    flops: int

    @property
    def seconds(self) -> float:
        """Rough time of one element on one core."""
        return max(self.bytes / _CORE_BYTES, self.flops / _CORE_FLOPS)

    @property
    def serial_below(self) -> int:
        """Elements for each thread that takes part."""
        return max(1024, int(WORTH_A_THREAD / self.seconds))


def count_flops(program: ir.Program) -> int:
    """Estimate the operations of one call; a loop counts `_TURNS` times."""
    counts: dict[str, int] = {}
    for function in program.functions:
        counts[function.name] = _block_flops(function.body, counts)
    return max(1, counts[program.entry.name])


def _block_flops(block: tuple[ir.Stmt, ...], callees: dict[str, int]) -> int:
    total = 0
    for statement in block:
        total += sum(_expression_flops(e, callees) for e in ir.operands(statement))
        match statement:
            case ir.If(then=then, orelse=orelse):
                total += max(_block_flops(then, callees), _block_flops(orelse, callees))
            case Invoke(call=call):
                total += callees[call.function]
            case ir.For(body=body) | ir.While(body=body):
                total += _TURNS * _block_flops(body, callees)
    return total


def _expression_flops(node: ir.Expr, callees: dict[str, int]) -> int:
    below = sum(_expression_flops(child, callees) for child in ir.children(node))
    match node:
        case ir.Apply(op=op):
            return below + _WEIGHTS.get(op, 1)
        case ir.Call(function=function):
            return below + callees[function]
        case ir.Select() | ir.Cast():
            return below + 1
        case _:
            return below
