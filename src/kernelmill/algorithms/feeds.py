"""Feeds: what a kernel of one dimension reads and writes by index, whatever the user passed.

`read_feeds` and `write_feeds` take arrays and iterators, and give a `Feed` each: element type,
length, operands, cost, and the C++ functor (`Feed.text`) that a template takes as `In` or `Out`.
No family is known here; the nodes of an element become a program in `weave.py`.

How a family uses it, here one that copies x to out (tests/feed_kernels.py is the whole of it)::

    call = moved_feeds((x,), out, "x")              # NumPy arrays to the current device
    feeds = read_feeds(call.inputs, ("x",), "copy")
    (source,) = feeds.read                          # .type, .length, .nbytes, .is_plain, .described
    with promotion(feeds.rules):                    # operators see the types of the feeds
        operator = specialize(op, (source.type,))
    (sink,), result = write_feeds(call.out, (source.type,), feeds, length=source.length)
    source = source.apart_from((sink,))             # copies what an output overlaps
    scope = Scope((operator, *feeds_scope(source, sink)))
    functions = (op.function, *feeds_functions(source, sink))
    # The text; `offsets` are those of `scope`, one for each feed that has an operator.
    reading = source.text("In", operand=0, captures=offsets[1])
    writing = sink.text("Out", operand=len(source.arguments), captures=offsets[2])
    launch = f"km::copy(call, {reading.made}, {writing.made});"   # types: reading.type, …
    assemble(name, [template, *reading.includes],
             [printed, *reading.printed, *writing.printed], launch, reading.text + writing.text)
    # The bound call: operands in the order of the text, strides of one dimension.
    views = tuple(a.view for a in (*source.arguments, *sink.arguments))
    strides = (*source.strides, *sink.strides)
    key = (source.key, sink.key, ...)               # what the text depends on
    finish = call.back if call.returns else None    # to NumPy

`made` constructs the functor from the record of the call: `call` is `const km::Call*` on the host,
on a device a reference to a record that has `captures`, `data` and `strides` as `km::Call` of
device/transform.cuh has them. Where nothing is captured and nothing is computed, `In` is
`km::plain_in<T>` and nothing is printed. `write_feeds` makes new arrays where `out` is None.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from kernelmill.algorithms import element_nodes as nodes
from kernelmill.algorithms import sequences
from kernelmill.algorithms.arguments import (
    Argument,
    argument,
    backend_of,
    given_outputs,
    outputs_of,
    rules_of,
)
from kernelmill.algorithms.feed_moves import moved_feeds, zipped
from kernelmill.algorithms.feed_nodes import Ground, Leaf, Strand, ended
from kernelmill.algorithms.feed_text import (
    FeedText,
    plain_text,
    print_reading,
    print_writing,
    way_of,
)
from kernelmill.algorithms.weave import weave
from kernelmill.dtypes import DType, StructType, promotion, storage
from kernelmill.errors import ArgumentError, ShapeError
from kernelmill.runtime.devices import current_backend
from kernelmill.runtime.memory import is_on_cuda

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.compiler.op import Specialized
    from kernelmill.dtypes import PromotionTable
    from kernelmill.runtime.backend import Backend, Target

__all__ = [
    "Feed",
    "Feeds",
    "Reads",
    "Seen",
    "apart",
    "feeds_functions",
    "feeds_scope",
    "moved_feeds",
    "named_parts",
    "out_ground",
    "read_feeds",
    "seen",
    "write_feeds",
]

Item: Final = (DType, StructType)


# ----------------------------------------------------------------------------- one feed


@dataclass(frozen=True, slots=True)
class Feed:
    """One thing that a kernel reads, or writes, by index.

    Parameters
    ----------
    kind
        Whether it is read or written.
    type
        Type of an element, as the template sees it.
    length
        How many elements it has; None without end, and for outputs that are all discarded.
    arguments
        Its operands, in order; for outputs the arrays that are written come last.
    operator
        The element as a program, with captured scalars; None where there is nothing to compute.
    function
        What those are read from.
    """

    kind: Literal["in", "out"]
    name: str
    type: DType | StructType
    length: int | None
    arguments: tuple[Argument, ...]
    target: Target
    operator: Specialized | None = None
    function: object = None
    written: int = 0
    _strand: Strand | None = field(default=None, repr=False, compare=False)

    @property
    def is_plain(self) -> bool:
        """Whether it is an array that is contiguous: `plain_in<T>` or `plain_out<T>`."""
        return self.operator is None and bool(self.arguments)

    @property
    def strides(self) -> tuple[tuple[int, ...], ...]:
        """Strides of the operands in the one dimension, in bytes."""
        return tuple((0,) if isinstance(a, Leaf) else a.view.strides for a in self.arguments)

    @property
    def nbytes(self) -> int:
        """Bytes that move for one element."""
        sizes = [
            a.view.dtype.itemsize
            for a in self.arguments
            if not (isinstance(a, Leaf) and a.form == "index")
        ]
        return max(1, sum(sizes)) if sizes else 0

    @property
    def key(self) -> tuple[object, ...]:
        """What the text depends on."""
        ways = tuple((a.view.dtype, way_of(a, self.target)) for a in self.arguments)
        return (self.kind, self.type, self.operator, ways, self.written)

    @property
    def described(self) -> str:
        """A few words for the name of a kernel: type and whether it is contiguous."""
        return f"{self.type} {'contiguous' if self.is_plain else 'computed'}"

    def apart_from(self, outputs: Sequence[Feed], *, elementwise: bool = False) -> Feed:
        """Return the feed with operands copied that an output overlaps.

        `elementwise` leaves alone what is written in the very place from which it was read.
        """
        arrays = [a for o in outputs for a in o.arguments[len(o.arguments) - o.written :]]
        made = apart(self.arguments, arrays, elementwise=elementwise)
        if all(a is b for a, b in zip(made, self.arguments, strict=True)):
            return self
        function = self._strand.roots(made) if self._strand and self.operator else self.function
        return replace(self, arguments=made, function=function)

    def text(self, name: str, *, operand: int, captures: int) -> FeedText:
        """Return the functor, and how it is made from `call`.

        Parameters
        ----------
        name
            Of its struct, where one is printed.
        operand
            Number of its first operand in the call.
        captures
            Offset of its captured scalars in the block of all.
        """
        if self.is_plain:
            return plain_text(self.kind, self.type, self.target, operand)
        ways = [(a.view.dtype, way_of(a, self.target)) for a in self.arguments]
        places = {"operand": operand, "captures": captures}
        if self.kind == "in":
            assert self.operator is not None
            return print_reading(name, self.type, self.operator, ways, self.target, **places)
        taken = len(ways) - self.written
        return print_writing(
            name, self.type, self.operator, ways[:taken], ways[taken:], self.target, **places
        )


def apart(
    operands: Sequence[Argument], outputs: Sequence[Argument], *, elementwise: bool
) -> tuple[Argument, ...]:
    """Return operands, copied where an output overlaps them other than element for element."""
    placed = [o for o in outputs if isinstance(o, Leaf)]
    others = [o for o in outputs if not isinstance(o, Leaf)]
    return tuple(
        a.apart_from(placed, elementwise=False).apart_from(others, elementwise=elementwise)
        for a in operands
    )


@dataclass(frozen=True, slots=True)
class Feeds:
    """What a call reads: its feeds in order, and where it runs."""

    read: tuple[Feed, ...]
    backend: Backend
    rules: PromotionTable

    @property
    def arguments(self) -> list[Argument]:
        """The operands of all, in order."""
        return [a for feed in self.read for a in feed.arguments]

    @property
    def length(self) -> int | None:
        """The length of those that have an end; raises ShapeError where they differ."""
        found: Feed | None = None
        for feed in self.read:
            if feed.length is None:
                continue
            if found is not None and found.length != feed.length:
                raise ShapeError(
                    f"`{found.name}` has {found.length} elements, `{feed.name}` has {feed.length}"
                )
            found = found or feed
        return None if found is None else found.length


class Reads(Protocol):
    """What decides where and in which library outputs are: what a call reads, as `Feeds` has it."""

    @property
    def arguments(self) -> list[Argument]: ...  # noqa: D102 - as in `Feeds`
    @property
    def backend(self) -> Backend: ...  # noqa: D102 - likewise
    @property
    def rules(self) -> PromotionTable: ...  # noqa: D102 - likewise


def feeds_scope(*feeds: Feed) -> tuple[Specialized, ...]:
    """Return the operators of feeds that have one, for `Scope`."""
    return tuple(f.operator for f in feeds if f.operator is not None)


def feeds_functions(*feeds: Feed) -> tuple[object, ...]:
    """Return what their captured scalars are read from, as `feeds_scope` has them."""
    return tuple(f.function for f in feeds if f.operator is not None)


# ----------------------------------------------------------------------------- reading


def named_parts(name: str, parts: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """Return parts with what error texts call them; tuples among them are zips."""
    several = len(parts) > 1
    return [(f"{name}[{i}]" if several else name, zipped(part)) for i, part in enumerate(parts)]


def read_feeds(inputs: tuple[Any, ...], names: tuple[str, ...], family: str) -> Feeds:
    """Return what a family of one dimension reads.

    Parameters
    ----------
    inputs
        Arrays of one dimension, iterators, or tuples of both, which are zips.
    names
        What error texts call them.
    family
        As the back ends have it.

    Raises
    ------
    ArgumentError, ShapeError, DTypeError
        An input is no array of one dimension, or an iterator does not fit its parts.
    DeviceError, NotImplementedHere
        They are on several devices, or the family has no form there.
    """
    parts = tuple(map(zipped, inputs))
    named = list(zip(names, parts, strict=True))
    ground = Ground.of(named, 0)
    for name, part in named:
        _check_rank(name, part, ground)
    rules = rules_of(list(ground.arguments.values())) if ground.arguments else "numpy"
    read = []
    with promotion(rules):
        for name, part in named:
            length = _length(part, ground)
            ground.length = length or 0
            read.append(_reading(name, part, length, Strand(ground)))
    given = [a for feed in read for a in feed.arguments] or [ground.index()]
    return Feeds(tuple(read), backend_of(given, family), rules)


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of an input before a call: type of an element, shape, and its arrays.

    An iterator without end has no shape.
    """

    type: DType | StructType
    shape: tuple[int, ...] | None
    arguments: tuple[Argument, ...]

    @property
    def size(self) -> int:
        """How many elements there are; raises where there is no end."""
        return ended("x", None if self.shape is None else math.prod(self.shape))


def seen(name: str, part: Any) -> Seen:
    """Return what an array or an iterator is, wherever it may be read later."""
    if not sequences.is_iterator(part):
        given = argument(part, name, on_cuda=is_on_cuda(part))
        return Seen(given.view.dtype, given.view.shape, (given,))
    ground = Ground.of([(name, part)], 0)
    arrays = tuple(ground.arguments.values())
    with promotion(rules_of(arrays) if arrays else "numpy"):
        length = _length(part, ground)
        ground.length = length or 0
        type_ = storage(Strand(ground).read(part)[1])
    assert isinstance(type_, Item)
    return Seen(type_, None if length is None else (length,), arrays or (ground.index(),))


def _check_rank(name: str, part: Any, ground: Ground) -> None:
    for array in sequences.arrays_of(part):
        view = ground.arguments[id(array)].view
        if len(view.shape) != 1:
            raise ShapeError(
                f"`{name}` has shape {view.shape}; expected: one dimension",
                hint="pass `x.reshape(-1)`",
            )


def _length(part: Any, ground: Ground) -> int | None:
    if not sequences.is_iterator(part):
        return ground.arguments[id(part)].view.shape[0]
    return sequences.length_of(part)


def _reading(name: str, part: Any, length: int | None, strand: Strand) -> Feed:
    target = strand.ground.target
    node, type_ = strand.read(part)
    stored = storage(type_)
    assert isinstance(stored, Item)
    if isinstance(node, nodes.Leaf) and not isinstance(strand.operands[node.at], Leaf):
        (given,) = strand.operands
        if way_of(given, target) == "contiguous":
            return Feed("in", name, stored, length, (given,), target)
    operator = weave(
        _named(part), nodes.Stored(node, stored), strand.params(), strand.operators, strand.types
    )
    operands = tuple(strand.operands)
    function = strand.roots(operands)
    return Feed("in", name, stored, length, operands, target, operator, function, 0, strand)


def _named(part: Any) -> str:
    """Return what generated text calls an element of a part."""
    return type(part).__name__.lower() if sequences.is_iterator(part) else "element"


# ----------------------------------------------------------------------------- writing


def write_feeds(
    out: Any,
    types: tuple[DType | StructType, ...],
    feeds: Reads,
    *,
    length: int,
    exact: bool = True,
    name: str = "out",
) -> tuple[tuple[Feed, ...], Any]:
    """Return what a family of one dimension writes, and what the user gets.

    Parameters
    ----------
    out
        An array or an iterator, or a tuple of one for each result; None makes new arrays.
    types
        What the template writes; arrays may have another type of the same kind.
    feeds
        What is read: it decides device and library.
    length
        How many elements are written at most.
    exact
        Whether arrays must have that very length; else they may be longer.
    name
        What error texts call `out`.

    Raises
    ------
    ArgumentError, ShapeError, DTypeError
        There are not as many outputs as results, or one is too small, or of another kind.
    """
    if out is None:
        given = feeds.arguments or [Ground.of((), length).index()]
        made, result = outputs_of(None, types, (length,), given)
        target = feeds.backend.target
        return (
            tuple(
                Feed("out", a.name, t, length, (a,), target, written=1)
                for a, t in zip(made, types, strict=True)
            ),
            result,
        )
    parts = tuple(map(zipped, out)) if len(types) > 1 and type(out) is tuple else (zipped(out),)
    if len(parts) != len(types):
        raise ArgumentError(f"`out` has {len(parts)} arrays for {len(types)} results")
    named = named_parts(name, parts)
    given = feeds.arguments or [Ground.of((), length).index()]
    ground = out_ground(named, given, length)
    for called, part in named:
        _check_rank(called, part, ground)
        _check_length(called, _length(part, ground), length, exact=exact)
    with promotion(feeds.rules):
        made_feeds = tuple(
            _writing(called, part, type_, length, Strand(ground))
            for (called, part), type_ in zip(named, types, strict=True)
        )
    return made_feeds, out


def out_ground(named: Sequence[tuple[str, Any]], given: Sequence[Argument], length: int) -> Ground:
    """Return the ground of outputs: arrays that are written, and indices that are read."""
    arrays = [a for _, part in named for a in sequences.arrays_of(part)]
    target = "cuda" if given[0].view.place is not None else current_backend().target
    ground = Ground({}, target, length)
    if arrays:
        read = _read_only(named)
        written = [a for a in arrays if id(a) not in read]
        made = given_outputs(tuple(written), given)
        names = {id(a): name for name, part in named for a in sequences.arrays_of(part)}
        ground.arguments = {
            id(a): replace(o, name=names[id(a)]) for a, o in zip(written, made, strict=True)
        }
        others = Ground.of([(names[i], a) for i, a in read.items()], length)
        ground.arguments |= others.arguments
    return ground


def _read_only(named: Sequence[tuple[str, Any]]) -> dict[int, Any]:
    """Return the arrays in outputs that are read: the indices of permutations."""
    found: dict[int, Any] = {}

    def walk(part: Any) -> None:
        if isinstance(part, sequences.Permutation):
            found.update({id(a): a for a in sequences.arrays_of(part.parts[1])})
            walk(part.parts[0])
        elif sequences.is_iterator(part):
            for inner in part.parts:
                walk(inner)

    for _, part in named:
        walk(part)
    return found


def _check_length(name: str, found: int | None, wanted: int, *, exact: bool) -> None:
    if found is None or found == wanted or (found > wanted and not exact):
        return
    more = "" if exact else "at least "
    raise ShapeError(f"`{name}` has {found} elements; expected: {more}{wanted}")


def _writing(name: str, part: Any, type_: DType | StructType, length: int, strand: Strand) -> Feed:
    target = strand.ground.target
    strand.write(part, nodes.Input(type_), type_)
    if not strand.outputs:
        return Feed("out", name, type_, None, (), target)
    written = tuple(a for _, a in strand.outputs)
    if not strand.operands and not strand.operators and len(written) == 1:
        (given,) = written
        plain = type(given) is Argument and given.view.dtype == type_
        if plain and way_of(given, target) == "contiguous":
            return Feed("out", name, type_, length, written, target, written=1)
    items = tuple(n for n, _ in strand.outputs)
    node = items[0] if len(items) == 1 else nodes.Pack(items, None)
    operator = weave(
        _named(part), node, strand.params(), strand.operators, strand.types, value=type_
    )
    operands = apart(strand.operands, written, elementwise=False)
    function = strand.roots(operands)
    return Feed(
        "out", name, type_, length, (*operands, *written), target, operator, function,
        len(written), strand,
    )  # fmt: skip
