"""The plain C++ loops of `reference.cpp`, compiled and callable; nothing is timed here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["FLAGS", "Reference", "load"]

_SOURCE: Final = Path(__file__).resolve().parent / "reference.cpp"
_SUFFIX: Final = {"float32": "f32", "float64": "f64", "int32": "i32"}
_INPUTS: Final = 3
FLAGS: Final = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-mprefer-vector-width=512",
    "-ffast-math",
    "-fopenmp",
    "-shared",
    "-fPIC",
)


@dataclass(frozen=True, slots=True)
class Reference:
    """The loaded loops, or why there are none: then `missing` is not empty."""

    library: ctypes.CDLL | None
    missing: str = ""

    def bind(
        self, name: str, inputs: Sequence[Any], out: Any, *, threads: int, streams: bool
    ) -> Callable[[], object]:
        """Return a call of one loop on contiguous arrays, which must outlive it.

        `streams` asks for non-temporal stores. The result of the call is `out`.
        """
        assert self.library is not None, self.missing
        function = self.library[f"{name}_{_SUFFIX[inputs[0].dtype.name]}"]
        function.restype = None
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in inputs]
        pointers += [ctypes.c_void_p(None)] * (_INPUTS - len(inputs))
        arguments = (
            *pointers,
            ctypes.c_void_p(out.ctypes.data),
            ctypes.c_int64(inputs[0].size),
            ctypes.c_int(threads),
            ctypes.c_int(streams),
        )
        kept = (inputs, out)

        def call() -> object:
            function(*arguments)
            return kept[1]

        return call

    def bind_layout(
        self, inputs: Sequence[Any], out: Any, *, threads: int, streams: bool
    ) -> Callable[[], object]:
        """Return a call of the loop nest for arrays of any strides: 2*a + 1, or a + b.

        The result of the call is `out`.
        """
        assert self.library is not None, self.missing
        function = self.library[f"layout_{_SUFFIX[out.dtype.name]}"]
        function.restype = None
        order = _order(inputs[0], out)
        arrays = [_four(np.broadcast_to(x, out.shape).transpose(order)) for x in (*inputs, out)]
        steps = [[s // out.itemsize for s in x.strides] for x in arrays]
        if len(inputs) == 1:
            steps.insert(1, [0] * 4)
        strides = (ctypes.c_int64 * 12)(*(s for found in steps for s in found))
        shape = (ctypes.c_int64 * 4)(*arrays[0].shape)
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in inputs] + [ctypes.c_void_p(None)]
        target = ctypes.c_void_p(out.ctypes.data)
        kept = (inputs, out)

        def call() -> object:
            function(*pointers[:2], target, shape, strides, threads, int(streams))
            return kept[1]

        return call


def _order(x: Any, out: Any) -> list[int]:
    """Return the axes in the order of the output, with that of tiles before the last one."""
    order = sorted(range(out.ndim), key=lambda axis: -out.strides[axis])
    turned = [axis for axis in order[:-1] if x.strides[axis] == x.itemsize]
    return [*(a for a in order[:-1] if a not in turned), *turned, order[-1]]


def _four(x: Any) -> Any:
    """Return a view of four dimensions; one dimension is cut in two, for the threads."""
    if x.ndim == 1:
        x = x.reshape(1 << (x.size.bit_length() - 1) // 2, -1)
    return x.reshape((1,) * (4 - x.ndim) + x.shape)


def load() -> Reference:
    """Compile and load the loops with the system's g++."""
    compiler = shutil.which("g++")
    if compiler is None:
        return Reference(None, "g++ is not installed")
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory) / "reference.so"
        done = subprocess.run(
            [compiler, *FLAGS, str(_SOURCE), "-o", str(made), "-lmvec"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            return Reference(None, f"g++ refuses reference.cpp: {done.stderr.strip()[:300]}")
        return Reference(ctypes.CDLL(str(made)))
