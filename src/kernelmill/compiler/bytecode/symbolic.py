"""Runs each basic block on a stack of syntax trees, which gives the nodes of the graph.

Nothing of the user's function is executed: the "values" are trees. A block finds `Hole`s for what
other blocks left on the stack; `reduce` fills them.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from types import CodeType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from kernelmill.compiler.bytecode.decode import KEEPS_ITERATOR, Op
from kernelmill.compiler.bytecode.graph import (
    Edge,
    End,
    Enter,
    Entry,
    Give,
    Goto,
    Graph,
    Hole,
    Inplace,
    Marker,
    Next,
    Node,
    Right,
    Test,
)
from kernelmill.compiler.bytecode.refusal import Place, UnknownShapeError
from kernelmill.compiler.bytecode.slots import (
    Cell,
    Code,
    Defined,
    Keywords,
    Several,
    count_of,
    earlier_targets,
    elements,
    overwritten,
    variable,
)
from kernelmill.compiler.bytecode.trees import (
    BINARY,
    COMPARE,
    UNARY,
    arguments_of,
    built,
    function_def,
    joined,
    literal,
    name,
    placed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernelmill.compiler.bytecode.blocks import Block

__all__ = ["read"]

Rebuild: TypeAlias = "Callable[[CodeType, ast.arguments], ast.FunctionDef | ast.Lambda]"


_Slot: TypeAlias = Entry | Code | Cell | Keywords | Defined | Several
_Kind = TypeVar("_Kind")
_ITERATOR: Final = Marker("iterator")
_DECORATED: Final = "a nested function with a decorator or another name"
_PARALLEL: Final = frozenset(("pop", "store", "swap", "unpack"))


def read(entry: int, blocks: Mapping[int, Block], rebuild: Rebuild) -> Graph:
    """Return the graph of a function; `rebuild` makes the trees of nested functions."""
    graph = Graph(entry)
    stacks: dict[int, list[Entry]] = {entry: []}
    pending = [entry]
    while pending:
        at = pending.pop()
        if at in graph.nodes:
            continue
        reader = _Reader(blocks[at], stacks[at], rebuild)
        graph.nodes[at] = reader.node()
        for to, stack in reader.leaves_for():
            if _shape(stacks.setdefault(to, stack)) != _shape(stack):
                raise UnknownShapeError("a stack that depends on the way")
            pending.append(to)
    return graph


def _shape(stack: list[Entry]) -> list[object]:
    return [slot.what if isinstance(slot, Marker) else None for slot in stack]


def _found(stack: list[Entry], place: Place) -> list[Entry]:
    """Return what the next block finds: markers as they are, holes for values."""
    found: list[Entry] = []
    index = 0
    for slot in stack:
        hole = placed(Hole.at(index), place)
        if isinstance(slot, ast.expr):
            ast.copy_location(hole, slot)
        found.append(slot if isinstance(slot, Marker) else hole)
        index += slot is not _ITERATOR
    return found


class _Reader:
    """Runs one block."""

    __slots__ = (
        "_at",
        "_block",
        "_body",
        "_born",
        "_clock",
        "_depth",
        "_end",
        "_group",
        "_iterable",
        "_rebuild",
        "_stack",
    )

    def __init__(self, block: Block, stack: list[Entry], rebuild: Rebuild) -> None:
        self._block = block
        self._rebuild = rebuild
        self._stack: list[_Slot] = list(stack)
        self._depth = sum(slot is not _ITERATOR for slot in stack)
        self._clock = len(stack)
        self._born: dict[int, int] = {id(slot): i for i, slot in enumerate(stack)}
        self._body: list[ast.stmt] = []
        self._group: list[tuple[ast.expr | None, ast.expr]] = []
        self._iterable: ast.expr | None = None
        self._at = 0
        self._end: End | None = None

    def node(self) -> Node:
        """Run the block and return what it does."""
        ops = self._block.ops
        while self._at < len(ops):
            op = ops[self._at]
            self._at += 1
            self._run(op)
        end = self._end = self._leave(self._block.last)
        if self._group:
            raise UnknownShapeError("an assignment that is cut in two")
        stack = [slot for slot in self._entries() if slot is not _ITERATOR]
        return Node(self._depth, stack, self._body, end)

    def leaves_for(self) -> list[tuple[int, list[Entry]]]:
        """Return where the block leads, and the stack found there."""
        stack, place = self._entries(), self._block.last.place
        match self._end:
            case Test(test, true, false):
                kept = [*stack, test]
                return [(e.to, _found(kept if e.keep else stack, place)) for e in (true, false)]
            case Next(_, body, done):
                left = stack if KEEPS_ITERATOR else stack[:-1]
                return [(body, _found(stack, place)), (done, _found(left, place))]
            case Goto(to) | Enter(_, to):
                return [(to, _found(stack, place))]
        return []

    # --- the stack --------------------------------------------------------------------------------

    def _entries(self) -> list[Entry]:
        """Return the stack, which other blocks see."""
        entries: list[Entry] = []
        for slot in self._stack:
            if not isinstance(slot, ast.expr | Marker | Right):
                raise UnknownShapeError("a function or a tuple that is still in the making")
            entries.append(slot)
        return entries

    def _push(self, slot: _Slot) -> None:
        self._clock += 1
        self._born[id(slot)] = self._clock
        self._stack.append(slot)

    def _pop(self, kind: type[_Kind]) -> _Kind:
        slot = self._stack.pop() if self._stack else None
        if not isinstance(slot, kind):
            raise UnknownShapeError(f"{type(slot).__name__} where {kind.__name__} was due")
        return slot

    def _value(self) -> ast.expr:
        return self._pop(ast.expr)

    def _values(self, count: int) -> list[ast.expr]:
        return [self._value() for _ in range(count)][::-1]

    def _busy(self, below: int = 0) -> bool:
        """Whether values of an unfinished expression are on the stack, below the top ones."""
        rest = self._stack[: len(self._stack) - below]
        return any(slot is not _ITERATOR for slot in rest)

    # --- instructions -----------------------------------------------------------------------------

    def _run(self, op: Op) -> None:
        handler = _RUN.get(op.kind)
        if handler is None or (self._group and op.kind not in _PARALLEL):
            raise UnknownShapeError(f"an unexpected {op.kind!r} of the stack")
        if self._iterable is not None:
            raise UnknownShapeError("an iterator outside of a for loop")
        handler(self, op)

    def const(self, op: Op) -> None:
        if isinstance(op.arg, CodeType):
            self._push(Code(op.arg))
        else:
            self._push(literal(op.arg, op.place))

    def load(self, op: Op) -> None:
        self._push(name(variable(op), op.place))

    def cell(self, _op: Op) -> None:
        self._push(Cell())

    def null(self, _op: Op) -> None:
        self._push(Marker("null"))

    def attr(self, op: Op) -> None:
        self._push(placed(ast.Attribute(self._value(), str(op.arg), ast.Load()), op.place))

    def method(self, op: Op) -> None:
        self.attr(op)
        self._push(Marker("self"))

    def unary(self, op: Op) -> None:
        self._push(built(placed(ast.UnaryOp(UNARY[str(op.arg)](), self._value()), op.place)))

    def truth(self, op: Op) -> None:
        """Make a value a bool as the operator language can write it."""
        for _ in range(2):
            self.unary(replace(op, arg="not"))

    def binary(self, op: Op) -> None:
        left, right = self._values(2)
        self._push(placed(ast.BinOp(left, BINARY[str(op.arg)](), right), op.place))

    def inplace(self, op: Op) -> None:
        """Read `x += y`: the store that follows belongs to it."""
        left, right = self._values(2)
        ops = self._block.ops
        store = ops[self._at] if self._at < len(ops) else None
        if store is None or store.kind != "store" or self._busy():
            raise UnknownShapeError("an augmented assignment to something other than a variable")
        self._at += 1
        target = name(variable(store), store.place, store=True)
        statement = Inplace.of(target, left, BINARY[str(op.arg)](), right)
        self._body.append(placed(statement, op.place))

    def compare(self, op: Op) -> None:
        left, right = self._values(2)
        self._push(placed(ast.Compare(left, [COMPARE[str(op.arg)]()], [right]), op.place))

    def chain(self, op: Op) -> None:
        self.compare(op)
        compare = self._pop(ast.Compare)
        self._push(Right())
        self._push(compare)

    def subscr(self, op: Op) -> None:
        value, index = self._values(2)
        self._push(placed(ast.Subscript(value, index, ast.Load()), op.place))

    def tuple(self, op: Op) -> None:
        count = count_of(op)
        if count and all(isinstance(slot, Cell) for slot in self._stack[-count:]):
            del self._stack[-count:]
            self._push(Cell())
            return
        self._push(built(placed(ast.Tuple(self._values(count), ast.Load()), op.place)))

    def call(self, op: Op) -> None:
        assert isinstance(op.arg, tuple)
        count, names = op.arg
        values = self._values(count)
        called = self._stack[-2:]
        del self._stack[-2:]
        functions = [slot for slot in called if isinstance(slot, ast.expr)]
        markers = [slot for slot in called if isinstance(slot, Marker)]
        if any(isinstance(slot, Defined) for slot in called):
            raise UnknownShapeError(_DECORATED)
        if len(functions) != 1 or len(markers) != 1:
            raise UnknownShapeError("a call without a function")
        plain = len(values) - len(names)
        pairs = zip(names, values[plain:], strict=True)
        keywords = [joined(ast.keyword(n, value), value, value) for n, value in pairs]
        self._push(placed(ast.Call(functions[0], values[:plain], keywords), op.place))

    def copy(self, _op: Op) -> None:
        raise UnknownShapeError("a value that is used twice")

    def swap(self, op: Op) -> None:
        count = count_of(op)
        if count > len(self._stack):
            raise UnknownShapeError("a stack that runs empty")
        self._stack[-1], self._stack[-count] = self._stack[-count], self._stack[-1]

    def drop(self, op: Op) -> None:
        if self._stack and self._stack[-1] is _ITERATOR:
            self._stack.pop()
            return
        if self._group or (self._busy(below=1) and self._following_store()):
            # CPython 3.13 pops what the next store of a parallel assignment would overwrite.
            self._assign(None, op)
            return
        self._body.append(placed(ast.Expr(self._value()), op.place))

    def _following_store(self) -> Op | None:
        """Return the store that pops stand in front of."""
        rest = self._block.ops[self._at :]
        found = next((op for op in rest if op.kind != "pop"), None)
        return found if found is not None and found.kind == "store" else None

    def iter(self, _op: Op) -> None:
        self._iterable = self._value()
        self._stack.append(_ITERATOR)

    # --- assignments ------------------------------------------------------------------------------

    def store(self, op: Op) -> None:
        target = name(variable(op), op.place, store=True)
        if self._stack and isinstance(self._stack[-1], Defined):
            self._define(target)
        else:
            self._assign(target, op)

    def _define(self, target: ast.Name) -> None:
        defined = self._pop(Defined).node
        if defined.name != target.id or self._busy():
            raise UnknownShapeError(_DECORATED)
        self._body.append(defined)

    def _assign(self, target: ast.expr | None, op: Op) -> None:
        """Assign the top of the stack; with more below, this is one part of `a, b = c, d`."""
        slot = self._stack.pop() if self._stack else None
        alone = not self._busy() and not self._group
        if isinstance(slot, Several) and alone and target is not None:
            self._emit([*slot.targets, target], slot.value)
            return
        if not isinstance(slot, ast.expr):
            raise UnknownShapeError(f"an assignment of {type(slot).__name__}")
        if alone and target is not None:
            targets, value = earlier_targets(slot)
            self._emit([*targets, target], value)
            return
        self._group.append((target, slot))
        if not self._busy():
            self._emit_group(op)

    def _emit(self, targets: list[ast.expr], value: ast.expr) -> None:
        self._body.append(joined(ast.Assign(targets, value), targets[0], value))

    def _emit_group(self, op: Op) -> None:
        """Write the parts of a parallel assignment in the order of their values."""
        parts = sorted(self._group, key=lambda part: self._born[id(part[1])])
        self._group = []
        targets = placed(ast.Tuple(overwritten([t for t, _ in parts]), ast.Store()), op.place)
        values = [value for _, value in parts]
        self._emit([targets], built(joined(ast.Tuple(values, ast.Load()), values[0], values[-1])))

    def unpack(self, op: Op) -> None:
        self._assign(self._targets(op), op)

    def again(self, op: Op) -> None:
        value = self._value()
        targets, value = earlier_targets(value)
        self._push(Several([*targets, self._targets(op)], value))

    def _targets(self, op: Op) -> ast.expr:
        """Read the stores that belong to an unpacking."""
        elements: list[ast.expr] = []
        for _ in range(count_of(op)):
            following = self._block.ops[self._at : self._at + 1]
            self._at += 1
            if following and following[0].kind == "pop":
                store = self._following_store()
                following = [] if store is None else [store]
            match following:
                case [Op(kind="store") as store]:
                    elements.append(name(variable(store), store.place, store=True))
                case [Op(kind="unpack") as inner]:
                    elements.append(self._targets(inner))
                case _:
                    raise UnknownShapeError("an unpacking to something other than variables")
        return placed(ast.Tuple(elements, ast.Store()), op.place)

    def walrus(self, op: Op) -> None:
        target = name(variable(op), op.place, store=True)
        if self._stack and isinstance(self._stack[-1], Several):
            self._stack[-1].targets.append(target)
            return
        value = self._value()
        self._push(joined(ast.NamedExpr(target, value), value, value))

    # --- nested functions -------------------------------------------------------------------------

    def keywords(self, op: Op) -> None:
        names = elements(self._value())
        values = self._values(count_of(op))
        keys = [n.value for n in names if isinstance(n, ast.Constant)]
        pairs = zip(keys, values, strict=True)
        self._push(Keywords({str(key): value for key, value in pairs}))

    def function(self, op: Op) -> None:
        """Read the function whose parts are on the stack, as the flags say."""
        flags = count_of(op)
        code = self._pop(Code).code
        if flags & 8:
            self._pop(Cell)
        notes = elements(self._value()) if flags & 4 else []
        annotations = {
            str(key.value): value
            for key, value in zip(notes[::2], notes[1::2], strict=True)
            if isinstance(key, ast.Constant)
        }
        keywords = self._pop(Keywords).values if flags & 2 else {}
        defaults = elements(self._value()) if flags & 1 else []
        arguments = arguments_of(
            code,
            op.place,
            defaults=defaults,
            keyword_defaults=keywords,
            annotations=annotations,
        )
        made = self._rebuild(code, arguments)
        if isinstance(made, ast.Lambda):
            self._push(placed(made, op.place))
            return
        made = function_def(
            made.name, arguments, made.body, op.place, returns=annotations.get("return")
        )
        self._push(Defined(made))

    # --- ends -------------------------------------------------------------------------------------

    def _leave(self, last: Op) -> End:
        """Return where the block goes on."""
        match last.kind:
            case "branch" | "test":
                keep = last.kind == "test"
                true, false = (Edge(to, keep) for to in last.targets)
                return Test(self._value(), true, false)
            case "for":
                return Next(name(variable(last), last.place, store=True), *last.targets)
            case "return":
                value = self._value()
                if self._busy():
                    raise UnknownShapeError("a return inside of an expression")
                return Give(value)
        if self._iterable is not None:
            return Enter(self._iterable, last.targets[0])
        return Goto(last.targets[0])


_RUN: Final[Mapping[str, Callable[[_Reader, Op], None]]] = {
    "const": _Reader.const,
    "load": _Reader.load,
    "cell": _Reader.cell,
    "null": _Reader.null,
    "attr": _Reader.attr,
    "method": _Reader.method,
    "unary": _Reader.unary,
    "bool": _Reader.truth,
    "binary": _Reader.binary,
    "inplace": _Reader.inplace,
    "compare": _Reader.compare,
    "chain": _Reader.chain,
    "subscr": _Reader.subscr,
    "tuple": _Reader.tuple,
    "call": _Reader.call,
    "copy": _Reader.copy,
    "swap": _Reader.swap,
    "pop": _Reader.drop,
    "iter": _Reader.iter,
    "store": _Reader.store,
    "unpack": _Reader.unpack,
    "again": _Reader.again,
    "walrus": _Reader.walrus,
    "keywords": _Reader.keywords,
    "function": _Reader.function,
}
