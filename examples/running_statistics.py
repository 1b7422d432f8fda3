"""Count, mean and variance in one pass, without the cancellation of a sum of squares.

Partial statistics are merged in pairs: Chan, Golub and LeVeque, "Algorithms for computing the
sample variance", The American Statistician 37 (1983), after Welford (1962).
"""

import numpy as np

import kernelmill as km


@km.struct
class Statistics:
    """Of some elements: how many, their mean, the sum of squared deviations from it."""

    count: km.float64
    mean: km.float64
    deviations: km.float64


def single(v):
    """Return the statistics of one element."""
    return Statistics(1.0, v, 0.0)


@km.op(commutative=True)
def merge(a, b):
    """Return the statistics of the elements of both."""
    count = a.count + b.count
    step = b.mean - a.mean
    return Statistics(
        count,
        a.mean + step * b.count / count,
        a.deviations + b.deviations + step * step * a.count * b.count / count,
    )


# A small spread far from zero, in float32: the elements are converted as they are read.
x = (np.random.default_rng(1).normal(size=1_000_000) + 10_000).astype(np.float32)

found = km.transform_reduce(x, single, merge)
variance = found["deviations"] / found["count"]
exact = x.astype(np.float64)
print(f"count {found['count']:.0f}, mean {found['mean']:.6f}, variance {variance:.6f}")
assert np.isclose(found["mean"], exact.mean(), rtol=1e-14)
assert np.isclose(variance, exact.var(), rtol=1e-12)

# The textbook formula in float32 is not even positive here.
total, squares = km.transform_reduce(x, lambda v: (v, v * v), (km.add, km.add))
naive = squares / x.size - (total / x.size) ** 2
print(f"mean of squares minus square of mean, in float32: {naive:.6f}")
assert naive < 0

# The same along an axis: one statistic for each of 10 groups.
groups = km.transform_reduce(x.reshape(10, -1), single, merge, axis=1)
assert np.allclose(groups["deviations"] / groups["count"], exact.reshape(10, -1).var(axis=1))
