"""Code that counts on lanes in step: `volatile` arrays without barriers, `__activemask`."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernelmill.runtime.emulator import Sanitizer, Schedule, run_program, scheduled
from kernelmill.runtime.emulator.steps import stepped_places
from kernelmill.runtime.emulator.tokens import tokens

TEXT = r"""
#include <cooperative_groups.h>
template <class T> __device__ void fold(volatile T* s, int t) {
  s[t] += s[t + 32]; s[t] += s[t + 16]; s[t] += s[t + 8];
  s[t] += s[t + 4]; s[t] += s[t + 2]; s[t] += s[t + 1];
}
extern "C" __global__ void sums(const float* x, float* out) {
  __shared__ float s[128];
  const int t = threadIdx.x;
  s[t] = x[blockIdx.x * 128 + t];
  __syncthreads();
  if (t < 64) s[t] += s[t + 64];
  __syncthreads();
  if (t < 32) fold(s, t);
  if (!t) out[blockIdx.x] = s[0];
}
extern "C" __global__ void scans(int* x) {  // in divided warps too
  __shared__ volatile int kept[64][2];
  const int t = threadIdx.x, half = t % 2;
  kept[t][0] = 0, kept[t][1] = 0;
  volatile int(*p)[2] = kept + 32;
  kept[t + 32][half] = x[blockIdx.x * 32 + t];
  if (half)
    for (int by = 2; by < 32; by *= 2) kept[t + 32][1] += kept[t + 32 - by][1];
  x[blockIdx.x * 32 + t] = p[t][half];
}
extern "C" __global__ void together(unsigned* y) {
  const unsigned all = __activemask(), t = threadIdx.x;
  unsigned value = t;
  for (int by = 16; by; by /= 2) value += __shfl_down_sync(all, value, by);
  y[t] = value;
  if (t % 4 == 3) {
    cooperative_groups::thread_group group = cooperative_groups::coalesced_threads();
    y[t] = 100 * group.size() + group.thread_rank();
  }
}
extern "C" __global__ void waits(volatile int* flags, int* y) {  // one lane waits for what others in step write
  const int t = threadIdx.x;
  if (t == 0) while (atomicAdd(y, 0) == 0) {}
  flags[t] = flags[t] + 1;
  if (t == 31) atomicExch(y, flags[1]);
}
"""
ORDERS = [
    Schedule(),
    Schedule("reversed", blocks=3),
    Schedule("random", seed=1, blocks=4),
    Schedule("random", seed=2),
]


def launch(name, blocks, threads, *args):
    kernel = km.Program(TEXT, name="steps.cu").compile().get_kernel(name)
    km.launch(None, km.LaunchConfig(blocks, threads), kernel, *args)


@pytest.mark.parametrize("sanitize", [False, True])
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_lanes_go_in_step(order, sanitize):
    x = (np.arange(128 * 16) % 61).astype(np.float32)
    out, y = np.zeros(16, np.float32), np.arange(32 * 5, dtype=np.int32)
    mask, seen, flags = np.zeros(32, np.uint32), np.zeros(1, np.int32), np.zeros(32, np.int32)
    with km.Device("emulator", sanitize=sanitize), scheduled(order):
        launch("sums", 16, 128, x, out)
        launch("scans", 5, 32, y)
        launch("together", 1, 32, mask)
        launch("waits", 1, 32, flags, seen)
    assert (out == x.reshape(16, 128).sum(1)).all()
    wanted = np.arange(32 * 5).reshape(5, 16, 2)
    wanted[..., 1] = wanted[..., 1].cumsum(1)
    assert (y.reshape(5, 16, 2) == wanted).all()
    assert mask[0] == sum(range(32))
    assert (mask[3::4] == 800 + np.arange(8)).all()
    assert (flags == 1).all()
    assert seen[0] == 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("volatile int* p = q; p[1] = p[2];", ["p", "p"]),
        ("int volatile *p; p[0];", ["p"]),
        ("f(volatile ns::T<int>* s, int n) { return s[n] > s[0]; }", ["s", "s"]),
        ("__shared__ volatile float a[4][4]; a[i][j] = 2 * a[j][i];", ["a", "a"]),
        ("volatile int* p; { int p[3]; float* p[4]; int x, p[5]; y.p[0] = z->p[0]; }", []),
        ("volatile int* p; x = y * p[3]; f(x, p[4]); if (x > p[5]) p [6]++;", ["p"] * 4),
        ("int* volatile p; p[0] = (volatile int*)q; q[1];", []),
        ("volatile int n; int* p; p[n];", []),
    ],
)
def test_what_is_accessed_through_volatile_is_found(text, wanted):
    found = tokens(text)
    assert [found[at] for at in sorted(stepped_places(found))] == wanted


@pytest.mark.parametrize("sanitizer", [None, Sanitizer()])
def test_a_program_of_former_times_runs(tmp_path, sanitizer):
    path = tmp_path / "former.cu"
    path.write_text("""#include <cstdio>
__global__ void former(int* x) {
  int v = threadIdx.x;
  for (int by = 16; by; by /= 2) v += __shfl_xor(v, by);
  x[threadIdx.x] = v + __shfl(int(threadIdx.x), 3) + __any(threadIdx.x == 5) + __all(v > 0);
  if (!threadIdx.x) x[0] += __popc(__ballot(1) & 1);
}
int main() {
  int *x, found[32];
  cudaMalloc(&x, sizeof found);
  former<<<1, 32>>>(x);
  cudaMemcpy(found, x, sizeof found, cudaMemcpyDeviceToHost);
  printf("%d %d\\n", found[0], found[31]);
}""")
    done = run_program(path, capture=True, timeout=600, sanitizer=sanitizer)
    assert (done.stdout, done.stderr, done.reports) == ("502 501\n", "", ())
