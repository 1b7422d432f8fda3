"""The public way to build IR: converts operands by the promotion rules.

The front end, fused array expressions and library code all build IR through here; the node classes
are in `ir.py`, the typing rules in `intrinsics.py`, literals in `literals.py`.

>>> from kernelmill.compiler.builder import FunctionBuilder
>>> from kernelmill.dtypes import float32
>>> f = FunctionBuilder("scaled_sum", [("a", float32), ("b", float32)])
>>> f.return_(f.apply("add", f.apply("mul", f.param(0), f.const(2)), f.param(1)))
>>> f.finish().result
kernelmill.float32
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kernelmill.compiler.intrinsics import OPERATIONS, OperationError
from kernelmill.compiler.ir import (
    Apply,
    Assign,
    Break,
    Call,
    Capture,
    Cast,
    Const,
    Continue,
    Expr,
    For,
    Function,
    GetField,
    GetItem,
    If,
    Local,
    MakeStruct,
    MakeTuple,
    Param,
    Return,
    Select,
    Stmt,
    While,
)
from kernelmill.compiler.kernel_ir import Effect
from kernelmill.compiler.literals import (
    decide_comparison,
    fold,
    fold_conversion,
    typed_literal,
    weak_type_of,
)
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    Type,
    WeakType,
    bool_,
    promote,
    weak_int,
)
from kernelmill.errors import DTypeError, OperatorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelmill.errors import SourceSpan

__all__ = ["FunctionBuilder", "convert", "join", "weak_type_of"]


def join(types: Sequence[Type]) -> Type:
    """Return the one type for values that meet where control flow meets, or raise DTypeError."""
    joined = types[0]
    for type_ in types[1:]:
        if isinstance(joined, TupleType) and isinstance(type_, TupleType):
            if len(joined.items) != len(type_.items):
                raise DTypeError(f"tuples of {len(joined.items)} and {len(type_.items)} items meet")
            pairs = zip(joined.items, type_.items, strict=True)
            joined = TupleType(tuple(join(pair) for pair in pairs))
        else:
            joined = promote(joined, type_)
    return joined


def convert(value: Expr, wanted: Type) -> Expr:
    """Return `value` as `wanted`: itself, a folded constant, item by item, or a Cast.

    Raises ScalarOverflowError when a Python integer does not fit an integer type, and DTypeError
    when a struct meets another type.
    """
    found = value.type
    if found == wanted:
        return value
    if isinstance(found, TupleType) and isinstance(wanted, TupleType):
        if len(found.items) != len(wanted.items):
            raise DTypeError(f"expects {len(wanted.items)} values, got {len(found.items)}")
        items = [convert(tuple_item(value, i), t) for i, t in enumerate(wanted.items)]
        return MakeTuple(tuple(items), TupleType(tuple(i.type for i in items)))
    if isinstance(found, (StructType, TupleType)) or isinstance(wanted, (StructType, TupleType)):
        raise DTypeError(f"expects {wanted}, got {found}")
    if isinstance(value, Const) and isinstance(found, WeakType):
        folded = fold_conversion(value.value, wanted)
        if folded is not None:
            return folded
    return Cast(value, wanted)


def _as_field(value: Expr, wanted: DType | StructType) -> Expr:
    if isinstance(wanted, DType):
        return FunctionBuilder.cast(value, wanted)
    found = value.type
    if isinstance(found, TupleType) and len(found.items) == len(wanted.fields):
        items = [tuple_item(value, i) for i in range(len(found.items))]
        return FunctionBuilder.make_struct(wanted, items)
    return convert(value, wanted)


def tuple_item(value: Expr, index: int) -> Expr:
    """Return one item of a tuple value, without a node where it is known."""
    if isinstance(value, MakeTuple):
        return value.values[index]
    assert isinstance(value.type, TupleType)
    return GetItem(value, index, value.type.items[index])


_OF_BITS: Final = frozenset(
    {"and", "or", "xor", "invert", "lshift", "rshift", "popcount", "clz", "ctz"}
)


def _operand_hint(op: str, args: Sequence[Expr]) -> str:
    types = [a.type for a in args]
    if any(isinstance(t, (StructType, TupleType)) for t in types):
        return "compute with single fields and items: `p.x`, `t[0]`"
    if op in _OF_BITS:
        return "convert an operand first, for example np.int32(x)"
    return "convert an operand first, for example np.float32(x) or x.real"


class FunctionBuilder:
    """Builds one function. Expression methods return nodes; statement methods append to a block."""

    def __init__(self, name: str, params: Sequence[tuple[str, Type]]) -> None:
        self.name = name
        self.params = tuple(params)
        self._locals: dict[str, Type] = {}
        self._blocks: list[list[Stmt]] = [[]]
        self._returns: list[Type] = []
        self.span: SourceSpan | None = None

    # ------------------------------------------------------------------ expressions

    def param(self, index: int) -> Param:
        """Return an argument of the function."""
        return Param(index, self.params[index][1])

    @staticmethod
    def const(value: complex, type_: Type | None = None) -> Expr:
        """Return a literal; a Python scalar is weak (bool is strong) unless `type_` is given."""
        made = Const(value, weak_type_of(value))
        return made if type_ is None else convert(made, type_)

    @staticmethod
    def capture(index: int, type_: Type) -> Capture:
        """Return a captured scalar, by slot."""
        return Capture(index, type_)

    @staticmethod
    def apply(op: str, *args: Expr) -> Expr:
        """Return an operation of the table on operands converted by its rule.

        Raises OperatorError when the operation is not defined for these types.
        """
        folded = fold(op, args)
        if folded is not None:
            return folded
        if op == "pow" and len(args) == 2 and _squares_complex(*args):  # noqa: PLR2004 - base, exponent
            op, args = "square", args[:1]
        try:
            wanted, result = OPERATIONS[op].signature(tuple(a.type for a in args))
        except OperationError as error:
            types = " and ".join(str(a.type) for a in args)
            raise OperatorError(
                f"`{OPERATIONS[op].symbol or op}` {error} ({types})",
                hint=_operand_hint(op, args),
            ) from error
        decided = decide_comparison(op, args)
        if decided is not None:
            return decided
        wanted = typed_literal(op, args, wanted)
        converted = tuple(convert(a, t) for a, t in zip(args, wanted, strict=True))
        return _simplify(Apply(op, converted, result))

    @staticmethod
    def cast(value: Expr, type_: Type) -> Expr:
        """Return an explicit conversion, as `np.float32(x)`; integers wrap."""
        if value.type == type_:
            return value
        if isinstance(value, Const) and isinstance(value.type, WeakType):
            return convert(value, type_)
        return Cast(value, type_)

    def select(self, condition: Expr, then: Expr, orelse: Expr) -> Expr:
        """Return `then if condition else orelse`, both converted to their joined type."""
        joined = join((then.type, orelse.type))
        return Select(self.truth(condition), convert(then, joined), convert(orelse, joined), joined)

    def truth(self, value: Expr) -> Expr:
        """Return the truth of a scalar as bool."""
        if isinstance(value, Const):
            return Const(bool(value.value), bool_)
        return value if value.type == bool_ else self.apply("truth", value)

    @staticmethod
    def field(value: Expr, name: str) -> Expr:
        """Return a field of a struct value."""
        assert isinstance(value.type, StructType)
        found = value.type.field(name)
        if found is None:
            names = ", ".join(f.name for f in value.type.fields)
            raise OperatorError(
                f"struct {value.type} has no field `{name}`", hint=f"its fields are {names}"
            )
        if isinstance(value, MakeStruct):
            return value.values[value.type.fields.index(found)]
        return GetField(value, name, found.type)

    @staticmethod
    def make_struct(type_: StructType, values: Sequence[Expr]) -> Expr:
        """Return a struct; values are converted to the types of the fields, tuples to structs."""
        pairs = zip(values, type_.fields, strict=True)
        return MakeStruct(tuple(_as_field(v, f.type) for v, f in pairs), type_)

    @staticmethod
    def make_tuple(values: Sequence[Expr]) -> Expr:
        """Return a tuple of values."""
        return MakeTuple(tuple(values), TupleType(tuple(v.type for v in values)))

    @staticmethod
    def call(function: Function, args: Sequence[Expr]) -> Expr:
        """Return a call of a finished function; arguments are converted to its parameter types."""
        pairs = zip(args, function.params, strict=True)
        converted = tuple(convert(a, t) for a, (_, t) in pairs)
        return Call(function.name, converted, function.result)

    # ------------------------------------------------------------------ statements

    def declare(self, name: str, type_: Type) -> str:
        """Declare a local variable under a free name made from `name`; return that name."""
        free, count = name, 1
        while free in self._locals:
            count += 1
            free = f"{name}_{count}"
        self._locals[free] = type_
        return free

    def local(self, name: str) -> Local:
        """Return the value of a local variable."""
        return Local(name, self._locals[name])

    def assign(self, name: str, value: Expr) -> None:
        """Give a local a value, converted to its type."""
        self.emit(Assign(name, convert(value, self._locals[name]), self.span))

    def return_(self, value: Expr) -> None:
        """Leave the function; `finish` converts all returned values to their joined type."""
        self._returns.append(value.type)
        self.emit(Return(value, self.span))

    def break_(self) -> None:
        """Leave the innermost loop."""
        self.emit(Break(self.span))

    def continue_(self) -> None:
        """Go to the next turn of the innermost loop."""
        self.emit(Continue(self.span))

    def if_(self, condition: Expr, then: Sequence[Stmt], orelse: Sequence[Stmt] = ()) -> None:
        """Append an if statement whose blocks were collected with `block()`."""
        self.emit(If(self.truth(condition), tuple(then), tuple(orelse), self.span))

    def for_(
        self,
        name: str,
        bounds: tuple[Expr, Expr, Expr],
        body: Sequence[Stmt],
        *,
        unroll: int = 0,
    ) -> None:
        """Append `for name in range(*bounds)`; `name` is a declared local of type weak int."""
        start, stop, step = (_range_bound(b) for b in bounds)
        self.emit(For(name, start, stop, step, tuple(body), self.span, unroll))

    def while_(self, condition: Expr, body: Sequence[Stmt]) -> None:
        """Append a while loop."""
        self.emit(While(self.truth(condition), tuple(body), self.span))

    @property
    def is_outermost(self) -> bool:
        """Whether statements are appended to the function itself, not to a block in it."""
        return len(self._blocks) == 1

    def append(self, statements: Sequence[Stmt]) -> None:
        """Append statements that were collected with `block()`."""
        self._blocks[-1].extend(statements)

    def mark(self) -> tuple[dict[str, Type], int]:
        """Return the state of locals and returns, for `rewind`."""
        return dict(self._locals), len(self._returns)

    def rewind(self, mark: tuple[dict[str, Type], int]) -> None:
        """Forget locals and returns made since `mark`; blocks collected since are dropped."""
        self._locals = dict(mark[0])
        del self._returns[mark[1] :]

    @contextlib.contextmanager
    def block(self) -> Iterator[list[Stmt]]:
        """Collect the statements made inside the `with` into the yielded list."""
        self._blocks.append([])
        try:
            yield self._blocks[-1]
        finally:
            self._blocks.pop()

    def emit(self, statement: Stmt) -> None:
        """Append a statement."""
        self._blocks[-1].append(statement)

    # ------------------------------------------------------------------ the end

    def finish(self) -> Function:
        """Return the function; its result type is joined over all returns, unused locals go."""
        result = join(self._returns)
        body = _retype_returns(tuple(self._blocks[0]), result)
        used = _assigned(body)
        kept = tuple((n, t) for n, t in self._locals.items() if n in used)
        return Function(self.name, self.params, result, kept, body)


def _range_bound(value: Expr) -> Expr:
    """Convert a bound of a range to a weak int; integers of any type are taken."""
    type_ = value.type
    if isinstance(type_, (DType, WeakType)) and type_.kind in ("int", "uint", "bool"):
        return value if type_ == weak_int else Cast(value, weak_int)
    raise OperatorError(
        f"range() expects integers, got {type_}", hint="write int(x) to drop the fraction"
    )


def _retype_returns(block: tuple[Stmt, ...], result: Type) -> tuple[Stmt, ...]:
    made: list[Stmt] = []
    for statement in block:
        match statement:
            case Return(value, span):
                made.append(Return(convert(value, result), span))
            case If(condition, then, orelse, span):
                parts = (_retype_returns(then, result), _retype_returns(orelse, result))
                made.append(If(condition, *parts, span))
            case For(body=body):
                made.append(replace(statement, body=_retype_returns(body, result)))
            case While(condition, body, span):
                made.append(While(condition, _retype_returns(body, result), span))
            case _:
                made.append(statement)
    return tuple(made)


def _assigned(block: tuple[Stmt, ...]) -> set[str]:
    names: set[str] = set()
    for statement in block:
        match statement:
            case Assign(name=name):
                names.add(name)
            case Effect(name=str() as name):
                names.add(name)
            case If(then=then, orelse=orelse):
                names |= _assigned(then) | _assigned(orelse)
            case For(name=name, body=body):
                names |= {name} | _assigned(body)
            case While(body=body):
                names |= _assigned(body)
    return names


def _squares_complex(base: Expr, exponent: Expr) -> bool:
    """Whether this is `z ** 2`, the one power of a complex number."""
    return (
        isinstance(base.type, (DType, WeakType))
        and base.type.kind == "complex"
        and isinstance(exponent, Const)
        and isinstance(exponent.type, WeakType)
        and exponent.value == 2  # noqa: PLR2004 - the exponent of a square
    )


def _simplify(node: Apply) -> Expr:
    """Write `x ** 2` as a product, exactly as NumPy does."""
    match node:
        case Apply("pow", (base, Const(value=2)), type_):
            return Apply("square", (base,), type_)
        case Apply("pow", (base, Cast(Const(value=2)))):
            return Apply("square", (base,), node.type)
        case _:
            return node
