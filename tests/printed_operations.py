"""Each operation of the language on each type it takes: printed, compiled into one library, called.

What the values should be is not known here.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

import kernelmill
from kernelmill.compiler import ir
from kernelmill.compiler.cpp import PrintedOperator, print_program
from kernelmill.compiler.dialects import HOST
from kernelmill.compiler.intrinsics import OPERATIONS, OperationError
from kernelmill.compiler.ir_verify import verify
from kernelmill.dtypes import (
    SCALARS,
    DType,
    StructType,
    Type,
    float64,
    int32,
    int64,
    storage,
    uint64,
)
from kernelmill.toolchain import HostCompiler, compile_shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HOST_FILES = Path(kernelmill.__file__).parent / "host"
# Their bits are those of our own implementation, which has tests of its own; they take most of the
# time of a compiler, so only a few of them are compiled here, for what is around the call.
TRANSCENDENTAL = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh "
    "acosh atanh erf erfc tgamma lgamma cbrt hypot degrees radians".split()
)
INTEGERS = tuple(t for t in SCALARS if t.is_integer)
ORDER = ("lt", "le", "gt", "ge", "eq", "ne")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on one choice of types; `cast` converts its operand to `result`."""

    op: str
    types: tuple[DType, ...]
    result: Type

    def __str__(self) -> str:
        return (
            f"{self.op}({', '.join(t.short for t in self.types)}) -> {_stored(self.result).short}"
        )

    def program(self) -> ir.Program:
        params = tuple((name, t) for name, t in zip("abc", self.types, strict=False))
        args = tuple(ir.Param(i, t) for i, t in enumerate(self.types))
        value = (
            ir.Cast(args[0], self.result)
            if self.op == "cast"
            else ir.Apply(self.op, args, self.result)
        )
        return ir.Program((ir.Function(self.op, params, self.result, (), (ir.Return(value),)),))


def _stored(type_: Type) -> DType:
    found = storage(type_)
    assert isinstance(found, DType)
    return found


def operations() -> list[Operation]:
    """Every row of the table on every type, integers compared with others, all conversions."""
    found: dict[Operation, None] = {}
    for name, row in OPERATIONS.items():
        for type_ in SCALARS:
            if name in TRANSCENDENTAL and (name != "atan2" or type_.itemsize > 4):
                continue
            types = (
                (type_, *(int64,) * (row.arity - 1)) if name == "ldexp" else (type_,) * row.arity
            )
            try:
                wanted = row.signature(types)[0]
            except OperationError:
                continue
            stored = tuple(_stored(t) for t in wanted)
            if row.signature(stored)[0] == stored:
                found[Operation(name, stored, row.signature(stored)[1])] = None
    found |= dict.fromkeys(Operation("ldexp", (float64, t), float64) for t in (uint64, int32))
    found |= dict.fromkeys(mixed_comparisons())
    found |= dict.fromkeys(conversions())
    return list(found)


def mixed_comparisons() -> Iterable[Operation]:
    bool_ = SCALARS[0]
    for a in INTEGERS:
        for b in INTEGERS:
            if a == b:
                continue
            full = {a.bits, b.bits} <= {32, 64} and a.kind != b.kind
            for op in ORDER if full else ("lt", "eq"):
                yield Operation(op, (a, b), bool_)


def conversions() -> Iterable[Operation]:
    for a in SCALARS:
        for b in SCALARS:
            if a != b and (a.kind != "complex" or b.kind in ("complex", "bool")):
                yield Operation("cast", (a,), b)


# ----------------------------------------------------------------------------- libraries


def numpy_of(type_: Type) -> np.dtype[Any]:
    stored = storage(type_)
    assert isinstance(stored, (DType, StructType))
    if isinstance(stored, DType) and stored.name == "bfloat16":
        return np.dtype(ml_dtypes.bfloat16)
    return stored.to_numpy()


def text_of(printed: Sequence[PrintedOperator]) -> str:
    """One translation unit: the operators, and `kernelN` around each; its loop is marked."""
    includes = dict.fromkeys(file for operator in printed for file in operator.includes)
    parts = [f'#include "{file}"\n' for file in includes]
    for index, operator in enumerate(printed):
        result, params = operator.result_spelling, operator.parameter_spellings
        at = "km::element<{0}>::{1}(a{2} + i * sizeof({0})".format
        loads = ", ".join(f"{at(t, 'load', i)})" for i, t in enumerate(params))
        parts += [
            f"{operator.text}\n",
            f"KM_EXPORT void kernel{index}(char* const* p, long n, const void* captures) {{\n",
            f"  const km::{operator.name} op(captures);\n",
            *(f"  char* KM_R a{i} = p[{i}];\n" for i in range(len(params) + 1)),
            f"  KM_IVDEP for (long i = 0; i < n; ++i) {{  // loop {index}\n",
            f"    {at(result, 'store', len(params))}, op({loads}));\n  }}\n}}\n",
        ]
    return "".join(parts)


def compile_text(
    text: str, out: Path, compiler: HostCompiler, march: str = "native", extra: Sequence[str] = ()
) -> str:
    """Compile to `out`; return what the compiler said."""
    made = compile_shared(
        text, out, compiler=compiler, march=march, include_dirs=(HOST_FILES,), extra=extra,
        timeout=600,
    )  # fmt: skip
    return made.log


# A warning about the printed text or about the files that belong to it.
_OUR_WARNING = r"^\S*(operators\.cpp|scalar\.hpp|complex\w*\.hpp|remainder\.hpp):\d+.*warning:"


class Library:
    """Compiled operators, called on arrays of elements."""

    def __init__(self, path: Path, results: Sequence[Type]) -> None:
        self._library = ctypes.CDLL(str(path))
        self._results = results

    def __call__(
        self, index: int, args: Sequence[np.ndarray[Any, Any]], captures: bytes = b""
    ) -> Any:
        """Return the array of results; arguments are contiguous arrays of one length."""
        count = len(args[0])
        type_ = self._results[index]
        out = np.full(count * numpy_of(type_).itemsize, 0xA5, np.uint8).view(numpy_of(type_))
        pointers = (ctypes.c_void_p * (len(args) + 1))(*(a.ctypes.data for a in (*args, out)))
        self._library[f"kernel{index}"](pointers, ctypes.c_long(count), captures)
        return out


def build(
    programs: Sequence[ir.Program],
    folder: Path,
    compiler: HostCompiler,
    march: str = "native",
    extra: Sequence[str] = (),
) -> Library:
    """Verify, print and compile programs into one library."""
    for program in programs:
        verify(program)
    printed = [print_program(p, HOST, name=f"Op{i}") for i, p in enumerate(programs)]
    out = folder / "operators.so"
    log = compile_text(text_of(printed), out, compiler, march, ("-Wall", "-Wextra", *extra))
    if compiler.kind == "gcc":
        assert not re.search(_OUR_WARNING, log, re.MULTILINE), log
    return Library(out, [p.entry.result for p in programs])


# ----------------------------------------------------------------------------- elements

_INTEGERS = (0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 65, 100)
_FLOATS = (
    0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 0.1, 1e-8, 127.5, 255.9, 65504.0, 65520.0, 2.0**24 + 2, 2.0**31,
    2.0**31 - 0.5, 2.0**32, 2.0**53 + 2, 2.0**63, 2.0**64, 1e300, 5e-324, 2.0**-149, 2.0**-24,
    np.inf,
)  # fmt: skip


def special_values(type_: DType, *, few: bool = False) -> np.ndarray[Any, Any]:
    """Values at which operations change their ways, and some in between."""
    dtype = numpy_of(type_)
    if type_.kind == "bool":
        return np.array([False, True])
    if type_.is_integer:
        near = [n for n in _INTEGERS if n <= type_.max]
        near += [type_.max, type_.max - 1, type_.max // 2, type_.max // 2 + 1]
        near += [type_.min, type_.min + 1]
        if type_.min < 0:
            near += [-1, -2, -3, -7, -8, -64, -100, type_.min // 2]
        return np.array(sorted(set(near)), dtype)
    if type_.kind == "complex":
        parts = special_values(type_.real, few=True)
        return np.array([(a, b) for a in parts for b in parts], parts.dtype).view(dtype)[:, 0]
    with np.errstate(over="ignore"):
        made = np.array(_FLOATS[:: 4 if few else 1]).astype(dtype)
    limits = [np.nan] if few else [np.nan, float(ml_dtypes.finfo(dtype).max)]
    return np.unique(
        np.concatenate([made, -made, np.array(limits, dtype)]).view(f"u{type_.itemsize}")
    ).view(dtype)


def random_values(type_: DType, count: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Bit patterns, half of them of small magnitude, where arithmetic is not all overflow."""
    dtype = numpy_of(type_)
    if type_.kind == "bool":
        return rng.integers(0, 2, count).astype(dtype)
    patterns = rng.integers(0, 256, (count, dtype.itemsize), np.uint8).view(dtype)[:, 0]
    parts = np.array(rng.normal(size=(count, 2)) * 30, np.float32)
    if type_.kind == "complex":
        small = parts.astype(numpy_of(type_.real)).view(dtype)[:, 0]
    elif type_.kind == "uint":
        small = abs(parts[:, 0]).astype(dtype)
    else:
        small = parts[:, 0].astype(dtype)
    return np.where(rng.integers(0, 2, count) == 1, patterns, small)


def operands(operation: Operation, seed: int, extra: int) -> list[np.ndarray[Any, Any]]:
    """All combinations of special values (a sample of them for three operands), and random ones."""
    rng = np.random.default_rng(seed)
    few = len(operation.types) == 3
    axes = [special_values(t, few=few) for t in operation.types]
    grid = [g.ravel() for g in np.meshgrid(*(np.arange(len(a)) for a in axes), indexing="ij")]
    return [
        np.concatenate([axis[index], random_values(type_, extra, rng)])
        for axis, index, type_ in zip(axes, grid, operation.types, strict=True)
    ]
