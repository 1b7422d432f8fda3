"""Expressions: one function a node of Python's syntax. Calls of known functions are `calls.py`."""

from __future__ import annotations

import ast
import enum
from typing import TYPE_CHECKING, Any, Final

from kernelmill.compiler import ir
from kernelmill.compiler.builder import tuple_item
from kernelmill.compiler.frontend import calls, kernel_calls, memory, refusals
from kernelmill.compiler.frontend.branches import conditional
from kernelmill.compiler.frontend.names import parameters
from kernelmill.compiler.frontend.scope import attribute, item_of, nearest
from kernelmill.compiler.frontend.values import OBJECTS, Closure, Known, Memory, Value
from kernelmill.compiler.kernel_ir import Place
from kernelmill.compiler.source import FunctionSource
from kernelmill.dtypes import DType, StructType, TupleType, WeakType, bool_
from kernelmill.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.compiler.frontend.frame import Frame
    from kernelmill.compiler.source import FunctionNode

__all__ = [
    "binary",
    "closure",
    "condition",
    "evaluate",
    "evaluate_scalar",
    "place_or_value",
    "unpack",
]


def evaluate(frame: Frame, node: ast.expr) -> Value:
    """Translate an expression; errors show the innermost node they belong to."""
    translator = _NODES.get(type(node))
    if translator is None:
        raise frame.unsupported(node)
    with frame.at(node):
        value = translator(frame, node)
        if not isinstance(value, OBJECTS):
            for part in ir.children(value):
                frame.fits(part, node, depth=1)
        return value


def evaluate_scalar(frame: Frame, node: ast.expr) -> ir.Expr:
    """Translate an expression that has a value at run time."""
    return frame.scalar(evaluate(frame, node), node)


def condition(frame: Frame, node: ast.expr) -> ir.Expr:
    """Translate an expression of which only the truth is wanted."""
    if isinstance(node, ast.BoolOp):
        return _bool_op(frame, node, condition)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _negate(frame, condition(frame, node.operand))
    value = evaluate_scalar(frame, node)
    if isinstance(value.type, (StructType, TupleType)):
        raise frame.refusal(node, f"{value.type} has no truth", "compare its fields: `x.a != 0`")
    with frame.at(node):
        return frame.builder.truth(value)


def _negate(frame: Frame, value: ir.Expr) -> ir.Expr:
    if isinstance(value, ir.Const):
        return frame.builder.const(not value.value)
    return frame.builder.apply("not", value)


# ----------------------------------------------------------------------------- leaves


def _constant(frame: Frame, node: ast.Constant) -> Value:
    value = node.value
    if isinstance(value, (bool, int, float, complex)):
        return frame.builder.const(value)
    return Known(repr(value), value, lambda _: value, ("literal", repr(value)), constant=True)


def _name(frame: Frame, node: ast.Name) -> Value:
    found = frame.lookup(node)
    return kernel_calls.kernel_value(frame, found) if isinstance(found, Known) else found


def _tuple(frame: Frame, node: ast.Tuple) -> Value:
    return frame.builder.make_tuple(_elements(frame, node.elts))


def _elements(frame: Frame, nodes: list[ast.expr]) -> list[ir.Expr]:
    """Translate the items of a tuple or call; `*t` gives all items of a tuple."""
    values: list[ir.Expr] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            values.extend(unpack(frame, evaluate_scalar(frame, node.value), node))
        else:
            values.append(evaluate_scalar(frame, node))
    return values


def unpack(frame: Frame, value: ir.Expr, node: ast.AST) -> list[ir.Expr]:
    """Return the items of a tuple value, or the fields of a struct."""
    if isinstance(value.type, StructType):
        struct = frame.leaf(value)
        return [frame.builder.field(struct, f.name) for f in value.type.fields]
    if not isinstance(value.type, TupleType):
        raise frame.refusal(
            node, f"{value.type} cannot be unpacked", "only tuples and structs are unpacked"
        )
    whole = frame.leaf(value)
    return [tuple_item(whole, i) for i in range(len(value.type.items))]


# ----------------------------------------------------------------------------- operators

_BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
    ast.LShift: "lshift", ast.RShift: "rshift",
}  # fmt: skip
_UNARY: Final[dict[type[ast.unaryop], str]] = {
    ast.USub: "neg",
    ast.UAdd: "pos",
    ast.Invert: "invert",
}
_COMPARE: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip


def binary(frame: Frame, op: ast.operator, left: ir.Expr, right: ir.Expr, node: ast.AST) -> ir.Expr:
    """Apply a binary operator."""
    name = _BINARY.get(type(op))
    if name is None:
        what, hint = refusals.OPERATORS[type(op)]
        raise frame.refusal(node, f"{what} is not part of the operator language", hint)
    return frame.builder.apply(name, left, right)


def _bin_op(frame: Frame, node: ast.BinOp) -> Value:
    left, right = evaluate_scalar(frame, node.left), evaluate_scalar(frame, node.right)
    return binary(frame, node.op, left, right, node)


def _unary_op(frame: Frame, node: ast.UnaryOp) -> Value:
    if isinstance(node.op, ast.Not):
        return condition(frame, node)
    return frame.builder.apply(_UNARY[type(node.op)], evaluate_scalar(frame, node.operand))


def _compare(frame: Frame, node: ast.Compare) -> Value:
    """Translate a chain of comparisons; each operand is evaluated once, none in vain."""
    for op in node.ops:
        if type(op) not in _COMPARE:
            name, hint = refusals.OPERATORS[type(op)]
            raise frame.refusal(node, f"{name} is not part of the operator language", hint)
    links = list(zip(node.ops, node.comparators, strict=True))
    return _chain(frame, evaluate_scalar(frame, node.left), links)


def _chain(frame: Frame, left: ir.Expr, links: list[tuple[ast.cmpop, ast.expr]]) -> ir.Expr:
    (op, right_node), *rest = links
    right = evaluate_scalar(frame, right_node)
    if rest:
        right = frame.leaf(right)
    first = frame.builder.apply(_COMPARE[type(op)], left, right)
    if not rest:
        return first
    if isinstance(first, ir.Const):
        return _chain(frame, right, rest) if first.value else first
    return conditional(
        frame,
        first,
        lambda: _chain(frame, right, rest),
        lambda: frame.builder.const(False),  # noqa: FBT003 - the literal
        bits="and",
    )


def _bool_op_value(frame: Frame, node: ast.BoolOp) -> Value:
    return _bool_op(frame, node, evaluate_scalar)


def _bool_op(
    frame: Frame, node: ast.BoolOp, operand: Callable[[Frame, ast.expr], ir.Expr]
) -> ir.Expr:
    """Translate `a and b` as `b if a else a`, and `a or b` as `a if a else b`.

    Two bools that cost nothing are combined bit by bit, without a branch.
    """
    is_and = isinstance(node.op, ast.And)
    left = operand(frame, node.values[0])
    for following in node.values[1:]:
        if isinstance(left.type, (StructType, TupleType)):
            raise frame.refusal(node, f"{left.type} has no truth", "compare its fields: `x.a != 0`")
        left = _short_circuit(frame, left, following, operand, is_and=is_and)
    return left


def _short_circuit(
    frame: Frame,
    left: ir.Expr,
    node: ast.expr,
    operand: Callable[[Frame, ast.expr], ir.Expr],
    *,
    is_and: bool,
) -> ir.Expr:
    if isinstance(left, ir.Const):
        return operand(frame, node) if bool(left.value) == is_and else left
    if left.type != bool_:
        left = frame.leaf(left)
    test = frame.builder.truth(left)

    def follow() -> ir.Expr:
        return operand(frame, node)

    def stay() -> ir.Expr:
        return left

    op = ("and" if is_and else "or") if left.type == bool_ else None
    return conditional(frame, test, *((follow, stay) if is_and else (stay, follow)), bits=op)


def _if_exp(frame: Frame, node: ast.IfExp) -> Value:
    test = condition(frame, node.test)
    if isinstance(test, ir.Const):
        return evaluate(frame, node.body if test.value else node.orelse)
    return conditional(
        frame,
        test,
        lambda: evaluate_scalar(frame, node.body),
        lambda: evaluate_scalar(frame, node.orelse),
    )


def _named_expr(frame: Frame, node: ast.NamedExpr) -> Value:
    frame.bind(node.target.id, evaluate(frame, node.value), node.target)
    return frame.bindings[node.target.id].value


# ----------------------------------------------------------------------------- parts of values


def place_or_value(frame: Frame, node: ast.expr) -> Place | Value:
    """Translate an expression; an element of an array, or a field of one, is not read yet."""
    if isinstance(node, ast.Subscript):
        owner = place_or_value(frame, node.value)
        with frame.at(node):
            if isinstance(owner, Memory):
                return memory.element(frame, owner, node)
            if isinstance(owner, Place) and isinstance(owner.type, StructType):
                index = evaluate(frame, node.slice)
                return memory.part(frame, owner, _field(frame, owner.type, index, node), node)
            return _subscript_of(frame, node, _read(frame, owner))
    if isinstance(node, ast.Attribute):
        place = place_or_value(frame, node.value)
        with frame.at(node):
            if isinstance(place, Place) and node.attr not in _parts_of(place):
                return memory.part(frame, place, node.attr, node)
            return _attribute_of(frame, node, _read(frame, place))
    return evaluate(frame, node)


def _parts_of(place: Place) -> tuple[str, ...]:
    """Return the attributes of an element that is a number: they are computed from its value."""
    return () if isinstance(place.type, StructType) else ("real", "imag")


def _read(frame: Frame, found: Place | Value) -> Value:
    return memory.read(frame, found) if isinstance(found, Place) else found


def _object_attribute(frame: Frame, owner: Known, node: ast.Attribute) -> Value:
    index = kernel_calls.index_of(frame, owner, node.attr, node)
    if index is not None:
        return index
    found = frame.program.captures.value_of(attribute(owner, node.attr))
    return kernel_calls.kernel_value(frame, found) if isinstance(found, Known) else found


def _attribute(frame: Frame, node: ast.Attribute) -> Value:
    return _read(frame, place_or_value(frame, node))


def _attribute_of(frame: Frame, node: ast.Attribute, owner: Value) -> Value:
    if isinstance(owner, Known):
        return _object_attribute(frame, owner, node)
    if isinstance(owner, Memory):
        return memory.array_attribute(frame, owner, node)
    value = frame.scalar(owner, node.value)
    if isinstance(value.type, StructType):
        return frame.builder.field(value, node.attr)
    if isinstance(value.type, (DType, WeakType)) and node.attr in ("real", "imag"):
        return frame.builder.apply(node.attr, value)
    named = _named_tuple_item(frame, node) or _member_value(frame, node)
    if named is not None:
        return named
    hint = refusals.METHODS.get(node.attr, "scalars have .real, .imag, .conjugate() and .astype(t)")
    raise frame.refusal(node, f"{value.type} has no attribute `{node.attr}`", hint)


def _named_tuple_item(frame: Frame, node: ast.Attribute) -> Value | None:
    """Return a field of a captured named tuple."""
    if not isinstance(node.value, ast.Name) or node.value.id in frame.names:
        return None
    known = frame.surroundings.find(node.value.id)
    fields = getattr(known.value, "_fields", ()) if known else ()
    if known is None or node.attr not in fields:
        return None
    frame.program.captures.bake_length(known)
    return frame.program.captures.value_of(item_of(known, fields.index(node.attr)))


def _member_value(frame: Frame, node: ast.Attribute) -> Value | None:
    """Return `.value` of a member of an enumeration of numbers, which is captured as a number."""
    member = _object(frame, node.value) if node.attr == "value" else None
    if member is None or not isinstance(member.value, enum.Enum):
        return None
    return frame.program.captures.value_of(attribute(member, "value"))


def _object(frame: Frame, node: ast.expr) -> Known | None:
    """Return the object of the surrounding Python that a name, or names with dots, stand for."""
    if isinstance(node, ast.Attribute):
        owner = _object(frame, node.value)
        return None if owner is None else attribute(owner, node.attr)
    if not isinstance(node, ast.Name) or node.id in frame.names or node.id in frame.variables:
        return None
    return frame.surroundings.find(node.id)


def _subscript(frame: Frame, node: ast.Subscript) -> Value:
    return _subscript_of(frame, node, evaluate(frame, node.value))


def _subscript_of(frame: Frame, node: ast.Subscript, owner: Value) -> Value:
    if isinstance(owner, Memory):
        return memory.read(frame, memory.element(frame, owner, node))
    if isinstance(node.slice, ast.Slice):
        raise frame.unsupported(node.slice)
    index = evaluate(frame, node.slice)
    if isinstance(owner, Known) and isinstance(owner.value, tuple):
        count = frame.program.captures.bake_length(owner)
        place = _index(frame, index, count, node)
        return frame.program.captures.value_of(item_of(owner, place))
    value = frame.scalar(owner, node.value)
    if isinstance(value.type, StructType):
        return frame.builder.field(value, _field(frame, value.type, index, node))
    if isinstance(value.type, TupleType):
        count = len(value.type.items)
        return tuple_item(frame.leaf(value), _index(frame, index, count, node))
    raise frame.refusal(
        node,
        f"{value.type} cannot be indexed: an operator sees one element",
        "pass each array that is read as an input of its own",
    )


def _field(frame: Frame, type_: StructType, index: Value, node: ast.Subscript) -> str:
    """Return the name of the field that `p["x"]` or `p[0]` names."""
    if isinstance(index, Known) and isinstance(index.value, str):
        frame.program.captures.bake(index)
        return index.value
    if isinstance(index, ir.Const) and type(index.value) is int:
        return type_.fields[_index(frame, index, len(type_.fields), node)].name
    raise frame.refusal(
        node,
        f"a field of struct {type_} is named by a string, or counted from 0",
        'write `x["a"]` or `x[0]`',
    )


def _index(frame: Frame, index: Value, count: int, node: ast.Subscript) -> int:
    if not isinstance(index, ir.Const) or not isinstance(index.value, int):
        raise frame.refusal(
            node.slice,
            "a tuple is indexed by an integer that is known when the operator is compiled",
            "write a literal, or loop: `for item in t`, `for i in range(3)` with fixed bounds",
        )
    if not -count <= index.value < count:
        raise frame.refusal(
            node, f"tuple index {index.value} is out of range", f"the tuple has {count} items"
        )
    return int(index.value) % count


# ----------------------------------------------------------------------------- calls


def _call(frame: Frame, node: ast.Call) -> Value:
    if isinstance(node.func, ast.Attribute):
        owner = evaluate(frame, node.func.value)
        if not isinstance(owner, (Known, Closure, Memory)):
            return _method(frame, frame.scalar(owner, node.func.value), node.func, node)
        if isinstance(owner, Closure):
            frame.scalar(owner, node.func.value)
    callee = evaluate(frame, node.func)
    if isinstance(callee, Known) and callee.value is print and frame.program.kernel is not None:
        return kernel_calls.print_values(frame, node)
    calls.check_callable(frame, callee, node)
    return calls.call(frame, callee, _arguments(frame, node), node)


def _arguments(frame: Frame, node: ast.Call) -> calls.Arguments:
    positional: list[Value] = []
    for item in node.args:
        if isinstance(item, ast.Starred):
            positional.extend(unpack(frame, evaluate_scalar(frame, item.value), item))
        else:
            positional.append(evaluate(frame, item))
    keywords: dict[str, Value] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise frame.refusal(
                keyword.value,
                "`**` in a call is not part of the operator language",
                "write the arguments by name: `f(a=a, b=b)`",
            )
        keywords[keyword.arg] = evaluate(frame, keyword.value)
    return calls.Arguments(positional, keywords)


def _method(frame: Frame, value: ir.Expr, func: ast.Attribute, node: ast.Call) -> Value:
    """Call a method of a scalar."""
    name = func.attr
    scalar = isinstance(value.type, (DType, WeakType))
    args = _arguments(frame, node)
    if scalar and name in ("conjugate", "conj") and not node.args:
        return frame.builder.apply("conj", value)
    if scalar and name == "astype":
        if len(args.positional) != 1 or args.keywords:
            raise OperatorError(
                "`astype` takes 1 argument, a dtype", hint="write `x.astype(np.int8)`"
            )
        spec = args.positional[0]
        if not isinstance(spec, Known):
            raise frame.refusal(node.args[0], "`astype` takes a dtype", "write `x.astype(np.int8)`")
        return calls.cast_to(frame, value, frame.program.captures.bake(spec))
    if isinstance(value.type, StructType) and value.type.field(name):
        raise frame.refusal(
            node, f"field `{name}` of {value.type} is not a function", "leave out the ()"
        )
    if isinstance(value.type, StructType):
        hint, close = f"structs have fields alone; call a function of it: `{name}(p)`", ""
    else:
        hint = refusals.METHODS.get(name, "scalars have .real, .imag, .conjugate() and .astype(t)")
        close = nearest(name, ["conjugate", "astype"])
    raise frame.refusal(func, f"{value.type} has no method `{name}`{close}", hint)


# ----------------------------------------------------------------------------- functions inside


def _lambda(frame: Frame, node: ast.Lambda) -> Value:
    return closure(frame, node, "<lambda>")


def closure(frame: Frame, node: FunctionNode, name: str) -> Closure:
    """Return a function that stands inside the operator; its defaults are evaluated now."""
    params = parameters(node)
    positional = [p.name for p in params if not p.keyword_only]
    given = node.args.defaults
    keyword_only = [p.name for p in params if p.keyword_only]
    defaults = [
        *zip(positional[len(positional) - len(given) :], given, strict=True),
        *zip(keyword_only, node.args.kw_defaults, strict=True),
    ]
    values = {key: _default(frame, key, value) for key, value in defaults if value is not None}
    source = FunctionSource(node, frame.source.filename, frame.source.lines)
    return Closure(name, node, source, frame.surroundings, values, frame.inner_variables)


def _default(frame: Frame, name: str, node: ast.expr) -> Value:
    value = evaluate(frame, node)
    return value if isinstance(value, OBJECTS) else frame.leaf(value, name)


_NODES: Final[dict[type[ast.expr], Callable[[Frame, Any], Value]]] = {
    ast.Attribute: _attribute,
    ast.BinOp: _bin_op,
    ast.BoolOp: _bool_op_value,
    ast.Call: _call,
    ast.Compare: _compare,
    ast.Constant: _constant,
    ast.IfExp: _if_exp,
    ast.Lambda: _lambda,
    ast.Name: _name,
    ast.NamedExpr: _named_expr,
    ast.Subscript: _subscript,
    ast.Tuple: _tuple,
    ast.UnaryOp: _unary_op,
}
