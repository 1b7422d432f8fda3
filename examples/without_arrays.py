"""Work on sequences that are never stored: an integral, the nearest point, a shuffled sample."""

import math

import numpy as np

import kernelmill as km

it = km.iterators

# The area under 4 / (1 + x^2) from 0 to 1, by midpoints that no array holds.
steps = 1_000_000
midpoints = it.transform(it.strided(it.counting(0.5), 1, count=steps), lambda i: i / steps)
area = km.reduce(it.transform(midpoints, lambda x: 4 / (1 + x * x))) / steps
print(f"pi is about {area:.9f}")
assert math.isclose(area, math.pi, abs_tol=1e-9)

# The point nearest to another one, and how far it is, in one pass over two arrays.
random = np.random.default_rng(5)
xs, ys = random.uniform(-1, 1, (2, 100_000))
px, py = 0.25, -0.5
distances = it.transform((xs, ys), lambda x, y: np.hypot(x - px, y - py))
nearest = km.reduce(it.zip(distances, it.counting()), lambda a, b: a if a[0] < b[0] else b)
assert nearest["f1"] == km.argmin(distances) == np.argmin(np.hypot(xs - px, ys - py))

# Every element once, in an order that looks random, written where the order says.
dealt = np.zeros(52, np.int64)
km.transform(it.counting(), lambda i: i, out=it.permutation(dealt, it.shuffle(52, seed=11)))
print(f"five of 52 cards: {dealt[:5]}")
assert (np.sort(dealt) == np.arange(52)).all()
