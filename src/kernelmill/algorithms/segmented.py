"""`segmented_reduce` and `segmented_scan`: each segment of an array as if it were one of its own.

What they do with a call is in `segments.py`; segments of one length are rows, see `reductions.py`
and `scans.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill import events
from kernelmill.algorithms.arguments import argument, integer_of
from kernelmill.algorithms.determinism import check_determinism
from kernelmill.algorithms.feed_nodes import ended
from kernelmill.algorithms.iterators import counting, strided
from kernelmill.algorithms.iterators import zip as zipped
from kernelmill.algorithms.plan import Bound, Plan, execute, key_of, lately, remember
from kernelmill.algorithms.reduce import reduce, transform_reduce
from kernelmill.algorithms.reductions import Options, prepare_rows, request_of
from kernelmill.algorithms.scan import exclusive_scan, inclusive_scan
from kernelmill.algorithms.segments import SegmentRequest, prepare_segments, reads_offsets
from kernelmill.algorithms.sequences import is_iterator, length_of, shape_of
from kernelmill.compiler.op import WELL_KNOWN, Op, as_op, root_of
from kernelmill.errors import ArgumentError, ShapeError
from kernelmill.runtime.devices import Device
from kernelmill.runtime.memory import is_on_cuda

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.algorithms.determinism import Determinism

__all__ = ["segmented_reduce", "segmented_scan"]

_ADD: Final = WELL_KNOWN["add"]


def segmented_reduce(
    x: Any,
    offsets: Any = None,
    op: Op | Callable[..., Any] = _ADD,
    *,
    segment_size: int | None = None,
    init: Any = None,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Any:
    """Combine the elements of each segment with an associative operator.

    Nothing need be said about lengths: many short segments and a few long ones are as fast as
    their bytes, in one call.

    Parameters
    ----------
    x
        A one-dimensional array, or an iterator.
    offsets
        Integers, in an array or an iterator: segment i begins at `offsets[i]` and ends before
        `offsets[i + 1]`; or a tuple of where segments begin and where they end, which may overlap.
        On a GPU a segment of such a tuple is the work of one warp.
    op
        As `km.reduce`; one operator.
    segment_size
        The length of all segments, in the place of `offsets`.
    init
        A value that is combined with each result, on its left.
    dtype
        As `km.reduce`.
    out
        Array or iterator for the results.
    determinism
        As `km.reduce`. On a GPU "device_to_device" is for integers, and for `segment_size`.

    Returns
    -------
    array
        One result for each segment, in the library of `x`; of an empty segment `init`, else the
        identity.

    Raises
    ------
    ArgumentError
        Offsets are out of range or decrease; a segment is empty, and there is no `init` and no
        identity. Offsets in the memory of a GPU are not looked at: there, offsets out of range are
        clamped, what decreases is an empty segment and makes results of others undefined, and the
        result of an empty segment without a value is zero.
    NotImplementedHere
        `determinism="device_to_device"` on a GPU where an order matters.
    ShapeError, DTypeError, OperatorError, DeviceError, CompileError
        As `km.reduce`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.array([1, 2, 3, 4, 5])
    >>> km.segmented_reduce(x, np.array([0, 2, 2, 5]))
    array([ 3,  0, 12])
    >>> km.segmented_reduce(x[:4], op=km.maximum, segment_size=2)
    array([2, 4])
    """
    check_determinism(determinism)
    x = zipped(*x) if type(x) is tuple else x
    if segment_size is not None and is_iterator(out):
        offsets, segment_size = _even_offsets(x, offsets, segment_size), None
    if segment_size is not None and is_iterator(x):
        size = _size_of(x, offsets, segment_size)
        asked = Options(init, 1, keepdims=False, dtype=dtype, determinism=determinism)
        rows_of = request_of((op,), None, asked)
        return execute(prepare_rows(rows_of, size, (x,), out))
    if segment_size is not None:
        rows = _rows(x, offsets, segment_size)
        return reduce(rows, op, axis=1, init=init, dtype=dtype, out=out, determinism=determinism)
    request = SegmentRequest("segmented_reduce", _one(op), init, dtype, determinism)
    return _run(request, _inputs(x, offsets), out)


def segmented_scan(
    x: Any,
    offsets: Any = None,
    op: Op | Callable[..., Any] = _ADD,
    *,
    segment_size: int | None = None,
    exclusive: bool = False,
    init: Any = None,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Any:
    """Combine, for each element, the elements of its segment up to it.

    Parameters
    ----------
    x, op, segment_size, dtype, determinism
        As `segmented_reduce`.
    offsets
        Integers from 0 to the length of `x`, in an array or an iterator: segment i begins at
        `offsets[i]` and ends before `offsets[i + 1]`.
    exclusive
        Leave out the element itself; a segment then begins with `init`, else the identity.
    init
        A value that stands before the first element of each segment.
    out
        Array or iterator for the results, of the length of `x`.

    Returns
    -------
    array
        One result for each element, in the library of `x`.

    Raises
    ------
    ArgumentError
        As `segmented_reduce`; or the operator of an exclusive scan has no identity.
    NotImplementedHere, ShapeError, DTypeError, OperatorError, DeviceError, CompileError
        As `segmented_reduce`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> x = np.array([1, 2, 3, 4, 5])
    >>> km.segmented_scan(x, np.array([0, 2, 5]))
    array([ 1,  3,  3,  7, 12])
    >>> km.segmented_scan(x, np.array([0, 2, 5]), exclusive=True)
    array([0, 1, 0, 3, 7])
    """
    check_determinism(determinism)
    x = zipped(*x) if type(x) is tuple else x
    if segment_size is not None and (is_iterator(x) or is_iterator(out)):
        offsets, segment_size = _even_offsets(x, offsets, segment_size), None
    if segment_size is not None:
        rows = _rows(x, offsets, segment_size)
        given = None if out is None else _rows_of(out, _length_of(x), segment_size)
        scan = exclusive_scan if exclusive else inclusive_scan
        made = scan(rows, op, axis=1, init=init, dtype=dtype, out=given, determinism=determinism)
        return made.reshape(-1) if out is None else out
    if type(offsets) is tuple:
        raise ArgumentError("`offsets` is a tuple; a scan takes one array of offsets")
    request = SegmentRequest("segmented_scan", _one(op), init, dtype, determinism, exclusive)
    return _run(request, _inputs(x, offsets), out)


def _one(op: Any) -> Op:
    if isinstance(op, tuple):
        raise ArgumentError(
            "`op` is a tuple; segments take one operator",
            hint="an operator on a struct carries several values: km.struct",
        )
    return as_op(op)


def _rows(x: Any, offsets: Any, segment_size: int) -> Any:
    """Return an array with a row for each segment."""
    size, length = _size_of(x, offsets, segment_size), _length_of(x)
    array = x if hasattr(x, "reshape") else np.asarray(x)  # a buffer
    return array.reshape(length // size, size)


def _rows_of(out: Any, length: int, segment_size: int) -> Any:
    """Return an output of a scan with a row for each segment; never a copy of it."""
    shape = shape_of(out)
    if shape != (length,):
        raise ShapeError(f"`out` has shape {shape}, the result has {(length,)}")
    array = out if hasattr(out, "reshape") else np.asarray(out)  # a buffer
    return array.reshape(length // segment_size, segment_size)


def _size_of(x: Any, offsets: Any, segment_size: int) -> int:
    """Return the length of all segments, if the elements are whole ones of it."""
    if offsets is not None:
        raise ArgumentError(
            "`offsets` and `segment_size` were both given; one says what segments are"
        )
    size, length = integer_of(segment_size, "segment_size"), _length_of(x)
    if size < 1 or length % size:
        raise ShapeError(
            f"`segment_size` is {size}, `x` has {length} elements: not a multiple",
            hint="pass `offsets=` for segments of several lengths",
        )
    return size


def _length_of(x: Any) -> int:
    if is_iterator(x):
        return ended("x", length_of(x))
    shape = tuple(x.shape) if hasattr(x, "shape") else argument(x, "x", on_cuda=False).view.shape
    if len(shape) != 1:
        raise ShapeError(f"`x` has shape {shape}; expected: one dimension")
    return int(shape[0])


def _even_offsets(x: Any, offsets: Any, segment_size: int) -> Any:
    """Return the offsets of segments of one length: an iterator where the kernel computes them."""
    size, length = _size_of(x, offsets, segment_size), _length_of(x)
    if reads_offsets((x,)):
        return strided(counting(0, size), 1, count=length // size + 1)
    return np.arange(0, length + 1, size)


def _inputs(x: Any, offsets: Any) -> tuple[Any, ...]:
    if offsets is None:
        raise ArgumentError("`offsets` is missing", hint="pass it, or `segment_size=`")
    if type(offsets) is tuple:
        if len(offsets) != 2:  # noqa: PLR2004 - begins and ends
            raise ArgumentError(
                f"`offsets` is a tuple of {len(offsets)}; expected: begins and ends"
            )
        return (x, *map(_as_array, offsets))
    return x, _as_array(offsets)


def _as_array(offsets: Any) -> Any:
    return np.asarray(offsets) if isinstance(offsets, list) else offsets


# ----------------------------------------------------------------------------- plan and launch


def _run(request: SegmentRequest, arrays: tuple[Any, ...], out: Any) -> Any:
    key = _quick_key(request, arrays, out)
    if key is not None and not events.active and _need_no_look(request, arrays):
        for found in lately(key):
            done = found.try_launch((request.op.function,), arrays, out)
            if done is not None:
                return done
    bound = prepare_segments(request, arrays, out)
    if key is not None and bound.is_plain:
        remember(key, Plan(bound, partial(prepare_segments, request), fixed=True))
    return execute(bound)


def _quick_key(
    request: SegmentRequest, arrays: tuple[Any, ...], out: Any
) -> tuple[object, ...] | None:
    """Return what tells this call apart from others, if all its arrays are of a common kind."""
    if request.init is not None or request.dtype is not None:
        return None
    parts: list[object] = [request.name, request.exclusive, request.determinism, len(arrays)]
    parts.append(root_of(request.op.function))
    return key_of(parts, arrays if out is None else (*arrays, out))


# Offsets from which on they are compared by all threads.
_MANY: Final = 1 << 16
# Offsets that Python compares sooner than NumPy.
_FEW: Final = 16
# Bytes of offsets that a plan compares with those of the call before.
_KNOWN: Final = 4096


def _need_no_look(request: SegmentRequest, arrays: tuple[Any, ...]) -> bool:
    """Whether offsets are right at a glance; those of a device are not looked at."""
    x, offsets = arrays[:2]
    if type(offsets) is not np.ndarray:
        return is_on_cuda(offsets)
    if len(arrays) > 2 or offsets.ndim != 1 or offsets.size < 2 or len(x.shape) != 1:  # noqa: PLR2004
        return False  # of begins and ends, or what is an error
    lacks = request.op.identity is None  # an empty segment has no result then
    if offsets.size <= _FEW and not lacks:
        each = offsets.tolist()
        first, last, ascends = each[0], each[-1], each == sorted(each)
    else:
        first, last, ascends = offsets.item(0), offsets.item(-1), None
    length = x.shape[0]
    if first < 0 or last > length or (request.scans and (first or last != length)):
        return False
    if ascends is not None:
        return bool(ascends)
    begins, ends = offsets[:-1], offsets[1:]
    if offsets.size < _MANY:
        return not np.count_nonzero(begins >= ends if lacks else begins > ends)
    with Device("cpu"):
        wrong = _stays if lacks else _falls
        return bool(transform_reduce((begins, ends), wrong, WELL_KNOWN["bitwise_or"]) == 0)


# Integers, which combine in vectors.
def _falls(a: Any, b: Any) -> Any:
    return 1 if a > b else 0


def _stays(a: Any, b: Any) -> Any:
    return 1 if a >= b else 0


_CALL: Final = Plan.__call__


class _LookingPlan(Plan):
    """A plan on the host, which looks at the offsets of each call before it takes the short way.

    A few offsets that were right are known again: for elements of that number, `_right` are theirs.
    """

    __slots__ = ("_request", "_right")

    def __init__(self, request: SegmentRequest, bound: Bound) -> None:
        super().__init__(bound, partial(prepare_segments, request), fixed=True)
        self._request = request
        self._right: tuple[object, ...] | None = None

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        if len(inputs) == 2 and self._are_right(*inputs):  # noqa: PLR2004 - elements and offsets
            return _CALL(self, *inputs) if out is None else _CALL(self, *inputs, out=out)
        return self._general(inputs, out)

    def _are_right(self, x: Any, offsets: Any) -> bool:
        if type(x) is not np.ndarray or type(offsets) is not np.ndarray:
            return False
        if offsets.nbytes > _KNOWN:
            return _need_no_look(self._request, (x, offsets))
        given = x.shape, offsets.dtype, offsets.tobytes()
        if given == self._right:
            return True
        right = _need_no_look(self._request, (x, offsets))
        self._right = given if right else None
        return right


def _plan_of(request: SegmentRequest, inputs: tuple[Any, ...], out: Any) -> Plan:
    """Prepare calls like this one; those of iterators have no short way."""
    bound = prepare_segments(request, inputs, out)
    if any(is_iterator(x) or type(x) is tuple for x in (*inputs, out)):
        return Plan(bound, partial(prepare_segments, request), fixed=None)
    return _plan(request, bound)


def _plan(request: SegmentRequest, bound: Bound) -> Plan:
    """Make the plan of a bound call; arrays of those shapes get the short way."""
    if bound.views[0].place is None:
        return _LookingPlan(request, bound)
    short = bound.built.backend.target == "cuda"
    return Plan(bound, partial(prepare_segments, request), fixed=True if short else None)


def _reduce_planner(
    x: Any,
    offsets: Any = None,
    op: Op | Callable[..., Any] = _ADD,
    *,
    segment_size: int | None = None,
    init: Any = None,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Plan:
    """Prepare a segmented_reduce for arrays like these.

    The plan takes elements and offsets (begins and ends as two arrays), or for `segment_size` an
    array with a row for each segment.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> sums = km.segmented_reduce.plan(np.zeros(4), np.array([0, 1, 4]))
    >>> sums(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 3, 4]))
    array([6., 4.])
    """
    if segment_size is not None and (is_iterator(x) or type(x) is tuple):
        raise ArgumentError(
            "`segment_size` with an iterator has no plan",
            hint="pass `offsets=`, for example `np.arange(0, n + 1, segment_size)`",
        )
    if segment_size is not None:
        rows = _rows(x, offsets, segment_size)
        made: Plan = reduce.plan(  # type: ignore[attr-defined]  # a public name
            rows, op, axis=1, init=init, dtype=dtype, out=out, determinism=determinism
        )
        return made
    check_determinism(determinism)
    request = SegmentRequest("segmented_reduce", _one(op), init, dtype, determinism)
    return _plan_of(request, _inputs(x, offsets), out)


def _scan_planner(
    x: Any,
    offsets: Any,
    op: Op | Callable[..., Any] = _ADD,
    *,
    exclusive: bool = False,
    init: Any = None,
    dtype: Any = None,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Plan:
    """Prepare a segmented_scan for arrays like these; the plan takes elements and offsets."""
    check_determinism(determinism)
    request = SegmentRequest("segmented_scan", _one(op), init, dtype, determinism, exclusive)
    return _plan_of(request, _inputs(x, offsets), out)


segmented_reduce.plan = _reduce_planner  # type: ignore[attr-defined]  # a public name
segmented_scan.plan = _scan_planner  # type: ignore[attr-defined]  # likewise
