"""Prints the functions of a kernel: effects, extents and indices of threads.

Memory and parameters, the rest of the text, are in `cpp_kernel.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from kernelmill.compiler import ir
from kernelmill.compiler.cpp_body import FunctionPrinter, declaration, words_read
from kernelmill.compiler.cpp_expr import PRIMARY, ExpressionPrinter, Headers, Scope, Text, infix
from kernelmill.compiler.cpp_types import Names, field_names, type_spelling
from kernelmill.compiler.dialects import CUDA
from kernelmill.compiler.intrinsics import ATOMICS, EFFECTS
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
from kernelmill.compiler.narrow import Exact
from kernelmill.dtypes import (
    DType,
    StructType,
    Type,
    bfloat16,
    bool_,
    float16,
    int32,
    int64,
    storage,
    uint64,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelmill.compiler.dialects import Dialect
    from kernelmill.errors import SourceSpan

__all__ = [
    "KernelFunctionPrinter",
    "KernelScope",
    "element_count",
    "element_spelling",
    "is_spelled_out",
]

_LAYOUTS: Final = {"contiguous": "in_order", "rows": "in_rows", "strided": "anywhere"}


def element_spelling(dtype: DType | StructType) -> str:
    """Spell the type of what is stored: a bool may hold any byte."""
    return "u8" if dtype == bool_ else type_spelling(dtype)


def element_count(array: Array) -> int:
    """Return how many elements an array of fixed shape has."""
    count = 1
    for n in array.shape or ():
        count *= n
    return count


class KernelScope:
    """The C++ names of what a kernel consists of, and the files that its text needs.

    `locals` are the threads' own arrays that each function uses; `lines` asks for `#line`.
    """

    def __init__(self, kernel: Kernel, dialect: Dialect, *, written: set[str], lines: bool) -> None:
        self.kernel, self.dialect, self.lines, self.written = kernel, dialect, lines, written
        self.headers = Headers(dialect)
        self.index = "i64" if kernel.wide else "i32"
        names = Names()
        self.members = {a.name: names.take(a.name) for a in kernel.arrays}
        self.functions = {f.name: names.take(f.name) for f in kernel.program.functions[:-1]}
        self.locals = _locals_of(kernel)

    def spelled_array(self, array: Array) -> str:
        """Spell the type of an array."""
        element = element_spelling(array.dtype)
        if array.space == "global":
            const = "" if array.name in self.written else "const "
            layout = _LAYOUTS[array.layout]
            return f"array<{const}{element}, {array.ndim}, {layout}, {self.index}>"
        if array.space == "dynamic":
            return f"flat_array<{element}>"
        const = "const " if array.space == "constant" else ""
        shape = "".join(f", {n}" for n in array.shape or ())
        return f"fixed_array<{const}{element}{shape}>"

    def element_text(self, name: str, index: str) -> str:
        """Spell an element of an array.

        Constant memory is named itself: a pointer to it would not be known to be one.
        """
        array, member = self.kernel.array(name), self.members[name]
        if array.space == "constant":
            shape = ", ".join(map(str, array.shape or ()))
            room = f"{member}room"
            if not is_spelled_out(array.dtype):
                room = f"((const {element_spelling(array.dtype)}*){room})"
            return f"{room}[place_in<{shape}>({index})]"
        held = member if array.space in ("global", "local") else f"{member}()"
        return f"{held}.at({index})"


def is_spelled_out(dtype: DType | StructType) -> bool:
    """Whether constants of a type are written as such, not as bytes."""
    return isinstance(dtype, DType) and dtype not in (float16, bfloat16)


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

    def _to_integer(self, part: Text, wanted: DType) -> Text:
        """Convert a float as the chip does; what is out of range is not defined then."""
        if self.dialect.name == CUDA.name:
            return super()._to_integer(part, wanted)
        narrow = wanted == int32 or wanted.itemsize < int32.itemsize
        reached = int32 if narrow else uint64 if wanted == uint64 else int64
        text = f"{reached.short}({part.text})"
        return Text(text if wanted == reached else f"{wanted.short}({text})", PRIMARY)

    def _apply(self, node: ir.Apply, parts: list[Text]) -> Text:
        if isinstance(node, Exact):
            return infix(_EXACT_SYMBOLS[node.op], parts[0], parts[1])
        return super()._apply(node, parts)


_EXACT_SYMBOLS: Final = {"add": "+", "sub": "-", "mul": "*", "floordiv": "/", "mod": "%"}


def _wide(type_: Type) -> str:
    return type_spelling(type_)


def line_directive(span: SourceSpan) -> str:
    """Return what names the user's line for the line of text behind it."""
    return f"#line {span.line} {json.dumps(span.filename)}"


class KernelFunctionPrinter(FunctionPrinter):
    """Prints one function of a kernel, the entry as `run`."""

    def __init__(self, owner: KernelScope, function: ir.Function) -> None:
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
                held.append(
                    f"  {element_spelling(array.dtype)} {member}room[{element_count(array)}];"
                )
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
            self._lines.append(line_directive(span))
        if isinstance(statement, Effect):
            self._effect(statement)
        elif isinstance(statement, ir.Return) and statement.value.type == UNIT:
            self._emit("return;")
        else:
            super()._statement(statement)

    def _for(self, loop: ir.For) -> None:
        if loop.single:
            self._one_turn(loop)
        elif not loop.plain:
            super()._for(loop)
        else:
            self._upwards(loop)

    def _one_turn(self, loop: ir.For) -> None:
        """Print a loop of at most one turn; `do` gives `continue` and `break` what to leave."""
        name = self.locals[loop.name]
        self._emit(f"{name} = {self._value(loop.start).text};")
        self._emit(f"if ({name} < {self._value(loop.stop).text}) do {{")
        self._nested(loop.body)
        self._emit("} while (false);")

    def _upwards(self, loop: ir.For) -> None:
        """Print a loop that cannot overflow."""
        name, kind = self.locals[loop.name], type_spelling(loop.start.type)
        self._counter += 1
        tag = self._counter
        start = self._value(loop.start).text
        stop = self._held(loop.stop, f"stop{tag}")
        step = self._held(loop.step, f"step{tag}")
        unroll = "#pragma unroll" + (f" {loop.unroll}" if loop.unroll > 0 else "")
        if loop.unroll > 0 and not isinstance(loop.step, ir.Const):
            # Counted in turns, so that the compiler tests once for several of them.
            unsigned = f"u{kind[1:]}"
            self._emit(f"const {kind} start{tag} = {start};")
            rest = f"{unsigned}({stop} - start{tag} + {step} - 1) / {unsigned}({step})"
            self._emit(f"const {unsigned} turns{tag} = start{tag} < {stop} ? {rest} : 0;")
            self._emit(unroll)
            self._emit(f"for ({unsigned} turn{tag} = 0; turn{tag} < turns{tag}; ++turn{tag}) {{")
            self._emit(f"  {name} = start{tag} + {kind}(turn{tag}) * {step};")
        else:
            if loop.unroll:
                self._emit(unroll)
            advance = f"++{name}" if step in ("1", "1L") else f"{name} += {step}"
            self._emit(f"for ({name} = {start}; {name} < {stop}; {advance}) {{")
        self._nested(loop.body)
        self._emit("}")

    def _held(self, bound: ir.Expr, name: str) -> str:
        """Return the text of a bound, computed once in front of the loop."""
        text = self._value(bound).text
        if isinstance(bound, (ir.Const, ir.Local, ir.Param)):
            return text
        self._emit(f"const {type_spelling(bound.type)} {name} = {text};")
        return name

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
        text = self.owner.element_text(place.array, index)
        found: Type = self.owner.kernel.array(place.array).dtype
        for name in place.fields:
            assert isinstance(found, StructType)
            text = f"{text}.{field_names(found)[name]}"
            member = found.field(name)
            assert member is not None
            found = member.type
        return text

    def _atomic(self, statement: Atomic) -> str:
        function = ATOMICS[statement.op].function
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
            either = "true" if statement.options else "false"
            if statement.op == "block_reduce":
                function = f"{function}<{self.owner.kernel.threads}, {either}>"
            elif row.waits == "block":
                function = f"{function}<{self.owner.kernel.threads}>"
            elif statement.op == "warp_reduce":
                function = f"{function}<{either}>"
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
            held = f"f32({text})" if stored in (float16, bfloat16) else text
            shown.append(_PRINTED[stored.kind].format(held))
        return f"printf({', '.join([json.dumps(statement.text), *shown])})"


def _file_and_line(span: SourceSpan | None) -> tuple[str, str]:
    if span is None:
        return '"?"', "0"
    return json.dumps(span.filename), str(span.line)


_PRINTED: Final = {
    "bool": '(({0}) ? "True" : "False")',
    "int": "(long long)({0})",
    "uint": "(unsigned long long)({0})",
    "float": "(double)({0})",
}
