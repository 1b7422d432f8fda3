"""What a call costs the host on a GPU, against its peers in the same process: limits with room.

The figures themselves are the benchmarks'; here a call that left the native path would show.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time

import pytest

import kernelmill as km
from kernelmill.runtime import cuda
from kernelmill.runtime.cuda.direct import driver_calls
from kernelmill.runtime.native import native_status

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(native_status().kind != "extension", reason="needs the extension"),
]

# What noise may add to the best of several runs.
ROOM = 1.5
LOOP = """
struct config { unsigned grid[3], block[3], shared; void *stream, *attributes; unsigned count; };
typedef int (*launch)(const struct config *, void *, void **, void **);
int loop(void *call, void *function, void **parameters, int turns) {
  struct config c = {{1, 1, 1}, {32, 1, 1}, 0, 0, 0, 0};
  int failed = 0;
  for (int i = 0; i < turns; i++) failed |= ((launch)call)(&c, function, parameters, 0);
  return failed;
}
"""


def microseconds(*calls, turns=300, rounds=40):
    """The best of many short runs of each call, taken in turn, each into an empty queue."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for k, call in enumerate(calls):
            cuda.synchronize()
            start = time.perf_counter()
            for _ in range(turns):
                call()
            best[k] = min(best[k], (time.perf_counter() - start) / turns * 1e6)
    return best


def test_a_plan_costs_less_than_torch(torch):
    x, y, out = (torch.rand(1000, device="cuda") for _ in range(3))
    one = km.transform.plan(x, lambda v: -v, out=out)
    two = km.transform.plan((x, y), lambda a, b: a + b, out=out)
    for mine, theirs in (
        (lambda: one(x, out=out), lambda: torch.neg(x, out=out)),
        (lambda: two(x, y, out=out), lambda: torch.add(x, y, out=out)),
    ):
        ours, peers = microseconds(mine, theirs)
        assert ours < ROOM * peers


def test_a_free_function_costs_little_more_than_a_plan(torch):
    x, out = torch.rand(1000, device="cuda"), torch.rand(1000, device="cuda")
    op = lambda v: v * 2
    plan = km.transform.plan(x, op, out=out)
    free, planned = microseconds(lambda: km.transform(x, op, out=out), lambda: plan(x, out=out))
    assert free < planned + 3 * ROOM


def test_a_prepared_launch_costs_little_more_than_a_loop_in_c(code, tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "loop.c").write_text(LOOP)
    library = tmp_path / "loop.so"
    subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", tmp_path / "loop.c", "-o", library], check=True
    )
    loop = ctypes.CDLL(str(library)).loop
    loop.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    kernel = code.get_kernel("nothing")
    once = cuda.prepare(cuda.LaunchConfig(1, 32), kernel, 1, 2, 3, 4, 5, 6)
    once()
    values = (ctypes.c_long * 6)(*range(6))
    base = ctypes.addressof(values)
    parameters = (ctypes.c_void_p * 6)(*[base + 8 * i for i in range(6)])
    turns, address = 300, driver_calls()[0]
    floor, prepared = microseconds(
        lambda: loop(address, kernel.handle, parameters, turns),
        lambda: [once(0) for _ in range(turns)],
        turns=1,
    )
    assert prepared / turns < floor / turns + 1 * ROOM


def test_a_launch_with_arrays_costs_little_more_than_one_with_addresses(code, torch):
    x, kernel, config = torch.rand(1000, device="cuda"), code.get_kernel("saxpy"), (1, 32)
    config = cuda.LaunchConfig(*config)
    once = cuda.prepare(config, kernel, 2.0, x, x, 0)
    free, prepared = microseconds(
        lambda: cuda.launch(None, config, kernel, 2.0, x, x, 0), lambda: once(0)
    )
    assert free < prepared + 4 * ROOM
