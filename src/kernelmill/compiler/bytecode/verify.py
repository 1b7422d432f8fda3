"""Proves that a rebuilt tree means what the bytecode means. Nothing is rebuilt or executed here.

The tree is compiled again and both instruction lists run side by side, from state to state: the
same instruction on both sides, then the same on each way out, until every pair of states was seen.
This is a bisimulation, so jumps, copied tails and rotated loops make no difference, and everything
else does. A tree that fails is refused: no mistake of the rules can give a wrong result.
"""

from __future__ import annotations
import __future__ as futures

import ast
import copy
import warnings
from dataclasses import dataclass, replace
from types import CodeType
from typing import TYPE_CHECKING, Final

from kernelmill.compiler.bytecode.blocks import shapes_of, thread
from kernelmill.compiler.bytecode.decode import KEEPS_ITERATOR, Op, decode
from kernelmill.compiler.bytecode.refusal import Place, UnknownShapeError
from kernelmill.compiler.bytecode.trees import arguments_of, function_def, is_literal, name, placed

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

__all__ = ["verify"]

_MOVES: Final = frozenset(("pop", "store", "swap"))
_TESTS: Final = frozenset(("branch", "test"))
_REBUILT: Final = "__rebuilt__"
_PLACE: Final = Place(1, 1, 0, 0)
_FUTURES: Final = sum(
    {getattr(futures, feature).compiler_flag for feature in futures.all_feature_names}
)


def verify(code: CodeType, node: ast.FunctionDef | ast.Lambda) -> None:
    """Raise UnknownShapeError unless the tree compiles to the same behaviour as the code."""
    hider = _Hider()
    hidden = hider.visit(copy.deepcopy(node))
    for imported in ((), _names_in(code)):
        if _equal(code, _compiled(code, copy.deepcopy(hidden), imported), hider.hidden):
            return
    raise UnknownShapeError("control flow that no rule covers")


def _names_in(code: CodeType) -> tuple[str, ...]:
    """Return all names of a function and of those inside it."""
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return tuple(dict.fromkeys([*code.co_names, *(n for c in inner for n in _names_in(c))]))


def _compiled(
    code: CodeType, node: ast.FunctionDef | ast.Lambda, imported: Sequence[str]
) -> CodeType:
    """Return the code object of the tree, with the same outer variables as the original.

    `imported` are names that the text around it imports: their attributes are called otherwise.
    """
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
    imports = [placed(ast.Import([ast.alias(n)]), _PLACE) for n in imported]
    module = ast.fix_missing_locations(ast.Module([*imports, shell], []))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user saw `x is 1` warned about already
        compiled = compile(
            module, code.co_filename, "exec", code.co_flags & _FUTURES, dont_inherit=True
        )
    return _code_in(_code_in(compiled))


class _Hider(ast.NodeTransformer):
    """Keeps operators on constants from being carried out by the compiler.

    In the text they were not next to each other (`(2 and 3) + 1`), so the bytecode has them. One of
    the constants becomes a variable with a name that no program has; `hidden` keeps the values.
    """

    def __init__(self) -> None:
        self.hidden: dict[str, object] = {}

    def _name(self, node: ast.expr) -> ast.Name:
        identifier = f"<{len(self.hidden)}>"
        self.hidden[identifier] = ast.literal_eval(node)
        return name(identifier, _PLACE)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if is_literal(node.left) and is_literal(node.right):
            node.left = self._name(node.left)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        node.values = [self._name(v) if is_literal(v) else v for v in node.values]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if is_literal(node.test):
            node.test = self._name(node.test)
        return node

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        self.generic_visit(node)
        if node.elts and "built" in vars(node) and all(is_literal(item) for item in node.elts):
            node.elts[0] = self._name(node.elts[0])
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if is_literal(node.value) and is_literal(node.slice):
            node.value = self._name(node.value)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if is_literal(node.operand) and not is_literal(node):
            node.operand = self._name(node.operand)
        return node


def _code_in(code: CodeType) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType))


@dataclass(frozen=True, slots=True)
class _State:
    """Where one side is, and the loops whose iterators it holds, by where they were started.

    `known` is the outcome of the last test while the tested value is on top of the stack.
    """

    at: int
    loops: tuple[tuple[int, int], ...] = ()
    known: bool | None = None


class _Side:
    """The instructions of one function; walks over those without effect."""

    def __init__(self, code: CodeType, hidden: Mapping[str, object]) -> None:
        self._ops = _canonical(code, hidden)
        self._shapes = shapes_of(self._ops)

    def rest(self, state: _State) -> tuple[Op, _State]:
        """Return the next instruction that does something, and the state in front of it.

        Taking the iterator of a loop from the stack, as `break` and a return do, has no effect, and
        a second test of a value goes the way of the first.
        """
        at, loops, known = state.at, state.loops, state.known
        while True:
            op, shape = self._ops[at], self._shapes[at]
            if op.kind == "pop" and shape.endswith("i"):
                loops = loops[:-1]
            elif known is not None and op.kind in ("branch", "test", "pop"):
                at = op.targets[0 if known else 1] if op.targets else at + 1
                known = known if op.kind == "test" else None
                continue
            elif op.kind != "jump" and not _moves_iterator(op, shape):
                return op, _State(at, loops, known)
            at = op.targets[0] if op.targets else at + 1


def _moves_iterator(op: Op, shape: str) -> bool:
    """Whether an instruction only takes a value past an iterator, which is popped then."""
    return (op.kind, op.arg) == ("swap", 2) and "i" in shape[-2:]


def _equal(one: CodeType, two: CodeType, hidden: Mapping[str, object]) -> bool:
    """Whether two functions take the same parameters and do the same."""
    if _parameters(one) != _parameters(two) or set(one.co_freevars) != set(two.co_freevars):
        return False
    left, right = _Side(one, hidden), _Side(two, hidden)
    seen: set[tuple[_State, _State]] = set()
    pending = [(_State(0), _State(0))]
    while pending:
        a, b = pending.pop()
        (x, a), (y, b) = left.rest(a), right.rest(b)
        if (a, b) in seen:
            continue
        seen.add((a, b))
        if not _same(x, y, hidden) or len(x.targets) != len(y.targets):
            return False
        if a.known != b.known:
            return False  # one side goes on to use the tested value
        if x.kind == "for" and a.loops[-1:] != b.loops[-1:]:
            return False  # the sides take the next element of different loops
        pair = a.at, b.at
        pending.extend(zip(_following(x, a, pair), _following(y, b, pair), strict=True))
    return True


def _following(op: Op, state: _State, pair: tuple[int, int]) -> list[_State]:
    """Return the states behind an instruction."""
    loops = state.loops
    match op.kind:
        case "return":
            return []
        case "iter":
            return [_State(state.at + 1, (*loops, pair))]
        case "test":
            true, false = op.targets
            return [_State(true, loops, known=True), _State(false, loops, known=False)]
        case "for":
            body, done = op.targets
            return [_State(body, loops), _State(done, loops if KEEPS_ITERATOR else loops[:-1])]
    return [_State(to, loops) for to in op.targets or (state.at + 1,)]


def _parameters(code: CodeType) -> tuple[object, ...]:
    counts = (code.co_posonlyargcount, code.co_argcount, code.co_kwonlyargcount)
    stars = code.co_flags & 12  # CO_VARARGS | CO_VARKEYWORDS
    return *counts, stars, code.co_varnames[: sum(counts[1:]) + stars.bit_count()]


def _same(x: Op, y: Op, hidden: Mapping[str, object]) -> bool:
    """Whether two instructions do the same, apart from where they go."""
    if isinstance(x.arg, CodeType) and isinstance(y.arg, CodeType):
        return x.kind == y.kind and _equal(x.arg, y.arg, hidden)
    if x.kind in _TESTS and y.kind in _TESTS:
        return True
    return x.key == y.key


def _canonical(code: CodeType, hidden: Mapping[str, object]) -> list[Op]:
    """Return the instructions in the one form that trees with the same meaning share.

    A variable of the function itself may be a cell or not. Tests have no `not`, `is not`, `not in`:
    their sides change places instead. Constants come out of hiding.
    """
    ops = [_plain_load(op, code.co_cellvars, hidden) for op in decode(code)]
    labels = {t for op in ops for t in op.targets}
    for at, branch in enumerate(ops[1:]):
        op = ops[at]
        plain = _PLAIN.get((op.kind, op.arg)) if isinstance(op.arg, str) else None
        if at + 1 in labels:
            continue
        if plain is not None and branch.kind == "branch":
            ops[at] = plain(op, at)
            ops[at + 1] = replace(branch, targets=branch.targets[::-1])
    for start, end in _runs(ops, labels):
        ops[start:end] = _plain_stores(ops[start:end], start)
    for at, op in enumerate(ops):
        if op.kind == "walrus" and _overwritten(op, at, ops):
            ops[at] = replace(op, kind="jump", arg=None, targets=(at + 1,))
    return ops


def _overwritten(op: Op, at: int, ops: Sequence[Op]) -> bool:
    """Whether the next thing that happens to a variable is that it gets the same value again."""
    after = ops[thread(ops, at + 1)]
    return after.kind in ("store", "walrus") and after.arg == op.arg


def _runs(ops: Sequence[Op], labels: Container[int]) -> Iterator[tuple[int, int]]:
    """Yield where swaps and stores follow each other without a jump between them."""
    start = 0
    for end in range(1, len(ops) + 1):
        goes_on = end < len(ops) and ops[end].kind in _MOVES and end not in labels
        if not goes_on or ops[start].kind not in _MOVES:
            if ops[start].kind in _MOVES:
                yield start, end
            start = end


def _plain_stores(run: list[Op], at: int) -> list[Op]:
    """Return the stores of a parallel assignment from the top of the stack down, without swaps."""
    size = max(len(run), *(op.arg for op in run if isinstance(op.arg, int)), 0)
    slots = list(range(size))
    stores: list[tuple[int, Op]] = []
    for op in run:
        if isinstance(op.arg, int):
            slots[-1], slots[-op.arg] = slots[-op.arg], slots[-1]
        else:
            stores.append((slots.pop(), op))
    if slots != list(range(len(slots))):
        return run
    for i, (slot, op) in enumerate(stores):
        if any(op.arg == later.arg for _, later in stores[i + 1 :]):
            stores[i] = slot, replace(op, kind="pop", arg=None)  # overwritten at once
    ordered = [op for _, op in sorted(stores, key=lambda store: -store[0])]
    skipped = len(run) - len(ordered)
    return [replace(run[0], kind="jump", targets=(at + i + 1,)) for i in range(skipped)] + ordered


def _plain_load(op: Op, cells: Sequence[str], hidden: Mapping[str, object]) -> Op:
    """Return an instruction on a variable without saying whether it is a cell."""
    match op.arg:
        case ("cell", str() as variable) if variable in cells:
            return replace(op, arg=("local", variable))
        case ("global", str() as variable) if variable in hidden:
            return replace(op, kind="const", arg=hidden[variable])
    return op


_PLAIN: Final[Mapping[tuple[str, object], Callable[[Op, int], Op]]] = {
    ("unary", "not"): lambda op, at: replace(op, kind="jump", arg=None, targets=(at + 1,)),
    ("compare", "is not"): lambda op, _: replace(op, arg="is"),
    ("compare", "not in"): lambda op, _: replace(op, arg="in"),
}
