"""`kernelmill.compat.cuda_compute`: NVIDIA's names on the families, against NumPy."""

from __future__ import annotations

import inspect
import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.compat import cuda_compute as cc
from kernelmill.compat.cuda_compute import types
from kernelmill.compat.cuda_compute.op import DeviceCode, RawOp

# The public names of cuda.compute 1.2.1.
NAMES = """
binary_transform clear_all_caches CacheModifiedInputIterator ConstantIterator CountingIterator
DiscardIterator exclusive_scan gpu_struct histogram_even inclusive_scan lower_bound
make_binary_transform make_exclusive_scan make_select make_histogram_even make_inclusive_scan
make_lower_bound make_reduce_into make_segmented_reduce make_three_way_partition
make_unary_transform make_unique_by_key make_upper_bound OpKind Determinism PermutationIterator
ProxyArray ProxyValue reduce_into ReverseIterator ShuffleIterator segmented_reduce select serialize
deserialize DoubleBuffer SortOrder make_merge_sort make_radix_sort make_segmented_sort merge_sort
radix_sort segmented_sort TransformIterator TransformOutputIterator three_way_partition unary_transform
unique_by_key upper_bound ZipIterator clear_pch_cache pch_cache_dir
""".split()

SIGNATURES = {
    "reduce_into": "d_in d_out num_items op h_init stream determinism",
    "make_reduce_into": "d_in d_out op h_init determinism compute_capability",
    "inclusive_scan": "d_in d_out op init_value num_items stream",
    "make_exclusive_scan": "d_in d_out op init_value compute_capability",
    "unary_transform": "d_in d_out op num_items stream",
    "binary_transform": "d_in1 d_in2 d_out op num_items stream",
    "select": "d_in d_out d_num_selected_out cond num_items stream",
    "three_way_partition": "d_in d_first_part_out d_second_part_out d_unselected_out "
    "d_num_selected_out select_first_part_op select_second_part_op num_items stream",
    "unique_by_key": "d_in_keys d_in_items d_out_keys d_out_items d_out_num_selected op "
    "num_items stream",
    "segmented_reduce": "d_in d_out num_segments start_offsets_in end_offsets_in op h_init "
    "max_segment_size stream",
    "histogram_even": "d_samples d_histogram num_output_levels lower_level upper_level "
    "num_samples stream",
    "radix_sort": "d_in_keys d_out_keys d_in_values d_out_values num_items order begin_bit end_bit "
    "stream",
    "merge_sort": "d_in_keys d_in_values d_out_keys d_out_values num_items op stream",
    "segmented_sort": "d_in_keys d_out_keys d_in_values d_out_values num_items num_segments "
    "start_offsets_in end_offsets_in order stream",
    "lower_bound": "d_data num_items d_values num_values d_out comp stream",
}


def test_names_and_signatures():
    assert set(NAMES) <= set(cc.__all__)
    for name, parameters in SIGNATURES.items():
        found = inspect.signature(getattr(cc, name)).parameters
        assert " ".join(found) == parameters
        assert all(p.kind is p.KEYWORD_ONLY for p in found.values())


def test_precompiled_headers_and_adapters_that_are_not_needed():
    assert cc.clear_pch_cache() == 0
    assert cc.pch_cache_dir() is None
    assert cc.op.make_op_adapter(cc.OpKind.PLUS) is cc.OpKind.PLUS
    total = np.zeros(1, np.int64)
    added = cc.op.make_op_adapter(lambda a, b: a + b)
    cc.reduce_into(d_in=np.arange(5), d_out=total, num_items=5, op=added, h_init=np.int64(0))
    assert total[0] == 10
    with pytest.raises(TypeError, match="'plus' is no operator"):
        cc.op.make_op_adapter("plus")


def test_a_sort_of_segments_is_made_without_values():
    keys, ends = np.array([3, 1, 2, 0]), np.array([2, 4])
    double = cc.DoubleBuffer(keys, np.zeros(4, np.int64))
    begins = np.array([0, 2])
    made = cc.make_segmented_sort(
        d_in_keys=double,
        start_offsets_in=begins,
        end_offsets_in=ends,
        order=cc.SortOrder.ASCENDING,
    )
    made(
        temp_storage=np.empty(1, np.uint8),
        d_in_keys=double,
        d_out_keys=None,
        d_in_values=None,
        d_out_values=None,
        num_items=4,
        num_segments=2,
        start_offsets_in=begins,
        end_offsets_in=ends,
    )
    assert double.current().tolist() == [1, 3, 0, 2]


# ----------------------------------------------------------------------------- reductions


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(-50, 50), max_size=300),
    st.sampled_from(["i4", "i8", "f4", "f8"]),
    st.sampled_from(["i4", "i8", "f4", "f8"]),
    st.integers(0, 40),
)
def test_reductions_have_the_type_of_the_initial_value(values, given_type, wanted, spare):
    x = np.array([*values, *[77] * spare], given_type)
    out, init = np.zeros(1, "f8"), np.array([3], wanted)
    cc.reduce_into(d_in=x, d_out=out, num_items=len(values), op=cc.OpKind.PLUS, h_init=init)
    assert out[0] == sum(values) + 3


def test_structs_of_iterators():
    pair = cc.gpu_struct({"place": np.int64, "value": np.float32}, "Pair")
    x = np.float32([3, 9, 4, 9])
    found = np.zeros(1, pair.dtype)
    cc.reduce_into(
        d_in=cc.ZipIterator(cc.CountingIterator(np.int32(5)), x),
        d_out=found,
        num_items=4,
        op=lambda a, b: b if b[1] > a[1] else a,
        h_init=pair(-1, 0.0),
    )
    assert found[0].item() == (6, 9.0)


def test_nested_structs_and_tuples_in_their_place():
    inner = cc.gpu_struct({"x": np.int32, "y": np.int32}, "Inner")
    outer = cc.gpu_struct({"id": np.int64, "at": inner}, "Outer")
    data = np.zeros(10, outer.dtype)
    data["id"], data["at"]["x"], data["at"]["y"] = np.arange(10), 2, np.arange(10)
    total = np.zeros(1, outer.dtype)

    def add(a: Any, b: Any) -> Any:
        return outer(a.id + b.id, (a.at.x + b.at.x, max(a.at.y, b.at.y)))

    start = outer(100, inner(0, -1))
    cc.reduce_into(d_in=data, d_out=total, num_items=10, op=add, h_init=start)
    assert total[0].item() == (145, (20, 9))
    assert outer({"id": 1, "at": {"x": 2, "y": 3}}) == outer(id=1, at=(2, 3))
    assert np.asarray(outer(1, (2, 3))).item() == (1, (2, 3))


@pytest.mark.parametrize("level", list(cc.Determinism))
def test_levels_of_determinism(level):
    x, out = np.arange(1000, dtype=np.float32), np.zeros(1, np.float32)
    cc.reduce_into(
        d_in=x,
        d_out=out,
        num_items=1000,
        op=cc.OpKind.PLUS,
        h_init=np.float32(0),
        determinism=level,
    )
    assert out[0] == 499500


def test_segments_with_gaps():
    x, out = np.arange(20.0), np.zeros(3)
    cc.segmented_reduce(
        d_in=x,
        d_out=out,
        num_segments=3,
        start_offsets_in=np.array([0, 5, 10]),
        end_offsets_in=np.array([3, 5, 20]),
        op=cc.OpKind.PLUS,
        h_init=np.float64(1),
        max_segment_size=10,
    )
    assert out.tolist() == [4, 1, 146]


# ----------------------------------------------------------------------------- scans and transforms


@pytest.mark.parametrize("kind", ["inclusive", "exclusive"])
@pytest.mark.parametrize("size", [0, 1, 5, 3000])
def test_scans(kind, size):
    x = np.arange(size, dtype=np.int32) % 7
    out = np.zeros(size, np.float64)
    make = getattr(cc, f"make_{kind}_scan")
    init = np.array([10], np.int64)
    scan = make(d_in=x, d_out=out, op=lambda a, b: a + b, init_value=init)
    given_ = {"d_in": x, "d_out": out, "op": lambda a, b: a + b, "init_value": init}
    size_ = scan(temp_storage=None, num_items=size, **given_)
    assert size_ >= 1 and not out.any()
    scan(temp_storage=np.empty(size_, np.uint8), num_items=size, **given_)
    wanted = np.cumsum(x) + 10
    if kind == "exclusive":
        wanted = np.concatenate([[10], wanted[:-1]])[:size]
    assert out.tolist() == wanted.tolist()


def test_scans_of_pairs_into_pairs():
    a, b = np.arange(100), np.arange(100)[::-1].copy()
    sums, most = np.zeros(100, np.int64), np.zeros(100, np.int64)
    cc.inclusive_scan(
        d_in=cc.ZipIterator(a, b),
        d_out=cc.ZipIterator(sums, most),
        op=lambda p, q: (p[0] + q[0], max(p[1], q[1])),
        num_items=100,
    )
    assert sums.tolist() == np.cumsum(a).tolist()
    assert set(most.tolist()) == {99}


OPERATORS = {
    "PLUS": np.add, "MINUS": np.subtract, "MULTIPLIES": np.multiply, "EQUAL_TO": np.equal,
    "NOT_EQUAL_TO": np.not_equal, "GREATER": np.greater, "LESS": np.less,
    "GREATER_EQUAL": np.greater_equal, "LESS_EQUAL": np.less_equal, "BIT_AND": np.bitwise_and,
    "BIT_OR": np.bitwise_or, "BIT_XOR": np.bitwise_xor, "LOGICAL_AND": np.logical_and,
    "LOGICAL_OR": np.logical_or, "MINIMUM": np.minimum, "MAXIMUM": np.maximum, "MODULUS": np.fmod,
    "DIVIDES": lambda a, b: np.trunc(a / b).astype(a.dtype),
    "NEGATE": np.negative, "BIT_NOT": np.invert, "LOGICAL_NOT": np.logical_not,
    "IDENTITY": np.positive,
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_without_a_function(name):
    a = np.array([-7, 7, -8, 0, 9, 5], np.int32)
    b = np.array([2, -2, 3, 5, 9, -9], np.int32)
    kind, out = cc.OpKind[name], np.zeros(6, np.int32)
    if name in ("NEGATE", "BIT_NOT", "LOGICAL_NOT", "IDENTITY"):
        cc.unary_transform(d_in=a, d_out=out, op=kind, num_items=6)
        wanted = OPERATORS[name](a)
    else:
        cc.binary_transform(d_in1=a, d_in2=b, d_out=out, op=kind, num_items=6)
        wanted = OPERATORS[name](a, b)
    assert out.tolist() == wanted.astype(np.int32).tolist()


def test_c_conversions_of_results():
    x, out = np.array([1.9, -1.9, 300.0]), np.zeros(3, np.int32)
    cc.unary_transform(d_in=x, d_out=out, op=lambda v: v, num_items=3)
    assert out.tolist() == [1, -1, 300]


# ----------------------------------------------------------------------------- iterators


ITERATORS = {
    "counting": (lambda x: cc.CountingIterator(np.int64(3)), lambda x, n: 3 + np.arange(n)),
    "counting, later": (lambda x: cc.CountingIterator(np.int64(3)) + 4, lambda x, n: 7 + np.arange(n)),
    "constant": (lambda x: cc.ConstantIterator(np.int64(6)), lambda x, n: np.full(n, 6)),
    "transform": (lambda x: cc.TransformIterator(x, lambda v: v * v), lambda x, n: x[:n] ** 2),
    "reverse": (lambda x: cc.ReverseIterator(x), lambda x, n: x[::-1][:n]),
    "reverse, later": (lambda x: cc.ReverseIterator(x) + 2, lambda x, n: x[::-1][2 : n + 2]),
    "reverse of counting": (
        lambda x: cc.ReverseIterator(cc.CountingIterator(np.int64(9))), lambda x, n: 9 - np.arange(n)
    ),
    "permutation": (
        lambda x: cc.PermutationIterator(x, np.arange(len(x))[::-1].copy()), lambda x, n: x[::-1][:n]
    ),
    "permutation of iterators": (
        lambda x: cc.PermutationIterator(cc.TransformIterator(x, lambda v: v + 1), x // x + 1),
        lambda x, n: np.full(n, x[2] + 1),
    ),
    "cache modified": (lambda x: cc.CacheModifiedInputIterator(x, "volatile"), lambda x, n: x[:n]),
    "zip": (
        lambda x: cc.TransformIterator(cc.ZipIterator(x, cc.CountingIterator(np.int64(1))),
                                       lambda p: p[0] * p[1]),
        lambda x, n: x[:n] * (1 + np.arange(n)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ITERATORS)
def test_iterators_are_read(name):
    make, wanted = ITERATORS[name]
    x, out = np.arange(5, 25), np.zeros(10, np.int64)
    cc.unary_transform(d_in=make(x), d_out=out, op=cc.OpKind.IDENTITY, num_items=10)
    assert out.tolist() == wanted(x, 10).tolist()
    total = np.zeros(1, np.int64)
    cc.reduce_into(d_in=make(x), d_out=total, num_items=10, op=lambda a, b: a + b)
    assert total[0] == wanted(x, 10).sum()
    running = np.zeros(10, np.int64)
    cc.inclusive_scan(d_in=make(x), d_out=running, op=cc.OpKind.PLUS, num_items=10)
    assert running.tolist() == np.cumsum(wanted(x, 10)).tolist()


def test_a_shuffle_is_a_permutation():
    out = np.zeros(100, np.int64)
    shuffled = cc.ShuffleIterator(100, seed=3)
    cc.unary_transform(d_in=shuffled, d_out=out, op=lambda v: v, num_items=100)
    assert sorted(out) == list(range(100)) and out.tolist() != list(range(100))


def test_iterators_are_written():
    x = np.arange(6)
    out = np.zeros(6, np.int64)
    cc.unary_transform(d_in=x, d_out=cc.ReverseIterator(out), op=lambda v: v + 1, num_items=6)
    assert out.tolist() == [6, 5, 4, 3, 2, 1]
    places = np.array([2, 0, 1, 5, 4, 3])
    cc.unary_transform(
        d_in=x, d_out=cc.PermutationIterator(out, places), op=lambda v: v, num_items=6
    )
    assert out[places].tolist() == x.tolist()

    def halved(v: np.int64) -> Any:
        return v // 2

    cc.inclusive_scan(
        d_in=x, d_out=cc.TransformOutputIterator(out, halved), op=cc.OpKind.PLUS, num_items=6
    )
    assert out.tolist() == (np.cumsum(x) // 2).tolist()


# ----------------------------------------------------------------------------- selection, search


@pytest.mark.parametrize("count_type", ["i4", "i8", "u8"])
@pytest.mark.parametrize("out_type", ["i8", "f4"])
def test_selection(count_type, out_type):
    x = np.arange(1000)
    out, count = np.full(1000, -1, out_type), np.zeros(1, count_type)
    cc.select(d_in=x, d_out=out, d_num_selected_out=count, cond=lambda v: v % 3 == 0, num_items=500)
    assert count[0] == 167
    assert out[:167].tolist() == list(range(0, 500, 3)) and set(out[167:]) == {-1}


def test_three_parts_with_one_of_them_discarded():
    x = np.arange(100)
    first, rest, counts = np.zeros(100, np.int64), np.zeros(100, np.int64), np.zeros(2, np.uint64)
    cc.three_way_partition(
        d_in=x,
        d_first_part_out=first,
        d_second_part_out=cc.DiscardIterator(x),
        d_unselected_out=rest,
        d_num_selected_out=counts,
        select_first_part_op=lambda v: v < 10,
        select_second_part_op=lambda v: v % 2,
        num_items=100,
    )
    assert counts.tolist() == [10, 45]
    assert first[:10].tolist() == list(range(10))
    assert rest[:45].tolist() == list(range(10, 100, 2))


def test_unique_by_key():
    keys = np.repeat(np.arange(50), 3)
    items = np.arange(150.0)
    out, chosen, count = np.zeros(150, np.int64), np.zeros(150), np.zeros(1, np.int64)
    cc.unique_by_key(
        d_in_keys=keys, d_in_items=items, d_out_keys=out, d_out_items=chosen,
        d_out_num_selected=count, op=lambda a, b: a == b, num_items=150,
    )  # fmt: skip
    assert count[0] == 50
    assert out[:50].tolist() == list(range(50))
    assert chosen[:50].tolist() == list(range(0, 150, 3))


@pytest.mark.parametrize("side", ["lower", "upper"])
@pytest.mark.parametrize("comp", [None, cc.OpKind.GREATER])
def test_search(side, comp):
    data = np.sort(np.random.default_rng(3).integers(0, 50, 200))
    values, out = np.arange(-1, 52), np.zeros(53, np.uintp)
    given_ = data if comp is None else data[::-1].copy()
    bound = getattr(cc, f"{side}_bound")
    bound(d_data=given_, num_items=200, d_values=values, num_values=53, d_out=out, comp=comp)
    if comp is None:
        wanted = np.searchsorted(data, values, "left" if side == "lower" else "right")
    else:
        wanted = 200 - np.searchsorted(data, values, "right" if side == "lower" else "left")
    assert out.tolist() == wanted.tolist()


def test_histogram():
    x = np.random.default_rng(4).uniform(-1, 4, 5000).astype(np.float32)
    counts = np.zeros(6, np.int32)
    cc.histogram_even(
        d_samples=x, d_histogram=counts, num_output_levels=7, lower_level=np.float32(0),
        upper_level=np.float32(3), num_samples=5000,
    )  # fmt: skip
    inside = x[(x >= 0) & (x < 3)]
    assert (
        counts.tolist() == np.bincount((inside * np.float32(2)).astype(int), minlength=6).tolist()
    )


# ----------------------------------------------------------------------------- sorts


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["u1", "i2", "i4", "u8", "f2", "f4", "f8"]),
    st.integers(0, 300),
    st.booleans(),
    st.sampled_from(list(cc.SortOrder)),
)
def test_radix_sorts(dtype, size, buffered, order):
    random = np.random.default_rng(size)
    keys, values = random.integers(0, 9, size + 2).astype(dtype), random.random(size + 2)
    out_keys, out_values = np.full(size + 2, 77, dtype), np.zeros(size + 2)
    wanted = np.argsort(keys[:size].astype("f8") * (1 - 2 * order.value), kind="stable")
    arrays = [keys.copy(), out_keys, values.copy(), out_values]
    if buffered:
        pairs = cc.DoubleBuffer(*arrays[:2]), cc.DoubleBuffer(*arrays[2:])
        arrays = [pairs[0], None, pairs[1], None]
    names = ("d_in_keys", "d_out_keys", "d_in_values", "d_out_values")
    cc.radix_sort(**dict(zip(names, arrays, strict=True)), num_items=size, order=order)
    if buffered:
        out_keys, out_values = (pair.current() for pair in pairs)
        assert [pair.selector for pair in pairs] == [int(size > 0)] * 2  # nothing stays where it is
        before = [pair.d_buffers[0][:size].tolist() for pair in pairs]
        assert before == [keys[:size].tolist(), values[:size].tolist()]
    assert out_keys[:size].tolist() == keys[wanted].tolist()
    assert out_values[:size].tolist() == values[wanted].tolist()
    assert out_keys[size:].tolist() == ([77, 77] if size or not buffered else keys.tolist())


def test_radix_sorts_by_some_bits():
    keys, out = np.array([0x31, 0x12, 0x23, 0x11], np.uint8), np.zeros(4, np.uint8)
    cc.radix_sort(
        d_in_keys=keys, d_out_keys=out, num_items=4, order=cc.SortOrder.ASCENDING, begin_bit=4,
        end_bit=8,
    )  # fmt: skip
    assert out.tolist() == [0x12, 0x11, 0x23, 0x31]


@pytest.mark.parametrize(
    "less",
    [cc.OpKind.LESS, lambda a, b: a < b, lambda a, b: np.uint8(a < b)],
    ids=["well-known", "of bool", "of number"],
)
def test_merge_sorts_of_iterators(less):
    keys, out = np.arange(100) * 37 % 10, np.zeros(100, int)
    values, places = cc.CountingIterator(np.int64(0)), np.zeros(100, int)
    cc.merge_sort(
        d_in_keys=cc.CacheModifiedInputIterator(keys, modifier="stream"), d_in_values=values,
        d_out_keys=out, d_out_values=places, num_items=100, op=less,
    )  # fmt: skip
    assert places.tolist() == np.argsort(keys, kind="stable").tolist()
    assert out.tolist() == keys[places].tolist()


def test_merge_sorts_of_structs_in_their_place():
    pair = cc.gpu_struct({"a": np.int16, "b": np.uint64})
    keys = np.zeros(500, pair.dtype)
    random = np.random.default_rng(3)
    keys["a"], keys["b"] = random.integers(0, 9, 500), random.integers(0, 9, 500)
    wanted = np.sort(keys, kind="stable")

    def before(x, y):
        return np.uint8(x.b < y.b) if x.a == y.a else np.uint8(x.a < y.a)

    cc.merge_sort(d_in_keys=keys, d_out_keys=keys, num_items=500, op=before)
    assert keys.tolist() == wanted.tolist()


@pytest.mark.parametrize("gaps", [False, True])
def test_segments_are_sorted_where_they_are(gaps):
    keys, values = np.arange(12)[::-1].copy(), np.arange(12.0)
    starts, ends = np.array([0, 4, 5, 5]), np.array([4, 5, 5, 12])
    if gaps:  # out of order, one that ends before it begins, and places in none
        starts, ends = np.array([7, 2, 5]), np.array([10, 5, 3])
    out, moved = np.full(12, -1), np.full(12, -1.0)
    cc.segmented_sort(
        d_in_keys=keys, d_out_keys=out, d_in_values=values, d_out_values=moved, num_items=12,
        num_segments=len(starts), start_offsets_in=starts, end_offsets_in=ends,
        order=cc.SortOrder.ASCENDING,
    )  # fmt: skip
    wanted, with_it = np.full(12, -1), np.full(12, -1.0)
    for low, high in zip(starts, ends, strict=True):
        wanted[low:high], with_it[low:high] = keys[low:high][::-1], values[low:high][::-1]
    assert (out.tolist(), moved.tolist()) == (wanted.tolist(), with_it.tolist())


# ----------------------------------------------------------------------------- objects


def test_algorithms_of_one_kind_are_one_object():
    def made(dtype: Any, op: Any, init: Any = 0) -> Any:
        x, out = np.zeros(3, dtype), np.zeros(1, "i8")
        return cc.make_reduce_into(
            d_in=x, d_out=out, op=op, h_init=init if init is None else np.int64(init)
        )

    def add(a: Any, b: Any) -> Any:
        return a + b

    assert made("i4", add) is made("i4", add)
    kinds = [made("i4", add), made("i8", add), made("i4", cc.OpKind.PLUS), made("i4", add, None)]
    assert all(a is not b for a, b in itertools.combinations(kinds, 2))
    cc.clear_all_caches()
    assert made("i4", add) is not kinds[0]


def test_serialized_algorithms_run():
    x, out = np.arange(4), np.zeros(1, np.int64)
    made = cc.make_reduce_into(
        d_in=cc.ProxyArray(np.int64), d_out=cc.ProxyArray(np.int64), op=cc.OpKind.PLUS,
        h_init=cc.ProxyValue(np.int64), determinism=cc.Determinism.NOT_GUARANTEED,
    )  # fmt: skip
    found = cc.deserialize(cc.serialize(made))
    assert found == made
    found(temp_storage=b"", d_in=x, d_out=out, num_items=4, op=cc.OpKind.PLUS, h_init=np.int64(1))
    assert out[0] == 7
    with pytest.raises(TypeError, match="a dict cannot be serialized"):
        cc.serialize({})


def test_serialized_algorithms_are_made_in_another_process():
    made = cc.make_radix_sort(
        d_in_keys=X, d_out_keys=X, d_in_values=None, d_out_values=None,
        order=cc.SortOrder.DESCENDING,
    )  # fmt: skip
    text = (
        "import sys; from kernelmill.compat import cuda_compute as cc; "
        "made = cc.deserialize(sys.stdin.buffer.read()); "
        "sys.stdout.buffer.write(cc.serialize(made) + repr(made).encode())"
    )
    blob = cc.serialize(made)
    answer = subprocess.run(
        [sys.executable, "-c", text], input=blob, capture_output=True, check=True
    )
    assert answer.stdout == blob + repr(made).encode()


def test_bytes_that_are_damaged_are_refused():
    blob = cc.serialize(cc.make_unary_transform(d_in=X, d_out=X, op=abs))
    for i in range(len(blob)):
        for change in (1, 0x20):
            other = blob[:i] + bytes([blob[i] ^ change]) + blob[i + 1 :]
            with pytest.raises(ValueError, match=r"serialized"):
                cc.deserialize(other)
        with pytest.raises(ValueError, match="no serialized algorithm"):
            cc.deserialize(blob[:i])
    for other in (b"[1,2,3]", b"{}", b"\xff", b'["kernelmill"]', b"[" * 9999, blob + b"0"):
        with pytest.raises(ValueError, match="no serialized algorithm"):
            cc.deserialize(other)
    with pytest.raises(ValueError, match="is damaged: its digest does not fit"):
        cc.deserialize(blob + b" ")
    with pytest.raises(
        ValueError, match="serialized as 'kernelmill cuda_compute 1', which this version does not"
    ):
        cc.deserialize(b'["kernelmill cuda_compute 1", "reduce_into", {}]')


def test_operators_in_cpp():
    text = b"""extern "C" __device__ void twice(void* x, void* y) { *(int*)y = 2 * *(int*)x; }"""
    x, out = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    op = RawOp(ltoir=DeviceCode(text, "cpp_source"), name="twice")
    cc.unary_transform(d_in=x, d_out=out, op=op, num_items=4)
    assert out.tolist() == [0, 2, 4, 6]
    assert op == RawOp(ltoir=DeviceCode(text, "cpp_source"), name="twice") != "twice"


def test_operators_in_cpp_take_a_state():
    text = b"""__device__ void scaled(void* s, void* x, void* y) {
      *(float*)y = ((float*)s)[0] * *(float*)x + ((float*)s)[2]; }"""
    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    for scale, more in ((2, 5), (3, 7)):
        state = np.float32([scale, 0, more]).tobytes()
        op = RawOp(
            ltoir=DeviceCode(text, "cpp_source"), name="scaled", state=state, state_alignment=8
        )
        cc.unary_transform(d_in=x, d_out=out, op=op, num_items=4)
        assert out.tolist() == (x * scale + more).tolist()


def test_operators_in_cpp_call_further_code():
    more = b"__device__ int twice(int x) { return 2 * x; }"
    text = b"__device__ void f(void* x, void* y) { *(int*)y = twice(*(int*)x) + 1; }"
    x, out = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    code = [DeviceCode(more, "cpp_source")]
    op = RawOp(ltoir=DeviceCode(text, "cpp_source"), name="f", extra_ltoirs=code)
    cc.unary_transform(d_in=x, d_out=out, op=op, num_items=4)
    assert out.tolist() == [1, 3, 5, 7]


def test_iterators_of_operators_in_cpp_know_their_types():
    text = b"__device__ void negate(void* x, void* y) { *(short*)y = -*(short*)x; }"
    op = RawOp(ltoir=DeviceCode(text, "cpp_source"), name="negate")
    x, out = np.arange(1, 5, dtype=np.int16), np.zeros(1, np.int16)
    for source, sink in (
        (x, cc.TransformOutputIterator(out, op, output_value_type=types.int16)),
        (cc.TransformIterator(x, op, types.int16), out),
    ):
        cc.reduce_into(
            d_in=source, d_out=sink, num_items=4, op=cc.OpKind.PLUS, h_init=np.zeros(1, np.int16)
        )
        assert out.tolist() == [-10]
    with pytest.raises(
        NotImplementedError, match="RawOp 'negate' does not say its types; pass value"
    ):
        cc.TransformIterator(x, op)
    with pytest.raises(
        ValueError, match="RawOp 'negate' does not say its types; pass output_value"
    ):
        cc.TransformOutputIterator(out, op)


def test_operators_capture_arrays():
    limit, refused, count = np.array([5]), np.zeros(1, np.int32), np.zeros(1, np.uint64)
    x, out = np.arange(12), np.zeros(12, np.int64)

    def above(v):
        if v > limit[0]:
            return True
        numba.atomic.add(refused, 0, 1)
        return False

    numba = pytest.importorskip("numba.cuda")
    for least in (5, 9):
        limit[0], refused[0] = least, 0
        cc.select(d_in=x, d_out=out, d_num_selected_out=count, cond=above, num_items=12)
        assert out[: count[0]].tolist() == list(range(least + 1, 12))
        assert refused[0] == least + 1


X, N = np.arange(4), {"num_items": 4}
FAULTS = {
    "kind": (lambda: cc.unary_transform(d_in=X, d_out=X, op=cc.OpKind.STATELESS, **N),
             ValueError, "OpKind.STATELESS names no operator"),
    "complex": (lambda: cc.unary_transform(d_in=X + 1j, d_out=X + 1j, op=cc.OpKind.NEGATE, **N),
                TypeError, "OpKind.NEGATE is not supported for struct or other opaque types"),
    "operator": (lambda: cc.unary_transform(d_in=X, d_out=X, op=3, **N), TypeError, "3 is no operator"),
    "strided": (lambda: cc.make_reduce_into(d_in=np.zeros((4, 2))[:, 0], d_out=X, op=cc.OpKind.PLUS),
                ValueError, "Non-contiguous arrays are not supported."),
    "no init": (lambda: cc.make_exclusive_scan(d_in=X, d_out=X, op=cc.OpKind.PLUS, init_value=None),
                ValueError, "Exclusive scan with No init value is not supported"),
    "proxy": (lambda: cc.unary_transform(d_in=cc.ProxyArray(int), d_out=X, op=lambda v: v, **N),
              RuntimeError, "a ProxyArray has no data"),
    "stream": (lambda: cc.unary_transform(d_in=X, d_out=X, op=lambda v: v, stream=3, **N),
               TypeError, "does not implement the '__cuda_stream__' protocol"),
    "modifier": (lambda: cc.CacheModifiedInputIterator(X, "slow"), ValueError, "one of stream, global"),
    "reference": (lambda: cc.DiscardIterator(3), TypeError, "reference_iterator is a int"),
    "zip": (cc.ZipIterator, ValueError, "at least one"),
    "shuffle": (lambda: cc.ShuffleIterator(0), ValueError, "num_items must be > 0"),
    "field": (lambda: cc.gpu_struct({"a b": np.int32}), ValueError, "'a b' is not a valid Python"),
    "fields": (lambda: cc.gpu_struct({"a": np.int32})(1, 2), AssertionError, "has 1 fields, got 2"),
    "input": (lambda: cc.unary_transform(d_in=cc.TransformOutputIterator(X, lambda v: v), d_out=X,
                                         op=lambda v: v, **N), ValueError, "does not support input"),
    "output": (lambda: cc.unary_transform(d_in=X, d_out=cc.CountingIterator(np.int64(1)),
                                          op=lambda v: v, **N), ValueError, "does not support output"),
    "places": (lambda: cc.make_lower_bound(d_data=X, d_values=X, d_out=np.zeros(4, np.int32)),
               TypeError, "unsigned integer"),
    "a buffer beside an array": (
        lambda: cc.radix_sort(d_in_keys=cc.DoubleBuffer(X, X.copy()), d_out_keys=None, d_in_values=X,
                              d_out_values=X, num_items=4, order=cc.SortOrder.ASCENDING),
        TypeError, "d_in_keys is a DoubleBuffer and d_in_values a ndarray; both are one, or neither"),
    "an array beside a buffer": (
        lambda: cc.merge_sort(d_in_keys=X, d_out_keys=X, d_in_values=cc.DoubleBuffer(X, X.copy()),
                              d_out_values=X, num_items=4, op=cc.OpKind.LESS),
        TypeError, "d_in_keys is a ndarray and d_in_values a DoubleBuffer; both are one, or neither"),
    "values without room": (
        lambda: cc.merge_sort(d_in_keys=X, d_out_keys=X, d_in_values=X, num_items=4,
                              op=cc.OpKind.LESS),
        TypeError, "d_in_values and d_out_values are given together"),
    "small places": (lambda: cc.make_lower_bound(d_data=X, d_values=X, d_out=np.zeros(4, np.uint32)),
                     ValueError, "pointer-sized"),
    "alignment": (lambda: RawOp(ltoir=b"", name="f", state_alignment=3), ValueError, "a power of two"),
    "code": (lambda: DeviceCode(b"", "ptx"), ValueError, "one of ltoir, cpp_source"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_have_the_errors_of_cuda_compute(name):
    call, error, text = FAULTS[name]
    with pytest.raises(error, match=text):
        call()


def test_type_descriptors():
    assert types.from_numpy_dtype(np.float32) == types.float32 != types.float64
    point = types.struct({"x": types.int32, "y": types.float64}, "Point")
    assert (point.size, point.alignment, list(point.fields)) == (16, 8, ["x", "y"])
    assert types.from_numpy_dtype(point.dtype) == point
    assert types.pointer(types.int8) != types.pointer(types.int16)
    assert types.to_ctypes_type(types.int32).__name__ == "c_int"
