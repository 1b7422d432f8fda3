"""Shapes and strides of the operands of one call: broadcast, sorted, merged, classified.

Pure arithmetic on tuples; no arrays and no pointers live here. Strides are in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kernelmill.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAX_DIMS",
    "Access",
    "Form",
    "Layout",
    "Operand",
    "Pattern",
    "ReductionLayout",
    "broadcast",
    "c_strides",
    "elementwise",
    "memory_order",
    "normalize_axes",
    "reduction",
]

Pattern: TypeAlias = Literal["contiguous", "broadcast", "strided", "transposed"]
# How a kernel reaches an operand: by its pattern, a scalar that is handed over itself, or byte by
# byte where elements lie at addresses that the chip refuses. Of an iterator: the index itself, an
# address, an address behind which a result says where it belongs.
Access: TypeAlias = Pattern | Literal["by_value", "unaligned", "index", "address", "placed"]

# Dimensions that a kernel walks, after merging; the same number stands in host/abi.hpp.
MAX_DIMS: Final = 8
# A tile pays from this extent on in both dimensions.
_TILE_EXTENT: Final = 16


@dataclass(frozen=True, slots=True)
class Operand:
    """Shape, strides and itemsize of one array, strides and itemsize in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A loop nest: `shape` outermost first, strides and innermost pattern of each operand."""

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    patterns: tuple[Pattern, ...]


Form: TypeAlias = Literal["rows", "runs", "columns"]


@dataclass(frozen=True, slots=True)
class ReductionLayout:
    """The loop nest of a reduction: kept dimensions, then reduced ones in the order of the tree.

    In the form "columns" the innermost dimension is a kept one, after the reduced ones. `kept`
    counts the kept dimensions before the reduced ones; `patterns` are those of the inputs.
    """

    form: Form
    shape: tuple[int, ...]
    kept: int
    strides: tuple[tuple[int, ...], ...]
    patterns: tuple[Pattern, ...]


def broadcast(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the common shape by NumPy's rule; raises ShapeError naming the first two that differ.

    Examples
    --------
    >>> broadcast(["a", "b"], [(3, 1), (4,)])
    (3, 4)
    """
    rank = max((len(s) for s in shapes), default=0)
    result = [1] * rank
    owner = [""] * rank
    for name, shape in zip(names, shapes, strict=True):
        for axis, extent in enumerate(shape, start=rank - len(shape)):
            if extent == 1 or extent == result[axis]:
                continue
            if result[axis] != 1:
                given = dict(zip(names, shapes, strict=True))
                other = owner[axis]
                raise ShapeError(
                    f"shapes do not broadcast: `{other}` has {given[other]}, `{name}` has {shape}",
                    hint="extents must be equal, or 1, counted from the last axis",
                )
            result[axis], owner[axis] = extent, name
    return tuple(result)


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array, in bytes."""
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, shape[axis + 1])
    return tuple(strides)


def memory_order(shape: Sequence[int], operands: Sequence[Operand]) -> tuple[int, ...]:
    """Return the axes, largest stride first, as NumPy's order "K" has them.

    An axis along which an operand does not move says nothing, strides count by their magnitude, and
    where operands contradict each other the order of the axes stays.

    Source: `npyiter_find_best_axis_ordering` of NumPy's nditer_constr.c, an insertion sort.

    Examples
    --------
    >>> memory_order((2, 3), [Operand((2, 3), (4, 8), 4)])
    (1, 0)
    """
    spread = [_spread(operand, len(shape)) for operand in operands]
    innermost_first: list[int] = []
    for axis in reversed(range(len(shape))):
        place = len(innermost_first)
        for at in reversed(range(len(innermost_first))):
            inside = _lies_inside(axis, innermost_first[at], spread)
            if inside is False:
                break
            if inside:
                place = at
        innermost_first.insert(place, axis)
    return tuple(reversed(innermost_first))


def _lies_inside(axis: int, other: int, spread: Sequence[tuple[int, ...]]) -> bool | None:
    """Whether all operands that move along both axes move less along `axis`; None without any."""
    steps = [(abs(s[axis]), abs(s[other])) for s in spread if s[axis] and s[other]]
    return all(mine < others for mine, others in steps) if steps else None


def _spread(operand: Operand, rank: int) -> tuple[int, ...]:
    """Return the strides in `rank` dimensions, 0 where the operand is broadcast."""
    lead = rank - len(operand.shape)
    own = (s if n != 1 else 0 for n, s in zip(operand.shape, operand.strides, strict=True))
    return (0,) * lead + tuple(own)


def elementwise(
    shape: tuple[int, ...], inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Layout:
    """Return the loop nest of an element-wise call over `shape`, which all operands broadcast to.

    The innermost dimension is that of the outputs' smallest stride, so writes are as sequential as
    they can be; dimensions are merged where every operand allows it. Raises ShapeError above
    `MAX_DIMS` merged dimensions.
    """
    operands = [*inputs, *outputs]
    spread = [_spread(o, len(shape)) for o in operands]
    ranked = [*outputs, *inputs]
    axes = [a for a in _by_stride(shape, ranked) if shape[a] != 1]
    merged = _merge([(shape[a], tuple(s[a] for s in spread)) for a in axes])
    _check_rank(len(merged), len(shape))
    merged = _nest(merged, inputs)
    extents = tuple(n for n, _ in merged)
    strides = tuple(tuple(s[k] for _, s in merged) for k in range(len(operands)))
    count = len(inputs)
    patterns = tuple(
        _pattern(extents, strides[k], o.itemsize, may_tile=k < count)
        for k, o in enumerate(operands)
    )
    return Layout(extents, strides, patterns)


def _nest(dimensions: list[Dimension], inputs: Sequence[Operand]) -> list[Dimension]:
    """Order the dimensions outside the innermost one; to an element-wise call it does not matter.

    The outputs are written in rows, and rows are written as fast in any order, but they are read
    fastest in the order of memory. So the rows follow the inputs where all agree, and an input that
    is contiguous along another dimension has that one before the innermost: of a tile of the two
    whole lines are read and written.
    """
    if not dimensions[:-1]:
        return dimensions
    turned = _turned(dimensions, inputs)
    if turned is None:
        return _rows_as_read(dimensions, len(inputs))
    k, at = turned
    extent, strides = dimensions[at]
    rest = [d for i, d in enumerate(dimensions[:-1]) if i != at]
    # The tile goes on along the dimension that continues the contiguous one.
    after = [d for d in rest if d[1][k] == extent * strides[k]]
    rest = [d for d in rest if d not in after]
    return [*rest, *after, dimensions[at], dimensions[-1]]


def _turned(dimensions: list[Dimension], inputs: Sequence[Operand]) -> tuple[int, int] | None:
    """Return an input to turn and the dimension along which it is contiguous."""
    extent, innermost = dimensions[-1]
    if extent < _TILE_EXTENT:
        return None
    for k, operand in enumerate(inputs):
        if innermost[k] in (0, operand.itemsize):
            continue
        for at in reversed(range(len(dimensions) - 1)):
            extent, strides = dimensions[at]
            if extent >= _TILE_EXTENT and strides[k] == operand.itemsize:
                return k, at
    return None


def _rows_as_read(dimensions: list[Dimension], inputs: int) -> list[Dimension]:
    """Sort the outer dimensions by the strides of the inputs that move, where these agree."""
    *outer, innermost = dimensions
    orders = {
        tuple(sorted(range(len(outer)), key=lambda d: -abs(outer[d][1][k])))
        for k in range(inputs)
        if all(strides[k] for _, strides in outer)
    }
    return dimensions if len(orders) != 1 else [*(outer[d] for d in orders.pop()), innermost]


def _by_stride(shape: tuple[int, ...], operands: Sequence[Operand]) -> tuple[int, ...]:
    spread = [_spread(o, len(shape)) for o in operands]
    return tuple(sorted(range(len(shape)), key=lambda axis: tuple(-abs(s[axis]) for s in spread)))


Dimension: TypeAlias = "tuple[int, tuple[int, ...]]"


def _merge(dimensions: list[Dimension]) -> list[Dimension]:
    """Join neighbours that every operand crosses in one step; items are (extent, strides)."""
    merged: list[Dimension] = []
    for extent, strides in dimensions:
        if merged:
            outer_extent, outer = merged[-1]
            if all(o == s * extent for o, s in zip(outer, strides, strict=True)):
                merged[-1] = (outer_extent * extent, strides)
                continue
        merged.append((extent, strides))
    return merged


def _check_rank(merged: int, given: int) -> None:
    if merged > MAX_DIMS:
        raise ShapeError(
            f"{given} dimensions with these strides leave {merged} to walk, "
            f"the limit is {MAX_DIMS}",
            hint="copy the array to C order: `np.ascontiguousarray(x)`",
        )


def _pattern(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, *, may_tile: bool
) -> Pattern:
    if not shape or strides[-1] == itemsize or 0 in shape:
        return "contiguous"
    if strides[-1] == 0:
        return "broadcast"
    tall = len(shape) > 1 and min(shape[-2:]) >= _TILE_EXTENT
    if may_tile and tall and strides[-2] == itemsize:
        return "transposed"
    return "strided"


def normalize_axes(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return the reduced axes, non-negative and sorted; None means all.

    Raises ShapeError for an axis out of range or named twice, ArgumentError for no integer.
    """
    if axis is None:
        return tuple(range(rank))
    wanted = _integers(axis)
    for item in wanted:
        if not -rank <= item < rank:
            raise ShapeError(
                f"axis {item} is out of range for an array of {rank} dimensions",
                hint=f"axes are {-rank} to {rank - 1}" if rank else "a 0-d array has no axis",
            )
    found = sorted(item % rank for item in wanted)
    if len(set(found)) != len(found):
        raise ShapeError(f"axis {axis} names an axis twice")
    return tuple(found)


def _integers(axis: int | Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(map(index, axis if isinstance(axis, (tuple, list)) else (axis,)))
    except TypeError:
        raise ArgumentError(f"`axis` is {axis!r}; expected: an integer or several") from None


def reduction(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    *,
    ordered: bool,
) -> ReductionLayout:
    """Return the loop nest of a reduction over `axes` of inputs that broadcast to `shape`.

    Outputs have the shape of the kept axes. The order of the elements is part of the result: memory
    order of the inputs, unless `ordered` asks for the logical order of the axes.
    """
    kept_axes = [a for a in range(len(shape)) if a not in axes]
    spread = [_spread(o, len(shape)) for o in inputs]
    spread += [_on_axes(o, kept_axes, len(shape)) for o in outputs]
    by_stride = [a for a in _by_stride(shape, inputs) if shape[a] != 1]
    reduced_axes = [a for a in (axes if ordered else by_stride) if a in axes and shape[a] != 1]
    kept, reduced = (
        _merge([(shape[a], tuple(s[a] for s in spread)) for a in group])
        for group in ([a for a in by_stride if a in kept_axes], reduced_axes)
    )
    reduced = reduced or [(1, (0,) * len(spread))]
    _check_rank(len(kept) + len(reduced), len(shape))
    form, dimensions, before = _arrange(kept, reduced)
    strides = tuple(tuple(s[k] for _, s in dimensions) for k in range(len(spread)))
    extents = tuple(n for n, _ in dimensions)
    patterns = tuple(
        _pattern(extents, strides[k], o.itemsize, may_tile=False) for k, o in enumerate(inputs)
    )
    return ReductionLayout(form, extents, before, strides, patterns)


def _on_axes(operand: Operand, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return strides in `rank` dimensions of an array that has only `axes`; 0 along the others."""
    strides = [0] * rank
    for axis, stride in zip(axes, operand.strides, strict=True):
        strides[axis] = stride
    return tuple(strides)


def _arrange(kept: list[Dimension], reduced: list[Dimension]) -> tuple[Form, list[Dimension], int]:
    """Choose the form; many columns at once where a kept dimension lies closer in memory."""
    if kept and abs(kept[-1][1][0]) < abs(reduced[-1][1][0]):
        return "columns", [*kept[:-1], *reduced, kept[-1]], len(kept) - 1
    return ("rows" if len(reduced) == 1 else "runs"), [*kept, *reduced], len(kept)
