"""Types: promotion against NumPy and torch, layout against NumPy and C++, and what is refused."""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill import dtypes
from kernelmill.compiler.cpp_types import field_names, type_definitions, type_spelling
from kernelmill.compiler.dialects import HOST
from kernelmill.dtypes import (
    SCALARS,
    DType,
    StructType,
    TupleType,
    WeakType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    dtype_of,
    float16,
    float32,
    float64,
    int8,
    int64,
    promote,
    storage,
    uint8,
    weak_complex,
    weak_float,
    weak_int,
)
from kernelmill.errors import DTypeError
from kernelmill.runtime.program import HOST_TEMPLATES
from kernelmill.structs import struct
from kernelmill.toolchain import compile_shared, find_host_compiler

if TYPE_CHECKING:
    from pathlib import Path

PAIRS = list(itertools.product(SCALARS, SCALARS))
WEAK = {weak_int: 1, weak_float: 1.5, weak_complex: 1j}
WEAK_PAIRS = list(itertools.product(SCALARS, WEAK))


def numpy_of(type_: DType) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if type_ == bfloat16 else np.dtype(type_.name)


def torch_of(type_: DType) -> torch.dtype:
    return getattr(torch, type_.name)


def ours(a: Any, b: Any, table: Any = "numpy") -> DType | None:
    try:
        return promote(a, b, table=table)
    except DTypeError:
        return None


# ----------------------------------------------------------------------------- promotion


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_two_types_promote_as_in_numpy(a: DType, b: DType):
    try:
        wanted = dtype_of(np.promote_types(numpy_of(a), numpy_of(b)))
    except TypeError:
        wanted = None
    assert ours(a, b) == wanted


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_two_types_promote_as_in_torch(a: DType, b: DType):
    try:
        wanted = dtype_of(torch.promote_types(torch_of(a), torch_of(b)))
    except RuntimeError:
        wanted = None
    if a == b:
        wanted = a
    assert ours(a, b, "torch") == wanted


@pytest.mark.parametrize(("strong", "weak"), WEAK_PAIRS)
def test_python_scalars_are_weak_as_in_numpy(strong: DType, weak: WeakType):
    one = np.ones(1, numpy_of(strong))
    wanted = dtype_of((one + WEAK[weak]).dtype)
    if (strong, weak) == (bfloat16, weak_float):  # ml_dtypes knows no weak floats
        wanted = bfloat16
    assert promote(strong, weak) == promote(weak, strong) == wanted


@pytest.mark.parametrize(("strong", "weak"), WEAK_PAIRS)
def test_python_scalars_are_weak_as_in_torch(strong: DType, weak: WeakType):
    found = torch.result_type(torch.ones(1, dtype=torch_of(strong)), WEAK[weak])
    wanted = complex64 if found == torch.complex32 else dtype_of(found)  # complex32 is not served
    assert promote(strong, weak, table="torch") == wanted


def test_weak_types_among_themselves():
    order = [weak_int, weak_float, weak_complex]
    for a, b in itertools.product(order, order):
        assert promote(a, b) == order[max(order.index(a), order.index(b))]
    assert [storage(t) for t in order] == [int64, float64, complex128]
    assert storage(TupleType((weak_int, float32))) == TupleType((int64, float32))


def test_types_without_a_common_type_are_refused_in_words():
    with pytest.raises(DTypeError) as refused:
        promote(bfloat16, float16)
    assert str(refused.value) == (
        "bfloat16 and float16 have no common type\n\nhint: convert one of them, for example "
        "np.float32(x)"
    )
    pair = struct({"a": int8}).__kernelmill_struct__
    assert promote(pair, pair) == pair
    for other in (int8, weak_int, struct({"b": int8}).__kernelmill_struct__):
        assert ours(pair, other) is None


# ----------------------------------------------------------------------------- scalars


@pytest.mark.parametrize("type_", SCALARS)
def test_a_scalar_is_what_numpy_says(type_: DType):
    described = numpy_of(type_)
    assert type_.itemsize == described.itemsize
    assert type_.alignment == described.alignment
    assert type_.to_numpy() == described
    if type_.is_integer:
        assert (type_.min, type_.max) == (np.iinfo(described).min, np.iinfo(described).max)
    assert dtype_of(described) is dtype_of(described.type) is dtype_of(type_.name) is type_
    assert dtype_of(torch_of(type_)) is type_
    assert type_.real == {complex64: float32, complex128: float64}.get(type_, type_)
    assert (str(type_), repr(type_)) == (type_.name, f"kernelmill.{type_.name}")


def test_python_types_and_numpy_codes_are_understood():
    assert [dtype_of(t) for t in (bool, int, float, complex)] == [
        bool_, int64, float64, complex128,
    ]  # fmt: skip
    assert [dtype_of(t) for t in ("f4", "u1", "e", np.longlong)] == [float32, uint8, float16, int64]


REFUSED = [
    ("nonsense", "'nonsense' is not a dtype"),
    (np.dtype("O"), "dtype object is not served"),
    (np.dtype("U3"), "dtype <U3 is not served"),
    (np.dtype("M8[s]"), "dtype datetime64[s] is not served"),
    (np.longdouble, f"dtype {np.dtype(np.longdouble)} is not served"),
    (np.dtype(">i4"), "dtype >i4 has the other byte order"),
    (torch.complex32, "dtype torch.complex32 is not served"),
    (np.dtype([("a", "f4", 3)]), "subarray dtype ('<f4', (3,)) is not served"),
    (np.dtype([]), "struct Struct has no fields"),
    (np.dtype([("a b", "f4")]), "field 'a b' of struct Struct is not a Python identifier"),
    (np.dtype([("__a", "f4")]), "field '__a' of struct Struct is not a Python identifier"),
    (
        np.dtype({"names": ["a", "b"], "formats": ["f4", "f4"], "offsets": [0, 2]}),
        "field `b` of struct Struct overlaps another field",
    ),
    ({}, "struct Struct has no fields"),
    ({"a": "O"}, "dtype object is not served"),
]


@pytest.mark.parametrize(("spec", "message"), REFUSED)
def test_what_is_not_a_type_here_is_refused_in_words(spec: object, message: str):
    with pytest.raises(DTypeError) as refused:
        dtype_of(spec)
    assert refused.value.message == message


def test_struct_wants_fields():
    with pytest.raises(DTypeError) as refused:
        struct(np.float32)
    assert refused.value.message.startswith("struct() expects a class, a structured dtype")
    assert refused.value.hint


# ----------------------------------------------------------------------------- structs

names = st.lists(
    st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True), min_size=1, max_size=6, unique=True
)
scalars = st.sampled_from([t for t in SCALARS if t != bfloat16])


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[StructType]:
    field = st.one_of(scalars, inner)
    return names.flatmap(
        lambda keys: st.tuples(*[field] * len(keys)).map(
            lambda types: dtype_of(dict(zip(keys, types, strict=True)))
        )
    )


structs = nested(nested(nested(scalars)))


def aligned(type_: DType | StructType) -> np.dtype[Any]:
    """The dtype that NumPy itself lays out."""
    if isinstance(type_, DType):
        return type_.to_numpy()
    return np.dtype([(f.name, aligned(f.type)) for f in type_.fields], align=True)


def packed(type_: DType | StructType) -> np.dtype[Any]:
    if isinstance(type_, DType):
        return type_.to_numpy()
    return np.dtype([(f.name, packed(f.type)) for f in type_.fields])


@given(structs)
@settings(max_examples=100)
def test_a_struct_is_laid_out_as_numpy_aligns_it(type_: StructType):
    wanted = aligned(type_)
    assert type_.to_numpy().fields.keys() == wanted.fields.keys()
    assert [f.offset for f in type_.fields] == [wanted.fields[f.name][1] for f in type_.fields]
    assert (type_.itemsize, type_.alignment) == (wanted.itemsize, wanted.alignment)
    assert type_.is_c_layout
    assert dtype_of(wanted) == type_


@given(structs)
@settings(max_examples=100)
def test_a_packed_dtype_keeps_its_offsets(type_: StructType):
    described = packed(type_)
    found = dtype_of(described)
    assert isinstance(found, StructType)
    assert found.to_numpy() == described
    assert found.itemsize == described.itemsize
    assert [f.offset for f in found.fields] == [described.fields[f.name][1] for f in found.fields]
    assert dtype_of(found.to_numpy()) == found


def layouts() -> list[StructType]:
    """A fixed sample of random structs, natural, packed, and with gaps."""
    rng = np.random.default_rng(11)
    made: list[StructType] = []
    for _ in range(120):
        pool = [*(t for t in SCALARS if t != bfloat16), *made[-3:]]
        fields = [(f"f{i}", pool[rng.integers(len(pool))]) for i in range(rng.integers(1, 6))]
        natural = dtype_of(dict(fields))
        assert isinstance(natural, StructType)
        tight, offset, offsets = packed(natural), 0, []
        for _, type_ in fields:
            offset += int(rng.integers(0, 4))
            offsets.append(offset)
            offset += type_.itemsize
        gaps = np.dtype(
            {"names": [n for n, _ in fields], "formats": [t.to_numpy() for _, t in fields],
             "offsets": offsets, "itemsize": offset + int(rng.integers(0, 4))}
        )  # fmt: skip
        made += [natural, *(dtype_of(d) for d in (tight, gaps))]  # type: ignore[list-item]
    return made


def test_a_struct_is_laid_out_as_the_compiler_does(tmp_path: Path):
    made = layouts()
    rows, wanted = [], []
    for type_ in made:
        spelled, members = type_spelling(type_, qualified=True), field_names(type_)
        rows.append(f"sizeof({spelled})")
        wanted.append(type_.itemsize)
        for field in type_.fields:
            rows.append(f"__builtin_offsetof({spelled}, {members[field.name]})")
            wanted.append(field.offset)
    text = (
        f'#include "base.hpp"\nnamespace km {{\n{type_definitions(made, HOST)}}}\n'
        f"KM_EXPORT const km::i64 layout[] = {{{', '.join(rows)}}};\n"
    )
    out = tmp_path / "layout.so"
    compile_shared(
        text, out, compiler=find_host_compiler(), march="native", include_dirs=(HOST_TEMPLATES,)
    )
    found = (ctypes.c_int64 * len(wanted)).in_dll(ctypes.CDLL(str(out)), "layout")
    assert list(found) == wanted
    assert sum(t.is_c_layout for t in made) < len(made), "packed ones are among them"


def test_a_struct_class_makes_frozen_records():
    @struct
    class Pixel:
        """A pixel."""

        r: uint8
        w: float16

    record = Pixel(3, 0.1)
    assert (record.r, record.w) == (np.uint8(3), np.float16(0.1))
    assert type(record.r) is np.uint8
    assert Pixel.__doc__ == "A pixel."
    assert Pixel.dtype == np.dtype([("r", "u1"), ("w", "f2")], align=True)
    assert dtype_of(Pixel) is Pixel.__kernelmill_struct__
    with pytest.raises(AttributeError):
        record.r = 4
    with pytest.raises(OverflowError):
        Pixel(300, 0.0)
    outer = struct({"p": Pixel, "n": int64}, name="Outer")
    assert outer.dtype.fields["n"][1] == 8
    assert str(outer.__kernelmill_struct__) == "Outer"
    assert outer.__kernelmill_struct__.field("p").type == dtype_of(Pixel)
    assert outer.__kernelmill_struct__.field("q") is None


def test_every_name_of_the_module_exists():
    assert all(hasattr(dtypes, name) for name in dtypes.__all__)
