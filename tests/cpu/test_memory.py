"""Arrays as memory: what comes in, what is refused and with which words, what goes out, overlap."""

import array
import ctypes
import gc
import mmap
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill import dtypes as km
from kernelmill.config import override
from kernelmill.errors import ArgumentError, DeviceError, DTypeError
from kernelmill.runtime.memory import as_view, empty_like_library, may_overlap
from kernelmill.runtime.native import native

ACCEPTED = "a NumPy array, a buffer, a CPU torch tensor or an object with __dlpack__"


@pytest.fixture(autouse=True, params=[True, False], ids=["extension", "python"])
def _both(request):
    with override(native=request.param):
        yield
    native()


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def pointer(a):
    return a.__array_interface__["data"][0]


def facts(view):
    return view.shape, view.strides, view.dtype, view.readonly, view.library


# -------------------------------------------------------------------------------------- arrays in

NUMPY = {
    "contiguous": (lambda x: x, (4, 6), (24, 4)),
    "transposed": (lambda x: x.T, (6, 4), (4, 24)),
    "negative": (lambda x: x[::-1, ::-2], (4, 3), (-24, -8)),
    "zero-dimensional": (lambda x: x[1, 2, ...], (), ()),
    "empty": (lambda x: x[:, :0], (4, 0), (24, 4)),
    "broadcast": (lambda x: np.broadcast_to(x[:, None], (4, 9, 6)), (4, 9, 6), (24, 0, 4)),
}


@pytest.mark.parametrize("kind", list(NUMPY))
def test_numpy_arrays_of_any_strides(kind):
    make, shape, strides = NUMPY[kind]
    a = make(np.arange(24, dtype="f4").reshape(4, 6))
    view = as_view(a, "x")
    assert facts(view) == (shape, strides, km.float32, not a.flags.writeable, "numpy")
    assert view.ptr == pointer(a)
    assert view.owner is a
    assert (view.size, view.nbytes) == (a.size, 4 * a.size)
    assert view.is_c_contiguous == a.flags.c_contiguous


@pytest.mark.parametrize("dtype", [t.name for t in km.SCALARS if t is not km.bfloat16])
def test_every_scalar_dtype(dtype):
    view = as_view(np.zeros(3, dtype), "x")
    assert view.dtype is km.dtype_of(dtype)
    assert view.strides == (np.dtype(dtype).itemsize,)


def test_bfloat16_arrays_and_structs():
    assert as_view(np.zeros(3, ml_dtypes.bfloat16), "x").dtype is km.bfloat16
    packed = np.zeros(3, [("a", "u1"), ("b", "f4")])
    view = as_view(packed, "x")
    assert [(f.name, f.offset) for f in view.dtype.fields] == [("a", 0), ("b", 1)]
    assert (view.dtype.itemsize, view.strides) == (5, (5,))


def test_numpy_scalars_are_read_only_and_subclasses_are_arrays(tmp_path):
    assert facts(as_view(np.float64(3), "x")) == ((), (), km.float64, True, "numpy")
    mapped = np.memmap(tmp_path / "m", "i2", "w+", shape=(3, 4))
    assert as_view(mapped, "x").ptr == pointer(mapped)


def test_more_than_two_to_the_31_elements_of_one_byte():
    n = (1 << 31) + 8
    view = as_view(np.broadcast_to(np.int8(1), n), "x")
    assert (view.size, view.nbytes, view.strides) == (n, n, (0,))
    with mmap.mmap(-1, n) as memory:  # pages are never touched
        view = as_view(memory, "x")
        assert facts(view) == ((n,), (1,), km.uint8, False, "buffer")
        assert view.bounds == (view.ptr, view.ptr + n)
        del view
        gc.collect()


BUFFERS = {
    "bytearray": (lambda: bytearray(6), (6,), (1,), km.uint8, False),
    "bytes": (lambda: bytes(6), (6,), (1,), km.uint8, True),
    "array.array": (lambda: array.array("d", [1, 2]), (2,), (8,), km.float64, False),
    "memoryview": (lambda: memoryview(bytearray(12)).cast("f"), (3,), (4,), km.float32, False),
    "strided": (lambda: memoryview(bytearray(8))[::-2], (4,), (-2,), km.uint8, False),
    "two-dimensional": (
        lambda: memoryview(bytearray(12)).cast("h", (2, 3)), (2, 3), (6, 2), km.int16, False,
    ),
    "mmap": (lambda: mmap.mmap(-1, 4096), (4096,), (1,), km.uint8, False),
    "ctypes": (lambda: (ctypes.c_int32 * 3)(), (3,), (4,), km.int32, False),
    "empty": (lambda: bytearray(), (0,), (1,), km.uint8, False),
}  # fmt: skip


@pytest.mark.parametrize("kind", list(BUFFERS))
def test_buffers(kind):
    make, *expected = BUFFERS[kind]
    assert facts(as_view(make(), "x")) == (*expected, "buffer")


def test_buffers_are_pinned_while_the_view_lives():
    memory, mapped = bytearray(8), mmap.mmap(-1, 4096)
    views = [as_view(memory, "x"), as_view(mapped, "y")]
    with pytest.raises(BufferError):
        memory.append(1)
    with pytest.raises(BufferError):
        mapped.close()
    del views
    gc.collect()
    memory.append(1)
    mapped.close()


class Exporter:
    """An array of a library that speaks DLPack only."""

    def __init__(self, a, device=(1, 0)):
        self.a, self.device = a, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, max_version=None):
        return self.a.__dlpack__(max_version=max_version)


def test_dlpack_exporters():
    a = np.arange(12, dtype="i4").reshape(3, 4)[:, ::-1]
    view = as_view(Exporter(a), "x")
    assert facts(view) == ((3, 4), (16, -4), km.int32, False, "dlpack")
    assert view.ptr == pointer(a)
    a.flags.writeable = False
    assert as_view(Exporter(a), "x").readonly


def test_dlpack_memory_lives_with_the_view():
    a = np.arange(1000.0)
    view = as_view(Exporter(a), "x")
    counted = sys.getrefcount(a)
    del view
    gc.collect()
    assert sys.getrefcount(a) < counted


def test_torch_tensors(torch):
    t = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    for tensor in (t, t.T, t[::2, 1:], t[:0], t[1, 2], t[:, :1].expand(4, 9)):
        view = as_view(tensor, "x")
        strides = tuple(4 * s for s in tensor.stride())
        assert facts(view) == (tuple(tensor.shape), strides, km.float32, False, "torch")
        assert view.ptr == tensor.data_ptr()
        assert view.owner is tensor
    for name in ("bool", "uint8", "int64", "float16", "bfloat16", "complex64"):
        assert as_view(torch.zeros(3, dtype=getattr(torch, name)), "x").dtype.name == name


def test_torch_is_never_imported():
    script = (
        "import sys, numpy as np\n"
        "from kernelmill.runtime.memory import as_view\n"
        "as_view(np.zeros(3), 'x'); as_view(b'abc', 'y')\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)


def test_views_leak_nothing(torch):
    things = [np.ones((2, 3)), bytearray(8), torch.ones(3), Exporter(np.ones(3)), np.float32(1)]
    before = [sys.getrefcount(t) for t in things]
    for _ in range(2000):
        assert all(as_view(thing, "x") for thing in things)
    gc.collect()
    assert [sys.getrefcount(t) for t in things] == before


# -------------------------------------------------------------------------------------- refusals


def refusal(error, obj, **options):
    with pytest.raises(error) as caught:
        as_view(obj, "x", **options)
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    ("obj", "kind"),
    [
        ([1, 2], "list"),
        ((1, 2), "tuple"),
        (range(3), "range"),
        ("text", "str"),
        (None, "NoneType"),
        (1.5, "float"),
        (True, "bool"),
        ({1: 2}, "dict"),
        (object(), "object"),
        (np.add, "numpy.ufunc"),
    ],
)
def test_what_is_no_array(obj, kind):
    text, hint = refusal(ArgumentError, obj)
    assert text == f"argument 'x' is a {kind}; accepted: {ACCEPTED}"
    assert hint == "pass `np.asarray(x)`"


def test_objects_that_only_numpy_can_convert():
    class Picture:
        __array_interface__ = np.zeros(3).__array_interface__

    text, hint = refusal(ArgumentError, Picture())
    name = f"{__name__}.test_objects_that_only_numpy_can_convert.<locals>.Picture"
    assert text.startswith("argument 'x' is a ")
    assert text.endswith(f"Picture; accepted: {ACCEPTED}"), name
    assert hint == "pass `np.asarray(x)`"


@pytest.mark.parametrize(
    ("array_", "text", "hint"),
    [
        (
            np.zeros(2, ">f4"),
            "argument 'x': dtype >f4 has the other byte order",
            "convert with `x.astype(x.dtype.newbyteorder('='))`",
        ),
        (
            np.zeros(2, object),
            "argument 'x': dtype object is not served",
            "served are bool, int8…uint64, float16, bfloat16, float32/64, complex64/128, structs",
        ),
        (
            np.zeros(2, "U3"),
            "argument 'x': dtype <U3 is not served",
            "served are bool, int8…uint64, float16, bfloat16, float32/64, complex64/128, structs",
        ),
        (
            np.zeros(2, "M8[s]"),
            "argument 'x': dtype datetime64[s] is not served",
            "served are bool, int8…uint64, float16, bfloat16, float32/64, complex64/128, structs",
        ),
        (
            np.zeros(2, [("a", ">i2")]),
            "argument 'x': dtype >i2 has the other byte order",
            "convert with `x.astype(x.dtype.newbyteorder('='))`",
        ),
    ],
)
def test_dtypes_that_are_not_served(array_, text, hint):
    assert refusal(DTypeError, array_) == (text, hint)


def test_masked_arrays():
    assert refusal(ArgumentError, np.ma.masked_equal([1, 2], 1)) == (
        "argument 'x' is a masked array; accepted: arrays without a mask",
        "pass `x.filled(...)` or `x.data`",
    )


def test_closed_buffers():
    released = memoryview(bytearray(3))
    released.release()
    assert refusal(ArgumentError, released) == (
        (
            "argument 'x' is a memoryview that is closed or cannot be read: "
            "operation forbidden on released memoryview object"
        ),
        "pass a buffer that is open",
    )
    mapped = mmap.mmap(-1, 4096)
    mapped.close()
    text, _ = refusal(ArgumentError, mapped)
    assert text == (
        "argument 'x' is a mmap.mmap that is closed or cannot be read: mmap closed or invalid"
    )


def test_buffers_of_formats_that_are_not_served():
    assert refusal(DTypeError, memoryview(bytearray(8)).cast("P")) == (
        "argument 'x' is a memoryview of format 'P', which is no dtype of NumPy",
        "cast it, for example `memoryview(x).cast('B')`",
    )
    text, _ = refusal(DTypeError, memoryview(bytearray(8)).cast("c"))
    assert text == "argument 'x': dtype |S1 is not served"


def test_tensors_that_are_not_plain_host_memory(torch):
    t = torch.zeros(2, 2)
    cases = [
        (torch.zeros(2, requires_grad=True), "requires grad", "detach()"),
        (torch.nn.Parameter(torch.zeros(2)), "requires grad", "detach()"),
        (t.to_sparse(), "is not strided", "to_dense()"),
        (torch.zeros(2, dtype=torch.complex64).conj(), "is a lazy conjugate", "resolve_conj()"),
        (
            torch.zeros(2, dtype=torch.complex64).conj().imag,
            "is a lazy negative",
            "resolve_neg()",
        ),
    ]
    for tensor, found, remedy in cases:
        text, hint = refusal(ArgumentError, tensor)
        assert text == (f"argument 'x' is a torch tensor that {found}; accepted: plain CPU tensors")
        assert hint == f"pass `x.{remedy}`"


def test_tensors_on_other_devices_and_without_memory(torch):
    assert refusal(DeviceError, torch.zeros(2, device="meta")) == (
        "argument 'x' is a torch tensor on meta; this call runs on the CPU",
        "copy it to the host first, for example `x.cpu()`",
    )
    freed = torch.zeros(8)
    freed.untyped_storage().resize_(0)
    text, hint = refusal(ArgumentError, freed)
    assert text == "argument 'x' is a torch tensor whose storage was freed"
    assert hint == "pass a tensor that holds data"
    with pytest.raises(DTypeError, match=r"^argument 'x': dtype torch.float8_e4m3fn is not served"):
        as_view(torch.zeros(2, dtype=torch.float8_e4m3fn), "x")


@pytest.mark.parametrize(
    ("device", "place"),
    [((2, 0), "cuda:0"), ((13, 1), "cuda:1"), ((8, 0), "DLPack device 8")],
)
def test_dlpack_on_other_devices(device, place):
    text, hint = refusal(DeviceError, Exporter(np.zeros(2), device))
    assert text.endswith(f"Exporter on {place}; this call runs on the CPU")
    assert hint == "copy it to the host first, for example `x.cpu()`"


def test_objects_of_the_cuda_array_interface():
    class OnDevice:
        @property
        def __cuda_array_interface__(self):
            return {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3}

    text, _ = refusal(DeviceError, OnDevice())
    assert text.endswith("OnDevice in the memory of a CUDA device; this call runs on the CPU")


def test_dlpack_exporters_that_fail():
    class Broken(Exporter):
        def __dlpack__(self, *, max_version=None):
            raise BufferError("no memory to show")

    text, hint = refusal(ArgumentError, Broken(None))
    assert text.endswith("Broken that does not export its memory: no memory to show")
    assert hint == "pass `np.asarray(x)`"


def test_outputs_that_cannot_be_written():
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    for obj in (frozen, b"abc", np.float32(1)):
        assert refusal(ArgumentError, obj, writable=True) == (
            "argument 'x' is read-only; an output is written",
            "pass an array that owns its memory, for example a copy",
        )
    twice = np.lib.stride_tricks.as_strided(np.zeros(5), (4, 2), (8, 8), writeable=True)
    assert refusal(ArgumentError, twice, writable=True) == (
        (
            "argument 'x' has shape (4, 2) and strides (8, 8): several of its elements share "
            "memory; an output needs a place for each"
        ),
        "pass a contiguous array of that shape",
    )
    assert as_view(np.zeros((3, 4))[::-1, ::2], "x", writable=True).strides == (-32, 16)
    assert as_view(np.zeros((0, 4)), "x", writable=True).size == 0


def test_alignment():
    memory = np.zeros(64, "u1")
    at = -pointer(memory) % 8
    assert as_view(memory[at : at + 32].view("f8"), "x").is_aligned
    assert not as_view(memory[at + 1 : at + 33].view("f8"), "x").is_aligned
    packed = np.zeros(3, [("a", "u1"), ("b", "f4")])
    assert not as_view(packed["b"], "x").is_aligned


# ---------------------------------------------------------------------------------------- output


@pytest.mark.parametrize("library", ["numpy", "buffer", "dlpack"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5, 7), (300, 1000), (3, 1 << 20)])
def test_new_arrays_of_numpy(library, shape):
    a = empty_like_library(shape, km.float32, library)
    assert type(a) is np.ndarray
    assert (a.shape, a.dtype, a.flags.c_contiguous, a.flags.writeable) == (shape, "f4", True, True)
    a[...] = 1
    assert a.sum(dtype="f8") == a.size
    if a.nbytes >= 256 << 10:
        assert pointer(a) % 64 == 0


@pytest.mark.parametrize("shape", [(), (0,), (5, 7), (300, 1000)])
@pytest.mark.parametrize("dtype", [km.bool_, km.bfloat16, km.float64, km.complex64, km.uint16])
def test_new_tensors_of_torch(torch, shape, dtype):
    t = empty_like_library(shape, dtype, "torch")
    assert (tuple(t.shape), t.dtype, t.is_contiguous()) == (
        shape, getattr(torch, dtype.name), True,
    )  # fmt: skip
    t.fill_(1)
    assert as_view(t, "t", writable=True).dtype is dtype


def test_large_arrays_come_from_the_pool_and_go_back(torch):
    for library in ("numpy", "torch"):
        used = native().memory_stats()[0]
        a = empty_like_library((1 << 20,), km.float32, library)
        assert native().memory_stats()[0] - used >= 4 << 20
        part = a[5:]
        del a
        gc.collect()
        assert native().memory_stats()[0] > used
        part[:] = 3
        del part
        gc.collect()
        assert native().memory_stats()[0] == used


def test_dtypes_that_a_library_does_not_have(torch):
    rgb = km.dtype_of({"r": km.uint8, "g": km.uint8})
    with pytest.raises(DTypeError) as caught:
        empty_like_library((3,), rgb, "torch")
    assert caught.value.message == "torch has no tensors of dtype Struct"
    assert empty_like_library((3,), rgb, "numpy").dtype.names == ("r", "g")


def test_too_much_memory_is_a_memory_error(torch):
    with pytest.raises(MemoryError):
        empty_like_library((1 << 60,), km.uint8, "numpy")
    with pytest.raises(MemoryError):
        empty_like_library((1 << 60,), km.uint8, "torch")


# --------------------------------------------------------------------------------------- overlap


@st.composite
def slices(draw):
    start, stop = draw(st.integers(0, 40)), draw(st.integers(0, 40))
    return slice(start, stop, draw(st.sampled_from([1, 2, 3, 5, -1, -2])))


@settings(max_examples=300, deadline=None)
@given(a=slices(), b=slices(), step=st.integers(0, 3), width=st.sampled_from(["u1", "u2", "f4"]))
def test_overlap_of_one_dimension_is_exact(a, b, step, width):
    memory = np.zeros(64, "u1")
    x, y = memory[a], memory[step : step + 48].view(width)[b]
    assert may_overlap(as_view(x, "x"), as_view(y, "y")) == np.shares_memory(x, y)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_overlap_never_misses_a_shared_byte(data):
    memory = np.zeros((6, 5, 4), "u2")
    views = []
    for _ in range(2):
        v = memory
        for axis in range(3):
            start, step = data.draw(st.integers(0, 2)), data.draw(st.sampled_from([1, 2, -1]))
            v = np.moveaxis(np.moveaxis(v, axis, 0)[start:][::step], 0, axis)
        v = v.transpose(data.draw(st.permutations(range(3))))
        if data.draw(st.booleans()):
            v = np.broadcast_to(v, (2, *v.shape))
        views.append(v)
    x, y = views
    assert may_overlap(as_view(x, "x"), as_view(y, "y")) >= np.shares_memory(x, y)


def test_overlap_of_interleaved_and_neighbouring_views():
    x = np.zeros((4, 8))
    view = lambda a: as_view(a, "a")
    assert not may_overlap(view(x[:, ::2]), view(x[:, 1::2]))
    assert not may_overlap(view(x[:2]), view(x[2:]))
    assert may_overlap(view(x[:3]), view(x[2:]))
    assert may_overlap(view(x), view(x.T))
    assert not may_overlap(view(x[:, :0]), view(x))
    assert not may_overlap(view(x), view(np.zeros(3)))
    fields = np.zeros(5, [("a", "f4"), ("b", "f4")])
    assert not may_overlap(view(fields["a"]), view(fields["b"]))


@settings(max_examples=200, deadline=None)
@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    strides=st.lists(st.integers(-6, 6), min_size=3, max_size=3),
)
def test_no_array_with_shared_elements_passes_as_an_output(shape, strides):
    memory = np.zeros(128, "u1")
    a = np.lib.stride_tricks.as_strided(memory[64:], shape, strides[: len(shape)], writeable=True)
    places = np.lib.stride_tricks.as_strided(
        np.arange(128, dtype="i8")[64:], shape, [8 * s for s in strides[: len(shape)]]
    )
    shared = len(np.unique(places)) < a.size
    assert as_view(a, "x").overlaps_itself >= shared
    if a.ndim == 1:
        assert as_view(a, "x").overlaps_itself == shared
