"""The inline PTX that the emulator's tests run is what the assembler of a chip takes."""

from __future__ import annotations

import pytest

from emulator_ptx import TEXT
from kernelmill.toolchain.nvrtc import compile_cuda

pytest.importorskip("cuda.bindings", reason="needs the extra cuda13 or cuda12")


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_the_assembler_takes_the_text_of_the_emulators_tests(arch):
    assert compile_cuda(TEXT, name="words.cu", arch=arch).data
