"""From the arguments of a histogram to a bound call: checks, counters, kernel.

The public functions are in `histogram.py`, bins in `bins.py`, the text in `source_histogram.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kernelmill.algorithms import layout as layouts
from kernelmill.algorithms.arguments import (
    Argument,
    arguments_of,
    backend_of,
    outputs_of,
    rules_of,
)
from kernelmill.algorithms.bins import records
from kernelmill.algorithms.determinism import check_bits
from kernelmill.algorithms.feed_nodes import ended, placeholder
from kernelmill.algorithms.feeds import (
    Feed,
    feeds_functions,
    feeds_scope,
    moved_feeds,
    read_feeds,
    write_feeds,
)
from kernelmill.algorithms.moves import moved
from kernelmill.algorithms.plan import Bound, Cost, Scope, build
from kernelmill.algorithms.policy import histogram_policy
from kernelmill.algorithms.refusals import WEIGHTS
from kernelmill.algorithms.sequences import is_iterator
from kernelmill.algorithms.source_histogram import HistogramText, cuda_text, host_text
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.dtypes import DType, complex128, float64, int64
from kernelmill.errors import ArgumentError, DTypeError, ShapeError
from kernelmill.runtime.backend import Grid
from kernelmill.runtime.native import native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.bins import Bins
    from kernelmill.algorithms.determinism import Determinism
    from kernelmill.dtypes import PromotionTable, StructType
    from kernelmill.runtime.backend import Backend, KernelSource

__all__ = ["MOST_CHANNELS", "Request", "prepare"]

MOST_CHANNELS: Final = 8
# Bytes of counters of all threads, above which they take turns.
_MOST_COUNTERS: Final = 1 << 31
# host/histogram.hpp: elements of a range of weights, the most ranges, bytes of all their sums.
_RANGE: Final = 1 << 15
_MOST_RANGES: Final = 64
_MOST_SUMS: Final = 1 << 28
_SETS_SHIFT: Final = 8
_OPERANDS_SHIFT: Final = 32


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for, apart from the arrays: the bins of each channel, and which sums.

    `weighted` says that the last input are weights, whose sums are of `total` or their own type;
    `interleaved`, that the channels are the last axis of one array.
    """

    bins: tuple[Bins, ...]
    weighted: bool = False
    total: DType | None = None
    determinism: Determinism = "run_to_run"
    interleaved: bool = False


def prepare(request: Request, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arrays of a call, channels and then weights, and bind them to a kernel."""
    edges = tuple(b.edges for b in request.bins if b.edges is not None)
    computes = any(map(is_iterator, inputs))
    if computes or any(map(is_iterator, out if type(out) is tuple else (out,))):
        return _prepare_iterators(request, (*inputs, *edges), out, computes=computes)
    call = moved((*inputs, *edges), out, "x")
    given = _arguments(call.inputs, request)
    backend = backend_of(given, "histogram")
    read = _Read.of(given, request)
    total = _total(request, read.weight)
    outputs, result = _outputs(call.out, request, total, given)
    bound = replace(_bind(_Work(request, read, tuple(outputs), total, backend)), result=result)
    return replace(bound, finish=call.back) if call.returns else bound


def _prepare_iterators(
    request: Request, inputs: tuple[Any, ...], out: Any, *, computes: bool
) -> Bound:
    """Check a call that reads or writes iterators, and bind it to a kernel."""
    call = moved_feeds(inputs, out, "x")
    if computes:
        feeds = read_feeds(call.inputs, _names(request, len(inputs)), "histogram")
        read, backend, rules = _Read.fed(feeds.read, request), feeds.backend, feeds.rules
        given = feeds.arguments or [placeholder("x", feeds.length or 0, [])]
    else:
        given = _arguments(call.inputs, request)
        read = _Read.of(given, request)
        backend, rules = backend_of(given, "histogram"), rules_of(given)
    check_bits(request.determinism, feeds_scope(*read.feeds))
    total = _total(request, read.weight)
    sinks, outputs, results = _sinks(call.out, request, total, _Reads(given, backend, rules))
    read = read.apart_from(sinks)
    through = () if all(s.is_plain for s in sinks) else sinks
    work = _Work(request, read, outputs, total, backend, through)
    bound = replace(_bind(work), result=results)
    return replace(bound, finish=call.back) if call.returns else bound


@dataclass(frozen=True, slots=True)
class _Reads:
    """What decides where and in which library counts are."""

    arguments: list[Argument]
    backend: Backend
    rules: PromotionTable


def _sinks(
    out: Any, request: Request, total: DType, reads: _Reads
) -> tuple[tuple[Feed, ...], tuple[Argument, ...], Any]:
    """Return what takes the counts of each channel, their operands, and what the user gets."""
    asked = out if type(out) is tuple else (out,) * len(request.bins)
    if len(asked) != len(request.bins):
        raise ArgumentError(f"`out` has {len(asked)} arrays for {len(request.bins)} channels")
    sinks, outputs, results = [], [], []
    for bins, target in zip(request.bins, asked, strict=True):
        (sink,), result = write_feeds(target, (total,), reads, length=bins.count)
        if target is not None and not is_iterator(target):
            _check_counts(sink.arguments[-1], total)
        if sink.is_plain:
            outputs.append(sink.arguments[0])
        else:
            outputs.append(placeholder("out", bins.count, reads.arguments))
        sinks.append(sink)
        results.append(result)
    return tuple(sinks), tuple(outputs), results[0] if len(results) == 1 else tuple(results)


def _names(request: Request, count: int) -> tuple[str, ...]:
    """Return what errors call the inputs: channels, weights, edges."""
    channels = 1 if request.interleaved else len(request.bins)
    names = [f"x[{i}]" if channels > 1 else "x" for i in range(channels)]
    names += ["weights"] * request.weighted
    return (*names, *["bins"] * (count - len(names)))


def _arguments(inputs: tuple[Any, ...], request: Request) -> list[Argument]:
    """Return the inputs by the names that the caller knows them by."""
    found = zip(arguments_of(inputs, "x"), _names(request, len(inputs)), strict=True)
    given = [replace(a, name=name) for a, name in found]
    if given[0].is_weak:  # beside edges, which are an array
        raise ArgumentError("all inputs are Python scalars", hint="pass one as `np.asarray(x)`")
    if not request.interleaved:
        return given
    return [*(_channel(given[0], k) for k in range(len(request.bins))), *given[1:]]


@dataclass(frozen=True, slots=True)
class _Read:
    """What a call reads: its channels, weights and edges as operands, and their types.

    Where there are `feeds`, elements and weights come from them, and the operands have no memory.
    """

    values: tuple[Argument, ...]
    weights: tuple[Argument, ...]
    edges: tuple[Argument, ...]
    type: DType
    weight: DType | None
    feeds: tuple[Feed, ...] = ()

    @classmethod
    def of(cls, given: Sequence[Argument], request: Request) -> _Read:
        """Return the operands of arrays; raises where they cannot be counted together."""
        channels = len(request.bins)
        values, rest = tuple(given[:channels]), tuple(given[channels:])
        count = int(request.weighted)
        _check([(a.name, a.view.dtype, a.view.shape) for a in given[: channels + count]], channels)
        types = [a.view.dtype for a in (*values[:1], *rest[:count])]
        return cls(values, rest[:count], rest[count:], *_types(types))

    @classmethod
    def fed(cls, feeds: Sequence[Feed], request: Request) -> _Read:
        """Return operands in the place of feeds; raises as `of`."""
        channels, count = len(request.bins), int(request.weighted)
        computed, rest = tuple(feeds[: channels + count]), feeds[channels + count :]
        lengths = [ended(f.name, f.length) for f in computed]
        shaped = zip(computed, lengths, strict=True)
        _check([(f.name, f.type, (length,)) for f, length in shaped], channels)
        arrays = [a for f in feeds for a in f.arguments]
        places = [placeholder(f.name, lengths[0], arrays) for f in computed]
        types = [f.type for f in (computed[0], *computed[channels:])]
        edges = tuple(f.arguments[0] for f in rest)
        values = tuple(places[:channels])
        return cls(values, tuple(places[channels:]), edges, *_types(types), computed)

    def apart_from(self, sinks: Sequence[Feed]) -> _Read:
        """Return the operands with those copied that results overlap."""
        arrays = [a for s in sinks for a in s.arguments[len(s.arguments) - s.written :]]
        if self.feeds:
            return replace(self, feeds=tuple(f.apart_from(sinks) for f in self.feeds))
        values, weights = (
            tuple(a.apart_from(arrays, elementwise=False) for a in given)
            for given in (self.values, self.weights)
        )
        return replace(self, values=values, weights=weights)


def _types(types: Sequence[DType | StructType]) -> tuple[DType, DType | None]:
    """Return the type of elements, and that of weights where there are any."""
    value, weight = types[0], types[1] if len(types) > 1 else None
    assert isinstance(value, DType)
    assert weight is None or isinstance(weight, DType)
    return value, weight


def _channel(x: Argument, number: int) -> Argument:
    """Return one place of the last axis as an argument."""
    view = x.view
    at = view.ptr + number * view.strides[-1]
    part = replace(view, ptr=at, shape=view.shape[:-1], strides=view.strides[:-1])
    return replace(x, name=f"x[..., {number}]", view=part)


def _check(given: Sequence[tuple[str, DType | StructType, tuple[int, ...]]], channels: int) -> None:
    """Check names, types and shapes of channels, and of weights behind them."""
    first_name, first_type, first_shape = given[0]
    for name, type_, shape in given[:channels]:
        if not isinstance(type_, DType) or type_.kind == "complex":
            raise DTypeError(
                f"`{name}` has elements of {type_}, which have no order",
                hint="count a part of them, for example `x.real`",
            )
        if type_ != first_type or shape != first_shape:
            raise ShapeError(
                f"`{name}` is {type_} of shape {shape}, `{first_name}` is "
                f"{first_type} of shape {first_shape}: channels are alike"
            )
    for name, type_, shape in given[channels:]:
        if shape != first_shape:
            raise ShapeError(f"`{name}` has shape {shape}, `{first_name}` has {first_shape}")
        if not isinstance(type_, DType):
            raise DTypeError(f"`{name}` has elements of {type_}; expected: numbers")


def _total(request: Request, own: DType | None) -> DType:
    """Return the type of the results."""
    if own is None:
        return int64
    if own.kind == "complex" and request.total is not None and request.total.kind != "complex":
        raise DTypeError(
            f"`weights` has elements of {own}; they are added in {request.total}",
            hint="count their parts one after the other: `weights.real`, `weights.imag`",
        )
    if request.determinism == "device_to_device" and _sum_of(own, request.total or own) != int64:
        raise WEIGHTS.error(type=own)
    return request.total or own


def _sum_of(weight: DType, total: DType) -> DType:
    """Return the type in which weights are added up."""
    if weight.kind == "complex":
        return complex128
    return float64 if "float" in (weight.kind, total.kind) else int64


def _outputs(
    out: Any, request: Request, total: DType, given: Sequence[Argument]
) -> tuple[list[Argument], Any]:
    """Return the counts of each channel as arguments, and what the user gets."""
    made: list[Argument] = []
    results: list[Any] = []
    asked = out if type(out) is tuple else (out,) * len(request.bins)
    if len(asked) != len(request.bins):
        raise ArgumentError(f"`out` has {len(asked)} arrays for {len(request.bins)} channels")
    for bins, target in zip(request.bins, asked, strict=True):
        views, result = outputs_of(target, (total,), (bins.count,), given[:1], exact=True)
        _check_counts(views[0], total)
        made += views
        results.append(result)
    return made, results[0] if len(results) == 1 else tuple(results)


def _check_counts(output: Argument, total: DType) -> None:
    found = output.view.dtype
    if found != total:
        raise DTypeError(f"`out` has elements of {found}; the counts are {total}")


# ----------------------------------------------------------------------------- the kernel


@dataclass(frozen=True, slots=True)
class _Work:
    """A histogram whose kernel is to be built and bound; `sinks` where counts go through feeds."""

    request: Request
    read: _Read
    outputs: tuple[Argument, ...]
    total: DType
    backend: Backend
    sinks: tuple[Feed, ...] = ()

    @property
    def channels(self) -> int:
        """How many are counted."""
        return len(self.request.bins)

    @property
    def arrays(self) -> tuple[Argument, ...]:
        """The operands that are read element by element."""
        return (*self.read.values, *self.read.weights)

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """What is computed, of what is read and written."""
        return (*self.read.feeds, *self.sinks)

    @property
    def slots(self) -> int:
        """Bins of all channels."""
        return sum(b.count for b in self.request.bins)

    @property
    def sum(self) -> DType:
        """The type of a sum."""
        return int64 if self.read.weight is None else _sum_of(self.read.weight, self.total)

    @property
    def operands(self) -> int:
        """Operands, without those of feeds."""
        return len(self.arrays) + len(self.read.edges) + len(self.outputs)


def _bind(work: _Work) -> Bound:
    arrays, read = work.arrays, work.read
    shape = read.values[0].view.shape
    if read.feeds:
        extents, strides = shape, tuple(a.view.strides for a in arrays)
    else:
        layout = layouts.elementwise(shape, [a.operand for a in arrays], [])
        extents, strides = layout.shape, layout.strides
    if not extents:
        extents, strides = (1,), ((0,),) * len(arrays)
    rest = (0,) * (len(extents) - 1)
    strides = (
        *strides,
        *((0, *rest) for _ in read.edges),
        *((o.view.strides[0], *rest) for o in work.outputs),
        *((*step, *rest) for f in work.feeds for step in f.strides),
    )
    elements = math.prod(shape)
    on_host = work.backend.target == "host"
    grid = None if on_host else _grid(work, elements)
    sets = _sets(work, elements) if on_host else 0
    fed = [a for f in work.feeds for a in f.arguments]
    return Bound(
        built=_built(work, grid),
        functions=feeds_functions(*work.feeds),
        shape=extents if elements else (0,) * len(extents),
        views=tuple(a.view for a in (*arrays, *read.edges, *work.outputs, *fed)),
        strides=strides,
        elements=max(1, elements),  # counts of nothing are written too
        workspace=sets * (work.slots + work.channels) * work.sum.itemsize,
        result=None,
        flags=sets << _SETS_SHIFT | work.operands << _OPERANDS_SHIFT,
        grid=grid.grid if grid else None,
    )


def _sets(work: _Work, elements: int) -> int:
    """Return how many sets of counters the host has: one a thread, or one a range of weights."""
    each = work.slots * work.sum.itemsize
    if work.read.weights:
        share = max(_RANGE, work.slots)
        return max(1, min(elements // share, _MOST_RANGES, _MOST_SUMS // each))
    if work.slots > elements:
        return 1
    return max(1, min(native().thread_count(), _MOST_COUNTERS // each))


@dataclass(frozen=True, slots=True)
class _Placed:
    """The loops of a kernel on a device, and their grid."""

    loops: str
    bounds: str
    grid: Grid


def _grid(work: _Work, elements: int) -> _Placed:
    policy = histogram_policy()
    count = work.backend.multiprocessors
    item = work.read.type.itemsize
    if work.read.weights and work.sum is not int64:
        return _ordered(work, elements)
    slots = work.channels * 256 if item == 1 and not work.read.weights else work.slots
    room = policy.counters if not work.read.weights else policy.counters // 2
    if slots <= room:
        each = policy.threads * max(1, policy.packet // item)
        blocks = max(1, min(policy.resident * count, -(-elements // each)))
        copies, share = 1, -(-elements // blocks)  # more copies than elements only take time
        while copies < policy.copies and 2 * copies * slots <= min(room, share):
            copies *= 2
        loops, bounds = "shared_counts", f"{policy.threads}, {policy.resident}"
    else:
        copies, loops, bounds = 1, "global_counts", str(policy.threads)
        blocks = max(1, min(policy.resident * count, -(-elements // policy.threads)))
    grid = Grid(blocks, policy.threads, (copies, 0, 0), tickets=2 + 2 * work.slots)
    return _Placed(loops, bounds, grid)


def _ordered(work: _Work, elements: int) -> _Placed:
    """Return the grid of sums in a fixed order: tables of warps, in shared memory if they fit."""
    policy = histogram_policy()
    each = work.slots * work.sum.itemsize
    tables = policy.sum_threads // 32
    while tables > 1 and tables * each > policy.table_bytes:
        tables //= 2
    inside = tables * each <= policy.table_bytes
    tables = tables if inside else policy.sum_threads // 32
    blocks = max(
        1, min(policy.sum_blocks * work.backend.multiprocessors, elements // policy.sum_piece)
    )
    beside = 0 if inside else tables
    while blocks > 1 and blocks * (1 + beside) * each > policy.most_bytes:
        blocks //= 2
    while not inside and tables > 1 and blocks * (1 + tables) * each > policy.most_bytes:
        tables //= 2
    piece = -(-max(1, elements) // (blocks * 32)) * 32
    parts = blocks * (1 + (0 if inside else tables)) * each
    grid = Grid(
        blocks, policy.sum_threads, (int(inside), piece, tables), parts=max(16, parts), tickets=2
    )
    return _Placed("ordered_sums", str(policy.sum_threads), grid)


def _built(work: _Work, placed: _Placed | None) -> Any:  # Any: a Built
    read, target = work.read, work.backend.target
    places = {b.place for b in work.request.bins}
    if len(places) > 1:
        raise ArgumentError(
            "the channels need bins of several kinds in one call",
            hint="pass bounds of one type, or one channel after the other",
        )
    place = places.pop().format(type_spelling(read.type, qualified=True))
    counts = "km::unweighted"
    if read.weight is not None:
        types = [type_spelling(t, qualified=True) for t in (read.weight, work.sum, work.total)]
        counts = f"km::weighted<{', '.join(types)}>"
    aligned = all(a.access(target, "contiguous") != "unaligned" for a in work.arrays)
    fed = tuple(f.key for f in read.feeds), tuple(s.key for s in work.sinks)
    loops = placed and (placed.loops, placed.bounds)
    key = ("histogram", work.channels, place, counts, aligned, loops, fed)
    moved_bytes = sum(a.view.dtype.itemsize for a in work.arrays)
    if read.feeds:
        moved_bytes = sum(f.nbytes for f in read.feeds)
    scope = Scope(feeds_scope(*work.feeds))
    text = HistogramText(
        f"histogram {work.channels} x {read.type} by {place}",
        work.channels, place, counts, read.type, work.total, aligned, work.operands,
        scope.offsets, scope.size, read.feeds, work.sinks,
    )  # fmt: skip

    def source() -> KernelSource:
        if placed is None:
            return host_text(text)
        return cuda_text(text, placed.loops, placed.bounds, placed.grid.threads)

    cost = Cost(max(1, moved_bytes), 8)
    built = build(key, "histogram", scope, cost, source, backend=work.backend)
    return replace(built, scope=Scope(scope.operators, records(work.request.bins)))
