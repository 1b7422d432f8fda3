"""Folds: how one operator of a reduction accumulates, in which type, and what it stores.

The order of combination is the business of the host templates; arrays, of `reduce.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from kernelmill.algorithms.weave import as_stored
from kernelmill.compiler.builder import FunctionBuilder, convert, tuple_item
from kernelmill.compiler.captured import pack_format
from kernelmill.compiler.ir import Program
from kernelmill.compiler.literals import integer_text, weak_type_of
from kernelmill.compiler.op import Op, Specialized, specialize
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    Type,
    WeakType,
    bfloat16,
    bool_,
    can_store,
    dtype_of,
    float32,
    int64,
    promote,
    storage,
    uint64,
)
from kernelmill.errors import ArgumentError, DTypeError, ScalarOverflowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.compiler.ir import Expr

__all__ = ["Fold", "element_program", "plan_fold"]

Element: TypeAlias = "DType | StructType"
# Where an operator with `wide` accumulates narrow types, as `np.add.reduce` does for integers.
_WIDE_KINDS: Final[dict[str, DType]] = {"bool": int64, "int": int64, "uint": uint64}
_HALVES: Final = frozenset(("float16", "bfloat16"))


@dataclass(frozen=True, slots=True)
class Fold:
    """One operator of a reduction, with its types and the value it starts from, if any.

    Of an accumulator that is a struct, `field` alone is stored where it is given.
    """

    op: Op
    combine: Specialized
    accumulator: Element
    out: Element
    init: object = None
    field: str = ""

    @property
    def ordered(self) -> bool:
        """Whether the operator must see the elements in order."""
        return not self.op.commutative

    @property
    def lacks_identity(self) -> bool:
        """Whether nothing stands for the result of no elements."""
        return self.init is None and self.op.identity_for(self.accumulator) is None

    def finish(self, out: Element) -> Program:
        """Return the program from the accumulator to what is stored: `init`, then conversion.

        Its captured scalars are those of the operator, then the scalars of `init`.
        """
        inner = self.combine.translation.program
        captures = list(inner.captures)
        builder = FunctionBuilder("finish", [("value", self.accumulator)])
        value: Expr = builder.param(0)
        functions = inner.functions
        if self.init is not None:
            start = _captured(builder, self.accumulator, captures)
            value = builder.call(inner.entry, [start, value])
            value = as_stored(value, self.accumulator)
        else:
            captures, functions = [], ()
        if self.field:
            value = builder.field(value, self.field)
        builder.return_(value if value.type == out else convert(value, out))
        return Program((*functions, builder.finish()), tuple(captures))

    def tail(self) -> bytes:
        """Pack the captured scalars of `finish`."""
        if self.init is None:
            return b""
        scalars = self.combine.read(self.op.function)
        assert scalars is not None, "the operator was specialized for this function just now"
        leaves = list(_leaves(self.init, self.accumulator))
        types = [c.stored for c in self.combine.translation.captures]
        layout = pack_format([*types, *(t for _, t in leaves)])
        values = pack_format(types).unpack_from(scalars)
        return layout.pack(*values, *(part for v, t in leaves for part in _parts(v, t)))

    def constant(self, out: Element) -> tuple[Program, bytes]:
        """Return a program without parameters for the result of no elements, and its scalars."""
        captures: list[tuple[str, Type]] = []
        builder = FunctionBuilder("constant", [])
        value = _captured(builder, self.accumulator, captures)
        builder.return_(value if value.type == out else convert(value, out))
        leaves = list(_leaves(self.empty(), self.accumulator))
        packed = pack_format([t for _, t in leaves]).pack(
            *(p for v, t in leaves for p in _parts(v, t))
        )
        return Program((builder.finish(),), tuple(captures)), packed

    def empty(self) -> Any:  # Any: a NumPy scalar, or a record
        """Return the result of no elements; raises ArgumentError when there is none."""
        value = self.init
        if value is None:
            value = self.op.identity_for(self.accumulator)
            _check_init("identity", value, self.accumulator)
        if value is None:
            raise ArgumentError(
                f"reduction of no elements with {self.op.name}, which has no identity",
                hint="pass `init=`, or declare one: `km.op(f, identity=...)`",
            )
        return value


def plan_fold(op: Op, element: Element, init: object, dtype: object) -> Fold:
    """Choose the types of a reduction of elements of one type.

    Raises DTypeError when the operator's result cannot accumulate its elements.
    """
    _check_init("init", init, element)
    if dtype is not None:
        out = dtype_of(dtype)
        accumulator = float32 if op.wide and out.name in _HALVES else out
        _check_dtype(op, element, accumulator)
        _check_kind(init, accumulator)
        return Fold(op, _combine(op, accumulator), accumulator, out, init)
    start = _with_init(element, init)
    if op.wide and isinstance(start, DType):
        out = _WIDE_KINDS.get(start.kind, start)
        accumulator = float32 if out.name in _HALVES else out
        return Fold(op, _combine(op, accumulator), accumulator, out, init)
    result = storage(specialize(op, (start, start)).result)
    if _are_fields(result, start):
        result = start
    if result != start and not (can_store(start, result) or result == bool_):
        raise DTypeError(
            f"{op.name} of two {start} gives {result}, which cannot be combined with {start}",
            hint="the result of an operator must be of the type of its arguments; "
            "return the struct class, or pass `dtype=`",
        )
    assert not isinstance(result, TupleType)
    _check_kind(init, result)
    return Fold(op, _combine(op, result), result, result, init)


def _check_init(name: str, value: object, element: Element) -> None:
    """Refuse a first value, or an identity, that is none for elements of this type."""
    if value is None:
        return
    if isinstance(element, StructType):
        names = [f.name for f in element.fields]
        of = value.dtype.names or () if isinstance(value, np.void) else names
        if list(of) == names and (isinstance(value, np.void) or hasattr(value, names[0])):
            return
        wanted = f"a record with the fields {', '.join(names)}"
    elif isinstance(value, (bool, int, float, complex, np.number, np.bool_)):
        return
    else:
        wanted = "a number"
    raise DTypeError(f"`{name}` is {value!r}; expected: {wanted}")


def _check_dtype(op: Op, element: Element, accumulator: Element) -> None:
    """Refuse a `dtype=` that the elements cannot be converted to."""
    if isinstance(element, DType) and isinstance(accumulator, DType):
        if element.kind != "complex" or accumulator.kind in ("complex", "bool"):
            return
    elif element == accumulator:
        return
    raise DTypeError(
        f"elements of {element} cannot be accumulated by {op.name} in {accumulator}",
        hint="convert them with `km.transform_reduce`, for example `lambda x: x.real`",
    )


def _check_kind(init: object, accumulator: Element) -> None:
    """Refuse a number that would lose its fraction or its imaginary part."""
    if init is None or not isinstance(accumulator, DType) or accumulator is bool_:
        return
    given = _given_type(init)
    if not can_store(given, accumulator) and not _are_integers(given, accumulator):
        raise DTypeError(
            f"`init` is {init!r}, the reduction accumulates in {accumulator}: not of the same kind",
            hint="convert it, or pass another `dtype=`",
        )


def _are_integers(given: Type, accumulator: DType) -> bool:
    """Whether both are integers: then the value decides, see `_converted`."""
    return isinstance(given, DType) and given.is_integer and accumulator.is_integer


def _given_type(init: object) -> Type:
    return dtype_of(init.dtype) if isinstance(init, np.generic) else weak_type_of(init)


def _combine(op: Op, accumulator: Element) -> Specialized:
    """Return the operator on two accumulators, whose result must be one."""
    found = specialize(op, (accumulator, accumulator))
    result = found.result
    same = storage(result) == accumulator or _are_fields(result, accumulator)
    if not same and not (isinstance(result, (DType, WeakType)) and can_store(result, accumulator)):
        raise DTypeError(
            f"{op.name} of two {accumulator} gives {result}; a reduction needs {accumulator}",
            hint="convert the result in the operator, or pass `dtype=`",
        )
    return found


def _are_fields(result: Type, struct: Element) -> bool:
    """Whether an operator returns the fields of a struct as a tuple."""
    return (
        isinstance(result, TupleType)
        and isinstance(struct, StructType)
        and len(result.items) == len(struct.fields)
        and all(
            can_store(item, f.type) or _are_fields(item, f.type)
            for item, f in zip(result.items, struct.fields, strict=True)
        )
    )


def _with_init(element: Element, init: object) -> Element:
    """Return the type in which elements and `init` meet."""
    if init is None or isinstance(element, StructType):
        return element
    met = storage(promote(element, _given_type(init)))
    assert isinstance(met, DType)
    return met


# ----------------------------------------------------------------------------- init as scalars


def _captured(builder: FunctionBuilder, type_: Element, captures: list[tuple[str, Type]]) -> Expr:
    """Return `init` as captures, one for each scalar in it; appends their slots."""
    if isinstance(type_, DType):
        slot = _slot(type_)
        captures.append((f"init_{len(captures)}", slot))
        return convert(builder.capture(len(captures) - 1, slot), type_)
    return builder.make_struct(type_, [_captured(builder, f.type, captures) for f in type_.fields])


def _leaves(value: Any, type_: Element) -> list[tuple[Any, DType]]:
    """Return the scalars in a value, in the order of the fields."""
    if isinstance(type_, DType):
        return [(_converted(value, _slot(type_)), _slot(type_))]
    found = []
    for field in type_.fields:
        part = value[field.name] if isinstance(value, np.void) else getattr(value, field.name)
        found += _leaves(part, field.type)
    return found


def _slot(type_: DType) -> DType:
    """Return the type in which a scalar is handed over: Python cannot pack a bfloat16."""
    return float32 if type_ is bfloat16 else type_


def _converted(value: Any, type_: DType) -> Any:  # Any: a Python number
    """Return `init` as a Python number of its type; integers must fit."""
    whole = type_.is_integer and isinstance(value, (int, np.integer))
    try:
        if not whole:
            return type_.to_numpy().type(value).item()
        fits = type_.min <= int(value) <= type_.max
    except OverflowError:  # an integer that no float is near
        fits = False
    if not fits:
        raise ScalarOverflowError(
            f"Python integer {integer_text(int(value))} out of bounds for {type_}",
            hint="`init` starts the result",
        )
    return int(value)


def _parts(value: Any, type_: DType) -> tuple[Any, ...]:
    return (value.real, value.imag) if type_.kind == "complex" else (value,)


# ----------------------------------------------------------------------------- elements


def element_program(
    inputs: Sequence[Type], transform: Specialized | None, folds: Sequence[Fold]
) -> Program | None:
    """Return the program from the inputs of one index to one accumulator for each fold.

    None when the one input is handed to all folds as it is. Raises ArgumentError when `transform`
    returns another number of values than there are folds.
    """
    wanted: list[Element] = [f.accumulator for f in folds]
    if transform is None and all(t == inputs[0] for t in wanted):
        return None
    builder = FunctionBuilder("element", [(f"x{i}", t) for i, t in enumerate(inputs)])
    functions: tuple[Any, ...] = ()
    captures: tuple[tuple[str, Type], ...] = ()
    value: Expr = builder.param(0)
    if transform is not None:
        program = transform.translation.program
        functions, captures = program.functions, program.captures
        value = builder.call(program.entry, [builder.param(i) for i in range(len(inputs))])
    values = [
        _as_accumulator(v, t) for v, t in zip(_spread(value, len(folds)), wanted, strict=True)
    ]
    builder.return_(values[0] if len(values) == 1 else builder.make_tuple(values))
    return Program((*functions, builder.finish()), captures)


def _spread(value: Expr, count: int) -> list[Expr]:
    """Return one value for each fold: the items of a tuple, or the same value for all."""
    if not isinstance(value.type, TupleType):
        return [value] * count
    if len(value.type.items) != count:
        raise ArgumentError(
            f"`transform` returns {len(value.type.items)} values for {count} operators",
            hint="return one value, or one for each operator",
        )
    return [tuple_item(value, i) for i in range(count)]


def _as_accumulator(value: Expr, wanted: Element) -> Expr:
    if isinstance(wanted, DType):
        return FunctionBuilder.cast(value, wanted)
    return convert(value, wanted)


def element_types(
    transform: Specialized | None, inputs: Sequence[Type], count: int
) -> list[Element]:
    """Return the type of the elements that each fold sees."""
    if transform is None:
        return [cast("Element", storage(inputs[0]))] * count
    stored = transform.stored
    items = stored if isinstance(transform.result, TupleType) else stored * count
    return list(items)
