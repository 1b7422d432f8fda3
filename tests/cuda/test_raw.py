"""Raw operators on a GPU: C++ text and LTO-IR, with and without a state."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernelmill import events

pytestmark = pytest.mark.cuda

LOOK = "__device__ float look(int i, const float* table, float by) { return table[i] * by; }"


def test_text_with_a_state(torch):
    table = torch.tensor([10.0, 20.0, 30.0], device="cuda")
    look = km.RawOp(cpp=LOOK, arguments=(km.int32,), result=km.float32, state=(table, 2.0))
    places = torch.tensor([2, 0, 1, 1], dtype=torch.int32, device="cuda")
    assert km.transform(places, look).tolist() == [60, 20, 40, 40]
    with events.listen("compile") as compiled:
        other = look.with_state((table + 1, 1.0))
        assert km.transform(places, other).tolist() == [31, 11, 21, 21]
        assert km.transform(places, look).tolist() == [60, 20, 40, 40]
    assert not compiled


def test_the_short_way_of_calls_reads_the_state(torch):
    table = torch.tensor([10.0, 20.0, 30.0], device="cuda")
    look = km.RawOp(cpp=LOOK, arguments=(km.int32,), result=km.float32, state=(table, 2.0))
    other = look.with_state((table + 1, 1.0))
    places = torch.tensor([2, 0, 1], dtype=torch.int32, device="cuda")
    for _ in range(4):
        assert km.transform(places, look).tolist() == [60, 20, 40]
        assert km.transform(places, other).tolist() == [31, 11, 21]


def test_reductions(torch):
    text = "__device__ float larger(float a, float b) { return a > b ? a : b; }"
    types = {"arguments": (km.float32, km.float32), "result": km.float32}
    x = torch.randn(1_000_003, device="cuda")
    for commutative in (True, False):
        larger = km.RawOp(cpp=text, **types, commutative=commutative)
        assert float(km.reduce(x, larger)) == float(x.max())
    code = km.Program(f'extern "C" {text}').compile("ltoir")
    linked = km.RawOp(ltoir=code, name="larger", **types, commutative=True)
    assert float(km.reduce(x, linked)) == float(x.max())


def test_a_kernel_in_python(torch):
    code = km.Program('extern "C" __device__ float twice(float x) { return 2 * x; }')
    twice = km.RawOp(
        ltoir=code.compile("ltoir"), name="twice", arguments=(km.float32,), result=km.float32
    )

    @km.kernel
    def every(x):
        for i in km.grid_range(len(x)):
            x[i] = twice(x[i]) + 1

    x = torch.arange(1000, dtype=torch.float32, device="cuda")
    every.launch(len(x), x)
    assert torch.equal(x, 2 * torch.arange(1000, device="cuda") + 1)


def test_text_in_a_python_operator(torch):
    text = "__device__ float twice(float x) { return 2 * x; }"
    twice = km.RawOp(cpp=text, arguments=(km.float32,), result=km.float32)
    x = torch.arange(100_003, dtype=torch.float32, device="cuda")
    assert torch.equal(km.transform(x, lambda v: twice(v) + 1), 2 * x + 1)


@pytest.mark.parametrize("arch", ["sm_80", None])
def test_ltoir(torch, arch):
    text = 'extern "C" __device__ float axpy(float x, float y, float a) { return a * x + y; }'
    image = km.Program(text, options=km.ProgramOptions(contract=False)).compile("ltoir", arch=arch)
    axpy = km.RawOp(
        ltoir=image,
        name="axpy",
        arguments=(km.float32, km.float32),
        result=km.float32,
        state=np.float32(3),
    )
    x = torch.randn(100_003, device="cuda")
    y = torch.randn_like(x)
    assert torch.equal(km.transform((x, y), axpy), torch.mul(x, 3.0) + y)
    assert torch.equal(km.transform((x, y), axpy.with_state(-1.0)), y - x)
