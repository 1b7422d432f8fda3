"""Joins the nodes of a graph: sequences, conditions, conditional expressions, rotated loops.

Each rule replaces a part of the graph by an equal one, innermost parts first, until no rule fits.
What remains has statements only: no node leaves a value on the stack for another. Nothing here
chooses between `if`, `while` and `for`.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from kernelmill.compiler.bytecode.chains import chain
from kernelmill.compiler.bytecode.graph import (
    Edge,
    Entry,
    Give,
    Goto,
    Graph,
    Hole,
    Marker,
    Next,
    Node,
    Right,
    Test,
    drops,
    postorder,
    redirect,
    successors,
)
from kernelmill.compiler.bytecode.refusal import UnknownShapeError
from kernelmill.compiler.bytecode.trees import joined, negated, positive

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

__all__ = ["reduce_graph"]

_Tree = TypeVar("_Tree", bound=ast.AST)
_Rule: TypeAlias = "Callable[[Reducer, int], bool]"


def reduce_graph(graph: Graph) -> None:
    """Join nodes until no rule fits."""
    reducer = Reducer(graph)
    reducer.keep_loops_apart()
    while reducer.sweep(_RULES) or reducer.sweep((Reducer.copy,)):
        pass
    while reducer.sweep((Reducer.skip, Reducer.rotated)):
        pass
    reducer.join_loops()
    while reducer.sweep(_RULES) or reducer.sweep((Reducer.copy,)):
        pass
    for node in graph.nodes.values():
        if node.depth or node.stack:
            raise UnknownShapeError("an expression whose parts do not meet")


class _Filler(ast.NodeTransformer):
    """Puts what is on the stack into the holes of a tree."""

    def __init__(self, stack: Sequence[Entry]) -> None:
        self._stack = stack

    def visit_Hole(self, node: Hole) -> ast.expr:
        entry = self._stack[node.index]
        if not isinstance(entry, ast.expr):
            raise UnknownShapeError("a comparison that is not continued")
        return entry


def _fill(tree: _Tree, stack: Sequence[Entry]) -> _Tree:
    filled: _Tree = _Filler(stack).visit(tree)
    return filled


def _fill_end(node: Node, stack: Sequence[Entry]) -> None:
    """Put what is on the stack into the end of a node."""
    for field in ("test", "value", "iterable"):
        tree = getattr(node.end, field, None)
        if tree is not None:
            node.end = replace(node.end, **{field: _fill(tree, stack)})


def _dumps(trees: Sequence[ast.AST | Marker | Right]) -> list[object]:
    """Return what trees are, whatever their places."""
    return [ast.dump(tree) if isinstance(tree, ast.AST) else tree for tree in trees]


class Reducer:
    """The rules; each takes a node and says whether it changed the graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: Counter[int] | None = None
        self._apart: set[int] = set()
        self._heads: set[int] = set()  # tests of while loops
        self._offset: dict[int, int] = {}  # where nodes that were added would stand
        # Made of tests in a row, so that `(a and b) and c` is written without the parentheses.
        self._flat: dict[int, ast.BoolOp] = {}

    def sweep(self, rules: Sequence[_Rule]) -> bool:
        """Apply rules to every node, innermost first; say whether one fitted."""
        changed = False
        order = postorder(self._graph.entry, self._graph.nodes)
        for at in order:
            while at in self._graph.nodes and any(rule(self, at) for rule in rules):
                self._known = None
                changed = True
        self._graph.prune()
        return changed

    def keep_loops_apart(self) -> None:
        """Leave each test at either end of a loop alone, so that equal ones can be found.

        `if a: while b: ...` tests `a and b` in front of the loop, but `b` at its bottom.
        """
        nodes = self._graph.nodes
        tests = [at for at, node in nodes.items() if isinstance(node.end, Test)]
        edges = [(at, to) for at in tests for to in successors(nodes[at].end)]
        starts = {to for at, to in edges if self._goes_back(at, to)}
        self._apart = {at for at, to in edges if to in starts}

    def join_loops(self) -> None:
        """Allow all tests to be joined, but those of a while loop with each other only."""
        self._apart = set()

    def node(self, at: int) -> Node:
        return self._graph.nodes[at]

    def _entries(self) -> Counter[int]:
        if self._known is None:
            self._graph.prune()
            self._known = self._graph.predecessors()
        return self._known

    def single(self, at: int) -> bool:
        """Whether a node is entered by one edge only."""
        return self._entries()[at] == 1

    def same(self, one: Edge, other: Edge) -> bool:
        """Whether two edges lead to the same place, or to equal ends of the function."""
        if one.keep != other.keep:
            return False
        if one.to == other.to:
            return True
        a, b = self.node(one.to), self.node(other.to)
        if isinstance(a.end, Give) and isinstance(b.end, Give) and a.depth == b.depth == 0:
            return _dumps([*a.body, a.end.value]) == _dumps([*b.body, b.end.value])
        # CPython copies a value as well, when a return follows it.
        values = not a.body and not b.body and a.depth == b.depth and a.end == b.end
        return values and isinstance(a.end, Goto) and _dumps(a.stack) == _dumps(b.stack)

    # --- sequences --------------------------------------------------------------------------------

    def skip(self, at: int) -> bool:
        """Lead around a node that does nothing."""
        node = self.node(at)
        if not isinstance(node.end, Goto) or not node.empty or node.end.to == at:
            return False
        to = node.end.to
        for other in self._graph.nodes.values():
            other.end = redirect(other.end, at, to)
        if self._graph.entry == at:
            self._graph.entry = to
        del self._graph.nodes[at]
        return True

    def sequence(self, at: int) -> bool:
        """Append the only node that follows, when nothing else leads there."""
        node = self.node(at)
        if not isinstance(node.end, Goto) or not self.single(node.end.to):
            return False
        after = self.node(node.end.to)
        cleans = node.depth > 0 and len(node.body) == 1 and drops(node.body[0], node.depth - 1)
        if (
            node.end.to == at
            or isinstance(after.end, Next)
            or (cleans and node.depth > len(node.stack))
        ):
            return False  # the end of a chained comparison stays apart until it is joined
        self._append(node, after)
        return True

    def copy(self, at: int) -> bool:
        """Append a copy of a node that several whole values were to share."""
        node = self.node(at)
        if not isinstance(node.end, Goto) or node.depth or not node.stack:
            return False
        after = self.node(node.end.to)
        if not isinstance(after.end, Give | Goto):
            return False
        self._append(node, copy.deepcopy(after))
        return True

    def _fresh(self) -> int:
        """Return a number for a new node."""
        return min(0, *self._graph.nodes) - 1

    def _append(self, node: Node, after: Node) -> None:
        """Let a node go on with what another does."""
        if after.depth != len(node.stack):
            raise UnknownShapeError("a stack that depends on the way")
        stack = node.stack
        node.body += [_fill(statement, stack) for statement in after.body]
        _fill_end(after, stack)
        node.end = after.end
        node.stack = [
            stack[e.index]
            if isinstance(e, Hole)
            else _fill(e, stack)
            if isinstance(e, ast.expr)
            else e
            for e in after.stack
        ]

    def drop(self, at: int) -> bool:
        """Leave a tested value behind at the test when the node that finds it throws it away."""
        node = self.node(at)
        top = node.depth - 1
        if not node.body or not drops(node.body[0], top) or at == self._graph.entry:
            return False
        sources = [n for n in self._graph.nodes.values() if at in successors(n.end)]
        edges = [edge for n in sources for edge in _edges(n) if edge.to == at]
        if not edges or not all(e.keep for e in edges) or not all(_edges(n) for n in sources):
            return False
        for source in sources:
            assert isinstance(source.end, Test)
            true, false = (
                Edge(at) if edge.to == at else edge for edge in (source.end.true, source.end.false)
            )
            source.end = replace(source.end, true=true, false=false)
        node.depth = top
        del node.body[0]
        return True

    # --- conditions -------------------------------------------------------------------------------

    def _pure_test(self, at: int, edge: Edge, depth: int) -> Node | None:
        """Return the node behind an edge when all it does is one more test."""
        node = self.node(edge.to)
        plain = not edge.keep and node.empty and node.depth == depth
        if not plain or not isinstance(node.end, Test) or not self.single(edge.to):
            return None
        alike = (at in self._heads) == (edge.to in self._heads)
        return node if alike and edge.to not in self._apart else None

    def _open_test(self, at: int) -> Node | None:
        """Return a node that ends in a test which is ready to be joined."""
        node = self.node(at)
        if not isinstance(node.end, Test) or node.end.true.to == node.end.false.to:
            return None
        test = node.end.test
        if isinstance(test, ast.Compare) and isinstance(test.left, Hole):
            return None  # the rest of a chained comparison: wait for its start
        return node if not node.stack or not isinstance(node.stack[-1], Right) else None

    def condition(self, at: int) -> bool:
        """Write two tests with a common destination as `and` or `or`."""
        node = self._open_test(at)
        if node is None:
            return False
        assert isinstance(node.end, Test)
        first = node.end
        depth = len(node.stack)
        inner = self._pure_test(at, first.true, depth)
        if inner is not None and self._join_true(node, first, inner):
            return True
        inner = self._pure_test(at, first.false, depth)
        return inner is not None and self._join_false(node, first, inner)

    def _join_true(self, node: Node, first: Test, inner: Node) -> bool:
        """Join a second test that runs when the first was true: `and`."""
        assert isinstance(inner.end, Test)
        second = inner.end
        if self.same(first.false, second.false):
            test = self._bool(ast.And(), first.test, second.test)
            node.end = Test(test, second.true, second.false)
            return True
        if self.same(first.false, second.true) and not second.keeps:
            test = self._bool(ast.And(), first.test, negated(second.test))
            node.end = Test(test, second.false, second.true)
            return True
        return False

    def _join_false(self, node: Node, first: Test, inner: Node) -> bool:
        """Join a second test that runs when the first was false: `or`."""
        assert isinstance(inner.end, Test)
        second = inner.end
        if self.same(first.true, second.true):
            test = self._bool(ast.Or(), first.test, second.test)
            node.end = Test(test, second.true, second.false)
            return True
        if self.same(first.true, second.false) and not second.keeps:
            test = self._bool(ast.Or(), first.test, negated(second.test))
            node.end = Test(test, second.false, second.true)
            return True
        return False

    def _bool(self, op: ast.boolop, first: ast.expr, second: ast.expr) -> ast.BoolOp:
        """Return `first op second`, flat where the tests follow each other."""
        values: list[ast.expr] = []
        for value in (first, second):
            flat = isinstance(value, ast.BoolOp) and type(value.op) is type(op)
            values += value.values if flat and isinstance(value, ast.BoolOp) else [value]
        made = joined(ast.BoolOp(op, values), values[0], values[-1])
        self._flat[id(made)] = made
        return made

    def choice(self, at: int) -> bool:
        """Write a test that chooses between two tests as a condition `x if t else y`."""
        node = self._open_test(at)
        if node is None:
            return False
        assert isinstance(node.end, Test)
        depth = len(node.stack)
        if node.end.keeps:
            return False
        true, false = (self._pure_test(at, e, depth) for e in (node.end.true, node.end.false))
        if true is None or false is None:
            return False
        assert isinstance(true.end, Test)
        assert isinstance(false.end, Test)
        one, two = true.end, false.end
        crossed = self.same(one.true, two.false) and self.same(one.false, two.true)
        if crossed and not one.keeps:
            one = Test(negated(one.test), one.false, one.true)
        if not self.same(one.true, two.true) or not self.same(one.false, two.false):
            return False
        test = joined(ast.IfExp(node.end.test, one.test, two.test), one.test, two.test)
        node.end = Test(test, one.true, one.false)
        return True

    # --- values -----------------------------------------------------------------------------------

    def _leaf(self, edge: Edge, depth: int) -> tuple[ast.expr, int] | None:
        """Return the value that the node behind an edge pushes, and where it goes on."""
        node = self.node(edge.to)
        if edge.keep or node.body or not isinstance(node.end, Goto) or not self.single(edge.to):
            return None
        pushes = node.depth == depth and len(node.stack) == depth + 1 and node.leaves_alone(depth)
        value = node.stack[-1] if pushes else None
        return (value, node.end.to) if isinstance(value, ast.expr) else None

    def value(self, at: int) -> bool:
        """Write a test whose sides push a value as `and`, `or` or a conditional expression."""
        node = self._open_test(at)
        if node is None:
            return False
        assert isinstance(node.end, Test)
        end, depth = node.end, len(node.stack)
        true, false = self._leaf(end.true, depth), self._leaf(end.false, depth)
        made: ast.expr
        if true and false and true[1] == false[1]:
            made, to = joined(ast.IfExp(end.test, true[0], false[0]), true[0], false[0]), true[1]
        elif true and end.false in self._ways(true[1], depth, on=False):
            made, to = self._operand(ast.And(), end.test, true[0]), true[1]
        elif false and end.true in self._ways(false[1], depth, on=True):
            made, to = self._operand(ast.Or(), end.test, false[0]), false[1]
        else:
            return False
        node.stack.append(made)
        node.end = Goto(to)
        return True

    def _ways(self, to: int, depth: int, *, on: bool) -> tuple[Edge, ...]:
        """Return the edges that bring a tested value to a node.

        CPython 3.11 jumps past a second test of the same value, whose outcome it knows.
        """
        node, straight = self.node(to), Edge(to, keep=True)
        if node.body or node.depth != depth + 1 or not node.leaves_alone(depth):
            return (straight,)
        above = node.stack[depth:]
        if isinstance(node.end, Test) and not above and _is_hole(node.end.test, depth):
            return straight, node.end.true if on else node.end.false
        match above:
            case [ast.BoolOp(op=ast.And() | ast.Or() as op, values=[first, *_])]:
                if isinstance(node.end, Goto) and _is_hole(first, depth):
                    passes = isinstance(op, ast.Or) == on
                    return (straight, Edge(node.end.to, keep=True)) if passes else (straight,)
        return (straight,)

    def _operand(self, op: ast.boolop, first: ast.expr, second: ast.expr) -> ast.expr:
        """Return the value `first op second`; parentheses stay where the bytecode shows them."""
        right = isinstance(second, ast.BoolOp) and type(second.op) is type(op)
        left = id(first) in self._flat and isinstance(first, ast.BoolOp)
        same = left and isinstance(first, ast.BoolOp) and type(first.op) is type(op)
        values = first.values if same and isinstance(first, ast.BoolOp) else [first]
        rest = second.values if right and isinstance(second, ast.BoolOp) else [second]
        values = [*values, *rest]
        return joined(ast.BoolOp(op, values), values[0], values[-1])

    # --- loops ------------------------------------------------------------------------------------

    def rotated(self, at: int) -> bool:
        """Make the test before a loop and the equal test at its bottom one.

        CPython writes `while t: body` as `if t: do body while t`; a `continue` jumps to the upper
        test. Both tests do the same and lead to the same places. Parts of a test become one from
        the last to the first.
        """
        upper = self.node(at)
        if not isinstance(upper.end, Test) or upper.depth != len(upper.stack):
            return False
        if upper.end.keeps or not upper.leaves_alone(upper.depth):
            return False
        for start in {upper.end.true.to, upper.end.false.to}:
            same = [
                other
                for other, lower in sorted(self._graph.nodes.items())
                if other not in self._heads
                and start in successors(lower.end)
                and self._equal(upper, lower)
            ]
            uppers = [other for other in same if not self._goes_back(other, start)]
            lowers = [other for other in same if self._goes_back(other, start)]
            # A test that stands in several places of a condition has as many equals below.
            if at in uppers and uppers.index(at) < len(lowers):
                self._unite(at, lowers[uppers.index(at)])
                return True
        return False

    def _goes_back(self, at: int, to: int) -> bool:
        """Whether an edge leads back; blocks stand in the order of the lost text."""
        return self._offset.get(to, to) <= self._offset.get(at, at)

    def _equal(self, upper: Node, lower: Node) -> bool:
        """Whether two nodes end in the same test with the same destinations."""
        if not isinstance(upper.end, Test) or not isinstance(lower.end, Test):
            return False
        same = lower.depth == len(lower.stack) == upper.depth and lower.leaves_alone(lower.depth)
        one, two = _oriented(upper.end), _oriented(lower.end)
        if not same or not self.same(one.true, two.true) or not self.same(one.false, two.false):
            return False
        return ast.dump(one.test) == ast.dump(two.test)

    def _unite(self, at: int, other: int) -> None:
        upper, lower = self.node(at), self.node(other)
        if upper.body:
            fresh = self._fresh()
            self._heads.add(fresh)
            self._offset[fresh] = self._offset.get(at, at)
            self._graph.nodes[fresh] = Node(upper.depth, list(upper.stack), [], upper.end)
            upper.end = Goto(fresh)
            lower.end = Goto(fresh)
        else:
            self._heads.add(at)
            lower.end = Goto(at)


_RULES: Final[Sequence[_Rule]] = (
    Reducer.skip,
    Reducer.sequence,
    Reducer.drop,
    chain,
    Reducer.condition,
    Reducer.choice,
    Reducer.value,
)


def _is_hole(tree: ast.expr, slot: int) -> bool:
    """Whether a tree is what a slot of the stack holds."""
    return isinstance(tree, Hole) and tree.index == slot


def _edges(node: Node) -> tuple[Edge, ...]:
    return (node.end.true, node.end.false) if isinstance(node.end, Test) else ()


def _oriented(end: Test) -> Test:
    """Return the same test without a negation."""
    test, negative = positive(end.test)
    return Test(test, end.false, end.true) if negative else end
