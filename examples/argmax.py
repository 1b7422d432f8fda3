"""Argmax: a reduction of structs that hold a value and its index, over all elements and by row."""

import numpy as np

import kernelmill as km


@km.struct
class Best:
    """A value and where it is."""

    value: km.float64
    index: km.int64


def better(a, b):
    """Keep the larger value, of equal ones the first, and a NaN before all, as `np.argmax` does."""
    if np.isnan(a.value):
        return a
    return b if b.value > a.value or np.isnan(b.value) else a


x = np.random.default_rng(1).normal(size=(4, 100_000))
x[2, 70_000] = x[2, 30_000] = 9.0

best = km.transform_reduce((x, np.arange(x.size).reshape(x.shape)), Best, better)
print(f"largest of all: {best['value']} at {best['index']}")
assert best["index"] == x.argmax()

by_row = km.transform_reduce((x, np.arange(x.shape[1])), Best, better, axis=1)
print(f"by row: {by_row['index']}")
assert (by_row["index"] == x.argmax(axis=1)).all()
assert (by_row["value"] == x.max(axis=1)).all()

x[1, 5] = np.nan
by_row = km.transform_reduce((x, np.arange(x.shape[1])), Best, better, axis=1)
print(f"with a NaN: {by_row['index']}")
assert (by_row["index"] == x.argmax(axis=1)).all()
