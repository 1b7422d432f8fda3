"""Selections on a GPU: libraries, graphs, streams, both ways through the tiles, very long arrays."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernelmill.runtime import cuda

pytestmark = pytest.mark.cuda

# One block, several, the ring, and its odd ends.
SIZES = (0, 1, 1000, 8192, 8193, 100_003, (1 << 20) - 1, 1 << 20, (1 << 22) + 3)


def heads(torch, x):
    first = torch.ones(x.numel(), dtype=torch.bool, device="cuda")
    first[1:] = x[1:] != x[:-1]
    return first


@pytest.mark.parametrize("name", ["float32", "int64", "uint8", "float16", "int32", "bool"])
def test_every_size_takes_a_way(torch, name):
    dtype = getattr(torch, name)
    for size in SIZES:
        x = (torch.rand(size, device="cuda") * 5).to(dtype)
        y = torch.arange(size, device="cuda")
        first, flags = heads(torch, x), torch.rand(size, device="cuda") < 0.3
        found = km.select((x, y), flags=flags)
        assert torch.equal(found[0], x[flags])
        assert torch.equal(found[1], y[flags])
        yes, no = km.partition(x, flags=flags)
        assert torch.equal(yes, x[flags])
        assert torch.equal(no, x[~flags])
        keys, values = km.unique_by_key(x, y)
        assert torch.equal(keys, x[first])
        assert torch.equal(values, y[first])
        assert km.unique_count(x) == int(first.sum())
        values, lengths = km.run_length_encode(x)
        assert torch.equal(values, x[first])
        ends = torch.tensor([size], device="cuda")
        assert torch.equal(lengths, torch.diff(first.nonzero().ravel(), append=ends))


def test_three_parts(torch):
    for size in SIZES:
        x = torch.rand(size, device="cuda")
        a, b, c = km.three_way_partition(x, lambda v: v > 0.7, lambda v: v > 0.3)
        assert torch.equal(a, x[x > 0.7])
        assert torch.equal(b, x[(x > 0.3) & (x <= 0.7)])
        assert torch.equal(c, x[x <= 0.3])


def test_results_are_of_the_library_of_the_first_array(torch, cupy):
    x = np.arange(100_000, dtype=np.float32)
    wanted = x[x > 70_000]
    found = km.select(torch.from_numpy(x).cuda(), lambda v: v > 70_000)
    assert type(found) is torch.Tensor
    assert np.array_equal(found.cpu().numpy(), wanted)
    found = km.select(cupy.asarray(x), lambda v: v > 70_000)
    assert type(found) is cupy.ndarray
    assert np.array_equal(cupy.asnumpy(found), wanted)
    found = km.select(km.to_device(x), lambda v: v > 70_000)
    assert type(found) is cuda.CudaArray
    assert np.array_equal(found.numpy(), wanted)
    with km.Device("cuda:0"):
        found = km.select(x, lambda v: v > 70_000)
    assert type(found) is np.ndarray
    assert np.array_equal(found, wanted)


def test_numpy_buffers_of_a_gpu_are_written_where_something_was_found():
    x = np.arange(100_000, dtype=np.int32)
    buffer, count = np.full(x.size, -1, np.int32), np.zeros(1, np.int64)
    with km.Device("cuda:0"):
        km.select(x, lambda v: v % 3 == 0, out=(buffer, count))
        assert count[0] == x[::3].size
        assert np.array_equal(buffer[: count[0]], x[::3])
        assert (buffer[count[0] :] == -1).all()
        with pytest.raises(km.ShapeError, match="has room for 7 elements, 33334 were found"):
            km.select(x, lambda v: v % 3 == 0, out=(np.zeros(7, np.int32), count))


@pytest.mark.parametrize("size", [5000, 1 << 21])
def test_calls_with_buffers_are_captured_and_replayed(torch, size):
    x = torch.rand(size, device="cuda")
    buffer, count = torch.empty_like(x), torch.zeros(1, dtype=torch.int64, device="cuda")
    plan = km.select.plan(x, lambda v: v > 0.5, out=(buffer, count))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(x, out=(buffer, count))
        plan(x, out=(buffer, count))
    for seed in range(20):
        torch.manual_seed(seed)
        x.uniform_()
        graph.replay()
        wanted = x[x > 0.5]
        assert int(count) == wanted.numel()
        assert torch.equal(buffer[: wanted.numel()], wanted)


def test_short_buffers_are_not_overrun_and_the_count_says_so(torch):
    for size in (9000, 1 << 21):
        x = torch.rand(size, device="cuda")
        for room in (0, 1, size // 4, size // 2 - 7):
            whole = torch.full((room + 64,), -7.0, device="cuda")
            count = torch.zeros(1, dtype=torch.int32, device="cuda")
            km.select(x, lambda v: v > 0.1, out=(whole[:room], count))
            wanted = x[x > 0.1]
            assert int(count) == wanted.numel()
            assert torch.equal(whole[:room], wanted[:room])
            assert bool((whole[room:] == -7.0).all())


def test_streams_beside_each_other(torch):
    streams = [torch.cuda.Stream() for _ in range(4)]
    arrays = [torch.rand(1 << 21, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    for _ in range(10):
        found = []
        for stream, x in zip(streams, arrays, strict=True):
            with torch.cuda.stream(stream):
                buffer = torch.empty_like(x)
                count = torch.zeros(1, dtype=torch.int64, device="cuda")
                km.select(x, lambda v: v > 0.5, out=(buffer, count))
                found.append((buffer, count))
        torch.cuda.synchronize()
        for (buffer, count), x in zip(found, arrays, strict=True):
            assert torch.equal(buffer[: int(count)], x[x > 0.5])


def test_views_that_are_not_at_a_packet(torch):
    base = torch.rand((1 << 21) + 1, device="cuda")
    for x in (base[1:], base[::2], base.expand(3, -1)[2], base[:1].expand(5000)):
        assert torch.equal(km.select(x, lambda v: v > 0.5), x[x > 0.5])
        assert torch.equal(km.unique(x), x[heads(torch, x)])


@pytest.mark.slow
def test_more_than_32_bits_count(torch):
    size = (1 << 32) + 12_345
    x = torch.ones(size, dtype=torch.uint8, device="cuda")
    x[7] = x[-1] = 3
    assert km.select(x, lambda v: v == 3).tolist() == [3, 3]
    found = km.select(x, lambda v: v == 1)
    assert found.numel() == size - 2
    values, lengths = km.run_length_encode(x)
    assert values.tolist() == [1, 3, 1, 3]
    assert lengths.tolist() == [7, 1, size - 9, 1]
