"""The sanitizer: planted faults are found at their line, right kernels give no report."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import emulator_faults
import emulator_kernels
import kernelmill as km
from emulator_faults import FAULTS, TEXT
from emulator_kernels import CASES, CORPUS
from kernelmill.errors import ArgumentError, DeviceError
from kernelmill.runtime.emulator import (
    Sanitizer,
    SanitizerError,
    Schedule,
    compile_emulated,
    sanitized,
    scheduled,
)

SCHEDULES = (
    Schedule(),
    Schedule("reversed", blocks=4),
    Schedule("random", seed=7, blocks=4),
)


@cache
def code(name: str):
    if name == "faults.cu":
        return compile_emulated(TEXT, name=name)
    expressions = [expression for case in CASES for expression in case.extra]
    return compile_emulated((CORPUS / name).read_text(), name=name, expressions=expressions)


def launch(file, case, args):
    config = km.LaunchConfig(
        case.grid, case.block, shmem_size=case.shared, is_cooperative=case.cooperative
    )
    with sanitized():
        km.launch(None, config, code(file).get_kernel(case.name), *args)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.order)
@pytest.mark.parametrize("name", emulator_faults.BY_NAME)
def test_a_planted_fault_is_found(name, schedule):
    fault = emulator_faults.BY_NAME[name]
    with scheduled(schedule), pytest.raises(SanitizerError) as raised:
        launch("faults.cu", fault, fault.args())
    reports = raised.value.reports
    found = [r for r in reports if r.kind == fault.kind and r.place.line in fault.lines]
    assert found, (fault, str(raised.value))
    assert all(r.place.file == "faults.cu" for r in found)
    if fault.array is not None:
        assert {r.array for r in found} == {fault.array}
    if fault.index is not None:
        assert fault.index in {r.index for r in found}


@pytest.mark.parametrize("name", emulator_kernels.BY_NAME)
def test_right_kernels_give_no_report_and_the_same_values(name):
    case = emulator_kernels.BY_NAME[name]
    for schedule in SCHEDULES[1:]:
        args = case.args()
        with scheduled(schedule):
            launch("right.cu", case, args)
        found, wanted = map(np.asarray, case.check(*args))
        np.testing.assert_allclose(
            found.astype(float), wanted.astype(float), case.tolerance, case.tolerance
        )


def test_every_kind_of_fault_is_planted_three_times():
    kinds = [fault.kind for fault in FAULTS]
    standstills = ("barrier divergence", "mask mismatch", "deadlock", "infinite spin")
    for kind in ("out of bounds", "uninitialised read", "misaligned access", "race", *standstills):
        assert kinds.count(kind) >= 3, kind


SMALL = """#define KERNEL extern "C" __global__
KERNEL void cas(int* word) {
  int seen = *word, before;
  do before = seen; while ((seen = atomicCAS(word, before, before + 1)) != before);
}
KERNEL void tail(float* y, int n) {
  __shared__ float s[64];
  if (threadIdx.x < n) s[threadIdx.x] = 1;
  __syncwarp();
  const float v = s[threadIdx.x];
  y[threadIdx.x] = v * (threadIdx.x < n);
}
KERNEL void meant(float* y, int n) {
  __shared__ float s[64];
  if (threadIdx.x < n) s[threadIdx.x] = 1;
  __syncwarp();
  const float v = s[threadIdx.x];  // the tail is thrown away; sanitizer: ignore
  y[threadIdx.x] = v * (threadIdx.x < n);
}
KERNEL void says(int n) { printf("%d threads\\n", n); }
"""


def small(name, *args, grid=1, block=32):
    kernel = compile_emulated(SMALL, name="small.cu").get_kernel(name)
    km.launch(None, km.LaunchConfig(grid, block), kernel, *args)


def test_a_plain_read_before_a_compare_and_swap_is_a_race_in_the_strict_mode_only():
    word = np.zeros(1, np.int32)
    with sanitized():
        small("cas", word, grid=2)
    assert word[0] == 64
    with sanitized(Sanitizer(strict=True)), pytest.raises(SanitizerError) as raised:
        small("cas", word, grid=2)
    assert {(r.kind, r.array) for r in raised.value.reports} == {("race", "word")}


def test_tails_that_are_thrown_away_can_be_meant():
    y = np.zeros(32, np.float32)
    with sanitized(), pytest.raises(SanitizerError, match="small.cu:10: uninitialised read"):
        small("tail", y, 20)
    with sanitized(Sanitizer(initcheck="global")):
        small("tail", y, 20)
    with sanitized():
        small("meant", y, 20)
    with pytest.raises(ArgumentError, match="initcheck 'some' does not exist"):
        Sanitizer(initcheck="some")


def test_a_device_can_be_asked_to_sanitize():
    y = np.zeros(8, np.float32)
    with km.Device("emulator", sanitize=True):
        small("says", 1)
        with pytest.raises(SanitizerError) as raised:
            small("tail", y, 20)
        assert (km.transform(y, lambda v: v + 1) == y + 1).all()
        assert km.reduce(y + 1, km.add) == 8 + y.sum()
    (report,) = [r for r in raised.value.reports if r.kind == "out of bounds"]
    assert (report.array, report.thread) == ("y", (report.index, 0, 0))
    assert report.index >= 8
    with pytest.raises(ArgumentError, match="device 'cpu' cannot sanitize"):
        km.Device("cpu", sanitize=True)


def test_arrays_of_several_dimensions_are_named_with_all_indices():
    text = """extern "C" __global__ void put(int* grid, const int* same, int i) {
  grid[i] += same[i] - same[i + 1];
}"""
    grid = np.zeros((4, 6), np.int32)
    kernel = compile_emulated(text, name="put.cu").get_kernel("put")
    with sanitized(), pytest.raises(SanitizerError) as raised:
        km.launch(None, km.LaunchConfig(1, 2), kernel, grid, grid, 13)
    found = {(r.kind, r.array, r.index) for r in raised.value.reports}
    assert found == {("race", "grid", (2, 1))}


def test_what_a_kernel_prints_is_seen_and_the_schedule_is_named(capsys):
    with sanitized():
        small("says", 3, block=2)
    assert capsys.readouterr().out == "3 threads\n" * 2
    schedule = Schedule("random", seed=12)
    with scheduled(schedule), sanitized(), pytest.raises(SanitizerError) as raised:
        small("tail", np.zeros(1, np.float32), 2)
    assert "Schedule(order='random', seed=12" in raised.value.hint


def test_a_launch_may_take_so_long():
    text = 'extern "C" __global__ void f(int* x) { while (*(volatile int*)x < 1 << 30) ++*x; }'
    kernel = compile_emulated(text).get_kernel("f")
    with (
        sanitized(Sanitizer(timeout=0.5)),
        pytest.raises(DeviceError, match=r"did not end within 0.5 s"),
    ):
        km.launch(None, km.LaunchConfig(1, 1), kernel, np.zeros(1, np.int32))
    with sanitized():
        small("cas", np.zeros(1, np.int32))


def test_arrays_of_any_size_come_back():
    """Small ones lie in memory that is kept, large ones in a file; children are ready for either."""
    text = 'extern "C" __global__ void twice(const float* x, float* y) {'
    text += " const size_t i = blockIdx.x * 1024ull + threadIdx.x; y[i * 64] = 2 * x[i * 64]; }"
    kernel = compile_emulated(text).get_kernel("twice")
    for blocks in (1, 130, 2):
        x = np.arange(blocks << 16, dtype=np.float32)
        y = np.zeros_like(x)
        with sanitized():
            kernel.launch((blocks, 1, 1), (1024, 1, 1), [x, y])
        assert (y[::64] == 2 * x[::64]).all()
        assert not y[1::64].any()


READERS = """#define KERNEL extern "C" __global__
KERNEL void last(int* x, int* y) {
  y[threadIdx.x] = x[0];
  if (threadIdx.x == 1) x[0] = 5;
}
KERNEL void again(int* x, int* y, int* flags) {
  int seen = 0;
  if (threadIdx.x == 0) {
    seen = x[0];
    atomicExch(&flags[0], 1);
    while (atomicAdd(&flags[1], 0) == 0) {}
    seen += x[0];
    x[0] = 5;
  } else {
    while (atomicAdd(&flags[0], 0) == 0) {}
    seen = x[0];
    atomicExch(&flags[1], 1);
  }
  y[threadIdx.x] = seen;
}
KERNEL void many(int* x, int* y, int by) {
  y[threadIdx.x] = x[threadIdx.x % 4];
  __syncthreads();
  if (threadIdx.x < 4) x[threadIdx.x] = by;
}
"""


@pytest.mark.parametrize(
    ("name", "line", "other"), [("last", 4, 0), ("again", 13, 1), ("many", None, None)]
)
def test_readers_of_a_word_are_remembered_until_it_is_written(name, line, other):
    x, y, flags = np.arange(4, dtype=np.int32), np.zeros(64, np.int32), np.zeros(2, np.int32)
    kernel = compile_emulated(READERS, name="readers.cu").get_kernel(name)
    args = [x, y, *([flags] if name == "again" else []), *([7] if name == "many" else [])]
    config = km.LaunchConfig(1, 64 if name == "many" else 2)
    if line is None:
        with sanitized():
            km.launch(None, config, kernel, *args)
        assert y.tolist() == [thread % 4 for thread in range(64)]
        assert x.tolist() == [7] * 4
        return
    with sanitized(), pytest.raises(SanitizerError) as raised:
        km.launch(None, config, kernel, *args)
    (found,) = [r for r in raised.value.reports if r.array == "x"]
    assert (found.kind, found.place.line, found.index) == ("race", line, 0)
    assert found.other_thread == other
