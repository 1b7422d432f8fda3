"""Values on a device: every operation on every type, the vector math and the templates, bit for bit.

What they should be, the oracle and the host's vector math say.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import cuda_operations as texts
import intrinsic_library as library
import intrinsic_samples as samples
from device_texts import ATOMICS, BLOCKS
from kernelmill.compiler import ir
from kernelmill.compiler.builder import FunctionBuilder
from kernelmill.dtypes import bool_, dtype_of, float64
from kernelmill.runtime import cuda
from kernelmill.toolchain.nvrtc import CudaOptions
from operation_values import BY_NAME, OPERATIONS, check, same

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.cuda

BATCH = 120
RANDOM = 100
OPERATOR = CudaOptions()


@cache
def code_of(batch: int) -> cuda.ObjectCode:
    """The operations of one batch, compiled for this device."""
    programs = (o.program() for o in OPERATIONS)
    operators = texts.print_all(programs)[batch * BATCH : (batch + 1) * BATCH]
    return compiled(texts.text_of(operators))


def compiled(text: str) -> cuda.ObjectCode:
    program = cuda.Program(text, options=OPERATOR, headers=cuda.device_headers())
    return program.compile("cubin")


def raw(array: np.ndarray[Any, Any]) -> cuda.CudaArray:
    """An array as bytes on the device: NumPy has types that no other library knows."""
    return cuda.to_device(np.ascontiguousarray(array).view(np.uint8))


def call(kernel: cuda.Kernel, args: Sequence[np.ndarray], out: np.dtype, captures: bytes = b""):
    count = len(args[0])
    made = raw(np.full(count * out.itemsize, 0xA5, np.uint8))
    held = raw(np.frombuffer(captures or b"\0", np.uint8))
    config = cuda.LaunchConfig(grid=-(-count // 128), block=128)
    cuda.launch(None, config, kernel, *map(raw, args), made, count, held)
    return made.numpy().view(out)


def computed(index: int, args: Sequence[np.ndarray], out: np.dtype) -> np.ndarray:
    return call(code_of(index // BATCH).get_kernel(f"kernel{index}"), args, out)


@pytest.mark.parametrize("name", BY_NAME)
def test_an_operation_is_what_the_language_says(name: str):
    check(name, RANDOM, computed)


# ----------------------------------------------------------------------------- vector math


@pytest.fixture(scope="module")
def host_math(tmp_path_factory):
    return library.build(tmp_path_factory.mktemp("math"), arrays=True, extra=("-O1",))


@cache
def device_math() -> cuda.ObjectCode:
    parts = ['#include "vmath.hpp"\nnamespace km {\n']
    for row in library.ROWS.values():
        inputs = "".join(f"const {t}* a{i}, " for i, t in enumerate(row.arguments))
        given = ", ".join(f"a{i}[i]" for i in range(len(row.arguments)))
        parts += [
            f"KM_EXPORT void {row.symbol}({inputs}{row.result}* out, long count, const void*) {{\n",
            "  const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;\n",
            f"  if (i < count) out[i] = {row.call}({given});\n}}\n",
        ]
    return compiled("".join([*parts, "}\n"]))


@pytest.mark.parametrize("symbol", library.ROWS)
def test_vector_math_has_the_bits_of_the_host(host_math, symbol):
    row = library.ROWS[symbol]
    rng = np.random.default_rng(samples.SEED)
    args = samples.arguments(row, rng)
    if row.name.endswith("_near"):  # defined for arguments that are not huge
        args = [np.where(abs(args[0]) < 1e4, args[0], 1).astype(args[0].dtype)]
    wanted = library.apply(host_math, row.name, *args)
    got = call(device_math().get_kernel(symbol), args, wanted.dtype)
    fine = same(wanted, got)
    bad = np.flatnonzero(~fine)[:5]
    assert fine.all(), (samples.SEED, [a[bad] for a in args], wanted[bad], got[bad])


# ----------------------------------------------------------------------------- half precision


def test_every_half_and_many_floats_convert_as_numpy_does():
    text = """
    #include "base.hpp"
    using namespace km;
    KM_EXPORT void widen(const u16* x, f32* half, f32* brain) {
      const int i = blockIdx.x * blockDim.x + threadIdx.x;
      half[i] = f32(f16::from_bits(x[i])), brain[i] = f32(bf16::from_bits(x[i]));
    }
    KM_EXPORT void narrow(const f32* x, const f64* y, u16* half, u16* brain, u16* from64) {
      const int i = blockIdx.x * blockDim.x + threadIdx.x;
      half[i] = f16(x[i]).bits, brain[i] = bf16(x[i]).bits, from64[i] = f16(y[i]).bits;
    }"""
    code = compiled(text)
    patterns = np.arange(1 << 16, dtype=np.uint16)
    half, brain = (raw(np.zeros(1 << 16, np.float32)) for _ in range(2))
    config = cuda.LaunchConfig(grid=256, block=256)
    cuda.launch(None, config, code.get_kernel("widen"), raw(patterns), half, brain)
    assert same(half.numpy().view(np.float32), patterns.view(np.float16).astype(np.float32)).all()
    wanted = patterns.view(ml_dtypes.bfloat16).astype(np.float32)
    assert same(brain.numpy().view(np.float32), wanted).all()

    with np.errstate(all="ignore"):
        rng = np.random.default_rng(5)
        middle = patterns.view(np.float16).astype(np.float64) * (1 + 2.0**-11)  # ties
        narrow32 = np.where(rng.integers(0, 2, 1 << 16) == 1, middle, 0).astype(np.float32)
        narrow32 += rng.integers(0, 1 << 32, 1 << 16, np.uint32).view(np.float32) * (narrow32 == 0)
        narrow64 = middle * (1 + rng.choice([-(2.0**-50), 0, 2.0**-50], 1 << 16))
    outs = [raw(np.zeros(1 << 16, np.uint16)) for _ in range(3)]
    cuda.launch(None, config, code.get_kernel("narrow"), raw(narrow32), raw(narrow64), *outs)
    with np.errstate(all="ignore"):
        wanted16 = [
            narrow32.astype(np.float16),
            narrow32.astype(ml_dtypes.bfloat16),
            narrow64.astype(np.float16),
        ]
    for out, expected in zip(outs, wanted16, strict=True):
        got = out.numpy().view(expected.dtype)
        both_nan = np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
        assert ((got.view(np.uint16) == expected.view(np.uint16)) | both_nan).all()


# ----------------------------------------------------------------------------- structs


@pytest.mark.parametrize("packed", [False, True])
def test_structs_and_captures(packed):
    fields = [("tag", "u1"), ("half", "f2"), ("value", "f8"), ("flag", "?")]
    layout = np.dtype(fields, align=not packed)
    type_ = dtype_of(layout)
    f = FunctionBuilder("pick", [("a", type_), ("b", type_)])
    f.return_(f.select(f.capture(1, bool_), f.param(0), f.param(1)))
    program = ir.Program((f.finish(),), captures=(("by", float64), ("on", bool_)))
    kernel = compiled(texts.text_of(texts.print_all([program]))).get_kernel("kernel0")
    rng = np.random.default_rng(1)
    a, b = (np.zeros(1000, layout) for _ in range(2))
    for array in (a, b):
        array["tag"], array["half"] = rng.integers(0, 256, 1000), rng.normal(size=1000)
        array["value"], array["flag"] = rng.normal(size=1000), rng.integers(0, 2, 1000)
    for on, wanted in ((True, a), (False, b)):
        captures = np.float64(1).tobytes() + bytes([on])
        got = call(kernel, [a, b], layout, captures)
        for name, _ in fields:
            assert (got[name] == wanted[name]).all(), name


# ----------------------------------------------------------------------------- templates


def products(matrices: np.ndarray) -> list[np.ndarray]:
    with np.errstate(over="ignore"):
        return list(itertools.accumulate(matrices, lambda x, y: (x @ y).astype(np.uint32)))


@pytest.mark.parametrize(
    ("threads", "count"),
    [(32, 32), (32, 7), (96, 96), (96, 33), (1024, 1024), (1024, 1), (1024, 1000)],
)
def test_blocks_keep_the_order_of_operators_that_do_not_commute(threads, count):
    rng = np.random.default_rng(threads + count)
    matrices = rng.integers(0, 1 << 32, (threads, 2, 2), np.uint32)
    total, before = (raw(np.zeros((threads, 2, 2), np.uint32)) for _ in range(2))
    up_to = raw(np.zeros((threads + 1, 2, 2), np.uint32))
    kernel = compiled(BLOCKS).get_kernel(f"products{threads}")
    config = cuda.LaunchConfig(1, threads)
    cuda.launch(None, config, kernel, raw(matrices), total, up_to, before, count)
    wanted = np.array(products(matrices))
    shaped = [a.numpy().view(np.uint32).reshape(-1, 2, 2) for a in (total, up_to, before)]
    assert (shaped[0] == wanted[count - 1]).all()
    assert (shaped[1][:threads] == wanted).all()
    assert (shaped[1][threads] == wanted[-1]).all()
    twice = np.uint32(2) * np.concatenate([np.eye(2, dtype=np.uint32)[None], wanted[:-1]])
    assert (shaped[2] == twice).all()


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 100, 255, 256])
def test_a_block_adds_by_the_tree_of_adjacent_pairs(count):
    values = np.random.default_rng(count).normal(size=256).astype(np.float32)
    out = raw(np.zeros(256, np.float32))
    cuda.launch(
        None, cuda.LaunchConfig(1, 256), compiled(BLOCKS).get_kernel("sum"), raw(values), out, count
    )
    tree, step = list(values[:count]), 1
    while step < count:
        for i in range(0, count - step, 2 * step):
            tree[i] = tree[i] + tree[i + step]
        step *= 2
    assert (out.numpy().view(np.float32) == tree[0]).all()


def test_types_that_fill_no_word_are_shuffled():
    values = np.random.default_rng(2).integers(0, 256, (128, 3), np.uint8)
    out = raw(np.zeros((128, 3), np.uint8))
    cuda.launch(
        None, cuda.LaunchConfig(1, 128), compiled(BLOCKS).get_kernel("ends"), raw(values), out
    )
    wanted = [values[0, 0], values[-1, 1], values[:, 2].sum(dtype=np.uint8)]
    assert (out.numpy().reshape(128, 3) == wanted).all()


def test_atomics_count_for_every_type():
    types = (np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64)
    starts = [np.array([0, 0, 100, 7], t) for t in types]
    arrays = [raw(s) for s in starts]
    config = cuda.LaunchConfig(grid=4, block=256)
    cuda.launch(None, config, compiled(ATOMICS).get_kernel("counts"), *arrays)
    for array, type_ in zip(arrays, types, strict=True):
        with np.errstate(over="ignore"):
            total = np.array(1024).astype(type_)
        assert array.numpy().view(type_).tolist() == [total, 99, 1, 7], type_


def test_release_and_acquire_pass_values_between_blocks():
    blocks = 200
    flags, values = (raw(np.zeros(blocks, np.uint32)) for _ in range(2))
    kernel = compiled(ATOMICS).get_kernel("pass_on")
    config = cuda.LaunchConfig(blocks, 32, is_cooperative=True)
    cuda.launch(None, config, kernel, flags, values, blocks)
    assert values.numpy().view(np.uint32).tolist() == np.cumsum(np.arange(blocks)).tolist()


def test_sixteen_bytes_are_written_and_read_as_one():
    words = raw(np.zeros(512, np.uint64))
    cuda.launch(None, cuda.LaunchConfig(1, 256), compiled(ATOMICS).get_kernel("both"), words)
    pairs = words.numpy().view(np.uint64).reshape(256, 2)
    assert (pairs[:, 0] == np.arange(256)).all()
    assert (pairs[:, 1] == ~np.arange(256, dtype=np.uint64)).all()
