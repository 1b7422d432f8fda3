"""Runs each basic block on a stack of syntax trees, which gives the nodes of the graph.

Nothing of the user's function is executed: the "values" are trees. A block finds `Hole`s for what
other blocks left on the stack; `reduce` fills them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class _Code:
    """The constant that MAKE_FUNCTION takes."""

    code: CodeType


@dataclass(frozen=True, slots=True)
class _Cell:
    """The cell of one variable, or the tuple of those of a closure."""


@dataclass(frozen=True, slots=True)
class _Keywords:
    """Defaults of keyword-only parameters."""

    values: dict[str, ast.expr]


@dataclass(frozen=True, slots=True)
class _Defined:
    """A function that the next instruction gives its name."""

    node: ast.FunctionDef


@dataclass(frozen=True, slots=True)
class _Several:
    """A value that some targets of `a, b = c = value` have got already."""

    targets: list[ast.expr]
    value: ast.expr


_Slot: TypeAlias = Entry | _Code | _Cell | _Keywords | _Defined | _Several
_Kind = TypeVar("_Kind")
_ITERATOR: Final = Marker("iterator")
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
        hole = placed(Hole(index), place)
        if isinstance(slot, ast.expr):
            ast.copy_location(hole, slot)
        found.append(slot if isinstance(slot, Marker) else hole)
        index += slot is not _ITERATOR
    return found


class _Reader:
    """Runs one block."""

    __slots__ = ("_at", "_block", "_body", "_born", "_clock", "_depth", "_end", "_group")
    __slots__ += ("_iterable", "_rebuild", "_stack")

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

    def _const(self, op: Op) -> None:
        if isinstance(op.arg, CodeType):
            self._push(_Code(op.arg))
        else:
            self._push(literal(op.arg, op.place))

    def _load(self, op: Op) -> None:
        self._push(name(_variable(op), op.place))

    def _cell(self, _op: Op) -> None:
        self._push(_Cell())

    def _null(self, _op: Op) -> None:
        self._push(Marker("null"))

    def _attr(self, op: Op) -> None:
        self._push(placed(ast.Attribute(self._value(), str(op.arg), ast.Load()), op.place))

    def _method(self, op: Op) -> None:
        self._attr(op)
        self._push(Marker("self"))

    def _unary(self, op: Op) -> None:
        self._push(built(placed(ast.UnaryOp(UNARY[str(op.arg)](), self._value()), op.place)))

    def _binary(self, op: Op) -> None:
        left, right = self._values(2)
        self._push(placed(ast.BinOp(left, BINARY[str(op.arg)](), right), op.place))

    def _inplace(self, op: Op) -> None:
        """Read `x += y`: the store that follows belongs to it."""
        left, right = self._values(2)
        ops = self._block.ops
        store = ops[self._at] if self._at < len(ops) else None
        if store is None or store.kind != "store" or self._busy():
            raise UnknownShapeError("an augmented assignment to something other than a variable")
        self._at += 1
        target = name(_variable(store), store.place, store=True)
        statement = Inplace(target=target, left=left, op=BINARY[str(op.arg)](), value=right)
        self._body.append(placed(statement, op.place))

    def _compare(self, op: Op) -> None:
        left, right = self._values(2)
        self._push(placed(ast.Compare(left, [COMPARE[str(op.arg)]()], [right]), op.place))

    def _chain(self, op: Op) -> None:
        self._compare(op)
        compare = self._pop(ast.Compare)
        self._push(Right())
        self._push(compare)

    def _subscr(self, op: Op) -> None:
        value, index = self._values(2)
        self._push(placed(ast.Subscript(value, index, ast.Load()), op.place))

    def _tuple(self, op: Op) -> None:
        count = _count(op)
        if count and all(isinstance(slot, _Cell) for slot in self._stack[-count:]):
            del self._stack[-count:]
            self._push(_Cell())
            return
        self._push(built(placed(ast.Tuple(self._values(count), ast.Load()), op.place)))

    def _call(self, op: Op) -> None:
        assert isinstance(op.arg, tuple)
        count, names = op.arg
        values = self._values(count)
        called = self._stack[-2:]
        del self._stack[-2:]
        functions = [slot for slot in called if isinstance(slot, ast.expr)]
        if len(called) != 2 or len(functions) != 1:  # noqa: PLR2004 - a function and its marker
            raise UnknownShapeError("a call without a function")
        plain = len(values) - len(names)
        pairs = zip(names, values[plain:], strict=True)
        keywords = [joined(ast.keyword(n, value), value, value) for n, value in pairs]
        self._push(placed(ast.Call(functions[0], values[:plain], keywords), op.place))

    def _copy(self, _op: Op) -> None:
        raise UnknownShapeError("a value that is used twice")

    def _swap(self, op: Op) -> None:
        count = _count(op)
        if count > len(self._stack):
            raise UnknownShapeError("a stack that runs empty")
        self._stack[-1], self._stack[-count] = self._stack[-count], self._stack[-1]

    def _drop(self, op: Op) -> None:
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

    def _iter(self, _op: Op) -> None:
        self._iterable = self._value()
        self._stack.append(_ITERATOR)

    # --- assignments ------------------------------------------------------------------------------

    def _store(self, op: Op) -> None:
        target = name(_variable(op), op.place, store=True)
        if self._stack and isinstance(self._stack[-1], _Defined):
            self._define(target)
        else:
            self._assign(target, op)

    def _define(self, target: ast.Name) -> None:
        defined = self._pop(_Defined).node
        if defined.name != target.id or self._busy():
            raise UnknownShapeError("a nested function with a decorator or another name")
        self._body.append(defined)

    def _assign(self, target: ast.expr | None, op: Op) -> None:
        """Assign the top of the stack; with more below, this is one part of `a, b = c, d`."""
        slot = self._stack.pop() if self._stack else None
        alone = not self._busy() and not self._group
        if isinstance(slot, _Several) and alone and target is not None:
            self._emit([*slot.targets, target], slot.value)
            return
        if not isinstance(slot, ast.expr):
            raise UnknownShapeError(f"an assignment of {type(slot).__name__}")
        if alone and target is not None:
            targets, value = _earlier_targets(slot)
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
        targets = placed(ast.Tuple(_overwritten([t for t, _ in parts]), ast.Store()), op.place)
        values = [value for _, value in parts]
        self._emit([targets], built(joined(ast.Tuple(values, ast.Load()), values[0], values[-1])))

    def _unpack(self, op: Op) -> None:
        self._assign(self._targets(op), op)

    def _again(self, op: Op) -> None:
        value = self._value()
        targets, value = _earlier_targets(value)
        self._push(_Several([*targets, self._targets(op)], value))

    def _targets(self, op: Op) -> ast.expr:
        """Read the stores that belong to an unpacking."""
        elements: list[ast.expr] = []
        for _ in range(_count(op)):
            following = self._block.ops[self._at : self._at + 1]
            self._at += 1
            if following and following[0].kind == "pop":
                store = self._following_store()
                following = [] if store is None else [store]
            match following:
                case [Op(kind="store") as store]:
                    elements.append(name(_variable(store), store.place, store=True))
                case [Op(kind="unpack") as inner]:
                    elements.append(self._targets(inner))
                case _:
                    raise UnknownShapeError("an unpacking to something other than variables")
        return placed(ast.Tuple(elements, ast.Store()), op.place)

    def _walrus(self, op: Op) -> None:
        target = name(_variable(op), op.place, store=True)
        if self._stack and isinstance(self._stack[-1], _Several):
            self._stack[-1].targets.append(target)
            return
        value = self._value()
        self._push(joined(ast.NamedExpr(target, value), value, value))

    # --- nested functions -------------------------------------------------------------------------

    def _keywords(self, op: Op) -> None:
        names = _elements(self._value())
        values = self._values(_count(op))
        keys = [n.value for n in names if isinstance(n, ast.Constant)]
        pairs = zip(keys, values, strict=True)
        self._push(_Keywords({str(key): value for key, value in pairs}))

    def _function(self, op: Op) -> None:
        """Read the function whose parts are on the stack, as the flags say."""
        flags = _count(op)
        code = self._pop(_Code).code
        if flags & 8:
            self._pop(_Cell)
        notes = _elements(self._value()) if flags & 4 else []
        annotations = {
            str(key.value): value
            for key, value in zip(notes[::2], notes[1::2], strict=True)
            if isinstance(key, ast.Constant)
        }
        keywords = self._pop(_Keywords).values if flags & 2 else {}
        defaults = _elements(self._value()) if flags & 1 else []
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
        self._push(_Defined(made))

    # --- ends -------------------------------------------------------------------------------------

    def _leave(self, last: Op) -> End:
        """Return where the block goes on."""
        match last.kind:
            case "branch" | "test":
                keep = last.kind == "test"
                true, false = (Edge(to, keep) for to in last.targets)
                return Test(self._value(), true, false)
            case "for":
                if not isinstance(last.arg, tuple):
                    raise UnknownShapeError("a loop over something other than a variable")
                target = placed(ast.Name(last.arg[1], ast.Store()), last.place)
                return Next(target, *last.targets)
            case "return":
                value = self._value()
                if self._busy():
                    raise UnknownShapeError("a return inside of an expression")
                return Give(value)
        if self._iterable is not None:
            return Enter(self._iterable, last.targets[0])
        return Goto(last.targets[0])


def _variable(op: Op) -> str:
    assert isinstance(op.arg, tuple)
    return str(op.arg[1])


def _count(op: Op) -> int:
    assert isinstance(op.arg, int)
    return op.arg


def _elements(value: ast.expr) -> list[ast.expr]:
    if not isinstance(value, ast.Tuple):
        raise UnknownShapeError("a function whose defaults are no tuple")
    return value.elts


def _overwritten(targets: list[ast.expr | None]) -> list[ast.expr]:
    """Return the targets with each missing one named like the next, which overwrites it."""
    named: list[ast.expr] = []
    for target in targets[::-1]:
        found = target
        if found is None and named and isinstance(named[-1], ast.Name):
            found = ast.copy_location(ast.Name(named[-1].id, ast.Store()), named[-1])
        if found is None:
            raise UnknownShapeError("a value that is not used")
        named.append(found)
    return named[::-1]


def _earlier_targets(value: ast.expr) -> tuple[list[ast.expr], ast.expr]:
    """Split `x = y = e`, which is the same bytecode as `y = (x := e)`."""
    targets: list[ast.expr] = []
    while isinstance(value, ast.NamedExpr):
        targets.insert(0, value.target)
        value = value.value
    return targets, value


_RUN: Final[Mapping[str, Callable[[_Reader, Op], None]]] = {
    "const": _Reader._const,
    "load": _Reader._load,
    "cell": _Reader._cell,
    "null": _Reader._null,
    "attr": _Reader._attr,
    "method": _Reader._method,
    "unary": _Reader._unary,
    "binary": _Reader._binary,
    "inplace": _Reader._inplace,
    "compare": _Reader._compare,
    "chain": _Reader._chain,
    "subscr": _Reader._subscr,
    "tuple": _Reader._tuple,
    "call": _Reader._call,
    "copy": _Reader._copy,
    "swap": _Reader._swap,
    "pop": _Reader._drop,
    "iter": _Reader._iter,
    "store": _Reader._store,
    "unpack": _Reader._unpack,
    "again": _Reader._again,
    "walrus": _Reader._walrus,
    "keywords": _Reader._keywords,
    "function": _Reader._function,
}
