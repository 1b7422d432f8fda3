"""What the operator language refuses: the whole text of each error, with the line and its caret."""

from __future__ import annotations

import functools
import linecache
import math
import operator

import numpy as np
import pytest

import kernelmill as km
from kernelmill.compiler.frontend import translate
from kernelmill.errors import OperatorError


@km.struct
class Point:
    x: km.float32
    n: km.int16


class State:
    @property
    def hidden(self):
        raise AssertionError("a property was run")


NAMES = {
    "functools": functools, "math": math, "operator": operator, "np": np, "Point": Point,
    "STATE": State(), "LIST": [1, 2], "ARRAY": np.zeros(3), "SETTINGS": {"a": 1},
}  # fmt: skip


def define(text, names=NAMES):
    linecache.cache["<cell>"] = (len(text), None, text.splitlines(keepends=True), "<cell>")
    space = {**names, "__builtins__": __builtins__}
    exec(compile(text, "<cell>", "exec", dont_inherit=True), space)
    return space["f"]


CASES = [
    (
        """\
def f(x, y):
    assert x > 0
    return x
""",
        """\
`assert` is not part of the operator language
  File "<cell>", line 2
        assert x > 0
        ^^^^^^^^^^^^

hint: return a marker value such as math.nan, and check the result
""",
    ),
    (
        """\
def f(x, y):
    try:
        return x
    except ValueError:
        return y
""",
        """\
`try` is not part of the operator language
  File "<cell>", line 2
        try:
        ^^^^

hint: test the operands before: no operation raises in an operator
""",
    ),
    (
        """\
def f(x, y):
    return {x: y}
""",
        """\
a dict is not part of the operator language
  File "<cell>", line 2
        return {x: y}
               ^^^^^^

hint: use a struct, `@km.struct class P: x: km.float32`, or plain variables
""",
    ),
    (
        """\
def f(x, y):
    return [x, y][0]
""",
        """\
a list is not part of the operator language
  File "<cell>", line 2
        return [x, y][0]
               ^^^^^^

hint: use a tuple, `(a, b)`, or plain variables
""",
    ),
    (
        """\
def f(x, y):
    return f"{x}"
""",
        """\
an f-string is not part of the operator language
  File "<cell>", line 2
        return f"{x}"
               ^^^^^^

hint: return numbers, and format the result outside
""",
    ),
    (
        """\
def f(x, y):
    return "a"
""",
        """\
`'a'` is a string: an operator cannot compute with it
  File "<cell>", line 2
        return "a"
               ^^^

hint: encode it as a number outside
""",
    ),
    (
        """\
def f(x, y):
    print(x)
    return x
""",
        """\
`print` cannot be called in an operator
  File "<cell>", line 2
        print(x)
        ^^^^^^^^

hint: return the value, and print the result outside
""",
    ),
    (
        """\
def fact(n):
    return 1 if n < 2 else n * fact(n - 1)

def f(x, y):
    return fact(x)
""",
        """\
`fact` calls itself: recursion is not part of the language
  File "<cell>", line 2
        return 1 if n < 2 else n * fact(n - 1)
                                   ^^^^^^^^^^^

hint: write the recursion as a loop
""",
    ),
    (
        """\
def even(n):
    return True if n == 0 else odd(n - 1)

def odd(n):
    return False if n == 0 else even(n - 1)

def f(x, y):
    return even(x)
""",
        """\
`even` calls itself through `odd`: recursion is not part of the language
  File "<cell>", line 5
        return False if n == 0 else even(n - 1)
                                    ^^^^^^^^^^^

hint: write the recursion as a loop
""",
    ),
    (
        """\
def f(x, y):
    g = lambda a: g(a - 1)
    return g(x)
""",
        """\
`<lambda>` calls itself: recursion is not part of the language
  File "<cell>", line 2
        g = lambda a: g(a - 1)
                      ^^^^^^^^

hint: write the recursion as a loop
""",
    ),
    (
        """\
def f(x, y):
    yield x
""",
        """\
`f` is a generator, which is not part of the operator language
  File "<cell>", line 1
    def f(x, y):
    ^^^^^^^^^^^^

hint: write a plain function that returns its result
""",
    ),
    (
        """\
async def f(x, y):
    return x
""",
        """\
`f` is an async function, which is not part of the operator language
  File "<cell>", line 1
    async def f(x, y):
    ^^^^^^^^^^^^^^^^^^

hint: write a plain function that returns its result
""",
    ),
    (
        """\
def gen(x):
    yield x

def f(x, y):
    return gen(x)
""",
        """\
`gen` is a generator, which is not part of the operator language
  File "<cell>", line 5
        return gen(x)
               ^^^^^^

hint: write a plain function that returns its result
""",
    ),
    (
        """\
def f(x, y):
    global SETTINGS
    SETTINGS = x
    return x
""",
        """\
`global` is not part of the operator language
  File "<cell>", line 2
        global SETTINGS
        ^^^^^^^^^^^^^^^

hint: return the value: an operator changes nothing outside itself
""",
    ),
    (
        """\
def f(x, y):
    def g():
        nonlocal x
        x = 1
        return x
    return g()
""",
        """\
`nonlocal` is not part of the operator language
  File "<cell>", line 3
            nonlocal x
            ^^^^^^^^^^

hint: return the value: an inner function changes nothing outside
""",
    ),
    (
        """\
def f(x, y):
    return LIST[0] + x
""",
        """\
`LIST` is a list, which can change: an operator cannot compute with it
  File "<cell>", line 2
        return LIST[0] + x
               ^^^^

hint: make it a tuple
""",
    ),
    (
        """\
def f(x, y):
    return ARRAY + x
""",
        """\
`ARRAY` is an array: an operator computes with its elements
  File "<cell>", line 2
        return ARRAY + x
               ^^^^^

hint: write `ARRAY[i]`
""",
    ),
    (
        """\
def f(x, y):
    return SETTINGS["a"]
""",
        """\
`SETTINGS` is a dict, which can change: an operator cannot compute with it
  File "<cell>", line 2
        return SETTINGS["a"]
               ^^^^^^^^

hint: use separate variables, or a types.SimpleNamespace
""",
    ),
    (
        """\
def f(x, y):
    if x > 0:
        return x
""",
        """\
`f` may end without a `return`
  File "<cell>", line 1
    def f(x, y):
    ^^^^^^^^^^^^

hint: return a value on every way through the function
""",
    ),
    (
        """\
def f(x, y):
    if x > 0:
        z = x
    return z
""",
        """\
`z` has no value on some way to this line (only line 3 sets it)
  File "<cell>", line 4
        return z
               ^

hint: set `z` on every branch, or give it a value before the `if`
""",
    ),
    (
        """\
def f(x, y):
    for i in range(x):
        z = x
    return z
""",
        """\
range() expects integers, got float32
  File "<cell>", line 2
        for i in range(x):
                 ^^^^^^^^

hint: write int(x) to drop the fraction
""",
    ),
    (
        """\
def f(x, y):
    return z + x
""",
        """\
name `z` is not defined
  File "<cell>", line 2
        return z + x
               ^

hint: define it before the operator is used
""",
    ),
    (
        """\
def f(x, y):
    return z
    z = 1
""",
        """\
`z` is read before it is set
  File "<cell>", line 2
        return z
               ^

hint: give `z` a value before
""",
    ),
    (
        """\
def f(x, y):
    return maht.exp(x)
""",
        """\
name `maht` is not defined (did you mean `math`?)
  File "<cell>", line 2
        return maht.exp(x)
               ^^^^

hint: define it before the operator is used
""",
    ),
    (
        """\
def f(x, y):
    return math.exq(x)
""",
        """\
module `math` has no attribute `exq` (did you mean `exp`?)
  File "<cell>", line 2
        return math.exq(x)
               ^^^^^^^^

hint: an operator reads plain attributes of modules, classes and objects
""",
    ),
    (
        """\
def f(x, y):
    return sorted((x, y))
""",
        """\
`sorted` cannot be called in an operator
  File "<cell>", line 2
        return sorted((x, y))
               ^^^^^^^^^^^^^^

hint: compare and swap: `a, b = min(a, b), max(a, b)`
""",
    ),
    (
        """\
def f(x, y):
    return x.foo
""",
        """\
float32 has no attribute `foo`
  File "<cell>", line 2
        return x.foo
               ^^^^^

hint: scalars have .real, .imag, .conjugate() and .astype(t)
""",
    ),
    (
        """\
def f(x, y):
    return x.sum()
""",
        """\
float32 has no method `sum`
  File "<cell>", line 2
        return x.sum()
               ^^^^^

hint: an operator sees one element; use km.reduce for a sum over an array
""",
    ),
    (
        """\
def f(x, y):
    return x[0]
""",
        """\
float32 cannot be indexed: an operator sees one element
  File "<cell>", line 2
        return x[0]
               ^^^^

hint: pass each array that is read as an input of its own
""",
    ),
    (
        """\
def f(x, y):
    return Point(x, 1).z
""",
        """\
struct Point has no field `z`
  File "<cell>", line 2
        return Point(x, 1).z
               ^^^^^^^^^^^^^

hint: its fields are x, n
""",
    ),
    (
        """\
def f(x, y):
    return Point(x)
""",
        """\
`Point` needs all its fields: missing n
  File "<cell>", line 2
        return Point(x)
               ^^^^^^^^

hint: its fields are x, n
""",
    ),
    (
        """\
def f(x, y):
    return Point(x, 1, 2)
""",
        """\
`Point` has 2 fields, got 3 values
  File "<cell>", line 2
        return Point(x, 1, 2)
               ^^^^^^^^^^^^^^

hint: its fields are x, n
""",
    ),
    (
        """\
def f(x, y):
    return Point(x, m=1)
""",
        """\
`m` is not a field of `Point`
  File "<cell>", line 2
        return Point(x, m=1)
               ^^^^^^^^^^^^^

hint: its fields are x, n
""",
    ),
    (
        """\
def f(x, y):
    p = Point(x, 1)
    p.x = 2
    return p
""",
        """\
an operator cannot change a struct, a tuple or an array in place
  File "<cell>", line 3
        p.x = 2
        ^^^

hint: build a new value, `p = P(x=1, y=p.y)`, and return it
""",
    ),
    (
        """\
def f(x, y):
    if x > 0:
        return Point(x, 1)
    return x
""",
        """\
this returns float32, line 3 returns Point: they have no common type
  File "<cell>", line 4
        return x
        ^^^^^^^^

hint: return values of one kind on every way, for example np.float32(x)
""",
    ),
    (
        """\
def f(x, y):
    if x > 0:
        z = Point(x, 1)
    else:
        z = x
    return z
""",
        """\
`z` is Point (line 3) and float32 (line 5): they have no common type
  File "<cell>", line 6
        return z
               ^

hint: use two variables, or convert one of the values, for example np.float32(x)
""",
    ),
    (
        """\
def f(x, y):
    return x if y > 0 else Point(x, 1)
""",
        """\
float32 and Point have no common type
  File "<cell>", line 2
        return x if y > 0 else Point(x, 1)
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^

hint: convert one of them, for example np.float32(x)
""",
    ),
    (
        """\
def f(x, y):
    return x in (1, 2)
""",
        """\
`in` is not part of the operator language
  File "<cell>", line 2
        return x in (1, 2)
               ^^^^^^^^^^^

hint: write `x == a or x == b`
""",
    ),
    (
        """\
def f(x, y):
    return x is y
""",
        """\
`is` is not part of the operator language
  File "<cell>", line 2
        return x is y
               ^^^^^^

hint: write `==`
""",
    ),
    (
        """\
def f(x, y):
    return x @ y
""",
        """\
`@` is not part of the operator language
  File "<cell>", line 2
        return x @ y
               ^^^^^

hint: write out the products and sums
""",
    ),
    (
        """\
def f(x, y, z):
    return x
""",
        """\
`f` takes 3 arguments, got 2: missing `z`
  File "<cell>", line 1
    def f(x, y, z):
    ^^^^^^^^^^^^^^^

hint: pass one input for each argument, or give the argument a default value
""",
    ),
    (
        """\
def f(x):
    return x
""",
        """\
`f` takes 1 argument, got 2
  File "<cell>", line 1
    def f(x):
    ^^^^^^^^^

hint: its arguments are (x)
""",
    ),
    (
        """\
def f(*xs):
    return xs[0]
""",
        """\
`f` takes `*xs`: an operator's arguments are named one by one
  File "<cell>", line 1
    def f(*xs):
           ^^

hint: list the arguments: `def f(a, b)`
""",
    ),
    (
        """\
def decorator(f):
    @functools.wraps(f)
    def inner(*a, **k):
        return f(*a, **k)
    return inner

@decorator
def wrapped(x):
    return x

f = wrapped
""",
        """\
`wrapped` takes `*a`: an operator's arguments are named one by one
  File "<cell>", line 3
        def inner(*a, **k):
                   ^

hint: list the arguments: `def f(a, b)`
""",
    ),
    (
        """\
def f(x, y):
    return math.exp(x, y)
""",
        """\
`math.exp` takes 1 argument, got 2
  File "<cell>", line 2
        return math.exp(x, y)
               ^^^^^^^^^^^^^^

hint: write `math.exp(a)`
""",
    ),
    (
        """\
def f(x, y):
    return np.add(x, y, out=x)
""",
        """\
`np.add` takes no keyword arguments here, got `out`
  File "<cell>", line 2
        return np.add(x, y, out=x)
               ^^^^^^^^^^^^^^^^^^^

hint: pass the arguments by position; `out=`, `where=` and `dtype=` have no meaning
""",
    ),
    (
        """\
def f(x, y):
    return int8_(x) + 300
int8_ = np.int8
""",
        """\
Python integer 300 out of bounds for int8
  File "<cell>", line 2
        return int8_(x) + 300
               ^^^^^^^^^^^^^^

hint: int8 holds -128 to 127; widen the other operand first
""",
    ),
    (
        """\
def f(x, y):
    return ~x
""",
        """\
`~` is not defined for float32 (float32)
  File "<cell>", line 2
        return ~x
               ^^

hint: convert an operand first, for example np.int32(x)
""",
    ),
    (
        """\
def f(x, y):
    t = (x, y)
    a, b, c = t
    return a
""",
        """\
2 values are unpacked into 3 variables
  File "<cell>", line 3
        a, b, c = t
        ^^^^^^^

hint: name one variable for each value
""",
    ),
    (
        """\
def f(x, y):
    a, *b = (x, y)
    return a
""",
        """\
a starred expression here is not part of the operator language
  File "<cell>", line 2
        a, *b = (x, y)
           ^^

hint: name the items one by one
""",
    ),
    (
        """\
def f(x, y):
    return [i for i in range(3)]
""",
        """\
a list comprehension is not part of the operator language
  File "<cell>", line 2
        return [i for i in range(3)]
               ^^^^^^^^^^^^^^^^^^^^^

hint: write a `for` loop over `range(...)`
""",
    ),
    (
        """\
def f(x, y):
    while True:
        x = x + 1
""",
        """\
`f` never returns
  File "<cell>", line 1
    def f(x, y):
    ^^^^^^^^^^^^

hint: leave the loop with `break` or `return`
""",
    ),
    (
        """\
def f(x, y):
    for i in (x, y):
        if i > 0:
            break
    return x
""",
        """\
`break` and `continue` are not part of a loop over a tuple
  File "<cell>", line 4
                break
                ^^^^^

hint: put the rest of the body under an `if`, or loop over `range(...)`
""",
    ),
    (
        """\
def f(x, y):
    for i in range(3):
        x = x + i
    else:
        x = 0
    return x
""",
        """\
`else` of a loop is not part of the operator language
  File "<cell>", line 5
            x = 0
            ^^^^^

hint: set a flag before `break`, and test it behind the loop
""",
    ),
    (
        """\
def f(x, y):
    return lambda a: a
""",
        """\
a function cannot be returned
  File "<cell>", line 2
        return lambda a: a
               ^^^^^^^^^^^

hint: call it, and return its result
""",
    ),
    (
        """\
def f(x, y):
    return
""",
        """\
`return` without a value
  File "<cell>", line 2
        return
        ^^^^^^

hint: return a number, a tuple or a struct
""",
    ),
    (
        """\
def f(x, y):
    return math
""",
        """\
`math` is a module: an operator cannot compute with it
  File "<cell>", line 2
        return math
               ^^^^

hint: name one of its members
""",
    ),
    (
        """\
def f(x, y):
    t = (x, y)
    return t[2]
""",
        """\
tuple index 2 is out of range
  File "<cell>", line 3
        return t[2]
               ^^^^

hint: the tuple has 2 items
""",
    ),
    (
        """\
def f(x, y):
    t = (x, y)
    return t[x]
""",
        """\
a tuple is indexed by an integer that is known when the operator is compiled
  File "<cell>", line 3
        return t[x]
                 ^

hint: write a literal, or loop: `for item in t`, `for i in range(3)` with fixed bounds
""",
    ),
    (
        """\
def f(x, y):
    with x:
        return x
""",
        """\
`with` is not part of the operator language
  File "<cell>", line 2
        with x:
        ^^^^^^^

hint: compute with scalars only
""",
    ),
    (
        """\
def f(x, y):
    import math
    return x
""",
        """\
`import` in an operator is not part of the operator language
  File "<cell>", line 2
        import math
        ^^^^^^^^^^^

hint: import at the top of the file
""",
    ),
    (
        """\
def f(x, y):
    class A: pass
    return x
""",
        """\
a class in an operator is not part of the operator language
  File "<cell>", line 2
        class A: pass
        ^^^^^^^^^^^^^

hint: declare a struct outside: `@km.struct class P: ...`
""",
    ),
    (
        """\
def f(x, y):
    match x:
        case 1: return y
    return x
""",
        """\
`match` is not part of the operator language
  File "<cell>", line 2
        match x:
        ^^^^^^^^

hint: write `if`, `elif`, `else`
""",
    ),
    (
        """\
def f(x, y):
    del x
    return y
""",
        """\
`del` is not part of the operator language
  File "<cell>", line 2
        del x
        ^^^^^

hint: leave it out: variables end with the operator
""",
    ),
    (
        """\
def f(x, y):
    z = x
    for i in range(3):
        z = Point(x, 1)
    return z
""",
        """\
`z` is float32 (line 2) and Point (line 4): they have no common type
  File "<cell>", line 5
        return z
               ^

hint: use two variables, or convert one of the values, for example np.float32(x)
""",
    ),
    (
        """\
def f(x, y):
    return isinstance(x, int)
""",
        """\
`isinstance` cannot be called in an operator
  File "<cell>", line 2
        return isinstance(x, int)
               ^^^^^^^^^^^^^^^^^^

hint: the types of arguments are fixed: write one operator for each
""",
    ),
    (
        """\
def f(x, y):
    return x(y)
""",
        """\
a value is called like a function
  File "<cell>", line 2
        return x(y)
               ^^^^

hint: write `*` for a product
""",
    ),
    (
        """\
def f(x, y):
    return np.linalg.norm(x)
""",
        """\
`np.linalg.norm` (_ArrayFunctionDispatcher) is not a function of the operator language
  File "<cell>", line 2
        return np.linalg.norm(x)
               ^^^^^^^^^^^^^^^^^

hint: operators call math.*, NumPy's scalar functions and Python functions with source
""",
    ),
    (
        """\
def f(x, y):
    return max(x)
""",
        """\
`max` needs two values or a tuple of them
  File "<cell>", line 2
        return max(x)
               ^^^^^^

hint: an operator sees one element; over an array: km.reduce(x, km.maximum)
""",
    ),
    (
        """\
def f(x, y):
    h = math.sin if x > 0 else math.cos
    return h(x)
""",
        """\
`math.sin` is a function: an operator cannot compute with it
  File "<cell>", line 2
        h = math.sin if x > 0 else math.cos
            ^^^^^^^^

hint: call it; to choose between functions, choose between their results
""",
    ),
    (
        """\
def f(x, y):
    if x > 0:
        h = math.sin
    else:
        h = math.cos
    return h(x)
""",
        """\
`h` is a function (line 3) or a function (line 5): which one is known only at run time
  File "<cell>", line 6
        return h(x)
               ^

hint: call both, and choose between their results
""",
    ),
    (
        """\
def f(x, y):
    return None
""",
        """\
`return` without a value
  File "<cell>", line 2
        return None
        ^^^^^^^^^^^

hint: return a number, a tuple or a struct
""",
    ),
    (
        """\
def f(x, y):
    return complex(x, y)
""",
        """\
`complex` takes 1 argument, got 2
  File "<cell>", line 2
        return complex(x, y)
               ^^^^^^^^^^^^^

hint: write `a + 1j * b`
""",
    ),
    (
        """\
def f(x, y):
    return round(x, 2)
""",
        """\
`round` takes 1 argument, got 2
  File "<cell>", line 2
        return round(x, 2)
               ^^^^^^^^^^^

hint: write `np.rint(x * 100) / 100`
""",
    ),
    (
        """\
def f(x, y):
    return g(x)
def g(a):
    return a.foo
""",
        """\
float32 has no attribute `foo`
  File "<cell>", line 4
        return a.foo
               ^^^^^

hint: scalars have .real, .imag, .conjugate() and .astype(t)
""",
    ),
    (
        """\
f = lambda x, y: x +     nope
""",
        """\
name `nope` is not defined
  File "<cell>", line 1
    f = lambda x, y: x +     nope
                             ^^^^

hint: define it before the operator is used
""",
    ),
    (
        """\
def f(x, y):
    return "é" if x else nope
""",
        """\
`'é'` is a string: an operator cannot compute with it
  File "<cell>", line 2
        return "é" if x else nope
               ^^^

hint: encode it as a number outside
""",
    ),
    (
        """\
f = int
""",
        """\
`int` takes 1 argument, got 2

hint: write `int(x)`
""",
    ),
    (
        """\
f = dict
""",
        """\
`dict` cannot be called in an operator

hint: use a struct, `@km.struct class P: x: km.float32`
""",
    ),
    (
        """\
f = functools.partial(lambda a, b, c: a + b, 1, 2, 3)
""",
        """\
`<lambda>` takes 3 arguments, got 5
  File "<cell>", line 1
    f = functools.partial(lambda a, b, c: a + b, 1, 2, 3)
                          ^^^^^^^^^^^^^^^^^^^^^

hint: its arguments are (a, b, c)
""",
    ),
    (
        """\
def f(x, y):
    for i in range(3, 0, 0): x = x + 1
    return x
""",
        """\
range() with a step of zero
  File "<cell>", line 2
        for i in range(3, 0, 0): x = x + 1
                             ^

hint: use a positive or negative step
""",
    ),
    (
        """\
def f(x, y):
    for i in enumerate(range(3)): x = x + 1
    return x
""",
        """\
`enumerate` cannot be called in an operator
  File "<cell>", line 2
        for i in enumerate(range(3)): x = x + 1
                 ^^^^^^^^^^^^^^^^^^^

hint: write `for i in range(...)`
""",
    ),
    (
        """\
def f(x, y):
    for i in 5: x = x + 1
    return x
""",
        """\
a loop cannot run over weak int
  File "<cell>", line 2
        for i in 5: x = x + 1
                 ^

hint: loops run over `range(...)` and over tuples
""",
    ),
    (
        """\
def f(x, y):
    return np.where(x, y)
""",
        """\
`np.where` takes 3 arguments, got 2
  File "<cell>", line 2
        return np.where(x, y)
               ^^^^^^^^^^^^^^

hint: write `np.where(a, b, c)`
""",
    ),
    (
        """\
def f(x, y):
    return x < y < Point(x, 1)
""",
        """\
`<` is not defined for Point (float32 and Point)
  File "<cell>", line 2
        return x < y < Point(x, 1)
               ^^^^^^^^^^^^^^^^^^^

hint: compute with single fields and items: `p.x`, `t[0]`
""",
    ),
    (
        """\
def f(x, y):
    return Point(x, 1) and x
""",
        """\
Point has no truth
  File "<cell>", line 2
        return Point(x, 1) and x
               ^^^^^^^^^^^^^^^^^

hint: compare its fields: `x.a != 0`
""",
    ),
    (
        """\
def f(x, y):
    return helper2(x)
def helper2(a, b): return a
""",
        """\
`helper2` takes 2 arguments, got 1: missing `b`
  File "<cell>", line 2
        return helper2(x)
               ^^^^^^^^^^

hint: pass one input for each argument, or give the argument a default value
""",
    ),
    (
        """\
def f(x, y):
    return (lambda a: a)(x, y)
""",
        """\
`<lambda>` takes 1 argument, got 2
  File "<cell>", line 2
        return (lambda a: a)(x, y)
               ^^^^^^^^^^^^^^^^^^^

hint: its arguments are (a)
""",
    ),
    (
        """\
def f(x, y):
    return x.real.imag.foo()
""",
        """\
float32 has no method `foo`
  File "<cell>", line 2
        return x.real.imag.foo()
               ^^^^^^^^^^^^^^^

hint: scalars have .real, .imag, .conjugate() and .astype(t)
""",
    ),
    (
        """\
def f(x, y):
    return x ** (y, y)
""",
        """\
`**` is not defined for (float32, float32) (float32 and (float32, float32))
  File "<cell>", line 2
        return x ** (y, y)
               ^^^^^^^^^^^

hint: compute with single fields and items: `p.x`, `t[0]`
""",
    ),
    (
        """\
def f(x, y):
    return math.log(x).dtype
""",
        """\
float32 has no attribute `dtype`
  File "<cell>", line 2
        return math.log(x).dtype
               ^^^^^^^^^^^^^^^^^

hint: the types of arguments are fixed when the operator is compiled
""",
    ),
    (
        """\
def f(x, y):
    return np.float32(x, y)
""",
        """\
`np.float32` takes 1 argument, got 2
  File "<cell>", line 2
        return np.float32(x, y)
               ^^^^^^^^^^^^^^^^

hint: write `np.float32(x)`
""",
    ),
    (
        """\
def f(x, y):
    return np.uint8(300) + x
""",
        """\
Python integer 300 out of bounds for uint8
  File "<cell>", line 2
        return np.uint8(300) + x
               ^^^^^^^^^^^^^

hint: uint8 holds 0 to 255; widen the other operand first
""",
    ),
    (
        """\
def f(x, y):
    return np.float32(x + 1j)
""",
        """\
complex64 cannot be converted to float32
  File "<cell>", line 2
        return np.float32(x + 1j)
               ^^^^^^^^^^^^^^^^^^

hint: write `x.real`, `x.imag` or abs(x)
""",
    ),
    (
        """\
def f(x, y):
    t = 0
    for i in range(3):
        t = t + 1j if i else (x, y)
    return t
""",
        """\
weak complex and (float32, float32) have no common type
  File "<cell>", line 4
            t = t + 1j if i else (x, y)
                ^^^^^^^^^^^^^^^^^^^^^^^

hint: convert one of them, for example np.float32(x)
""",
    ),
    (
        """\
def f(x, y):
    return STATE.hidden + x
""",
        """\
`STATE.hidden` is a property, which an operator does not run
  File "<cell>", line 2
        return STATE.hidden + x
               ^^^^^^^^^^^^

hint: read it outside: `hidden = STATE.hidden`
""",
    ),
    (
        """\
def f(x, y):
    return x if y > 0 else None
""",
        """\
`None` is None: an operator cannot compute with it
  File "<cell>", line 2
        return x if y > 0 else None
                               ^^^^

hint: use a number as the marker, such as math.nan or -1
""",
    ),
    (
        """\
def f(x, y):
	return x + nope  # é
""",
        """\
name `nope` is not defined
  File "<cell>", line 2
     return x + nope  # é
                ^^^^

hint: define it before the operator is used
""",
    ),
    (
        """\
def f(x, y):
    return 'ü', nope
""",
        """\
`'ü'` is a string: an operator cannot compute with it
  File "<cell>", line 2
        return 'ü', nope
               ^^^

hint: encode it as a number outside
""",
    ),
    (
        """\
def f(x, y):
    while x < y:
        z = x
        x = x + 1
    return z
""",
        """\
`z` is set only inside a loop that may make no turn
  File "<cell>", line 5
        return z
               ^

hint: give `z` a value before the loop
""",
    ),
    (
        """\
def f(x, y):
    g = 1
    def g(a): return a
    for i in range(3):
        g = x
    return g
""",
        """\
`g` is a function (line 3) and float32 (line 5): they have no common type
  File "<cell>", line 6
        return g
               ^

hint: use two variables, or convert one of the values, for example np.float32(x)
""",
    ),
    (
        """\
def f(x, y):
    return np.frobnicate(x)
""",
        """\
module `np` has no attribute `frobnicate` (did you mean `fromiter`?)
  File "<cell>", line 2
        return np.frobnicate(x)
               ^^^^^^^^^^^^^

hint: an operator reads plain attributes of modules, classes and objects
""",
    ),
    (
        """\
def f(x, y):
    @functools.cache
    def g(a): return a
    return g(x)
""",
        """\
the inner function `g` has a decorator
  File "<cell>", line 2
        @functools.cache
         ^^^^^^^^^^^^^^^

hint: leave it out, or define the function outside the operator
""",
    ),
    (
        """\
def f(x, y):
    return (
        x +
        nope
    )
""",
        """\
name `nope` is not defined
  File "<cell>", line 4
            nope
            ^^^^

hint: define it before the operator is used
""",
    ),
    (
        """\
def f(x, y):
    return helper(x, **SETTINGS)

def helper(a, b): return a
""",
        """\
`**` in a call is not part of the operator language
  File "<cell>", line 2
        return helper(x, **SETTINGS)
                           ^^^^^^^^

hint: write the arguments by name: `f(a=a, b=b)`
""",
    ),
    (
        """\
def f(x, y):
    return helper(x, c=y)

def helper(a, b): return a
""",
        """\
`helper` gets the argument `c`, which it does not have
  File "<cell>", line 2
        return helper(x, c=y)
               ^^^^^^^^^^^^^^

hint: its arguments are (a, b)
""",
    ),
    (
        """\
def f(x, y):
    return helper(x, a=y)

def helper(a, b): return a
""",
        """\
`helper` gets the argument `a` twice
  File "<cell>", line 2
        return helper(x, a=y)
               ^^^^^^^^^^^^^^

hint: its arguments are (a, b)
""",
    ),
    (
        """\
def f(x, y):
    return {*()} or x
""",
        """\
a set is not part of the operator language
  File "<cell>", line 2
        return {*()} or x
               ^^^^^

hint: write `x == a or x == b`
""",
    ),
    (
        """\
def f(x, y):
    return x[1:2]
""",
        """\
a slice is not part of the operator language
  File "<cell>", line 2
        return x[1:2]
                 ^^^

hint: name the items: `(t[0], t[1])`
""",
    ),
    (
        """\
def f(x, y):
    return (x, y)[0:1]
""",
        """\
a slice is not part of the operator language
  File "<cell>", line 2
        return (x, y)[0:1]
                      ^^^

hint: name the items: `(t[0], t[1])`
""",
    ),
    (
        """\
def f(x, y):
    return bool((x, y))
""",
        """\
`truth` is not defined for (float32, float32) ((float32, float32))
  File "<cell>", line 2
        return bool((x, y))
               ^^^^^^^^^^^^

hint: compute with single fields and items: `p.x`, `t[0]`
""",
    ),
    (
        """\
def f(x, y):
    return len(x)
""",
        """\
float32 has no length
  File "<cell>", line 2
        return len(x)
               ^^^^^^

hint: len() counts the items of a tuple
""",
    ),
    (
        """\
def f(x, y):
    return str(x)
""",
        """\
`str` cannot be called in an operator
  File "<cell>", line 2
        return str(x)
               ^^^^^^

hint: return numbers, and format the result outside
""",
    ),
    (
        """\
def f(x, y):
    return (x, y) < (y, x)
""",
        """\
`<` is not defined for (float32, float32) ((float32, float32) and (float32, float32))
  File "<cell>", line 2
        return (x, y) < (y, x)
               ^^^^^^^^^^^^^^^

hint: compute with single fields and items: `p.x`, `t[0]`
""",
    ),
    (
        """\
def f(x, y):
    raise ValueError
""",
        """\
`raise` is not part of the operator language
  File "<cell>", line 2
        raise ValueError
        ^^^^^^^^^^^^^^^^

hint: return a marker value such as math.nan, and check the result
""",
    ),
    (
        """\
def f(x, y):
    return undefined_cell
undefined_cell = [1]
""",
        """\
`undefined_cell` is a list, which can change: an operator cannot compute with it
  File "<cell>", line 2
        return undefined_cell
               ^^^^^^^^^^^^^^

hint: make it a tuple
""",
    ),
    (
        """\
f = (lambda a, b: a +
     nope)
""",
        """\
name `nope` is not defined
  File "<cell>", line 2
         nope)
         ^^^^

hint: define it before the operator is used
""",
    ),
    (
        """\
def f(x, y):
    return 2 ** 70
""",
        """\
Python integer 1180591620717411303424 does not fit int64
  File "<cell>", line 2
        return 2 ** 70
               ^^^^^^^

hint: integers have at most 64 bits here; np.uint64(x) holds up to 2**64 - 1
""",
    ),
    (
        """\
def f(x, y):
    t = 300
    for i in range(3):
        t = t + np.int8(x)
    return t
""",
        """\
Python integer 300 out of bounds for int8
  File "<cell>", line 2
        t = 300
        ^

hint: int8 holds -128 to 127; widen the other operand first
""",
    ),
    (
        """\
def f(x, y):
    return x + x + x + nope(x)
""",
        """\
name `nope` is not defined
  File "<cell>", line 2
        return x + x + x + nope(x)
                           ^^^^

hint: define it before the operator is used
""",
    ),
    (
        """\
def f(x, y):
    for i in range(3):
        (x, y)[i]
        break
    return x
""",
        """\
`break` and `continue` are not part of a loop over a tuple
  File "<cell>", line 4
            break
            ^^^^^

hint: put the rest of the body under an `if`, or loop over `range(...)`
""",
    ),
    (
        """\
def f(x, y):
    z = (x, y)[i]
    return x
i = 1
""",
        """\
a tuple is indexed by an integer that is known when the operator is compiled
  File "<cell>", line 2
        z = (x, y)[i]
                   ^

hint: write a literal, or loop: `for item in t`, `for i in range(3)` with fixed bounds
""",
    ),
]


@pytest.mark.parametrize(("text", "wanted"), CASES)
def test_what_is_refused(text, wanted):
    function = define(text)
    with pytest.raises(OperatorError) as caught:
        translate(function, [km.float32, km.float32])
    assert str(caught.value) == wanted.removesuffix("\n")
