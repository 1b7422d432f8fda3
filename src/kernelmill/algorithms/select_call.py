"""From the arguments of a selection to a bound call: checks, types, buffers, kernel, plan.

The public functions are in `select.py`, `partition.py` and `unique.py`; the text of the kernels is
in `select_source.py`, what becomes of full buffers in `select_results.py`,
which buffers there are in `select_outputs.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kernelmill import events
from kernelmill.algorithms.arguments import (
    Argument,
    backend_of,
    rules_of,
)
from kernelmill.algorithms.costs import Cost, count_flops
from kernelmill.algorithms.feeds import (
    Feed,
    feeds_functions,
    feeds_scope,
    moved_feeds,
    read_feeds,
)
from kernelmill.algorithms.lines import lines_of
from kernelmill.algorithms.moves import moved
from kernelmill.algorithms.plan import (
    Bound,
    Built,
    Plan,
    Scope,
    build,
    execute,
    key_of,
    lately,
    remember,
)
from kernelmill.algorithms.select_outputs import buffers_of, sinks_of
from kernelmill.algorithms.select_place import BULK, placed_on_device
from kernelmill.algorithms.select_results import Buffers, Nest, Results
from kernelmill.algorithms.select_source import (
    Column,
    SelectionText,
    Way,
    chunk_of,
    cuda_select_source,
    equality,
    flag_test,
    host_select_source,
    truth_of,
)
from kernelmill.algorithms.sequences import is_iterator
from kernelmill.compiler.op import root_of, specialize
from kernelmill.dtypes import DType, StructType, promotion
from kernelmill.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelmill.algorithms.layout import Pattern
    from kernelmill.algorithms.select_source import Sinks
    from kernelmill.compiler.ir import Program
    from kernelmill.compiler.op import Op, Specialized
    from kernelmill.dtypes import PromotionTable, Type
    from kernelmill.runtime.backend import Backend, KernelSource
    from kernelmill.runtime.memory import View

__all__ = ["Request", "names_of", "plan_of", "run"]

# New buffers are a fourth larger than what the last call found, and by some elements.
_MORE: Final = 4
_SOME: Final = 4096
_LINK: Final = 64  # bytes of what a chunk tells the next one; host/select.hpp has them


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for, apart from the arrays.

    `names` are what errors call the inputs, of which `deciding` from number `first` on decide, and
    `carried` ones are moved to the results. `layout` says how those make a result: the place of one
    of them, or a tuple of such. The tests are `ops`: predicates, or one
    equality where `heads` is set; without any, flags, or the equality of values. `parts` is how
    many kinds of elements are written, `lengths` asks for the lengths of runs too.
    """

    family: str
    names: tuple[str, ...]
    first: int
    deciding: int
    carried: tuple[int, ...]
    layout: Nest
    ops: tuple[Op, ...] = ()
    op_names: tuple[str, ...] = ()
    parts: int = 1
    heads: bool = False
    lengths: bool = False

    @property
    def functions(self) -> tuple[object, ...]:
        """The callables whose captured scalars the kernel reads, in the order of its scope."""
        return tuple(o.function for o in self.ops)

    @property
    def outputs(self) -> int:
        """How many arrays are written, counts among them."""
        return self.parts * len(self.carried) + self.lengths + 1

    @property
    def counts(self) -> int:
        """How many numbers the array of counts holds."""
        return 2 if self.parts == 3 else 1  # noqa: PLR2004 - of the first two parts of three


def names_of(name: str, arrays: Sequence[object]) -> tuple[str, ...]:
    """Return what errors call arrays that are taken together."""
    return tuple(f"{name}[{i}]" if len(arrays) > 1 else name for i in range(len(arrays)))


# ----------------------------------------------------------------------------- run and plan


class SelectionPlan(Plan):
    """A prepared selection: called with the arrays, and `out=`, as the function itself.

    Where a call left most of new buffers empty, `_lean` is a plan with smaller ones for the next;
    when they do not suffice, the call is made again, and from then on with room for everything:
    `_learns` says whether sizes of results are looked at.
    """

    __slots__ = ("_lean", "_learns", "_request", "results")

    def __init__(self, bound: Bound, request: Request, results: Results) -> None:
        """Prepare calls of these very shapes."""
        fixed = True if results.is_plain else None
        super().__init__(bound, partial(_prepare_with_results, request), fixed=fixed)
        self.results = results
        self._request = request
        self._lean: SelectionPlan | None = None
        self._learns = results.are_large

    def _general(self, inputs: tuple[Any, ...], out: Any) -> Any:
        if out is not None or events.active:
            return super()._general(inputs, out)
        done = self.again(self.functions, inputs, None)
        return super()._general(inputs, None) if done is None else done

    def again(self, functions: tuple[object, ...], inputs: tuple[Any, ...], out: Any) -> Any:
        """Run a later call by the short way; None where the general one must look at it."""
        if self.is_general:
            return None
        if out is not None:
            return self.try_launch(functions, inputs, out)
        lean = self._lean
        if lean is not None:
            done = lean.try_launch(functions, inputs, lean.results.make())
            if done is None or lean.results.suffice(done):
                return done if done is None else lean.results.cut(done)
            self._lean, self._learns = None, False
        done = self.try_launch(functions, inputs, self.results.make())
        if done is None:
            return None
        if self._learns and self.results.wasted(done):
            self._lean = self._leaner(inputs, self.results.found(done))
        return self.results.cut(done)

    def _leaner(self, inputs: tuple[Any, ...], found: int) -> SelectionPlan:
        """Prepare the same calls, of which about so many elements are expected."""
        bound, results = _prepare(self._request, inputs, None, room=found + found // _MORE + _SOME)
        return SelectionPlan(bound, self._request, results)


def run(request: Request, inputs: tuple[Any, ...], out: Any) -> Any:
    """Carry out a call; later ones like it take the short way."""
    key = _quick_key(request, inputs, out)
    functions = request.functions
    if key is not None and not events.active:
        for found in lately(key):
            assert isinstance(found, SelectionPlan), "the key names the family"
            done = found.again(functions, inputs, out)
            if done is not None:
                return done
    bound, results = _prepare(request, inputs, out)
    if key is not None and results.is_plain:
        remember(key, SelectionPlan(bound, request, results))
    return execute(bound)


def plan_of(request: Request, inputs: tuple[Any, ...], out: Any) -> SelectionPlan:
    """Prepare calls like this one."""
    bound, results = _prepare(request, inputs, out)
    return SelectionPlan(bound, request, results)


def _quick_key(request: Request, inputs: tuple[Any, ...], out: Any) -> tuple[object, ...] | None:
    """Return what tells this call apart from others, if all its arrays are of a common kind."""
    made = () if out is None else out
    if type(made) is not tuple:
        return None
    key: list[object] = [request.family, len(made), request.layout, request.first, request.parts]
    key += map(root_of, request.functions)
    return key_of(key, (*inputs, *made))


def _prepare_with_results(request: Request, inputs: tuple[Any, ...], out: Any) -> Bound:
    return _prepare(request, inputs, out)[0]


# ----------------------------------------------------------------------------- checks


def _prepare(
    request: Request, inputs: tuple[Any, ...], out: Any, *, room: int | None = None
) -> tuple[Bound, Results]:
    """Check the arguments of a call and bind them to a kernel; new buffers may have less room."""
    if len(inputs) != len(request.names):
        raise ArgumentError(
            f"{request.family} takes {len(request.names)} arrays here "
            f"({', '.join(request.names)}), got {len(inputs)}"
        )
    computed = any(map(is_iterator, inputs))
    handed = type(out) is tuple and any(map(is_iterator, out))
    call = (moved_feeds if computed or handed else moved)(inputs, out, request.names[0])
    taken = (_fed if computed else _given)(request, call.inputs)
    with promotion(taken.rules):
        buffers = buffers_of(request, taken, call.out, room)
        bound = _bind(request, taken, buffers)
    results = Results(
        request.layout,
        request.parts,
        request.lengths,
        buffers,
        call,
        taken.length,
        computed=computed or bool(buffers.sinks),
    )
    return replace(bound, finish=results.finish), results


@dataclass(frozen=True, slots=True)
class _Source:
    """What a column is read from: an array, or a feed where something is computed."""

    name: str
    type: DType | StructType
    arguments: tuple[Argument, ...]
    feed: Feed | None = None

    def apart_from(self, outputs: Sequence[Argument]) -> _Source:
        """Return the source with arrays copied that an output overlaps."""
        if self.feed is None:
            (given,) = self.arguments
            return replace(self, arguments=(given.apart_from(outputs, elementwise=False),))
        written = [
            Feed("out", o.name, o.view.dtype, None, (o,), self.feed.target, written=1)
            for o in outputs
        ]
        feed = self.feed.apart_from(written)
        return replace(self, arguments=feed.arguments, feed=feed)


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a call reads, and where it runs."""

    sources: tuple[_Source, ...]
    length: int
    backend: Backend
    rules: PromotionTable

    @property
    def arguments(self) -> list[Argument]:
        """All operands that are read, in order."""
        return [a for source in self.sources for a in source.arguments]


def _fed(request: Request, inputs: tuple[Any, ...]) -> _Taken:
    """Return what is read where some of it is computed."""
    feeds = read_feeds(inputs, request.names, "select")
    length = feeds.length
    if length is None:
        raise ArgumentError(
            f"{request.family} got iterators without an end",
            hint="give one of them a length, or pass an array beside them",
        )
    sources = tuple(
        _Source(f.name, f.type, f.arguments, None if f.is_plain else f) for f in feeds.read
    )
    return _Taken(sources, length, feeds.backend, feeds.rules)


def _given(request: Request, inputs: tuple[Any, ...]) -> _Taken:
    """Return what is read from arrays: of one dimension and one length, on one device."""
    given = lines_of(inputs, request.names, request.family)
    sources = tuple(_Source(a.name, a.view.dtype, (a,)) for a in given)
    return _Taken(sources, given[0].view.shape[0], backend_of(given, "select"), rules_of(given))


# ----------------------------------------------------------------------------- the kernel


def _bind(request: Request, taken: _Taken, buffers: Buffers) -> Bound:
    outputs, backend = buffers.outputs, taken.backend
    sources = [s.apart_from(buffers.written) for s in taken.sources]
    tests, operators = _tests(request, [s.type for s in sources])
    feeds = [*(s.feed for s in sources if s.feed is not None), *buffers.feeds]
    scope = Scope((*operators, *feeds_scope(*feeds)))
    given = [a for s in sources for a in s.arguments]
    sinks = sinks_of(request, buffers, scope, len(given))
    columns = _columns(request, sources, scope, backend, sinks)
    text = SelectionText(
        columns,
        request.first,
        request.deciding,
        tuple(zip(tests, (*scope.offsets, 0), strict=False)),
        request.heads,
        request.parts,
        _number_type(outputs[-2]) if request.lengths else None,
        _number_type(outputs[-1]),
        len(given),
        sinks.get(-1),
    )
    length = taken.length
    placed = placed_on_device(text, given, length, backend) if backend.target == "cuda" else None
    built = _built(request, text, scope, backend, placed.way if placed else None)
    rooms = buffers.rooms(request.parts, len(request.carried), lengths=request.lengths)
    return Bound(
        built=built,
        functions=(*request.functions, *feeds_functions(*feeds)),
        shape=(length,),
        views=tuple(a.view for a in (*given, *outputs, *buffers.sunk)),
        strides=(
            *_strides(sources),
            *((room,) for room in rooms),
            *(steps for f in buffers.feeds for steps in f.strides),
        ),
        elements=max(1, length),
        workspace=(2 + -(-length // chunk_of(columns))) * _LINK,
        result=buffers.arrays,
        grid=placed.grid if placed else None,
        alignment=BULK if placed and placed.way.stages else 1,
    )


def _columns(
    request: Request,
    sources: Sequence[_Source],
    scope: Scope,
    backend: Backend,
    sinks: Mapping[int, Sinks],
) -> tuple[Column, ...]:
    """Return how the sources are read; their operands and captured scalars follow each other."""
    operand, block = 0, len(request.ops)
    made = []
    for index, source in enumerate(sources):
        carried, feed = index in request.carried, source.feed
        if feed is None:
            (array,) = source.arguments
            access = array.access(backend.target, _pattern(array.view))
            column = Column(source.type, access, carried, operand)
        else:
            captures = scope.offsets[block] if feed.operator is not None else 0
            block += feed.operator is not None
            column = Column(source.type, "fed", carried, operand, feed.key, feed, captures)
        made.append(replace(column, sinks=sinks.get(index)))
        operand += len(source.arguments)
    return tuple(made)


def _strides(sources: Sequence[_Source]) -> list[tuple[int, ...]]:
    """Return the strides of all operands that are read, in bytes."""
    return [
        steps
        for s in sources
        for steps in (s.feed.strides if s.feed else (a.view.strides for a in s.arguments))
    ]


def _number_type(argument: Argument) -> DType:
    assert isinstance(argument.view.dtype, DType)
    return argument.view.dtype


def _pattern(view: View) -> Pattern:
    """Return how an array of one dimension lies."""
    if view.size <= 1 or view.strides[0] == view.dtype.itemsize:
        return "contiguous"
    return "strided" if view.strides[0] else "broadcast"


def _tests(
    request: Request, columns: Sequence[DType | StructType]
) -> tuple[tuple[Program, ...], tuple[Specialized, ...]]:
    """Return what decides, as programs that give a bool, and the user's operators among them."""
    types = columns[request.first : request.first + request.deciding]
    if not request.ops:
        return (equality(types) if request.heads else flag_test(types[0]),), ()
    seen: tuple[Type, ...] = (*types, *types) if request.heads else tuple(types)
    operators = tuple(specialize(op, seen) for op in request.ops)
    programs = tuple(
        truth_of(o.translation.program, name)
        for o, name in zip(operators, request.op_names, strict=True)
    )
    return programs, operators


def _built(
    request: Request, text: SelectionText, scope: Scope, backend: Backend, way: Way | None
) -> Built:
    names = "+".join(o.name for o in request.ops)
    types = ", ".join(f"{c.type} {c.access}" for c in text.columns)
    name = f"{request.family} {names} ({types})"
    moved_bytes = sum(c.type.itemsize * (2 if c.carried else 1) for c in text.columns)
    flops = sum(count_flops(program) for program, _ in text.tests)

    def source() -> KernelSource:
        if way is None:
            return host_select_source(name, text)
        return cuda_select_source(name, text, way, scope.size)

    return build(
        (request.family, text, scope.operators, way),
        "select",
        scope,
        Cost(moved_bytes, flops + 2 * len(text.columns)),
        source,
        backend=backend,
    )
