"""What the tests of the native call path share: kernels in Python, a measure of leaks."""

import ctypes
import gc
import itertools
import tracemalloc
from ctypes import c_int, c_int64, c_void_p
from typing import ClassVar

import numpy as np
import pytest

from kernelmill import _native_py

try:
    from kernelmill import _native
except ImportError:  # installed without a compiler: the twin alone is tested
    _native = None

needs_extension = pytest.mark.skipif(_native is None, reason="the extension is not installed")
F4 = np.dtype("f4")
F8 = np.dtype("f8")
MODULES = pytest.mark.parametrize(
    "module",
    [
        pytest.param(_native, marks=needs_extension, id="extension"),
        pytest.param(_native_py, id="python"),
    ],
)


class Operand(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("strides", ctypes.POINTER(c_int64)))


class Call(ctypes.Structure):
    _fields_ = (
        ("runtime", c_void_p),
        ("shape", ctypes.POINTER(c_int64)),
        ("ndim", c_int),
        ("threads", c_int),
        ("operands", ctypes.POINTER(Operand)),
        ("captures", c_void_p),
        ("workspace", c_void_p),
        ("flags", c_int64),
    )


class Recorder:
    """A kernel that writes down what it was called with."""

    callbacks: ClassVar = []  # kept for good: a launcher holds an address only

    def __init__(self, operands, captures=0, action=None):
        self.calls = []
        self._n, self._captures, self._action = operands, captures, action
        self.callbacks.append(ctypes.CFUNCTYPE(None, ctypes.POINTER(Call))(self._run))
        self.entry = ctypes.cast(self.callbacks[-1], c_void_p).value

    def _run(self, pointer):
        call = pointer.contents
        ndim = call.ndim
        self.calls.append(
            {
                "shape": tuple(call.shape[:ndim]),
                "threads": call.threads,
                "pointers": tuple(call.operands[k].data or 0 for k in range(self._n)),
                "strides": tuple(tuple(call.operands[k].strides[:ndim]) for k in range(self._n)),
                "captures": ctypes.string_at(call.captures, self._captures),
                "aligned": call.captures % 64 == 0 and call.workspace % 64 == 0,
                "flags": call.flags,
            }
        )
        if self._action:
            self._action(call)


def pointer(a):
    return a.__array_interface__["data"][0]


def growth(work):
    """Return the bytes that one more `work()` leaves behind; the least of three, against noise."""
    work()
    tracemalloc.start()
    marks = []
    for _ in range(4):
        work()
        gc.collect()
        marks.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    return min(b - a for a, b in itertools.pairwise(marks))


def readonly(a):
    a.flags.writeable = False
    return a
