"""saxpy: y = a * x + y, eight elements of a thread under way at a time."""

import kernelmill as km


@km.kernel
def saxpy(a, x, y):
    for i in km.grid_range(x.size, unroll=8):
        y[i] = a * x[i] + y[i]


def run(a, x, y, stream=None):
    blocks = -(-x.shape[0] // (8 * 256))
    saxpy[blocks, 256, stream](a, x, y)
