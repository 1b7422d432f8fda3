"""CUDA C++ on the emulator: barriers, kernels without any against plain loops, compiling, checks.

The loops are compiled with the flags that kernels get there, and run on as many threads.
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import kernelmill as km
from harness import OURS, REFERENCE, Case, Contender, Goal
from kernelmill.config import get_config
from kernelmill.runtime.emulator import compile_emulated, sanitized
from kernelmill.toolchain import compile_shared, find_host_compiler
from peers import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget

__all__ = ["cases"]

_KERNELS: Final = r"""
#define KERNEL extern "C" __global__
KERNEL void barriers(long n) { for (long i = 0; i < n; i++) __syncthreads(); }
KERNEL void shuffles(long n, int* y) {
  int v = threadIdx.x;
  for (long i = 0; i < n; i++) v = __shfl_xor_sync(0xffffffffu, v, 1);
  y[threadIdx.x] = v;
}
KERNEL void triad(const float* a, const float* b, float* c, long n) {
  const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + 2 * b[i];
}
KERNEL void gray(const unsigned char* x, unsigned char* y, int w, int h) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= w || j >= h) return;
  const unsigned char* p = x + 3 * (j * w + i);
  y[j * w + i] = (unsigned char)(0.21f * p[0] + 0.72f * p[1] + 0.07f * p[2]);
}
__device__ void fold(float* s, float* out) {
  for (int by = 128; by; by /= 2) {
    __syncthreads();
    if (threadIdx.x < by) s[threadIdx.x] += s[threadIdx.x + by];
  }
  if (!threadIdx.x) out[blockIdx.x] = s[0];
}
KERNEL void grid_stride_sum(const float* x, float* out, long n) {
  __shared__ float s[256];
  float v = 0;
  for (long i = blockIdx.x * 256l + threadIdx.x; i < n; i += gridDim.x * 256l) v += x[i];
  s[threadIdx.x] = v;
  fold(s, out);
}
KERNEL void one_a_thread_sum(const float* x, float* out, long n) {
  __shared__ float s[256];
  const long i = blockIdx.x * 256l + threadIdx.x;
  s[threadIdx.x] = i < n ? x[i] : 0;
  fold(s, out);
}
"""
# What is only looked at; it is not among the kernels whose compiling is measured.
_LOOKED_AT: Final = r"""
#define KERNEL extern "C" __global__
KERNEL void stencil(const float* a, float* b, int w, int h) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < 1 || j < 1 || i >= w - 1 || j >= h - 1) return;
  const float* p = a + j * w + i;
  b[j * w + i] = 0.2f * (p[0] + p[-1] + p[1] + p[-w] + p[w]);
}
KERNEL void sparse(const int* rows, const int* columns, const float* v, const float* x, float* y,
                   int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int k = rows[i]; k < rows[i + 1]; k++) sum += v[k] * x[columns[k]];
  y[i] = sum;
}
"""
_LOOPS: Final = r"""
#define LOOP extern "C" __attribute__((visibility("default")))
LOOP void triad(const float* a, const float* b, float* c, long n, int threads) {
#pragma omp parallel for num_threads(threads)
  for (long i = 0; i < n; i++) c[i] = a[i] + 2 * b[i];
}
LOOP void gray(const unsigned char* x, unsigned char* y, int w, int h, int threads) {
#pragma omp parallel for num_threads(threads)
  for (int j = 0; j < h; j++)
    for (int i = 0; i < w; i++) {
      const unsigned char* p = x + 3 * (j * w + i);
      y[j * w + i] = (unsigned char)(0.21f * p[0] + 0.72f * p[1] + 0.07f * p[2]);
    }
}
"""
# What is asked of a thread at a barrier, in seconds, and of a kernel against a loop.
_BARRIER: Final = 20e-9
_THIRD: Final = (Goal(REFERENCE, ratio=1 / 3),)


@once
def _loops() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as directory:
        made = compile_shared(
            _LOOPS,
            Path(directory) / "loops.so",
            compiler=find_host_compiler(),
            march=get_config().march,
            extra=("-O2", "-fwrapv", "-fopenmp"),
        )
        return ctypes.CDLL(str(made.path))


def _ours(name: str, config: km.LaunchConfig, *args: Any, text: str = _KERNELS) -> Contender:
    launch = km.prepare(config, compile_emulated(text).get_kernel(name), *args)
    return Contender(OURS, launch)


def _plain(name: str, *args: Any) -> Contender:
    function = _loops()[name]
    given = [
        ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else ctypes.c_long(a)
        for a in args
    ]
    return Contender(REFERENCE, lambda: function(*given, ctypes.c_int(threads())))


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases."""
    yield from _waiting()
    yield from _loops_of_threads()
    yield from _sums(budget)
    yield _compiling()
    yield from _looked_at(budget)


def _waiting() -> Iterator[Case]:
    """Waits of a block; the time is that of all its threads."""
    rounds = 1000
    for block in (256, 1024):
        goal = (Goal(seconds=_BARRIER * rounds * block),)
        one = km.LaunchConfig(1, block)
        name = f"barriers, {block} threads"
        yield Case(name, "", rounds * block, (_ours("barriers", one, rounds),), goal)
    y = np.zeros(256, np.int32)
    shuffles = _ours("shuffles", km.LaunchConfig(1, 256), rounds, y)
    yield Case("shuffles, 256 threads", "int32", rounds * 256, (shuffles,))


def _loops_of_threads() -> Iterator[Case]:
    n = 1 << 20
    a, b, c = (np.ones(n, np.float32) for _ in range(3))
    both = (
        _ours("triad", km.LaunchConfig(n // 256, 256), a, b, c, n),
        _plain("triad", a, b, c, n),
    )
    yield Case("triad, one element a thread", "float32", n, both, _THIRD, 12 * n, 4 * n)
    w, h = 3840, 2160
    x, y = np.ones(3 * w * h, np.uint8), np.zeros(w * h, np.uint8)
    both = (
        _ours("gray", km.LaunchConfig((w // 32, h // 8), (32, 8)), x, y, w, h),
        _plain("gray", x, y, w, h),
    )
    yield Case("grayscale of a picture", "uint8", w * h, both, _THIRD, 4 * w * h, w * h)


def _sums(budget: Budget) -> Iterator[Case]:
    n = budget.large
    x, out = np.ones(n, np.float32), np.zeros(n // 256, np.float32)
    share = n / (1 << 24)
    for name, grid, seconds in (
        ("grid_stride_sum", 64, 0.05),
        ("one_a_thread_sum", n // 256, 2.5),
    ):
        ours = _ours(name, km.LaunchConfig(grid, 256), x, out, n)
        goal = (Goal(seconds=seconds * share),)
        yield Case(name.replace("_", " "), "float32", n, (ours,), goal, 4 * n)


def _compiling() -> Case:
    turns = iter(range(1 << 30))

    def once_more(number: int) -> float:
        begun = time.perf_counter()
        for _ in range(number):
            compile_emulated(f"// {time.time_ns()} {next(turns)}\n{_KERNELS}")
        return time.perf_counter() - begun

    ours = Contender(OURS, lambda: None, measure=once_more, single=True)
    return Case("compile six kernels", "", 6, (ours,), (Goal(seconds=0.5),))


def _looked_at(budget: Budget) -> Iterator[Case]:
    """Launches under the sanitizer against ones without, as "plain"."""
    n = 1 << 20
    x, out = np.ones(n, np.float32), np.zeros(n // 256, np.float32)
    sums = _ours("one_a_thread_sum", km.LaunchConfig(n // 256, 256), x, out, n).run
    yield _against_plain("one a thread sum, sanitized", n, sums)
    for size in (n, budget.large):
        a, b, c = (np.ones(size, np.float32) for _ in range(3))
        triad = _ours("triad", km.LaunchConfig(size // 256, 256), a, b, c, size).run
        yield _against_plain("triad, sanitized", size, triad)
    side = 2048
    a, b = (np.ones((side, side), np.float32) for _ in range(2))
    plane = km.LaunchConfig((side // 32, side // 8), (32, 8))
    stencil = _ours("stencil", plane, a, b, side, side, text=_LOOKED_AT).run
    yield _against_plain("stencil, one cell a thread, sanitized", side * side, stencil)
    rows, columns, v = _sparse_matrix(n)
    x, y = np.ones(n, np.float32), np.zeros(n, np.float32)
    config = km.LaunchConfig(n // 256, 256)
    sparse = _ours("sparse", config, rows, columns, v, x, y, n, text=_LOOKED_AT).run
    yield _against_plain("sparse matrix times vector, sanitized", 8 * n, sparse)


def _sparse_matrix(n: int) -> tuple[Any, Any, Any]:
    """Return rows, columns and values of a matrix with eight elements in each of `n` rows."""
    columns = np.random.default_rng(1).integers(0, n, 8 * n, np.int32)
    return np.arange(n + 1, dtype=np.int32) * 8, columns, np.ones(8 * n, np.float32)


def _against_plain(name: str, n: int, launch: Callable[[], Any]) -> Case:
    def checked() -> Any:
        with sanitized():
            return launch()

    both = (Contender(OURS, checked, single=True), Contender("plain", launch))
    return Case(name, "float32", n, both, (Goal("plain", ratio=1 / 100),))
