"""`weave`: the program that nodes of an element become; the nodes are in `element_nodes.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kernelmill.algorithms.element_nodes import (
    Apply,
    Choose,
    Clip,
    Count,
    Element,
    Index,
    Input,
    Leaf,
    Node,
    Number,
    Pack,
    Part,
    Place,
    Shuffled,
    Stored,
    Value,
)
from kernelmill.compiler import ir
from kernelmill.compiler.builder import FunctionBuilder, convert, tuple_item
from kernelmill.compiler.captured import pointers, reader
from kernelmill.compiler.frontend.scope import Baked, CapturedScalar
from kernelmill.compiler.frontend.translation import Translation
from kernelmill.compiler.ir_verify import verify
from kernelmill.compiler.op import Op, Specialized
from kernelmill.compiler.raw import Raw
from kernelmill.compiler.rewrite import rewrite_function
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    bfloat16,
    bool_,
    float32,
    int64,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from kernelmill.dtypes import Type

__all__ = ["NOWHERE", "Roots", "as_stored", "is_own", "slot_type", "weave"]

# The offset of an element that is written nowhere; host/elements.hpp has it too.
NOWHERE: Final = -(1 << 63)
# How IR reaches a function of host/elements.hpp, by the addresses of its arguments.
_TEXT: Final = '#include "elements.hpp"\nusing km::{};  // KM_INL\n'


@dataclass(frozen=True, slots=True)
class Roots:
    """Where a woven program finds what it captures: functions, and numbers of the call."""

    functions: tuple[object, ...]
    numbers: tuple[np.generic, ...]


def slot_type(type_: DType) -> DType:
    """Return the type in which a number is handed over: Python cannot pack a bfloat16."""
    return float32 if type_ is bfloat16 else type_


def is_own(raw: Raw) -> bool:
    """Whether what stands for a function is of host/elements.hpp: it moves values as they are."""
    return raw.text == _TEXT.format(raw.symbol)


# ----------------------------------------------------------------------------- weaving


class _Weaver:
    """Turns nodes into expressions of one function; collects the functions that they call."""

    def __init__(
        self, operators: Sequence[Specialized], numbers: Sequence[DType], *, shift: int
    ) -> None:
        self.shift = shift
        self._taken: set[str] = {"item"}
        self.functions: list[ir.Function] = []
        self.captures: list[tuple[str, Type]] = []
        self._entries = [self._adopt(operator.translation.program) for operator in operators]
        self._first = len(self.captures)
        self.captures += [(f"number_{i}", slot_type(t)) for i, t in enumerate(numbers)]
        self._texts: dict[tuple[str, Type], ir.Function] = {}
        self._seen: dict[Node, ir.Expr] = {}

    def _adopt(self, program: ir.Program) -> ir.Function:
        """Add the functions of a program, under names that are free, and its captured scalars."""
        names = {f.name: self._free(f.name) for f in program.functions}
        shift = len(self.captures)

        def change(node: ir.Expr) -> ir.Expr:
            match node:
                case ir.Call(function=name):
                    return replace(node, function=names[name])
                case ir.Capture(index=index):
                    return replace(node, index=index + shift)
                case _:
                    return node

        for function in program.functions:
            self.functions.append(
                replace(rewrite_function(function, change), name=names[function.name])
            )
        self.captures += program.captures
        return self.functions[-1]

    def _free(self, name: str) -> str:
        found, count = name, 1
        while found in self._taken:
            count += 1
            found = f"{name}_{count}"
        self._taken.add(found)
        return found

    def expression(self, node: Node) -> ir.Expr:
        """Return a node as an expression; equal nodes are one."""
        made = self._seen.get(node)
        if made is None:
            made = self._seen[node] = _MAKERS[type(node)](self, node)
        return made

    def text(self, name: str, result: Type, params: Sequence[tuple[str, Type]]) -> ir.Function:
        """Return a function that is written in C++."""
        key = name, result
        if key not in self._texts:
            raw = Raw(name, _TEXT.format(name), by_pointer=True)
            made = ir.Function(self._free(name), tuple(params), result, (), (), raw)
            self._texts[key] = made
            self.functions.append(made)
        return self._texts[key]

    def number(self, node: Number) -> ir.Expr:
        """Return a number of the call."""
        kept = slot_type(node.type)
        taken = FunctionBuilder.capture(self._first + node.slot, kept)
        return taken if kept == node.type else ir.Cast(taken, node.type)

    def entry(self, at: int) -> ir.Function:
        """Return what stands for an operator."""
        return self._entries[at]


def _value(weaver: _Weaver, node: Value) -> ir.Expr:
    slots = iter(range(node.slot, len(weaver.captures)))

    def build(type_: DType | StructType) -> ir.Expr:
        if isinstance(type_, DType):
            return weaver.number(Number(next(slots), type_))
        return FunctionBuilder.make_struct(type_, [build(f.type) for f in type_.fields])

    return build(node.type)


def _index(weaver: _Weaver, node: Index) -> ir.Expr:
    of = weaver.expression(node.of)
    if isinstance(node.step, Number):
        of = FunctionBuilder.apply("mul", of, weaver.number(node.step))
    if node.first is None:
        return of if node.step != -1 else FunctionBuilder.apply("neg", of)
    return FunctionBuilder.apply("sub" if node.step == -1 else "add", weaver.number(node.first), of)


def _count(weaver: _Weaver, node: Count) -> ir.Expr:
    of = convert(weaver.expression(node.of), node.type)
    if node.step is not None:
        of = FunctionBuilder.apply("mul", of, weaver.number(node.step))
    return FunctionBuilder.apply("add", weaver.number(node.start), of)


def _clip(weaver: _Weaver, node: Clip) -> ir.Expr:
    of = weaver.expression(node.of)
    low = FunctionBuilder.apply("max", of, ir.Const(0, of.type))
    return FunctionBuilder.apply("min", low, weaver.number(node.last))


def _element(weaver: _Weaver, node: Element) -> ir.Expr:
    function = weaver.text(node.how, node.type, [(n, int64) for n in ("address", "step", "index")])
    args = (node.address, node.step, node.of)
    return FunctionBuilder.call(function, [weaver.expression(a) for a in args])


def _place(weaver: _Weaver, node: Place) -> ir.Expr:
    of = weaver.expression(node.of)
    apply = FunctionBuilder.apply
    inside = apply(
        "and",
        apply("ge", of, ir.Const(0, int64)),
        apply("lt", of, weaver.number(node.count)),
    )
    offset = apply("mul", of, weaver.number(node.step))
    where = ir.Select(inside, offset, ir.Const(NOWHERE, int64), int64)
    return FunctionBuilder.make_tuple([as_stored(weaver.expression(node.value), node.type), where])


def _shuffled(weaver: _Weaver, node: Shuffled) -> ir.Expr:
    names = ("index", "count", "bits", "key")
    types = (int64, *(n.type for n in node.numbers))
    function = weaver.text("shuffled", int64, list(zip(names, types, strict=True)))
    args = [weaver.expression(node.of), *map(weaver.number, node.numbers)]
    return FunctionBuilder.call(function, args)


def _apply(weaver: _Weaver, node: Apply) -> ir.Expr:
    args = [weaver.expression(a) for a in node.args]
    made = FunctionBuilder.call(weaver.entry(node.at), args)
    return made if node.type is None else as_stored(made, node.type)


def _pack(weaver: _Weaver, node: Pack) -> ir.Expr:
    items = [weaver.expression(i) for i in node.items]
    if node.type is None:
        return FunctionBuilder.make_tuple(items)
    return FunctionBuilder.make_struct(node.type, items)


def _choose(weaver: _Weaver, node: Choose) -> ir.Expr:
    test = weaver.expression(node.test)
    then, orelse = weaver.expression(node.then), weaver.expression(node.orelse)
    truth = test if test.type == bool_ else FunctionBuilder.apply("truth", test)
    return ir.Select(truth, then, orelse, then.type)


def _part(weaver: _Weaver, node: Part) -> ir.Expr:
    of = weaver.expression(node.of)
    if isinstance(of.type, TupleType):
        return tuple_item(of, node.at)
    if isinstance(of.type, StructType):
        return FunctionBuilder.field(of, of.type.fields[node.at].name)
    return of


def as_stored(value: ir.Expr, wanted: Type) -> ir.Expr:
    """Convert a value to the type that is stored; items of a tuple become fields of a struct.

    A weak integer wraps, as everywhere at run time.
    """
    found = value.type
    if found == wanted:
        return value
    if isinstance(found, TupleType) and isinstance(wanted, StructType):
        items = [as_stored(tuple_item(value, i), f.type) for i, f in enumerate(wanted.fields)]
        return ir.MakeStruct(tuple(items), wanted)
    if isinstance(found, TupleType) and isinstance(wanted, TupleType):
        items = [as_stored(tuple_item(value, i), t) for i, t in enumerate(wanted.items)]
        return FunctionBuilder.make_tuple(items)
    return convert(value, wanted)


_MAKERS: Final[dict[type, Callable[[_Weaver, Any], ir.Expr]]] = {  # Any: the node of the key
    Leaf: lambda weaver, node: ir.Param(node.at + weaver.shift, node.type),
    Input: lambda _, node: ir.Param(0, node.type),
    Number: _Weaver.number,
    Value: _value,
    Index: _index,
    Count: _count,
    Clip: _clip,
    Element: _element,
    Place: _place,
    Shuffled: _shuffled,
    Apply: _apply,
    Pack: _pack,
    Choose: _choose,
    Stored: lambda weaver, node: as_stored(weaver.expression(node.of), node.type),
    Part: _part,
}


# ----------------------------------------------------------------------------- woven operators

_MOST: Final = 1024
_WOVEN: Final[dict[object, Specialized]] = {}


def weave(
    name: str,
    node: Node,
    params: Sequence[tuple[str, Type]],
    operators: Sequence[Specialized],
    numbers: Sequence[DType],
    *,
    value: Type | None = None,
) -> Specialized:
    """Return the operator from the parameters to the value of a node.

    Its captured scalars are read from `Roots` with a function for each of `operators`, and a number
    for each type of `numbers`. With `value` its first parameter is a value of that type.
    """
    taken = () if value is None else (("value", value),)
    key = (name, node, (*taken, *params), tuple(operators), tuple(numbers))
    found = _WOVEN.get(key)
    if found is None:
        if len(_WOVEN) >= _MOST:
            _WOVEN.clear()
        found = _WOVEN.setdefault(key, _woven(*key, shift=len(taken)))
    return found


def _woven(
    name: str,
    node: Node,
    params: Sequence[tuple[str, Type]],
    operators: Sequence[Specialized],
    numbers: Sequence[DType],
    *,
    shift: int,
) -> Specialized:
    weaver = _Weaver(operators, numbers, shift=shift)
    builder = FunctionBuilder("item", params)
    builder.return_(weaver.expression(node))
    functions = (*weaver.functions, builder.finish())
    program = ir.Program(functions, tuple(weaver.captures))
    verify(program)
    captures: list[CapturedScalar] = []
    baked: list[Baked] = []
    for at, operator in enumerate(operators):
        captures += [
            replace(c, read_from=_of_function(at, c.read_from))
            for c in operator.translation.captures
        ]
        baked += [
            replace(b, read_from=_of_function(at, b.read_from)) for b in operator.translation.baked
        ]
    for slot, type_ in enumerate(numbers):
        read = _of_number(slot)
        kept = slot_type(type_)
        captures.append(CapturedScalar(f"number_{slot}", kept, kept, _never, (), read))
    read_all, size = reader(captures, baked)
    translation = Translation(program, tuple(captures), tuple(baked))
    types = tuple(t for _, t in params)
    return Specialized(Op(_never, name), types, translation, size, read_all, pointers(captures))


def _never() -> object:
    raise AssertionError("a woven operator is read through its roots")


def _of_function(at: int, read: Callable[[object], object]) -> Callable[[Any], object]:
    return lambda roots: read(roots.functions[at])


def _of_number(slot: int) -> Callable[[Any], object]:
    return lambda roots: roots.numbers[slot]
