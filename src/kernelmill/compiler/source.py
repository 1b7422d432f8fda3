"""Finds the syntax tree and the text of a Python function. Nothing is translated or executed here.

The whole text of the file is parsed once and kept by its content. A function's code object is then
matched by first line, name, argument names and the columns of its instructions, so that several
lambdas on one line are told apart. The text is compiled again and compared with the code object:
a file that changed after its import is refused, never translated to another body.
"""

from __future__ import annotations
import __future__ as futures

import ast
import functools
import inspect
import linecache
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Final, TypeAlias

from kernelmill.errors import OperatorError, SourceSpan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["FunctionNode", "FunctionSource", "find_source"]

FunctionNode: TypeAlias = ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """The syntax tree of a function, and the text of its file by lines.

    `lines` is empty where the tree was recovered from bytecode; places then show the tree itself.
    """

    node: FunctionNode
    filename: str
    lines: Sequence[str]

    def span(self, node: ast.AST) -> SourceSpan:
        """Return the place of a node for an error text: its first line, columns in characters."""
        line = getattr(node, "lineno", self.node.lineno)
        if not 0 < line <= len(self.lines):
            text = ast.unparse(node)
            return SourceSpan(self.filename, line, 0, len(text), text)
        raw = self.lines[line - 1].rstrip("\n")
        start = _characters(raw, getattr(node, "col_offset", 0))
        same_line = getattr(node, "end_lineno", line) == line
        end = _characters(raw, getattr(node, "end_col_offset", 0)) if same_line else len(raw)
        return SourceSpan(self.filename, line, start, end, raw.replace("\t", " "))

    def header(self) -> SourceSpan:
        """Return the place of the first line of the function, without its decorators."""
        whole = self.span(self.node)
        if isinstance(self.node, ast.Lambda) or not self.lines:
            return whole
        return SourceSpan(whole.filename, whole.line, whole.column, len(whole.text), whole.text)


def _characters(text: str, column: int) -> int:
    """Convert a column in UTF-8 bytes, as `ast` counts, to one in characters."""
    if text.isascii():
        return column
    return len(text.encode()[:column].decode(errors="replace"))


def find_source(function: FunctionType) -> FunctionSource:
    """Return the syntax tree and text of a Python function.

    Raises OperatorError when the file changed after its import, or when there is no text and the
    function cannot be recovered from its bytecode.
    """
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    node = _match("".join(lines), code)
    if node is None and lines:
        linecache.checkcache(code.co_filename)
        lines = linecache.getlines(code.co_filename, function.__globals__)
        node = _match("".join(lines), code)
    if node is None:
        lines = _registered_lines(function)
        node = _match("".join(lines), code)
    if node is not None:
        return FunctionSource(node, code.co_filename, tuple(lines))
    if lines and not code.co_filename.startswith("<"):
        raise OperatorError(
            f"the text of `{function.__qualname__}` changed after it was imported: "
            f"line {code.co_firstlineno} of {code.co_filename} holds another function now",
            hint="restart Python or reload the module",
        )
    return FunctionSource(_recover(function), code.co_filename, ())


def _registered_lines(function: FunctionType) -> list[str]:
    """Return the lines an interactive session keeps for its inputs, or none."""
    try:
        return list(inspect.findsource(function)[0])
    except (OSError, TypeError, IndexError):
        return []


def _recover(function: FunctionType) -> FunctionNode:
    """Rebuild the tree of a function without text from its bytecode."""
    from kernelmill.compiler.bytecode import recover  # noqa: PLC0415 - rarely needed

    return recover(function.__code__)


# ----------------------------------------------------------------------------- matching

_FUTURE_FLAGS: Final = functools.reduce(
    lambda mask, name: mask | getattr(futures, name).compiler_flag, futures.all_feature_names, 0
)


def _match(text: str, code: CodeType) -> FunctionNode | None:
    """Return the one node of the text whose compiled code is `code`, or None."""
    index = _functions_by_line(text)
    places = [
        (node, statement)
        for node, statement in index.get(code.co_firstlineno, ())
        if _has_signature(node, code)
    ]
    nodes = [n for n, s in places if _is_current(text, s, n, code)]
    if len(nodes) > 1:
        nodes = _narrow(nodes, code)
    return nodes[0] if nodes else None


@functools.lru_cache(maxsize=32)
def _functions_by_line(text: str) -> dict[int, list[tuple[FunctionNode, int]]]:
    """Index the functions of a file by first line, each with its top-level statement."""
    index: dict[int, list[tuple[FunctionNode, int]]] = {}
    for position, statement in enumerate(_statements(text)):
        for node in ast.walk(statement):
            if isinstance(node, (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([node.lineno, *(d.lineno for d in _decorators(node))])
                index.setdefault(first, []).append((node, position))
    return index


def _decorators(node: FunctionNode) -> list[ast.expr]:
    return [] if isinstance(node, ast.Lambda) else node.decorator_list


@functools.lru_cache(maxsize=32)
def _statements(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError):
        return []  # not Python after all, such as a cell with magics


def _has_signature(node: FunctionNode, code: CodeType) -> bool:
    name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
    given = node.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [a.arg for a in (given.vararg, given.kwarg) if a is not None]
    return name == code.co_name and tuple(names) == code.co_varnames[: len(names)]


@functools.lru_cache(maxsize=256)
def _compiled(
    text: str, statement: int | None, flags: int, *, alone: bool = False
) -> tuple[CodeType, ...]:
    """Compile one top-level statement, or all; return the code of all functions in it.

    With `alone` the names that the text imports are not known to be modules: each cell of a page
    may have been compiled by itself.
    """
    body = _statements(text)
    if statement is not None:
        body = [*([] if alone else _imports(text)), body[statement]]
    module = ast.Module(body=body, type_ignores=[])
    try:
        outer = compile(module, "<check>", "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError):
        return ()  # `return` or `await` at the top level of a cell
    return tuple(_nested(outer))


@functools.lru_cache(maxsize=32)
def _imports(text: str) -> list[ast.stmt]:
    """Return an import for each name a module imports: calls on those compile differently."""
    found: dict[str, None] = {}
    pending: list[ast.AST] = list(_statements(text))
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update((a.asname or a.name.partition(".")[0], None) for a in node.names)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            pending.extend(ast.iter_child_nodes(node))
    names = [ast.alias("m", name) for name in found if name.isidentifier()]
    made = ast.Import(names)
    return [ast.fix_missing_locations(made)] if names else []


def _nested(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested(constant)


def _is_current(text: str, statement: int, node: FunctionNode, code: CodeType) -> bool:
    """Whether the text still compiles to `code`.

    A body with `assert` is taken as it is: test runners rewrite those, and the language refuses
    them anyway.
    """
    flags = code.co_flags & _FUTURE_FLAGS
    current = any(
        _same_place(code, other) and _same_code(code, other)
        for part, alone in ((statement, False), (None, False), (statement, True))
        for other in _compiled(text, part, flags, alone=alone)
    )
    return current or any(isinstance(inner, ast.Assert) for inner in ast.walk(node))


def _same_place(a: CodeType, b: CodeType) -> bool:
    if a.co_firstlineno != b.co_firstlineno:
        return False
    places = list(a.co_positions())
    has_columns = any(column is not None for _, _, column, _ in places)
    return not has_columns or places == list(b.co_positions())


def _same_code(a: CodeType, b: CodeType) -> bool:
    return (
        a.co_name == b.co_name
        and a.co_code == b.co_code
        and a.co_names == b.co_names
        and a.co_varnames == b.co_varnames
        and a.co_freevars == b.co_freevars
        and len(a.co_consts) == len(b.co_consts)
        and all(map(_same_constant, a.co_consts, b.co_consts))
    )


def _same_constant(a: object, b: object) -> bool:
    if isinstance(a, CodeType) and isinstance(b, CodeType):
        return _same_code(a, b)
    if isinstance(a, frozenset):
        return a == b
    return type(a) is type(b) and repr(a) == repr(b)  # tells 0.0 from -0.0


def _narrow(nodes: list[FunctionNode], code: CodeType) -> list[FunctionNode]:
    """Choose among functions of one line by the columns of the instructions, innermost first."""
    places = {
        ((line, column), (end_line, end_column))
        for line, end_line, column, end_column in code.co_positions()
        if line is not None and end_line is not None
        if column is not None and end_column is not None and (column, end_column) != (0, 0)
    }
    inside = [n for n in nodes if places and all(_contains(n, *place) for place in places)]
    if inside:
        return [max(inside, key=lambda n: (n.lineno, n.col_offset))]
    # No column is known with `python -X no_debug_ranges`, nor of `lambda x: True` from 3.12 on.
    # Then the instructions themselves may tell, or it does not matter.
    alike = [n for n in nodes if _compiles_to(n, code)] or nodes
    if all(ast.dump(n) == ast.dump(alike[0]) for n in alike):
        return alike[:1]
    raise OperatorError(
        f"line {code.co_firstlineno} of {code.co_filename} holds {len(nodes)} functions of this "
        "form, and Python runs without column numbers",
        hint="put them on lines of their own, or run Python without `-X no_debug_ranges`",
    )


def _compiles_to(node: FunctionNode, code: CodeType) -> bool:
    """Return whether a lambda by itself has just these instructions and constants."""
    if not isinstance(node, ast.Lambda):
        return False
    whole = ast.fix_missing_locations(ast.Expression(node))
    made = compile(whole, code.co_filename, "eval", code.co_flags & _FUTURE_FLAGS, True)  # noqa: FBT003
    return any(_same_code(code, inner) for inner in _nested(made))


def _contains(node: FunctionNode, start: tuple[int, int], end: tuple[int, int]) -> bool:
    last = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    if isinstance(node, ast.Lambda):
        return (node.body.lineno, node.body.col_offset) <= start and end <= last
    return (node.lineno, node.col_offset) <= start and end <= last
