"""Passes over IR: they keep every value, and do what they are for."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import given, settings

import kernelmill as km
import oracle
import strategies
from kernelmill.compiler import ir
from kernelmill.compiler.builder import FunctionBuilder
from kernelmill.compiler.frontend import translate
from kernelmill.compiler.ir_verify import verify
from kernelmill.compiler.rewrite import rewrite_function
from kernelmill.compiler.simplify import drop_unread, remove_branches, simplify

F32, I32, BOOL = km.float32, km.int32, km.bool_


def outcome(program, args, captures):
    try:
        return oracle.run(program, args, captures)
    except oracle.StepLimitError:
        return None


@pytest.mark.parametrize("node_limit", [0, 12, 10_000])
@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@given(case=strategies.cases(elements=3, arrays=True))
def test_every_value_is_kept(node_limit, case):
    made = simplify(case.program, node_limit=node_limit)
    verify(made)
    assert made.entry.result == case.program.entry.result
    for row in zip(*case.arguments, strict=True):
        before = outcome(case.program, row, case.captures)
        if before is not None:
            assert oracle.same_bits(outcome(made, row, case.captures), before)


def statements(function):
    return [type(s).__name__ for s in ir.walk_statements(function.body)]


def raw(function, *types_):
    """Return the entry before any pass."""
    builder = FunctionBuilder("f", [(f"x{i}", t) for i, t in enumerate(types_)])
    function(builder)
    return builder.finish()


def both_return(b):
    with b.block() as then:
        b.return_(b.const(1.5))
    b.if_(b.apply("lt", b.param(0), b.const(0)), then)
    with b.block() as then:
        b.return_(b.param(0))
    with b.block() as orelse:
        b.return_(b.apply("neg", b.param(0)))
    b.if_(b.apply("gt", b.param(0), b.const(9)), then, orelse)


def test_a_chain_of_returns_becomes_one_choice():
    made = remove_branches(raw(both_return, F32), set())
    assert statements(made) == ["Assign", "Assign", "Return"]
    for value, wanted in ((-1, 1.5), (5, -5), (10, 10)):
        assert oracle.run(ir.Program((made,)), [value]) == wanted


def test_one_sided_assignments_keep_the_old_value():
    def build(b):
        x = b.declare("x", F32)
        y = b.declare("y", F32)
        b.assign(x, b.param(0))
        b.assign(y, b.const(0))
        with b.block() as then:
            b.assign(x, b.apply("add", b.local(x), b.const(1)))
            b.assign(y, b.apply("mul", b.local(x), b.local(x)))
            b.assign(x, b.apply("add", b.local(x), b.local(y)))
        b.if_(b.apply("gt", b.local(x), b.const(0)), then)
        b.return_(b.apply("sub", b.local(x), b.local(y)))

    function = raw(build, F32)
    made = remove_branches(function, set())
    assert "If" not in statements(made)
    for value in (-2, 0, 3):
        wanted = oracle.run(ir.Program((function,)), [value])
        assert oracle.run(ir.Program((made,)), [value]) == wanted


@pytest.mark.parametrize(
    ("then", "orelse", "op"),
    [(True, None, "or"), (False, None, "and"), (None, True, "or"), (None, False, "and")],
)
def test_choices_between_bools_are_bit_operations(then, orelse, op):
    def build(b):
        for given_, index in ((then, 0), (orelse, 1)):
            with b.block() as block:
                b.return_(b.param(1) if given_ is None else b.const(given_))
            if index == 0:
                b.if_(b.param(0), block)
            else:
                b.append(block)

    function = raw(build, BOOL, BOOL)
    (only,) = remove_branches(function, set()).body
    assert only.value.op == op
    made = ir.Program((remove_branches(function, set()),))
    for a in (False, True):
        for b in (False, True):
            wanted = oracle.run(ir.Program((function,)), [a, b])
            assert oracle.run(made, [a, b]) == wanted


def test_large_branches_stay():
    made = remove_branches(raw(both_return, F32), set(), node_limit=1)
    assert statements(made) == ["If", "Return", "If", "Return", "Return"]


def test_branches_in_loops_are_removed_and_jumps_stay():
    def f(x, n):
        t = x
        for i in range(n):
            if t > i:
                t = t * 2
            if t > 100:
                break
        return t

    made = translate(f, [F32, I32]).program.entry
    assert statements(made).count("If") == 1
    assert statements(made).count("Break") == 1


def test_unread_locals_go_with_what_fed_only_them():
    def f(x, n):
        t = u = v = x
        for i in range(n):
            u = v + i
            v = u * 2
            t = t + x
        for _ in range(n):
            u = v
        if u > 0:
            v = u
        return t

    made = translate(f, [F32, I32]).program.entry
    assert {name for name, _ in made.locals} <= {"t", "i", "t_2"}
    assert statements(made) == ["Assign", "For", "Assign", "Assign", "Return"]
    assert drop_unread(made) == made


def test_tuples_and_structs_are_chosen_item_by_item():
    def f(x, y):
        if x > y:
            return x, (y, 1)
        return y, (x, 2)

    program = translate(f, [F32, F32]).program
    last = program.entry.body[-1]
    assert isinstance(last.value, ir.MakeTuple)
    assert isinstance(last.value.values[1].values[1], ir.Select)
    assert oracle.run(program, [3, 2]) == (3, (2, 1))


def test_rewriting_with_no_change_is_the_same_function():
    def f(x, n):
        t = (x, 0)
        while t[1] < n:
            t = (t[0] + x, t[1] + 1)
            for i in range(3):
                if t[0] > i:
                    return t[0]
        return t[0] if x else x * 2

    for function in translate(f, [F32, I32]).program.functions:
        assert rewrite_function(function, lambda node: node) == function
