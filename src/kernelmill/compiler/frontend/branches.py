"""Where control flow meets: variables set on two ways become one local of a joined type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelmill.compiler.builder import join
from kernelmill.compiler.frontend.values import OBJECTS, Binding, Conflict, Memory, Unbound, same
from kernelmill.dtypes import bool_
from kernelmill.errors import DTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.compiler import ir
    from kernelmill.compiler.frontend.frame import Frame
    from kernelmill.errors import SourceSpan

__all__ = ["Branch", "conditional", "conflict", "merge"]


@dataclass(slots=True)
class Branch:
    """One of two ways: the variables at its end, its statements, whether its end is reached."""

    bindings: dict[str, Binding]
    statements: list[ir.Stmt]
    alive: bool = True


def merge(frame: Frame, then: Branch, orelse: Branch) -> dict[str, Binding]:
    """Return the variables behind both ways; appends the assignments to each way's end."""
    if not then.alive:
        return orelse.bindings
    if not orelse.alive:
        return then.bindings
    merged: dict[str, Binding] = {}
    for name in dict.fromkeys((*then.bindings, *orelse.bindings)):
        a, b = then.bindings.get(name), orelse.bindings.get(name)
        if a is None or b is None:
            present = a or b
            assert present is not None
            merged[name] = _half_bound(name, present)
        elif same(a.value, b.value):
            merged[name] = a
        else:
            merged[name] = _merge_one(frame, name, (a, then), (b, orelse))
    return merged


def _half_bound(name: str, present: Binding) -> Binding:
    if isinstance(present.value, (Unbound, Conflict)):
        return present
    place = f" (only line {present.span.line} sets it)" if present.span else ""
    return Binding(
        Unbound(
            f"`{name}` has no value on some way to this line{place}",
            f"set `{name}` on every branch, or give it a value before the `if`",
        ),
        present.span,
    )


def _merge_one(
    frame: Frame, name: str, then: tuple[Binding, Branch], orelse: tuple[Binding, Branch]
) -> Binding:
    a, b = then[0], orelse[0]
    for binding in (a, b):
        if isinstance(binding.value, (Unbound, Conflict)):
            return binding
    if isinstance(a.value, OBJECTS) or isinstance(b.value, OBJECTS):
        return Binding(conflict(name, a, b), b.span)
    try:
        joined = join((a.value.type, b.value.type))
    except DTypeError:
        return Binding(conflict(name, a, b), b.span)
    slot = frame.builder.declare(name, joined)
    for value, span, branch in ((a.value, a.span, then[1]), (b.value, b.span, orelse[1])):
        with frame.placed(span), frame.builder.block() as ending:
            frame.builder.assign(slot, value)
        branch.statements.extend(ending)
    return Binding(frame.leaf(frame.builder.local(slot)), b.span)


def conflict(name: str, a: Binding, b: Binding) -> Conflict:
    """Say that a variable has two types that do not join, and where it gets them."""
    first, second = (f"{_kind(x)}{_line(x.span)}" for x in (a, b))
    if isinstance(a.value, Memory) and isinstance(b.value, Memory):
        return Conflict(
            f"`{name}` is {first} or {second}: which one is known only at run time",
            "index both, and choose between their elements",
        )
    if isinstance(a.value, OBJECTS) and isinstance(b.value, OBJECTS):
        return Conflict(
            f"`{name}` is {first} or {second}: which one is known only at run time",
            "call both, and choose between their results",
        )
    return Conflict(
        f"`{name}` is {first} and {second}: they have no common type",
        "use two variables, or convert one of the values, for example np.float32(x)",
    )


def _kind(binding: Binding) -> str:
    if isinstance(binding.value, Memory):
        return "an array"
    return "a function" if isinstance(binding.value, OBJECTS) else str(binding.value.type)


def _line(span: SourceSpan | None) -> str:
    return f" (line {span.line})" if span else ""


def conditional(
    frame: Frame,
    test: ir.Expr,
    then: Callable[[], ir.Expr],
    orelse: Callable[[], ir.Expr],
    *,
    bits: str | None = None,
) -> ir.Expr:
    """Return `then() if test else orelse()`.

    Both are evaluated and one is chosen, unless one of them needs statements or may run a loop:
    then a branch sets a new local. `bits` names the operation that does the same for two bools.
    """
    before = frame.bindings
    values: list[ir.Expr] = []
    ways: list[Branch] = []
    for part in (then, orelse):
        frame.bindings = dict(before)
        with frame.builder.block() as block:
            values.append(part())
        ways.append(Branch(frame.bindings, block))
    a, b = values
    frame.bindings = merge(frame, *ways)
    statements = any(way.statements for way in ways)
    if not statements and not any(map(frame.program.is_heavy, values)):
        if bits is not None and a.type == bool_ == b.type:
            return frame.both(bits, test, b if bits == "or" else a)
        if any(v is test for v in values):  # `x and y` with a bool x
            leaf = frame.leaf(test, "c")
            values, test = [leaf if v is test else v for v in values], leaf
        return frame.choose(test, *values)
    slot = frame.builder.declare("t", join((a.type, b.type)))
    for value, way in zip(values, ways, strict=True):
        with frame.builder.block() as ending:
            frame.builder.assign(slot, value)
        way.statements.extend(ending)
    frame.builder.if_(test, *(way.statements for way in ways))
    return frame.leaf(frame.builder.local(slot))
