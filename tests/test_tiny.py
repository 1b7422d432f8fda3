"""A smoke test: one call of each family, in a few seconds with an empty cache."""

from __future__ import annotations

import numpy as np

import kernelmill as km


def test_transform_and_reduce() -> None:
    x = np.arange(10_000, dtype=np.float32)
    k = 3
    y = km.transform(x, lambda v: v * k + 1)
    assert np.array_equal(y, x * 3 + 1)
    assert km.reduce(y, km.maximum) == 29_998
    assert km.transform_reduce((x, y), lambda a, b: b > 3 * a) == 10_000
    assert km.reduce(y.reshape(100, 100), km.minimum, axis=1).tolist() == y[::100].tolist()
