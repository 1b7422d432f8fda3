"""The control-flow graph whose nodes hold syntax trees: nodes, ends, order, dominators.

What the instructions mean is known to `symbolic`, which graphs are equal to `reduce`.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Edge",
    "End",
    "Enter",
    "Entry",
    "Give",
    "Goto",
    "Graph",
    "Hole",
    "Inplace",
    "Marker",
    "Next",
    "Node",
    "Right",
    "Test",
    "dominates",
    "dominators",
    "drops",
    "postorder",
    "redirect",
    "successors",
]


class Hole(ast.expr):
    """The value that a node finds in slot `index` of the stack when it starts."""

    _fields = ("index",)
    index: int

    @classmethod
    def at(cls, index: int) -> Hole:
        """Return the hole for a slot."""
        hole = cls()
        hole.index = index
        return hole


class Inplace(ast.stmt):
    """An augmented assignment whose left operand may still be a `Hole`."""

    _fields = ("target", "left", "op", "value")
    target: ast.Name
    left: ast.expr
    op: ast.operator
    value: ast.expr

    @classmethod
    def of(
        cls, target: ast.Name, left: ast.expr, operator: ast.operator, value: ast.expr
    ) -> Inplace:
        """Return the statement `target operator= value`, where `left` is the target as read."""
        made = cls()
        made.target, made.left, made.op, made.value = target, left, operator, value
        return made


@dataclass(frozen=True, slots=True)
class Marker:
    """A stack slot that is no value: "null", "self" (of a method call) or "iterator"."""

    what: str


@dataclass(frozen=True, slots=True)
class Right:
    """The right operand of the comparison that the node tests, kept for the next of the chain."""


Entry: TypeAlias = ast.expr | Marker | Right


class Edge(NamedTuple):
    """One side of a test; `keep` leaves the tested value on the stack."""

    to: int
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Goto:
    """Go on at another node."""

    to: int


@dataclass(frozen=True, slots=True)
class Test:
    """Go on at one of two nodes."""

    test: ast.expr
    true: Edge
    false: Edge

    @property
    def keeps(self) -> bool:
        """Whether a side finds the tested value on the stack."""
        return self.true.keep or self.false.keep


@dataclass(frozen=True, slots=True)
class Give:
    """Return a value."""

    value: ast.expr


@dataclass(frozen=True, slots=True)
class Enter:
    """Start a loop over an iterable; `to` is a Next node."""

    iterable: ast.expr
    to: int


@dataclass(frozen=True, slots=True)
class Next:
    """Go on with the next element, or leave the loop."""

    target: ast.Name
    body: int
    done: int


End: TypeAlias = Goto | Test | Give | Enter | Next


@dataclass(slots=True)
class Node:
    """Statements, what they leave on the stack, and where control goes.

    `depth` values are on the stack at the start; `stack` is what lies there at the end, as trees
    over `Hole`. Iterators are not counted.
    """

    depth: int
    stack: list[Entry]
    body: list[ast.stmt]
    end: End

    def leaves_alone(self, count: int) -> bool:
        """Whether the lowest `count` slots are what they were at the start."""
        if len(self.stack) < count:
            return False
        return all(
            entry.index == i if isinstance(entry, Hole) else isinstance(entry, Marker)
            for i, entry in enumerate(self.stack[:count])
        )

    @property
    def empty(self) -> bool:
        """Whether the node does nothing before its end."""
        return not self.body and len(self.stack) == self.depth and self.leaves_alone(self.depth)


@dataclass(slots=True)
class Graph:
    """The nodes of a function by number."""

    entry: int
    nodes: dict[int, Node] = field(default_factory=dict)

    def predecessors(self) -> Counter[int]:
        """Return how many edges enter each node; the entry of the function is one."""
        counts = Counter({self.entry: 1})
        for node in self.nodes.values():
            counts.update(successors(node.end))
        return counts

    def prune(self) -> None:
        """Forget what cannot be reached."""
        reached = set(postorder(self.entry, self.nodes))
        self.nodes = {at: node for at, node in self.nodes.items() if at in reached}


def successors(end: End) -> tuple[int, ...]:
    """Return where an end may lead."""
    match end:
        case Test():
            return end.true.to, end.false.to
        case Next():
            return end.body, end.done
        case Give():
            return ()
    return (end.to,)


def redirect(end: End, old: int, new: int) -> End:
    """Return the end with one destination replaced."""
    match end:
        case Test():
            true, false = (
                edge._replace(to=new) if edge.to == old else edge for edge in (end.true, end.false)
            )
            return replace(end, true=true, false=false)
        case Next():
            body, done = (new if to == old else to for to in (end.body, end.done))
            return replace(end, body=body, done=done)
        case Give():
            return end
    return replace(end, to=new) if end.to == old else end


def postorder(entry: int, nodes: dict[int, Node]) -> list[int]:
    """Return the reachable nodes, each behind those it leads to, back edges aside."""
    order: list[int] = []
    seen = {entry}
    stack = [(entry, iter(successors(nodes[entry].end)))]
    while stack:
        at, rest = stack[-1]
        for to in rest:
            if to not in seen:
                seen.add(to)
                stack.append((to, iter(successors(nodes[to].end))))
                break
        else:
            order.append(at)
            stack.pop()
    return order


def dominators(order: Iterable[int], nodes: dict[int, Node]) -> dict[int, int]:
    """Return the immediate dominator of each node; `order` is the reverse postorder.

    Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001).
    """
    rank = {at: i for i, at in enumerate(order)}
    entry = next(iter(rank))
    sources: dict[int, list[int]] = {at: [] for at in rank}
    for at in rank:
        for to in successors(nodes[at].end):
            sources[to].append(at)
    idom = {entry: entry}
    changed = True
    while changed:
        changed = False
        for at in rank:
            known = [p for p in sources[at] if p in idom]
            if at == entry or not known:
                continue
            found = known[0]
            for other in known[1:]:
                found = _meet(found, other, idom, rank)
            changed |= idom.get(at) != found
            idom[at] = found
    return idom


def _meet(a: int, b: int, idom: dict[int, int], rank: dict[int, int]) -> int:
    """Return the nearest node that dominates both."""
    while a != b:
        while rank[a] > rank[b]:
            a = idom[a]
        while rank[b] > rank[a]:
            b = idom[b]
    return a


def dominates(above: int, at: int, idom: dict[int, int], rank: dict[int, int]) -> bool:
    """Whether every way to a node leads through another; `rank` is the reverse postorder."""
    while rank[at] > rank[above]:
        at = idom[at]
    return at == above


def drops(statement: ast.stmt, slot: int) -> bool:
    """Whether a statement throws a value of the stack away."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, Hole):
        return False
    return statement.value.index == slot
