"""The thread pool: every task once, from any number of callers, over fork, restart and affinity."""

import ctypes
import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from ctypes import CFUNCTYPE, c_int, c_int64, c_void_p
from pathlib import Path

import pytest

import kernelmill
from kernelmill.config import override
from kernelmill.runtime.native import native

HOST = Path(kernelmill.__file__).parent / "host"
STRESS = Path(__file__).parent / "pool_stress.c"
TASK = CFUNCTYPE(None, c_void_p, c_int64, c_int64, c_int)
NONE = 0
CPUS = len(os.sched_getaffinity(0))


def compiler():
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return [found] if found else [sys.executable, "-m", "ziglang", "cc"]


def build(out, *flags):
    command = [*compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{HOST}"]
    command += [*flags, str(STRESS), str(HOST / "pool.c"), "-o", str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    out = tmp_path_factory.mktemp("pool") / "stress.so"
    done = build(out, "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def pool(library):
    lib = ctypes.CDLL(str(library))
    lib.km_parallel_for.argtypes = c_int64, c_int, TASK, c_void_p
    lib.km_pool_nop.argtypes = c_int64, c_int
    lib.stress_regions.argtypes = c_int64, c_int, c_int, c_int
    lib.stress_width.argtypes = c_int64, c_int
    lib.km_pool_start(4, -1)
    yield lib
    lib.km_pool_start(0, -1)


def run_child(library, text):
    """Run Python text, with the pool as `lib`, in a process of its own."""
    script = f"import ctypes, os, sys, threading, time\nlib = ctypes.CDLL({str(library)!r})\n{text}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_compiles_alone_without_warnings(tmp_path):
    command = [*compiler(), "-O2", "-shared", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, str(HOST / "pool.c"), "-o", "p.so"], cwd=tmp_path, check=True)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 100, 10_000])
@pytest.mark.parametrize("max_threads", [0, 1, 2, 3, 64])
def test_every_task_runs_once(pool, n, max_threads):
    assert pool.stress_regions(n, max_threads, 0, 20) == NONE


@pytest.mark.parametrize("n", [-1, -(1 << 62), 0])
def test_no_tasks_call_nothing(pool, n):
    called = []
    pool.km_parallel_for(n, 0, TASK(lambda *a: called.append(a)), None)
    assert called == []


def test_task_numbers_may_exceed_32_bits(pool):
    ranges = []
    lock = threading.Lock()

    def task(_, begin, end, worker):
        with lock:
            ranges.append((begin, end))

    n = (1 << 40) + 3
    # 2**40 tasks of no work: the pieces shrink to one task only at the end of each range
    pool.km_parallel_for(n, 2, TASK(task), None)
    ranges.sort()
    assert ranges[0][0] == 0
    assert ranges[-1][1] == n
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ranges))


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 40])
def test_a_hundred_thousand_tiny_regions(pool, threads):
    assert pool.km_pool_start(threads, -1) == threads
    regions = 100_000 if threads <= CPUS else 5_000
    assert pool.stress_regions(5, 0, 0, regions) == NONE


@pytest.mark.parametrize("threads", [2, 5])
def test_nested_regions_run_inside_their_task(pool, threads):
    pool.km_pool_start(threads, -1)
    assert pool.stress_regions(200, 0, 1, 2_000) == NONE


@pytest.mark.parametrize("threads", [2, 3, 16])
def test_many_callers_at_once(pool, threads):
    pool.km_pool_start(threads, -1)
    assert pool.stress_callers(8, 3_000, 0) == NONE


def test_restarts_while_others_run_regions(pool):
    assert pool.stress_callers(8, 3_000, 1) == NONE


def test_regions_use_the_threads_they_may_and_no_more(pool):
    pool.km_pool_start(3, -1)
    for tasks, max_threads, most in ((60, 0, 3), (60, 2, 2), (60, 1, 1), (2, 0, 2)):
        seen = {0}
        end = time.monotonic() + 300  # on a busy machine a worker may come late
        while max(seen) < most and time.monotonic() < end:
            seen.add(pool.stress_width(tasks, max_threads))
        assert max(seen) == most


def test_tasks_may_be_python_functions(pool):
    hits, workers = [0] * 1000, set()

    def task(_, begin, end, worker):
        workers.add(worker)
        for i in range(begin, end):
            hits[i] += 1

    pool.km_parallel_for(1000, 0, TASK(task), None)
    assert hits == [1] * 1000
    assert workers <= set(range(4))


def test_start_inside_a_task_changes_nothing(pool):
    answers = []
    task = TASK(lambda *_: answers.append(pool.km_pool_start(9, -1)))
    pool.km_parallel_for(8, 0, task, None)
    assert set(answers) == {4}
    assert pool.km_pool_threads() == 4


@pytest.mark.parametrize(("asked", "set_"), [(1, 1), (7, 7), (512, 512), (513, 512), (9999, 512)])
def test_the_number_of_threads_is_bounded(pool, asked, set_):
    assert pool.km_pool_start(asked, -1) == set_
    assert pool.km_pool_threads() == set_


def test_zero_threads_means_the_affinity_mask(pool):
    assert pool.km_pool_start(0, -1) == CPUS


# A thread that has been waited for may stand in /proc for a moment longer.
SETTLE = (
    "def settle(look, right):\n"
    "    end = time.monotonic() + 60\n"
    "    while not right(found := look()) and time.monotonic() < end:\n"
    "        time.sleep(0.01)\n"
    "    assert right(found), found\n"
)


def test_nothing_starts_before_the_first_region(library):
    text = (
        "count = lambda: len(os.listdir('/proc/self/task'))\n"
        "lib.km_pool_start(4, -1); assert count() == 1\n"
        "lib.km_pool_nop(ctypes.c_int64(100), 0); assert count() == 4\n"
        "lib.km_pool_start(2, -1); settle(count, lambda n: n == 1)\n"
        "lib.km_pool_nop(ctypes.c_int64(100), 0); assert count() == 2\n"
    )
    run_child(library, SETTLE + text)


def test_an_idle_pool_burns_no_cpu(pool):
    pool.km_pool_start(max(2, CPUS), -1)  # with more threads than CPUs none would spin
    assert pool.stress_regions(100, 0, 0, 100) == NONE

    def burnt():
        before = time.process_time()
        time.sleep(0.1)
        return time.process_time() - before

    # One that spins takes all of it; on a busy machine the workers get to their sleep late.
    assert any(burnt() < 0.005 for _ in range(100))


def test_a_forked_child_makes_its_own_threads(library):
    text = (
        "lib.km_pool_start(3, -1)\n"
        "assert lib.stress_regions(ctypes.c_int64(100), 0, 0, 50) == 0\n"
        "for _ in range(20):\n"
        "    pid = os.fork()\n"
        "    fault = lib.stress_regions(ctypes.c_int64(100), 0, 1, 50)\n"
        "    if pid == 0:\n"
        "        os._exit(fault or (len(os.listdir('/proc/self/task')) != 3) * 99)\n"
        "    assert fault == 0\n"
        "    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
        "    assert code == 0, code\n"
    )
    run_child(library, text)


def test_fork_while_other_threads_run_regions(library):
    text = (
        "lib.km_pool_start(3, -1)\n"
        "stop = []\n"
        "def call():\n"
        "    while not stop:\n"
        "        assert lib.stress_regions(ctypes.c_int64(200), 0, 1, 20) == 0\n"
        "threads = [threading.Thread(target=call) for _ in range(3)]\n"
        "for t in threads: t.start()\n"
        "for _ in range(40):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        os._exit(lib.stress_regions(ctypes.c_int64(100), 0, 0, 20))\n"
        "    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
        "    assert code == 0, code\n"
        "stop.append(1)\n"
        "for t in threads: t.join()\n"
    )
    run_child(library, text)


@pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")
def test_workers_follow_the_affinity_mask(library):
    text = (
        "cpus = sorted(os.sched_getaffinity(0))[:2]\n"
        "region = lambda: lib.stress_regions(ctypes.c_int64(100), 0, 0, 10)\n"
        "def mask(thread):\n"
        "    try: return tuple(sorted(os.sched_getaffinity(thread)))\n"
        "    except ProcessLookupError: return ()\n"
        "def masks():\n"
        "    time.sleep(0.05)\n"
        "    assert region() == 0\n"
        "    threads = [int(t) for t in os.listdir('/proc/self/task')]\n"
        "    return sorted(mask(t) for t in threads if t != os.getpid())\n"
        "os.sched_setaffinity(0, cpus)\n"
        "lib.km_pool_start(3, -1)\n"
        "settle(masks, lambda found: found == [tuple(cpus)] * 2)\n"
        "lib.km_pool_start(2, -1)\n"
        "for cpu in cpus * 2:\n"
        "    os.sched_setaffinity(0, [cpu])\n"
        "    settle(masks, lambda found: found == [(cpu,)])\n"
        "    os.sched_setaffinity(0, cpus)\n"
        "    settle(masks, lambda found: found in ([(cpus[0],)], [(cpus[1],)]))\n"
        "os.sched_setaffinity(0, cpus[:1])\n"
        "assert lib.km_pool_start(0, -1) == 1\n"
        "os.sched_setaffinity(0, cpus)\n"
        "assert lib.km_pool_start(0, -1) == 2\n"
        "assert region() == 0\n"
        "os.sched_setaffinity(0, cpus[:1]); time.sleep(0.05)\n"
        "assert lib.stress_width(ctypes.c_int64(20), 0) == 1, 'two threads on one CPU'\n"
    )
    run_child(library, SETTLE + text)


@pytest.mark.slow
def test_affinity_changes_under_load(library):
    text = (
        "cpus = sorted(os.sched_getaffinity(0))\n"
        "lib.km_pool_start(0, -1)\n"
        "end = time.monotonic() + 2\n"
        "k = 0\n"
        "while time.monotonic() < end:\n"
        "    k += 1\n"
        "    os.sched_setaffinity(0, cpus[k % len(cpus):] if k % 3 else cpus)\n"
        "    assert lib.stress_callers(3, 200, 0) == 0\n"
    )
    run_child(library, text)


def test_no_data_races(tmp_path):
    done = build(tmp_path / "tsan", "-O1", "-g", "-fsanitize=thread")
    if done.returncode != 0:
        pytest.skip("the compiler has no thread sanitizer")
    ran = subprocess.run(
        [str(tmp_path / "tsan"), "1000"], capture_output=True, text=True, timeout=600, check=False
    )
    if "unexpected memory mapping" in ran.stderr:
        pytest.skip("the thread sanitizer does not run on this kernel")
    assert ran.stderr == ""
    assert (ran.returncode, ran.stdout) == (0, "0 0 0\n")


# ---------------------------------------------------------------- through the native call path

KERNEL = """
#include <stdint.h>
#include <time.h>
typedef void (*task)(void *, int64_t, int64_t, int);
struct runtime { void (*parallel_for)(int64_t, int, task, void *); };
struct operand { char *data; const int64_t *strides; };
struct call { const struct runtime *runtime; const int64_t *shape; int ndim, threads;
  const struct operand *operands; const void *captures; void *workspace; int64_t flags; };
#define API __attribute__((visibility("default")))
static void add(void *p, int64_t begin, int64_t end, int worker) {
  const struct call *c = p;
  for (int64_t i = begin; i < end; i++)
    ((float *)c->operands[2].data)[i] =
      ((float *)c->operands[0].data)[i] + ((float *)c->operands[1].data)[i];
}
API void km_add(const struct call *c) {
  if (c->threads > 1) c->runtime->parallel_for(c->shape[0], c->threads, add, (void *)c);
  else add((void *)c, 0, c->shape[0], 0);
}
API void km_wait(const struct call *c) {
  volatile int *flag = *(volatile int *const *)c->captures;
  time_t end = time(NULL) + 300;
  while (!*flag && time(NULL) < end) ;
  *(float *)c->operands[0].data = *flag;
}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    place = tmp_path_factory.mktemp("kernels")
    (place / "k.c").write_text(KERNEL)
    command = [*compiler(), "-O2", "-shared", "-fPIC", str(place / "k.c"), "-o"]
    subprocess.run([*command, str(place / "k.so")], check=True)
    lib = ctypes.CDLL(str(place / "k.so"))
    return {name: ctypes.cast(lib[name], c_void_p).value for name in ("km_add", "km_wait")}


@pytest.fixture(params=[True, False], ids=["extension", "python"])
def module(request, tmp_path):
    with override(native=request.param, num_threads=3, cache_dir=tmp_path):
        if request.param and native().__name__ != "kernelmill._native":
            pytest.skip("the extension is not installed")
        yield native()
    native()


def test_kernels_run_on_the_pool(module, kernels):
    np = pytest.importorskip("numpy")
    f4 = np.dtype("f4")
    launch = module.Launcher(kernels["km_add"], (f4,) * 3, 1, serial_below=1000)
    rng = np.random.default_rng(0)
    for n in (1, 999, 1000, 100_000):
        a, b, out = rng.random(n, "f4"), rng.random(n, "f4"), np.empty(n, "f4")
        assert launch(a, b, out)
        np.testing.assert_array_equal(out, a + b)
        assert launch(a, b, a)
        np.testing.assert_array_equal(a, out)


def test_python_threads_may_launch_at_once(module, kernels):
    np = pytest.importorskip("numpy")
    f4 = np.dtype("f4")
    launch = module.Launcher(kernels["km_add"], (f4,) * 3, 1, serial_below=100, gil_above=100)
    faults = []

    def call(seed):
        rng = np.random.default_rng(seed)
        a, b, out = rng.random(5000, "f4"), rng.random(5000, "f4"), np.empty(5000, "f4")
        for _ in range(200):
            out[:] = 0
            launch(a, b, out)
            if not np.array_equal(out, a + b):
                faults.append(seed)

    threads = [threading.Thread(target=call, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert faults == []


def test_large_launches_release_the_gil(module, kernels):
    np = pytest.importorskip("numpy")
    flag = c_int(0)
    captures = ctypes.addressof(flag).to_bytes(8, sys.byteorder)
    launch = module.Launcher(
        kernels["km_wait"], (np.dtype("f4"),), 1, captures=captures, gil_above=99
    )
    setter = threading.Timer(0.05, lambda: setattr(flag, "value", 1))
    setter.start()
    seen = np.zeros(100, "f4")
    assert launch(seen)
    setter.join()
    assert seen[0] == 1, "another Python thread could not set the flag while the kernel ran"


def test_the_pool_of_the_twin_is_compiled_when_wanted_and_once(tmp_path):
    script = (
        "import pathlib, sys\n"
        "from kernelmill.runtime.native import native\n"
        "made = lambda: [p.stat().st_mtime_ns for p in pathlib.Path(sys.argv[1]).rglob('*.so')]\n"
        "n = native(); assert n.__name__ == 'kernelmill._native_py'\n"
        "before = made(); assert n.parallel_for_address; print(before, made())\n"
    )
    env = {**os.environ, "KERNELMILL_NATIVE": "0", "KERNELMILL_CACHE_DIR": str(tmp_path)}
    first, second = (
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            env=env, capture_output=True, text=True, check=True,
        ).stdout.strip()
        for _ in range(2)
    )  # fmt: skip
    stamps = first.removeprefix("[] ")
    assert len(first) > len(stamps) > len("[]"), "nothing before it was asked for, then a library"
    assert second == f"{stamps} {stamps}"
