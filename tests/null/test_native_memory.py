"""Addresses and pooled memory of the extension and its twin, held to one behaviour."""

import array
import ctypes
import gc
import math
import mmap
import os
import subprocess
import sys
from ctypes import c_char_p, c_int64, c_void_p
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill import _native_py
from native_fixtures import F4, MODULES, _native, growth, pointer, readonly

# ------------------------------------------------------------------------------------ addresses


@MODULES
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_address_says_of_an_array_what_numpy_says(module, data):
    dtype = data.draw(st.sampled_from(["f4", "f8", "i1", ">i2", "c16", "?", "S3", "u1,f4", "O"]))
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4).map(tuple))
    a = np.zeros(shape, dtype)
    for axis, extent in enumerate(shape):
        step = data.draw(st.sampled_from([1, 2, -1]))
        index = [slice(None)] * a.ndim
        index[axis] = slice(None, None, step)
        a = a[tuple(index)]
        assert extent >= a.shape[axis]
    a = a.transpose(data.draw(st.permutations(range(a.ndim))))
    a.flags.writeable = data.draw(st.booleans())
    expected = pointer(a), a.nbytes, a.dtype, a.shape, a.strides, not a.flags.writeable
    assert module.address(a) == expected


@MODULES
def test_address_of_a_broadcast_array_keeps_zero_strides(module):
    a = np.broadcast_to(np.float32(1), (1 << 40, 3))
    ptr, nbytes, dtype, shape, strides, readonly = module.address(a)
    assert (shape, strides) == ((1 << 40, 3), (0, 0))
    assert (ptr, nbytes, dtype, readonly) == (pointer(a), 12 << 40, F4, True)


BUFFERS = {
    "bytearray": (lambda: bytearray(5), "|u1", (5,), (1,), False),
    "bytes": (lambda: b"abc", "|u1", (3,), (1,), True),
    "empty": (lambda: bytearray(), "|u1", (0,), (1,), False),
    "array of doubles": (lambda: array.array("d", [1, 2]), "<f8", (2,), (8,), False),
    "array of long": (lambda: array.array("l", [1, 2]), "<i8", (2,), (8,), False),
    "strided memoryview": (lambda: memoryview(bytearray(8))[::-2], "|u1", (4,), (-2,), False),
    "cast memoryview": (
        lambda: memoryview(bytearray(24)).cast("h", (3, 4)), "<i2", (3, 4), (8, 2), False,
    ),
    "big endian": (lambda: memoryview(np.zeros(2, ">i4")), ">i4", (2,), (4,), False),
    "half": (lambda: memoryview(np.zeros(2, "f2")), "<f2", (2,), (2,), False),
    "complex": (lambda: memoryview(np.zeros(2, "c8")), "<c8", (2,), (8,), False),
    "bool": (lambda: memoryview(np.zeros(2, "?")), "|b1", (2,), (1,), False),
    "struct": (lambda: memoryview(np.zeros(2, "u1,f4")), "|V5", (2,), (5,), False),
    "ctypes array": (lambda: (ctypes.c_uint16 * 3)(), "<u2", (3,), (2,), False),
    "numpy scalar": (lambda: np.float64(1), "<f8", (), (), True),
    "mmap": (lambda: mmap.mmap(-1, 4096), "|u1", (4096,), (1,), False),
}  # fmt: skip


@MODULES
@pytest.mark.parametrize("kind", list(BUFFERS))
def test_address_of_buffers(module, kind):
    make, typestr, shape, strides, readonly = BUFFERS[kind]
    obj = make()
    ptr, nbytes, *rest = module.address(obj)
    assert rest == [typestr, shape, strides, readonly]
    assert nbytes == math.prod(shape) * int(typestr[2:])
    if nbytes:
        seen = np.asarray(memoryview(obj))
        assert ptr == pointer(seen)


@MODULES
def test_address_of_dlpack_exporters_and_capsules(module):
    a = np.arange(12, dtype="i2").reshape(3, 4)[:, ::-2]
    expected = (pointer(a), 12, "<i2", (3, 2), (8, -4), False)

    class New:
        def __dlpack__(self, *, max_version=None):
            return a.__dlpack__(max_version=max_version)

    class Old:
        def __dlpack__(self):
            return a.__dlpack__()

    assert module.address(New()) == expected
    assert module.address(Old()) == expected
    capsule = a.__dlpack__()
    assert module.address(capsule) == expected
    assert module.address(capsule) == expected, "reading does not consume it"
    a.flags.writeable = False
    assert module.address(New()) == (*expected[:5], True)


@MODULES
def test_address_of_torch_tensors(module):
    torch = pytest.importorskip("torch")
    t = torch.zeros(3, 4, dtype=torch.bfloat16).T
    assert module.address(t) == (t.data_ptr(), 24, "bfloat16", (4, 3), (2, 8), False)
    flags = torch.zeros(5, dtype=torch.bool)
    assert module.address(flags)[2] == "|b1"


class _Capsule:
    """A DLPack tensor made by hand; the memory lives as long as this object."""

    def __init__(self, *, device=1, code=2, bits=32, lanes=1, flags=0, major=1):
        self.tensor = _native_py._native_py_address._DLVersioned()
        t = self.tensor
        t.major, t.minor, t.flags = major, 0, flags
        t.tensor.device_type, t.tensor.ndim = device, 1
        t.tensor.code, t.tensor.bits, t.tensor.lanes = code, bits, lanes
        self.shape = (c_int64 * 1)(3)
        t.tensor.shape = ctypes.cast(self.shape, ctypes.POINTER(c_int64))
        t.tensor.data, t.tensor.byte_offset = 4096, 16
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (c_void_p, c_char_p, c_void_p)
        self.capsule = new(ctypes.addressof(t), b"dltensor_versioned", None)


@MODULES
def test_address_reads_dlpack_offsets_and_missing_strides(module):
    made = _Capsule(code=5, bits=64, flags=1)
    assert module.address(made.capsule) == (4112, 24, "<c8", (3,), (8,), True)


@MODULES
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"device": 2}, "DLPack device (2, 0) is not the CPU"),
        ({"lanes": 4}, "DLPack export of code 2, 32 bits, 4 lanes, a copy or of another version"),
        ({"code": 3}, "DLPack export of code 3, 32 bits, 1 lanes, a copy or of another version"),
        ({"code": 9}, "DLPack export of code 9, 32 bits, 1 lanes, a copy or of another version"),
        ({"bits": 4}, "DLPack export of code 2, 4 bits, 1 lanes, a copy or of another version"),
        ({"flags": 2}, "DLPack export of code 2, 32 bits, 1 lanes, a copy or of another version"),
        ({"major": 2}, "DLPack export of code 2, 32 bits, 1 lanes, a copy or of another version"),
    ],
)
def test_address_refuses_dlpack_that_is_not_plain_host_memory(module, options, text):
    made = _Capsule(**options)
    with pytest.raises(BufferError) as caught:
        module.address(made.capsule)
    assert str(caught.value) == text


@MODULES
def test_address_refuses_other_objects(module):
    with pytest.raises(TypeError) as caught:
        module.address([1, 2])
    assert str(caught.value) == "<class 'list'> is no array: it has no buffer and no __dlpack__"
    released = memoryview(b"abc")
    released.release()
    with pytest.raises(ValueError, match="released memoryview"):
        module.address(released)
    closed = mmap.mmap(-1, 4096)
    closed.close()
    with pytest.raises(ValueError, match="mmap closed or invalid"):
        module.address(closed)


@MODULES
@pytest.mark.parametrize("make", [lambda: readonly(np.ones(3)), lambda: b"abc"])
def test_address_refuses_to_hand_out_read_only_memory_for_writing(module, make):
    with pytest.raises(BufferError, match=r"^the array is read-only, and is to be written$"):
        module.address(make(), True)
    assert module.address(bytearray(3), True)[5] is False


@MODULES
def test_address_leaks_nothing(module):
    things = [np.ones((2, 3)), bytearray(8), np.ones(4).__dlpack__(), memoryview(b"abc")]
    rounds = 20_000 if module is _native else 1_000

    def work():
        for _ in range(rounds):
            for thing in things:
                module.address(thing)

    before = [sys.getrefcount(t) for t in things]
    assert growth(work) < rounds
    assert [sys.getrefcount(t) for t in things] == before


# --------------------------------------------------------------------------------------- memory


@MODULES
@pytest.mark.parametrize("nbytes", [0, 1, 63, 4096, 4097, 300_000, 5 << 20])
def test_host_buffer_is_aligned_writable_memory_of_that_size(module, nbytes):
    buffer = module.HostBuffer(nbytes)
    view = memoryview(buffer)
    assert (view.nbytes, view.format, view.ndim, view.readonly) == (nbytes, "B", 1, False)
    assert buffer.nbytes == nbytes
    assert buffer.address % 64 == 0
    assert module.address(buffer)[:3] == (buffer.address, nbytes, "|u1")
    a = np.frombuffer(buffer, "u1") if nbytes else np.empty(0, "u1")
    a[:] = 7
    assert bytes(view) == b"\x07" * nbytes


@MODULES
def test_host_buffer_lives_as_long_as_arrays_in_it_and_is_used_again(module):
    module.memory_stats(0)
    module.memory_stats(1 << 30)
    used = module.memory_stats()[0]
    a = np.ndarray((1000, 1000), "f4", buffer=module.HostBuffer(4_000_000))
    at, tail = pointer(a), a[500:].T
    held = module.memory_stats()[0] - used
    assert 4_000_000 <= held <= 4_500_000
    del a
    gc.collect()
    assert module.memory_stats()[0] == used + held
    tail[:] = 1
    del tail
    gc.collect()
    assert module.memory_stats()[:2] == (used, held)
    assert module.HostBuffer(4_000_001).address == at
    assert module.memory_stats()[:2] == (used, held)


@MODULES
def test_cached_memory_is_bounded_in_bytes_and_oldest_goes_first(module):
    module.memory_stats(0)
    module.memory_stats(3 << 20)
    sizes = [1 << 20, 2 << 20, 1 << 19]
    for size in sizes:
        buffer = module.HostBuffer(size)
        del buffer
    assert module.memory_stats()[1:] == (sizes[1] + sizes[2], 3 << 20)
    big = module.HostBuffer(4 << 20)
    del big
    assert module.memory_stats()[1] == sizes[1] + sizes[2], "larger than the limit: not kept"
    assert module.memory_stats(0)[1] == 0
    module.memory_stats(1 << 30)


@MODULES
def test_many_small_blocks_do_not_pile_up(module):
    module.memory_stats(0)
    module.memory_stats(1 << 30)
    held = [module.HostBuffer(4096) for _ in range(300)]
    held.clear()
    gc.collect()
    assert module.memory_stats()[1] == 128 * 4096
    module.memory_stats(0)
    module.memory_stats(1 << 30)


@MODULES
def test_host_buffer_refuses_impossible_sizes(module):
    with pytest.raises(ValueError, match=r"^HostBuffer of -1 bytes: expected >= 0$"):
        module.HostBuffer(-1)
    for size in (1 << 61, (1 << 63) - 1):
        with pytest.raises(MemoryError, match=f"^no memory for {size} bytes$"):
            module.HostBuffer(size)
    with pytest.raises(OverflowError):
        module.HostBuffer(1 << 63)


@MODULES
def test_host_buffers_leak_no_pages(module):
    rounds = 100_000 if module is _native else 5_000

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def work(n):
        for i in range(n):
            np.ndarray(300_000, "u1", buffer=module.HostBuffer(300_000))[i % 300_000] = 1

    work(100)
    before = resident()
    work(rounds)
    assert resident() - before < 8 << 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@MODULES
def test_memory_works_in_a_forked_child(module):
    script = (
        "import os, sys, numpy as np\n"
        f"import {module.__name__} as m\n"
        "m.HostBuffer(1 << 20); held = m.HostBuffer(1 << 20)\n"
        "pid = os.fork()\n"
        "for i in range(100):\n"
        "    np.ndarray(1 << 20, 'u1', buffer=m.HostBuffer(1 << 20))[:] = i\n"
        "np.ndarray(1 << 20, 'u1', buffer=held)[:] = 1\n"
        "if pid == 0: os._exit(0)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)
