"""Functions without text that cannot be rebuilt are refused by name; wrong trees are not accepted."""

import ast
import importlib
import sys

import pytest

from kernelmill.compiler.bytecode import recover
from kernelmill.compiler.bytecode.refusal import UnknownShapeError
from kernelmill.errors import OperatorError

HINT = "define the function in a file or a notebook cell, so that its source can be read"


def define(source):
    """Run a text without a file and return its function."""
    space = {"t": print}
    exec(source, space)
    return space["f"]


# --- what is refused ------------------------------------------------------------------------------

REFUSED = {
    "try": ("try:\n    x = 1\nexcept ValueError:\n    x = 2", "a try statement"),
    "finally": ("try:\n    x = 1\nfinally:\n    x = 2", "a try statement"),
    "with": ("with a:\n    x = 1", "a with statement"),
    "raise": ("raise ValueError", "raise or assert"),
    "assert": ("assert a", "raise or assert"),
    "generator": ("yield a", "a generator or a coroutine"),
    "import": ("import math", "an import"),
    "from import": ("from math import floor", "an import"),
    "list": ("x = [a, b]", "a list"),
    "dict": ("x = {a: b}", "a dict"),
    "set": ("x = {a, b}", "a set"),
    "f-string": ("x = f'{a}-{b}'", "an f-string"),
    "slice": ("x = a[1:b]", "a slice"),
    "call with a star": ("x = min(*a)", "a call with * or **"),
    "starred target": ("x, *y = a", "a starred target"),
    "element": ("a[0] = b", "an assignment to an element"),
    "field": ("a.x = b", "an assignment to a field"),
    "del": ("del a", "del"),
    "global": ("global q\nq = a", "an assignment to a global variable"),
    "class": ("class A:\n    pass", "a class"),
    "frozenset": ("x = a in {1, 2}", "a constant of type frozenset"),
    "decorator": (
        "@b\ndef g():\n    return a",
        "a nested function with a decorator or another name",
    ),
    "endless loop": ("while True:\n    pass", "a loop without an end"),
    "loop target": (
        "for (x, y) in a:\n    b = x",
        "a loop whose target is not a variable",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_outside_of_the_language_is_refused_by_name(case):
    text, found = REFUSED[case]
    body = "\n".join("    " + line for line in text.split("\n"))
    space = {}
    exec(compile(f"def f(a, b):\n{body}\n    return b\n", "<typed in>", "exec"), space)
    with pytest.raises(OperatorError) as caught:
        recover(space["f"].__code__)
    message = caught.value.message
    start = (
        "'f' has no source text, and its bytecode cannot be turned back into the operator "
        f"language: found {found} (<typed in>, line "
    )
    assert message.startswith(start), message
    assert caught.value.hint == HINT


def test_a_comprehension_is_refused():
    for text in ("[i for i in range(a)]", "sum(i for i in range(a))", "{i: 1 for i in range(a)}"):
        function = define(f"def f(a):\n    return {text}\n")
        with pytest.raises(OperatorError, match=r"found a (comprehension|generator|list|dict)"):
            recover(function.__code__)


def test_an_assignment_to_an_outer_variable_is_refused_with_its_line():
    space = {}
    exec(
        "def make():\n    n = 0\n    def f(a):\n        nonlocal n\n        n = a\n        return n\n"
        "    return f\n",
        space,
    )
    with pytest.raises(OperatorError) as caught:
        recover(space["make"]().__code__)
    assert caught.value.message == (
        "'f' has no source text, and its bytecode cannot be turned back into the operator "
        "language: found an assignment to 'n', a variable of an outer function (<string>, line 5)"
    )


def test_an_unknown_version_is_refused(monkeypatch):
    function = define("def f(a):\n    return a\n")
    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    with pytest.raises(OperatorError, match=r"found the bytecode of Python 3\.99 "):
        recover(function.__code__)


def test_nesting_without_end_is_refused():
    text = "a" + " + (a" * 80 + ")" * 80
    deep = "lambda: " * 60 + text
    space = {"a": 1}
    exec(f"f = {deep}", space)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(350)
    try:
        with pytest.raises(OperatorError, match="nested too deeply"):
            recover(space["f"].__code__)
    finally:
        sys.setrecursionlimit(limit)


# --- the proof ------------------------------------------------------------------------------------

PROOF = importlib.import_module("kernelmill.compiler.bytecode.verify")

WRONG = [
    ("return a - b", "return b - a"),
    ("return a + 1", "return a + 1.0"),
    ("return a + 1", "return a + True"),
    ("return 0.0", "return -0.0"),
    ("return a < b", "return a <= b"),
    ("x = a\nreturn x", "y = a\nreturn y"),
    ("if a:\n    return 1\nreturn 2", "if a:\n    return 2\nreturn 1"),
    ("while a:\n    a -= 1\nreturn b", "if a:\n    a -= 1\nreturn b"),
    ("for i in range(a):\n    b += i\nreturn b", "for j in range(a):\n    b += j\nreturn b"),
    (
        "for i in range(a):\n    for i in range(b):\n        break\nreturn b",
        "for i in range(a):\n    for i in range(b):\n        return b\nreturn b",
    ),
    ("return a if t(1) else b", "t(1)\nreturn a"),
    ("t(a)\nt(b)\nreturn 1", "t(b)\nt(a)\nreturn 1"),
    ("a, b = b, a\nreturn a", "a = b\nb = a\nreturn a"),
    ("return (lambda u: u + a)(b)", "return (lambda u: u - a)(b)"),
    ("return (lambda u, v=1: u + v)(b)", "return (lambda u, v=2: u + v)(b)"),
    ("return a and b", "return b and a"),
    ("return t(a=a)", "return t(b=a)"),
]


def body_of(text):
    lines = "\n".join("    " + line for line in text.split("\n"))
    return f"def f(a, b):\n{lines}\n"


@pytest.mark.parametrize(("right", "wrong"), WRONG)
def test_a_tree_that_does_something_else_is_not_accepted(right, wrong):
    function = define(body_of(right))
    PROOF.verify(function.__code__, ast.parse(body_of(right)).body[0])
    with pytest.raises(UnknownShapeError, match="control flow that no rule covers"):
        PROOF.verify(function.__code__, ast.parse(body_of(wrong)).body[0])


def test_other_parameters_are_not_accepted():
    function = define("def f(a, b):\n    return a\n")
    for head in ("b, a", "a, b, c", "a, /, b", "a, *, b", "a, *b"):
        with pytest.raises(UnknownShapeError):
            PROOF.verify(function.__code__, ast.parse(f"def f({head}):\n    return a").body[0])
