"""The buffers of a selection: arrays that are made or given, and iterators that results go to.

How the kernel fills them is in `select_source.py`, what the user gets of them in
`select_results.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from kernelmill.algorithms.arguments import given_outputs, outputs_of
from kernelmill.algorithms.feed_nodes import Leaf, placeholder
from kernelmill.algorithms.feeds import Reads, feeds_scope, write_feeds
from kernelmill.algorithms.select_results import Buffers
from kernelmill.algorithms.select_source import Sinks
from kernelmill.algorithms.sequences import is_iterator, length_of
from kernelmill.dtypes import DType, int64
from kernelmill.errors import ArgumentError, DTypeError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.arguments import Argument
    from kernelmill.algorithms.feeds import Feed
    from kernelmill.algorithms.plan import Scope
    from kernelmill.algorithms.select_call import Request
    from kernelmill.dtypes import StructType

__all__ = ["Taken", "buffers_of", "sinks_of"]


class Source(Protocol):
    """What is read by index: only its type matters here."""

    @property
    def type(self) -> DType | StructType: ...


class Taken(Reads, Protocol):
    """What a call reads."""

    @property
    def sources(self) -> Sequence[Source]: ...  # noqa: D102 - as in `select_call`
    @property
    def length(self) -> int: ...  # noqa: D102 - likewise


def buffers_of(request: Request, taken: Taken, out: Any, room: int | None = None) -> Buffers:
    """Return the buffers of a call: those given, or new ones, by default with room for all."""
    length, given = taken.length, taken.arguments
    dtypes = [taken.sources[i].type for i in request.carried] * request.parts
    if out is None:
        most = length if room is None else min(room, length)
        wanted = [(dtype, most) for dtype in dtypes]
        wanted += [(int64, most)] if request.lengths else []
        made = [outputs_of(None, (t,), (n,), given) for t, n in (*wanted, (int64, request.counts))]
        return Buffers(tuple(views[0] for views, _ in made), tuple(array for _, array in made))
    if type(out) is not tuple or len(out) != request.outputs:
        found = f"{len(out)} arrays" if type(out) is tuple else f"a {type(out).__name__}"
        raise ArgumentError(
            f"`out` is {found}; {request.family} takes a tuple of {request.outputs} here: "
            f"{_described(request)}"
        )
    outputs = _arguments(out, given, length)
    for output, dtype in zip(outputs, dtypes, strict=False):
        if not isinstance(output, Leaf) and output.view.dtype != dtype:
            raise DTypeError(
                f"`{output.name}` has dtype {output.view.dtype}, the elements are {dtype}",
                hint="elements are moved as they are",
            )
    _check_counts(request, outputs, length)
    buffers = _handed(request, taken, tuple(outputs), out)
    buffers.check_apart()
    return buffers


def _arguments(out: tuple[Any, ...], given: Sequence[Argument], length: int) -> list[Argument]:
    """Return the outputs of a call; for an iterator a leaf that says how many values it takes.

    One without end takes as many as there are.
    """
    if any(map(is_iterator, out)):
        found = [
            placeholder(f"out[{i}]", length if (n := length_of(part)) is None else n, given)
            if is_iterator(part)
            else replace(given_outputs((part,), given)[0], name=f"out[{i}]")
            for i, part in enumerate(out)
        ]
    else:
        found = given_outputs(out, given)
    for output in found:
        if len(output.view.shape) != 1:
            raise ShapeError(
                f"`{output.name}` has shape {output.view.shape}; accepted: arrays of one dimension"
            )
    count = found[-1]
    if isinstance(count, Leaf) or not count.view.is_c_contiguous:
        raise ArgumentError(
            f"`{count.name}` takes the counts; accepted: a contiguous array",
            hint="only the elements and the lengths go through iterators",
        )
    return found


def _handed(
    request: Request, taken: Taken, outputs: tuple[Argument, ...], out: tuple[Any, ...]
) -> Buffers:
    """Return the buffers of a call, with feeds where they are no contiguous arrays.

    The results of an input that has one such part go all through feeds.
    """
    carried, types = len(request.carried), [taken.sources[i].type for i in request.carried]
    sinks: list[Feed | None] = [None] * len(outputs)
    groups = [(t, list(range(k, carried * request.parts, carried))) for k, t in enumerate(types)]
    groups += [(int64, [len(outputs) - 2])] if request.lengths else []
    for type_, numbers in groups:
        if all(_is_plain(outputs[i]) for i in numbers):
            continue
        for i in numbers:
            room = min(outputs[i].view.shape[0], taken.length)
            (feed,), _ = write_feeds(
                out[i], (type_,), taken, length=room, exact=False, name=f"out[{i}]"
            )
            sinks[i] = feed
    if not any(s is not None for s in sinks):
        return Buffers(outputs, out)
    rooms = tuple(
        o
        if s is None or isinstance(o, Leaf)
        else placeholder(o.name, o.view.shape[0], taken.arguments)
        for o, s in zip(outputs, sinks, strict=True)
    )
    return Buffers(rooms, out, tuple(sinks))


def _is_plain(output: Argument) -> bool:
    return not isinstance(output, Leaf) and output.view.is_c_contiguous


def sinks_of(request: Request, buffers: Buffers, scope: Scope, inputs: int) -> dict[int, Sinks]:
    """Return the sinks of each input that is carried along, and at -1 those of the lengths.

    Their operands stand behind the outputs, their captured scalars at the end of the block.
    """
    if not buffers.sinks:
        return {}
    operand = inputs + len(buffers.outputs)
    block = len(scope.operators) - len(feeds_scope(*buffers.feeds))
    placed: dict[int, tuple[Feed, tuple[int, int]]] = {}
    for number, feed in enumerate(buffers.sinks):
        if feed is None:
            continue
        computes = feed.operator is not None
        placed[number] = feed, (operand, scope.offsets[block] if computes else 0)
        operand += len(feed.arguments)
        block += computes
    carried = len(request.carried)
    groups = {
        index: list(range(k, carried * request.parts, carried))
        for k, index in enumerate(request.carried)
    }
    groups |= {-1: [len(buffers.outputs) - 2]} if request.lengths else {}
    return {
        index: Sinks(
            tuple(placed[i][0].key for i in numbers),
            tuple(placed[i][1] for i in numbers),
            tuple(placed[i][0] for i in numbers),
        )
        for index, numbers in groups.items()
        if numbers and numbers[0] in placed
    }


def _described(request: Request) -> str:
    """Say what the arrays of `out` are for."""
    whose = [
        f"{request.names[i]} of part {p}" for p in range(request.parts) for i in request.carried
    ]
    if request.parts == 1:
        whose = [request.names[i] for i in request.carried]
    buffers = [f"a buffer for {name}" for name in whose]
    buffers += ["one for the lengths"] if request.lengths else []
    return ", ".join([*buffers, "the counts" if request.counts > 1 else "the count"])


def _check_counts(request: Request, outputs: Sequence[Argument], length: int) -> None:
    """Check the arrays of numbers that are written: lengths of runs, and counts."""
    for output in outputs[-2 if request.lengths else -1 :]:
        if isinstance(output, Leaf):
            continue
        dtype = output.view.dtype
        if not isinstance(dtype, DType) or not dtype.is_integer:
            raise DTypeError(f"`{output.name}` has dtype {dtype}; accepted: integers")
        if length > dtype.max:
            raise DTypeError(
                f"`{output.name}` has dtype {dtype}, which ends at {dtype.max}; there are "
                f"{length} elements"
            )
    count = outputs[-1]
    if count.view.shape != (request.counts,):
        raise ShapeError(
            f"`{count.name}` has shape {count.view.shape}, the counts have ({request.counts},)"
        )
