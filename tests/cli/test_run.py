"""`kernelmill run`: output, exit status and findings of CUDA programs."""

import subprocess
import sys

PROGRAM = """#include <cstdio>
#include <cstdlib>
__global__ void fill(int* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) x[i] = i;
}
int main(int argc, char** argv) {
  const int n = atoi(argv[1]);
  int* x;
  cudaMallocManaged(&x, n * sizeof(int));
  fill<<<2, 32>>>(x, n);
  if (cudaDeviceSynchronize() == cudaSuccess) printf("%d %s\\n", x[n - 1], argv[2]);
  return 7;
}
"""


def run(tmp_path, *arguments):
    (tmp_path / "fill.cu").write_text(PROGRAM)
    return subprocess.run(
        [sys.executable, "-m", "kernelmill", "run", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_a_program_gets_what_follows_it_and_its_status_is_returned(tmp_path):
    done = run(tmp_path, "--order", "random", "--seed", "3", "fill.cu", "64", "--sanitize")
    assert (done.returncode, done.stdout, done.stderr) == (7, "63 --sanitize\n", "")


def test_a_program_has_files_directories_and_macros(tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / "include/size.h").write_text("#pragma once\nconstexpr int size = SIZE;\n")
    (tmp_path / "other.cpp").write_text('#include "size.h"\nint other() { return size + FLAG; }\n')
    (tmp_path / "kernel.cu").write_text(
        '#include "size.h"\n__global__ void fill(int* x) { x[threadIdx.x] = size; }\n'
    )
    (tmp_path / "main.cu").write_text(
        '#include "size.h"\n#include <cstdio>\n__global__ void fill(int*);\nint other();\n'
        "int main() { int* x; cudaMallocManaged(&x, 4 * size); fill<<<1, size>>>(x);\n"
        '  cudaDeviceSynchronize(); printf("%d %d\\n", x[size - 1], other()); return FLAG; }\n'
    )
    more = ("-I", "include", "-D", "SIZE=5", "-DFLAG", "--with", "kernel.cu", "--with", "other.cpp")
    # Names that headers use too: macros hold for the program alone.
    done = run(tmp_path, *more, "-D", "N=9", "-D", "T=float", "-D", "value=3", "main.cu")
    assert (done.returncode, done.stdout, done.stderr) == (1, "5 6\n", "")


def test_a_program_that_a_signal_ends(tmp_path):
    (tmp_path / "ends.cu").write_text("#include <csignal>\nint main() { raise(SIGSEGV); }\n")
    done = run(tmp_path, "ends.cu")
    assert done.returncode == 128 + 11
    assert done.stderr.endswith("error: the program was ended by SIGSEGV\n")


def test_what_the_sanitizer_finds_is_said_on_stderr(tmp_path):
    done = run(tmp_path, "--sanitize", "fill.cu", "40", "x")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        "fill.cu:5: out of bounds: write of 4 bytes; x[40]; block (1, 0, 0), thread (8, 0, 0)\n"
        in done.stderr
    )
    assert done.stderr.endswith("error: the sanitizer made 1 report\n")
