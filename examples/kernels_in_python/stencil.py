"""stencil: one step of the heat equation on a plane; the border keeps its values.

A thread takes four rows of a column, whose values it then holds in registers.
"""

import kernelmill as km

ROWS = 4


@km.kernel
def stencil(u, out, rate):
    height, width = u.shape
    for part, j in km.grid_range(-(-height // ROWS), width):
        for r in km.static_range(ROWS):
            i = part * ROWS + r
            if i < height:
                value = u[i, j]
                if 0 < i < height - 1 and 0 < j < width - 1:
                    around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
                    value += rate * (around - 4 * value)
                out[i, j] = value


def run(u, out, rate, stream=None):
    height, width = u.shape
    stencil.launch((-(-height // ROWS), width), u, out, rate, stream=stream)
