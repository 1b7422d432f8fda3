"""The rooflines of this machine, measured: how fast its memory is read, written and copied.

They are what "share of the roofline" is divided by. Also here: the sizes of the caches, which an
array has to exceed for its speed to be that of the memory. Kernels of users are not timed here.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.errors import ArgumentError
from kernelmill.runtime.backend import KernelSource
from kernelmill.runtime.native import native
from kernelmill.runtime.program import build_host_kernel

if TYPE_CHECKING:
    from kernelmill.runtime.backend import Kernel

__all__ = ["HostCache", "Roofline", "host_caches", "last_level_bytes", "measure_roofline"]

# ----------------------------------------------------------------------------- the caches

_SYSFS: Final = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True, order=True)
class HostCache:
    """One cache of the first core: `kind` is "data", "instruction" or "unified"."""

    level: int
    kind: str
    bytes: int


def host_caches(directory: Path = _SYSFS) -> tuple[HostCache, ...]:
    """Return the caches that the kernel lists, the first level first; () where it lists none.

    Examples
    --------
    >>> from kernelmill.runtime.calibrate import host_caches
    >>> all(cache.bytes > 0 for cache in host_caches())
    True
    """
    found = (_read_cache(index) for index in directory.glob("index*"))
    return tuple(sorted(cache for cache in found if cache is not None))


def _read_cache(index: Path) -> HostCache | None:
    try:
        level, kind, size = ((index / name).read_text().strip() for name in _FILES)
        return HostCache(int(level), kind.lower(), _parse_size(size))
    except (OSError, ValueError):
        return None  # a container may hide them, and not every virtual machine knows a size


_FILES: Final = ("level", "type", "size")


def _parse_size(text: str) -> int:
    unit = _UNITS.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit


def last_level_bytes() -> int:
    """Return the size of the last-level cache; 0 when nothing says so."""
    caches = host_caches()
    if caches:
        return caches[-1].bytes
    name = "SC_LEVEL3_CACHE_SIZE"
    return max(0, os.sysconf(name)) if name in os.sysconf_names else 0


# ----------------------------------------------------------------------------- the kernel

_BLOCK: Final = 1 << 18  # bytes of one task; the same number stands in the text
# All ways in one text: one compile. What is written differs from line to line: some processors
# write lines of zeros several times as fast as others.
_TEXT: Final = """\
// roofline: read, write and copy arrays of whole blocks, as fast as the memory allows
#include "abi.hpp"
#include "stream.hpp"

namespace {

using km::i64;
typedef unsigned long long lane __attribute__((vector_size(64), may_alias));

constexpr i64 block = 1 << 18, piece = 1024, ahead = 4096;

KM_HOT void write(char* to, i64 seed) {
  alignas(64) char pattern[piece];
  for (i64 i = 0; i < piece; i++) pattern[i] = (char)(i * 7 + seed);
  for (i64 i = 0; i < block; i += piece) km::stream_lines(to + i, pattern, piece);
}

KM_HOT void read(const char* from, lane* sums) {
  lane local[8] = {};
  for (i64 i = 0; i < block; i += 512)
    for (int k = 0; k < 8; k++) local[k] += *(const lane*)(from + i + 64 * k);
  for (int k = 0; k < 8; k++) *sums += local[k];
}

KM_HOT void copy(char* to, const char* from) { km::stream_lines(to, from, block); }

KM_HOT void copy_ahead(char* to, const char* from) {
  for (i64 i = 0; i < block; i += piece) {
    for (i64 k = 0; k < piece; k += 64) __builtin_prefetch(from + i + ahead + k);
    km::stream_lines(to + i, from + i, piece);
  }
}

struct Job {
  const km::Call* call;
  i64 way;

  void operator()(i64 begin, i64 end) const {
    const char* from = call->operands[0].data;
    char* to = call->operands[1].data;
    lane sums = {};
    for (i64 b = begin; b < end; b++) {
      if (way == 0) write(to + b * block, b);
      else if (way == 1) read(from + b * block, &sums);
      else if (way == 2) copy(to + b * block, from + b * block);
      else copy_ahead(to + b * block, from + b * block);
    }
    if (way == 1) *(lane*)(to + begin * block) = sums;  // so that the loads are needed
    km::stream_fence();
  }
};

}  // namespace

KM_EXPORT void km_kernel(const km::Call* call) {
  Job job{call, *(const i64*)call->captures};
  km::for_tasks(call, call->shape[0], job);
}
"""
_SOURCE: Final = KernelSource("roofline", _TEXT)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to move a block: its number in the text, what it measures, arrays that it moves."""

    number: int
    measures: str
    arrays: int


WAYS: Final = (
    Way(0, "write", 1),
    Way(1, "read", 1),
    Way(2, "copy", 2),
    Way(3, "copy", 2),
)
_WRITE: Final = WAYS[0]


# ----------------------------------------------------------------------------- measuring

_UNKNOWN_CACHE: Final = 64 << 20
_ARRAY_RANGE: Final = (64 << 20, 256 << 20)
_CACHES_AN_ARRAY: Final = 4
_LINE: Final = 64
_SECONDS: Final = 0.5
_ROUNDS: Final = (3, 12)


@dataclass(frozen=True, slots=True)
class Roofline:
    """The most that memory gave: bytes read plus bytes written, a second.

    `array_bytes` is the size of each array it was measured on, `threads` how many took part.
    """

    copy_bytes_per_second: float
    read_bytes_per_second: float
    write_bytes_per_second: float
    array_bytes: int
    threads: int

    def bytes_per_second(self, read: int, written: int) -> float:
        """Return the limit of a kernel that reads and writes that many bytes an element."""
        if not written:
            return self.read_bytes_per_second
        return self.copy_bytes_per_second if read else self.write_bytes_per_second

    def best_with(self, other: Roofline) -> Roofline:
        """Return the better figure of two measurements each; what disturbs only makes slower."""
        mine, theirs = (
            (r.copy_bytes_per_second, r.read_bytes_per_second, r.write_bytes_per_second)
            for r in (self, other)
        )
        copy, read, write = map(max, mine, theirs)
        return Roofline(copy, read, write, self.array_bytes, self.threads)


def measure_roofline(threads: int | None = None) -> Roofline:
    """Measure how fast memory is read, written and copied; takes about a second.

    The arrays are four times the last-level cache, within 64 and 256 MiB each, and written once
    before anything is timed. Each figure is the best of several runs.

    Parameters
    ----------
    threads
        How many threads take part; all of the pool by default.

    Raises
    ------
    ArgumentError
        `threads` is not between 1 and the size of the pool.
    CompileError
        There is no usable C++ compiler, or it failed.

    Examples
    --------
    >>> from kernelmill.runtime.calibrate import measure_roofline
    >>> measure_roofline(threads=1).copy_bytes_per_second > 1e8
    True
    """
    limit = native().thread_count()
    count = limit if threads is None else threads
    if not 1 <= count <= limit:
        raise ArgumentError(
            f"threads={threads}; the pool has {limit}",
            hint="pass 1 to that many, or set KERNELMILL_NUM_THREADS",
        )
    kernel = build_host_kernel(_SOURCE)
    low, high = _ARRAY_RANGE
    wanted = _CACHES_AN_ARRAY * (last_level_bytes() or _UNKNOWN_CACHE)
    size = min(max(wanted, low), high) // _BLOCK * _BLOCK
    first, second = _aligned(size), _aligned(size)
    run_way(kernel, _WRITE, second, first, count)
    run_way(kernel, _WRITE, first, second, count)
    best = _best_rates(kernel, first, second, count)
    return Roofline(best["copy"], best["read"], best["write"], size, count)


def _best_rates(
    kernel: Kernel, first: np.ndarray[Any, Any], second: np.ndarray[Any, Any], threads: int
) -> dict[str, float]:
    """Go through the ways in turn, so that a disturbance does not fall on one of them alone."""
    best = dict.fromkeys((way.measures for way in WAYS), 0.0)
    fewest, most = _ROUNDS
    end = time.perf_counter() + _SECONDS
    for done in range(most):
        if done >= fewest and time.perf_counter() > end:
            break
        for way in WAYS:
            start = time.perf_counter()
            run_way(kernel, way, first, second, threads)
            rate = way.arrays * first.nbytes / (time.perf_counter() - start)
            best[way.measures] = max(best[way.measures], rate)
    return best


def run_way(
    kernel: Kernel, way: Way, source: np.ndarray[Any, Any], to: np.ndarray[Any, Any], threads: int
) -> None:
    """Run one way over two arrays of whole blocks, from `source` to `to`."""
    native().call(
        kernel.entry,
        (to.nbytes // _BLOCK,),
        (source.ctypes.data, to.ctypes.data),
        ((_BLOCK,), (_BLOCK,)),
        way.number.to_bytes(8, "little"),
        0,
        0,
        threads,
        True,  # noqa: FBT003 - releases the GIL
    )


def _aligned(size: int) -> np.ndarray[Any, Any]:
    """Return an array of bytes that begins with a cache line."""
    raw: np.ndarray[Any, Any] = np.empty(size + _LINE, np.uint8)
    start = -raw.ctypes.data % _LINE
    return raw[start : start + size]
