"""The functions of kernels: what each call becomes. Loops over threads are `kernel_loops.py`."""

from __future__ import annotations

import ast
import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

import numpy as np

from kernelmill.compiler import ir, kernel_functions
from kernelmill.compiler.builder import convert
from kernelmill.compiler.frontend import calls, memory
from kernelmill.compiler.frontend.values import Closure, Dimension, Known, Memory, Value
from kernelmill.compiler.intrinsics import ATOMICS, EFFECTS
from kernelmill.compiler.kernel_ir import Array, Order, Scope, Special
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    Type,
    bool_,
    dtype_of,
    int32,
    storage,
    uint32,
    uint64,
    weak_int,
)
from kernelmill.errors import DTypeError, OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.compiler.frontend.callables import Arguments
    from kernelmill.compiler.frontend.frame import Frame
    from kernelmill.compiler.frontend.kernel_state import KernelState
    from kernelmill.compiler.intrinsics import EffectRow

__all__ = [
    "KernelRow",
    "call_kernel_function",
    "index_of",
    "kernel_row",
    "kernel_value",
    "print_values",
    "rank",
    "special",
]

Handler: TypeAlias = "Callable[[Frame, Sequence[Value], dict[str, Value], ast.AST], Value]"


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A function of kernels: how it is written, its parameters, and what it does with them.

    The last `optional` parameters may be left out; `keywords` are those that are named.
    """

    spelling: str
    parameters: tuple[str, ...]
    handler: Handler
    optional: int = 0
    keywords: tuple[str, ...] = field(default=())


def kernel_row(found: object) -> KernelRow | None:
    """Return what a Python object is as a function of kernels.

    The atomics of numba are ours: they take an array, an index or a tuple of them, and a value.
    """
    row = _rows().get(id(found))
    if row is None and isinstance(found, type) and found.__module__.startswith("numba"):
        owner, _, name = found.__qualname__.rpartition(".")
        return _foreign(name) if owner == "atomic" else None
    return row


def _foreign(name: str) -> KernelRow | None:
    """Return a row for what numba calls an atomic; None where it means something else."""
    found = getattr(kernel_functions.atomic, name, None)
    return None if found is None else _rows().get(id(found))


def call_kernel_function(frame: Frame, row: KernelRow, args: Arguments, node: ast.AST) -> Value:
    """Call a function of kernels; raises OperatorError where it cannot be called so."""
    name = f"km.{row.spelling}"
    if frame.program.kernel is None and not row.spelling.startswith("atomic."):
        raise OperatorError(
            f"`{name}` exists only inside a kernel",
            hint="an operator computes from its arguments alone; write a kernel: @km.kernel",
        )
    given = dict(zip(row.parameters, args.positional, strict=False))
    extra = set(args.keywords) - {*row.parameters, *row.keywords} | (
        set(given) & set(args.keywords)
    )
    needed = row.parameters[: len(row.parameters) - row.optional]
    missing = [p for p in needed if p not in given and p not in args.keywords]
    if extra or missing or len(args.positional) > len(row.parameters):
        listed = ", ".join((*row.parameters, *(f"{k}=" for k in row.keywords)))
        count = len(args.positional) + len(args.keywords)
        raise OperatorError(
            f"`{name}` takes ({listed}), got {count} argument{'' if count == 1 else 's'}",
            hint=f"write `{name}({', '.join(needed)})`",
        )
    named = {k: v for k, v in args.keywords.items() if k in row.keywords}
    values = [given.get(p, args.keywords.get(p)) for p in row.parameters]
    return row.handler(frame, [v for v in values if v is not None], named, node)


def _state(frame: Frame) -> KernelState:
    state = frame.program.kernel
    assert state is not None
    return state


# ----------------------------------------------------------------------------- memory


def _shape(frame: Frame, value: Value, name: str, node: ast.AST) -> tuple[int, ...]:
    made = frame.scalar(value, node)
    items = made.values if isinstance(made, ir.MakeTuple) else (made,)
    fixed = [v.value for v in items if isinstance(v, ir.Const) and type(v.value) is int]
    if len(fixed) < len(items) or not items:
        raise OperatorError(
            f"the shape of `km.{name}` is known only when the kernel runs",
            hint="use literals, captured integers or arguments annotated `km.static`"
            + ("; km.dynamic_shared takes any shape" if name == "shared" else ""),
        )
    if not all(n > 0 for n in fixed):
        raise OperatorError(f"the shape of `km.{name}` is {tuple(fixed)}: extents are 1 or more")
    return tuple(fixed)


def _dtype(frame: Frame, value: Value, name: str) -> DType | StructType:
    if not isinstance(value, Known):
        raise OperatorError(
            f"`km.{name}` takes a dtype", hint="write km.float32, np.int32 or `x.dtype`"
        )
    try:
        return dtype_of(frame.program.captures.bake(value))
    except DTypeError as error:
        raise OperatorError(f"`km.{name}`: {error.message}", hint=error.hint) from error


def _fixed_array(name: str) -> Handler:
    def handler(
        frame: Frame, args: Sequence[Value], named: dict[str, Value], node: ast.AST
    ) -> Value:
        del named
        shape = _shape(frame, args[0], name, node)
        dtype = _dtype(frame, args[1], name)
        key = ("array", id(node))
        return _state(frame).allocate(key, "shared" if name == "shared" else "local", shape, dtype)

    return handler


# Arrays in dynamic shared memory begin at multiples of this.
_DYNAMIC_UNIT: Final = 16


def _dynamic(frame: Frame, args: Sequence[Value], named: dict[str, Value], node: ast.AST) -> Value:
    del named
    state, build = _state(frame), frame.builder
    if frame.loops or not build.is_outermost or not frame.is_kernel:
        raise OperatorError(
            "`km.dynamic_shared` stands inside a loop, a branch or another function",
            hint="make the array at the top of the kernel",
        )
    dtype = _dtype(frame, args[1], "dynamic_shared")
    if _DYNAMIC_UNIT % dtype.itemsize:
        raise OperatorError(
            f"dynamic shared memory holds elements of 1, 2, 4, 8 or 16 bytes; {dtype} has "
            f"{dtype.itemsize}",
            hint="use an array for each field",
        )
    made = frame.scalar(args[0], node)
    items = made.values if isinstance(made, ir.MakeTuple) else (made,)
    extents = tuple(frame.leaf(build.cast(v, weak_int), "extent") for v in items)
    per_unit = _DYNAMIC_UNIT // dtype.itemsize
    first = state.dynamic if state.dynamic is not None else build.const(0)
    origin = frame.leaf(build.apply("mul", first, build.const(per_unit)), "origin")
    size = functools.reduce(lambda a, b: build.apply("mul", a, b), extents)
    rounded = build.apply("add", size, build.const(per_unit - 1))
    units = build.apply("floordiv", rounded, build.const(per_unit))
    state.dynamic = frame.leaf(build.apply("add", first, units), "used")
    array = Array(state.free_name("dynamic"), dtype, 1, "dynamic")
    state.arrays[array.name] = array
    return Memory(array, tuple(Dimension(None, e) for e in extents), extents, origin)


# ----------------------------------------------------------------------------- atomics


def _option(named: dict[str, Value], name: str, default: str, allowed: tuple[str, ...]) -> str:
    given = named.get(name)
    if given is None:
        return default
    value = given.value if isinstance(given, Known) else None
    if value not in allowed:
        shown = repr(value) if value is not None else "a value of the kernel"
        raise OperatorError(
            f"{name}={shown} does not exist", hint=f"choose one of {', '.join(map(repr, allowed))}"
        )
    return str(value)


_DEFAULT_ORDER: Final = {"load": "acquire", "store": "release"}
# Orders that a pure read or a pure write cannot have.
_WRONG_ORDERS: Final = {
    "load": ("release", "acquire_release"),
    "store": ("acquire", "acquire_release"),
}


def _atomic(name: str) -> Handler:
    row = ATOMICS[name]

    def handler(
        frame: Frame, args: Sequence[Value], named: dict[str, Value], node: ast.AST
    ) -> Value:
        array = args[0]
        if not isinstance(array, Memory):
            raise OperatorError(
                f"`km.atomic.{name}` takes an array first",
                hint=f"write km.atomic.{name}(x, i, ...)",
            )
        place = memory.place_at(frame, array, args[1], node)
        kind = place.type.kind if isinstance(place.type, DType) else "struct"
        if kind not in row.kinds or (name == "cas" and place.type.itemsize == 1):
            raise OperatorError(
                f"`km.atomic.{name}` is not defined for {place.type}",
                hint=f"it takes arrays of {', '.join(row.kinds)}"
                + (" of 2, 4 or 8 bytes" if name == "cas" else ""),
            )
        if place.type.itemsize > 8:  # noqa: PLR2004 - the widest that every chip changes at once
            raise OperatorError(f"`km.atomic.{name}` takes elements of up to 8 bytes")
        if array.array.readonly and name != "load":
            raise OperatorError(f"`{array.array.name}` is an array that cannot be written")
        if array.array.space in ("local", "constant"):
            raise OperatorError(
                f"`{array.array.name}` is seen by one thread only, or never changes",
                hint="atomics are for global and shared arrays",
            )
        default = _DEFAULT_ORDER.get(name, "relaxed")
        orders = tuple(o for o in get_args(Order) if o not in _WRONG_ORDERS.get(name, ()))
        order = _option(named, "order", default, orders)
        scope = _option(named, "scope", "device", get_args(Scope))
        values = [calls.cast_to(frame, frame.scalar(v, node), place.type) for v in args[2:]]
        if name == "sub":
            values = [frame.builder.apply("neg", v) for v in values]
        builder = memory.builder_of(frame)
        return builder.atomic(name, place, values, order, scope)  # type: ignore[arg-type]  # as checked

    return handler


# ----------------------------------------------------------------------------- warps and blocks


def rank(frame: Frame) -> ir.Expr:
    """Return the position of a thread in its block, x fastest."""
    x, y, z = _state(frame).block
    build = frame.builder
    made: ir.Expr = Special("threadIdx.x")
    if y > 1 or z > 1:
        rows: ir.Expr = Special("threadIdx.y")
        if z > 1:
            planes = build.apply("mul", Special("threadIdx.z"), build.const(y))
            rows = build.apply("add", planes, rows)
        made = build.apply("add", build.apply("mul", rows, build.const(x)), made)
    return made


def _rank(frame: Frame, args: Sequence[Value], named: dict[str, Value], node: ast.AST) -> Value:
    del args, named, node
    return rank(frame)


def _lane(frame: Frame, args: Sequence[Value], named: dict[str, Value], node: ast.AST) -> Value:
    del frame, args, named, node
    return Special("lane")


def _size(frame: Frame, args: Sequence[Value], named: dict[str, Value], node: ast.AST) -> Value:
    del args, named, node
    return frame.builder.const(_state(frame).threads)


def _fence(frame: Frame, args: Sequence[Value], named: dict[str, Value], node: ast.AST) -> Value:
    del args
    order = _option(named, "order", "acquire_release", get_args(Order)[1:])
    scope = _option(named, "scope", "device", get_args(Scope))
    memory.builder_of(frame).perform("fence", options=(order, scope))
    return _nothing(node)


def _nothing(node: ast.AST) -> Value:
    text = ast.unparse(node)
    return Known(text, None, lambda _: None, ("nothing", id(node)), constant=True)


def _effect(row: EffectRow) -> Handler:
    def handler(
        frame: Frame, args: Sequence[Value], named: dict[str, Value], node: ast.AST
    ) -> Value:
        del named
        build = memory.builder_of(frame)
        plain = row.values + row.tests + row.counts
        given = [frame.scalar(a, node) for a in args[:plain]]
        made = _values(frame, row, given[: row.values])
        made += [build.truth(v) for v in given[row.values : row.values + row.tests]]
        for value in given[row.values + row.tests :]:
            if not _is_integer(value.type):
                raise OperatorError(f"`{row.spelling}` takes an integer, got {value.type}")
            made.append(build.cast(value, int32))
        if row.waits == "block" and row.combines:
            _check_whole_warps(frame, row)
        function = None
        options: tuple[str, ...] = ()
        if row.combines:
            default = _before(made[0].type) if row.compares else _add()
            op = args[plain] if len(args) > plain else default
            wanted = bool_ if row.compares else None
            function = _combination(frame, op, made[0].type, node, result=wanted)
            if _is_symmetric(op, made[0].type):
                options = ("either_order",)
        result = build.perform(row.name, made, function=function, options=options)
        return _nothing(node) if row.result == "none" else result

    return handler


def _values(frame: Frame, row: EffectRow, given: list[ir.Expr]) -> list[ir.Expr]:
    """Give the values the type in which they are stored: that of the first one."""
    if not given:
        return []
    first = given[0]
    if isinstance(first.type, TupleType):
        raise OperatorError(f"`{row.spelling}` takes one value, got a tuple", hint="use a struct")
    stored = storage(first.type)
    if row.name == "match":
        stored = _match_type(stored)
        return [frame.builder.cast(first, stored)]
    return [convert(v, stored) for v in given]


def _match_type(stored: Type) -> DType:
    if not isinstance(stored, DType) or stored.kind not in ("bool", "int", "uint"):
        raise OperatorError(
            f"`km.warp.match` compares integers, got {stored}", hint="compare an index or a key"
        )
    return uint32 if stored.itemsize <= uint32.itemsize else uint64


def _is_integer(type_: Type) -> bool:
    return type_ == weak_int or (isinstance(type_, DType) and type_.is_integer)


def _check_whole_warps(frame: Frame, row: EffectRow) -> None:
    threads = _state(frame).threads
    if threads % 32:
        raise OperatorError(
            f"`{row.spelling}` needs whole warps; the block has {threads} threads",
            hint="launch blocks of a multiple of 32 threads",
        )


# Operators that give the same bits in either order; of -0.0 and 0.0, `min` and `max` take one.
_SYMMETRIC: Final = frozenset(
    ("add", "multiply", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or")
)


def _is_symmetric(op: Value, type_: Type) -> bool:
    from kernelmill.compiler.op import WELL_KNOWN  # noqa: PLC0415 - a cycle, as below

    name = getattr(op.value, "name", "") if isinstance(op, Known) else ""
    if not isinstance(op, Known) or WELL_KNOWN.get(name) is not op.value:
        return False
    whole = isinstance(type_, DType) and type_.is_integer
    return name in _SYMMETRIC or (whole and name in ("minimum", "maximum"))


def _add() -> Known:
    from kernelmill.compiler.op import add  # noqa: PLC0415 - a cycle: `op` imports the front end

    return Known("km.add", add, lambda _: add, ("constant", "km.add"), constant=True)


def _less(a: Any, b: Any) -> Any:
    return a < b


def _nan_last(a: Any, b: Any) -> Any:
    return a < b or (b != b and a == a)  # noqa: PLR0124 - whether it is nan


def _before(type_: Type) -> Known:
    """Return the order of values: nan is behind all numbers."""
    floats = isinstance(type_, DType) and type_.kind == "float"
    less = _nan_last if floats else _less
    return Known("the order of values", less, lambda _: less, ("order", floats), constant=True)


def _combination(
    frame: Frame, op: Value, type_: Type, node: ast.AST, *, result: DType | None
) -> str:
    """Translate an operator of two values; return the name of its function."""
    if not isinstance(op, (Known, Closure)):
        raise OperatorError(
            f"the operator of a {'sort' if result else 'reduction'} is a function of two values",
            hint="pass km.add, km.maximum, a lambda or a def function",
        )
    return frame.program.combination(frame, op, type_, result or type_, node)


# ----------------------------------------------------------------------------- printing

_FORMATS: Final = {"bool": "%s", "int": "%lld", "uint": "%llu", "float": "%g"}


def print_values(frame: Frame, node: ast.Call) -> Value:
    """Translate `print(...)`: texts, values and f-strings without formats."""
    between, behind = _separators(frame, node)
    texts: list[str] = []
    values: list[ir.Expr] = []
    for argument in node.args:
        parts = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
        pieces = [_printed(frame, part, values) for part in parts]
        texts.append("".join(pieces))
    memory.builder_of(frame).perform("print", values, text=between.join(texts) + behind)
    return _nothing(node)


def _separators(frame: Frame, node: ast.Call) -> tuple[str, str]:
    """Return what stands between the values of a `print`, and behind the last one."""
    found = {"sep": " ", "end": "\n"}
    for keyword in node.keywords:
        value = keyword.value
        text = value.value if isinstance(value, ast.Constant) else None
        if keyword.arg not in found or not isinstance(text, str):
            raise frame.refusal(
                value,
                "`print` takes `sep=` and `end=` in a kernel, each a text",
                "write the text itself: `sep=', '`",
            )
        found[keyword.arg] = text.replace("%", "%%")
    return found["sep"], found["end"]


def _printed(frame: Frame, node: ast.expr, values: list[ir.Expr]) -> str:
    """Return the format of a part of what is printed, and collect its value."""
    from kernelmill.compiler.frontend.expressions import evaluate  # noqa: PLC0415 - a cycle

    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace("%", "%%")
    if isinstance(node, ast.FormattedValue):
        if node.format_spec is not None or node.conversion != -1:
            raise frame.refusal(
                node, "a format is not part of kernels' printing", "write `{x}` alone"
            )
        node = node.value
    value = evaluate(frame, node)
    if isinstance(value, Known) and isinstance(value.value, str):
        return value.value.replace("%", "%%")
    made = frame.scalar(value, node)
    stored = storage(made.type)
    if not isinstance(stored, DType) or stored.kind not in _FORMATS:
        raise frame.refusal(
            node, f"{made.type} cannot be printed", "print its parts: `p.x`, `z.real`, `t[0]`"
        )
    values.append(made)
    return _FORMATS[stored.kind]


# ----------------------------------------------------------------------------- the table


def _effect_row(row: EffectRow) -> KernelRow:
    names = ("value", "init")[: row.values] + ("test",) * row.tests + ("count",) * row.counts
    operator = ("comparator",) if row.compares else ("op",) if row.combines else ()
    return KernelRow(
        row.spelling.removeprefix("km."),
        (*names, *operator),
        _effect(row),
        optional=int(row.combines),
    )


_ATOMIC_PARAMETERS: Final = {
    "load": ("array", "index"),
    "cas": ("array", "index", "expected", "value"),
}
_PLAIN: Final = ("fence", "print", "assert", "check")


@functools.lru_cache(maxsize=1)
def _rows() -> dict[int, KernelRow]:
    rows = [_effect_row(row) for row in EFFECTS.values() if row.name not in _PLAIN]
    rows += [
        KernelRow(
            f"atomic.{name}",
            _ATOMIC_PARAMETERS.get(name, ("array", "index", "value")),
            _atomic(name),
            keywords=("order", "scope"),
        )
        for name in ATOMICS
    ]
    rows += [
        KernelRow("shared", ("shape", "dtype"), _fixed_array("shared")),
        KernelRow("local", ("shape", "dtype"), _fixed_array("local")),
        KernelRow("dynamic_shared", ("shape", "dtype"), _dynamic),
        KernelRow("fence", (), _fence, keywords=("order", "scope")),
        KernelRow("warp.lane", (), _lane),
        KernelRow("block.rank", (), _rank),
        KernelRow("block.size", (), _size),
    ]
    return {id(_resolve(row.spelling)): row for row in rows}


def _resolve(spelling: str) -> object:
    found: object = kernel_functions
    for name in spelling.split("."):
        found = getattr(found, name)
    return found


# ----------------------------------------------------------------------------- indices


def index_of(frame: Frame, owner: Known, axis: str, node: ast.AST) -> Value | None:
    """Return `km.threadIdx.x` and its like as a value; None for an attribute of another object."""
    found = owner.value
    if not isinstance(found, kernel_functions.Indices):
        return None
    if axis not in ("x", "y", "z"):
        raise frame.refusal(
            node, f"`{owner.name}` has no attribute `{axis}`", "its attributes are x, y and z"
        )
    if frame.program.kernel is None:
        raise frame.refusal(
            node,
            f"`{owner.name}.{axis}` exists only inside a kernel",
            "an operator computes from its arguments alone; write a kernel: @km.kernel",
        )
    return special(frame, found.name, "xyz".index(axis))


def special(frame: Frame, name: str, axis: int) -> ir.Expr:
    """Return an index or a size; those that are known are constants."""
    state = _state(frame)
    if name == "blockDim":
        return frame.builder.const(state.block[axis])
    if name == "threadIdx" and state.block[axis] == 1:
        return frame.builder.const(0)
    if state.flat and axis and name in ("blockIdx", "gridDim"):
        return frame.builder.const(0 if name == "blockIdx" else 1)
    return Special(f"{name}.{'xyz'[axis]}")


def kernel_value(frame: Frame, known: Known) -> Value:
    """Return an object as a value of a kernel: a NumPy array becomes constant memory."""
    state = frame.program.kernel
    found = known.value
    if state is None or not isinstance(found, np.ndarray) or not math.prod(found.shape):
        return known
    frame.program.captures.bake(known)
    with_name = known.name.rpartition(".")[2]
    return state.constant(known.key, with_name, found)
