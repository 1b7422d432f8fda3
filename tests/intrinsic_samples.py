"""Arguments for the tests of the vector math: random bit patterns, special values, a seed."""

from __future__ import annotations

import math
import secrets

import numpy as np
from hypothesis import settings

from intrinsic_library import FLOATS, TYPES, Row

SEED = 20_260_727 if settings().derandomize else secrets.randbits(32)
"""One sample in CI, a new one wherever examples are new (see conftest.py); failures show it."""

SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0,
           1.5, -1.5, 1e30, -1e30, 1e-30, -1e-30, 1e308, -1e308, 5e-324, -5e-324, 1e-310,
           2.0**24 + 1, 2.0**53, 2.0**53 - 1, -(2.0**53) + 1]  # fmt: skip


def patterns(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random bit patterns: every binade, subnormals, infinities, NaN."""
    width = 32 if kind == "f32" else 64
    return rng.integers(0, 1 << width, count, dtype=f"uint{width}").view(FLOATS[kind])


def special(kind: str) -> np.ndarray:
    tiny = np.finfo(FLOATS[kind]).smallest_subnormal
    with np.errstate(over="ignore"):
        values = np.array(SPECIAL).astype(FLOATS[kind])
    return np.concatenate([values, np.array([tiny, -tiny], values.dtype)])


def arguments(row: Row, rng: np.random.Generator) -> list[np.ndarray]:
    given = []
    for t in row.arguments:
        if t in FLOATS:
            parts = [patterns(t, 8000, rng), rng.uniform(-4, 4, 4000).astype(FLOATS[t]), special(t)]
            given.append(rng.permutation(np.concatenate(parts)))
        elif row.name == "ldexp":
            given.append(rng.integers(-1200, 1200, given[0].size).astype(np.int32))
        else:
            words = rng.integers(0, 1 << 63, 4000, dtype=np.uint64)
            given.append((words >> rng.integers(0, 64, 4000, dtype=np.uint64)).astype(TYPES[t]))
    return given
