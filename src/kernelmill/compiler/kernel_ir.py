"""What kernels add to the intermediate representation: memory, effects, indices of threads.

Expressions stay pure: whatever reads or changes memory, or waits for other threads, is a statement
at its place, an `Effect`, and its result is a local variable. Operators hold them where they use
arrays that they captured: those lie at an address, and each element is a `Cell`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kernelmill.dtypes import DType, StructType, TupleType, Type, int32, weak_int

if TYPE_CHECKING:
    from kernelmill.compiler import ir
    from kernelmill.errors import SourceSpan

__all__ = [
    "UNIT",
    "Array",
    "Atomic",
    "Below",
    "Cell",
    "Effect",
    "Extent",
    "Invoke",
    "Kernel",
    "Layout",
    "Load",
    "Order",
    "Perform",
    "Place",
    "Scope",
    "Space",
    "Special",
    "Store",
]

# What a procedure returns: a tuple of no items.
UNIT: Final = TupleType(())

Space: TypeAlias = Literal["global", "shared", "dynamic", "local", "constant", "captured"]
# How the elements of a global array lie: in C order without gaps, rows without gaps, anywhere.
Layout: TypeAlias = Literal["contiguous", "rows", "strided"]
Order: TypeAlias = Literal["relaxed", "acquire", "release", "acquire_release", "sequential"]
Scope: TypeAlias = Literal["block", "device", "system"]

# Threads: index in the block, index of the block, block and grid sizes, in x, y, z.
SPECIALS: Final = tuple(
    f"{name}.{axis}" for name in ("threadIdx", "blockIdx", "blockDim", "gridDim") for axis in "xyz"
)


@dataclass(frozen=True, slots=True)
class Array:
    """Memory that a kernel sees under a name.

    `shape` is fixed, except for global arrays, whose extents are `Extent`s, and for dynamic shared
    memory, which is indexed flat. `data` are the elements of a constant array. `base` is the array
    of which this one sees all elements in C order.
    """

    name: str
    dtype: DType | StructType
    ndim: int
    space: Space
    shape: tuple[int, ...] | None = None
    layout: Layout = "contiguous"
    readonly: bool = False
    data: bytes = field(default=b"", repr=False)
    base: str = ""


# ----------------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a global array in one dimension."""

    array: str
    dim: int
    type: Type = weak_int


@dataclass(frozen=True, slots=True)
class Special:
    """An index or size of threads or blocks: one of `SPECIALS`, or `lane`."""

    name: str
    type: Type = weak_int


@dataclass(frozen=True, slots=True)
class Below:
    """An integer that is known to be at least 0 and less than `limit`."""

    value: ir.Expr
    limit: ir.Expr
    type: Type = weak_int


# ----------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Place:
    """An element of an array, or a field of one; one index a dimension, of an integer type."""

    array: str
    index: tuple[ir.Expr, ...]
    fields: tuple[str, ...]
    type: DType | StructType


@dataclass(frozen=True, slots=True)
class Cell(Place):
    """An element of an array that an operator captured, or a field of one.

    `index` is the address of the array, a captured uint64, the distance to the element in bytes, a
    weak int, and whether it lies in the array: outside zero is read, and nothing is written.
    """


class Effect:
    """A statement that reads or changes memory, or takes part in what several threads do.

    `name` is the local variable that takes its result, None for none; `span` is its line.
    """

    __slots__ = ()
    name: str | None
    span: SourceSpan | None

    @property
    def result(self) -> Type | None:
        """Type of the result, None where there is none."""
        raise NotImplementedError

    def operands(self) -> tuple[ir.Expr, ...]:
        """Return the expressions that are evaluated before it."""
        raise NotImplementedError

    def with_operands(self, values: tuple[ir.Expr, ...]) -> Effect:
        """Return the same effect on other operands."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Load(Effect):
    """Read an element into a local."""

    name: str
    place: Place
    span: SourceSpan | None = field(default=None, compare=False)

    @property
    def result(self) -> Type:
        """The type of the element."""
        return self.place.type

    def operands(self) -> tuple[ir.Expr, ...]:
        """Return the indices."""
        return self.place.index

    def with_operands(self, values: tuple[ir.Expr, ...]) -> Load:
        """Return the same with other indices."""
        return replace(self, place=replace(self.place, index=values))


@dataclass(frozen=True, slots=True)
class Store(Effect):
    """Write a value, of the type of the place."""

    place: Place
    value: ir.Expr
    span: SourceSpan | None = field(default=None, compare=False)
    name: None = None

    @property
    def result(self) -> None:
        """Nothing."""

    def operands(self) -> tuple[ir.Expr, ...]:
        """Return the indices and the value."""
        return (*self.place.index, self.value)

    def with_operands(self, values: tuple[ir.Expr, ...]) -> Store:
        """Return the same with other indices and another value."""
        return replace(self, place=replace(self.place, index=values[:-1]), value=values[-1])


@dataclass(frozen=True, slots=True)
class Atomic(Effect):
    """An atomic operation on an element; its result is what the element held before.

    `op` is a row of `intrinsics.ATOMICS`; `values` have the type of the place.
    """

    name: str | None
    op: str
    place: Place
    values: tuple[ir.Expr, ...]
    order: Order
    scope: Scope
    span: SourceSpan | None = field(default=None, compare=False)

    @property
    def result(self) -> Type:
        """The type of the element."""
        return self.place.type

    def operands(self) -> tuple[ir.Expr, ...]:
        """Return the indices and the values."""
        return (*self.place.index, *self.values)

    def with_operands(self, values: tuple[ir.Expr, ...]) -> Atomic:
        """Return the same with other indices and values."""
        count = len(self.place.index)
        place = replace(self.place, index=values[:count])
        return replace(self, place=place, values=values[count:])


@dataclass(frozen=True, slots=True)
class Perform(Effect):
    """A function of a warp, a block or the device: a row of `intrinsics.EFFECTS`.

    `function` names the function of the program that combines two values, where the row takes one;
    `text` is what is printed or what failed.
    """

    name: str | None
    op: str
    args: tuple[ir.Expr, ...] = ()
    result: Type | None = None
    function: str | None = None
    text: str = ""
    options: tuple[str, ...] = ()
    span: SourceSpan | None = field(default=None, compare=False)

    def operands(self) -> tuple[ir.Expr, ...]:
        """Return the arguments."""
        return self.args

    def with_operands(self, values: tuple[ir.Expr, ...]) -> Perform:
        """Return the same with other arguments."""
        return replace(self, args=values)


@dataclass(frozen=True, slots=True)
class Invoke(Effect):
    """A call of a function of the program that has effects."""

    name: str | None
    call: ir.Call
    span: SourceSpan | None = field(default=None, compare=False)

    @property
    def result(self) -> Type:
        """What the function returns."""
        return self.call.type

    def operands(self) -> tuple[ir.Expr, ...]:
        """Return the arguments."""
        return self.call.args

    def with_operands(self, values: tuple[ir.Expr, ...]) -> Invoke:
        """Return the same with other arguments."""
        return replace(self, call=replace(self.call, args=values))


# ----------------------------------------------------------------------------- kernels


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel for one choice of arguments: its program, memory and number of threads.

    The parameters of the program's entry are the scalar arguments; `arguments` are all, in the
    order of the call: the name of an array, or the position of a scalar. With `wide` indices have
    64 bits, otherwise no array has more than 2**30 elements; with `small` the grid has no more
    threads than that. `limits` bounds the scalars that are integers. With `disjoint` no array
    overlaps another one that is written. `covered` says of each loop over the grid, in the order of
    the text, whether the grid covers it.
    """

    name: str
    program: ir.Program
    arrays: tuple[Array, ...]
    arguments: tuple[str | int, ...]
    block: tuple[int, int, int]
    wide: bool = False
    debug: bool = False
    disjoint: bool = False
    small: bool = False
    covered: tuple[bool, ...] = ()
    limits: tuple[tuple[int, int] | None, ...] = ()

    def array(self, name: str) -> Array:
        """Return the array of a name."""
        return next(a for a in self.arrays if a.name == name)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        x, y, z = self.block
        return x * y * z


def is_index(type_: Type) -> bool:
    """Whether values of a type can index an array."""
    return type_ == weak_int or (isinstance(type_, DType) and type_ == int32)
