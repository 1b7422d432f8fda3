"""What iterators are: frozen descriptions, the arrays in them, and how long they are.

The functions that make them are in `iterators.py`, what a kernel makes of them is in `feeds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kernelmill.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelmill.compiler.op import Op
    from kernelmill.dtypes import DType, StructType

__all__ = [
    "CacheModified",
    "Constant",
    "Counting",
    "Discard",
    "Modifier",
    "Permutation",
    "Sequenced",
    "Shuffle",
    "Transform",
    "TransformOutput",
    "Walk",
    "Zip",
    "arrays_of",
    "is_iterator",
    "length_of",
    "shape_of",
    "with_arrays",
]

Modifier: TypeAlias = Literal["stream", "global", "volatile"]


@dataclass(frozen=True, slots=True, eq=False)
class Sequenced:
    """What all iterators are: a description with `parts`, arrays or iterators that it reads."""

    parts: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Counting(Sequenced):
    """`start`, `start + step`, …; without end."""

    start: Any
    step: Any
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Sequenced):
    """One value, again and again."""

    value: Any
    dtype: DType | StructType


@dataclass(frozen=True, slots=True, eq=False)
class Transform(Sequenced):
    """An operator applied to one element of each part."""

    op: Op


@dataclass(frozen=True, slots=True, eq=False)
class TransformOutput(Sequenced):
    """Takes values, and writes what an operator makes of them to its part."""

    op: Op


@dataclass(frozen=True, slots=True, eq=False)
class Zip(Sequenced):
    """One element of each part, as a struct with the fields f0, f1, …."""


@dataclass(frozen=True, slots=True, eq=False)
class Permutation(Sequenced):
    """Elements of the first part, in the places that the second one names."""


@dataclass(frozen=True, slots=True, eq=False)
class Walk(Sequenced):
    """Elements `first`, `first + step`, … of a part; `count` of them, None without end."""

    first: int
    step: int
    count: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Shuffle(Sequenced):
    """The numbers below `count`, each once, in an order that `seed` decides."""

    count: int
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Discard(Sequenced):
    """Takes values and forgets them."""


@dataclass(frozen=True, slots=True, eq=False)
class CacheModified(Sequenced):
    """An array, read past a cache."""

    modifier: Modifier


def is_iterator(value: object) -> bool:
    """Return whether a value is a description of this module."""
    return isinstance(value, Sequenced)


def length_of(part: Any) -> int | None:
    """Return how many elements an array or an iterator has; None for one without end.

    Raises
    ------
    ShapeError
        Parts that are taken together differ.
    """
    if not is_iterator(part):
        return _extent(part)
    match part:
        case Walk(count=count) | Shuffle(count=count):
            return count
        case Permutation(parts=(_, indices)):
            return length_of(indices)
        case _:
            return _common(type(part).__name__.lower(), part.parts)


def shape_of(array: Any) -> tuple[int, ...]:
    """Return the shape of an array of whatever library; none for a scalar."""
    shape = getattr(array, "shape", None)
    if shape is not None:
        return tuple(map(int, shape))
    if isinstance(array, (bool, int, float, complex)):
        return ()
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return tuple(map(int, interface["shape"]))
    if hasattr(array, "__dlpack__"):
        return (len(array),)
    try:
        return tuple(memoryview(array).shape or ())
    except TypeError as error:
        kind = type(array).__name__
        raise ArgumentError(f"an iterator has a part of type {kind}, which is no array") from error


def _extent(array: Any) -> int:
    return shape_of(array)[0]


def _common(name: str, parts: Sequence[Any]) -> int | None:
    found: int | None = None
    for part in parts:
        own = length_of(part)
        if own is not None and found is not None and own != found:
            raise ShapeError(f"parts of {name} have {found} and {own} elements")
        found = own if found is None else found
    return found


def arrays_of(part: Any) -> Iterator[Any]:
    """Yield the arrays in a description, from left to right; an array itself."""
    if not is_iterator(part):
        yield part
        return
    for inner in part.parts:
        yield from arrays_of(inner)


def with_arrays(part: Any, arrays: Iterator[Any]) -> Any:
    """Return a description with its arrays replaced, in the order of `arrays_of`."""
    if not is_iterator(part):
        return next(arrays)
    return replace(part, parts=tuple(with_arrays(inner, arrays) for inner in part.parts))
