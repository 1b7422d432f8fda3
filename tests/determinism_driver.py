"""Print a digest for each of a fixed set of results; run by tests/cpu/test_determinism.py."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

import kernelmill as km

if TYPE_CHECKING:
    from collections.abc import Iterator


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return (np.random.default_rng(len(shape)).normal(size=shape) * 8).astype(dtype)


def curve(a: Any, b: Any) -> Any:
    return np.exp(-a * a) * np.sin(b) + np.sqrt(abs(a)) - np.tanh(b) / (1 + a * a)


def powers(a: Any, b: Any) -> Any:
    return abs(a) ** b + np.log1p(abs(b)) * np.arctan2(a, b) - np.hypot(a, b) % 0.75


def ordered(a: Any, b: Any) -> Any:
    return a * 0.5 + b


def collected() -> Iterator[tuple[str, Any]]:
    f, d = values((100_003,), "f4"), values((100_003,), "f8")
    yield "sum-f4", km.reduce(f)
    yield "sum-f8", km.reduce(d)
    yield "sum-f2", km.reduce(values((5000,), "f2"), (km.add, km.multiply, km.minimum))
    yield "sum-strided", km.reduce(f[::-3])
    yield "ordered-f4", km.reduce(f, ordered, init=3)
    grid = values((70, 33, 130), "f4")
    yield "rows", km.reduce(grid, axis=2)
    yield "columns", km.reduce(grid, axis=0)
    yield "axes", km.reduce(grid, axis=(0, 2))
    yield "ordered-columns", km.reduce(grid, ordered, axis=1)
    yield "scan-f4", km.inclusive_scan(f)
    yield "scan-f8", km.exclusive_scan(d, km.multiply, init=0.5)
    yield "scan-f2", km.inclusive_scan(values((50_000,), "f2"))
    yield "scan-ordered", km.inclusive_scan(f, ordered)
    yield "scan-columns", km.inclusive_scan(grid, axis=0)
    keys = np.arange(len(d)) // 77
    yield "by-key", km.reduce_by_key(keys, d)[1]
    yield "select", km.select(f, lambda a: a > 1)
    yield "partition", km.three_way_partition(d, lambda a: a > 3, lambda a: a < -3)
    yield "runs", km.run_length_encode((f / 4).astype("i4"))
    yield "firsts", km.unique_by_key((d / 4).astype("i2"), f)
    yield "histogram", km.histogram(f, 100, range=(-9, 9))[0]
    yield "weights", km.bincount(keys, weights=d)
    yield "bytes", km.bincount(f.view("u1"))
    yield "places", km.lower_bound(np.sort(d), d[::-1])
    offsets = np.sort(np.random.default_rng(1).integers(0, len(d) + 1, 9001))
    yield "segments-f8", km.segmented_reduce(d, offsets)
    yield "segments-f2", km.segmented_reduce(f.astype("f2"), offsets, km.maximum, init=-9)
    offsets[[0, -1]] = 0, len(d)
    yield "segments-scan", km.segmented_scan(f, offsets)
    yield "curve-f4", km.transform((f, f[::-1]), curve)
    yield "powers-f8", km.transform((d, d[::-1]), powers)
    yield "curve-sum", km.transform_reduce((d, d[::-1]), curve)
    z = values((10_000,), "f8").view("c16")
    yield "complex", km.transform((z, z[::-1]), lambda a, b: a * b / (a + b))


def bits(result: Any) -> bytes:
    """The bytes of arrays, in which all NaNs are alike."""
    if isinstance(result, tuple):
        return b"".join(map(bits, result))
    array = np.ascontiguousarray(result)
    return np.where(np.isnan(array), array.dtype.type(0), array).tobytes()


if __name__ == "__main__":
    for name, result in collected():
        print(name, hashlib.sha256(bits(result)).hexdigest())
