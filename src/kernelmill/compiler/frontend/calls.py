"""The table of callables, and how each kind of Python callable is called. No syntax here."""

from __future__ import annotations

import ast
import builtins
import functools
import math
import operator
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from kernelmill.compiler import functions, ir
from kernelmill.compiler.frontend import refusals
from kernelmill.compiler.frontend.scope import item_of, nearest, part_of
from kernelmill.compiler.frontend.values import Closure, Known, Value
from kernelmill.compiler.intrinsics import OPERATIONS, SPELLINGS
from kernelmill.compiler.source import FunctionSource
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
    from collections.abc import Callable, Mapping, Sequence

    from kernelmill.compiler.frontend.frame import Frame

__all__ = ["NO_SOURCE", "Arguments", "both", "call", "cast_to", "check_callable", "known_callables"]

# Where a callable of the table is itself the operator there is no text to point at.
NO_SOURCE: Final = FunctionSource(
    ast.parse("lambda: operator", mode="eval").body,  # type: ignore[arg-type]  # a Lambda
    "",
    (),
)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call."""

    positional: Sequence[Value]
    keywords: Mapping[str, Value] = field(default_factory=dict)


def call(frame: Frame, callee: Value, args: Arguments, node: ast.AST) -> Value:
    """Call a value with arguments; raises OperatorError at `node` when it cannot be called."""
    with frame.at(node):
        if isinstance(callee, Closure):
            return frame.program.call_closure(frame, callee, args)
        if not isinstance(callee, Known):
            raise OperatorError("a value is called like a function", hint="write `*` for a product")
        return _call_object(frame, callee, args, node)


def _call_object(frame: Frame, callee: Known, args: Arguments, node: ast.AST) -> Value:
    found = callee.value
    row = known_callables().get(id(found)) or _well_known(found)
    if row is not None:
        frame.program.captures.bake(callee)
        return _call_row(frame, row, callee.name, args, node)
    struct = getattr(found, "__kernelmill_struct__", None)
    if isinstance(found, type) and isinstance(struct, StructType):
        frame.program.captures.bake(callee)
        return _construct(frame, callee, struct, args, node)
    if isinstance(found, DType) or (isinstance(found, type) and issubclass(found, np.generic)):
        if len(args.positional) != 1 or args.keywords:
            raise OperatorError(
                f"`{callee.name}` takes 1 argument, got {_given(args)}",
                hint=f"write `{callee.name}(x)`",
            )
        frame.program.captures.bake(callee)
        return cast_to(frame, frame.scalar(args.positional[0], node), found)
    return _call_python(frame, callee, args, node)


def _call_python(frame: Frame, callee: Known, args: Arguments, node: ast.AST) -> Value:
    """Call what is written in Python: functions, methods, partial objects, callable objects."""
    found = callee.value
    if isinstance(found, types.FunctionType):
        frame.program.captures.bake(callee)
        return frame.program.call_python(frame, found, args)
    if isinstance(found, functools.partial):
        frame.program.captures.bake(callee)
        return _call_partial(frame, callee, found, args, node)
    if isinstance(found, types.MethodType):
        owner = _part(callee, "__self__")
        return call(frame, _part(callee, "__func__"), _before(owner, args), node)
    for name in ("__kernelmill_operator__", "__wrapped__"):
        if name == "__wrapped__" and not isinstance(found, functools._lru_cache_wrapper):  # noqa: SLF001 - the class has no public name
            continue
        if callable(getattr(found, name, None)):
            return call(frame, _part(callee, name), args, node)
    method = getattr(type(found), "__call__", None)  # noqa: B004 - the function itself is wanted
    if not isinstance(method, types.FunctionType) or isinstance(found, type):
        raise _refusal(frame, callee, node)
    function = part_of(callee, ".__call__", method, lambda owner: type(owner).__call__)
    return call(frame, function, _before(callee, args), node)


def _part(owner: Known, name: str) -> Known:
    return part_of(owner, f".{name}", getattr(owner.value, name), operator.attrgetter(name))


def _before(owner: Known, args: Arguments) -> Arguments:
    return Arguments((owner, *args.positional), args.keywords)


def _call_partial(
    frame: Frame, callee: Known, found: functools.partial[Any], args: Arguments, node: ast.AST
) -> Value:
    """Call a partial object: the arguments it holds are captured."""
    captures = frame.program.captures
    held = _part(callee, "args")
    first = [captures.value_of(item_of(held, i)) for i in range(len(found.args))]
    named = {
        key: captures.value_of(part_of(callee, f".{key}", value, _keyword(key)))
        for key, value in found.keywords.items()
    }
    given = Arguments((*first, *args.positional), {**named, **args.keywords})
    return call(frame, _part(callee, "func"), given, node)


def _keyword(name: str) -> Callable[[Any], object]:
    return lambda found: found.keywords[name]


def _refusal(frame: Frame, callee: Known, node: ast.AST) -> OperatorError:
    name, found = callee.name, callee.value
    hint = _refused_builtin(callee)
    if hint is not None:
        return frame.refusal(node, f"`{name}` cannot be called in an operator", hint)
    inside = [n for n in ("py_func", "pyfunc") if isinstance(getattr(found, n, None), _PYTHON)]
    if inside:
        hint = f"call the Python function in it: `{name}.{inside[0]}`"
    elif isinstance(found, type):
        hint = "values are scalars, tuples and structs: `@km.struct class P: ...`"
    else:
        hint = "operators call math.*, NumPy's scalar functions and Python functions with source"
    kind = "class" if isinstance(found, type) else type(found).__name__
    close = nearest(name, list(_resolvable()), cutoff=0.8)
    return frame.refusal(
        node, f"`{name}` ({kind}) is not a function of the operator language{close}", hint
    )


def _refused_builtin(callee: Value) -> str | None:
    if not isinstance(callee, Known) or getattr(builtins, callee.name, None) is not callee.value:
        return None
    return refusals.BUILTINS.get(callee.name)


def check_callable(frame: Frame, callee: Value, node: ast.AST) -> None:
    """Refuse builtins such as `print` before a fault in their arguments is."""
    if isinstance(callee, Known) and _refused_builtin(callee) is not None:
        raise _refusal(frame, callee, node)


_PYTHON: Final = types.FunctionType


def _given(args: Arguments) -> int:
    return len(args.positional) + len(args.keywords)


def _construct(
    frame: Frame, callee: Known, type_: StructType, args: Arguments, node: ast.AST
) -> ir.Expr:
    """Build a struct from positional and keyword arguments."""
    names = [f.name for f in type_.fields]
    listed = ", ".join(names)
    if len(args.positional) > len(names):
        raise OperatorError(
            f"`{callee.name}` has {len(names)} fields, got {len(args.positional)} values",
            hint=f"its fields are {listed}",
        )
    given = dict(zip(names, args.positional, strict=False))
    for name, value in args.keywords.items():
        if name not in names or name in given:
            fault = "given twice" if name in given else "not a field"
            raise OperatorError(
                f"`{name}` is {fault} of `{callee.name}`", hint=f"its fields are {listed}"
            )
        given[name] = value
    missing = [n for n in names if n not in given]
    if missing:
        raise OperatorError(
            f"`{callee.name}` needs all its fields: missing {', '.join(missing)}",
            hint=f"its fields are {listed}",
        )
    return frame.builder.make_struct(type_, [frame.scalar(given[n], node) for n in names])


def cast_to(frame: Frame, value: ir.Expr, spec: object) -> ir.Expr:
    """Convert a scalar explicitly, as `np.float32(x)` and `x.astype(np.float32)` do."""
    wanted = dtype_of(spec)
    if isinstance(value.type, (StructType, TupleType)) or isinstance(wanted, StructType):
        raise OperatorError(
            f"{value.type} cannot be converted to {wanted}", hint="convert its fields one by one"
        )
    if _kind(value) == "complex" and wanted.kind != "complex":
        if wanted.kind == "bool":
            return frame.builder.truth(value)
        raise OperatorError(
            f"{value.type} cannot be converted to {wanted}",
            hint="write `x.real`, `x.imag` or abs(x)",
        )
    return frame.builder.cast(value, wanted)


def _kind(value: ir.Expr) -> str:
    assert isinstance(value.type, (DType, WeakType))
    return value.type.kind


# ----------------------------------------------------------------------------- the table

Handler: TypeAlias = "Callable[[Frame, Sequence[Value], ast.AST], Value]"
_MANY: Final = 255


@dataclass(frozen=True, slots=True)
class _Row:
    """A callable of the language: how many arguments it takes, and what it does with them."""

    spellings: tuple[str, ...]
    least: int
    most: int
    handler: Handler


def _call_row(frame: Frame, row: _Row, name: str, args: Arguments, node: ast.AST) -> Value:
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


def _operation(op: str) -> _Row:
    def handler(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
        return frame.builder.apply(op, *(frame.scalar(a, node) for a in args))

    return _Row((), OPERATIONS[op].arity, OPERATIONS[op].arity, handler)


def _well_known(found: object) -> _Row | None:
    """Return the operation that an object of the library says it is."""
    op = getattr(found, "__kernelmill_operator__", None)
    return _operation(op) if isinstance(op, str) and op in OPERATIONS else None


@functools.lru_cache(maxsize=1)
def _resolvable() -> tuple[str, ...]:
    return (*SPELLINGS, *(s for row in _ROWS for s in row.spellings))


_MODULES: Final = {"np": np, "math": math, "operator": operator, "km": functions, "": builtins}


def _resolve(spelling: str) -> object | None:
    module, _, name = spelling.rpartition(".")
    return getattr(_MODULES[module], name, None)


@functools.lru_cache(maxsize=1)
def known_callables() -> dict[int, _Row]:
    """Return the rows by the identity of the Python object; older NumPys lack some names."""
    table: dict[int, _Row] = {}
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
        return functools.reduce(functools.partial(both, frame, op), values, start)

    return handler


def both(frame: Frame, op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """Combine two bools by `and`, `or` or `xor`, without a node where one is known."""
    for known, other in ((a, b), (b, a)):
        if isinstance(known, ir.Const) and op != "xor":
            decides = bool(known.value) == (op == "or")
            return known if decides else other
    return frame.builder.apply(op, a, b)


def _logical(op: str) -> Handler:
    def handler(frame: Frame, args: Sequence[Value], node: ast.AST) -> Value:
        a, b = (frame.builder.truth(v) for v in _scalars(frame, args, node))
        return both(frame, op, a, b)

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
    if isinstance(value.type, (StructType, TupleType)) or _kind(value) == "complex":
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
    (as_float,), _ = OPERATIONS["fabs"].signature((value.type,))
    value = frame.leaf(build.cast(value, as_float))
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
    return frame.builder.apply("rint", frame.scalar(args[0], node))


_ROWS: Final = (
    _Row(("min",), 1, _MANY, _fold("min")),
    _Row(("max",), 1, _MANY, _fold("max")),
    _Row(("sum",), 1, 2, _sum),
    _Row(("any",), 1, 1, _truths("or", empty=False)),
    _Row(("all",), 1, 1, _truths("and", empty=True)),
    _Row(("len",), 1, 1, _length),
    _Row(("float",), 1, 1, _float),
    _Row(("complex",), 1, 1, _complex),
    _Row(("divmod", "np.divmod"), 2, 2, _divmod),
    _Row(("math.log",), 1, 2, _log),
    _Row(("math.hypot",), 2, _MANY, _hypot),
    _Row(("math.frexp", "np.frexp"), 1, 1, _frexp),
    _Row(("math.modf", "np.modf"), 1, 1, _modf),
    _Row(("np.where",), 3, 3, _where),
    _Row(("np.clip",), 2, 3, _clip),
    _Row(("np.logical_and",), 2, 2, _logical("and")),
    _Row(("np.logical_or",), 2, 2, _logical("or")),
    _Row(("np.logical_xor",), 2, 2, _logical("xor")),
    _Row(("np.reciprocal",), 1, 1, _reciprocal),
    _Row(("np.finfo",), 1, 1, _number_info(np.finfo)),
    _Row(("np.iinfo",), 1, 1, _number_info(np.iinfo)),
    _Row(("np.round", "np.around"), 1, 1, _rounded),
    *(
        _Row(
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
