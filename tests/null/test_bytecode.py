"""Trees rebuilt from bytecode do what the function does: random programs, a table, refusals."""

import ast
import dis
import doctest
import math
import random
import sys
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.compiler import bytecode
from kernelmill.compiler.bytecode import decode, recover, verify
from kernelmill.compiler.bytecode.refusal import UnknownShapeError
from kernelmill.errors import OperatorError

HINT = "define the function in a file or a notebook cell, so that its source can be read"


# --- run both ------------------------------------------------------------------------------------


class Trace(list):
    """What a program called, in order: evaluation order and count are part of the meaning."""

    def __call__(self, tag, value=0):
        if len(self) > 400:
            raise TimeoutError
        self.append((tag, repr(value)))
        return value


def run(function, trace, arguments):
    """Return what a call gives or raises, with its trace."""
    trace.clear()
    try:
        result = function(*arguments)
    except (ArithmeticError, TypeError, ValueError, UnboundLocalError, TimeoutError) as error:
        result = type(error).__name__
    return repr(result), list(trace)


def define(source):
    """Run a text without a file; return its first function, the namespace and the trace."""
    trace = Trace()
    space = {"t": trace, "math": math, "glob": 3, "x": 2, "y": -1, "z": 0.5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        exec(source, space)
    return space["f"], space, trace


def rebuilt(function, space):
    """Compile the recovered tree of a function without free variables."""
    node = recover(function.__code__, defaults=function.__defaults__ or ())
    ast.unparse(node)
    if isinstance(node, ast.Lambda):
        value = ast.Assign([ast.Name("f", ast.Store())], node)
        node = ast.copy_location(value, node)
    module = ast.fix_missing_locations(ast.Module([node], []))
    target = dict(space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        exec(compile(module, "<rebuilt>", "exec"), target)
    return target["f"]


def check(source, inputs):
    """Compare a program and its recovered form on some inputs."""
    function, space, trace = define(source)
    again = rebuilt(function, space)
    for arguments in inputs:
        expected = run(function, trace, arguments)
        assert run(again, trace, arguments) == expected, (source, arguments)


# --- random programs -----------------------------------------------------------------------------


class Grammar:
    """Writes programs of the accepted language; `pick(n)` chooses one of n."""

    NAMES = ("a", "b", "c", "x", "y", "z")

    def __init__(self, pick):
        self.pick = pick
        self.tag = 0
        self.budget = 40  # statements left
        self.loops = 0
        self.functions = ()

    def one(self, *choices):
        return choices[self.pick(len(choices))]

    def name(self):
        return self.one(*self.NAMES)

    def expr(self, depth):
        if depth <= 0:
            return self.one(self.name(), self.name(), str(self.pick(5)), "-1", "2.5", "glob")
        kind = self.pick(13)
        sub = lambda: self.expr(depth - 1 - self.pick(2))
        self.tag += 1
        match kind:
            case 0 | 1:
                return f"({sub()} {self.one('+', '-', '*')} {sub()}) % 97"
            case 2:
                return f"({sub()} {self.one('//', '%', '/')} {self.one('3', '-2', self.name())})"
            case 3:
                return f"({sub()} {self.one('<', '<=', '==', '!=', '>', '>=')} {sub()})"
            case 4:
                return f"({self.test(depth - 1)})"
            case 5 | 6:
                return f"({sub()} if {self.test(depth - 1)} else {sub()})"
            case 7:
                return f"({sub()} {self.one('and', 'or')} {sub()})"
            case 8:
                return f"({self.name()} := {sub()})"
            case 9:
                return f"t({self.tag}, {sub()})"
            case 10:
                return f"({self.one('-', '+', 'not ')}({sub()}))"
            case 11:
                return f"({sub()}, {sub()}, {sub()})[{self.one('0', '1', '-1')}]"
            case _:
                return self.call(depth)

    def call(self, depth):
        sub = lambda: self.expr(depth - 1 - self.pick(2))
        options = [
            f"min({sub()}, {sub()})",
            f"math.floor({sub()})",
            f"(lambda u, v=1: u - v if u else {self.one('u', 'v', 'a')})({sub()})",
            f"t(value={sub()}, tag={self.tag})",
        ]
        options += [f"{g}({sub()}, v={sub()})" for g in self.functions]
        return self.one(*options)

    def test(self, depth):
        if depth <= 0:
            return self.one(self.name(), f"{self.name()} < {self.expr(0)}")
        sub = lambda: self.test(depth - 1 - self.pick(2))
        leaf = lambda: self.expr(depth - 2)
        self.tag += 1
        match self.pick(9):
            case 0 | 1:
                return f"({sub()} and {sub()})"
            case 2 | 3:
                return f"({sub()} or {sub()})"
            case 4:
                return f"not ({sub()})"
            case 5:
                signs = [self.one("<", "<=", ">", "==", "!=") for _ in range(2 + self.pick(2))]
                return leaf() + "".join(f" {sign} {leaf()}" for sign in signs)
            case 6:
                return f"({sub()} if {sub()} else {sub()})"
            case 7:
                plain = f"{self.name()} {self.one('is', 'is not')} {self.one('None', 'b')}"
                return self.one(plain, f"{leaf()} {self.one('in', 'not in')} (1, 2, {leaf()})")
            case _:
                return f"{self.one('', 'not ')}t({self.tag}, {leaf()}) > {leaf()}"

    # statements

    def block(self, depth, pad):
        lines = []
        for _ in range(1 + self.pick(3)):
            self.budget -= 1
            lines += self.statement(depth if self.budget > 0 else 0, pad)
        return lines

    def statement(self, depth, pad):
        compound = [self.if_, self.if_, self.while_, self.for_]
        simple = [self.assign, self.assign, self.assign, self.leave]
        return self.one(*simple, *(compound * 2 if depth > 0 else ()))(depth, pad)

    def assign(self, _depth, pad):
        name, other, third = self.name(), self.name(), self.name()
        size = self.pick(4)
        value = self.expr(size)
        lines = [
            f"{name} = {value}",
            f"{name} {self.one('+=', '-=', '//=')} {value}",
            f"{name}, {other} = {other}, {name}",
            f"{name}, {other} = {value}, {self.expr(1)}",
            f"{name}, {other}, {third} = {third}, {self.expr(1)}, {self.expr(1)}",
            f"{name} = {other} = {value}",
            f"({name}, {other}), {third} = ({self.expr(1)}, {self.expr(0)}), {self.expr(1)}",
            f"t(0, {value})",
            "pass",
        ]
        return [pad + self.one(*lines)]

    def leave(self, _depth, pad):
        returns = f"return {self.expr(self.pick(3))}"
        inside = ["break", "continue", "break", "continue"] if self.loops else []
        return [pad + self.one(returns, *inside)]

    def if_(self, depth, pad):
        lines = [f"{pad}if {self.test(self.pick(4))}:", *self.block(depth - 1, pad + " ")]
        for _ in range(self.one(0, 0, 1, 2)):
            lines += [f"{pad}elif {self.test(self.pick(3))}:", *self.block(depth - 1, pad + " ")]
        if self.pick(2):
            lines += [f"{pad}else:", *self.block(depth - 1, pad + " ")]
        return lines

    def while_(self, depth, pad):
        test = self.one("True", self.test(self.pick(4)), self.test(self.pick(4)))
        return self.loop(f"while {test}:", depth, pad, stop="t('loop')")

    def for_(self, depth, pad):
        bound = self.one("range(3)", f"range({self.pick(4)}, 4, 2)", f"range(t(1, {self.pick(4)}))")
        return self.loop(f"for {self.name()} in {bound}:", depth, pad, stop="")

    def loop(self, head, depth, pad, stop):
        self.loops += 1
        body = self.block(depth - 1, pad + " ")
        self.loops -= 1
        first = [f"{pad} {stop}"] if stop else []
        lines = [pad + head, *first, *body]
        if self.pick(4) == 0:
            lines += [f"{pad}else:", *self.block(depth - 1, pad + " ")]
        return lines

    def program(self):
        if self.pick(8) == 0:
            return f"f = lambda a, b, c=1: {self.expr(4)}\n"
        lines = ["def f(a, b, c=1):", " x = y = z = 1"]
        if self.pick(4) == 0:
            body = self.block(1, "  ")
            lines += [" def g(u, v=2):", "  x = y = z = a = b = c = u", *body, "  return v - u"]
            self.functions = ("g",)
        lines += self.block(3, " ")
        if self.pick(2):
            lines.append(" return a, b, c, x, y, z")
        return "\n".join(lines) + "\n"


@st.composite
def programs(draw):
    """Draw the text of a program."""
    return Grammar(lambda count: draw(st.integers(0, count - 1))).program()


NUMBERS = st.one_of(st.integers(-3, 6), st.floats(-3, 6), st.sampled_from([math.nan, -0.0, 1.0]))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=4, max_size=8))
def test_drawn_programs_do_the_same(source, inputs):
    check(source, inputs)


def sample(seed):
    chance = random.Random(seed)
    source = Grammar(chance.randrange).program()
    values = [-2, -1, 0, 1, 2, 3, 5, 0.5, -1.5, math.nan, -0.0]
    return source, [tuple(chance.choice(values) for _ in range(3)) for _ in range(8)]


@pytest.mark.parametrize("block", range(5))
def test_random_programs_do_the_same(block):
    for seed in range(100 * block, 100 * block + 100):
        check(*sample(seed))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_thousands_of_random_programs_do_the_same(block):
    for seed in range(1000 + 1000 * block, 2000 + 1000 * block):
        check(*sample(seed))
