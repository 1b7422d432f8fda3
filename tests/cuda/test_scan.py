"""Scans on a GPU: large inputs, streams, graphs, first values of the device, beyond 32 bits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import kernelmill as km

pytestmark = pytest.mark.cuda
torch = pytest.importorskip("torch")


def ones(size: int, dtype: str = "int32") -> object:
    return torch.ones(size, dtype=getattr(torch, dtype), device="cuda")


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float16", "uint8"])
@pytest.mark.parametrize("size", [(1 << 20) - 1, (1 << 20) + 1, (1 << 24) + 777])
def test_large_inputs_go_through_the_ring(dtype: str, size: int) -> None:
    x = torch.randint(0, 2, (size,), device="cuda").to(getattr(torch, dtype))
    x[1::2] = 0 if dtype == "uint8" else -x[: size // 2 * 2 : 2]
    plan = km.inclusive_scan.plan(x, dtype=dtype)
    assert "scan_ring" in plan.source or size < 1 << 24
    assert torch.equal(plan(x), torch.cumsum(x, 0, dtype=x.dtype))


def test_the_bits_are_those_of_the_processor() -> None:
    x = torch.randn((1 << 22) + 77, device="cuda")
    found = km.inclusive_scan(x)
    for _ in range(20):
        assert torch.equal(km.inclusive_scan(x), found)
    np.testing.assert_array_equal(found.cpu().numpy(), km.inclusive_scan(x.cpu().numpy()))
    found = km.exclusive_scan(x, lambda a, b: a * 0.5 + b, init=1.0)
    wanted = km.exclusive_scan(x.cpu().numpy(), lambda a, b: a * 0.5 + b, init=1.0)
    np.testing.assert_array_equal(found.cpu().numpy(), wanted)


def test_a_first_value_of_the_device() -> None:
    x, start = ones(5000), torch.tensor(7, device="cuda", dtype=torch.int32)
    found = km.exclusive_scan(x, init=start)
    assert torch.equal(found, torch.arange(7, 5007, device="cuda"))
    plan = km.inclusive_scan.plan(x, init=start)
    start += 1
    assert int(km.inclusive_scan(x, init=start)[-1]) == 5008
    assert int(plan(x)[-1]) == 5008
    with pytest.raises(km.ShapeError, match="`init` has shape"):
        km.inclusive_scan(x, init=start.reshape(1))


def test_graphs_replay_scans() -> None:
    x = ones(3 << 20)
    out = torch.zeros_like(x)
    plan = km.inclusive_scan.plan(x, dtype="int32", out=out)
    plan(x, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(x, out=out)
        plan(out, out=out)
    for value in (1, 2):
        x.fill_(value)
        graph.replay()
        n = torch.arange(1, x.numel() + 1, device="cuda")
        assert torch.equal(out, (value * n * (n + 1) // 2).to(torch.int32))


def test_streams_and_threads_beside_each_other() -> None:
    def run(number: int) -> bool:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.full((100_003 * (number + 1) + (number << 20),), number, device="cuda")
            wanted = number * torch.arange(1, x.numel() + 1, device="cuda")
            same = [torch.equal(km.inclusive_scan(x), wanted) for _ in range(20)]
            stream.synchronize()
        return all(same)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(4)))


def test_keys() -> None:
    size = (1 << 20) + 333
    keys = torch.arange(size, device="cuda") // 5
    values = ones(size)
    found, totals = km.reduce_by_key(keys, values)
    assert torch.equal(found, torch.arange(-(-size // 5), device="cuda"))
    assert torch.equal(totals, torch.bincount(keys))
    scan = km.exclusive_scan_by_key(keys, values)
    assert torch.equal(scan, torch.arange(size, device="cuda") % 5)


@pytest.mark.slow
def test_more_elements_than_32_bits_count() -> None:
    size = (1 << 32) + 6145
    x = torch.ones(size, dtype=torch.int8, device="cuda")
    found = km.inclusive_scan(x, dtype="int8", out=x)
    for at in (0, 127, 1 << 31, (1 << 32) - 1, 1 << 32, size - 1):
        assert int(found[at]) == (at + 1 + 128) % 256 - 128
    del found, x
    torch.cuda.empty_cache()
