"""Raw operators as CUDA text: compiled inline, or linked as LTO-IR and inlined, with no driver."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernelmill.algorithms.source import transform_source
from kernelmill.compiler.op import as_op, specialize
from kernelmill.compiler.raw import check_device
from kernelmill.errors import CompileError, DeviceError, OperatorError
from kernelmill.runtime.cuda.images import image_of
from kernelmill.runtime.cuda.templates import device_headers
from kernelmill.toolchain.attached import attach, attached
from kernelmill.toolchain.nvjitlink import link_cuda
from kernelmill.toolchain.nvrtc import compile_cuda

pytest.importorskip("cuda.bindings", reason="needs the extra cuda13 or cuda12")

CHIPS = ("sm_80", "sm_90", "sm_100")
TEXT = "__device__ float look(float x, const float* table, float by) { return table[(int)x] * by; }"
PLAIN = 'extern "C" __device__ float twice(float x) { return 2.0f * x; }'


def source(op, types=(km.float32,), result=km.float32):
    program = specialize(as_op(op), tuple(types)).translation.program
    inputs = [(t, "contiguous") for t in types]
    return transform_source("raw", program, inputs, [(result, "contiguous")], "flat")


class Gpu:
    """An array in the memory of a GPU, as far as its description goes."""

    def __init__(self, address=4096):
        self.__cuda_array_interface__ = {
            "shape": (8,),
            "typestr": "<f4",
            "data": (address, False),
            "version": 3,
        }


@pytest.mark.parametrize("arch", CHIPS)
def test_text_is_compiled_with_the_kernel(arch):
    look = km.RawOp(cpp=TEXT, arguments=(km.float32,), result=km.float32, state=(Gpu(), 2.0))
    image = image_of(source(lambda x: look(x) + 1), arch)
    assert image.log == ""
    assert image.data[:4] == b"\x7fELF"


def test_structs_and_half_precision_compile():
    pair = km.struct({"value": km.float32, "at": km.float16}, name="Pair")
    text = """
    #include "vmath.hpp"
    template <class P> __device__ P best(P a, P b) {
      return km::exp((float)b.at) > km::exp((float)a.at) ? b : a;
    }"""
    best = km.RawOp(cpp=text, arguments=(pair, pair), result=pair)
    types = (km.dtype_of(pair),) * 2
    assert image_of(source(best, types, types[0]), "sm_90").log == ""


@pytest.mark.parametrize("arch", CHIPS)
def test_ltoir_is_linked_and_inlined(arch):
    made = km.Program(PLAIN, name="twice.cu").compile("ltoir", arch=arch)
    twice = km.RawOp(ltoir=made, name="twice", arguments=(km.float32,), result=km.float32)
    text = source(lambda x: twice(x) + 1)
    assert image_of(text, arch).data[:4] == b"\x7fELF"
    kernel = compile_cuda(text.text, arch=arch, output="ltoir", headers=device_headers())
    ptx = link_cuda([kernel, *attached(text.text)], arch=arch, output="ptx").data.decode()
    assert "call" not in ptx
    assert "twice" not in ptx
    same = source(lambda x: 2 * x + 1)
    alone = compile_cuda(same.text, arch=arch, output="ptx", headers=device_headers()).data.decode()
    count = lambda text: sum(line.startswith("\t") for line in text.splitlines())
    assert count(ptx) <= count(alone) + 3


def test_ltoir_that_takes_pointers_is_inlined():
    text = """extern "C" __device__ void sum(void* a, void* b, void* r) {
      *(float*)r = *(float*)a + *(float*)b;
    }"""
    image = km.Program(text).compile("ltoir", arch="sm_90")
    types = (km.float32, km.float32)
    total = km.RawOp(ltoir=image, name="sum", arguments=types, result=km.float32, by_pointer=True)
    made = source(total, types)
    assert 'extern "C" __device__ void sum(void*, void*, void*);' in made.text
    kernel = compile_cuda(made.text, output="ltoir", headers=device_headers())
    ptx = link_cuda([kernel, *attached(made.text)], output="ptx").data.decode()
    assert "call" not in ptx
    assert ".local" not in ptx


def test_ltoir_with_a_state_and_of_bytes():
    text = (
        'extern "C" __device__ float at(float i, const float* t, long n) { return t[(long)i % n]; }'
    )
    image = km.Program(text).compile("ltoir", arch="sm_80").code
    at = km.RawOp(
        ltoir=image, name="at", arguments=(km.float32,), result=km.float32, state=(Gpu(), 8)
    )
    made = source(at)
    assert 'extern "C" __device__ km::f32 at(km::f32, km::f32*, km::i64);' in made.text
    assert image_of(made, "sm_90").data[:4] == b"\x7fELF"
    assert source(at.with_state((Gpu(8192), 4))).text == made.text


def test_a_missing_function_of_ltoir_is_named():
    image = km.Program(PLAIN).compile("ltoir", arch="sm_90")
    thrice = km.RawOp(ltoir=image, name="thrice", arguments=(km.float32,), result=km.float32)
    with pytest.raises(CompileError, match="thrice"):
        image_of(source(thrice), "sm_90")


def test_texts_carry_each_image_once():
    line = attach("op", b"\0image\xff")
    (found,) = attached(f"{line}int x;\n{line}")
    assert (found.name, found.data, found.output) == ("op", b"\0image\xff", "ltoir")
    assert attached("// ltoir") == attached("no image") == []


def test_text_without_marks_is_refused():
    plain = km.RawOp(
        cpp="float twice(float x) { return 2 * x; }", arguments=(km.float32,), result=km.float32
    )
    with pytest.raises(OperatorError) as caught:
        source(plain)
    assert caught.value.message == (
        "the C++ text of the raw operator twice has no function that is marked `__device__`"
    )
    assert caught.value.hint == "write `__device__` before each function; the CPU reads over it"


def test_a_state_in_other_memory_is_refused():
    table = np.zeros(8, np.float32)
    look = km.RawOp(cpp=TEXT, arguments=(km.float32,), result=km.float32, state=(table, 2.0))
    with pytest.raises(DeviceError) as caught:
        check_device(look.raw, "cuda:0")
    assert caught.value.message == (
        "the state of the raw operator look is in the memory of the host; it runs on cuda:0"
    )
    assert caught.value.hint == ("copy it to where the operator runs, and pass it to `with_state`")
    check_device(look.raw, "emulator")
    there = km.RawOp(cpp=TEXT, arguments=(km.float32,), result=km.float32, state=(Gpu(), 2.0))
    with pytest.raises(DeviceError, match="look is on a GPU; it runs on cpu"):
        km.transform(table, there)
    with pytest.raises(km.ArgumentError, match="arrays of the host and of a GPU"):
        km.RawOp(cpp=TEXT, arguments=(), result=km.float32, state=(table, Gpu()))


# ----------------------------------------------------------------------------- kernels in Python


def test_a_kernel_in_python_calls_it():
    table = np.float32([10, 20, 30])
    look = km.RawOp(cpp=TEXT, arguments=(km.float32,), result=km.float32, state=(table, 2.0))

    @km.kernel
    def every(x):
        for i in km.grid_range(len(x)):
            x[i] = look(x[i]) + 1

    x = np.float32([2, 0, 1])
    with km.Device("emulator"):
        every.launch(len(x), x)
    assert x.tolist() == [61, 21, 41]
    assert every.compile("float32[:]", arch="sm_90").data[:4] == b"\x7fELF"


def test_a_kernel_in_python_is_linked_with_ltoir():
    code = km.Program(PLAIN).compile("ltoir", arch="sm_90")
    twice = km.RawOp(ltoir=code, name="twice", arguments=(km.float32,), result=km.float32)

    @km.kernel
    def every(x):
        for i in km.grid_range(len(x)):
            x[i] = twice(x[i])

    assert b"call" not in every.compile("float32[:]", arch="sm_90", output="ptx").data
    assert every.compile("float32[:]", arch="sm_90").data[:4] == b"\x7fELF"


def test_the_emulator_takes_text_and_refuses_ltoir():
    x = np.arange(5, dtype=np.float32)
    text = "__device__ float larger(float a, float b) { return a > b ? a : b; }"
    larger = km.RawOp(cpp=text, arguments=(km.float32,) * 2, result=km.float32)
    table = km.RawOp(cpp=TEXT, arguments=(km.float32,), result=km.float32, state=(x + 1, 2.0))
    twice = km.RawOp(ltoir=b"x", name="twice", arguments=(km.float32,), result=km.float32)
    with km.Device("emulator"):
        assert km.transform(x, table).tolist() == [2, 4, 6, 8, 10]
        assert km.reduce(x, larger) == 4
        with pytest.raises(km.NotImplementedHere) as caught:
            km.transform(x, twice)
    assert caught.value.message == "twice is a raw operator of LTO-IR, which runs on GPUs alone"
