"""Rebuilds the syntax tree of a function without source text from its bytecode. Executes nothing.

Strings given to `exec` and the plain prompt of Python 3.11 and 3.12 leave no text behind. `recover`
turns the bytecode of such a function back into the tree that the front end reads: `decode` levels
the differences between Python versions, `blocks` cuts the instructions where control flow meets,
`symbolic` runs each block on trees, `reduce` joins them to whole expressions, `structure` writes
statements, and `verify` proves the result against the bytecode. What any of them does not know is
refused by name.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kernelmill.compiler.bytecode.blocks import blocks_of
from kernelmill.compiler.bytecode.decode import decode
from kernelmill.compiler.bytecode.reduce import reduce_graph
from kernelmill.compiler.bytecode.refusal import HINT, Place, UnknownShapeError, refusal
from kernelmill.compiler.bytecode.structure import statements
from kernelmill.compiler.bytecode.symbolic import read
from kernelmill.compiler.bytecode.trees import (
    arguments_of,
    as_expression,
    function_def,
    literal,
    placed,
)
from kernelmill.compiler.bytecode.verify import verify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import CodeType

__all__ = ["HINT", "recover"]

_INNER = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))


def recover(
    code: CodeType,
    *,
    defaults: Sequence[object] = (),
    keyword_defaults: Mapping[str, object] | None = None,
) -> ast.FunctionDef | ast.Lambda:
    """Return a syntax tree that does what the code object of a function does.

    Parameters
    ----------
    code
        The ``__code__`` of a Python function or lambda.
    defaults, keyword_defaults
        Its ``__defaults__`` and ``__kwdefaults__``, written into the tree as constants. They are
        not in the code object; without them the parameters have none.

    Returns
    -------
    ast.FunctionDef or ast.Lambda
        With the lines and columns of the lost text, without decorators. Equal in what it computes
        and in which order, not always in its looks: ``x = y = 1`` and ``y = (x := 1)`` are the same
        bytecode, and so are ``if a: if b: ...`` and ``if a and b: ...``.

    Raises
    ------
    OperatorError
        For what is not part of the operator language (try, with, generators, imports, lists, dicts,
        sets, f-strings, slices, stars, assignments to elements, fields, globals and variables of
        outer functions, decorated nested functions), for control flow that cannot be written with
        certainty, and for a version of Python other than 3.11, 3.12 and 3.13.

    Examples
    --------
    >>> import ast
    >>> space = {}
    >>> exec("clip = lambda x, n: x if 0 <= x < n else min(max(x, 0), n - 1)", space)
    >>> ast.unparse(recover(space["clip"].__code__))
    'lambda x, n: x if 0 <= x < n else min(max(x, 0), n - 1)'
    """
    try:
        return _proven(code, defaults, keyword_defaults or {})
    except UnknownShapeError as error:
        raise refusal(code, str(error)) from None
    except RecursionError:
        raise refusal(code, "expressions or statements that are nested too deeply") from None


def _proven(
    code: CodeType, defaults: Sequence[object], keyword_defaults: Mapping[str, object]
) -> ast.FunctionDef | ast.Lambda:
    """Return the tree after comparing it with the bytecode."""
    place = Place(code.co_firstlineno, code.co_firstlineno, 0, 0)
    arguments = arguments_of(
        code,
        place,
        defaults=[_constant(value, place) for value in defaults],
        keyword_defaults={key: _constant(value, place) for key, value in keyword_defaults.items()},
    )
    node = _rebuild(code, arguments)
    verify(code, node)
    return ast.fix_missing_locations(node)


def _constant(value: object, place: Place) -> ast.expr:
    """Return the tree of a default, which may be any object."""
    try:
        return literal(value, place)
    except UnknownShapeError:
        return placed(ast.Constant(value), place)  # type: ignore[arg-type]


def _rebuild(code: CodeType, arguments: ast.arguments) -> ast.FunctionDef | ast.Lambda:
    """Return the tree of a function whose parameters are known."""
    place = Place(code.co_firstlineno, code.co_firstlineno, 0, 0)
    if code.co_name in _INNER:
        raise refusal(code, "a comprehension")
    entry, blocks = blocks_of(decode(code))
    graph = read(entry, blocks, _rebuild)
    reduce_graph(graph)
    body = statements(graph)
    if code.co_name == "<lambda>":
        return placed(ast.Lambda(arguments, as_expression(body)), place)
    return function_def(code.co_name, arguments, body, place)
