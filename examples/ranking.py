"""The best of each day, and all of a month by name: topk, sorting by keys and in segments."""

from itertools import pairwise

import numpy as np

import kernelmill as km

rng = np.random.default_rng(1)
days, players = 5, 1000
scores = rng.normal(size=(days, players)).astype(np.float32)

best, who = km.batched_topk(scores, 3)
assert np.array_equal(best, -np.sort(-scores, axis=1)[:, :3])

ranks, names = km.sort_by_key(scores.sum(0), np.arange(players), descending=True)
assert km.is_sorted(ranks, descending=True)

lengths = rng.integers(0, 400, 8)
offsets = np.concatenate([[0], np.cumsum(lengths)])
times = rng.random(offsets[-1])
by_list = km.segmented_sort(times, offsets)
assert all(km.is_sorted(by_list[a:b]) for a, b in pairwise(offsets))

print("best of the days", who[:, 0].tolist(), "best of all", int(names[0]))
