"""`lower_bound` and `upper_bound`: where values belong in sorted data.

The loops are in `host/search.hpp` and `device/search.cuh`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kernelmill import events
from kernelmill.algorithms import layout as layouts
from kernelmill.algorithms.arguments import Argument, arguments_of, backend_of, outputs_of, rules_of
from kernelmill.algorithms.costs import count_flops
from kernelmill.algorithms.feed_nodes import Ground, ended, placeholder
from kernelmill.algorithms.feed_text import placed_feeds
from kernelmill.algorithms.feeds import (
    Feed,
    feeds_functions,
    feeds_scope,
    moved_feeds,
    read_feeds,
)
from kernelmill.algorithms.moves import computed, moved
from kernelmill.algorithms.orders import check_comparator, own_order
from kernelmill.algorithms.plan import (
    Bound,
    Built,
    Cost,
    Plan,
    Scope,
    build,
    execute,
    key_of,
    lately,
    remember,
)
from kernelmill.algorithms.policy import search_policy
from kernelmill.algorithms.sequences import is_iterator, shape_of
from kernelmill.algorithms.source import VALUE_SLOT, assemble, storing, text_of
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.compiler.dialects import CUDA, HOST
from kernelmill.compiler.op import Op, as_op, specialize
from kernelmill.dtypes import DType, StructType, bool_, int64, promotion, storage
from kernelmill.errors import DTypeError, ShapeError
from kernelmill.runtime.backend import Grid, KernelSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.algorithms.feed_text import FeedText
    from kernelmill.algorithms.policy import SearchPolicy
    from kernelmill.compiler.ir import Program
    from kernelmill.compiler.op import Specialized
    from kernelmill.dtypes import Type
    from kernelmill.runtime.backend import Backend

__all__ = ["lower_bound", "upper_bound"]


def lower_bound(
    data: Any, values: Any, comparator: Op | Callable[..., Any] | None = None, *, out: Any = None
) -> Any:
    """Return the first place in sorted data before which no value would have to stand.

    As `np.searchsorted(data, values, side="left")`.

    Parameters
    ----------
    data
        A one-dimensional array, or an iterator, in ascending order. Where it is in no order, the
        places are some between 0 and its length.
    values
        An array of any shape and layout; its type need not be that of `data`.
    comparator
        Whether its first argument comes before its second, an operator; by default `<`, with nan
        behind all numbers. Called with an element and a value here, with a value and an element by
        `upper_bound`.
    out
        Array of int64 for the places.

    Returns
    -------
    array
        int64, of the shape of `values` and in their library.

    Raises
    ------
    ShapeError, DTypeError
        `data` has not one dimension; the types have no order; the comparator returns no bool.
    OperatorError, ArgumentError, DeviceError, CompileError
        As `km.transform`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> data = np.array([1, 3, 3, 7])
    >>> km.lower_bound(data, np.array([3, 8]))
    array([1, 4])
    >>> km.lower_bound(data[::-1], np.array([3]), lambda a, b: a > b)
    array([1])
    """
    return _search(data, values, _Request(comparator, upper=False), out)


def upper_bound(
    data: Any, values: Any, comparator: Op | Callable[..., Any] | None = None, *, out: Any = None
) -> Any:
    """Return the last place in sorted data behind which no value would have to stand.

    As `np.searchsorted(data, values, side="right")`; see `lower_bound`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.upper_bound(np.array([1, 3, 3, 7]), np.array([3, 0]))
    array([3, 0])
    """
    return _search(data, values, _Request(comparator, upper=True), out)


# ----------------------------------------------------------------------------- orders


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for, apart from the arrays."""

    comparator: Op | Callable[..., Any] | None
    upper: bool

    @property
    def name(self) -> str:
        """The public function."""
        return "upper_bound" if self.upper else "lower_bound"

    def operator(self, types: Sequence[Type]) -> Op:
        """Return the comparator; raises DTypeError where elements have no order of their own."""
        if self.comparator is not None:
            return as_op(self.comparator, name="comparator")
        return own_order(types, ["data", "values"])


# ----------------------------------------------------------------------------- checks and kernel


def _prepare(request: _Request, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call and bind them to a kernel."""
    if len(inputs) == 2 and any(map(is_iterator, inputs)):  # noqa: PLR2004 - data and values
        if is_iterator(inputs[1]) or len(shape_of(inputs[1])) == 1:
            return _prepare_computed(request, inputs, out)
        inputs = (*computed(inputs[:1], "data"), inputs[1])  # values of several dimensions
    call = moved(inputs, out, "data")
    data, values = arguments_of(call.inputs, ("data", "values"))
    backend = backend_of([data, values], "search")
    if len(data.view.shape) != 1:
        raise ShapeError(f"`data` has shape {data.view.shape}; expected: one dimension")
    op = request.operator([data.type, values.type])
    with promotion(rules_of([data, values])):
        types = (data.type, values.type)
        found = specialize(op, types[::-1] if request.upper else types)
    check_comparator(found)
    outputs, result = outputs_of(call.out, (int64,), values.view.shape, [values, data], exact=True)
    _check_places(outputs[0])
    data, values = (a.apart_from(outputs, elementwise=False) for a in (data, values))
    bound = _bind(request, found, [data, values, outputs[0]], backend, _Fed())
    on_host = not any(a.view.place for a in (data, values)) and values.view.library != "torch"
    scalar = call.out is None and not values.view.shape and on_host
    bound = replace(bound, functions=(op.function,), result=result, scalar=scalar)
    return replace(bound, finish=call.back) if call.returns else bound


def _prepare_computed(request: _Request, inputs: tuple[Any, ...], out: Any) -> Bound:
    """Check the arguments of a call with data or values of an iterator, and bind them."""
    call = moved_feeds(inputs, out, "data")
    feeds = read_feeds(call.inputs, ("data", "values"), "search")
    sorted_, source = feeds.read
    length, count = (ended(feed.name, feed.length) for feed in feeds.read)
    op = request.operator([sorted_.type, source.type])
    with promotion(feeds.rules):
        types = (sorted_.type, source.type)
        found = specialize(op, types[::-1] if request.upper else types)
    check_comparator(found)
    given = feeds.arguments or [Ground.of((), count).index()]
    (places,), result = outputs_of(call.out, (int64,), (count,), given, exact=True)
    _check_places(places)
    written = Feed("out", "out", int64, source.length, (places,), source.target, written=1)
    source = source.apart_from((written,))
    if is_iterator(call.inputs[0]):
        sorted_ = sorted_.apart_from((written,))
        data: Argument = placeholder("data", length, given)
        fed = _Fed(source, sorted_)
    else:
        data = sorted_.arguments[0].apart_from([places], elementwise=False)
        fed = _Fed(source)
    bound = _bind(request, found, [data, data, places], feeds.backend, fed)
    bound = replace(bound, functions=(op.function, *feeds_functions(*fed.feeds)), result=result)
    return replace(bound, finish=call.back) if call.returns else bound


@dataclass(frozen=True, slots=True)
class _Fed:
    """What stands in the place of values, and of data, that are no arrays."""

    values: Feed | None = None
    data: Feed | None = None

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """Those that there are."""
        return tuple(f for f in (self.values, self.data) if f is not None)

    @property
    def arguments(self) -> list[Argument]:
        """Their operands, behind those of a call."""
        return [a for f in self.feeds for a in f.arguments]

    def texts(self, scope: Scope) -> tuple[list[FeedText], str, str]:
        """Return the functors, the structs that make them, and the arguments of the template."""
        placed = iter(placed_feeds(self.feeds, scope.offsets, operand=3, block=1))
        made, structs, names = [], "", []
        for name, feed in (("Values", self.values), ("Sorted", self.data)):
            if feed is None:
                names.append("km::no_source")
                continue
            text = next(placed).text(f"{name}At")
            made.append(text)
            names.append(name)
            structs += (
                f"{text.text}struct {name} {{\n"
                "  static constexpr bool computes = true;\n"
                "  template <class Call> static KM_INL auto make(const Call& call) {\n"
                f"    return {text.made};\n  }}\n}};\n"
            )
        return made, structs, f", {', '.join(names)}" if made else ""


def _check_places(places: Argument) -> None:
    if places.view.dtype != int64:
        raise DTypeError(f"`out` has elements of {places.view.dtype}; places are int64")


def _bind(
    request: _Request,
    found: Specialized,
    operands: list[Argument],
    backend: Backend,
    fed: _Fed,
) -> Bound:
    """Bind data, values and places; of what is fed, nothing is read of the operands."""
    data, values, places = operands
    shape = places.view.shape
    read = places if fed.values is not None else values
    layout = layouts.elementwise(shape, [read.operand], [places.operand])
    extents = layout.shape or (1,)
    strides = layout.strides if layout.shape else ((0,), (0,))
    length, elements = data.view.size, math.prod(shape)
    policy = search_policy(elements)
    blocks = -(-elements // (policy.threads * policy.beside))
    most = policy.resident * backend.multiprocessors
    grid = Grid(max(1, min(blocks, most)), policy.threads, (length,))
    step = data.view.strides[0] if length else 0
    return Bound(
        built=_built(request, found, operands, backend, fed),
        functions=(),
        shape=extents,
        views=tuple(a.view for a in (*operands, *fed.arguments)),
        strides=(
            (step, *(0,) * (len(extents) - 1)),
            *strides,
            *(steps for f in fed.feeds for steps in f.strides),
        ),
        elements=elements,
        workspace=0,
        result=None,
        flags=length << 1,
        grid=None if backend.target == "host" else grid,
    )


def _built(
    request: _Request,
    found: Specialized,
    operands: list[Argument],
    backend: Backend,
    fed: _Fed,
) -> Built:
    types = tuple(storage(a.type) for a in operands[:2])
    policy = search_policy(operands[2].view.size) if backend.target == "cuda" else None
    if fed.values is not None:
        types = (types[0] if fed.data is None else fed.data.type, fed.values.type)
    aligned = all(a.access(backend.target, "contiguous") != "unaligned" for a in operands[:2])
    text = _Text(request, found, types, fed, aligned, fed.data is None and _is_plain(operands[0]))
    depth = 8 + max(1, operands[0].view.size).bit_length()
    cost = Cost(
        sum(a.view.dtype.itemsize for a in operands[:2]), depth * (2 + count_flops(text.program))
    )
    keys = tuple(None if f is None else f.key for f in (fed.values, fed.data))
    key = ("search", found, types, request.upper, aligned, text.adjoins, keys, policy)
    source: Callable[[], KernelSource] = text.of_host
    if policy is not None:
        source = partial(text.of_device, policy)
    return build(key, "search", text.scope, cost, source, backend=backend)


@dataclass(frozen=True, slots=True)
class _Text:
    """What the text of a search depends on: types of data and values, and how they lie."""

    request: _Request
    found: Specialized
    types: tuple[Type, ...]
    fed: _Fed
    aligned: bool
    adjoins: bool

    @property
    def program(self) -> Program:
        """The comparator, with its result as it is stored."""
        return storing(self.found.translation.program, (bool_,))

    @property
    def scope(self) -> Scope:
        """The comparator and the functions of iterators."""
        return Scope((self.found, *feeds_scope(*self.fed.feeds)))

    @property
    def _name(self) -> str:
        first, second = self.types
        return f"{self.request.name} {self.found.op.name} ({first}, {second})"

    @property
    def _common(self) -> str:
        data, value = (type_spelling(t, qualified=True) for t in self.types)
        return f"km::Op, {data}, {value}, {str(self.request.upper).lower()}"

    def of_host(self) -> KernelSource:
        """Return the text for the processor."""
        made, structs, names = self.fed.texts(self.scope)
        printed = [print_program(self.program, HOST), *(p for text in made for p in text.printed)]
        includes = [file for text in made for file in text.includes]
        run = (
            f"km::search<{self._common}, {str(self.adjoins).lower()}{names}>"
            "::run(call, km::Op(call->captures));"
        )
        return assemble(self._name, ["search.hpp", *includes], printed, run, structs)

    def of_device(self, policy: SearchPolicy) -> KernelSource:
        """Return the text for a GPU."""
        made, structs, names = self.fed.texts(self.scope)
        printed = [print_program(self.program, CUDA), *(p for text in made for p in text.printed)]
        includes = [file for text in made for file in text.includes]
        room = max(VALUE_SLOT, -(-self.scope.size // VALUE_SLOT) * VALUE_SLOT)
        access = "km::element" if self.aligned else "km::unaligned_element"
        kept = self.types[0]
        assert isinstance(kept, (DType, StructType))
        rest = (
            f"{structs}typedef km::search<{self._common}, {room}, {access}, "
            f"{policy.beside}, {policy.ways}, {policy.pivots(kept.itemsize)}, "
            f"{3 + len(self.fed.arguments)}{names}> Run;\n"
            f"KM_EXPORT void __launch_bounds__({policy.threads})\n"
            "km_kernel(const __grid_constant__ Run::call call) {\n"
            "  km::take_turn();\n  Run::each(call);\n}\n"
        )
        name = self._name
        text = text_of(name, ["search.cuh", *includes], printed, rest)
        return KernelSource(name, text, policy.threads)


def _is_plain(data: Argument) -> bool:
    """Whether elements of the data adjoin, and lie where their type wants them."""
    view = data.view
    size = view.dtype.itemsize
    adjoins = view.size <= 1 or view.strides[0] == size
    return adjoins and view.dtype != bool_ and view.ptr % (size & -size) == 0


# ----------------------------------------------------------------------------- plan and launch


def _search(data: Any, values: Any, request: _Request, out: Any) -> Any:
    arrays = (data, values)
    key = _quick_key(arrays, request, out)
    if key is not None and not events.active:
        for found in lately(key):
            done = found.try_launch(found.functions, arrays, out)
            if done is not None:
                return done
    bound = _prepare(request, arrays, out)
    if key is not None and bound.is_plain:
        remember(key, _plan(request, bound))
    return execute(bound)


def _quick_key(arrays: tuple[Any, ...], request: _Request, out: Any) -> tuple[object, ...] | None:
    """Return what tells this call apart from others, if all its arrays are of a common kind.

    Comparators of the user are read each time, so that what they capture is.
    """
    if request.comparator is not None:
        return None
    parts: list[object] = [request.upper, _search]
    return key_of(parts, arrays if out is None else (*arrays, out))


def _plan(request: _Request, bound: Bound) -> Plan:
    """Make the plan of a bound call; contiguous arrays of those shapes get the short way."""
    return Plan(bound, partial(_prepare, request), fixed=True)


def _lower_planner(
    data: Any, values: Any, comparator: Op | Callable[..., Any] | None = None, *, out: Any = None
) -> Plan:
    """Prepare a lower_bound; the plan takes data and values of these shapes.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> places = km.lower_bound.plan(np.zeros(3), np.zeros(2))
    >>> places(np.array([1.0, 2.0, 3.0]), np.array([2.5, 0.0]))
    array([2, 0])
    """
    request = _Request(comparator, upper=False)
    return _plan(request, _prepare(request, (data, values), out))


def _upper_planner(
    data: Any, values: Any, comparator: Op | Callable[..., Any] | None = None, *, out: Any = None
) -> Plan:
    """Prepare an upper_bound; see the plan of `lower_bound`."""
    request = _Request(comparator, upper=True)
    return _plan(request, _prepare(request, (data, values), out))


lower_bound.plan = _lower_planner  # type: ignore[attr-defined]  # `km.lower_bound.plan` is public
upper_bound.plan = _upper_planner  # type: ignore[attr-defined]  # likewise
