"""The operations of the language as CUDA texts: one kernel each, many in one translation unit.

What they compute on a device is compared in tests/cuda; here they only become text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import printed_operations as printed
from kernelmill.compiler import ir
from kernelmill.compiler.cpp import PrintedOperator, print_program
from kernelmill.compiler.dialects import CUDA
from kernelmill.compiler.intrinsics import OPERATIONS
from kernelmill.compiler.ir_verify import verify
from kernelmill.dtypes import float32, float64

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from printed_operations import Operation


def print_all(programs: Iterable[ir.Program]) -> list[PrintedOperator]:
    made = []
    for index, program in enumerate(programs):
        verify(program)
        made.append(print_program(program, CUDA, name=f"Op{index}"))
    return made


def text_of(operators: Sequence[PrintedOperator]) -> str:
    """The operators, and around each `kernelN(inputs ..., output, count, captures)`."""
    includes = dict.fromkeys(file for operator in operators for file in operator.includes)
    parts = [f'#include "{file}"\n' for file in includes]
    for operator in operators:
        index = operator.name.removeprefix("Op")
        result, params = operator.result_spelling, operator.parameter_spellings
        at = "km::element<{0}>::{1}(a{2} + i * sizeof({0})".format
        loads = ", ".join(f"{at(t, 'load', i)})" for i, t in enumerate(params))
        inputs = "".join(f"const char* a{i}, " for i in range(len(params)))
        parts += [
            f"{operator.text}\n",
            f"KM_EXPORT void kernel{index}({inputs}char* a{len(params)}, long count,\n",
            "    const void* captures) {\n",
            f"  const km::{operator.name} op(captures);\n",
            "  const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;\n",
            f"  if (i < count) {at(result, 'store', len(params))}, op({loads}));\n}}\n",
        ]
    return "".join(parts)


def transcendental() -> list[Operation]:
    """What `printed_operations` leaves out: functions of our vector math, in both precisions."""
    made = []
    for name in sorted(printed.TRANSCENDENTAL):
        row = OPERATIONS[name]
        for type_ in (float32, float64):
            types = (type_,) * row.arity
            made.append(printed.Operation(name, types, row.signature(types)[1]))
    return made
