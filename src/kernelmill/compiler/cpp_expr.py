"""Spells single expressions in C++; statements and temporaries are in `cpp_body.py`.

float16 and bfloat16 are widened to float32, computed, and rounded: here, and only here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from kernelmill.compiler import ir
from kernelmill.compiler.cpp_types import field_names, initialisers, literal, type_spelling
from kernelmill.compiler.dialects import INFIX, family_of
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    Type,
    WeakType,
    bfloat16,
    bool_,
    float16,
    float32,
    int32,
    int64,
    storage,
    uint8,
    uint64,
    weak_int,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernelmill.compiler.dialects import Dialect, Family

__all__ = ["PRIMARY", "ExpressionPrinter", "Headers", "Scope", "Text", "infix"]

PRIMARY: Final = 9
_UNARY: Final = 7
_COMPARISON: Final = 3
_BITS: Final = 2
_TERNARY: Final = 1
_HALVES: Final = (float16, bfloat16)


class Text(NamedTuple):
    """C++ text of an expression, and how tightly its outermost operator binds.

    `exact` is False where C++ makes an int of what is a bool here: `a < b & c < d`.
    """

    text: str
    rank: int
    exact: bool = True
    literal: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """The C++ names of what an expression can refer to."""

    functions: Mapping[str, str]
    captures: Sequence[str]
    params: Sequence[str]
    locals: Mapping[str, str]


@dataclass(slots=True)
class Headers:
    """Collects the files that the printed functions need."""

    dialect: Dialect
    used: set[str] = field(default_factory=set)

    def use(self, family: Family, function: str) -> str:
        """Note that a function is used; return its name."""
        self.used.add(self.dialect.header(family, function))
        return function

    def files(self) -> tuple[str, ...]:
        """Return the files in a fixed order, the prelude first."""
        return (self.dialect.prelude, *sorted(self.used))


def _exact(text: Text) -> str:
    """Return the text of a value of exactly its type, to deduce from or to put into braces."""
    return text.text if text.exact else f"bool({text.text})"


def _within(text: Text, rank: int) -> str:
    """Return the text as an operand that must bind at least as tightly as `rank`."""
    return text.text if text.rank >= rank else f"({text.text})"


def infix(symbol: str, left: Text, right: Text, *, exact: bool = True) -> Text:
    """Spell an infix operation; `exact` is that of the result."""
    rank = INFIX[symbol]
    if rank > _COMPARISON:  # * / + -
        return Text(f"{_within(left, rank)} {symbol} {_within(right, rank + 1)}", rank)
    least = INFIX["+"] if rank == _COMPARISON else _UNARY
    return Text(f"{_within(left, least)} {symbol} {_within(right, least)}", rank, exact)


def _prefix(symbol: str, operand: Text) -> Text:
    text = _within(operand, _UNARY)
    return Text(f"{symbol}({text})" if text.startswith(symbol) else f"{symbol}{text}", _UNARY)


def _scalar(type_: Type) -> DType:
    stored = storage(type_)
    assert isinstance(stored, DType), f"{type_} is no scalar"
    return stored


# Per operation: function, whether the operands change places, whether the answer is negated.
_ORDER: Final[dict[str, dict[str, tuple[str, bool, bool]]]] = {
    "int": {
        "lt": ("less", False, False), "gt": ("less", True, False), "eq": ("equal", False, False),
        "ge": ("less", False, True), "le": ("less", True, True), "ne": ("equal", False, True),
    },
    "complex": {
        "lt": ("less", False, False), "gt": ("less", True, False), "eq": ("equal", False, False),
        "le": ("less_equal", False, False), "ge": ("less_equal", True, False),
        "ne": ("equal", False, True),
    },
}  # fmt: skip


class ExpressionPrinter:
    """Spells the nodes of one function, given the texts of their operands."""

    def __init__(
        self,
        dialect: Dialect,
        headers: Headers,
        scope: Scope,
    ) -> None:
        self.dialect, self.headers, self.scope = dialect, headers, scope
        self.chosen: list[Type] = []

    def spell(self, node: ir.Expr, parts: list[Text], *, calls: bool) -> Text:
        """Return the text of a node; `calls` says whether a function is called in it."""
        match node:
            case ir.Apply():
                return self._apply(node, parts)
            case ir.Cast():
                return self._cast_node(node, parts[0])
            case ir.Select():
                return self._select(node, parts, calls=calls)
            case ir.GetField() | ir.GetItem() | ir.MakeStruct() | ir.MakeTuple() | ir.Call():
                return self._aggregate(node, parts)
            case _:
                return self._leaf(node)

    # ------------------------------------------------------------------ leaves and aggregates

    def _leaf(self, node: ir.Expr) -> Text:
        match node:
            case ir.Const(value, type_):
                return self._literal(value, type_)
            case ir.Param(index):
                return Text(self.scope.params[index], PRIMARY)
            case ir.Capture(index):
                return Text(self.scope.captures[index], PRIMARY)
            case ir.Local(name):
                return Text(self.scope.locals[name], PRIMARY)
            case _:
                raise AssertionError(f"{type(node).__name__} stands in kernels only")

    def _literal(self, value: complex, type_: Type) -> Text:
        text = literal(value, type_, self.dialect)
        return Text(text, _UNARY if text.startswith("-") else PRIMARY, literal=True)

    def _aggregate(self, node: ir.Expr, parts: list[Text]) -> Text:
        match node:
            case ir.GetField(value, name, type_):
                assert isinstance(value.type, StructType)
                text = f"{_within(parts[0], PRIMARY)}.{field_names(value.type)[name]}"
                return Text(f"{text} != 0", _COMPARISON) if type_ == bool_ else Text(text, PRIMARY)
            case ir.GetItem(_, index):
                return Text(f"{_within(parts[0], PRIMARY)}.f{index}", PRIMARY)
            case ir.MakeStruct(_, type_):
                values = [
                    f"u8({part.text})" if member.type == bool_ else _exact(part)
                    for part, member in zip(parts, type_.fields, strict=True)
                ]
                items = ", ".join(initialisers(type_, values))
                return Text(f"{type_spelling(type_)}{{{items}}}", PRIMARY)
            case ir.MakeTuple(_, type_):
                items = ", ".join(map(_exact, parts))
                return Text(f"{type_spelling(type_)}{{{items}}}", PRIMARY)
            case _:
                assert isinstance(node, ir.Call)
                args = ", ".join(part.text for part in parts)
                return Text(f"{self.scope.functions[node.function]}({args})", PRIMARY)

    # ------------------------------------------------------------------ choice

    def _select(self, node: ir.Select, parts: list[Text], *, calls: bool) -> Text:
        """Spell a choice without a branch; where a function is called, only what is taken runs."""
        test, then, orelse = parts
        if node.type == bool_ and not calls:
            if _is(node.orelse, node.condition, value=False):
                return infix("&", test, then, exact=False)
            if _is(node.then, node.condition, value=True):
                return infix("|", test, orelse, exact=False)
        plain = isinstance(node.type, (DType, WeakType)) and _scalar(node.type).kind != "complex"
        if calls or (plain and node.type not in _HALVES):
            arms = [Text(_exact(arm), arm.rank if arm.exact else PRIMARY) for arm in parts[1:]]
            first, second = (_within(arm, _BITS) for arm in arms)
            return Text(f"{_within(test, _COMPARISON)} ? {first} : {second}", _TERNARY)
        self.chosen.append(node.type)
        self._use_choices(node.type)
        return Text(f"choose({test.text}, {_exact(then)}, {_exact(orelse)})", PRIMARY)

    def _use_choices(self, type_: Type) -> None:
        stored = storage(type_)
        if isinstance(stored, StructType):
            inner: Sequence[Type] = [f.type for f in stored.fields]
        elif isinstance(stored, TupleType):
            inner = stored.items
        else:
            inner = ()
            self.headers.use(family_of(stored), "choose")
        self.headers.use("int", "choose")
        for part in inner:
            self._use_choices(part)

    # ------------------------------------------------------------------ conversion

    def _cast_node(self, node: ir.Cast, part: Text) -> Text:
        wanted, source = _scalar(node.type), node.value
        if isinstance(source, ir.Const) and _folds(source, wanted):
            return self._literal(source.value, wanted)
        return self._cast(part, _scalar(source.type), wanted)

    def _cast(self, part: Text, found: DType, wanted: DType) -> Text:
        """Spell a conversion; the order of the cases is that of the table of conversions."""
        if found == wanted:
            return part
        if wanted == bool_:
            return self._truth(part, found)
        if found in _HALVES:
            return self._cast(Text(f"f32({part.text})", PRIMARY), float32, wanted)
        if wanted.kind == "complex":
            return self._to_complex(part, found, wanted)
        assert found.kind != "complex", "complex numbers convert to complex ones only"
        if wanted in _HALVES and found.kind != "float":
            part = self._cast(part, found, float32)
        elif found == bool_ and wanted.kind == "float":  # g++ vectorises the two steps, not the one
            part = self._cast(part, found, int32)
        elif found.kind == "float" and wanted.is_integer:
            return self._to_integer(part, wanted)
        return Text(f"{wanted.short}({part.text})", PRIMARY)

    def _to_complex(self, part: Text, found: DType, wanted: DType) -> Text:
        if found.kind == "complex":
            function = self.headers.use("complex", "convert")
            return Text(f"{function}<{wanted.real.short}>({part.text})", PRIMARY)
        real, zero = self._cast(part, found, wanted.real), self._literal(0.0, wanted.real)
        return Text(f"{wanted.short}{{{_exact(real)}, {zero.text}}}", PRIMARY)

    def _to_integer(self, part: Text, wanted: DType) -> Text:
        """Convert a float to 32 or 64 bits by the rule of the table, then keep the low bits."""
        narrow = wanted == int32 or wanted.itemsize < int32.itemsize
        reached = int32 if narrow else uint64 if wanted == uint64 else int64
        function = self.headers.use("int", f"to_{reached.short}")
        text = f"{function}({part.text})"
        return Text(text if wanted == reached else f"{wanted.short}({text})", PRIMARY)

    def _truth(self, part: Text, found: DType) -> Text:
        """Spell `part != 0`."""
        if found == bool_:
            return part
        if found.kind == "complex":
            return Text(f"{self.headers.use('complex', 'truth')}({part.text})", PRIMARY)
        return self._against_zero("!=", part, found)

    def _against_zero(self, symbol: str, part: Text, found: DType) -> Text:
        if found in _HALVES:
            part, found = Text(f"f32({part.text})", PRIMARY), float32
        zero = self._literal(0, found) if found.kind == "float" else Text("0", PRIMARY)
        return infix(symbol, part, zero)

    # ------------------------------------------------------------------ operations

    def _apply(self, node: ir.Apply, parts: list[Text]) -> Text:
        special = self._special.get(node.op)
        if special is not None:
            return special(self, node, parts)
        types = [_scalar(a.type) for a in node.args]
        family = family_of(types[0])
        form = self.dialect.form(node.op, family)
        if not form:
            return parts[0]
        half = types[0] if types[0] in _HALVES else None
        if half:
            parts = [Text(f"f32({part.text})", PRIMARY) for part in parts]
        text = self._operation(form, family, parts)
        result = _scalar(node.type)
        return Text(f"{half.short}({text.text})", PRIMARY) if half and result == half else text

    def _operation(self, form: str, family: Family, parts: list[Text]) -> Text:
        """Spell an infix or prefix symbol, or a call."""
        if form.isidentifier():
            args = ", ".join(map(_exact, parts))
            return Text(f"{self.headers.use(family, form)}({args})", PRIMARY)
        if len(parts) == 1:
            return _prefix(form, parts[0])
        exact = family != "bool" or INFIX[form] != _BITS
        return infix(form, parts[0], parts[1], exact=exact)

    def _compare(self, node: ir.Apply, parts: list[Text]) -> Text:
        """Spell a comparison: of one type directly, of two integer types by their values."""
        left, right = node.args
        types = [_scalar(left.type), _scalar(right.type)]
        for index, (side, other) in enumerate(((left, types[1]), (right, types[0]))):
            if _fits(side, other):
                assert isinstance(side, ir.Const)
                parts[index], types[index] = self._literal(side.value, other), other
        family = family_of(types[0])
        if types[0] == types[1] and family != "complex":
            if types[0] in _HALVES:
                parts = [Text(f"f32({part.text})", PRIMARY) for part in parts]
            return infix(self.dialect.form(node.op, family), parts[0], parts[1])
        function, swapped, negated = _ORDER["complex" if family == "complex" else "int"][node.op]
        first, second = reversed(parts) if swapped else parts
        call = f"{self.headers.use(family, function)}({_exact(first)}, {_exact(second)})"
        return Text(f"!{call}", _UNARY) if negated else Text(call, PRIMARY)

    def _test(self, node: ir.Apply, parts: list[Text]) -> Text:
        return self._truth(parts[0], _scalar(node.args[0].type))

    def _not(self, node: ir.Apply, parts: list[Text]) -> Text:
        found = _scalar(node.args[0].type)
        if found == bool_ or found.kind == "complex":
            return _prefix("!", self._truth(parts[0], found))
        return self._against_zero("==", parts[0], found)

    def _int(self, node: ir.Apply, parts: list[Text]) -> Text:
        return self._cast(parts[0], _scalar(node.args[0].type), int64)

    def _round(self, node: ir.Apply, parts: list[Text]) -> Text:
        found = _scalar(node.args[0].type)
        if found.kind != "float":
            return self._cast(parts[0], found, int64)
        part, real = parts[0], found
        if found in _HALVES:
            part, real = Text(f"f32({part.text})", PRIMARY), float32
        nearest = Text(f"{self.headers.use('float', 'rint')}({part.text})", PRIMARY)
        return self._cast(nearest, real, int64)

    def _imag(self, node: ir.Apply, parts: list[Text]) -> Text:
        found = _scalar(node.args[0].type)
        if found.kind == "complex":
            return Text(f"{self.headers.use('complex', 'imag')}({parts[0].text})", PRIMARY)
        return self._literal(0, found)

    def _ldexp(self, node: ir.Apply, parts: list[Text]) -> Text:
        found = _scalar(node.args[0].type)
        exponent = Text(f"{self.headers.use('int', 'saturated')}({_exact(parts[1])})", PRIMARY)
        value = Text(f"f32({parts[0].text})", PRIMARY) if found in _HALVES else parts[0]
        text = self._operation("ldexp", "float", [value, exponent])
        return Text(f"{found.short}({text.text})", PRIMARY) if found in _HALVES else text

    def _count_bits(self, node: ir.Apply, parts: list[Text]) -> Text:
        """popcount, clz and ctz; a bool counts as uint8."""
        found = _scalar(node.args[0].type)
        part = self._cast(parts[0], bool_, uint8) if found == bool_ else parts[0]
        text = self._operation(node.op, "uint", [part])
        return Text(f"u8({text.text})", PRIMARY)

    # Operations whose spelling depends on more than the family of the operands.
    _special: ClassVar[dict[str, Callable[[ExpressionPrinter, ir.Apply, list[Text]], Text]]] = {
        **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), _compare),
        "truth": _test,
        "not": _not,
        "int": _int,
        "round": _round,
        "imag": _imag,
        "ldexp": _ldexp,
        **dict.fromkeys(("popcount", "clz", "ctz"), _count_bits),
    }


def _is(arm: ir.Expr, test: ir.Expr, *, value: bool) -> bool:
    """Whether an arm of a choice is known: the constant `value`, or the condition itself."""
    if isinstance(arm, ir.Const):
        return arm.value == value
    return arm is test or (isinstance(arm, (ir.Local, ir.Param, ir.Capture)) and arm == test)


def _folds(source: ir.Const, wanted: DType) -> bool:
    """Whether a literal can be written in the wanted type at once: the conversion is exact."""
    kind = _scalar(source.type).kind
    if kind in ("bool", "int", "uint"):
        return True
    return isinstance(source.type, WeakType) and wanted.kind not in ("int", "uint")


def _fits(side: ir.Expr, other: DType) -> bool:
    """Whether a literal compared with another integer type is a value of that type."""
    return (
        isinstance(side, ir.Const)
        and side.type == weak_int
        and isinstance(side.value, int)
        and other.is_integer
        and other.min <= side.value <= other.max
    )
