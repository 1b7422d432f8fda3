"""A big array updated in place: a damped wave, step by step, without a temporary array."""

import numpy as np

import kernelmill as km

size, steps = 2_000_000, 10
here = np.sin(np.linspace(0, 20 * np.pi, size, dtype=np.float32))
before = here.copy()
expected, expected_before = here.copy(), before.copy()

damping = 0.01  # captured: read at each launch
stiffness = np.float32(0.25)


def advance(previous, now, left, right):
    """Return the next value of a string from its last two and its neighbours."""
    return now + (now - previous) * (1 - damping) + stiffness * (left - 2 * now + right)


# Neighbours are shifted views. The result goes over the values before the last, element for
# element, so nothing is copied; the plan makes each step one launch.
inner = slice(1, -1)
step = km.transform.plan(
    (before[inner], here[inner], here[:-2], here[2:]), advance, out=before[inner]
)
for _ in range(steps):
    step(before[inner], here[inner], here[:-2], here[2:], out=before[inner])
    here, before = before, here

for _ in range(steps):
    now, left, right = expected[inner], expected[:-2], expected[2:]
    expected_before[inner] = advance(expected_before[inner], now, left, right)
    expected, expected_before = expected_before, expected

lowest, highest = km.reduce(here, (km.minimum, km.maximum))
print(f"{size} points after {steps} steps: between {lowest:.4f} and {highest:.4f}")
assert (here == expected).all()  # the same float32 operations in the same order

# An output that overlaps an input elsewhere is safe too: the input is copied first.
x = np.arange(6)
km.transform((x[:-1], x[1:]), lambda a, b: a + b, out=x[1:])
print(f"neighbours added: {x}")
assert x.tolist() == [0, 1, 3, 5, 7, 9]
