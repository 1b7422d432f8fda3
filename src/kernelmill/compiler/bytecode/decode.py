"""Decodes code objects of CPython 3.11 to 3.13 into one small instruction set. No control flow.

Every spelling that differs between the versions (fused loads, `PRECALL`, `KW_NAMES`, conditional
jumps with a direction, `RETURN_CONST`) ends here; what leaves is the same list of `Op` for all.

====================  ==================  =====================================================
kind                  arg                 effect on the stack
====================  ==================  =====================================================
const, load           value, (scope, n)   pushes a value
cell                  name                pushes the cell of a variable, for a closure
null, attr, method    name                marker of a plain call; field; field to be called
unary, binary         operator            `inplace` is the same for augmented assignments
compare, chain        operator            `chain` keeps the right operand for the next comparison
bool                                      makes the value a bool: what is left of `not not x` (3.13)
subscr, tuple, call   count, names        `call` has (number of arguments, names of the last ones)
store, walrus         (scope, name)       `walrus` keeps the value
unpack, again         count               `again` keeps the tuple: `a, b = c, d = t`
pop, copy, swap       count               rearranges
keywords, function    names, flags        keyword defaults; closure or lambda from its code
branch, test          targets             (if true, if false); `test` keeps the value on both sides
jump, return          target
iter, for             (scope, name)       starts a loop; next element (body, exhausted)
====================  ==================  =====================================================
"""

from __future__ import annotations

import dis
import inspect
import sys
from dataclasses import dataclass, replace
from types import CodeType
from typing import TYPE_CHECKING, Final, TypeAlias

from kernelmill.compiler.bytecode.refusal import Place, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["VERSIONS", "Op", "decode"]

VERSIONS: Final = ((3, 11), (3, 12), (3, 13))
_AS_BOOL: Final = 16  # the flag of COMPARE_OP that makes the result a bool (3.13)
NEXT: Final = -1  # a target that is the following instruction
NULL_FIRST: Final = sys.version_info < (3, 13)  # the marker of a plain call lies below the function
KEEPS_ITERATOR: Final = sys.version_info >= (3, 12)  # an exhausted loop pops its iterator itself


@dataclass(frozen=True, slots=True)
class Op:
    """One decoded instruction; `targets` are indices into the list that `decode` returns."""

    kind: str
    arg: object
    place: Place
    targets: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[str, object]:
        """What the instruction does, apart from where it goes; 1, True and 1.0 differ."""
        return self.kind, _strict(self.arg)


def _strict(value: object) -> object:
    """Return a value that is equal for constants that cannot be told apart only."""
    if isinstance(value, tuple):
        return tuple(_strict(item) for item in value)
    return type(value), value if isinstance(value, CodeType) else repr(value)


Handler: TypeAlias = "Callable[[dis.Instruction, Place, CodeType], Iterable[Op]]"


def decode(code: CodeType) -> list[Op]:
    """Return the instructions of a function.

    Raises OperatorError for an instruction outside of the operator language and for a version of
    Python whose instructions are not known.
    """
    if sys.version_info[:2] not in VERSIONS:
        raise refusal(code, f"the bytecode of Python {sys.version_info[0]}.{sys.version_info[1]}")
    if code.co_flags & _GENERATOR_FLAGS:
        raise refusal(code, "a generator or a coroutine")
    ops: list[Op] = []
    index_of: dict[int, int] = {}
    place = Place(code.co_firstlineno, code.co_firstlineno, 0, 0)
    for instruction in dis.get_instructions(code):
        place = _place(instruction, place)
        index_of[instruction.offset] = len(ops)
        handler = HANDLERS.get(instruction.opname)
        if handler is None:
            found = REFUSED.get(instruction.opname, f"the instruction {instruction.opname}")
            raise refusal(code, found, place.line)
        ops.extend(handler(instruction, place, code))
    if code.co_exceptiontable:
        raise refusal(code, "a try or with statement")
    fused = _fuse([_resolve(op, index, index_of) for index, op in enumerate(ops)])
    for op in fused:
        if op.kind == "for" and op.arg is None:
            raise refusal(code, "a loop whose target is not a variable", op.place.line)
    return fused


_GENERATOR_FLAGS: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _place(instruction: dis.Instruction, before: Place) -> Place:
    """Return the position of an instruction, or the one before where it has none."""
    found = instruction.positions
    if found is None or found.lineno is None:
        return before
    line = found.lineno
    return Place(line, found.end_lineno or line, found.col_offset or 0, found.end_col_offset or 0)


def _resolve(op: Op, index: int, index_of: Mapping[int, int]) -> Op:
    """Turn byte offsets into indices."""
    if not op.targets:
        return op
    targets = tuple(index + 1 if t == NEXT else index_of[t] for t in op.targets)
    return replace(op, targets=targets)


# --- instruction → ops ---------------------------------------------------------------------------


def _nothing(_i: dis.Instruction, _place: Place, _code: CodeType) -> Iterable[Op]:
    return ()


def _with(kind: str, *, arg: Callable[[dis.Instruction], object] | None = None) -> Handler:
    """Return a handler that makes one op; its argument is that of the instruction by default."""
    return lambda i, place, _code: (Op(kind, i.argval if arg is None else arg(i), place),)


def _fixed(kind: str, value: object) -> Handler:
    return lambda _i, place, _code: (Op(kind, value, place),)


def _load_fast(i: dis.Instruction, place: Place, code: CodeType) -> Iterable[Op]:
    """Load one or two locals; a local that is a cell is meant for a closure (3.13)."""
    names = i.argval if isinstance(i.argval, tuple) else (i.argval,)
    cells = code.co_cellvars + code.co_freevars
    return [
        Op("cell", name, place) if name in cells else Op("load", ("local", name), place)
        for name in names
    ]


def _stores(i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
    return [Op("store", ("local", name), place) for name in i.argval]


def _store_load(i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
    stored, loaded = i.argval
    return [Op("store", ("local", stored), place), Op("load", ("local", loaded), place)]


def _load_deref(i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
    return (Op("load", ("cell", i.argval), place),)


def _store_deref(i: dis.Instruction, place: Place, code: CodeType) -> Iterable[Op]:
    if i.argval in code.co_freevars:
        found = f"an assignment to {i.argval!r}, a variable of an outer function"
        raise refusal(code, found, place.line)
    return (Op("store", ("cell", i.argval), place),)


def _load_global(i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
    load, null = Op("load", ("global", i.argval), place), Op("null", None, place)
    if not (i.arg or 0) & 1:
        return (load,)
    return (null, load) if NULL_FIRST else (load, null)


def _load_attr(i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
    called = sys.version_info >= (3, 12) and bool((i.arg or 0) & 1)
    return (Op("method" if called else "attr", i.argval, place),)


def _binary(i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
    symbol = i.argrepr
    if symbol.endswith("="):
        return (Op("inplace", symbol[:-1], place),)
    return (Op("binary", symbol, place),)


def _compare(i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
    compared = Op("compare", i.argval, place)
    if sys.version_info >= (3, 13) and (i.arg or 0) & _AS_BOOL:
        return (compared, Op("bool", None, place))
    return (compared,)


def _intrinsic(i: dis.Instruction, place: Place, code: CodeType) -> Iterable[Op]:
    if "UNARY_POSITIVE" not in i.argrepr:
        raise refusal(code, f"the instruction {i.opname} {i.argrepr}", place.line)
    return (Op("unary", "+", place),)


def _branch(when: bool) -> Handler:  # noqa: FBT001 - the two handlers of the table
    def handler(i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
        targets = (i.argval, NEXT) if when else (NEXT, i.argval)
        return (Op("branch", None, place, targets),)

    return handler


def _branch_none(when: bool) -> Handler:  # noqa: FBT001 - the two handlers of the table
    def handler(i: dis.Instruction, place: Place, code: CodeType) -> Iterable[Op]:
        compared = (Op("const", None, place), Op("compare", "is" if when else "is not", place))
        return (*compared, *_branch(when=True)(i, place, code))

    return handler


def _test_or_pop(when: bool) -> Handler:  # noqa: FBT001 - the two handlers of the table
    def handler(i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
        targets = (i.argval, NEXT) if when else (NEXT, i.argval)
        return (Op("test", None, place, targets), Op("pop", None, place))

    return handler


def _jump(i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
    return (Op("jump", None, place, (i.argval,)),)


def _for(i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
    return (Op("for", None, place, (NEXT, i.argval)),)


def _return_const(i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
    return (Op("const", i.argval, place), Op("return", None, place))


def _end_for(_i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
    """Pop the iterator (3.12); from 3.13 on a POP_TOP follows that does."""
    return (Op("pop", None, place),) if sys.version_info < (3, 13) else ()


def _make_function(i: dis.Instruction, place: Place, _code: CodeType) -> Iterable[Op]:
    return (Op("function", i.arg or 0, place),)


def _kw_names(i: dis.Instruction, place: Place, code: CodeType) -> Iterable[Op]:
    return (Op("names", code.co_consts[i.arg or 0], place),)


def _operator(negated: str, plain: str) -> Callable[[dis.Instruction], object]:
    return lambda i: negated if i.arg else plain


HANDLERS: Final[Mapping[str, Handler]] = {
    **dict.fromkeys(
        (
            *("CACHE", "EXTENDED_ARG", "NOP", "RESUME", "PRECALL"),
            *("MAKE_CELL", "COPY_FREE_VARS"),
        ),
        _nothing,
    ),
    "LOAD_CONST": _with("const"),
    "RETURN_CONST": _return_const,
    **dict.fromkeys(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST"), _load_fast),
    "LOAD_DEREF": _load_deref,
    "LOAD_GLOBAL": _load_global,
    "LOAD_CLOSURE": _with("cell"),
    "LOAD_ATTR": _load_attr,
    "LOAD_METHOD": _with("method"),
    "STORE_FAST": _with("store", arg=lambda i: ("local", i.argval)),
    "STORE_FAST_STORE_FAST": _stores,
    "STORE_FAST_LOAD_FAST": _store_load,
    "STORE_DEREF": _store_deref,
    "PUSH_NULL": _fixed("null", None),
    "UNARY_NEGATIVE": _fixed("unary", "-"),
    "UNARY_POSITIVE": _fixed("unary", "+"),
    "UNARY_INVERT": _fixed("unary", "~"),
    "UNARY_NOT": _fixed("unary", "not"),
    "CALL_INTRINSIC_1": _intrinsic,
    "BINARY_OP": _binary,
    "BINARY_SUBSCR": _fixed("subscr", None),
    "TO_BOOL": _fixed("bool", None),
    "COMPARE_OP": _compare,
    "IS_OP": _with("compare", arg=_operator("is not", "is")),
    "CONTAINS_OP": _with("compare", arg=_operator("not in", "in")),
    "KW_NAMES": _kw_names,
    "CALL": _with("call", arg=lambda i: (i.arg, ())),
    "CALL_KW": _with("call_kw", arg=lambda i: i.arg),
    "BUILD_TUPLE": _with("tuple", arg=lambda i: i.arg),
    "BUILD_CONST_KEY_MAP": _with("keywords", arg=lambda i: i.arg),
    "UNPACK_SEQUENCE": _with("unpack", arg=lambda i: i.arg),
    "COPY": _with("copy", arg=lambda i: i.arg),
    "SWAP": _with("swap", arg=lambda i: i.arg),
    "POP_TOP": _fixed("pop", None),
    "END_FOR": _end_for,
    "MAKE_FUNCTION": _make_function,
    "SET_FUNCTION_ATTRIBUTE": _with("attribute", arg=lambda i: i.arg),
    "RETURN_VALUE": _fixed("return", None),
    "GET_ITER": _fixed("iter", None),
    "FOR_ITER": _for,
    **dict.fromkeys(
        ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
        _jump,
    ),
    **dict.fromkeys(
        ("POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE"),
        _branch(when=True),
    ),
    **dict.fromkeys(
        ("POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE"),
        _branch(when=False),
    ),
    **dict.fromkeys(
        ("POP_JUMP_IF_NONE", "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE"),
        _branch_none(when=True),
    ),
    **dict.fromkeys(
        ("POP_JUMP_IF_NOT_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE"),
        _branch_none(when=False),
    ),
    "JUMP_IF_TRUE_OR_POP": _test_or_pop(when=True),
    "JUMP_IF_FALSE_OR_POP": _test_or_pop(when=False),
}

REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("BUILD_LIST", "LIST_APPEND", "LIST_EXTEND"), "a list"),
    **dict.fromkeys(("BUILD_MAP", "MAP_ADD", "DICT_UPDATE", "DICT_MERGE"), "a dict"),
    **dict.fromkeys(("BUILD_SET", "SET_ADD", "SET_UPDATE"), "a set"),
    **dict.fromkeys(
        ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE", "BUILD_STRING"),
        "an f-string",
    ),
    **dict.fromkeys(("IMPORT_NAME", "IMPORT_FROM"), "an import"),
    **dict.fromkeys(("RAISE_VARARGS", "LOAD_ASSERTION_ERROR", "RERAISE"), "raise or assert"),
    **dict.fromkeys(("PUSH_EXC_INFO", "CHECK_EXC_MATCH", "POP_EXCEPT"), "a try statement"),
    **dict.fromkeys(("BEFORE_WITH", "BEFORE_ASYNC_WITH", "WITH_EXCEPT_START"), "a with statement"),
    **dict.fromkeys(("STORE_GLOBAL", "DELETE_GLOBAL"), "an assignment to a global variable"),
    **dict.fromkeys(("STORE_SUBSCR", "STORE_SLICE"), "an assignment to an element"),
    **dict.fromkeys(("DELETE_FAST", "DELETE_DEREF", "DELETE_SUBSCR", "DELETE_ATTR"), "del"),
    **dict.fromkeys(("MATCH_CLASS", "MATCH_KEYS", "MATCH_MAPPING", "MATCH_SEQUENCE"), "match"),
    **dict.fromkeys(("BINARY_SLICE", "BUILD_SLICE"), "a slice"),
    "STORE_ATTR": "an assignment to a field",
    "UNPACK_EX": "a starred target",
    "CALL_FUNCTION_EX": "a call with * or **",
    "LOAD_FAST_AND_CLEAR": "a comprehension",
    "LOAD_BUILD_CLASS": "a class",
    "LOAD_NAME": "the code of a module or a class",
    "STORE_NAME": "the code of a module or a class",
}

# --- neighbours that belong together --------------------------------------------------------------

_Pair: TypeAlias = "Callable[[Op, Op], Op | None]"


def _kept(made: str) -> _Pair:
    """Fuse `copy 1` with what uses up the copy."""
    return lambda first, second: replace(second, kind=made) if first.arg == 1 else None


def _chain(first: Op, second: Op) -> Op | None:
    return replace(second, kind="chain") if first.arg == "over" else None


def _over(first: Op, second: Op) -> Op | None:
    both = first.arg == second.arg == 2  # noqa: PLR2004 - `SWAP 2`, `COPY 2`
    return replace(second, kind="over", arg="over") if both else None


_PAIRS: Final[Mapping[tuple[str, str], _Pair]] = {
    ("copy", "store"): _kept("walrus"),
    ("copy", "unpack"): _kept("again"),
    ("copy", "branch"): _kept("test"),
    # A branch and `not` take any value in the operator language; elsewhere `bool` is `not not`.
    ("bool", "branch"): lambda _, second: second,
    ("bool", "unary"): lambda _, second: second if second.arg == "not" else None,
    ("swap", "copy"): _over,
    ("over", "compare"): _chain,
    ("for", "store"): lambda first, second: replace(first, arg=second.arg),
    ("names", "call"): lambda first, second: replace(second, arg=(_count(second), first.arg)),
    ("const", "call_kw"): lambda first, second: replace(
        second, kind="call", arg=(second.arg, first.arg)
    ),
    ("function", "attribute"): lambda first, second: replace(
        first, arg=_flags(first) | _flags(second)
    ),
}


def _count(call: Op) -> object:
    assert isinstance(call.arg, tuple)
    return call.arg[0]


def _flags(op: Op) -> int:
    assert isinstance(op.arg, int)
    return op.arg


def _fuse(ops: list[Op]) -> list[Op]:
    """Join neighbours by the table, never across a jump target."""
    # The body of a loop starts right behind its `for`: only a jump elsewhere makes it a label.
    labels = {t for i, op in enumerate(ops) for t in op.targets if (op.kind, t) != ("for", i + 1)}
    fused: list[Op] = []
    moved: list[int] = []
    for index, op in enumerate(ops):
        current = op
        while fused and index not in labels:
            pair = _PAIRS.get((fused[-1].kind, current.kind))
            joined = pair(fused[-1], current) if pair else None
            if joined is None:
                break
            fused.pop()
            current = joined
        fused.append(current)
        moved.append(len(fused) - 1)
    return [_move(op, index, moved) for index, op in enumerate(fused)]


def _move(op: Op, index: int, moved: list[int]) -> Op:
    if op.kind == "for":
        return replace(op, targets=(index + 1, moved[op.targets[1]]))
    return replace(op, targets=tuple(moved[t] for t in op.targets)) if op.targets else op
