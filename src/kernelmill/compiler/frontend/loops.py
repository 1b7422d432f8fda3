"""Loops. A variable that a loop changes lives in one local, whose type is found by repetition.

Each pass over the body starts with the types so far; the types at the ways back to the top and out
of the loop are joined with them, until a pass leaves all as they are.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, TypeAlias

from kernelmill.compiler import ir
from kernelmill.compiler.arrays import array_type
from kernelmill.compiler.builder import join
from kernelmill.compiler.frontend.branches import conflict
from kernelmill.compiler.frontend.expressions import condition, evaluate, evaluate_scalar, unpack
from kernelmill.compiler.frontend.frame import Loop
from kernelmill.compiler.frontend.names import assigned_names, loads_outside
from kernelmill.compiler.frontend.scope import item_of
from kernelmill.compiler.frontend.targets import give
from kernelmill.compiler.frontend.values import (
    OBJECTS,
    Binding,
    Conflict,
    Known,
    Memory,
    Unbound,
    Value,
    same,
    zero,
)
from kernelmill.dtypes import TupleType, Type, bool_, weak_int
from kernelmill.errors import DTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.compiler.frontend.frame import Frame
    from kernelmill.errors import SourceSpan

__all__ = ["break_", "continue_", "for_", "leave", "refuse_else", "repeat", "static", "while_"]

Run: TypeAlias = "Callable[[Frame, Sequence[ast.stmt]], bool]"
_Move: TypeAlias = "tuple[str, ir.Expr, SourceSpan | None]"
_TRUE: Final = ir.Const(True, bool_)  # noqa: FBT003 - the literal


# ----------------------------------------------------------------------------- kinds of loops


def for_(frame: Frame, node: ast.For, run: Run) -> bool:
    """Translate `for`: over a range at run time, over a tuple by repeating the body."""
    refuse_else(frame, node)
    call = node.iter
    callee = evaluate(frame, call.func) if isinstance(call, ast.Call) else None
    if isinstance(call, ast.Call) and isinstance(callee, Known) and callee.value is range:
        frame.program.captures.bake(callee)
        return _range(frame, node, call, run)
    return _unroll(frame, node, _items(frame, node.iter), run)


def _range(frame: Frame, node: ast.For, call: ast.Call, run: Run) -> bool:
    if not isinstance(node.target, ast.Name):
        raise frame.refusal(
            node.target, "range() gives one integer each turn", "write `for i in range`"
        )
    if call.keywords or not 1 <= len(call.args) <= 3:  # noqa: PLR2004 - start, stop, step
        raise frame.refusal(
            call, "range() takes 1 to 3 integers", "write `range(start, stop, step)`"
        )
    build = frame.builder
    given = [evaluate_scalar(frame, a) for a in call.args]
    start = given[0] if len(given) > 1 else build.const(0)
    stop = given[0] if len(given) == 1 else given[1]
    step = given[2] if len(given) > 2 else build.const(1)  # noqa: PLR2004 - the third
    if isinstance(step, ir.Const) and step.value == 0:
        raise frame.refusal(
            call.args[2], "range() with a step of zero", "use a positive or negative step"
        )
    bounds = (start, stop, step)
    turns = _known_turns(bounds)
    if turns is not None and len(turns) <= _UNROLL_LIMIT and _needs_text(frame, node, node.target):
        return _unroll(frame, node, [build.const(i) for i in turns], run)
    return _counted(frame, node, node.target, call, bounds, run)


def static(
    frame: Frame,
    node: ast.For,
    call: ast.Call,
    items: list[Value],
    run: Run,
    *,
    unroll: int = -1,
) -> bool:
    """Translate a loop over fixed integers: the body repeated in the text, or an unrolled loop."""
    if not isinstance(node.target, ast.Name) or _needs_text(frame, node, node.target):
        if len(items) > _UNROLL_LIMIT:
            raise frame.refusal(
                call,
                f"a loop of {len(items)} turns indexes a tuple; the limit is {_UNROLL_LIMIT}",
                "keep the values in an array",
            )
        return _unroll(frame, node, items, run)
    build = frame.builder
    numbers = [i.value for i in items if isinstance(i, ir.Const)]
    turns = [n for n in numbers if isinstance(n, int)]
    step = turns[1] - turns[0] if len(turns) > 1 else 1
    first = turns[0] if turns else 0
    bounds = (build.const(first), build.const(first + step * len(turns)), build.const(step))
    return _counted(frame, node, node.target, call, bounds, run, unroll=unroll)


def _counted(  # noqa: PLR0917 - what a loop is made of
    frame: Frame,
    node: ast.For,
    target: ast.Name,
    call: ast.Call,
    bounds: tuple[ir.Expr, ir.Expr, ir.Expr],
    run: Run,
    *,
    unroll: int = 0,
) -> bool:
    build, span = frame.builder, frame.builder.span

    def one_pass(loop: Loop) -> bool:
        counter = build.declare(target.id, weak_int)
        frame.bind(target.id, build.local(counter), target)
        with build.block() as body:
            if run(frame, node.body):
                loop.turns.append(leave(frame, loop))
        with frame.placed(span), frame.at(call):
            build.for_(counter, bounds, body, unroll=unroll)
        return True

    return repeat(frame, node, one_pass, runs_once=bool(_known_turns(bounds)))


def _known_turns(bounds: tuple[ir.Expr, ...]) -> range | None:
    """Return the range when all its bounds are literals."""
    numbers = [b.value for b in bounds if isinstance(b, ir.Const) and isinstance(b.value, int)]
    return range(*numbers) if len(numbers) == len(bounds) else None


# A loop over a fixed range that indexes tuples is repeated in the text, up to so many turns.
_UNROLL_LIMIT: Final = 64


def _needs_text(frame: Frame, node: ast.For, target: ast.Name) -> bool:
    """Whether the body indexes something by the loop variable: a tuple needs it fixed."""
    return any(
        isinstance(n, ast.Name) and n.id == target.id
        for place in ast.walk(node)
        if isinstance(place, ast.Subscript) and not _is_array(frame, place.value)
        for n in ast.walk(place.slice)
    )


def _is_array(frame: Frame, node: ast.expr) -> bool:
    """Whether an indexed name is an array, or in a kernel becomes one in the loop."""
    if frame.program.kernel is None:
        return _is_captured(frame, node)
    if not isinstance(node, ast.Name):
        return True
    if node.id in frame.bindings:
        return isinstance(frame.bindings[node.id].value, Memory)
    if node.id in frame.names:
        return True
    found = frame.variables.get(node.id)
    if found is not None:
        return isinstance(found, Memory)
    known = frame.surroundings.find(node.id)
    return known is None or not isinstance(known.value, tuple)


def _is_captured(frame: Frame, node: ast.expr) -> bool:
    """Whether a name is that of an array, which an operator can only have captured."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    if not isinstance(node, ast.Name):
        return False
    if node.id in frame.names:
        binding = frame.bindings.get(node.id)
        return binding is not None and isinstance(binding.value, Memory)
    found = frame.variables.get(node.id)
    if found is not None:
        return isinstance(found, Memory)
    known = frame.surroundings.find(node.id)
    return known is not None and array_type(known.value) is not None


def while_(frame: Frame, node: ast.While, run: Run) -> bool:
    """Translate `while`; a condition that needs statements becomes a `break` at the top."""
    refuse_else(frame, node)
    build = frame.builder
    span = build.span

    def one_pass(loop: Loop) -> bool:
        top = frame.bindings
        with build.block() as body:
            with build.block() as prelude:
                test = condition(frame, node.test)
            known = isinstance(test, ir.Const)
            if isinstance(test, ir.Const) and not test.value:
                return True
            plain = not prelude and _unchanged(top, frame.bindings)
            build.append(prelude)
            if not known and not plain:
                with build.block() as out:
                    loop.exits.append(leave(frame, loop))
                    build.break_()
                build.if_(build.apply("not", test), out)
            if run(frame, node.body):
                loop.turns.append(leave(frame, loop))
        with frame.placed(span):
            build.while_(test if plain else _TRUE, body)
        return plain and not known

    always = isinstance(node.test, ast.Constant) and bool(node.test.value)
    return repeat(frame, node, one_pass, runs_once=always)


def _unchanged(before: dict[str, Binding], after: dict[str, Binding]) -> bool:
    return before.keys() == after.keys() and all(before[n] is after[n] for n in before)


def break_(frame: Frame, node: ast.Break) -> bool:
    """Translate `break`."""
    loop = _innermost(frame, node)
    loop.exits.append(leave(frame, loop))
    frame.builder.break_()
    return False


def continue_(frame: Frame, node: ast.Continue) -> bool:
    """Translate `continue`."""
    loop = _innermost(frame, node)
    loop.turns.append(leave(frame, loop))
    frame.builder.continue_()
    return False


def _innermost(frame: Frame, node: ast.AST) -> Loop:
    loop = frame.loops[-1]
    if loop.unrolled:
        raise frame.refusal(
            node,
            "`break` and `continue` are not part of a loop over a tuple",
            "put the rest of the body under an `if`, or loop over `range(...)`",
        )
    if loop.spread and isinstance(node, ast.Break):
        raise frame.refusal(
            node,
            "`break` cannot leave a loop over several indices",
            "use `continue`, or a loop over one index",
        )
    return loop


def refuse_else(frame: Frame, node: ast.For | ast.While) -> None:
    """Refuse `else` of a loop."""
    if node.orelse:
        raise frame.refusal(
            node.orelse[0],
            "`else` of a loop is not part of the operator language",
            "set a flag before `break`, and test it behind the loop",
        )


# ----------------------------------------------------------------------------- loops over tuples


def _items(frame: Frame, node: ast.expr) -> list[Value]:
    value = evaluate(frame, node)
    if isinstance(value, Known) and isinstance(value.value, tuple):
        captures = frame.program.captures
        count = captures.bake_length(value)
        return [captures.value_of(item_of(value, i)) for i in range(count)]
    made = frame.scalar(value, node)
    if not isinstance(made.type, TupleType):
        raise frame.refusal(
            node,
            f"a loop cannot run over {made.type}",
            "loops run over `range(...)` and over tuples",
        )
    return list(unpack(frame, made, node))


def _unroll(frame: Frame, node: ast.For, items: list[Value], run: Run) -> bool:
    frame.loops.append(Loop([], {}, unrolled=True))
    try:
        for item in items:
            give(frame, node.target, item)
            if not run(frame, node.body):
                return False
    finally:
        frame.loops.pop()
    return True


# ----------------------------------------------------------------------------- variables of a loop


def repeat(
    frame: Frame, node: ast.For | ast.While, one_pass: Callable[[Loop], bool], *, runs_once: bool
) -> bool:
    """Repeat passes until the types hold, and emit the loop; return whether its end is reached.

    `one_pass` translates the loop once and returns whether it can end by itself; `runs_once` says
    that its body is entered for certain, so that variables it sets may be read behind it.
    """
    parts = [node.target, *node.body] if isinstance(node, ast.For) else [node.test, *node.body]
    before = frame.bindings
    loop = Loop(assigned_names(parts), before)
    for name in loop.names:
        if name in before and not isinstance(value := before[name].value, OBJECTS):
            loop.types[name] = value.type
    named = any(isinstance(n, ast.NamedExpr) for n in ast.walk(parts[0]))
    if runs_once or named:
        loop.wanted = loads_outside(frame.source.node, node) - before.keys()
    returned = len(frame.returns)
    while True:
        mark = frame.builder.mark()
        made, natural = _pass(frame, loop, one_pass)
        if not loop.changed:
            break
        frame.builder.rewind(mark)
        del frame.returns[returned:]
    _enter(frame, loop)
    frame.builder.append(made)
    frame.bindings = _behind(frame, loop, natural=natural, runs_once=runs_once)
    return natural or bool(loop.exits)


def _pass(frame: Frame, loop: Loop, one_pass: Callable[[Loop], bool]) -> tuple[list[ir.Stmt], bool]:
    build = frame.builder
    loop.slots = {name: build.declare(name, type_) for name, type_ in loop.types.items()}
    loop.changed, loop.exits, loop.turns = False, [], []
    frame.bindings = dict(loop.before)
    for name in loop.names:
        earlier = loop.before.get(name)
        if name in loop.conflicts:
            frame.bindings[name] = Binding(loop.conflicts[name])
        elif earlier is not None and name in loop.slots:
            local = frame.leaf(build.local(loop.slots[name]))
            frame.bindings[name] = Binding(local, earlier.span)
    frame.loops.append(loop)
    span = build.span
    try:
        with build.block() as made:
            natural = one_pass(loop)
    finally:
        frame.loops.pop()
        build.span = span
    return made, natural


def leave(frame: Frame, loop: Loop) -> frozenset[str]:
    """Carry the variables on a way back or out: set their locals all at once.

    Returns the names that have a value there. Types that do not fit yet ask for another pass.
    """
    bound: set[str] = set()
    moves: list[_Move] = []
    for name in loop.names:
        binding = frame.bindings.get(name)
        if binding is None or name in loop.conflicts:
            continue
        value = binding.value
        if isinstance(value, OBJECTS):
            _leave_object(loop, name, value)
        elif name in loop.before or name in loop.wanted:
            bound.add(name)
            if _grow(loop, name, binding, value) and name in loop.slots:
                moves.append((loop.slots[name], value, binding.span))
    if not loop.changed:
        _move(frame, moves)
    return frozenset(bound)


def _leave_object(loop: Loop, name: str, value: Value) -> None:
    """Check that a function or a missing value stays the same: it cannot be carried."""
    earlier = loop.before.get(name)
    if earlier is None or same(earlier.value, value):
        return
    if isinstance(value, (Unbound, Conflict)):
        loop.conflicts[name] = value
    else:
        loop.conflicts[name] = Conflict(
            f"`{name}` is another {_noun(value)} in each turn of the loop",
            f"choose between the {'elements' if isinstance(value, Memory) else 'results'} of the "
            f"{_noun(value)}s, not between the {_noun(value)}s",
        )
    loop.types.pop(name, None)
    loop.changed = True


def _noun(value: Value) -> str:
    return "array" if isinstance(value, Memory) else "function"


def _grow(loop: Loop, name: str, binding: Binding, value: ir.Expr) -> bool:
    """Join a type into that of the carried variable; return whether it was in already."""
    known = loop.types.get(name)
    earlier = loop.before.get(name)
    was_object = known is None and earlier is not None
    joined = None if was_object else _joined(known, value.type)
    if joined is None:
        loop.conflicts[name] = conflict(name, earlier or binding, binding)
        loop.types.pop(name, None)
        loop.changed = True
        return False
    if joined != known:
        loop.types[name] = joined
        loop.changed = True
        return False
    return True


def _joined(a: Type | None, b: Type) -> Type | None:
    try:
        return b if a is None else join((a, b))
    except DTypeError:
        return None


def _move(frame: Frame, moves: list[_Move]) -> None:
    """Set several locals at once: none is overwritten before all others that read it are set."""
    build = frame.builder
    pending = [m for m in moves if build.local(m[0]) != m[1]]
    while pending:
        reads = [_reads(value) - {slot} for slot, value, _ in pending]
        free = next((i for i, m in enumerate(pending) if not any(m[0] in r for r in reads)), None)
        if free is None:  # a cycle, such as `a, b = b, a`
            slot, value, span = pending[0]
            saved = build.declare("t", value.type)
            build.assign(saved, value)
            pending[0] = (slot, build.local(saved), span)
            continue
        slot, value, span = pending.pop(free)
        with frame.placed(span):
            build.assign(slot, value)


def _reads(value: ir.Expr) -> set[str]:
    return {n.name for n in ir.walk_expressions(value) if isinstance(n, ir.Local)}


def _enter(frame: Frame, loop: Loop) -> None:
    """Set the locals of the carried variables before the first turn."""
    for name, slot in loop.slots.items():
        earlier = loop.before.get(name)
        if earlier is None:
            frame.builder.assign(slot, zero(loop.types[name]))
        elif not isinstance(earlier.value, OBJECTS):
            with frame.placed(earlier.span):
                frame.builder.assign(slot, earlier.value)


def _behind(frame: Frame, loop: Loop, *, natural: bool, runs_once: bool) -> dict[str, Binding]:
    """Return the variables behind the loop."""
    ways = list(loop.exits)
    if natural:
        ways += loop.turns if runs_once else [frozenset()]
    certain = frozenset.intersection(*ways) if ways else frozenset()
    bindings = dict(loop.before)
    for name in loop.names:
        earlier = loop.before.get(name)
        if name in loop.conflicts:
            bindings[name] = Binding(loop.conflicts[name])
        elif name in loop.slots and (earlier is not None or name in certain):
            local = frame.leaf(frame.builder.local(loop.slots[name]))
            bindings[name] = Binding(local, earlier.span if earlier else None)
        elif earlier is None:
            bindings[name] = Binding(
                Unbound(
                    f"`{name}` is set only inside a loop that may make no turn",
                    f"give `{name}` a value before the loop",
                )
            )
    return bindings
