"""Outliers: readings split into good and bad ones by a rule, and the bad ones counted in bursts."""

import numpy as np

import kernelmill as km

rng = np.random.default_rng(3)
n = 1_000_000
time = np.arange(n)
reading = rng.normal(20.0, 0.5, n)
for start in rng.integers(0, n - 50, 20):  # a sensor that sticks now and then
    reading[start : start + 50] = 85.0

low, high = 15.0, 25.0
good, bad = km.partition((time, reading), lambda _, r: low < r < high)
print(f"{good[0].size} readings are good, {bad[0].size} are not")
assert good[0].size + bad[0].size == n
assert (good[1] < high).all()

# Neighbours in time belong to one burst.
starts, lengths = km.run_length_encode(bad[0], equal=lambda a, b: b - a == 1)
print(f"{lengths.size} bursts, the longest has {lengths.max()} readings")
assert lengths.sum() == bad[0].size

cold, warm, rest = km.three_way_partition(good[1], lambda r: r < 19.0, lambda r: r > 21.0)
print(f"{cold.size} cold, {warm.size} warm, {rest.size} in between")
assert np.array_equal(cold, good[1][good[1] < 19.0])
