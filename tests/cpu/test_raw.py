"""Operators in C++ text: values on the CPU, state, calls from Python operators, what is refused."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import kernelmill as km
from kernelmill import events
from kernelmill.compiler.op import as_op, root_of, specialize
from kernelmill.errors import (
    ArgumentError,
    CompileError,
    DTypeError,
    NotImplementedHere,
    OperatorError,
)

X = np.arange(6, dtype=np.float32)
TWICE = "__device__ float twice(float x) { return 2 * x; }"
LOOK = "__device__ float look(int i, const float* table, double s) { return table[i] * (float)s; }"


def twice(**more):
    return km.RawOp(**{"cpp": TWICE, "arguments": (km.float32,), "result": km.float32, **more})


def test_the_last_function_is_the_operator():
    axpy = km.RawOp(
        cpp="""
        // not this { one(float x)
        #define TWO 2.0f
        struct Pair { float a; float sum(float b) const { return a + b; } };
        __device__ static float scaled(float v) { return TWO * v; }
        __device__ __forceinline__ float axpy(float a, float b)
        {
          const char brace = '}'; const char* text = "{";
          return brace == text[1] ? 0 : Pair{scaled(a)}.sum(b);
        }
        """,
        arguments=(km.float32, km.float32),
        result=km.float32,
    )
    assert repr(axpy) == "<kernelmill.RawOp axpy(float32, float32) -> float32>"
    assert np.array_equal(km.transform((X, 3 * X), axpy), 5 * X)
    other = km.RawOp(
        cpp=TWICE + "float thrice(float x) { return 3 * x; }",
        arguments=("float32",),
        result="float32",
        name="twice",
    )
    assert np.array_equal(km.transform(X, other), 2 * X)


def test_reductions_and_what_they_obey():
    text = "float larger(float a, float b) { return a > b ? a : b; }"
    types = {"arguments": (km.float32, km.float32), "result": km.float32}
    larger = km.RawOp(cpp=text, **types, commutative=True, identity=-np.inf)
    assert km.reduce(X, larger) == 5
    assert km.reduce(X[:0], larger) == -np.inf
    first = km.RawOp(cpp="float first(float a, float b) { return a; }", **types)
    assert km.reduce(np.arange(100_000, dtype=np.float32) + 7, first) == 7
    assert km.transform_reduce(X, twice(), larger) == 10
    assert km.reduce(X, km.op(first, commutative=True)) in X
    assert root_of(larger) != root_of(km.RawOp(cpp=text, **types))


def test_structs_by_template():
    pair = km.struct({"value": km.float32, "at": km.int32}, name="Pair")
    largest = km.RawOp(
        cpp="template <class P> __device__ P largest(P a, P b) { return b.value > a.value ? b : a; }",
        arguments=(pair, pair),
        result=pair,
    )
    pairs = np.zeros(9, pair.dtype)
    pairs["value"], pairs["at"] = np.sin(np.arange(9)), np.arange(9)
    found = km.reduce(pairs, largest)
    assert found["at"] == np.argmax(pairs["value"]) == 8


def test_half_precision_is_the_types_of_the_library():
    text = "__device__ km::f16 plus(km::f16 x) { return km::f16((float)x + 1.0f); }"
    plus = km.RawOp(cpp=text, arguments=(km.float16,), result=km.float16)
    x = np.float16([0.1, 2048, -1])
    assert np.array_equal(km.transform(x, plus), (x.astype(np.float32) + 1).astype(np.float16))


def test_functions_that_take_pointers():
    text = "void sum(void* a, void* b, void* r) { *(float*)r = *(float*)a + 2 * *(float*)b; }"
    types = {"arguments": (km.float32, km.float32), "result": km.float32}
    total = km.RawOp(cpp=text, **types, by_pointer=True)
    assert np.array_equal(km.transform((X, X), total), 3 * X)
    with pytest.raises(ArgumentError) as caught:
        km.RawOp(cpp=text, **types, by_pointer=True, state=2)
    wanted = "`state` is 2; that of an operator which is called by pointer is bytes"
    assert caught.value.message == wanted


def test_a_state_of_bytes_is_taken_by_its_first_pointer():
    text = (
        "void f(void* s, void* x, void* r) "
        "{ *(float*)r = *(float*)x * ((float*)s)[0] + ((float*)s)[2]; }"
    )
    types = {"arguments": (km.float32,), "result": km.float32}
    state = np.float32([2, 9, 5]).tobytes()
    op = km.RawOp(cpp=text, **types, by_pointer=True, state=state)
    assert np.array_equal(km.transform(X, op), 2 * X + 5)
    assert np.array_equal(km.transform(X, op.with_state(np.float32([1, 0, 3]).tobytes())), X + 3)
    with pytest.raises(ArgumentError, match="the state of f is bytes of another number"):
        op.with_state(bytes(20))
    with pytest.raises(ArgumentError, match="`linked` is LTO-IR that `ltoir` calls"):
        km.RawOp(cpp=text, **types, by_pointer=True, linked=[b"x"])


# ----------------------------------------------------------------------------- state


def test_a_state_of_scalars_and_arrays():
    table = np.float32([10, 20, 30])
    look = km.RawOp(cpp=LOOK, arguments=(km.int32,), result=km.float32, state=(table, 2.0))
    places = np.int32([2, 0, 1])
    assert km.transform(places, look).tolist() == [60, 20, 40]
    table[0] = 11  # the array itself is read, not a copy
    assert km.transform(places, look).tolist() == [60, 22, 40]
    with events.listen("compile") as compiled:
        other = look.with_state((table + 1, 1))
        assert km.transform(places, other).tolist() == [31, 12, 21]
        assert km.transform(places, look.with_state((table, 3))).tolist() == [90, 33, 60]
    assert not compiled
    for _ in range(3):  # the short way of calls, which listeners turn off, reads the state too
        assert km.transform(places, look).tolist() == [60, 22, 40]
        assert km.transform(places, other).tolist() == [31, 12, 21]
    plan = km.transform.plan(places, look)
    assert plan(places).tolist() == plan(places).tolist() == [60, 22, 40]
    assert specialize(as_op(look), (km.int32,)) is specialize(as_op(other), (km.int32,))


def test_a_state_lives_as_long_as_its_operator():
    class Array(np.ndarray):
        """An array that can be watched."""

    state = np.float32([5]).view(Array)
    watched = weakref.ref(state)
    look = km.RawOp(cpp=LOOK, arguments=(km.int32,), result=km.float32, state=(state, 1.0))
    del state
    gc.collect()
    assert watched() is not None
    assert km.transform(np.int32([0]), look).tolist() == [5]


def test_a_tensor_is_a_state():
    torch = pytest.importorskip("torch")
    look = km.RawOp(
        cpp=LOOK, arguments=(km.int32,), result=km.float32, state=(torch.tensor([1.5, 2.5]), 2)
    )
    assert km.transform(np.int32([1, 0]), look).tolist() == [5, 3]
    with pytest.raises(ArgumentError, match="state 0 is an array that is not C-contiguous"):
        look.with_state((torch.zeros(4)[::2], 2))


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ((1.0,), "the state of look has 2 values; 1 were given"),
        ((np.zeros(3), 1.0), "the state of look is of other types than the one before"),
        (("x", 1.0), "state 0 is a str; expected: a number, or an array of NumPy, CuPy or torch"),
        ((np.zeros((4, 4), np.float32)[:, :2], 1), "state 0 is an array that is not C-contiguous"),
        ((np.zeros(4, np.float32)[::2], 1), "state 0 is an array that is not C-contiguous"),
    ],
)
def test_states_that_are_refused(state, text):
    table = np.zeros(3, np.float32)
    look = km.RawOp(cpp=LOOK, arguments=(km.int32,), result=km.float32, state=(table, 1.0))
    with pytest.raises(ArgumentError) as caught:
        look.with_state(state)
    assert caught.value.message.startswith(text)


# ----------------------------------------------------------------------------- in operators


def test_a_python_operator_calls_it():
    double, k = twice(), 3
    assert np.array_equal(km.transform(X, lambda v: double(v) + k), 2 * X + 3)
    assert np.array_equal(km.transform(X, lambda v: double(double(1) + v)), 2 * (2 + X))
    scale = twice(
        cpp="__device__ float scale(float x, float by) { return by * x; }", state=np.float32(4)
    )
    apply = lambda v: scale(v) - double(v)
    assert np.array_equal(km.transform(X, apply), 2 * X)
    scale = scale.with_state(5)
    assert np.array_equal(km.transform(X, apply), 3 * X)


def test_a_branch_that_is_not_taken_reads_nothing():
    """The address would be none: a select that computes both sides would end the process."""
    text = "__device__ float peek(long at) { return *(const float*)at; }"
    peek = km.RawOp(cpp=text, arguments=(km.int64,), result=km.float32)
    value = np.float32([42])
    at = np.array([0, value.ctypes.data], np.int64)
    assert km.transform(at, lambda a: peek(a) if a != 0 else np.float32(-1)).tolist() == [-1, 42]


def test_arguments_are_converted_where_nothing_is_lost():
    assert km.transform(np.int8([1, 2]), twice()).tolist() == [2, 4]
    assert km.transform(np.float16([1.5]), twice()).tolist() == [3]
    with pytest.raises(OperatorError) as caught:
        km.transform(np.zeros(3), twice())
    assert caught.value.message == "argument 0 of `twice` is float32; it is given float64"
    assert caught.value.hint == "convert the value, or declare the operator for its type"
    with pytest.raises(OperatorError, match="argument 0 of `twice` is float32; it is given Struct"):
        km.transform(np.zeros(3, km.struct({"a": km.float32}, name="Pair").dtype), twice())


def test_too_many_arguments_are_refused():
    with pytest.raises(OperatorError) as caught:
        km.transform((X, X), twice())
    assert caught.value.message == "`twice` takes 1 argument, got 2"
    assert caught.value.hint == "it is declared with arguments=(float32)"
    double = twice()
    with pytest.raises(OperatorError, match="`twice` takes 1 argument, got arguments by name"):
        km.transform(X, lambda v: double(x=v))


# ----------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cpp": None}, "RawOp takes `cpp` or `ltoir`; neither was given"),
        ({"ltoir": b"x"}, "RawOp takes `cpp` or `ltoir`; both was given"),
        ({"cpp": "int x;"}, "`cpp` defines no function"),
        ({"name": "thrice"}, "`cpp` defines no function 'thrice'"),
        ({"name": "a b"}, "`name` is 'a b'; expected: the name of a function"),
        ({"cpp": None, "ltoir": b"x"}, "`name` is missing: LTO-IR does not say which"),
        ({"cpp": None, "ltoir": 3, "name": "f"}, "`ltoir` is a int; expected: bytes, or object"),
        ({"arguments": km.float32}, "`arguments` is kernelmill.float32; expected: a type for each"),
        ({"state": 1 << 64}, "state 0 is 18446744073709551616, which int64 does not hold"),
    ],
)
def test_operators_that_are_none(given, text):
    with pytest.raises(ArgumentError) as caught:
        twice(**given)
    assert caught.value.message.startswith(text)


def test_types_that_are_not_served():
    with pytest.raises(DTypeError):
        twice(arguments=(np.dtype("U4"),))
    with pytest.raises(DTypeError, match="state 0: "):
        twice(state=np.zeros(2, np.longdouble))


def test_atomic_functions_of_cuda(place):
    counted = km.RawOp(
        cpp="""
        __device__ int counted(int x, int* counts, float* sum, unsigned long* words) {
          atomicAdd(counts, 1);
          atomicSub(&counts[1], x);
          atomicMin(counts + 2, x);
          atomicMax_block(counts + 3, x);
          atomicInc((unsigned*)counts + 4, 6u);
          atomicDec((unsigned*)counts + 5, 6u);
          atomicAdd_system(sum, x);
          atomicOr(words, 1 << x % 8);
          atomicXor(words + 1, 3);
          atomicAnd(words + 2, ~(1 << x % 8));
          if (x == 500) atomicExch(words + 3, 7);
          return atomicCAS(counts + 6, 0, 9);
        }
        """,
        arguments=(km.int32,),
        result=km.int32,
        state=(
            counts := np.array([0, 0, 99, 0, 0, 0, 0], np.int32),
            total := np.zeros(1, np.float32),
            words := np.array([0, 0, 0xFFF, 0], np.uint64),
        ),
    )
    x = np.arange(1, 1002, dtype=np.int32)
    before = km.transform(x, counted)
    assert sorted(before.tolist()) == [0] + [9] * 1000
    assert counts.tolist() == [1001, -501501, 1, 1001, 0, 0, 9]
    assert total[0] == 501501
    assert words.tolist() == [0xFF, 3, 0xF00, 7]


def test_what_the_compiler_refuses_names_the_line_of_the_text():
    wrong = twice(cpp="// first\n__device__ float twice(float x) { return 2 * y; }")
    with pytest.raises(CompileError) as caught:
        km.transform(X, wrong)
    assert "twice.cpp" in str(caught.value)
    assert "'y' was not declared" in str(caught.value) or "undeclared" in str(caught.value)


def test_it_cannot_be_called_and_ltoir_does_not_run_on_the_cpu():
    with pytest.raises(NotImplementedHere) as caught:
        twice()(1.0)
    assert caught.value.message == (
        "twice is a raw operator: it has no Python form that could be called"
    )
    with pytest.raises(NotImplementedHere, match="LTO-IR, which runs on GPUs alone") as caught:
        km.transform(X, twice(cpp=None, ltoir=b"x", name="twice"))
    assert caught.value.hint == "give its C++ text for other devices: km.RawOp(cpp=…)"
