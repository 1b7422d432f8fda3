"""Prints kernels as CUDA C++: one struct with arrays as members, and the entry that fills it.

Expressions and control flow are printed as operators' are (`cpp_expr.py`, `cpp_body.py`); here are
effects, memory and parameters. What the text calls is in `device/kernel.cuh`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from kernelmill.compiler import ir
from kernelmill.compiler.cpp import program_types
from kernelmill.compiler.cpp_body import FunctionPrinter, declaration, words_read
from kernelmill.compiler.cpp_expr import PRIMARY, ExpressionPrinter, Headers, Scope, Text, infix
from kernelmill.compiler.cpp_types import (
    Names,
    choose_definitions,
    field_names,
    literal,
    type_definitions,
    type_spelling,
)
from kernelmill.compiler.dialects import CUDA, KERNEL
from kernelmill.compiler.intrinsics import ATOMICS, EFFECTS
from kernelmill.compiler.narrow import Exact
from kernelmill.compiler.kernel_ir import (
    UNIT,
    Array,
    Atomic,
    Effect,
    Extent,
    Invoke,
    Kernel,
    Load,
    Perform,
    Place,
    Special,
    Store,
)
from kernelmill.dtypes import DType, StructType, TupleType, Type, bool_, storage, weak_int

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernelmill.compiler.dialects import Dialect
    from kernelmill.errors import SourceSpan

__all__ = ["KernelParameter", "PrintedKernel", "print_kernel"]


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """A parameter of the entry: what it is taken from, and its type.

    `kind` is "data" (address), "shape" or "stride" of dimension `dim` of the array `name`, or
    "scalar": the argument `name` by value.
    """

    kind: str
    name: str
    dim: int
    type: DType | StructType | None


@dataclass(frozen=True, slots=True)
class PrintedKernel:
    """A kernel as CUDA C++ text; `entry` is the symbol, `parameters` what a launch passes."""

    entry: str
    text: str = field(repr=False)
    parameters: tuple[KernelParameter, ...]


def print_kernel(kernel: Kernel, *, exact: bool = False, lines: bool = True) -> PrintedKernel:
    """Print a verified kernel.

    With `exact`, functions are the project's own, equal to the bit on all devices; else those of
    CUDA. With `lines`, `#line` names the user's lines.
    """
    return _KernelPrinter(kernel, CUDA if exact else KERNEL, lines=lines).print()


_LAYOUTS: Final = {"contiguous": "in_order", "rows": "in_rows", "strided": "anywhere"}


def _element(dtype: DType | StructType) -> str:
    """Spell the type of what is stored: a bool may hold any byte."""
    return "u8" if dtype == bool_ else type_spelling(dtype)


class _KernelPrinter:
    """Prints one kernel."""

    def __init__(self, kernel: Kernel, dialect: Dialect, *, lines: bool) -> None:
        self.kernel, self.lines = kernel, lines
        types = [t for t in program_types(kernel.program) if t != UNIT]
        self.types = tuple(dict.fromkeys((*types, *(a.dtype for a in kernel.arrays))))
        if any(isinstance(t, (StructType, TupleType)) for t in self.types):
            dialect = dialect.for_neighbours()
        self.dialect = dialect
        self.headers = Headers(dialect)
        self.index = "i64" if kernel.wide else "i32"
        names = Names()
        self.members = {a.name: names.take(a.name) for a in kernel.arrays}
        self.functions = {f.name: names.take(f.name) for f in kernel.program.functions[:-1]}
        self.written = _written(kernel.program)
        self.locals = _locals_of(kernel)

    def print(self) -> PrintedKernel:
        kernel = self.kernel
        bodies: list[list[str]] = []
        chosen: list[Type] = []
        for function in kernel.program.functions:
            printer = KernelFunctionPrinter(self, function)
            bodies.append(printer.print(self.functions.get(function.name, "run")))
            chosen += printer.chosen
        definitions = type_definitions(self.types, self.dialect)
        choices = choose_definitions(chosen, self.dialect)
        lines = [*self._constants(), "struct Kernel {", *map(_indented, self._members())]
        for body in bodies:
            lines += ["", *map(_indented, body)]
        parameters = tuple(self._parameters())
        entry = (
            f"km_{kernel.name}"
            if kernel.name.isascii() and kernel.name.isidentifier()
            else "km_kernel"
        )
        body_text = "\n".join([*lines, "};"])
        includes = "".join(f'#include "{f}"\n' for f in (*self.headers.files(), "kernel.cuh"))
        shown = "\n".join(self._entry(entry, parameters))
        text = (
            f"// {_signature(kernel)}\n{includes}\nnamespace km {{\n\n{definitions}{choices}"
            f"{body_text}\n\n}}  // namespace km\n\n{shown}\n"
        )
        return PrintedKernel(entry, text, parameters)

    # ------------------------------------------------------------------ memory

    def _constants(self) -> Iterator[str]:
        for array in self.kernel.arrays:
            if array.space == "constant":
                yield from _constant(array, self.members[array.name], self.dialect)

    def spelled_array(self, array: Array) -> str:
        """Spell the type of an array."""
        element = _element(array.dtype)
        if array.space == "global":
            const = "" if array.name in self.written else "const "
            layout = _LAYOUTS[array.layout]
            return f"array<{const}{element}, {array.ndim}, {layout}, {self.index}>"
        if array.space == "dynamic":
            return f"flat_array<{element}>"
        const = "const " if array.space == "constant" else ""
        shape = "".join(f", {n}" for n in array.shape or ())
        return f"fixed_array<{const}{element}{shape}>"

    def _members(self) -> Iterator[str]:
        for array in self.kernel.arrays:
            name, spelled = self.members[array.name], self.spelled_array(array)
            if array.space == "global":
                yield f"{spelled} {name};"
            elif array.space != "local":
                yield f"static KM_INL {spelled} {name}() {{"
                yield from (f"  {line}" for line in _room(array, name))
                yield "}"

    def array_text(self, name: str) -> str:
        """Spell an array where its elements are used."""
        space = self.kernel.array(name).space
        member = self.members[name]
        return member if space in ("global", "local") else f"{member}()"

    # ------------------------------------------------------------------ the entry

    def _parameters(self) -> Iterator[KernelParameter]:
        params = self.kernel.program.entry.params
        shown = _extents(self.kernel.program)
        for argument in self.kernel.arguments:
            if isinstance(argument, int):
                name, type_ = params[argument]
                stored = storage(type_)
                assert isinstance(stored, (DType, StructType))
                yield KernelParameter("scalar", name, argument, stored)
                continue
            array = self.kernel.array(argument)
            yield KernelParameter("data", argument, 0, None)
            for dim in range(array.ndim):
                inner = array.layout == "contiguous" and dim > 0
                if inner or (argument, dim) in shown:
                    yield KernelParameter("shape", argument, dim, None)
            if array.layout != "contiguous":
                steps = array.ndim - (1 if array.layout == "rows" else 0)
                for dim in range(steps):
                    yield KernelParameter("stride", argument, dim, None)

    def _entry(self, entry: str, parameters: Sequence[KernelParameter]) -> Iterator[str]:
        names = {p: _parameter_name(p) for p in parameters}
        shown = ", ".join(f"{self._parameter_type(p)} {names[p]}" for p in parameters)
        threads = self.kernel.threads
        yield f"KM_EXPORT void __launch_bounds__({threads}) {entry}({shown}) {{"
        members = []
        for array in self.kernel.arrays:
            if array.space == "global":
                parts = [names[KernelParameter("data", array.name, 0, None)]]
                for kind in ("shape", "stride"):
                    held = [
                        names.get(KernelParameter(kind, array.name, d, None), "0")
                        for d in range(max(array.ndim, 1))
                    ]
                    parts.append(f"{{{', '.join(held)}}}")
                members.append(f"{{{', '.join(parts)}}}")
        yield f"  const km::Kernel kernel{{{', '.join(members)}}};"
        scalars = {p.dim: names[p] for p in parameters if p.kind == "scalar"}
        given = [
            f"{scalars[i]} != 0" if storage(t) == bool_ else scalars[i]
            for i, (_, t) in enumerate(self.kernel.program.entry.params)
        ]
        yield f"  kernel.run({', '.join(given)});"
        yield "}"

    def _parameter_type(self, parameter: KernelParameter) -> str:
        if parameter.kind == "scalar":
            assert parameter.type is not None
            return (
                "km::u8"
                if parameter.type == bool_
                else type_spelling(parameter.type, qualified=True)
            )
        if parameter.kind != "data":
            return f"km::{self.index}"
        array = self.kernel.array(parameter.name)
        const = "" if array.name in self.written else "const "
        restrict = " KM_R" if self.kernel.disjoint else ""
        element = "km::u8" if array.dtype == bool_ else type_spelling(array.dtype, qualified=True)
        return f"{const}{element}*{restrict}"


def _parameter_name(parameter: KernelParameter) -> str:
    name = Names().take(parameter.name)
    if parameter.kind in ("data", "scalar"):
        return name
    return f"{name}{parameter.kind}_{parameter.dim}"


def _indented(line: str) -> str:
    return f"  {line}" if line and not line.startswith("#") else line


def _signature(kernel: Kernel) -> str:
    parts = []
    for argument in kernel.arguments:
        if isinstance(argument, int):
            name, type_ = kernel.program.entry.params[argument]
            parts.append(f"{name}: {type_}")
        else:
            array = kernel.array(argument)
            dims = ", ".join(":" * array.ndim)
            parts.append(f"{argument}: {array.dtype}[{dims}]")
    x, y, z = kernel.block
    return f"{kernel.name}({', '.join(parts)}), blocks of {x} x {y} x {z} threads".encode(
        "ascii", "replace"
    ).decode()


def _room(array: Array, name: str) -> Iterator[str]:
    """Yield the body of the function that gives memory."""
    element = _element(array.dtype)
    if array.space == "dynamic":
        yield "extern __shared__ __align__(16) char km_dynamic_shared[];"
        yield f"return {{({element}*)km_dynamic_shared}};"
    elif array.space == "shared":
        yield f"__shared__ __align__(16) {element} room[{_count(array)}];"
        yield "return {room};"
    else:
        yield f"return {{(const {element}*){name}room}};"


def _count(array: Array) -> int:
    count = 1
    for n in array.shape or ():
        count *= n
    return count


def _constant(array: Array, name: str, dialect: Dialect) -> Iterator[str]:
    """Yield the definition of a constant array; types with constructors are given as bytes."""
    dtype = array.dtype
    if isinstance(dtype, DType) and dtype.kind in ("int", "uint", "float") and dtype.itemsize >= 4:  # noqa: PLR2004 - float32
        values = np.frombuffer(array.data, dtype.to_numpy()).tolist()
        element, items = type_spelling(dtype), [literal(v, dtype, dialect) for v in values]
    else:
        element, items = "u8", [str(b) for b in array.data]
    yield f"static __constant__ __align__(16) const {element} {name}room[{len(items)}] = {{"
    per_line = 8
    for first in range(0, len(items), per_line):
        yield f"  {', '.join(items[first : first + per_line])},"
    yield "};"


# ----------------------------------------------------------------------------- what is used


def _effects(program: ir.Program) -> Iterator[Effect]:
    for function in program.functions:
        for statement in ir.walk_statements(function.body):
            if isinstance(statement, Effect):
                yield statement


def _written(program: ir.Program) -> set[str]:
    """Return the arrays that the kernel changes, or reads atomically."""
    return {e.place.array for e in _effects(program) if isinstance(e, (Store, Atomic))}


def _extents(program: ir.Program) -> set[tuple[str, int]]:
    """Return the extents that the kernel reads."""
    found: set[tuple[str, int]] = set()
    for function in program.functions:
        for statement in ir.walk_statements(function.body):
            for operand in ir.operands(statement):
                for node in ir.walk_expressions(operand):
                    if isinstance(node, Extent):
                        found.add((node.array, node.dim))
    return found


def _locals_of(kernel: Kernel) -> dict[str, tuple[str, ...]]:
    """Return the threads' own arrays that each function uses, itself or by what it calls."""
    found: dict[str, tuple[str, ...]] = {}
    own = {a.name for a in kernel.arrays if a.space == "local"}
    for function in kernel.program.functions:
        names: dict[str, None] = {}
        for statement in ir.walk_statements(function.body):
            if isinstance(statement, (Load, Store, Atomic)) and statement.place.array in own:
                names[statement.place.array] = None
            if isinstance(statement, Invoke):
                names.update(dict.fromkeys(found[statement.call.function]))
        found[function.name] = tuple(names)
    return found


# ----------------------------------------------------------------------------- functions


class KernelExpressionPrinter(ExpressionPrinter):
    """Spells expressions of a kernel: also extents and indices of threads."""

    def __init__(
        self, dialect: Dialect, headers: Headers, scope: Scope, arrays: Mapping[str, str]
    ) -> None:
        super().__init__(dialect, headers, scope)
        self.arrays = arrays

    def _leaf(self, node: ir.Expr) -> Text:
        match node:
            case Extent(array, dim, type_):
                return Text(f"{_wide(type_)}({self.arrays[array]}.shape[{dim}])", PRIMARY)
            case Special("lane", type_):
                return Text(f"{_wide(type_)}(lane_id())", PRIMARY)
            case Special(name, type_):
                return Text(f"{_wide(type_)}({name})", PRIMARY)
            case _:
                return super()._leaf(node)

    def _apply(self, node: ir.Apply, parts: list[Text]) -> Text:
        if isinstance(node, Exact):
            return infix(_EXACT_SYMBOLS[node.op], parts[0], parts[1])
        return super()._apply(node, parts)


_EXACT_SYMBOLS: Final = {"add": "+", "sub": "-", "mul": "*", "floordiv": "/", "mod": "%"}


def _wide(type_: Type) -> str:
    return type_spelling(type_)


class KernelFunctionPrinter(FunctionPrinter):
    """Prints one function of a kernel, the entry as `run`."""

    def __init__(self, owner: _KernelPrinter, function: ir.Function) -> None:
        super().__init__(
            function,
            owner.dialect,
            owner.headers,
            functions=owner.functions,
            captures=(),
            taken=owner.members.values(),
        )
        self.owner = owner
        self.expressions = KernelExpressionPrinter(
            owner.dialect, owner.headers, self.expressions.scope, owner.members
        )

    def print(self, spelled: str) -> list[str]:
        """Return the lines of the function as a member named `spelled`."""
        self._lines = []
        self._block(self.function.body)
        if self._lines and self._lines[-1] == "  return;":
            self._lines.pop()
        read = words_read(self._lines)
        own = self.owner.locals[self.function.name]
        entry = spelled == "run" and self.function is self.owner.kernel.program.entry
        pairs = zip(self.params, self.function.params, strict=True)
        params = [declaration(name, type_, read) for name, (_, type_) in pairs]
        held: list[str] = []
        for name in own:
            array, member = self.owner.kernel.array(name), self.owner.members[name]
            spelled_type = f"const {self.owner.spelled_array(array)}"
            if entry:
                held.append(f"  {_element(array.dtype)} {member}room[{_count(array)}];")
                held.append(f"  {spelled_type} {member}{{{member}room}};")
            else:
                params.append(f"{spelled_type} {member}")
        result = "void" if self.function.result == UNIT else type_spelling(self.function.result)
        head = f"{self.dialect.function} {result} {spelled}({', '.join(params)}) const {{"
        names = [
            f"  {declaration(self.locals[name], type_, read)};"
            for name, type_ in self.function.locals
        ]
        return [head, *held, *names, *self._lines, "}"]

    # ------------------------------------------------------------------ statements

    def _statement(self, statement: ir.Stmt) -> None:
        span = statement.span
        if self.owner.lines and span is not None:
            self._lines.append(f"#line {span.line} {json.dumps(span.filename)}")
        if isinstance(statement, Effect):
            self._effect(statement)
        elif isinstance(statement, ir.Return) and statement.value.type == UNIT:
            self._emit("return;")
        else:
            super()._statement(statement)

    def _for(self, loop: ir.For) -> None:
        if not loop.plain:
            super()._for(loop)
            return
        if loop.unroll:
            self._emit("#pragma unroll" + (f" {loop.unroll}" if loop.unroll > 0 else ""))
        name = self.locals[loop.name]
        start, stop, step = (self._value(b).text for b in (loop.start, loop.stop, loop.step))
        self._counter += 1
        tag = self._counter
        kind = type_spelling(loop.start.type)
        if not isinstance(loop.stop, (ir.Const, ir.Local, ir.Param)):
            self._emit(f"const {kind} stop{tag} = {stop};")
            stop = f"stop{tag}"
        if not isinstance(loop.step, (ir.Const, ir.Local, ir.Param)):
            self._emit(f"const {kind} step{tag} = {step};")
            step = f"step{tag}"
        advance = f"++{name}" if step in ("1", "1L") else f"{name} += {step}"
        self._emit(f"for ({name} = {start}; {name} < {stop}; {advance}) {{")
        self._nested(loop.body)
        self._emit("}")

    # ------------------------------------------------------------------ effects

    def _effect(self, statement: Effect) -> None:
        text = self._effect_text(statement)
        target = "" if statement.name is None else f"{self.locals[statement.name]} = "
        self._emit(f"{target}{text};")

    def _effect_text(self, statement: Effect) -> str:
        match statement:
            case Load(_, place):
                text = self._place(place)
                return f"{text} != 0" if place.type == bool_ else text
            case Store(place, value):
                return f"{self._place(place)} = {self._stored(value, place.type)}"
            case Atomic():
                return self._atomic(statement)
            case Invoke(_, call):
                args = [self._value(a).text for a in call.args]
                args += [self.owner.members[n] for n in self.owner.locals[call.function]]
                return f"{self.owner.functions[call.function]}({', '.join(args)})"
            case Perform():
                return self._perform(statement)
            case _:
                raise AssertionError(f"{type(statement).__name__} has no text")

    def _stored(self, value: ir.Expr, type_: Type) -> str:
        text = self._value(value).text
        return f"u8({text})" if type_ == bool_ else text

    def _place(self, place: Place) -> str:
        index = ", ".join(self._value(i).text for i in place.index)
        text = f"{self.owner.array_text(place.array)}.at({index})"
        found: Type = self.owner.kernel.array(place.array).dtype
        for name in place.fields:
            assert isinstance(found, StructType)
            text = f"{text}.{field_names(found)[name]}"
            member = found.field(name)
            assert member is not None
            found = member.type
        return text

    def _atomic(self, statement: Atomic) -> str:
        function = _ATOMIC_FUNCTIONS.get(statement.op, ATOMICS[statement.op].function)
        options = f"{statement.order}, {statement.scope}_scope"
        type_ = statement.place.type
        values = [self._stored(v, type_) for v in statement.values]
        text = f"{function}<{options}>({', '.join([f'&{self._place(statement.place)}', *values])})"
        return f"{text} != 0" if type_ == bool_ and statement.name is not None else text

    def _perform(self, statement: Perform) -> str:
        row = EFFECTS[statement.op]
        args = [self._value(a).text for a in statement.args]
        if statement.op == "print":
            return self._printf(statement, args)
        if statement.op in ("assert", "check"):
            return self._test(statement, args)
        if statement.op == "fence":
            order, scope = statement.options
            return f"fence<{order}, {scope}_scope>()"
        function = row.function
        if statement.function is not None:
            assert statement.args
            kind = type_spelling(statement.args[0].type)
            combine = self.owner.functions[statement.function]
            args.append(f"[this]({kind} a, {kind} b) {{ return {combine}(a, b); }}")
            if row.waits == "block":
                function = f"{function}<{self.owner.kernel.threads}>"
        if row.values and not statement.function:
            first = type_spelling(statement.args[0].type)
            args[0] = f"{first}({args[0]})" if statement.op == "match" else args[0]
        if row.result == "count":
            return f"{function}({', '.join(args)})"
        return f"{function}({', '.join(args)})"

    def _test(self, statement: Perform, args: list[str]) -> str:
        span = statement.span
        place = [json.dumps(self.owner.kernel.name), *_file_and_line(span)]
        if statement.op == "assert":
            return f"assertion({', '.join([*args, json.dumps(statement.text), *place])})"
        name, _, dim = statement.text.partition("\0")
        return f"check_index({', '.join([*args, json.dumps(name), dim, *place])})"

    def _printf(self, statement: Perform, args: list[str]) -> str:
        shown = []
        for text, value in zip(args, statement.args, strict=True):
            stored = storage(value.type)
            assert isinstance(stored, DType)
            kind = stored.kind
            form = _PRINTED[kind]
            shown.append(
                form.format(f"f32({text})" if stored.itemsize == 2 and kind == "float" else text)
            )  # noqa: PLR2004 - halves
        return f"printf({', '.join([json.dumps(statement.text), *shown])})"


def _file_and_line(span: SourceSpan | None) -> tuple[str, str]:
    if span is None:
        return '"?"', "0"
    return json.dumps(span.filename), str(span.line)


_ATOMIC_FUNCTIONS: Final = {
    "add": "fetch_add",
    "sub": "fetch_add",
    "min": "fetch_min",
    "max": "fetch_max",
    "cas": "compare_exchange",
}
_PRINTED: Final = {
    "bool": '(({0}) ? "True" : "False")',
    "int": "(long long)({0})",
    "uint": "(unsigned long long)({0})",
    "float": "(double)({0})",
}
