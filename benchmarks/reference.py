"""The plain C++ loops of `reference.cpp`, compiled and callable; nothing is timed here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
