"""Compile hand-written host kernels and call them through the call record of host/abi.hpp."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
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
    subprocess.run([*command, f"{stem}.cpp", "-o", f"{stem}.so"], check=True, timeout=600)
    return ctypes.CDLL(f"{stem}.so")


TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int)
PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int, TASK, ctypes.c_void_p)


@PARALLEL_FOR
def scattered(n_tasks: int, max_threads: int, task: object, context: int) -> None:
    """Run the tasks in pieces, in random order, on several threads at once."""
    order = random.Random(n_tasks)
    cuts = [0, *sorted(order.randrange(n_tasks + 1) for _ in range(6)), n_tasks]
    pieces = [p for p in itertools.pairwise(cuts) if p[0] < p[1]]
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
    strides: tuple[tuple[int, ...], ...]
    kept: int


Dimension = tuple[int, tuple[int, ...]]


def _merge(dimensions: list[Dimension]) -> list[Dimension]:
    merged = dimensions[:1]
    for extent, strides in dimensions[1:]:
        outer, steps = merged[-1]
        if all(a == b * extent for a, b in zip(steps, strides, strict=True)):
            merged[-1] = (outer * extent, strides)
        else:
            merged.append((extent, strides))
    return merged


def nest(
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    axes: Sequence[int],
    *,
    ordered: bool,
    merge: bool = True,
) -> Nest:
    """Lay a reduction out as a host does: columns when a kept axis is the fastest in memory."""
    first = inputs[0]
    by_stride = sorted(range(first.ndim), key=lambda a: -abs(first.strides[a]))
    kept = [a for a in by_stride if a not in axes]
    place = {a: i for i, a in enumerate(sorted(kept))}

    def dimension(axis: int) -> Dimension:
        out = [o.strides[place[axis]] if axis in place else 0 for o in outputs]
        return first.shape[axis], (*(a.strides[axis] for a in inputs), *out)

    outer = [dimension(a) for a in kept]
    inner = [dimension(a) for a in (sorted(axes) if ordered else by_stride) if a in axes]
    if merge:
        outer, inner = _merge(outer), _merge(inner)
    column = bool(outer) and abs(outer[-1][1][0]) < abs(inner[-1][1][0])
    order = [*outer[:-1], *inner, outer[-1]] if column else [*outer, *inner]
    form = "columns" if column else ("rows" if len(inner) == 1 else "runs")
    strides = tuple(zip(*(s for _, s in order), strict=True))
    return Nest(form, tuple(n for n, _ in order), strides, len(outer) - column)


def workspace_bytes(results: int, elements: int, accumulators: Sequence[int]) -> int:
    """The formula of host/reduce.hpp."""
    chunks = -(-elements // CHUNK)
    if chunks <= 1:
        return 0
    return sum((results * chunks * size + 63) // 64 * 64 for size in accumulators)
