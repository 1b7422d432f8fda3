"""How each kind of Python callable is called. The table of known ones is `callables.py`."""

from __future__ import annotations

import ast
import builtins
import functools
import operator
import types
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.compiler.frontend import kernel_calls, refusals
from kernelmill.compiler.frontend.callables import (
    Arguments,
    call_row,
    kind_of,
    known_callables,
    spellings_of_all,
    well_known,
)
from kernelmill.compiler.frontend.raw import call_raw
from kernelmill.compiler.frontend.scope import item_of, nearest, part_of
from kernelmill.compiler.frontend.values import Closure, Known, Value
from kernelmill.compiler.kernel_functions import LOOPS
from kernelmill.compiler.raw import RawOp
from kernelmill.compiler.source import FunctionSource
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    dtype_of,
)
from kernelmill.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.compiler import ir
    from kernelmill.compiler.frontend.frame import Frame

__all__ = ["NO_SOURCE", "Arguments", "call", "cast_to", "check_callable"]

# Where a callable of the table is itself the operator there is no text to point at.
NO_SOURCE: Final = FunctionSource(
    ast.parse("lambda: operator", mode="eval").body,  # type: ignore[arg-type]  # a Lambda
    "",
    (),
)


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
    kernel = kernel_calls.kernel_row(found)
    if kernel is not None:
        frame.program.captures.bake(callee)
        return kernel_calls.call_kernel_function(frame, kernel, args, node)
    row = known_callables().get(id(found)) or well_known(found)
    if row is not None:
        frame.program.captures.bake(callee)
        return call_row(frame, row, callee.name, args, node)
    if isinstance(found, RawOp):
        return call_raw(frame, callee, found, args, node)
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
    if getattr(type(found), "__kernelmill_kernel__", False):
        raise OperatorError(
            f"`{callee.name}` is a kernel, which is launched and not called",
            hint="put what both do into a function without @km.kernel, and call that",
        )
    if any(found is loop for loop in LOOPS):
        raise OperatorError(
            f"`{callee.name}` is a loop over indices, not a value",
            hint=f"write `for i in {callee.name}(...):` and the work in it",
        )
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
    elif frame.program.kernel is not None and any(found is f for f in _ALLOCATING):
        hint = "write `km.local(shape, dtype)` or `km.shared(shape, dtype)`, and fill it in a loop"
    else:
        hint = "operators call math.*, NumPy's scalar functions and Python functions with source"
    kind = "class" if isinstance(found, type) else type(found).__name__
    close = nearest(name, spellings_of_all(), cutoff=0.8)
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
_ALLOCATING: Final = (np.zeros, np.empty, np.ones, np.full)


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
    values = [frame.scalar(given[n], node) for n in names]
    values = [frame.leaf(v) if isinstance(v.type, TupleType) else v for v in values]
    return frame.builder.make_struct(type_, values)


def cast_to(frame: Frame, value: ir.Expr, spec: object) -> ir.Expr:
    """Convert a scalar explicitly, as `np.float32(x)` and `x.astype(np.float32)` do."""
    wanted = dtype_of(spec)
    if isinstance(value.type, (StructType, TupleType)) or isinstance(wanted, StructType):
        raise OperatorError(
            f"{value.type} cannot be converted to {wanted}", hint="convert its fields one by one"
        )
    if kind_of(value) == "complex" and wanted.kind != "complex":
        if wanted.kind == "bool":
            return frame.builder.truth(value)
        raise OperatorError(
            f"{value.type} cannot be converted to {wanted}",
            hint="write `x.real`, `x.imag` or abs(x)",
        )
    return frame.builder.cast(value, wanted)
