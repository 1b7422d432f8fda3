"""The examples of docs/reference/operator-syntax.md are accepted, and refused, as the page says."""

from __future__ import annotations

import linecache
import re
from pathlib import Path

import pytest

import kernelmill as km
import oracle
from kernelmill.compiler.frontend import refusals, translate
from kernelmill.errors import OperatorError

PAGE = Path(__file__).parents[2] / "docs/reference/operator-syntax.md"
TEXT = PAGE.read_text()


def run(text, filename="<page>"):
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space = {}
    exec(compile(text, filename, "exec"), space)
    return space


def test_the_examples_are_translated():
    first, second = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    space = run(first)
    rgb = km.dtype_of(space["RGB"])
    made = translate(space["brighter"], [rgb])
    assert [c.name for c in made.captures] == ["brighter.limit", "GAIN"]
    assert oracle.run(made.program, [(10, 100, 200)], [c.read() for c in made.captures]) == (
        15,
        150,
        255,
    )
    assert oracle.run(translate(space["newton"], [km.float64]).program, [2.0]) == pytest.approx(
        2**0.5
    )
    made = translate(run(second)["polynomial"], [km.float32])
    assert oracle.run(made.program, [2.0], [c.read() for c in made.captures]) == 3.25


def test_the_error_is_the_one_shown():
    (shown,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    space = run("def f(x, y):\n    if x > y:\n        total = x\n    return total\n", "grey.py")
    with pytest.raises(OperatorError) as caught:
        translate(space["f"], [km.float32, km.float32])
    assert f"{caught.value}\n" == shown


def test_every_refused_word_is_on_the_page():
    words = [w for name, _ in refusals.NODES.values() for w in re.findall(r"`(\w+)`", name)]
    words += [w for name, _ in refusals.OPERATORS.values() for w in re.findall(r"`([\w@]+)`", name)]
    assert {w for w in words if f"`{w}`" not in TEXT} <= {"not"}
