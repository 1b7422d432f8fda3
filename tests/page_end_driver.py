"""Reduce arrays that end where a protected page begins; run by tests/cpu/test_reduce_lengths.py.

Reading one byte too many ends the process. What was done is printed, form by form.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

import kernelmill as km

if TYPE_CHECKING:
    from collections.abc import Callable

PAGES = 16
_PROT_NONE = 0
STATISTICS = (km.add, km.minimum, km.maximum)


def protected() -> np.ndarray:
    """Return bytes that end at a page which must not be touched."""
    memory = mmap.mmap(-1, (PAGES + 1) * mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)
    whole[:] = 1
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.c_void_p(whole.ctypes.data + PAGES * mmap.PAGESIZE)
    failed = libc.mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), _PROT_NONE)
    assert failed == 0, ctypes.get_errno()
    return whole[: PAGES * mmap.PAGESIZE]


def at_the_end(memory: np.ndarray, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return an array whose last element ends with the memory."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    array = memory[memory.size - size :].view(dtype).reshape(shape)
    array[...] = 1
    return array


def summed(x: np.ndarray, axis: Any) -> None:
    np.testing.assert_array_equal(km.reduce(x, axis=axis), np.sum(x, axis))


def rows(memory: np.ndarray, dtype: str, n: int) -> None:
    x = at_the_end(memory, (2, n), dtype)
    summed(x, 1)
    assert all(
        (part == (n, 1, 1)[i]).all() for i, part in enumerate(km.reduce(x, STATISTICS, axis=1))
    )


def columns(memory: np.ndarray, dtype: str, n: int) -> None:
    for width in (1, 5, 16, 21):
        summed(at_the_end(memory, (n, width), dtype), 0)
    summed(at_the_end(memory, (2, n), dtype), 0)


def runs(memory: np.ndarray, dtype: str, n: int) -> None:
    summed(at_the_end(memory, (2, 3, n), dtype), (0, 2))


def strided(memory: np.ndarray, dtype: str, n: int) -> None:
    x = at_the_end(memory, (1, 2 * n), dtype)
    summed(x[:, 1::2], 1)
    summed(x[:, ::-2], 1)


def ordered(memory: np.ndarray, dtype: str, n: int) -> None:
    found = km.reduce(at_the_end(memory, (2, n), dtype), lambda a, b: a + b, axis=1)
    assert (found == n).all()


FORMS: tuple[Callable[[np.ndarray, str, int], None], ...] = (rows, columns, runs, strided, ordered)

if __name__ == "__main__":
    memory = protected()
    for form in FORMS:
        for dtype in ("f4", "f8"):
            for n in (*range(1, 75), 127, 128, 129, 200):
                form(memory, dtype, n)
        print(form.__name__)
