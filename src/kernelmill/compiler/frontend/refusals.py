"""What the operator language refuses, and what to write instead: tables, no translation."""

from __future__ import annotations

import ast
import types
from typing import Final

import numpy as np

from kernelmill.compiler.kernel_functions import Indices
from kernelmill.dtypes import DType

__all__ = ["ARITIES", "BUILTINS", "METHODS", "NODES", "OPERATORS", "describe_object"]

# A node of Python's syntax → (its name in an error text, what to write instead).
NODES: Final[dict[type[ast.AST], tuple[str, str]]] = {
    ast.Assert: ("`assert`", "return a marker value such as math.nan, and check the result"),
    ast.AsyncFor: ("`async for`", "write a plain `for`"),
    ast.AsyncFunctionDef: ("an async function", "write a plain `def`"),
    ast.AsyncWith: ("`async with`", "compute with scalars only"),
    ast.Await: ("`await`", "write a plain call"),
    ast.ClassDef: ("a class in an operator", "declare a struct outside: `@km.struct class P: ...`"),
    ast.Delete: ("`del`", "leave it out: variables end with the operator"),
    ast.Dict: ("a dict", "use a struct, `@km.struct class P: x: km.float32`, or plain variables"),
    ast.DictComp: ("a dict comprehension", "write a `for` loop over `range(...)`"),
    ast.FormattedValue: ("a string", "return numbers, and format the result outside"),
    ast.GeneratorExp: ("a generator", "write a `for` loop over `range(...)`"),
    ast.Global: ("`global`", "return the value: an operator changes nothing outside itself"),
    ast.Import: ("`import` in an operator", "import at the top of the file"),
    ast.ImportFrom: ("`import` in an operator", "import at the top of the file"),
    ast.JoinedStr: ("an f-string", "return numbers, and format the result outside"),
    ast.List: ("a list", "use a tuple, `(a, b)`, or plain variables"),
    ast.ListComp: ("a list comprehension", "write a `for` loop over `range(...)`"),
    ast.Match: ("`match`", "write `if`, `elif`, `else`"),
    ast.Nonlocal: ("`nonlocal`", "return the value: an inner function changes nothing outside"),
    ast.Raise: ("`raise`", "return a marker value such as math.nan, and check the result"),
    ast.Set: ("a set", "write `x == a or x == b`"),
    ast.SetComp: ("a set comprehension", "write a `for` loop over `range(...)`"),
    ast.Slice: ("a slice", "name the items: `(t[0], t[1])`"),
    ast.Starred: ("a starred expression here", "name the items one by one"),
    ast.Try: ("`try`", "test the operands before: no operation raises in an operator"),
    ast.TryStar: ("`try`", "test the operands before: no operation raises in an operator"),
    ast.With: ("`with`", "compute with scalars only"),
    ast.Yield: ("a generator", "return a tuple for several results"),
    ast.YieldFrom: ("a generator", "return a tuple for several results"),
}

OPERATORS: Final[dict[type[ast.AST], tuple[str, str]]] = {
    ast.MatMult: ("`@`", "write out the products and sums"),
    ast.Is: ("`is`", "write `==`"),
    ast.IsNot: ("`is not`", "write `!=`"),
    ast.In: ("`in`", "write `x == a or x == b`"),
    ast.NotIn: ("`not in`", "write `x != a and x != b`"),
}

# Builtins that people try, and what to write instead.
BUILTINS: Final[dict[str, str]] = {
    "print": "return the value, and print the result outside",
    "input": "pass the value as an argument or capture a variable",
    "open": "read the file outside, and pass its numbers as an array",
    "eval": "write the expression in the operator",
    "exec": "write the statements in the operator",
    "isinstance": "the types of arguments are fixed: write one operator for each",
    "type": "the types of arguments are fixed: write one operator for each",
    "str": "return numbers, and format the result outside",
    "repr": "return numbers, and format the result outside",
    "list": "use a tuple, `(a, b)`, or plain variables",
    "tuple": "write the items: `(a, b)`",
    "dict": "use a struct, `@km.struct class P: x: km.float32`",
    "set": "write `x == a or x == b`",
    "sorted": "compare and swap: `a, b = min(a, b), max(a, b)`",
    "enumerate": "write `for i in range(...)`",
    "zip": "write `for i in range(...)`",
    "map": "write a `for` loop over `range(...)`",
    "filter": "write a `for` loop with an `if`",
    "reversed": "write `range(n - 1, -1, -1)`",
    "range": "use it as `for i in range(...)`",
    "iter": "write a `for` loop over `range(...)`",
    "next": "write a `for` loop over `range(...)`",
    "getattr": "write `x.field`",
    "setattr": "build a new struct: `P(x=..., y=...)`",
}

# Callables whose other forms people try.
ARITIES: Final[dict[str, str]] = {
    "round": "write `np.rint(x * 100) / 100`",
    "complex": "write `a + 1j * b`",
    "pow": "write `a ** b % c`",
    "int": "write `int(x)`",
}

# Methods and attributes that people try on a scalar.
METHODS: Final[dict[str, str]] = {
    "dtype": "the types of arguments are fixed when the operator is compiled",
    "item": "leave it out: the value is a scalar already",
    "sum": "an operator sees one element; use km.reduce for a sum over an array",
    "mean": "an operator sees one element; use km.reduce for a sum over an array",
    "max": "an operator sees one element; use km.reduce with km.maximum",
    "min": "an operator sees one element; use km.reduce with km.minimum",
    "shape": "an operator sees one element, not the array",
    "size": "an operator sees one element, not the array",
    "T": "an operator sees one element, not the array",
}


def describe_object(value: object) -> tuple[str, str]:
    """Return what a Python object is, and what to write instead of using it as a value."""
    for kinds, name, hint in _OBJECTS:
        if isinstance(value, kinds):
            return name, hint
    if value is ...:
        return "an ellipsis", "index each dimension: `x[i, j]`, or `x[i, :]` for a part"
    if value is None:
        return "None", "use a number as the marker, such as math.nan or -1"
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "dtype"):
        return "an array", "pass it as another input, or capture single elements"
    if callable(value):
        return "a function", "call it; to choose between functions, choose between their results"
    return f"an object of type {type(value).__name__}", (
        "capture numbers, NumPy scalars, tuples of them or structs"
    )


_OBJECTS: Final[tuple[tuple[type | tuple[type, ...], str, str], ...]] = (
    (np.ndarray, "an array", "pass it as another input, or capture single elements"),
    (list, "a list, which can change", "make it a tuple"),
    (tuple, "a tuple of other things than scalars", "keep only numbers in it"),
    (dict, "a dict, which can change", "use separate variables, or a types.SimpleNamespace"),
    ((set, frozenset), "a set", "write `x == a or x == b`"),
    ((str, bytes), "a string", "encode it as a number outside"),
    (types.ModuleType, "a module", "name one of its members"),
    (type, "a class", "call it to build a value"),
    (DType, "a dtype", "convert with it, `x.dtype(v)`; choose by a number that is captured"),
    (Indices, "three indices or sizes", "choose one of `.x`, `.y`, `.z`"),
)
