"""Every CUDA text compiles for the chips of CI, with no driver: templates, operations, programs."""

from __future__ import annotations

import numpy as np
import pytest

import cuda_operations as texts
import printed_operations as printed
from kernelmill.compiler import ir
from kernelmill.compiler.builder import FunctionBuilder
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.dialects import CUDA
from kernelmill.dtypes import (
    StructType,
    bool_,
    dtype_of,
    float16,
    float32,
    float64,
    int32,
)
from kernelmill.runtime.cuda import device_headers
from kernelmill.structs import struct
from kernelmill.toolchain.includes import included
from kernelmill.toolchain.nvjitlink import link_cuda
from kernelmill.toolchain.nvrtc import CudaOptions, compile_cuda

pytest.importorskip("cuda.bindings", reason="needs the extra cuda13 or cuda12")

CHIPS = ("sm_80", "sm_90", "sm_100")
ALL_CHIPS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
OPERATIONS = printed.operations()
BATCH = 120  # the time a compiler takes grows faster than the text


def compile_here(text: str, arch: str, **more):
    return compile_cuda(text, arch=arch, headers=device_headers(), cache=False, **more)


def operators(step: int = 1, first: int = 0) -> list:
    return texts.print_all(o.program() for o in OPERATIONS)[first::step]


# ----------------------------------------------------------------------------- operations


@pytest.mark.parametrize(
    ("arch", "step", "first"), [("sm_90", 1, 0), ("sm_80", 3, 0), ("sm_100", 3, 1)]
)
def test_operations_compile(arch, step, first):
    made = operators(step, first)
    for start in range(0, len(made), BATCH):
        batch = made[start : start + BATCH]
        image = compile_here(texts.text_of(batch), arch)
        assert image.log == ""
        for operator in batch:
            assert f"kernel{operator.name.removeprefix('Op')}\0".encode() in image.data


@pytest.mark.slow
@pytest.mark.parametrize("arch", ALL_CHIPS)
def test_operations_compile_for_every_chip(arch):
    made = operators()
    for start in range(0, len(made), BATCH):
        assert compile_here(texts.text_of(made[start : start + BATCH]), arch).log == ""


def test_vector_math_compiles():
    functions = texts.print_all(o.program() for o in texts.transcendental())
    image = compile_here(texts.text_of(functions), "sm_90")
    assert image.log == ""
    assert b"kernel0\0" in image.data


def test_nothing_is_contracted():
    """The multiplication and the addition stay two, or the bits would not be the CPU's."""
    text = texts.text_of(texts.print_all([multiply_add()]))
    plain = compile_here(text, "sm_90", output="ptx").data.decode()
    fused = compile_here(
        text, "sm_90", output="ptx", options=CudaOptions(contract=True)
    ).data.decode()
    assert "fma.rn.f32" not in plain
    assert "mul.rn.f32" in plain
    assert "fma.rn.f32" in fused


def multiply_add() -> ir.Program:
    f = FunctionBuilder("scaled", [("a", float32), ("b", float32), ("c", float32)])
    f.return_(f.apply("add", f.apply("mul", f.param(0), f.param(1)), f.param(2)))
    return ir.Program((f.finish(),))


# ----------------------------------------------------------------------------- programs


def field_of(members: dict) -> StructType:
    found = dtype_of(struct(members))
    assert isinstance(found, StructType)
    return found


def packed_struct() -> StructType:
    layout = np.dtype([("tag", "u1"), ("half", "f2"), ("value", "f4"), ("flag", "?")])
    found = dtype_of(layout)
    assert isinstance(found, StructType)
    assert [f.offset for f in found.fields] == [0, 1, 3, 7]
    return found


def swap_fields(type_: StructType) -> ir.Program:
    f = FunctionBuilder("pick", [("a", type_), ("b", type_), ("c", bool_)])
    f.return_(f.select(f.param(2), f.param(0), f.param(1)))
    return ir.Program((f.finish(),))


@pytest.mark.parametrize("arch", CHIPS)
def test_structs_and_captures_compile(arch):
    natural = field_of({"x": float64, "n": int32, "h": float16, "b": bool_})
    f = FunctionBuilder("shifted", [("a", float64)])
    moved = f.apply("add", f.param(0), f.capture(0, float64))
    f.return_(f.select(f.capture(1, bool_), moved, f.param(0)))
    programs = [
        swap_fields(natural),
        swap_fields(packed_struct()),
        ir.Program((f.finish(),), captures=(("by", float64), ("on", bool_))),
    ]
    assert compile_here(texts.text_of(texts.print_all(programs)), arch).log == ""


def test_special_literals_are_spelled_for_the_device():
    f = FunctionBuilder("bounded", [("a", float32)])
    infinite = f.const(float("inf"), float32)
    f.return_(f.apply("minimum", f.param(0), infinite))
    text = print_program(ir.Program((f.finish(),)), CUDA).text
    assert "__int_as_float(0x7f800000)" in text
    assert "__builtin" not in text


# ----------------------------------------------------------------------------- templates

TEMPLATES = """
#include "block.cuh"
namespace km {
struct S3 { u8 a, b, c; };
struct Add { template <class T> KM_INL T operator()(T a, T b) const { return a + b; } };
struct Pick { KM_INL S3 operator()(S3 a, S3 b) const { return S3{a.a, b.b, u8(a.c + b.c)}; } };
template <int Scope> KM_INL void every_atomic(i32* i, u32* u, i64* l, u64* w, f32* f, f64* d, u8* b, u16* h) {
  atomic_add<relaxed, Scope>(i, 1);
  atomic_add<acquire, Scope>(u, 1u);
  atomic_add<release, Scope>(l, (i64)-1);
  atomic_add<acquire_release, Scope>(w, (u64)1);
  atomic_add<sequential, Scope>(f, 1.0f);
  atomic_add<relaxed, Scope>(d, 1.0);
  atomic_add<relaxed, Scope>(b, (u8)1);
  atomic_add<relaxed, Scope>(h, (u16)1);
  atomic_min<relaxed, Scope>(l, (i64)3), atomic_max<relaxed, Scope>(f, 3.0f), atomic_max<relaxed, Scope>(d, 3.0);
  atomic_and<relaxed, Scope>(u, 3u), atomic_or<relaxed, Scope>(w, (u64)3), atomic_xor<relaxed, Scope>(i, 3);
  atomic_exchange<acquire_release, Scope>(d, 2.0);
  u32 seen = 0;
  atomic_compare_exchange<acquire_release, Scope>(u, seen, 7u);
  atomic_store<release, Scope>(l, atomic_load<acquire, Scope>(l) + seen);
  fence<acquire_release, Scope>(), fence<sequential, Scope>();
}
KM_EXPORT void k(i32* i, u32* u, i64* l, u64* w, f32* f, f64* d, u8* b, u16* h, S3* s) {
  every_atomic<block_scope>(i, u, l, w, f, d, b, h);
  every_atomic<device_scope>(i, u, l, w, f, d, b, h);
  every_atomic<system_scope>(i, u, l, w, f, d, b, h);
  u64 x, y;
  load_both(w, x, y), store_both(w + 2, y, x);
  store_packet_once(f, load_packet_once(d)), store_packet(u, load_packet(i));
  f[0] = f32(f16(f[1])) + f32(bf16(f[2])) + f32(f16(d[1])) + f32(bf16(d[2]));
  u[1] = ballot(vote_any(f[0] > 0) && vote_all(f[1] > 0)) + match_any(u[0]) + match_any(w[0]) + active_lanes();
  s[thread_rank()] = shuffle_xor(shuffle(shuffle_up(s[lane_id()], 1), 3), 5);
  d[3] = unaligned_element<f64>::load((const char*)b + 1);
  unaligned_element<f32>::store((char*)b + 3, f[4]);
  __shared__ block_storage<f32, 256> floats;
  __shared__ block_storage<S3, 64> structs;
  __shared__ block_storage<i64, 32> one;
  f[5] = block_reduce(f[threadIdx.x], Add{}, floats, 100);
  s[1] = block_reduce(s[threadIdx.x], Pick{}, structs);
  l[1] = block_inclusive_scan(l[threadIdx.x], Add{}, one);
  f32 total;
  f[6] = block_exclusive_scan(f[threadIdx.x], 0.0f, Add{}, floats, &total) + total;
}
}  // namespace km
"""


@pytest.mark.parametrize("arch", ALL_CHIPS)
def test_templates_compile_for_every_chip(arch):
    image = compile_here(TEMPLATES, arch)
    assert image.log == ""
    assert image.data[:4] == b"\x7fELF"


def test_only_prims_holds_assembly():
    holds_a_value = 'asm("" : "+r"(r));'  # no instruction: against a wrong widening of ptxas
    for name, text in device_headers().items():
        found = text.replace("assembly", "").replace(holds_a_value, "", name == "scalar.hpp")
        assert ("asm" in found) == (name == "prims.cuh"), name


def test_templates_include_nothing_but_themselves():
    for name, text in device_headers().items():
        found = included(text, device_headers(), ())
        assert not found.outside, name
        assert not found.computed, name


# ----------------------------------------------------------------------------- linking

OPERATOR = "__device__ float op(float x) { return 2.0f * x + 1.0f; }"
CALLER = """
extern __device__ float op(float);
extern "C" __global__ void apply(float* x) { x[threadIdx.x] = op(x[threadIdx.x]); }
"""


@pytest.mark.parametrize("arch", CHIPS)
def test_ltoir_is_linked_and_inlined(arch):
    parts = [
        compile_here(text, arch, output="ltoir", name=name)
        for text, name in ((OPERATOR, "operator.cu"), (CALLER, "caller.cu"))
    ]
    linked = link_cuda(parts, arch=arch, output="ptx", cache=False).data.decode()
    assert "call" not in linked
    assert f".target {arch}" in linked
    assert link_cuda(parts, arch=arch, cache=False).data[:4] == b"\x7fELF"
