"""What cannot be carried out: the exact error for each, and nothing left behind."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelmill as km
from array_layouts import same
from kernelmill.runtime.devices import available_devices

X = np.arange(3.0)
ACCEPTED = "accepted: a NumPy array, a buffer, a CPU torch tensor or an object with __dlpack__"
SERVED = "served are bool, int8…uint64, float16, bfloat16, float32/64, complex64/128, structs"
DEVICES = f"devices here: {', '.join(available_devices())}; see `kernelmill doctor`"


def locked() -> np.ndarray:
    x = np.zeros(3)
    x.flags.writeable = False
    return x


def released() -> memoryview:
    view = memoryview(bytearray(3))
    view.release()
    return view


def same_value(v: Any) -> Any:
    return v


def total(a: Any, b: Any) -> Any:
    return a + b


def pair(v: Any) -> Any:
    return v, v


BASE = np.zeros(4)
# call, error class, message, hint
CALLS: dict[str, tuple[Any, type[Exception], str, str]] = {
    "a list": (
        lambda: km.transform([1, 2], same_value), km.ArgumentError,
        f"argument 'inputs' is a list; {ACCEPTED}", "pass `np.asarray(inputs)`",
    ),
    "a list among arrays": (
        lambda: km.transform((X, [1, 2, 3]), total), km.ArgumentError,
        f"argument 'inputs[1]' is a list; {ACCEPTED}", "pass `np.asarray(inputs[1])`",
    ),
    "None": (
        lambda: km.reduce(None), km.ArgumentError,
        f"argument 'x' is a NoneType; {ACCEPTED}", "pass `np.asarray(x)`",
    ),
    "no inputs": (
        lambda: km.transform((), same_value), km.ArgumentError,
        "`inputs` is empty; at least one array is needed", "",
    ),
    "no inputs of a reduction": (
        lambda: km.transform_reduce((), total), km.ArgumentError,
        "`inputs` is empty; at least one array is needed", "",
    ),
    "a list of arrays": (
        lambda: km.transform([X, X], total), km.ArgumentError,
        "`inputs` is a list of arrays", "several arrays are a tuple: pass `(a, b)`",
    ),
    "a tuple of arrays to reduce": (
        lambda: km.reduce((X, X)), km.ArgumentError,
        "a reduction takes one array, got 2",
        "`km.transform_reduce` takes several, with an operator that joins them",
    ),
    "Python scalars only": (
        lambda: km.transform((1, 2.5), total), km.ArgumentError,
        "all inputs are Python scalars", "pass one as `np.asarray(x)`",
    ),
    "a Python scalar to reduce": (
        lambda: km.reduce(3), km.ArgumentError,
        "all inputs are Python scalars", "pass one as `np.asarray(x)`",
    ),
    "a Python scalar beside edges": (
        lambda: km.histogram_range(2.5, [0, 1, 4]), km.ArgumentError,
        "all inputs are Python scalars", "pass one as `np.asarray(x)`",
    ),
    "segments of no dimensions": (
        lambda: km.segmented_reduce(np.array(3.0), [0, 1]), km.ShapeError,
        "`x` has shape (); expected: one dimension", "pass `x.reshape(-1)`",
    ),
    "a number as output": (
        lambda: km.reduce(X, out=3), km.ArgumentError,
        f"argument 'out' is a int; {ACCEPTED}", "pass `np.asarray(out)`",
    ),
    "None among outputs of segments": (
        lambda: km.segmented_scan(X, np.array([0, 3]), out=(np.zeros(3), None)), km.ArgumentError,
        "an iterator has a part of type NoneType, which is no array", "",
    ),
    "objects": (
        lambda: km.transform(np.array([1, None]), same_value), km.DTypeError,
        "argument 'inputs': dtype object is not served", SERVED,
    ),
    "strings": (
        lambda: km.reduce(np.array(["a"])), km.DTypeError,
        "argument 'x': dtype <U1 is not served", SERVED,
    ),
    "dates": (
        lambda: km.reduce(np.array(["2020"], "M8[D]")), km.DTypeError,
        "argument 'x': dtype datetime64[D] is not served", SERVED,
    ),
    "the other byte order": (
        lambda: km.transform(X.astype(X.dtype.newbyteorder()), same_value), km.DTypeError,
        f"argument 'inputs': dtype {X.dtype.newbyteorder().str} has the other byte order",
        "convert with `x.astype(x.dtype.newbyteorder('='))`",
    ),
    "a mask": (
        lambda: km.reduce(np.ma.masked_array([1, 2], [0, 1])), km.ArgumentError,
        "argument 'x' is a masked array; accepted: arrays without a mask",
        "pass `x.filled(...)` or `x.data`",
    ),
    "a closed buffer": (
        lambda: km.transform(released(), same_value), km.ArgumentError,
        ("argument 'inputs' is a memoryview that is closed or cannot be read: "
        "operation forbidden on released memoryview object"), "pass a buffer that is open",
    ),
    "shapes that do not broadcast": (
        lambda: km.transform((np.zeros((2, 3)), np.zeros((2, 4))), total), km.ShapeError,
        "shapes do not broadcast: `inputs[0]` has (2, 3), `inputs[1]` has (2, 4)",
        "extents must be equal, or 1, counted from the last axis",
    ),
    "shapes of three inputs": (
        lambda: km.transform_reduce((np.zeros(()), np.zeros(3), np.zeros((5, 4))),
                                    lambda a, b, c: a + b + c), km.ShapeError,
        "shapes do not broadcast: `inputs[1]` has (3,), `inputs[2]` has (5, 4)",
        "extents must be equal, or 1, counted from the last axis",
    ),
    "an output of another shape": (
        lambda: km.transform(X, same_value, out=np.zeros(4)), km.ShapeError,
        "`out` has shape (4,), the inputs broadcast to (3,)", "",
    ),
    "an output that is too small": (
        lambda: km.transform(np.zeros((2, 3)), same_value, out=np.zeros(3)), km.ShapeError,
        "`out` has shape (3,), the inputs broadcast to (2, 3)", "",
    ),
    "outputs of different shapes": (
        lambda: km.transform(X, pair, out=(np.zeros((2, 3)), np.zeros(3))), km.ShapeError,
        "`out[1]` has shape (3,), `out[0]` has (2, 3)", "all results of a call have one shape",
    ),
    "an output of a reduction": (
        lambda: km.reduce(np.ones((3, 4)), axis=0, out=np.zeros(3)), km.ShapeError,
        "`out` has shape (3,), the result has (4,)", "",
    ),
    "a read-only output": (
        lambda: km.transform(X, same_value, out=locked()), km.ArgumentError,
        "argument 'out' is read-only; an output is written",
        "pass an array that owns its memory, for example a copy",
    ),
    "a read-only output among several": (
        lambda: km.transform(X, pair, out=(np.zeros(3), locked())), km.ArgumentError,
        "argument 'out[1]' is read-only; an output is written",
        "pass an array that owns its memory, for example a copy",
    ),
    "a read-only output of a reduction": (
        lambda: km.reduce(np.ones((2, 3)), axis=0, out=locked()), km.ArgumentError,
        "argument 'out' is read-only; an output is written",
        "pass an array that owns its memory, for example a copy",
    ),
    "bytes as output": (
        lambda: km.transform(b"abc", same_value, out=bytes(3)), km.ArgumentError,
        "argument 'out' is read-only; an output is written",
        "pass an array that owns its memory, for example a copy",
    ),
    "an output whose elements share memory": (
        lambda: km.transform(X, same_value, out=np.lib.stride_tricks.as_strided(X, (3,), (0,))),
        km.ArgumentError,
        ("argument 'out' has shape (3,) and strides (0,): several of its elements share memory; "
        "an output needs a place for each"), "pass a contiguous array of that shape",
    ),
    "outputs that overlap": (
        lambda: km.transform(X, pair, out=(BASE[:3], BASE[1:])), km.ArgumentError,
        "`out[0]` and `out[1]` overlap", "",
    ),
    "an output of another kind": (
        lambda: km.transform(X, same_value, out=np.zeros(3, int)), km.DTypeError,
        "same_value returns float64, `out` has int64: not of the same kind",
        "convert in the operator, for example `np.int32(...)`",
    ),
    "an output of a reduction of another kind": (
        lambda: km.reduce(X, out=np.zeros((), int)), km.DTypeError,
        "add gives float64, `out` has int64: not of the same kind",
        "pass an `out` of that kind, or `dtype=`",
    ),
    "too few outputs": (
        lambda: km.transform(X, pair, out=np.zeros(3)), km.ArgumentError,
        "pair has 2 results, `out` has 1 arrays", "",
    ),
    "too many outputs": (
        lambda: km.transform(X, same_value, out=(np.zeros(3), np.zeros(3))), km.ArgumentError,
        "same_value has 1 results, `out` has 2 arrays", "",
    ),
    "too many outputs of a reduction": (
        lambda: km.reduce(X, out=(np.zeros(()), np.zeros(()))), km.ArgumentError,
        "`out` has 2 arrays for 1 operators", "",
    ),
    "a list of outputs": (
        lambda: km.reduce(X, out=[0.0]), km.ArgumentError,
        f"argument 'out' is a list; {ACCEPTED}", "pass `np.asarray(out)`",
    ),
    "a tuple in a tuple": (
        lambda: km.transform(X, lambda v: (v, (v, v))), km.OperatorError,
        "lambda returns a tuple inside a tuple", "return one flat tuple",
    ),
    "a tuple in a tuple to reduce": (
        lambda: km.transform_reduce(X, lambda v: (v, (v, v)), (total, total)), km.OperatorError,
        "lambda returns a tuple inside a tuple", "return one flat tuple",
    ),
    "a tuple of one": (
        lambda: km.transform(X, lambda v: (v,)), km.OperatorError,
        "lambda returns a tuple of 1; several results are two or more", "return the value itself",
    ),
    "an empty tuple": (
        lambda: km.transform(X, lambda v: ()), km.OperatorError,
        "lambda returns a tuple of 0; several results are two or more", "return the value itself",
    ),
    "no operator": (
        lambda: km.transform(X, None), km.ArgumentError,
        "`op` expects a function or a km.op, got None",
        "pass a lambda, a def function, or one of km.add, km.minimum, km.maximum, …",
    ),
    "no transform": (
        lambda: km.transform_reduce(X, 3), km.ArgumentError,
        "`transform` expects a function or a km.op, got 3",
        "pass a lambda, a def function, or one of km.add, km.minimum, km.maximum, …",
    ),
    "no operators": (
        lambda: km.reduce(X, ()), km.ArgumentError,
        "`op` is an empty tuple; a reduction takes at least one operator", "",
    ),
    "as many starts as operators": (
        lambda: km.reduce(X, (km.add, km.maximum), init=(1, 2, 3)), km.ArgumentError,
        "`init` has 3 values for 2 operators", "",
    ),
    "as many values as operators": (
        lambda: km.transform_reduce(X, lambda v: (v, v, v), (total, total)), km.ArgumentError,
        "`transform` returns 3 values for 2 operators",
        "return one value, or one for each operator",
    ),
    "several arrays to reduce": (
        lambda: km.reduce.plan(X)(X, X), km.ArgumentError,
        "a reduction takes one array, got 2",
        "`km.transform_reduce` takes several, with an operator that joins them",
    ),
    "a result that cannot accumulate": (
        lambda: km.reduce(np.ones(3, "i1"), pair_of), km.DTypeError,
        "pair_of of two int8 gives (int8, int8), which cannot be combined with int8",
        ("the result of an operator must be of the type of its arguments; "
        "return the struct class, or pass `dtype=`"),
    ),
    "a dtype that is none": (
        lambda: km.reduce(X, dtype=object), km.DTypeError,
        "dtype object is not served", SERVED,
    ),
    "an operator that is no function": (
        lambda: km.op(3), km.ArgumentError, "op() expects a function, got 3", "",
    ),
    "a device that is unknown": (
        lambda: km.set_default_device("abacus"), km.DeviceError,
        "device 'abacus' cannot be used: there is no such device",
        DEVICES,
    ),
}  # fmt: skip


def pair_of(a: Any, b: Any) -> Any:
    return a, b


@pytest.mark.not_on("cuda")  # what is said of device arrays is in tests/cuda/test_bad_input.py
@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("case", CALLS)
def test_the_exact_text(case: str) -> None:
    call, error, message, hint = CALLS[case]
    for _ in range(2):  # the second time the quick path may have learned something
        with pytest.raises(error) as caught:
            call()
        assert type(caught.value) is error
        assert caught.value.message == message
        assert caught.value.hint == hint


def nested(v):
    if v > 3:
        return v, (v, 1)
    return v, (2, v)


class Pairs:
    def __call__(self, v):
        return (v, (v, v))


@pytest.mark.not_on("cuda")
@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("call", "line", "marked"),
    [
        (lambda: km.transform(X, nested), "return v, (v, 1)", "return v, (v, 1)"),
        (lambda: km.transform(X, Pairs()), "return (v, (v, v))", "return (v, (v, v))"),
        (lambda: km.transform(X, functools.partial(lambda a, v: (a, (v, v)), 3)),
         "functools.partial(", "(a, (v, v))"),
        (lambda: km.transform(km.iterators.reverse(X), lambda v: (v, (v, v))), "reverse(X)",
         "(v, (v, v))"),
        (lambda: km.transform_reduce(X, lambda v: (v, (v, v)), (total, total)), "transform_reduce",
         "(v, (v, v))"),
        (lambda: km.transform(X, lambda v: (v,)), "lambda v: (v,)", "(v,)"),
    ],
)  # fmt: skip
def test_results_that_no_array_stores_are_shown_where_they_stand(
    call: Callable[[], Any], line: str, marked: str
) -> None:
    with pytest.raises(km.OperatorError) as caught:
        call()
    span = caught.value.span
    assert span is not None
    assert line in span.text
    assert span.text[span.column : span.end_column] == marked


@pytest.mark.not_on("cuda")
@pytest.mark.usefixtures("device")
def test_the_quick_path_refuses_what_the_general_one_does() -> None:
    op = lambda v: v + 1
    out = np.zeros(3)
    for _ in range(3):
        km.transform(X, op, out=out)
        km.reduce(X, out=np.zeros(()))
    with pytest.raises(km.ArgumentError, match="'out' is read-only"):
        km.transform(X, op, out=locked())
    with pytest.raises(km.ShapeError, match=r"`out` has shape \(4,\)"):
        km.transform(X, op, out=np.zeros(4))
    with pytest.raises(km.ShapeError, match=r"`out` has shape \(1,\)"):
        km.reduce(X, out=np.zeros(1))
    same(km.transform(np.arange(6.0)[::2], op, out=out), np.array([1.0, 3, 5]))
    same(km.transform(X, op, out=np.zeros((2, 3))), np.array([[1.0, 2, 3]] * 2))


# ----------------------------------------------------------------------------- operators


def refused(op: Any, *arrays: Any) -> list[str]:
    """The lines of the refusal, without the file."""
    with pytest.raises(km.OperatorError) as caught:
        km.transform(arrays or (X,), op)
    return [line for line in str(caught.value).splitlines() if not line.startswith("  File")]


@pytest.mark.usefixtures("device")
def test_the_wrong_number_of_arguments() -> None:
    lines = refused(lambda a, b: a + b)
    assert lines[0] == "`<lambda>` takes 2 arguments, got 1: missing `b`"
    assert lines[-1].startswith("hint: ")


def test_a_refusal_shows_the_line_with_a_caret() -> None:
    def op(v: Any) -> Any:
        table = {0: 1.0}
        return table[v]

    lines = refused(op)
    assert lines[0] == "a dict is not part of the operator language"
    assert lines[1].strip() == "table = {0: 1.0}"
    assert lines[2].index("^") == lines[1].index("{0: 1.0}")
    assert lines[2].count("^") == len("{0: 1.0}")
    assert lines[4].startswith("hint: use a struct")


def test_an_operator_that_raises() -> None:
    def op(v: Any) -> Any:
        if v < 0:
            raise ValueError("negative")
        return v

    lines = refused(op)
    assert lines[0] == "`raise` is not part of the operator language"
    assert lines[-1] == "hint: return a marker value such as math.nan, and check the result"


@pytest.mark.usefixtures("device")
def test_what_raises_in_python_has_a_value_here() -> None:
    same(km.transform(np.array([7, -7]), lambda v: v // 0), np.array([0, 0]))
    with np.errstate(all="ignore"):
        same(km.transform(X, lambda v: 1 / v), 1 / X)
    same(km.transform(np.array([2, 3]), lambda v: v**-1), np.array([0, 0]))


def test_names_that_are_not_there() -> None:
    assert refused(lambda v: nowhere(v))[0] == "name `nowhere` is not defined"  # noqa: F821


def test_fields_that_are_not_there() -> None:
    x = np.zeros(2, [("a", "f4")])
    lines = refused(lambda p: p.b, x)
    assert lines[0] == "struct Struct has no field `b`"
    assert lines[-1] == "hint: its fields are a"


def test_types_without_a_common_one() -> None:
    x = np.zeros(2, [("a", "f4")])
    assert refused(lambda p, q: p + q, x, np.zeros(2))[0].startswith("`+` is not defined for")


# ----------------------------------------------------------------------------- compilers

CALL = """
import numpy as np, kernelmill as km
try:
    print(km.transform(np.arange(3.0), lambda v: v + 17).tolist())
except km.KernelmillError as error:
    print(type(error).__name__)
    print(error)
"""
GXX = shutil.which("g++") or shutil.which("c++") or ""


def child(cache: Path, text: str = CALL, **settings: str) -> str:
    """What a new process prints that has an empty cache and these settings."""
    made = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(text)],
        env={**os.environ, "KERNELMILL_CACHE_DIR": str(cache), **settings},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout


def entries(cache: Path) -> list[str]:
    """Binaries and unfinished work in a cache."""
    return [str(p) for p in cache.rglob("*") if p.suffix == ".so" or ".build-" in p.name]


def compiler(path: Path, body: str) -> str:
    """A compiler that is g++ but for kernels, for which it does `body`."""
    path.write_text(f'#!/bin/sh\ncase "$*" in *kernel.cpp*) {body};; esac\nexec {GXX} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_no_compiler(tmp_path: Path) -> None:
    text = """
    import sys
    sys.modules["ziglang"] = None  # as if the wheel was not installed
    import importlib.util
    find = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *a: None if name == "ziglang" else find(name, *a)
    """
    empty = tmp_path / "bin"
    empty.mkdir()
    printed = child(tmp_path / "cache", textwrap.dedent(text) + CALL, PATH=str(empty))
    assert printed.splitlines() == [
        "ToolchainError",
        "no usable C++ compiler was found; tried:",
        "  c++: it is not on PATH",
        "  g++: it is not on PATH",
        "  clang++: it is not on PATH",
        "  ziglang: the wheel is not installed",
        "",
        (
            "hint: install a C++ compiler: `apt install g++` (Debian, Ubuntu), "
            "`dnf install gcc-c++` (Fedora), or, with no rights on the machine, "
            "`pip install kernelmill[zig]`"
        ),
    ]
    assert entries(tmp_path) == []


def test_a_compiler_that_is_not_there(tmp_path: Path) -> None:
    assert child(tmp_path, KERNELMILL_CXX="/nowhere/g++").splitlines() == [
        "ToolchainError",
        "KERNELMILL_CXX='/nowhere/g++' cannot be used: there is no such file",
        "",
        "hint: name a working g++, clang++ or zig, or unset KERNELMILL_CXX to look for one",
    ]
    assert entries(tmp_path) == []


@pytest.mark.skipif(not GXX, reason="needs g++")
def test_a_compiler_that_fails(tmp_path: Path) -> None:
    made = compiler(tmp_path / "g++", 'echo "kernel.cpp:1:1: error: not today" >&2; exit 3')
    lines = child(tmp_path / "cache", KERNELMILL_CXX=made).splitlines()
    assert lines[0] == "RefusedError"
    assert "failed on kernel.cpp with status 3: kernel.cpp line 1, column 1: not today" in lines[1]
    assert "error: not today" in lines[-1]
    assert entries(tmp_path) == []


@pytest.mark.skipif(not GXX, reason="needs g++")
def test_a_compiler_that_hangs(tmp_path: Path) -> None:
    made = compiler(tmp_path / "g++", "sleep 300")
    start = time.monotonic()
    lines = child(tmp_path / "cache", KERNELMILL_CXX=made, KERNELMILL_CXX_TIMEOUT="1").splitlines()
    assert time.monotonic() - start < 250  # the compiler would have slept for 300 s
    assert lines == [
        "CompileError",
        f"{lines[1].partition(' did')[0]} did not finish kernel.cpp within the limit of 1 s",
        "",
        "hint: a larger limit, in seconds, can be set in KERNELMILL_CXX_TIMEOUT",
    ]
    assert entries(tmp_path) == []


@pytest.mark.skipif(not GXX, reason="needs g++")
def test_a_compiler_that_makes_nothing_loadable(tmp_path: Path) -> None:
    text = 'while [ $# -gt 0 ]; do [ "$1" = -o ] && echo junk > "$2"; shift; done; exit 0'
    made = compiler(tmp_path / "g++", text)
    lines = child(tmp_path / "cache", KERNELMILL_CXX=made).splitlines()
    assert lines[0] == "RefusedError"
    assert lines[1].endswith(
        "reported success on kernel.cpp but what it made is not a shared library: "
        "it begins with b'junk', not with b'\\x7fELF'"
    )
    assert entries(tmp_path) == []


def test_an_instruction_set_that_is_unknown(tmp_path: Path) -> None:
    lines = child(tmp_path, KERNELMILL_MARCH="pentium99").splitlines()
    assert lines[0] == "RefusedError"
    assert "pentium99" in lines[1]
    assert any(line.startswith("hint: KERNELMILL_MARCH names an instruction") for line in lines)
    assert entries(tmp_path) == []


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("KERNELMILL_NUM_THREADS", "0", "accepted: a whole number from 1 to 4096"),
        ("KERNELMILL_DEVICE", "cuda:97", "device 'cuda:97' cannot be used"),
    ],
)
def test_settings_that_cannot_be_used(tmp_path: Path, variable: str, value: str, text: str) -> None:
    assert text in child(tmp_path, **{variable: value})


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**70, -(2**200), 10**38])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_python_integers_beyond_64_bits_meet_floats_as_floats(value, dtype):
    x = np.arange(3, dtype=dtype)
    with np.errstate(over="ignore"):
        wanted = x + value
    assert np.array_equal(km.transform((x, value), lambda a, b: a + b), wanted)


def test_python_integers_beyond_every_type_are_refused():
    x = np.arange(3, dtype=np.float64)
    with pytest.raises(OverflowError, match=r"Python integer of 1329 bits out of bounds for fl"):
        km.transform((x, 10**400), lambda a, b: a + b)
    with pytest.raises(OverflowError, match="out of bounds for uint64"):
        km.transform((x.astype("u8"), 2**64), lambda a, b: a + b)
    with pytest.raises(OverflowError, match="out of bounds for int64"):
        km.transform((x, 2**64), lambda a, b: a + (b // 3))


def test_a_large_python_integer_in_a_reduction():
    x = np.arange(3, dtype=np.float64)
    assert km.transform_reduce((x, 2**70), lambda a, b: a * b, km.add) == 3 * 2.0**70
