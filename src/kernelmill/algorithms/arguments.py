"""Arguments of the primitives: arrays and Python scalars in, new or given outputs.

What an array is to memory is in `runtime/memory.py`; what shapes do together, in `layout.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import index as as_index
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill import events
from kernelmill.algorithms.layout import Operand, memory_order
from kernelmill.algorithms.source import access
from kernelmill.compiler import ir
from kernelmill.compiler.literals import integer_text, weak_type_of
from kernelmill.compiler.op import specialize
from kernelmill.dtypes import DType, StructType, Type, WeakType, int64, uint64, weak_int
from kernelmill.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    NotImplementedHere,
    ScalarOverflowError,
    ShapeError,
)
from kernelmill.runtime.backend import Value, lacking, reads_host
from kernelmill.runtime.devices import backend_named, current_backend
from kernelmill.runtime.memory import (
    View,
    as_view,
    check_output,
    copied,
    empty_like_library,
    is_on_cuda,
    may_overlap,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelmill.algorithms.layout import Access, Pattern
    from kernelmill.compiler.op import Op, Specialized
    from kernelmill.dtypes import PromotionTable
    from kernelmill.runtime.backend import Backend, Target

__all__ = [
    "Argument",
    "argument",
    "arguments_of",
    "backend_of",
    "given_outputs",
    "integer_of",
    "moved_outputs",
    "outputs_of",
    "rules_of",
    "specialized",
    "values_of",
]


@dataclass(frozen=True, slots=True)
class Argument:
    """An operand with the name by which errors call it.

    `type` is weak for a Python scalar; `scalar` is a Python or NumPy scalar that was given.
    """

    name: str
    view: View
    type: Type
    scalar: object = None

    @property
    def is_weak(self) -> bool:
        """Whether it was given as a Python scalar."""
        return isinstance(self.type, WeakType)

    @property
    def operand(self) -> Operand:
        """Shape, strides and itemsize."""
        return Operand(self.view.shape, self.view.strides, self.view.dtype.itemsize)

    def access(self, target: Target, pattern: Pattern) -> Access:
        """Return how a kernel reaches the operand, whose elements follow each other as named."""
        aligned = target == "host" or self.view.is_aligned
        return access(target, pattern, is_scalar=self.scalar is not None, is_aligned=aligned)

    def on_axes(self, axes: Sequence[int]) -> Argument:
        """Return the argument with these axes only; the others have extent 1."""
        view = self.view
        kept = replace(
            view,
            shape=tuple(view.shape[a] for a in axes),
            strides=tuple(view.strides[a] for a in axes),
        )
        return replace(self, view=kept)

    def apart_from(self, outputs: Sequence[Argument], *, elementwise: bool = True) -> Argument:
        """Return the argument, copied if an output overlaps it other than element for element."""
        for output in outputs:
            mine, theirs = self.view, output.view
            same = (mine.ptr, mine.shape, mine.strides, mine.dtype.itemsize) == (
                theirs.ptr,
                theirs.shape,
                theirs.strides,
                theirs.dtype.itemsize,
            )
            if not (same and elementwise) and may_overlap(mine, theirs):
                if events.active:
                    device = mine.place or "cpu"
                    events.emit(
                        "copy", self.name, device=device, bytes=mine.nbytes, reason="overlap"
                    )
                return replace(self, view=_copied(mine, self.name))
        return self


def _copied(view: View, name: str) -> View:
    if view.place is None:
        return copied(view)
    from kernelmill.runtime.cuda.arrays import DeviceView  # noqa: PLC0415 - for such arrays only
    from kernelmill.runtime.cuda.copies import duplicate  # noqa: PLC0415

    assert isinstance(view, DeviceView)
    return duplicate(view, name)


def arguments_of(
    inputs: tuple[Any, ...], name: str | Sequence[str], *, wide: bool = False
) -> list[Argument]:
    """Return the inputs of a call as arguments, named `name[0]`, … when there are several.

    Where each has a name of its own, `name` is all of them. `wide` accepts Python integers beyond
    64 bits, of which `specialized` makes floats or an error. Raises ArgumentError when there are
    none, others than have names, or only Python scalars.
    """
    if not inputs:
        raise ArgumentError(f"`{name}` is empty; at least one array is needed")
    names = _names(name, len(inputs)) if isinstance(name, str) else name
    if len(names) != len(inputs):
        raise ArgumentError(f"{len(inputs)} arrays were given; expected: {', '.join(names)}")
    for n, x in zip(names, inputs, strict=True):
        if type(x) is list and _holds_arrays(x):
            raise ArgumentError(
                f"`{n}` is a list of arrays", hint="several arrays are a tuple: pass `(a, b)`"
            )
    first = next((x for x in inputs if not isinstance(x, _SCALARS)), None)
    on_cuda = is_on_cuda(first)
    given = [argument(x, n, on_cuda=on_cuda, wide=wide) for n, x in zip(names, inputs, strict=True)]
    if all(a.is_weak for a in given):
        raise ArgumentError("all inputs are Python scalars", hint="pass one as `np.asarray(x)`")
    if on_cuda:
        _check_places(given)
    return given


_NUMBERS: Final = (bool, int, float, complex)
_SCALARS: Final = (*_NUMBERS, np.generic)


def _names(name: str, count: int) -> list[str]:
    return [f"{name}[{i}]" for i in range(count)] if count > 1 else [name]


def integer_of(value: Any, name: str) -> int:
    """Return an option that is an integer; raises ArgumentError for anything else."""
    try:
        return as_index(value)
    except TypeError:
        raise ArgumentError(f"`{name}` is {value!r}; expected: an integer") from None


def _check_places(given: Sequence[Argument]) -> None:
    """Refuse arrays on several devices."""
    first = _leading(given)
    for other in given:
        if other.scalar is None and other.view.place != first.view.place:
            raise DeviceError(
                f"argument {other.name!r} is on {other.view.place}, {first.name!r} on "
                f"{first.view.place}; a call runs on one device",
                hint="copy them to one device first",
            )


def _leading(given: Sequence[Argument]) -> Argument:
    """Return the argument whose library and device decide: the first array, or strong scalar.

    Copies of host arrays on a device decide only where there are no others.
    """
    arrays = [a for a in given if a.view.place is not None] or [a for a in given if not a.is_weak]
    return next((a for a in arrays if not getattr(a.view.owner, "is_copy", False)), arrays[0])


def backend_of(given: Sequence[Argument], family: str) -> Backend:
    """Return the back end that runs a family: that of the arrays, for host arrays the current one.

    Raises DeviceError where the current device cannot reach host arrays, and NotImplementedHere
    where the family has no form for the device.
    """
    leading = _leading(given)
    place = leading.view.place
    backend = current_backend() if place is None else backend_named(place)
    if place is None and not reads_host(backend):
        raise DeviceError(
            f"argument {leading.name!r} is in the memory of the host; the current device is "
            f"{backend.name}",
            hint="copy it first: torch's x.cuda(), cupy.asarray(x); or use km.Device('cpu')",
        )
    reason = lacking(backend, family)
    if reason:
        raise NotImplementedHere(
            f"{reason}; the arrays are on {backend.name}",
            hint="copy them to the host, for example with `x.cpu()` or `cupy.asnumpy(x)`",
        )
    return backend


def _holds_arrays(values: list[Any]) -> bool:
    return bool(values) and all(hasattr(v, "shape") and v.shape for v in values)


def rules_of(given: Sequence[Argument]) -> PromotionTable:
    """Return whose promotion rules hold: those of the library of the first array."""
    return "torch" if _leading(given).view.library == "torch" else "numpy"


def argument(
    value: object,
    name: str,
    *,
    writable: bool = False,
    on_cuda: bool = False,
    wide: bool = False,
) -> Argument:
    """Return an array, or a Python scalar as a 0-d one, as an argument.

    `on_cuda` asks for arrays in the memory of a device; scalars are on the host always. `wide` is
    as in `arguments_of`.
    """
    if not writable and isinstance(value, _NUMBERS) and not isinstance(value, np.generic):
        weak = weak_type_of(value)
        stored = weak.storage if isinstance(weak, WeakType) else weak
        assert isinstance(stored, DType)
        return Argument(
            name, as_view(_scalar_array(value, stored, name, wide=wide), name), weak, value
        )
    if isinstance(value, np.generic):
        view = as_view(value, name, writable=writable)
        return Argument(name, view, view.dtype, value)
    view = (_device_view if on_cuda else as_view)(value, name, writable=writable)
    return Argument(name, view, view.dtype)


def _device_view(value: object, name: str, *, writable: bool) -> View:
    from kernelmill.runtime.cuda.arrays import as_device_view  # noqa: PLC0415 - as in `_copied`
    from kernelmill.runtime.cuda.driver import require  # noqa: PLC0415

    require()
    view = as_device_view(value, name, writable=writable)
    if writable:
        check_output(view, name)
    return view


def _scalar_array(value: complex, stored: DType, name: str, *, wide: bool) -> np.ndarray[Any, Any]:
    """Return a Python scalar as a 0-d array; an integer that only uint64 holds keeps its bits.

    A `wide` one, which no type holds, is 0 here: it is replaced, or refused, in `specialized`.
    """
    bits = value
    if isinstance(value, int) and value not in _INT64:
        if int64.max < value <= uint64.max:
            bits = value - (1 << uint64.bits)
        elif wide:
            bits = 0
        else:
            raise ScalarOverflowError(
                f"Python integer {integer_text(value)} out of bounds for {stored} ({name})"
            )
    return np.array(bits, stored.to_numpy())


_INT64: Final = range(int64.min, int64.max + 1)


def specialized(op: Op, given: Sequence[Argument]) -> tuple[Specialized, list[Argument]]:
    """Return an operator for these arguments, whose Python integers are checked, as they go in.

    An integer beyond 64 bits that meets floats only goes in as a float, as in NumPy. Raises
    OverflowError for one beyond the integers it meets.
    """
    operator = specialize(op, tuple(a.type for a in given))
    program = operator.translation.program
    fitted = [
        _as_float(a) if _is_large(a) and _meets_floats_only(program, program.entry, index) else a
        for index, a in enumerate(given)
    ]
    if any(_is_large(a) for a in given):
        operator = specialize(op, tuple(a.type for a in fitted))
    _check_limits(operator.translation.program, fitted)
    return operator, fitted


def _is_large(given: Argument) -> bool:
    return given.type == weak_int and given.scalar not in _INT64


def _as_float(given: Argument) -> Argument:
    assert isinstance(given.scalar, int)
    try:
        return argument(float(given.scalar), given.name)
    except OverflowError:
        raise ScalarOverflowError(
            f"Python integer of {given.scalar.bit_length()} bits out of bounds for float64 "
            f"({given.name})"
        ) from None


def _check_limits(program: ir.Program, arguments: Sequence[Argument]) -> None:
    """Check Python integers given as arguments against the integer types they are converted to.

    Those that a function called by the operator converts them to count too.

    Raises OverflowError, as NumPy does for `np.int8(1) + 300`.
    """
    for index, given in enumerate(arguments):
        if given.type != weak_int:
            continue
        value = given.scalar
        assert isinstance(value, int)
        for limit in _conversions(program, program.entry, index) or {int64}:
            if not limit.min <= value <= limit.max:
                raise ScalarOverflowError(
                    f"Python integer {integer_text(value)} out of bounds for {limit}",
                    hint=f"`{given.name}` meets values of type {limit}",
                )


def values_of(program: ir.Program, arguments: Sequence[Argument]) -> tuple[Value | None, ...]:
    """Return of each argument whether it is a scalar, with the limits of Python integers."""
    found: list[Value | None] = []
    for index, given in enumerate(arguments):
        if given.scalar is None:
            found.append(None)
            continue
        limits = _conversions(program, program.entry, index) or {int64}
        low, high = max(t.min for t in limits), min(t.max for t in limits)
        found.append(Value(type(given.scalar), low, high))
    return tuple(found)


def _conversions(program: ir.Program, function: ir.Function, index: int) -> set[DType]:
    """Return the integer types a parameter is converted to, here or in what it is passed to."""
    found = set()
    for node in _expressions(function):
        match node:
            case ir.Cast(ir.Param(index=i), DType() as type_) if i == index and type_.is_integer:
                found.add(type_)
            case ir.Call(function=name, args=args):
                (callee,) = (f for f in program.functions if f.name == name)
                for place, given in enumerate(args):
                    if isinstance(given, ir.Param) and given.index == index:
                        found |= _conversions(program, callee, place)
    return found


def _meets_floats_only(program: ir.Program, function: ir.Function, index: int) -> bool:
    """Whether a parameter is converted to floats wherever it is used."""
    uses = 0
    for node in _expressions(function):
        match node:
            case ir.Param(index=i) if i == index:
                uses += 1
            case ir.Cast(ir.Param(index=i), DType() as type_) if i == index:
                uses -= type_.kind in ("float", "complex")
            case ir.Call(function=name, args=args):
                (callee,) = (f for f in program.functions if f.name == name)
                for place, given in enumerate(args):
                    if isinstance(given, ir.Param) and given.index == index:
                        uses -= _meets_floats_only(program, callee, place)
    return uses == 0


def _expressions(function: ir.Function) -> Iterator[ir.Expr]:
    for statement in ir.walk_statements(function.body):
        for operand in ir.operands(statement):
            yield from ir.walk_expressions(operand)


def outputs_of(
    out: Any,
    dtypes: tuple[DType | StructType, ...],
    shape: tuple[int, ...],
    inputs: Sequence[Argument],
    *,
    exact: bool = False,
) -> tuple[list[Argument], Any]:
    """Return the outputs as arguments, and what the user gets; new arrays where `out` is None.

    `exact` asks for that very shape; else an output may be larger, and inputs broadcast to it.
    Raises ShapeError when a given output has a shape that does not do, and ArgumentError when two
    outputs overlap or there are not as many as results.
    """
    if out is None:
        made = tuple(_new(shape, dtype, inputs) for dtype in dtypes)
        on_cuda = _leading(inputs).view.place is not None
        views = [argument(array, "out", writable=True, on_cuda=on_cuda) for array in made]
        return views, made[0] if len(made) == 1 else made
    views = given_outputs(out, inputs)
    if len(views) != len(dtypes):
        raise ArgumentError(f"`out` has {len(views)} arrays for {len(dtypes)} results")
    for i, output in enumerate(views):
        _check_shape(output, shape, exact=exact)
        _check_alike(output, views[0], exact=exact)
        for other in views[:i]:
            if may_overlap(output.view, other.view):
                raise ArgumentError(f"`{other.name}` and `{output.name}` overlap")
    return views, out


def moved_outputs(
    out: Any,
    dtypes: tuple[DType | StructType, ...],
    shape: tuple[int, ...],
    inputs: Sequence[Argument],
) -> tuple[list[Argument], Any]:
    """Return `outputs_of` elements that are moved as they are: of that very shape and type."""
    views, result = outputs_of(out, dtypes, shape, inputs, exact=True)
    for output, expected in zip(views, dtypes, strict=True):
        if output.view.dtype != expected:
            raise DTypeError(
                f"`{output.name}` has elements of {output.view.dtype}; they are {expected} here"
            )
    return views, result


def given_outputs(out: Any, inputs: Sequence[Argument]) -> list[Argument]:
    """Return the arrays that the user gave for results of these inputs as arguments."""
    given = out if type(out) is tuple else (out,)
    on_cuda = _leading(inputs).view.place is not None
    found = [
        argument(array, f"out[{i}]" if len(given) > 1 else "out", writable=True, on_cuda=on_cuda)
        for i, array in enumerate(given)
    ]
    if on_cuda:
        _check_places((*inputs, *found))
    return found


def _check_shape(output: Argument, shape: tuple[int, ...], *, exact: bool) -> None:
    found = output.view.shape
    if exact and found != shape:
        raise ShapeError(f"`{output.name}` has shape {found}, the result has {shape}")
    lead = len(found) - len(shape)
    fits = lead >= 0 and all(n in (1, m) for n, m in zip(shape, found[lead:], strict=True))
    if not fits:
        raise ShapeError(f"`{output.name}` has shape {found}, the inputs broadcast to {shape}")


def _check_alike(output: Argument, first: Argument, *, exact: bool) -> None:
    found, wanted = output.view.shape, first.view.shape
    if not exact and found != wanted:
        raise ShapeError(
            f"`{output.name}` has shape {found}, `{first.name}` has {wanted}",
            hint="all results of a call have one shape",
        )


def _new(
    shape: tuple[int, ...], dtype: DType | StructType, inputs: Sequence[Argument]
) -> Any:  # Any: an array of whatever library
    """Return a new array in the library of the first array, in the memory order of the inputs."""
    arrays = [a for a in inputs if not a.is_weak]
    first = _leading(inputs).view
    if first.place is not None:
        return _new_on_device(shape, dtype, first, arrays)
    library = first.library
    order = memory_order(shape, [a.operand for a in arrays if len(a.view.shape) <= len(shape)])
    if order == tuple(range(len(shape))):
        return empty_like_library(shape, dtype, library)
    made = empty_like_library(tuple(shape[axis] for axis in order), dtype, library)
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    return made.permute(back) if library == "torch" else made.transpose(back)


def _new_on_device(
    shape: tuple[int, ...], dtype: DType | StructType, first: View, arrays: Sequence[Argument]
) -> Any:  # Any: as `_new`
    from kernelmill.runtime.cuda.arrays import DeviceView, empty  # noqa: PLC0415 - as in `_copied`

    assert isinstance(first, DeviceView)
    order = memory_order(shape, [a.operand for a in arrays if len(a.view.shape) <= len(shape)])
    if first.maker == "cuda" or order == tuple(range(len(shape))):
        return empty(shape, dtype, first.maker, device=first.device)
    made = empty(tuple(shape[axis] for axis in order), dtype, first.maker, device=first.device)
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    return made.permute(back) if first.maker == "torch" else made.transpose(back)
