"""What is said where CUDA cannot be used as asked: whole texts, with no driver or a false one."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import kernelmill as km
from cuda_stand_ins import Result, false_driver
from kernelmill.errors import ArgumentError, DeviceError, DTypeError, MissingExtraError
from kernelmill.runtime import cuda, devices
from kernelmill.runtime.cuda import device as device_module
from kernelmill.runtime.cuda import driver
from kernelmill.runtime.cuda.arguments import ArgumentRecord, pack
from kernelmill.runtime.cuda.launches import _check_limits
from kernelmill.runtime.cuda.stream import as_stream
from kernelmill.toolchain import nvidia, nvrtc

pytest.importorskip("cuda.core", reason="needs the extra cuda13 or cuda12")

MAJOR = driver._bindings_major()
EXTRA = "cuda12" if MAJOR == 12 else "cuda13"


@pytest.fixture(autouse=True)
def forget_devices(monkeypatch):
    monkeypatch.setattr(devices, "_BACKENDS", {})


def absent(_):
    raise RuntimeError("libcuda.so.1 was not found\nsearched: everywhere")


NEWER = (
    "update the driver, or `pip install 'kernelmill[cuda12]'` in place of cuda13"
    if MAJOR > 12
    else "update the driver"
)
# What is there: what is said, and what to do.
MACHINES = {
    "no driver": (
        SimpleNamespace(cuInit=absent),
        "the driver library libcuda.so.1 cannot be loaded: libcuda.so.1 was not found",
        (
            "install NVIDIA's driver, or in a container start it with the GPU (docker run --gpus all); "
            "`kernelmill doctor` shows what was found"
        ),
    ),
    "no GPU": (
        false_driver(init=Result.CUDA_ERROR_NO_DEVICE),
        "the driver sees no GPU",
        "check nvidia-smi and CUDA_VISIBLE_DEVICES",
    ),
    "a hidden GPU": (
        false_driver(devices=0),
        "the driver sees no GPU",
        "check nvidia-smi and CUDA_VISIBLE_DEVICES",
    ),
    "an old driver": (
        false_driver(version=11080),
        f"the driver is for CUDA 11.8; cuda-bindings {MAJOR} needs one for CUDA {MAJOR}.0 or later",
        NEWER,
    ),
    "an old GPU": (
        false_driver(capability=(7, 0)),
        "cuda:0 is of compute capability 7.0; served are 7.5 and later (Turing, 2018)",
        "use the CPU: km.Device('cpu')",
    ),
    "two halves of a driver": (
        false_driver(init=Result.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
        (
            "cannot initialise the driver: the driver's library and its kernel module are of different "
            "versions (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)"
        ),
        "restart the machine, or install both again",
    ),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_machines_on_which_cuda_cannot_be_used(install, machine):
    module, found, hint = MACHINES[machine]
    install(module)
    for use, begin in (
        (lambda: km.Device("cuda:0"), "device 'cuda:0' cannot be used: "),
        (cuda.cuda_device, ""),
    ):
        with pytest.raises(DeviceError) as caught:
            use()
        assert caught.value.message == begin + found
        assert caught.value.hint == hint
    assert devices.available_devices()[0] == "cpu"


def test_the_emulator_and_the_cpu_stay_where_there_is_no_driver(install):
    install(SimpleNamespace(cuInit=absent))
    with pytest.raises(DeviceError) as caught:
        km.Device("tpu")
    assert caught.value.hint.startswith("devices here: cpu")
    assert km.Device("cpu").name == "cpu"


def test_a_device_that_is_not_there(install):
    install(false_driver(devices=2))
    with pytest.raises(DeviceError) as caught:
        km.Device("cuda:5")
    assert caught.value.message == (
        "device 'cuda:5' cannot be used: there is no device cuda:5; there are cuda:0 to cuda:1"
    )
    assert caught.value.hint == "CUDA_VISIBLE_DEVICES decides which GPUs a process sees"


def test_without_the_bindings(install):
    install(None)
    with pytest.raises(MissingExtraError) as caught:
        cuda.cuda_device()
    assert caught.value.message.startswith("running on CUDA needs the packages of an extra: ")
    assert caught.value.hint == (
        "pip install 'kernelmill[cuda13]', or 'kernelmill[cuda12]' for a driver below 580"
    )


def test_without_nvrtc(monkeypatch):
    from cuda import pathfinder

    def not_found(name):
        raise pathfinder.DynamicLibNotFoundError(f"lib{name}.so was not found\nmore\n")

    for function in (
        nvidia.load_library,
        nvidia.toolkit_headers,
        nvrtc.nvrtc_version,
        nvrtc.supported_architectures,
    ):
        function.cache_clear()
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", not_found)
    with pytest.raises(MissingExtraError) as caught:
        km.Program("x").compile("cubin", arch="sm_90")
    assert caught.value.message == (
        "the library nvrtc was not found (wheel nvidia-cuda-nvrtc): libnvrtc.so was not found"
    )
    assert caught.value.hint == f"pip install 'kernelmill[{EXTRA}]'"


# ----------------------------------------------------------------------------- memory


def test_out_of_memory(install, monkeypatch):
    """Says what was asked and what is free; the next allocation is tried as if nothing was."""
    error_class = driver.core_error()
    answers = [error_class("CUDA_ERROR_OUT_OF_MEMORY: out of memory\nmore"), "a buffer"]

    def allocate(size, stream):
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    module = false_driver()
    module.cuCtxSetCurrent = lambda _: (Result.CUDA_SUCCESS,)
    module.cuMemGetInfo = lambda: (Result.CUDA_SUCCESS, 1 << 20, 1 << 30)
    install(module)
    monkeypatch.setattr(device_module, "_CONTEXTS", {0: object()})
    device = cuda.CudaDevice(0, LIMITS, SimpleNamespace(allocate=allocate))
    monkeypatch.setitem(device_module._DEVICES, 0, device)
    with pytest.raises(DeviceError) as caught:
        km.Device("cuda:0").allocate(1 << 40, None)
    assert caught.value.message == (
        "cannot allocate 1099511627776 bytes on cuda:0: the device has not that much free memory "
        "(CUDA_ERROR_OUT_OF_MEMORY); 1048576 of 1073741824 bytes are free"
    )
    assert caught.value.hint == "free arrays, or work in parts; arrays and the device stay usable"
    assert km.Device("cuda:0").allocate(8, None) == "a buffer"


# ----------------------------------------------------------------------------- launches


def test_an_illegal_access(monkeypatch):
    monkeypatch.setattr(driver, "recent_kernels", type(driver.recent_kernels)(["first", "wrong"]))
    error = driver.explained("CUDA_ERROR_ILLEGAL_ADDRESS", "wait for cuda:0")
    assert error.message == (
        "cannot wait for cuda:0: a kernel read or wrote memory that is not its own "
        "(CUDA_ERROR_ILLEGAL_ADDRESS); kernels launched last, newest first: wrong, first"
    )
    assert error.hint == (
        "start the process again: nothing on this device works until then; compute-sanitizer "
        "names the line, and CUDA_LAUNCH_BLOCKING=1 the launch"
    )


def test_a_forked_process(install):
    install(false_driver())
    driver.require()
    driver._after_fork()
    with pytest.raises(DeviceError) as caught:
        km.launch(None, km.LaunchConfig(1, 1), None)
    assert caught.value.message == (
        "CUDA cannot be used here: this process was forked from one that had initialised it"
    )
    assert caught.value.hint == (
        "start processes with multiprocessing's method 'spawn' or 'forkserver'"
    )
    error = driver.explained("CUDA_ERROR_NOT_INITIALIZED", "launch kernel 'k'")
    assert error.message == (
        "cannot launch kernel 'k': CUDA is not initialised in this process, or it was forked from "
        "one that used CUDA (CUDA_ERROR_NOT_INITIALIZED)"
    )
    assert error.hint == caught.value.hint


NEEDS = cuda.Attributes(128, 4096, 0, 0, 512, 90_000)
KERNEL = SimpleNamespace(name="k", attributes=lambda device: NEEDS)
LIMITS = cuda.Limits(
    1024, 1024, 64, 2**31 - 1, 65535, 65535, 1024, 49152, 101_376, 128, 1536, 1 << 25, 8, 9, 1, 1
)


@pytest.mark.parametrize(
    ("fields", "found", "hint"),
    [
        ({"grid": (1, 65536), "block": 1}, "grid in y: 65536 asked, the limit is 65535", "launch"),
        ({"grid": 1, "block": (1, 1, 65)}, "block in z: 65 asked, the limit is 64", "launch a"),
        (
            {"grid": 1, "block": (64, 32)},
            "threads a block: 2048 asked, the limit is 1024",
            "launch a smaller grid or block",
        ),
        (
            {"grid": 1, "block": 1024},
            "threads a block of this kernel: 1024 asked, the limit is 512",
            "its registers allow no more; compile with maxregcount",
        ),
        (
            {"grid": 1, "block": 32, "shmem_size": 100_000},
            "bytes of shared memory a block: 104096 asked, the limit is 101376",
            "use smaller tiles, or less dynamic shared memory",
        ),
        (
            {"grid": 2, "block": 32, "cluster": 2},
            "blocks a cluster: 2 asked, the limit is 1",
            "clusters need sm_90; a larger one than 8 is not portable",
        ),
    ],
)
def test_launch_limits(fields, found, hint):
    device = SimpleNamespace(name="cuda:0", limits=LIMITS)
    with pytest.raises(ArgumentError) as caught:
        _check_limits(km.LaunchConfig(**fields), KERNEL, device)
    assert caught.value.message == f"kernel 'k' cannot be launched on cuda:0: {found}"
    assert caught.value.hint.startswith(hint)


def test_a_closed_stream():
    closed = SimpleNamespace(is_closed=True, __cuda_stream__=(0, 1))
    with pytest.raises(DeviceError) as caught:
        as_stream(closed)
    assert caught.value.message == (
        "argument 'stream' is a stream that was closed; nothing can be launched on it"
    )
    assert caught.value.hint == "keep it open as long as it is used, or make a new one"


class Array:
    """Device memory that is none: nothing here reads it."""

    def __init__(self, device=0, typestr="<f4"):
        self.device = device
        self.__cuda_array_interface__ = {
            "data": (4096, False), "typestr": typestr, "shape": (4,), "version": 3,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "signature", "error", "message", "hint"),
    [
        (
            [Array(0), Array(1)],
            None,
            DeviceError,
            "the arrays given to kernel 'k' are on cuda:0 and cuda:1; a launch runs on one device",
            "copy them to one device first",
        ),
        (
            [Array(typestr="<f8"), 1],
            (km.Pointer(km.float32), km.int64),
            DTypeError,
            "argument 0 of kernel 'k' is of type float32*; an array of float64 was given",
            "convert the array, or compile the kernel for its type",
        ),
        (
            [Array(), 1.5],
            (km.Pointer(km.float32), km.int64),
            DTypeError,
            "argument 1 of kernel 'k' is of type int64; a Python float was given",
            "",
        ),
        (
            [Array(), "two"],
            None,
            ArgumentError,
            (
                "argument 1 of kernel 'k' is a str; accepted: a CUDA tensor of torch, an array of "
                "CuPy, a buffer of cuda.core, or an object with __cuda_array_interface__ or __dlpack__ "
                "in the memory of a CUDA device"
            ),
            "",
        ),
        (
            [Array()],
            None,
            ArgumentError,
            "kernel 'k' takes 2 arguments, not 1",
            "sizes in bytes: 8, 8",
        ),
    ],
)
def test_arguments_of_a_wrong_device_or_type(args, signature, error, message, hint):
    with pytest.raises(error) as caught:
        pack("k", args, ArgumentRecord([(0, 8), (8, 8)]), signature)
    assert caught.value.message == message
    assert caught.value.hint == hint


def test_a_host_array_given_to_a_kernel():
    numpy = sys.modules["numpy"]
    with pytest.raises(DeviceError) as caught:
        pack("k", [numpy.zeros(3)], ArgumentRecord([(0, 8)]), None)
    assert caught.value.message == (
        "argument 0 of kernel 'k' is a NumPy array in the memory of the host; this runs on a CUDA "
        "device"
    )
    assert caught.value.hint == "copy it first: torch's x.cuda(), cupy.asarray(x)"
