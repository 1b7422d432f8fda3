"""Passes over IR that keep every value: branches become choices, unread locals go. No typing here.

Expressions are pure and total, so both sides of a branch may be computed and one of them chosen:
loops over elements then vectorise. Nothing is written twice, so a program grows by one choice for
each merged value. What may run a loop stays behind its branch.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from kernelmill.compiler import ir
from kernelmill.compiler.kernel_ir import Effect, Load
from kernelmill.compiler.rewrite import rewrite_expression
from kernelmill.dtypes import bool_

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelmill.dtypes import Type
    from kernelmill.errors import SourceSpan

__all__ = ["drop_unread", "remove_branches", "simplify"]

# A branch with more nodes than this stays: computing it in vain would cost more than the jump.
_NODE_LIMIT: Final = 256


def simplify(program: ir.Program, *, node_limit: int = _NODE_LIMIT) -> ir.Program:
    """Return the program without unread locals and with small branches turned into choices.

    A branch is turned when both sides together have at most `node_limit` nodes, hold no loop, and
    call no function that has one.
    """
    looping: set[str] = set()
    functions: list[ir.Function] = []
    for function in program.functions:
        made = drop_unread(remove_branches(function, looping, node_limit=node_limit))
        if _has_loop(made, looping):
            looping.add(made.name)
        functions.append(made)
    return ir.Program(tuple(functions), program.captures)


def _has_loop(function: ir.Function, looping: set[str]) -> bool:
    # A raw function may do what must not be done in vain: read an address, for example.
    # What writes to memory must not be done in vain either.
    return function.raw is not None or any(
        isinstance(statement, (ir.For, ir.While, Effect))
        or any(_calls(operand, looping) for operand in ir.operands(statement))
        for statement in ir.walk_statements(function.body)
    )


def _calls(value: ir.Expr, names: set[str]) -> bool:
    if not names:
        return False
    nodes = ir.walk_expressions(value)
    return any(isinstance(n, ir.Call) and n.function in names for n in nodes)


# ----------------------------------------------------------------------------- unread locals


def drop_unread(function: ir.Function) -> ir.Function:
    """Return the function without assignments to locals that no result depends on."""
    needed: set[str] = set()
    feeds: dict[str, set[str]] = {}
    for statement in ir.walk_statements(function.body):
        read = {n for operand in ir.operands(statement) for n in _reads(operand)}
        if isinstance(statement, (ir.Assign, Load)):
            feeds.setdefault(statement.name, set()).update(read)
        else:
            needed |= read
    pending = list(needed)
    while pending:
        fresh = feeds.get(pending.pop(), set()) - needed
        needed |= fresh
        pending.extend(fresh)
    body = _without(function.body, needed)
    setting = (ir.For, Effect)
    kept = needed | {s.name for s in ir.walk_statements(body) if isinstance(s, setting)}
    names = tuple((n, t) for n, t in function.locals if n in kept)
    return dataclasses.replace(function, body=body, locals=names)


def _reads(value: ir.Expr) -> set[str]:
    return {n.name for n in ir.walk_expressions(value) if isinstance(n, ir.Local)}


def _without(block: tuple[ir.Stmt, ...], needed: set[str]) -> tuple[ir.Stmt, ...]:
    made: list[ir.Stmt] = []
    for statement in block:
        match statement:
            case ir.Assign(name=name) | Load(name=name):
                if name in needed:
                    made.append(statement)
            case ir.If(condition, then, orelse, span):
                blocks = (_without(then, needed), _without(orelse, needed))
                if any(blocks):
                    made.append(ir.If(condition, *blocks, span))
            case ir.For(body=body):
                inner = _without(body, needed)
                if inner or statement.name in needed:
                    made.append(dataclasses.replace(statement, body=inner))
            case ir.While(body=body):
                made.append(dataclasses.replace(statement, body=_without(body, needed)))
            case _:
                made.append(statement)
    return tuple(made)


# ----------------------------------------------------------------------------- branches


def remove_branches(
    function: ir.Function, looping: set[str], *, node_limit: int = _NODE_LIMIT
) -> ir.Function:
    """Return the function with small branches turned into choices.

    `looping` names the functions that run a loop.
    """
    pass_ = _BranchRemoval(function, looping, node_limit)
    body = pass_.block(function.body, frozenset())
    names = tuple(pass_.locals.items())
    return dataclasses.replace(function, body=body, locals=names)


class _BranchRemoval:
    """Rewrites one function; locals that have a single assignment may move freely."""

    def __init__(self, function: ir.Function, looping: set[str], node_limit: int) -> None:
        self.locals: dict[str, Type] = dict(function.locals)
        self._taken = {*self.locals, *(name for name, _ in function.params)}
        self._looping = looping
        self._limit = node_limit
        self._counts: dict[str, int] = {}
        for statement in ir.walk_statements(function.body):
            if isinstance(statement, (ir.Assign, Effect)) and statement.name is not None:
                self._counts[statement.name] = self._counts.get(statement.name, 0) + 1
            elif isinstance(statement, ir.For):
                self._counts[statement.name] = self._counts.get(statement.name, 0) + 2

    def block(self, block: tuple[ir.Stmt, ...], defined: frozenset[str]) -> tuple[ir.Stmt, ...]:
        """Rewrite a block; `defined` are the locals that have a value before it."""
        made: list[ir.Stmt] = []
        for position, statement in enumerate(block):
            match statement:
                case ir.If():
                    rest = block[position + 1 :]
                    if rest and (ir.terminates(statement.then) or ir.terminates(statement.orelse)):
                        return (*made, *self._early(statement, rest, defined))
                    then = self.block(statement.then, defined)
                    orelse = self.block(statement.orelse, defined)
                    made.extend(self._merged(statement, then, orelse, defined))
                    defined = _defined_behind(defined, then, orelse)
                case ir.For(name=name, body=body):
                    inner = self.block(body, defined | {name})
                    made.append(dataclasses.replace(statement, body=inner))
                case ir.While(body=body):
                    made.append(dataclasses.replace(statement, body=self.block(body, defined)))
                case _:
                    made.append(statement)
                    defined |= _assigned((statement,))
        return tuple(made)

    def _early(
        self, statement: ir.If, rest: tuple[ir.Stmt, ...], defined: frozenset[str]
    ) -> tuple[ir.Stmt, ...]:
        """Rewrite `if c: return a` and what follows it as the two sides of one branch."""
        leaves_first = ir.terminates(statement.then)
        then = statement.then if leaves_first else statement.then + rest
        orelse = statement.orelse + rest if leaves_first else statement.orelse
        then, orelse = self.block(then, defined), self.block(orelse, defined)
        merged = self._merged(statement, then, orelse, defined)
        if not (len(merged) == 1 and isinstance(merged[0], ir.If)):
            return merged
        if leaves_first:
            return (ir.If(statement.condition, then, (), statement.span), *orelse)
        opposite = ir.Apply("not", (statement.condition,), bool_)
        return (ir.If(opposite, orelse, (), statement.span), *then)

    # ------------------------------------------------------------------ one branch

    def _merged(
        self,
        statement: ir.If,
        then: tuple[ir.Stmt, ...],
        orelse: tuple[ir.Stmt, ...],
        defined: frozenset[str],
    ) -> tuple[ir.Stmt, ...]:
        """Return both sides one behind the other and the choices, or the branch as it was."""
        ways = (then, orelse)
        ends = [bool(way) and isinstance(way[-1], ir.Return) for way in ways]
        if ends[0] != ends[1] or not all(map(self._is_plain, ways)) or not self._is_small(ways):
            return (ir.If(statement.condition, then, orelse, statement.span),)
        made: list[ir.Stmt] = []
        condition = self._leaf(statement.condition, statement.span, made)
        single = {name for name, count in self._counts.items() if count == 1}
        maps = [self._straight(way, single, made) for way in ways]
        if ends[0]:
            returns = [way[-1] for way in ways if isinstance(way[-1], ir.Return)]
            values = [_substitute(r.value, names) for r, names in zip(returns, maps, strict=True)]
            made.append(ir.Return(choose(condition, *values), returns[0].span))
            return tuple(made)
        for name in dict.fromkeys(name for names in maps for name in names):
            sides = [names.get(name) for names in maps]
            if None in sides and name not in defined:
                continue  # set on one side only: nothing behind the branch may read it
            old = ir.Local(name, self.locals[name])
            a, b = (old if side is None else side for side in sides)
            made.append(ir.Assign(name, choose(condition, a, b), statement.span))
            self._counts[name] = self._counts.get(name, 0) + 1
        return tuple(made)

    def _is_plain(self, way: tuple[ir.Stmt, ...]) -> bool:
        """Whether a block is assignments, and maybe a return, without a call that may loop."""
        if not all(isinstance(s, ir.Assign) for s in way[:-1]):
            return False
        if way and not isinstance(way[-1], (ir.Assign, ir.Return)):
            return False
        return not any(_calls(v, self._looping) for s in way for v in ir.operands(s))

    def _is_small(self, ways: tuple[tuple[ir.Stmt, ...], ...]) -> bool:
        count = 0
        for way in ways:
            for statement in way:
                for value in ir.operands(statement):
                    for _ in ir.walk_expressions(value):
                        count += 1
                        if count > self._limit:
                            return False
        return True

    def _straight(
        self, way: tuple[ir.Stmt, ...], single: set[str], made: list[ir.Stmt]
    ) -> dict[str, ir.Expr]:
        """Append the assignments of a side; return what its locals are at its end.

        A local with one assignment keeps its name: nobody else reads or sets it. Others get a
        fresh local, because the other side starts from their old value.
        """
        names: dict[str, ir.Expr] = {}
        for statement in way:
            if not isinstance(statement, ir.Assign):
                break
            value = _substitute(statement.value, names)
            if statement.name in single:
                made.append(ir.Assign(statement.name, value, statement.span))
                continue
            self._counts[statement.name] -= 1
            if not self._is_fixed(value):
                fresh = self._declare(statement.name, value.type)
                made.append(ir.Assign(fresh, value, statement.span))
                value = ir.Local(fresh, value.type)
            names[statement.name] = value
        return names

    def _is_fixed(self, value: ir.Expr) -> bool:
        """Whether a value costs nothing and stays the same whatever is assigned."""
        if isinstance(value, ir.Local):
            return self._counts[value.name] == 1
        return isinstance(value, (ir.Const, ir.Param, ir.Capture))

    def _leaf(self, value: ir.Expr, span: SourceSpan | None, made: list[ir.Stmt]) -> ir.Expr:
        if self._is_fixed(value):
            return value
        fresh = self._declare("c", value.type)
        made.append(ir.Assign(fresh, value, span))
        return ir.Local(fresh, value.type)

    def _declare(self, name: str, type_: Type) -> str:
        fresh, count = name, 1
        while fresh in self._taken:
            count += 1
            fresh = f"{name}_{count}"
        self._taken.add(fresh)
        self.locals[fresh] = type_
        self._counts[fresh] = 1
        return fresh


def _substitute(value: ir.Expr, names: dict[str, ir.Expr]) -> ir.Expr:
    if not names:
        return value

    def change(node: ir.Expr) -> ir.Expr:
        return names.get(node.name, node) if isinstance(node, ir.Local) else node

    return rewrite_expression(value, change)


def _assigned(block: Iterable[ir.Stmt]) -> frozenset[str]:
    kinds = (ir.Assign, Effect)
    return frozenset(s.name for s in block if isinstance(s, kinds) and s.name is not None)


def _defined_behind(
    defined: frozenset[str], then: tuple[ir.Stmt, ...], orelse: tuple[ir.Stmt, ...]
) -> frozenset[str]:
    ends = [_defined_at_end(defined, way) for way in (then, orelse) if not ir.terminates(way)]
    return frozenset.intersection(*ends) if ends else defined


def _defined_at_end(defined: frozenset[str], block: tuple[ir.Stmt, ...]) -> frozenset[str]:
    for statement in block:
        match statement:
            case ir.Assign(name=name) | Effect(name=str() as name):
                defined |= {name}
            case ir.If(then=then, orelse=orelse):
                defined = _defined_behind(defined, then, orelse)
    return defined


# ----------------------------------------------------------------------------- choices


def choose(condition: ir.Expr, then: ir.Expr, orelse: ir.Expr) -> ir.Expr:
    """Return `then if condition else orelse` for two values of one type; `condition` is a leaf.

    Tuples and structs are chosen item by item, and choices between bools become bit operations.
    """
    match then, orelse:
        case ir.MakeTuple(values=a, type=items), ir.MakeTuple(values=b):
            pairs = zip(a, b, strict=True)
            return ir.MakeTuple(tuple(choose(condition, x, y) for x, y in pairs), items)
        case ir.MakeStruct(values=a, type=struct), ir.MakeStruct(values=b):
            pairs = zip(a, b, strict=True)
            return ir.MakeStruct(tuple(choose(condition, x, y) for x, y in pairs), struct)
        case ((ir.Param() | ir.Capture() | ir.Local()), _) if then == orelse:
            return then
    if then.type == bool_:
        return _choose_bool(condition, then, orelse)
    return ir.Select(condition, then, orelse, then.type)


def _choose_bool(condition: ir.Expr, then: ir.Expr, orelse: ir.Expr) -> ir.Expr:
    opposite = ir.Apply("not", (condition,), bool_)
    match then, orelse:
        case ir.Const(value=a), ir.Const(value=b):
            if a == b:
                return then
            return condition if a else opposite
        case ir.Const(value=a), _:
            op, first = ("or", condition) if a else ("and", opposite)
            return ir.Apply(op, (first, orelse), bool_)
        case _, ir.Const(value=b):
            op, first = ("or", opposite) if b else ("and", condition)
            return ir.Apply(op, (first, then), bool_)
        case _:
            return ir.Select(condition, then, orelse, bool_)
