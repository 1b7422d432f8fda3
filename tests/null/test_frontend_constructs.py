"""Every accepted construct inside a loop inside a branch, with two choices of dtypes.

The type is the one the table says; the value is compared with plain Python on NumPy scalars.
"""

from __future__ import annotations

import itertools
import linecache
import math
import operator
import types

import numpy as np
import pytest

import kernelmill as km
import oracle
from kernelmill import dtypes
from kernelmill.compiler import functions
from kernelmill.compiler.frontend import translate

NUMBER = itertools.count()


@km.struct
class Point:
    x: km.float32
    n: km.int16


@km.struct
class Line:
    a: Point
    b: Point


def helper(a, b=2, *, c=1):
    return a * b + c


def early(a):
    if a > 2:
        return a
    for i in range(3):
        if a < i:
            return a + i
    return a - 1


class Scaler:
    def __init__(self, factor):
        self.factor = factor

    def apply(self, x):
        return x * self.factor

    def __call__(self, x):
        return x + self.factor


GAIN = 3
WEIGHTS = (1, 2.0, 4)
STEPS = (operator.add, operator.mul)
SETTINGS = types.SimpleNamespace(offset=2, nested=types.SimpleNamespace(limit=5))
SCALER = Scaler(2)
NAMES = {
    "np": np, "math": math, "operator": operator, "km": functions, "Point": Point, "Line": Line,
    "helper": helper, "early": early, "GAIN": GAIN, "WEIGHTS": WEIGHTS, "STEPS": STEPS,
    "SETTINGS": SETTINGS, "SCALER": SCALER, "FLAG": True, "STRONG": np.float64(1.5),
}  # fmt: skip

TEMPLATE = """
def operator_(x, y):
    r = y
    if x < y:
        for i in range(1, 4):
            {body}
    else:
        r = y
    return r
"""


def define(text, name="operator_", names=NAMES):
    """Run source text as a cell of an interactive session would."""
    filename = f"<cell {next(NUMBER)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space = {**names, "__builtins__": __builtins__}
    exec(compile(text, filename, "exec"), space)
    return space[name]


FLOATS = ("f32", "f64")
INTEGERS = ("i16", "i32")
MIXED = ("i16", "f32")
SHORT = {
    "i8": km.int8, "i16": km.int16, "i32": km.int32, "i64": km.int64, "u8": km.uint8,
    "f16": km.float16, "f32": km.float32, "f64": km.float64, "c64": km.complex64,
    "bool": km.bool_, "wint": dtypes.weak_int, "wfloat": dtypes.weak_float,
}  # fmt: skip

IF_ELIF_ELSE = """
if x > i:
    r = x
elif x == i:
    r = 0
else:
    r = r + i
"""
WHILE = """
n = 4
while n > x:
    n = n - 1
    r = r + n
"""
WHILE_TRUE = """
n = 0
while True:
    n += 1
    if n > y:
        break
    r = r + n
"""
NESTED_LOOPS = """
for j in range(i):
    for k in range(5, j, -2):
        r = r + j * k + x
"""
INNER_DEF = """
def f(a, *, k=2):
    b = a * k
    return b + x
r = f(r) + f(x, k=3)
"""

# Body of the loop (` | ` begins a new line), types of (x, y), type of the result joined with y's.
CASES = [
    # arithmetic
    ("r = r + x * i", FLOATS, "f64"),
    ("r = r + x * i", INTEGERS, "i32"),
    ("r = x - y / 2", MIXED, "f32"),
    ("r = x - y / 2", INTEGERS, "f64"),
    ("r = y // x + y % x", FLOATS, "f64"),
    ("r = y // x + y % x", INTEGERS, "i32"),
    ("r = x ** 2 + y ** i", MIXED, "f32"),
    ("r = -x + +y", INTEGERS, "i32"),
    ("r = -x + +y", FLOATS, "f64"),
    ("r += x; r -= 1; r *= 2", INTEGERS, "i32"),
    ("r += x; r /= 2; r //= 1; r %= 7; r **= 2", FLOATS, "f64"),
    ("r = (x << 2|y & 3 ^ i) >> 1; r |= 1; r &= 255; r ^= 2; r <<= 1; r >>= 1", INTEGERS, "i32"),
    ("r = ~x + y", INTEGERS, "i32"),
    ("r = ((x > 1) & (y > 1))|(x == y) ^ (x != y)", FLOATS, "f64"),
    ("r = ((x > 1) & (y > 1))|(x == y) ^ (x != y)", INTEGERS, "i32"),
    # names and assignments
    ("a = b = x + i; r = a * b", FLOATS, "f64"),
    ("a, b = x, y; a, b = b, a; r = a - b", MIXED, "f32"),
    ("(a, b), c = (x, y), i; r = a - b + c", INTEGERS, "i32"),
    ("[a, b] = x, y; r = a - b", FLOATS, "f64"),
    ("a: float = x * 2; b: int; r = a + r", INTEGERS, "i32"),
    ("r = (a := x + 1) * a", FLOATS, "f64"),
    ("r = x if (a := x * 2) > y else a", INTEGERS, "i32"),
    ("x = x + 1; r = x", INTEGERS, "i32"),
    ("y = y > x; r = r + y", FLOATS, "f64"),
    ("i = i * 2; r = x + i", MIXED, "f32"),
    ("t = x, y; r = t[0] + t[-1] + len(t)", FLOATS, "f64"),
    ("a, b = (*(x, y),); r = a + b", INTEGERS, "i32"),
    # conditions
    ("r = x if x < i else y", FLOATS, "f64"),
    ("r = x if x < i else y", MIXED, "f32"),
    ("r = 1 if x < i else 2.5 if y > i else x", INTEGERS, "f64"),
    ("r = x and y", INTEGERS, "i32"),
    ("r = x or y", MIXED, "f32"),
    ("r = x > 1 and y", FLOATS, "f64"),
    ("r = (x > 1 or y > 1) and not x == y", INTEGERS, "i32"),
    ("r = r + 1 if x and y or not i else r", FLOATS, "f64"),
    ("r = r + (1 < x + i <= y != 3)", FLOATS, "f64"),
    ("r = r + (0 <= x < i < 10)", INTEGERS, "i32"),
    ("r = r + (x if True else y)", INTEGERS, "i32"),
    # statements
    (IF_ELIF_ELSE, FLOATS, "f64"),
    (IF_ELIF_ELSE, INTEGERS, "i32"),
    ("if i == 2: continue | r = r + x * i", FLOATS, "f64"),
    ("if i == 2: r = r + 10; break | r = r + x", INTEGERS, "i32"),
    (WHILE, MIXED, "f32"),
    (WHILE_TRUE, INTEGERS, "i32"),
    ("while (d := r - x) > 3: r = r - 1 | r = d", FLOATS, "f64"),
    (NESTED_LOOPS, INTEGERS, "i32"),
    ("for w in (1, x, 2.5): r = r + w * x", FLOATS, "f64"),
    ("for a, b in ((1, x), (2, y)): r = r + a * b", INTEGERS, "i32"),
    ("for w in WEIGHTS: r = r * 2 + w", FLOATS, "f64"),
    ("for f in STEPS: r = f(r, x)", INTEGERS, "i32"),
    ("for j in range(len(WEIGHTS)): r = r * 2 + WEIGHTS[j]", FLOATS, "f64"),
    ("if r > 20: return r | r = r + x * 5", FLOATS, "f64"),
    ("'text' | pass | r = x", INTEGERS, "i32"),
    # calls of Python functions
    ("r = helper(x) + helper(x, i) + helper(b=y, a=2, c=x)", FLOATS, "f64"),
    ("r = helper(x) + helper(x, i) + helper(b=y, a=2, c=x)", INTEGERS, "i32"),
    ("r = early(x) + early(y)", FLOATS, "f64"),
    ("r = early(x) + early(i)", INTEGERS, "i32"),
    ("f = lambda a, b=x: a * b + i; r = f(y) + f(1, 2)", INTEGERS, "i32"),
    (INNER_DEF, FLOATS, "f64"),
    ("twice = lambda f, v: f(f(v)); r = twice(lambda v: v + x, y)", INTEGERS, "i32"),
    ("g = lambda a: a + i; f = lambda a: g(a) * x; r = f(y)", FLOATS, "f64"),
    ("r = helper(*(x, y))", MIXED, "f32"),
    ("r = SCALER.apply(x) + SCALER(y)", INTEGERS, "i32"),
    # captured values
    ("r = x * GAIN + SETTINGS.offset * SETTINGS.nested.limit", INTEGERS, "i32"),
    ("r = x * GAIN + SETTINGS.offset * SETTINGS.nested.limit", FLOATS, "f64"),
    ("r = WEIGHTS[0] * x + WEIGHTS[-1]", INTEGERS, "i32"),
    ("r = x * STRONG if FLAG else y", FLOATS, "f64"),
    ("r = x * math.pi + np.e - np.finfo(np.float32).eps", FLOATS, "f64"),
    ("r = min(x, np.iinfo(np.int8).max) + np.iinfo(np.int16).min", INTEGERS, "i32"),
    # functions
    ("r = min(x, y) + max(x, y, i) + abs(-x)", INTEGERS, "i32"),
    ("r = min(x, y) + max((x, y, i)) + abs(-x)", FLOATS, "f64"),
    ("r = sum((x, y, i)) + any((x, 0)) + all((x, y))", INTEGERS, "i32"),
    ("r = int(x) + r; r = r + round(x)", FLOATS, "f64"),
    ("r = float(x) + bool(y)", INTEGERS, "f64"),
    ("q, m = divmod(y, x); r = q * 10 + m", FLOATS, "f64"),
    ("q, m = np.divmod(y, x); r = q * 10 + m", INTEGERS, "i32"),
    ("r = pow(x, 2) + np.power(y, 2) + math.pow(x, 2)", FLOATS, "f64"),
    ("r = math.exp(x) + np.log(y) + math.log(y, 2)", FLOATS, "f64"),
    ("r = math.exp(x) + np.log(y) + math.log(y, 2)", MIXED, "f32"),
    ("r = np.where(x < i, x, y) + np.clip(x, 0, 2) + np.clip(y, None, 3)", FLOATS, "f64"),
    ("r = np.where(x < i, x, y) + np.clip(x, 0, 2)", INTEGERS, "i32"),
    ("r = r + (np.logical_and(x, y)|np.logical_or(x, 0) ^ np.logical_xor(x, y))", FLOATS, "f64"),
    ("r = np.reciprocal(x) + np.square(y) + np.maximum(x, y)", FLOATS, "f64"),
    ("m, e = math.frexp(x); r = m * e", FLOATS, "f64"),
    ("a, b = math.modf(x + 0.25); r = a * 10 + b", FLOATS, "f64"),
    ("r = math.hypot(x, y, i) + math.floor(y) + math.trunc(y) + math.ceil(x)", FLOATS, "f64"),
    ("r = operator.add(x, y) * operator.neg(x) + operator.lt(x, y)", INTEGERS, "i32"),
    ("r = km.fma(x, y, i) + km.rsqrt(y) + km.erf(x)", FLOATS, "f64"),
    ("r = r + km.popcount(x) + km.clz(x) + km.ctz(y)", INTEGERS, "i32"),
    ("r = np.add(x, y) + np.isnan(x) + np.sign(x)", FLOATS, "f64"),
    ("r = np.float32(x) + x.astype(np.int8) + y.astype('int16')", FLOATS, "f64"),
    ("r = np.int64(x) + y", INTEGERS, "i64"),
    ("r = x.real + y.imag + x.conjugate()", FLOATS, "f64"),
    # structs
    ("p = Point(x, i); r = p.x + p.n", FLOATS, "f64"),
    ("p = Point(n=i, x=y); r = r + p.n", INTEGERS, "i32"),
    ("l = Line(Point(x, 1), b=Point(y, 2)); r = l.a.x + l.b.n", FLOATS, "f64"),
    ("p = Point(x, 1) if x < i else Point(y, 2); r = p.x * p.n", FLOATS, "f64"),
    ("p = Point(x, 1) | for j in range(3): p = Point(p.x + 1, j) | r = p.x + p.n", FLOATS, "f64"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kinds", "wanted"), CASES, ids=lambda v: str(v)[:60])
def test_a_construct_in_a_loop_in_a_branch(body, kinds, wanted):
    lines = body.replace(" | ", "\n").strip().replace("\n", "\n            ")
    function = define(TEMPLATE.format(body=lines))
    arg_types = [SHORT[k] for k in kinds]
    made = translate(function, arg_types)
    assert made.program.entry.result == SHORT[wanted]
    captures = [c.read() for c in made.captures]
    for x, y in ((2, 7), (1, 3), (5, 4)):
        args = [t.to_numpy().type(v) for t, v in zip(arg_types, (x, y), strict=True)]
        found = oracle.run(made.program, args, captures)
        with np.errstate(all="ignore"):
            expected = function(*args)
        assert complex(found) == pytest.approx(complex(expected), rel=1e-5)
