"""Operators: what a user hands to an algorithm, and what it becomes for given element types.

`Op` holds a callable and the algebra it obeys; `specialize` translates it once for a choice of
types; how the captured scalars are read at each call is in `captured.py`. No C++ is printed here.
"""

from __future__ import annotations

import math
import operator
import threading
from dataclasses import dataclass, field, replace
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, overload

import numpy as np

from kernelmill.compiler import ir
from kernelmill.compiler.captured import Pointer, Reader, pointers, reader
from kernelmill.compiler.frontend import Translation, translate
from kernelmill.compiler.raw import RawOp
from kernelmill.dtypes import (
    DType,
    TupleType,
    Type,
    current_promotion,
    dtype_of,
    storage,
)
from kernelmill.errors import ArgumentError, OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.dtypes import PromotionTable, StructType
    from kernelmill.errors import SourceSpan

__all__ = [
    "WELL_KNOWN",
    "Op",
    "Specialized",
    "add",
    "as_op",
    "op",
    "root_of",
    "specialize",
]


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """An operator with the algebra it obeys; callable as the Python function it wraps.

    Parameters
    ----------
    function
        A Python function of the operator language, a NumPy ufunc or a function of `math`.
    name
        What errors, events and generated code call it.
    commutative
        Whether `f(a, b)` equals `f(b, a)`. Reductions of operators that do not commute keep the
        order of the elements.
    identity
        The value of an empty reduction, or None when there is none.
    wide
        Whether a reduction accumulates narrow types in wider ones, as `np.add.reduce` does:
        integers in 64 bits, float16 and bfloat16 in float32.
    """

    function: Callable[..., Any]
    name: str
    commutative: bool = False
    identity: object = None
    wide: bool = False

    def __repr__(self) -> str:
        known = WELL_KNOWN.get(self.name)
        return f"kernelmill.{self.name}" if known is self else f"<kernelmill.Op {self.name}>"

    def __call__(self, *args: object) -> Any:  # Any: whatever the user's function returns
        """Call the Python function itself; nothing is compiled."""
        return self.function(*args)

    @property
    def __kernelmill_operator__(self) -> Callable[..., Any]:
        """What the front end translates where the operator is called inside another one."""
        return self.function

    def identity_for(self, type_: Type) -> object:
        """Return the identity for an element type, or None."""
        if callable(self.identity) and isinstance(type_, DType):
            return self.identity(type_)
        return None if callable(self.identity) else self.identity

    def explain(self, *types: object) -> str:
        """Describe what the operator is for these argument types: results, captured and baked.

        Examples
        --------
        >>> import kernelmill as km
        >>> print(km.op(lambda a, b: a + 2 * b, name="axpy").explain(km.float32, km.float32))
        axpy(float32, float32) -> float32
        captured, read at each call: nothing
        baked into the code: nothing
        """
        arguments = tuple(dtype_of(t) for t in types)
        found = specialize(self, arguments)
        taken = ", ".join(f"{c.name}: {c.array or c.type}" for c in found.translation.captures)
        baked = ", ".join(b.name for b in found.translation.baked)
        head = f"{self.name}({', '.join(map(str, arguments))}) -> {found.result}"
        return (
            f"{head}\ncaptured, read at each call: {taken or 'nothing'}"
            f"\nbaked into the code: {baked or 'nothing'}"
        )


@overload
def op(
    function: Callable[..., Any],
    /,
    *,
    commutative: bool = ...,
    identity: object = ...,
    name: str = ...,
) -> Op: ...
@overload
def op(
    *, commutative: bool = ..., identity: object = ..., name: str = ...
) -> Callable[[Callable[..., Any]], Op]: ...
def op(
    function: Callable[..., Any] | None = None,
    /,
    *,
    commutative: bool = False,
    identity: object = None,
    name: str = "",
) -> Op | Callable[[Callable[..., Any]], Op]:
    """Declare what an operator obeys; works as a decorator too.

    Parameters
    ----------
    function
        A Python function of the operator language.
    commutative
        Promise that `f(a, b)` equals `f(b, a)`, which lets a reduction vectorise.
    identity
        The value of an empty reduction.
    name
        Used in errors and generated code; the function's own by default.

    Raises
    ------
    ArgumentError
        `function` is not callable.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> larger = km.op(lambda a, b: a if a > b else b, commutative=True)
    >>> km.reduce(np.array([3, 7, 5]), larger)
    np.int64(7)
    """
    if function is None:
        return lambda f: op(f, commutative=commutative, identity=identity, name=name)
    if not callable(function):
        raise ArgumentError(f"op() expects a function, got {function!r}")
    return Op(function, name or _name_of(function), commutative, identity)


def _name_of(function: Callable[..., Any]) -> str:
    found = getattr(function, "__name__", type(function).__name__)
    return "lambda" if found == "<lambda>" else str(found)


# ----------------------------------------------------------------------------- well-known


def _largest(type_: DType) -> float:
    return math.inf if type_.kind in ("float", "complex") else type_.max


def _smallest(type_: DType) -> float:
    return -math.inf if type_.kind in ("float", "complex") else type_.min


def _ones(type_: DType) -> int:
    return {"bool": 1, "int": -1}.get(type_.kind, type_.max)


def _constant(value: int) -> Callable[[DType], int]:
    return lambda _: value


WELL_KNOWN: Final[dict[str, Op]] = {
    "add": Op(np.add, "add", True, _constant(0), wide=True),  # noqa: FBT003 - a table
    "multiply": Op(np.multiply, "multiply", True, _constant(1), wide=True),  # noqa: FBT003
    "minimum": Op(np.minimum, "minimum", True, _largest),  # noqa: FBT003
    "maximum": Op(np.maximum, "maximum", True, _smallest),  # noqa: FBT003
    "logical_and": Op(np.logical_and, "logical_and", True, _constant(1)),  # noqa: FBT003
    "logical_or": Op(np.logical_or, "logical_or", True, _constant(0)),  # noqa: FBT003
    "bitwise_and": Op(np.bitwise_and, "bitwise_and", True, _ones),  # noqa: FBT003
    "bitwise_or": Op(np.bitwise_or, "bitwise_or", True, _constant(0)),  # noqa: FBT003
    "bitwise_xor": Op(np.bitwise_xor, "bitwise_xor", True, _constant(0)),  # noqa: FBT003
}
add = WELL_KNOWN["add"]
multiply = WELL_KNOWN["multiply"]
minimum = WELL_KNOWN["minimum"]
maximum = WELL_KNOWN["maximum"]
logical_and = WELL_KNOWN["logical_and"]
logical_or = WELL_KNOWN["logical_or"]
bitwise_and = WELL_KNOWN["bitwise_and"]
bitwise_or = WELL_KNOWN["bitwise_or"]
bitwise_xor = WELL_KNOWN["bitwise_xor"]

# What Python and NumPy call the same operators.
_ALIASES: Final[dict[object, Op]] = {
    **{row.function: row for row in WELL_KNOWN.values()},
    operator.add: WELL_KNOWN["add"],
    operator.mul: WELL_KNOWN["multiply"],
    operator.and_: WELL_KNOWN["bitwise_and"],
    operator.or_: WELL_KNOWN["bitwise_or"],
    operator.xor: WELL_KNOWN["bitwise_xor"],
}


def as_op(function: object, *, name: str = "op") -> Op:
    """Return `function` as an Op: itself, a well-known one, or a wrapped callable.

    Raises ArgumentError when it is not callable; `name` is the argument to name.
    """
    if isinstance(function, Op):
        return function
    if isinstance(function, RawOp):
        return Op(function, function.name, function.commutative, function.identity)
    if not callable(function):
        raise ArgumentError(
            f"`{name}` expects a function or a km.op, got {function!r}",
            hint="pass a lambda, a def function, or one of km.add, km.minimum, km.maximum, …",
        )
    try:
        known, meant = _ALIASES.get(function), _WHOLE_ARRAY.get(function)
    except TypeError:  # an unhashable callable
        known = meant = None
    if meant is not None:
        raise ArgumentError(
            f"`{name}` is np.{getattr(function, '__name__', '')}, which takes a whole array",
            hint=f"pass the operator of two elements: km.{meant}",
        )
    return known or Op(function, _name_of(function))


# Functions of NumPy that reduce an array themselves, and the operator that is meant.
_WHOLE_ARRAY: Final[dict[object, str]] = {
    np.sum: "add",
    np.prod: "multiply",
    np.min: "minimum",
    np.max: "maximum",
    np.all: "logical_and",
    np.any: "logical_or",
}

# ----------------------------------------------------------------------------- specialisation


@dataclass(frozen=True, slots=True)
class Specialized:
    """An operator for one choice of argument types, and how its captured scalars are packed.

    `read(root)` reads the captured scalars of a function of the same text and lays them out as the
    kernel expects them, in `size` bytes. It gives None when what was baked, or the type of what was
    captured, no longer holds, and raises OverflowError when an integer does not fit the types it
    meets, as NumPy does. Addresses of captured arrays are 0 there; `pointers` are their places.
    """

    op: Op = field(compare=False)
    arguments: tuple[Type, ...]
    translation: Translation
    size: int
    read: Reader = field(repr=False, compare=False)
    pointers: tuple[Pointer, ...] = field(default=(), repr=False, compare=False)

    @property
    def result(self) -> Type:
        """The result type as inferred; a weak one is stored as `dtypes.storage` says."""
        return self.translation.program.entry.result

    @property
    def results(self) -> tuple[Type, ...]:
        """The types of its results as inferred, one or several.

        Raises OperatorError, at the place of the result, for a tuple of fewer than two.
        """
        result = self.result
        if not isinstance(result, TupleType):
            return (result,)
        if len(result.items) <= 1:
            raise self._refused(
                f"returns a tuple of {len(result.items)}; several results are two or more",
                "return the value itself",
            )
        return result.items

    @property
    def stored(self) -> tuple[DType | StructType, ...]:
        """The element types of its results, one or several.

        Raises OperatorError, at the place of the result, for tuples that no array stores.
        """
        found = tuple(map(storage, self.results))
        made = tuple(t for t in found if not isinstance(t, TupleType))
        if len(made) < len(found):
            raise self._refused("returns a tuple inside a tuple", "return one flat tuple")
        return made

    def _refused(self, message: str, hint: str) -> OperatorError:
        place = _place_of_result(self.translation.program)
        return OperatorError(f"{self.op.name} {message}", span=place, hint=hint)

    @property
    def kept(self) -> Specialized:
        """The same for whoever lives longer than a call: without the arrays that it captured."""
        if not self.pointers or self.op.function is _gone:
            return self
        return replace(self, op=replace(self.op, function=_gone))

    @property
    def is_static(self) -> bool:
        """Whether nothing of the user's scope can change what the kernel does."""
        return not (self.translation.captures or self.translation.baked)


def _place_of_result(program: ir.Program) -> SourceSpan | None:
    """Return where the user's function returns: the entry, or what it hands the call on to."""
    functions = {f.name: f for f in program.functions}
    function = program.entry
    while True:
        statements = ir.walk_statements(function.body)
        first = next((s for s in statements if isinstance(s, ir.Return)), None)
        if first is None or first.span is not None or not isinstance(first.value, ir.Call):
            return None if first is None else first.span
        function = functions[first.value.function]


# Translations that are kept: texts with argument types, and states of the scope of each.
_MOST_TEXTS: Final = 4096
_MOST_STATES: Final = 8
# Types of callables that define equality, as the same function of the same object.
_COMPARED_BY_IDENTITY: Final = (BuiltinFunctionType, MethodType)
_LOCK: Final = threading.Lock()
_Key: TypeAlias = "tuple[object, tuple[Type, ...], PromotionTable]"
_FOUND: dict[_Key, list[Specialized]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class _Itself:
    """A callable by its identity, whatever its own idea of equality."""

    function: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.function is self.function

    def __hash__(self) -> int:
        return id(self.function)


def root_of(function: object) -> object:
    """Return what identifies the text of a callable: its code object, or the callable itself."""
    if isinstance(function, FunctionType):
        return function.__code__
    if isinstance(function, RawOp):
        return function.key
    if type(function).__eq__ is object.__eq__ or isinstance(function, _COMPARED_BY_IDENTITY):
        return function
    return _Itself(function)


def specialize(operator_: Op, arguments: tuple[Type, ...]) -> Specialized:
    """Return the operator for these argument types, translated at most once per state of its scope.

    Promotion follows the current table (`dtypes.promotion`).

    Raises OperatorError when the operator language refuses it.
    """
    function = operator_.function
    key = (root_of(function), arguments, current_promotion())
    known = _known(key, function)
    if known is not None:
        return known
    translation = translate(function, arguments)
    found = pointers(translation.captures)
    if found:
        operator_, translation = _apart(operator_, translation)
    read, size = reader(translation.captures, translation.baked)
    made = Specialized(operator_, arguments, translation, size, read, found)
    with _LOCK:
        # Another thread may have been quicker; two for one state would be two kernels.
        known = _known(key, function)
        if known is not None:
            return known
        if len(_FOUND) >= _MOST_TEXTS:
            _FOUND.clear()
        states = _FOUND.setdefault(key, [])
        states[:] = [made, *states[: _MOST_STATES - 1]]
    return made


def _apart(operator_: Op, translation: Translation) -> tuple[Op, Translation]:
    """Return both without the function, which would keep alive the arrays that it captured."""
    captures = tuple(replace(c, read=_gone) for c in translation.captures)
    baked = tuple(replace(b, read=_gone) for b in translation.baked)
    kept = replace(translation, captures=captures, baked=baked)
    return replace(operator_, function=_gone), kept


def _gone(*_: object) -> NoReturn:
    raise AssertionError("what is captured is read through the function of a call")


def _known(key: _Key, function: object) -> Specialized | None:
    """Return the translation of this text for the present state of the function's scope."""
    for found in tuple(_FOUND.get(key, ())):
        if found.read(function) is not None:
            return found
    return None
