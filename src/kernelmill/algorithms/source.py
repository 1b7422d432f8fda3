"""The C++ text of a kernel: printed operators around one instance of a template.

Which templates exist is seen in `host/` and `device/`; how an operator is printed, in
`compiler/cpp.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kernelmill.algorithms.costs import count_flops
from kernelmill.algorithms.weave import as_stored
from kernelmill.compiler.builder import FunctionBuilder
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.dialects import CUDA, GUARDED, HOST, HOST_NEAR
from kernelmill.compiler.ir import (
    Apply,
    Program,
    operands,
    walk_expressions,
    walk_statements,
)
from kernelmill.compiler.kernel_builder import written
from kernelmill.dtypes import DType, StructType, TupleType, storage
from kernelmill.runtime.backend import KernelSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.layout import Access, Pattern
    from kernelmill.compiler.cpp import PrintedOperator
    from kernelmill.dtypes import Type
    from kernelmill.runtime.backend import Target

__all__ = [
    "TILE_THREADS",
    "VALUE_SLOT",
    "Loop",
    "access",
    "arguments_text",
    "assemble",
    "loop_for",
    "neighbours_source",
    "storing",
    "text_of",
    "tile_side",
    "transform_source",
]


def storing(program: Program, wanted: Sequence[Type]) -> Program:
    """Return the program with an entry that converts its results to the types that are stored."""
    entry = program.entry
    target: Type = wanted[0] if len(wanted) == 1 else TupleType(tuple(wanted))
    if entry.result == target:
        return program
    wrapper = FunctionBuilder(f"{entry.name}_stored", entry.params)
    result = wrapper.call(entry, [wrapper.param(i) for i in range(len(entry.params))])
    wrapper.return_(as_stored(result, target))
    return Program((*program.functions, wrapper.finish()), program.captures)


def access(
    target: Target, pattern: Pattern, *, is_scalar: bool = False, is_aligned: bool = True
) -> Access:
    """Return how a kernel reaches an operand: a device is handed scalars themselves."""
    if target == "host":
        return pattern
    return "by_value" if is_scalar else pattern if is_aligned else "unaligned"


# The loops of a text: one for all shapes on the host; on a device one dimension, several, or tiles
# of two of them where an input is turned.
Loop: TypeAlias = Literal["any", "flat", "nested", "tiled"]
# Elements on each side of a tile, with the most bytes of one; the most bytes of all tiles of a
# block.
_SIDES: Final = ((128, 1), (64, 8), (32, 16), (16, 32))
_TILES: Final = 40 << 10


def loop_for(target: Target, rank: int, inputs: Sequence[tuple[Type, Access]] = ()) -> Loop:
    """Return the loop that a kernel has for so many dimensions, and such inputs."""
    if target == "host":
        return "any"
    if any(pattern == "transposed" for _, pattern in inputs) and tile_side(inputs):
        return "tiled"
    return "flat" if rank <= 1 else "nested"


def tile_side(inputs: Sequence[tuple[Type, Access]]) -> int:
    """Return how many elements a tile has on each side; 0 where not even the smallest fits."""
    turned = [_itemsize(t) for t, pattern in inputs if pattern == "transposed"]
    for side, most in _SIDES:
        room = sum(side * (side + 4) * size for size in turned)
        if room <= _TILES and max(turned) <= most:
            return side
    return 0


def assemble(
    name: str,
    templates: Sequence[str],
    operators: Sequence[PrintedOperator],
    launch: str,
    structs: str = "",
) -> KernelSource:
    """Return the text of a host kernel: includes, operators, structs, one exported function."""
    exported = f"KM_EXPORT void km_kernel(const km::Call* call) {{\n  {launch}\n}}\n"
    return KernelSource(name, text_of(name, templates, operators, f"{structs}\n{exported}"))


def text_of(
    name: str, templates: Sequence[str], operators: Sequence[PrintedOperator], rest: str
) -> str:
    """Return a whole text: includes, operators, and what uses them."""
    files = sorted({*templates, *(file for o in operators for file in o.includes)})
    includes = "".join(f'#include "{file}"\n' for file in files)
    body = "\n".join(operator.text for operator in operators)
    return f"// {name}\n{includes}\n{body}\n{rest}"


def transform_source(
    name: str,
    program: Program,
    inputs: Sequence[tuple[Type, Access]],
    outputs: Sequence[tuple[Type, Access]],
    loop: Loop = "any",
) -> KernelSource:
    """Return the text of an element-wise kernel; `loop` is that of the target, see `loop_for`."""
    whole = storing(program, [t for t, _ in outputs])
    if loop == "any":
        return _host_transform(name, whole, inputs, outputs)
    return _cuda_transform(name, whole, inputs, outputs, loop)


def _host_transform(
    name: str,
    whole: Program,
    inputs: Sequence[tuple[Type, Access]],
    outputs: Sequence[tuple[Type, Access]],
) -> KernelSource:
    printed, functor = _host_functor(whole)
    taken, made = arguments_text(inputs), arguments_text(outputs)
    return assemble(
        name,
        ["transform.hpp"],
        printed,
        f"km::transform<{functor}, km::in<{taken}>, km::out<{made}>>"
        f"::run(call, {functor}(call->captures));",
    )


def _host_functor(whole: Program) -> tuple[list[PrintedOperator], str]:
    """Return an operator of the host's loops as text, and the type by which they take it."""
    printed = [print_program(whole, HOST)]
    if not _is_guarded(whole):
        return printed, "km::Op"
    printed.append(print_program(whole, HOST_NEAR, name="Near"))
    return printed, "km::guarded<km::Op, km::Near>"


def neighbours_source(
    name: str, program: Program, first: Program, x: tuple[Type, Access], output: tuple[Type, Access]
) -> KernelSource:
    """Return the text of an operator on neighbours on the host; `first` makes the first result."""
    printed, functor = _host_functor(storing(program, [output[0]]))
    printed.append(print_program(storing(first, [output[0]]), HOST, name="First"))
    return assemble(
        name,
        ["neighbours.hpp"],
        printed,
        f"km::neighbours<{functor}, km::First, {arguments_text([x])}, {arguments_text([output])}>"
        f"::run(call, {functor}(call->captures), km::First(call->captures));",
    )


# Threads of a block, as device/transform.cuh has them.
TRANSFORM_THREADS: Final = 128
TILE_THREADS: Final = 256  # as device/transform_tiles.cuh has them
# Elements of these sizes are turned as words, by loops that take many registers: so many blocks
# have room beside each other all the same.
_TILES_BESIDE: Final = {1: 5, 2: 6}
_SCATTERED: Final = 4  # elements of a thread at a time in several dimensions
VALUE_SLOT: Final = 16
_PACKET: Final = 16
# Bytes a thread asks for at a time, and the most elements it then holds.
_WIDTHS: Final = (16, 8, 4, 2, 1)
_IN_FLIGHT: Final = 32
# The most that one operand then has of them in registers.
_LARGEST: Final = 64
_MOST_HELD: Final = 16
# Operations an element from which it is computed that takes the time, so few are held at once.
_COSTLY: Final = 12
_DEAR: Final = 60


def _cuda_transform(
    name: str,
    whole: Program,
    inputs: Sequence[tuple[Type, Access]],
    outputs: Sequence[tuple[Type, Access]],
    loop: Loop,
) -> KernelSource:
    printed = print_program(whole, CUDA)
    layout = printed.captures_layout
    captured = 0 if layout is None else -(-layout.itemsize // VALUE_SLOT) * VALUE_SLOT
    values = sum(pattern == "by_value" for _, pattern in inputs)
    room = max(captured + values * VALUE_SLOT, VALUE_SLOT)
    wide, packets = _packets(inputs, outputs, count_flops(whole))
    tile = TRANSFORM_THREADS * (wide * packets if loop == "flat" else _SCATTERED)
    run, entry, bounds = "Run", str(loop), str(TRANSFORM_THREADS)
    if loop == "tiled":
        run, entry, bounds = f"km::tiles<Run, {tile_side(inputs)}>", "all", str(TILE_THREADS)
        beside = _TILES_BESIDE.get(max(_itemsize(t) for t, p in inputs if p == "transposed"))
        bounds += f", {beside}" if beside else ""
    rest = (
        f"typedef km::transform<km::Op, km::in<{arguments_text(inputs)}>,\n"
        f"    km::out<{arguments_text(outputs)}>, {captured}, {room}, {wide}, {packets}> Run;\n"
        f"KM_EXPORT void __launch_bounds__({bounds})\n"
        f"km_kernel(const __grid_constant__ {run}::call call) {{\n  {run}::{entry}(call);\n}}\n"
    )
    template = "transform_tiles.cuh" if loop == "tiled" else "transform.cuh"
    text = text_of(name, [template], [printed], rest)
    values_at = tuple(i for i, (_, pattern) in enumerate(inputs) if pattern == "by_value")
    return KernelSource(name, text, tile, values_at)


def _packets(
    inputs: Sequence[tuple[Type, Access]],
    outputs: Sequence[tuple[Type, Access]],
    flops: int,
) -> tuple[int, int]:
    """Return how many neighbours a thread takes as one packet, and how many packets at a time."""
    taken = [_itemsize(t) for t, pattern in inputs if pattern == "contiguous"]
    sizes = taken + [_itemsize(t) for t, pattern in outputs if pattern == "contiguous"]
    if not sizes or flops >= _DEAR:
        return 1, 1 if flops >= _COSTLY else 4
    fits = [v for v in _WIDTHS if all(_is_packet(v * s) for s in sizes)]
    fitting = [v for v in fits if v * max(sizes) <= _LARGEST] or [1]
    wide = next((v for v in fitting if v * max(sizes) <= _PACKET), fitting[-1])
    if wide < 4 and min(sizes) < max(sizes) and 4 in fitting:  # noqa: PLR2004 - words of the narrow one
        wide = 4
    if flops >= _COSTLY:
        return min(wide, 4), 1
    packets = max(1, min(4, _IN_FLIGHT // (wide * (sum(taken) or max(sizes))), _MOST_HELD // wide))
    return wide, packets


def _is_packet(nbytes: int) -> bool:
    return nbytes in (1, 2, 4, 8) or nbytes % _PACKET == 0


def _itemsize(type_: Type) -> int:
    stored = storage(type_)
    assert isinstance(stored, (DType, StructType))
    return stored.itemsize


def _is_guarded(program: Program) -> bool:
    """Whether the program calls a function that has a quick form for near arguments.

    Where an argument is far an element is computed again, which may not change memory twice.
    """
    return not written(program) and any(
        isinstance(node, Apply) and node.op in GUARDED
        for function in program.functions
        for statement in walk_statements(function.body)
        for operand in operands(statement)
        for node in walk_expressions(operand)
    )


def arguments_text(operands: Sequence[tuple[Type, Access]]) -> str:
    """Return the template arguments that describe operands."""
    return ", ".join(
        f"km::arg<{type_spelling(type_, qualified=True)}, km::{pattern}>"
        for type_, pattern in operands
    )
