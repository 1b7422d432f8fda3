"""From arrays and iterators to operands and nodes: which memory an element is made of, and how.

The descriptions are in `iterators.py`, what nodes become in `weave.py`. Positions in sequences
stay known as long as they are `first + step * i`: then an array is an operand like any other,
which a template reads in packets; else it is an address, and read by index.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from kernelmill.algorithms import element_nodes as nodes
from kernelmill.algorithms import sequences
from kernelmill.algorithms.arguments import Argument, argument
from kernelmill.algorithms.layout import Operand
from kernelmill.algorithms.weave import Roots, slot_type
from kernelmill.compiler.op import specialize
from kernelmill.dtypes import (
    DType,
    StructType,
    TupleType,
    can_store,
    dtype_of,
    int64,
    storage,
    uint64,
)
from kernelmill.errors import ArgumentError, DTypeError, ShapeError
from kernelmill.runtime.devices import current_backend
from kernelmill.runtime.memory import View, is_on_cuda

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kernelmill.algorithms.layout import Access, Pattern
    from kernelmill.compiler.op import Op, Specialized
    from kernelmill.dtypes import Type
    from kernelmill.runtime.backend import Target

__all__ = [
    "Ground",
    "Leaf",
    "Position",
    "Spot",
    "StepOf",
    "Strand",
    "ended",
    "placeholder",
    "struct_of",
]

Form: TypeAlias = Literal["index", "address", "placed"]


# ----------------------------------------------------------------------------- operands


@dataclass(frozen=True, slots=True)
class Leaf(Argument):
    """An operand whose address counts: the index itself, an address, or one that is written to."""

    form: Form = "index"

    @property
    def operand(self) -> Operand:
        """How a loop moves it: an index by 1, an address not at all."""
        if self.form == "index":
            return Operand(self.view.shape, self.view.strides, 1)
        return Operand((), (), self.view.dtype.itemsize)

    def access(self, target: Target, pattern: Pattern) -> Access:
        """Return how a kernel reaches it: as what it is; an index that rests is an address."""
        del target
        return "address" if pattern == "broadcast" and self.form == "index" else self.form

    def apart_from(self, outputs: Sequence[Argument], *, elementwise: bool = True) -> Argument:
        """Return the operand, copied if an output overlaps it at all; an index is no memory."""
        del elementwise
        if self.form == "index":
            return self
        whole = Argument(self.name, self.view, self.type).apart_from(outputs, elementwise=False)
        return replace(self, view=whole.view)


class _Nowhere:
    """Owns the view of an index: it decides neither device nor library of a call with arrays."""

    is_copy = True


_NOWHERE: Final = _Nowhere()


class Position(NamedTuple):
    """Element `first + step * i` for the index i of a loop."""

    first: int
    step: int

    def of(self, outer: Position) -> Position:
        """Return where this one leads from positions that are themselves `outer`."""
        return Position(self.first + self.step * outer.first, self.step * outer.step)


# Known, or computed by a node.
Spot: TypeAlias = "Position | nodes.Node"
_EACH: Final = Position(0, 1)


@dataclass(frozen=True, slots=True)
class StepOf:
    """A number that is the stride of operand `at`, in bytes."""

    at: int


# ----------------------------------------------------------------------------- what a call is on


@dataclass(slots=True)
class Ground:
    """The arrays of a call as arguments, and the device and library that they decide."""

    arguments: dict[int, Argument]
    target: Target
    length: int

    @classmethod
    def of(cls, given: Iterable[tuple[str, Any]], length: int) -> Ground:
        """Return the ground of named parts, arrays or descriptions, for so many elements."""
        found: dict[int, Argument] = {}
        arrays = [(n, a) for n, part in given for a in sequences.arrays_of(part)]
        on_cuda = any(is_on_cuda(a) for _, a in arrays)
        for name, array in arrays:
            found.setdefault(id(array), argument(array, name, on_cuda=on_cuda))
        places = [a.view.place for a in found.values() if a.view.place is not None]
        target: Target = "cuda" if places else current_backend().target
        return cls(found, target, length)

    def index(self) -> Leaf:
        """Return the index of the loop as an operand."""
        made = next((a.view for a in self.arguments.values() if a.view.place is not None), None)
        made = made or next((a.view for a in self.arguments.values()), None)
        return Leaf("index", _index_view(made, self.length), int64, None, "index")


def ended(name: str, length: int | None) -> int:
    """Return how many elements there are; raises ArgumentError for what has no end."""
    if length is None:
        raise ArgumentError(
            f"`{name}` has no end", hint="pass `km.iterators.strided(it, 1, count=n)`"
        )
    return length


def placeholder(name: str, length: int, given: Sequence[Argument]) -> Leaf:
    """Return an operand without memory, beside others, that stands for so many elements."""
    return replace(Ground(dict(enumerate(given)), "host", length).index(), name=name)


def _index_view(like: View | None, length: int) -> View:
    """Return a view without memory, on the device of `like`, else on the current one."""
    parts: dict[str, Any] = {
        "ptr": 0, "shape": (length,), "strides": (1,), "dtype": int64, "readonly": True,
        "owner": _NOWHERE,
    }  # fmt: skip
    if like is not None and like.place is not None:
        return replace(like, **parts, producer=None)  # type: ignore[call-arg]  # it is a DeviceView
    backend = current_backend()
    if like is not None or not backend.name.startswith("cuda"):
        return View(**parts, library="numpy")
    from kernelmill.runtime.cuda.arrays import DeviceView  # noqa: PLC0415 - for such devices only

    number = int(backend.name.partition(":")[2])
    return DeviceView(**parts, library="dlpack", device=number, maker="cuda")


# ----------------------------------------------------------------------------- reading and writing


@dataclass(slots=True)
class Strand:
    """What elements are made of: operands, operators and numbers, as nodes are added."""

    ground: Ground
    operands: list[Argument] = field(default_factory=list)
    operators: list[Specialized] = field(default_factory=list)
    functions: list[object] = field(default_factory=list)
    numbers: list[np.generic | StepOf] = field(default_factory=list)
    types: list[DType] = field(default_factory=list)
    outputs: list[tuple[nodes.Node, Argument]] = field(default_factory=list)

    def number(self, value: Any, type_: DType = int64) -> nodes.Number:
        """Add a number of the call; integers wrap."""
        kept = slot_type(type_)
        if not isinstance(value, StepOf):
            if kept.is_integer and not isinstance(value, np.generic):
                value = (int(value) - kept.min & (1 << kept.bits) - 1) + kept.min
            value = kept.to_numpy().type(value)
        self.numbers.append(value)
        self.types.append(type_)
        return nodes.Number(len(self.numbers) - 1, type_)

    def operand(self, given: Argument, type_: Type | None = None) -> nodes.Leaf:
        """Add an operand; the same one is added once."""
        type_ = given.type if type_ is None else type_
        for at, known in enumerate(self.operands):
            if given.scalar is None and _is_same(known, given):
                return nodes.Leaf(at, type_)
        self.operands.append(given)
        return nodes.Leaf(len(self.operands) - 1, type_)

    def apply(self, op: Op, args: Sequence[tuple[nodes.Node, Type]]) -> tuple[nodes.Apply, Type]:
        """Add an operator on values; returns its value and type."""
        operator = specialize(op, tuple(t for _, t in args))
        self.operators.append(operator)
        self.functions.append(op.function)
        made = nodes.Apply(len(self.operators) - 1, operator, tuple(n for n, _ in args))
        return made, operator.result

    def params(self) -> tuple[tuple[str, Type], ...]:
        """Name and type of each operand, as parameters of an element."""
        return tuple((f"x{i}", a.type) for i, a in enumerate(self.operands))

    def roots(self, operands: Sequence[Argument]) -> Roots:
        """Return where the captured scalars of a call are found, with its operands as they are."""
        numbers = tuple(
            np.int64(operands[n.at].view.strides[0]) if isinstance(n, StepOf) else n
            for n in self.numbers
        )
        return Roots(tuple(self.functions), numbers)

    # ------------------------------------------------------------------ positions

    def index(self, spot: Spot) -> nodes.Node:
        """Return a position as a value."""
        if not isinstance(spot, Position):
            return spot
        return self._walked(spot, self.operand(self.ground.index(), int64))

    def _walked(self, walk: Position, of: nodes.Node) -> nodes.Node:
        """Return `first + step * of`."""
        first = self.number(walk.first) if walk.first else None
        step = walk.step if walk.step in (1, -1) else self.number(walk.step)
        return of if first is None and step == 1 else nodes.Index(first, step, of)

    # ------------------------------------------------------------------ reading

    def read(self, part: Any, spot: Spot = _EACH) -> tuple[nodes.Node, Type]:
        """Return an element of an array or an iterator, and its type."""
        if not sequences.is_iterator(part):
            return self._array(part, spot)
        reader = _READERS.get(type(part))
        if reader is None:
            raise ArgumentError(
                f"an iterator of kind {type(part).__name__} cannot be read",
                hint="discard and transform_output are outputs",
            )
        return reader(self, part, spot)

    def _array(self, array: Any, spot: Spot, how: str = "") -> tuple[nodes.Node, Type]:
        given = self.ground.arguments[id(array)]
        view = given.view
        if isinstance(spot, Position) and not how:
            view = walked_view(view, spot, self.ground.length)
            return self.operand(replace(given, view=view)), view.dtype
        if not how:
            anywhere = self.ground.target == "cuda" and not view.is_aligned
            how = "element_anywhere" if anywhere else "element_at"
        base = Leaf(given.name, view, int64, None, "address")
        address = self.operand(base, int64)
        step = self.number(StepOf(address.at))
        return nodes.Element(how, address, step, self.index(spot), view.dtype), view.dtype

    def of_counting(self, part: sequences.Counting, spot: Spot) -> tuple[nodes.Node, Type]:
        """Return an element of a count, and its type."""
        dtype = part.dtype
        if dtype.is_integer and isinstance(spot, Position):
            spot = Position(int(part.start), int(part.step)).of(spot)
            if dtype == int64:
                return self.index(spot), int64
            return nodes.Stored(self.index(spot), dtype), dtype
        start = self.number(part.start, dtype)
        step = None if part.step == 1 else self.number(part.step, dtype)
        return nodes.Count(start, step, self.index(spot), dtype), dtype

    def of_constant(self, part: sequences.Constant, spot: Spot) -> tuple[nodes.Node, Type]:
        """Return the value, and its type."""
        del spot
        first = len(self.numbers)
        for value, type_ in _scalars(part.value, part.dtype):
            self.number(value, type_)
        return nodes.Value(first, part.dtype), part.dtype

    def of_transform(self, part: sequences.Transform, spot: Spot) -> tuple[nodes.Node, Type]:
        """Return what the operator gives, and its type."""
        made, type_ = self.apply(part.op, [self.read(p, spot) for p in part.parts])
        if isinstance(type_, TupleType):
            struct = struct_of(type_)
            return replace(made, type=struct), struct
        stored = storage(type_)
        return replace(made, type=stored), stored

    def of_zip(self, part: sequences.Zip, spot: Spot) -> tuple[nodes.Node, Type]:
        """Return the elements together, and its type."""
        items = [self.read(p, spot) for p in part.parts]
        struct = struct_of(TupleType(tuple(t for _, t in items)))
        return nodes.Pack(tuple(n for n, _ in items), struct), struct

    def of_permutation(self, part: sequences.Permutation, spot: Spot) -> tuple[nodes.Node, Type]:
        """Return the element at an index, and its type."""
        values, indices = part.parts
        at = self._places(indices, spot)
        count = sequences.length_of(values)
        if count is not None:
            at = nodes.Clip(at, self.number(count - 1))
        if count == 0 and self.ground.length:
            raise ArgumentError("`values` of permutation() has no elements to read")
        return self.read(values, at)

    def _places(self, indices: Any, spot: Spot) -> nodes.Node:
        at, type_ = self.read(indices, spot)
        if not isinstance(type_, DType) or not type_.is_integer:
            raise DTypeError(f"`indices` of permutation() are {type_}; expected: integers")
        if type_ == uint64:  # what int64 does not hold lies behind every end
            at = nodes.Clip(at, self.number((1 << 63) - 1, uint64))
        return at if type_ == int64 else nodes.Stored(at, int64)

    def of_walk(self, part: sequences.Walk, spot: Spot) -> tuple[nodes.Node, Type]:
        """Return the element at a step of a walk, and its type."""
        return self.read(part.parts[0], self.stepped(part, spot))

    def stepped(self, part: sequences.Walk, spot: Spot) -> Spot:
        """Return the position in a part of a walk over it."""
        walk = Position(part.first, part.step)
        return walk.of(spot) if isinstance(spot, Position) else self._walked(walk, spot)

    def of_shuffle(self, part: sequences.Shuffle, spot: Spot) -> tuple[nodes.Node, Type]:
        """Return a number of the order, and its type."""
        bits = max(2, (part.count - 1).bit_length())
        numbers = (
            self.number(part.count), self.number(bits), self.number(part.seed, uint64)
        )  # fmt: skip
        return nodes.Shuffled(self.index(spot), numbers), int64

    def of_cached(self, part: sequences.CacheModified, spot: Spot) -> tuple[nodes.Node, Type]:
        """Return an element that is read past a cache, and its type."""
        if self.ground.target == "host":
            return self._array(part.parts[0], spot)
        view = self.ground.arguments[id(part.parts[0])].view
        how = f"element_{part.modifier}" if view.is_aligned else ""
        return self._array(part.parts[0], spot, how)

    # ------------------------------------------------------------------ writing

    def write(self, part: Any, value: nodes.Node, type_: Type, spot: Spot = _EACH) -> None:
        """Add what of a value goes where, from an output or a description of one."""
        if not sequences.is_iterator(part):
            self._store(part, value, type_, spot)
            return
        match part:
            case sequences.Discard():
                return
            case sequences.Zip(parts=parts):
                items = _items(type_, len(parts))
                for at, (inner, item) in enumerate(zip(parts, items, strict=True)):
                    self.write(inner, nodes.Part(value, at), item, spot)
            case sequences.TransformOutput(parts=(inner,), op=op):
                made, result = self.apply(op, [(value, type_)])
                self.write(inner, made, result, spot)
            case sequences.Walk(parts=(inner,)):
                self.write(inner, value, type_, self.stepped(part, spot))
            case sequences.Permutation(parts=(inner, indices)):
                self.write(inner, value, type_, self._places(indices, spot))
            case _:
                raise ArgumentError(
                    f"an iterator of kind {type(part).__name__} cannot be written to",
                    hint="outputs are arrays, and discard, permutation, reverse, strided, "
                    "transform_output and zip of them",
                )

    def _store(self, array: Any, value: nodes.Node, type_: Type, spot: Spot) -> None:
        given = self.ground.arguments[id(array)]
        dtype = given.view.dtype
        if not _fits(type_, dtype):
            raise DTypeError(
                f"a result is {type_}, `{given.name}` has {dtype}: not of the same kind",
                hint="convert in the operator, for example `np.int32(...)`",
            )
        if isinstance(spot, Position):
            view = walked_view(given.view, spot, self.ground.length)
            stored = nodes.Stored(value, dtype)
            self.outputs.append((stored, replace(given, view=view)))
            return
        view = given.view
        count, step = self.number(view.shape[0]), self.number(view.strides[0])
        placed = nodes.Place(value, spot, count, step, dtype)
        self.outputs.append((placed, Leaf(given.name, view, dtype, None, "placed")))


def walked_view(view: View, walk: Position, length: int) -> View:
    """Return the elements of a view of one dimension at `length` positions."""
    if walk == _EACH and view.shape == (length,):
        return view
    if len(view.shape) != 1:
        raise ShapeError(f"an array of shape {view.shape} is taken together with iterators")
    (stride,) = view.strides
    return replace(
        view,
        ptr=view.ptr + walk.first * stride if length else view.ptr,
        shape=(length,),
        strides=(walk.step * stride,),
    )


def _is_same(known: Argument, given: Argument) -> bool:
    """Whether two operands are the same elements of the same memory, reached in the same way."""
    if type(known) is not type(given):
        return False
    if isinstance(known, Leaf) and isinstance(given, Leaf) and known.form != given.form:
        return False
    a, b = known.view, given.view
    return (a.ptr, a.shape, a.strides, a.dtype, known.type) == (
        b.ptr, b.shape, b.strides, b.dtype, given.type
    )  # fmt: skip


def struct_of(type_: TupleType) -> StructType:
    """Return the struct of a zip: fields f0, f1, …, as C lays them out."""
    made = dtype_of({f"f{i}": storage(t) for i, t in enumerate(type_.items)})
    assert isinstance(made, StructType)
    return made


def _items(type_: Type, count: int) -> tuple[Type, ...]:
    """Return the types of what a zip of outputs takes apart."""
    if isinstance(type_, TupleType):
        found: tuple[Type, ...] = type_.items
    elif isinstance(type_, StructType):
        found = tuple(f.type for f in type_.fields)
    else:
        found = (type_,)
    if len(found) != count:
        raise ArgumentError(f"a zip of {count} outputs takes {type_}, of {len(found)} values")
    return found


def _fits(type_: Type, dtype: DType | StructType) -> bool:
    """Whether a value may be stored so: a tuple as a struct with fields for its items."""
    if isinstance(type_, TupleType) and isinstance(dtype, StructType):
        return len(type_.items) == len(dtype.fields) and all(
            _fits(t, f.type) for t, f in zip(type_.items, dtype.fields, strict=True)
        )
    return not isinstance(type_, TupleType) and can_store(type_, dtype)


def _scalars(value: Any, type_: DType | StructType) -> Iterable[tuple[Any, DType]]:
    """Yield the scalars in a value, in the order of the fields."""
    if isinstance(type_, DType):
        yield value, type_
        return
    for at, member in enumerate(type_.fields):
        part = value[member.name] if isinstance(value, np.void) else value[at]
        yield from _scalars(part, member.type)


_Reader: TypeAlias = "Callable[[Strand, Any, Spot], tuple[nodes.Node, Type]]"
_READERS: Final[dict[type, _Reader]] = {
    sequences.Counting: Strand.of_counting,
    sequences.Constant: Strand.of_constant,
    sequences.Transform: Strand.of_transform,
    sequences.Zip: Strand.of_zip,
    sequences.Permutation: Strand.of_permutation,
    sequences.Walk: Strand.of_walk,
    sequences.Shuffle: Strand.of_shuffle,
    sequences.CacheModified: Strand.of_cached,
}
