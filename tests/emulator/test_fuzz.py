"""Random typed programs: the interpreter against the CUDA text on the emulator, bit for bit.

The same texts are compiled by NVRTC. A tenth of KERNELMILL_FUZZ_PROGRAMS (1,000 by default) is drawn.
"""

from __future__ import annotations

import itertools

import pytest

from device_fuzz import PROGRAMS, batches, compare, run, sources_of, together
from kernelmill.runtime.cuda import device_headers
from kernelmill.runtime.devices import backend_named
from kernelmill.runtime.emulator.build import Request, build_program
from kernelmill.runtime.emulator.program import EmulatedCode
from kernelmill.runtime.emulator.templates import emulator_headers
from kernelmill.runtime.memory import as_view
from kernelmill.toolchain.nvrtc import compile_cuda

_ARCHITECTURES = itertools.cycle(("sm_90", "sm_80", "sm_100"))


def views(arrays):
    return [as_view(x, "x") for x in arrays], lambda: arrays[-1]


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@batches(PROGRAMS // 10, arrays=True)
def test_interpreter_and_emulator_agree_to_the_bit(cases):
    sources = sources_of(cases)
    text = together(sources)
    image = compile_cuda(text, arch=next(_ARCHITECTURES), headers=device_headers(), cache=False)
    assert image.log == ""
    request = Request(text, "fuzz.cu", emulator_headers(), contract=False)
    code = EmulatedCode(request, build_program(request))
    for i, (case, source) in enumerate(zip(cases, sources, strict=True)):
        kernel = code.get_kernel(f"kernel{i}")
        compare(case, run(backend_named("emulator"), kernel, source, case, views), source.text)
