"""Which names a function binds, and its parameters: syntax only, no values."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelmill.compiler.source import FunctionNode

__all__ = ["Parameter", "assigned_names", "bound_names", "loads_outside", "parameters"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function."""

    name: str
    positional_only: bool = False
    keyword_only: bool = False


def parameters(node: FunctionNode) -> list[Parameter]:
    """Return the parameters in order, without `*args` and `**kwargs`."""
    given = node.args
    return [
        *(Parameter(a.arg, positional_only=True) for a in given.posonlyargs),
        *(Parameter(a.arg) for a in given.args),
        *(Parameter(a.arg, keyword_only=True) for a in given.kwonlyargs),
    ]


@functools.lru_cache(maxsize=256)
def bound_names(node: FunctionNode) -> frozenset[str]:
    """Return the names that are local to a function: parameters and all it assigns."""
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    return frozenset({p.name for p in parameters(node)} | set(assigned_names(body)))


def assigned_names(nodes: Sequence[ast.AST]) -> list[str]:
    """Return the names that statements assign, in text order; inner functions are their own."""
    return list(dict.fromkeys(name for node in nodes for name in _assigned(node)))


def _assigned(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
        inner: list[ast.AST] = list(node.decorator_list)
    elif isinstance(node, ast.Lambda):
        inner = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
    else:
        inner = list(ast.iter_child_nodes(node))
    for child in inner:
        yield from _assigned(child)


def loads_outside(function: FunctionNode, part: ast.AST) -> frozenset[str]:
    """Return the names that a function reads outside a part of it."""
    skipped = {id(n) for n in ast.walk(part)}
    return frozenset(
        n.id
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in skipped
    )
