"""The CUDA text of kernels in Python compiles for the chips of CI, without a warning."""

from __future__ import annotations

import re

import numpy as np
import pytest

import kernelmill as km
from kernel_cases import CASES
from kernelmill.kernels.launching import ConfiguredKernel, KernelFunction
from kernelmill.runtime.cuda import device_headers
from kernelmill.toolchain.cubin import resources_of
from kernelmill.toolchain.nvrtc import compile_cuda

pytest.importorskip("cuda.bindings", reason="needs the extra cuda13 or cuda12")

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


def variant_of(case):
    kernel: KernelFunction = case.kernel
    if case.config is not None:
        made: ConfiguredKernel = kernel[case.config]
        config = made.config
    else:
        config = kernel._config_for(case.n, None)
    return kernel._fitting(kernel._bind(case.args, {}), config)


def compiled(variant, arch, output="cubin"):
    image = compile_cuda(
        variant.text,
        arch=arch,
        output=output,
        options=variant.cuda_options(),
        headers=device_headers(),
        name=variant.file,
        cache=False,
    )
    assert image.log == ""
    return image.data


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)), ids=[c.name for c in CASES])
def test_a_kernel_compiles(number, case):
    variant = variant_of(case)
    data = compiled(variant, ARCHITECTURES[number % len(ARCHITECTURES)])
    assert f"{variant.entry}\0".encode() in data


def ptx_of(function, *args, block=256, **options):
    variant = km.kernel(**options)(function).specialize(*args, block=block)
    return compiled(variant, "sm_90", "ptx").decode()


def test_reads_go_through_the_read_only_path_where_arrays_are_apart():
    def k(a, x, y):
        for i in km.grid_range(len(x)):
            y[i] = a * x[i] + y[i]

    text = ptx_of(k, 2.0, "float32[:]", "float32[:]")
    assert "ld.global.nc.f32" in text
    assert "fma.rn.f32" in text
    assert "cvt.rn.f32.f64" not in text  # the scalar is rounded by the host
    assert "fma.rn.f32" not in ptx_of(k, 2.0, "float32[:]", "float32[:]", contract=False)
    shared = np.zeros(8, np.float32)
    assert "ld.global.nc" not in ptx_of(k, 2.0, shared, shared)


def test_shared_memory_is_addressed_as_such():
    def k(x):
        tile = km.shared((32, 33), km.float32)
        for r, c in km.block_range(32, 32):
            tile[r, c] = x[r, c]
        km.barrier()
        for r, c in km.block_range(32, 32):
            km.atomic.add(tile, (r, 0), 1)
            x[r, c] = tile[c, r]

    text = ptx_of(k, "float32[:, :]", block=(32, 8))
    assert re.search(r"\bst\.shared\.f32", text)
    assert re.search(r"\b(atom|red)\.shared\.", text)
    assert not re.search(r"\b(ld|st|atom)\.(f32|u32|add)", text)  # nothing addresses generically
    assert "bar.sync" in text or "barrier.sync" in text
    assert ".local" not in text


def test_constants_are_immediate_where_their_index_is_known():
    case = next(c for c in CASES if c.name == "constant arrays")
    text = compiled(variant_of(case), "sm_90", "ptx").decode()
    assert "0f3E800000" in text  # 0.25
    assert "ld.const" not in text

    def k(x, out, n):
        for i in km.grid_range(len(out)):
            out[i] = x[i] * TABLE[i % n]

    assert "ld.const.f64" in ptx_of(k, "float32[:]", "float32[:]", 3)


TABLE = np.arange(5.0)


def test_local_arrays_live_in_registers():
    def k(x, out):
        held = km.local((2, 4), x.dtype)
        for i in km.grid_range(len(out)):
            for c in km.static_range(8):
                held[c // 4, c % 4] = x[8 * i + c]
            total = x.dtype(0)
            for c in km.static_range(8):
                total += held[c // 4, c % 4] * c
            out[i] = total

    assert ".local" not in ptx_of(k, "float32[:]", "float32[:]")


def test_small_integers_are_divided_in_32_bits():
    def k(x, out):
        h, w = x.shape
        for i in km.grid_range(h * w):
            out[i // w, i % w] = x[i // w, i % w]

    def flat(x, out, w):
        for i in km.grid_range(len(x)):
            out[i] = x[i // w * w]

    assert "div.s64" not in ptx_of(k, "float32[:, :]", "float32[:, :]")
    text = ptx_of(flat, "float32[:]", "float32[:]", 5)
    assert "div.u32" in text
    assert "div.s64" not in text


def test_positions_in_large_arrays_have_64_bits():
    def k(x, out):
        for i, j in km.grid_range(*out.shape, unroll=2):
            out[i, j] = x[j, i]

    x = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (1 << 16, 1 << 16), (0, 0))
    text = ptx_of(k, x, x)
    assert re.search(r"mul\.lo\.s64|mad\.lo\.s64", text)
    assert not re.search(r"mul\.lo\.s64|mad\.lo\.s64", ptx_of(k, "float32[:, :]", "float32[:, :]"))


def test_loops_are_unrolled_where_it_is_asked_for():
    def plain(x):
        for i in km.grid_range(len(x)):
            km.atomic.add(x, i, 1)

    def unrolled(x):
        for i in km.grid_range(len(x), unroll=6):
            km.atomic.add(x, i, 1)

    counts = [
        len(re.findall(r"(?:atom|red)\.global", ptx_of(f, "int32[:]"))) for f in (plain, unrolled)
    ]
    assert counts[1] >= 6 > counts[0]


def test_options_reach_the_compiler():
    def k(x):
        for i in km.grid_range(len(x)):
            x[i] = np.exp(x[i]) / 3

    assert "ex2.approx.ftz.f32" in ptx_of(k, "float32[:]", fast_math=True)
    assert "div.rn.f32" in ptx_of(k, "float32[:]")
    image = km.kernel(k).compile("float32[:]", arch="sm_80")
    assert image.arch == "sm_80"
    assert km.kernel(k).compile("float32[:]", output="ptx").data.startswith(b"//")


@pytest.mark.parametrize(("most", "block"), [(24, 256), (32, 1024), (255, 256), (200, 1024)])
def test_no_more_registers_are_taken_than_may_be(most, block):
    """Compilers forget the number where there are launch bounds."""

    @km.kernel(max_registers=most)
    def k(x):
        i = km.threadIdx.x
        v = km.local(40, np.float32)
        for j in km.static_range(40):
            v[j] = x[i * 40 + j]
        for _ in range(5):
            for j in km.static_range(40):
                v[j] = v[j] * v[(j * 7 + 3) % 40] + v[(j + 11) % 40]
        for j in km.static_range(40):
            x[i * 40 + j] = v[j]

    image = k.compile("float32[:]", block=block, arch="sm_90")
    (found,) = resources_of(image.data)
    assert found.registers <= min(most, (1 << 16) // block)
    assert found.most_threads == (block if most * block > 1 << 16 else 0)


def test_lines_of_the_function_are_in_the_image():
    def k(x):
        x[0] = 1

    text = km.kernel(k).compile("float32[:]", output="ptx").data.decode()
    line = k.__code__.co_firstlineno + 1
    assert f'"{__file__}"' in text
    assert re.search(rf"\.loc\s+\d+ {line} ", text)


def test_names_that_c_knows_are_taken():
    def sin(register, double, int_, km_, x):
        x[0] = register + double + int_ + km_

    data = km.kernel(sin).compile(1.5, 2.5, 3, 4, "float64[:]").data
    assert b"km_sin" in data
