"""Bins of histograms: the edges as NumPy has them, and how a kernel finds the bin of a value.

Arrays are read, and kernels built, in `histograms.py`; the loops are in `host/places.hpp`.
"""

from __future__ import annotations

import operator
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.dtypes import DType, bfloat16, bool_, dtype_of, float32, float64
from kernelmill.errors import ArgumentError, DTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MOST_BINS", "Bins", "edged", "even", "own", "records"]

# Bins are numbered in 32 bits.
MOST_BINS: Final = (1 << 31) - 64
# Distance from the edges, in widths of a bin, below which the side of an edge is always sure.
_SURE: Final = 0.25
_RECORD: Final = struct.Struct("<8d2q")
_NUMBERS: Final = (int, float, np.generic)
# Types that NumPy's rules do not know, or that are counted as others.
_COMPARED: Final = {"bool": "uint8", "bfloat16": "float32"}
_ROUNDING: Final = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}


@dataclass(frozen=True, slots=True)
class Bins:
    """The bins of one channel: the functor that finds them, and what it is passed.

    `place` is its C++ type but for the type of the values, which stands for `{}`; `edges` are what
    the kernel reads, if it does.
    """

    place: str
    count: int
    record: bytes
    edges: np.ndarray[Any, Any] | None = None


def own(count: int) -> Bins:
    """Return bins that values are the numbers of."""
    _check_count(count)
    return Bins("km::own_bins<{}>", count, _RECORD.pack(*(0.0,) * 8, count, 0))


def even(
    values: DType, bins: object, bounds: tuple[Any, Any] | None, *, closed: bool, name: str = "bins"
) -> tuple[Bins, np.ndarray[Any, Any]]:
    """Return `bins` bins of one width, and their edges as `np.histogram` has them.

    `bounds` are the outer edges; None where there are no values.
    """
    count = _count_of(bins, name)
    low, high = (0, 1) if bounds is None else _bounds_of(bounds)
    hashes = isinstance(low, _NUMBERS) and isinstance(high, _NUMBERS)
    make = _even if hashes else _even.__wrapped__
    found, edges = make(values, count, low, high, closed=closed)
    return found, edges.copy()


def _bounds_of(bounds: Any) -> tuple[Any, Any]:
    """Return the outer edges; they are told apart from equal ones of other types by the cache."""
    pair = isinstance(bounds, (tuple, list)) or (isinstance(bounds, np.ndarray) and bounds.ndim)
    if pair and len(bounds) == 2:  # noqa: PLR2004 - outer edges
        return bounds[0], bounds[1]
    raise ArgumentError(f"`range` is {bounds!r}; expected: two numbers, the outer edges")


@lru_cache(maxsize=256, typed=True)
def _even(
    values: DType, count: int, low: Any, high: Any, *, closed: bool
) -> tuple[Bins, np.ndarray[Any, Any]]:
    kind = np.dtype(np.uint8) if values is bool_ else values.to_numpy()
    try:
        edges = np.histogram_bin_edges(np.empty(0, kind), count, range=(low, high))
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"`range` is ({low}, {high}): {error}") from None
    if low == high:
        low, high = low - 0.5, high + 0.5
    wide = _width(low, high)
    quotient: np.dtype[Any] = np.divide(np.zeros(1, edges.dtype), wide).dtype
    kinds: list[np.dtype[Any]] = [edges.dtype, np.dtype(np.float64), np.dtype(np.float32)]
    for computed in kinds:
        step = _step(edges, low, high, computed)
        if step is not None:
            break
    else:
        return edged(values, edges, closed=closed), edges
    names = [_spelled(t) for t in (edges.dtype, computed, quotient)]
    first, last, width = float(edges[0]), float(edges[-1]), float(wide)
    slack = _slack(edges.dtype, computed, count, max(abs(first), abs(last)) / width)
    whole = values.kind != "float" and bool(np.all(edges == np.floor(edges)))
    bias = 0.5 if whole else 0.0
    numbers = (float(low), step, first, last, width, count / width, slack, bias)
    record = _RECORD.pack(*numbers, count, closed)
    return Bins(f"km::even_bins<{{}}, {', '.join(names)}>", count, record), edges


def _width(low: Any, high: Any) -> Any:  # Any: a NumPy scalar
    """Return the distance of the outer edges in the type in which NumPy has it."""
    type_ = np.result_type(low, high)
    if type_.kind == "i":
        with np.errstate(over="ignore"):
            unsigned = np.dtype(f"u{type_.itemsize}")
            return np.subtract(
                np.asarray(high, type_), np.asarray(low, type_), casting="unsafe", dtype=unsigned
            )[()]
    return np.subtract(high, low, dtype=type_)


def _step(
    edges: np.ndarray[Any, Any], low: Any, high: Any, computed: np.dtype[Any]
) -> float | None:
    """Return the step of the edges if they are multiples of it, computed in this type."""
    count = len(edges) - 1
    start = np.asarray(low).astype(computed)[()]
    with np.errstate(all="ignore"):
        delta = np.subtract(np.asarray(high), np.asarray(low), dtype=computed)
        step = (delta / np.asarray(count, computed)).astype(computed)[()]
        made = (np.arange(count).astype(computed) * step + start).astype(edges.dtype)
    return float(step) if np.array_equal(made, edges[:-1]) and step else None


def _slack(edges: np.dtype[Any], computed: np.dtype[Any], count: int, far: float) -> float:
    """Return how far from an edge, in bins, a quotient is sure on which side it is; 1 for never."""
    rounded = max(_ROUNDING.get(t.name, 2.0**-53) for t in (edges, computed))
    own_rounding = 2.0**-53 if edges.name == "float64" else 2.0**-24
    slack = 4 * count * (own_rounding + rounded * (far + 1))
    return slack if slack < _SURE else 1.0


def edged(values: DType, edges: np.ndarray[Any, Any], *, closed: bool, name: str = "bins") -> Bins:
    """Return bins between ascending edges; `closed` ones hold the last edge."""
    if edges.ndim != 1 or len(edges) < 2:  # noqa: PLR2004 - one bin has two edges
        raise ArgumentError(f"`{name}` has shape {edges.shape}; expected: at least two edges")
    if edges.dtype.kind not in "biuf" and edges.dtype.name != "bfloat16":
        raise DTypeError(f"`{name}` has dtype {edges.dtype}; expected: integers or floats")
    _check_count(len(edges) - 1, name)
    if bool(np.any(edges[:-1] > edges[1:])):
        at = int(np.argmax(edges[:-1] > edges[1:]))
        raise ArgumentError(
            f"`{name}` must increase monotonically: edge {at} is {edges[at]}, edge {at + 1} is "
            f"{edges[at + 1]}"
        )
    if edges.dtype.kind not in "biu" and bool(np.isnan(edges).any()):
        raise ArgumentError(f"`{name}` holds nan at {int(np.argmax(np.isnan(edges)))}")
    common = np.result_type(*(_COMPARED.get(t, t) for t in (values.name, edges.dtype.name)))
    if common.kind in "iu":
        common = np.dtype(np.uint64 if common == np.uint64 else np.int64)
    elif common.itemsize < float32.itemsize:
        common = np.dtype(np.float32)
    kept = np.ascontiguousarray(edges.astype(common))
    record = _RECORD.pack(*(0.0,) * 8, len(edges) - 1, closed)
    spelled = _spelled(common)
    return Bins(f"km::edged_bins<{{}}, {spelled}, {spelled}>", len(edges) - 1, record, kept)


def records(channels: Sequence[Bins]) -> bytes:
    """Return what a kernel is passed for its channels."""
    return b"".join(b.record for b in channels)


def _count_of(bins: object, name: str) -> int:
    if isinstance(bins, str):
        raise ArgumentError(
            f"`{name}` is {bins!r}: estimates of the number of bins are not computed here",
            hint="pass the edges: `np.histogram_bin_edges(x, bins)`",
        )
    try:
        count = operator.index(bins)  # type: ignore[arg-type]  # the test itself
    except TypeError:
        raise ArgumentError(f"`{name}` is {bins!r}; expected: an integer or edges") from None
    _check_count(count, name)
    return count


def _check_count(count: int, name: str = "bins") -> None:
    if not 1 <= count <= MOST_BINS:
        raise ArgumentError(f"`{name}` is {count}; the limits are 1 and {MOST_BINS}")


def _spelled(type_: np.dtype[Any]) -> str:
    known = {"bfloat16": bfloat16, "float64": float64}.get(type_.name)
    return type_spelling(known or dtype_of(type_), qualified=True)
