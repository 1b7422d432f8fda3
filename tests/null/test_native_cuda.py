"""The CUDA launcher of the extension and of its twin, held to one behaviour, without CUDA.

The driver is a set of callbacks that write down what they are given; arrays are stand-ins.
"""

import ctypes
import gc
import struct
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_cuda_fixtures import (
    ALIKE,
    CONTEXT,
    ELSEWHERE,
    FIXED,
    Bytes,
    Driver,
    FakeCupy,
    FakeOwn,
    FakeTensor,
    OldTensor,
    OtherTensor,
    register,
    table,
)
from native_fixtures import F4, F8, MODULES, growth, needs_extension

F32, F64, C64, BOOL = (2, 32), (2, 64), (5, 64), (6, 8)
FLOAT = object()  # our element type: compared only where a struct is


@pytest.fixture(autouse=True)
def _libraries():
    from kernelmill import _native_py
    from native_fixtures import _native

    forget = [register(m) for m in (_native, _native_py) if m is not None]
    yield
    for f in forget:
        f()


def array(at, *, dtype=FLOAT, numpy=F4, dl=F32, size=4, alignment=None, shape_at=-1,
          strides_at=-1, rank=-1, fixed=None):  # fmt: skip
    unit = size if alignment is None else alignment
    return ("a", at, dtype, numpy, *dl, size, unit, shape_at, strides_at, rank, fixed)


def flat(module, driver, **options):
    """A launcher of one input and one output of one shape, as a plan has it."""
    given_ = {"grid": (7, 2, 3), "block": (128, 1, 1), "context": CONTEXT, "outputs": 1,
              "mode": ALIKE, "tile": 100, "count_at": 32}  # fmt: skip
    record = bytearray(range(256))
    slots = (array(16), array(24))
    return module.CudaLauncher(driver.addresses, 0xF, record, (0,), slots, **(given_ | options))


def numbers(call, at, count=1):
    return struct.unpack_from(f"<{count}q", call["record"], at)


X, OUT = FakeTensor(0x1000, (5, 7)), FakeTensor(0x2000, (5, 7))


@MODULES
def test_arrays_of_one_shape_become_pointers_and_a_count(module):
    driver = Driver()
    assert flat(module, driver)(X, OUT) is True
    (call,) = driver.calls
    assert numbers(call, 16, 3) == (0x1000, 0x2000, 35)
    assert call["record"][:16] + call["record"][40:] == bytes([*range(16), *range(40, 256)])
    assert call["grid"] == (1, 2, 3)
    assert call["block"] == (128, 1, 1)
    assert (call["function"], call["stream"], call["shared"], call["extra"]) == (0xF, 0, 0, None)
    assert call["aligned"]
    assert driver.contexts == []


@MODULES
@pytest.mark.parametrize(
    ("size", "most", "blocks"), [(1, 99, 1), (100, 99, 1), (101, 99, 2), (99_999, 99, 99)]
)
def test_blocks_are_as_many_as_tiles(module, size, most, blocks):
    driver = Driver()
    x, out = FakeTensor(1 << 20, (size,)), FakeTensor(1 << 30, (size,))
    assert flat(module, driver, most=most)(x, out) is True
    assert driver.calls[0]["grid"] == (blocks, 2, 3)


MISFITS = {
    "no argument": (),
    "too few": (X,),
    "too many": (X, OUT, OUT),
    "a NumPy array": (np.ones((5, 7), "f4"), OUT),
    "None": (None, OUT),
    "a subclass": (type("Sub", (FakeTensor,), {})(0x1000, (5, 7)), OUT),
    "another dtype": (FakeTensor(0x1000, (5, 7), dtype=F64), OUT),
    "an integer of the same size": (FakeTensor(0x1000, (5, 7), dtype=(0, 32)), OUT),
    "another shape": (FakeTensor(0x1000, (5, 6)), OUT),
    "another rank": (FakeTensor(0x1000, (35,)), OUT),
    "turned": (FakeTensor(0x1000, (5, 7), (1, 5)), OUT),
    "broadcast": (FakeTensor(0x1000, (5, 7), (0, 0)), OUT),
    "unaligned": (FakeTensor(0x1002, (5, 7)), OUT),
    "on the host": (FakeTensor(0x1000, (5, 7), device_type=1), OUT),
    "on another device": (FakeTensor(0x1000, (5, 7), device_id=1), OUT),
    "a gradient": (FakeTensor(0x1000, (5, 7), requires_grad=True), OUT),
    "a lazy negative": (FakeTensor(0x1000, (5, 7), negative=True), OUT),
    "not exported": (FakeTensor(0x1000, (5, 7), broken=True), OUT),
    "nine dimensions": (FakeTensor(0x1000, (1,) * 9), FakeTensor(0x2000, (1,) * 9)),
    "no element": (FakeTensor(0x1000, (5, 0)), FakeTensor(0x2000, (5, 0))),
    "part of the output": (FakeTensor(0x2004, (5, 7)), OUT),
    "captures that are not due": (X, OUT, b"12345678"),
    "captures of another kind": (X, OUT, bytearray()),
    "another library's struct": (FakeOwn(0x1000, (5, 7), (255, 32), element=None), OUT),
    "an own array of another dtype": (FakeOwn(0x1000, (5, 7), F64), OUT),
    "an old tensor of another dtype": (OldTensor(0x1000, (5, 7), dtype=F64), OUT),
    "an old tensor of an unknown dtype": (OldTensor(0x1000, (5, 7), dtype=BOOL), OUT),
    "an old tensor on the host": (OldTensor(0x1000, (5, 7), device_type=1), OUT),
    "an old tensor on another device": (OldTensor(0x1000, (5, 7), device_id=1), OUT),
    "an old tensor, turned": (OldTensor(0x1000, (5, 7), (1, 5)), OUT),
    "an old tensor with a gradient": (OldTensor(0x1000, (5, 7), requires_grad=True), OUT),
    "an old tensor, lazy": (OldTensor(0x1000, (5, 7), negative=True), OUT),
    "an old tensor without memory": (OldTensor(0x1000, (5, 7), broken=True), OUT),
    "an old tensor of nine dimensions": (OldTensor(0x1000, (1,) * 9), OUT),
    "CuPy's of another dtype": (FakeCupy(0x1000, (5, 7), F8), OUT),
    "CuPy's, turned": (FakeCupy(0x1000, (5, 7), F4, strides=(4, 20)), OUT),
    "CuPy's on another device": (FakeCupy(0x1000, (5, 7), F4, device=1), OUT),
}


@MODULES
@pytest.mark.parametrize("misfit", list(MISFITS))
def test_what_does_not_fit_is_left_to_the_general_way(module, misfit):
    driver = Driver()
    launch = flat(module, driver)
    assert launch(*MISFITS[misfit]) is False
    assert driver.calls == []
    assert launch(X, OUT) is True


@needs_extension
def test_the_extension_takes_no_keywords():
    from native_fixtures import _native

    assert flat(_native, Driver())(X, OUT, out=OUT) is False


MATCHES = {
    "in place": (OUT, OUT),
    "unit extents of any stride": (
        FakeTensor(0x1000, (1, 7), (999, 1)),
        FakeTensor(0x2000, (1, 7)),
    ),
    "0-d": (FakeTensor(0x1000, ()), FakeTensor(0x2000, ())),
    "an offset in bytes": (FakeTensor(0x0FF0, (5, 7), offset=0x10), OUT),
    "no strides": (OtherTensor(0x1000, (5, 7), strides=None), OUT),
    "old tensors": (OldTensor(0x0FF0, (5, 7), offset=0x10), OldTensor(0x2000, (5, 7))),
    "CuPy": (FakeCupy(0x1000, (5, 7), F4), FakeCupy(0x2000, (5, 7), F4)),
    "an equal dtype that is another object": (FakeCupy(0x1000, (5, 7), np.dtype("=f4")), OUT),
    "own": (FakeOwn(0x1000, (5, 7)), FakeOwn(0x2000, (5, 7))),
    "an own struct": (FakeOwn(0x1000, (5, 7), (255, 32), element=FLOAT), OUT),
    "several libraries": (FakeCupy(0x1000, (5, 7), F4), FakeOwn(0x2000, (5, 7))),
}


@MODULES
@pytest.mark.parametrize("match", list(MATCHES))
def test_what_fits_is_launched(module, match):
    driver = Driver()
    x, out = MATCHES[match]
    assert flat(module, driver)(x, out) is True
    pointer = 0x2000 if match == "in place" else 0x1000
    assert numbers(driver.calls[0], 16, 2) == (pointer, 0x2000)


@MODULES
@pytest.mark.parametrize("kind", [FakeTensor, OldTensor])
def test_a_lazy_conjugate_is_left_to_the_general_way(module, kind):
    driver = Driver()
    slots = (array(16, dl=C64, size=8), array(24, dl=C64, size=8))
    launch = module.CudaLauncher(driver.addresses, 1, bytearray(256), (0,), slots, mode=ALIKE)
    x, out = (kind(p, (4,), dtype=C64) for p in (0x1000, 0x2000))
    assert launch(x, out) is True
    x.conjugate = True
    assert launch(x, out) is False


@MODULES
def test_what_is_known_of_a_tensor_is_forgotten_with_it(module):
    """A lazy negative is found also where a plain tensor was before, at the same address."""
    driver = Driver()
    launch = flat(module, driver)
    for _ in range(100):
        x = FakeTensor(0x1000, (5, 7))
        assert [launch(x, OUT) for _ in range(3)] == [True] * 3
        at = id(x)
        del x
        y = FakeTensor(0x1000, (5, 7), negative=True)
        assert launch(y, OUT) is False
        if id(y) == at:
            break
    else:
        pytest.skip("no address was used again")


@MODULES
def test_given_layouts_are_the_only_ones(module):
    driver = Driver()
    fixed = (((4, 6), (0, 4)), ((4, 6), (24, 4)))
    slots = tuple(array(16 + 8 * k, fixed=f) for k, f in enumerate(fixed))
    launch = module.CudaLauncher(
        driver.addresses, 1, bytearray(256), (0,), slots, mode=FIXED, outputs=1, grid=(3, 1, 1)
    )
    row, out = FakeTensor(0x1000, (4, 6), (0, 1)), FakeTensor(0x2000, (4, 6))
    assert launch(row, out) is True
    assert driver.calls[0]["grid"] == (3, 1, 1)
    assert launch(FakeTensor(0x1000, (4, 6)), out) is False
    assert launch(row, FakeTensor(0x2000, (6, 4))) is False
    assert launch(FakeTensor(0x2000, (4, 6), (0, 1)), out) is False, "the output's first row"
    assert launch(FakeTensor(0x2000 - 24, (4, 6), (0, 1)), out) is True, "ends where it begins"
    assert launch(FakeTensor(0x2000 + 4 * 23, (4, 6), (0, 1)), out) is False


@MODULES
def test_reversed_arrays_reach_before_their_pointer(module):
    driver = Driver()
    slots = (array(16, fixed=((8,), (-4,))), array(24, fixed=((8,), (4,))))
    launch = module.CudaLauncher(
        driver.addresses, 1, bytearray(256), (0,), slots, mode=FIXED, outputs=1
    )
    out = FakeTensor(0x2000, (8,))
    assert launch(FakeTensor(0x2000 - 4, (8,), (-1,)), out) is True
    assert launch(FakeTensor(0x2000, (8,), (-1,)), out) is False
    assert launch(FakeTensor(0x2000 + 4 * 15, (8,), (-1,)), out) is True
    assert launch(FakeTensor(0x2000 + 4 * 14, (8,), (-1,)), out) is False


@MODULES
def test_two_outputs_in_one_place_are_left_to_the_general_way(module):
    driver = Driver()
    slots = (array(16), array(24), array(32))
    launch = module.CudaLauncher(
        driver.addresses, 1, bytearray(256), (0,), slots, mode=ALIKE, outputs=2
    )
    assert launch(X, OUT, OUT) is False
    assert launch(X, X, OUT) is True


# ----------------------------------------------------------------------------------- streams


@MODULES
def test_the_stream_is_the_one_on_which_the_first_library_works(module):
    driver = Driver()
    launch = flat(module, driver)
    FakeTensor.stream = 0x51
    assert launch(X, OUT) is True
    FakeCupy.stream = 0x52
    arrays = [FakeCupy(p, (5, 7), F4) for p in (0x1000, 0x2000)]
    assert launch(*arrays) is True
    assert [c["stream"] for c in driver.calls] == [0x51, 0x52]
    assert launch(arrays[0], OUT) is False, "the libraries work on different streams"
    FakeCupy.stream = 0x51
    assert launch(arrays[0], OUT) is True
    FakeTensor.stream = None
    assert launch(X, OUT) is False, "the library does not say"


@MODULES
def test_own_arrays_are_launched_on_the_stream_that_they_were_made_on(module):
    driver = Driver()
    launch = flat(module, driver)
    FakeTensor.stream = 0x51  # that library's stream is the current one
    made = [FakeOwn(p, (5, 7), stream=0x51) for p in (0x1000, 0x2000)]
    assert launch(*made) is True
    assert launch(made[0], OUT) is True
    assert launch(OUT, FakeOwn(0x1000, (5, 7), stream=0x52)) is False
    assert launch(FakeOwn(0x1000, (5, 7), stream=0), made[1]) is False
    assert [c["stream"] for c in driver.calls] == [0x51, 0x51]
    module.cuda_library(FakeTensor, "none")
    FakeOwn.stream = 0x53
    assert launch(*(FakeOwn(p, (5, 7), stream=0x53) for p in (0x1000, 0x2000))) is True
    assert driver.calls[-1]["stream"] == 0x53


@MODULES
def test_a_given_stream_must_be_that_of_the_arrays(module):
    driver = Driver()
    launch = flat(module, driver, takes_stream=True)
    FakeTensor.stream = (1 << 63) + 5
    assert launch((1 << 63) + 5, X, OUT) is True
    assert driver.calls[0]["stream"] == (1 << 63) + 5
    assert launch(0, X, OUT) is False
    assert launch(True, X, OUT) is False
    assert launch() is False
    assert launch(X, OUT) is False


# ---------------------------------------------------------------------------------- contexts


@MODULES
def test_another_context_is_left_as_it_was(module):
    driver = Driver()
    launch = flat(module, driver)
    driver.current = ELSEWHERE
    assert launch(X, OUT) is True
    assert driver.calls[0]["context"] == CONTEXT
    assert driver.contexts == [CONTEXT, ELSEWHERE]
    driver.current = 0
    assert launch(X, OUT) is True
    assert driver.contexts[2:] == [CONTEXT], "without one, it stays"


@MODULES
def test_what_the_driver_refuses_is_raised(module):
    driver = Driver()
    asked = []

    def failed(status):
        asked.append(status)
        return LookupError(f"status {status}")

    launch = flat(module, driver, failed=failed)
    driver.status = 700
    with pytest.raises(LookupError, match="status 700"):
        launch(X, OUT)
    assert asked == [700]
    driver.status = 0
    assert launch(X, OUT) is True


@MODULES
def test_launches_are_noted_by_name(module):
    seen = []
    launch = flat(module, Driver(), name="twice", note=seen.append)
    assert launch(X, OUT) is True
    assert launch(X, None) is False
    assert seen == ["twice"]


@MODULES
def test_a_launch_lets_other_threads_run(module):
    driver, done = Driver(), threading.Event()

    class Waiting(Driver):
        def _launch(self, *args):
            threading.Thread(target=done.set).start()
            assert done.wait(600)
            return super()._launch(*args)

    driver = Waiting()
    assert flat(module, driver)(X, OUT) is True
    assert len(driver.calls) == 1


# ----------------------------------------------------------------- records, scalars, captures


@MODULES
def test_captures_come_last_and_lie_first(module):
    driver = Driver()
    launch = flat(module, driver, captures=8)
    assert launch(X, OUT) is False
    assert launch(X, OUT, b"1234567") is False
    assert launch(X, OUT, b"abcdefgh") is True
    assert driver.calls[0]["record"][:9] == b"abcdefgh\x08"
    assert flat(module, driver)(X, OUT, b"") is True


@MODULES
def test_the_record_can_be_changed_between_launches_and_is_pinned(module):
    driver = Driver(record=8)
    record = bytearray(b"12345678")
    launch = module.CudaLauncher(driver.addresses, 1, record, (0,), (), takes_stream=True)
    assert launch(5) is True
    record[:4] = b"abcd"
    assert launch(6) is True
    assert [c["record"] for c in driver.calls] == [b"12345678", b"abcd5678"]
    assert [c["stream"] for c in driver.calls] == [5, 6]
    with pytest.raises(BufferError):
        record.append(1)
    del launch
    gc.collect()
    record.append(1)


@MODULES
def test_parameters_lie_where_they_are_said_to(module):
    driver = Driver(record=32, parameters=3)
    slots = (array(0, dtype=None, alignment=1), ("f", 8, 4), ("i", 16, 4, -(1 << 31), 1 << 31))
    launch = module.CudaLauncher(
        driver.addresses, 1, bytearray(32), (0, 8, 16), slots, grid=(4, 1, 1)
    )
    assert launch(FakeTensor(0x123, (3,), dtype=F64), 1.5, -7) is True
    (call,) = driver.calls
    assert call["offsets"] == (0, 8, 16)
    assert struct.unpack("<Qf4xi12x", call["record"]) == (0x123, 1.5, -7)
    assert call["grid"] == (4, 1, 1)


@MODULES
@pytest.mark.parametrize(
    ("slot", "fits", "refused"),
    [
        (("i", 0, 4, -(1 << 31), (1 << 32) - 1),
         {0: b"\0" * 4, -1: b"\xff" * 4, (1 << 32) - 1: b"\xff" * 4, -(1 << 31): b"\0\0\0\x80"},
         [1 << 32, -(1 << 31) - 1, 1 << 64, True, 1.0, None, np.int32(1)]),
        (("i", 0, 8, -(1 << 63), (1 << 63) - 1),
         {-1: b"\xff" * 8, (1 << 64) - 1: b"\xff" * 8}, [1 << 64, -(1 << 63) - 1]),
        (("i", 0, 8, 0, 9), {9: b"\x09" + b"\0" * 7}, [10, -1, (1 << 64) - 1]),
        (("i", 0, 1, -128, 255), {-128: b"\x80", 255: b"\xff"}, [256]),
        (("f", 0, 4), {1.5: b"\0\0\xc0?", float("inf"): b"\0\0\x80\x7f"}, [1e39, 1, None, "1"]),
        (("f", 0, 8), {1e39: struct.pack("<d", 1e39)}, [1, np.float64(1)]),
        (("b", 0, 2), {True: b"\1\0", False: b"\0\0"}, [1, None, np.bool_(1)]),
        (("z", 0, 8), {None: b"\0" * 8}, [0, False]),
        (("n", 0, 4, np.float32), {np.float32(1.5): b"\0\0\xc0?"}, [1.5, np.float64(1)]),
        (("n", 0, 12, Bytes), {}, [Bytes]),
        (("n", 0, 8, np.float32), {}, [np.float32(1)]),
        (("n", 0, 8, str), {}, ["12345678"]),
    ],
)  # fmt: skip
def test_scalars(module, slot, fits, refused):
    driver = Driver(record=16)
    record = bytearray(b"\xee" * 16)
    launch = module.CudaLauncher(driver.addresses, 1, record, (0,), (slot,), takes_stream=True)
    for value, raw in fits.items():
        assert launch(0, value) is True
        assert driver.calls[-1]["record"] == raw.ljust(16, b"\xee")
    count = len(driver.calls)
    for value in refused:
        assert launch(0, value) is False
    assert len(driver.calls) == count


@MODULES
def test_a_struct_of_ctypes_is_a_scalar(module):
    driver = Driver(record=12)
    launch = module.CudaLauncher(
        driver.addresses, 1, bytearray(12), (0,), (("n", 0, 12, Bytes),), takes_stream=True
    )
    assert launch(0, Bytes(b"hello world!")) is True
    assert driver.calls[0]["record"] == b"hello world!"


@MODULES
@pytest.mark.parametrize("kind", [FakeTensor, OldTensor, FakeCupy, FakeOwn])
def test_shapes_and_strides_can_be_part_of_the_record(module, kind):
    driver = Driver(record=64)
    slots = (array(0, shape_at=8, strides_at=32, rank=2),)
    launch = module.CudaLauncher(driver.addresses, 1, bytearray(64), (0,), slots)
    dtype = (F4,) if kind is FakeCupy else ()
    assert launch(kind(0x1000, (5, 7), *dtype)) is True
    assert numbers(driver.calls[0], 0, 8) == (0x1000, 5, 7, 0, 28, 4, 0, 0)
    assert launch(kind(0x1000, (35,), *dtype)) is False


@MODULES
def test_scratch_memory_is_asked_for_once_a_stream(module):
    driver, asked = Driver(), []

    def scratch(stream):
        asked.append(stream)
        return struct.pack("<QQ", stream + 1, stream + 2)

    launch = flat(module, driver, scratch=(64, scratch))
    for stream in (5, 5, 6, 6):
        FakeTensor.stream = stream
        assert launch(X, OUT) is True
        assert numbers(driver.calls[-1], 64, 2) == (stream + 1, stream + 2)
    assert asked == [5, 6]
    FakeTensor.stream = 2  # of each thread another one
    assert launch(X, OUT) is False
    FakeTensor.stream = 6
    driver.capturing = 1
    assert launch(X, OUT) is False
    assert flat(module, Driver(), scratch=(248, scratch))(X, OUT) is False, "it does not fit"
    broken = flat(module, Driver(), scratch=(64, lambda _: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        broken(X, OUT)


@MODULES
def test_attributes_of_a_launch(module):
    driver = Driver(record=8)
    raw = bytes(range(144))
    launch = module.CudaLauncher(
        driver.addresses, 1, bytearray(8), (0,), (), takes_stream=True, attributes=raw, shared=77,
        block=(4, 5, 6),
    )  # fmt: skip
    assert launch(0) is True
    (call,) = driver.calls
    assert (call["attributes"], call["shared"], call["block"]) == (raw, 77, (4, 5, 6))


@MODULES
@given(
    shape=st.lists(st.integers(1, 9), max_size=5).map(tuple),
    order=st.permutations(range(5)),
    pointers=st.tuples(st.integers(0, 400), st.integers(0, 400)),
)
def test_overlap_of_any_layouts_is_found(module, shape, order, pointers):
    """An input and an output in one memory: refused unless apart, or the very same elements."""
    axes = [a for a in order if a < len(shape)]
    steps, step = [0] * len(shape), 1
    for axis in axes:
        steps[axis] = step
        step *= shape[axis]
    fixed = (shape, tuple(4 * s for s in steps))
    driver = Driver()
    slots = (array(16, fixed=fixed), array(24, fixed=fixed))
    launch = module.CudaLauncher(
        driver.addresses, 1, bytearray(256), (0,), slots, mode=FIXED, outputs=1
    )
    a, b = (FakeTensor(0x1000 + 4 * p, shape, tuple(steps)) for p in pointers)
    expected = pointers[0] == pointers[1] or abs(pointers[0] - pointers[1]) >= step
    assert launch(a, b) is expected


# ------------------------------------------------------------------------------- construction

BAD = {
    "no function": {"function": 0},
    "no launch": {"driver": (0, 1, 1, 1)},
    "a context without its calls": {"driver": (1, 0, 0, 1), "context": 5},
    "a record that is too large": {"record": bytearray(4097)},
    "a pointer outside": {"slots": (array(249),)},
    "a pointer before": {"slots": (array(-8),)},
    "an extent outside": {"slots": (array(0, shape_at=248, rank=2),)},
    "extents of no rank": {"slots": (array(0, shape_at=8),)},
    "no alignment": {"slots": (array(0, alignment=0),)},
    "nine dimensions": {"slots": (array(0, rank=9),)},
    "a scalar outside": {"slots": (array(0), ("f", 253, 4))},
    "a wide integer": {"slots": (array(0), ("i", 0, 16, 0, 0))},
    "nothing": {"slots": (array(0), ("b", 0, 0))},
    "a half": {"slots": (array(0), ("f", 0, 2))},
    "no kind": {"slots": (array(0), ("q", 0, 2))},
    "no slot": {"slots": ((),)},
    "neither a stream nor an array": {"slots": ()},
    "more outputs than arrays": {"outputs": 2},
    "a parameter outside": {"parameters": (256,)},
    "a count outside": {"count_at": 249},
    "captures outside": {"captures": 257},
    "a tile without shapes": {"tile": 5},
    "no mode": {"mode": 3},
    "scratch before": {"scratch": (-1, bytes)},
    "scratch without its call": {"driver": (1, 1, 1, 0), "scratch": (0, bytes)},
    "no blocks": {"most": 0},
}


@MODULES
@pytest.mark.parametrize("bad", list(BAD))
def test_a_launcher_that_cannot_be(module, bad):
    good = {
        "driver": (1, 1, 1, 1), "function": 1, "record": bytearray(256), "parameters": (0,),
        "slots": (array(0),),
    }  # fmt: skip
    module.CudaLauncher(**good)
    with pytest.raises(ValueError, match="^CudaLauncher: "):
        module.CudaLauncher(**(good | BAD[bad]))


@MODULES
def test_types_that_cannot_be_registered(module):
    api = ctypes.addressof(table(FakeTensor))
    old = table(FakeTensor, major=0)
    newer = table(FakeTensor, major=2, previous=table(FakeTensor))
    wrong = [
        ("exchange", {}),
        ("exchange", {"api": ctypes.addressof(old)}),
        ("torch", {"api": api}),
        ("methods", {"stream": int}),
        ("methods", {"stream": int, "is_negative": bool, "is_conjugate": bool}),
        ("cupy", {}),
        ("own", {}),
        ("numpy", {"stream": int}),
    ]
    for kind, options in wrong:
        with pytest.raises(ValueError, match="the arguments do not fit each other"):
            module.cuda_library(Bytes, kind, **options)
    with pytest.raises(ValueError, match="the arguments do not fit each other"):
        module.cuda_library("a name", "cupy", stream=int)
    module.cuda_library(Bytes, "exchange", api=ctypes.addressof(newer))
    module.cuda_library(Bytes, "none")


@MODULES
def test_the_table_of_types_is_limited(module):
    classes = [type(f"T{i}", (), {}) for i in range(17)]
    with pytest.raises(ValueError, match="more than 16 types"):
        for cls in classes:
            module.cuda_library(cls, "cupy", stream=int)
    for cls in classes:
        module.cuda_library(cls, "none")


@MODULES
def test_nothing_is_leaked(module):
    driver = Driver()

    def work():
        launch = flat(module, driver, captures=4, note=[].append, name="x" * 99)
        for _ in range(50):
            launch(X, OUT, b"1234")
            launch(X, None, b"1234")
            launch(FakeCupy(0x1000, (5, 7), F4), FakeOwn(0x2000, (5, 7)), b"1234")
        driver.calls.clear()

    assert growth(work) < 2000
