"""stencil: one step of the heat equation on a plane; the border keeps its values."""

import kernelmill as km


@km.kernel
def stencil(u, out, rate):
    height, width = u.shape
    for i, j in km.grid_range(height, width):
        value = u[i, j]
        if 0 < i < height - 1 and 0 < j < width - 1:
            around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
            value += rate * (around - 4 * value)
        out[i, j] = value


def run(u, out, rate, stream=None):
    stencil.launch(u.shape, u, out, rate, stream=stream)
