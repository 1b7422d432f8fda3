"""Plain numbers on the processor: sorted by vectors of 64 bytes, where there are none by NumPy.

NumPy's sort uses one core, so parts of a large array are given to it on threads side by side.
Neither keeps the order of equal numbers; of -0 and 0, and of NaN that differ in their bits, that is
put right here.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill import events
from kernelmill.algorithms.costs import Cost
from kernelmill.algorithms.plan import Scope, build
from kernelmill.algorithms.source import assemble
from kernelmill.compiler.cpp_types import type_spelling
from kernelmill.config import get_config
from kernelmill.dtypes import dtype_of
from kernelmill.runtime.backend import Launch
from kernelmill.runtime.devices import backend_named
from kernelmill.runtime.memory import as_view, empty_like_library
from kernelmill.runtime.native import native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.algorithms.plan import Built
    from kernelmill.config import Config
    from kernelmill.dtypes import DType, StructType
    from kernelmill.runtime.backend import Backend, Kernel

__all__ = [
    "PARTITIONED",
    "SPLIT_FROM",
    "by_vectors",
    "has_vectors",
    "ready_vectors",
    "restore_equal",
    "restore_parts",
    "sort_numbers",
    "split",
    "split_kernel",
    "vector_kernel",
]

PARTITIONED: Final = ("int32", "int64", "uint32", "uint64", "float32", "float64")
# Elements from which on an array is sorted in parts.
SPLIT_FROM: Final = 1 << 17
# A first sample that tells few distinct values apart, which NumPy sorts in no time; a second one
# in which the middle is found.
_GLANCE: Final = 255
_FEW: Final = 32
_SAMPLE: Final = 4001
# Parts of which one holds less than this of the whole are no gain.
_LEAST_SHARE: Final = 0.2
_MOST_LEVELS: Final = 3
# Elements of each thread that sorts by vectors.
_SERIAL_BELOW: Final = 1 << 14
_LINE: Final = 64
_PACK: Final = {"i4": "i", "i8": "q", "u4": "I", "u8": "Q", "f4": "f", "f8": "d"}

Numbers = np.ndarray[Any, Any]


# ----------------------------------------------------------------------------- parts


def split_kernel(type_: DType | StructType, backend: Backend) -> Built:
    """Return the kernel that splits an array in two."""
    spelled = type_spelling(type_, qualified=True)
    name = f"sort ({type_}) by numpy.sort of parts, which are split"
    return build(
        ("split", spelled),
        "sort",
        Scope(()),
        Cost(3 * type_.itemsize, 2),
        lambda: assemble(
            name, ["sort_partition.hpp"], [], f"km::split_numbers<{spelled}>::run(call);"
        ),
        backend=backend,
    )


def vector_kernel(type_: DType | StructType, backend: Backend) -> Built:
    """Return the kernel that sorts with vectors, where the processor has them."""
    spelled = type_spelling(type_, qualified=True)
    name = f"sort ({type_}) by vectors"
    return build(
        ("vector sort", spelled),
        "sort",
        Scope(()),
        Cost(4 * type_.itemsize, 32),
        lambda: assemble(name, ["sort_vectors.hpp"], [], f"km::vector_sort<{spelled}>::run(call);"),
        backend=backend,
    )


def by_vectors(kernel: Built, x: Numbers, to: Numbers) -> bool:
    """Sort from one array to another; False where the processor has no such vectors."""
    told = np.empty(1, np.int64)
    address = native().address
    threads = min(native().thread_count(), 1 + x.size // _SERIAL_BELOW)
    kernel.backend.launch(
        kernel.kernel,
        Launch(
            shape=(x.size,),
            pointers=(address(x)[0], address(to)[0], address(told)[0]),
            strides=((0,),) * 3,
            captures=b"",
            workspace=x.nbytes + _LINE,
            threads=max(1, threads),
            flags=0,
            release_gil=x.size >= _SERIAL_BELOW,
        ),
    )
    if events.active:
        events.emit("launch", kernel.kernel.source.name, device="cpu", bytes=2 * x.nbytes)
    return bool(told[0])


_TOLD: dict[Kernel, bool] = {}


def has_vectors(kernel: Built) -> bool:
    """Return whether a kernel of vectors was compiled for a processor that has them."""
    found = _TOLD.get(kernel.kernel)
    if found is None:
        nothing = np.empty(0, np.int64)
        found = _TOLD[kernel.kernel] = by_vectors(kernel, nothing, nothing)
    return found


_READY: dict[np.dtype[Any], tuple[Config, Built | None]] = {}


def ready_vectors(dtype: np.dtype[Any]) -> Built | None:
    """Return the kernel of vectors for the processor; None where there are none."""
    config = get_config()
    found = _READY.get(dtype)
    if found is None or found[0] is not config:
        kernel = vector_kernel(dtype_of(dtype), backend_named("cpu"))
        found = _READY[dtype] = config, kernel if has_vectors(kernel) else None
    return found[1]


def split(kernel: Built, x: Numbers, to: Numbers, pivot: Any) -> int:
    """Put what is smaller than a pivot to the front of an array; returns how many that are."""
    count = np.zeros(1, np.int64)
    packed = struct.pack(_PACK[x.dtype.str[1:]], x.dtype.type(pivot))
    views = tuple(as_view(a, "x") for a in (x, to, count))
    kernel.backend.launch(
        kernel.kernel,
        Launch(
            shape=(x.size,),
            pointers=tuple(v.ptr for v in views),
            strides=((0,),) * 3,
            captures=packed + bytes(16 - len(packed)),
            workspace=0,
            threads=native().thread_count(),
            flags=0,
            release_gil=True,
            views=views,
        ),
    )
    if events.active:
        events.emit("launch", kernel.kernel.source.name, device="cpu", bytes=3 * x.nbytes)
    return int(count[0])


def _pivot(x: Numbers) -> Any:
    """Return a number that halves an array; None where splitting is no gain."""
    glance = np.sort(x[:: max(1, x.size // _GLANCE)])
    if np.count_nonzero(glance[1:] != glance[:-1]) < _FEW:
        return None
    sample = np.sort(x[:: max(1, x.size // _SAMPLE)])
    middle = sample[sample.size // 2]
    below = int(np.searchsorted(sample, middle)) / sample.size
    if middle != middle or below < _LEAST_SHARE:  # noqa: PLR0124 - whether it is nan
        return None
    return middle


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of an array that lie side by side, each sorted by a thread of its own."""

    parts: Sequence[Numbers]

    def sort(self) -> None:
        """Sort all of them, the last one here."""
        threads = [threading.Thread(target=part.sort) for part in self.parts[:-1]]
        for thread in threads:
            thread.start()
        self.parts[-1].sort()
        for thread in threads:
            thread.join()


def _sort_in_parts(kernel: Built, x: Numbers, to: Numbers) -> bool:
    """Sort from one array to another in parts; False where that would be no gain."""
    levels = min(native().thread_count().bit_length() - 1, _MOST_LEVELS)
    pivot = _pivot(x) if levels else None
    if pivot is None:
        return False
    spare = empty_like_library(x.shape, dtype_of(x.dtype), "numpy") if levels > 1 else to
    source, target = x, to if levels & 1 else spare
    bounds = [(0, x.size)]
    for level in range(levels):
        found: list[tuple[int, int]] = []
        for begin, end in bounds:
            part, room = source[begin:end], target[begin:end]
            middle = pivot if not level else _pivot(part) if part.size >= SPLIT_FROM else None
            if middle is None:
                np.copyto(room, part)
                found.append((begin, end))
                continue
            cut = begin + split(kernel, part, room, middle)
            found += [(begin, cut), (cut, end)]
        bounds = found
        source, target = target, to if target is spare else spare
    _Parts([to[begin:end] for begin, end in bounds]).sort()
    return True


# ----------------------------------------------------------------------------- equal numbers


def restore_equal(x: Numbers, y: Numbers, *, descending: bool) -> None:
    """Reverse sorted numbers if wanted, and put those that are equal into the order they had."""
    spans = _spans(x, y) if y.dtype.kind == "f" and y.size else ()
    if descending:
        y[:] = y[::-1].copy()
    for low, high, nans in spans:
        begin, end = (y.size - high, y.size - low) if descending else (low, high)
        y[begin:end] = x[np.isnan(x)] if nans else x[x == 0]


def restore_parts(x: Numbers, y: Numbers) -> None:
    """Put zeros and nan of an array into their places in its parts, which know one of each."""
    if y.dtype.kind != "f":
        return
    for alike in (np.isnan, np.logical_not):
        mine = alike(x)
        if mine.any():
            y[alike(y)] = x[mine]


_ZEROS: Final = {size: np.zeros((), f"f{size}") for size in (4, 8)}
_NEGATIVE_ZEROS: Final = {size: np.iinfo(f"i{size}").min for size in (4, 8)}


def _spans(x: Numbers, y: Numbers) -> tuple[tuple[int, int, bool], ...]:
    """Return where equal numbers of different bits stand in sorted ones.

    What is sorted does not tell the signs of zeros: NumPy may make one of the other.
    """
    spans = []
    size = y.dtype.itemsize
    low = int(y.searchsorted(_ZEROS[size]))
    if low + 1 < y.size and y[low + 1] == 0 and (x.view(f"i{size}") == _NEGATIVE_ZEROS[size]).any():
        spans.append((low, int(y.searchsorted(_ZEROS[size], "right")), False))
    if y[-1] != y[-1]:
        spans.append((int(y.searchsorted(y.dtype.type(np.nan))), y.size, True))
    return tuple(spans)


# ----------------------------------------------------------------------------- all rows


def sort_numbers(x: Numbers, to: Numbers, kernel: Built, *, descending: bool) -> None:
    """Sort the rows of an array, the last axis, into another that does not overlap it.

    `kernel` is that of vectors, or the one that splits arrays, where there is a gain.
    """
    if x.ndim == 1 and to.flags.c_contiguous and to.flags.aligned and kernel.kernel.entry:
        source = np.require(x, requirements=("C", "A"))
        sorts = by_vectors if "vectors" in kernel.kernel.source.name else _sort_in_parts
        if sorts(kernel, source, to):
            restore_equal(x, to, descending=descending)
            return
    np.copyto(to, x)
    to.sort(axis=-1)
    if x.ndim == 1:
        restore_equal(x, to, descending=descending)
        return
    if x.dtype.kind == "f" and _has_kinds_of_equal(x):
        for index in np.ndindex(x.shape[:-1]):
            restore_equal(x[index], to[index], descending=descending)
    elif descending:
        to[...] = to[..., ::-1].copy()


def _has_kinds_of_equal(x: Numbers) -> bool:
    """Whether some numbers may be equal whose bits are not: -0 and nan."""
    size = x.dtype.itemsize
    return bool((x.view(f"i{size}") == _NEGATIVE_ZEROS[size]).any() or np.isnan(x).any())
