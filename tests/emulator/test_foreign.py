"""Programs in the manners of courses, samples and libraries: run as they are, and looked at.

Each checks its own results and says how many are wrong.
"""

from __future__ import annotations

import re

import pytest

from emulator_kernels import CORPUS
from kernelmill.errors import NotImplementedHere
from kernelmill.runtime.emulator import Sanitizer, Schedule, run_program, scheduled

PROGRAMS = sorted((CORPUS / "programs").glob("*.cu"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_a_program_runs_unchanged_in_every_order(path):
    for schedule in (Schedule(), Schedule("random", seed=2, blocks=3)):
        with scheduled(schedule):
            done = run_program(path, capture=True, timeout=600)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert re.search(r"^0 wrong", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_nothing_is_found_in_a_right_program(path):
    done = run_program(path, capture=True, timeout=600, sanitizer=Sanitizer())
    assert (done.returncode, done.stderr, done.reports) == (0, "", ())


REFUSED = {
    "#include <thrust/sort.h>": "line 1: the emulator has no Thrust (thrust/sort.h)",
    "\n#include <cub/cub.cuh>": "line 2: the emulator has no CUB (cub/cub.cuh)",
    "#include <cuda/std/atomic>": "line 1: the emulator has no libcu++ (cuda/std/atomic)",
    "#include <cufft.h>": "line 1: the emulator has no cuFFT (cufft.h)",
    "#include <cuda_gl_interop.h>": "line 1: the emulator has no graphics (cuda_gl_interop.h)",
    "\nvoid f() { cudaGraph_t g; }": (
        "line 2: the emulator has no such function or type (cudaGraph_t)"
    ),
    "#include <cuda.h>\nCUmodule module;": (
        "line 2: the emulator has no such function or type (CUmodule)"
    ),
    "__global__ void k() {}\n__global__ void l() {\n  k<<<1, 1>>>(); }": (
        "line 3: the emulator has no kernels that launch kernels (<<<)"
    ),
    '__device__ void f(int* x) {\n  asm("mma.sync.aligned.m16n8k8;");\n}': (
        "line 2: the emulator does not know this PTX: mma.sync.aligned.m16n8k8;"
    ),
    '#if 1\n__device__ void f(int* x) {\n  asm("tcgen05.fence;" :: "r"(*x)); }\n#endif': (
        "program.cu line 3: the emulator does not know this PTX: tcgen05.fence;"
    ),
    "\nusing namespace nvcuda;\n__global__ void k() { wmma::fragment<wmma::matrix_a> a; }": (
        "line 3: the emulator has no tensor cores (wmma)"
    ),
    "__global__ void k(\n  const __grid_constant__ CUtensorMap map) {}": (
        "line 2: the emulator has no tensor maps (CUtensorMap)"
    ),
    """__device__ void k(unsigned to, const void* map, int x) {
  asm volatile(
    "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%0];"
    :: "r"(to), "l"(map), "r"(x));
}""": "line 2: the emulator does not know this PTX: cp.async.bulk.tensor.1d",
    "__global__ void k(float* y, cudaSurfaceObject_t s) {}": (
        "line 1: the emulator has no surfaces (cudaSurfaceObject_t)"
    ),
    "\ntexture<float, 2> picture;": "line 2: the emulator has no textures (texture)",
    "\n\nvoid f() { cudaArray* a; cudaChannelFormatDesc d; }": (
        "line 3: the emulator has no such function or type (cudaArray)"
    ),
    "__global__ void k() {}\n__global__ void l() {\n  cudaLaunchDevice(0, 0, 0); }": (
        "line 3: the emulator has no such function or type (cudaLaunchDevice)"
    ),
    "\n\n#include <mma.h>": "line 3: the emulator has no tensor cores (mma.h)",
    "#ifndef GUARD\n#define GUARD\n__device__ float f(cudaTextureObject_t t);\n#endif": (
        "program.cu line 3: the emulator has no textures (cudaTextureObject_t)"
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_there_is_not_is_refused_by_name_and_line(tmp_path, text):
    (tmp_path / "program.cu").write_text(f"{text}\nint main() {{}}\n")
    with pytest.raises(NotImplementedHere, match=re.escape(REFUSED[text])):
        run_program(tmp_path / "program.cu")


def test_a_launch_by_a_kernel_through_a_function_of_both_sides_is_refused_when_it_happens(tmp_path):
    (tmp_path / "program.cu").write_text("""#include <cstdio>
__global__ void child() {}
__host__ __device__ void start() { child<<<1, 1>>>(); }
__global__ void parent() { start(); }
int main() {
  start();
  printf("%d\\n", cudaDeviceSynchronize());
  parent<<<1, 1>>>();
  printf("%s\\n", cudaGetErrorName(cudaDeviceSynchronize()));
}""")
    done = run_program(tmp_path / "program.cu", capture=True, timeout=600)
    assert done.stdout == "0\ncudaErrorLaunchFailure\n"
    assert "a kernel is launched by a kernel in block (0, 0, 0), thread (0, 0, 0)" in done.stderr


def test_branches_that_are_not_taken_are_not_refused(tmp_path):
    (tmp_path / "program.cu").write_text(
        """#ifdef NEVER
#include <cub/cub.cuh>
#endif
#include <cstdio>
#define FENCE() asm volatile("tcgen05.fence;")
__device__ int newest(int* x) {
#if __CUDA_ARCH__ >= 1000
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
  wmma::fragment f;
#endif
  return *x;
}
static unsigned long long ticks() {
  unsigned low = 1, high = 0;
#if defined(__x86_64__)
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
#endif
  return (unsigned long long)high << 32 | low;
}
int main() { printf("%d", ticks() > 0); }
"""
    )
    done = run_program(tmp_path / "program.cu", capture=True, timeout=600)
    assert (done.stdout, done.stderr) == ("1", "")
