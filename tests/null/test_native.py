"""Launching through the extension and its pure-Python twin, held to one behaviour.

Kernels here are Python callbacks with the ABI of host/abi.hpp, so no compiler is needed.
"""

import ctypes
import gc
import os
import subprocess
import sys
from ctypes import c_void_p

import numpy as np
import pytest

from kernelmill import _native_py
from kernelmill.config import get_config, override
from kernelmill.runtime.native import native, native_status
from native_fixtures import (
    F4,
    F8,
    MODULES,
    Recorder,
    _native,
    growth,
    needs_extension,
    pointer,
    readonly,
)


@pytest.fixture(autouse=True)
def _restore_threads():
    modules = [m for m in (_native, _native_py) if m is not None]
    before = [m.thread_count() for m in modules]
    yield
    for module, threads in zip(modules, before, strict=True):
        module.configure(threads)


@needs_extension
def test_both_modules_have_the_same_names():
    names = {n for n in dir(_native) if not n.startswith("_")}
    assert names == set(_native_py.__all__) - {"use_pool"}


# ------------------------------------------------------------------------------------- launcher


@MODULES
def test_launcher_packs_arrays_of_one_shape_as_one_dimension(module):
    kernel = Recorder(3)
    launch = module.Launcher(kernel.entry, (F4, F8, F4), 1)
    a, b, out = np.ones((5, 7), "f4"), np.ones((5, 7), "f8"), np.empty((5, 7), "f4")
    assert launch(a, b, out) is True
    (call,) = kernel.calls
    assert call["shape"] == (35,)
    assert call["pointers"] == (pointer(a), pointer(b), pointer(out))
    assert call["strides"] == ((4,), (8,), (4,))
    assert call["threads"] == 1
    assert call["flags"] == 0
    assert call["aligned"]


@MODULES
def test_launcher_takes_zero_dimensional_arrays(module):
    kernel = Recorder(2)
    x, out = np.array(2.0), np.array(0.0)
    assert module.Launcher(kernel.entry, (F8, F8), 1)(x, out) is True
    assert kernel.calls[0]["shape"] == (1,)


X, OUT = np.ones(8, "f4"), np.empty(8, "f4")
MISFITS = {
    "no argument": (),
    "too few": (X,),
    "too many": (X, OUT, OUT),
    "a list": ([1.0] * 8, OUT),
    "None": (None, OUT),
    "another dtype": (np.ones(8, "f8"), OUT),
    "an integer of the same size": (np.ones(8, "i4"), OUT),
    "byte-swapped": (np.ones(8, ">f4"), OUT),
    "objects": (np.ones(8, object), OUT),
    "another length": (np.ones(7, "f4"), OUT),
    "another shape of the same size": (np.ones((2, 4), "f4"), OUT),
    "strided": (np.ones(16, "f4")[::2], OUT),
    "reversed": (np.ones(8, "f4")[::-1], OUT),
    "Fortran order": (np.ones((2, 4), "f4", order="F"), np.empty((2, 4), "f4")),
    "broadcast": (np.broadcast_to(np.float32(1), 8), OUT),
    "unaligned": (np.frombuffer(bytearray(33), "f4", 8, offset=1), OUT),
    "a subclass": (np.ones(8, "f4").view(np.recarray), OUT),
    "a read-only output": (X, readonly(np.empty(8, "f4"))),
    "empty": (np.ones(0, "f4"), np.empty(0, "f4")),
}


@MODULES
@pytest.mark.parametrize("misfit", list(MISFITS))
def test_launcher_leaves_what_does_not_fit_to_the_general_path(module, misfit):
    kernel = Recorder(2)
    launch = module.Launcher(kernel.entry, (F4, F4), 1)
    assert launch(*MISFITS[misfit]) is False
    assert kernel.calls == []
    assert launch(X, OUT) is True


@MODULES
def test_launcher_takes_no_keywords(module):
    kernel = Recorder(2)
    launch = module.Launcher(kernel.entry, (F4, F4), 1)
    if module is _native:
        assert launch(X, OUT, out=OUT) is False
    assert kernel.calls == []


@MODULES
def test_launcher_counts_elements_against_its_limit(module):
    launch = module.Launcher(Recorder(2).entry, (F4, F4), 1, limit=7)
    assert launch(X, OUT) is False
    assert launch(X[:7], OUT[:7]) is True


OVERLAPS = [
    # input and output as slices of float32 memory, and whether a kernel may run so
    (slice(0, 8), slice(0, 8), True),
    (slice(0, 8), slice(8, 16), True),
    (slice(8, 16), slice(0, 8), True),
    (slice(0, 8), slice(1, 9), False),
    (slice(1, 9), slice(0, 8), False),
    (slice(0, 8), slice(7, 15), False),
]


@MODULES
@pytest.mark.parametrize(("source", "target", "fits"), OVERLAPS)
def test_launcher_allows_in_place_and_refuses_partial_overlap(module, source, target, fits):
    memory = np.zeros(32, "f4")
    launch = module.Launcher(Recorder(2).entry, (F4, F4), 1)
    assert launch(memory[source], memory[target]) is fits


@MODULES
def test_launcher_refuses_shared_memory_of_other_element_sizes_and_of_two_outputs(module):
    memory = np.zeros(64, "u1")
    wide, narrow = memory.view("f8"), memory[:32].view("f4")
    assert module.Launcher(Recorder(2).entry, (F4, F8), 1)(narrow, wide) is False
    assert module.Launcher(Recorder(2).entry, (F8, F8), 2)(wide, wide) is False
    assert module.Launcher(Recorder(2).entry, (F8, F8), 0)(wide, wide) is True


@MODULES
def test_launcher_compares_equal_struct_dtypes_that_are_two_objects(module):
    rgb = [("r", "u1"), ("g", "u1"), ("b", "u1")]
    launch = module.Launcher(Recorder(2).entry, (np.dtype(rgb), F4), 1)
    assert launch(np.zeros(8, np.dtype(rgb)), OUT) is True
    assert launch(np.zeros(8, [("r", "u1"), ("g", "u1"), ("x", "u1")]), OUT) is False


@MODULES
def test_launcher_hands_over_captures_late_and_pins_their_memory(module):
    kernel = Recorder(2, captures=8)
    values = bytearray(b"12345678")
    launch = module.Launcher(kernel.entry, (F4, F4), 1, captures=values)
    assert launch(X, OUT)
    values[:] = b"abcdefgh"
    assert launch(X, OUT)
    assert launch(X, OUT, b"per call") is True
    assert launch(X, OUT, b"too short"[:7]) is False
    assert launch(X, OUT, bytearray(8)) is False
    assert [c["captures"] for c in kernel.calls] == [b"12345678", b"abcdefgh", b"per call"]
    with pytest.raises(BufferError):
        values.append(1)
    del launch
    gc.collect()
    values.append(1)


@MODULES
def test_launcher_with_fixed_shapes_uses_the_shapes_and_strides_it_was_given(module):
    kernel = Recorder(2)
    fixed = (((4, 6), (4,)), (4, 6), ((24, 4), (4, 0)))
    launch = module.Launcher(kernel.entry, (F4, F4), 1, fixed=fixed)
    x, out = np.ones((4, 6), "f4"), np.empty(4, "f4")
    assert launch(x, out) is True
    assert kernel.calls[0]["shape"] == (4, 6)
    assert kernel.calls[0]["strides"] == ((24, 4), (4, 0))
    assert launch(x.reshape(6, 4), out) is False
    assert launch(x, np.empty((4, 1), "f4")) is False
    assert launch(x, x[0, :4]) is False, "in place is right only element for element"


@MODULES
@pytest.mark.parametrize(
    ("n", "options", "threads"),
    [
        (99, {}, 1),
        (100, {}, 2),
        (299, {}, 3),
        (10_000, {}, 5),
        (10_000, {"max_threads": 2}, 2),
        (10_000, {"max_threads": 1}, 1),
    ],
)
def test_launcher_chooses_threads_by_size(module, n, options, threads, pool_library):
    module.configure(5)
    kernel = Recorder(1)
    launch = module.Launcher(kernel.entry, (F4,), 1, serial_below=100, **options)
    assert launch(np.empty(n, "f4")) is True
    assert kernel.calls[0]["threads"] == threads


@pytest.fixture
def pool_library():
    """Give the twin its pool: the extension has one inside, else it is compiled and cached."""
    if _native is not None:
        _native_py.use_pool(lambda: _native.__file__)
    else:
        with override(native=False):
            native()


@MODULES
def test_launcher_streams_outputs_above_the_given_size(module):
    kernel = Recorder(2)
    for above in (64, 63):
        module.Launcher(kernel.entry, (F4, F4), 1, nontemporal_above=above)(X, OUT)
    assert [c["flags"] for c in kernel.calls] == [0, 1]
    module.configure(module.thread_count(), nontemporal_bytes=63)
    module.Launcher(kernel.entry, (F4, F4), 1)(X, OUT)
    module.configure(module.thread_count(), nontemporal_bytes=64)
    module.Launcher(kernel.entry, (F4, F4), 1)(X, OUT)
    assert [c["flags"] for c in kernel.calls][2:] == [1, 0]


@MODULES
def test_launcher_passes_its_flags_on(module):
    kernel = Recorder(2)
    module.Launcher(kernel.entry, (F4, F4), 1, nontemporal_above=64, flags=3 << 8)(X, OUT)
    module.Launcher(kernel.entry, (F4, F4), 1, nontemporal_above=63, flags=3 << 8)(X, OUT)
    assert [c["flags"] for c in kernel.calls] == [3 << 8, 3 << 8 | 1]


@MODULES
@pytest.mark.parametrize("workspace", [0, 1, 4096, 4097, 1 << 20])
@pytest.mark.parametrize("gil_above", [0, 1000])
def test_workspace_is_as_large_as_asked_and_given_back(module, workspace, gil_above):
    def fill(call):
        ctypes.memset(call.workspace, 0xAB, workspace)

    kernel = Recorder(2, action=fill)
    used = module.memory_stats()[0]
    launch = module.Launcher(kernel.entry, (F4, F4), 1, workspace=workspace, gil_above=gil_above)
    for _ in range(3):
        assert launch(X, OUT)
    gc.collect()
    assert kernel.calls[0]["aligned"]
    assert module.memory_stats()[0] == used


@MODULES
def test_impossible_workspace_is_a_memory_error(module):
    kernel = Recorder(2)
    launch = module.Launcher(kernel.entry, (F4, F4), 1, workspace=1 << 61)
    with pytest.raises(MemoryError, match=f"^no memory for a workspace of {1 << 61} bytes$"):
        launch(X, OUT)
    assert kernel.calls == []


@MODULES
@pytest.mark.parametrize(
    ("args", "options", "text"),
    [
        ((0, (F4,), 1), {}, "Launcher: an argument is out of range"),
        ((1, (), 0), {}, "Launcher: an argument is out of range"),
        ((1, (F4,) * 33, 0), {}, "Launcher: an argument is out of range"),
        ((1, (F4,), 2), {}, "Launcher: an argument is out of range"),
        ((1, (F4,), 1), {"serial_below": 0}, "Launcher: an argument is out of range"),
        ((1, (F4,), 1), {"max_threads": 0}, "Launcher: an argument is out of range"),
        ((1, (F4,), 1), {"workspace": -1}, "Launcher: an argument is out of range"),
        (
            (1, (F4,), 1),
            {"captures": bytes(4097)},
            "Launcher: 4097 bytes of captures; limit: 4096",
        ),
        (
            (1, (F4,), 1),
            {"fixed": ((), (), ())},
            "Launcher: the shapes and strides in fixed do not fit",
        ),
        (
            (1, (F4,), 1),
            {"fixed": (((2,),), (2,), ((4, 4),))},
            "Launcher: the shapes and strides in fixed do not fit",
        ),
    ],
)
def test_launcher_refuses_a_wrong_specification(module, args, options, text):
    with pytest.raises(ValueError) as caught:
        module.Launcher(*args, **options)
    assert str(caught.value) == text


@MODULES
def test_launcher_keeps_no_reference_to_what_it_was_called_with(module):
    calls = 25_000 if module is _native else 500
    kernel = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: None)
    entry = ctypes.cast(kernel, c_void_p).value
    launch = module.Launcher(entry, (F4, F4), 1, captures=bytearray(8))
    x, out, misfit = np.ones(8, "f4"), np.ones(8, "f4"), np.ones(8, "f8")
    own = (x, out, misfit, launch)
    shared = (F4, misfit.dtype, True, False)  # what else is freed meanwhile had them too
    gc.collect()
    before = [sys.getrefcount(o) for o in (*own, *shared)]

    def work():
        for _ in range(calls):
            launch(x, out)
            launch(misfit, out)

    grown = growth(work)
    after = [sys.getrefcount(o) for o in (*own, *shared)]
    assert after[: len(own)] == before[: len(own)]
    assert all(a - b < calls / 2 for a, b in zip(after, before, strict=True))
    assert grown < calls


@MODULES
def test_launchers_are_freed_with_their_captures(module):
    values = bytearray(8)
    fixed = (((8,),), (8,), ((4,),))
    for _ in range(1000):
        module.Launcher(1, (F4,), 1, captures=values, fixed=fixed)
        with pytest.raises(ValueError):
            module.Launcher(1, (F4,), 1, captures=values, fixed=((), (), ()))
    gc.collect()
    values.append(1)  # a leaked launcher would pin it


# ----------------------------------------------------------------------------------------- call


@MODULES
def test_call_packs_any_shape_and_strides(module):
    kernel = Recorder(3, captures=3)
    done = module.call(
        kernel.entry, (2, 3, 4), (64, 128, 192), ((1, -2, 3), (0, 0, 0), (48, 16, 4)),
        b"abc", 100, 1, 1, False,
    )  # fmt: skip
    assert done is True
    (call,) = kernel.calls
    assert call["shape"] == (2, 3, 4)
    assert call["pointers"] == (64, 128, 192)
    assert call["strides"] == ((1, -2, 3), (0, 0, 0), (48, 16, 4))
    assert call["captures"] == b"abc"
    assert call["flags"] == 1
    assert call["aligned"]


@MODULES
def test_call_takes_no_dimensions_and_no_captures(module):
    kernel = Recorder(1)
    assert module.call(kernel.entry, (), (64,), ((),), None, 0, 0, 1, True) is True
    assert kernel.calls[0]["shape"] == ()


@MODULES
@pytest.mark.parametrize(
    "args",
    [
        (0, (2,), (64,), ((4,),), None, 0, 0, 1, False),
        (1, (2,), (64,), ((4,), (4,)), None, 0, 0, 1, False),
        (1, (2,), (64,), ((4, 4),), None, 0, 0, 1, False),
        (1, (2,), (64,), ((4,),), bytes(4097), 0, 0, 1, False),
    ],
)
def test_call_refuses_arguments_that_do_not_fit(module, args):
    with pytest.raises(ValueError, match=r"^call\(\): the arguments do not fit each other$"):
        module.call(*args)


@MODULES
def test_call_refuses_too_many_dimensions_and_operands(module):
    with pytest.raises(TypeError, match=r"^expected a tuple of at most 32 integers$"):
        module.call(1, (1,) * 33, (64,), ((4,) * 33,), None, 0, 0, 1, False)
    with pytest.raises(TypeError, match=r"^expected a tuple of at most 32 integers$"):
        module.call(1, (1,), (64,) * 33, ((4,),) * 33, None, 0, 0, 1, False)


# --------------------------------------------------------------------------------------- choice


@needs_extension
def test_the_setting_chooses_between_extension_and_twin():
    with override(native=True):
        assert native() is _native
        assert (native_status().kind, native_status().reason) == ("extension", "")
    with override(native=False):
        assert native() is _native_py
        status = native_status()
    assert status.kind == "python"
    assert status.reason == "the setting native is off (KERNELMILL_NATIVE=0)"


@pytest.mark.parametrize("switch", [True, False])
def test_the_number_of_threads_follows_the_settings(switch):
    with override(native=switch, num_threads=3):
        assert native().thread_count() == 3
    with override(native=switch, num_threads=None):
        assert native().thread_count() == len(os.sched_getaffinity(0))
    with override(native=switch, num_threads=4096):
        assert native().thread_count() == 512, "the pool's own limit"
    native()


def test_the_twin_serves_where_the_extension_is_absent():
    script = (
        "import sys\n"
        "sys.modules['kernelmill._native'] = None\n"
        "from kernelmill.runtime.native import native, native_status\n"
        "assert native().__name__ == 'kernelmill._native_py', native()\n"
        "status = native_status()\n"
        "assert status.kind == 'python', status\n"
        "assert status.reason.startswith('the extension is not there: '), status\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)


def test_the_settings_are_back_after_these_tests():
    native()
    assert native().thread_count() == get_config().threads()
