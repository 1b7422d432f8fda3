"""The worst loss from a peak of each of several prices, day by day: two scans and a transform."""

import numpy as np

import kernelmill as km

steps = np.random.default_rng(3).normal(0.0005, 0.01, size=(250, 4))
prices = km.inclusive_scan(1.0 + steps, km.multiply, axis=0)
peaks = km.inclusive_scan(prices, km.maximum, axis=0)
losses = km.transform((prices, peaks), lambda price, peak: 1.0 - price / peak)
worst = km.reduce(losses, km.maximum, axis=0)
print("worst loss from a peak:", ", ".join(f"{loss:.1%}" for loss in worst))

# Days in a row below the peak: a scan by key, whose keys change where a peak is reached.
below = losses[:, 0] > 0
runs = km.inclusive_scan_by_key(below, np.ones(len(below), np.int64))
print("longest time below the peak:", int(np.max(runs[below])), "days")

assert np.allclose(prices, np.cumprod(1.0 + steps, axis=0))
assert np.array_equal(peaks, np.maximum.accumulate(prices, axis=0))
