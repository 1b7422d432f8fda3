"""IR as text for people: one line a statement, as Python would write it. Nothing reads it back."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final

from kernelmill.compiler import ir

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ir_text"]

_INDENT: Final = "    "
_HIDDEN: Final = ("span", "type", "data")


def ir_text(program: ir.Program) -> str:
    """Return a program as text.

    Examples
    --------
    >>> import kernelmill as km
    >>> from kernelmill.compiler.frontend import translate
    >>> from kernelmill.compiler.ir_text import ir_text
    >>> k = 2
    >>> print(ir_text(translate(lambda a, b: a + k * b, (km.float32, km.float32)).program))
    # captured: k: weak float
    def op(a: float32, b: float32) -> float32:
        return add(a, mul(float32(captured.k), b))
    """
    names = tuple(name for name, _ in program.captures)
    captured = ", ".join(f"{name}: {type_}" for name, type_ in program.captures)
    parts = [f"# captured: {captured}"] if captured else []
    parts += ["\n".join(_Printer(function, names).lines()) for function in program.functions]
    return "\n".join(parts)


class _Printer:
    """Prints one function, whose parameters are shown by name."""

    def __init__(self, function: ir.Function, captures: tuple[str, ...]) -> None:
        self.function, self.captures = function, captures

    def lines(self) -> Iterator[str]:
        function = self.function
        params = ", ".join(f"{name}: {type_}" for name, type_ in function.params)
        yield f"def {function.name}({params}) -> {function.result}:"
        if function.raw is not None:
            kind = "LTO-IR" if function.raw.image else "C++"
            yield f"{_INDENT}...  # {kind} of {function.raw.symbol}"
        for local, type_ in function.locals:
            yield f"{_INDENT}{local}: {type_}"
        yield from self.block(function.body, 1)

    def block(self, block: tuple[ir.Stmt, ...], depth: int) -> Iterator[str]:
        for statement in block:
            yield from (_INDENT * depth + line for line in self.statement(statement))

    def statement(self, statement: ir.Stmt) -> Iterator[str]:
        match statement:
            case ir.Assign(name, value):
                yield f"{name} = {self.value(value)}"
            case ir.Return(value):
                yield f"return {self.value(value)}"
            case ir.If(test, then, orelse):
                yield f"if {self.value(test)}:"
                yield from self.block(then, 1)
                if orelse:
                    yield "else:"
                    yield from self.block(orelse, 1)
            case ir.For(name, start, stop, step, body):
                bounds = ", ".join(map(self.value, (start, stop, step)))
                yield f"for {name} in range({bounds}):"
                yield from self.block(body, 1)
            case ir.While(test, body):
                yield f"while {self.value(test)}:"
                yield from self.block(body, 1)
            case ir.Break() | ir.Continue():
                yield type(statement).__name__.lower()
            case _:
                local = getattr(statement, "name", None)
                yield f"{f'{local} = ' if local else ''}{self.plain(statement)}"

    def value(self, node: Any) -> str:  # Any: an expression, or what only kernels have
        match node:
            case ir.Const() | ir.Param() | ir.Capture() | ir.Local():
                return self.leaf(node)
            case ir.Select(condition, then, orelse):
                return f"select({', '.join(map(self.value, (condition, then, orelse)))})"
            case ir.Apply(name, args) | ir.Call(name, args):
                return f"{name}({', '.join(map(self.value, args))})"
            case ir.Cast(value, type_):
                return f"{type_}({self.value(value)})"
            case _:
                return self.aggregate(node)

    def leaf(self, node: ir.Const | ir.Param | ir.Capture | ir.Local) -> str:
        match node:
            case ir.Const(value):
                return repr(value)
            case ir.Param(index):
                return self.function.params[index][0]
            case ir.Capture(index):
                return f"captured.{self.captures[index]}"
            case ir.Local(name):
                return name

    def aggregate(self, node: Any) -> str:
        match node:
            case ir.GetField(value, name):
                return f"{self.value(value)}.{name}"
            case ir.GetItem(value, index):
                return f"{self.value(value)}[{index}]"
            case ir.MakeStruct(values, type_):
                return f"{type_}({', '.join(map(self.value, values))})"
            case ir.MakeTuple(values):
                return f"({', '.join(map(self.value, values))})"
            case _:
                return self.plain(node)

    def plain(self, node: Any) -> str:
        """Return a node of a kernel, or a part of one, by its fields."""
        if isinstance(node, tuple):
            return f"({', '.join(map(self.value, node))})"
        if not is_dataclass(node) or isinstance(node, type):
            return str(node)
        shown = [
            self.value(getattr(node, f.name))
            for f in fields(node)
            if f.name not in _HIDDEN and not (f.name == "name" and hasattr(node, "operands"))
        ]
        return f"{type(node).__name__.lower()}({', '.join(shown)})"
