"""Launches that go wrong without the sanitizer: each ends with an error that says where."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

import kernelmill as km
from kernelmill.errors import (
    ArgumentError,
    CompileError,
    DeviceError,
    DTypeError,
    NotImplementedHere,
)
from kernelmill.runtime.emulator import Schedule, compile_emulated, sanitized, scheduled

TEXT = """
#include <cassert>
#include <cooperative_groups.h>
#define KERNEL extern "C" __global__
struct Two { float a, b; };
KERNEL void plain(float* x, const int* y, int n, unsigned char c, float f, bool b, Two t, double* d) {}
KERNEL void traps(int at) { if (blockIdx.x * blockDim.x + threadIdx.x == at) __trap(); }
KERNEL void asserts(int n) {
  __syncthreads();
  assert(threadIdx.x < n);
}
KERNEL void some_wait() { if (threadIdx.x < 20) asm volatile("bar.sync 1, 64;"); }
KERNEL void halves_wait() { if (threadIdx.x & 1) __shfl_sync(0xffffffffu, 1, 0); else __syncthreads(); }
KERNEL void wrong_mask() { if (threadIdx.x < 8) __shfl_sync(0xff00u, 1, 9); }
KERNEL void two_operations() { if (threadIdx.x & 1) __ballot_sync(0xffffffffu, 1); else __syncwarp(); }
KERNEL void waits_for_later(int* flags) {
  if (threadIdx.x == 0) {
    atomicExch(flags + blockIdx.x, 1);
    while (atomicAdd(flags + (blockIdx.x + gridDim.x / 2) % gridDim.x, 0) == 0) {}
  }
}
KERNEL void grid_barrier() { cooperative_groups::this_grid().sync(); }
KERNEL void some_blocks_wait() { if (blockIdx.x) cooperative_groups::this_grid().sync(); }
KERNEL void fine(int* x) { __syncthreads(); atomicAdd(x, 1); }
"""


@cache
def code():
    return compile_emulated(TEXT, name="faults.cu")


def launch(name, *args, grid=1, block=32, **more):
    config = km.LaunchConfig(grid, block, **more)
    km.launch(None, config, code().get_kernel(name), *args)


FAULTS = {
    "traps": ((70,), {"grid": 3}, "__trap in block (2, 0, 0), thread (6, 0, 0)"),
    "asserts": (
        (30,),
        {},
        "faults.cu:10: asserts: assertion `threadIdx.x < n` failed in block (0, 0, 0), thread (3",
    ),
    "some_wait": (
        (),
        {"block": 64},
        "deadlock in block (0, 0, 0): of 64 threads 20 wait at a block barrier, 44 have finished",
    ),
    "halves_wait": (
        (),
        {},
        (
            "deadlock in block (0, 0, 0): of 32 threads 16 wait at a block barrier, 16 wait in a warp "
            "operation"
        ),
    ),
    "wrong_mask": ((), {}, "calls a warp operation with mask 0x0000ff00, which does not name it"),
    "two_operations": ((), {}, "is in another warp operation than the lanes that wait"),
    "grid_barrier": ((), {}, "a grid barrier in a launch that is not cooperative"),
    "some_blocks_wait": ((), {"grid": 3, "is_cooperative": True}, ""),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("order", ["in order", "reversed", "random"])
def test_a_fault_is_an_error_and_the_next_launch_works(name, order):
    args, more, text = FAULTS[name]
    with scheduled(Schedule(order)):
        if text:
            with pytest.raises(DeviceError, match=f"kernel '{name}': .*{re.escape(text)}"):
                launch(name, *args, **more)
        else:
            launch(name, *args, **more)
    x = np.zeros(1, np.int32)
    launch("fine", x, grid=4)
    assert x[0] == 128


def test_blocks_may_not_wait_for_later_ones_unless_the_launch_is_cooperative():
    flags = np.zeros(2048, np.int32)
    with (
        scheduled(Schedule(patience=0.2)),
        pytest.raises(DeviceError, match="nothing but spinning in block"),
    ):
        launch("waits_for_later", flags, grid=2048)
    flags[:] = 0
    launch("waits_for_later", flags, grid=8, is_cooperative=True)
    assert (flags[:8] == 1).all()


GOOD = (
    np.zeros(4, np.float32), np.zeros(4, np.int32), 1, 2, 0.5, True, bytes(8),
    np.zeros(2, np.float64),
)  # fmt: skip


def changed(index: int, value: object) -> tuple[object, ...]:
    return tuple(value if i == index else x for i, x in enumerate(GOOD))


def test_arguments_are_checked_against_the_types_of_the_kernel():
    launch("plain", *GOOD)
    launch("plain", *changed(0, None))
    launch("plain", *changed(2, np.int32(3)))
    launch("plain", *changed(6, np.zeros((), [("a", "f4"), ("b", "f4")])[()]))
    readonly = np.zeros(4, np.float32)
    readonly.flags.writeable = False
    for args, error, text in (
        (GOOD[:-1], ArgumentError, "takes 8 arguments, not 7"),
        (changed(0, np.zeros(4)), DTypeError, "argument 0 .* is a float32\\*; an array of float64"),
        (changed(0, readonly), ArgumentError, "argument 0 .* is read-only"),
        (changed(0, 1.5), DTypeError, "argument 0 .* is a float32\\*; a float was given"),
        (changed(1, np.zeros(4, np.uint32)), DTypeError, "is a const int32\\*; an array of uint32"),
        (changed(2, 1 << 31), OverflowError, "is of type int32, which cannot hold 2147483648"),
        (changed(2, 0.5), DTypeError, "is of type int32; a Python float was given"),
        (changed(2, np.int64(1)), DTypeError, "is of type int32; a NumPy int64 was given"),
        (changed(3, -1), OverflowError, "is of type uint8, which cannot hold -1"),
        (changed(6, bytes(7)), ArgumentError, "is of type 8-byte struct; a bytes of 7 bytes"),
        (changed(6, "ab"), DTypeError, "is of type 8-byte struct; a str was given"),
    ):
        with pytest.raises(error, match=text):
            launch("plain", *args)


def test_limits_are_those_of_a_gpu():
    for more, text in (
        ({"block": 1025}, "block in x: 1025 asked, the limit is 1024"),
        ({"block": (32, 64)}, "threads a block: 2048 asked, the limit is 1024"),
        ({"block": (1, 1, 65)}, "block in z: 65 asked, the limit is 64"),
        ({"grid": (1, 65536)}, "grid in y: 65536 asked, the limit is 65535"),
        ({"shmem_size": 1 << 20}, "dynamic shared memory a block: 1048576 asked"),
        ({"cluster": 2}, "clusters of \\(2, 1, 1\\) blocks cannot be launched"),
    ):
        with pytest.raises(ArgumentError, match=text):
            launch("fine", np.zeros(1, np.int32), **more)


def test_a_kernel_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(DeviceError, match="has no kernel 'absent'; kernels: plain, traps"):
        code().get_kernel("absent")


def test_the_compiler_names_the_line_of_the_text():
    with pytest.raises(CompileError, match="broken.cu line 3, column 5"):
        compile_emulated(
            'extern "C" __global__ void k(int* x) {\n  if (x)\n    y = 1;\n}', name="broken.cu"
        )


def test_other_code_types_are_refused():
    with pytest.raises(ArgumentError, match="ptx cannot be compiled for the emulator"):
        km.Program(".version 8.0", "ptx").compile("emulator")


def test_a_kernel_may_not_launch_one():
    text = """
    __global__ void child() {}
    extern "C" __global__ void parent() { child<<<1, 1>>>(); }
    """
    with pytest.raises(NotImplementedHere, match="line 3: .* no kernels that launch kernels"):
        compile_emulated(text)
    hidden = """
    __global__ void child() {}
    __device__ __host__ void launch() { child<<<1, 1>>>(); }
    extern "C" __global__ void parent() { launch(); }
    """
    kernel = compile_emulated(hidden).get_kernel("parent")
    with pytest.raises(NotImplementedHere, match="a kernel is launched by a kernel in block"):
        km.launch(None, km.LaunchConfig(1, 1), kernel)


VOLATILE = """
struct Wide { unsigned char byte[64]; };
extern "C" __global__ void match(const unsigned char* keys, const Wide* in, Wide* out, int* counts, int rounds) {
  __shared__ Wide stage[64];
  volatile int* seen = counts;  // the word lets every branch of this text give way
  for (int r = 0; r < rounds; r++) {
    const unsigned same = __match_any_sync(~0u, (keys[threadIdx.x] + r) & 7);
    const int most = __reduce_max_sync(~0u, __popc(same));
    for (int b = 0; b < 64; b++) stage[threadIdx.x].byte[b] = in[threadIdx.x].byte[b];
    __syncthreads();
    out[threadIdx.x] = stage[63 - threadIdx.x];
    if (__all_sync(~0u, most > 0) && threadIdx.x % 32 == 0) seen[threadIdx.x / 32] = seen[threadIdx.x / 32] + 1;
    __syncthreads();
  }
}
extern "C" __global__ void quarters(volatile unsigned* y, int rounds) {
  const int lane = threadIdx.x % 32, first = lane & ~7;
  const unsigned mine = 0xffu << first;
  unsigned sum = 0;
  for (int r = 0; r < rounds * (1 + first / 8); r++) sum += __popc(__match_any_sync(mine, (lane + r) & 3)) + __all_sync(mine, r >= 0);
  y[threadIdx.x] = sum;
}
extern "C" __global__ void reads(const volatile unsigned char* x, int* sums, int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) sum += x[i];
  sums[threadIdx.x] = sum;
}
extern "C" __global__ void deep(int* y) {
  Wide local[4096];
  for (int i = 0; i < 4096; i++) local[i].byte[i % 64] = (unsigned char)(i + threadIdx.x);
  __syncthreads();
  y[threadIdx.x] = local[y[threadIdx.x]].byte[y[threadIdx.x] % 64];
}
"""


@pytest.mark.parametrize("order", ["in order", "reversed", "random"])
def test_what_says_volatile_gives_way_in_kernels_only(order):
    # Operations of warps are compiled with the kernel: to give way in them would lose lanes.
    code = compile_emulated(VOLATILE)
    wide = np.random.default_rng(3).integers(0, 256, (64, 64), np.uint8)
    counts, out = np.zeros(2, np.int32), np.zeros_like(wide)
    record = np.dtype([(f"b{i}", np.uint8) for i in range(64)])
    records = (wide.view(record).ravel(), out.view(record).ravel())
    with scheduled(Schedule(order)):
        config = km.LaunchConfig(1, 64)
        kernel = code.get_kernel("match")
        km.launch(None, config, kernel, wide[0].copy(), *records, counts, 300)
    assert counts.tolist() == [300, 300]
    assert (out == wide[::-1]).all()
    y = np.zeros(128, np.uint32)
    with scheduled(Schedule(order)):
        km.launch(None, km.LaunchConfig(1, 128), code.get_kernel("quarters"), y, 500)
    assert y.reshape(-1, 4, 8)[:, :, 0].tolist() == [[1500, 3000, 4500, 6000]] * 4


def test_reading_what_was_not_read_yet_is_no_spin():
    x, sums = np.ones(4000, np.uint8), np.zeros(64, np.int32)
    kernel = compile_emulated(VOLATILE).get_kernel("reads")
    with sanitized():
        km.launch(None, km.LaunchConfig(1, 64), kernel, x, sums, 4000)
    assert (sums == 4000).all()


def test_threads_have_as_much_memory_of_their_own_as_on_a_gpu():
    y = np.arange(64, dtype=np.int32)
    kernel = compile_emulated(VOLATILE).get_kernel("deep")
    km.launch(None, km.LaunchConfig(1, 64), kernel, y)
    assert y.tolist() == [2 * t for t in range(64)]


def test_schedules_are_checked():
    with pytest.raises(ArgumentError, match="order 'sideways' does not exist"):
        Schedule("sideways")
    with pytest.raises(ArgumentError, match="seed and blocks are at least 0"):
        Schedule(seed=-1)


def test_divisions_by_zero_give_what_a_gpu_gives():
    text = """template <class T> __global__ void divide(const T* x, const T* by, T* y, int n) {
  const int t = threadIdx.x;
  y[t] = x[t] / by[t], y[n + t] = x[t] % by[t];
}"""
    types = {"i4": "int", "u4": "unsigned", "i8": "long long", "u8": "unsigned long long"}
    instances = {kind: f"divide<{type_}>" for kind, type_ in types.items()}
    program = compile_emulated(text, name="divide.cu", expressions=tuple(instances.values()))
    for kind, instance in instances.items():
        least = np.iinfo(kind).min
        x = np.array([7, 0, least, 9, 1], kind)
        by = np.array([0, 0, -1 if least else 0, 4, 0], np.int64).astype(kind)
        y = np.zeros(10, kind)
        # Every block does the same, so that all OS threads do.
        program.get_kernel(instance).launch((64, 1, 1), (5, 1, 1), [x, by, y, 5])
        ones = np.int64(-1).astype(kind)
        assert y.tolist() == [ones, ones, least or ones, 2, ones, 7, 0, 0, 1, 1], kind
