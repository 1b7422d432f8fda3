"""The host templates: functors written by hand, bit for bit like NumPy and the documented tree."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from host_kernel import HOST, STREAM, build, call, nest, workspace_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DOCUMENT = Path(__file__).parents[2] / "docs/reference/reduction-tree.md"
C_NAME = {
    "bool": "bool", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32",
    "uint32": "u32", "int64": "i64", "uint64": "u64", "float16": "f16", "float32": "f32",
    "float64": "f64",
}  # fmt: skip


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


# ---- transform --------------------------------------------------------------------------------


def transform_text(
    inputs: Sequence[tuple[str, str]],
    outputs: Sequence[tuple[str, str]],
    body: str,
    *,
    types: str = "",
    captures: str = "",
) -> str:
    """Return a whole translation unit, in the shape that the printer generates."""
    parameters = ", ".join(f"{t} a{k}" for k, (t, _) in enumerate(inputs))
    names = [t for t, _ in outputs]
    result = names[0] if len(names) == 1 else f"km::tuple{len(names)}<{', '.join(names)}>"
    args_in = ", ".join(f"km::arg<{t}, km::{p}>" for t, p in inputs)
    args_out = ", ".join(f"km::arg<{t}, km::{p}>" for t, p in outputs)
    return f"""#include "transform.hpp"
using namespace km;
{types}
struct Captures {{ {captures} }};
struct Op {{
  Captures cap;
  KM_INL {result} operator()({parameters}) const {{ {body} }}
}};
KM_EXPORT void km_kernel(const km::Call* call) {{
  const Op op{{*(const Captures*)call->captures}};
  km::transform<Op, km::in<{args_in}>, km::out<{args_out}>>::run(call, op);
}}
"""


AFFINE = transform_text(
    [("f32", "contiguous")] * 2,
    [("f32", "contiguous")],
    "return a0 * (f32)cap.scale + a1;",
    captures="f64 scale;",
)


def affine(x: np.ndarray, y: np.ndarray, out: np.ndarray, *, threads: int = 1, flags: int = 0):
    call(
        build(AFFINE),
        (x.size,),
        [(x, (4,)), (y, (4,)), (out, (4,))],
        captures=np.array([2.5]),
        threads=threads,
        flags=flags,
    )


@pytest.mark.parametrize("n", [1, 15, 16, 17, 255, 1000, 32768, 100003])
@pytest.mark.parametrize(("threads", "flags"), [(1, 0), (3, 0), (1, STREAM), (3, STREAM)])
def test_contiguous_values_at_every_alignment_and_nothing_beside_them(n, threads, flags):
    rng = np.random.default_rng(n)
    x, y = rng.standard_normal((2, n), dtype=np.float32)
    for offset in (0, 1, 5, 15):
        whole = np.full(n + 64, -1, np.float32)
        out = whole[16 + offset : 16 + offset + n]
        affine(x, y, out, threads=threads, flags=flags)
        assert bits(out) == bits(x * np.float32(2.5) + y)
        assert (whole[: 16 + offset] == -1).all()
        assert (whole[16 + offset + n :] == -1).all()


@pytest.mark.parametrize("flags", [0, STREAM])
def test_the_output_may_be_an_input(flags):
    x = np.arange(70001, dtype=np.float32)
    y = x[::-1].copy()
    expected = x * np.float32(2.5) + y
    affine(x, y, x, threads=3, flags=flags)
    assert bits(x) == bits(expected)


def test_no_dimensions_is_one_element():
    x, y, out = (np.array(v, np.float32) for v in (3, 4, 0))
    call(build(AFFINE), (), [(x, ()), (y, ()), (out, ())], captures=np.array([2.5]))
    assert out == np.float32(11.5)


WORDS = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}


@pytest.mark.parametrize("size", WORDS)
@pytest.mark.parametrize("pattern", ["contiguous", "broadcast", "strided", "transposed"])
@pytest.mark.parametrize("flags", [0, STREAM])
def test_inner_patterns(size, pattern, flags):
    word = WORDS[size]
    dtype = np.dtype(f"u{size}")
    library = build(
        transform_text(
            [(word, "contiguous"), (word, pattern)],
            [(word, "contiguous")],
            f"return ({word})(a0 * 3u + a1);",
        )
    )
    rng = np.random.default_rng(size)
    for shape in [(2, 3, 130, 70), (1, 1, 19, 33), (5, 1, 200, 257)]:
        full = rng.integers(0, 200, shape).astype(dtype)
        other = {
            "contiguous": lambda: rng.integers(0, 200, shape).astype(dtype),
            "broadcast": lambda: np.broadcast_to(
                rng.integers(0, 200, (*shape[:3], 1)).astype(dtype), shape
            ),
            "strided": lambda: rng.integers(0, 200, (*shape[:3], shape[3] * 3)).astype(dtype)[
                ..., ::3
            ],
            "transposed": lambda: (
                rng.integers(0, 200, (*shape[:2], shape[3], shape[2])).astype(dtype).swapaxes(2, 3)
            ),
        }[pattern]()
        for threads in (1, 3):
            whole = np.zeros((*shape[:3], shape[3] + 3), dtype)
            out = whole[..., 1:-2]
            operands = [(a, a.strides) for a in (full, other, out)]
            call(library, shape, operands, threads=threads, flags=flags)
            assert (out == full * dtype.type(3) + other).all()
            whole[..., 1:-2] = 0
            assert not whole.any()


RGB = "struct __attribute__((packed)) rgb { u8 r, g, b; };"
ODD = "struct __attribute__((packed)) odd { u8 tag; f16 h; f64 d; };"


@pytest.mark.parametrize("flags", [0, STREAM])
def test_structs_and_several_outputs_of_different_sizes(flags):
    text = transform_text(
        [("rgb", "contiguous"), ("odd", "strided")],
        [("u8", "contiguous"), ("odd", "contiguous"), ("f64", "contiguous"), ("rgb", "strided")],
        "return {(u8)((a0.r + a0.g + a0.b) / 3), odd{a0.r, f16((f32)a1.h * 2), a1.d + 1},"
        " a1.d * a0.b, rgb{a0.b, a0.g, a1.tag}};",
        types=RGB + ODD,
    )
    rgb = np.dtype([("r", "u1"), ("g", "u1"), ("b", "u1")])
    odd = np.dtype([("tag", "u1"), ("h", "f2"), ("d", "f8")])
    assert odd.itemsize == 11
    n = 5003
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (n, 3)).astype(np.uint8).view(rgb)[:, 0]
    y = np.zeros(2 * n, odd)
    y["tag"], y["h"], y["d"] = np.arange(2 * n) % 251, rng.standard_normal(2 * n), np.arange(2 * n)
    y = y[::2]
    outs = [np.zeros(n, np.uint8), np.zeros(n, odd), np.zeros(n), np.zeros(2 * n, rgb)[1::2]]
    operands = [(a, a.strides) for a in (x, y, *outs)]
    call(build(text), (n,), operands, threads=3, flags=flags)
    total = x["r"].astype(int) + x["g"] + x["b"]
    assert (outs[0] == total // 3).all()
    assert (outs[1]["tag"] == x["r"]).all()
    assert (outs[1]["h"] == y["h"] * np.float16(2)).all()
    assert (outs[1]["d"] == y["d"] + 1).all()
    assert (outs[2] == y["d"] * x["b"]).all()
    assert (outs[3]["r"] == x["b"]).all()
    assert (outs[3]["b"] == y["tag"]).all()


def test_a_struct_of_64_bytes_transposes():
    text = transform_text(
        [("big", "transposed")],
        [("big", "contiguous")],
        "a0.v[0] += 1; return a0;",
        types="struct big { f64 v[8]; };",
    )
    dtype = np.dtype([("v", "f8", 8)])
    x = np.zeros((37, 50), dtype)
    x["v"] = np.random.default_rng(0).standard_normal((37, 50, 8))
    out = np.zeros((50, 37), dtype)
    call(build(text), out.shape, [(x.T, x.T.strides), (out, out.strides)], flags=STREAM)
    expected = x.T["v"].copy()
    expected[..., 0] += 1
    assert (out["v"] == expected).all()


def test_a_bool_is_any_byte_in_and_one_bit_out():
    text = transform_text([("bool", "contiguous")], [("bool", "contiguous")], "return !a0;")
    x = np.arange(256, dtype=np.uint8)
    out = np.full(256, 7, np.uint8)
    call(build(text), (256,), [(x, (1,)), (out, (1,))])
    assert out.tolist() == [1] + [0] * 255


def convert(values: np.ndarray, source: str, target: str, dtype: np.dtype) -> np.ndarray:
    text = transform_text(
        [(source, "contiguous")], [(target, "contiguous")], f"return {target}(a0);"
    )
    out = np.empty(values.shape, dtype)
    call(build(text), values.shape, [(values, values.strides), (out, out.strides)])
    return out


@pytest.mark.parametrize(
    ("name", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)], ids=["f16", "bf16"]
)
def test_half_precision_conversions_match_numpy_bit_for_bit(name, dtype):
    every = np.arange(65536, dtype=np.uint16).view(dtype)
    assert bits(convert(every, name, "f32", np.float32)) == bits(every.astype(np.float32))
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 2**32, 1 << 20, dtype=np.uint32)
    patterns[::2] = (patterns[::2] & 0x8FFFFFFF) | 0x30000000  # the range of float16
    with np.errstate(all="ignore"):
        floats = patterns.view(np.float32)
        assert bits(convert(floats, "f32", name, dtype)) == bits(floats.astype(dtype))


def test_float64_rounds_to_float16_once():
    exact = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middle = (exact[1:] + exact[:-1]) / 2
    near = [middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf), middle * (1 + 1e-9)]
    special = [65519.99999999999, 65520.0, 1e300, np.inf, -0.0, 5e-324, 2.0**-25, 2.0**-26]
    values = np.concatenate([*near, special])
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16)
    assert bits(convert(values, "f64", "f16", np.float16)) == bits(expected)
    assert np.isnan(convert(np.array([np.nan]), "f64", "f16", np.float16))[0]


def test_headers_include_only_each_other():
    for header in HOST.glob("*.hpp"):
        for included in re.findall(r"#include (.*)", header.read_text()):
            assert included.strip('"') in {h.name for h in HOST.glob("*.hpp")}, header.name


# ---- reduce --------------------------------------------------------------------------------


def documented_tree() -> Callable[..., np.ndarray]:
    """Execute the definition of reductions on the reference page."""
    snippets = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (source,) = [text for text in snippets if "\ndef reduce(" in text]
    scope: dict[str, object] = {}
    exec(source, scope)
    return scope["reduce"]


TREE = documented_tree()


def minimum(a, b):
    return np.where((a < b) | np.isnan(a), a, b)


def maximum(a, b):
    return np.where((a > b) | np.isnan(a), a, b)


# name: (base class and members of the functor, the same in Python, commutative)
FOLDS = {
    "add": ("km::fold::add<{a}>", "", np.add, True),
    "multiply": ("km::fold::multiply<{a}>", "", np.multiply, True),
    "minimum": ("km::fold::minimum<{a}>", "", minimum, True),
    "maximum": ("km::fold::maximum<{a}>", "", maximum, True),
    "and": ("km::fold::bitwise_and<{a}>", "", np.bitwise_and, True),
    "or": ("km::fold::bitwise_or<{a}>", "", np.bitwise_or, True),
    "xor": ("km::fold::bitwise_xor<{a}>", "", np.bitwise_xor, True),
    "own": (
        "km::scalar_fold<{a}>",
        "KM_INL {a} operator()({a} a, {a} b) const {{ return a + b * ({a})2; }}",
        lambda a, b: a + b * a.dtype.type(2),
        True,
    ),
    "ordered": (
        "km::scalar_fold<{a}, true>",
        "KM_INL {a} operator()({a} a, {a} b) const {{ return a - b * ({a})3; }}",
        lambda a, b: a - b * a.dtype.type(3),
        False,
    ),
}


def reduce_text(
    form: str,
    pattern: str,
    folds: Sequence[tuple[str, str]],
    *,
    storage: str = "f32",
    mapping: str = "",
    inputs: int = 1,
    finish: str = "return a;",
    out: str = "",
) -> str:
    """Return a whole translation unit; `folds` are (name, accumulator)."""
    parts = []
    for k, (name, accumulator) in enumerate(folds):
        base, members, _, _ = FOLDS[name]
        result = out or accumulator
        parts.append(
            f"struct Fold{k} : {base.format(a=accumulator)} {{ {members.format(a=accumulator)}\n"
            f"  Captures cap;\n  typedef {result} out;\n"
            f"  KM_INL out finish({accumulator} a) const {{ {finish} }}\n}};"
        )
    types = [a for _, a in folds]
    value = types[0] if len(types) == 1 else f"km::tuple{len(types)}<{', '.join(types)}>"
    parameters = ", ".join(f"{storage} a{k}" for k in range(inputs))
    if mapping:
        parts.append(
            f"struct Map : km::mapped {{\n  Captures cap;\n"
            f"  KM_INL {value} operator()({parameters}) const {{ {mapping} }}\n}};"
        )
    else:
        parts.append(f"typedef km::same<{storage}> Map;")
    names = ", ".join(f"Fold{k}" for k in range(len(folds)))
    body = "\n".join(
        f"  Fold{k} fold{k};\n  fold{k}.cap = *(const Captures*)call->captures;"
        for k in range(len(folds))
    )
    held = "  map.cap = *(const Captures*)call->captures;\n" if mapping else ""
    arguments = ", ".join(f"fold{k}" for k in range(len(folds)))
    args_in = ", ".join([f"km::arg<{storage}, km::{pattern}>"] * inputs)
    definitions = "\n".join(parts)
    return f"""#include "reduce.hpp"
using namespace km;
struct Captures {{ f64 c0; }};
{definitions}
KM_EXPORT void km_kernel(const km::Call* call) {{
  Map map;
{held}{body}
  km::reduce<km::{form}, Map, km::in<{args_in}>, km::folds<{names}>>::run(call, map, {arguments});
}}
"""


def run_reduce(
    arrays: Sequence[np.ndarray],
    axes: Sequence[int],
    folds: Sequence[tuple[str, str]],
    dtypes: Sequence[type],
    *,
    threads: int = 1,
    march: str = "native",
    merge: bool = True,
    capture: float = 0.0,
    **options: str,
) -> list[np.ndarray]:
    ordered = any(not FOLDS[name][3] for name, _ in folds)
    kept = [n for a, n in enumerate(arrays[0].shape) if a not in axes]
    results = [np.empty(kept, d) for d in dtypes]
    plan = nest(arrays, results, axes, ordered=ordered, merge=merge)
    steps = [s[-1] for s in plan.strides[: len(arrays)]]
    adjacent = all(s == a.itemsize for s, a in zip(steps, arrays, strict=True))
    text = reduce_text(
        plan.form,
        "contiguous" if adjacent else "strided",
        folds,
        storage=options.pop("storage", C_NAME[arrays[0].dtype.name]),
        inputs=len(arrays),
        **options,
    )
    count = int(np.prod([arrays[0].shape[a] for a in axes]))
    sizes = [{"8": 1, "6": 2, "2": 4, "4": 8}[a[-1]] for _, a in folds]
    call(
        build(text, march),
        plan.shape,
        list(zip([*arrays, *results], plan.strides, strict=True)),
        captures=np.array([capture]),
        threads=threads,
        flags=plan.kept << 8,
        workspace=workspace_bytes(results[0].size, count, sizes),
    )
    return results


def expected(array: np.ndarray, axes: Sequence[int], name: str, dtype: type) -> np.ndarray:
    _, _, op, commutative = FOLDS[name]
    by_stride = sorted(range(array.ndim), key=lambda a: -abs(array.strides[a]))
    order = [a for a in (by_stride if commutative else sorted(axes)) if a in axes]
    kept = [a for a in range(array.ndim) if a not in axes]
    moved = array.transpose(*order, *kept)
    sequence = list(moved.reshape(-1, *moved.shape[len(order) :]).astype(dtype))
    with np.errstate(all="ignore"):
        return TREE(
            sequence, op, commutative=commutative, accumulator_bytes=np.dtype(dtype).itemsize
        )


def numbers(shape: Sequence[int], dtype: type, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.floating):
        scale = 10.0 ** rng.integers(-3, 4, shape)
        return (rng.standard_normal(shape) * scale).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


LENGTHS = [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 271, 1000]
LONG = [16383, 16384, 16385, 16384 + 70, 49152, 70001]


@pytest.mark.parametrize("name", ["add", "own", "ordered"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sequences_of_every_length_follow_the_documented_tree(name, dtype):
    for n in [*LENGTHS, *LONG]:
        x = numbers((n,), dtype, n)
        fold = [(name, C_NAME[np.dtype(dtype).name])]
        want = expected(x, (0,), name, dtype)
        for threads in (1, 3):
            (got,) = run_reduce([x], (0,), fold, [dtype], threads=threads)
            assert bits(got) == bits(want), (n, threads)
        (got,) = run_reduce([np.repeat(x, 3)[::3]], (0,), fold, [dtype])
        assert bits(got) == bits(want), n


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *itertools.product(["add", "multiply", "minimum", "maximum"], [np.int8, np.uint16]),
        *itertools.product(["add", "minimum", "and", "or", "xor"], [np.int32, np.int64]),
        ("multiply", np.int64),
        ("maximum", np.uint64),
        ("minimum", np.float32),
        ("maximum", np.float64),
        ("multiply", np.float64),
    ],
)
def test_well_known_folds(name, dtype):
    x = numbers((20011,), dtype)
    if np.issubdtype(dtype, np.floating):
        x[777] = -0.0
    for stop in (50, 20011):
        (got,) = run_reduce([x[:stop]], (0,), [(name, C_NAME[np.dtype(dtype).name])], [dtype])
        assert bits(got) == bits(expected(x[:stop], (0,), name, dtype))


@pytest.mark.parametrize("name", ["minimum", "maximum"])
@pytest.mark.parametrize("place", [0, 5, 64, 9000, 20000])
def test_nan_wins(name, place):
    x = numbers((20001,), np.float32)
    x[place] = np.nan
    (got,) = run_reduce([x], (0,), [(name, "f32")], [np.float32])
    assert np.isnan(got)


SHAPE = (3, 40, 5, 70)
AXES = [axes for r in (1, 2, 3, 4) for axes in itertools.combinations(range(4), r)]


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("name", ["add", "own", "ordered"])
def test_every_choice_of_axes(axes, name):
    x = numbers(SHAPE, np.float32)
    for view in (x, x[..., ::2], x[::-1, ::2], x.transpose(2, 0, 3, 1)):
        want = expected(view, axes, name, np.float32)
        for merge in (True, False):
            (got,) = run_reduce([view], axes, [(name, "f32")], [np.float32], threads=3, merge=merge)
            assert bits(got) == bits(want)


@pytest.mark.parametrize("name", ["add", "own", "ordered"])
@pytest.mark.parametrize(
    "shape", [(33000, 3), (17000, 2, 41), (16390, 300), (16390, 20), (3, 33000)]
)
@pytest.mark.parametrize("threads", [1, 3])
def test_long_axes_join_their_chunks(name, shape, threads):
    x = numbers(shape, np.float64)
    axes = (1,) if shape[0] == 3 else (0,)
    (got,) = run_reduce([x], axes, [(name, "f64")], [np.float64], threads=threads)
    assert bits(got) == bits(expected(x, axes, name, np.float64))


@pytest.mark.parametrize("name", ["add", "own", "ordered"])
@pytest.mark.parametrize("shape", [(16400, 65), (40, 65), (300, 129), (16400, 17), (9, 2049)])
def test_a_last_block_of_one_column(name, shape):
    x = numbers(shape, np.float32)
    want = expected(x, (0,), name, np.float32)
    for threads in (1, 2, 3):
        (got,) = run_reduce([x], (0,), [(name, "f32")], [np.float32], threads=threads)
        assert bits(got) == bits(want)


@pytest.mark.parametrize("name", ["add", "ordered"])
def test_windows_that_overlap(name):
    line = numbers((5000,), np.float32)
    for width in (32, 128, 300):
        x = np.lib.stride_tricks.sliding_window_view(line, width)[::16]
        for axis in (0, 1):
            (got,) = run_reduce([x], (axis,), [(name, "f32")], [np.float32], threads=3)
            assert bits(got) == bits(expected(x, (axis,), name, np.float32))


def test_several_folds_of_different_types_in_one_pass():
    folds = [("add", "f32"), ("own", "f64"), ("maximum", "i16"), ("ordered", "f32")]
    dtypes = [np.float32, np.float64, np.int16, np.float32]
    mapping = "return {a0 * a1, (f64)a0 - a1, (i16)(a0 * 8), a1};"
    for shape, axes in [((40000,), (0,)), ((70, 9, 33), (0,)), ((70, 9, 33), (1, 2))]:
        x, y = numbers((2, *shape), np.float32) / 1000
        got = run_reduce([x, y], axes, folds, dtypes, mapping=mapping, threads=3)
        values = [x * y, x.astype(np.float64) - y, (x * np.float32(8)).astype(np.int16), y]
        for result, value, (name, _), dtype in zip(got, values, folds, dtypes, strict=True):
            assert bits(result) == bits(expected(value, axes, name, dtype)), (shape, axes, name)


def test_float16_sums_in_float32_with_init_and_rounds_once():
    x = numbers((3000,), np.float16) / np.float16(100)
    (got,) = run_reduce(
        [x],
        (0,),
        [("add", "f32")],
        [np.float16],
        mapping="return (f32)a0;",
        out="f16",
        finish="return f16((*this)((f32)cap.c0, a));",
        capture=3.25,
    )
    total = expected(x, (0,), "add", np.float32)
    assert bits(got) == bits(np.float16(np.float32(3.25) + total))


@pytest.mark.parametrize("march", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("name", ["add", "maximum", "own", "ordered"])
def test_the_same_bits_on_other_instruction_sets(march, name):
    for dtype, x in itertools.product(
        [np.float32, np.float64], [numbers((50021,), np.float64), numbers((90, 41), np.float64)]
    ):
        fold = [(name, C_NAME[np.dtype(dtype).name])]
        for axes in [(a,) for a in range(x.ndim)]:
            view = x.astype(dtype)
            (got,) = run_reduce([view], axes, fold, [dtype], march=march)
            assert bits(got) == bits(expected(view, axes, name, dtype))


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_shape_view_and_axes(data):
    rank = data.draw(st.integers(1, 4))
    shape = data.draw(st.tuples(*[st.integers(1, 70)] * rank))
    steps = data.draw(st.tuples(*[st.sampled_from([1, 1, 1, 2, -1])] * rank))
    order = data.draw(st.permutations(range(rank)))
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, rank - 1), min_size=1))))
    name = data.draw(st.sampled_from(["add", "own", "ordered"]))
    threads = data.draw(st.sampled_from([1, 3]))
    if np.prod(shape) > 60000:
        shape = tuple(min(n, 12) for n in shape)
    x = numbers(shape, np.float32)[tuple(slice(None, None, s) for s in steps)].transpose(order)
    (got,) = run_reduce([x], axes, [(name, "f32")], [np.float32], threads=threads)
    assert bits(got) == bits(expected(x, axes, name, np.float32))
