"""The C++ text of a kernel: printed operators around one instance of a host template.

Which templates exist is seen in `host/`; how an operator is printed, in `compiler/cpp.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelmill.compiler.builder import FunctionBuilder, convert, tuple_item
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.dialects import GUARDED, HOST, HOST_NEAR
from kernelmill.compiler.ir import (
    Apply,
    Program,
    operands,
    walk_expressions,
    walk_statements,
)
from kernelmill.dtypes import TupleType
from kernelmill.runtime.backend import KernelSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.layout import Form, Pattern
    from kernelmill.compiler.cpp import PrintedOperator
    from kernelmill.compiler.ir import Expr
    from kernelmill.dtypes import DType, StructType, Type

__all__ = ["FoldText", "assemble", "reduce_source", "storing", "transform_source"]


def storing(program: Program, wanted: Sequence[DType | StructType]) -> Program:
    """Return the program with an entry that converts its results to the types that are stored."""
    entry = program.entry
    target: Type = wanted[0] if len(wanted) == 1 else TupleType(tuple(wanted))
    if entry.result == target:
        return program
    wrapper = FunctionBuilder(f"{entry.name}_stored", entry.params)
    result = wrapper.call(entry, [wrapper.param(i) for i in range(len(entry.params))])
    wrapper.return_(_converted(result, target))
    return Program((*program.functions, wrapper.finish()), program.captures)


def _converted(value: Expr, target: Type) -> Expr:
    """Convert a result that may be stored so: a weak integer wraps, as everywhere at run time."""
    if isinstance(target, TupleType) and isinstance(value.type, TupleType):
        items = [_converted(tuple_item(value, i), t) for i, t in enumerate(target.items)]
        return FunctionBuilder.make_tuple(items)
    return convert(value, target)


def assemble(
    name: str,
    templates: Sequence[str],
    operators: Sequence[PrintedOperator],
    launch: str,
    structs: str = "",
) -> KernelSource:
    """Return the text of a kernel: includes, operators, structs, and the one exported function."""
    files = sorted({*templates, *(file for o in operators for file in o.includes)})
    includes = "".join(f'#include "{file}"\n' for file in files)
    body = "\n".join(operator.text for operator in operators)
    return KernelSource(
        name,
        f"// {name}\n{includes}\n{body}\n{structs}\n"
        f"KM_EXPORT void km_kernel(const km::Call* call) {{\n  {launch}\n}}\n",
    )


def transform_source(
    name: str,
    program: Program,
    inputs: Sequence[tuple[Type, Pattern]],
    outputs: Sequence[tuple[DType | StructType, Pattern]],
) -> KernelSource:
    """Return the text of an element-wise kernel."""
    whole = storing(program, [t for t, _ in outputs])
    printed = [print_program(whole, HOST)]
    functor = "km::Op"
    if _is_guarded(whole):
        printed.append(print_program(whole, HOST_NEAR, name="Near"))
        functor = "km::guarded<km::Op, km::Near>"
    taken, made = _arguments(inputs), _arguments(outputs)
    return assemble(
        name,
        ["transform.hpp"],
        printed,
        f"km::transform<{functor}, km::in<{taken}>, km::out<{made}>>"
        f"::run(call, {functor}(call->captures));",
    )


def _is_guarded(program: Program) -> bool:
    """Whether the program calls a function that has a quick form for near arguments."""
    return any(
        isinstance(node, Apply) and node.op in GUARDED
        for function in program.functions
        for statement in walk_statements(function.body)
        for operand in operands(statement)
        for node in walk_expressions(operand)
    )


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


def reduce_source(
    name: str,
    form: Form,
    inputs: Sequence[tuple[Type, Pattern]],
    element: tuple[Program, int] | None,
    folds: Sequence[FoldText],
) -> KernelSource:
    """Return the text of a reduction; `element` maps inputs to accumulators, None is identity."""
    printed: list[PrintedOperator] = []
    lines: list[str] = []
    for index, fold in enumerate(folds):
        lines += _fold_lines(index, fold, printed)
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
        f"  km::reduce<km::{form}, {mapper}, km::in<{_arguments(inputs)}>, "
        f"km::folds<{', '.join(names)}>>::run(call, {made});"
    )
    return assemble(name, ["reduce.hpp"], printed, launch, "\n".join(lines))


def _fold_lines(index: int, fold: FoldText, printed: list[PrintedOperator]) -> list[str]:
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


def _arguments(operands: Sequence[tuple[Type, Pattern]]) -> str:
    return ", ".join(
        f"km::arg<{type_spelling(type_, qualified=True)}, km::{pattern}>"
        for type_, pattern in operands
    )
