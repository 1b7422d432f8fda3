"""The C++ text of a reduction: its folds as structs around one instance of a template.

Which templates exist is seen in `host/` and `device/`, where they run in `spread.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelmill.algorithms.costs import count_flops
from kernelmill.algorithms.source import VALUE_SLOT, arguments_text, assemble, text_of
from kernelmill.algorithms.spread import RESIDENT
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.dialects import CUDA, HOST
from kernelmill.runtime.backend import KernelSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.layout import Access, Form
    from kernelmill.algorithms.spread import Order, Spread
    from kernelmill.compiler.cpp import PrintedOperator
    from kernelmill.compiler.ir import Program
    from kernelmill.dtypes import DType, StructType, Type

__all__ = [
    "FoldText",
    "ReductionText",
    "cuda_reduce_source",
    "device_fold_lines",
    "host_fold_lines",
    "host_reduce_source",
    "lanes_of",
    "serves",
]

# Folds that host/fold.hpp has for real numbers, with vector forms.
_HOST_FOLDS: Final = frozenset(
    ("add", "multiply", "minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor")
)


_HOST_TYPES: Final = frozenset(
    f"km::{t}" for t in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64")
)


@dataclass(frozen=True, slots=True)
class FoldText:
    """One fold of a reduction: how it combines, what it stores, and where its scalars lie.

    `offset` and `tail` are the offsets in the captured block of the scalars of `combine` and of
    `finish`, the program that applies `init` and converts to the type that is stored.
    """

    name: str
    combine: Program
    finish: Program
    accumulator: DType | StructType
    ordered: bool
    offset: int
    tail: int


def host_reduce_source(
    name: str,
    form: Form,
    inputs: Sequence[tuple[Type, Access]],
    element: tuple[Program, int] | None,
    folds: Sequence[FoldText],
) -> KernelSource:
    """Return the text of a reduction on the host.

    `element` maps inputs to accumulators, and says where its scalars lie; None hands them on.
    """
    printed: list[PrintedOperator] = []
    lines: list[str] = []
    for index, fold in enumerate(folds):
        lines += host_fold_lines(index, fold, printed)
    if element is None:
        mapper = f"km::same<{type_spelling(inputs[0][0], qualified=True)}>"
        built = f"{mapper}()"
    else:
        program, offset = element
        printed.append(print_program(program, HOST, name="Element"))
        lines += [
            "struct Map : km::Element, km::mapped {",
            "  KM_INL explicit Map(const char* packed) : km::Element(packed) {}",
            "};",
        ]
        mapper, built = "Map", f"Map(packed + {offset})"
    names = [f"Fold{i}" for i in range(len(folds))]
    made = ", ".join([built, *(f"{n}(packed)" for n in names)])
    launch = (
        f"const char* packed = (const char*)call->captures;\n"
        f"  km::reduce<km::{form}, {mapper}, km::in<{arguments_text(inputs)}>, "
        f"km::folds<{', '.join(names)}>>::run(call, {made});"
    )
    return assemble(name, ["reduce.hpp"], printed, launch, "\n".join(lines))


def host_fold_lines(index: int, fold: FoldText, printed: list[PrintedOperator]) -> list[str]:
    """Return the struct of a fold; appends the operators it is made of."""
    spelled = type_spelling(fold.accumulator, qualified=True)
    finish = print_program(fold.finish, HOST, name=f"Finish{index}")
    printed.append(finish)
    if fold.name in _HOST_FOLDS and spelled in _HOST_TYPES:
        base, start = f"km::fold::{fold.name}<{spelled}>", ""
    else:
        ordered = "true" if fold.ordered else "false"
        base = f"km::Combine{index}, km::scalar_fold<{spelled}, {ordered}>"
        start = f"km::Combine{index}(packed + {fold.offset}), "
        printed.append(print_program(fold.combine, HOST, name=f"Combine{index}"))
    return [
        f"struct Fold{index} : {base} {{",
        f"  typedef {finish.result_spelling} out;",
        f"  km::Finish{index} last;",
        f"  KM_INL explicit Fold{index}([[maybe_unused]] const char* packed)",
        f"      : {start}last(packed + {fold.tail}) {{}}",
        f"  KM_INL out finish({spelled} value) const {{ return last(value); }}",
        "};",
    ]


# ----------------------------------------------------------------------------- devices


def lanes_of(itemsize: int) -> int:
    """Return the lanes of the reduction tree for an accumulator of so many bytes."""
    return 64 if itemsize <= 4 else 32  # noqa: PLR2004 - as docs/reference/reduction-tree.md says


@dataclass(frozen=True, slots=True)
class ReductionText:
    """What the text of a reduction is made of; `captured` is the size of all its scalars.

    `element` maps inputs to accumulators, and says where its scalars lie; None hands them on.
    """

    inputs: Sequence[tuple[Type, Access]]
    element: tuple[Program, int] | None
    folds: Sequence[FoldText]
    captured: int


def cuda_reduce_source(name: str, parts: ReductionText, spread: Spread) -> KernelSource:
    """Return the text of a reduction on a device; each pass of `spread` serves some folds."""
    inputs, element, folds = parts.inputs, parts.element, parts.folds
    printed: list[PrintedOperator] = []
    lines: list[str] = []
    for index, fold in enumerate(folds):
        lines += device_fold_lines(index, fold, printed)
    if element is None:
        mapper = f"km::same<{type_spelling(inputs[0][0], qualified=True)}>"
    else:
        program, offset = element
        printed.append(print_program(program, CUDA, name="Element"))
        lines += [
            "struct Map : km::Element, km::mapped {",
            f"  KM_INL explicit Map(const char* packed) : km::Element(packed + {offset}) {{}}",
            "};",
        ]
        mapper = "Map"
    values = sum(pattern == "by_value" for _, pattern in inputs)
    room = max(parts.captured + values * VALUE_SLOT, VALUE_SLOT)
    calls = []
    for number, order in enumerate(spread.orders):
        served = [i for i, fold in enumerate(folds) if serves(spread.orders, order, fold.ordered)]
        places = ", ".join(f"km::fold_at<{i}, Fold{i}>" for i in served)
        lines += [
            f"typedef km::reduction<{mapper}, km::in<{arguments_text(inputs)}>,",
            f"    km::folds<{places}>,",
            f"    {len(folds)}, {parts.captured}, {room}, {number}> Pass{number};",
        ]
        calls.append(f"  {_loops(spread, order, number)}(call);\n")
    lines += [
        f"KM_EXPORT void __launch_bounds__({_bounds(parts, spread)})",
        f"km_kernel(const __grid_constant__ Pass0::call call) {{\n{''.join(calls)}}}\n",
    ]
    files = sorted({_FILES[spread.loops, order == "ordered"] for order in spread.orders})
    given = tuple(k for k, (_, pattern) in enumerate(inputs) if pattern == "by_value")
    text = text_of(name, files, printed, "\n".join(lines))
    return KernelSource(name, text, spread.threads, given)


# Operations an element from which the operators need the registers themselves.
_COSTLY: Final = 12


def _bounds(parts: ReductionText, spread: Spread) -> str:
    """Return the launch bounds of a kernel.

    Where one sequence is summed, the compiler is told how many blocks share a multiprocessor: it
    then spends the registers on loads under way, which it would save otherwise.
    """
    programs = [fold.combine for fold in parts.folds]
    programs += [parts.element[0]] if parts.element else []
    cheap = sum(map(count_flops, programs)) < _COSTLY
    beside = RESIDENT // spread.threads
    if spread.loops in ("one", "several", "by_warp") and cheap and beside > 1:
        return f"{spread.threads}, {beside}"
    return str(spread.threads)


def serves(orders: Sequence[Order], order: Order, ordered: bool) -> bool:  # noqa: FBT001 - a fact
    """Return whether a pass serves a fold: its own kind, where there are two kinds of passes."""
    return len(orders) == 1 or ordered == (order == "ordered")


_FILES: Final = {
    ("blocks", False): "reduce_rows.cuh",
    ("teams", False): "reduce_rows.cuh",
    ("blocks", True): "reduce_ordered.cuh",
    ("teams", True): "reduce_ordered.cuh",
    ("few", False): "reduce_rows.cuh",
    ("one", False): "reduce_whole.cuh",
    ("several", False): "reduce_whole.cuh",
    ("by_warp", False): "reduce_whole.cuh",
    ("narrow", False): "reduce_narrow.cuh",
    ("columns", False): "reduce_columns.cuh",
    ("columns", True): "reduce_columns.cuh",
}


def _loops(spread: Spread, order: Order, number: int) -> str:
    """Return the function of device/reduce*.cuh that a pass calls."""
    threads, team, packet, unroll = spread.threads, spread.team, spread.packet, spread.unroll
    nested, tree = ("true" if flag else "false" for flag in (spread.nested, order == "tree"))
    row_loops = f"km::rows<Pass{number}, {nested}, {packet}, {unroll}>"
    if order == "ordered" and spread.loops != "columns":
        row_loops = f"km::ordered_rows<Pass{number}, {nested}, {packet}>"
    prefix = "tree_" if order == "tree" else ""
    whole = f"km::whole<Pass{number}, {threads}, {packet}, {unroll}>"
    columns = f"{nested}, {team}, {threads // team}, {packet}, {tree}"
    return {
        "one": f"{whole}::one",
        "several": f"{whole}::several",
        "by_warp": f"{whole}::by_warp",
        "blocks": f"{row_loops}::{prefix}blocks<{threads}>",
        "teams": f"{row_loops}::{prefix}teams<{threads}{'' if prefix else f', {team}'}>",
        "few": f"{row_loops}::few<{threads}, {team}, {unroll}, {spread.rows}, {tree}>",
        "narrow": f"km::narrow<Pass{number}, {threads}, {packet}, {unroll}>::blocks",
        "columns": f"km::columns<Pass{number}, {columns}>::"
        + ("ordered" if order == "ordered" else "blocks"),
    }[spread.loops]


def device_fold_lines(index: int, fold: FoldText, printed: list[PrintedOperator]) -> list[str]:
    """Return the struct of a fold; appends the operators it is made of."""
    spelled = type_spelling(fold.accumulator, qualified=True)
    finish = print_program(fold.finish, CUDA, name=f"Finish{index}")
    printed += [finish, print_program(fold.combine, CUDA, name=f"Combine{index}")]
    return [
        f"struct Fold{index} : km::Combine{index} {{",
        f"  typedef {spelled} acc;",
        f"  typedef {finish.result_spelling} out;",
        f"  static constexpr int lanes = {lanes_of(fold.accumulator.itemsize)};",
        f"  km::Finish{index} last;",
        f"  KM_INL explicit Fold{index}(const char* packed)",
        f"      : km::Combine{index}(packed + {fold.offset}), last(packed + {fold.tail}) {{}}",
        "  KM_INL out finish(acc value) const { return last(value); }",
        "};",
    ]
