"""What a Python expression is while it is translated. How names are resolved is `scope.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from kernelmill.compiler import ir
from kernelmill.compiler.kernel_ir import Array, Extent, Special
from kernelmill.dtypes import DType, StructType, TupleType, Type, WeakType

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from kernelmill.compiler.frontend.scope import Surroundings
    from kernelmill.compiler.source import FunctionNode, FunctionSource
    from kernelmill.errors import SourceSpan

__all__ = [
    "Binding",
    "Closure",
    "Conflict",
    "Dimension",
    "Known",
    "Memory",
    "Reader",
    "Unbound",
    "Value",
    "is_leaf",
    "lift",
    "same",
    "zero",
]


Reader: TypeAlias = "Callable[[object], object]"


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A Python object: a function, module, dtype, struct class, or a scalar not yet captured.

    `read` finds it again, starting from the callable that is the operator; `key` tells where it was
    found, so that one place gives one capture. A `constant` never changes as long as its `anchor`,
    usually a module, is the same object.
    """

    name: str
    value: object
    read: Reader
    key: Hashable
    constant: bool = False
    anchor: Known | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A lambda or def inside the operator: inlined where it is called.

    `variables` gives the current values of the variables of the function around it.
    """

    name: str
    node: FunctionNode
    source: FunctionSource
    surroundings: Surroundings
    defaults: Mapping[str, Value]
    variables: Callable[[], Mapping[str, Value]]


@dataclass(frozen=True, slots=True, eq=False)
class Unbound:
    """A variable that has no value on some way to this place."""

    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Conflict:
    """A variable whose values on two ways to this place have no common type."""

    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Dimension:
    """A dimension of an array that is not indexed yet: where it starts, and its extent."""

    start: ir.Expr | None
    extent: ir.Expr


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """An array of a kernel or one that an operator captured, or the part of one a slice names.

    `index` has an item a dimension of the array: a value, or what is left of the dimension. The
    elements of dynamic shared memory lie from `origin` on, with the extents `extents`. Those of a
    captured array lie from the address `origin` on, with the extents `extents` and, where they are
    not contiguous, `strides` in bytes.
    """

    array: Array
    index: tuple[ir.Expr | Dimension, ...]
    extents: tuple[ir.Expr, ...] = ()
    origin: ir.Expr | None = None
    strides: tuple[ir.Expr, ...] = ()

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """What is left to index."""
        return tuple(d for d in self.index if isinstance(d, Dimension))


Value: TypeAlias = ir.Expr | Known | Closure | Memory | Unbound | Conflict
OBJECTS: Final = (Known, Closure, Memory, Unbound, Conflict)


@dataclass(frozen=True, slots=True)
class Binding:
    """The current value of a Python variable, and where it got it."""

    value: Value
    span: SourceSpan | None = field(default=None, compare=False)


def is_leaf(value: ir.Expr) -> bool:
    """Whether a value may be written down twice at no cost."""
    match value:
        case ir.Const() | ir.Param() | ir.Capture() | ir.Local() | Extent() | Special():
            return True
        case ir.MakeTuple(values=values) | ir.MakeStruct(values=values):
            return all(is_leaf(v) for v in values)
        case ir.GetField(value=inner) | ir.GetItem(value=inner):
            return is_leaf(inner)
        case _:
            return False


def same(a: Value, b: Value) -> bool:  # noqa: PLR0911 - one way out a kind of value
    """Whether two values of a variable are certainly one; tells 0.0 from -0.0, nan equals nan."""
    match a, b:
        case Known(), Known():
            return a.value is b.value and a.key == b.key
        case Memory(), Memory():
            return a is b or (a.array == b.array and all(map(_same_index, a.index, b.index)))
        case ir.Const(value=x), ir.Const(value=y):
            return a.type == b.type and repr(x) == repr(y)
        case ir.MakeTuple(values=x), ir.MakeTuple(values=y):
            return len(x) == len(y) and all(map(same, x, y))
        case ir.MakeStruct(values=x), ir.MakeStruct(values=y):
            return a.type == b.type and all(map(same, x, y))
        case (ir.Param() | ir.Capture() | ir.Local(), ir.Param() | ir.Capture() | ir.Local()):
            return a == b
        case (Extent() | Special(), Extent() | Special()):
            return a == b
        case _:
            return a is b


def _same_index(a: ir.Expr | Dimension, b: ir.Expr | Dimension) -> bool:
    if isinstance(a, Dimension) and isinstance(b, Dimension):
        starts = a.start is b.start or (a.start is not None and a.start == b.start)
        return starts and a.extent == b.extent
    return not isinstance(a, Dimension) and not isinstance(b, Dimension) and same(a, b)


def zero(type_: Type) -> ir.Expr:
    """Return a value that is never read: it only makes a variable exist before a loop."""
    if isinstance(type_, TupleType):
        return ir.MakeTuple(tuple(zero(t) for t in type_.items), type_)
    if isinstance(type_, StructType):
        return ir.MakeStruct(tuple(zero(f.type) for f in type_.fields), type_)
    assert isinstance(type_, (DType, WeakType))
    values = {"bool": False, "float": 0.0, "complex": 0j}
    return ir.Const(values.get(type_.kind, 0), type_)


def lift(  # noqa: PLR0911 - one way out a kind of value
    value: Value, leaves: list[tuple[str, ir.Expr]], name: str, active: frozenset[int] = frozenset()
) -> tuple[Hashable, Value]:
    """Split an argument into what specialises a function and what is passed at run time.

    Appends the run-time parts to `leaves`, named after the argument, and returns a key of all the
    rest together with the argument as the called function sees it. Literals, captures, objects and
    functions specialise.
    """
    match value:
        case ir.Const(value=number):
            return ("const", value.type, repr(number)), value
        case Extent() | Special():
            return value, value
        case ir.Capture(index=index):
            return ("capture", index), value
        case ir.MakeTuple(values=values):
            parts = [lift(item, leaves, f"{name}_{i}", active) for i, item in enumerate(values)]
            items = tuple(_expression(part) for _, part in parts)
            made = ir.MakeTuple(items, TupleType(tuple(i.type for i in items)))
            return ("tuple", *(key for key, _ in parts)), made
        case Closure():
            return _lift_closure(value, leaves, name, active)
        case Memory():
            return _lift_memory(value, leaves, name)
        case Known() | Unbound() | Conflict():
            known = (id(value.value), value.key) if isinstance(value, Known) else ()
            return ("object", *known), value
        case _:
            leaves.append((name, value))
            return ("value", value.type), ir.Param(len(leaves) - 1, value.type)


def _lift_memory(
    memory: Memory, leaves: list[tuple[str, ir.Expr]], name: str
) -> tuple[Hashable, Value]:
    """Let the array specialise a function; indices and extents are passed as they are."""
    keys: list[Hashable] = ["memory", memory.array]

    def part(value: ir.Expr | None) -> ir.Expr | None:
        if value is None:
            keys.append(None)
            return None
        key, made = lift(value, leaves, f"{name}_{len(keys)}")
        keys.append(key)
        return _expression(made)

    index: list[ir.Expr | Dimension] = []
    for item in memory.index:
        if isinstance(item, Dimension):
            extent = part(item.extent)
            assert extent is not None
            index.append(Dimension(part(item.start), extent))
        else:
            made = part(item)
            assert made is not None
            index.append(made)
    extents = [made for made in map(part, memory.extents) if made is not None]
    strides = [made for made in map(part, memory.strides) if made is not None]
    origin = part(memory.origin)
    lifted = Memory(memory.array, tuple(index), tuple(extents), origin, tuple(strides))
    return tuple(keys), lifted


def _expression(value: Value) -> ir.Expr:
    assert not isinstance(value, OBJECTS)
    return value


def _lift_closure(
    closure: Closure, leaves: list[tuple[str, ir.Expr]], name: str, active: frozenset[int]
) -> tuple[Hashable, Value]:
    """Take the variables a function uses along with it, so that it can be called elsewhere."""
    if id(closure) in active:
        text = f"`{closure.name}` calls itself, which the operator language does not do"
        return ("recursion", closure.name), Unbound(text, "write the recursion as a loop")
    active |= {id(closure)}
    keys: list[Hashable] = ["function", id(closure.node)]
    taken: dict[str, Value] = {}
    given: dict[str, Value] = {}
    for target, values in ((taken, closure.variables()), (given, closure.defaults)):
        for variable, value in values.items():
            key, target[variable] = lift(value, leaves, f"{name}_{variable}", active)
            keys.append((variable, key))
    frozen = Closure(
        closure.name, closure.node, closure.source, closure.surroundings, given, lambda: taken
    )
    return tuple(keys), frozen
