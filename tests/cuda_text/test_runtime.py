"""The CUDA runtime where there is no driver, a false one, or no extra: what works, what is said."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from types import SimpleNamespace

import ml_dtypes  # noqa: F401 - makes bfloat16 a NumPy dtype
import numpy as np
import pytest

import kernelmill as km
from cuda_stand_ins import Result, false_driver
from kernelmill.errors import ArgumentError, DeviceError, MissingExtraError, NotImplementedHere
from kernelmill.runtime import cuda
from kernelmill.runtime.cuda import driver as driver_module
from kernelmill.runtime.cuda.launches import LaunchConfig
from kernelmill.runtime.cuda.program import Linker, ObjectCode, Program
from kernelmill.toolchain.nvrtc import CudaOptions

pytest.importorskip("cuda.core", reason="needs the extra cuda13 or cuda12")

KERNEL = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }\n'


# ----------------------------------------------------------------------------- no driver


def test_importing_the_runtime_imports_neither_driver_nor_core():
    text = (
        "import sys, kernelmill.runtime.cuda as c\n"
        "c.Program, c.launch, c.LaunchConfig, c.cuda_device, c.capture, c.to_device, c.CudaBackend\n"
        "assert not {'cuda.core', 'cuda.bindings.driver', 'cuda.bindings.nvrtc'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", text], check=True, timeout=600)


def test_without_a_driver_the_library_is_named(install):
    def absent(_):
        raise RuntimeError("libcuda.so.1 was not found\nsearched: everywhere")

    install(SimpleNamespace(cuInit=absent))
    for use in (cuda.cuda_device, cuda.CudaBackend, cuda.synchronize):
        with pytest.raises(
            DeviceError, match=r"the driver library libcuda\.so\.1 cannot be"
        ) as caught:
            use()
        assert "libcuda.so.1 was not found" in caught.value.message
        assert "searched" not in caught.value.message
        assert "install NVIDIA's driver" in caught.value.hint


def test_without_the_extra_the_pip_line_is_named(install, monkeypatch):
    install(None)
    with pytest.raises(MissingExtraError) as caught:
        cuda.cuda_device()
    assert caught.value.hint.startswith("pip install 'kernelmill[cuda13]'")
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    monkeypatch.delitem(vars(cuda), "Stream", raising=False)
    with pytest.raises(MissingExtraError):
        cuda.Stream


def test_a_driver_without_a_gpu(install):
    for module in (false_driver(init=Result.CUDA_ERROR_NO_DEVICE), false_driver(devices=0)):
        install(module)
        with pytest.raises(DeviceError, match="the driver sees no GPU") as caught:
            cuda.cuda_device()
        assert "CUDA_VISIBLE_DEVICES" in caught.value.hint


def test_a_driver_that_is_too_old(install):
    install(false_driver(version=11080))
    with pytest.raises(DeviceError, match=r"the driver is for CUDA 11\.8; cuda-bindings 1\d needs"):
        cuda.cuda_device()


def test_a_driver_that_does_not_fit_its_kernel_module(install):
    install(false_driver(init=Result.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH))
    with pytest.raises(DeviceError, match="cannot initialise the driver: .*different versions"):
        cuda.cuda_device()


@pytest.mark.parametrize("capability", [(7, 0), (6, 1), (5, 2)])
def test_a_gpu_that_is_too_old(install, capability):
    install(false_driver(capability=capability))
    text = (
        f"cuda:0 is of compute capability {capability[0]}.{capability[1]}; served are 7.5 and later"
    )
    with pytest.raises(DeviceError, match=text):
        cuda.cuda_device()


@pytest.mark.parametrize(("count", "listed"), [(1, "there are cuda:0$"), (3, "cuda:0 to cuda:2")])
def test_a_device_that_is_not_there(install, count, listed):
    install(false_driver(devices=count))
    with pytest.raises(DeviceError) as caught:
        cuda.cuda_device(7)
    assert caught.match("there is no device cuda:7")
    assert caught.value.message.endswith(listed.rstrip("$"))


def test_a_forked_process_is_told(install, monkeypatch):
    install(false_driver())
    driver_module.require()
    driver_module._after_fork()
    with pytest.raises(DeviceError, match="this process was forked from one") as caught:
        driver_module.require()
    assert "spawn" in caught.value.hint


def test_sticky_errors_name_the_kernels_launched_last(monkeypatch):
    launched = deque(["first", "second", "second"], maxlen=8)
    monkeypatch.setattr(driver_module, "recent_kernels", launched)
    answer = (Result.CUDA_ERROR_ILLEGAL_ADDRESS,)
    with pytest.raises(DeviceError) as caught:
        driver_module.check(answer, "wait for cuda:0")
    assert caught.value.message == (
        "cannot wait for cuda:0: a kernel read or wrote memory that is not its own "
        "(CUDA_ERROR_ILLEGAL_ADDRESS); kernels launched last, newest first: second, first"
    )
    assert "start the process again" in caught.value.hint


def test_other_errors_say_what_to_do():
    with pytest.raises(
        DeviceError, match="cannot allocate: the device has not that much"
    ) as caught:
        driver_module.check((Result.CUDA_ERROR_OUT_OF_MEMORY, 0), "allocate")
    assert "stay usable" in caught.value.hint
    assert driver_module.check((Result.CUDA_SUCCESS, 5), "x") == 5
    assert driver_module.check((Result.CUDA_SUCCESS, 5, 6), "x") == (5, 6)


# ----------------------------------------------------------------------------- programs


def test_programs_compile_without_a_driver():
    program = Program(KERNEL, "c++", name="twice.cu")
    cubin = program.compile("cubin", arch="sm_90")
    assert (
        repr(cubin)
        == repr(cubin)
        == f"ObjectCode('twice.cu', cubin for sm_90, {len(cubin.code)} bytes)"
    )
    ptx = program.compile("ptx", arch="sm_80")
    assert ptx.code_type == "ptx"
    assert b"twice" in ptx.code
    again = Program(ptx.code, "ptx", name="twice.ptx").compile("cubin", arch="sm_80")
    assert again.code[:4] == b"\x7fELF"


def test_ltoir_programs_and_linkers():
    text = (
        'extern __device__ float op(float); extern "C" __global__ void k(float* x) { *x = op(*x); }'
    )
    parts = [
        Program(t).compile("ltoir", arch="sm_90")
        for t in (text, "__device__ float op(float x) { return -x; }")
    ]
    linked = Linker(*parts, arch="sm_90").link("cubin", name="whole")
    assert linked.code[:4] == b"\x7fELF"
    alone = Program(KERNEL).compile("ltoir", arch="sm_90")
    assert Program(alone.code, "ltoir").compile("cubin", arch="sm_90").code[:4] == b"\x7fELF"


def test_object_code_of_cuda_core_is_linked_as_it_is():
    from cuda.core import ObjectCode as CoreCode

    ptx = Program(KERNEL).compile("ptx", arch="sm_90").code
    assert Linker(CoreCode.from_ptx(ptx, name="x"), arch="sm_90").link().code[:4] == b"\x7fELF"
    with pytest.raises(ArgumentError, match="a str is no object code"):
        Linker("x", arch="sm_90")


def test_users_code_is_contracted_unless_told_otherwise():
    text = 'extern "C" __global__ void k(float* x) { x[0] = x[1] * x[2] + x[3]; }'
    assert b"fma.rn.f32" in Program(text).compile("ptx", arch="sm_90").code
    assert (
        b"fma.rn.f32" not in Program(text, options=CudaOptions()).compile("ptx", arch="sm_90").code
    )


def test_without_arch_and_device_the_way_out_is_named(install):
    install(false_driver(devices=0))
    with pytest.raises(DeviceError, match="no architecture was given") as caught:
        Program(KERNEL).compile("cubin")
    assert "arch='sm_90'" in caught.value.hint


def test_programs_refuse_what_they_cannot_make():
    with pytest.raises(ArgumentError, match=r"code types: c\+\+, ptx, ltoir"):
        Program("x", "nvvm")
    with pytest.raises(ArgumentError, match="ptx compiles to a cubin, not to ltoir"):
        Program("x", "ptx").compile("ltoir", arch="sm_90")


def test_ltoir_cannot_be_loaded():
    code = Program(KERNEL, name="twice.cu").compile("ltoir", arch="sm_90")
    with pytest.raises(ArgumentError, match="LTO-IR, which cannot be loaded") as caught:
        code.load()
    assert "Linker(object_code).link('cubin')" in caught.value.hint


def test_cubins_that_are_not_whole_are_refused():
    """The driver would not survive them: a cut file ended the process on driver 580."""
    whole = Program(KERNEL).compile("cubin", arch="sm_90").code
    assert ObjectCode.from_cubin(whole).code == whole
    for end in (0, 4, 63, 64, 200, len(whole) // 2, len(whole) - 1):
        with pytest.raises(ArgumentError, match="'cubin' is no whole cubin"):
            ObjectCode.from_cubin(whole[:end])
    other = bytearray(whole)
    other[18] = 62  # x86-64
    with pytest.raises(ArgumentError, match="does not begin as an ELF file for CUDA"):
        ObjectCode.from_cubin(bytes(other), name="host.o")


def test_object_code_from_files(tmp_path):
    made = Program(KERNEL).compile("cubin", arch="sm_90")
    (tmp_path / "k.cubin").write_bytes(made.code)
    assert ObjectCode.from_cubin(tmp_path / "k.cubin").code == made.code
    assert ObjectCode.from_ptx(b"// x").code_type == "ptx"


# ----------------------------------------------------------------------------- configurations


def test_configurations_are_completed():
    config = LaunchConfig(grid=7, block=(8, 4))
    assert (config.grid, config.block, config.cluster) == ((7, 1, 1), (8, 4, 1), None)
    assert config == LaunchConfig(grid=(7, 1, 1), block=(8, 4, 1))
    assert hash(config) == hash(LaunchConfig((7,), (8, 4)))


@pytest.mark.parametrize(
    "fields",
    [
        {"grid": 0},
        {"grid": (1, 2, 3, 4)},
        {"grid": ()},
        {"block": -1},
        {"block": 2.5},
        {"block": True},
    ],
    ids=str,
)
def test_extents_that_cannot_be_launched(fields):
    with pytest.raises(ArgumentError, match="accepted: 1 to 3 whole numbers above 0"):
        LaunchConfig(**{"grid": 1, "block": 1, **fields})


def test_extents_are_integers_of_any_library():
    config = LaunchConfig(np.int64(2), (np.uint8(32), 4), cluster=np.int32(2))
    assert config == LaunchConfig(2, (32, 4), cluster=2)
    assert all(type(n) is int for n in (*config.grid, *config.block, *config.cluster))


def test_shared_memory_below_zero():
    with pytest.raises(ArgumentError, match="shmem_size=-1 is below 0"):
        LaunchConfig(1, 1, shmem_size=-1)


# ----------------------------------------------------------------------------- devices by name


def test_a_device_that_is_no_gpu_has_no_streams():
    device = km.Device("cpu")
    for use in (
        device.create_stream,
        device.create_event,
        device.set_current,
        device.sync,
        lambda: device.allocate(8, None),
        lambda: device.arch,
        lambda: device.gpu,
    ):
        with pytest.raises(NotImplementedHere) as caught:
            use()
        assert caught.value.message == ("device 'cpu' has no streams, events or memory of its own")
        assert caught.value.hint == "those are of a GPU: km.Device('cuda:0')"
