"""The short way of plans and launches on a device, against a driver that writes down its calls."""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import kernelmill as km
from cuda_stand_ins import Result
from kernelmill.config import override
from kernelmill.dtypes import bfloat16, float32, float64, int32, uint64
from kernelmill.runtime.backend import Direct, Grid, KernelSource, Value
from kernelmill.runtime.cuda import direct as direct_module
from kernelmill.runtime.cuda.arguments import Pointer
from kernelmill.runtime.cuda.arrays import CudaArray, view_of
from kernelmill.runtime.cuda.direct import array_slot, launcher_of
from kernelmill.runtime.cuda.driver import recent_kernels
from kernelmill.runtime.cuda.quick import slots_of
from kernelmill.runtime.cuda.records import layout_of, write
from kernelmill.runtime.cuda.stream import StreamHandle
from kernelmill.runtime.memory import as_view
from native_cuda_fixtures import CONTEXT, Driver

TILE, THREADS = 1000, 128


def own(pointer, shape, dtype=float32, stream=0):
    """An array of ours at an address where nothing is."""
    return CudaArray(SimpleNamespace(handle=pointer), shape, dtype, 0, StreamHandle(stream))


@pytest.fixture(params=[True, False], ids=["extension", "python"])
def launcher(request, monkeypatch):
    """What makes a launcher for arrays, and the driver that it calls."""

    def make(
        arrays, *, outputs=1, fixed=False, captures=0, grid=None, strides=None, shape=None,
        values=(), takes_turn=False, device=None,
    ):  # fmt: skip
        views = tuple(
            view_of(a, "x") if isinstance(a, CudaArray) else as_view(np.asarray(a), "x")
            for a in arrays
        )
        shape = (math.prod(views[0].shape),) if shape is None else shape
        strides = tuple((v.dtype.itemsize,) for v in views) if strides is None else strides
        made = Direct(
            views, outputs, shape, strides, captures, fixed=fixed, serial_below=1, grid=grid,
            values=values,
        )  # fmt: skip
        scalars = 16 * sum(value is not None for value in values)
        extra = 0 if grid is None else 2 + len(grid.numbers)
        layout = layout_of(captures + scalars, len(views), extra)
        driver = Driver(record=layout.size)
        monkeypatch.setattr(direct_module, "driver_calls", lambda: driver.addresses)
        monkeypatch.setattr(direct_module, "context_of", lambda _: CONTEXT)
        found = launcher_of(
            "the kernel", made, device or SimpleNamespace(number=0), function=7, record=layout.size,
            grid=grid or Grid(-(-math.prod(shape) // TILE), THREADS, ()), tile=TILE, most=1 << 30,
            takes_turn=takes_turn,
        )  # fmt: skip
        return found, driver

    with override(native=request.param):
        yield make


def expected(block, arrays, shape, strides, extra=()):
    layout = layout_of(len(block), len(arrays), len(extra))
    record = bytearray(layout.size)
    write(record, block, [int(a.buffer.handle) for a in arrays], shape, strides, extra=extra)
    return bytes(record)


def test_a_kernel_that_takes_its_turn_may_begin_early(launcher, monkeypatch):
    """The attribute goes with the launch: number 6, allowed."""
    number = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=6)
    monkeypatch.setattr(direct_module, "api", lambda: SimpleNamespace(CUlaunchAttributeID=number))
    x, out = own(0x1000, (30, 50)), own(0x9000, (30, 50))
    for takes_turn, wanted in ((True, struct.pack("<i4xI60x", 6, 1)), (False, b"")):
        call, driver = launcher([x, out], takes_turn=takes_turn)
        assert call(x, out)
        assert driver.calls[-1]["attributes"] == wanted


def test_a_text_says_whether_its_kernel_takes_its_turn():
    assert KernelSource("k", "{\n  km::take_turn();\n}").takes_turn
    assert not KernelSource("k", "{}").takes_turn


def test_the_record_is_that_of_the_general_way(launcher):
    x, out = own(0x1000, (30, 50)), own(0x9000, (30, 50), float64)
    launch, driver = launcher([x, out])
    assert launch(x, out) is True
    (call,) = driver.calls
    assert call["record"] == expected(b"", [x, out], (1500,), ((4,), (8,)))
    assert (call["grid"], call["block"]) == ((2, 1, 1), (THREADS, 1, 1))
    assert recent_kernels[-1] == "the kernel"


def test_other_sizes_are_counted_anew(launcher):
    launch, driver = launcher([own(0x1000, (10,)), own(0x9000, (10,))], captures=16)
    x, out = own(0x100000, (7, 5000)), own(0x900000, (7, 5000))
    assert launch(x, out, b"0123456789abcdef") is True
    (call,) = driver.calls
    layout = layout_of(16, 2, 0)
    assert call["record"][:16] == b"0123456789abcdef"
    pointers = struct.unpack_from("<2Q", call["record"], layout.pointers_at)
    assert pointers == (0x100000, 0x900000)
    assert struct.unpack_from("<q", call["record"], layout.count_at) == (35_000,)
    assert call["grid"] == (35, 1, 1)


def test_other_layouts_are_served_as_they_were(launcher):
    x, out = own(0x1000, (4, 6)), own(0x9000, (4,))
    grid = Grid(blocks=9, threads=256, numbers=(11, 12, 13))
    launch, driver = launcher(
        [x, out], fixed=True, shape=(4, 6), strides=((24, 4), (4, 0)), grid=grid
    )
    assert launch(x, out) is True
    (call,) = driver.calls
    strides = ((24, 4), (4, 0))
    assert call["record"] == expected(b"", [x, out], (4, 6), strides, (0, 0, 11, 12, 13))
    assert (call["grid"], call["block"]) == ((9, 1, 1), (256, 1, 1))
    assert launch(own(0x1000, (6, 4)), out) is False


def test_scalars_lie_behind_what_is_captured(launcher):
    x, out = own(0x1000, (8,)), own(0x9000, (8,))
    values = (Value(int, -128, 127), None, Value(float), Value(np.int16), None)
    arrays = [5, x, 2.5, np.int16(7), out]
    launch, driver = launcher(arrays, captures=16, values=values, shape=(8,))
    assert launch(*arrays, b"0123456789abcdef") is True
    record = driver.calls[0]["record"]
    expected = b"0123456789abcdef", struct.pack("<q8x", 5), struct.pack("<d8x", 2.5)
    assert record[:64] == b"".join((*expected, struct.pack("<h14x", 7)))
    assert struct.unpack_from("<5Q", record, 64) == (0, 0x1000, 0, 0, 0x9000)
    layout = layout_of(64, 5, 0)
    assert struct.unpack_from("<q", record, layout.count_at) == (8,)
    for k, value in ((0, 200), (0, 5.0), (2, 2), (3, 7), (3, np.int32(7))):
        other = [*arrays]
        other[k] = value
        assert launch(*other, b"0123456789abcdef") is False


def test_integers_beyond_64_bits_are_left_to_the_general_way(launcher):
    x, out = own(0x1000, (8,)), own(0x9000, (8,))
    values = (None, Value(int, -(1 << 63), (1 << 63) - 1), None)
    launch, _ = launcher([x, 1, out], values=values, shape=(8,))
    assert launch(x, (1 << 63) - 2, out) is True
    assert launch(x, 1 << 63, out) is False
    values = (None, Value(complex), None)
    assert launcher([x, 1j, out], values=values, shape=(8,))[0] is None


def test_scratch_memory_is_that_of_the_stream(launcher, monkeypatch):
    asked, current = [], ["of another device"]

    def scratch(grid, stream, device):
        asked.append((grid.tickets, stream.handle, device, current[-1]))
        return 0xAA, 0xBB

    def set_context(context):
        current.append(f"context {context}")
        return (Result.CUDA_SUCCESS,)

    driver_now = SimpleNamespace(
        cuCtxGetCurrent=lambda: (Result.CUDA_SUCCESS, 5), cuCtxSetCurrent=set_context
    )
    device = SimpleNamespace(number=0, set_current=lambda: current.append("of the launch"))
    monkeypatch.setattr(direct_module, "api", lambda: driver_now)
    monkeypatch.setattr(direct_module, "scratch", scratch)
    x, out = own(0x1000, (24,)), own(0x9000, (1,))
    grid = Grid(blocks=9, threads=256, numbers=(11,), parts=64, tickets=3)
    launch, driver = launcher(
        [x, out], fixed=True, shape=(24,), strides=((4,), (0,)), grid=grid, device=device
    )
    assert launch(x, out) is True
    assert launch(x, out) is True
    assert asked == [(3, 0, 0, "of the launch")]
    assert current[-1] == "context 5", "what was current is so again"
    extra = (0xAA, 0xBB, 11)
    assert driver.calls[1]["record"] == expected(b"", [x, out], (24,), ((4,), (0,)), extra)


def test_what_has_no_short_way(launcher):
    x = own(0x1000, (1,) * 9)
    assert launcher([x, own(0x9000, (1,) * 9)])[0] is None
    many = [own(0x1000 * k, (8,)) for k in range(1, 60)]
    assert launcher(many)[0] is None, "the record is larger than a launch takes"


def test_unaligned_arrays_are_served_only_by_texts_for_them(launcher):
    good, odd, out = own(0x1000, (8,)), own(0x1001, (8,)), own(0x9000, (8,))
    strict, _ = launcher([good, out])
    assert strict(good, out) is True
    assert strict(odd, out) is False
    loose, _ = launcher([odd, out])
    assert loose(odd, out) is True
    assert loose(good, out) is True


def test_a_type_without_a_numpy_type_equals_none_of_them(monkeypatch):
    """None would not do: NumPy calls it float64."""
    monkeypatch.delitem(sys.modules, "ml_dtypes", raising=False)
    _, _, ours, described, *_ = array_slot(0, bfloat16)
    assert ours is bfloat16
    assert not any(np.dtype(code) == described for code in "?bhilBHILefdFD")


# -------------------------------------------------------------------------- arguments of launches


def kinds(args, sizes, signature=None):
    parameters = [(16 * k, size) for k, size in enumerate(sizes)]
    found = slots_of(args, parameters, signature)
    return None if found is None else [slot[0] for slot in found]


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_int))


X = own(0x1000, (8,))


@pytest.mark.parametrize(
    ("args", "sizes", "signature", "found"),
    [
        ((X, 1, 2.0), (8, 4, 8), None, ["a", "i", "f"]),
        ((X, 1, 2.0), (8, 8, 4), (Pointer(float32), uint64, float32), ["a", "i", "f"]),
        ((np.float32(1), Pair(1, 2), ctypes.c_short(1)), (4, 8, 2), None, ["n", "n", "n"]),
        ((np.int32(1), 5), (4, 8), (int32, Pointer()), ["n", "i"]),
        ((), (), None, []),
        ((X,), (4,), None, None),
        ((X,), (8,), (float64,), None),
        ((1.0,), (2,), None, None),
        ((1.0,), (4,), (int32,), None),
        ((1,), (4,), (float32,), None),
        ((np.int32(1),), (4,), (float32,), None),
        ((True, None), (4, 8), None, ["b", "z"]),
        ((True, None), (1, 8), (km.bool_, Pointer(float32)), ["b", "z"]),
        ((True,), (4,), (float32,), None),
        ((None,), (4,), None, None),
        ((None,), (8,), (uint64,), None),
        ((b"12345678",), (8,), None, None),
        ((Pair(1, 2),), (8,), (km.dtype_of({"a": int32, "b": int32}),), None),
        ((5,), (16,), None, None),
    ],
)
def test_slots_of_arguments(args, sizes, signature, found):
    assert kinds(args, sizes, signature) == found


def test_limits_of_integers():
    ((*_, low, high),) = slots_of((1,), [(0, 4)], None)
    assert (low, high) == (-(1 << 31), (1 << 32) - 1)
    ((*_, low, high),) = slots_of((1,), [(0, 4)], (int32,))
    assert (low, high) == (-(1 << 31), (1 << 31) - 1)
    ((*_, low, high),) = slots_of((1,), [(0, 8)], (Pointer(float32),))
    assert (low, high) == (0, (1 << 63) - 1)
