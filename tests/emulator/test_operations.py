"""Values of the CUDA texts, on the emulator: every operation on every type, and the templates.

What they should be, the oracle and the host's vector math say; tests/cuda runs the same on a GPU.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import cuda_operations as texts
from kernelmill.runtime.emulator import (
    EmulatedCode,
    EmulatedKernel,
    Schedule,
    compile_emulated,
    emulator_headers,
)
from kernelmill.toolchain.nvrtc import CudaOptions
from operation_values import BY_NAME, OPERATIONS, check

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def computed(index: int, args: Sequence[np.ndarray], out: np.dtype) -> np.ndarray:
    return call(code_of(index // BATCH).get_kernel(f"kernel{index}"), args, out)


@pytest.mark.parametrize("name", BY_NAME)
def test_an_operation_is_what_the_language_says(name: str):
    check(name, RANDOM, computed)
