"""Captured scalars, baked objects, and names resolved as Python resolves them."""

from __future__ import annotations

import collections
import enum
import functools
import math
import types

import numpy as np
import pytest

import kernelmill as km
import oracle
from kernelmill.compiler.frontend import captured_type, translate
from kernelmill.dtypes import weak_float, weak_int
from kernelmill.errors import OperatorError

F, I = km.float32, km.int16
COUNT = 3
RATIO = 0.5
STRONG = np.int8(4)
SETTINGS = types.SimpleNamespace(scale=2, deep=types.SimpleNamespace(power=1.5))
PAIR = (2, 0.5)
Weights = collections.namedtuple("Weights", "r g b")  # noqa: PYI024
WEIGHTS = Weights(0.25, 0.5, 0.25)
STEPS = (math.sin, lambda v: v + 1)


class Color(enum.IntEnum):
    RED = 5


class Gain(enum.Enum):
    HALF = 0.5


CRIMSON = Color.RED


class Limits:
    high = 9

    @classmethod
    def within(cls, v):
        return min(v, cls.high)

    @staticmethod
    def twice(v):
        return v * 2


LIMITS = Limits()


@km.struct
class Point:
    x: km.float32
    n: km.int16


ORIGIN = Point(1.5, 2)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda a: Limits.within(a), 9),
        (lambda a: LIMITS.within(a), 9),
        (lambda a: Limits.twice(a), 24),
        (lambda a: LIMITS.twice(a), 24),
    ],
)
def test_methods_of_classes_are_called_by_the_class_and_by_its_instances(function, expected):
    assert function(12.0) == expected
    assert value(function, 12.0) == expected


def captures(function, *types_):
    made = translate(function, types_ or [F])
    return {c.name: (str(c.type), c.read(), [str(t) for t in c.limits]) for c in made.captures}


def value(function, *args, types_=None):
    made = translate(function, types_ or [F] * len(args))
    return oracle.run(made.program, args, [c.read() for c in made.captures])


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda a: a + COUNT, {"COUNT": ("weak int", 3, [])}),
        (lambda a: a + RATIO, {"RATIO": ("weak float", 0.5, [])}),
        (lambda a: a * SETTINGS.scale, {"SETTINGS.scale": ("weak int", 2, [])}),
        (lambda a: a * SETTINGS.deep.power, {"SETTINGS.deep.power": ("weak float", 1.5, [])}),
        (lambda a: a + Color.RED, {"Color.RED": ("weak int", 5, [])}),
        (lambda a: a + Color.RED.value, {"Color.RED.value": ("weak int", 5, [])}),
        (lambda a: a + CRIMSON.value, {"CRIMSON.value": ("weak int", 5, [])}),
        (lambda a: a * Gain.HALF.value, {"Gain.HALF.value": ("weak float", 0.5, [])}),
        (lambda a: a + Limits.high, {"Limits.high": ("weak int", 9, [])}),
        (lambda a: a + PAIR[1], {"PAIR[1]": ("weak float", 0.5, [])}),
        (lambda a: a * WEIGHTS.g, {"WEIGHTS[1]": ("weak float", 0.5, [])}),
        (lambda a, k=4: a + k, {"<lambda>.k": ("weak int", 4, [])}),
        (lambda a, *, k=STRONG: a + k, {"<lambda>.k": ("int8", 4, [])}),
        (lambda a: a + ORIGIN.x, {"ORIGIN.x": ("float32", 1.5, [])}),
        (functools.partial(lambda k, a: a + k, 7), {"partial.args[0]": ("weak int", 7, [])}),
        (lambda a: a + math.pi + np.e, {}),
        (lambda a: a + np.float64(1), {}),
    ],
)
def test_what_is_captured(function, wanted):
    assert captures(function) == wanted


@pytest.mark.parametrize(
    ("captured", "type_"),
    [
        (True, "bool"), (2, "weak int"), (2.5, "weak float"), (2j, "weak complex"),
        (np.bool_(1), "bool"), (np.int8(1), "int8"), (np.uint64(1), "uint64"),
        (np.float16(1), "float16"), (np.float64(1), "float64"), (np.complex64(1), "complex64"),
    ],
)  # fmt: skip
def test_types_of_captures(captured, type_):
    assert str(captured_type(captured)) == type_
    (made,) = translate(lambda a: a * captured, [F]).captures
    assert (made.name, str(made.type)) == ("captured", type_)


@pytest.mark.parametrize(
    "other", ["text", None, [1], np.zeros(2), object(), np.datetime64("2020-01-01")]
)
def test_other_objects_are_no_captures(other):
    assert captured_type(other) is None
    with pytest.raises(OperatorError, match="`other` is "):
        translate(lambda a: a + other, [F])


def test_values_are_read_at_each_call():
    k = 2
    made = translate(lambda a: a + k, [F])
    assert made.captures[0].read() == 2
    k = 5
    assert made.captures[0].read() == 5
    SETTINGS.scale = 11
    try:
        assert captures(lambda a: a * SETTINGS.scale)["SETTINGS.scale"][1] == 11
    finally:
        SETTINGS.scale = 2


def test_one_translation_serves_all_functions_of_its_code():
    def scaled(k, shift, f):
        return lambda a, offset=shift: f(a * k + offset)

    first, second, third = scaled(2, 1, abs), scaled(3.5, 9, abs), scaled(1, 1, math.sin)
    made = translate(first, [F])
    assert [c.read_from(second) for c in made.captures] == [9, 3.5]
    assert [c.read_from(first) for c in made.captures] == [1, 2]
    assert [c.read() for c in made.captures] == [1, 2]
    held = [b for b in made.baked if b.name == "f"]
    assert all(b.read_from(second) is b.value for b in held)
    assert not all(b.read_from(third) is b.value for b in held)


def test_one_place_is_one_capture():
    def f(a):
        return helper(a) + COUNT * COUNT

    def helper(a):
        return a - COUNT

    assert list(captures(f)) == ["COUNT"]


def test_limits_are_the_integer_types_a_python_int_meets():
    k, j, m = 3, 4, 5
    found = captures(lambda a, b: (a + k) + (b * j) + np.uint8(k) + (a * 1.0 + m), I, km.int32)
    assert {name: row[2] for name, row in found.items()} == {
        "k": ["int16", "uint8"],
        "j": ["int32"],
        "m": [],
    }


def test_a_python_int_that_only_meets_floats_is_handed_over_as_one():
    k = 3
    assert [c.stored for c in translate(lambda a: a * k - k, [F]).captures] == [weak_float]
    assert [c.stored for c in translate(lambda a: a * k + int(a) * k, [F]).captures] == [weak_int]


def test_limits_are_found_through_calls_and_variables():
    k = 3

    def helper(a, b):
        c = b
        return a + c

    assert captures(lambda a: helper(a, k), I) == {"k": ("weak int", 3, ["int16"])}


def test_unread_captures_are_dropped():
    k, j = 3, 4

    def f(a):
        unused = a + k  # noqa: F841
        return a * j

    made = translate(f, [F])
    assert [c.name for c in made.captures] == ["j"]
    assert [name for name, _ in made.program.captures] == ["j"]


def test_capture_slots_are_identifiers_without_repetition():
    def outer():
        return lambda a: a + SETTINGS.scale + helper(a)

    def helper(a, SETTINGS_scale=4):  # noqa: N803
        return a * SETTINGS_scale

    made = translate(outer(), [F])
    assert all(name.isidentifier() for name, _ in made.program.captures)
    assert len({name for name, _ in made.program.captures}) == 2


# ----------------------------------------------------------------------------- baked


def names(function, *types_):
    return [b.name for b in translate(function, types_ or [F]).baked]


def test_what_shapes_the_program_is_baked():
    def helper(a):
        return np.float32(a)

    assert names(lambda a: helper(math.exp(a))) == ["math", "helper", "np"]
    assert names(lambda a: max(a, 0)) == ["max"]
    assert names(lambda a: Point(a, 1).x) == ["Point"]
    assert names(lambda a: STEPS[1](a)) == ["len(STEPS)", "STEPS[1]"]
    assert names(lambda a: a + 1) == []
    assert names(np.add, F, F) == []


def test_baked_objects_are_found_again():
    helper = lambda a: a + 1
    made = translate(lambda a: helper(a), [F])
    (baked,) = made.baked
    assert baked.read() is baked.value
    helper = lambda a: a + 2
    assert baked.read() is not baked.value


def test_a_builtin_that_is_shadowed_later_is_noticed():
    space = {}
    exec("def f(a):\n    return max(a, 1)", space)
    (baked,) = translate(space["f"], [F]).baked
    assert baked.read() is baked.value
    space["max"] = min
    assert baked.read() is not baked.value
    assert value(space["f"], 5) == 1


def test_bound_methods_stay_current_and_follow_their_object():
    class Scaler:
        def __init__(self, factor):
            self.factor = factor

        def apply(self, a):
            return a * self.factor

    scaler = Scaler(2)
    made = translate(lambda a: scaler.apply(a), [F])
    assert all(b.read() is b.value for b in made.baked)
    assert [c.read() for c in made.captures] == [2]
    scaler.factor = 7
    assert [c.read() for c in made.captures] == [7]
    scaler = Scaler(9)
    assert all(b.read() is b.value for b in made.baked)
    assert [c.read() for c in made.captures] == [9]


# ----------------------------------------------------------------------------- names


def test_shadowing():
    def f(a):
        max = min  # noqa: A001
        return max(a, 2)

    def g(abs):  # noqa: A002
        return abs + 1

    def h(a):
        COUNT = a
        return (lambda RATIO: RATIO + COUNT)(1)  # noqa: N803, PLC3002

    assert value(f, 5) == 2
    assert value(g, 5) == 6
    assert value(h, 5) == 6


def test_inner_functions_see_variables_as_they_are_when_called():
    def f(a):
        k = 1

        def g(b):
            return b * k

        k = 10
        first = g(a)
        k = 100
        return first + g(a)

    assert value(f, 2) == f(2) == 220


def test_inner_functions_in_functions_in_functions():
    def f(a, n):
        def g(b):
            c = b + n

            def h(d):
                return d * c + a

            return h(b) + h(n)

        return g(a) + g(n)

    assert value(f, 2, 3) == f(2, 3)


def test_functions_are_passed_and_kept():
    def apply(function, v, times=2):
        for _ in range(times):
            v = function(v)
        return v

    def f(a, n):
        step = lambda v: v * 2 + n
        keep = step
        return apply(keep, a) + apply(math.floor, a + 0.5, times=1) + apply(lambda v: -v, n)

    assert value(f, 2, 3) == f(2, 3)


def test_a_literal_argument_stays_a_literal():
    def power(a, n):
        return a**n

    made = translate(lambda a: power(a, 2) + power(a, 3), [I])
    assert sorted(f.name for f in made.program.functions) == ["op", "power", "power_2"]
    assert value(lambda a: power(a, 2) + power(a, 3), 2, types_=[I]) == 12


def test_an_empty_cell_is_named():
    def f(a):
        return a + later

    with pytest.raises(OperatorError) as caught:
        translate(f, [F])
    assert caught.value.message == "`later` of the enclosing function has no value yet"
    assert caught.value.span.text == "        return a + later"
    later = 1
    assert value(f, 1) == 2


def test_a_captured_struct():
    def f(a):
        p = ORIGIN
        return Point(p.x + a, p.n)

    made = translate(f, [F])
    assert [c.name for c in made.captures] == ["ORIGIN.x", "ORIGIN.n"]
    assert value(f, 1) == (2.5, 2)
