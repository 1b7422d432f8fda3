"""From the arguments of a segmented reduction or scan to a bound call: checks, types, kernel.

The public functions are in `segmented.py`, accumulators in `folds.py`, the loops in
`host/segmented.hpp` and `device/segmented.cuh`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.algorithms.arguments import Argument, argument, backend_of, outputs_of, rules_of
from kernelmill.algorithms.costs import Cost, count_flops
from kernelmill.algorithms.folds import Fold, element_program, plan_fold
from kernelmill.algorithms.moves import computed, moved
from kernelmill.algorithms.plan import Bound, Built, Scope, aligned, build
from kernelmill.algorithms.policy import GROUP_TILES, records_bytes, segment_tree, segments_evenly
from kernelmill.algorithms.source import assemble, storing, text_of
from kernelmill.algorithms.source_reduce import FoldText, device_fold_lines, host_fold_lines
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.dialects import CUDA, HOST
from kernelmill.compiler.op import WELL_KNOWN, Op
from kernelmill.dtypes import DType, StructType, promotion
from kernelmill.errors import ArgumentError, DeviceError, DTypeError, NotImplementedHere, ShapeError
from kernelmill.runtime.backend import Grid, KernelSource
from kernelmill.runtime.memory import is_on_cuda

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.reductions import Determinism
    from kernelmill.compiler.cpp import PrintedOperator
    from kernelmill.compiler.ir import Program
    from kernelmill.runtime.backend import Backend

__all__ = ["SegmentRequest", "prepare_segments"]

_CHUNK: Final = 16384
_WARPS: Final = 8
_THREADS: Final = 32 * _WARPS
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
    inputs = (*computed(inputs[:1], "x"), *inputs[1:])
    lengths = _checked_on_host(request, inputs)
    call = moved(inputs, out, "x")
    given = _arguments(call.inputs)
    backend = backend_of(given[:1], "segmented")
    with promotion(rules_of(given[:1])):
        fold = plan_fold(request.op, _element(given[0]), request.init, request.dtype)
    count = given[1].view.shape[0] - (len(given) == 2)  # noqa: PLR2004 - elements and offsets
    shape = (given[0].view.size if request.scans else count,)
    outputs, result = outputs_of(call.out, (fold.out,), shape, given[:1], exact=True)
    if outputs[0].view.dtype != fold.out:
        raise DTypeError(
            f"`out` has elements of {outputs[0].view.dtype}; {request.op.name} gives {fold.out}"
        )
    given = [a.apart_from(outputs, elementwise=False) for a in given]
    _check_fold(request, fold, lengths, backend)
    work = _Work(request, fold, given, outputs[0], count, backend)
    bound = replace(_bind(work), result=result)
    return replace(bound, finish=call.back) if call.returns else bound


# ----------------------------------------------------------------------------- checks


def _arguments(inputs: tuple[Any, ...]) -> list[Argument]:
    on_cuda = any(map(is_on_cuda, inputs))
    names = ("x", "offsets") if len(inputs) == 2 else ("x", "offsets[0]", "offsets[1]")  # noqa: PLR2004
    given = [argument(a, n, on_cuda=on_cuda) for a, n in zip(inputs, names, strict=True)]
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


def _element(x: Argument) -> DType | StructType:
    assert isinstance(x.type, (DType, StructType))
    return x.type


def _checked_on_host(request: SegmentRequest, inputs: tuple[Any, ...]) -> np.ndarray | None:
    """Check offsets in the memory of the host, and return the lengths of segments if they are few.

    Offsets in the memory of a device are not looked at, which would be a wait.
    """
    if any(map(is_on_cuda, inputs[1:])):
        return None
    length = argument(inputs[0], "x", on_cuda=is_on_cuda(inputs[0])).view.size
    found = [np.asarray(a) for a in inputs[1:]]
    if any(a.ndim != 1 or a.dtype.kind not in "iu" or not a.size for a in found):
        return None  # what is wrong, `_arguments` says
    begins, ends = (found[0][:-1], found[0][1:]) if len(found) == 1 else found
    if begins.shape != ends.shape:
        return None
    names = ("offsets", "offsets") if len(found) == 1 else ("offsets[0]", "offsets[1]")
    for name, a in zip(names, found, strict=False):
        if a.min() < 0 or a.max() > length:
            at = int(np.argmax((a < 0) | (a > length)))
            raise ArgumentError(
                f"`{name}[{at}]` is {a[at]}; the limits are 0 and {length}, the length of `x`"
            )
    if bool(np.any(begins > ends)):
        at = int(np.argmax(begins > ends))
        if len(found) == 1:
            raise ArgumentError(
                f"`offsets` must not decrease: offsets[{at}] is {begins[at]}, "
                f"offsets[{at + 1}] is {ends[at]}"
            )
        raise ArgumentError(f"segment {at} begins at {begins[at]} and ends at {ends[at]}")
    if request.scans and found[0].size and (found[0][0] != 0 or found[0][-1] != length):
        raise ArgumentError(
            f"`offsets` go from {found[0][0]} to {found[0][-1]}; a scan has segments from 0 to "
            f"{length}, the length of `x`"
        )
    lengths: np.ndarray[Any, Any] = ends - begins
    return lengths


def _check_fold(
    request: SegmentRequest, fold: Fold, lengths: np.ndarray | None, backend: Backend
) -> None:
    nothing = fold.init is None and fold.op.identity_for(fold.accumulator) is None
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
        raise NotImplementedHere(
            f"{request.name} of {fold.op.name} in {fold.accumulator} has no order that is the same "
            "on every device: `determinism='device_to_device'`",
            hint="use `segment_size=` where all are of one length, or the default 'run_to_run'",
        )


# ----------------------------------------------------------------------------- the kernel


@dataclass(frozen=True, slots=True)
class _Work:
    """A call whose kernel is to be built and bound."""

    request: SegmentRequest
    fold: Fold
    given: Sequence[Argument]
    output: Argument
    count: int
    backend: Backend

    @property
    def apart(self) -> bool:
        """Whether begins and ends are arrays of their own."""
        return len(self.given) > 2  # noqa: PLR2004 - elements and offsets

    @property
    def length(self) -> int:
        """Elements."""
        return self.given[0].view.size

    @property
    def adjoins(self) -> bool:
        """Whether elements lie beside each other."""
        view = self.given[0].view
        return view.size <= 1 or view.strides[0] == view.dtype.itemsize


def _bind(work: _Work) -> Bound:
    on_host = work.backend.target == "host"
    views = tuple(a.view for a in (*work.given, work.output))
    size = work.fold.accumulator.itemsize
    done = work.length if work.request.scans else work.count
    return Bound(
        built=_built(work),
        functions=(work.request.op.function,),
        shape=(work.count,),
        views=views,
        strides=tuple((v.strides[0],) for v in views),
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
        blocks = min(-(-work.count // _WARPS), _APART_BLOCKS * processors)
        return Grid(max(1, blocks), _THREADS, (work.length, work.count, tiles, 0, 0))
    if tiles > _MOST_TILES:
        raise ArgumentError(
            f"`x` has {work.length} elements; the limit is {_MOST_TILES * tree.tile}"
        )
    ahead = tree.ahead * tree.resident * processors
    ahead = ahead if tiles > 2 * ahead else 0
    _, packed = records_bytes(size, tiles)
    record = 8 if packed else 16 * -(-size // 8)
    room = -(-record * (tiles + tiles // GROUP_TILES + 2) // 16) * 16
    evenly = segments_evenly()
    blocks = min(max(work.length, work.count) // evenly.block, tree.resident * processors)
    kept = work.request.scans or work.fold.ordered
    return Grid(
        blocks=tiles if kept else max(tiles, blocks),
        threads=_THREADS + 32,
        numbers=(work.length, work.count, tiles, ahead, evenly.short_from),
        parts=16 + room + 16 * (tiles + 1),
        tickets=1,
        tagged=not packed,
        packed=packed,
    )


def _empty_of(fold: Fold) -> tuple[Program, bytes]:
    """Return the program of the result of no elements; zero where there is none."""
    if fold.init is None and fold.op.identity_for(fold.accumulator) is None:
        zero: Any = 0
        if isinstance(fold.accumulator, StructType):
            zero = np.zeros((), fold.accumulator.to_numpy())[()]
        fold = replace(fold, init=zero)
    return fold.constant(fold.out)


def _built(work: _Work) -> Built:
    fold, request = work.fold, work.request
    known = fold.op.name if WELL_KNOWN.get(fold.op.name) is fold.op else ""
    scope = Scope((fold.combine,))
    element = element_program([work.given[0].type], None, [fold])
    empty, scalars = _empty_of(fold)
    tail = aligned(fold.tail())
    block = tail + aligned(scalars)
    text = FoldText(
        known,
        storing(fold.combine.translation.program, [fold.accumulator]),
        fold.finish(fold.out),
        fold.accumulator,
        fold.ordered,
        0,
        scope.size,
    )
    access = all(a.access(work.backend.target, "contiguous") != "unaligned" for a in work.given)
    made = _Text(
        work, text, element, empty, scope.size + len(tail), scope.size + len(block), access
    )
    flops = count_flops(fold.combine.translation.program)
    key = (
        request.name, fold.combine, known, fold.ordered, fold.init is not None, fold.out,
        request.exclusive, work.given[0].type, work.given[1].type, work.apart, work.adjoins, access,
    )  # fmt: skip
    item = work.given[0].view.dtype.itemsize
    cost = Cost(item * (2 if request.scans else 1), flops + 1)
    built = build(key, "segmented", scope, cost, made.source, backend=work.backend)
    return replace(built, scope=replace(scope, constants=block))


@dataclass(frozen=True, slots=True)
class _Text:
    """What the text of a kernel is made of; `empty_at` and `room` are places in its scalars."""

    work: _Work
    fold: FoldText
    element: Program | None
    empty: Program
    empty_at: int
    room: int
    aligned: bool

    @property
    def name(self) -> str:
        """What people call the kernel."""
        work = self.work
        kind = "exclusive " if work.request.exclusive else ""
        types = ", ".join(str(a.type) for a in work.given[: 2 + work.apart])
        return f"{kind}{work.request.name} {work.fold.op.name} ({types})"

    def source(self) -> KernelSource:
        """Return the text."""
        on_host = self.work.backend.target == "host"
        return self._host() if on_host else self._device()

    @property
    def _types(self) -> tuple[str, str]:
        return tuple(type_spelling(a.type, qualified=True) for a in self.work.given[:2])  # type: ignore[return-value]

    def _host(self) -> KernelSource:
        printed: list[PrintedOperator] = []
        lines = host_fold_lines(0, self.fold, printed)
        item, offset = self._types
        mapper, built = f"km::same<{item}>", f"km::same<{item}>()"
        if self.element is not None:
            printed.append(print_program(self.element, HOST, name="Element"))
            lines += [
                "struct Map : km::Element, km::mapped {",
                "  KM_INL explicit Map(const char* packed) : km::Element(packed) {}",
                "};",
            ]
            mapper, built = "Map", "Map(packed)"
        printed.append(print_program(self.empty, HOST, name="Empty0"))
        pattern = "contiguous" if self.work.adjoins else "strided"
        apart = "true" if self.work.apart else "false"
        launch = (
            "const char* packed = (const char*)call->captures;\n"
            f"  km::segmented<{mapper}, km::arg<{item}, km::{pattern}>, Fold0, km::Empty0,\n"
            f"      {offset}, {apart}>::{self._function}(call, {built}, Fold0(packed), "
            f"km::Empty0(packed + {self.empty_at}));"
        )
        return assemble(self.name, ["segmented.hpp"], printed, launch, "\n".join(lines))

    @property
    def _function(self) -> str:
        request = self.work.request
        if not request.scans:
            return "reduce"
        return f"scan<{'true' if request.exclusive else 'false'}>"

    def _device(self) -> KernelSource:
        work = self.work
        printed: list[PrintedOperator] = []
        lines = device_fold_lines(0, self.fold, printed)
        item, offset = self._types
        mapper = f"km::same<{item}>"
        if self.element is not None:
            printed.append(print_program(self.element, CUDA, name="Element"))
            lines += [
                "struct Map : km::Element, km::mapped {",
                "  KM_INL explicit Map(const char* packed) : km::Element(packed) {}",
                "};",
            ]
            mapper = "Map"
        printed.append(print_program(self.empty, CUDA, name="Empty"))
        lines += [
            "struct Empty0 : km::Empty {",
            "  KM_INL explicit Empty0(const char* packed)",
            f"      : km::Empty(packed + {self.empty_at}) {{}}",
            "};",
        ]
        tree = segment_tree(self.fold.accumulator.itemsize)
        ordered, apart = ("true" if flag else "false" for flag in (self.fold.ordered, work.apart))
        access = "km::element" if self.aligned else "km::unaligned_element"
        threads = _THREADS if work.apart else _THREADS + 32
        bounds = str(threads) if work.apart else f"{threads}, {tree.resident}"
        function = "apart" if work.apart else self._function
        lines += [
            f"typedef km::segmented<{mapper}, km::arg<{item}, km::contiguous>, Fold0, Empty0,",
            f"    {offset}, {ordered}, {apart}, {tree.wide}, {tree.rows}, {max(16, self.room)},",
            f"    {access}> Run;",
            f"KM_EXPORT void __launch_bounds__({bounds})",
            "km_kernel(const __grid_constant__ Run::call call) {",
            f"  km::take_turn();\n  Run::{function}(call);\n}}\n",
        ]
        text = text_of(self.name, ["segmented.cuh"], printed, "\n".join(lines))
        return KernelSource(self.name, text, tree.tile)
