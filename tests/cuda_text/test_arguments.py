"""Streams, kernel arguments and arrays of other libraries, where nothing runs on a device."""

from __future__ import annotations

import ctypes
import struct
import sys
import weakref
from types import SimpleNamespace

import ml_dtypes  # noqa: F401 - makes bfloat16 a NumPy dtype
import numpy as np
import pytest

import kernelmill as km
from cuda_stand_ins import Result
from kernelmill.errors import ArgumentError, DeviceError, DTypeError
from kernelmill.runtime import cuda
from kernelmill.runtime.cuda import lifetimes
from kernelmill.runtime.cuda.arguments import ArgumentRecord, Pointer, pack
from kernelmill.runtime.cuda.stream import as_stream

pytest.importorskip("cuda.core", reason="needs the extra cuda13 or cuda12")


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
    torch = pytest.importorskip("torch")

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


def test_structs_with_padding_are_known_by_their_description():
    inner = np.dtype([("r", "u1"), ("n", "i2")], align=True)
    kind = np.dtype([("flag", "?"), ("x", "f8"), ("part", inner)], align=True)
    found = cuda.as_device_view(
        SimpleNamespace(
            __cuda_array_interface__={
                "shape": (0,),
                "typestr": kind.str,
                "descr": kind.descr,
                "data": (0, False),
                "version": 3,
            }
        ),
        "x",
    )
    assert found.dtype.to_numpy() == kind
