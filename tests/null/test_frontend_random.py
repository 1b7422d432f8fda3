"""Random Python functions of doubles: translated and interpreted, they give what Python gives."""

from __future__ import annotations

import linecache

import hypothesis
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelmill as km
import oracle
from kernelmill.compiler.frontend import translate

VARIABLES = "abcd"


class Author:
    """Draws the text of a function; every variable is bound before it is read."""

    def __init__(self, draw):
        self.draw = draw
        self.lines = []
        self.loops = 0
        self.budget = 22

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def line(self, depth, text):
        self.lines.append("    " * depth + text)

    def expression(self, depth=2):
        kind = self.pick("name", "number", "op", "op", "if", "call", "bool") if depth else "name"
        if kind == "name":
            return self.pick(*VARIABLES, "x", "y")
        if kind == "number":
            return self.pick("0", "1", "2.5", "-1.5", "3")
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        if kind == "op":
            return f"({a} {self.pick('+', '-', '*')} {b})"
        if kind == "call":
            return self.pick(f"min({a}, {b})", f"max({a}, {b})", f"helper({a}, {b})", f"inner({a})")
        if kind == "bool":
            return f"({a} {self.pick('and', 'or')} {b})"
        return f"({a} if {self.condition(depth - 1)} else {b})"

    def condition(self, depth=1):
        a, b = self.expression(depth), self.expression(depth)
        text = f"{a} {self.pick('<', '<=', '>', '!=')} {b}"
        kind = self.pick("plain", "plain", "not", "and", "chain") if depth else "plain"
        if kind == "not":
            return f"not {text}"
        if kind == "and":
            return f"({text} {self.pick('and', 'or')} {self.condition(depth - 1)})"
        return f"{self.expression(0)} < {text}" if kind == "chain" else text

    def block(self, depth, loops):
        for _ in range(self.draw(st.integers(1, 3))):
            if self.statement(depth, loops):
                return
        if not self.lines[-1].strip() or self.lines[-1].rstrip().endswith(":"):
            self.line(depth, "pass")

    def statement(self, depth, loops):
        """Write a statement; return whether what follows it is not reached."""
        self.budget -= 1
        if self.budget < 0:
            self.line(depth, "pass")
            return False
        kinds = ["assign", "assign", "swap", "swap", "aug", "if", "if", "else", "return"]
        kinds += ["for", "while", "true"] if loops < 2 else []
        kinds += ["break", "continue"] if loops else []
        return getattr(self, f"write_{self.pick(*kinds)}")(depth, loops)

    def write_assign(self, depth, loops):
        self.line(depth, f"{self.pick(*VARIABLES)} = {self.expression()}")

    def write_swap(self, depth, loops):
        names = self.draw(st.permutations(VARIABLES))
        self.line(depth, f"{', '.join(VARIABLES[:3])} = {', '.join(names[:3])}")

    def write_aug(self, depth, loops):
        self.line(
            depth, f"{self.pick(*VARIABLES)} {self.pick('+', '-', '*')}= {self.expression(1)}"
        )

    def write_if(self, depth, loops):
        self.line(depth, f"if {self.condition()}:")
        self.block(depth + 1, loops)

    def write_else(self, depth, loops):
        self.write_if(depth, loops)
        self.line(depth, "else:")
        self.block(depth + 1, loops)

    def write_return(self, depth, loops):
        self.line(depth, f"return {self.expression(1)}")
        return True

    def write_break(self, depth, loops):
        self.line(depth, "break")
        return True

    def write_continue(self, depth, loops):
        self.line(depth, "continue")
        return True

    def write_for(self, depth, loops):
        bounds = self.pick("3", "1, 4", "4, 0, -2", "0", "2, 2")
        self.line(depth, f"for {self.pick(*VARIABLES, 'i')} in range({bounds}):")
        self.block(depth + 1, loops + 1)

    def count(self, depth, head):
        self.loops += 1
        name = f"k{self.loops}"
        self.line(depth, f"{name} = 0")
        self.line(depth, head.format(name))
        self.line(depth + 1, f"{name} = {name} + 1")
        return name

    def write_while(self, depth, loops):
        self.count(depth, f"while {{}} < 3 and {self.condition()}:")
        self.block(depth + 1, loops + 1)

    def write_true(self, depth, loops):
        name = self.count(depth, "while True:")
        self.line(depth + 1, f"if {name} > 2:")
        self.line(depth + 2, "break")
        self.block(depth + 1, loops + 1)


HEAD = """\
def helper(p, q=2.0):
    if p < q:
        return p * 2
    for i in range(2):
        q = q + p
    return q

def f(x, y):
    a, b, c, d = x, y, 1, 2.5
    inner = lambda v: v * b - a
"""


@st.composite
def texts(draw):
    author = Author(draw)
    author.block(1, 0)
    author.block(1, 0)
    author.line(1, f"return ({author.expression()}) + a")
    return HEAD + "\n".join(author.lines) + "\n"


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@given(text=texts(), x=st.sampled_from((-2.5, 0.0, 1.5, 3.0)), y=st.sampled_from((-1.0, 2.0)))
def test_random_functions_agree_with_python(text, x, y):
    linecache.cache["<random>"] = (len(text), None, text.splitlines(keepends=True), "<random>")
    space = {}
    exec(compile(text, "<random>", "exec"), space)
    made = translate(space["f"], [km.float64, km.float64])
    found = oracle.run(made.program, [x, y], [c.read() for c in made.captures])
    with np.errstate(all="ignore"):
        wanted = space["f"](np.float64(x), np.float64(y))
    if abs(wanted) < 2**53:  # Python's integers grow without bounds
        assert found == wanted
