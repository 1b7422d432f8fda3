"""`determinism=`: what the bits of a result may depend on, and which operators can promise most.

The orders of combination that keep a promise are the business of the families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from kernelmill.algorithms.weave import is_own
from kernelmill.compiler.intrinsics import OPERATIONS
from kernelmill.compiler.ir import Apply, operands, walk_expressions, walk_statements
from kernelmill.compiler.kernel_ir import Atomic, Store
from kernelmill.dtypes import DType, WeakType
from kernelmill.errors import ArgumentError, OperatorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.compiler.ir import Function
    from kernelmill.compiler.op import Specialized
    from kernelmill.dtypes import Type

__all__ = ["Determinism", "check_bits", "check_determinism"]

# What the bits of a result may depend on, from nothing promised to nothing but the elements.
Determinism: TypeAlias = Literal["not_guaranteed", "run_to_run", "device_to_device"]
_DETERMINISM: Final = get_args(Determinism)
_ROUNDED: Final = 0.5  # ulp, of a result that is rounded once, which leaves no choice
_HINT: Final = "write it with those, or ask for determinism='run_to_run'"


def check_determinism(determinism: object) -> None:
    """Refuse what is no promise about bits."""
    if determinism not in _DETERMINISM:
        raise ArgumentError(
            f"`determinism` is {determinism!r}; accepted: " + ", ".join(map(repr, _DETERMINISM))
        )


def check_bits(determinism: Determinism, operators: Sequence[Specialized]) -> None:
    """Refuse operators whose bits nobody promises on every device, where that is asked for.

    Accepted is what has one right result: integers, and operations that are rounded once. Raises
    OperatorError that names the operation, and shows its line where there is one.
    """
    if determinism != "device_to_device":
        return
    for operator in operators:
        for function in operator.translation.program.functions:
            _check_function(function)


def _check_function(function: Function) -> None:
    asked = f"determinism='device_to_device' with {function.name}"
    if function.raw is not None:
        if is_own(function.raw):
            return
        raise OperatorError(
            f"{asked}: {function.name} is C++, whose bits may differ from device to device",
            hint="write it in Python, or ask for determinism='run_to_run'",
        )
    for statement in walk_statements(function.body):
        if isinstance(statement, (Store, Atomic)):
            raise OperatorError(
                f"{asked}: it changes elements of `{statement.place.array}`, and nobody promises "
                "in which order",
                span=statement.span,
                hint="ask for determinism='run_to_run'",
            )
        for expression in operands(statement):
            for node in walk_expressions(expression):
                bound = _bound(node) if isinstance(node, Apply) else _ROUNDED
                if bound > _ROUNDED:
                    assert isinstance(node, Apply)
                    raise OperatorError(
                        f"{asked}: {_spelled(node)} has an error of up to {bound:g} ulp, so that "
                        "nobody promises its bits on every device; accepted: + - * / sqrt, "
                        "minimum and maximum, what is rounded once or not at all, and integers",
                        span=getattr(statement, "span", None),
                        hint=_HINT,
                    )


def _bound(node: Apply) -> float:
    """Return how far a result may be from the real one, in ulp; 0.5 where it is rounded once."""
    row = OPERATIONS[node.op]
    exact = row.ulp is None or not _is_real(node.type)
    if exact or (node.op == "abs" and _kind(node.args[0].type) != "complex"):
        return _ROUNDED
    assert row.ulp is not None
    return max(row.ulp)


def _kind(type_: Type) -> str:
    return type_.kind if isinstance(type_, (DType, WeakType)) else ""


def _is_real(type_: Type) -> bool:
    return _kind(type_) in ("float", "complex")


def _spelled(node: Apply) -> str:
    """Return an operation as a user writes it, with the type that it is computed in."""
    row = OPERATIONS[node.op]
    name = row.symbol or (row.spellings[0] if row.spellings else row.name)
    return f"`{name}` of {node.args[0].type}"
