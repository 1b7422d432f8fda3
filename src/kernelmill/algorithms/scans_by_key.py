"""From the arguments of a scan or reduction by key to a bound call: checks, types, kernel.

Segments are runs of equal neighbours among the keys. The public functions are in `scan_by_key.py`;
what scans by key share with others, in `scans.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kernelmill.algorithms.arguments import (
    Argument,
    given_outputs,
    outputs_of,
)
from kernelmill.algorithms.costs import Cost, count_flops
from kernelmill.algorithms.determinism import check_bits, check_determinism
from kernelmill.algorithms.feed_nodes import Leaf, placeholder
from kernelmill.algorithms.feed_text import PlacedFeed
from kernelmill.algorithms.feeds import (
    Feed,
    feeds_functions,
    feeds_scope,
    write_feeds,
)
from kernelmill.algorithms.folds import Fold, element_program
from kernelmill.algorithms.key_columns import Column, Taken, access_of, moved_columns
from kernelmill.algorithms.plan import Bound, Plan, Scope, aligned, build
from kernelmill.algorithms.policy import scan_tree
from kernelmill.algorithms.scans import (
    finish_of,
    fold_of,
    stored_of,
    tiles_grid,
)
from kernelmill.algorithms.seeds import Seed, init_of, seed_of
from kernelmill.algorithms.select_results import Buffers, Results
from kernelmill.algorithms.select_source import equality, truth_of
from kernelmill.algorithms.sequences import is_iterator, length_of
from kernelmill.algorithms.source import storing
from kernelmill.algorithms.source_scan import (
    KeyText,
    Part,
    ScanText,
    cuda_scan_source,
    host_scan_source,
)
from kernelmill.compiler.op import Op, as_op, specialize
from kernelmill.dtypes import DType, StructType, can_store, int64, promotion
from kernelmill.errors import ArgumentError, DTypeError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.determinism import Determinism
    from kernelmill.algorithms.plan import Built
    from kernelmill.compiler.ir import Program
    from kernelmill.compiler.op import Specialized
    from kernelmill.runtime.backend import Backend, KernelSource

__all__ = [
    "KeyOptions",
    "KeyRequest",
    "ReductionPlan",
    "key_request",
    "prepare_reduction_by_key",
    "prepare_scan_by_key",
]

# What a count of segments, and a mark of one, take behind a value, with what aligns them.
_COUNT: Final = 8
_MARK: Final = 4


class KeyOptions(NamedTuple):
    """The options of a call."""

    init: Any
    equal: Op | Callable[..., Any] | None
    dtype: Any
    determinism: Determinism


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """What is asked for, apart from the arrays; `name` is that of the function."""

    name: str
    op: Op
    equal: Op | None
    options: KeyOptions

    @property
    def exclusive(self) -> bool:
        """Whether an element is left out of its own result."""
        return self.name.startswith("exclusive")

    @property
    def functions(self) -> tuple[object, ...]:
        """The callables whose captured scalars the kernel reads, in the order of its scope."""
        used = (self.op,) if self.equal is None else (self.op, self.equal)
        return tuple(o.function for o in used)


def key_request(name: str, op: Op | Callable[..., Any], options: KeyOptions) -> KeyRequest:
    """Check what can be checked without the arrays."""
    check_determinism(options.determinism)
    if isinstance(op, tuple):
        raise ArgumentError(
            f"`op` is a tuple; {name} takes one operator",
            hint="an operator on a struct carries several values: km.struct",
        )
    equal = None if options.equal is None else as_op(options.equal, name="equal")
    return KeyRequest(name, as_op(op), equal, options)


class _Equal(NamedTuple):
    """When two neighbouring keys are the same, and the user's function where there is one."""

    program: Program
    operator: Specialized | None


def _equal(request: KeyRequest, type_: DType | StructType) -> _Equal:
    if request.equal is None:
        return _Equal(equality([type_]), None)
    operator = specialize(request.equal, (type_, type_))
    return _Equal(truth_of(operator.translation.program, "equal"), operator)


# ----------------------------------------------------------------------------- scans


def prepare_scan_by_key(request: KeyRequest, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a scan by key and bind them to a kernel."""
    call, taken = moved_columns(request.name, inputs, out)
    given = taken.arguments
    with promotion(taken.rules):
        init, operand = init_of(request.options.init, given[0])
        fold = fold_of(request.op, taken.values.type, init, operand, request.options.dtype)
        seed = seed_of(fold, operand, exclusive=request.exclusive)
        sinks: tuple[Feed | None, ...] = ()
        outputs: tuple[Argument, ...]
        if is_iterator(call.out):
            sinks, result = write_feeds(call.out, (fold.out,), taken, length=taken.length)
            outputs = (placeholder("out", taken.length, given),)
        else:
            stored = stored_of(fold, given, call.out)
            shape = (taken.length,)
            made, result = outputs_of(call.out, (stored,), shape, given, exact=True)
            outputs = tuple(made)
        buffers = Buffers(outputs, (result,), sinks)
        bound = replace(_bind(_Work(request, fold, seed, taken, buffers, None)), result=result)
    return replace(bound, finish=call.back) if call.returns else bound


@dataclass(frozen=True, slots=True)
class _Work:
    """A call whose kernel is to be built; `room` is that of the buffers of a reduction."""

    request: KeyRequest
    fold: Fold
    seed: Seed
    taken: Taken
    buffers: Buffers
    room: int | None

    @property
    def backend(self) -> Backend:
        """Where it runs."""
        return self.taken.backend

    @property
    def columns(self) -> tuple[Column, Column]:
        """Keys and values."""
        return self.taken.keys, self.taken.values

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """What is computed, of what is read and written."""
        read = tuple(c.feed for c in self.columns if c.feed is not None)
        return (*read, *self.buffers.feeds)

    @property
    def pair_bytes(self) -> int:
        """Bytes of a value with its mark, or its count."""
        after = _MARK if self.room is None else _COUNT
        unit = max(after, self.fold.accumulator.alignment)
        return -(-(self.fold.accumulator.itemsize + after) // unit) * unit


def _bind(work: _Work) -> Bound:
    buffers, taken = work.buffers, work.taken
    keys = taken.keys.apart_from(buffers.written, elementwise=False)
    values = taken.values.apart_from(buffers.written, elementwise=work.room is None)
    work = replace(work, taken=replace(taken, keys=keys, values=values))
    length = taken.length
    built = _built(work)
    seed = () if work.seed.operand is None else (work.seed.operand,)
    steps = [*keys.strides, *values.strides, *((0,) for _ in seed)]
    steps += [(o.view.strides[0],) if o.view.shape else (0,) for o in buffers.outputs]
    if work.room is not None:
        steps[-1] = (work.room,)
    steps += [step for f in buffers.feeds for step in f.strides]
    operands = (*keys.arguments, *values.arguments, *seed, *buffers.outputs, *buffers.sunk)
    on_device = work.backend.target == "cuda"
    grid = tiles_grid(scan_tree(work.pair_bytes), work.pair_bytes, length) if on_device else None
    return Bound(
        built=built,
        functions=(*work.request.functions, *feeds_functions(*work.feeds)),
        shape=(length,),
        views=tuple(a.view for a in operands),
        strides=tuple(steps),
        elements=length if work.room is None else max(1, length),
        workspace=0,
        result=buffers.arrays,
        tail=aligned(work.seed.scalars),
        grid=grid,
    )


def _given(work: _Work, scope: Scope, used: int) -> tuple[dict[str, PlacedFeed], list[int]]:
    """Return the feeds of a text by what they stand for, and where the operands of columns begin.

    `used` operators stand before those of feeds in the scope.
    """
    found: dict[str, PlacedFeed] = {}
    operand, block, begins = 0, used, []

    def take(name: str, feed: Feed) -> None:
        nonlocal block
        computes = feed.operator is not None
        found[name] = PlacedFeed(feed, operand, scope.offsets[block] if computes else 0)
        block += computes

    for name, column in zip(("keys", "values"), work.columns, strict=True):
        begins.append(operand)
        if column.feed is not None:
            take(name, column.feed)
        operand += len(column.arguments)
    operand += (work.seed.operand is not None) + len(work.buffers.outputs)
    names = ("results",) if work.room is None else ("keys to", "totals to", "count")
    for name, sink in zip(names, work.buffers.sinks, strict=False):
        if sink is not None:
            take(name, sink)
            operand += len(sink.arguments)
    return found, begins


def _built(work: _Work) -> Built:
    request, fold, backend = work.request, work.fold, work.backend
    equal = _equal(request, work.taken.keys.type)
    used = (fold.combine,) if equal.operator is None else (fold.combine, equal.operator)
    scope = Scope((*used, *feeds_scope(*work.feeds)))
    check_bits(request.options.determinism, scope.operators)
    taken = [
        (c.type, access_of(c.arguments[0], backend) if c.feed is None else "contiguous")
        for c in work.columns
    ]
    outputs, sinks = work.buffers.outputs, work.buffers.sinks or (None,) * 3
    made = [
        (o.view.dtype, access_of(o, backend)) if s is None else (s.type, "contiguous")
        for o, s in zip(outputs, sinks, strict=False)
    ]
    at = work.seed.operand.view.dtype if work.seed.operand is not None else None
    count = made[-1][0] if work.room is not None else None
    assert count is None or isinstance(count, DType)
    results = made[0] if work.room is None else made[1]
    serial = backend.target == "host" and request.options.determinism != "device_to_device"
    seeded = (len(work.seed.scalars), work.seed.part is not None, at)
    fed = tuple(f.key for f in work.feeds), tuple(c.feed is None for c in work.columns)

    def source() -> KernelSource:
        element = element_program([taken[1][0]], None, [fold])
        given, begins = _given(work, scope, len(used))
        parts = ScanText(
            "",
            taken[1],
            results,
            fold.accumulator,
            Part(storing(fold.combine.translation.program, [fold.accumulator]), 0),
            finish_of(fold, results[0]),
            None if element is None else Part(element, 0),
            None if work.seed.part is None else Part(work.seed.part, scope.size),
            at,
            scan_tree(work.pair_bytes),
            request.exclusive,
            scope.size + len(aligned(work.seed.scalars)),
            KeyText(
                taken[0], Part(equal.program, (*scope.offsets, 0)[1]), count, begins[1],
                sum(len(c.arguments) for c in work.columns), len(work.buffers.sunk), given,
            ),
        )  # fmt: skip
        types = ", ".join(f"{type_} {access}" for type_, access in (*taken, *made))
        name = f"{request.name} {fold.op.name} ({types})"
        if backend.target == "host":
            return host_scan_source(name, parts, "scan_serial" if serial else "scan")
        return cuda_scan_source(name, parts, "tiles", None)

    moved_bytes = sum(c.nbytes for c in work.columns) + made[0][0].itemsize
    return build(
        (request.name, used, tuple(taken), tuple(made), seeded, serial, fed),
        "scan",
        scope,
        Cost(moved_bytes, 4 + 3 * count_flops(fold.combine.translation.program)),
        source,
        backend=backend,
    )


# ----------------------------------------------------------------------------- reductions


def prepare_reduction_by_key(
    request: KeyRequest, inputs: tuple[Any, ...], out: Any
) -> tuple[Bound, Results]:
    """Check the arguments of a reduction by key and bind them to a kernel."""
    call, taken = moved_columns(request.name, inputs, out)
    with promotion(taken.rules):
        fold = fold_of(request.op, taken.values.type, None, None, request.options.dtype)
        buffers = _buffers(request, fold, taken, call.out)
        room = min(o.view.shape[0] for o in buffers.outputs[:2])
        bound = _bind(_Work(request, fold, Seed(), taken, buffers, room))
    results = Results(
        (0, 1),
        1,
        lengths=False,
        buffers=buffers,
        call=call,
        length=taken.length,
        computed=any(c.feed for c in (taken.keys, taken.values)) or bool(buffers.sinks),
    )
    return replace(bound, finish=results.finish), results


def _buffers(request: KeyRequest, fold: Fold, taken: Taken, out: Any) -> Buffers:
    """Return the buffers for keys, totals and their number: those given, or new ones."""
    length, given = taken.length, taken.arguments
    if out is None:
        wanted = ((taken.keys.type, length), (fold.out, length), (int64, 1))
        made = [outputs_of(None, (t,), (n,), given) for t, n in wanted]
        return Buffers(tuple(views[0] for views, _ in made), tuple(array for _, array in made))
    if type(out) is not tuple or len(out) != 3:  # noqa: PLR2004 - keys, totals, count
        found = f"{len(out)} arrays" if type(out) is tuple else f"a {type(out).__name__}"
        raise ArgumentError(
            f"`out` is {found}; {request.name} takes a tuple of 3: a buffer for the keys, one for "
            "the totals, the count"
        )
    outputs = [_output(f"out[{i}]", part, length, given) for i, part in enumerate(out)]
    _check_buffers(outputs, taken.keys, fold, length)
    sinks: list[Feed | None] = [None, None, None]
    for i, type_ in enumerate((taken.keys.type, fold.out)):
        part, output = out[i], outputs[i]
        if isinstance(output, Leaf) or not output.view.is_c_contiguous:
            room = min(output.view.shape[0], length)
            stored = type_ if isinstance(output, Leaf) else output.view.dtype
            (sinks[i],), _ = write_feeds(
                part, (stored,), taken, length=room, exact=False, name=f"out[{i}]"
            )
    if not any(sinks):
        return Buffers(tuple(outputs), out)
    rooms = [
        o if s is None or isinstance(o, Leaf) else placeholder(o.name, o.view.shape[0], given)
        for o, s in zip(outputs, sinks, strict=True)
    ]
    buffers = Buffers(tuple(rooms), out, tuple(sinks))
    buffers.check_apart()
    return buffers


def _output(name: str, part: Any, length: int, given: Sequence[Argument]) -> Argument:
    """Return an output as an argument; an iterator as a leaf that says how many it takes."""
    if is_iterator(part):
        found = length_of(part)
        return placeholder(name, length if found is None else found, given)
    return replace(given_outputs((part,), given)[0], name=name)


def _check_buffers(outputs: Sequence[Argument], keys: Column, fold: Fold, length: int) -> None:
    for output in outputs:
        if len(output.view.shape) != 1:
            raise ShapeError(
                f"`{output.name}` has shape {output.view.shape}; accepted: arrays of one dimension"
            )
    first, second, count = outputs
    if not isinstance(first, Leaf) and first.view.dtype != keys.type:
        raise DTypeError(
            f"`{first.name}` has dtype {first.view.dtype}, the keys are {keys.type}",
            hint="keys are moved as they are",
        )
    if not isinstance(second, Leaf) and not can_store(fold.out, second.view.dtype):
        raise DTypeError(
            f"{fold.op.name} gives {fold.out}, `{second.name}` has {second.view.dtype}: "
            "not of the same kind",
            hint="pass a buffer of that kind, or `dtype=`",
        )
    if isinstance(count, Leaf):
        raise ArgumentError(
            f"`{count.name}` takes the count; accepted: an array",
            hint="only keys and totals go through iterators",
        )
    _check_count(count, length)
    Buffers(tuple(o for o in outputs if not isinstance(o, Leaf)), ()).check_apart()


def _check_count(count: Argument, length: int) -> None:
    dtype = count.view.dtype
    if not isinstance(dtype, DType) or not dtype.is_integer:
        raise DTypeError(f"`{count.name}` has dtype {dtype}; accepted: integers")
    if length > dtype.max:
        raise DTypeError(
            f"`{count.name}` has dtype {dtype}, which ends at {dtype.max}; there are {length} "
            "elements"
        )
    if count.view.shape != (1,):
        raise ShapeError(f"`{count.name}` has shape {count.view.shape}, the count has (1,)")


def _bound_reduction(request: KeyRequest, inputs: tuple[Any, ...], out: Any) -> Bound:
    return prepare_reduction_by_key(request, inputs, out)[0]


class ReductionPlan(Plan):
    """A prepared reduction by key: called with keys and values, and `out=`, as the function."""

    __slots__ = ("results",)

    def __init__(self, bound: Bound, request: KeyRequest, results: Results) -> None:
        """Prepare calls of these very shapes."""
        fixed = None if results.computed else True
        super().__init__(bound, partial(_bound_reduction, request), fixed=fixed)
        self.results = results

    def _general(self, inputs: tuple[Any, ...], out: Any) -> Any:
        if out is None:
            done = self.again(self.functions, inputs, None)
            if done is not None:
                return done
        return super()._general(inputs, out)

    def again(self, functions: tuple[object, ...], inputs: tuple[Any, ...], out: Any) -> Any:
        """Run a later call by the short way; None where the general one must look at it."""
        if self.is_general:
            return None
        done = self.try_launch(functions, inputs, self.results.make() if out is None else out)
        return done if done is None or out is not None else self.results.cut(done)
