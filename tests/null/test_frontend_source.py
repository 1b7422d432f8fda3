"""Finding the text of a function: lambdas on one line, cells, doctests, stale files."""

from __future__ import annotations

import doctest
import functools
import importlib.util
import linecache
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import kernelmill as km
import oracle
from kernelmill.compiler import source
from kernelmill.compiler.frontend import translate
from kernelmill.errors import OperatorError

F = km.float32


def value(function, *args):
    made = translate(function, [F] * len(args))
    return float(oracle.run(made.program, args, [c.read() for c in made.captures]))


def decorate(*_):
    return lambda f: f


def keep(*functions):
    return functions


ONE_LINE = [lambda a: a + 1, lambda a: a * 2, lambda a: a - 3, lambda a: (lambda a: a * 4)(a)]  # noqa: PLC3002
TABLE = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b,
    "long": lambda a, b: (
        a *
        b
    ),
}  # fmt: skip
CALLED = keep(lambda a: a + 1, keep(lambda a: a + 2)[0], lambda a: a + 3 if a > 0 else a)
SAME = (lambda a: a + 1, lambda a: a + 1)
CONSTANT = (lambda a: a + 1, lambda a: 5, lambda a: True, lambda a: 5.0)
CHOSEN = (lambda a: a + 10) if ONE_LINE else (lambda a: a + 20)
NESTED = lambda a: lambda b: lambda c: c + 1
# fmt: off
FIRST = lambda a: a + 1; SECOND = lambda a: a + 2  # noqa: E702
# fmt: on


def test_constants_among_other_lambdas():
    assert [value(f, 2.0) for f in CONSTANT] == [3, 5, 1, 5]


def with_default(a, f=lambda x: x * 7, g=lambda x: x * 8):
    return f(a) + g(a)


@decorate(lambda a: a + 1)
@decorate(lambda a: a + 2)
def decorated(a):
    """A decorator's lambdas do not count."""
    return a + 5


def outer(k):
    def inner(a):
        return a * k

    return inner, lambda a: a + k, [lambda a, n=n: a * n for n in range(3)]


class Holder:
    scale = 2.0
    method_lambda = lambda self, a: a * self.scale

    def method(self, a):
        return a + self.scale

    @staticmethod
    def static(a):
        return a - 1

    @classmethod
    def klass(cls, a):
        return a * cls.scale


class Called:
    def __init__(self, offset):
        self.offset = offset

    def __call__(self, a):
        return a + self.offset


@pytest.mark.parametrize(
    ("function", "args", "wanted"),
    [
        *((f, (5,), w) for f, w in zip(ONE_LINE, (6, 10, 2, 20), strict=True)),
        *((f, (5, 3), w) for f, w in zip(TABLE.values(), (8, 2, 15), strict=True)),
        *((f, (5,), w) for f, w in zip(CALLED, (6, 7, 8), strict=True)),
        *((f, (5,), 6) for f in SAME),
        (CHOSEN, (5,), 15),
        (NESTED(0)(0), (5,), 6),
        (FIRST, (5,), 6),
        (SECOND, (5,), 7),
        (with_default, (1,), 15),
        (with_default.__defaults__[1], (1,), 8),
        (decorated, (5,), 10),
        (outer(3)[0], (5,), 15),
        (outer(3)[1], (5,), 8),
        (outer(3)[2][2], (5,), 10),
        (Holder().method, (5,), 7),
        (Holder().method_lambda, (5,), 10),
        (Holder.static, (5,), 4),
        (Holder().klass, (5,), 10),
        (Called(4), (5,), 9),
        (functools.partial(lambda a, b: a - b, 7), (5,), 2),
        (functools.partial(lambda a, b: a - b, b=7), (5,), -2),
        (functools.partial(functools.partial(lambda a, b, c: a + b * c, 1), 2), (5,), 11),
        (functools.cache(lambda a: a + 1), (5,), 6),
        (functools.lru_cache(maxsize=3)(lambda a: a + 2), (5,), 7),
        (np.negative, (5,), -5),
        (min, (5, 4, 6), 4),
    ],
)
def test_each_function_is_found(function, args, wanted):
    assert value(function, *args) == wanted


def test_a_function_beside_assertions_that_pytest_rewrote():
    assert value(lambda a: a + 1, 1) == 2, (lambda a: a + 2)(1)  # noqa: PLC3002
    assert (lambda: value(lambda a: a * 3, 2))() == 6  # noqa: PLC3002


def test_a_wrapper_is_taken_as_it_is():
    @functools.wraps(decorated)
    def wrapper(a):
        return decorated(a) * 2

    assert value(wrapper, 5) == 20


def test_a_doctest():
    text = """
    >>> from kernelmill.compiler.frontend import translate
    >>> import kernelmill.dtypes as km
    >>> def f(a):
    ...     return a * 2
    >>> translate(f, [km.int8]).program.entry.result
    kernelmill.int8
    >>> translate(lambda a: a + 1.0, [km.int8]).program.entry.result
    kernelmill.float64
    """
    test = doctest.DocTestParser().get_doctest(text, {}, "cell", "<text>", 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def cell(text, filename="<ipython-input-1-abc>"):
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space = {"__builtins__": __builtins__, "__name__": "__main__"}
    exec(compile(text, filename, "exec", dont_inherit=True), space)
    return space


def test_a_notebook_cell():
    space = cell("k = 4\nf = lambda a: a * k\ndef g(a):\n    return f(a) + 1\n")
    assert value(space["f"], 5) == 20
    assert value(space["g"], 5) == 21


def test_a_cell_with_a_return_or_await_at_its_top_is_still_read():
    text = "def g(a):\n    return a + 2\n"
    space = cell(text)
    lines = [*text.splitlines(keepends=True), "await something()\n"]
    linecache.cache["<ipython-input-1-abc>"] = (0, None, lines, "<ipython-input-1-abc>")
    assert value(space["g"], 5) == 7


def test_annotations_from_the_future_and_module_imports_do_not_disturb(tmp_path):
    module = load(
        tmp_path / "future.py",
        "from __future__ import annotations\nimport math, os.path as p\n"
        "try:\n    import numpy as np\nexcept ImportError:\n    np = None\n"
        "def f(a: Unknown) -> Missing:\n    b: Other = math.floor(a) + np.floor(a)\n    return b\n",
    )
    assert value(module.f, 2.5) == 4


def load(path, text):
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rewrite(path, text):
    path.write_text(text)
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 5_000_000_000))


STALE = """\
the text of `f` changed after it was imported: line 1 of {path} holds another function now

hint: restart Python or reload the module"""


@pytest.mark.parametrize(
    "changed",
    [
        "def f(a):\n    return a + 2\n",
        "def f(a):\n    return a - 1\n",
        "def f(b):\n    return b + 1\n",
        "def f(a):\n    return a + 1.0\n",
        "\ndef f(a):\n    return a + 1\n",
        "def g(a):\n    return a + 1\n",
        "this is not Python\n",
    ],
)
def test_a_file_that_changed_is_refused(tmp_path, changed):
    path = tmp_path / "changing.py"
    module = load(path, "def f(a):\n    return a + 1\n")
    rewrite(path, changed)
    linecache.checkcache(str(path))
    with pytest.raises(OperatorError) as caught:
        translate(module.f, [F])
    assert str(caught.value) == STALE.format(path=path)


def test_a_file_that_changed_elsewhere_or_back_is_read(tmp_path):
    path = tmp_path / "changing.py"
    text = "def f(a):\n    return a + 1\n"
    module = load(path, text)
    rewrite(path, text + "def g(a):\n    return 0\n")
    assert value(module.f, 1) == 2


def test_lambdas_that_changed_places_are_refused(tmp_path):
    path = tmp_path / "swapped.py"
    module = load(path, "f, g = lambda a: a + 1, lambda a: a * 2\n")
    assert value(module.g, 5) == 10
    rewrite(path, "f, g = lambda a: a * 2, lambda a: a + 1\n")
    linecache.checkcache(str(path))
    with pytest.raises(OperatorError, match="changed after it was imported"):
        translate(module.f, [F])


def test_a_text_read_before_the_change_is_kept(tmp_path):
    path = tmp_path / "read.py"
    module = load(path, "def f(a):\n    return a + 1\n")
    assert value(module.f, 1) == 2
    rewrite(path, "def f(a):\n    return a + 100\n")
    assert value(module.f, 1) == 2


def test_text_given_to_exec_is_recovered_from_its_bytecode():
    space = {}
    exec("f = lambda a: a * 2 if a > 0 else a - 1", space)
    assert value(space["f"], 3) == 6
    assert value(space["f"], -3) == -4
    exec(
        "def g(a, n=2):\n    t = a\n    for i in range(3):\n        t = t * n + i\n    return t",
        space,
    )
    assert value(space["g"], 1) == space["g"](1)


def test_a_file_that_was_removed_is_recovered_from_the_bytecode(tmp_path):
    path = tmp_path / "removed.py"
    module = load(path, "def f(a):\n    return a + 1\n")
    path.unlink()
    linecache.checkcache(str(path))
    assert value(module.f, 1) == 2


def test_an_error_in_recovered_text_shows_the_tree():
    space = {}
    exec("f = lambda a: a + nope", space)
    with pytest.raises(OperatorError) as caught:
        translate(space["f"], [F])
    assert str(caught.value) == (
        "name `nope` is not defined\n"
        '  File "<string>", line 1\n'
        "    nope\n"
        "    ^^^^\n\n"
        "hint: define it before the operator is used"
    )


def test_a_script_given_on_the_command_line():
    code = """
    from kernelmill.compiler.frontend import translate
    import kernelmill.dtypes as km
    print(translate(lambda a: a + 1, [km.int8]).program.entry.result)
    """
    out = run([sys.executable, "-c", textwrap.dedent(code)])
    assert out == "int8\n"


def test_without_column_numbers_instructions_tell(tmp_path):
    path = tmp_path / "columns.py"
    path.write_text(
        "from kernelmill.compiler.frontend import translate\n"
        "import kernelmill.dtypes as km\n"
        "from kernelmill.errors import OperatorError\n"
        "f = lambda a: a + 1\n"
        "g, h = lambda a: a + 1, lambda a: a + 1\n"
        "i, j = lambda a: a + 1, lambda a: a * 2.0\n"
        "def outer(b):\n"
        "    return lambda a: a + b, lambda a: a * b\n"
        "for function in (f, g, h, i, j, outer(1)[0]):\n"
        "    try:\n"
        "        print(translate(function, [km.int8]).program.entry.result)\n"
        "    except OperatorError as error:\n"
        "        print(str(error).replace(__file__, 'FILE'))\n"
    )
    out = run([sys.executable, "-X", "no_debug_ranges", str(path)])
    assert out == (
        "int8\nint8\nint8\nint8\nfloat64\n"
        "line 8 of FILE holds 2 functions of this form, and Python runs without column numbers\n\n"
        "hint: put them on lines of their own, or run Python without `-X no_debug_ranges`\n"
    )


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_span_counts_characters_and_keeps_tabs_aligned():
    space = cell("def f(a):\n\treturn 'é' if a else nope\n")
    span = source.find_source(space["f"])
    body = span.node.body[0].value
    assert span.span(body.orelse).caret() == (
        '  File "<ipython-input-1-abc>", line 2\n'
        "     return 'é' if a else nope\n"
        "                          ^^^^"
    )


def test_a_parsed_file_is_kept():
    translate(ONE_LINE[0], [F])
    before = source._functions_by_line.cache_info().misses
    for function in ONE_LINE:
        translate(function, [F])
    assert source._functions_by_line.cache_info().misses == before
