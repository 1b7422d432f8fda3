"""From the arguments of a segmented reduction or scan to a bound call: checks, types, kernel.

The public functions are in `segmented.py`, accumulators in `folds.py`, the text in
`source_segments.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.algorithms.arguments import Argument, argument, backend_of, outputs_of, rules_of
from kernelmill.algorithms.costs import Cost, count_flops
from kernelmill.algorithms.determinism import check_bits
from kernelmill.algorithms.feed_nodes import ended, placeholder
from kernelmill.algorithms.feed_text import placed_feeds
from kernelmill.algorithms.feeds import (
    feeds_functions,
    feeds_scope,
    moved_feeds,
    read_feeds,
    write_feeds,
)
from kernelmill.algorithms.folds import Fold, element_program, plan_fold
from kernelmill.algorithms.iterators import zip as zipped
from kernelmill.algorithms.moves import computed, moved
from kernelmill.algorithms.offsets import check_computed, check_offsets
from kernelmill.algorithms.plan import Bound, Built, Scope, aligned, build
from kernelmill.algorithms.policy import GROUP_TILES, records_bytes, segment_tree, segments_evenly
from kernelmill.algorithms.refusals import SEGMENTS
from kernelmill.algorithms.sequences import arrays_of, is_iterator
from kernelmill.algorithms.source import storing
from kernelmill.algorithms.source_reduce import FoldText
from kernelmill.algorithms.source_segments import SEGMENT_WARPS, SegmentsText
from kernelmill.compiler.op import WELL_KNOWN, Op
from kernelmill.dtypes import DType, StructType, promotion
from kernelmill.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from kernelmill.runtime.backend import Grid
from kernelmill.runtime.devices import current_backend
from kernelmill.runtime.memory import is_on_cuda

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.determinism import Determinism
    from kernelmill.algorithms.feed_text import PlacedFeed
    from kernelmill.algorithms.feeds import Feed
    from kernelmill.compiler.ir import Program
    from kernelmill.dtypes import PromotionTable
    from kernelmill.runtime.backend import Backend, KernelSource

__all__ = ["SegmentRequest", "prepare_segments", "reads_offsets"]

_CHUNK: Final = 16384
_THREADS: Final = 32 * SEGMENT_WARPS
_MOST_TILES: Final = (1 << 31) - 1
_APART_BLOCKS: Final = 16
_EXACT: Final = frozenset(("minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor"))
_EXACT_INTEGERS: Final = _EXACT | {"add", "multiply", "logical_and", "logical_or"}


@dataclass(frozen=True, slots=True)
class SegmentRequest:
    """What is asked for, apart from the arrays; `name` is that of the function."""

    name: str
    op: Op
    init: object
    dtype: object
    determinism: Determinism
    exclusive: bool = False

    @property
    def scans(self) -> bool:
        """Whether there is a result for each element."""
        return self.name == "segmented_scan"


def prepare_segments(request: SegmentRequest, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call, elements and then offsets, and bind them to a kernel."""
    if not reads_offsets(inputs):
        inputs = (inputs[0], *computed(inputs[1:], "offsets"))
    if any(is_iterator(x) or type(x) is tuple for x in (*inputs, out)):
        return _prepare_iterators(request, inputs, out)
    lengths = check_offsets(inputs[1:], _length(inputs[0]), whole=request.scans)
    call = moved(inputs, out, "x")
    given = _arguments(call.inputs)
    backend = backend_of(given[:1], "segmented")
    fold = _fold(request, _element(given[0]), rules_of(given[:1]))
    count = given[1].view.shape[0] - (len(given) == 2)  # noqa: PLR2004 - elements and offsets
    shape = (given[0].view.size if request.scans else count,)
    outputs, result = outputs_of(call.out, (fold.out,), shape, given[:1], exact=True)
    _check_output(request, fold, outputs[0])
    given = [a.apart_from(outputs, elementwise=False) for a in given]
    _check_fold(request, fold, lengths, backend)
    work = _Work(request, fold, given, outputs[0], count, backend)
    bound = replace(_bind(work), result=result)
    return replace(bound, finish=call.back) if call.returns else bound


def reads_offsets(inputs: tuple[Any, ...]) -> bool:
    """Whether the kernel computes offsets that are iterators: on the host."""
    arrays = (a for part in inputs for a in arrays_of(part))
    return current_backend().target == "host" and not any(map(is_on_cuda, arrays))


def _prepare_iterators(request: SegmentRequest, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call that reads or writes an iterator, and bind it to a kernel."""
    call = moved_feeds(inputs, out, "x")
    feeds = read_feeds(call.inputs, _names(len(inputs)), "segmented")
    elements, *edges = feeds.read
    size = ended("x", elements.length)
    computes = any(map(is_iterator, inputs[1:]))
    offsets = [_offsets_of(f, feeds.arguments) if computes else f.arguments[0] for f in edges]
    given = _checked([placeholder("x", size, feeds.arguments), *offsets])
    fold = _fold(request, elements.type, feeds.rules)
    if computes:
        lengths = check_computed(inputs[1:], size, whole=request.scans, lacks=fold.lacks_identity)
    else:
        lengths = check_offsets(inputs[1:], size, whole=request.scans)
    _check_fold(request, fold, lengths, feeds.backend)
    count = offsets[0].view.shape[0] - (len(offsets) == 1)
    length = size if request.scans else count
    (sink,), result = write_feeds(call.out, (fold.out,), feeds, length=length)
    if not is_iterator(call.out):
        _check_output(request, fold, sink.arguments[-1])
    check_bits(request.determinism, feeds_scope(elements, sink))
    output, source = given[0], None
    if feeds.backend.target == "host" and not is_iterator(_whole(call.inputs[0])):
        given = [elements.arguments[0], *given[1:]]
    else:
        source = elements.apart_from((sink,))
    bounds = tuple(f.apart_from((sink,)) for f in edges) if computes else ()
    written = sink.arguments[len(sink.arguments) - sink.written :]
    given = [a.apart_from(written, elementwise=False) for a in given]
    work = _Work(request, fold, given, output, count, feeds.backend, source, sink, bounds)
    bound = replace(_bind(work), result=result)
    return replace(bound, finish=call.back) if call.returns else bound


def _whole(part: Any) -> Any:
    return zipped(*part) if type(part) is tuple else part


def _offsets_of(feed: Feed, given: Sequence[Argument]) -> Argument:
    """Return offsets that are computed as an operand without memory."""
    stand_in = placeholder(feed.name, ended(feed.name, feed.length), given)
    return replace(stand_in, type=feed.type, view=replace(stand_in.view, dtype=feed.type))


def _fold(request: SegmentRequest, element: DType | StructType, rules: PromotionTable) -> Fold:
    with promotion(rules):
        fold = plan_fold(request.op, element, request.init, request.dtype)
    check_bits(request.determinism, (fold.combine,))
    return fold


# ----------------------------------------------------------------------------- checks


def _names(count: int) -> tuple[str, ...]:
    """Return what errors call elements, and offsets or begins and ends."""
    return ("x", "offsets") if count == 2 else ("x", "offsets[0]", "offsets[1]")  # noqa: PLR2004


def _arguments(inputs: tuple[Any, ...]) -> list[Argument]:
    on_cuda = any(map(is_on_cuda, inputs))
    names = _names(len(inputs))
    return _checked([argument(a, n, on_cuda=on_cuda) for a, n in zip(inputs, names, strict=True)])


def _checked(given: list[Argument]) -> list[Argument]:
    """Return elements and offsets if they can be taken together."""
    for a in given:
        if len(a.view.shape) != 1 or a.scalar is not None:
            raise ShapeError(
                f"`{a.name}` has shape {a.view.shape}; expected: one dimension",
                hint="pass `x.reshape(-1)`",
            )
        if a.view.place != given[0].view.place:
            raise DeviceError(
                f"argument {a.name!r} is on {a.view.place or 'the host'}, 'x' on "
                f"{given[0].view.place or 'the host'}; a call runs on one device",
                hint="copy them to one device first",
            )
    for a in given[1:]:
        type_ = a.view.dtype
        if not isinstance(type_, DType) or not type_.is_integer:
            raise DTypeError(f"`{a.name}` has elements of {type_}; expected: integers")
    if given[-1].view.dtype != given[1].view.dtype or (
        len(given) > 2 and given[1].view.shape != given[2].view.shape  # noqa: PLR2004
    ):
        raise ShapeError(
            f"`offsets[0]` is {given[1].view.dtype} of shape {given[1].view.shape}, "
            f"`offsets[1]` is {given[2].view.dtype} of shape {given[2].view.shape}: "
            "begins and ends are alike"
        )
    if len(given) == 2 and not given[1].view.size:  # noqa: PLR2004
        raise ShapeError("`offsets` is empty; expected: one more than there are segments")
    return given


def _check_output(request: SegmentRequest, fold: Fold, output: Argument) -> None:
    if output.view.dtype != fold.out:
        raise DTypeError(
            f"`out` has elements of {output.view.dtype}; {request.op.name} gives {fold.out}"
        )


def _length(x: Any) -> int:
    return argument(x, "x", on_cuda=is_on_cuda(x)).view.size


def _element(x: Argument) -> DType | StructType:
    assert isinstance(x.type, (DType, StructType))
    return x.type


def _check_fold(
    request: SegmentRequest, fold: Fold, lengths: np.ndarray | None, backend: Backend
) -> None:
    nothing = fold.lacks_identity
    if nothing and request.scans and request.exclusive:
        raise ArgumentError(
            f"{fold.op.name} has no identity for the first element of a segment",
            hint="pass `init=`, or declare one: `km.op(f, identity=...)`",
        )
    if nothing and not request.scans and lengths is not None and not lengths.all():
        raise ArgumentError(
            f"segment {int(np.argmin(lengths != 0))} is empty, and {fold.op.name} has no identity",
            hint="pass `init=`, or declare one: `km.op(f, identity=...)`",
        )
    if request.determinism != "device_to_device" or backend.target == "host":
        return
    known = WELL_KNOWN.get(fold.op.name) is fold.op
    integer = isinstance(fold.accumulator, DType) and fold.accumulator.kind not in (
        "float",
        "complex",
    )
    exact = known and fold.op.name in (_EXACT_INTEGERS if integer else frozenset())
    if not exact:
        raise SEGMENTS.error(name=request.name, operator=fold.op.name, type=fold.accumulator)


# ----------------------------------------------------------------------------- the kernel


@dataclass(frozen=True, slots=True)
class _Work:
    """A call whose kernel is to be built and bound.

    Where elements or results are no array, `source` and `sink` stand for them, where offsets are
    none, `bounds`; then there are indices without memory among `given` and as `output`.
    """

    request: SegmentRequest
    fold: Fold
    given: Sequence[Argument]
    output: Argument
    count: int
    backend: Backend
    source: Feed | None = None
    sink: Feed | None = None
    bounds: tuple[Feed, ...] = ()

    @property
    def apart(self) -> bool:
        """Whether begins and ends are arrays of their own."""
        return len(self.given) > 2  # noqa: PLR2004 - elements and offsets

    @property
    def length(self) -> int:
        """Elements."""
        return self.given[0].view.size

    @property
    def item(self) -> DType | StructType:
        """Type of an element."""
        return _element(self.given[0]) if self.source is None else self.source.type

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """What is computed, of elements, results and offsets."""
        return tuple(f for f in (self.source, self.sink, *self.bounds) if f is not None)

    @property
    def adjoins(self) -> bool:
        """Whether elements lie beside each other."""
        view = self.given[0].view
        return view.size <= 1 or view.strides[0] == view.dtype.itemsize

    @property
    def lanes(self) -> int:
        """How many lanes of a device take a segment if lengths are alike; 0 for tiles."""
        if self.request.scans or self.apart or self.source is not None:
            return 0
        wide, ordered = segment_tree(self.fold.accumulator.itemsize).wide, self.fold.ordered
        return segments_evenly().lanes(self.length, self.count, wide, ordered=ordered)

    @property
    def resident(self) -> int:
        """How many blocks share a multiprocessor at least."""
        resident = segment_tree(self.fold.accumulator.itemsize).resident
        return max(1, resident - segments_evenly().fewer) if self.lanes else resident

    def placed(
        self, scope: Scope
    ) -> tuple[PlacedFeed | None, PlacedFeed | None, tuple[PlacedFeed, ...]]:
        """Return source, sink and offsets with where their operands and captured scalars begin."""
        found = iter(placed_feeds(self.feeds, scope.offsets, operand=len(self.given) + 1, block=1))
        source = None if self.source is None else next(found)
        sink = None if self.sink is None else next(found)
        return source, sink, tuple(found)


def _bind(work: _Work) -> Bound:
    on_host = work.backend.target == "host"
    arrays = (*work.given, work.output)
    fed = [a for f in work.feeds for a in f.arguments]
    size = work.fold.accumulator.itemsize
    done = work.length if work.request.scans else work.count
    return Bound(
        built=_built(work),
        functions=(work.request.op.function, *feeds_functions(*work.feeds)),
        shape=(work.count,),
        views=tuple(a.view for a in (*arrays, *fed)),
        strides=(
            *((a.view.strides[0],) for a in arrays),
            *(steps for f in work.feeds for steps in f.strides),
        ),
        elements=max(1, work.length) if done else 0,
        workspace=(work.length // _CHUNK + 2) * size if on_host else 0,
        result=None,
        flags=work.length << 1,
        grid=None if on_host else _grid(work),
    )


def _grid(work: _Work) -> Grid:
    size = work.fold.accumulator.itemsize
    tree, processors = segment_tree(size), work.backend.multiprocessors
    tiles = max(1, -(-work.length // tree.tile))
    if work.apart:
        blocks = min(-(-work.count // SEGMENT_WARPS), _APART_BLOCKS * processors)
        return Grid(max(1, blocks), _THREADS, (work.length, work.count, tiles, 0, 0))
    if tiles > _MOST_TILES:
        raise ArgumentError(
            f"`x` has {work.length} elements; the limit is {_MOST_TILES * tree.tile}"
        )
    ahead = tree.ahead * work.resident * processors
    ahead = ahead if tiles > 2 * ahead else 0
    _, packed = records_bytes(size, tiles)
    record = 8 if packed else 16 * -(-size // 8)
    room = -(-record * (tiles + tiles // GROUP_TILES + 2) // 16) * 16
    lanes = work.lanes
    blocks = min(-(-work.count * lanes // _THREADS), work.resident * processors)
    return Grid(
        blocks=max(tiles, blocks),
        threads=_THREADS + 32,
        numbers=(work.length, work.count, tiles, ahead, lanes),
        parts=16 + room + 16 * (tiles + 1),
        tickets=1,
        tagged=not packed,
        packed=packed,
    )


def _empty_of(fold: Fold) -> tuple[Program, bytes]:
    """Return the program of the result of no elements; zero where there is none."""
    if fold.lacks_identity:
        zero: Any = 0
        if isinstance(fold.accumulator, StructType):
            zero = np.zeros((), fold.accumulator.to_numpy())[()]
        fold = replace(fold, init=zero)
    return fold.constant(fold.out)


def _built(work: _Work) -> Built:
    fold, request = work.fold, work.request
    known = fold.op.name if WELL_KNOWN.get(fold.op.name) is fold.op else ""
    scope = Scope((fold.combine, *feeds_scope(*work.feeds)))
    if fold.init is not None:
        scope = replace(scope, repeats=((0, scope.size),))
    empty, scalars = _empty_of(fold)
    tail = aligned(fold.tail())
    block = tail + aligned(scalars)
    access = all(a.access(work.backend.target, "contiguous") != "unaligned" for a in work.given)
    fed = tuple(None if f is None else f.key for f in (work.source, work.sink, *work.bounds))
    key = (
        request.name, fold.combine, known, fold.ordered, fold.init is not None, fold.out,
        request.exclusive, work.item, work.given[1].type, work.apart, work.adjoins, access, fed,
        work.backend.target == "cuda" and work.resident,
    )  # fmt: skip

    def source() -> KernelSource:
        text = _text(work, scope, empty, block)
        return text.host() if work.backend.target == "host" else text.device()

    item = work.item.itemsize if work.source is None else work.source.nbytes
    cost = Cost(
        max(1, item * (2 if request.scans else 1)),
        count_flops(fold.combine.translation.program) + 1,
    )
    built = build(key, "segmented", scope, cost, source, backend=work.backend)
    return replace(built, scope=replace(scope, constants=block))


def _text(work: _Work, scope: Scope, empty: Program, block: bytes) -> SegmentsText:
    """Return what the text of a kernel is made of; `block` are the scalars behind captured ones."""
    fold, request = work.fold, work.request
    offset = work.given[1].type
    assert isinstance(offset, DType)
    known = fold.op.name if WELL_KNOWN.get(fold.op.name) is fold.op else ""
    source, sink, bounds = work.placed(scope)
    kind = "exclusive " if request.exclusive else ""
    types = ", ".join(map(str, (work.item, *(a.type for a in work.given[1 : 2 + work.apart]))))
    return SegmentsText(
        f"{kind}{request.name} {fold.op.name} ({types})",
        FoldText(
            known,
            storing(fold.combine.translation.program, [fold.accumulator]),
            fold.finish(fold.out),
            fold.accumulator,
            fold.ordered,
            0,
            scope.size,
        ),
        element_program([work.item], None, [fold]),
        empty,
        scope.size + len(aligned(fold.tail())),
        scope.size + len(block),
        work.item,
        offset,
        work.adjoins,
        all(a.access(work.backend.target, "contiguous") != "unaligned" for a in work.given),
        work.apart,
        request.exclusive if request.scans else None,
        len(work.given) + 1 + sum(len(f.arguments) for f in work.feeds),
        source,
        sink,
        work.resident,
        bounds,
    )
