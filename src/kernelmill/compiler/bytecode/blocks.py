"""Cuts decoded instructions into basic blocks, and joins the tails that CPython copied.

CPython copies a short end of a function (up to four instructions and a return) behind each jump to
it, also in the middle of an expression: `return x + (a if c else b)` has two additions. Blocks that
end the function are cut here where they start to use what lies below their own values, and equal
tails become one block again, so that both arms of a conditional expression meet.
Nothing is known here about what the values are.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from types import CodeType
from typing import TYPE_CHECKING, Final, TypeAlias

from kernelmill.compiler.bytecode.decode import KEEPS_ITERATOR, Op
from kernelmill.compiler.bytecode.refusal import UnknownShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Block", "blocks_of", "shapes_of", "thread"]

_LEAVES: Final = frozenset(("branch", "test", "jump", "return", "for"))

# pops, pushes; the ones with a count are in `_effect`
_EFFECTS: Final[Mapping[str, tuple[int, int]]] = {
    **dict.fromkeys(("const", "load", "cell", "null"), (0, 1)),
    **dict.fromkeys(("attr", "bool", "unary", "walrus"), (1, 1)),
    **dict.fromkeys(("store", "pop", "branch", "return"), (1, 0)),
    **dict.fromkeys(("binary", "inplace", "compare", "subscr"), (2, 1)),
    "method": (1, 2),
    "chain": (2, 2),
    "test": (1, 1),
    "iter": (1, 1),
    "jump": (0, 0),
    "for": (0, 0),
}

# the start of a value that takes nothing from the stack
_PUSHES: Final = frozenset(("const", "load", "null"))
# what an assignment is made of, up to its last store
_GLUES: Final = frozenset(("again", "function", "inplace", "pop", "store", "swap", "unpack"))

_Key: TypeAlias = tuple[str, tuple[object, ...]]


@dataclass(slots=True)
class Block:
    """A run of instructions that is entered at its top only; `last` says where it goes on."""

    ops: list[Op]
    last: Op

    @property
    def tail(self) -> tuple[Op, ...]:
        """The instructions with their end."""
        return (*self.ops, self.last)


def thread(ops: Sequence[Op], index: int) -> int:
    """Return the first instruction at or behind `index` that is not a jump."""
    seen = set()
    while ops[index].kind == "jump":
        if index in seen:
            raise UnknownShapeError("a loop without an end")
        seen.add(index)
        index = ops[index].targets[0]
    return index


def blocks_of(ops: Sequence[Op]) -> tuple[int, dict[int, Block]]:
    """Return the entry and the reachable blocks by the index of their first instruction."""
    entry = thread(ops, 0)
    leaders = {entry} | {thread(ops, t) for op in ops for t in op.targets}
    leaders |= {i for i, op in enumerate(ops) if op.kind == "for"}
    leaders |= {_behind_cleaning(ops, op.targets[1]) for op in _chained(ops)}
    blocks: dict[int, Block] = {}
    pending = [entry]
    while pending:
        start = pending.pop()
        if start not in blocks:
            blocks[start] = _block(ops, start, leaders)
            pending.extend(blocks[start].last.targets)
    _join_tails(blocks, shapes_of(ops))
    return entry, blocks


def _chained(ops: Sequence[Op]) -> list[Op]:
    """Return the branches that leave a chained comparison."""
    return [
        ops[i + 1] for i, op in enumerate(ops[:-1]) if op.kind == "chain" and ops[i + 1].targets
    ]


def _behind_cleaning(ops: Sequence[Op], at: int) -> int:
    """Return the end of the instructions that take the kept operand of a comparison away."""
    while ops[at].kind in ("swap", "pop"):
        at += 1
        if ops[at - 1].kind == "pop":
            break
    return at


def _block(ops: Sequence[Op], start: int, leaders: set[int]) -> Block:
    """Return the block that starts at an instruction."""
    end = start
    while ops[end].kind not in _LEAVES:
        end += 1
        if end in leaders:
            return Block(list(ops[start:end]), Op("jump", None, ops[end - 1].place, (end,)))
    last = ops[end]
    targets = tuple(thread(ops, t) for t in last.targets)
    return Block(list(ops[start:end]), replace(last, targets=targets))


# --- tails ----------------------------------------------------------------------------------------


def _join_tails(blocks: dict[int, Block], shapes: Mapping[int, str]) -> None:
    """Cut the blocks that end the function where expressions meet, and make equal tails one."""
    ends = {at: b for at, b in sorted(blocks.items()) if b.last.kind == "return"}
    home: dict[_Key, int] = {}
    fresh = itertools.count(-1, -1)  # new blocks: no instruction has a negative number
    for at, places in _places(ends, shapes).items():
        block, start, here = ends[at], 0, at
        for cut, key in places:
            known = home.get(key)
            new = at if cut == 0 else next(fresh)
            target = home[key] = new if known is None else known
            if target != here:
                blocks[here] = Block(block.ops[start:cut], _jump(block, target))
                start, here = cut, target
            if known is not None:
                break
        else:
            blocks[here] = Block(block.ops[start:], block.last)


def _places(
    ends: Mapping[int, Block], shapes: Mapping[int, str]
) -> dict[int, list[tuple[int, _Key]]]:
    """Return where each block that ends the function is to be cut, and what follows there."""
    keys = {at: _keys(block, shapes[at]) for at, block in ends.items()}
    within = {at for at in ends if "v" in shapes[at]}
    cuts = {at: set(_cuts(block, shapes[at])) for at, block in ends.items()}
    wanted = {keys[at][cut] for at in within for cut in cuts[at]}
    inner = {key for tails in keys.values() for key in tails[1:]}

    places: dict[int, list[tuple[int, _Key]]] = {at: [] for at in ends}
    for at, tails in keys.items():
        for cut, key in enumerate(tails):
            # Two values that look the same are two arms, unless others run into one of them.
            arm = cut == 0 and key not in inner and ends[at].tail[0].kind in _PUSHES
            joins = key in wanted and "v" in key[0] and cut in cuts[at]
            if joins and not arm and not _glued(ends[at], cut):
                places[at].append((cut, key))
    return places


def _jump(block: Block, target: int) -> Op:
    return Op("jump", None, block.last.place, (target,))


def _keys(block: Block, shape: str) -> list[_Key]:
    """Return what each tail of a block does, with the stack it starts from."""
    keys: list[_Key] = []
    tail = tuple(op.key for op in block.tail)
    for index, op in enumerate(block.tail):
        keys.append((shape, tail[index:]))
        shape, _ = _step(op, shape)
    return keys


def _cuts(block: Block, shape: str) -> Iterator[int]:
    """Yield where a block may meet another in the middle of an expression.

    That is where it holds no value or one value of its own, or starts to use what lies below.
    """
    low = len(shape)
    for index, op in enumerate(block.tail):
        alone = len(shape) <= low + 1
        shape, touched = _step(op, shape)
        if alone or touched < low:
            yield index
        low = min(low, touched)


def _glued(block: Block, index: int) -> bool:
    """Whether an instruction goes on with an assignment or a function, which stay in one piece."""
    if not 0 < index < len(block.ops):
        return False
    before, op = block.ops[index - 1], block.ops[index]
    if "cell" in (before.kind, op.kind) or op.kind == "function" or isinstance(op.arg, CodeType):
        return True
    return op.kind in ("pop", "store", "unpack") and before.kind in _GLUES


# --- the stack ------------------------------------------------------------------------------------


def shapes_of(ops: Sequence[Op]) -> dict[int, str]:
    """Return the stack in front of each instruction, one letter a slot: v a value, i an iterator.

    Unreachable instructions are left out.
    """
    shapes = {0: ""}
    pending = [0]
    while pending:
        at = pending.pop()
        op = ops[at]
        shape, _ = _step(op, shapes[at])
        following = op.targets or (() if op.kind == "return" else (at + 1,))
        for side, target in enumerate(following):
            exhausted = op.kind == "for" and side == 1 and not KEEPS_ITERATOR
            found = shape[:-1] if exhausted else shape
            if target not in shapes:
                pending.append(target)
            if shapes.setdefault(target, found) != found:
                raise UnknownShapeError("a stack that depends on the way")
    return shapes


def _step(op: Op, shape: str) -> tuple[str, int]:
    """Return the stack after an instruction, and the lowest slot that it touched."""
    depth = len(shape)
    if op.kind == "swap":
        assert isinstance(op.arg, int)
        slots = list(shape)
        slots[-1], slots[-op.arg] = slots[-op.arg], slots[-1]
        return "".join(slots), depth - op.arg
    if op.kind == "copy":
        assert isinstance(op.arg, int)
        return shape + shape[-op.arg], depth - op.arg
    pops, pushes = _effect(op)
    if pops > depth:
        raise UnknownShapeError("a stack that runs empty")
    pushed = "i" if op.kind == "iter" else "v" * pushes
    return shape[: depth - pops] + pushed, depth - pops


def _effect(op: Op) -> tuple[int, int]:
    """Return how many values an instruction pops and pushes."""
    known = _EFFECTS.get(op.kind)
    if known is not None:
        return known
    count = _COUNTED.get(op.kind)
    if count is None:
        raise UnknownShapeError(f"an unexpected {op.kind!r} of the stack")
    return count(op.arg)


def _call(arg: object) -> tuple[int, int]:
    assert isinstance(arg, tuple)
    return arg[0] + 2, 1


def _count(arg: object) -> int:
    assert isinstance(arg, int)
    return arg


_COUNTED: Final[Mapping[str, Callable[[object], tuple[int, int]]]] = {
    "call": _call,
    "tuple": lambda arg: (_count(arg), 1),
    "unpack": lambda arg: (1, _count(arg)),
    "again": lambda arg: (1, 1 + _count(arg)),
    "keywords": lambda arg: (_count(arg) + 1, 1),
    "function": lambda arg: (1 + _count(arg).bit_count(), 1),
}
