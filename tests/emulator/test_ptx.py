"""Inline PTX instruction by instruction: values as Python says; what has no form is refused."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import kernelmill as km
from emulator_ptx import EXPECTED, TEXT, lanes_expected
from kernelmill.errors import NotImplementedHere
from kernelmill.runtime.emulator import compile_emulated, sanitized
from kernelmill.runtime.emulator.ptx import translate


def launch(name, out, block):
    kernel = compile_emulated(TEXT, name="words.cu").get_kernel(name)
    km.launch(None, km.LaunchConfig(1, block), kernel, out)
    return out


@pytest.mark.parametrize("looked_at", [False, True])
def test_instructions_leave_what_python_says(looked_at):
    out, lanes = np.zeros(len(EXPECTED), np.uint64), np.zeros((64, 9), np.uint32)
    with sanitized() if looked_at else nullcontext():
        launch("words", out, 1)
        launch("lanes", lanes, 64)
    wrong = [n for n, wanted in enumerate(EXPECTED) if out[n] != wanted]
    assert not wrong, [(n, hex(out[n]), hex(EXPECTED[n]), TEXT.splitlines()[n + 1]) for n in wrong]
    assert lanes.tolist() == [lanes_expected(thread % 32) for thread in range(64)]


REFUSED = (
    "bra done;",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0}, {%1}, {%2}, {%3};",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];",
    "add.u32 %0, %1, undeclared;",
    "add.u32 %0, %1, %9;",
    "{ .reg .b128 w; mov.b128 w, {%0, %1}; }",
    "wgmma.fence.sync.aligned;",
    "tex.1d.v4.f32.s32 {%0, %1, %2, %3}, [%0, {%1}];",
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%2];",
    "prmt.b32.f4e %0, %1, %2, %3;",
    "@p add.u32 %0, %1, 1;",
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_form_is_refused_by_its_text_and_line(text):
    with pytest.raises(NotImplementedHere, match="line 7: the emulator does not know this PTX: "):
        translate(text, ["(a)", "(b)", "(c)", "(d)"], 7)
