"""The CUDA runtime where there is no driver, a false one, or no extra: what works, what is said."""

from __future__ import annotations

import ctypes
import enum
import struct
import subprocess
import sys
import weakref
from types import SimpleNamespace

import ml_dtypes  # noqa: F401 - makes bfloat16 a NumPy dtype
import numpy as np
import pytest

import kernelmill as km
from kernelmill.errors import ArgumentError, DeviceError, DTypeError, MissingExtraError
from kernelmill.runtime import cuda
from kernelmill.runtime.cuda import device as device_module
from kernelmill.runtime.cuda import driver as driver_module
from kernelmill.runtime.cuda import lifetimes
from kernelmill.runtime.cuda.arguments import ArgumentRecord, Pointer, pack
from kernelmill.runtime.cuda.launches import LaunchConfig
from kernelmill.runtime.cuda.program import Linker, ObjectCode, Program
from kernelmill.runtime.cuda.stream import as_stream
from kernelmill.toolchain.nvrtc import CudaOptions

pytest.importorskip("cuda.core", reason="needs the extra cuda13 or cuda12")

KERNEL = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }\n'


class Result(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803


class Names:
    def __getattr__(self, name: str) -> str:
        return name.removeprefix("CU_DEVICE_ATTRIBUTE_")


def false_driver(*, init=Result.CUDA_SUCCESS, version=99000, devices=1, capability=(9, 0)):
    def attribute(name: str, _: int):
        named = {
            "COMPUTE_CAPABILITY_MAJOR": capability[0],
            "COMPUTE_CAPABILITY_MINOR": capability[1],
        }
        return Result.CUDA_SUCCESS, named.get(name, 1024)

    return SimpleNamespace(
        cuInit=lambda _: (init,),
        cuDriverGetVersion=lambda: (Result.CUDA_SUCCESS, version),
        cuDeviceGetCount=lambda: (Result.CUDA_SUCCESS, devices),
        cuDeviceGet=lambda n: (Result.CUDA_SUCCESS, n),
        cuDeviceGetAttribute=attribute,
        CUdevice_attribute=Names(),
    )


@pytest.fixture
def install(monkeypatch):
    """Put a false driver in the place of the bindings, and forget what was found before."""
    monkeypatch.setattr(driver_module._State, "driver", None)
    monkeypatch.setattr(driver_module._State, "forked", False)
    monkeypatch.setattr(device_module, "_DEVICES", {})
    monkeypatch.setattr(driver_module.os, "register_at_fork", lambda **_: None)

    def put(module: object) -> None:
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", module)

    return put


# ----------------------------------------------------------------------------- no driver


def test_importing_the_runtime_imports_neither_driver_nor_core():
    text = (
        "import sys, kernelmill.runtime.cuda as c\n"
        "c.Program, c.launch, c.LaunchConfig, c.cuda_device, c.capture, c.to_device, c.CudaBackend\n"
        "assert not {'cuda.core', 'cuda.bindings.driver', 'cuda.bindings.nvrtc'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)


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
    driver_module.recent_kernels.extend(["first", "second", "second"])
    answer = (Result.CUDA_ERROR_ILLEGAL_ADDRESS,)
    with pytest.raises(DeviceError) as caught:
        driver_module.check(answer, "wait for cuda:0")
    assert caught.value.message == (
        "cannot wait for cuda:0: a kernel read or wrote memory that is not its own "
        "(CUDA_ERROR_ILLEGAL_ADDRESS); kernels launched last, newest first: second, first"
    )
    assert "start the process again" in caught.value.hint
    driver_module.recent_kernels.clear()


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


def test_shared_memory_below_zero():
    with pytest.raises(ArgumentError, match="shmem_size=-1 is below 0"):
        LaunchConfig(1, 1, shmem_size=-1)


# ----------------------------------------------------------------------------- streams


class WithProtocol:
    def __cuda_stream__(self):
        return 0, 0x1234


class WithAttribute:
    __cuda_stream__ = (0, 0x77)


def test_streams_of_other_libraries():
    assert as_stream(0x99).handle == 0x99
    assert as_stream(WithProtocol()).handle == 0x1234
    assert as_stream(WithAttribute()).handle == 0x77
    assert as_stream(SimpleNamespace(cuda_stream=5)).handle == 5
    assert as_stream(SimpleNamespace(ptr=6)).handle == 6
    assert as_stream(SimpleNamespace(stream=WithProtocol())).handle == 0x1234
    owner = WithProtocol()
    assert as_stream(owner).owner is owner
    assert as_stream(as_stream(owner)).__cuda_stream__() == (0, 0x1234)


def test_what_is_no_stream():
    for found in ("x", True, 1.5, object()):
        with pytest.raises(ArgumentError, match="argument 'stream' is a builtins"):
            as_stream(found)
    with pytest.raises(ArgumentError, match="is -3; a handle is 0 or more"):
        as_stream(-3)


def test_a_closed_stream():
    with pytest.raises(DeviceError, match="a stream that was closed"):
        as_stream(SimpleNamespace(is_closed=True, __cuda_stream__=(0, 1)))


def test_torchs_current_stream_is_the_default(monkeypatch):
    torch = SimpleNamespace(
        cuda=SimpleNamespace(is_initialized=lambda: True),
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 0x500 + device),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert as_stream(None, 1).handle == 0x501
    torch.cuda.is_initialized = lambda: False
    assert as_stream(None, 1).handle == 0


# ----------------------------------------------------------------------------- arguments


class Array:
    """Device memory that is none: nothing here reads it."""

    def __init__(self, ptr=0x1000, device=0, typestr="<f4", shape=(4,), readonly=False, **more):
        self.device = device
        self.__cuda_array_interface__ = {
            "data": (ptr, readonly), "typestr": typestr, "shape": shape, "strides": None,
            "version": 3, **more,
        }  # fmt: skip


def packed(args, sizes, signature=None):
    offsets, end = [], 0
    for size in sizes:
        align = min(size, 8)
        end = -(-end // align) * align
        offsets.append((end, size))
        end += size
    record = ArgumentRecord(offsets)
    return SimpleNamespace(views=pack("k", args, record, signature), data=record.data)


def test_arguments_become_what_the_kernel_takes():
    made = packed([Array(0xABC), 7, 2.5, np.float16(1), None, True], [8, 4, 4, 2, 8, 1])
    assert struct.unpack("<QifexxxxxxQ?", bytes(made.data)) == (0xABC, 7, 2.5, 1.0, 0, True)
    assert [view.device for view in made.views] == [0]
    assert [view.ptr for view in made.views] == [0xABC]


@pytest.mark.parametrize(
    ("value", "type_", "wanted"),
    [
        (3, km.float32, struct.pack("<f", 3)),
        (1 / 3, km.float64, struct.pack("<d", 1 / 3)),
        (0.1, km.float16, np.float16(0.1).tobytes()),
        (1.00390625, km.bfloat16, b"\x80\x3f"),
        (1.01171875, km.bfloat16, b"\x82\x3f"),
        (-1, km.int8, b"\xff"),
        (255, km.uint8, b"\xff"),
        (True, km.bool_, b"\x01"),
        (1 + 2j, km.complex64, struct.pack("<2f", 1, 2)),
        (np.int64(-5), km.int64, struct.pack("<q", -5)),
        (0x10, Pointer(), struct.pack("<Q", 0x10)),
        (ctypes.c_double(2.5), km.float64, struct.pack("<d", 2.5)),
    ],
    ids=str,
)
def test_numbers_take_the_declared_type(value, type_, wanted):
    assert bytes(packed([value], [len(wanted)], [type_]).data) == wanted


def test_structs_are_passed_by_value():
    point = km.struct({"x": km.float32, "n": km.int64})
    wanted = struct.pack("<fxxxxq", 1.5, -2)
    assert bytes(packed([point(1.5, -2)], [16]).data) == wanted
    record = np.array((1.5, -2), point.dtype)[()]
    assert bytes(packed([record], [16], [km.dtype_of(point)]).data) == wanted
    assert bytes(packed([wanted], [16]).data) == wanted


@pytest.mark.parametrize(
    ("args", "sizes", "signature", "error", "text"),
    [
        ([1], [4, 4], None, ArgumentError, r"takes 2 arguments, not 1"),
        ([Array()], [4], None, ArgumentError, r"argument 0 of kernel 'k' takes 4 bytes; a Array of 8"),
        ([np.float64(1)], [4], None, ArgumentError, r"takes 4 bytes; a float64 of 8 bytes"),
        ([1 << 32], [4], None, OverflowError, r"takes 4 bytes, which cannot hold 4294967296"),
        ([300], [1], [km.uint8], OverflowError, r"is of type uint8, which cannot hold 300"),
        ([1.5], [4], [km.int32], DTypeError, r"is of type int32; a Python float was given"),
        ([np.float64(1)], [4], [km.float32], DTypeError, r"type float32; a NumPy float64"),
        ([Array()], [8], [km.int64], DTypeError, r"is of type int64; an array was given"),
        ([Array()], [8], [Pointer(km.float64)], DTypeError, r"float64\*; an array of float32"),
        ([1.5], [8], [Pointer()], DTypeError, r"is a pointer .void\*.; a float was given"),
        ([np.zeros(3)], [8], None, DeviceError, r"a NumPy array in the memory of the host"),
        (["x"], [8], None, ArgumentError, r"is a str; accepted: a CUDA tensor"),
        ([Array(device=0), Array(device=1)], [8, 8], None, DeviceError, r"on cuda:0 and cuda:1"),
        ([Array(mask=object())], [8], None, ArgumentError, r"has a mask"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(args, sizes, signature, error, text):
    with pytest.raises(error, match=text):
        packed(args, sizes, signature)


def test_views_of_device_arrays():
    view = cuda.as_device_view(Array(0x1000, typestr="<i8", shape=(2, 3)), "x")
    assert (view.shape, view.strides, view.dtype, view.device) == ((2, 3), (24, 8), km.int64, 0)
    assert view.is_c_contiguous
    assert view.maker == "cuda"
    with pytest.raises(ArgumentError, match="argument 'out' is read-only"):
        cuda.as_device_view(Array(readonly=True), "out", writable=True)
    import torch

    with pytest.raises(DeviceError, match="a torch tensor on cpu in the memory of the host"):
        cuda.as_device_view(torch.zeros(3), "x")


class Tensor:
    """A CUDA tensor as far as it is asked; `changes` say what is odd about it."""

    def __init__(self, **changes):
        self.changes = {
            "is_cuda": True, "requires_grad": False, "layout": "strided", "dtype": np.float32,
            "shape": (2, 3), **changes,
        }  # fmt: skip

    def __getattr__(self, name: str):
        return self.changes[name]

    def is_conj(self):
        return self.changes.get("conj", False)

    def is_neg(self):
        return self.changes.get("neg", False)

    def data_ptr(self):
        return 0x2000

    def stride(self):
        return (1, 2)

    def get_device(self):
        return self.changes.get("device", 0)


@pytest.fixture
def false_torch(monkeypatch):
    current = {0: 0x10, 1: 0x11}
    torch = SimpleNamespace(
        Tensor=Tensor,
        strided="strided",
        cuda=SimpleNamespace(
            is_initialized=lambda: True,
            ExternalStream=lambda handle, device: ("external", handle, device),
            default_stream=lambda device: ("default", device),
        ),
        _C=SimpleNamespace(_cuda_getCurrentRawStream=current.__getitem__),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


@pytest.mark.usefixtures("false_torch")
def test_tensors_are_device_memory():
    view = cuda.as_device_view(Tensor(device=1), "x")
    assert (view.ptr, view.shape, view.strides, view.device) == (0x2000, (2, 3), (4, 8), 1)
    assert (view.dtype, view.maker, view.library) == (km.float32, "torch", "torch")


@pytest.mark.usefixtures("false_torch")
@pytest.mark.parametrize(
    ("changes", "found", "remedy"),
    [
        ({"requires_grad": True}, "requires grad", "detach()"),
        ({"conj": True}, "is a lazy conjugate", "resolve_conj()"),
        ({"neg": True}, "is a lazy negative", "resolve_neg()"),
        ({"layout": "sparse"}, "is not strided", "to_dense()"),
    ],
)
def test_tensors_that_are_more_than_memory(changes, found, remedy):
    with pytest.raises(
        ArgumentError, match=f"argument 'x' is a torch tensor that {found}"
    ) as caught:
        cuda.as_device_view(Tensor(**changes), "x")
    assert caught.value.hint == f"pass `x.{remedy}`"


@pytest.mark.usefixtures("false_torch")
def test_torchs_allocator_is_told_of_other_streams():
    told = []
    view = cuda.as_device_view(Tensor(record_stream=told.append), "x")
    for handle in (0x10, 0x77, 0):
        lifetimes.hold([view], as_stream(handle))
    assert told == [("external", 0x77, 0), ("default", 0)]


def test_arrays_of_others_are_held_until_an_event(install):
    done = []
    install(
        SimpleNamespace(
            CUevent_flags=SimpleNamespace(CU_EVENT_DISABLE_TIMING=2),
            cuStreamIsCapturing=lambda _: (Result.CUDA_SUCCESS, 0),
            cuEventCreate=lambda _: (Result.CUDA_SUCCESS, "event"),
            cuEventRecord=lambda event, handle: (Result.CUDA_SUCCESS,),
            cuEventQuery=lambda _: (Result.CUDA_SUCCESS if done else Result.CUDA_ERROR_NOT_READY,),
            cuEventDestroy=lambda _: (Result.CUDA_SUCCESS,),
        )
    )
    array = Array()
    gone = weakref.ref(array)
    lifetimes.hold([cuda.as_device_view(array, "x")], as_stream(0x55))
    del array
    assert lifetimes.held() == 1
    assert gone() is not None
    done.append(True)
    assert lifetimes.held() == 0
    assert gone() is None
