"""Turns a graph of statements into `if`, `while` and `for`. Tests are whole when they come here.

A node is written where its only predecessor ends; a node with several is written behind the
statement in which they all lie, and reached there by running on, `break` or `continue`. Where a
loop goes on after `break` is tried among the few nodes outside of it. Where a jump is none of
these, nodes are written more than once, within bounds; beyond them the graph is refused.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from kernelmill.compiler.bytecode.graph import (
    Enter,
    Give,
    Goto,
    Graph,
    Inplace,
    Next,
    Node,
    Test,
    dominates,
    dominators,
    postorder,
    successors,
)
from kernelmill.compiler.bytecode.refusal import UnknownShapeError
from kernelmill.compiler.bytecode.trees import joined, negated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["statements"]

_LEAVING = (ast.Return, ast.Break, ast.Continue)
_ATTEMPTS = 2_000  # nodes written, over all ways to place the ends of nested loops
_COPIES = 20  # nodes written for each node, where nodes may be copied


def statements(graph: Graph) -> list[ast.stmt]:
    """Return the body of the function."""
    try:
        written = _Writer(graph).write(graph.entry, _Ways())
    except UnknownShapeError:
        written = _Writer(graph, copies=True).write(graph.entry, _Ways())
    return [_apart(statement) for statement in written]


_Tree = TypeVar("_Tree", bound=ast.AST)


def _apart(tree: _Tree) -> _Tree:
    """Return a tree of which no part stands in two places; attempts share what they write."""
    made = copy.copy(tree)
    for name, value in ast.iter_fields(tree):
        if isinstance(value, ast.AST):
            setattr(made, name, _apart(value))
        elif isinstance(value, list):
            setattr(made, name, [_apart(v) if isinstance(v, ast.AST) else v for v in value])
    return made


@dataclass(frozen=True, slots=True)
class _Ways:
    """Where control goes by running on, by `continue` and by `break`; None: not at all."""

    on: int | None = None
    again: int | None = None
    out: int | None = None

    def jump(self, to: int) -> list[ast.stmt] | None:
        """Return the statement that leads to a node, if there is one."""
        if to == self.on:
            return []
        if to == self.again:
            return [ast.Continue()]
        return [ast.Break()] if to == self.out else None


class _Writer:
    """Writes nodes; knows which lie in which loop."""

    def __init__(self, graph: Graph, *, copies: bool = False) -> None:
        self._nodes = graph.nodes
        self._copies = copies
        order = postorder(graph.entry, graph.nodes)[::-1]
        self._rank = {at: i for i, at in enumerate(order)}
        self._idom = dominators(order, graph.nodes)
        self._left = min(_COPIES * len(order), _ATTEMPTS) if copies else _ATTEMPTS
        self._open: set[int] = set()
        self._forward: dict[int, list[int]] = {at: [] for at in order}
        self._back: dict[int, list[int]] = {at: [] for at in order}
        for at in order:
            for to in successors(graph.nodes[at].end):
                if self._rank[to] > self._rank[at]:
                    self._forward[to].append(at)
                elif self._dominates(to, at):
                    self._back[to].append(at)
                else:
                    raise UnknownShapeError("a loop with two entries")

    def _dominates(self, above: int, at: int) -> bool:
        return dominates(above, at, self._idom, self._rank)

    # --- sequences --------------------------------------------------------------------------------

    def write(self, at: int, ways: _Ways, *, opened: bool = False) -> list[ast.stmt]:
        """Return the statements from a node on; `opened`: it is the head of the loop around."""
        written: list[ast.stmt] = []
        following: int | None = at
        while following is not None:
            at = following
            self._left -= 1
            if self._left < 0:
                raise UnknownShapeError("loops that are left in too many ways")
            if self._back[at] and not opened and not isinstance(self._nodes[at].end, Next):
                return [*written, *self._while(at, ways)]
            part, following = self._node(at, ways)
            opened = False
            written += part
            jump = None if following is None else ways.jump(following)
            if jump is not None:
                return [*written, *jump]
        return written

    def _go(self, to: int, ways: _Ways) -> list[ast.stmt]:
        """Return the statements that lead to a node, or the node itself when it is only here."""
        jump = ways.jump(to)
        if jump is not None:
            return jump
        self._alone(to)
        return self.write(to, ways)

    def _alone(self, to: int) -> None:
        """Refuse a node that others lead to as well, unless it can be written twice."""
        if to in self._open:
            raise UnknownShapeError("a jump to the start of an outer loop")
        copied = self._copies or isinstance(self._nodes[to].end, Give)
        if len(self._forward[to]) > 1 and not copied:
            raise UnknownShapeError("a jump that is neither break nor continue")

    def _node(self, at: int, ways: _Ways) -> tuple[list[ast.stmt], int | None]:
        """Return the statements of one node and of the tests it ends in, and what follows."""
        node = self._nodes[at]
        body = _finished(node)
        match node.end:
            case Give(value):
                return [*body, joined(ast.Return(value), value, value)], None
            case Goto(to):
                if ways.jump(to) is None:
                    self._alone(to)
                return body, to
            case Enter(iterable, to):
                return [*body, *self._for(iterable, to, ways)], None
            case Test() as test:
                choice, follows = self._if(at, test, ways)
                return [*body, *choice], follows
        raise UnknownShapeError("a loop without its iterator")

    # --- choices ----------------------------------------------------------------------------------

    def _if(self, at: int, test: Test, ways: _Ways) -> tuple[list[ast.stmt], int | None]:
        """Return the statements of a test, and the node where its sides meet."""
        true, false = test.true.to, test.false.to
        for meeting in self._meetings(at, ways):
            sides = ways if meeting is None else replace(ways, on=meeting)
            try:
                then, otherwise = self._go(true, sides), self._go(false, sides)
            except UnknownShapeError:
                continue
            # Where a side is empty because the loop starts again, say so: the other stays flat.
            if not then and otherwise and sides.on == sides.again:
                then = [ast.Continue()]
            return _choice(test.test, then, otherwise), meeting
        raise UnknownShapeError("branches that do not meet")

    def _meetings(self, at: int, ways: _Ways) -> Iterator[int | None]:
        """Yield the nodes where the sides of a test may meet, the last one first."""
        found = [
            to
            for to in self._rank
            if self._idom[to] == at and len(self._forward[to]) > 1 and ways.jump(to) is None
        ]
        yield from sorted(found, key=lambda to: -self._rank[to])
        yield None

    # --- loops ------------------------------------------------------------------------------------

    def _while(self, at: int, ways: _Ways) -> list[ast.stmt]:
        """Return the loop whose head is a node, and all that follows it."""
        node, inside = self._nodes[at], self._inside(at)
        test, body, done = _loop_test(node, inside)

        def write(out: int | None) -> ast.stmt:
            inner = _Ways(on=at, again=at, out=out)
            opened = self.write(at, inner, opened=True) if body is None else self._go(body, inner)
            otherwise = self._otherwise(done, out, ways)
            return joined(ast.While(test, _block(opened), otherwise), test, test)

        return self._loop(at, inside, done, ways, write)

    def _for(self, iterable: ast.expr, at: int, ways: _Ways) -> list[ast.stmt]:
        """Return the loop over an iterable, and all that follows it."""
        end = self._nodes[at].end
        if not isinstance(end, Next) or len(self._forward[at]) != 1:
            raise UnknownShapeError("an iterator outside of a for loop")

        def write(out: int | None) -> ast.stmt:
            content = self._go(end.body, _Ways(on=at, again=at, out=out))
            otherwise = self._otherwise(end.done, out, ways)
            made = ast.For(end.target, iterable, _block(content), otherwise)
            return joined(made, end.target, iterable)

        return self._loop(at, self._inside(at), end.done, ways, write)

    def _loop(
        self,
        at: int,
        inside: set[int],
        done: int | None,
        ways: _Ways,
        write: Callable[[int | None], ast.stmt],
    ) -> list[ast.stmt]:
        """Return a loop and what follows it, with `break` leading to the first node that fits."""
        for out in self._outs(at, inside, done):
            self._open.add(at)
            try:
                loop = write(out)
                self._open.remove(at)
                return [loop, *self._behind(done if out is None else out, at, ways)]
            except UnknownShapeError:
                self._open.discard(at)
        raise UnknownShapeError("a loop that is left in several ways")

    def _inside(self, head: int) -> set[int]:
        """Return the nodes from which the head of a loop is reached again."""
        inside = {head}
        pending = [at for at in self._back[head] if at != head]
        while pending:
            at = pending.pop()
            if at not in inside:
                inside.add(at)
                pending += self._forward[at] + self._back[at]
        return inside

    def _outs(self, head: int, inside: set[int], done: int | None) -> Iterator[int | None]:
        """Yield the nodes to which `break` may lead, the likely ones first; None: no break."""
        below = [at for at in self._rank if self._dominates(head, at)]
        targets = {to for at in below for to in successors(self._nodes[at].end)} - inside
        targets |= {done} if done is not None else set()
        shared = [
            to
            for to in targets
            if len(self._forward[to]) > 1
            and self._idom[to] in inside
            and not isinstance(self._nodes[to].end, Give)
        ]
        rest = [to for to in targets if to not in shared and to != done]
        ends = [to for to in rest if isinstance(self._nodes[to].end, Give)]
        rest = [to for to in rest if to not in ends]
        yield from sorted(shared, key=self._rank.__getitem__)
        if done is not None and done not in shared:
            yield done
        yield from sorted(rest, key=self._rank.__getitem__)
        yield None
        yield from sorted(ends, key=self._rank.__getitem__)

    def _otherwise(self, done: int | None, out: int | None, ways: _Ways) -> list[ast.stmt]:
        """Return the `else` part of a loop: what runs when it ends without a break."""
        if done is None or out is None or done == out:
            return []
        return self._go(done, replace(ways, on=out))

    def _behind(self, to: int | None, head: int, ways: _Ways) -> list[ast.stmt]:
        """Return what follows a loop: the way to a node, or the node when it can stand there."""
        if to is None:
            return []
        jump = ways.jump(to)
        if jump is not None:
            return jump
        if not self._dominates(head, to):
            self._alone(to)
        return self.write(to, ways)


def _loop_test(node: Node, inside: set[int]) -> tuple[ast.expr, int | None, int | None]:
    """Return the test of a loop, its body and where it leads when the test fails."""
    end = node.end
    if isinstance(end, Test) and not node.body:
        true, false = end.true.to, end.false.to
        if true in inside and false not in inside:
            return end.test, true, false
        if false in inside and true not in inside:
            return negated(end.test), false, true
    always = ast.Constant(True)  # noqa: FBT003 - a tree
    return joined(always, _place_of(node), _place_of(node)), None, None


def _place_of(node: Node) -> ast.expr:
    """Return a tree with the place where a node starts."""
    first = node.body[0] if node.body else None
    match node.end:
        case Test(test=tree) | Give(value=tree) | Enter(iterable=tree) | Next(target=tree):
            return tree if first is None else ast.copy_location(ast.Constant(None), first)
    found = ast.Constant(None, lineno=1, col_offset=0)
    return found if first is None else ast.copy_location(found, first)


def _choice(test: ast.expr, then: list[ast.stmt], otherwise: list[ast.stmt]) -> list[ast.stmt]:
    """Return an if statement; what follows a side that leaves is not indented."""
    if not then and otherwise:
        test, then, otherwise = negated(test), otherwise, []
    if _leaves(then):
        return [joined(ast.If(test, then, []), test, test), *otherwise]
    if _leaves(otherwise) and not (len(otherwise) == 1 and isinstance(otherwise[0], ast.If)):
        test, then, otherwise = negated(test), otherwise, then
        return [joined(ast.If(test, then, []), test, test), *otherwise]
    return [joined(ast.If(test, _block(then), otherwise), test, test)]


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether control never runs off the end of some statements."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _leaves(last.body) and _leaves(last.orelse)
    return isinstance(last, _LEAVING)


def _block(body: list[ast.stmt]) -> list[ast.stmt]:
    return body or [ast.Pass()]


def _finished(node: Node) -> list[ast.stmt]:
    """Return the statements of a node, augmented assignments in their own form."""
    return [_augmented(s) if isinstance(s, Inplace) else s for s in node.body]


def _augmented(statement: Inplace) -> ast.stmt:
    left = statement.left
    if not isinstance(left, ast.Name) or left.id != statement.target.id:
        raise UnknownShapeError("an augmented assignment to something other than a variable")
    made = ast.AugAssign(statement.target, statement.op, statement.value)
    return ast.copy_location(made, statement)
