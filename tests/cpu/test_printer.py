"""Printed operations against the table of the language: values, other builds, faults, vectors."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import oracle
import printed_operations as printed
from kernelmill.compiler import ir
from kernelmill.compiler.builder import FunctionBuilder
from kernelmill.compiler.cpp import print_program
from kernelmill.compiler.dialects import HOST
from kernelmill.dtypes import (
    DType,
    StructType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    storage,
    uint8,
    uint16,
    uint32,
    uint64,
)
from kernelmill.structs import struct
from kernelmill.toolchain import (
    HostCompiler,
    compile_flags,
    find_host_compiler,
    survey_host_compilers,
)
from operation_values import BY_NAME, INDEX, OPERATIONS, check

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RANDOM = 100
NAN, INF = math.nan, math.inf


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> printed.Library:
    """All operations, as the default compiler makes them for this processor."""
    folder = tmp_path_factory.mktemp("operations")
    return printed.build([o.program() for o in OPERATIONS], folder, find_host_compiler())


# ----------------------------------------------------------------------------- values


@pytest.mark.parametrize("name", BY_NAME)
def test_an_operation_is_what_the_language_says(native: printed.Library, name: str):
    check(name, RANDOM, lambda index, args, _: native(index, args))


MIN8, MIN64 = -(2**7), -(2**63)
# Rows of docs/reference/operator-language.md, worked out by hand; independent of all our code.
TABLE: list[tuple[str, tuple[DType, ...], tuple[Any, ...], Any]] = [
    ("add", (int8, int8), (127, 1), -128),
    ("add", (bool_, bool_), (True, True), True),
    ("mul", (bool_, bool_), (True, False), False),
    ("mul", (uint16, uint16), (65535, 65535), 1),
    ("mul", (int64, int64), (2**32, 2**31), MIN64),
    ("neg", (int8,), (MIN8,), MIN8),
    ("neg", (uint8,), (1,), 255),
    ("abs", (int64,), (MIN64,), MIN64),
    ("floordiv", (int8, int8), (MIN8, -1), MIN8),
    ("floordiv", (int32, int32), (-7, 2), -4),
    ("floordiv", (int32, int32), (7, -2), -4),
    ("floordiv", (int64, int64), (5, 0), 0),
    ("mod", (int32, int32), (-7, 2), 1),
    ("mod", (int32, int32), (7, -2), -1),
    ("mod", (int8, int8), (MIN8, -1), 0),
    ("mod", (uint8, uint8), (7, 0), 0),
    ("fmod", (int32, int32), (-7, 2), -1),
    ("fmod", (int64, int64), (MIN64, -1), 0),
    ("floordiv", (float32, float32), (-0.0, 3.0), -0.0),
    ("floordiv", (float32, float32), (-1.0, INF), -1.0),
    ("floordiv", (float64, float64), (1.0, 0.0), INF),
    ("floordiv", (float64, float64), (1.0, 0.1), 9.0),
    ("mod", (float64, float64), (-1.0, INF), INF),
    ("mod", (float64, float64), (3.0, -3.0), -0.0),
    ("mod", (float64, float64), (1.0, 0.0), NAN),
    ("mod", (float16, float16), (-1.0, 65504.0), 65504.0),
    ("fmod", (float64, float64), (1e300, 5e-324), 0.0),
    ("fmod", (float64, float64), (1.7e308, 3e-308), math.fmod(1.7e308, 3e-308)),
    ("fmod", (float32, float32), (-5.5, 2.0), -1.5),
    ("pow", (int8, int8), (3, 5), -13),
    ("pow", (int32, int32), (1, -1), 0),
    ("pow", (int64, int64), (0, 0), 1),
    ("pow", (uint64, uint64), (3, 2**63), pow(3, 2**63, 2**64)),
    ("lshift", (int32, int32), (1, 31), -(2**31)),
    ("lshift", (int32, int32), (1, 32), 0),
    ("lshift", (int8, int8), (1, -1), 0),
    ("rshift", (int8, int8), (-1, 100), -1),
    ("rshift", (int64, int64), (-5, -1), -1),
    ("rshift", (uint64, uint64), (2**63, 63), 1),
    ("rshift", (uint64, uint64), (2**63, 64), 0),
    ("invert", (bool_,), (True,), False),
    ("invert", (uint8,), (0,), 255),
    ("popcount", (int8,), (-1,), 8),
    ("popcount", (bool_,), (True,), 1),
    ("clz", (int16,), (0,), 16),
    ("clz", (int64,), (-1,), 0),
    ("clz", (bool_,), (True,), 7),
    ("ctz", (uint32,), (0,), 32),
    ("ctz", (int64,), (MIN64,), 63),
    ("lt", (int8, uint64), (-1, 0), True),
    ("lt", (int64, uint64), (2**62, 2**63), True),
    ("ge", (uint64, int64), (2**63, MIN64), True),
    ("eq", (int32, uint32), (-1, 2**32 - 1), False),
    ("eq", (int8, uint8), (-1, 255), False),
    ("lt", (int16, uint8), (-1, 255), True),
    ("lt", (float64, float64), (NAN, 1.0), False),
    ("ne", (float32, float32), (NAN, NAN), True),
    ("lt", (complex64, complex64), (1 + 2j, 1 + 3j), True),
    ("lt", (complex64, complex64), (complex(1, NAN), 2 + 0j), False),
    ("le", (complex128, complex128), (1 + 1j, 1 + 1j), True),
    ("truth", (float64,), (NAN,), True),
    ("truth", (float16,), (-0.0,), False),
    ("truth", (complex64,), (1j,), True),
    ("not", (float32,), (0.0,), True),
    ("min", (float64, float64), (1.0, NAN), 1.0),
    ("min", (float64, float64), (NAN, 1.0), NAN),
    ("min", (float64, float64), (0.0, -0.0), 0.0),
    ("max", (float64, float64), (1.0, NAN), 1.0),
    ("minimum", (float64, float64), (1.0, NAN), NAN),
    ("minimum", (float32, float32), (0.0, -0.0), -0.0),
    ("maximum", (float32, float32), (NAN, 1.0), NAN),
    ("fmin", (float64, float64), (NAN, 1.0), 1.0),
    ("fmin", (float64, float64), (0.0, -0.0), 0.0),
    ("fmax", (float64, float64), (1.0, NAN), 1.0),
    ("fmax", (float64, float64), (-0.0, 0.0), -0.0),
    ("sign", (float64,), (-0.0,), 0.0),
    ("sign", (float32,), (NAN,), NAN),
    ("rint", (float64,), (2.5,), 2.0),
    ("rint", (float32,), (-0.3,), -0.0),
    ("round", (float64,), (2.5,), 2),
    ("round", (uint64,), (2**64 - 1,), -1),
    ("int", (float32,), (-1.9,), -1),
    ("int", (float64,), (NAN,), MIN64),
    ("int", (float64,), (2.0**63,), MIN64),
    ("imag", (uint8,), (7,), 0),
    ("conj", (complex64,), (1 + 0j,), complex(1, -0.0)),
    ("truediv", (complex128, complex128), (1 + 1j, 0j), complex(INF, INF)),
    ("ldexp", (float64, int64), (5e-324, 2**40), INF),
    ("ldexp", (float64, int64), (0.75, -1074), 5e-324),
    ("ldexp", (float16, int64), (1.0, -25), 0.0),
    ("frexp_mantissa", (float32,), (2.0**-149,), 0.5),
    ("frexp_exponent", (float32,), (2.0**-149,), -148),
    ("frexp_exponent", (float64,), (INF,), 0),
    ("fma", (float64,) * 3, (1 + 2**-52, 1 - 2**-52, -1.0), -(2.0**-104)),
    ("square", (int8,), (16,), 0),
    ("add", (float16, float16), (2048.0, 1.0), 2048.0),
    ("add", (bfloat16, bfloat16), (256.0, 1.0), 256.0),
    ("truediv", (float16, float16), (1.0, 3.0), float(np.float16(1 / 3))),
]
CONVERSIONS: list[tuple[DType, Any, DType, Any]] = [
    (float64, NAN, int32, -(2**31)),
    (float64, -INF, int64, MIN64),
    (float64, 2147483647.9, int32, 2147483647),
    (float64, -2147483648.9, int32, -(2**31)),
    (float64, 300.7, int8, 44),
    (float64, 300.7, uint8, 44),
    (float64, 1e10, uint8, 0),
    (float64, -1.0, uint32, 2**32 - 1),
    (float64, 4294967295.5, uint32, 2**32 - 1),
    (float64, -1.0, uint64, 2**64 - 1),
    (float64, 2.0**63 + 2048, uint64, 2**63 + 2048),
    (float64, 2.0**64, uint64, 2**63),
    (float64, 1.0 + 2.0**-11 + 2.0**-40, float16, 1 + 2.0**-10),  # twice rounded it would be 1
    (float64, 65520.0, float16, INF),
    (float64, 65519.9, float16, 65504.0),
    (float64, 1.0 + 2.0**-8 + 2.0**-40, bfloat16, 1.0),  # by way of float32, as the table says
    (int64, 2**53 + 1, float64, 2.0**53),
    (int64, 2**24 + 1, float32, 2.0**24),
    (uint64, 2**64 - 1, float32, 2.0**64),
    (int32, 2049, float16, 2048.0),
    (int64, 10**6, float16, INF),
    (int64, -1, uint8, 255),
    (uint16, 0x8001, int8, 1),
    (float16, NAN, bool_, True),
    (complex64, 2j, bool_, True),
    (float64, -0.0, complex64, complex(-0.0, 0.0)),
    (complex128, complex(0.1, -0.0), complex64, complex(float(np.float32(0.1)), -0.0)),
]


def element(value: Any, type_: DType) -> np.ndarray[Any, Any]:
    return np.array([value], printed.numpy_of(type_))


@pytest.mark.parametrize(("op", "types", "args", "wanted"), TABLE)
def test_a_row_of_the_table(native: printed.Library, op: str, types: Any, args: Any, wanted: Any):
    operation = next(o for o in BY_NAME[op] if o.types == types)
    given = [element(a, t) for a, t in zip(args, types, strict=True)]
    got = native(INDEX[operation], given)
    assert oracle.same_bits(got[0], element(wanted, storage(operation.result))[0]), got[0]


@pytest.mark.parametrize(("found", "value", "wanted", "result"), CONVERSIONS)
def test_a_row_of_the_conversions(
    native: printed.Library, found: DType, value: Any, wanted: DType, result: Any
):
    operation = printed.Operation("cast", (found,), wanted)
    got = native(INDEX[operation], [element(value, found)])
    assert oracle.same_bits(got[0], element(result, wanted)[0]), got[0]


def test_every_float16_survives_the_way_through_wider_types(native: printed.Library):
    for half, dtype in ((float16, np.float16), (bfloat16, ml_dtypes.bfloat16)):
        values = np.arange(65536, dtype=np.uint16).view(dtype)
        for wide in (float32, float64):
            wider = native(INDEX[printed.Operation("cast", (half,), wide)], [values])
            with np.errstate(invalid="ignore"):
                assert np.array_equal(wider, values.astype(wider.dtype), equal_nan=True)
            back = native(INDEX[printed.Operation("cast", (wide,), half)], [wider])
            same = (back.view(np.uint16) == values.view(np.uint16)) | np.isnan(wider)
            assert same.all()
            assert np.isnan(back.astype(np.float32)[np.isnan(wider)]).all()


def test_float64_rounds_once_to_float16_at_every_tie(native: printed.Library):
    halves = np.arange(0x7BFF, dtype=np.uint16).view(np.float16).astype(np.float64)
    above = np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    ties = (halves + above) / 2
    values = np.concatenate([np.nextafter(ties, 0), ties, np.nextafter(ties, np.inf)])
    got = native(INDEX[printed.Operation("cast", (float64,), float16)], [values])
    low = np.arange(0x7BFF, dtype=np.uint16)
    wanted = np.concatenate([low, low + (low & 1), low + 1])
    assert np.array_equal(got.view(np.uint16), wanted)


# ----------------------------------------------------------------------------- other builds


def compilers(kind: str) -> list[HostCompiler]:
    found = [c for c in survey_host_compilers() if isinstance(c, HostCompiler)]
    return [c for c in found if c.kind == kind][:1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "march"),
    [("gcc", "x86-64-v2"), ("gcc", "x86-64-v3"), ("clang", "native"), ("clang", "x86-64-v2")],
)
def test_other_builds_give_the_same_bits(
    native: printed.Library, tmp_path: Path, kind: str, march: str
):
    if not (found := compilers(kind)):
        pytest.skip(f"no {kind} here")
    other = printed.build([o.program() for o in OPERATIONS], tmp_path, found[0], march)
    for operation in OPERATIONS:
        args = printed.operands(operation, INDEX[operation], 2000)
        one, two = native(INDEX[operation], args), other(INDEX[operation], args)
        assert canonical(one) == canonical(two), str(operation)


def canonical(array: np.ndarray[Any, Any]) -> bytes:
    """The bytes of an array in which all NaNs are one."""
    if array.dtype.kind == "c":
        array = array.view(array.real.dtype)
    if array.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):
            array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return array.tobytes()


UNDEFINED = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import printed_operations as printed
operations = printed.operations()
library = printed.Library(Path({path!r}), [o.result for o in operations])
for i, operation in enumerate(operations):
    print(operation, file=sys.stderr, flush=True)
    library(i, printed.operands(operation, i, 50))
"""


def test_no_operation_has_undefined_behaviour(tmp_path: Path):
    if not (found := compilers("gcc")):
        pytest.skip("no g++ here")
    flags = ("-O1", "-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all")
    programs = [print_program(o.program(), HOST, name=f"Op{i}") for i, o in enumerate(OPERATIONS)]
    path = tmp_path / "undefined.so"
    printed.compile_text(printed.text_of(programs), path, found[0], "native", flags)
    script = UNDEFINED.format(tests=os.path.dirname(printed.__file__), path=str(path))  # noqa: PTH120
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]


# ----------------------------------------------------------------------------- headers


def test_the_named_files_are_all_an_operation_needs(tmp_path: Path):
    """One translation unit for each set of files: nothing is found by luck."""
    if not (found := compilers("gcc")):
        pytest.skip("no g++ here")
    groups: dict[tuple[str, ...], list[Any]] = {}
    for i, operation in enumerate(OPERATIONS):
        made = print_program(operation.program(), HOST, name=f"Op{i}")
        groups.setdefault(made.includes, []).append(made)
    assert ("base.hpp",) in groups, "the arithmetic of floats needs no file"
    for number, operators in enumerate(groups.values()):
        out = tmp_path / f"group{number}.so"
        printed.compile_text(printed.text_of(operators), out, found[0], "native", ("-O0",))


# ----------------------------------------------------------------------------- neighbours


@struct
class Pair:
    low: float64
    high: float64


def products(type_: DType) -> ir.Program:
    """(a * b - c, a * b + c): what g++ 12 makes one vfmaddsub of when it is not held back."""
    f = FunctionBuilder("products", [(n, type_) for n in "abc"])
    product = f.apply("mul", f.param(0), f.param(1))
    items = [f.apply("sub", product, f.param(2)), f.apply("add", product, f.param(2))]
    pair = Pair.__kernelmill_struct__
    f.return_(f.make_struct(pair, items))
    return ir.Program((f.finish(),))


@pytest.mark.parametrize("type_", [float32, float64])
def test_neighbouring_results_are_rounded_one_by_one(tmp_path: Path, type_: DType):
    library = printed.build([products(type_)], tmp_path, find_host_compiler())
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=1000).astype(printed.numpy_of(type_)) for _ in range(3))
    got = library(0, [a, b, c])
    assert np.array_equal(got["low"], (a * b - c).astype(np.float64))
    assert np.array_equal(got["high"], (a * b + c).astype(np.float64))


# ----------------------------------------------------------------------------- vectors


@cache
def vector_cases() -> dict[str, ir.Program]:
    """Loops that g++ has to vectorise; 64-bit division, remainders of floats and `**` need not."""
    ops = {
        "add": (int8, uint16, int32, int64, float16, bfloat16, float32, complex64, complex128),
        "sub": (int8, float16, complex64), "mul": (int8, int64, float16, float32, complex64),
        "truediv": (float16, float32, float64, complex64), "abs": (int8, int64, float16),
        "floordiv": (int8, int16, int32, uint8, uint32), "mod": (int8, int32, uint16),
        "lshift": (int32, uint64), "rshift": (int8, int64), "sign": (int32, float32),
        "min": (float16, float32, int8, complex64), "max": (bfloat16, float64, uint64),
        "minimum": (float16, float32, float64), "fmax": (float32,), "sqrt": (float16, float64),
        "floor": (float32,), "rint": (float64,), "fma": (float32,), "isnan": (float16, float64),
        "lt": (int8, float16, float32, float64, complex64), "eq": (uint8, float32), "not": (int8,),
    }  # fmt: skip
    made = {}
    for name, types in ops.items():
        for row in BY_NAME[name]:
            if row.types[0] in types and len(set(row.types)) == 1:
                made[str(row)] = row.program()
    for row in BY_NAME["lt"]:
        if row.types in ((int8, uint8), (int32, uint32), (int64, uint64), (int16, uint64)):
            made[str(row)] = row.program()
    for row in BY_NAME["cast"]:
        if row.types[0].kind != "complex":
            made[str(row)] = row.program()
    return {**made, **dict(composed())}


def composed() -> Iterator[tuple[str, ir.Program]]:
    for t in (float16, float32, float64, int32):
        f = FunctionBuilder("composed", [("a", t), ("b", t), ("c", t)])
        a, b, c = (f.param(i) for i in range(3))
        less, more = f.apply("lt", a, b), f.apply("gt", c, f.const(0))
        both = f.select(less, more, f.const(value=False))
        either = f.select(less, f.const(value=True), more)
        for name, value in {
            "a + b * c": f.apply("add", a, f.apply("mul", b, c)),
            "where(a < b, b, c)": f.select(less, b, c),
            "a < b and c > 0": both,
            "a < b or c > 0": either,
            "(a + b if a < b and c > 0 else c * 2)": f.select(
                both, f.apply("add", a, b), f.apply("mul", c, f.const(2))
            ),
        }.items():
            g = FunctionBuilder("composed", f.params)
            g.return_(value)
            yield f"{name} of {t}", ir.Program((g.finish(),))


def vectorised(march: str, folder: Path) -> set[str]:
    """The cases whose loop g++ reports as vectorised; the library is not run."""
    cases = vector_cases()
    operators = [print_program(p, HOST, name=f"Op{i}") for i, p in enumerate(cases.values())]
    text = printed.text_of(operators)
    (folder / "loops.cpp").write_text(text)
    loops = {}
    for number, line in enumerate(text.split("\n"), 1):
        if mark := re.search(r"// loop (\d+)", line):
            loops[number] = list(cases)[int(mark[1])]
    (compiler,) = compilers("gcc")
    flags = compile_flags("gcc", march)
    command = [*compiler.command, *flags, "-fopt-info-vec", "-fno-ipa-icf", "-S", "-o", os.devnull]
    ran = subprocess.run(
        [*command, f"-I{printed.HOST_FILES}", "loops.cpp"],
        cwd=folder, capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    places = re.findall(r"loops\.cpp:(\d+):\d+: optimized: loop vectorized", ran.stderr)
    return {loops[int(line)] for line in places}


@pytest.mark.parametrize(
    ("march", "known"),
    [
        ("x86-64-v4", r"$^"),
        # AVX2 converts no 64-bit integers
        ("x86-64-v3", r"cast\((i64|u64)\) -> \w*[fc]|cast\(\w+\) -> (i64|u64|u32)$"),
    ],
)
def test_loops_around_operators_vectorise(tmp_path: Path, march: str, known: str):
    if not compilers("gcc") or os.uname().machine != "x86_64":
        pytest.skip("g++ on x86-64 reports what it vectorises")
    missing = set(vector_cases()) - vectorised(march, tmp_path)
    assert {case for case in missing if not re.search(known, case)} == set()


def test_structs_are_chosen_between_without_a_branch():
    pair = Pair.__kernelmill_struct__
    assert isinstance(pair, StructType)
    f = FunctionBuilder("smaller", [("a", pair), ("b", pair)])
    a, b = f.param(0), f.param(1)
    f.return_(f.select(f.apply("lt", f.field(a, "low"), f.field(b, "low")), a, b))
    text = print_program(ir.Program((f.finish(),)), HOST).text
    assert "return choose(a_.low < b_.low, a_, b_);" in text
