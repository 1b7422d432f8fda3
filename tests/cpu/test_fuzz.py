"""Random typed programs: the interpreter of the IR against the CPU back end, bit for bit.

Programs are compiled in batches, each as an element-wise kernel of its own in one library. The number
of programs is KERNELMILL_FUZZ_PROGRAMS (1,000 by default; `make fuzz` sets 20,000).
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import oracle
import strategies
from kernelmill.compiler.captured import pack_format
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.dialects import HOST
from kernelmill.config import get_config
from kernelmill.dtypes import DType, StructType, storage
from kernelmill.runtime.native import native
from kernelmill.runtime.program import HOST_TEMPLATES
from kernelmill.toolchain import compile_shared, find_host_compiler

if TYPE_CHECKING:
    from strategies import Case

PROGRAMS = int(os.environ.get("KERNELMILL_FUZZ_PROGRAMS", "1000"))
# Parts run beside each other; a part draws its programs by itself.
PARTS = max(1, PROGRAMS // 1000)
BATCH = 20
ELEMENTS = 12


def text_of(cases: list[Case]) -> str:
    """One library with a kernel for each case."""
    includes, bodies = {"transform.hpp"}, []
    for i, case in enumerate(cases):
        printed = print_program(case.program, HOST, name=f"Op{i}")
        includes |= set(printed.includes)
        taken = ", ".join(
            f"km::arg<{type_spelling(t, qualified=True)}, km::contiguous>"
            for _, t in case.program.entry.params
        )
        made = type_spelling(case.program.entry.result, qualified=True)
        bodies.append(
            f"{printed.text}KM_EXPORT void kernel{i}(const km::Call* call) {{\n"
            f"  km::transform<km::Op{i}, km::in<{taken}>, km::out<km::arg<{made}, km::contiguous>>>"
            f"::run(call, km::Op{i}(call->captures));\n}}\n"
        )
    return "".join(f'#include "{f}"\n' for f in sorted(includes)) + "\n".join(bodies)


def compile_cases(cases: list[Case], folder: Path) -> ctypes.CDLL:
    made = compile_shared(
        text_of(cases),
        folder / "fuzz.so",
        compiler=find_host_compiler(),
        march=get_config().march,
        include_dirs=(HOST_TEMPLATES,),
        extra=("-O1",),
    )
    return ctypes.CDLL(str(made.path))


def run_compiled(library: ctypes.CDLL, index: int, case: Case) -> list[Any]:
    result = case.program.entry.result
    assert isinstance(result, (DType, StructType))
    out = np.zeros(ELEMENTS, strategies.numpy_dtype(result))
    arrays = [*case.arguments, out]
    entry = ctypes.cast(library[f"kernel{index}"], ctypes.c_void_p).value
    native().call(
        entry,
        (ELEMENTS,),
        tuple(a.ctypes.data for a in arrays),
        tuple((a.itemsize,) for a in arrays),
        packed(case),
        0,
        0,
        1,
        False,
    )
    return list(out)


def packed(case: Case) -> bytes:
    types = [storage(t) for _, t in case.program.captures]
    values = [oracle.stored(v, t) for v, t in zip(case.captures, types, strict=True)]
    return pack_format(types).pack(*(v.item() for v in values))


def run_interpreted(case: Case) -> list[Any]:
    return [
        oracle.run(case.program, [a[i] for a in case.arguments], case.captures)
        for i in range(ELEMENTS)
    ]


@pytest.mark.all_examples
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@settings(
    max_examples=max(1, PROGRAMS // PARTS // BATCH),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    print_blob=True,
)
@given(cases=st.lists(strategies.cases(ELEMENTS, arrays=True), min_size=BATCH, max_size=BATCH))
def test_interpreter_and_cpu_back_end_agree_to_the_bit(part: int, cases: list[Case]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        library = compile_cases(cases, Path(folder))
    for index, case in enumerate(cases):
        found, expected = run_compiled(library, index, case), run_interpreted(case)
        for element, (a, b) in enumerate(zip(found, expected, strict=True)):
            if not oracle.same_bits(a, b):
                note(print_program(case.program, HOST).text)
                inputs = [x[element] for x in case.arguments]
                raise AssertionError(
                    f"element {element}, inputs {inputs}, captures {case.captures}: "
                    f"compiled {a!r}, interpreted {b!r}"
                )
