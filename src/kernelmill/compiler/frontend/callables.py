"""The table of callables that the language knows, and what each does. Calls are `calls.py`."""

from __future__ import annotations

import builtins
import functools
import math
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from kernelmill.compiler import functions, ir
from kernelmill.compiler.frontend import refusals
from kernelmill.compiler.frontend.values import Known, Memory
from kernelmill.compiler.intrinsics import OPERATIONS, SPELLINGS
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    WeakType,
    dtype_of,
    weak_complex,
    weak_float,
)
from kernelmill.errors import DTypeError, OperatorError

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Mapping, Sequence

    from kernelmill.compiler.frontend.frame import Frame
    from kernelmill.compiler.frontend.values import Value

__all__ = [
    "Arguments",
    "Row",
    "call_row",
    "kind_of",
    "known_callables",
    "spellings_of_all",
    "well_known",
]


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call."""

    positional: Sequence[Value]
    keywords: Mapping[str, Value] = field(default_factory=dict)


def kind_of(value: ir.Expr) -> str:
    """Return the kind of a scalar's type."""
    assert isinstance(value.type, (DType, WeakType))
    return value.type.kind


# ----------------------------------------------------------------------------- the table

Handler: TypeAlias = "Callable[[Frame, Sequence[Value], ast.AST], Value]"
_MANY: Final = 255


@dataclass(frozen=True, slots=True)
class Row:
    """A callable of the language: how many arguments it takes, and what it does with them."""

    spellings: tuple[str, ...]
    least: int
    most: int
    handler: Handler


def call_row(frame: Frame, row: Row, name: str, args: Arguments, node: ast.AST) -> Value:
    """Call a callable of the table; raises OperatorError for the wrong number of arguments."""
    if args.keywords:
        listed = ", ".join(f"`{k}`" for k in args.keywords)
        raise OperatorError(
            f"`{name}` takes no keyword arguments here, got {listed}",
            hint="pass the arguments by position; `out=`, `where=` and `dtype=` have no meaning",
        )
    count = len(args.positional)
    if not row.least <= count <= row.most:
        limit = str(row.least) if row.least == row.most else f"{row.least} to {row.most}"
        limit = f"at least {row.least}" if row.most == _MANY else limit
        noun = "argument" if limit == "1" else "arguments"
        raise OperatorError(
            f"`{name}` takes {limit} {noun}, got {count}",
            hint=refusals.ARITIES.get(name, f"write `{name}({', '.join('abc'[: row.least])})`"),
        )
    return row.handler(frame, args.positional, node)


def _operation(op: str) -> Row:
    def handler(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
        return frame.builder.apply(op, *(frame.scalar(a, node) for a in args))

    return Row((), OPERATIONS[op].arity, OPERATIONS[op].arity, handler)


def well_known(found: object) -> Row | None:
    """Return the operation that an object of the library says it is."""
    op = getattr(found, "__kernelmill_operator__", None)
    return _operation(op) if isinstance(op, str) and op in OPERATIONS else None


@functools.lru_cache(maxsize=1)
def spellings_of_all() -> list[str]:
    """Return what a user may write: `np.exp`, `math.exp`, `min`."""
    return [*SPELLINGS, *(s for row in _ROWS for s in row.spellings)]


_MODULES: Final = {"np": np, "math": math, "operator": operator, "km": functions, "": builtins}


def _resolve(spelling: str) -> object | None:
    module, _, name = spelling.rpartition(".")
    return getattr(_MODULES[module], name, None)


@functools.lru_cache(maxsize=1)
def known_callables() -> dict[int, Row]:
    """Return the rows by the identity of the Python object; older NumPys lack some names."""
    table: dict[int, Row] = {}
    for spelling, op in SPELLINGS.items():
        found = _resolve(spelling)
        if found is not None:
            table[id(found)] = _operation(op)
    for row in _ROWS:
        for spelling in row.spellings:
            found = _resolve(spelling)
            if found is not None:
                table[id(found)] = row
    return table


def _scalars(frame: Frame, args: Sequence[Value], node: ast.AST) -> list[ir.Expr]:
    return [frame.scalar(a, node) for a in args]


def _items(frame: Frame, args: Sequence[Value], node: ast.AST) -> list[ir.Expr]:
    """Return the arguments, or the items of the only argument if it is a tuple."""
    values = _scalars(frame, args, node)
    if len(values) == 1 and isinstance(values[0].type, TupleType):
        whole = frame.leaf(values[0])
        assert isinstance(whole, ir.MakeTuple)
        return list(whole.values)
    return values


def _fold(op: str) -> Handler:
    """Combine any number of values from left to right."""

    def handler(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
        values = _items(frame, args, node)
        if not values or (len(args) == 1 and values[0] is args[0]):
            raise OperatorError(
                f"`{op}` needs two values or a tuple of them",
                hint=f"an operator sees one element; over an array: km.reduce(x, km.{op}imum)",
            )
        return functools.reduce(functools.partial(frame.builder.apply, op), values)

    return handler


def _sum(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
    values = _tuple_of(frame, args[0], "sum", node)
    start = frame.scalar(args[1], node) if len(args) > 1 else frame.builder.const(0)
    return functools.reduce(functools.partial(frame.builder.apply, "add"), values, start)


def _tuple_of(frame: Frame, value: Value, name: str, node: ast.AST) -> list[ir.Expr]:
    made = frame.scalar(value, node)
    if not isinstance(made.type, TupleType):
        raise OperatorError(
            f"`{name}` takes a tuple, got {made.type}",
            hint="an operator sees one element; reductions over an array are km.reduce",
        )
    return _items(frame, [made], node)


def _truths(op: str, empty: bool) -> Handler:  # noqa: FBT001 - the value for no items
    def handler(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
        values = [frame.builder.truth(v) for v in _tuple_of(frame, args[0], "any/all", node)]
        start = frame.builder.const(empty)
        return functools.reduce(functools.partial(frame.both, op), values, start)

    return handler


def _logical(op: str) -> Handler:
    def handler(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
        a, b = (frame.builder.truth(v) for v in _scalars(frame, args, node))
        return frame.both(op, a, b)

    return handler


def _where(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
    condition, then, orelse = _scalars(frame, args, node)
    return frame.choose(frame.leaf(frame.builder.truth(condition)), then, orelse)


def _clip(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
    value = frame.scalar(args[0], node)
    for op, limit in zip(("maximum", "minimum"), args[1:], strict=False):
        if not (isinstance(limit, Known) and limit.value is None):
            value = frame.builder.apply(op, value, frame.scalar(limit, node))
    return value


def _float(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
    given = args[0]
    if isinstance(given, Known) and isinstance(given.value, str):
        try:
            return frame.builder.const(float(given.value))  # float("inf")
        except ValueError:
            raise OperatorError(
                f"float({given.value!r}) is not a number", hint='write float("inf") or a literal'
            ) from None
    value = frame.scalar(given, node)
    if isinstance(value.type, (StructType, TupleType)) or kind_of(value) == "complex":
        raise OperatorError(
            f"{value.type} cannot be converted to float", hint="write `x.real`, `x.imag` or abs(x)"
        )
    return frame.builder.cast(value, weak_float)


def _complex(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
    value = frame.scalar(args[0], node)
    if isinstance(value.type, (StructType, TupleType)):
        raise OperatorError(
            f"{value.type} cannot be converted to complex", hint="convert its fields one by one"
        )
    return frame.builder.cast(value, weak_complex)


def _length(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
    value = args[0]
    if isinstance(value, Known) and isinstance(value.value, tuple):
        return frame.builder.const(frame.program.captures.bake_length(value))
    if isinstance(value, Memory):
        return value.dimensions[0].extent
    made = frame.scalar(value, node)
    if not isinstance(made.type, TupleType):
        raise OperatorError(f"{made.type} has no length", hint="len() counts the items of a tuple")
    return frame.builder.const(len(made.type.items))


def _divmod(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
    a, b = (frame.leaf(v) for v in _scalars(frame, args, node))
    build = frame.builder
    return build.make_tuple([build.apply("floordiv", a, b), build.apply("mod", a, b)])


def _log(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
    """Compute `math.log(x, base)` as the quotient of two logarithms, as Python does."""
    logs = [frame.builder.apply("log", v) for v in _scalars(frame, args, node)]
    return functools.reduce(functools.partial(frame.builder.apply, "truediv"), logs)


def _hypot(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
    values = _scalars(frame, args, node)
    return functools.reduce(functools.partial(frame.builder.apply, "hypot"), values)


def _frexp(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
    value = frame.leaf(frame.scalar(args[0], node))
    parts = [frame.builder.apply(f"frexp_{part}", value) for part in ("mantissa", "exponent")]
    return frame.builder.make_tuple(parts)


def _modf(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
    """Split into fraction and whole part; both have the sign of x, the fraction of inf is 0."""
    build = frame.builder
    value = frame.scalar(args[0], node)
    value = frame.leaf(build.cast(value, build.apply("fabs", value).type))
    whole = frame.leaf(build.apply("trunc", value))
    rest = build.apply("sub", value, whole)
    rest = build.select(build.apply("isinf", value), build.const(0.0), rest)
    return build.make_tuple([build.apply("copysign", rest, value), whole])


def _reciprocal(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
    value = frame.scalar(args[0], node)
    if not isinstance(value.type, (DType, WeakType)) or value.type.kind not in ("float", "complex"):
        raise OperatorError(
            f"`np.reciprocal` is not defined for {value.type}", hint="write `1 / x` or `1 // x`"
        )
    return frame.builder.apply("truediv", frame.builder.const(1), value)


def _number_info(kind: type) -> Handler:
    """Make np.finfo or np.iinfo of a dtype: their members are constants."""

    def handler(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
        del node
        owner = args[0]
        if not isinstance(owner, Known):
            raise OperatorError(
                f"`np.{kind.__name__}` takes a dtype", hint="write np.finfo(np.float32)"
            )
        spec = frame.program.captures.bake(owner)
        try:
            wanted = dtype_of(spec).to_numpy()
            made = kind(wanted)
        except (DTypeError, ValueError) as error:
            raise OperatorError(
                f"`np.{kind.__name__}`: {error}", hint=f"write np.{kind.__name__}(np.float32)"
            ) from error
        name = f"np.{kind.__name__}({owner.name})"
        return Known(name, made, lambda _: made, ("info", name), constant=True, anchor=owner)

    return handler


def _rounded(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
    value = frame.scalar(args[0], node)
    whole = isinstance(value.type, (DType, WeakType)) and value.type.kind in ("int", "uint")
    return value if whole else frame.builder.apply("rint", value)


_ROWS: Final = (
    Row(("min",), 1, _MANY, _fold("min")),
    Row(("max",), 1, _MANY, _fold("max")),
    Row(("sum",), 1, 2, _sum),
    Row(("any",), 1, 1, _truths("or", empty=False)),
    Row(("all",), 1, 1, _truths("and", empty=True)),
    Row(("len",), 1, 1, _length),
    Row(("float",), 1, 1, _float),
    Row(("complex",), 1, 1, _complex),
    Row(("divmod", "np.divmod"), 2, 2, _divmod),
    Row(("math.log",), 1, 2, _log),
    Row(("math.hypot",), 2, _MANY, _hypot),
    Row(("math.frexp", "np.frexp"), 1, 1, _frexp),
    Row(("math.modf", "np.modf"), 1, 1, _modf),
    Row(("np.where",), 3, 3, _where),
    Row(("np.clip",), 2, 3, _clip),
    Row(("np.logical_and",), 2, 2, _logical("and")),
    Row(("np.logical_or",), 2, 2, _logical("or")),
    Row(("np.logical_xor",), 2, 2, _logical("xor")),
    Row(("np.reciprocal",), 1, 1, _reciprocal),
    Row(("np.finfo",), 1, 1, _number_info(np.finfo)),
    Row(("np.iinfo",), 1, 1, _number_info(np.iinfo)),
    Row(("np.round", "np.around"), 1, 1, _rounded),
    *(
        Row(
            tuple(f"operator.{n}" for n in names),
            OPERATIONS[op].arity,
            OPERATIONS[op].arity,
            _operation(op).handler,
        )
        for op, names in {
            "add": ("add",), "sub": ("sub",), "mul": ("mul",), "truediv": ("truediv",),
            "floordiv": ("floordiv",), "mod": ("mod",), "pow": ("pow",), "neg": ("neg",),
            "pos": ("pos",), "abs": ("abs",), "and": ("and_",), "or": ("or_",), "xor": ("xor",),
            "invert": ("invert", "inv"), "lshift": ("lshift",), "rshift": ("rshift",),
            "lt": ("lt",), "le": ("le",), "gt": ("gt",), "ge": ("ge",), "eq": ("eq",),
            "ne": ("ne",), "not": ("not_",), "truth": ("truth",),
        }.items()
    ),
)  # fmt: skip
