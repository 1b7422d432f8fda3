"""The Mandelbrot set: a `while` loop that each element leaves at its own time."""

import numpy as np

import kernelmill as km

limit = 100  # captured: another value compiles nothing


def escape_time(c):
    """Return the number of turns of z = z² + c until |z| > 2, at most `limit`."""
    z = c
    turns = 0
    while turns < limit and z.real * z.real + z.imag * z.imag <= 4:
        z = z * z + c
        turns += 1
    return np.int32(turns)


def escape_time_of_all(c, limit):
    """Do the same with NumPy, part by part, on all elements until the last turn."""
    x, y = c.real, c.imag
    turns = np.zeros(c.shape, np.int32)
    for _ in range(limit):
        inside = x * x + y * y <= 4
        turns += inside
        x, y = (
            np.where(inside, x * x - y * y + c.real, x),
            np.where(inside, x * y + y * x + c.imag, y),
        )
    return turns


width, height = 240, 96
plane = np.linspace(-2.2, 1.0, width) + 1j * np.linspace(-1.2, 1.2, height)[:, None]
turns = km.transform(plane, escape_time)

for row in turns[::8, ::4]:
    print("".join(" .:-=+*#%@"[min(9, n * 10 // (limit + 1))] for n in row))

assert (turns == escape_time_of_all(plane, limit)).all()

limit = 10
assert (km.transform(plane, escape_time) == escape_time_of_all(plane, limit)).all()
