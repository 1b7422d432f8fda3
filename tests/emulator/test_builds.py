"""The emulator with each compiler, and with the switch of stacks that other processors use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import kernelmill as km
from kernelmill.config import override

SCRIPT = """
import sys
import numpy as np
import kernelmill as km
from emulator_kernels import BY_NAME, CORPUS
from kernelmill.runtime.emulator import Schedule, build, compile_emulated, scheduled

build._RUNTIME_FLAGS += tuple(sys.argv[1:])
code = compile_emulated((CORPUS / "right.cu").read_text(), name="right.cu")
for name in ("reverse_static", "divided_warp", "look_back", "grid_barrier", "producer_consumer"):
    for schedule in (Schedule(), Schedule("random", seed=2, blocks=3)):
        case = BY_NAME[name]
        args = case.args()
        config = km.LaunchConfig(
            case.grid, case.block, shmem_size=case.shared, is_cooperative=case.cooperative
        )
        with scheduled(schedule):
            km.launch(None, config, code.get_kernel(name), *args)
        found, wanted = case.check(*args)
        assert (np.asarray(found) == np.asarray(wanted)).all(), (name, schedule)
print("right")
"""


def run(tmp_path, *flags: str, **environment: str):
    from pathlib import Path

    tests = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join([tests, *(p for p in sys.path if p)])
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *flags],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("compiler", ["clang++", "zig"])
def test_other_compilers(tmp_path, compiler):
    if compiler == "clang++" and shutil.which(compiler) is None:
        pytest.skip("there is no clang++ here")
    done = run(tmp_path, KERNELMILL_CXX=compiler)
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr


def test_stacks_are_switched_without_assembly_too(tmp_path):
    done = run(tmp_path, "-DKM_EMU_UCONTEXT")
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr


def test_the_sanitizer_asks_for_gcc(tmp_path):
    if shutil.which("clang++") is None:
        pytest.skip("there is no clang++ here")
    script = """
import numpy as np
import kernelmill as km
from kernelmill.runtime.emulator import compile_emulated, sanitized
kernel = compile_emulated('extern "C" __global__ void f(int* x) { *x = 1; }').get_kernel("f")
with sanitized():
    try:
        km.launch(None, km.LaunchConfig(1, 1), kernel, np.zeros(1, np.int32))
    except km.ToolchainError as error:
        print(error.message)
"""
    import os

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "KERNELMILL_CXX": "clang++"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.startswith("the sanitizer needs g++; the compiler is clang++"), done.stderr


def test_the_sanitizer_names_the_compiler_that_it_does_not_work_with(tmp_path):
    script = """
import numpy as np
import kernelmill as km
from kernelmill.errors import ToolchainError
from kernelmill.runtime.emulator import compile_emulated, sanitized
kernel = compile_emulated('extern "C" __global__ void f(int* x) { *x = 1; }').get_kernel("f")
with sanitized():
    try:
        km.launch(None, km.LaunchConfig(1, 1), kernel, np.zeros(1, np.int32))
    except ToolchainError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "KERNELMILL_CXX": "zig"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.startswith("the sanitizer needs g++; the compiler is zig"), done.stderr
    assert "KERNELMILL_CXX=g++" in done.stdout


def test_the_setting_makes_programs_for_the_emulator():
    """As on a CI runner, where `KERNELMILL_DEVICE` is set and nobody names a device."""
    text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    x = np.arange(4, dtype=np.float32)
    with override(device="emulator"):
        kernel = km.Program(text, name="twice.cu").compile().get_kernel("twice")
        km.launch(None, km.LaunchConfig(1, 4), kernel, x)
    assert x.tolist() == [0, 2, 4, 6]
