"""Sorts on a GPU: every type, one tile and many, libraries, graphs, streams, long arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import kernelmill as km
from kernelmill.algorithms import policy_radix

pytestmark = pytest.mark.cuda

TYPES = ("bool", "int8", "uint8", "int16", "float16", "bfloat16", "int32", "float32", "int64",
         "float64", "complex64")  # fmt: skip
# One block, several tiles of each kind in the table, their odd ends.
SIZES = (0, 1, 1000, 2049, 8192, 8193, 100_003, (1 << 17) + 1, (1 << 22) + 77)


def sample(torch, name, size):
    """Any bits that a type has, with everything that floats have, and many that are equal."""
    dtype = getattr(torch, name)
    item = torch.empty(0, dtype=dtype).element_size()
    random = torch.Generator(device="cuda")
    random.manual_seed(size)
    raw = torch.randint(
        -128, 128, (size * item,), dtype=torch.int8, device="cuda", generator=random
    )
    if name == "bool":
        return raw > 30
    x = raw.view(dtype)
    if dtype.is_floating_point and size:
        special = torch.tensor([0.0, -0.0, float("nan"), float("inf")], dtype=dtype, device="cuda")
        at = torch.randint(0, 4, (size,), device="cuda", generator=random)
        x = torch.where(raw.view(size, item)[:, 0] > 60, special[at], x)
    x[: size // 3] = x[:1]
    return x[torch.randperm(size, device="cuda", generator=random)].contiguous()


def order(torch, x, *, descending=False):
    """The places of sorted elements by NumPy, equal ones in their order."""
    wide = (x.float() if x.dtype in (torch.float16, torch.bfloat16) else x).cpu().numpy()
    if descending:
        found = wide.size - 1 - np.argsort(wide[::-1], kind="stable")[::-1]
        return torch.from_numpy(found.copy()).cuda()
    return torch.from_numpy(np.argsort(wide, kind="stable")).cuda()


def same(torch, a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return not a.numel() or torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("name", TYPES)
def test_every_type_and_size(torch, name):
    for size in SIZES:
        x = sample(torch, name, size)
        wanted = order(torch, x)
        assert same(torch, km.sort(x), x[wanted])
        assert torch.equal(km.argsort(x), wanted)


@pytest.mark.parametrize("name", TYPES)
def test_values_and_the_other_direction(torch, name):
    for size in (1000, 100_003):
        x = sample(torch, name, size)
        for descending in (False, True):
            wanted = order(torch, x, descending=descending)
            for values in (wanted.int(), wanted.double(), wanted.to(torch.int16)):
                keys, moved = km.sort_by_key(x, values, descending=descending)
                assert same(torch, keys, x[wanted])
                assert torch.equal(moved, values[wanted])


@pytest.mark.parametrize("tile", policy_radix._RADIX_TILES["bulk"], ids=str)
def test_the_tiles_of_the_table_sort(torch, monkeypatch, tile):
    monkeypatch.setitem(policy_radix._RADIX_TILES, "bulk", (replace(tile, most=1 << 62),))
    name = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}[tile.keys]
    x = sample(torch, name, tile.elements * 700 + 9)
    if not tile.payload:
        assert torch.equal(km.sort(x), x.sort().values)
        return
    places = torch.arange(x.numel(), device="cuda")
    values = places.int() if tile.payload == 4 else places
    keys, moved = km.sort_by_key(x, values)
    wanted = x.sort(stable=True)
    assert torch.equal(keys, wanted.values)
    assert torch.equal(moved.long(), wanted.indices)


@pytest.mark.parametrize("arrange", ["few", "sorted", "reversed", "equal"])
def test_arrangements(torch, arrange):
    x = sample(torch, "int32", (1 << 22) + 5)
    x = {
        "few": lambda: x % 7,
        "sorted": lambda: x.sort().values,
        "reversed": lambda: x.sort(descending=True).values,
        "equal": lambda: x * 0,
    }[arrange]()
    wanted = x.sort(stable=True)
    assert torch.equal(km.sort(x), wanted.values)
    assert torch.equal(km.argsort(x), wanted.indices)


def test_rows_and_arrays_that_lie_otherwise(torch):
    x = torch.rand(7, 300, 50, device="cuda")
    for axis in range(3):
        wanted = x.sort(dim=axis, stable=True)
        assert torch.equal(km.sort(x, axis=axis), wanted.values)
        assert torch.equal(km.argsort(x, axis=axis), wanted.indices)
    long = torch.rand(3, 50_000, device="cuda")
    assert torch.equal(km.sort(long), long.sort().values)
    assert torch.equal(km.sort(long[:, ::2]), long[:, ::2].sort().values)
    odd = torch.rand(100_001, device="cuda")[1:]
    assert torch.equal(km.sort(odd), odd.sort().values)
    over, wanted = odd.clone(), odd.sort().values
    assert km.sort(over, out=over) is over
    assert torch.equal(over, wanted)


def test_rows_that_a_block_each_sorts(torch):
    for length in (100, 3000, 8000):
        x = torch.rand(1000, length, device="cuda")
        wanted = x.sort(stable=True)
        keys, places = km.sort(x), km.argsort(x)
        assert torch.equal(keys, wanted.values)
        assert torch.equal(places, wanted.indices)


def test_results_are_of_the_library_of_the_keys(torch, cupy):
    x = np.random.default_rng(1).random(100_000).astype(np.float32)
    wanted = np.sort(x)
    assert np.array_equal(km.sort(torch.from_numpy(x).cuda()).cpu().numpy(), wanted)
    found = km.sort(cupy.asarray(x))
    assert type(found) is cupy.ndarray
    assert np.array_equal(cupy.asnumpy(found), wanted)
    assert np.array_equal(km.sort(km.to_device(x)).numpy(), wanted)
    with km.Device("cuda:0"):
        found, places = km.sort(x), km.argsort(x)
        keys, values = km.sort_by_key(x, np.arange(x.size))
    assert type(found) is np.ndarray
    assert np.array_equal(found, wanted)
    assert np.array_equal(places, np.argsort(x, kind="stable"))
    assert np.array_equal(keys, wanted)
    assert np.array_equal(values, places)


def test_a_graph_sorts_what_is_there_at_each_replay(torch):
    for size in (3000, 1 << 20):
        x, out = torch.rand(size, device="cuda"), torch.empty(size, device="cuda")
        km.sort(x, out=out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            km.sort(x, out=out)
        for _ in range(3):
            x.uniform_()
            graph.replay()
            assert torch.equal(out, x.sort().values)


def test_streams_beside_each_other(torch):
    streams = [torch.cuda.Stream() for _ in range(4)]
    arrays = [sample(torch, "int32", (1 << 20) + i) for i in range(4)]
    torch.cuda.synchronize()
    made = []
    for _ in range(10):
        for x, stream in zip(arrays, streams, strict=True):
            with torch.cuda.stream(stream):
                made.append((x, km.sort(x)))
    torch.cuda.synchronize()
    for x, found in made:
        assert torch.equal(found, x.sort().values)


@pytest.mark.parametrize("name", TYPES)
def test_the_first_of_an_order(torch, name):
    for size in (1, 1000, 40_000, (1 << 20) + 3):
        x = sample(torch, name, size)
        for largest in (True, False):
            wanted = order(torch, x, descending=largest)
            for k in (1, 100, 1024, 3000):
                if k <= size:
                    values, places = km.topk(x, k, largest)
                    assert torch.equal(places, wanted[:k])
                    assert same(torch, values, x[wanted[:k]])


def test_the_first_of_rows(torch):
    for shape in ((300, 5000), (3, 100_000)):
        x = torch.rand(shape, device="cuda")
        values, places = km.batched_topk(x, 7)
        wanted = x.sort(descending=True, stable=True)  # topk of torch leaves equal ones open
        assert torch.equal(values, wanted.values[:, :7])
        assert torch.equal(places, wanted.indices[:, :7])
        assert torch.equal(km.topk(x, 2, axis=0)[0], x.topk(2, dim=0).values)


def test_limits_that_chance_or_the_data_spoil(torch):
    size = 1 << 20
    for x in (torch.zeros(size, device="cuda"), torch.arange(size, device="cuda").float()):
        for largest in (True, False):
            places = km.topk(x, 50, largest)[1]
            wanted = x.sort(descending=largest, stable=True).indices[:50]
            assert torch.equal(places, wanted)


@pytest.mark.parametrize("lengths", [(1, 2, 9, 40, 600, 5000), (3, 1_000_000), (50,)], ids=str)
@pytest.mark.parametrize("name", ["int32", "float32", "int64", "uint8"])
def test_segments(torch, name, lengths):
    size = 3_000_001
    random = torch.Generator(device="cuda")
    random.manual_seed(size)
    many = torch.cat([torch.full((size // len(lengths) // n,), n) for n in lengths])
    ends = many[torch.randperm(len(many))].cumsum(0).cuda()
    offsets = torch.cat([ends.new_zeros(1), ends]) + 5
    number = torch.bucketize(torch.arange(size, device="cuda"), offsets, right=True)
    number[: int(offsets[0])] = -1
    x = sample(torch, name, size)
    by_key = order(torch, x)
    wanted = by_key[number[by_key].sort(stable=True).indices]
    outside = torch.arange(size, device="cuda")
    at = torch.cat([outside[: int(offsets[0])], outside[int(offsets[-1]) :]])
    wanted[at] = at
    for _ in range(2):  # the second time by the short way, where there is one
        assert same(torch, km.segmented_sort(x, offsets), x[wanted])
        for values in (outside.int(), outside.to(torch.int16)):
            keys, moved = km.segmented_sort(x, offsets, values=values)
            assert same(torch, keys, x[wanted])
            assert torch.equal(moved, values[wanted])


def test_later_calls_take_the_short_way(torch):
    for size in (3000, 200_001):
        x, out = torch.rand(size, device="cuda"), torch.empty(size, device="cuda")
        places, values = torch.empty(size, device="cuda", dtype=torch.int64), x.clone()
        for _ in range(3):
            x.uniform_()
            wanted = x.sort(stable=True)
            assert km.sort(x, out=out) is out
            assert torch.equal(out, wanted.values)
            assert torch.equal(km.sort(x), wanted.values)
            assert km.argsort(x, out=places) is places
            assert torch.equal(places, wanted.indices)
            keys, moved = km.sort_by_key(x, values)
            assert torch.equal(keys, wanted.values)
            assert torch.equal(moved, values[wanted.indices])
            assert torch.equal(km.topk(x, 9)[0], x.topk(9).values)
            over = x.clone()
            km.sort(over, out=over)
            assert torch.equal(over, wanted.values)
            room = torch.zeros(size + 1, device="cuda")
            room[:-1] = x
            km.sort(room[:-1], out=room[1:])
            assert torch.equal(room[1:], wanted.values)
            odd = torch.rand(2 * size, device="cuda")[::2]
            assert torch.equal(km.sort(odd), odd.sort().values)
        plan = km.sort.plan(x)
        assert torch.equal(plan(x), x.sort().values)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().synchronize()
            assert torch.equal(plan(x, out=out), x.sort().values)


@pytest.mark.slow
def test_eight_billion_keys(torch):
    x = torch.randint(0, 256, (1 << 33,), dtype=torch.uint8, device="cuda")
    counts = sum(p.bincount(minlength=256) for p in x.split(1 << 30))
    km.sort(x, out=x)
    begin = 0
    for value, count in enumerate(counts.tolist()):
        assert bool((x[begin : begin + count] == value).all())
        begin += count


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1 << 31) - 1, (1 << 31) + 1])
def test_more_than_32_bits_count(torch, size):
    x = torch.randint(-128, 128, (size,), dtype=torch.int8, device="cuda")
    found = km.sort(x)
    assert bool((found[1:] >= found[:-1]).all())
    for value in (-128, -1, 0, 77):
        assert int((found == value).sum()) == int((x == value).sum())
