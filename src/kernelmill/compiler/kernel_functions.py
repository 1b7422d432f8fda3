"""What only kernels can call: loops over threads, shared memory, barriers, atomics, warps, blocks.

Inside `@km.kernel` these are compiled; outside they raise. What each does is documented in
`docs/reference/kernel-language.md`; how each is translated is `frontend/kernel_calls.py`.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from kernelmill.errors import OperatorError

__all__ = [
    "Indices",
    "atomic",
    "barrier",
    "block",
    "blockDim",
    "blockIdx",
    "block_range",
    "dynamic_shared",
    "fence",
    "gridDim",
    "grid_range",
    "local",
    "shared",
    "static",
    "static_range",
    "threadIdx",
    "tile_range",
    "warp",
]


def _only_in_kernels(name: str) -> NoReturn:
    raise OperatorError(
        f"`km.{name}` exists only inside a kernel",
        hint="call it in a function that is decorated with @km.kernel",
    )


# ----------------------------------------------------------------------------- loops


def grid_range(*extents: int, unroll: int = 1) -> Any:  # Any: a loop, known to kernels only
    """Loop over the indices that this thread of the whole grid takes; together they take all.

    `for i in km.grid_range(n)`, `for i, j in km.grid_range(n, m)` with the last index along x.
    `unroll` turns are written one behind the other, so that several loads are under way.

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.kernel
    ... def scale(x, a):
    ...     for i in km.grid_range(len(x)):
    ...         x[i] *= a
    """
    _only_in_kernels("grid_range")


def tile_range(*extents: int) -> Any:  # Any: as above
    """Loop over the indices that this block takes; the same for all its threads.

    The loop to put barriers in: `for t in km.tile_range(n)`, `for i, j in km.tile_range(n, m)`.

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.kernel
    ... def sums_of_rows(x, out):
    ...     for row in km.tile_range(x.shape[0]):
    ...         total = x.dtype(0)
    ...         for j in km.block_range(x.shape[1]):
    ...             total += x[row, j]
    ...         out[row] = km.block.reduce(total)
    """
    _only_in_kernels("tile_range")


def block_range(*extents: int, unroll: int = 1) -> Any:  # Any: as above
    """Loop over the indices that this thread of its block takes; the block takes all.

    Where the sizes of the block divide fixed extents, every thread makes the same number of turns,
    so that barriers may stand inside, and the loop is unrolled.

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.kernel
    ... def clear(x):
    ...     for i in km.block_range(len(x)):
    ...         x[i] = 0
    """
    _only_in_kernels("block_range")


def static_range(*bounds: int, unroll: int = 0) -> Any:  # Any: as above
    """Loop as `range` does over bounds known when the kernel is compiled, unrolled.

    `unroll` turns are written one behind the other, all of them by default.

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.kernel
    ... def powers(x, out):
    ...     for i in km.grid_range(len(x)):
    ...         for k in km.static_range(4):
    ...             out[i, k] = x[i] ** k
    """
    _only_in_kernels("static_range")


LOOPS: Final = (grid_range, tile_range, block_range, static_range)


class static:  # noqa: N801 - an annotation in lower case, as `km.float32` is
    """Annotation of an argument that is baked into the kernel: another value compiles another one.

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.kernel
    ... def smooth(x, out, radius: km.static):
    ...     for i in km.grid_range(len(x) - 2 * radius):
    ...         total = x.dtype(0)
    ...         for k in km.static_range(2 * radius + 1):
    ...             total += x[i + k]
    ...         out[i] = total
    """


# ----------------------------------------------------------------------------- memory


def shared(shape: int | tuple[int, ...], dtype: Any) -> Any:  # Any: a dtype; an array of kernels
    """Return an array in the memory that the threads of a block share; not initialised.

    `shape` is known when the kernel is compiled. The array is one for the whole kernel, wherever
    the call stands.

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.kernel
    ... def reverse(x):
    ...     tile = km.shared(256, x.dtype)
    ...     for i in km.block_range(256):
    ...         tile[i] = x[i]
    ...     km.barrier()
    ...     for i in km.block_range(256):
    ...         x[i] = tile[255 - i]
    """
    _only_in_kernels("shared")


def dynamic_shared(shape: int | tuple[int, ...], dtype: Any) -> Any:  # Any: as above
    """Return an array in the shared memory whose size the launch chooses; not initialised.

    `shape` may be computed; several arrays lie one behind the other, each at a multiple of 16.

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.kernel
    ... def stage(x, n):
    ...     room = km.dynamic_shared(n, x.dtype)
    ...     for i in km.block_range(n):
    ...         room[i] = x[i]
    """
    _only_in_kernels("dynamic_shared")


def local(shape: int | tuple[int, ...], dtype: Any) -> Any:  # Any: as above
    """Return an array of this thread's own, in registers where its indices are known.

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.kernel
    ... def first_four(x, out):
    ...     held = km.local(4, x.dtype)
    ...     for i in km.grid_range(len(out)):
    ...         for k in km.static_range(4):
    ...             held[k] = x[4 * i + k]
    ...         out[i] = held[0] + held[1] + held[2] + held[3]
    """
    _only_in_kernels("local")


# ----------------------------------------------------------------------------- waiting


def barrier() -> None:
    """Wait until all threads of the block are here, and see what they wrote before.

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.kernel
    ... def shift(x):
    ...     tile = km.shared(128, x.dtype)
    ...     for i in km.block_range(128):
    ...         tile[i] = x[i]
    ...     km.barrier()
    ...     for i in km.block_range(127):
    ...         x[i] = tile[i + 1]
    """
    _only_in_kernels("barrier")


def fence(*, order: str = "acquire_release", scope: str = "device") -> None:
    """Order this thread's accesses before it against those behind it, as others see them.

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.kernel
    ... def publish(x, flag):
    ...     x[0] = 1
    ...     km.fence()
    ...     km.atomic.store(flag, 0, 1, order="relaxed")
    """
    _only_in_kernels("fence")


# ----------------------------------------------------------------------------- indices


class Indices:
    """Three indices or sizes of threads or blocks: `.x`, `.y`, `.z`, known inside kernels only."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.__doc__ = text

    def __repr__(self) -> str:
        return f"kernelmill.{self.name}"

    def __getattr__(self, axis: str) -> NoReturn:
        if axis in ("x", "y", "z"):
            _only_in_kernels(f"{self.name}.{axis}")
        raise AttributeError(f"km.{self.name} has no attribute {axis!r}")


threadIdx: Final = Indices(  # noqa: N816 - CUDA's name
    "threadIdx", "Index of this thread in its block, in `.x`, `.y`, `.z`: CUDA's own, for kernels."
)
blockIdx: Final = Indices(  # noqa: N816
    "blockIdx", "Index of this block in the grid, in `.x`, `.y`, `.z`: CUDA's own, for kernels."
)
blockDim: Final = Indices(  # noqa: N816
    "blockDim", "Threads of a block in `.x`, `.y`, `.z`: CUDA's own; constants inside a kernel."
)
gridDim: Final = Indices(  # noqa: N816
    "gridDim", "Blocks of the grid in `.x`, `.y`, `.z`: CUDA's own, for kernels."
)


# ----------------------------------------------------------------------------- atomics


class atomic:  # noqa: N801 - a namespace, as `km.warp` is
    """Atomic operations on an element: `km.atomic.add(x, i, v)`, `km.atomic.add(x, (i, j), v)`.

    They stand in kernels, and in operators where `x` is an array that the operator captured.

    Each returns what the element held before. `order` is "relaxed" (the default), "acquire",
    "release", "acquire_release" or "sequential"; `scope` is "device", "block" or "system".

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.kernel
    ... def count(x, bins):
    ...     for i in km.grid_range(len(x)):
    ...         km.atomic.add(bins, x[i], 1)
    """

    @staticmethod
    def add(
        array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device"
    ) -> Any:  # Any: arrays and values of kernels
        """Add a value."""
        _only_in_kernels("atomic.add")

    @staticmethod
    def sub(
        array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device"
    ) -> Any:  # Any: as above
        """Subtract a value."""
        _only_in_kernels("atomic.sub")

    @staticmethod
    def min(
        array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device"
    ) -> Any:  # Any: as above
        """Keep the smaller one."""
        _only_in_kernels("atomic.min")

    @staticmethod
    def max(
        array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device"
    ) -> Any:  # Any: as above
        """Keep the larger one."""
        _only_in_kernels("atomic.max")

    @staticmethod
    def and_(
        array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device"
    ) -> Any:  # Any: as above
        """Keep the bits that both have."""
        _only_in_kernels("atomic.and_")

    @staticmethod
    def or_(
        array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device"
    ) -> Any:  # Any: as above
        """Keep the bits that one has."""
        _only_in_kernels("atomic.or_")

    @staticmethod
    def xor(
        array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device"
    ) -> Any:  # Any: as above
        """Keep the bits that only one has."""
        _only_in_kernels("atomic.xor")

    @staticmethod
    def exch(
        array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device"
    ) -> Any:  # Any: as above
        """Put a value in the place of the old one."""
        _only_in_kernels("atomic.exch")

    @staticmethod
    def cas(
        array: Any,
        index: Any,
        expected: Any,
        value: Any,
        *,
        order: str = "relaxed",
        scope: str = "device",
    ) -> Any:  # Any: as above
        """Put a value where `expected` is; the bits are compared."""
        _only_in_kernels("atomic.cas")

    @staticmethod
    def load(array: Any, index: Any, *, order: str = "acquire", scope: str = "device") -> Any:
        """Read an element; `order` is "acquire" by default."""
        _only_in_kernels("atomic.load")

    @staticmethod
    def store(
        array: Any, index: Any, value: Any, *, order: str = "release", scope: str = "device"
    ) -> None:
        """Write an element; `order` is "release" by default."""
        _only_in_kernels("atomic.store")


# ----------------------------------------------------------------------------- warps and blocks


class warp:  # noqa: N801 - a namespace
    """What the 32 threads of a warp do together; all of them take part.

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.kernel
    ... def sums_of_32(x, out):
    ...     for i in km.grid_range(len(x)):
    ...         total = km.warp.reduce(x[i])
    ...         if km.warp.lane() == 0:
    ...             out[i // 32] = total
    """

    size: Final = 32

    @staticmethod
    def lane() -> Any:  # Any: values of kernels
        """Return the position of this thread in its warp, 0 to 31."""
        _only_in_kernels("warp.lane")

    @staticmethod
    def shuffle(value: Any, lane: Any) -> Any:  # Any: as above
        """Return the value of another lane."""
        _only_in_kernels("warp.shuffle")

    @staticmethod
    def shuffle_up(value: Any, by: Any) -> Any:  # Any: as above
        """Return the value of the lane `by` below; its own where there is none."""
        _only_in_kernels("warp.shuffle_up")

    @staticmethod
    def shuffle_down(value: Any, by: Any) -> Any:  # Any: as above
        """Return the value of the lane `by` above; its own where there is none."""
        _only_in_kernels("warp.shuffle_down")

    @staticmethod
    def shuffle_xor(value: Any, mask: Any) -> Any:  # Any: as above
        """Return the value of the lane whose number differs in the bits of `mask`."""
        _only_in_kernels("warp.shuffle_xor")

    @staticmethod
    def any(test: Any) -> Any:  # Any: as above
        """Return whether the test holds in any lane."""
        _only_in_kernels("warp.any")

    @staticmethod
    def all(test: Any) -> Any:  # Any: as above
        """Return whether the test holds in all lanes."""
        _only_in_kernels("warp.all")

    @staticmethod
    def ballot(test: Any) -> Any:  # Any: as above
        """Return a uint32 with the bits of the lanes where the test holds."""
        _only_in_kernels("warp.ballot")

    @staticmethod
    def match(value: Any) -> Any:  # Any: as above
        """Return a uint32 with the bits of the lanes that hold the same value."""
        _only_in_kernels("warp.match")

    @staticmethod
    def reduce(value: Any, op: Any = None) -> Any:  # Any: as above
        """Return the values of all lanes combined by `op`, km.add by default, in every lane."""
        _only_in_kernels("warp.reduce")

    @staticmethod
    def scan(value: Any, op: Any = None) -> Any:  # Any: as above
        """Return the values of this lane and of those below it combined by `op`."""
        _only_in_kernels("warp.scan")

    @staticmethod
    def sort(value: Any, comparator: Any = None) -> Any:  # Any: as above
        """Return to lane i the i-th of the values of all lanes; equal ones keep their order.

        `comparator` says whether its first argument comes before its second; by default the
        smaller one does, and nan is the last.
        """
        _only_in_kernels("warp.sort")

    @staticmethod
    def barrier() -> None:
        """Wait until all lanes are here, and see what they wrote before."""
        _only_in_kernels("warp.barrier")


class block:  # noqa: N801 - a namespace
    """What all threads of a block do together, in the order of their ranks (x fastest).

    Each function waits for all threads, so all of them call it, as often.

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.kernel
    ... def largest(x, out):
    ...     best = x[0]
    ...     for i in km.block_range(len(x)):
    ...         best = max(best, x[i])
    ...     out[0] = km.block.reduce(best, km.maximum)
    """

    @staticmethod
    def rank() -> Any:  # Any: values of kernels
        """Return the position of this thread in its block, x fastest."""
        _only_in_kernels("block.rank")

    @staticmethod
    def size() -> Any:  # Any: as above
        """Return the number of threads of a block, a constant."""
        _only_in_kernels("block.size")

    @staticmethod
    def reduce(value: Any, op: Any = None) -> Any:  # Any: as above
        """Return the values of all threads combined by `op`, km.add by default, in every thread."""
        _only_in_kernels("block.reduce")

    @staticmethod
    def scan(value: Any, op: Any = None) -> Any:  # Any: as above
        """Return the values of this thread and of those before it combined by `op`."""
        _only_in_kernels("block.scan")

    @staticmethod
    def exclusive_scan(value: Any, init: Any, op: Any = None) -> Any:  # Any: as above
        """Return `init` and the values of the threads before this one combined by `op`."""
        _only_in_kernels("block.exclusive_scan")

    @staticmethod
    def sort(value: Any, comparator: Any = None) -> Any:  # Any: as above
        """Return to the thread of rank i the i-th of the values of all threads, as `warp.sort`."""
        _only_in_kernels("block.sort")

    @staticmethod
    def merge(value: Any, count: Any, comparator: Any = None) -> Any:  # Any: as above
        """Return to each thread its value of those of the first `count` threads and of the others.

        Both are in order, and `count` is the same in all threads; of equal values the first lead.
        """
        _only_in_kernels("block.merge")

    @staticmethod
    def any(test: Any) -> Any:  # Any: as above
        """Return whether the test holds in any thread."""
        _only_in_kernels("block.any")

    @staticmethod
    def all(test: Any) -> Any:  # Any: as above
        """Return whether the test holds in all threads."""
        _only_in_kernels("block.all")

    @staticmethod
    def count(test: Any) -> Any:  # Any: as above
        """Return in how many threads the test holds."""
        _only_in_kernels("block.count")
