"""Sums and running sums of lists of different lengths that lie in one array."""

from itertools import pairwise

import numpy as np

import kernelmill as km

rng = np.random.default_rng(1)
lengths = rng.integers(0, 6, 8)
offsets = np.concatenate([[0], np.cumsum(lengths)])
x = np.arange(1, offsets[-1] + 1)

sums = km.segmented_reduce(x, offsets)
running = km.segmented_scan(x, offsets)
lists = [x[a:b] for a, b in pairwise(offsets)]
assert sums.tolist() == [int(part.sum()) for part in lists]
assert running.tolist() == np.concatenate([np.cumsum(part) for part in lists]).tolist()

often = km.bincount(lengths)
assert often.tolist() == np.bincount(lengths).tolist()

middle = km.upper_bound(offsets, len(x) // 2) - 1
assert offsets[middle] <= len(x) // 2 < offsets[middle + 1]

print("lengths", lengths.tolist(), "sums", sums.tolist())
print("how often each length is", often.tolist(), "the middle is in list", int(middle))
