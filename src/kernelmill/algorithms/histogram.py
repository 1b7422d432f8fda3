"""`histogram`, `bincount` and their kin: how many values, or which sum of weights, each bin has.

What they do with a call is in `histograms.py`, bins in `bins.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill import events
from kernelmill.algorithms.arguments import argument, integer_of, outputs_of
from kernelmill.algorithms.bins import MOST_BINS, Bins, edged, even, own
from kernelmill.algorithms.feeds import Seen, seen
from kernelmill.algorithms.histograms import MOST_CHANNELS, Request, prepare
from kernelmill.algorithms.plan import Plan, execute, key_of, lately, remember
from kernelmill.algorithms.reduce import reduce
from kernelmill.algorithms.sequences import is_iterator
from kernelmill.compiler.op import WELL_KNOWN
from kernelmill.dtypes import DType, float64, int64
from kernelmill.errors import ArgumentError, DTypeError, ShapeError
from kernelmill.runtime.memory import is_on_cuda

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.determinism import Determinism

__all__ = ["bincount", "histogram", "histogram_even", "histogram_range"]

_EXTREMES: Final = (WELL_KNOWN["minimum"], WELL_KNOWN["maximum"])
_BYTE: Final = 256


def histogram(
    x: Any,
    bins: Any = 10,
    range: tuple[Any, Any] | None = None,  # noqa: A002 - NumPy's name
    weights: Any = None,
    *,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> tuple[Any, Any]:
    """Count the values in each bin, as `np.histogram` does, to the last value on an edge.

    Parameters
    ----------
    x
        An array of integers, floats or bools, of any shape and layout, or an iterator.
    bins
        The number of bins of one width, or their edges: an ascending sequence on the host.
    range
        The outer edges of bins of one width; by default the least and the greatest value, which
        take a pass of their own, and on a GPU a wait. Values outside, and nan, are not counted; the
        last bin holds its right edge.
    weights
        What each value counts, an array of the shape of `x`, or an iterator: integers are added in
        64 bits, floats in float64.
    out
        Array or iterator for the counts.
    determinism
        What sums of floating-point weights promise: the same bits for the same call on the same
        device ("run_to_run"), or nothing. The CPU gives the same bits for any number of threads.

    Returns
    -------
    counts
        int64, or of the type of the weights, in the library of `x`.
    edges
        A NumPy array of one more element.

    Raises
    ------
    ArgumentError
        The edges do not ascend, the range is not finite, or there are too many bins for it.
    NotImplementedHere
        `determinism="device_to_device"` with floating-point weights.
    DTypeError, ShapeError, DeviceError, CompileError
        As `km.transform`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.histogram(np.array([1, 2, 1, 5]), bins=4, range=(1, 5))
    (array([2, 1, 0, 1]), array([1., 2., 3., 4., 5.]))
    """
    found, edges = _bins_of(x, bins, range)
    request = Request((found,), weights is not None, None, determinism)
    arrays = (x,) if weights is None else (x, weights)
    return _run(request, arrays, out), edges


def histogram_even(
    x: Any,
    bins: int | Sequence[int],
    lower: Any,
    upper: Any,
    *,
    channels: int | None = None,
    out: Any = None,
) -> Any:
    """Count the values in each of `bins` bins of one width from `lower` to `upper`.

    Parameters
    ----------
    x
        An array or an iterator; or several channels, which are counted in one pass: a tuple, or one
        array whose last axis holds them, with `channels` of them counted.
    bins, lower, upper
        One for all channels, or a tuple. Values from `upper` on are not counted.
    channels
        How many channels of the last axis are counted, at most 8.
    out
        Array, or tuple of arrays, for the counts.

    Returns
    -------
    array or tuple of arrays
        Counts in int64, one array for each channel. Nothing is waited for.

    Raises
    ------
    ArgumentError, DTypeError, ShapeError, DeviceError, CompileError
        As `km.histogram`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> pixels = np.array([[0, 10], [200, 20], [255, 30]], np.uint8)
    >>> km.histogram_even(pixels, 4, 0, 256, channels=2)
    (array([1, 0, 0, 2]), array([3, 0, 0, 0]))
    """
    return _even_call(x, bins, (lower, upper), channels=channels, out=out, plan=False)


def histogram_range(x: Any, edges: Any, *, channels: int | None = None, out: Any = None) -> Any:
    """Count the values between ascending edges; values from the last edge on are not counted.

    Parameters
    ----------
    x, channels, out
        As `km.histogram_even`.
    edges
        A sequence on the host, for all channels; or a tuple of one for each.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.histogram_range(np.array([1.0, 2.5, 3.0]), [0, 2, 3])
    array([1, 1])
    """
    arrays, request = _range_request(x, edges, channels)
    return _run(request, arrays, out)


def _range_request(x: Any, edges: Any, channels: int | None) -> tuple[tuple[Any, ...], Request]:
    arrays, count = _channels_of(x, channels)
    each = edges if type(edges) is tuple and np.ndim(edges[0]) else (edges,) * count
    if len(each) != count:
        raise ArgumentError(f"`edges` is {len(each)} sequences for {count} channels")
    values = _type_of(arrays[0], "x")
    found = tuple(edged(values, np.asarray(e), closed=False, name="edges") for e in each)
    return arrays, Request(found, interleaved=channels is not None)


def bincount(
    x: Any,
    weights: Any = None,
    minlength: int = 0,
    *,
    determinism: Determinism = "run_to_run",
) -> Any:
    """Count how often each non-negative integer occurs, as `np.bincount` does.

    Parameters
    ----------
    x
        A one-dimensional array or an iterator of integers or bools. The greatest decides the length
        of the result, which takes a pass of its own unless they are bytes, and on a GPU a wait.
    weights
        What each counts; sums are float64.
    minlength
        The least length of the result.
    determinism
        As `km.histogram`.

    Returns
    -------
    array
        int64, or float64 where there are weights, in the library of `x`.

    Raises
    ------
    ArgumentError
        A value is negative.
    DTypeError, ShapeError, DeviceError, CompileError
        As `km.histogram`.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> km.bincount(np.array([1, 3, 1]))
    array([0, 2, 0, 1])
    """
    least = integer_of(minlength, "minlength")
    if least < 0:
        raise ArgumentError(f"`minlength` is {least}; the least is 0")
    given = seen("x", x)
    if given.shape is not None and len(given.shape) != 1:
        raise ShapeError(f"`x` has shape {given.shape}; expected: one dimension")
    if not isinstance(given.type, DType) or given.type.kind not in ("int", "uint", "bool"):
        raise DTypeError(f"`x` has elements of {given.type}; expected: integers")
    if not given.size:
        count, trims = least, False
    elif weights is None and _are_bytes(given):
        count, trims = max(least, _BYTE), True
    else:
        low, high = (int(_scalar(v)) for v in reduce(x, _EXTREMES))
        if low < 0:
            raise ArgumentError(f"`x` holds {low}; the least is 0")
        count, trims = max(least, high + 1), False
    _check_length(count, least)
    if not count:
        total = int64 if weights is None else float64
        if weights is not None and seen("weights", weights).size:
            raise ShapeError(
                f"`weights` has shape {seen('weights', weights).shape}, `x` has {given.shape}"
            )
        return outputs_of(None, (total,), (0,), given.arguments)[1]
    request = Request((own(count),), weights is not None, float64, determinism)
    made = _run(request, _with(x, weights), None)
    return _trimmed(made, least) if trims else made


def _check_length(count: int, least: int) -> None:
    """Refuse more counts than there can be, by what asks for them."""
    if count > MOST_BINS:
        asked = f"`minlength` is {least}" if count == least else f"`x` holds {count - 1}"
        most = MOST_BINS if count == least else MOST_BINS - 1
        raise ArgumentError(f"{asked}; the limit is {most}")


def _are_bytes(given: Seen) -> bool:
    """Whether all values that there can be are counted sooner than the greatest is found."""
    on_host = all(a.view.place is None for a in given.arguments)
    return given.type.itemsize == 1 and on_host and str(given.type) != "int8"


def _with(x: Any, weights: Any) -> tuple[Any, ...]:
    return (x,) if weights is None else (x, weights)


def _trimmed(made: Any, least: int) -> Any:
    """Return the counts up to the greatest value that occurs."""
    counts = np.asarray(made)
    used = np.flatnonzero(counts)
    length = max(least, int(used[-1]) + 1 if used.size else 0)
    return made[:length]


# ----------------------------------------------------------------------------- arguments


def _type_of(x: Any, name: str) -> DType:
    found = seen(name, x).type
    if not isinstance(found, DType) or found.kind == "complex":
        raise DTypeError(
            f"`{name}` has elements of {found}, which have no order",
            hint="count a part of them, for example `x.real`",
        )
    return found


def _bins_of(x: Any, bins: Any, bounds: tuple[Any, Any] | None) -> tuple[Bins, Any]:
    """Return the bins of `histogram`, and their edges."""
    values = _type_of(x, "x")
    try:
        several = np.ndim(bins) > 0
    except ValueError:
        raise ArgumentError(f"`bins` is {bins!r}; expected: an integer or edges") from None
    if several:
        edges = np.asarray(bins)
        return edged(values, edges, closed=True), edges
    if bounds is None and not isinstance(bins, str):
        bounds = _extremes(x)
    return even(values, bins, bounds, closed=True)


def _extremes(x: Any) -> tuple[Any, Any] | None:
    """Return the least and the greatest value as NumPy scalars; None where there are none."""
    if not seen("x", x).size:
        return None
    found = [_scalar(value) for value in reduce(x, _EXTREMES)]
    for value in found:
        if not np.isfinite(value):
            raise ArgumentError(
                f"autodetected range of [{found[0]}, {found[1]}] is not finite",
                hint="pass `range=`, outside of which values are not counted",
            )
    return found[0], found[1]


def _scalar(value: Any) -> Any:  # Any: a NumPy scalar
    if isinstance(value, np.generic):
        return value.astype(np.uint8) if value.dtype.kind == "b" else value
    host = value.numpy() if hasattr(value, "numpy") and not is_on_cuda(value) else None
    if host is None:
        from kernelmill.runtime.cuda.arrays import view_of  # noqa: PLC0415 - for such arrays only
        from kernelmill.runtime.cuda.copies import to_host  # noqa: PLC0415

        host = to_host(view_of(value, "x"))
    return _scalar(host[()])


def _channels_of(x: Any, channels: int | None) -> tuple[tuple[Any, ...], int]:
    """Return the arrays that hold the channels, and how many channels there are."""
    if channels is None:
        arrays = x if type(x) is tuple else (x,)
        if not 1 <= len(arrays) <= MOST_CHANNELS:
            raise ArgumentError(
                f"`x` has {len(arrays)} channels; the limits are 1 and {MOST_CHANNELS}"
            )
        return arrays, len(arrays)
    if type(x) is tuple or is_iterator(x):
        raise ArgumentError("`channels` is for one array whose last axis holds the channels")
    wanted = integer_of(channels, "channels")
    shape = argument(x, "x", on_cuda=is_on_cuda(x)).view.shape
    most = min(shape[-1] if shape else 0, MOST_CHANNELS)
    if not 1 <= wanted <= most:
        raise ArgumentError(f"`channels` is {wanted}; the limits are 1 and {most}")
    return (x,), wanted


def _each(value: Any, count: int, name: str) -> tuple[Any, ...]:
    each = value if type(value) in (tuple, list) else (value,) * count
    if len(each) != count:
        raise ArgumentError(f"`{name}` has {len(each)} values for {count} channels")
    return tuple(each)


def _even_call(
    x: Any, bins: Any, bounds: tuple[Any, Any], *, channels: int | None, out: Any, plan: bool
) -> Any:
    arrays, count = _channels_of(x, channels)
    values = _type_of(arrays[0], "x")
    found = []
    each = [
        _each(value, count, name)
        for value, name in ((bins, "bins"), (bounds[0], "lower"), (bounds[1], "upper"))
    ]
    for n, low, high in zip(*each, strict=True):
        try:
            ascends = bool(low < high)
        except (TypeError, ValueError):
            ascends = False
        if not ascends:
            raise ArgumentError(f"`lower` is {low}, `upper` is {high}; expected: less")
        found.append(even(values, n, (low, high), closed=False)[0])
    request = Request(tuple(found), interleaved=channels is not None)
    if plan:
        return _plan(request, prepare(request, arrays, out), (arrays, out))
    return _run(request, arrays, out)


# ----------------------------------------------------------------------------- plan and launch


def _run(request: Request, arrays: tuple[Any, ...], out: Any) -> Any:
    key = _quick_key(request, arrays, out)
    if key is not None and not events.active:
        for found in lately(key):
            done = found.try_launch((), arrays, out)
            if done is not None:
                return done
    bound = prepare(request, arrays, out)
    if key is not None and bound.is_plain:
        remember(key, _plan(request, bound, (arrays, out)))
    return execute(bound)


def _quick_key(request: Request, arrays: tuple[Any, ...], out: Any) -> tuple[object, ...] | None:
    """Return what tells this call apart from others, if all its arrays are of a common kind."""
    if any(b.edges is not None for b in request.bins) or request.interleaved:
        return None
    if type(out) is tuple:
        return None
    parts: list[object] = [histogram, request.total, request.determinism, out is None]
    parts += [part for b in request.bins for part in (b.place, b.record)]
    if out is not None:
        arrays = (*arrays, out)
    return key_of(parts, arrays)


def _plan(request: Request, bound: Any, given: tuple[tuple[Any, ...], Any]) -> Plan:
    """Make the plan of a bound call; contiguous arrays of that shape get the short way."""
    arrays, out = given
    others = request.interleaved or any(b.edges is not None for b in request.bins)
    others |= any(map(is_iterator, (*arrays, *(out if type(out) is tuple else (out,)))))
    return Plan(bound, partial(prepare, request), fixed=None if others else True)


def _planner(
    x: Any,
    bins: Any = 10,
    range: tuple[Any, Any] | None = None,  # noqa: A002 - NumPy's name
    weights: Any = None,
    *,
    out: Any = None,
    determinism: Determinism = "run_to_run",
) -> Plan:
    """Prepare the counts of arrays like `x`, in bins that are fixed then; see `histogram`.

    The plan takes an array, and weights where there are any, and gives the counts.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> counts = km.histogram.plan(np.zeros(3), bins=2, range=(0, 1))
    >>> counts(np.array([0.1, 0.9, 1.0]))
    array([1, 2])
    """
    found, _ = _bins_of(x, bins, range)
    request = Request((found,), weights is not None, None, determinism)
    arrays = _with(x, weights)
    return _plan(request, prepare(request, arrays, out), (arrays, out))


def _even_planner(
    x: Any, bins: Any, lower: Any, upper: Any, *, channels: int | None = None, out: Any = None
) -> Plan:
    """Prepare a histogram_even; the plan takes arrays like `x`, a tuple as arguments."""
    made: Plan = _even_call(x, bins, (lower, upper), channels=channels, out=out, plan=True)
    return made


def _range_planner(x: Any, edges: Any, *, channels: int | None = None, out: Any = None) -> Plan:
    """Prepare a histogram_range; the plan takes arrays like `x`, a tuple as arguments."""
    arrays, request = _range_request(x, edges, channels)
    return _plan(request, prepare(request, arrays, out), (arrays, out))


def _bincount_planner(
    x: Any, weights: Any = None, minlength: int = 1, *, determinism: Determinism = "run_to_run"
) -> Plan:
    """Prepare a bincount of exactly `minlength` bins; greater values are not counted then."""
    request = Request(
        (own(integer_of(minlength, "minlength")),), weights is not None, float64, determinism
    )
    arrays = _with(x, weights)
    return _plan(request, prepare(request, arrays, None), (arrays, None))


histogram.plan = _planner  # type: ignore[attr-defined]  # `km.histogram.plan` is the public name
histogram_even.plan = _even_planner  # type: ignore[attr-defined]  # likewise
histogram_range.plan = _range_planner  # type: ignore[attr-defined]  # likewise
bincount.plan = _bincount_planner  # type: ignore[attr-defined]  # likewise
