"""Random kernels as Python texts, and the plain Python that says what they give.

A text is run as it is with a `km` whose `grid_range` takes all indices: threads that write to
their own elements need no more. Types are such that plain Python has one answer for them.
"""

from __future__ import annotations

import itertools
import linecache
import random

import numpy as np

HEAD = "def k(x, m, fo, io, n, a):\n"


class Plain:
    """`km` for plain Python."""

    float32 = np.float32

    @staticmethod
    def grid_range(*extents, unroll=1):
        if len(extents) == 1:
            return range(extents[0])
        return itertools.product(*map(range, extents))

    @staticmethod
    def static_range(*bounds):
        return range(*bounds)


class Generator:
    """Writes one kernel; `pick` decides."""

    def __init__(self, seed):
        self.pick = random.Random(seed)
        self.ints = ["i", "n", "2", "7", "len(x)", "m.shape[1]"]
        self.floats = ["a", "x[i]", "np.float32(0.75)"]
        self.names = itertools.count()
        self.set_ints, self.set_floats = ["t"], ["v"]

    # ------------------------------------------------------------------ expressions

    def integer(self, depth=2):
        if depth == 0 or self.pick.random() < 0.3:
            return self.pick.choice(self.ints)
        form = self.pick.choice(_INTEGERS)
        return form.format(
            p=self.integer(depth - 1),
            q=self.integer(depth - 1),
            c=self.pick.choice((1, 2, 3, 5, 32)),
            e=self.element("m", depth),
            b=self.truth(depth - 1),
        )

    def number(self, depth=2):
        if depth == 0 or self.pick.random() < 0.3:
            return self.pick.choice(self.floats)
        form = self.pick.choice(_NUMBERS)
        return form.format(
            p=self.number(depth - 1),
            q=self.number(depth - 1),
            c=self.pick.choice(("0.5", "1.25", "3", "-2.0")),
            e=self.element("x", depth),
            b=self.truth(depth - 1),
            i=self.pick.choice(self.ints),
        )

    def element(self, array, depth):
        index = self.integer(max(depth - 1, 0))
        if array == "x":
            return f"x[({index}) % len(x)]"
        other = self.integer(max(depth - 1, 0))
        return f"m[({index}) % m.shape[0], ({other}) % m.shape[1]]"

    def truth(self, depth=1):
        form = self.pick.choice(_TRUTHS if depth > 0 else _TRUTHS[:3])
        below = max(depth - 1, 0)
        return form.format(
            i=self.integer(below),
            j=self.integer(below),
            p=self.number(below),
            q=self.number(below),
            b=self.truth(depth - 1) if depth > 0 else "",
            d=self.truth(depth - 1) if depth > 0 else "",
        )

    # ------------------------------------------------------------------ statements

    def block(self, depth, indent, *, loop):
        lines = []
        ints, floats = list(self.ints), list(self.floats)
        for _ in range(self.pick.randint(1, 3)):
            lines += self.statement(depth, indent, loop=loop)
        self.ints, self.floats = ints, floats
        return lines

    def statement(self, depth, indent, *, loop):
        kind = self.pick.choice(
            ("int", "float", "int", "float", "new", "if", "for", "while", "jump")
        )
        pad = " " * indent
        if kind == "new":
            name = f"w{next(self.names)}"
            line = f"{pad}{name} = ({self.integer()}) % 97"
            self.ints.append(name)
            return [line]
        if kind == "float":
            return [f"{pad}v {self.pick.choice('+-')}= {self.number()}"]
        if kind == "int" or depth == 0 or (kind == "jump" and not loop):
            return [f"{pad}t = (t + {self.integer()}) % 1009"]
        if kind == "jump":
            jump = self.pick.choice(("break", "continue"))
            return [f"{pad}if {self.truth()}:", f"{pad}    {jump}"]
        if kind == "if":
            lines = [f"{pad}if {self.truth()}:", *self.block(depth - 1, indent + 4, loop=loop)]
            if self.pick.random() < 0.6:
                lines += [f"{pad}else:", *self.block(depth - 1, indent + 4, loop=loop)]
            return lines
        return self.loop(kind, depth, indent)

    def loop(self, kind, depth, indent):
        pad, name = " " * indent, f"j{next(self.names)}"
        if kind == "while":
            head = [f"{pad}{name} = 0", f"{pad}while {name} < 3 and {self.truth()}:"]
            step = [f"{pad}    {name} += 1"]
        else:
            bounds = self.pick.choice(("3", "1, 4", "4, 0, -2", "n % 5", "i % 3, 3"))
            loop = self.pick.choice(("range", "range", "km.static_range"))
            if loop == "km.static_range" and not bounds[0].isdigit():
                loop = "range"
            head, step = [f"{pad}for {name} in {loop}({bounds}):"], []
        ints = list(self.ints)
        self.ints.append(name)
        body = self.block(depth - 1, indent + 4, loop=True)
        self.ints = ints
        return [*head, *step, *body]

    def text(self):
        lines = ["    for i in km.grid_range(len(fo)):", "        t = i", "        v = x[i]"]
        self.ints.append("t")
        self.floats.append("v")
        for _ in range(self.pick.randint(3, 6)):
            lines += self.statement(2, 8, loop=False)
        lines += ["        fo[i] = v", "        io[i] = t"]
        return HEAD + "\n".join(lines) + "\n"


_INTEGERS = (
    "({p} + {q})", "({p} - {q})", "({p} * {q} % 10007)", "({p} // {c})", "({p} % {c})", "-{p}",
    "abs({p})", "min({p}, {q})", "max({p}, {c})", "int({e})", "({p} if {b} else {q})",
    "({p} % 64 << 3)", "({p} & 255)",
)  # fmt: skip
_NUMBERS = (
    "({p} + {q})", "({p} - {q})", "({p} * {c})", "-{p}", "abs({p})", "min({p}, {q})", "{e}",
    "np.float32({i})", "({p} if {b} else {q})", "({p} + {i} % 16)",
)  # fmt: skip
_TRUTHS = (
    "({i} < {j})", "({p} >= {q})", "({i} == {j})", "({b} and {d})", "({b} or {d})", "(not {b})",
    "({i} < {j} <= {i})",
)  # fmt: skip


def define(text, km, name):
    """Return the function of a text, with `km` as it is given."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space = {"km": km, "np": np}
    exec(compile(text, name, "exec", dont_inherit=True), space)
    return space["k"]


def arguments(seed):
    rng = np.random.default_rng(seed)
    count = 40
    return [
        rng.uniform(-2, 2, count).astype(np.float32),
        rng.integers(-50, 50, (6, 9)).astype(np.int32),
        np.zeros(count, np.float32),
        np.zeros(count, np.int64),
        int(rng.integers(0, 50)),
        float(rng.uniform(-1, 1)),
    ]


def plain(text, args):
    """Run a text as plain Python."""
    with np.errstate(all="ignore"):
        define(text, Plain, "<plain>")(*args)
