"""The native call path in pure Python: the names and behaviour of `_native` where that is absent.

It imports nothing of kernelmill but its own parts, `_native_py_…`. The thread pool is compiled
code in any case: `use_pool` is given a function that makes the shared library, and it is called
when a kernel first wants two threads. What each function means stands in `_native.c`; the
difference is the cost of a call.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
from ctypes import c_char, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias

import numpy as np

from kernelmill import _native_py_address, _native_py_cuda

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    runtime_address: int
    parallel_for_address: int

__all__ = [
    "Caller",
    "CudaLauncher",
    "HostBuffer",
    "Launcher",
    "address",
    "call",
    "configure",
    "cuda_library",
    "memory_stats",
    "parallel_for_address",
    "runtime_address",
    "thread_count",
    "use_pool",
]

Fixed: TypeAlias = tuple[tuple[tuple[int, ...], ...], tuple[int, ...], tuple[tuple[int, ...], ...]]

MAX_OPERANDS: Final = 32
MAX_DIMS: Final = 32
MAX_CAPTURES: Final = 4096
MAX_THREADS: Final = 512
GIL_ABOVE: Final = 32768
FLAG_STREAM: Final = 1

address: Final = _native_py_address.address
CudaLauncher = _native_py_cuda.CudaLauncher
cuda_library: Final = _native_py_cuda.cuda_library

# ---------------------------------------------------------------- the kernel ABI of host/abi.hpp


class _Runtime(ctypes.Structure):
    _fields_ = (("parallel_for", c_void_p), ("threads", c_int), ("nontemporal_bytes", c_int64))


class _Call(ctypes.Structure):
    _fields_ = (
        ("runtime", c_void_p),
        ("shape", c_void_p),
        ("ndim", c_int),
        ("threads", c_int),
        ("operands", c_void_p),
        ("captures", c_void_p),
        ("workspace", c_void_p),
        ("flags", c_int64),
    )


_with_gil: Final = ctypes.PYFUNCTYPE(None, c_void_p)
_without_gil: Final = ctypes.CFUNCTYPE(None, c_void_p)


class _Pool:
    """The thread pool: absent until a region wants it, and then a shared library."""

    def __init__(self) -> None:
        self.make: Callable[[], str] | None = None
        self.library: ctypes.CDLL | None = None
        self.asked = (0, -1)

    def load(self) -> ctypes.CDLL:
        if self.library is None:
            if self.make is None:
                raise RuntimeError("no thread pool: use_pool() was not called")
            self.library = ctypes.CDLL(self.make())
            self.library.km_pool_start.restype = c_int
            self.library.km_pool_start(*self.asked)
        return self.library

    def start(self, threads: int, spin_us: int) -> int:
        self.asked = (threads, spin_us)
        if self.library is not None:
            return int(self.library.km_pool_start(threads, spin_us))
        wanted = threads if threads > 0 else len(os.sched_getaffinity(0))
        return max(1, min(wanted, MAX_THREADS))


_pool: Final = _Pool()


_runtime: Final = _Runtime(None, _pool.start(0, -1), 32 << 20)


def _enter_pool() -> None:
    """Load the pool and give it to the kernels; raises what `make` raises."""
    if not _runtime.parallel_for:
        _runtime.parallel_for = ctypes.cast(_pool.load().km_parallel_for, c_void_p)


def __getattr__(name: str) -> int:
    """Look up what a caller can only use with the pool there, and load it then."""
    if name not in ("runtime_address", "parallel_for_address"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _enter_pool()
    return ctypes.addressof(_runtime) if name == "runtime_address" else int(_runtime.parallel_for)


def use_pool(make: Callable[[], str]) -> None:
    """Say how to get the shared library of host/pool.c; `make` returns its path."""
    _pool.make = make


def configure(threads: int = 0, spin_us: int = -1, nontemporal_bytes: int | None = None) -> int:
    """Set the number of threads (0: the affinity mask) and the size from which stores stream."""
    _runtime.threads = _pool.start(threads, spin_us)
    if nontemporal_bytes is not None:
        _runtime.nontemporal_bytes = nontemporal_bytes
    return thread_count()


def thread_count() -> int:
    """Return the number of threads set."""
    return int(_runtime.threads)


# ------------------------------------------------------------------------------ pooled memory

PAGE: Final = 4096
HUGE_PAGE: Final = 2 << 20
MAX_CACHED: Final = 128
ALIGNMENT: Final = 64


class _Blocks:
    """Freed mappings that wait for a request of the same size class, oldest first."""

    def __init__(self) -> None:
        self.cached: list[mmap.mmap] = []
        self.used = self.waiting = 0
        self.limit = 1 << 30

    def take(self, size: int) -> mmap.mmap:
        for i in range(len(self.cached) - 1, -1, -1):
            if len(self.cached[i]) == size:
                block = self.cached.pop(i)
                self.waiting -= size
                break
        else:
            try:
                block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            except (OSError, OverflowError):
                raise MemoryError from None
            if size >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
                block.madvise(mmap.MADV_HUGEPAGE)
        self.used += size
        return block

    def give(self, block: mmap.mmap) -> None:
        self.used -= len(block)
        if len(block) > self.limit:
            return
        self.shrink(self.limit - len(block), MAX_CACHED - 1)
        self.cached.append(block)
        self.waiting += len(block)

    def shrink(self, limit: int, count: int) -> None:
        while self.cached and (self.waiting > limit or len(self.cached) > count):
            self.waiting -= len(self.cached.pop(0))


_blocks: Final = _Blocks()


def _size_class(nbytes: int) -> int:
    step = max(PAGE, 1 << max(0, nbytes.bit_length() - 4))
    return max(PAGE, -(-nbytes // step) * step)


class HostBuffer(np.ndarray[Any, np.dtype[np.uint8]]):
    """Uninitialised host memory from the pool; an array class, since Python 3.11 lets no other
    Python class export the buffer protocol and be told of its end.
    """  # noqa: D205 - one sentence

    _block: mmap.mmap | None

    def __new__(cls, nbytes: int) -> Self:
        """Take a block of at least `nbytes` bytes."""
        if nbytes < 0:
            raise ValueError(f"HostBuffer of {nbytes} bytes: expected >= 0")
        if nbytes > sys.maxsize:
            raise OverflowError("Python int too large to convert to C ssize_t")
        try:
            block = _blocks.take(_size_class(nbytes))
        except MemoryError:
            raise MemoryError(f"no memory for {nbytes} bytes") from None
        self = super().__new__(cls, (nbytes,), np.uint8, buffer=block)
        self._block = block
        return self

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return int(self.__array_interface__["data"][0])

    def __del__(self) -> None:
        block = self.__dict__.get("_block")  # a view of this array has none
        if block is not None:
            _blocks.give(block)


def memory_stats(limit: int = -1, /) -> tuple[int, int, int]:
    """Return bytes used, bytes waiting for reuse and their limit; `limit` >= 0 sets it."""
    if limit >= 0:
        _blocks.limit = limit
        _blocks.shrink(limit, MAX_CACHED)
    return _blocks.used, _blocks.waiting, _blocks.limit


# ---------------------------------------------------------------------------------- launching


def _run(  # noqa: PLR0917 - the fields of the call record, in its order
    entry: int,
    shape: tuple[int, ...],
    pointers: tuple[int, ...],
    strides: tuple[tuple[int, ...], ...],
    captures: bytes,
    workspace: int,
    flags: int,
    threads: int,
    *,
    release_gil: bool,
) -> bool:
    """Pack the call record and call the kernel; everything that it points to lives in here."""
    if threads > 1:
        _enter_pool()
    ndim = len(shape)
    numbers = (c_int64 * max(1, ndim * (1 + len(strides))))(
        *shape, *(s for t in strides for s in t)
    )
    base = ctypes.addressof(numbers)
    operands = (c_int64 * (2 * len(pointers)))()
    for k, pointer in enumerate(pointers):
        operands[2 * k] = pointer
        operands[2 * k + 1] = base + 8 * ndim * (1 + k)
    values = _aligned(len(captures))
    ctypes.memmove(values[1], captures, len(captures))
    try:
        space = HostBuffer(workspace) if workspace > PAGE else None
    except MemoryError:
        raise MemoryError(f"no memory for a workspace of {workspace} bytes") from None
    small = _aligned(workspace if space is None else 0)
    record = _Call(
        ctypes.addressof(_runtime),
        base,
        ndim,
        threads,
        ctypes.addressof(operands),
        values[1],
        small[1] if space is None else space.address,
        flags,
    )
    convention = _without_gil if release_gil else _with_gil
    convention(entry)(ctypes.addressof(record))
    return True


def _aligned(nbytes: int) -> tuple[ctypes.Array[c_char], int]:
    memory = (c_char * (nbytes + ALIGNMENT))()
    at = ctypes.addressof(memory)
    return memory, at + -at % ALIGNMENT


def call(  # noqa: PLR0917
    entry: int,
    shape: tuple[int, ...],
    pointers: tuple[int, ...],
    strides: tuple[tuple[int, ...], ...],
    captures: Buffer | None,
    workspace: int,
    flags: int,
    threads: int,
    release_gil: bool,  # noqa: FBT001 - positional, as in the extension
    /,
) -> bool:
    """Call a kernel with pointers and strides in bytes, one tuple of strides an operand."""
    _check_ints(shape, MAX_DIMS)
    _check_ints(pointers, MAX_OPERANDS)
    values = b"" if captures is None else bytes(memoryview(captures))
    fits = len(strides) == len(pointers) and all(len(s) == len(shape) for s in strides)
    if not entry or not fits or len(values) > MAX_CAPTURES:
        raise ValueError("call(): the arguments do not fit each other")
    return _run(
        entry, shape, pointers, strides, values, workspace, flags, threads,
        release_gil=release_gil,
    )  # fmt: skip


def _check_ints(numbers: Sequence[int], limit: int) -> None:
    if not isinstance(numbers, tuple) or len(numbers) > limit:
        raise TypeError(f"expected a tuple of at most {limit} integers")


class Launcher:
    """A kernel, called with NumPy arrays; False when they need the general path."""

    __slots__ = (
        "_captures", "_dtypes", "_entry", "_fixed", "_flags", "_gil_above", "_itemsizes", "_limit",
        "_max_threads", "_n_inputs", "_nontemporal_above", "_serial_below", "_workspace",
    )  # fmt: skip

    def __init__(
        self,
        entry: int,
        dtypes: tuple[np.dtype[Any], ...],
        n_outputs: int,
        *,
        captures: Buffer | None = None,
        workspace: int = 0,
        serial_below: int = GIL_ABOVE,
        nontemporal_above: int = -1,
        gil_above: int = GIL_ABOVE,
        limit: int = sys.maxsize,
        max_threads: int = MAX_THREADS,
        flags: int = 0,
        fixed: Fixed | None = None,
    ) -> None:
        n = len(dtypes)
        sizes_fit = 1 <= n <= MAX_OPERANDS and 0 <= n_outputs <= n
        if not (entry and sizes_fit and serial_below >= 1 and workspace >= 0 and max_threads >= 1):
            raise ValueError("Launcher: an argument is out of range")
        self._entry = entry
        self._dtypes = dtypes
        self._itemsizes = tuple(dtype.itemsize for dtype in dtypes)
        self._n_inputs = n - n_outputs
        self._captures = None if captures is None else memoryview(captures).cast("B")
        if self._captures is not None and self._captures.nbytes > MAX_CAPTURES:
            raise ValueError(
                f"Launcher: {self._captures.nbytes} bytes of captures; limit: {MAX_CAPTURES}"
            )
        self._workspace = workspace
        self._serial_below = serial_below
        self._nontemporal_above = nontemporal_above
        self._gil_above = gil_above
        self._limit = limit
        self._max_threads = max_threads
        self._flags = flags
        self._fixed = fixed
        if fixed is not None:
            self._check_fixed(*fixed)

    def _check_fixed(
        self,
        shapes: tuple[tuple[int, ...], ...],
        shape: tuple[int, ...],
        strides: tuple[tuple[int, ...], ...],
    ) -> None:
        _check_ints(shape, MAX_DIMS)
        n = len(self._dtypes)
        fits = len(shapes) == n and len(strides) == n
        if not fits or any(len(s) != len(shape) for s in strides):
            raise ValueError("Launcher: the shapes and strides in fixed do not fit")

    def __call__(self, *operands: object) -> bool:
        """Run the kernel on the arrays, inputs first; a last `bytes` replaces the captures."""
        n = len(self._dtypes)
        captures = b"" if self._captures is None else bytes(self._captures)
        if len(operands) == n + 1:
            last = operands[n]
            if not isinstance(last, bytes) or len(last) != len(captures):
                return False
            captures, operands = last, operands[:n]
        if len(operands) != n or not all(map(self._admits, range(n), operands)):
            return False
        arrays: list[Any] = list(operands)  # Any: known to be ndarrays, of checked dtypes
        shapes = tuple(a.shape for a in arrays)
        if shapes != ((shapes[0],) * n if self._fixed is None else self._fixed[0]):
            return False
        pointers = tuple(a.__array_interface__["data"][0] for a in arrays)
        sizes = tuple(a.nbytes for a in arrays)
        shape: tuple[int, ...]
        strides: tuple[tuple[int, ...], ...]
        size = arrays[0].size
        if self._fixed is None:
            shape = (size,)
            strides = tuple((item,) for item in self._itemsizes)
        else:
            _, shape, strides = self._fixed
            size = math.prod(shape)
        if not 1 <= size <= self._limit or self._clash(pointers, sizes):
            return False
        above = self._nontemporal_above
        stream = sum(sizes) > (_runtime.nontemporal_bytes if above < 0 else above)
        return _run(
            self._entry,
            shape,
            pointers,
            strides,
            captures,
            self._workspace,
            self._flags | (FLAG_STREAM if stream else 0),
            min(1 + size // self._serial_below, self._max_threads, thread_count()),
            release_gil=size > self._gil_above,
        )

    def _admits(self, k: int, operand: object) -> bool:
        return (
            type(operand) is np.ndarray
            and operand.flags.c_contiguous
            and operand.flags.aligned
            and (k < self._n_inputs or operand.flags.writeable)
            and operand.dtype == self._dtypes[k]
        )

    def _clash(self, at: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
        """Whether an output shares bytes with another operand, other than element for element."""
        for out in range(self._n_inputs, len(at)):
            for k in range(out):
                apart = at[k] + sizes[k] <= at[out] or at[out] + sizes[out] <= at[k]
                same = at[k] == at[out] and sizes[k] == sizes[out]
                allowed = same and k < self._n_inputs and self._fixed is None
                if not apart and not allowed:
                    return True
        return False


# -------------------------------------------------------------------------------------- plans


class Caller:
    """What a plan inherits: calls its launcher, or its method `_general(inputs, out)`."""

    __slots__ = ("_launcher", "_read", "_single", "functions")

    _events: ClassVar[dict[str, Any]] = {}
    _launcher: Any
    _read: Any
    _single: Any
    functions: tuple[object, ...]

    @staticmethod
    def watch(events: dict[str, Any], /) -> None:
        """Say where it is said whether somebody listens to events."""
        if not isinstance(events, dict):
            raise TypeError("watch() takes a dict")
        Caller._events = events

    def __call__(self, *inputs: Any, **names: Any) -> Any:
        """Launch; the only name is `out`."""
        if names.keys() - {"out"}:
            raise TypeError("a plan takes its inputs, and out=")
        out, made = names.get("out"), None
        if self._launcher is not None and self._events.get("active") is False:
            made = out
            if out is None and self._single is not None:
                made = self._single(inputs)
        if made is not None and type(made) is not tuple and self._launch(inputs, made):
            return made
        return self._general(inputs, out)

    def _launch(self, inputs: tuple[Any, ...], out: Any) -> Any:
        if self._read is None:
            return self._launcher(*inputs, out)
        captures = self._read(self.functions)
        return captures is not None and self._launcher(*inputs, out, captures)

    def _general(self, inputs: tuple[Any, ...], out: Any) -> Any:
        raise NotImplementedError
