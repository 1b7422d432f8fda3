"""Compile hand-written host kernels and call them through the call record of host/abi.hpp."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import random
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

HOST = Path(__file__).parents[1] / "src/kernelmill/host"
FLAGS = (
    "-std=c++17 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-strict-aliasing "
    "-fvisibility=hidden -fno-exceptions -fno-rtti -shared -fPIC -Wall -Wextra -Werror"
).split()
CHUNK = 16384
STREAM = 1


def compiler() -> str:
    for name in ("g++", "c++", "clang++"):
        if shutil.which(name):
            return name
    raise RuntimeError("these tests need g++, c++ or clang++ on PATH")


@functools.cache
def _directory() -> Path:
    return Path(tempfile.mkdtemp(prefix="kernelmill-templates-"))


@functools.cache
def build(text: str, march: str = "native") -> ctypes.CDLL:
    stem = _directory() / hashlib.sha256(f"{march}\n{text}".encode()).hexdigest()[:16]
    stem.with_suffix(".cpp").write_text(text)
    wide = ["-mprefer-vector-width=512"] if march == "native" else []
    command = [compiler(), *FLAGS, f"-march={march}", *wide, f"-I{HOST}"]
    subprocess.run([*command, f"{stem}.cpp", "-o", f"{stem}.so"], check=True, timeout=120)
    return ctypes.CDLL(f"{stem}.so")


TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int)
PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int, TASK, ctypes.c_void_p)


@PARALLEL_FOR
def scattered(n_tasks: int, max_threads: int, task: object, context: int) -> None:
    """Run the tasks in pieces, in random order, on several threads at once."""
    order = random.Random(n_tasks)
    cuts = [0, *sorted(order.randrange(n_tasks + 1) for _ in range(6)), n_tasks]
    pieces = [p for p in zip(cuts, cuts[1:], strict=False) if p[0] < p[1]]
    order.shuffle(pieces)

    def work(worker: int) -> None:
        for begin, end in pieces[worker::max_threads]:
            task(context, begin, end, worker)

    threads = [threading.Thread(target=work, args=(w,)) for w in range(max_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Runtime(ctypes.Structure):
    _fields_ = [
        ("parallel_for", PARALLEL_FOR),
        ("threads", ctypes.c_int),
        ("nontemporal_bytes", ctypes.c_int64),
    ]


class Operand(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("strides", ctypes.POINTER(ctypes.c_int64))]


class Call(ctypes.Structure):
    _fields_ = [
        ("runtime", ctypes.POINTER(Runtime)),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("ndim", ctypes.c_int),
        ("threads", ctypes.c_int),
        ("operands", ctypes.POINTER(Operand)),
        ("captures", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("flags", ctypes.c_int64),
    ]


RUNTIME = Runtime(scattered, 3, 1 << 25)


def _longs(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def call(
    library: ctypes.CDLL,
    shape: Sequence[int],
    operands: Sequence[tuple[np.ndarray, Sequence[int]]],
    *,
    captures: np.ndarray | None = None,
    threads: int = 1,
    flags: int = 0,
    workspace: int = 0,
) -> None:
    """Call a kernel; `operands` are arrays with their strides in bytes, inputs first."""
    strides = [_longs(s) for _, s in operands]
    records = [Operand(a.ctypes.data, s) for (a, _), s in zip(operands, strides, strict=True)]
    space = np.zeros(workspace + 64, np.uint8)
    guard = np.full(workspace + 128, 0xA5, np.uint8)
    start = (-guard.ctypes.data) % 64
    held = captures if captures is not None else space
    record = Call(
        ctypes.pointer(RUNTIME),
        _longs(shape),
        len(shape),
        threads,
        (Operand * len(records))(*records),
        held.ctypes.data,
        guard.ctypes.data + start if workspace else None,
        flags,
    )
    library.km_kernel(ctypes.byref(record))
    assert (guard[start + workspace :] == 0xA5).all(), "wrote past the workspace"


@dataclass(frozen=True, slots=True)
class Nest:
    """The loop nest of a reduction: kept dimensions, reduced ones, then perhaps a column."""

    form: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]  # in the order of the nest
    kept: int
    column: bool


def nest(array: np.ndarray, axes: Sequence[int], *, ordered: bool) -> Nest:
    """Choose the form as a host does: columns when a kept axis is the fastest in memory."""
    by_stride = sorted(range(array.ndim), key=lambda a: -abs(array.strides[a]))
    reduced = [a for a in (sorted(axes) if ordered else by_stride) if a in axes]
    kept = [a for a in by_stride if a not in axes]
    column = bool(kept) and abs(array.strides[kept[-1]]) < abs(array.strides[reduced[-1]])
    order = [*kept[:-1], *reduced, kept[-1]] if column else [*kept, *reduced]
    form = "columns" if column else ("rows" if len(reduced) == 1 else "runs")
    extents = tuple(array.shape[a] for a in order)
    return Nest(form, extents, tuple(order), len(kept) - column, column)


def workspace_bytes(results: int, elements: int, accumulators: Sequence[int]) -> int:
    """The formula of host/reduce.hpp."""
    chunks = -(-elements // CHUNK)
    if chunks <= 1:
        return 0
    return sum((results * chunks * size + 63) // 64 * 64 for size in accumulators)
