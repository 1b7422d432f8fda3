"""The C++ text of a kernel: printed operators around one instance of a host template.

Which templates exist is seen in `host/`; how an operator is printed, in `compiler/cpp.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmill.compiler.builder import FunctionBuilder, convert, tuple_item
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.dialects import HOST
from kernelmill.compiler.ir import Program
from kernelmill.dtypes import TupleType
from kernelmill.runtime.backend import KernelSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.layout import Pattern
    from kernelmill.compiler.cpp import PrintedOperator
    from kernelmill.compiler.ir import Expr
    from kernelmill.dtypes import DType, StructType, Type

__all__ = ["assemble", "storing", "transform_source"]


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
    name: str, templates: Sequence[str], operators: Sequence[PrintedOperator], launch: str
) -> KernelSource:
    """Return the text of a kernel: includes, operators, and the one exported function."""
    files = sorted({*templates, *(file for o in operators for file in o.includes)})
    includes = "".join(f'#include "{file}"\n' for file in files)
    body = "\n".join(operator.text for operator in operators)
    return KernelSource(
        name,
        f"// {name}\n{includes}\n{body}\n"
        f"KM_EXPORT void km_kernel(const km::Call* call) {{\n  {launch}\n}}\n",
    )


def transform_source(
    name: str,
    program: Program,
    inputs: Sequence[tuple[Type, Pattern]],
    outputs: Sequence[tuple[DType | StructType, Pattern]],
) -> KernelSource:
    """Return the text of an element-wise kernel."""
    printed = print_program(storing(program, [t for t, _ in outputs]), HOST)
    taken, made = _arguments(inputs), _arguments(outputs)
    return assemble(
        name,
        ["transform.hpp"],
        [printed],
        f"km::transform<km::Op, km::in<{taken}>, km::out<{made}>>"
        "::run(call, km::Op(call->captures));",
    )


def _arguments(operands: Sequence[tuple[Type, Pattern]]) -> str:
    return ", ".join(
        f"km::arg<{type_spelling(type_, qualified=True)}, km::{pattern}>"
        for type_, pattern in operands
    )
