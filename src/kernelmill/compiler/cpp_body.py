"""Prints the body of one function: its statements, and the temporaries of long expressions.

Single expressions are spelled in `cpp_expr.py`, names and types in `cpp_types.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from kernelmill.compiler import ir
from kernelmill.compiler.cpp_expr import PRIMARY, ExpressionPrinter, Scope, Text
from kernelmill.compiler.cpp_types import Names, type_spelling
from kernelmill.compiler.intrinsics import ATOMICS
from kernelmill.compiler.kernel_ir import Atomic, Effect, Invoke, Load, Store
from kernelmill.dtypes import SCALARS, bool_

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kernelmill.compiler.cpp_expr import Headers
    from kernelmill.compiler.dialects import Dialect
    from kernelmill.compiler.kernel_ir import Place
    from kernelmill.dtypes import Type

__all__ = ["FunctionPrinter", "declaration", "words_read"]

# Deeper expressions get a temporary: compilers limit the nesting of brackets, readers do too.
_DEEPEST: Final = 16
_CASTS: Final = frozenset(type_.short for type_ in SCALARS)
_SIMPLE: Final = (ir.Const, ir.Param, ir.Capture, ir.Local, ir.GetField, ir.GetItem)


class FunctionPrinter:
    """Prints one function; `chosen` are the types of structs it selects between."""

    def __init__(
        self,
        function: ir.Function,
        dialect: Dialect,
        headers: Headers,
        *,
        functions: Mapping[str, str],
        captures: Sequence[str],
        taken: Iterable[str] = (),
    ) -> None:
        self.function, self.dialect, self.headers = function, dialect, headers
        names = Names((*functions.values(), *taken))
        self.params = [names.take(name) for name, _ in function.params]
        self.locals = {name: names.take(name) for name, _ in function.locals}
        scope = Scope(functions, captures, self.params, self.locals)
        self.expressions = ExpressionPrinter(dialect, headers, scope)
        self._lines: list[str] = []
        self._depth = 1
        self._counter = 0

    @property
    def chosen(self) -> list[Type]:
        """Types of structs and tuples between which the function selects."""
        return self.expressions.chosen

    def print(self, spelled: str) -> list[str]:
        """Return the lines of the function as a member named `spelled`."""
        self._lines = []
        self._block(self.function.body)
        read = words_read(self._lines)
        pairs = zip(self.params, self.function.params, strict=True)
        params = ", ".join(declaration(name, type_, read) for name, (_, type_) in pairs)
        result = type_spelling(self.function.result)
        head = f"{self.dialect.function} {result} {spelled}({params}) const {{"
        names = [
            f"  {declaration(self.locals[name], type_, read)};"
            for name, type_ in self.function.locals
        ]
        return [head, *names, *self._lines, "}"]

    # ------------------------------------------------------------------ statements

    def _emit(self, line: str) -> None:
        self._lines.append("  " * self._depth + line)

    def _block(self, block: tuple[ir.Stmt, ...]) -> None:
        for statement in block:
            self._statement(statement)

    def _nested(self, block: tuple[ir.Stmt, ...]) -> None:
        self._depth += 1
        self._block(block)
        self._depth -= 1

    def _statement(self, statement: ir.Stmt) -> None:
        match statement:
            case ir.Assign(name, value):
                self._emit(f"{self.locals[name]} = {self._value(value).text};")
            case ir.Return(value):
                self._emit(f"return {self._value(value).text};")
            case ir.If(test, then, orelse):
                self._if(test, then, orelse)
            case ir.For():
                self._for(statement)
            case ir.While(test, body):
                self._while(test, body)
            case ir.Break():
                self._emit("break;")
            case ir.Continue():
                self._emit("continue;")
            case Effect():
                self._effect(statement)

    def _if(self, test: ir.Expr, then: tuple[ir.Stmt, ...], orelse: tuple[ir.Stmt, ...]) -> None:
        self._emit(f"if ({self._condition(test)}) {{")
        self._nested(then)
        if orelse:
            self._emit("} else {")
            self._nested(orelse)
        self._emit("}")

    def _while(self, test: ir.Expr, body: tuple[ir.Stmt, ...]) -> None:
        """Print a while loop; temporaries of its condition are computed in each turn."""
        self._emit("while (true) {")
        mark = len(self._lines)
        self._depth += 1
        text = self._condition(test)
        self._depth -= 1
        if len(self._lines) == mark:
            self._lines[-1] = "  " * self._depth + f"while ({text}) {{"
        else:
            self._depth += 1
            self._emit(f"if (!({text})) break;")
            self._depth -= 1
        self._nested(body)
        self._emit("}")

    def _for(self, loop: ir.For) -> None:
        """Print a loop by its number of turns: neither the counter nor the bounds can overflow."""
        self._counter += 1
        tag = self._counter
        bounds = [self._value(bound).text for bound in (loop.start, loop.stop, loop.step)]
        start, step = f"start{tag}", f"step{tag}"
        turn, turns = f"turn{tag}", f"turns{tag}"
        self.headers.use("int", "turns_of")
        self._emit("{")
        self._depth += 1
        self._emit(f"const i64 {start} = {bounds[0]}, {step} = {bounds[2]};")
        self._emit(f"const u64 {turns} = turns_of({start}, {bounds[1]}, {step});")
        self._emit(f"for (u64 {turn} = 0; {turn} < {turns}; ++{turn}) {{")
        self._depth += 1
        self._emit(f"{self.locals[loop.name]} = i64(u64({start}) + {turn} * u64({step}));")
        self._depth -= 1
        self._nested(loop.body)
        self._emit("}")
        self._depth -= 1
        self._emit("}")

    # ------------------------------------------------------------------ captured arrays

    def _effect(self, statement: Effect) -> None:
        """Print a use of a captured array, or a call of a function that has some."""
        target = "" if statement.name is None else f"{self.locals[statement.name]} = "
        match statement:
            case Invoke(_, call):
                args = ", ".join(self._value(a).text for a in call.args)
                function = self.expressions.scope.functions[call.function]
                self._emit(f"{target}{function}({args});")
            case Load(_, place):
                text, within = self._address(place)
                kind = type_spelling(place.type)
                self._emit(f"{target}{_where(within, f'element<{kind}>::load({text})', kind)};")
            case Store(place, value):
                text, within = self._address(place)
                kind, given = type_spelling(place.type), self._value(value).text
                self._emit(f"{_if(within)}element<{kind}>::store({text}, {given});")
            case Atomic(place=place):
                self._changed(statement, target)
            case _:
                raise AssertionError(f"{type(statement).__name__} stands in kernels only")

    def _changed(self, statement: Atomic, target: str) -> None:
        text, within = self._address(statement.place)
        flag = statement.place.type == bool_
        kind = "u8" if flag else type_spelling(statement.place.type)
        values = [self._value(v).text for v in statement.values]
        given = [f"({kind}*){text}", *(f"{kind}({v})" for v in values)]
        function = self.headers.use("int", ATOMICS[statement.op].function)
        call = f"{function}<{statement.order}, {statement.scope}_scope>({', '.join(given)})"
        if statement.name is None:
            self._emit(f"{_if(within)}{call};")
        else:
            made = _where(within, call, kind)
            self._emit(f"{target}{f'({made}) != 0' if flag else made};")

    def _address(self, place: Place) -> tuple[str, str]:
        """Return where an element lies, as a `char*`, and whether it does; "" for certainly."""
        base, distance, within = (self._value(part) for part in place.index)
        certain = isinstance(place.index[2], ir.Const) and place.index[2].value
        at = distance.text if distance.rank >= PRIMARY else f"({distance.text})"
        return f"((char*)(uptr){base.text} + {at})", "" if certain else within.text

    # ------------------------------------------------------------------ expressions

    def _value(self, root: ir.Expr) -> Text:
        """Spell an expression; what is shared or deep becomes a temporary before the statement.

        Expressions are pure and total, so computing a part earlier changes nothing, unless it
        calls a function whose loops might not end in a branch that is not taken.
        """
        order, uses = _bottom_up(root)
        lazy = any(isinstance(node, ir.Select) for node in order)
        texts: dict[int, Text] = {}
        heights: dict[int, int] = {}
        calls: set[int] = set()
        for node in order:
            below = [id(child) for child in ir.children(node)]
            if isinstance(node, ir.Call) or not calls.isdisjoint(below):
                calls.add(id(node))
            text = self.expressions.spell(node, [texts[b] for b in below], calls=id(node) in calls)
            height = 1 + max((heights[b] for b in below), default=0)
            shared = uses[id(node)] > 1 and not isinstance(node, _SIMPLE)
            held = node is root or (lazy and id(node) in calls)
            if (shared or height > _DEEPEST) and not held and not text.literal:
                text, height = self._temporary(text, node.type), 1
            texts[id(node)], heights[id(node)] = text, height
        return texts[id(root)]

    def _condition(self, test: ir.Expr) -> str:
        """Spell a condition; one that starts with `f64(…)` is taken for a declaration by g++."""
        text = self._value(test)
        starts = re.match(r"\w+(?=\()", text.text)
        if starts and starts[0] in _CASTS:
            text = self._temporary(text, bool_)
        return text.text

    def _temporary(self, text: Text, type_: Type) -> Text:
        self._counter += 1
        name = f"t{self._counter}"
        self._emit(f"const {type_spelling(type_)} {name} = {text.text};")
        return Text(name, PRIMARY)


def _where(within: str, text: str, kind: str) -> str:
    return f"{within} ? {text} : {kind}{{}}" if within else text


def _if(within: str) -> str:
    return f"if ({within}) " if within else ""


def declaration(name: str, type_: Type, read: set[str]) -> str:
    """Return the declaration of a variable; `read` are the words that are read."""
    return f"{'' if name in read else '[[maybe_unused]] '}{type_spelling(type_)} {name}"


def words_read(lines: Sequence[str]) -> set[str]:
    """Return the words of the lines without members and the variables that are assigned to."""
    values = (re.sub(r"^ *\w+ = ", "", line) for line in lines)
    return {word for value in values for word in re.findall(r"(?<![.\w])\w+", value)}


def _bottom_up(root: ir.Expr) -> tuple[list[ir.Expr], Counter[int]]:
    """Return each node below `root` once, children first, and how often each is referred to."""
    order: list[ir.Expr] = []
    uses: Counter[int] = Counter()
    seen: set[int] = set()
    left: list[tuple[ir.Expr, bool]] = [(root, False)]
    while left:
        node, done = left.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            below = ir.children(node)
            uses.update(map(id, below))
            left.append((node, True))
            left += [(child, False) for child in reversed(below)]
    return order, uses
