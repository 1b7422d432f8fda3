"""From the arguments of a scan to a bound call: checks, types, layout, kernel.

The public functions are in `scan.py`, the text in `source_scan.py`, by key in `scans_by_key.py`;
what stands before the first value is in `seeds.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kernelmill.algorithms.arguments import (
    Argument,
    arguments_of,
    backend_of,
    given_outputs,
    outputs_of,
    rules_of,
)
from kernelmill.algorithms.costs import Cost, count_flops
from kernelmill.algorithms.determinism import check_bits, check_determinism
from kernelmill.algorithms.feed_nodes import Ground, ended
from kernelmill.algorithms.feeds import (
    Feed,
    feeds_functions,
    feeds_scope,
    moved_feeds,
    read_feeds,
    write_feeds,
)
from kernelmill.algorithms.folds import Fold, element_program, plan_fold
from kernelmill.algorithms.moves import moved
from kernelmill.algorithms.plan import Bound, Built, Scope, aligned, build
from kernelmill.algorithms.policy import (
    RingPolicy,
    ScanTree,
    chip_of,
    records_bytes,
    ring_policy,
    scan_beside,
    scan_tree,
)
from kernelmill.algorithms.seeds import Seed, init_of, seed_of
from kernelmill.algorithms.sequences import is_iterator
from kernelmill.algorithms.source import storing
from kernelmill.algorithms.source_scan import (
    RING_ROLES,
    Part,
    ScanText,
    Way,
    cuda_scan_source,
    host_scan_source,
)
from kernelmill.compiler.op import WELL_KNOWN, Op, as_op
from kernelmill.dtypes import DType, StructType, can_store, promotion
from kernelmill.errors import ArgumentError, DTypeError, ShapeError
from kernelmill.runtime.backend import Grid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.determinism import Determinism
    from kernelmill.algorithms.layout import Access
    from kernelmill.compiler.ir import Program
    from kernelmill.runtime.backend import Backend, KernelSource

__all__ = [
    "ScanOptions",
    "ScanRequest",
    "finish_of",
    "fold_of",
    "prepare_scan",
    "scan_request",
    "stored_of",
    "tiles_grid",
]

_WARP: Final = 32
# Bytes that addresses are multiples of where the copy engine takes them.
_BULK: Final = 16
_MOST_RANK: Final = 8


class ScanOptions(NamedTuple):
    """The options of a call."""

    init: Any
    axis: int | None
    dtype: Any
    determinism: Determinism


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What is asked for, apart from the arrays."""

    op: Op
    exclusive: bool
    options: ScanOptions

    @property
    def name(self) -> str:
        """What texts call it."""
        return f"{'exclusive' if self.exclusive else 'inclusive'}_scan"


def scan_request(
    op: Op | Callable[..., Any], options: ScanOptions, *, exclusive: bool
) -> ScanRequest:
    """Check what can be checked without the arrays."""
    check_determinism(options.determinism)
    if isinstance(op, tuple):
        raise ArgumentError(
            "`op` is a tuple; a scan takes one operator",
            hint="an operator on a struct carries several values: km.struct",
        )
    return ScanRequest(as_op(op), exclusive, options)


def prepare_scan(request: ScanRequest, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call and bind them to a kernel."""
    if len(inputs) != 1 or type(inputs[0]) is tuple:
        raise ArgumentError(
            f"a scan takes one array, got {len(inputs[0] if len(inputs) == 1 else inputs)}"
        )
    if is_iterator(inputs[0]) or is_iterator(out):
        return _prepare_iterators(request, inputs, out)
    call = moved(inputs, out, "x")
    (x,) = arguments_of(call.inputs, "x")
    backend_of((x,), "scan")
    with promotion(rules_of((x,))):
        bound = _bind(request, x, call.out)
    return replace(bound, finish=call.back) if call.returns else bound


def _prepare_iterators(request: ScanRequest, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a scan that reads or writes an iterator, and bind them to a kernel."""
    call = moved_feeds(inputs, out, "x")
    feeds = read_feeds(call.inputs, ("x",), "scan")
    length, (source,) = ended("x", feeds.length), feeds.read
    _axis(request, (length,))
    given = feeds.arguments or [Ground.of((), length).index()]  # it says where the call runs
    with promotion(feeds.rules):
        init, on_device = init_of(request.options.init, given[0])
        fold = fold_of(request.op, source.type, init, on_device, request.options.dtype)
        seed = seed_of(fold, on_device, exclusive=request.exclusive)
        stored = fold.out if is_iterator(call.out) else stored_of(fold, given, call.out)
        (sink,), result = write_feeds(call.out, (stored,), feeds, length=length)
        source = source.apart_from((sink,))
        work = _Work(
            request, fold, seed, (source.arguments or given)[0], (sink.arguments or given)[-1],
            _Loops((length,), (_step(source), _step(sink))), _computed(source), _computed(sink),
        )  # fmt: skip
        bound = _bound(work, result)
    return replace(bound, finish=call.back) if call.returns else bound


def _computed(feed: Feed) -> Feed | None:
    """Return a feed; None where it is an array, which the templates take as it is."""
    return feed if feed.operator is not None or not feed.arguments else None


def _step(feed: Feed) -> tuple[int, ...]:
    """Return the stride of an array; that of a computed feed says nothing."""
    return (0,) if _computed(feed) is not None else feed.arguments[0].view.strides


# ----------------------------------------------------------------------------- binding


def _bind(request: ScanRequest, x: Argument, out: Any) -> Bound:
    shape = x.view.shape
    axis = _axis(request, shape)
    init, on_device = init_of(request.options.init, x)
    fold = fold_of(request.op, x.view.dtype, init, on_device, request.options.dtype)
    seed = seed_of(fold, on_device, exclusive=request.exclusive)
    stored = stored_of(fold, (x,), out)
    (output,), result = outputs_of(out, (stored,), shape, (x,), exact=True)
    x = x.apart_from((output,))
    loops = _loops(shape, axis, (x, output))
    return _bound(_Work(request, fold, seed, x, output, loops), result)


def _bound(work: _Work, result: Any) -> Bound:
    built, grid, alignment = _built(work)
    seed, loops, source, sink = work.seed, work.loops, work.source, work.sink
    rank = len(loops.shape)
    read = (work.x,) if source is None else source.arguments
    steps = loops.strides[:1] if source is None else source.strides
    written = (work.output,) if sink is None else sink.arguments
    places = loops.strides[1:] if sink is None else sink.strides
    before = () if seed.operand is None else (seed.operand,)
    return Bound(
        built=built,
        functions=(work.request.op.function, *feeds_functions(*work.feeds)),
        shape=loops.shape,
        views=tuple(a.view for a in (*read, *before, *written)),
        strides=(*steps, *((0,) * rank for _ in before), *places),
        elements=math.prod(loops.shape),
        workspace=0,
        result=result,
        tail=aligned(seed.scalars),
        grid=grid,
        alignment=alignment,
    )


def _axis(request: ScanRequest, shape: tuple[int, ...]) -> int:
    axis, rank = request.options.axis, len(shape)
    if rank == 0 or (axis is None and rank > 1):
        raise ShapeError(
            f"`x` has {rank} dimensions; {request.name} without `axis` takes one",
            hint="pass `axis=`, or `x.reshape(-1)`",
        )
    if axis is None:
        return 0
    if type(axis) is not int:
        raise ArgumentError(f"`axis` is {axis!r}; expected: one integer")
    if not -rank <= axis < rank:
        raise ShapeError(f"`axis` is {axis}; `x` has {rank} dimensions")
    return axis % rank


def fold_of(
    op: Op, element: DType | StructType, init: Any, on_device: Argument | None, dtype: Any
) -> Fold:
    """Return the types of a scan of elements of a type."""
    for_types = init
    if on_device is not None and isinstance(on_device.view.dtype, DType):
        for_types = np.zeros((), on_device.view.dtype.to_numpy())[()]
    fold = plan_fold(op, element, for_types, dtype)
    return replace(fold, init=init)


def stored_of(fold: Fold, inputs: Sequence[Argument], out: Any) -> DType | StructType:
    """Return the element type to store: the fold's own, or that of `out`."""
    if out is None:
        return fold.out
    given = given_outputs(out, inputs)
    if len(given) != 1:
        raise ArgumentError(f"`out` has {len(given)} arrays; a scan has one result")
    dtype = given[0].view.dtype
    if not can_store(fold.out, dtype):
        raise DTypeError(
            f"{fold.op.name} gives {fold.out}, `out` has {dtype}: not of the same kind",
            hint="pass an `out` of that kind, or `dtype=`",
        )
    return dtype


@dataclass(frozen=True, slots=True)
class _Loops:
    """Extents, the scanned one last, and strides of both arrays."""

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def units(self) -> int:
        """How many sequences there are."""
        return math.prod(self.shape[:-1])


def _loops(shape: tuple[int, ...], axis: int, arrays: tuple[Argument, Argument]) -> _Loops:
    """Return the dimensions with the scanned one last and others joined where memory allows."""
    steps = [a.view.strides for a in arrays]
    kept: list[tuple[int, int, int]] = []
    for d, extent in enumerate(shape):
        if d == axis or extent == 1:
            continue
        here = (extent, steps[0][d], steps[1][d])
        if kept and kept[-1][1:] == (extent * here[1], extent * here[2]):
            kept[-1] = (kept[-1][0] * extent, *here[1:])
        else:
            kept.append(here)
    kept.append((shape[axis], steps[0][axis], steps[1][axis]))
    if len(kept) > _MOST_RANK:
        raise ShapeError(f"`x` has {len(shape)} dimensions; a scan takes up to {_MOST_RANK}")
    extents, first, second = zip(*kept, strict=True)
    return _Loops(extents, (first, second))


@dataclass(frozen=True, slots=True)
class _Work:
    """A scan whose kernel is to be built; `source` and `sink` stand where there is no array."""

    request: ScanRequest
    fold: Fold
    seed: Seed
    x: Argument
    output: Argument
    loops: _Loops
    source: Feed | None = None
    sink: Feed | None = None

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """What is computed, of what is read and written."""
        return tuple(f for f in (self.source, self.sink) if f is not None)

    @property
    def made(self) -> DType | StructType:
        """Type of a result."""
        return self.output.view.dtype if self.sink is None else self.sink.type

    @property
    def taken(self) -> DType | StructType:
        """Type of an element."""
        return self.x.view.dtype if self.source is None else self.source.type

    @property
    def backend(self) -> Backend:
        """Where it runs."""
        return backend_of((self.x,), "scan")

    @property
    def tree(self) -> ScanTree:
        """The tile of values of this type."""
        return scan_tree(self.fold.accumulator.itemsize)

    def access(self, index: int) -> Access:
        """Return how the kernel reaches an array."""
        array = (self.x, self.output)[index]
        step = self.loops.strides[index][-1]
        adjacent = step == array.view.dtype.itemsize or self.loops.shape[-1] <= 1
        return array.access(self.backend.target, "contiguous" if adjacent else "strided")


class _Placed(NamedTuple):
    """How a scan goes through its tiles on a device, the grid, and what addresses must be."""

    way: Way
    ring: RingPolicy | None
    grid: Grid
    alignment: int


def _placed(work: _Work) -> _Placed:
    length, units, tree = work.loops.shape[-1], max(1, work.loops.units), work.tree
    if length <= tree.part and units > 1:
        blocks = -(-units // tree.warps)
        return _Placed("each", None, Grid(blocks, tree.warps * _WARP, (length, units, 1)), 1)
    value = work.fold.accumulator.itemsize
    ring = _ring(work, units)
    if ring is None:
        return _Placed("tiles", None, tiles_grid(tree, value, length, units), 1)
    tiles = -(-length // tree.tile)
    records, packed = records_bytes(value, tiles)
    stage = tree.tile * max(work.x.view.dtype.itemsize, work.output.view.dtype.itemsize)
    grid = Grid(
        min(work.backend.multiprocessors, tiles),
        (tree.warps + ring.reducers + RING_ROLES) * _WARP,
        (length, units, tiles),
        parts=records,
        tickets=4,
        tagged=not packed,
        packed=packed,
        shared=ring.stages * stage,
    )
    return _Placed("ring", ring, grid, _BULK)


def tiles_grid(tree: ScanTree, value_bytes: int, length: int, units: int = 1) -> Grid:
    """Return the grid of one block a tile, whose totals have so many bytes."""
    tiles = max(1, -(-length // tree.tile))
    several = tiles > 1
    records, packed = records_bytes(value_bytes, tiles, units)
    return Grid(
        units * tiles,
        tree.warps * _WARP,
        (length, units, tiles),
        parts=records if several else 0,
        tickets=1 if several else 0,
        tagged=several and not packed,
        packed=several and packed,
    )


def _ring(work: _Work, units: int) -> RingPolicy | None:
    """Return how the ring runs this scan; None where it does not."""
    if units > 1 or work.feeds or {work.access(0), work.access(1)} != {"contiguous"}:
        return None
    if any(a.view.ptr % _BULK for a in (work.x, work.output)):
        return None
    sizes = [a.view.dtype.itemsize for a in (work.x, work.output)]
    length = work.loops.shape[-1]
    return ring_policy("scan", chip_of(work.backend.arch), max(sizes), work.tree.tile, length)


def _built(work: _Work) -> tuple[Built, Grid | None, int]:
    fold, backend = work.fold, work.backend
    combine = fold.combine
    scope = Scope((combine, *feeds_scope(*work.feeds)))
    check_bits(work.request.options.determinism, scope.operators)
    taken, made = work.taken, work.made
    placed = _placed(work) if backend.target == "cuda" else None
    element = element_program([taken], None, [fold])
    seeded = (len(work.seed.scalars), work.seed.part is not None)
    at = work.seed.operand.view.dtype if work.seed.operand is not None else None
    access = (work.access(0), work.access(1))
    beside = scan_beside(fold.accumulator.itemsize)
    columns = placed is None and work.loops.units > 1 and "strided" in access
    fed = tuple(None if f is None else f.key for f in (work.source, work.sink))
    how = columns if placed is None else (placed.way, placed.ring, beside)
    key = (combine, fold.op.name, taken, made, access, seeded, at, work.request.exclusive, fed, how)

    def text() -> KernelSource:
        parts = ScanText(
            well_known(fold),
            (taken, access[0]),
            (made, access[1]),
            fold.accumulator,
            Part(storing(combine.translation.program, [fold.accumulator]), 0),
            finish_of(fold, made),
            None if element is None else Part(element, 0),
            None if work.seed.part is None else Part(work.seed.part, scope.size),
            at,
            work.tree,
            work.request.exclusive,
            scope.size + len(aligned(work.seed.scalars)),
            beside=beside,
            source=_with_captures(work.source, work, scope),
            sink=_with_captures(work.sink, work, scope),
        )
        name = f"{work.request.name} {fold.op.name} ({taken} {access[0]}, {made} {access[1]})"
        if placed is None:
            return host_scan_source(name, parts, "scan_columns" if columns else "scan")
        return cuda_scan_source(name, parts, placed.way, placed.ring)

    built = build(
        key,
        "scan",
        scope,
        Cost(taken.itemsize + made.itemsize, 3 * count_flops(combine.translation.program)),
        text,
        backend=backend,
        nature=("scan", *key[:-1]) if placed else None,
    )
    return built, placed.grid if placed else None, placed.alignment if placed else 1


def _with_captures(feed: Feed | None, work: _Work, scope: Scope) -> tuple[Feed, int] | None:
    """Return a feed and where its captured scalars lie."""
    if feed is None:
        return None
    has = [f for f in work.feeds if f.operator is not None]
    return feed, scope.offsets[1 + has.index(feed)] if feed in has else 0


def well_known(fold: Fold) -> str:
    """Return the name of a well-known operator, for which the host has vector forms, else ""."""
    return fold.op.name if WELL_KNOWN.get(fold.op.name) is fold.op else ""


def finish_of(fold: Fold, made: DType | StructType) -> Program:
    """Return the program from a value to what is stored."""
    return replace(fold, init=None).finish(made)
