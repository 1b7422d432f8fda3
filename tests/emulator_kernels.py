"""The kernels of corpus/right.cu as cases: how each is launched, and what NumPy says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

CORPUS = Path(__file__).resolve().parent / "emulator/corpus"
RNG = np.random.default_rng(4)
X = RNG.integers(0, 100, 1024).astype(np.int32)
F = RNG.normal(size=1024).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Case:
    """`args` makes fresh arguments; `check` is given them after the launch."""

    name: str
    args: Callable[[], list[Any]]
    check: Callable[..., Any]
    grid: int | tuple[int, ...] = 1
    block: int | tuple[int, ...] = 64
    shared: int = 0
    cooperative: bool = False
    tolerance: float = 0.0
    extra: tuple[str, ...] = field(default=())


def zeros(count: int, dtype: Any = np.int32) -> np.ndarray:
    return np.zeros(count, dtype)


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 16, as allocations of CUDA are."""
    raw = np.zeros(array.nbytes + 16, np.uint8)
    start = -raw.ctypes.data % 16
    made = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def shifted(x: np.ndarray, by: int, width: int, lanes: int = 32) -> np.ndarray:
    """Lane l gets the value of l + by inside its part of `width` lanes, or its own."""
    lane = np.arange(len(x))
    inside = lane % width + by
    return x[np.where((inside >= 0) & (inside < width), lane + by, lane)]


def shuffle_results(x: np.ndarray, out: np.ndarray) -> tuple[Any, Any]:
    x = x[:64]
    t = np.arange(64)
    wanted = [
        x[t // 32 * 32 + (t + 5) % 32],
        shifted(x, -3, 32),
        shifted(x, 7, 32),
        x[t ^ 9],
        x[t // 8 * 8 + 2],
        shifted(x, -1, 4),
        shifted(x, 1, 16),
    ]
    return out, np.concatenate(wanted)


def vote_results(x: np.ndarray, out: np.ndarray) -> tuple[Any, Any]:
    wanted = []
    for warp in x[:64].reshape(2, 32):
        wanted += [sum(int(v & 1) << i for i, v in enumerate(warp)), int((warp > 95).any()), 1]
    return out, wanted


def match_results(x: np.ndarray, out: np.ndarray) -> tuple[Any, Any]:
    v = x[:32]
    same = [sum(1 << k for k in range(32) if v[k] & 3 == v[i] & 3) for i in range(32)]
    rows = [0, v.sum(), v.min(), v.max(), np.bitwise_or.reduce(v)]
    return out, np.array([*same, *np.repeat(rows, 32)], np.uint32)


def divided_results(x: np.ndarray, out: np.ndarray) -> tuple[Any, Any]:
    wanted = []
    for warp in x[:64].reshape(2, 32):
        odd = sum(warp[i] for i in range(12, 32) if i & 1)
        even = sum(1 << i for i in range(12, 32, 2) if warp[i] > 50)
        wanted += [warp[11] if i < 12 else (odd if i & 1 else even) for i in range(32)]
    return out.view(np.uint32), np.array(wanted, np.uint32)


def partition_results(x: np.ndarray, out: np.ndarray) -> tuple[Any, Any]:
    sums, places, labels = [], [], []
    for warp in x.reshape(2, 32).tolist():
        for i, v in enumerate(warp):
            same = [j for j in range(32) if warp[j] & 1 == v & 1]
            sums.append(sum(warp[j] for j in same))
            places.append(100 * same.index(i) + len(same))
            alike = [j for j in range(32) if warp[j] % 3 == v % 3]
            labels.append(warp[alike[0]] + sum(int(warp[j] > 50) << k for k, j in enumerate(alike)))
    return out, [*sums, *places, *labels]


def atomic_results(i, u, l, f, d) -> tuple[Any, Any]:
    t = np.arange(256)
    found = [*i.tolist(), *u.tolist(), *l.tolist(), *f.tolist(), *d.tolist()]
    decreased = 0
    for _ in t:
        decreased = 9 if decreased == 0 else decreased - 1
    wanted = [
        512, -256, -255, 255, 256, 256,
        0, 0xFFFFFFFF, int(np.bitwise_xor.reduce(t)), 256 % 100, decreased, 4,
        int(t.sum()) << 20, 255 << 33, 6,
        128.0, 3.0, 64.0,
    ]  # fmt: skip
    return found, wanted


def integer_results(x: np.ndarray, out: np.ndarray) -> tuple[Any, Any]:
    wanted = []
    for v in map(int, x):
        text = f"{v:032b}"
        both = 0x01020304 << 32 | v
        permuted = sum((both >> 8 * (0x6543 >> 4 * i & 7) & 255) << 8 * i for i in range(4))
        signed = [(b ^ 128) - 128 for b in v.to_bytes(4, "little")]
        wanted += [
            v.bit_count(),
            32 - v.bit_length(),
            int(text[::-1], 2),
            (v & -v).bit_length(),
            v * 0x9E3779B9 >> 32,
            permuted,
            ((v >> 3) << 5 | v >> 27) & 0xFFFFFFFF,
            (sum(signed) + 1) & 0xFFFFFFFF,
        ]
    return out, np.array(wanted, np.uint32)


def function_results(x: np.ndarray, out: np.ndarray) -> tuple[Any, Any]:
    v = x.astype(np.float64)
    columns = [
        np.exp(v), np.log(v), v**-0.5, v**1.5, np.minimum(v, 2), np.clip(v, 0, 1), np.sin(v),
        v * v + 1,
    ]  # fmt: skip
    return out.reshape(-1, 8), np.stack(columns, 1)


def half_results(x, y, hx, hy, pairs) -> tuple[Any, Any]:
    bf16 = ml_dtypes.bfloat16
    wide = x.astype(np.float64)
    one = y.view(bf16) * y.view(bf16) + bf16(1)
    found = np.concatenate([hx, hy.view(bf16).astype(np.float32), pairs.ravel()])
    return found, np.concatenate(
        [(wide * wide + 0.5).astype(np.float16), one.astype(np.float32), np.repeat(x + 2, 2)]
    )


PAIR = np.dtype([("key", "f4"), ("index", "i4")])
HALVES = F[:32].astype(np.float16)
BRAINS = F[32:64].astype(ml_dtypes.bfloat16).view(np.uint16)
POSITIVE = np.abs(F[:32]) + np.float32(0.01)

CASES = [
    Case("reverse_static", lambda: [X, zeros(1024)],
         lambda x, y: (y, x.reshape(4, 256)[:, ::-1].ravel()), 4, 256),
    Case("reverse_dynamic", lambda: [X, zeros(1024)],
         lambda x, y: (y, x.reshape(8, 128)[:, ::-1].ravel()), 8, 128, shared=512),
    Case("tree_sum", lambda: [F, zeros(8, np.float32)],
         lambda x, y: (y, x.reshape(8, 128).sum(1)), 8, 128, tolerance=1e-5),
    Case("structs_with_holes",
         lambda: [X[:64].copy(), *(zeros(64 * size, np.uint8) for size in (16, 24, 4, 6)),
                  zeros(64)],
         lambda x, y, z, u, v, total: (total, 3 * x[::-1] + 5 * np.arange(64)[::-1]), 1, 64),
    Case("structs_in_structs",
         lambda: [X[:64].astype(np.float64), *(zeros(64 * 24, np.uint8) for _ in range(2)),
                  zeros(64, np.float64)],
         lambda x, y, z, total: (total, 3 * x[::-1] + 3 + 2 * np.arange(64)[::-1]), 1, 64),
    Case("transpose", lambda: [F[:900].copy(), zeros(900, np.float32), 30],
         lambda x, y, n: (y, x.reshape(30, 30).T.ravel()), (2, 2), (16, 16)),
    Case("barrier_forms", lambda: [X[:256] + np.int32(1), zeros(3)],
         lambda x, y: (y, [1, int((x > 90).any()), (x > 50).sum()]), 1, 256),
    Case("early_exit", lambda: [zeros(50), 50], lambda y, n: (y, np.arange(50)[::-1])),
    Case("odd_even_sort", lambda: [X[:128].copy()], lambda x: (x, np.sort(X[:128])), 1, 128),
    Case("bitonic_sort", lambda: [X[:256].astype(np.uint32)],
         lambda x: (x, np.sort(X[:256])), 1, 256),
    Case("scan_block", lambda: [X[:256].copy(), zeros(256)],
         lambda x, y: (y, np.cumsum(x)), 1, 256),
    Case("shuffles", lambda: [X[:64].copy(), zeros(448)], shuffle_results),
    Case("votes", lambda: [X[:64].copy(), zeros(6, np.uint32)], vote_results),
    Case("match_and_reduce", lambda: [X[:32].copy(), zeros(192, np.uint32)], match_results, 1, 32),
    Case("divided_warp", lambda: [X[:64].copy(), zeros(64)], divided_results),
    Case("partial_warp", lambda: [X[:40].copy(), zeros(40)],
         lambda x, y: (y, x[np.arange(40) ^ 1]), 1, 40),
    Case("warp_sums", lambda: [F, zeros(32, np.float32)],
         lambda x, y: (y, x.reshape(32, 32).sum(1)), 8, 128, tolerance=1e-5),
    Case("warp_exchange", lambda: [X[:64].copy(), zeros(64)],
         lambda x, y: (y, x[np.arange(64) ^ 31])),
    Case("wide_shuffle", lambda: [F[:32].astype(np.float64), zeros(32, np.float64)],
         lambda x, y: (y, [x[0], *x[:-1]]), 1, 32),
    Case("histogram", lambda: [X, zeros(16), 1024],
         lambda x, y, n: (y, np.bincount(x & 15, minlength=16)), 3, 96),
    Case("every_atomic",
         lambda: [zeros(6), np.array([~0 & 0xFFFFFFFF, 0, 0, 0, 0, 0], np.uint32),
                  np.array([0, 0, 5], np.uint64), zeros(2, np.float32), zeros(1, np.float64)],
         atomic_results, 4, 64),
    Case("cas_loop", lambda: [zeros(1, np.float32), F],
         lambda y, x: (y, [x.max()]), 8, 128),
    Case("last_block",
         lambda: [F[:640].copy(), zeros(10, np.float32), zeros(1, np.uint32), zeros(1, np.float32)],
         lambda x, p, t, y: (y, [x.sum()]), 10, 64, tolerance=1e-4),
    Case("look_back",
         lambda: [X[:640].copy(), zeros(640), zeros(20) - np.int32(1), zeros(1, np.uint32)],
         lambda x, y, s, t: (y, np.cumsum(x)), 20, 32),
    Case("flag_in_block", lambda: [zeros(1)], lambda y: (y, [7])),
    Case("spin_lock", lambda: [zeros(1), zeros(1)], lambda lock, y: (y, [45]), 10, 32),
    Case("grid_barrier", lambda: [zeros(320), zeros(320)],
         lambda x, y: (x, np.roll(np.arange(320)[::-1] ** 2, -1)), 5, 64, cooperative=True),
    Case("grid_stride", lambda: [F, F[::-1].copy(), zeros(1000, np.float32), 1000],
         lambda a, b, c, n: (c, (a + 2 * b)[:1000]), 3, 100, tolerance=1e-6),
    Case("three_dimensions", lambda: [zeros(2 * 3 * 2 * 4 * 2 * 3)],
         lambda y: (y, [z * 100 + ty * 10 + tx for z in range(2) for _ in range(6)
                        for _ in range(3) for ty in range(2) for tx in range(4)]),
         (2, 3, 2), (4, 2, 3)),
    Case("tiles", lambda: [X[:64].copy(), zeros(193)],
         lambda x, y: (y, [
             *np.repeat(x.reshape(8, 8).sum(1), 8),
             *np.repeat([r[3] + sum(int(v & 1) << i for i, v in enumerate(r))
                         for r in x.reshape(8, 8)], 8),
             *np.repeat(x.reshape(8, 8).max(1) * 10 + np.arange(8), 8), 64])),
    Case("any_group", lambda: [X[:64].copy(), zeros(5)],
         lambda x, y: (y, [x.sum(), *x.reshape(4, 16).sum(1)])),
    Case("partitions", lambda: [X[:64].copy(), zeros(192)], partition_results),
    Case("vectors",
         lambda: [aligned(F[:128]), aligned(zeros(64, np.float32)), aligned(zeros(128, np.float32)),
                  zeros(128, np.uint8)],
         lambda x, y, z, b: (
             np.concatenate([y, z, b]),
             np.concatenate([np.stack([x[::4] + x[1::4], x[2::4] * x[3::4]], 1).ravel(),
                             x.reshape(32, 4)[:, ::-1].ravel(),
                             np.array([[1, 2, 3, t] for t in range(32)]).ravel()])),
         1, 32, tolerance=1e-6),
    Case("arg_min", lambda: [F[:32].copy(), np.zeros(1, PAIR)],
         lambda x, y: ([y[0]["key"], y[0]["index"]], [x.min(), x.argmin()]), 1, 32),
    Case("by_value",
         lambda: [np.array((1.5, 7), PAIR)[()], 2.0, 10**10, True, np.arange(8, dtype=np.uint8),
                  zeros(8, np.float64)],
         lambda p, s, n, f, b, y: (y, 3.0 + 7 + 1e10 + 0.5 + np.arange(8)), 1, 8),
    Case("halves",
         lambda: [HALVES, BRAINS, zeros(32, np.float16), zeros(32, np.uint16),
                  zeros((32, 2), np.float16)], half_results, 1, 32),
    Case("integers",
         lambda: [RNG.integers(1, 1 << 32, 32, np.uint32), zeros(256, np.uint32)],
         integer_results, 1, 32),
    Case("functions", lambda: [POSITIVE, zeros(256, np.float32)], function_results, 1, 32,
         tolerance=1e-5),
    Case("constants", lambda: [zeros(8, np.float32)],
         lambda y: (y, [(i % 4 + 1) * i for i in range(7, -1, -1)]), 1, 32),
    Case("instance<double>", lambda: [F[:32].astype(np.float64), zeros(8, np.float64)],
         lambda x, y: (y, x.reshape(8, 4).sum(1)), 1, 8, tolerance=1e-12,
         extra=("instance<double>",)),
    Case("lambdas", lambda: [X[:64].copy(), zeros(64), 3],
         lambda x, y, by: (y, x * 3 + np.arange(64))),
    Case("producer_consumer", lambda: [aligned(X[:320]), zeros(32), 10],
         lambda x, y, n: (y, x.reshape(10, 32).sum(0)[::-1])),
    Case("named_barriers", lambda: [X[:64].copy(), zeros(64)],
         lambda x, y: (y, x[::-1]), 1, 128),
    Case("ptx_accesses",
         lambda: [aligned(X[:128].astype(np.uint32)), aligned(zeros(64, np.uint32)),
                  aligned(zeros(64, np.uint64))],
         lambda x, y, w: (
             np.concatenate([y, w[::2]]),
             np.concatenate([np.stack([x[::4] + x[1::4], x[2::4] + x[3::4] + np.arange(32)], 1)
                             .ravel(), x[::4].astype(np.uint64) + x[3::4]])), 1, 32),
]  # fmt: skip
BY_NAME = {case.name: case for case in CASES}
