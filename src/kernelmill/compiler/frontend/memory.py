"""Arrays in kernels and operators: elements, slices, attributes; where they are read and written.

Arrays of an operator are those that it captured: their elements are found by address, and looked
for within their extents. Calls that make arrays are in `kernel_calls.py`, loops over threads in
`kernel_loops.py`.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kernelmill.compiler import ir
from kernelmill.compiler.frontend import calls
from kernelmill.compiler.frontend.values import Dimension, Known, Memory, Value
from kernelmill.compiler.kernel_builder import KernelBuilder
from kernelmill.compiler.kernel_ir import Cell, Extent, Place
from kernelmill.dtypes import DType, StructType, TupleType, WeakType, int32, uint64, weak_int
from kernelmill.errors import OperatorError

if TYPE_CHECKING:
    from kernelmill.compiler.frontend.frame import Frame

__all__ = [
    "array_attribute",
    "builder_of",
    "element",
    "length",
    "part",
    "place_at",
    "read",
    "store",
]

Item = ast.expr | ast.Slice


def builder_of(frame: Frame) -> KernelBuilder:
    """Return the builder of a kernel's function."""
    assert isinstance(frame.builder, KernelBuilder)
    return frame.builder


# ----------------------------------------------------------------------------- indices


def element(frame: Frame, memory: Memory, node: ast.Subscript) -> Place | Memory:
    """Return what `array[...]` names: one element, or with slices a part of the array."""
    items: list[ast.expr] = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    left = memory.dimensions
    if len(items) != len(left):
        raise _wrong_count(frame, memory, items, node)
    given: list[ir.Expr | Dimension] = []
    for position, item, dimension in zip(_positions(memory), items, left, strict=True):
        if isinstance(item, ast.Slice):
            given.append(_slice(frame, dimension, item))
        else:
            given.append(_position(frame, memory, dimension, item, position))
    return _indexed(frame, memory, given)


def place_at(frame: Frame, memory: Memory, index: Value, node: ast.AST) -> Place:
    """Return the element that an index or a tuple of indices names, as atomics take them."""
    made = frame.scalar(index, node)
    values = list(made.values) if isinstance(made, ir.MakeTuple) else [made]
    left = memory.dimensions
    if len(values) != len(left):
        raise OperatorError(
            f"`{memory.array.name}` has {_dimensions(len(left))}, got {_indices(len(values))}",
            hint="pass one index, or a tuple of one index a dimension",
        )
    given: list[ir.Expr | Dimension] = [
        _checked(frame, memory, d, v, node, k)
        for k, d, v in zip(_positions(memory), left, values, strict=True)
    ]
    found = _indexed(frame, memory, given)
    assert isinstance(found, Place)
    return found


def _positions(memory: Memory) -> list[int]:
    """Return which dimensions of the array are left to index."""
    return [k for k, d in enumerate(memory.index) if isinstance(d, Dimension)]


def _indexed(frame: Frame, memory: Memory, given: list[ir.Expr | Dimension]) -> Place | Memory:
    """Put indices in the place of the dimensions that are left."""
    waiting = iter(given)
    index = [next(waiting) if isinstance(d, Dimension) else d for d in memory.index]
    values = [v for v in index if not isinstance(v, Dimension)]
    if len(values) < len(index):
        return replace(memory, index=tuple(index))
    array = memory.array
    if array.space == "captured":
        return _cell(frame, memory, values)
    if memory.origin is not None:
        values = [_flat(frame, memory, values)]
    return Place(array.name, tuple(frame.leaf(v, "i") for v in values), (), array.dtype)


def _cell(frame: Frame, memory: Memory, values: list[ir.Expr]) -> Cell:
    """Return an element of a captured array: its distance in bytes, and whether it is one."""
    build, array = frame.builder, memory.array
    assert memory.origin is not None
    places = [frame.leaf(build.cast(v, weak_int), "i") for v in values]
    tests = [
        build.apply("lt", build.cast(i, uint64), build.cast(n, uint64))
        for i, n in zip(places, memory.extents, strict=True)
    ]
    steps = memory.strides or _steps(frame, memory)
    terms = [build.apply("mul", i, step) for i, step in zip(places, steps, strict=True)]
    whole, first = build.const(True), build.const(0)  # noqa: FBT003 - the literal
    within = functools.reduce(lambda a, b: frame.both("and", a, b), tests, whole)
    distance = functools.reduce(lambda a, b: build.apply("add", a, b), terms or [first])
    return Cell(array.name, (memory.origin, distance, within), (), array.dtype)


def _steps(frame: Frame, memory: Memory) -> list[ir.Expr]:
    """Return the strides in bytes of an array whose elements lie in C order without gaps."""
    step: ir.Expr = frame.builder.const(memory.array.dtype.itemsize)
    steps = [step]
    for n in reversed(memory.extents[1:]):
        step = frame.builder.apply("mul", step, n)
        steps.append(step)
    return steps[::-1] if memory.extents else []


def _flat(frame: Frame, memory: Memory, values: list[ir.Expr]) -> ir.Expr:
    """Return the position of an element of dynamic shared memory."""
    build = frame.builder
    pairs = zip(memory.extents[1:], values[1:], strict=True)
    place = functools.reduce(
        lambda at, pair: build.apply("add", build.apply("mul", at, pair[0]), pair[1]),
        pairs,
        values[0],
    )
    assert memory.origin is not None
    return build.apply("add", memory.origin, place)


def _position(
    frame: Frame, memory: Memory, dimension: Dimension, node: ast.expr, position: int
) -> ir.Expr:
    value = calls_scalar(frame, node)
    return _checked(frame, memory, dimension, value, node, position)


def calls_scalar(frame: Frame, node: ast.expr) -> ir.Expr:
    """Evaluate an index."""
    from kernelmill.compiler.frontend.expressions import evaluate_scalar  # noqa: PLC0415 - a cycle

    return evaluate_scalar(frame, node)


def _checked(  # noqa: PLR0917 - what an error names
    frame: Frame,
    memory: Memory,
    dimension: Dimension,
    value: ir.Expr,
    node: ast.AST,
    position: int,
) -> ir.Expr:
    """Convert an index, count a negative literal from the end, and check what can be checked."""
    build, extent = builder_of(frame), dimension.extent
    value = _integer(frame, value, node)
    literal = value.value if isinstance(value, ir.Const) else None
    if isinstance(literal, int):
        if isinstance(extent, ir.Const):
            value = _in_range(frame, memory, (literal, extent.value), node, position)
        elif literal < 0:
            value = build.apply("add", extent, value)
    state = frame.program.kernel
    known = isinstance(value, ir.Const) and isinstance(extent, ir.Const)
    if state is not None and state.debug and not known:
        value = frame.leaf(value, "i")
        array = memory.array
        text = f"{f'{array.base}.flat' if array.base else array.name}\0{position}"
        args = (ir.Cast(value, weak_int) if value.type != weak_int else value, extent)
        build.perform("check", args, text=text)
    if dimension.start is None:
        return value
    return build.apply("add", dimension.start, build.cast(value, weak_int))


def _in_range(
    frame: Frame, memory: Memory, pair: tuple[int, object], node: ast.AST, position: int
) -> ir.Expr:
    index, extent = pair
    assert isinstance(extent, int)
    if not -extent <= index < extent:
        raise frame.refusal(
            node,
            f"index {index} is out of range: dimension {position} of `{memory.array.name}` has "
            f"{extent} elements",
            f"indices run from 0 to {extent - 1}; a negative literal counts from the end",
        )
    return frame.builder.const(index % extent)


def _integer(frame: Frame, value: ir.Expr, node: ast.AST) -> ir.Expr:
    type_ = value.type
    if isinstance(type_, TupleType):
        raise frame.refusal(
            node,
            f"an index is an integer, got {len(type_.items)} of them in a tuple",
            "name them, `i, j = ...` or `for i, j in ...`, and write `x[i, j]`",
        )
    kind = type_.kind if isinstance(type_, (DType, WeakType)) else ""
    if kind not in ("int", "uint"):
        raise frame.refusal(
            node, f"an index is an integer, got {type_}", "write int(i) to drop the fraction"
        )
    return value if type_ in (weak_int, int32) else frame.builder.cast(value, weak_int)


def _slice(frame: Frame, dimension: Dimension, node: ast.Slice) -> Dimension:
    """Return what `start:stop` leaves of a dimension; its bounds are not checked."""
    build = frame.builder
    if node.step is not None:
        raise frame.refusal(
            node.step, "a slice has no step here", "take `start:stop`, and multiply the index"
        )
    bounds = [
        default if part is None else _bound(frame, part, dimension.extent)
        for part, default in ((node.lower, build.const(0)), (node.upper, dimension.extent))
    ]
    first, last = bounds
    whole = isinstance(first, ir.Const) and first.value == 0
    extent = last if whole else build.apply("sub", last, first)
    start = dimension.start
    if not whole:
        start = first if start is None else build.apply("add", start, first)
    made = None if start is None else frame.leaf(start, "start")
    return Dimension(made, frame.leaf(extent, "extent"))


def _bound(frame: Frame, node: ast.expr, extent: ir.Expr) -> ir.Expr:
    value = frame.builder.cast(_integer(frame, calls_scalar(frame, node), node), weak_int)
    if isinstance(value, ir.Const) and isinstance(value.value, int) and value.value < 0:
        return frame.builder.apply("add", extent, value)
    return value


def _dimensions(count: int) -> str:
    return f"{count} dimension{'' if count == 1 else 's'}"


def _indices(count: int) -> str:
    return f"{count} {'index' if count == 1 else 'indices'}"


def _wrong_count(
    frame: Frame, memory: Memory, items: list[ast.expr], node: ast.Subscript
) -> OperatorError:
    left, name = len(memory.dimensions), ast.unparse(node.value)
    if len(items) < left:
        rest = ", ".join([*map(ast.unparse, items), *([":"] * (left - len(items)))])
        full = ", ".join("ijklmnop"[:left])
        hint = f"write `{name}[{full}]` for an element, `{name}[{rest}]` for a part"
    else:
        hint = f"write `{name}[{', '.join('ijklmnop'[:left])}]`"
    return frame.refusal(
        node, f"`{name}` has {_dimensions(left)}, got {_indices(len(items))}", hint
    )


# ----------------------------------------------------------------------------- elements


def read(frame: Frame, found: Place | Memory) -> Value:
    """Return the value of an element; a part of an array is itself."""
    if isinstance(found, Memory):
        return found
    return builder_of(frame).load(found)


def store(frame: Frame, place: Place, value: Value, node: ast.AST) -> None:
    """Write a value to an element, converted as NumPy's assignment converts it."""
    _refuse_constant(frame, place, node)
    made = frame.scalar(value, node)
    with frame.at(node):
        if made.type != place.type:
            if isinstance(made.type, StructType) or isinstance(place.type, StructType):
                raise OperatorError(
                    f"`{place.array}` holds {place.type}, got {made.type}",
                    hint="assign a value of the struct, or one field: `p[i].x = ...`",
                )
            made = calls.cast_to(frame, made, place.type)
        builder_of(frame).store(place, made)


def _refuse_constant(frame: Frame, place: Place, node: ast.AST) -> None:
    """Refuse to write what never changes; whether captured arrays may be written a call shows."""
    state = frame.program.kernel
    array = None if state is None else state.arrays[place.array]
    if array is not None and (array.readonly or array.space == "constant"):
        kind = (
            "a constant array" if array.space == "constant" else "an array that cannot be written"
        )
        raise frame.refusal(
            node, f"`{array.name}` is {kind}", "write to another array, passed as an argument"
        )


def part(frame: Frame, place: Place, name: str, node: ast.AST) -> Place:
    """Return a field of an element."""
    type_ = place.type
    if not isinstance(type_, StructType):
        raise frame.refusal(
            node, f"{type_} has no field `{name}`", "elements of this array are numbers"
        )
    found = type_.field(name)
    if found is None:
        names = ", ".join(f.name for f in type_.fields)
        raise frame.refusal(
            node, f"struct {type_} has no field `{name}`", f"its fields are {names}"
        )
    if isinstance(place, Cell):
        base, distance, within = place.index
        further = frame.builder.apply("add", distance, frame.builder.const(found.offset))
        return Cell(place.array, (base, further, within), (), found.type)
    return Place(place.array, place.index, (*place.fields, name), found.type)


# ----------------------------------------------------------------------------- attributes


def length(frame: Frame, memory: Memory) -> Value:
    """Return the extent of the first dimension."""
    del frame
    return memory.dimensions[0].extent


def array_attribute(frame: Frame, memory: Memory, node: ast.Attribute) -> Value:
    """Return an attribute of an array."""
    build, left = frame.builder, memory.dimensions
    if node.attr == "shape":
        return build.make_tuple([d.extent for d in left])
    if node.attr == "ndim":
        return build.const(len(left))
    if node.attr == "flat":
        return _flattened(frame, memory, node)
    if node.attr == "size" and _is_whole(memory):
        return _all_elements(frame, memory).dimensions[0].extent
    if node.attr == "size":
        extents = [d.extent for d in left]
        return functools.reduce(lambda a, b: build.apply("mul", a, b), extents, build.const(1))
    if node.attr == "dtype":
        dtype = memory.array.dtype
        return Known(str(dtype), dtype, lambda _: dtype, ("dtype", dtype), constant=True)
    owner = "an array" if frame.program.kernel is None else "an array of a kernel"
    raise frame.refusal(
        node,
        f"{owner} has no attribute `{node.attr}`",
        (_ATTRIBUTES if frame.program.kernel is not None else _FUNCTIONS).get(
            node.attr, "arrays have shape, size, ndim, dtype and elements `x[i]`"
        ),
    )


def _is_whole(memory: Memory) -> bool:
    """Whether it is an array that is passed, of several dimensions, with elements in C order."""
    array, left = memory.array, memory.dimensions
    whole = array.space == "global" and len(left) == array.ndim > 1
    whole = whole and array.layout == "contiguous" and all(d.start is None for d in left)
    return whole and not _is_part(memory)


def _all_elements(frame: Frame, memory: Memory) -> Memory:
    state = frame.program.kernel
    assert state is not None
    return state.all_elements(memory.array)


def _flattened(frame: Frame, memory: Memory, node: ast.Attribute) -> Memory:
    """Return all elements in C order as an array of one dimension."""
    array, left = memory.array, memory.dimensions
    if len(left) == array.ndim == 1:
        return memory
    if array.space == "captured" and array.layout == "contiguous" and not _is_part(memory):
        size = functools.reduce(lambda a, b: frame.builder.apply("mul", a, b), memory.extents)
        count = frame.leaf(size, "size")
        flat = replace(array, ndim=1)
        return replace(memory, array=flat, index=(Dimension(None, count),), extents=(count,))
    if not _is_whole(memory):
        own = array.space not in ("global", "captured")
        raise frame.refusal(
            node,
            f"`{array.name}` is no array that is passed with elements in C order",
            "index each dimension" + ("" if own else ", or pass a copy in C order"),
        )
    return _all_elements(frame, memory)


def _is_part(memory: Memory) -> bool:
    """Whether a slice has left out elements of some dimension."""
    extents = [d.extent for d in memory.dimensions]
    if memory.array.space == "captured":
        return extents != list(memory.extents)
    whole = [Extent(memory.array.name, k) for k in range(memory.array.ndim)]
    return extents != whole


_FUNCTIONS: Final = {
    "T": "exchange the indices: `x[j, i]`",
    "sum": "compute it outside, and capture the scalar",
    "max": "compute it outside, and capture the scalar",
    "min": "compute it outside, and capture the scalar",
}
_ATTRIBUTES: Final = {
    "T": "exchange the indices: `x[j, i]`",
    "sum": "write a loop, and km.block.reduce over the threads of a block",
    "max": "write a loop, and km.block.reduce(v, km.maximum)",
    "min": "write a loop, and km.block.reduce(v, km.minimum)",
    "fill": "write a loop: `for i in km.grid_range(len(x)): x[i] = v`",
    "copy": "write a loop over the elements",
}
