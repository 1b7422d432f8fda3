"""The vector-math intrinsics of the host headers as Python calls: one value or one array each."""

from __future__ import annotations

import ctypes
import re
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import kernelmill
from kernelmill.toolchain import HostCompiler, compile_shared, find_host_compiler

HOST = Path(kernelmill.__file__).parent / "host"

FLOATS = {"f32": np.float32, "f64": np.float64}
INTEGERS = {f"{s}{b}": np.dtype(f"{'int' if s == 'i' else 'uint'}{b}").type
            for s in "iu" for b in (8, 16, 32, 64)}  # fmt: skip
TYPES = {**FLOATS, **INTEGERS, "bool": np.bool_}

UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh sqrt rsqrt cbrt erf erfc tgamma lgamma floor ceil trunc rint fabs degrees radians "
    "frexp_mantissa"
).split()
BINARY = "pow atan2 hypot fmod copysign nextafter fmin fmax minimum maximum".split()
CLASSES = "isnan isinf isfinite signbit".split()
COUNTS = "popcount clz ctz".split()
NEAR = {name: f"vm::{name}" for name in ("sin_near", "cos_near", "tan_near", "exp_near")}


@dataclass(frozen=True, slots=True)
class Row:
    """One overload: C++ type names of its arguments and its result."""

    name: str
    arguments: tuple[str, ...]
    result: str

    @property
    def symbol(self) -> str:
        return f"km_{self.name}_{self.arguments[0]}"

    @property
    def call(self) -> str:
        return NEAR.get(self.name, self.name)

    def scalar(self) -> str:
        given = ", ".join(f"{t} a{i}" for i, t in enumerate(self.arguments))
        passed = ", ".join(f"a{i}" for i in range(len(self.arguments)))
        return f"KM_EXPORT {self.result} {self.symbol}({given}) {{ return {self.call}({passed}); }}"

    def array(self) -> str:
        given = "".join(f", const {t}* KM_R a{i}" for i, t in enumerate(self.arguments))
        passed = ", ".join(f"a{i}[i]" for i in range(len(self.arguments)))
        return (
            f"KM_EXPORT void {self.symbol}_array(i64 n, {self.result}* KM_R out{given}) {{ "
            f"for (i64 i = 0; i < n; ++i) out[i] = {self.call}({passed}); }}"
        )


def rows() -> list[Row]:
    table = []
    for t in FLOATS:
        table += [Row(name, (t,), t) for name in UNARY]
        table += [Row(name, (t,), t) for name in NEAR]
        table += [Row(name, (t, t), t) for name in BINARY]
        table += [Row(name, (t,), "bool") for name in CLASSES]
        table += [Row("fma", (t, t, t), t), Row("ldexp", (t, "i32"), t)]
        table += [Row("frexp_exponent", (t,), "i32")]
    table += [Row(name, (t,), "i32") for name in COUNTS for t in INTEGERS]
    return table


ROWS = {row.symbol: row for row in rows()}


def source(*, arrays: bool) -> str:
    lines = ['#include "vmath.hpp"', "using namespace km;"]
    lines += [row.array() if arrays else row.scalar() for row in ROWS.values()]
    return "\n".join([*lines, ""])


def build(
    folder: Path,
    *,
    arrays: bool,
    compiler: HostCompiler | None = None,
    march: str = "native",
    extra: tuple[str, ...] = (),
) -> ctypes.CDLL:
    """Compile the entry points into `folder`, with no warning about them, and load them."""
    chosen = compiler or find_host_compiler()
    made = compile_shared(
        source(arrays=arrays),
        folder / f"vmath-{chosen.kind}-{march}-{len(list(folder.iterdir()))}.so",
        compiler=chosen,
        march=march,
        include_dirs=(HOST,),
        extra=extra,
        timeout=600,
    )
    assert re.search(r"vmath\w*\.hpp:\d+:\d+:", made.log) is None, made.log[:4000]
    return ctypes.CDLL(str(made.path))


@cache
def scalar_library() -> ctypes.CDLL:
    """Compile the scalar entry points once per process."""
    with tempfile.TemporaryDirectory(prefix="kernelmill-intrinsics-") as folder:
        return build(Path(folder), arrays=False, extra=("-O1",))


@cache
def scalar_function(symbol: str):
    row = ROWS[symbol]
    function = getattr(scalar_library(), symbol)
    function.argtypes = [np.ctypeslib.as_ctypes_type(TYPES[t]) for t in row.arguments]
    function.restype = np.ctypeslib.as_ctypes_type(TYPES[row.result])
    return function


def intrinsic(name: str, *values: np.generic) -> np.generic:
    """Call an intrinsic on NumPy scalars: ``intrinsic("exp", np.float32(1))`` is a float32."""
    row = ROWS[f"km_{name}_{short_name(values[0])}"]
    assert len(values) == len(row.arguments), (name, values)
    for value, wanted in zip(values, row.arguments, strict=True):
        assert short_name(value) == wanted, (name, values, row)
    found = scalar_function(row.symbol)(*(value.item() for value in values))
    return TYPES[row.result](found)


def short_name(value: np.generic) -> str:
    return next(name for name, t in TYPES.items() if type(value) is t)


def apply(library: ctypes.CDLL, name: str, *arrays: np.ndarray) -> np.ndarray:
    """Call the array loop of an intrinsic in `library` (built with ``arrays=True``)."""
    first = next(n for n, t in TYPES.items() if np.dtype(t) == arrays[0].dtype)
    row = ROWS[f"km_{name}_{first}"]
    held = [np.ascontiguousarray(a, dtype=TYPES[t]) for a, t in
            zip(arrays, row.arguments, strict=True)]  # fmt: skip
    out = np.empty(held[0].size, dtype=TYPES[row.result])
    function = getattr(library, f"{row.symbol}_array")
    function.restype = None
    function(ctypes.c_int64(out.size), out.ctypes.data_as(ctypes.c_void_p),
             *(a.ctypes.data_as(ctypes.c_void_p) for a in held))  # fmt: skip
    return out
