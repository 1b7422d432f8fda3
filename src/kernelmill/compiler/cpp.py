"""Prints IR programs as C++: the only printer. Nothing is compiled, and no value is defined here.

An operator becomes one functor, `struct Op`: its functions are members, its captured scalars are
read into it once, and `operator()` is the entry. The text needs the files in `includes` and
nothing else; it is the same for the same program, always.

>>> from kernelmill.compiler.builder import FunctionBuilder
>>> from kernelmill.compiler.dialects import HOST
>>> from kernelmill.compiler.ir import Program
>>> from kernelmill.dtypes import float32
>>> f = FunctionBuilder("scaled", [("a", float32), ("b", float32)])
>>> f.return_(f.apply("add", f.apply("mul", f.param(0), f.const(2)), f.param(1)))
>>> print(print_program(Program((f.finish(),)), HOST).text)
namespace km {
<BLANKLINE>
// scaled(a: float32, b: float32) -> float32
struct Op {
  Op() = default;
  KM_INL explicit Op(const void*) {}
<BLANKLINE>
  KM_INL f32 operator()(f32 a_, f32 b_) const {
    return a_ * 2.0f + b_;
  }
};
<BLANKLINE>
}  // namespace km
<BLANKLINE>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelmill.compiler import ir
from kernelmill.compiler.cpp_body import FunctionPrinter
from kernelmill.compiler.cpp_expr import Headers
from kernelmill.compiler.cpp_raw import print_raw, raw_text
from kernelmill.compiler.cpp_types import (
    Names,
    choose_definitions,
    type_definitions,
    type_spelling,
)
from kernelmill.dtypes import DType, Field, StructType, TupleType, Type, storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelmill.compiler.dialects import Dialect

__all__ = ["PrintedOperator", "print_program"]


@dataclass(frozen=True, slots=True)
class PrintedOperator:
    """An operator as C++ text.

    `text` stands in `namespace km` and defines `struct <name>`; `includes` are the files of the
    dialect's directory it needs. Spellings are qualified. `captures_layout` is the C struct the
    constructor reads its captured scalars from, None when there are none.
    """

    name: str
    text: str
    includes: tuple[str, ...]
    result_spelling: str
    parameter_spellings: tuple[str, ...]
    captures_layout: StructType | None


def print_program(program: ir.Program, dialect: Dialect, *, name: str = "Op") -> PrintedOperator:
    """Print a verified program in a dialect; `name` is that of the functor.

    Several operators printed under different names can stand in one translation unit.
    """
    types = tuple(dict.fromkeys(program_types(program)))
    if any(isinstance(type_, (StructType, TupleType)) for type_ in types):
        dialect = dialect.for_neighbours()
    headers = Headers(dialect)
    layout = _captures_layout(program)
    names = Names()
    functions = {f.name: names.take(f.name) for f in program.functions[:-1]}
    chosen: list[Type] = []
    bodies, raw = [], ""
    for function in program.functions:
        spelled = functions.get(function.name, "operator()")
        if function.raw is not None:
            raw += raw_text(function, function.raw, dialect)
            bodies.append(print_raw(function, function.raw, dialect, spelled))
            continue
        printer = FunctionPrinter(
            function, dialect, headers, functions=functions, captures=_members(layout)
        )
        bodies.append(printer.print(spelled))
        chosen += printer.chosen
    definitions = type_definitions(types, dialect)
    choices = choose_definitions(chosen, dialect)
    base = f" : {dialect.base}" if dialect.base else ""
    lines = [f"// {_signature(program)}", f"struct {name}{base} {{"]
    lines += _constructors(name, layout, dialect)
    for body in bodies:
        lines += ["", *(f"  {line}" for line in body)]
    text = "\n".join([*lines, "};"])
    entry = program.entry
    return PrintedOperator(
        name=name,
        text=f"{raw}namespace km {{\n\n{definitions}{choices}{text}\n\n}}  // namespace km\n",
        includes=headers.files(),
        result_spelling=type_spelling(entry.result, qualified=True),
        parameter_spellings=tuple(type_spelling(t, qualified=True) for _, t in entry.params),
        captures_layout=layout,
    )


def _signature(program: ir.Program) -> str:
    entry = program.entry
    params = ", ".join(f"{name}: {type_}" for name, type_ in entry.params)
    return f"{entry.name}({params}) -> {entry.result}".encode("ascii", "replace").decode()


# ----------------------------------------------------------------------------- captures


def _captures_layout(program: ir.Program) -> StructType | None:
    """Lay the captured scalars out as C does, in the order of their slots."""
    if not program.captures:
        return None
    names, offset, alignment, fields = Names(), 0, 1, []
    for name, type_ in program.captures:
        stored = storage(type_)
        assert isinstance(stored, DType), f"captured {name} is no scalar"
        offset = -(-offset // stored.alignment) * stored.alignment
        fields.append(Field(names.take(name), stored, offset))
        offset += stored.itemsize
        alignment = max(alignment, stored.alignment)
    size = -(-offset // alignment) * alignment
    return StructType("Captures", tuple(fields), size, alignment)


def _members(layout: StructType | None) -> tuple[str, ...]:
    return tuple(f"captured.{f.name}" for f in layout.fields) if layout else ()


def _constructors(name: str, layout: StructType | None, dialect: Dialect) -> Iterator[str]:
    """Yield the members that hold the captured scalars and the constructor that reads them."""
    if layout is None:
        yield f"  {name}() = default;"
        yield f"  {dialect.function} explicit {name}(const void*) {{}}"
        return
    yield "  struct Captures {"
    yield from (f"    {type_spelling(f.type)} {f.name};" for f in layout.fields)
    yield "  };"
    yield "  Captures captured;"
    yield ""
    yield f"  {name}() = default;"
    yield f"  {dialect.function} explicit {name}(const void* packed)"
    loads = ", ".join(
        f"element<{type_spelling(f.type)}>::load((const char*)packed + {f.offset})"
        for f in layout.fields
    )
    yield f"      : captured{{{loads}}} {{}}"


# ----------------------------------------------------------------------------- types in use


def program_types(program: ir.Program) -> Iterator[Type]:
    """Yield the type of everything in a program, in text order."""
    for function in program.functions:
        yield from (type_ for _, type_ in function.params)
        yield from (type_ for _, type_ in function.locals)
        yield function.result
        seen: set[int] = set()
        for statement in ir.walk_statements(function.body):
            for expression in ir.operands(statement):
                yield from _expression_types(expression, seen)


def _expression_types(root: ir.Expr, seen: set[int]) -> Iterator[Type]:
    left = [root]
    while left:
        node = left.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node.type
            left += reversed(ir.children(node))
