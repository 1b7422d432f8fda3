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
    argument,
    backend_of,
    given_outputs,
    outputs_of,
    rules_of,
)
from kernelmill.algorithms.costs import Cost, count_flops
from kernelmill.algorithms.folds import Fold, element_program
from kernelmill.algorithms.moves import moved
from kernelmill.algorithms.plan import Bound, Plan, Scope, aligned, build
from kernelmill.algorithms.policy import scan_tree
from kernelmill.algorithms.reductions import Determinism, check_determinism
from kernelmill.algorithms.scans import (
    Seed,
    check_bits,
    finish_of,
    fold_of,
    init_of,
    seed_of,
    stored_of,
    tiles_grid,
)
from kernelmill.algorithms.select_results import Buffers, Results
from kernelmill.algorithms.select_source import equality, truth_of
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
from kernelmill.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from kernelmill.runtime.memory import is_on_cuda, may_overlap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.layout import Access
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


# ----------------------------------------------------------------------------- arguments


def _arguments(request: KeyRequest, inputs: tuple[Any, ...]) -> tuple[Argument, Argument]:
    """Return keys and values: arrays of one dimension and one length, on one device."""
    on_cuda = any(map(is_on_cuda, inputs))
    names = ("keys", "values")
    keys, values = (argument(x, n, on_cuda=on_cuda) for x, n in zip(inputs, names, strict=True))
    for given in (keys, values):
        if given.scalar is not None or len(given.view.shape) != 1:
            shape = "a scalar" if given.scalar is not None else f"of shape {given.view.shape}"
            raise ShapeError(
                f"`{given.name}` is {shape}; {request.name} takes arrays of one dimension",
                hint="pass `x.reshape(-1)`",
            )
    if keys.view.shape != values.view.shape:
        raise ShapeError(
            f"`values` has {values.view.shape[0]} elements, `keys` has {keys.view.shape[0]}",
            hint="each value has one key",
        )
    if keys.view.place != values.view.place:
        raise DeviceError(
            f"argument 'values' is on {values.view.place or 'the host'}, 'keys' on "
            f"{keys.view.place or 'the host'}; a call runs on one device",
            hint="copy them to one device first",
        )
    return keys, values


def _access(given: Argument, backend: Backend) -> Access:
    view = given.view
    adjacent = view.size <= 1 or view.strides[0] == view.dtype.itemsize
    return given.access(backend.target, "contiguous" if adjacent else "strided")


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
    call = moved(inputs, out, "keys")
    keys, values = _arguments(request, call.inputs)
    backend_of((keys, values), "scan")
    with promotion(rules_of((values,))):
        init, operand = init_of(request.options.init, values)
        fold = fold_of(request.op, values.view.dtype, init, operand, request.options.dtype)
        seed = seed_of(fold, operand, exclusive=request.exclusive)
        stored = stored_of(fold, (values,), call.out)
        outputs, result = outputs_of(call.out, (stored,), values.view.shape, (values,), exact=True)
        work = _Work(request, fold, seed, keys, values, tuple(outputs), None)
        bound = _bind(work, result)
    return replace(bound, finish=call.back) if call.returns else bound


@dataclass(frozen=True, slots=True)
class _Work:
    """A call whose kernel is to be built; `room` is that of the buffers of a reduction."""

    request: KeyRequest
    fold: Fold
    seed: Seed
    keys: Argument
    values: Argument
    outputs: tuple[Argument, ...]
    room: int | None

    @property
    def backend(self) -> Backend:
        """Where it runs."""
        return backend_of((self.values,), "scan")

    @property
    def pair_bytes(self) -> int:
        """Bytes of a value with its mark, or its count."""
        after = _MARK if self.room is None else _COUNT
        unit = max(after, self.fold.accumulator.alignment)
        return -(-(self.fold.accumulator.itemsize + after) // unit) * unit


def _bind(work: _Work, result: Any) -> Bound:
    outputs = work.outputs
    keys = work.keys.apart_from(outputs, elementwise=False)
    values = work.values.apart_from(outputs, elementwise=work.room is None)
    work = replace(work, keys=keys, values=values)
    length = values.view.shape[0]
    built = _built(work)
    seed = () if work.seed.operand is None else (work.seed.operand,)
    operands = (keys, values, *seed, *outputs)
    steps = [(a.view.strides[0],) if a.view.shape else (0,) for a in operands]
    if work.room is not None:
        steps[-1] = (work.room,)
    on_device = work.backend.target == "cuda"
    grid = tiles_grid(scan_tree(work.pair_bytes), work.pair_bytes, length) if on_device else None
    return Bound(
        built=built,
        functions=work.request.functions,
        shape=(length,),
        views=tuple(a.view for a in operands),
        strides=tuple(steps),
        elements=length if work.room is None else max(1, length),
        workspace=0,
        result=result,
        tail=aligned(work.seed.scalars),
        grid=grid,
    )


def _built(work: _Work) -> Built:
    request, fold, backend = work.request, work.fold, work.backend
    equal = _equal(request, work.keys.view.dtype)
    used = (fold.combine,) if equal.operator is None else (fold.combine, equal.operator)
    check_bits(request.options.determinism, used)
    scope = Scope(used)
    taken = [(a.view.dtype, _access(a, backend)) for a in (work.keys, work.values)]
    made = [(o.view.dtype, _access(o, backend)) for o in work.outputs]
    at = work.seed.operand.view.dtype if work.seed.operand is not None else None
    count = made[-1][0] if work.room is not None else None
    assert count is None or isinstance(count, DType)
    results = made[0] if work.room is None else made[1]
    serial = backend.target == "host" and request.options.determinism != "device_to_device"
    seeded = (len(work.seed.scalars), work.seed.part is not None, at)

    def source() -> KernelSource:
        element = element_program([taken[1][0]], None, [fold])
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
            KeyText(taken[0], Part(equal.program, (*scope.offsets, 0)[1]), count),
        )
        types = ", ".join(f"{type_} {access}" for type_, access in (*taken, *made))
        name = f"{request.name} {fold.op.name} ({types})"
        if backend.target == "host":
            return host_scan_source(name, parts, "scan_serial" if serial else "scan")
        return cuda_scan_source(name, parts, "tiles", None)

    moved_bytes = sum(a.view.dtype.itemsize for a in (work.keys, work.values, work.outputs[0]))
    return build(
        (request.name, used, tuple(taken), tuple(made), seeded, serial),
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
    call = moved(inputs, out, "keys")
    keys, values = _arguments(request, call.inputs)
    backend_of((keys, values), "scan")
    with promotion(rules_of((values,))):
        fold = fold_of(request.op, values.view.dtype, None, None, request.options.dtype)
        buffers = _buffers(request, fold, keys, values, call.out)
        room = min(o.view.shape[0] for o in buffers.outputs[:2])
        work = _Work(request, fold, Seed(), keys, values, buffers.outputs, room)
        bound = _bind(work, buffers.arrays)
    results = Results(
        (0, 1),
        1,
        lengths=False,
        buffers=buffers,
        call=call,
        length=values.view.shape[0],
        computed=False,
    )
    return replace(bound, finish=results.finish), results


def _buffers(
    request: KeyRequest, fold: Fold, keys: Argument, values: Argument, out: Any
) -> Buffers:
    """Return the buffers for keys, totals and their number: those given, or new ones."""
    length = values.view.shape[0]
    if out is None:
        wanted = ((keys.view.dtype, length), (fold.out, length), (int64, 1))
        made = [outputs_of(None, (t,), (n,), (keys, values)) for t, n in wanted]
        return Buffers(tuple(views[0] for views, _ in made), tuple(array for _, array in made))
    if type(out) is not tuple or len(out) != 3:  # noqa: PLR2004 - keys, totals, count
        found = f"{len(out)} arrays" if type(out) is tuple else f"a {type(out).__name__}"
        raise ArgumentError(
            f"`out` is {found}; {request.name} takes a tuple of 3: a buffer for the keys, one for "
            "the totals, the count"
        )
    outputs = given_outputs(out, (keys, values))
    _check_buffers(outputs, keys, fold, length)
    return Buffers(tuple(outputs), out)


def _check_buffers(outputs: Sequence[Argument], keys: Argument, fold: Fold, length: int) -> None:
    for output in outputs:
        if len(output.view.shape) != 1 or not output.view.is_c_contiguous:
            raise ShapeError(
                f"`{output.name}` has shape {output.view.shape} and strides "
                f"{output.view.strides}; accepted: contiguous arrays of one dimension"
            )
    if outputs[0].view.dtype != keys.view.dtype:
        raise DTypeError(
            f"`{outputs[0].name}` has dtype {outputs[0].view.dtype}, the keys are "
            f"{keys.view.dtype}",
            hint="keys are moved as they are",
        )
    if not can_store(fold.out, outputs[1].view.dtype):
        raise DTypeError(
            f"{fold.op.name} gives {fold.out}, `{outputs[1].name}` has {outputs[1].view.dtype}: "
            "not of the same kind",
            hint="pass a buffer of that kind, or `dtype=`",
        )
    _check_count(outputs[2], length)
    for i, output in enumerate(outputs):
        for other in outputs[:i]:
            if may_overlap(other.view, output.view):
                raise ArgumentError(f"`{other.name}` and `{output.name}` overlap")


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
        super().__init__(bound, partial(_bound_reduction, request), fixed=True)
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
