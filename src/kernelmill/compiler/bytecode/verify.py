"""Proves that a rebuilt tree means what the bytecode means. Nothing is rebuilt or executed here.

The tree is compiled again and both instruction lists run side by side, from state to state: the same
instruction on both sides, then the same on each way out, until every pair of states was seen. This
is a bisimulation, so jumps, copied tails and rotated loops make no difference, and everything else
does. A tree that fails is refused, so that no mistake of the rules can give a wrong result.
"""

from __future__ import annotations

import __future__ as futures
import ast
import copy
import warnings
from dataclasses import replace
from types import CodeType
from typing import TYPE_CHECKING, Final

from kernelmill.compiler.bytecode.blocks import thread
from kernelmill.compiler.bytecode.decode import Op, decode
from kernelmill.compiler.bytecode.trees import arguments_of, function_def, name, placed
from kernelmill.compiler.bytecode.refusal import Place, UnknownShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["verify"]

_REBUILT: Final = "__rebuilt__"
_PLACE: Final = Place(1, 1, 0, 0)
_FUTURES: Final = sum(
    {getattr(futures, feature).compiler_flag for feature in futures.all_feature_names}
)


def verify(code: CodeType, node: ast.FunctionDef | ast.Lambda) -> None:
    """Raise UnknownShapeError unless the tree compiles to the same behaviour as the code."""
    if not _equal(code, _compiled(code, node)):
        raise UnknownShapeError("control flow that no rule covers")


def _compiled(code: CodeType, node: ast.FunctionDef | ast.Lambda) -> CodeType:
    """Return the code object of the tree, with the same outer variables as the original."""
    node = copy.deepcopy(node)
    node.args.defaults = [placed(ast.Constant(None), _PLACE) for _ in node.args.defaults]
    node.args.kw_defaults = [None] * len(node.args.kw_defaults)
    made: ast.stmt
    if isinstance(node, ast.Lambda):
        made = placed(ast.Return(node), _PLACE)
    else:
        made, node.name = node, _REBUILT
    # Variables of an outer function must be variables of an outer function here, too.
    outer = [
        placed(ast.Assign([name(n, _PLACE, store=True)], ast.Constant(None)), _PLACE)
        for n in code.co_freevars
    ]
    arguments = arguments_of((lambda: None).__code__, _PLACE)
    shell = function_def("__outer__", arguments, [*outer, made], _PLACE)
    module = ast.fix_missing_locations(ast.Module([shell], []))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user saw `x is 1` warned about already
        compiled = compile(
            module, code.co_filename, "exec", code.co_flags & _FUTURES, dont_inherit=True
        )
    return _code_in(_code_in(compiled))


def _code_in(code: CodeType) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType))


def _equal(one: CodeType, two: CodeType) -> bool:
    """Whether two functions take the same parameters and do the same."""
    if _parameters(one) != _parameters(two) or set(one.co_freevars) != set(two.co_freevars):
        return False
    left, right = _canonical(decode(one)), _canonical(decode(two))
    seen = set()
    pending = [(0, 0)]
    while pending:
        a, b = pending.pop()
        pair = thread(left, a), thread(right, b)
        if pair in seen:
            continue
        seen.add(pair)
        x, y = left[pair[0]], right[pair[1]]
        if not _same(x, y) or len(x.targets) != len(y.targets):
            return False
        if x.kind == "return":
            continue
        following = ((pair[0] + 1, pair[1] + 1),) if not x.targets else zip(x.targets, y.targets)
        pending.extend(following)
    return True


def _parameters(code: CodeType) -> tuple[object, ...]:
    counts = (code.co_posonlyargcount, code.co_argcount, code.co_kwonlyargcount)
    stars = code.co_flags & 12  # CO_VARARGS | CO_VARKEYWORDS
    return *counts, stars, code.co_varnames[: sum(counts[1:]) + stars.bit_count()]


def _same(x: Op, y: Op) -> bool:
    """Whether two instructions do the same, apart from where they go."""
    if isinstance(x.arg, CodeType) and isinstance(y.arg, CodeType):
        return x.kind == y.kind and _equal(x.arg, y.arg)
    return x.key == y.key


def _canonical(ops: Sequence[Op]) -> list[Op]:
    """Write tests without `not`, `is not` and `not in`: the sides change places instead."""
    result = list(ops)
    labels = {t for op in ops for t in op.targets}
    for i in range(len(ops) - 2, -1, -1):
        op, branch = result[i], result[i + 1]
        if branch.kind != "branch" or i + 1 in labels:
            continue
        plain = _PLAIN.get((op.kind, op.arg)) if isinstance(op.arg, str) else None
        if plain is not None:
            result[i + 1] = replace(branch, targets=branch.targets[::-1])
            result[i] = replace(op, kind=plain[0], arg=plain[1])
            if plain[0] == "jump":
                result[i] = replace(result[i], targets=(i + 1,))
    return result


_PLAIN: Final = {
    ("unary", "not"): ("jump", None),
    ("compare", "is not"): ("compare", "is"),
    ("compare", "not in"): ("compare", "in"),
}
