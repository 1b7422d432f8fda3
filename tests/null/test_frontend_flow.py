"""Types and values where control flow meets: branches, loops, returns, unrolled loops."""

from __future__ import annotations

import linecache
import math

import numpy as np
import pytest

import kernelmill as km
import oracle
from kernelmill.compiler import ir
from kernelmill.compiler.frontend import translate
from kernelmill.errors import OperatorError

I8, I16, I32, F32, F64, BOOL = km.int8, km.int16, km.int32, km.float32, km.float64, km.bool_


@km.struct
class Point:
    x: km.float32
    n: km.int16


def agrees(function, types_, *rows):
    """Compare with plain Python on NumPy scalars, for each row of arguments."""
    made = translate(function, types_)
    captures = [c.read() for c in made.captures]
    for row in rows:
        args = [t.to_numpy().type(v) for t, v in zip(types_, row, strict=True)]
        found = oracle.run(made.program, args, captures)
        assert found == pytest.approx(function(*args)), row
    return made.program


def result(function, *types_):
    return str(translate(function, types_).program.entry.result)


# ----------------------------------------------------------------------------- types


def test_a_variable_has_the_type_of_its_last_value():
    def f(a):
        x = a
        x = x > 0
        return x

    assert result(f, F32) == "bool"


def test_a_sum_takes_the_type_of_its_terms():
    def f(x, n):
        t = 0
        for _ in range(n):
            t = t + x
        return t

    for type_ in (I8, F32, F64, km.complex64):
        assert result(f, type_, I32) == str(type_)
    assert result(f, BOOL, I32) == "int64"
    agrees(f, [F32, I32], (1.5, 4), (1.5, 0))


def test_types_climb_through_several_passes():
    def f(a, b, c, n):
        x = y = z = 0
        for _ in range(n):
            z = z + y
            y = y + x
            x = x + a
            if z > 100:
                y = y + b
                x = c
        return x, y, z

    assert result(f, I8, I16, F32, I32) == "(float32, float32, float32)"
    assert result(f, I8, I16, I32, I32) == "(int32, int32, int32)"
    agrees(f, [I8, I16, F32, I32], (3, 1000, 0.5, 9), (3, 1, 1, 0))


def test_types_climb_in_nested_loops():
    def f(a, n):
        t = u = 0
        for i in range(n):
            for j in range(i):
                u = t + j
                while u > 20:
                    u = u - a * 4
            t = t + u
        return t

    assert result(f, F32, I32) == "float32"
    agrees(f, [F32, I32], (1.5, 6), (2, 1))


def test_returns_are_joined():
    def f(a, b):
        if a > 3:
            return a
        if b:
            return 1
        return b, 2 if a else 3

    with pytest.raises(OperatorError, match="they have no common type"):
        translate(f, [I8, F32])

    def g(a, b):
        if a > 3:
            return a, 1
        return b, 2.5

    assert result(g, I8, F32) == "(float32, weak float)"


@pytest.mark.parametrize(
    ("function", "types_", "wanted"),
    [
        (lambda a, b: a or b, (I8, F32), "float32"),
        (lambda a, b: a or b, (I8, I16), "int16"),
        (lambda a, b: (a > 0) and b, (I8, I16), "int16"),
        (lambda a, b: a > 0 or b > 0, (I8, I16), "bool"),
        (lambda a, b: not a, (I8, I16), "bool"),
        (lambda a, b: 0 if a > b else 1.5, (I8, I16), "weak float"),
        (lambda a, b: 1 if a else b > 0, (I8, I16), "int64"),
        (lambda a, b: np.where(a, b, 1.5), (I8, I16), "float64"),
        (lambda a, b: round(a) + int(b), (F32, F32), "weak int"),
        (lambda a, b: float(a) + b, (I8, F32), "float32"),
        (lambda a, b: a * 2**3 + b, (I8, I16), "int16"),
        (lambda a, b: a.astype(np.float16) + np.int8(b), (I8, F32), "float16"),
        (lambda a, b: a + 1j, (F32, F32), "complex64"),
        (lambda a, b: (a + 1j).real, (F64, F32), "float64"),
        (lambda a, b: divmod(a, b), (I8, I16), "(int16, int16)"),
        (lambda a, b: math.frexp(a), (F32, F32), "(float32, int32)"),
        (lambda a, b: Point(a, b), (I8, F64), "Point"),
        (lambda a, b: a < 2**70, (I8, I8), "bool"),
        (lambda a, b: km.float16(a) + km.int8(b), (I8, F32), "float16"),
    ],
)  # fmt: skip
def test_result_types(function, types_, wanted):
    assert result(function, *types_) == wanted


# ----------------------------------------------------------------------------- values


def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def rotate(x, n):
    a, b, c = x, x + 1, x + 2
    for _ in range(n):
        a, b, c = c, a, b
    return a, b, c


def rotate_until(x, n):
    a, b, c = x, x + 1, x + 2
    while True:
        n = n - 1
        a, b, c = b, c, a
        if n < 0:
            break
        if n % 2:
            a, b = b, a
            continue
        c, a = a, c
    return a * 100 + b * 10 + c


def last_index(n):
    i = -1
    for i in range(n):
        if i * i > 10:
            break
    return i


def changed_counter(n):
    t = 0
    for i in range(n):
        i = i * 2
        t = t + i
    return t * 100 + i if n > 0 else t


def primes(n):
    count = 0
    for i in range(2, n):
        prime = True
        j = 2
        while j * j <= i:
            if i % j == 0:
                prime = False
                break
            j += 1
        if not prime:
            continue
        count += 1
    return count


def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


def newton(x):
    y = x / 2 + 0.5
    while abs(y * y - x) > 1e-3 * x:
        y = (y + x / y) / 2
    return y


def search(x, n):
    for i in range(n):
        for j in range(i):
            if i * j > x:
                return i * 100 + j
    return -1


def down(n):
    t = 0
    for i in range(n, -n, -3):
        t = t * 3 + i
    return t


def closures_in_loops(x, n):
    t = 0
    for i in range(n):
        k = i * 2
        f = lambda v: v * k + i
        k = k + 1
        t = t + f(x)
    return t


def conditional_walrus(x, n):
    y = 1
    z = (y := x + 1) * 2 if n > 2 else x
    w = n > 1 and (y := y + 10) > 3
    return y * 1000 + z * 10 + w


def dead_code(x, n):
    while True:
        if x > n:
            return x
        x = x + 1
        continue
        x = "never"
    return None


def guarded(x, n):
    return gcd(x, n) if n > 0 else -1


def guarded_and(x, n):
    return (n > 0 and gcd(x, n) > 1) or (n < 0 and x > 0)


def early_returns(x, n):
    if x < 0:
        if n > 3:
            return 1
        x = -x
    if x > 10:
        return 2
    if n > 3:
        y = x + 1
    else:
        y = n
        if y == x:
            return 3
    return y


@pytest.mark.parametrize(
    ("function", "types_", "rows"),
    [
        (fibonacci, [I32], [(0,), (1,), (10,), (40,)]),
        (rotate, [I32, I32], [(1, n) for n in range(5)]),
        (rotate_until, [I32, I32], [(1, n) for n in range(9)]),
        (last_index, [I32], [(0,), (2,), (9,)]),
        (primes, [I32], [(2,), (3,), (100,)]),
        (gcd, [I32, I32], [(12, 18), (7, 0), (0, 7), (35, 49)]),
        (newton, [F64], [(2,), (100,)]),
        (newton, [F32], [(2,), (100,)]),
        (search, [I32, I32], [(6, 9), (1000, 9), (0, 0)]),
        (down, [I32], [(0,), (7,)]),
        (closures_in_loops, [F32, I32], [(3, 5), (3, 0)]),
        (conditional_walrus, [I32, I32], [(1, n) for n in range(5)]),
        (dead_code, [I32, I32], [(1, 5), (9, 5)]),
        (guarded, [I32, I32], [(12, 18), (3, 0), (-3, -5)]),
        (guarded_and, [I32, I32], [(12, 18), (3, 0), (3, -5), (3, 5)]),
        (early_returns, [I32, I32], [(x, n) for x in (-20, -2, 2, 5, 20) for n in (1, 2, 5)]),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_values(function, types_, rows):
    agrees(function, types_, *rows)


def test_a_loop_that_runs_once_at_least_binds_its_variables():
    def f(x):
        for i in range(1, 4):
            y = x * i
            p = Point(y, i)
            t = (y, i)
        return y + i + p.x + t[0]

    agrees(f, [F32], (2.5,))

    def g(x):
        while True:
            y = x + 1
            if y > 3:
                break
            x = y
        return y * 2

    agrees(g, [F32], (0,), (10,))


def test_structs_and_tuples_are_carried():
    def f(x, n):
        p, t = Point(x, 0), (x, 0)
        for i in range(n):
            if i % 2:
                p = Point(p.x + 1, i)
            else:
                t = (t[0] * 2, t[1] + p.n)
        return p.x, p.n, t[0], t[1]

    agrees(f, [F32, I32], (1.5, 6), (1.5, 0))


def test_a_fixed_loop_that_indexes_a_tuple_is_repeated():
    weights = (1, 2.5, 3)

    def f(x):
        t = 0
        for i in range(len(weights)):
            for j in range(2):
                t = t * x + weights[i] * weights[i - 1] + (x, t)[j]
        return t + i

    program = agrees(f, [F32], (1.5,), (0,))
    assert not any(isinstance(s, ir.For) for s in ir.walk_statements(program.entry.body))


def test_a_call_that_may_loop_stays_behind_its_branch():
    program = translate(guarded, [I32, I32]).program
    assert any(isinstance(s, ir.If) for s in ir.walk_statements(program.entry.body))


def test_a_chain_evaluates_each_operand_once():
    program = translate(lambda a: 0 < math.exp(a) < 5, [F32]).program
    nodes = [
        n
        for s in ir.walk_statements(program.entry.body)
        for e in ir.operands(s)
        for n in ir.walk_expressions(e)
    ]
    assert sum(isinstance(n, ir.Apply) and n.op == "exp" for n in nodes) == 1


def test_a_chain_evaluates_nothing_in_vain():
    def count(n):
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
        return n

    def f(a, b):
        return 0 < a < count(a) + b < 9

    agrees(f, [I32, I32], (0, 1), (-5, 1), (1, 5), (6, 5), (6, 50))


class Named:
    """An operator object of the library: it names an operation, or the function it stands for."""

    def __init__(self, meaning):
        self.__kernelmill_operator__ = meaning

    def __call__(self, *args):
        raise AssertionError("an operator object was run")


def test_operator_objects_say_what_they_are():
    add, double = Named("add"), Named(lambda v: v * 2)
    assert result(add, I8, F32) == "float32"
    program = translate(lambda a: add(double(a), 1), [F32]).program
    assert oracle.run(program, [3]) == 7
    assert oracle.run(translate(double, [F32]).program, [3]) == 6


def test_bools_are_combined_without_a_branch():
    (only,) = translate(lambda a, b: (a > 0 and b > 0) or not a, [F32, F32]).program.entry.body
    assert isinstance(only, ir.Return)
    ops = [n.op for n in ir.walk_expressions(only.value) if isinstance(n, ir.Apply)]
    assert sorted(ops) == ["and", "gt", "gt", "not", "or", "truth"]


def test_zero_keeps_its_sign_where_ways_meet():
    def f(a):
        z = 0.0 if a > 0 else -0.0
        if a > 5:
            z = -0.0
        return np.copysign(a * 0 + 1, z)

    agrees(f, [F64], (1,), (-1,), (6,))


def test_equal_programs_are_equal():
    def make(k):
        return lambda a: a * k + 1

    assert translate(make(2), [F32]).program == translate(make(3), [F32]).program
    assert translate(make(2), [F32]).program != translate(make(2), [F64]).program
    assert translate(make(2), [I32]).program != translate(make(2.5), [I32]).program


def test_statements_know_their_place():
    def f(a):
        b = a * 2
        while b > 1:
            b = b / 2
        return b

    spans = [s.span for s in ir.walk_statements(translate(f, [F32]).program.entry.body)]
    first = f.__code__.co_firstlineno
    assert {s.line - first for s in spans} == {1, 2, 3, 4}
    assert all(s.filename == __file__ for s in spans)


def test_deep_expressions_are_refused_by_name():
    def chain(count):
        text = "f = lambda a: " + " + ".join(["a"] * count) + "\n"
        linecache.cache["<deep>"] = (len(text), None, [text], "<deep>")
        space = {}
        exec(compile(text, "<deep>", "exec"), space)
        return space["f"]

    assert result(chain(200), F32) == "float32"
    with pytest.raises(OperatorError) as caught:
        translate(chain(800), [F32])
    assert str(caught.value) == (
        "`<lambda>` nests expressions too deeply\n\nhint: name parts of the expression: `t = a + b`"
    )
