"""The device templates on the emulator, in several schedules: blocks, warps, atomics, conversions."""

from __future__ import annotations

import itertools
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import intrinsic_library as library
import intrinsic_samples as samples
import kernelmill as km
from device_texts import ATOMICS, BLOCKS
from kernelmill.runtime.emulator import Schedule, compile_emulated, emulator_headers, scheduled
from kernelmill.toolchain.nvrtc import CudaOptions

SCHEDULES = (
    Schedule(),
    Schedule("reversed", blocks=3),
    Schedule("random", seed=5, blocks=4),
    Schedule("random", seed=6),
)
from operation_values import same


@pytest.fixture(params=SCHEDULES, ids=lambda s: f"{s.order}-{s.blocks}")
def schedule(request):
    with scheduled(request.param):
        yield request.param


@cache
def compiled(text: str):
    return compile_emulated(text, options=CudaOptions(), headers=emulator_headers())


def launch(text: str, name: str, grid: int, block: int, *args: object, cooperative: bool = False):
    config = km.LaunchConfig(grid, block, is_cooperative=cooperative)
    km.launch(None, config, compiled(text).get_kernel(name), *args)


def products(matrices: np.ndarray) -> list[np.ndarray]:
    with np.errstate(over="ignore"):
        return list(itertools.accumulate(matrices, lambda x, y: (x @ y).astype(np.uint32)))


@pytest.mark.parametrize(
    ("threads", "count"),
    [(32, 32), (32, 7), (96, 96), (96, 33), (1024, 1024), (1024, 1), (1024, 1000)],
)
def test_blocks_keep_the_order_of_operators_that_do_not_commute(schedule, threads, count):
    rng = np.random.default_rng(threads + count)
    matrices = rng.integers(0, 1 << 32, (threads, 2, 2), np.uint32)
    total, before = (np.zeros((threads, 2, 2), np.uint32) for _ in range(2))
    up_to = np.zeros((threads + 1, 2, 2), np.uint32)
    launch(BLOCKS, f"products{threads}", 1, threads, matrices, total, up_to, before, count)
    wanted = np.array(products(matrices))
    assert (total == wanted[count - 1]).all()
    assert (up_to[:threads] == wanted).all()
    assert (up_to[threads] == wanted[-1]).all()
    twice = np.uint32(2) * np.concatenate([np.eye(2, dtype=np.uint32)[None], wanted[:-1]])
    assert (before == twice).all()


@pytest.mark.parametrize("count", [1, 2, 31, 33, 100, 255, 256])
def test_a_block_adds_by_the_tree_of_adjacent_pairs(schedule, count):
    values = np.random.default_rng(count).normal(size=256).astype(np.float32)
    out = np.zeros(256, np.float32)
    launch(BLOCKS, "sum", 1, 256, values, out, count)
    tree, step = list(values[:count]), 1
    while step < count:
        for i in range(0, count - step, 2 * step):
            tree[i] = tree[i] + tree[i + step]
        step *= 2
    assert (out == tree[0]).all()


def test_types_that_fill_no_word_are_shuffled(schedule):
    values = np.random.default_rng(2).integers(0, 256, (128, 3), np.uint8)
    out = np.zeros((128, 3), np.uint8)
    launch(BLOCKS, "ends", 1, 128, values, out)
    assert (out == [values[0, 0], values[-1, 1], values[:, 2].sum(dtype=np.uint8)]).all()


def test_atomics_count_for_every_type(schedule):
    types = (np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64)
    arrays = [np.array([0, 0, 100, 7], t) for t in types]
    launch(ATOMICS, "counts", 4, 256, *arrays)
    for array, type_ in zip(arrays, types, strict=True):
        with np.errstate(over="ignore"):
            total = np.array(1024).astype(type_)
        assert array.tolist() == [total, 99, 1, 7], type_


@pytest.mark.parametrize("cooperative", [False, True])
def test_release_and_acquire_pass_values_between_blocks(schedule, cooperative):
    blocks = 60
    flags, values = (np.zeros(blocks, np.uint32) for _ in range(2))
    launch(ATOMICS, "pass_on", blocks, 32, flags, values, blocks, cooperative=cooperative)
    assert values.tolist() == np.cumsum(np.arange(blocks)).tolist()


def test_sixteen_bytes_are_written_and_read_as_one(schedule):
    words = np.zeros(512 + 2, np.uint64)
    words = words[(-words.ctypes.data // 8) % 2 :][:512]
    launch(ATOMICS, "both", 1, 256, words)
    pairs = words.reshape(256, 2)
    assert (pairs[:, 0] == np.arange(256)).all()
    assert (pairs[:, 1] == ~np.arange(256, dtype=np.uint64)).all()


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
    patterns = np.arange(1 << 16, dtype=np.uint16)
    half, brain = (np.zeros(1 << 16, np.float32) for _ in range(2))
    launch(text, "widen", 256, 256, patterns, half, brain)
    assert same(half, patterns.view(np.float16).astype(np.float32)).all()
    assert same(brain, patterns.view(ml_dtypes.bfloat16).astype(np.float32)).all()

    with np.errstate(all="ignore"):
        rng = np.random.default_rng(5)
        middle = patterns.view(np.float16).astype(np.float64) * (1 + 2.0**-11)  # ties
        narrow32 = np.where(rng.integers(0, 2, 1 << 16) == 1, middle, 0).astype(np.float32)
        narrow32 += rng.integers(0, 1 << 32, 1 << 16, np.uint32).view(np.float32) * (narrow32 == 0)
        narrow64 = middle * (1 + rng.choice([-(2.0**-50), 0, 2.0**-50], 1 << 16))
        wanted = [
            narrow32.astype(np.float16),
            narrow32.astype(ml_dtypes.bfloat16),
            narrow64.astype(np.float16),
        ]
    outs = [np.zeros(1 << 16, np.uint16) for _ in range(3)]
    launch(text, "narrow", 256, 256, narrow32, narrow64, *outs)
    for out, expected in zip(outs, wanted, strict=True):
        got = out.view(expected.dtype)
        both_nan = np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
        assert ((out == expected.view(np.uint16)) | both_nan).all()


# ----------------------------------------------------------------------------- vector math


@pytest.fixture(scope="module")
def host_math(tmp_path_factory):
    return library.build(tmp_path_factory.mktemp("math"), arrays=True, extra=("-O1",))


@cache
def math_text() -> str:
    parts = ['#include "vmath.hpp"\nnamespace km {\n']
    for row in library.ROWS.values():
        inputs = "".join(f"const {t}* a{i}, " for i, t in enumerate(row.arguments))
        given = ", ".join(f"a{i}[i]" for i in range(len(row.arguments)))
        parts += [
            f"KM_EXPORT void {row.symbol}({inputs}{row.result}* out, long count) {{\n",
            "  const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;\n",
            f"  if (i < count) out[i] = {row.call}({given});\n}}\n",
        ]
    return "".join([*parts, "}\n"])


@pytest.mark.parametrize("symbol", library.ROWS)
def test_vector_math_has_the_bits_of_the_host(host_math, symbol):
    row = library.ROWS[symbol]
    args = samples.arguments(row, np.random.default_rng(samples.SEED))
    if row.name.endswith("_near"):  # defined for arguments that are not huge
        args = [np.where(abs(args[0]) < 1e4, args[0], 1).astype(args[0].dtype)]
    wanted = library.apply(host_math, row.name, *args)
    got = np.zeros(len(args[0]), wanted.dtype)
    launch(math_text(), symbol, -(-len(got) // 128), 128, *args, got, len(got))
    fine = same(wanted, got)
    bad = np.flatnonzero(~fine)[:5]
    assert fine.all(), (samples.SEED, [a[bad] for a in args], wanted[bad], got[bad])
