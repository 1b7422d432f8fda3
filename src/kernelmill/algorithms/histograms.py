"""From the arguments of a histogram to a bound call: checks, counters, kernel.

The public functions are in `histogram.py`, bins in `bins.py`, the loops in `host/histogram.hpp` and
`device/histogram.cuh`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kernelmill.algorithms import layout as layouts
from kernelmill.algorithms.arguments import Argument, arguments_of, backend_of, outputs_of
from kernelmill.algorithms.bins import records
from kernelmill.algorithms.moves import moved
from kernelmill.algorithms.plan import Bound, Cost, Scope, build
from kernelmill.algorithms.policy import histogram_policy
from kernelmill.algorithms.source import assemble, text_of
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.dtypes import DType, complex128, float64, int64
from kernelmill.errors import ArgumentError, DTypeError, NotImplementedHere, ShapeError
from kernelmill.runtime.backend import Grid, KernelSource
from kernelmill.runtime.native import native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.bins import Bins
    from kernelmill.algorithms.reductions import Determinism
    from kernelmill.runtime.backend import Backend

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
    call = moved((*inputs, *edges), out, "x")
    given = _arguments(call.inputs, request)
    backend = backend_of(given, "histogram")
    values, rest = given[: len(request.bins)], given[len(request.bins) :]
    weights = rest[:1] if request.weighted else []
    _check(values, weights)
    total = _total(request, weights)
    outputs, result = _outputs(call.out, request, total, given)
    work = _Work(request, values, weights, rest[len(weights) :], outputs, total, backend)
    bound = replace(_bind(work), result=result)
    return replace(bound, finish=call.back) if call.returns else bound


def _arguments(inputs: tuple[Any, ...], request: Request) -> list[Argument]:
    """Return the inputs by the names that the caller knows them by."""
    channels = 1 if request.interleaved else len(request.bins)
    names = [f"x[{i}]" if channels > 1 else "x" for i in range(channels)]
    names += ["weights"] * request.weighted
    names += ["bins"] * (len(inputs) - len(names))
    found = zip(arguments_of(inputs, "x"), names, strict=True)
    given = [replace(a, name=name) for a, name in found]
    if not request.interleaved:
        return given
    return [*(_channel(given[0], k) for k in range(len(request.bins))), *given[1:]]


def _channel(x: Argument, number: int) -> Argument:
    """Return one place of the last axis as an argument."""
    view = x.view
    at = view.ptr + number * view.strides[-1]
    part = replace(view, ptr=at, shape=view.shape[:-1], strides=view.strides[:-1])
    return replace(x, name=f"x[..., {number}]", view=part)


def _check(values: Sequence[Argument], weights: Sequence[Argument]) -> None:
    first = values[0]
    for other in values:
        type_ = other.view.dtype
        if not isinstance(type_, DType) or type_.kind == "complex":
            raise DTypeError(
                f"`{other.name}` has elements of {type_}, which have no order",
                hint="count a part of them, for example `x.real`",
            )
        if type_ != first.view.dtype or other.view.shape != first.view.shape:
            raise ShapeError(
                f"`{other.name}` is {type_} of shape {other.view.shape}, `{first.name}` is "
                f"{first.view.dtype} of shape {first.view.shape}: channels are alike"
            )
    for weight in weights:
        if weight.view.shape != first.view.shape:
            raise ShapeError(
                f"`weights` has shape {weight.view.shape}, `{first.name}` has {first.view.shape}"
            )
        if not isinstance(weight.view.dtype, DType):
            raise DTypeError(f"`weights` has elements of {weight.view.dtype}; expected: numbers")


def _total(request: Request, weights: Sequence[Argument]) -> DType:
    """Return the type of the results."""
    if not weights:
        return int64
    own = weights[0].view.dtype
    assert isinstance(own, DType)
    if request.determinism == "device_to_device" and _sum_of(own, request.total or own) != int64:
        raise NotImplementedHere(
            f"sums of {own} weights have no order that is the same on every device: "
            "`determinism='device_to_device'`",
            hint="use integer weights, or the default 'run_to_run'",
        )
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
        found = views[0].view.dtype
        if found != total:
            raise DTypeError(f"`out` has elements of {found}; the counts are {total}")
        made += views
        results.append(result)
    return made, results[0] if len(results) == 1 else tuple(results)


# ----------------------------------------------------------------------------- the kernel


@dataclass(frozen=True, slots=True)
class _Work:
    """A histogram whose kernel is to be built and bound."""

    request: Request
    values: Sequence[Argument]
    weights: Sequence[Argument]
    edges: Sequence[Argument]
    outputs: Sequence[Argument]
    total: DType
    backend: Backend

    @property
    def slots(self) -> int:
        """Bins of all channels."""
        return sum(b.count for b in self.request.bins)

    @property
    def sum(self) -> DType:
        """The type of a sum."""
        if not self.weights:
            return int64
        weight = self.weights[0].view.dtype
        assert isinstance(weight, DType)
        return _sum_of(weight, self.total)


def _bind(work: _Work) -> Bound:
    arrays = [*work.values, *work.weights]
    shape = work.values[0].view.shape
    layout = layouts.elementwise(shape, [a.operand for a in arrays], [])
    extents, strides = (
        (layout.shape, layout.strides) if layout.shape else ((1,), ((0,),) * len(arrays))
    )
    rest = (0,) * (len(extents) - 1)
    strides = (
        *strides,
        *((0, *rest) for _ in work.edges),
        *((o.view.strides[0], *rest) for o in work.outputs),
    )
    elements = math.prod(shape)
    on_host = work.backend.target == "host"
    grid = None if on_host else _grid(work, elements)
    sets = _sets(work, elements) if on_host else 0
    operands = len(strides)
    return Bound(
        built=_built(work, grid),
        functions=(),
        shape=extents if elements else (0,) * len(extents),
        views=tuple(a.view for a in (*arrays, *work.edges, *work.outputs)),
        strides=strides,
        elements=max(1, elements),  # counts of nothing are written too
        workspace=sets * (work.slots + len(work.values)) * work.sum.itemsize,
        result=None,
        flags=sets << _SETS_SHIFT | operands << _OPERANDS_SHIFT,
        grid=grid.grid if grid else None,
    )


def _sets(work: _Work, elements: int) -> int:
    """Return how many sets of counters the host has: one a thread, or one a range of weights."""
    each = work.slots * work.sum.itemsize
    if work.weights:
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
    item = work.values[0].view.dtype.itemsize
    if work.weights and work.sum is not int64:
        return _ordered(work, elements)
    slots = len(work.values) * 256 if item == 1 and not work.weights else work.slots
    room = policy.counters if not work.weights else policy.counters // 2
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
    values = work.values[0].view.dtype
    target = work.backend.target
    spelled = type_spelling(values, qualified=True)
    places = {b.place for b in work.request.bins}
    if len(places) > 1:
        raise ArgumentError(
            "the channels need bins of several kinds in one call",
            hint="pass bounds of one type, or one channel after the other",
        )
    place = places.pop().format(spelled)
    counts = "km::unweighted"
    if work.weights:
        types = [
            type_spelling(t, qualified=True)
            for t in (work.weights[0].view.dtype, work.sum, work.total)
        ]
        counts = f"km::weighted<{', '.join(types)}>"
    aligned = all(
        a.access(target, "contiguous") != "unaligned" for a in (*work.values, *work.weights)
    )
    key = (
        "histogram",
        len(work.values),
        place,
        counts,
        aligned,
        placed and (placed.loops, placed.bounds),
    )
    moved_bytes = sum(a.view.dtype.itemsize for a in (*work.values, *work.weights))
    channels = f"km::indices_of<{len(work.values)}>"
    name = f"histogram {len(work.values)} x {values} by {place}"

    def source() -> KernelSource:
        if placed is None:
            launch = f"km::histogram<{channels}, {place}, {counts}>::run(call);"
            return assemble(name, ["histogram.hpp"], [], launch)
        access = "km::element" if aligned else "km::unaligned_element"
        operands = len(work.values) + len(work.weights) + len(work.edges) + len(work.outputs)
        rest = (
            f"typedef km::histogram<{channels}, {place}, {counts}, {access}, {operands}> Run;\n"
            f"KM_EXPORT void __launch_bounds__({placed.bounds})\n"
            "km_kernel(const __grid_constant__ Run::call call) {\n"
            f"  km::take_turn();\n  Run::{placed.loops}(call);\n}}\n"
        )
        return KernelSource(name, text_of(name, ["histogram.cuh"], [], rest), placed.grid.threads)

    built = build(key, "histogram", Scope(()), Cost(moved_bytes, 8), source, backend=work.backend)
    return replace(built, scope=Scope((), records(work.request.bins)))
