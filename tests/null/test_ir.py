"""The IR: what `verify` accepts and refuses, typing rules, folding, and what the builder does."""

from __future__ import annotations

import itertools
import math
import operator
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from kernelmill.compiler import ir
from kernelmill.compiler.builder import (
    FunctionBuilder,
    convert,
    join,
    weak_type_of,
)
from kernelmill.compiler.intrinsics import OPERATIONS, SPELLINGS, OperationError
from kernelmill.compiler.ir_verify import VerifyError, verify
from kernelmill.dtypes import (
    SCALARS,
    DType,
    TupleType,
    Type,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    promote,
    uint8,
    uint64,
    weak_complex,
    weak_float,
    weak_int,
)
from kernelmill.errors import DTypeError, KernelmillError, OperatorError, ScalarOverflowError
from kernelmill.structs import struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.compiler.ir import Expr, Stmt

EVERY: tuple[Type, ...] = (*SCALARS, weak_int, weak_float, weak_complex)
PAIR = struct({"a": int32, "b": float32}, name="Pair").__kernelmill_struct__
ONE, YES = ir.Const(1, int32), ir.Const(value=True, type=bool_)
ZERO = ir.Const(0, weak_int)


def function(
    body: Sequence[Stmt],
    *,
    result: Type = int32,
    params: tuple[tuple[str, Type], ...] = (("p", int32),),
    names: tuple[tuple[str, Type], ...] = (("x", int32), ("i", weak_int)),
) -> ir.Function:
    return ir.Function("f", params, result, names, tuple(body))


# ----------------------------------------------------------------------------- verify

X, P = ir.Local("x", int32), ir.Param(0, int32)
SET_X = ir.Assign("x", ONE)
RETURN = ir.Return(ONE)
CALLEE = ir.Function("g", (("a", int32),), int32, (), (ir.Return(ir.Param(0, int32)),))
PAIR_PARAM: dict[str, Any] = {"params": (("p", PAIR),)}
TUPLE = ir.MakeTuple((ONE, YES), TupleType((int32, bool_)))

GOOD: dict[str, ir.Function] = {
    "both branches set": function([ir.If(YES, (SET_X,), (SET_X,)), ir.Return(X)]),
    "other branch returns": function([ir.If(YES, (SET_X,), (RETURN,)), ir.Return(X)]),
    "both branches return": function([ir.If(YES, (RETURN,), (RETURN,))]),
    "endless loop": function([ir.While(YES, (ir.If(YES, (RETURN,)),))]),
    "loop variable": function(
        [ir.For("i", ZERO, ZERO, ZERO, (ir.Assign("i", ir.Local("i", weak_int)),)), RETURN]
    ),
    "break and continue": function(
        [ir.While(YES, (ir.If(YES, (ir.Break(),), (ir.Continue(),)),)), RETURN]
    ),
    "field": function([ir.Return(ir.GetField(ir.Param(0, PAIR), "a", int32))], **PAIR_PARAM),
    "item": function([ir.Return(ir.GetItem(TUPLE, 0, int32))]),
    "call": function([ir.Return(ir.Call("g", (P,), int32))]),
}

BAD: dict[str, tuple[ir.Function, str]] = {
    "no return": (function([SET_X]), "f: control reaches the end"),
    "one branch returns": (
        function([ir.If(YES, (RETURN,))]), "f: control reaches the end",
    ),
    "loop may end": (
        function([ir.While(YES, (ir.If(YES, (ir.Break(),)),))]), "f: control reaches the end",
    ),
    "duplicate local": (
        function([RETURN], names=(("x", int32), ("x", int8))), "f: duplicate local",
    ),
    "read too early": (function([ir.Return(X)]), "local x is read before it is set"),
    "set on one path": (
        function([ir.If(YES, (SET_X,)), ir.Return(X)]), "local x is read before it is set",
    ),
    "set in a loop": (
        function([ir.While(ir.Apply("lt", (P, ONE), bool_), (SET_X,)), ir.Return(X)]),
        "local x is read before it is set",
    ),
    "loop variable behind": (
        function([ir.For("i", ZERO, ZERO, ZERO, ()), ir.Assign("i", ir.Local("i", weak_int)),
                  RETURN]),
        "local i is read before it is set",
    ),
    "behind a jump": (function([RETURN, SET_X]), "statements behind a jump"),
    "break outside": (
        function([ir.Break()]), "break or continue outside a loop",
    ),
    "continue outside": (
        function([ir.If(YES, (ir.Continue(),)), RETURN]), "break or continue outside a loop",
    ),
    "type of assignment": (
        function([ir.Assign("x", YES), RETURN]), "assignment to x: expects int32, got bool",
    ),
    "unknown local": (
        function([ir.Assign("y", ONE), RETURN]), "assignment to y: expects None, got int32",
    ),
    "type of return": (function([ir.Return(YES)]), "return: expects int32, got bool"),
    "condition": (function([ir.If(ONE, (RETURN,)), RETURN]), "condition: expects bool, got int32"),
    "loop condition": (
        function([ir.While(ONE, ()), RETURN]), "condition: expects bool, got int32",
    ),
    "range bound": (
        function([ir.For("i", ONE, ZERO, ZERO, ()), RETURN]),
        "range bound: expects weak int, got int32",
    ),
    "loop variable type": (
        function([ir.For("x", ZERO, ZERO, ZERO, ()), RETURN]),
        "loop variable x: expects int32, got weak int",
    ),
    "parameter": (
        function([ir.Return(ir.Param(1, int32))]), "parameter 1: expects None, got int32",
    ),
    "capture": (
        function([ir.Return(ir.Capture(0, int32))]), "capture 0: expects None, got int32",
    ),
    "constant": (
        function([ir.Return(ir.Const(1, PAIR))], result=PAIR), "constant 1 of type Pair",
    ),
    "operation": (
        function([ir.Return(ir.Apply("plus", (ONE,), int32))]), "unknown operation plus",
    ),
    "operand types": (
        function([ir.Return(ir.Apply("add", (ONE, ir.Const(1, int8)), int32))]),
        "add wants (kernelmill.int32, kernelmill.int32), got (kernelmill.int32, kernelmill.int8)",
    ),
    "refused operands": (
        function([ir.Return(ir.Apply("sub", (YES, YES), bool_))], result=bool_),
        "sub(kernelmill.bool, kernelmill.bool): is not defined for bool",
    ),
    "result of operation": (
        function([ir.Return(ir.Apply("lt", (ONE, ONE), int32))]),
        "result of lt: expects bool, got int32",
    ),
    "arity of operation": (
        function([ir.Return(ir.Apply("neg", (ONE, ONE), int32))]),
        "neg(kernelmill.int32, kernelmill.int32): takes 1 operands, got 2",
    ),
    "cast of a struct": (
        function([ir.Return(ir.Cast(ir.Param(0, PAIR), int32))], **PAIR_PARAM), "cast of a struct",
    ),
    "select condition": (
        function([ir.Return(ir.Select(ONE, ONE, ONE, int32))]),
        "condition of select: expects bool, got int32",
    ),
    "select sides": (
        function([ir.Return(ir.Select(YES, ONE, YES, int32))]),
        "select: expects int32, got bool",
    ),
    "field name": (
        function([ir.Return(ir.GetField(ir.Param(0, PAIR), "c", int32))], **PAIR_PARAM),
        "field c: expects None, got int32",
    ),
    "field type": (
        function([ir.Return(ir.GetField(ir.Param(0, PAIR), "b", int32))], **PAIR_PARAM),
        "field b: expects float32, got int32",
    ),
    "field of a scalar": (
        function([ir.Return(ir.GetField(P, "a", int32))]), "field a: expects None, got int32",
    ),
    "struct size": (
        function([ir.Return(ir.MakeStruct((ONE,), PAIR))], result=PAIR),
        "struct Pair with 1 values",
    ),
    "struct field": (
        function([ir.Return(ir.MakeStruct((ONE, ONE), PAIR))], result=PAIR),
        "field b: expects float32, got int32",
    ),
    "item of a scalar": (function([ir.Return(ir.GetItem(P, 0, int32))]), "item of no tuple"),
    "item index": (function([ir.Return(ir.GetItem(TUPLE, 2, int32))]), "tuple index"),
    "item type": (
        function([ir.Return(ir.GetItem(TUPLE, 1, int32))]), "tuple item: expects bool, got int32",
    ),
    "tuple type": (
        function([ir.Return(ir.MakeTuple((ONE,), TupleType((int8,))))], result=TupleType((int8,))),
        "tuple: expects (int32), got (int8)",
    ),
    "unknown function": (
        function([ir.Return(ir.Call("h", (), int32))]), "call of h before its definition",
    ),
    "recursion": (
        function([ir.Return(ir.Call("f", (P,), int32))]), "call of f before its definition",
    ),
    "arity of a call": (function([ir.Return(ir.Call("g", (), int32))]), "arity of g"),
    "argument": (
        function([ir.Return(ir.Call("g", (YES,), int32))]),
        "argument a of g: expects int32, got bool",
    ),
    "result of a call": (
        function([ir.Return(ir.Call("g", (P,), int8))], result=int8),
        "result of g: expects int32, got int8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_verify_accepts(name: str):
    verify(ir.Program((CALLEE, GOOD[name])))


@pytest.mark.parametrize("name", BAD)
def test_verify_refuses(name: str):
    made, message = BAD[name]
    with pytest.raises(VerifyError) as refused:
        verify(ir.Program((CALLEE, made)))
    assert str(refused.value) == message


def test_verify_refuses_programs():
    with pytest.raises(VerifyError, match=r"^a program has at least one function$"):
        verify(ir.Program(()))
    with pytest.raises(VerifyError, match=r"^two functions are named g$"):
        verify(ir.Program((CALLEE, CALLEE)))
    assert ir.Program((CALLEE, GOOD["call"])).entry.name == "f"


def test_walking_finds_everything_in_text_order():
    inner = ir.While(YES, (ir.Break(),))
    body = (ir.If(YES, (SET_X, inner), (ir.Continue(),)), RETURN)
    kinds = [type(s).__name__ for s in ir.walk_statements(body)]
    assert kinds == ["If", "Assign", "While", "Break", "Continue", "Return"]
    node = ir.Select(YES, ir.Apply("neg", (P,), int32), ir.GetItem(TUPLE, 0, int32), int32)
    found = [type(e).__name__ for e in ir.walk_expressions(node)]
    assert found == ["Select", "Const", "Apply", "Param", "GetItem", "MakeTuple", "Const", "Const"]
    loop = ir.For("i", ZERO, ONE, ZERO, ())
    assert ir.operands(loop) == (ZERO, ONE, ZERO)
    assert ir.operands(ir.Break()) == ()


# ----------------------------------------------------------------------------- typing rules


def signatures(name: str) -> dict[tuple[Type, ...], Any]:
    row, found = OPERATIONS[name], {}
    for types in itertools.product(EVERY, repeat=min(row.arity, 2)):
        types += types[-1:] * (row.arity - len(types))
        try:
            found[types] = row.signature(types)
        except OperationError:
            continue
    return found


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_rule_is_settled_after_one_conversion(name: str):
    """What an operation asks for, it takes as it is, with the same result."""
    found = signatures(name)
    assert found
    for wanted, result in found.values():
        assert OPERATIONS[name].signature(wanted) == (wanted, result)


@pytest.mark.parametrize("name", ["add", "mul", "min", "minimum", "eq", "and", "atan2", "truediv"])
def test_rules_of_symmetric_operations_are_symmetric(name: str):
    found = signatures(name)
    for (a, b), (_, result) in found.items():
        assert found[b, a][1] == result


UFUNCS = {
    name: getattr(np, spelling.removeprefix("np."))
    for name, row in OPERATIONS.items()
    for spelling in row.spellings[:1]
    if spelling.startswith("np.") and hasattr(np, spelling.removeprefix("np."))
}


@pytest.mark.parametrize("name", UFUNCS)
def test_result_types_are_those_of_numpy(name: str):
    """For strong types that both know; conj of a bool stays a bool here, and is int8 there."""
    row, ufunc = OPERATIONS[name], UFUNCS[name]
    types = [t for t in SCALARS if t != bfloat16 and (name, t) != ("conj", bool_)]
    checked = 0
    for chosen in itertools.product(types, repeat=row.arity):
        try:
            ones = [np.ones(1, t.to_numpy()) for t in chosen]
            with np.errstate(all="ignore"):
                wanted = ufunc(*ones).dtype
            result = row.signature(chosen)[1]
        except (TypeError, OperationError):
            continue
        if isinstance(result, DType):
            assert result.to_numpy() == wanted, (name, chosen)
            checked += 1
    assert checked


@pytest.mark.parametrize("name", ["arctan2", "hypot", "copysign", "add", "floor_divide", "divide"])
def test_result_types_with_python_scalars_are_those_of_numpy(name: str):
    row = OPERATIONS[SPELLINGS[f"np.{name}"]]
    for type_, (weak, value) in itertools.product(SCALARS, ((weak_int, 1), (weak_float, 1.5))):
        if type_.kind == "complex" or type_ == bfloat16:
            continue
        wanted = getattr(np, name)(np.ones(1, type_.to_numpy()), value).dtype
        for types in ((type_, weak), (weak, type_)):
            result = row.signature(types)[1]
            assert isinstance(result, DType)
            assert result.to_numpy() == wanted, types


def test_every_spelling_means_one_operation():
    assert SPELLINGS["np.exp"] == SPELLINGS["math.exp"] == "exp"
    count = sum(len(row.spellings) for row in OPERATIONS.values())
    assert len(SPELLINGS) == count
    assert all(name == row.name for name, row in OPERATIONS.items())


# ----------------------------------------------------------------------------- folding

PYTHON = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
numbers = st.one_of(
    st.integers(-5, 5), st.integers(-(2**70), 2**70), st.floats(), st.sampled_from([0.0, -0.0, 1.0])
)


@given(st.sampled_from(sorted(PYTHON)), numbers, numbers)
@settings(max_examples=300)
def test_literals_are_computed_by_python_exactly(name: str, a: Any, b: Any):
    try:
        wanted = PYTHON[name](a, b)
    except (ArithmeticError, TypeError):
        return
    made = FunctionBuilder.apply(name, FunctionBuilder.const(a), FunctionBuilder.const(b))
    assert isinstance(made, ir.Const)
    assert type(made.value) is type(wanted)
    assert made.type == weak_type_of(wanted)
    assert made.value == wanted or math.isnan(wanted)
    if wanted == 0 and isinstance(wanted, float):
        assert math.copysign(1, made.value) == math.copysign(1, wanted)


@pytest.mark.parametrize(
    ("name", "a", "b"),
    [("floordiv", 1, 0), ("mod", 1, 0), ("truediv", 1.0, 0.0), ("lshift", 1, -1), ("pow", 0, -1),
     ("pow", 10.0, 5000)],
)  # fmt: skip
def test_what_python_cannot_compute_is_left_to_the_operation(name: str, a: Any, b: Any):
    made = FunctionBuilder.apply(name, FunctionBuilder.const(a), FunctionBuilder.const(b))
    assert isinstance(made, ir.Apply)


@pytest.mark.parametrize(
    ("name", "a", "b"),
    [("pow", 100_000, 4), ("pow", 5000, 2), ("pow", -7, 5001), ("pow", 2, -1), ("pow", 2.0, 5),
     ("pow", 0, 10**9), ("pow", 1, 10**30), ("lshift", 1, 5000), ("lshift", 5000, 3)],
)  # fmt: skip
def test_powers_and_shifts_of_literals_are_exact(name: str, a: Any, b: Any):
    made = FunctionBuilder.apply(name, FunctionBuilder.const(a), FunctionBuilder.const(b))
    assert isinstance(made, ir.Const)
    assert made.value == (a**b if name == "pow" else a << b)


@pytest.mark.parametrize(
    ("name", "a", "b"),
    [("pow", 10, 10**6), ("pow", -2, 10**9), ("lshift", 1, 10**6), ("pow", 9, 9**999)],
)
def test_integers_that_would_fill_the_memory_are_refused(name: str, a: int, b: int):
    with pytest.raises(ScalarOverflowError) as refused:
        FunctionBuilder.apply(name, FunctionBuilder.const(a), FunctionBuilder.const(b))
    symbol = {"pow": "**", "lshift": "<<"}[name]
    assert str(refused.value) == (
        f"`{symbol}` of these literals has more than 65536 bits\n\n"
        'hint: no type holds it; `float("inf")` is infinity'
    )


@given(
    st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]),
    st.sampled_from([t for t in SCALARS if t.is_integer]),
    st.one_of(st.integers(-(2**70), 2**70), st.integers(-300, 300)),
    st.data(),
)
@settings(max_examples=300)
def test_comparisons_with_literals_are_those_of_the_numbers(
    name: str, type_: DType, literal: int, data: st.DataObject
):
    value = data.draw(st.one_of(st.integers(type_.min, type_.max), st.just(type_.max)))
    for left in (True, False):
        f = FunctionBuilder("f", [("x", type_)])
        args = (f.param(0), f.const(literal)) if left else (f.const(literal), f.param(0))
        f.return_(f.apply(name, *args))
        program = ir.Program((f.finish(),))
        verify(program)
        wanted = PYTHON[name](*((value, literal) if left else (literal, value)))
        assert bool(oracle.run(program, [value])) == wanted


def test_squares_are_products():
    f = FunctionBuilder("f", [("x", float32), ("z", complex64), ("n", int8), ("b", bool_)])
    for index, type_ in enumerate((float32, complex64, int8)):
        assert f.apply("pow", f.param(index), f.const(2)) == ir.Apply(
            "square", (f.param(index),), type_
        )
    assert f.apply("pow", f.param(1), f.const(2.0)).op == "square"
    assert f.apply("pow", f.param(0), f.const(3)).op == "pow"
    assert f.apply("pow", f.param(3), f.const(2)).type == int64
    with pytest.raises(OperatorError, match=r"`\*\*` is not defined for complex64"):
        f.apply("pow", f.param(1), f.const(3))


# ----------------------------------------------------------------------------- building


@pytest.mark.parametrize("name", ["add", "floordiv", "lt", "atan2", "lshift", "minimum"])
def test_operands_of_all_types_are_converted_or_refused(name: str):
    for a, b in itertools.product(EVERY, repeat=2):
        f = FunctionBuilder("f", [("a", a), ("b", b)])
        try:
            wanted, result = OPERATIONS[name].signature((a, b))
        except OperationError:
            with pytest.raises(OperatorError):
                f.apply(name, f.param(0), f.param(1))
            continue
        f.return_(f.apply(name, f.param(0), f.param(1)))
        made = f.finish()
        verify(ir.Program((made,)))
        (returned,) = made.body
        assert isinstance(returned, ir.Return)
        node = returned.value
        assert isinstance(node, ir.Apply)
        assert (tuple(arg.type for arg in node.args), node.type) == (wanted, result)


def test_refusals_of_the_builder_in_words():
    types = [("b", bool_), ("p", PAIR), ("x", int8), ("y", float64), ("z", complex64)]
    f = FunctionBuilder("f", types)
    b, p, x, y, z = (f.param(i) for i in range(5))
    pair = f.make_tuple([x, x])
    cases: list[tuple[Any, str]] = [
        (lambda: f.apply("sub", b, b), "`-` is not defined for bool (bool and bool)"),
        (lambda: f.apply("invert", y), "`~` is not defined for float64 (float64)"),
        (lambda: f.apply("exp", p), "`exp` is not defined for Pair (Pair)"),
        (lambda: f.apply("add", x, f.const(300)), "Python integer 300 out of bounds for int8"),
        (lambda: f.apply("add", y, f.const(10**400)), "integer of 1329 bits out of bounds for fl"),
        (lambda: f.apply("add", z, f.const(10**5000)), "of 16610 bits out of bounds for complex64"),
        (lambda: f.const(-1, uint8), "Python integer -1 out of bounds for uint8"),
        (lambda: f.field(p, "c"), "struct Pair has no field `c`"),
        (lambda: f.for_("i", (y, x, x), ()), "range() expects integers, got float64"),
        (lambda: convert(p, int8), "expects int8, got Pair"),
        (lambda: convert(pair, TupleType((int8,))), "expects 1 values, got 2"),
        (lambda: join([pair.type, TupleType((int8,))]), "tuples of 2 and 1 items meet"),
        (lambda: f.select(b, p, x), "Pair and int8 have no common type"),
        (lambda: weak_type_of("text"), "'text' is not a scalar of the operator language"),
    ]
    for call, message in cases:
        with pytest.raises(KernelmillError) as refused:
            call()
        assert message in refused.value.message, message
    with pytest.raises(OverflowError) as overflow:
        f.apply("mul", x, f.const(-129))
    assert isinstance(overflow.value, ScalarOverflowError)
    assert overflow.value.hint == "int8 holds -128 to 127; widen the other operand first"


def test_conversions_of_literals_fold_when_they_are_exact():
    f = FunctionBuilder
    assert f.const(3, int8) == ir.Const(3, int8)
    assert f.const(3, float64) == ir.Const(3.0, float64)
    assert isinstance(f.const(3, float64).value, float)
    assert f.const(3, weak_float) == ir.Const(3.0, weak_float)
    for wanted in (float16, float32, complex128):
        assert f.const(0.1, wanted) == ir.Cast(ir.Const(0.1, weak_float), wanted)
    assert f.const(2**64 - 1, uint64) == ir.Const(2**64 - 1, uint64)
    assert f.cast(ir.Const(1.5, weak_float), int8) == ir.Cast(ir.Const(1.5, weak_float), int8)


def test_structs_and_tuples_are_taken_apart_without_nodes():
    f = FunctionBuilder("f", [("x", int8), ("p", PAIR)])
    made = f.make_struct(PAIR, [f.param(0), f.const(2)])
    assert f.field(made, "a") == ir.Cast(f.param(0), int32)
    assert f.field(f.param(1), "b") == ir.GetField(f.param(1), "b", float32)
    pair = f.make_tuple([f.param(0), f.const(2)])
    wide = convert(pair, TupleType((int16, float64)))
    assert wide == ir.MakeTuple(
        (ir.Cast(f.param(0), int16), ir.Const(2.0, float64)), TupleType((int16, float64))
    )
    assert join([pair.type, TupleType((float32, int8))]) == TupleType((float32, int8))


@given(st.lists(st.sampled_from(EVERY), min_size=1, max_size=4))
def test_values_that_meet_have_the_promoted_type(types: list[Type]):
    wanted: Type | None = types[0]
    for type_ in types[1:]:
        try:
            wanted = promote(wanted, type_) if wanted else None
        except DTypeError:
            wanted = None
    if wanted is None:
        with pytest.raises(DTypeError):
            join(types)
        return
    assert join(types) == wanted
    f = FunctionBuilder("f", [(f"p{i}", t) for i, t in enumerate(types)])
    for i in range(len(types) - 1):
        with f.block() as body:
            f.return_(f.param(i))
        f.if_(f.apply("truth", f.param(i)), body)
    f.return_(f.param(len(types) - 1))
    made = f.finish()
    assert made.result == wanted
    verify(ir.Program((made,)))


def test_locals_get_free_names_and_unused_ones_go():
    f = FunctionBuilder("f", [("x", int8)])
    names = [f.declare("v", int8), f.declare("v", int64), f.declare("unused", int8)]
    assert names == ["v", "v_2", "unused"]
    f.assign("v", f.const(1))
    f.assign("v_2", f.local("v"))
    f.return_(f.local("v_2"))
    made = f.finish()
    assert made.locals == (("v", int8), ("v_2", int64))
    assert made.body[1] == ir.Assign("v_2", ir.Cast(ir.Local("v", int8), int64))
    assert made.result == int64


def test_calls_convert_their_arguments():
    f = FunctionBuilder("f", [("x", int8)])
    called = f.call(CALLEE, [f.param(0)])
    assert called == ir.Call("g", (ir.Cast(f.param(0), int32),), int32)


def test_a_span_is_no_part_of_a_statement():
    marked = replace(SET_X, span=object())
    assert marked == SET_X


def test_selects_and_conditions_are_tested_for_truth():
    f = FunctionBuilder("f", [("x", float32), ("n", int8)])
    made: Expr = f.select(f.param(0), f.param(1), f.const(1.5))
    assert made == ir.Select(
        ir.Apply("truth", (f.param(0),), bool_),
        ir.Cast(f.param(1), float64),
        ir.Const(1.5, float64),
        float64,
    )
    assert f.truth(f.const(0.0)) == ir.Const(value=False, type=bool_)
    assert f.truth(f.const(value=True)) == YES


def test_bounds_of_the_table_hold_what_the_page_on_functions_promises():
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "math.md"
    rows = re.findall(
        r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", page.read_text("utf-8"), re.MULTILINE
    )
    promised = {name: (float(single), float(double)) for name, single, double in rows}
    shared = sorted(set(promised) & set(OPERATIONS))
    assert len(shared) > 25
    for name in shared:
        bound = OPERATIONS[name].ulp
        assert bound is not None, name
        for kept, limit in zip(promised[name], bound, strict=True):
            assert kept <= limit, name
