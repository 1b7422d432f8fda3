"""Sorts by comparison, merges and copies of many pieces on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernelmill.algorithms import policy_merges

pytestmark = pytest.mark.cuda

# One block, several tiles and passes, their odd ends.
SIZES = (0, 1, 1000, 1261, 4573, 9181, 100_003, (1 << 20) + 1, (1 << 22) + 77)


def closer(a, b):
    """Whether a is nearer to 0: many different numbers are equal by it."""
    return abs(a) < abs(b)


def numbers(torch, size, dtype="int32"):
    random = torch.Generator(device="cuda")
    random.manual_seed(size)
    return torch.randint(-1000, 1000, (size,), device="cuda", generator=random).to(
        getattr(torch, dtype)
    )


@pytest.mark.parametrize("size", SIZES)
def test_equal_elements_keep_their_order_and_their_values(torch, size):
    x = numbers(torch, size)
    wanted = x.abs().sort(stable=True).indices
    out = torch.full_like(x, -7777)
    assert torch.equal(km.sort(x, comparator=closer, out=out), x[wanted])
    assert torch.equal(km.argsort(x, comparator=closer), wanted)
    falling = (-x.abs()).sort(stable=True).indices
    for values in (wanted.int(), wanted.double(), wanted.to(torch.int16)):
        keys, moved = km.sort_by_key(x, values, comparator=closer, descending=True)
        assert torch.equal(keys, x[falling])
        assert torch.equal(moved, values[falling])


@pytest.mark.parametrize("tile", policy_merges._TILES["bulk"], ids=str)
def test_the_tiles_of_the_table_sort(torch, monkeypatch, tile):
    name = "int32" if tile.largest <= 4 else "int64"
    if tile.largest > 8:
        pytest.skip("torch has no such elements")
    monkeypatch.setitem(policy_merges._TILES, "bulk", (tile,))
    x = numbers(torch, min(tile.most, tile.elements * 70 + 9), name)
    wanted = x.abs().sort(stable=True).indices
    assert torch.equal(km.sort(x, comparator=closer), x[wanted])
    if not tile.pays:
        return
    keys, moved = km.sort_by_key(x, torch.arange(len(x), device="cuda"), comparator=closer)
    assert torch.equal(keys, x[wanted])
    assert torch.equal(moved, wanted)


@pytest.mark.parametrize("name", ["bool", "uint8", "bfloat16", "float32", "int64", "complex64"])
def test_every_type_by_its_own_order(torch, name):
    for size in (1000, 100_003):
        x = numbers(torch, size, name)
        assert torch.equal(km.sort(x, algorithm="merge"), km.sort(x))
        assert torch.equal(km.argsort(x, algorithm="merge"), km.argsort(x))


def test_structs_and_complex128(torch):
    random = np.random.default_rng(1)
    for size in (500, 70_003):
        z = random.integers(-9, 9, size) + 1j * random.integers(-9, 9, size)
        z[::7] = np.nan
        with km.Device("cuda:0"):
            assert np.array_equal(km.sort(z), np.sort(z), equal_nan=True)
            for fields in (3, 8, 16):
                raw = random.integers(0, 256, (size, 4 * fields), np.uint8)
                rows = raw.view(np.dtype([(f"x{i}", "i4") for i in range(fields)]))[:, 0].copy()
                rows["x2"] = random.integers(0, 50, size)
                found = km.sort(rows, comparator=lambda p, q: p.x2 < q.x2)
                assert found.tobytes() == rows[np.argsort(rows["x2"], kind="stable")].tobytes()


@pytest.mark.parametrize(
    "operator",
    [lambda a, b: (a * 7 ^ b) % 3 == 0, lambda a, b: a <= b, lambda a, b: (a + 5 * b) % 7 < 3],
    ids=["mixed", "at most", "circles"],
)
def test_an_operator_that_is_no_order_gives_each_element_once(torch, operator):
    for size in (1000, 100_003, (1 << 20) + 1):
        x = numbers(torch, size)
        places = torch.arange(size, dtype=torch.int32, device="cuda")
        keys, moved = km.sort_by_key(x, places, comparator=operator)
        assert torch.equal(moved.sort().values, places)
        assert torch.equal(keys, x[moved.long()])
        half = size // 3
        keys, moved = km.merge(
            x[:half], x[half:], values=(places[:half], places[half:]), comparator=operator
        )
        assert torch.equal(moved.sort().values, places)
        assert torch.equal(keys, x[moved.long()])


def test_rows_layouts_and_results_over_their_input(torch):
    x = numbers(torch, 7 * 3000 * 5).reshape(7, 3000, 5)
    for axis in range(3):
        wanted = x.abs().sort(dim=axis, stable=True).indices
        assert torch.equal(km.argsort(x, comparator=closer, axis=axis), wanted)
        found = km.sort(x, comparator=closer, axis=axis)
        assert torch.equal(found, x.take_along_dim(wanted, axis))
    for size in (1001, 30_001, 300_001):
        odd = numbers(torch, size)[1:]
        wanted = odd[odd.abs().sort(stable=True).indices]
        over = odd.clone()
        assert km.sort(over, comparator=closer, out=over) is over
        assert torch.equal(over, wanted)
        assert torch.equal(km.sort(odd, comparator=closer), wanted)


def test_two_arrays_and_sets(torch):
    for sizes in ((0, 5), (1000, 3), (100_003, 70_001), (1 << 20, 1 << 21)):
        a, b = (numbers(torch, s).sort().values for s in sizes)
        both = torch.cat([a, b])
        wanted = both.sort(stable=True).indices
        assert torch.equal(km.merge(a, b), both[wanted])
        for values in (wanted.int(), wanted.double(), wanted.to(torch.int16)):
            keys, moved = km.merge(a, b, values=(values[: sizes[0]], values[sizes[0] :]))
            assert torch.equal(keys, both[wanted])
            assert torch.equal(moved, values[wanted])
        assert km.is_sorted(a)
        assert km.is_sorted(b.flip(0), descending=True)
        with km.Device("cpu"):
            host = [x.cpu().numpy() for x in (a, b)]
            sets = [f(*host) for f in (km.set_union, km.set_intersection, km.set_difference)]
        for f, found in zip(
            (km.set_union, km.set_intersection, km.set_difference), sets, strict=True
        ):
            assert np.array_equal(f(a, b).cpu().numpy(), found)


def test_a_graph_sorts_what_is_there_at_each_replay(torch):
    for size in (3000, 1 << 20):
        x, out = torch.rand(size, device="cuda"), torch.empty(size, device="cuda")
        km.sort(x, comparator=lambda a, b: a > b, out=out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            km.sort(x, comparator=lambda a, b: a > b, out=out)
        for _ in range(3):
            x.uniform_()
            graph.replay()
            assert torch.equal(out, x.sort(descending=True).values)


def test_many_pieces_are_copied(torch):
    random = np.random.default_rng(2)
    lengths = (0, 1, 3, 70_001, 5, 1_000_000, 33)
    arrays = [numbers(torch, n + 1, "int16")[1:] for n in lengths]
    made = [torch.full_like(a, -7) for a in arrays]
    km.batched_copy(arrays, made)
    assert all(torch.equal(a, b) for a, b in zip(arrays, made, strict=True))
    x = numbers(torch, 3_000_001, "int16")
    cuts = np.unique([0, *random.integers(0, len(x), 5000), len(x)])
    sizes, order = np.diff(cuts), random.permutation(len(cuts) - 1)
    begins = np.zeros(len(order), np.int64)
    begins[order] = np.concatenate([[0], np.cumsum(sizes[order])[:-1]])
    out = torch.full_like(x, -7)
    given = [torch.from_numpy(v.copy()).cuda() for v in (sizes, cuts[:-1], begins)]
    km.batched_copy(x, out, given[0], source_offsets=given[1], destination_offsets=given[2])
    wanted = torch.cat([x[cuts[i] : cuts[i + 1]] for i in order])
    assert torch.equal(out, wanted)
    addresses = [
        torch.from_numpy((base.data_ptr() + 2 * v).astype(np.int64)).cuda()
        for base, v in ((x, cuts[:-1]), (out.zero_(), begins))
    ]
    km.batched_copy(*addresses, 2 * given[0])
    assert torch.equal(out, wanted)


@pytest.mark.slow
def test_more_than_32_bits_count(torch):
    for size in ((1 << 31) - 1, (1 << 31) + 1):
        x = torch.randint(-128, 128, (size,), dtype=torch.int8, device="cuda")
        found = km.sort(x, comparator=lambda a, b: a > b)
        assert bool((found[1:] <= found[:-1]).all())
        for value in (-128, -1, 0, 77):
            assert int((found == value).sum()) == int((x == value).sum())
        del found


def test_calls_again_take_the_arrays_of_their_call(torch):
    plan = km.sort.plan(torch.zeros(70_001, device="cuda"), algorithm="merge")
    for _ in range(3):
        x = torch.rand(70_001, device="cuda")
        wanted = x.sort(stable=True)
        assert torch.equal(km.sort(x, algorithm="merge"), wanted.values)
        assert torch.equal(km.argsort(x, algorithm="merge"), wanted.indices)
        assert torch.equal(plan(x), wanted.values)
        values = x.double()
        keys, moved = km.sort_by_key(x, values, algorithm="merge")
        assert torch.equal(keys, wanted.values)
        assert torch.equal(moved, keys.double())
