"""Loops over threads: `grid_range`, `tile_range`, `block_range`, `static_range`.

Loops of plain Python, and the variables that any loop carries, are in `loops.py`.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from kernelmill.compiler import ir, kernel_functions
from kernelmill.compiler.frontend import loops
from kernelmill.compiler.frontend.expressions import evaluate_scalar, unpack
from kernelmill.compiler.frontend.kernel_calls import rank, special
from kernelmill.compiler.frontend.targets import give
from kernelmill.compiler.kernel_ir import Below
from kernelmill.dtypes import DType, TupleType, weak_int
from kernelmill.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.compiler.frontend.frame import Frame, Loop
    from kernelmill.compiler.frontend.values import Value

__all__ = ["is_kernel_loop", "kernel_for"]

_MOST_DIMENSIONS: Final = 3


@dataclass(frozen=True, slots=True)
class _Walk:
    """One loop of the text: its bounds, and the indices that a turn is for.

    `indices` are made from the counter; `unroll` asks for the turns one behind the other.
    """

    start: ir.Expr
    stop: ir.Expr
    step: ir.Expr
    indices: Callable[[ir.Expr], list[ir.Expr]]
    unroll: int = 0


Maker: TypeAlias = "Callable[[Frame, list[ir.Expr]], list[_Walk]]"


def is_kernel_loop(found: object) -> bool:
    """Whether a Python object is one of the loops over threads."""
    return id(found) in _makers()


def kernel_for(frame: Frame, node: ast.For, call: ast.Call, found: object, run: loops.Run) -> bool:
    """Translate a loop over threads; return whether its end is reached."""
    loops.refuse_else(frame, node)
    name, make = _makers()[id(found)]
    if frame.program.kernel is None:
        raise frame.refusal(
            call,
            f"`km.{name}` exists only inside a kernel",
            "an operator computes one element; write a kernel: @km.kernel",
        )
    unroll = _unroll(frame, call, name)
    extents = _arguments(frame, call, name)
    if not 1 <= len(extents) <= _MOST_DIMENSIONS:
        raise frame.refusal(
            call, f"`km.{name}` takes 1 to 3 integers", f"write `km.{name}(n)` or `km.{name}(n, m)`"
        )
    if name == "static_range":
        return _static(frame, node, call, extents, unroll, run)
    with frame.at(call):
        walks = make(frame, extents)
    if unroll and not walks[-1].unroll:
        walks[-1] = dataclasses.replace(walks[-1], unroll=unroll)
    return _nest(frame, node, walks, [], run)


def _unroll(frame: Frame, call: ast.Call, name: str) -> int:
    """Return how many turns `unroll=` asks for, 0 where it is not given."""
    allowed = () if name == "tile_range" else ("unroll",)
    for keyword in call.keywords:
        if keyword.arg not in allowed:
            raise frame.refusal(
                keyword.value,
                f"`km.{name}` takes no argument `{keyword.arg}`",
                "`unroll=` is the only one" if allowed else "leave it out",
            )
        value = evaluate_scalar(frame, keyword.value)
        if not isinstance(value, ir.Const) or type(value.value) is not int or value.value < 1:
            raise frame.refusal(
                keyword.value,
                "`unroll=` is a whole number that is known when the kernel is compiled",
                "write `unroll=4`",
            )
        return value.value
    return 0


def _arguments(frame: Frame, call: ast.Call, name: str) -> list[ir.Expr]:
    found: list[ir.Expr] = []
    for node in call.args:
        if isinstance(node, ast.Starred):
            values = unpack(frame, evaluate_scalar(frame, node.value), node)
        else:
            values = [evaluate_scalar(frame, node)]
        found += [_extent(frame, value, node, name) for value in values]
    return found


def _extent(frame: Frame, value: ir.Expr, node: ast.expr, name: str) -> ir.Expr:
    type_ = value.type
    if isinstance(type_, TupleType):
        raise frame.refusal(
            node,
            f"`km.{name}` takes integers one by one, got {len(type_.items)} in a tuple",
            f"write `km.{name}(*{ast.unparse(node)})`",
        )
    if not (type_ == weak_int or (isinstance(type_, DType) and type_.is_integer)):
        raise frame.refusal(
            node, f"`km.{name}` takes integers, got {type_}", "write int(x) to drop the fraction"
        )
    return frame.leaf(frame.builder.cast(value, weak_int), "extent")


def _nest(
    frame: Frame, node: ast.For, walks: list[_Walk], indices: list[ir.Expr], run: loops.Run
) -> bool:
    """Write the loops one inside the other, and the body in the innermost one."""
    walk, rest = walks[0], walks[1:]
    build, span = frame.builder, frame.builder.span

    def one_pass(loop: Loop) -> bool:
        loop.spread = bool(rest or indices)
        counter = build.declare(_name_of(node, len(indices)), weak_int)
        with build.block() as body:
            made = [frame.leaf(i, "i") for i in walk.indices(build.local(counter))]
            if rest:
                alive = _nest(frame, node, rest, [*indices, *made], run)
            else:
                given = [*indices, *made]
                value = given[0] if len(given) == 1 else build.make_tuple(given)
                give(frame, node.target, value)
                alive = run(frame, node.body)
            if alive:
                loop.turns.append(loops.leave(frame, loop))
        with frame.placed(span), frame.at(node.iter):
            build.for_(counter, (walk.start, walk.stop, walk.step), body, unroll=walk.unroll)
        return True

    return loops.repeat(frame, node, one_pass, runs_once=walk.unroll < 0)


def _name_of(node: ast.For, position: int) -> str:
    """Return what the counter of a loop is called: the user's name, where there is one."""
    targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
    found = targets[position] if position < len(targets) else None
    return found.id if isinstance(found, ast.Name) else "turn"


# ----------------------------------------------------------------------------- the grid


def _mul(frame: Frame, *values: ir.Expr) -> ir.Expr:
    return functools.reduce(lambda a, b: frame.builder.apply("mul", a, b), values)


def _add(frame: Frame, *values: ir.Expr) -> ir.Expr:
    return functools.reduce(lambda a, b: frame.builder.apply("add", a, b), values)


def _block_rank(frame: Frame) -> tuple[ir.Expr, ir.Expr]:
    """Return the position of the block in the grid, x fastest, and the number of blocks."""
    x, y, z = (special(frame, "blockIdx", k) for k in range(3))
    nx, ny, nz = (special(frame, "gridDim", k) for k in range(3))
    state = frame.program.kernel
    assert state is not None
    if state.flat:
        return x, nx
    rows = _add(frame, _mul(frame, z, ny), y)
    return _add(frame, _mul(frame, rows, nx), x), _mul(frame, nx, ny, nz)


def _one(frame: Frame, value: ir.Expr) -> list[ir.Expr]:
    del frame
    return [value]


def _grid(frame: Frame, extents: list[ir.Expr]) -> list[_Walk]:
    """Return the loops over the grid: along x the last index, along y and z those before it."""
    state, const = frame.program.kernel, frame.builder.const
    assert state is not None
    if len(extents) == 1:
        block, blocks = _block_rank(frame)
        threads = const(state.threads)
        start = _add(frame, _mul(frame, block, threads), rank(frame))
        step = _mul(frame, blocks, threads)
        return [_Walk(start, extents[0], step, functools.partial(_one, frame))]
    walks = []
    for axis, extent in zip(range(len(extents) - 1, -1, -1), extents, strict=True):
        threads = const(state.block[axis])
        block = _mul(frame, special(frame, "blockIdx", axis), threads)
        start = _add(frame, block, special(frame, "threadIdx", axis))
        step = _mul(frame, special(frame, "gridDim", axis), threads)
        walks.append(_Walk(start, extent, step, functools.partial(_one, frame)))
    return walks


def _split(frame: Frame, extents: list[ir.Expr], value: ir.Expr) -> list[ir.Expr]:
    """Return the indices of a position in C order."""
    build = frame.builder
    indices: list[ir.Expr] = []
    for extent in reversed(extents[1:]):
        indices.insert(0, build.apply("mod", value, extent))
        value = frame.leaf(build.apply("floordiv", value, extent), "i")
    return [frame.leaf(Below(value, extents[0]), "i") if indices else value, *indices]


def _tiles(frame: Frame, extents: list[ir.Expr]) -> list[_Walk]:
    """Return the loop over the tiles of a block: one position in C order, split into indices."""
    block, blocks = _block_rank(frame)
    total = frame.leaf(_mul(frame, *extents), "tiles")
    return [_Walk(block, total, blocks, functools.partial(_split, frame, extents))]


# ----------------------------------------------------------------------------- the block


def _block(frame: Frame, extents: list[ir.Expr]) -> list[_Walk]:
    """Return the loops over a block: direct where its shape divides fixed extents, else by rank."""
    state, build = frame.program.kernel, frame.builder
    assert state is not None
    fixed = [e.value for e in extents if isinstance(e, ir.Const) and isinstance(e.value, int)]
    known = len(fixed) == len(extents)
    if len(extents) > 1:
        sides = [state.block[axis] for axis in range(len(extents) - 1, -1, -1)]
        whole = state.threads == functools.reduce(lambda a, b: a * b, sides)
        if whole and known and not any(n % side for n, side in zip(fixed, sides, strict=True)):
            return [_direct(frame, k, n, sides) for k, n in enumerate(fixed)]
        if whole and not known and all(side > 1 for side in sides):
            return [_along(frame, k, e, sides) for k, e in enumerate(extents)]
    total = frame.leaf(_mul(frame, *extents), "total")
    threads = build.const(state.threads)
    split = functools.partial(_split, frame, extents)
    if isinstance(total, ir.Const) and isinstance(total.value, int):
        turns, rest = divmod(total.value, state.threads)
        if not rest:
            return [_counted(frame, rank(frame), state.threads, turns, split)]
    return [_Walk(rank(frame), total, threads, split)]


def _counted(
    frame: Frame,
    first: ir.Expr,
    stride: int,
    turns: int,
    split: Callable[[ir.Expr], list[ir.Expr]],
) -> _Walk:
    """Return a loop of so many turns for each thread."""
    build = frame.builder

    def indices(turn: ir.Expr) -> list[ir.Expr]:
        place = first
        if turns > 1:
            place = _add(frame, first, _mul(frame, turn, build.const(stride)))
        return split(frame.leaf(place, "i"))

    return _Walk(
        build.const(0), build.const(turns), build.const(1), indices, unroll=-1 if turns else 0
    )


def _direct(frame: Frame, position: int, extent: int, sides: list[int]) -> _Walk:
    side = sides[position]
    first = special(frame, "threadIdx", len(sides) - 1 - position)
    return _counted(frame, first, side, extent // side, functools.partial(_one, frame))


def _along(frame: Frame, position: int, extent: ir.Expr, sides: list[int]) -> _Walk:
    first = special(frame, "threadIdx", len(sides) - 1 - position)
    step = frame.builder.const(sides[position])
    return _Walk(first, extent, step, functools.partial(_one, frame))


# ----------------------------------------------------------------------------- fixed bounds


def _static(  # noqa: PLR0917 - what a loop is made of
    frame: Frame,
    node: ast.For,
    call: ast.Call,
    given: list[ir.Expr],
    unroll: int,
    run: loops.Run,
) -> bool:
    """Repeat the body in the text where it indexes tuples, else unroll a loop."""
    numbers = [v.value for v in given if isinstance(v, ir.Const) and type(v.value) is int]
    if len(numbers) < len(given):
        raise frame.refusal(
            call,
            "the bounds of `km.static_range` are known only when the kernel runs",
            "use literals, captured integers or arguments annotated `km.static`; or `range`",
        )
    if len(numbers) > 2 and not numbers[2]:  # noqa: PLR2004 - the step
        raise frame.refusal(call, "a step of zero", "use a positive or negative step")
    turns = range(*numbers)
    items: list[Value] = [frame.builder.const(i) for i in turns]
    return loops.static(frame, node, call, items, run, unroll=unroll or -1)


def _never(frame: Frame, extents: list[ir.Expr]) -> list[_Walk]:
    del frame, extents
    raise OperatorError("this loop is written out")


@functools.lru_cache(maxsize=1)
def _makers() -> dict[int, tuple[str, Maker]]:
    rows: dict[str, Maker] = {
        "grid_range": _grid,
        "tile_range": _tiles,
        "block_range": _block,
        "static_range": _never,
    }
    return {id(getattr(kernel_functions, name)): (name, make) for name, make in rows.items()}
