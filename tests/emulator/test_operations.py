"""Values of the CUDA texts, on the emulator: every operation on every type, and the templates.

What they should be, the oracle and the host's vector math say; tests/cuda runs the same on a GPU.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import cuda_operations as texts
import oracle
import printed_operations as printed
from kernelmill.runtime.emulator import (
    EmulatedCode,
    EmulatedKernel,
    Schedule,
    compile_emulated,
    emulator_headers,
)
from kernelmill.toolchain.nvrtc import CudaOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

OPERATIONS = printed.operations()
BY_NAME = {name: [o for o in OPERATIONS if o.op == name] for name in {o.op: 0 for o in OPERATIONS}}
INDEX = {operation: i for i, operation in enumerate(OPERATIONS)}
BATCH = 120
RANDOM = 20
SCHEDULES = (Schedule(), Schedule("reversed", blocks=3), Schedule("random", seed=5, blocks=4))


def compiled(text: str) -> EmulatedCode:
    return compile_emulated(text, options=CudaOptions(), headers=emulator_headers())


@cache
def code_of(batch: int) -> EmulatedCode:
    operators = texts.print_all(o.program() for o in OPERATIONS)
    return compiled(texts.text_of(operators[batch * BATCH : (batch + 1) * BATCH]))


def raw(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array).view(np.uint8)


def call(kernel: EmulatedKernel, args: Sequence[np.ndarray], out: np.dtype, captures: bytes = b""):
    count = len(args[0])
    made = np.full(count * out.itemsize, 0xA5, np.uint8)
    held = np.frombuffer(captures or b"\0", np.uint8)
    blocks = (-(-count // 128), 1, 1)
    kernel.launch(blocks, (128, 1, 1), [*map(raw, args), made, count, held])
    return made.view(out)


@pytest.mark.parametrize("name", BY_NAME)
def test_an_operation_is_what_the_language_says(name: str):
    for operation in BY_NAME[name]:
        index = INDEX[operation]
        args = printed.operands(operation, index, RANDOM)
        kernel = code_of(index // BATCH).get_kernel(f"kernel{index}")
        results = call(kernel, args, printed.numpy_of(operation.result))
        with np.errstate(all="ignore"):
            for values, got in zip(zip(*args, strict=True), results, strict=True):
                if name == "cast":
                    wanted = oracle.convert(values[0], operation.result)
                else:
                    wanted = oracle.apply(name, values)
                assert oracle.same_bits(wanted, got), (str(operation), values, wanted, got)
